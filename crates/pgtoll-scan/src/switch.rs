//! Turns data checksums on and off in a data directory that no server runs on.
//!
//! Pages first, then a sync of all of them, then the control file, then its sync: whenever the
//! power goes, the control file says "off", or it says "on" and every page has its checksum.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use pgtoll_checksum::page_checksum;
use pgtoll_format::{ControlFile, PAGE_CHECKSUM, PageHeader};

use crate::relation_files::{RelationFile, RelationFileList, relation_files};
use crate::{Hold, WriteError};

/// How [`enable`] works.
#[derive(Clone, Debug)]
pub struct EnableOptions {
    /// Threads that read and write at once; at least 1.
    pub jobs: usize,
    /// Whether all is synced. Without it a power cut leaves pages that the server refuses.
    pub sync: bool,
    /// Read everything again from the disk before the control file says "on".
    pub verify: bool,
}

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Pages get their checksums.
    Write,
    /// Files are synced.
    Sync,
    /// Pages are read again.
    Verify,
}

/// How far a step has come, in bytes of the relations' files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which step.
    pub step: Step,
    /// How much is done.
    pub done: u64,
    /// Of how much.
    pub all: u64,
}

/// What was found on the pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Pages.
    pub pages: u64,
    /// Pages whose checksum was another one, and was written.
    pub written: u64,
    /// Pages that were never used, and have no checksum.
    pub new: u64,
    /// Pages that a server refuses, with checksums or without.
    pub refused: u64,
    /// The first of these, in no order.
    pub refused_pages: Vec<RefusedPage>,
    /// Files whose last page is not whole. A server does not read it.
    pub cut_short: Vec<PathBuf>,
}

/// A page that a server refuses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedPage {
    /// The file.
    pub path: PathBuf,
    /// The block's number in the file.
    pub block: u64,
}

impl Pages {
    fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.written += other.written;
        self.new += other.new;
        self.refused += other.refused;
        self.refused_pages.extend(other.refused_pages);
        self.refused_pages.truncate(REFUSED_MAX);
        self.cut_short.extend(other.cut_short);
    }

    fn refuse(&mut self, path: &Path, block: u64) {
        self.refused += 1;
        if self.refused_pages.len() < REFUSED_MAX {
            self.refused_pages.push(RefusedPage { path: path.to_owned(), block });
        }
    }
}

/// How many refused pages are told one by one.
const REFUSED_MAX: usize = 1000;

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switched {
    /// It was so before, and nothing was written.
    pub already: bool,
    /// Files of relations.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was found on their pages.
    pub pages: Pages,
    /// What lies among them and is not PostgreSQL's.
    pub foreign: Vec<PathBuf>,
}

/// Turns data checksums on.
///
/// `progress` is called now and then, and can end the work. Then, and after an error, they are
/// still off; what was written stays, is right, and is passed over the next time.
pub fn enable(
    hold: &Hold,
    options: &EnableOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Switched, WriteError> {
    let control = hold.control();
    if control.checksum_version == ON {
        return Ok(Switched { already: true, ..Switched::default() });
    }
    let list = readable(relation_files(hold.data(), control))?;
    let work = Work::of(&list.files, control, options.jobs)?;
    let pages = work.write(progress)?;
    if options.sync {
        work.sync(hold.data(), progress)?;
    }
    if options.verify {
        work.verify(progress)?;
    }
    hold.set_checksum_version(ON, options.sync)?;
    let (files, bytes) = (list.files.len() as u64, work.bytes());
    Ok(Switched { already: false, files, bytes, pages, foreign: list.foreign })
}

/// Turns data checksums off: the control file says so, and nothing else changes.
pub fn disable(hold: &Hold, sync: bool) -> Result<Switched, WriteError> {
    if hold.control().checksum_version == OFF {
        return Ok(Switched { already: true, ..Switched::default() });
    }
    hold.set_checksum_version(OFF, sync)?;
    Ok(Switched::default())
}

/// `PG_DATA_CHECKSUM_OFF`.
const OFF: u32 = 0;
/// `PG_DATA_CHECKSUM_VERSION`.
const ON: u32 = 1;

/// What cannot be read could hold pages, which then would have no checksum.
fn readable(mut list: RelationFileList) -> Result<RelationFileList, WriteError> {
    match list.unreadable.pop() {
        Some((path, source)) => Err(WriteError::Read { path, source }),
        None => Ok(list),
    }
}

/// The files, in stretches that threads take one after the other.
struct Work<'a> {
    files: &'a [RelationFile],
    stretches: Vec<Stretch>,
    block_bytes: usize,
    file_blocks: u32,
    jobs: usize,
}

