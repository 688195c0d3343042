//! The threads that read and judge.

use std::io;
use std::mem;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pgtoll_checksum::{Kernel, is_page};
use pgtoll_format::{ForkNumber, Lsn, PageHeader, RelationFork, Verdict, verdict};

use crate::defect::{BlockFinding, Defect, LayoutDefect};
use crate::found::PagesRead;
use crate::listing::{Listed, Listing, Position};
use crate::maps::{self, Compared, MapRule, Unmapped};
use crate::pace::Pace;
use crate::settings::VerifySettings;
use crate::storage::Storage;
use crate::storage::{READ_BYTES, ReadAt, read_all};
use crate::visible::{MapPage, VisibilityMap};
use crate::zeros::ZeroPages;
use pgtoll_datadir::DataDirectory;
use pgtoll_system::AlignedBuffer;

/// The state that the threads share.
pub(super) struct Work<'a> {
    disk: &'a dyn Storage,
    files: &'a Listing,
    /// Nothing is read from here on.
    until: Position,
    unit_files: usize,
    unit_bytes: u64,
    rules: Rules,
    next: Mutex<(u64, Position)>,
    read_bytes: AtomicU64,
    pace: Pace,
}

/// The rules of this data directory.
#[derive(Clone, Copy, Debug)]
struct Rules {
    block_bytes: usize,
    file_blocks: u32,
    has_checksums: bool,
    /// The end of WAL: a page with a later LSN is damaged.
    wal_end: Option<Lsn>,
    /// Contradictions are failures: the server was shut down cleanly.
    is_consistent: bool,
    /// When tables' pages and their maps may be compared.
    maps: MapRule,
    /// Rows are looked at.
    rows: bool,
}

/// The work that one thread takes at once: a piece of a file, or small files.
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// Counted from 0.
    number: u64,
    from: Position,
    to: Position,
}

/// The findings of a thread in a unit.
#[derive(Debug, Default)]
pub(super) struct Portion {
    /// The unit's number.
    pub(super) number: u64,
    /// The end of the unit.
    pub(super) to: Position,
    pub(super) pages: PagesRead,
    pub(super) findings: Vec<BlockFinding>,
    /// Pages of zeros, and where B-trees lead.
    pub(super) zeros: ZeroPages,
    /// Pages whose maps are empty.
    pub(super) unmapped: Unmapped,
    /// It was stopped before the unit's end.
    pub(super) is_cut: bool,
}

impl<'a> Work<'a> {
    /// Makes the work on this part of the list, with a number of small files at once.
    pub(super) fn new(
        disk: &'a dyn Storage,
        data: &DataDirectory,
        files: &'a Listing,
        part: Range<Position>,
        unit_files: usize,
        settings: &VerifySettings,
        maps: MapRule,
    ) -> Self {
        let rate = settings.rate;
        let rules = Rules {
            block_bytes: data.control.block_bytes as usize,
            file_blocks: data.control.file_blocks,
            has_checksums: data.has_checksums(),
            wal_end: data.wal_end(),
            is_consistent: data.is_consistent(),
            maps,
            rows: settings.rows,
        };
        // What is read slowly is taken in small pieces, so that not much is lost by an interruption.
        let a_second =
            rate.unwrap_or(UNIT_BYTES).clamp(1, UNIT_BYTES).next_multiple_of(READ_BYTES as u64);
        Self {
            disk,
            files,
            until: part.end,
            unit_files,
            unit_bytes: a_second,
            rules,
            next: Mutex::new((0, part.start)),
            read_bytes: AtomicU64::new(0),
            pace: Pace::new(rate),
        }
    }

