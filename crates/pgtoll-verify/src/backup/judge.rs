//! The verdicts on some pages, as they were read.

use pgtoll_format::{Lsn, PageHeader, RelationFork, Verdict};

use crate::defect::{BlockFinding, Defect};
use crate::found::PagesRead;
use crate::page::page_verdict;

/// The rules for a page's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) block_bytes: u32,
    pub(super) file_blocks: u32,
    pub(super) has_checksums: bool,
}

/// Some pages of a fork.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) fork: RelationFork,
    pub(super) blocks: Blocks,
    /// Whole blocks.
    pub(super) bytes: &'a [u8],
}

/// The blocks.
#[derive(Debug)]
pub(super) enum Blocks {
    /// This one and those behind it.
    From(u32),
    /// The blocks that it holds.
    These(Vec<u32>),
}

/// The findings in some batches.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) pages: PagesRead,
    pub(super) findings: Vec<BlockFinding>,
}

impl Judged {
    /// Whether it is worth sending: each by itself would cost more than the verdicts.
    pub(super) fn is_much(&self) -> bool {
        self.pages.bytes > SENT_AT_ONCE_BYTES || self.findings.len() > FINDINGS_AT_ONCE
    }

    pub(super) fn add(&mut self, batch: &Batch<'_>, rules: Rules) {
        let pages = batch.bytes.chunks_exact(rules.block_bytes.max(1) as usize);
        for (page, place) in pages.zip(0_u32..) {
            let block = match &batch.blocks {
                // Files that are too long may have more blocks than there are numbers.
                Blocks::From(first) => first.saturating_add(place),
                Blocks::These(blocks) => match blocks.get(place as usize) {
                    Some(block) => *block,
                    None => break,
                },
            };
            self.pages.blocks += 1;
            self.pages.bytes += page.len() as u64;
            match page_verdict(page, block, rules.has_checksums) {
                Verdict::Valid => {}
                Verdict::New => self.pages.new += 1,
                Verdict::Invalid(fault) => {
                    let lsn = PageHeader::read(page).map_or(Lsn(0), |header| header.lsn);
                    let defect = Defect::Invalid { fault, lsn };
                    self.findings.push(BlockFinding { fork: batch.fork, block, defect });
                }
            }
        }
    }
}

const SENT_AT_ONCE_BYTES: u64 = 8 << 20;
const FINDINGS_AT_ONCE: usize = 1000;