/// Some bytes of a file.
struct Stretch {
    file: usize,
    bytes: Range<u64>,
}

/// Bytes that a thread takes at once: a file of 1 GiB keeps many threads busy.
const STRETCH_BYTES: u64 = 16 << 20;
/// Bytes that are read, and written, by one call.
const BUFFER_BYTES: usize = 512 << 10;

impl<'a> Work<'a> {
    fn of(
        files: &'a [RelationFile],
        control: &ControlFile,
        jobs: usize,
    ) -> Result<Self, WriteError> {
        let mut stretches = Vec::new();
        for (file, of) in files.iter().enumerate() {
            let blocks = of.bytes.div_ceil(control.block_bytes.into());
            let first = of.first_block(control).map(u64::from);
            if first.is_none_or(|first| first + blocks > u64::from(u32::MAX)) {
                return Err(WriteError::BlockNumber { path: of.path.clone() });
            }
            let mut begin = 0;
            while begin < of.bytes {
                let end = of.bytes.min(begin + STRETCH_BYTES);
                stretches.push(Stretch { file, bytes: begin..end });
                begin = end;
            }
        }
        let (block_bytes, file_blocks) = (control.block_bytes as usize, control.file_blocks);
        Ok(Self { files, stretches, block_bytes, file_blocks, jobs: jobs.max(1) })
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn write(
        &self,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Pages, WriteError> {
        let mut all = Pages::default();
        self.in_parallel(
            Step::Write,
            self.stretches.len(),
            progress,
            &mut |pages| all.add(pages),
            &|at| {
                let stretch = &self.stretches[at];
                self.stretch(stretch, Task::Write).map(|pages| (pages, stretch.length()))
            },
        )?;
        all.refused_pages.sort_unstable();
        all.cut_short.sort_unstable();
        Ok(all)
    }

    fn verify(
        &self,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), WriteError> {
        self.in_parallel(Step::Verify, self.stretches.len(), progress, &mut |_| (), &|at| {
            let stretch = &self.stretches[at];
            self.stretch(stretch, Task::Verify).map(|pages| (pages, stretch.length()))
        })
    }

    /// Syncs every file, also those that nothing was written to now: a run before this one may
    /// have written what was not synced yet.
    fn sync(
        &self,
        data: &Path,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), WriteError> {
        self.in_parallel(Step::Sync, self.files.len(), progress, &mut |_| (), &|at| {
            let file = &self.files[at];
            sync(&file.path).map(|()| (Pages::default(), file.bytes))
        })?;
        let parents = self.files.iter().filter_map(|file| file.path.parent());
        let directories: BTreeSet<&Path> = parents.chain([data]).collect();
        directories.into_iter().try_for_each(sync)
    }

    /// Lets `jobs` threads do `count` pieces of work, each of which says how many bytes it was.
    fn in_parallel(
        &self,
        step: Step,
        count: usize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
        take: &mut dyn FnMut(Pages),
        work: &(dyn Fn(usize) -> Result<(Pages, u64), WriteError> + Sync),
    ) -> Result<(), WriteError> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (sender, done) = channel();
        let run = |sender: Sender<Result<(Pages, u64), WriteError>>| {
            while !stop.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count || sender.send(work(at)).is_err() {
                    return;
                }
            }
        };
        let (mut so_far, mut outcome) = (Progress { step, done: 0, all: self.bytes() }, Ok(()));
        thread::scope(|scope| {
            for _ in 0..self.jobs.min(count) {
                let sender = sender.clone();
                scope.spawn(|| run(sender));
            }
            drop(sender);
            for result in done {
                match result {
                    Ok((pages, bytes)) => {
                        take(pages);
                        so_far.done += bytes;
                    }
                    Err(error) if outcome.is_ok() => outcome = Err(error),
                    Err(_) => {}
                }
                if outcome.is_ok() && progress(so_far).is_break() {
                    outcome = Err(WriteError::Interrupted);
                }
                if outcome.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        });
        outcome
    }

    fn stretch(&self, stretch: &Stretch, task: Task) -> Result<Pages, WriteError> {
        let of = &self.files[stretch.file];
        let file = File::options().read(true).write(task == Task::Write).open(&of.path);
        let file = file.map_err(WriteError::read(&of.path))?;
        if task == Task::Verify {
            drop_cached(&file, &stretch.bytes);
        }
        let mut pages = Pages::default();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut at = stretch.bytes.start;
        while at < stretch.bytes.end {
            let wanted = usize::try_from(stretch.bytes.end - at).unwrap_or(BUFFER_BYTES);
            let bytes = &mut buffer[..wanted.min(BUFFER_BYTES)];
            file.read_exact_at(bytes, at).map_err(|source| WriteError::ReadBlock {
                path: of.path.clone(),
                block: at / self.block_bytes as u64,
                source,
            })?;
            self.buffer(of, &file, bytes, at, task, &mut pages)?;
            at += bytes.len() as u64;
        }
        Ok(pages)
    }

    /// Gives the pages of a buffer their checksums and writes what changed, each run of changed
    /// pages by one call; or compares them.
    fn buffer(
        &self,
        of: &RelationFile,
        file: &File,
        bytes: &mut [u8],
        at: u64,
        task: Task,
        pages: &mut Pages,
    ) -> Result<(), WriteError> {
        let first = at / self.block_bytes as u64;
        let mut changed: Option<Range<usize>> = None;
        let count = bytes.len() / self.block_bytes;
        for index in 0..count {
            let block = first + index as u64;
            let range = index * self.block_bytes..(index + 1) * self.block_bytes;
            let page = &mut bytes[range.clone()];
            let differs = stamp(page, self.number(of, block), || pages.refuse(&of.path, block));
            pages.pages += 1;
            pages.new += u64::from(differs.is_none());
            if differs != Some(true) {
                continue;
            }
            if task == Task::Verify {
                return Err(WriteError::NotAsWritten { path: of.path.clone(), block });
            }
            pages.written += 1;
            changed = Some(match changed.take() {
                Some(before) if before.end == range.start => before.start..range.end,
                Some(before) => {
                    write(file, of, &bytes[before.clone()], at + before.start as u64)?;
                    range
                }
                None => range,
            });
        }
        if let Some(range) = changed {
            write(file, of, &bytes[range.clone()], at + range.start as u64)?;
        }
        if count * self.block_bytes < bytes.len() {
            pages.cut_short.push(of.path.clone());
        }
        Ok(())
    }

    /// The number of a file's block in its fork. That it has one was checked for all.
    fn number(&self, of: &RelationFile, block: u64) -> u32 {
        let first = u64::from(of.name.segment) * u64::from(self.file_blocks);
        u32::try_from(first + block).unwrap_or(u32::MAX)
    }
}

impl Stretch {
    fn length(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Write,
    Verify,
}

/// Puts the checksum into a page; says whether there was another one, `None` for a page that was
/// never used, which gets none.
fn stamp(page: &mut [u8], block: u32, refused: impl FnOnce()) -> Option<bool> {
    let header = PageHeader::read(page)?;
    if header.is_new() {
        if page.iter().any(|&byte| byte != 0) {
            refused();
        }
        return None;
    }
    if !header.is_plausible(page.len()) {
        refused();
    }
    let checksum = page_checksum(page, block);
    page[PAGE_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    Some(header.checksum != checksum)
}

fn write(file: &File, of: &RelationFile, bytes: &[u8], at: u64) -> Result<(), WriteError> {
    let write = file.write_all_at(bytes, at);
    write.map_err(|source| WriteError::Write { path: of.path.clone(), source })
}

fn sync(path: &Path) -> Result<(), WriteError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    match synced {
        // As PostgreSQL takes it: some file systems cannot sync directories.
        Err(error)
            if error.kind() == io::ErrorKind::InvalidInput
                && fs::metadata(path).is_ok_and(|of| of.is_dir()) =>
        {
            Ok(())
        }
        synced => synced.map_err(|source| WriteError::Sync { path: path.to_owned(), source }),
    }
}

/// What is on disk is read from there.
fn drop_cached(file: &File, bytes: &Range<u64>) {
    let as_offset = |at: u64| i64::try_from(at).unwrap_or(0);
    let (begin, length) = (as_offset(bytes.start), as_offset(bytes.end - bytes.start));
    // Where it cannot be dropped, what is in memory is read.
    let _ = posix_fadvise(file, begin, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}
