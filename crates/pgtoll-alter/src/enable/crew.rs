//! Threads that give pages their checksums, and threads that sync what is written meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::fcntl::{AT_FDCWD, AtFlags, PosixFadviseAdvice, posix_fadvise};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{AccessFlags, faccessat};

use super::journal::EnableJournal;
use super::medium::Medium;
use super::pages::{Blocks, EnabledPages, runs};
use super::{EnableProgress, EnableStep, EnableThreads};
use crate::{Hold, MaybeOverwritten, WriteError};
use pgtoll_datadir::RelationFile;
use pgtoll_system::AlignedBuffer;
use pgtoll_system::threads::start;

/// The files, and who works on them.
pub(super) struct Crew<'a> {
    medium: &'a dyn Medium,
    /// Looked at before every write call: a server elsewhere may not see this process.
    hold: &'a Hold,
    files: &'a [RelationFile],
    block_bytes: usize,
    file_blocks: u32,
    jobs: usize,
}

/// Some bytes of a file: what a thread takes at once.
struct Stretch {
    file: usize,
    bytes: Range<u64>,
}

/// A file of 1 GiB keeps many threads busy, and the disk begins early.
const STRETCH_BYTES: u64 = 16 << 20;
/// Bytes that are read, and written, by one call: what a core's own cache holds.
const BUFFER_BYTES: usize = 256 << 10;
/// Threads that wait for the disk; file systems put what they ask for together.
const SYNCERS: usize = 4;
/// Files that wait to be synced, which stay open.
const TO_SYNC_MAX: usize = 128;
/// Descriptors beside those of relations' files, with some to spare.
const OTHER_FILES: usize = 24;

/// A file while it is worked on.
#[derive(Default)]
struct FileProgress {
    /// Opened once: Linux reports write-back errors only to descriptors open at the time.
    open: Mutex<Option<Arc<File>>>,
    /// Bytes that are not written yet.
    left: AtomicU64,
    /// Its pages have findings, which each run reports.
    is_damaged: AtomicBool,
    /// One sync at a time, and none after one that failed: the next would say that all is well.
    sync_failed: Mutex<bool>,
}

/// Bytes of a file are written: all of them, or so far.
struct ToSync {
    file: usize,
    open: Arc<File>,
    is_whole: bool,
}

/// The work of a thread.
enum Event {
    Written(EnabledPages, u64),
    Synced(u64),
    Verified(u64),
}

/// A writer's buffer, and its last write call: until the next look at the lock it is not sure that
/// it came in time.
#[derive(Default)]
struct Writer {
    buffer: Buffer,
    unconfirmed: Option<WriteCall>,
}

struct WriteCall {
    file: usize,
    blocks: Range<u64>,
}

type Outcome = Result<Event, WriteError>;
type ProgressTo<'a> = &'a mut dyn FnMut(EnableProgress) -> ControlFlow<()>;

