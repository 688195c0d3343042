//! The threads that read and judge.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};

use pgtoll_format::{Lsn, PageHeader, Verdict};

use super::disk::{ReadAt, read_all};
use super::pace::Pace;
use super::visible::{MapPage, VisibilityMap};
use super::{DataDirectory, Disk, Finding, Layout, Pages, WhatIsWrong, fork_of, page_verdict};
use crate::{Fork, RelationFile};

/// What the threads share.
pub(super) struct Work<'a> {
    disk: &'a dyn Disk,
    files: &'a [RelationFile],
    rules: Rules,
    next: Mutex<(usize, u64)>,
    is_stopped: AtomicBool,
    pace: Pace,
}

/// What holds in this data directory.
#[derive(Clone, Copy, Debug)]
struct Rules {
    block_bytes: usize,
    file_blocks: u32,
    has_checksums: bool,
    /// No page was changed last by WAL behind this.
    wal_end: Option<Lsn>,
    /// What contradicts itself is wrong.
    is_consistent: bool,
}

/// A piece of a file that one thread reads.
#[derive(Clone, Copy, Debug)]
struct Unit {
    file: usize,
    from: u64,
    to: u64,
}

/// What a thread found in a piece.
#[derive(Debug, Default)]
pub(super) struct Portion {
    pub(super) pages: Pages,
    pub(super) findings: Vec<Finding>,
    /// The fork's first block is zero.
    pub(super) first: Option<(Fork, WhatIsWrong)>,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        disk: &'a dyn Disk,
        data: &DataDirectory,
        files: &'a [RelationFile],
        rate: Option<u64>,
    ) -> Self {
        let rules = Rules {
            block_bytes: data.control.block_bytes as usize,
            file_blocks: data.control.file_blocks,
            has_checksums: data.has_checksums(),
            wal_end: data.wal_end(),
            is_consistent: data.is_consistent(),
        };
        let (next, is_stopped) = (Mutex::new((0, 0)), AtomicBool::new(false));
        Self { disk, files, rules, next, is_stopped, pace: Pace::new(rate) }
    }

    pub(super) fn all_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.pace.stop();
    }

    /// Reads one piece after the other until there is none.
    pub(super) fn run(&self, sender: &SyncSender<Portion>) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(unit) = self.next() {
            let file = &self.files[unit.file];
            let portion = Portion::default();
            let mut reader = Reader { work: self, file, map: None, is_map_known: false, portion };
            reader.read(unit, &mut buffer);
            if sender.send(reader.portion).is_err() {
                return;
            }
        }
    }

    fn next(&self) -> Option<Unit> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut file, from) = *next;
        while self.files.get(file)?.bytes <= from {
            debug_assert_eq!(from, 0, "only an empty file has nothing to read");
            file += 1;
        }
        let to = self.files[file].bytes.min(from + UNIT_BYTES);
        *next = if to == self.files[file].bytes { (file + 1, 0) } else { (file, to) };
        Some(Unit { file, from, to })
    }

    /// The files of a fork.
    fn of_fork(&self, fork: Fork) -> &[RelationFile] {
        let begin = self.files.partition_point(|file| fork_of(file) < fork);
        let count = self.files[begin..].partition_point(|file| fork_of(file) == fork);
        &self.files[begin..begin + count]
    }

    /// Blocks of a fork, as its last file that is not empty tells.
    fn blocks(&self, fork: Fork) -> u64 {
        let last = self.of_fork(fork).iter().rev().find(|file| file.bytes > 0);
        last.map_or(0, |file| {
            let before = u64::from(file.name.segment) * u64::from(self.rules.file_blocks);
            before + file.bytes / self.rules.block_bytes as u64
        })
    }
}

/// Reads a piece.
struct Reader<'a> {
    work: &'a Work<'a>,
    file: &'a RelationFile,
    /// The visibility map, once it was looked for and found.
    map: Option<VisibilityMap<'a>>,
    is_map_known: bool,
    portion: Portion,
}

impl<'a> Reader<'a> {
    fn read(&mut self, unit: Unit, buffer: &mut [u8]) {
        let file = match self.work.disk.open(&self.file.path) {
            Ok(file) => file,
            Err(error) => return self.unreadable(unit.from, unit.to, error.to_string()),
        };
        let mut at = unit.from;
        while at < unit.to {
            let room = usize::try_from(unit.to - at).unwrap_or(usize::MAX).min(buffer.len());
            if !self.work.pace.may_read(room as u64) {
                return;
            }
            let buffer = &mut buffer[..room];
            match read_all(&*file, buffer, at) {
                Ok(read) => {
                    self.portion.pages.bytes += read as u64;
                    self.judge(&buffer[..read], at);
                    if read < room {
                        self.found(self.block(at + read as u64), WhatIsWrong::Changed);
                        return;
                    }
                }
                Err(_) => self.block_by_block(&*file, buffer, at),
            }
            at += room as u64;
        }
    }

