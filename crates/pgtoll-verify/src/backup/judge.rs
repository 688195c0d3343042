//! Pages on their way from readers to judges.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender};

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
pub(super) struct Batch {
    pub(super) fork: RelationFork,
    pub(super) blocks: Blocks,
    /// Whole blocks.
    pub(super) bytes: Vec<u8>,
}

/// The blocks.
#[derive(Debug)]
pub(super) enum Blocks {
    /// This one and those behind it.
    From(u32),
    /// The blocks that it holds.
    These(Vec<u32>),
}

/// The findings in a batch.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) pages: PagesRead,
    pub(super) findings: Vec<BlockFinding>,
}

/// A sink for the readers' batches.
pub(super) trait Batches {
    /// Memory for a batch.
    fn memory(&self) -> Vec<u8>;
    /// False: all judges have ended.
    fn put(&self, batch: Batch) -> bool;
}

/// Batches that wait, no more than a few, and the memory of those that were judged.
pub(super) struct BatchQueue {
    /// `None` when a judge panicked: readers must not wait for it.
    waiting: Mutex<Option<Receiver<Batch>>>,
    sender: Mutex<Option<SyncSender<Batch>>>,
    memory: Mutex<Vec<Vec<u8>>>,
}

impl BatchQueue {
    pub(super) fn new(length: usize) -> Self {
        let (sender, receiver) = std::sync::mpsc::sync_channel(length);
        let memory = Mutex::new(Vec::new());
        Self { waiting: Mutex::new(Some(receiver)), sender: Mutex::new(Some(sender)), memory }
    }

    /// Returns the sink for batches; `None` after [`close`](Self::close).
    pub(super) fn end(&self) -> Option<BatchSender<'_>> {
        let sender = pgtoll_system::lock(&self.sender).clone()?;
        Some(BatchSender { queue: self, sender })
    }

    /// No further senders: judges end when the senders have ended.
    pub(super) fn close(&self) {
        *pgtoll_system::lock(&self.sender) = None;
    }

    fn next(&self) -> Option<Batch> {
        pgtoll_system::lock(&self.waiting).as_ref()?.recv().ok()
    }

    /// Judges one batch after the other until there is none.
    pub(super) fn judge<T: From<Judged>>(&self, rules: Rules, message: &SyncSender<T>) {
        let _closing = Closing(self);
        // Sent together: sending each by itself would cost more than judging it.
        let mut sum = Judged::default();
        while let Some(batch) = self.next() {
            sum.add(&batch, rules);
            pgtoll_system::lock(&self.memory).push(batch.bytes);
            let is_much =
                sum.pages.bytes > SENT_AT_ONCE_BYTES || sum.findings.len() > FINDINGS_AT_ONCE;
            if is_much {
                // Without a receiver the readers must end all the same.
                let _ = message.send(std::mem::take(&mut sum).into());
            }
        }
        let _ = message.send(sum.into());
    }
}

/// Lets the readers end when a judge panics.
struct Closing<'a>(&'a BatchQueue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *pgtoll_system::lock(&self.0.waiting) = None;
        }
    }
}

/// A reader's end of the queue.
pub(super) struct BatchSender<'a> {
    queue: &'a BatchQueue,
    sender: SyncSender<Batch>,
}

impl Batches for BatchSender<'_> {
    fn memory(&self) -> Vec<u8> {
        let mut memory = pgtoll_system::lock(&self.queue.memory);
        memory.pop().unwrap_or_default()
    }

    fn put(&self, batch: Batch) -> bool {
        self.sender.send(batch).is_ok()
    }
}

/// Judges each batch at once, where there is no thread for it.
pub(super) struct Here<F> {
    pub(super) rules: Rules,
    /// False: enough.
    pub(super) take: RefCell<F>,
}

impl<F: FnMut(Judged) -> bool> Batches for Here<F> {
    fn memory(&self) -> Vec<u8> {
        Vec::new()
    }

    fn put(&self, batch: Batch) -> bool {
        let mut judged = Judged::default();
        judged.add(&batch, self.rules);
        (self.take.borrow_mut())(judged)
    }
}

impl Judged {
    fn add(&mut self, batch: &Batch, rules: Rules) {
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