impl<'a> Crew<'a> {
    pub(super) fn new(
        medium: &'a dyn Medium,
        hold: &'a Hold,
        files: &'a [RelationFile],
        jobs: usize,
    ) -> Result<Self, WriteError> {
        let control = hold.control();
        for file in files {
            let blocks = file.bytes.div_ceil(control.block_bytes.into());
            let first = file.first_block(control).map(u64::from);
            if first.is_none_or(|first| first + blocks > u64::from(u32::MAX)) {
                return Err(WriteError::BlockNumber { path: file.path.clone() });
            }
        }
        let block_bytes = control.block_bytes as usize;
        let file_blocks = control.file_blocks;
        Ok(Self { medium, hold, files, block_bytes, file_blocks, jobs: jobs.max(1) })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// An error where a file cannot be written, before any is.
    pub(super) fn may_write(&self) -> Result<(), WriteError> {
        for file in self.files {
            let mode = AccessFlags::R_OK | AccessFlags::W_OK;
            let may = faccessat(AT_FDCWD, &file.path, mode, AtFlags::AT_EACCESS);
            may.map_err(|error| WriteError::Write {
                path: file.path.clone(),
                source: error.into(),
            })?;
        }
        Ok(())
    }

    /// Gives the pages of all files that are not `done` their checksums; with a journal, syncs the
    /// files and says so there.
    pub(super) fn write(
        &self,
        done: &BTreeSet<usize>,
        journal: Option<&EnableJournal>,
        progress: ProgressTo<'_>,
    ) -> Result<EnabledPages, WriteError> {
        let stretches = self.stretches(done);
        let by_file = self.file_progress();
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let (events, happened) = channel();
        let (finished, to_sync) = sync_channel(self.to_sync_max());
        // Gone with the last syncer, so that writers do not wait for room that never comes.
        let to_sync = Arc::new(Mutex::new(to_sync));
        let unconfirmed = Mutex::new(Vec::new());
        let write = |finished: Option<&SyncSender<ToSync>>,
                     hear: &mut dyn FnMut(Outcome) -> bool| {
            let _ended = StopOnPanic(&stop);
            let mut writer = Writer::default();
            while let Some(stretch) = take(&stretches, &next, &stop) {
                let file_progress = &by_file[stretch.file];
                let written = self.write_stretch(stretch, file_progress, &mut writer);
                pgtoll_system::lock(&unconfirmed).extend(writer.unconfirmed.take());
                let (event, to_sync) = match written {
                    Ok((event, to_sync)) => (Ok(event), Some(to_sync)),
                    Err(error) => (Err(error), None),
                };
                let synced = to_sync.and_then(|item| match finished {
                    Some(finished) => {
                        // An error when every syncer has panicked, which stops all.
                        let _ = finished.send(item);
                        None
                    }
                    None => self.sync_file(&item, file_progress, journal?).transpose(),
                });
                if ![Some(event), synced].into_iter().flatten().all(&mut *hear) {
                    return;
                }
            }
        };
        let sync = |to_sync: Arc<Mutex<Receiver<ToSync>>>, events: Sender<Outcome>| {
            let _ended = StopOnPanic(&stop);
            while let (Some(journal), Some(item)) = (journal, next_to_sync(&to_sync)) {
                // Writers that wait for room have to continue.
                if stop.load(Ordering::Relaxed) {
                    continue;
                }
                let synced = self.sync_file(&item, &by_file[item.file], journal);
                if synced.transpose().is_some_and(|synced| events.send(synced).is_err()) {
                    return;
                }
            }
        };
        let mut all = EnabledPages::default();
        let passed_over = done.iter().map(|&file| self.files[file].bytes).sum();
        let wanted = self.jobs.min(stretches.len());
        let mut watch = Watch::new(EnableStep::Write, self.bytes(), passed_over, &stop, progress);
        thread::scope(|scope| {
            let write = &write;
            let sync = &sync;
            let new_sync = || {
                let to_sync = Arc::clone(&to_sync);
                let events = events.clone();
                move || sync(to_sync, events)
            };
            let new_write = |finished: Option<SyncSender<ToSync>>| {
                let events = events.clone();
                move || write(finished.as_ref(), &mut |event| events.send(event).is_ok())
            };
            // A writer syncs what it wrote where there is no thread for that.
            let syncers = journal.map_or(0, |_| start(scope, 1, new_sync));
            let finished = (syncers > 0).then_some(finished);
            let writers = start(scope, wanted, || new_write(finished.clone()));
            start(scope, syncers * (SYNCERS - 1), new_sync);
            drop((events, to_sync));
            watch.threads = EnableThreads { at_work: writers.max(wanted.min(1)), wanted };
            if writers == 0 {
                let mut hear = |event| {
                    watch.hear(event, &mut |pages| all.add(pages));
                    for event in happened.try_iter() {
                        watch.hear(event, &mut |pages| all.add(pages));
                    }
                    true
                };
                write(finished.as_ref(), &mut hear);
            }
            drop(finished);
            watch.until_done(happened, &mut |pages| all.add(pages));
        });
        match watch.outcome {
            Err(WriteError::Lost { .. }) => return Err(self.lost(unconfirmed)),
            outcome => outcome?,
        }
        all.refused_pages.sort_unstable();
        all.cut_short.sort_unstable();
        Ok(all)
    }

    fn lost(&self, unconfirmed: Mutex<Vec<WriteCall>>) -> WriteError {
        let mut calls = unconfirmed.into_inner().unwrap_or_else(PoisonError::into_inner);
        calls.sort_unstable_by_key(|call| (call.file, call.blocks.start));
        let overwritten = calls.into_iter().map(|WriteCall { file, blocks }| MaybeOverwritten {
            path: self.files[file].path.clone(),
            blocks: Some(blocks),
        });
        self.hold.lost(overwritten.collect())
    }

    /// As many files may wait to be synced as the limit of open files leaves room for.
    fn to_sync_max(&self) -> usize {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        limit.saturating_sub(self.jobs + SYNCERS + OTHER_FILES).clamp(1, TO_SYNC_MAX)
    }

    /// Reads all again, from the disk where the system lets go of its copies, and compares.
    pub(super) fn verify(&self, progress: ProgressTo<'_>) -> Result<(), WriteError> {
        let stretches = self.stretches(&BTreeSet::new());
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let (events, happened) = channel();
        let verify = |hear: &mut dyn FnMut(Outcome) -> bool| {
            let _ended = StopOnPanic(&stop);
            let mut buffer = Buffer::default();
            while let Some(stretch) = take(&stretches, &next, &stop) {
                if !hear(self.verify_stretch(stretch, &mut buffer)) {
                    return;
                }
            }
        };
        let wanted = self.jobs.min(stretches.len());
        let mut watch = Watch::new(EnableStep::Verify, self.bytes(), 0, &stop, progress);
        thread::scope(|scope| {
            let verify = &verify;
            let new_verify = || {
                let events = events.clone();
                move || verify(&mut |event| events.send(event).is_ok())
            };
            let threads = start(scope, wanted, new_verify);
            drop(events);
            watch.threads = EnableThreads { at_work: threads.max(wanted.min(1)), wanted };
            if threads == 0 {
                verify(&mut |event| {
                    watch.hear(event, &mut |_| ());
                    true
                });
            }
            watch.until_done(happened, &mut |_| ());
        });
        watch.outcome
    }

    fn stretches(&self, without: &BTreeSet<usize>) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        for (file, item) in
            self.files.iter().enumerate().filter(|(file, _)| !without.contains(file))
        {
            let mut begin = 0;
            while begin < item.bytes {
                let end = item.bytes.min(begin + STRETCH_BYTES);
                stretches.push(Stretch { file, bytes: begin..end });
                begin = end;
            }
        }
        stretches
    }