    /// Bytes that were read until now.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.pace.stop();
    }

    /// Returns a reader of units, for one thread.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader::new(self)
    }

    fn next(&self) -> Option<Unit> {
        if self.pace.is_stopped() {
            return None;
        }
        let mut next = pgtoll_system::lock(&self.next);
        let (number, from) = *next;
        let to = self.end_of(from);
        *next = (number + 1, to);
        (to != from).then_some(Unit { number, from, to })
    }

    /// Returns the end of the unit that begins here: with a piece of a large file, or when small files are
    /// many or enough to read.
    fn end_of(&self, from: Position) -> Position {
        let mut to = from;
        let mut bytes = 0;
        let mut files = 0;
        while to < self.until
            && let Some(of_file) = self.files.bytes_of(to.file)
        {
            let is_last = to.file == self.until.file;
            let left = if is_last { self.until.at } else { of_file }.saturating_sub(to.at);
            let is_full = bytes + left > self.unit_bytes || files == self.unit_files;
            if bytes > 0 && is_full {
                break;
            }
            if left > self.unit_bytes {
                return Position { at: to.at + self.unit_bytes, ..to };
            }
            to = if is_last { self.until } else { Position { file: to.file + 1, at: 0 } };
            bytes += left;
            files += usize::from(left > 0);
        }
        to
    }

    /// Blocks of a fork, by its last file that is not empty.
    fn blocks(&self, fork: RelationFork) -> u64 {
        let files = self.files.of_fork(fork).rev().map(|file| self.files.file(file));
        files.into_iter().find(|file| file.bytes > 0).map_or(0, |file| {
            let before = u64::from(file.segment) * u64::from(self.rules.file_blocks);
            before + file.bytes / self.rules.block_bytes as u64
        })
    }
}

/// The state of a thread: the file that it reads, and its buffer.
pub(super) struct Reader<'a> {
    work: &'a Work<'a>,
    kernel: &'static Kernel,
    buffer: AlignedBuffer,
    checksums: Vec<u16>,
    /// The file that was opened last. One that could not be opened is not tried again.
    open: Option<(usize, Opened<'a>)>,
    file: Listed,
    /// The visibility map, once it was looked for and found.
    map: Option<VisibilityMap<'a>>,
    is_map_known: bool,
    portion: Portion,
}

/// A file, or why it cannot be opened.
type Opened<'a> = io::Result<Box<dyn ReadAt + 'a>>;

impl<'a> Reader<'a> {
    fn new(work: &'a Work<'a>) -> Self {
        let buffer_bytes = work.disk.read_bytes();
        let checksums = buffer_bytes.max(READ_BYTES) / work.rules.block_bytes.max(1);
        Self {
            work,
            kernel: Kernel::best(),
            buffer: AlignedBuffer::new(buffer_bytes),
            checksums: vec![0; checksums],
            open: None,
            file: Listed { fork: RelationFork::default(), segment: 0, bytes: 0 },
            map: None,
            is_map_known: false,
            portion: Portion::default(),
        }
    }

    /// Reads the next unit; `None`: there is none.
    pub(super) fn next(&mut self) -> Option<Portion> {
        self.work.next().map(|unit| self.unit(unit))
    }

    fn unit(&mut self, Unit { number, from, to }: Unit) -> Portion {
        self.portion = Portion { number, to, ..Portion::default() };
        for file in from.file..=to.file {
            let begin = if file == from.file { from.at } else { 0 };
            let end = if file == to.file { to.at } else { u64::MAX };
            let end = end.min(self.work.files.bytes_of(file).unwrap_or(0));
            if begin < end && !self.portion.is_cut {
                self.file(file, begin, end);
            }
        }
        mem::take(&mut self.portion)
    }

