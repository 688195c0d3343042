//! Files of relations, whole or incremental: their pages are judged as they are read, where the processor
//! still has them.

use std::fmt;
use std::io::Read;

use pgtoll_format::{IncrementalError, IncrementalHeader, RelFileLocator, RelationFork};

use super::judge::{Batch, Blocks, Judged, Rules};
use crate::defect::{BlockFinding, Defect, LayoutDefect};
use pgtoll_datadir::RelationFileName;
use pgtoll_wal::{TarError, TarStream};

/// Bytes of a file, one after the other.
pub(super) trait Bytes {
    type Error: fmt::Display;

    /// Fills the buffer as far as there is anything. An error comes after what is before it.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Self::Error>;
}

impl<R: Read> Bytes for TarStream<R> {
    type Error = TarError;

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        TarStream::read(self, buffer)
    }
}

/// A file, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct RelationMember {
    pub(super) relation: RelFileLocator,
    pub(super) name: RelationFileName,
    pub(super) bytes: u64,
}

impl RelationMember {
    fn fork(&self) -> RelationFork {
        RelationFork { relation: self.relation, number: self.name.fork }
    }

    /// The number of the file's first block.
    pub(super) fn first(&self, rules: Rules) -> Option<u32> {
        self.name.segment.checked_mul(rules.file_blocks)
    }
}

/// Reads pages and judges them.
pub(super) struct Loader<'a> {
    rules: Rules,
    /// Takes verdicts; false: enough.
    take: &'a mut dyn FnMut(Judged) -> bool,
    /// Verdicts that were not taken yet.
    judged: Judged,
    /// Memory for pages, which is used again and again.
    memory: Vec<u8>,
    /// The faults of the files themselves.
    findings: Vec<BlockFinding>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(rules: Rules, take: &'a mut dyn FnMut(Judged) -> bool) -> Self {
        let findings = Vec::new();
        Self { rules, take, judged: Judged::default(), memory: Vec::new(), findings }
    }

    /// The faults of the files themselves, after the last verdicts were taken.
    pub(super) fn end(self) -> Vec<BlockFinding> {
        let _ = (self.take)(self.judged);
        self.findings
    }

    /// A whole file.
    pub(super) fn whole<B: Bytes>(
        &mut self,
        member: &RelationMember,
        input: &mut B,
    ) -> Result<(), B::Error> {
        let Some(first) = member.first(self.rules) else { return Ok(()) };
        let block_bytes = u64::from(self.rules.block_bytes);
        let blocks = member.bytes / block_bytes;
        let rest = member.bytes % block_bytes;
        let block = |number: u64| u32::try_from(u64::from(first) + number).unwrap_or(u32::MAX);
        if member.bytes > block_bytes * u64::from(self.rules.file_blocks) {
            let layout = LayoutDefect::TooLong { segment: member.name.segment };
            self.wrong(member, block(self.rules.file_blocks.into()), Defect::Layout(layout));
        }
        if let Some(bytes) = u32::try_from(rest).ok().filter(|rest| *rest > 0) {
            self.wrong(member, block(blocks), Defect::Layout(LayoutDefect::EndsInBlock { bytes }));
        }
        self.blocks(member, input, blocks, &|from, _| Blocks::From(block(from)))
    }

    /// Some blocks of a file.
    pub(super) fn incremental<B: Bytes>(
        &mut self,
        member: &RelationMember,
        input: &mut B,
    ) -> Result<(), B::Error> {
        let Some(first) = member.first(self.rules) else { return Ok(()) };
        let Rules { block_bytes, file_blocks, .. } = self.rules;
        let mut begin = [0; IncrementalHeader::BYTES];
        let read = take(input, &mut begin)?;
        let header = match IncrementalHeader::read(&begin[..read], file_blocks) {
            Ok(header) => header,
            Err(error) => {
                self.damaged(member, first, error);
                return Ok(());
            }
        };
        let expected = header.file_bytes(block_bytes);
        if member.bytes != expected {
            self.damaged(member, first, IncrementalError::Length { bytes: member.bytes, expected });
        }
        // Not more than a file has blocks.
        let behind = header.header_bytes(block_bytes) - begin.len() as u64;
        let mut numbers = vec![0; usize::try_from(behind).unwrap_or_default()];
        let read = take(input, &mut numbers)?;
        let numbers = match header.numbers(&numbers[..read], file_blocks) {
            Ok(numbers) => numbers,
            Err(error) => {
                self.damaged(member, first, error);
                return Ok(());
            }
        };
        self.blocks(member, input, header.blocks.into(), &|from, count| {
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            let some = numbers.iter().skip(from).take(count);
            Blocks::These(some.map(|number| first.saturating_add(*number)).collect())
        })
    }

    fn damaged(&mut self, member: &RelationMember, first: u32, error: IncrementalError) {
        self.wrong(member, first, Defect::Incremental(error));
    }

    fn wrong(&mut self, member: &RelationMember, block: u32, defect: Defect) {
        self.findings.push(BlockFinding { fork: member.fork(), block, defect });
    }

    /// Whole blocks, not more than there are; whose numbers `named` tells of the first and how many.
    fn blocks<B: Bytes>(
        &mut self,
        member: &RelationMember,
        input: &mut B,
        blocks: u64,
        named: &dyn Fn(u64, usize) -> Blocks,
    ) -> Result<(), B::Error> {
        let block_bytes = self.rules.block_bytes as usize;
        let at_once = (BATCH_BYTES / block_bytes).max(1);
        let mut from = 0;
        while from < blocks {
            let count = usize::try_from(blocks - from).unwrap_or(at_once).min(at_once);
            self.memory.resize(at_once * block_bytes, 0);
            let read = input.read(&mut self.memory[..count * block_bytes])?;
            let whole = read / block_bytes;
            let bytes = &self.memory[..whole * block_bytes];
            let batch = Batch { fork: member.fork(), blocks: named(from, whole), bytes };
            self.judged.add(&batch, self.rules);
            let is_taken = !self.judged.is_much() || (self.take)(std::mem::take(&mut self.judged));
            if read == 0 || !is_taken {
                break;
            }
            from += whole as u64;
            if whole < count {
                // Its end, or an error behind it, which comes now.
                input.read(&mut vec![0; block_bytes])?;
                break;
            }
        }
        Ok(())
    }
}

/// All that is there until the buffer is full.
fn take<B: Bytes>(input: &mut B, buffer: &mut [u8]) -> Result<usize, B::Error> {
    let mut taken = 0;
    while taken < buffer.len() {
        match input.read(&mut buffer[taken..])? {
            0 => break,
            read => taken += read,
        }
    }
    Ok(taken)
}

/// The bytes that are judged at once: they fit into a core's own cache.
const BATCH_BYTES: usize = 256 << 10;