    fn file_progress(&self) -> Vec<FileProgress> {
        let whole = |file: &RelationFile| FileProgress {
            left: file.bytes.into(),
            ..FileProgress::default()
        };
        self.files.iter().map(whole).collect()
    }

    /// An error where the lock was lost by the end; then the last write call stays unconfirmed.
    fn write_stretch(
        &self,
        stretch: &Stretch,
        file_progress: &FileProgress,
        writer: &mut Writer,
    ) -> Result<(Event, ToSync), WriteError> {
        let written = self.write_buffers(stretch, file_progress, writer);
        if !self.hold.is_held() {
            return Err(self.hold.lost(Vec::new()));
        }
        writer.unconfirmed = None;
        written
    }

    fn write_buffers(
        &self,
        stretch: &Stretch,
        file_progress: &FileProgress,
        Writer { buffer, unconfirmed }: &mut Writer,
    ) -> Result<(Event, ToSync), WriteError> {
        let path = &*self.files[stretch.file].path;
        let open = file_progress.open(path)?;
        let mut found = EnabledPages::default();
        self.each_buffer(stretch, &open, buffer, &mut found, |bytes, changed, at, found| {
            found.written += changed.len() as u64;
            let first = at / self.block_bytes as u64;
            for run in runs(changed) {
                let bytes = &bytes[run.start * self.block_bytes..run.end * self.block_bytes];
                let at = at + (run.start * self.block_bytes) as u64;
                if !self.hold.is_held() {
                    return Err(self.hold.lost(Vec::new()));
                }
                let blocks = first + run.start as u64..first + run.end as u64;
                *unconfirmed = Some(WriteCall { file: stretch.file, blocks });
                let written = self.medium.write(&open, path, bytes, at);
                written.map_err(|source| WriteError::Write { path: path.to_owned(), source })?;
            }
            Ok(())
        })?;
        if !found.is_sound() {
            file_progress.is_damaged.store(true, Ordering::Relaxed);
        }
        let length = stretch.bytes.end - stretch.bytes.start;
        let is_whole = file_progress.left.fetch_sub(length, Ordering::AcqRel) == length;
        if is_whole {
            pgtoll_system::lock(&file_progress.open).take();
        }
        let to_sync = ToSync { file: stretch.file, open, is_whole };
        Ok((Event::Written(found, length), to_sync))
    }