    /// Reads a piece of a file, or all of it.
    fn file(&mut self, file: usize, from: u64, to: u64) {
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            // The one before is closed first.
            self.open = None;
            let opened = self.work.disk.open(&self.work.files.path(file));
            self.open = Some((file, opened));
            self.file = self.work.files.file(file);
            (self.map, self.is_map_known) = (None, false);
            if let Some((_, Ok(open))) = &self.open {
                open.will_read(0, self.file.bytes);
            }
        }
        let open = self.open.take();
        let mut buffer = mem::take(&mut self.buffer);
        match &open {
            Some((_, Ok(open))) => self.piece(&**open, &mut buffer, from, to),
            Some((_, Err(error))) => self.unreadable(from, to, error.to_string()),
            None => {}
        }
        (self.open, self.buffer) = (open, buffer);
    }

    fn piece(&mut self, file: &dyn ReadAt, buffer: &mut [u8], from: u64, to: u64) {
        let mut at = from;
        while at < to {
            if let Some(window) = file.map(at, to - at) {
                if !self.may_read(window.len()) {
                    return;
                }
                self.read(&window, at);
                at += window.len() as u64;
                continue;
            }
            let room = usize::try_from(to - at).unwrap_or(usize::MAX).min(buffer.len());
            if !self.may_read(room) {
                return;
            }
            let buffer = &mut buffer[..room];
            match read_all(file, buffer, at) {
                Ok(read) => {
                    self.read(&buffer[..read], at);
                    if read < room {
                        self.found(self.block(at + read as u64), Defect::Changed);
                        return;
                    }
                }
                Err(_) => self.block_by_block(file, buffer, at),
            }
            at += room as u64;
        }
    }

    fn may_read(&mut self, bytes: usize) -> bool {
        self.portion.is_cut = !self.work.pace.may_read(bytes as u64);
        !self.portion.is_cut
    }

    /// Reads the blocks beside an unreadable one.
    fn block_by_block(&mut self, file: &dyn ReadAt, buffer: &mut [u8], at: u64) {
        let block_bytes = self.work.rules.block_bytes;
        let mut at = at;
        for page in buffer.chunks_mut(block_bytes) {
            match read_all(file, page, at) {
                Ok(read) => self.read(&page[..read], at),
                Err(error) => self.unreadable(at, at + page.len() as u64, error.to_string()),
            }
            at += page.len() as u64;
        }
    }

    /// These bytes stand here.
    fn read(&mut self, bytes: &[u8], at: u64) {
        self.portion.pages.bytes += bytes.len() as u64;
        // Not more at once than stays in a core's own cache: pages are looked at twice.
        for (some, number) in bytes.chunks(READ_BYTES).zip(0_u64..) {
            self.judge(some, at + number * READ_BYTES as u64);
        }
        self.work.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    /// The number in its fork of the block at this place of the file.
    fn block(&self, at: u64) -> u32 {
        let before = u64::from(self.file.segment) * u64::from(self.work.rules.file_blocks);
        u32::try_from(before + at / self.work.rules.block_bytes as u64).unwrap_or(u32::MAX)
    }

    fn found(&mut self, block: u32, defect: Defect) {
        self.portion.findings.push(BlockFinding { fork: self.file.fork, block, defect });
    }

    /// Consecutive blocks are one finding.
    fn unreadable(&mut self, from: u64, to: u64, error: String) {
        let block_bytes = self.work.rules.block_bytes as u64;
        let first = self.block(from);
        let more = u32::try_from((to - from).div_ceil(block_bytes)).unwrap_or(u32::MAX);
        if let Some(last) = self.portion.findings.last_mut()
            && let Defect::Unreadable { blocks, error: before } = &mut last.defect
            && last.block.checked_add(*blocks) == Some(first)
            && *before == error
        {
            *blocks += more;
            return;
        }
        self.found(first, Defect::Unreadable { blocks: more, error });
    }

    /// Judges whole blocks; the file's length reports a partial one.
    fn judge(&mut self, bytes: &[u8], at: u64) {
        let Rules { block_bytes, has_checksums, .. } = self.work.rules;
        let first = self.block(at);
        let count = bytes.len() / block_bytes;
        let is_computed = has_checksums && is_page(block_bytes);
        let mut checksums = mem::take(&mut self.checksums);
        if is_computed {
            let pages = &bytes[..count * block_bytes];
            self.kernel.checksums(pages, block_bytes, first, &mut checksums[..count]);
        }
        let pages = bytes.chunks_exact(block_bytes).zip(&checksums);
        for ((page, checksum), number) in pages.zip(0_u32..) {
            // Files that are too long may have more blocks than there are numbers.
            let block = first.saturating_add(number);
            match verdict(page, is_computed.then_some(*checksum)) {
                Verdict::Valid => self.valid(page, block),
                Verdict::New => self.new_page(block),
                Verdict::Invalid(fault) => {
                    let lsn = PageHeader::read(page).map_or(Lsn(0), |header| header.lsn);
                    self.found(block, Defect::Invalid { fault, lsn });
                }
            }
        }
        self.portion.pages.blocks += count as u64;
        self.checksums = checksums;
    }

    fn valid(&mut self, page: &[u8], block: u32) {
        let lsn = PageHeader::read(page).map_or(Lsn(0), |header| header.lsn);
        let is_ahead = self.work.rules.wal_end.is_some_and(|end| lsn > end);
        if is_ahead && !self.is_unlogged() {
            self.found(block, Defect::AheadOfWal { lsn });
        }
        if self.file.fork.number == ForkNumber::MAIN {
            self.compare_with_map(page, block);
            if self.work.rules.maps.is_settled(lsn) {
                self.portion.zeros.add_used(self.file.fork, block, page);
            }
        }
        if self.file.fork.number == ForkNumber::VM && self.work.rules.is_consistent {
            let table =
                self.work.blocks(RelationFork { number: ForkNumber::MAIN, ..self.file.fork });
            let map = MapPage::new(page, block);
            if let (Some(_), Some(last)) = (map.first_from(table), map.last()) {
                let number = |block: u64| u32::try_from(block).unwrap_or(u32::MAX);
                // All that is behind the end is missing, be it visible or not.
                let block = number(table.max(map.begin()));
                let last = number(last);
                let fork = RelationFork { number: ForkNumber::MAIN, ..self.file.fork };
                let defect = Defect::Layout(LayoutDefect::VisibleBeyondEnd { last });
                self.portion.findings.push(BlockFinding { fork, block, defect });
            }
        }
    }

    /// Compares a table's page with its visibility map. Only tables have one.
    fn compare_with_map(&mut self, page: &[u8], block: u32) {
        let Rules { maps, rows, .. } = self.work.rules;
        let bits = self.map().and_then(|map| map.bits(block));
        let Compared { defect, is_unmapped } = maps::compare(maps, page, bits, rows);
        if is_unmapped {
            self.portion.unmapped.add(self.file.fork.relation, 1);
        }
        // A crash empties unlogged tables.
        let Some(defect) = defect.filter(|_| maps == MapRule::Stopped || !self.is_unlogged())
        else {
            return;
        };
        let fork = self.file.fork;
        let last = self.portion.findings.last_mut();
        let last = last.filter(|last| last.fork == fork && last.next_block() == Some(block));
        if !last.is_some_and(|last| last.defect.extend(&defect)) {
            self.found(block, defect);
        }
    }

    fn map(&mut self) -> Option<&mut VisibilityMap<'a>> {
        if !self.is_map_known {
            (self.map, self.is_map_known) = (self.visibility_map(), true);
        }
        self.map.as_mut()
    }

    fn new_page(&mut self, block: u32) {
        self.portion.pages.new += 1;
        self.portion.zeros.add_zeros(self.file.fork, block);
        if self.file.fork.number != ForkNumber::MAIN || !self.work.rules.is_consistent {
            return;
        }
        if self.map().is_some_and(|map| map.has(block)) {
            self.found(block, Defect::ZeroButVisible);
        }
    }

    /// Pages of the map that cannot be read are reported when the map itself is read.
    fn visibility_map(&self) -> Option<VisibilityMap<'a>> {
        let work = self.work;
        let fork = RelationFork { number: ForkNumber::VM, ..self.file.fork };
        let first = work.files.of_fork(fork).next()?;
        let file = work.disk.open(&work.files.path(first)).ok()?;
        let Rules { block_bytes, has_checksums, .. } = work.rules;
        Some(VisibilityMap::new(file, block_bytes, has_checksums))
    }

    /// Unlogged relations have another counter in the place of the LSN; the fork that they are
    /// reset to is logged.
    fn is_unlogged(&self) -> bool {
        let init = RelationFork { number: ForkNumber::INIT, ..self.file.fork };
        self.file.fork.number != ForkNumber::INIT && !self.work.files.of_fork(init).is_empty()
    }
}

/// The bytes that one thread takes at once.
const UNIT_BYTES: u64 = 16 << 20;