    /// What can be read beside a block that cannot.
    fn block_by_block(&mut self, file: &dyn ReadAt, buffer: &mut [u8], at: u64) {
        let block_bytes = self.work.rules.block_bytes;
        let mut at = at;
        for page in buffer.chunks_mut(block_bytes) {
            match read_all(file, page, at) {
                Ok(read) => {
                    self.portion.pages.bytes += read as u64;
                    self.judge(&page[..read], at);
                }
                Err(error) => self.unreadable(at, at + page.len() as u64, error.to_string()),
            }
            at += page.len() as u64;
        }
    }

    /// The number in its fork of the block at this place of the file.
    fn block(&self, at: u64) -> u32 {
        let before = u64::from(self.file.name.segment) * u64::from(self.work.rules.file_blocks);
        u32::try_from(before + at / self.work.rules.block_bytes as u64).unwrap_or(u32::MAX)
    }

    fn found(&mut self, block: u32, what: WhatIsWrong) {
        self.portion.findings.push(Finding { fork: fork_of(self.file), block, what });
    }

    /// Blocks that follow each other are told together.
    fn unreadable(&mut self, from: u64, to: u64, error: String) {
        let block_bytes = self.work.rules.block_bytes as u64;
        let first = self.block(from);
        let more = u32::try_from((to - from).div_ceil(block_bytes)).unwrap_or(u32::MAX);
        if let Some(last) = self.portion.findings.last_mut()
            && let WhatIsWrong::Unreadable { blocks, error: before } = &mut last.what
            && last.block.checked_add(*blocks) == Some(first)
            && *before == error
        {
            *blocks += more;
            return;
        }
        self.found(first, WhatIsWrong::Unreadable { blocks: more, error });
    }

    /// Whole blocks; what is left of one is told by the file's length.
    fn judge(&mut self, bytes: &[u8], at: u64) {
        let block_bytes = self.work.rules.block_bytes;
        let first = self.block(at);
        for (page, number) in bytes.chunks_exact(block_bytes).zip(0_u32..) {
            // Files that are too long may have more blocks than there are numbers.
            let block = first.saturating_add(number);
            self.portion.pages.blocks += 1;
            match page_verdict(page, block, self.work.rules.has_checksums) {
                Verdict::Valid => self.valid(page, block),
                Verdict::New => self.new_page(block),
                Verdict::Invalid(fault) => {
                    let lsn = PageHeader::read(page).map_or(Lsn(0), |header| header.lsn);
                    self.found(block, WhatIsWrong::Invalid { fault, lsn });
                }
            }
        }
    }

    fn valid(&mut self, page: &[u8], block: u32) {
        let lsn = PageHeader::read(page).map_or(Lsn(0), |header| header.lsn);
        let is_ahead = self.work.rules.wal_end.is_some_and(|end| lsn > end);
        if is_ahead && !self.is_unlogged() {
            self.found(block, WhatIsWrong::AheadOfWal { lsn });
        }
        if self.file.name.fork == VISIBILITY_MAP && self.work.rules.is_consistent {
            let table = self.work.blocks(Fork { fork: MAIN, ..fork_of(self.file) });
            if let Some(beyond) = MapPage::new(page, block).first_from(table) {
                let block = u32::try_from(beyond).unwrap_or(u32::MAX);
                let fork = Fork { fork: MAIN, ..fork_of(self.file) };
                let what = WhatIsWrong::Layout(Layout::VisibleBeyondEnd);
                self.portion.findings.push(Finding { fork, block, what });
            }
        }
    }

    fn new_page(&mut self, block: u32) {
        self.portion.pages.new += 1;
        if self.file.name.fork != MAIN || !self.work.rules.is_consistent {
            return;
        }
        if block == 0 {
            self.portion.first = Some((fork_of(self.file), WhatIsWrong::ZeroFirst));
        }
        if !self.is_map_known {
            (self.map, self.is_map_known) = (self.visibility_map(), true);
        }
        if self.map.as_mut().is_some_and(|map| map.has(block)) {
            self.found(block, WhatIsWrong::ZeroButVisible);
        }
    }

    /// What cannot be read here is told where the map itself is read.
    fn visibility_map(&self) -> Option<VisibilityMap<'a>> {
        let work = self.work;
        let fork = Fork { fork: VISIBILITY_MAP, ..fork_of(self.file) };
        let file = work.disk.open(&work.of_fork(fork).first()?.path).ok()?;
        let Rules { block_bytes, has_checksums, .. } = work.rules;
        Some(VisibilityMap::new(file, block_bytes, has_checksums))
    }

    /// Unlogged relations have another counter in the place of the LSN; the fork that they are
    /// reset to is logged.
    fn is_unlogged(&self) -> bool {
        let init = Fork { fork: INIT, ..fork_of(self.file) };
        self.file.name.fork != INIT && !self.work.of_fork(init).is_empty()
    }
}

/// What is read by one call: it stays in a core's own cache until it was judged.
const BUFFER_BYTES: usize = 256 << 10;
/// What one thread reads before it asks for more.
const UNIT_BYTES: u64 = 16 << 20;

const MAIN: u8 = 0;
const VISIBILITY_MAP: u8 = 2;
const INIT: u8 = 3;