    fn verify_stretch(&self, stretch: &Stretch, buffer: &mut Buffer) -> Outcome {
        let path = &*self.files[stretch.file].path;
        let open = File::open(path).map_err(WriteError::read(path))?;
        drop_cached(&open, &stretch.bytes);
        let mut found = EnabledPages::default();
        self.each_buffer(stretch, &open, buffer, &mut found, |_, changed, at, _| {
            let Some(&index) = changed.first() else { return Ok(()) };
            let block = at / self.block_bytes as u64 + index as u64;
            Err(WriteError::NotAsWritten { path: path.to_owned(), block })
        })?;
        Ok(Event::Verified(stretch.bytes.end - stretch.bytes.start))
    }

    /// Reads a stretch, puts checksums into its pages, and hands on which had another one.
    fn each_buffer(
        &self,
        stretch: &Stretch,
        open: &File,
        buffer: &mut Buffer,
        found: &mut EnabledPages,
        mut then: impl FnMut(&[u8], &[usize], u64, &mut EnabledPages) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let file = &self.files[stretch.file];
        let first = u64::from(file.name.segment) * u64::from(self.file_blocks);
        let mut at = stretch.bytes.start;
        while at < stretch.bytes.end {
            let wanted = usize::try_from(stretch.bytes.end - at).unwrap_or(BUFFER_BYTES);
            let bytes = &mut buffer.bytes[..wanted.min(BUFFER_BYTES)];
            let in_file = at / self.block_bytes as u64;
            self.medium.read(open, &file.path, bytes, at).map_err(|source| {
                WriteError::ReadBlock { path: file.path.clone(), block: in_file, source }
            })?;
            // That every block has a number was checked.
            let in_fork = u32::try_from(first + in_file).unwrap_or(u32::MAX);
            let block_bytes = self.block_bytes;
            let blocks = Blocks { path: &file.path, block_bytes, in_file, in_fork };
            let changed = blocks.stamp(bytes, &mut buffer.checksums, found);
            then(bytes, &changed, at, found)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// Syncs what is written of a file so far; when that is all, the journal gets its line.
    fn sync_file(
        &self,
        sync: &ToSync,
        file_progress: &FileProgress,
        journal: &EnableJournal,
    ) -> Result<Option<Event>, WriteError> {
        let RelationFile { path, bytes, .. } = &self.files[sync.file];
        let mut failed = pgtoll_system::lock(&file_progress.sync_failed);
        if *failed {
            return Ok(None);
        }
        if let Err(source) = self.medium.sync(&sync.open, path) {
            *failed = true;
            // What the disk did not take counts as written for the system. The next
            // reader shall see what the disk has.
            drop_cached(&sync.open, &(0..*bytes));
            return Err(WriteError::Sync { path: path.clone(), source });
        }
        if !sync.is_whole {
            return Ok(None);
        }
        if !file_progress.is_damaged.load(Ordering::Relaxed) {
            journal.add(path, &sync.open)?;
        }
        Ok(Some(Event::Synced(*bytes)))
    }
}

impl FileProgress {
    fn open(&self, path: &Path) -> Result<Arc<File>, WriteError> {
        let mut open = pgtoll_system::lock(&self.open);
        if let Some(open) = &*open {
            return Ok(Arc::clone(open));
        }
        let file = File::options().read(true).write(true).open(path);
        let file = Arc::new(file.map_err(WriteError::read(path))?);
        *open = Some(Arc::clone(&file));
        Ok(file)
    }
}

/// The buffer of a thread.
struct Buffer {
    bytes: AlignedBuffer,
    checksums: Vec<u16>,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { bytes: AlignedBuffer::new(BUFFER_BYTES), checksums: Vec::new() }
    }
}

/// Hears what the threads do, and stops them when one fails or the caller wishes it.
struct Watch<'a> {
    step: EnableStep,
    all: u64,
    done: u64,
    synced: u64,
    stop: &'a AtomicBool,
    progress: ProgressTo<'a>,
    threads: EnableThreads,
    outcome: Result<(), WriteError>,
}

impl<'a> Watch<'a> {
    fn new(
        step: EnableStep,
        all: u64,
        passed_over: u64,
        stop: &'a AtomicBool,
        progress: ProgressTo<'a>,
    ) -> Self {
        let done = passed_over;
        let synced = passed_over;
        let threads = EnableThreads::default();
        Self { step, all, done, synced, stop, progress, threads, outcome: Ok(()) }
    }

    fn until_done(&mut self, happened: Receiver<Outcome>, take: &mut dyn FnMut(EnabledPages)) {
        for event in happened {
            self.hear(event, take);
        }
    }

    fn hear(&mut self, event: Outcome, take: &mut dyn FnMut(EnabledPages)) {
        match event {
            Ok(Event::Written(pages, bytes)) => {
                take(pages);
                self.done += bytes;
            }
            Ok(Event::Verified(bytes)) => self.done += bytes,
            Ok(Event::Synced(bytes)) => self.synced += bytes,
            // Whatever failed before: pages may have been overwritten.
            Err(error @ WriteError::Lost { .. }) => self.outcome = Err(error),
            Err(error) if self.outcome.is_ok() => self.outcome = Err(error),
            Err(_) => {}
        }
        let so_far = self.so_far();
        if self.outcome.is_ok() && (self.progress)(so_far).is_break() {
            self.outcome = Err(WriteError::Interrupted);
        }
        if self.outcome.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Syncs continue beside the writes, and are shown when those are done.
    fn so_far(&self) -> EnableProgress {
        let all = self.all;
        let threads = self.threads;
        match self.step {
            EnableStep::Write if self.done == self.all && self.synced > 0 => {
                EnableProgress { step: EnableStep::Sync, done: self.synced, all, threads }
            }
            step => EnableProgress { step, done: self.done, all, threads },
        }
    }
}

/// Stops all threads when the one that holds this panics; the panic then ends the whole.
struct StopOnPanic<'s>(&'s AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn take<'s>(
    stretches: &'s [Stretch],
    next: &AtomicUsize,
    stop: &AtomicBool,
) -> Option<&'s Stretch> {
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    stretches.get(next.fetch_add(1, Ordering::Relaxed))
}

/// `None` when all writers have ended.
fn next_to_sync(receiver: &Mutex<Receiver<ToSync>>) -> Option<ToSync> {
    pgtoll_system::lock(receiver).recv().ok()
}

/// Syncs the directories of files, and another.
pub(super) fn sync_directories(files: &[RelationFile], data: &Path) -> Result<(), WriteError> {
    let parents = files.iter().filter_map(|file| file.path.parent());
    let directories: BTreeSet<&Path> = parents.chain([data]).collect();
    directories.into_iter().try_for_each(sync_directory)
}

fn sync_directory(path: &Path) -> Result<(), WriteError> {
    match File::open(path).and_then(|file| file.sync_all()) {
        // As PostgreSQL takes it: some file systems cannot sync directories.
        Err(error)
            if error.kind() == io::ErrorKind::InvalidInput
                && fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) =>
        {
            Ok(())
        }
        synced => synced.map_err(|source| WriteError::Sync { path: path.to_owned(), source }),
    }
}

/// Drops a file's cache; without the right to do so, reads come from memory.
fn drop_cached(file: &File, bytes: &Range<u64>) {
    let as_offset = |at: u64| i64::try_from(at).unwrap_or(0);
    let begin = as_offset(bytes.start);
    let length = as_offset(bytes.end - bytes.start);
    let _ = posix_fadvise(file, begin, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}
