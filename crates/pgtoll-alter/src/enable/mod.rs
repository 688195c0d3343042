//! Turns data checksums on and off in a data directory that no server runs on.
//!
//! Pages first, each file synced when it is written; then the control file, then its sync: whenever
//! the power goes, the control file says "off", or it says "on" and every page has its checksum.

mod crew;
mod journal;
mod medium;
mod pages;
mod predict;
mod record;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;

use self::crew::Crew;
use self::journal::EnableJournal;
use self::medium::{Medium, Real};
pub use self::pages::{EnabledPages, RefusedPage};
pub use self::predict::{Prediction, predict};
pub use self::record::dry_run;
use crate::{Hold, WriteError};
use pgtoll_datadir::{RelationFileList, relation_files};

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

/// The present step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnableStep {
    /// Pages get their checksums.
    Write,
    /// Files are synced.
    Sync,
    /// Pages are read again.
    Verify,
}

/// How far a step has come, in bytes of the relations' files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnableProgress {
    /// The step.
    pub step: EnableStep,
    /// How much is done.
    pub done: u64,
    /// The total.
    pub all: u64,
    /// The threads that do it.
    pub threads: EnableThreads,
}

/// Threads that a step works with. Under a limit of processes there may be fewer than wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnableThreads {
    /// How many there are; 1 at least, where there is something to do.
    pub at_work: usize,
    /// How many there is work for, up to [`EnableOptions::jobs`].
    pub wanted: usize,
}

/// The replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChecksumsChanged {
    /// It was so before, and nothing was written.
    pub already: bool,
    /// Files of relations.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The counts of the pages that were read.
    pub pages: EnabledPages,
    /// The rest of an earlier run.
    pub earlier: Earlier,
    /// Files of other programs among them.
    pub foreign: Vec<PathBuf>,
}

/// The journal of a run that was interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Earlier {
    /// There was none.
    #[default]
    None,
    /// The cluster was used since, or its files are others: everything was read again.
    Void,
    /// Files that that run had synced, and that did not change since, were passed over.
    PassedOver {
        /// Number of files.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
}

/// Turns data checksums on.
///
/// `progress` is called now and then, and can end the work. Then, and after an error, they are
/// still off; what was written stays and is right. Files that were synced by then are passed over
/// the next time, as long as the cluster is not used.
pub fn enable(
    hold: &Hold,
    options: &EnableOptions,
    progress: &mut dyn FnMut(EnableProgress) -> ControlFlow<()>,
) -> Result<ChecksumsChanged, WriteError> {
    enable_on(&Real, hold, options, progress)
}

fn enable_on(
    medium: &dyn Medium,
    hold: &Hold,
    options: &EnableOptions,
    progress: &mut dyn FnMut(EnableProgress) -> ControlFlow<()>,
) -> Result<ChecksumsChanged, WriteError> {
    let control = hold.control();
    if control.checksum_version == ON {
        // That run ended between its last two steps.
        journal::remove(hold.data());
        return Ok(ChecksumsChanged { already: true, ..ChecksumsChanged::default() });
    }
    let list = readable(relation_files(hold.data(), control))?;
    let crew = Crew::new(medium, hold, &list.files, options.jobs)?;
    crew.may_write()?;
    let journal = if options.sync { Some(EnableJournal::open(hold, &list.files)?) } else { None };
    let done = done(journal.as_ref(), &list);
    let pages = crew.write(&done, journal.as_ref(), progress)?;
    if options.sync {
        crew::sync_directories(&list.files, hold.data())?;
    }
    if options.verify {
        crew.verify(progress)?;
    }
    hold.set_checksum_version(ON, options.sync)?;
    journal::remove(hold.data());
    let files = list.files.len() as u64;
    let bytes = crew.bytes();
    let earlier = earlier(journal.as_ref(), &done, &list);
    Ok(ChecksumsChanged { already: false, files, bytes, pages, earlier, foreign: list.foreign })
}

/// Turns data checksums off: the control file says so, and nothing else changes.
pub fn disable(hold: &Hold, sync: bool) -> Result<ChecksumsChanged, WriteError> {
    journal::remove(hold.data());
    if hold.control().checksum_version == OFF {
        return Ok(ChecksumsChanged { already: true, ..ChecksumsChanged::default() });
    }
    hold.set_checksum_version(OFF, sync)?;
    Ok(ChecksumsChanged::default())
}

/// `PG_DATA_CHECKSUM_OFF`.
const OFF: u32 = 0;
/// `PG_DATA_CHECKSUM_VERSION`.
const ON: u32 = 1;

/// Refuses unreadable files: their pages would have no checksum.
fn readable(mut list: RelationFileList) -> Result<RelationFileList, WriteError> {
    match list.unreadable.pop() {
        Some((path, source)) => Err(WriteError::Read { path, source }),
        None => Ok(list),
    }
}

/// Returns the files that an earlier run had completed.
fn done(journal: Option<&EnableJournal>, list: &RelationFileList) -> BTreeSet<usize> {
    let Some(journal) = journal else { return BTreeSet::new() };
    let files = list.files.iter().enumerate();
    files.filter(|(_, file)| journal.has(file)).map(|(file, _)| file).collect()
}

fn earlier(
    journal: Option<&EnableJournal>,
    done: &BTreeSet<usize>,
    list: &RelationFileList,
) -> Earlier {
    let bytes = done.iter().map(|&file| list.files[file].bytes).sum();
    match journal {
        Some(journal) if journal.was_void() => Earlier::Void,
        Some(_) if !done.is_empty() => Earlier::PassedOver { files: done.len() as u64, bytes },
        _ => Earlier::None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use nix::errno::Errno;
    use tempfile::TempDir;

    use super::*;

    /// A disk on which one call fails, the same one for good.
    struct Failing {
        call: Call,
        /// How many go well before.
        after: usize,
        calls: AtomicUsize,
        error: Errno,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Call {
        Read,
        Write,
        Sync,
    }

    impl Failing {
        fn at(call: Call, after: usize, error: Errno) -> Self {
            Self { call, after, calls: AtomicUsize::new(0), error }
        }

        fn fails(&self, call: Call) -> io::Result<()> {
            if call == self.call && self.calls.fetch_add(1, Ordering::SeqCst) >= self.after {
                return Err(self.error.into());
            }
            Ok(())
        }
    }

    impl Medium for Failing {
        fn read(&self, file: &File, path: &Path, bytes: &mut [u8], at: u64) -> io::Result<()> {
            self.fails(Call::Read).and_then(|()| Real.read(file, path, bytes, at))
        }

        fn write(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> io::Result<()> {
            self.fails(Call::Write).and_then(|()| Real.write(file, path, bytes, at))
        }

        fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
            self.fails(Call::Sync).and_then(|()| Real.sync(file, path))
        }
    }

    /// A disk with which something else happens at each call of one kind.
    struct Acting<A: Fn(usize) + Sync> {
        call: Call,
        calls: AtomicUsize,
        /// Gets the call's number, from 0.
        act: A,
    }

    impl<A: Fn(usize) + Sync> Acting<A> {
        fn at(call: Call, act: A) -> Self {
            Self { call, calls: AtomicUsize::new(0), act }
        }

        fn act(&self, call: Call) {
            if call == self.call {
                (self.act)(self.calls.fetch_add(1, Ordering::SeqCst));
            }
        }
    }

    impl<A: Fn(usize) + Sync> Medium for Acting<A> {
        fn read(&self, file: &File, path: &Path, bytes: &mut [u8], at: u64) -> io::Result<()> {
            self.act(Call::Read);
            Real.read(file, path, bytes, at)
        }

        fn write(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> io::Result<()> {
            self.act(Call::Write);
            Real.write(file, path, bytes, at)
        }

        fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
            self.act(Call::Sync);
            Real.sync(file, path)
        }
    }

    const FILES: usize = 12;
    const PAGES: usize = 3;

    /// As a server of 15 leaves it that was stopped, with some relations.
    fn data() -> TempDir {
        data_of(FILES)
    }

    fn data_of(files: usize) -> TempDir {
        let data = tempfile::tempdir().unwrap();
        for name in ["global", "base/5", "pg_tblspc"] {
            fs::create_dir_all(data.path().join(name)).unwrap();
        }
        let control = pgtoll_testing::control_file();
        fs::write(data.path().join("global/pg_control"), control).unwrap();
        let mut page = vec![7; 8192];
        page[8..18].copy_from_slice(&[0, 0, 0, 0, 24, 0, 0, 32, 0, 32]);
        for number in 0..files {
            let path = data.path().join(format!("base/5/{}", 16384 + number));
            fs::write(path, page.repeat(PAGES)).unwrap();
        }
        data
    }

    fn run(medium: &dyn Medium, data: &TempDir) -> Result<ChecksumsChanged, WriteError> {
        run_with(medium, data, 2)
    }

    fn run_with(
        medium: &dyn Medium,
        data: &TempDir,
        jobs: usize,
    ) -> Result<ChecksumsChanged, WriteError> {
        let options = EnableOptions { jobs, sync: true, verify: false };
        let hold = Hold::take(data.path())?;
        enable_on(medium, &hold, &options, &mut |_| ControlFlow::Continue(()))
    }

    /// A server elsewhere takes the directory at one call: it removes our lock and makes its own.
    fn taken_over(data: &TempDir, call: Call, at: usize) -> impl Medium {
        let lock = data.path().join("postmaster.pid");
        Acting::at(call, move |number| {
            if number == at {
                fs::remove_file(&lock).unwrap();
                fs::write(&lock, "1\n").unwrap();
            }
        })
    }

    fn files_written(data: &TempDir) -> usize {
        let file = |number| data.path().join(format!("base/5/{}", 16384 + number));
        (0..FILES).filter(|number| fs::read(file(*number)).unwrap()[8..10] != [0, 0]).count()
    }

    #[test]
    fn a_lock_that_is_lost_between_two_writes_ends_them_and_names_the_blocks() {
        for at in [0, 1, 5, FILES - 1] {
            let data = data();
            let server = taken_over(&data, Call::Write, at);
            let lost = run_with(&server, &data, 1).unwrap_err();
            // The write during which the lock went is the last one.
            assert_eq!(files_written(&data), at + 1);
            let path = data.path().join(format!("base/5/{}", 16384 + at));
            let text = lost.to_string();
            let expected = format!("pgtoll may have overwritten blocks 0-2 of {}", path.display());
            assert!(text.ends_with(&expected), "{text}");
            assert!(lost.hint().unwrap().contains("restore them from a backup"), "{lost:?}");
            assert!(!is_on(&data));
            assert_eq!(fs::read_to_string(data.path().join("postmaster.pid")).unwrap(), "1\n");
        }
    }

    #[test]
    fn threads_whose_lock_is_lost_name_a_write_each_at_most() {
        for at in 0..FILES {
            let data = data();
            let server = taken_over(&data, Call::Write, at);
            let lost = run_with(&server, &data, 4).unwrap_err();
            let WriteError::Lost { overwritten, .. } = &lost else { panic!("{lost:?}") };
            assert!((1..=4).contains(&overwritten.len()), "{lost:?}");
            assert!(files_written(&data) <= at + 4, "{}", files_written(&data));
            assert!(!is_on(&data));
        }
    }

    #[test]
    fn a_lock_that_is_lost_after_the_pages_leaves_the_control_file_as_it_is() {
        let data = data();
        let control = fs::read(data.path().join("global/pg_control")).unwrap();
        // By the time of the last sync all pages are written.
        let server = taken_over(&data, Call::Sync, FILES - 1);
        let lost = run_with(&server, &data, 1).unwrap_err();
        assert!(matches!(lost, WriteError::Lost { .. }), "{lost:?}");
        assert_eq!(fs::read(data.path().join("global/pg_control")).unwrap(), control);
    }

    #[test]
    fn a_thread_that_panics_ends_all_and_lets_the_directory_go() {
        // More files than may wait to be synced.
        for call in [Call::Read, Call::Write, Call::Sync] {
            let data = data_of(300);
            let (ended, has_ended) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let panics = Acting::at(call, |number| assert_eq!(number, 0, "an impossible disk"));
                let all = std::panic::AssertUnwindSafe(|| run_with(&panics, &data, 4));
                ended.send((std::panic::catch_unwind(all).is_err(), data)).unwrap();
            });
            let patience = std::time::Duration::from_secs(120);
            let (is_panic, data) = has_ended.recv_timeout(patience).unwrap();
            assert!(is_panic, "{call:?}");
            assert!(!data.path().join("postmaster.pid").exists());
        }
    }

    #[test]
    fn a_journal_that_is_a_fifo_is_refused_without_waiting() {
        let data = data();
        let journal = data.path().join("pgtoll_enable.journal");
        nix::unistd::mkfifo(&journal, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let failed = run(&Real, &data).unwrap_err();
        assert!(failed.to_string().ends_with("pgtoll_enable.journal"), "{failed}");
        assert!(!is_on(&data) && files_written(&data) == 0);
    }

    fn is_on(data: &TempDir) -> bool {
        pgtoll_datadir::control_file(data.path()).unwrap().checksum_version == ON
    }

    fn assert_checksums(data: &TempDir) {
        for number in 0..FILES {
            let path = data.path().join(format!("base/5/{}", 16384 + number));
            for (block, page) in (0..).zip(fs::read(path).unwrap().chunks_exact(8192)) {
                let expected = pgtoll_checksum::page_checksum(page, block);
                assert_eq!(page[8..10], expected.to_le_bytes(), "{number}, {block}");
            }
        }
        assert!(!data.path().join("pgtoll_enable.journal").exists());
        assert!(!data.path().join("postmaster.pid").exists());
    }

    #[test]
    fn a_disk_that_fails_leaves_them_off_and_a_second_run_completes() {
        for (call, error, expected) in [
            (Call::Read, Errno::EIO, "read block "),
            (Call::Write, Errno::EIO, "write /"),
            (Call::Write, Errno::ENOSPC, "write /"),
            (Call::Sync, Errno::EIO, "sync /"),
            (Call::Sync, Errno::ENOSPC, "sync /"),
        ] {
            for after in [0, 1, FILES / 2, FILES - 1] {
                let data = data();
                let control = fs::read(data.path().join("global/pg_control")).unwrap();
                let failed = run(&Failing::at(call, after, error), &data).unwrap_err();
                let text = failed.to_string();
                assert!(text.starts_with(expected) && text.contains("/base/5/163"), "{text}");
                assert!(failed.hint().is_some(), "{text}");
                assert_eq!(fs::read(data.path().join("global/pg_control")).unwrap(), control);
                assert!(!is_on(&data) && !data.path().join("postmaster.pid").exists());
                let changed = run(&Real, &data).unwrap();
                let passed_over = match changed.earlier {
                    Earlier::PassedOver { files, .. } => files,
                    Earlier::None => 0,
                    Earlier::Void => panic!("nobody used the cluster"),
                };
                // Each file is one read, one write and one sync.
                assert!(passed_over <= after as u64, "{call:?}: {passed_over} after {after}");
                assert_eq!(changed.pages.pages, (FILES as u64 - passed_over) * PAGES as u64);
                assert!(is_on(&data));
                assert_checksums(&data);
            }
        }
    }

    #[test]
    fn what_was_synced_is_passed_over_unless_somebody_wrote_to_it() {
        let data = data();
        let last = Failing::at(Call::Sync, FILES - 1, Errno::EIO);
        run(&last, &data).unwrap_err();
        // A file that was synced loses a checksum.
        let changed = data.path().join("base/5/16384");
        let mut bytes = fs::read(&changed).unwrap();
        bytes[8..10].fill(0);
        fs::write(&changed, bytes).unwrap();
        let changed = run(&Real, &data).unwrap();
        let Earlier::PassedOver { files, bytes } = changed.earlier else {
            panic!("{changed:?}");
        };
        assert!((FILES as u64 - 2..FILES as u64).contains(&files), "{files}");
        assert_eq!(bytes, files * 3 * 8192);
        assert_checksums(&data);
    }

    #[test]
    fn a_journal_of_another_state_of_the_control_file_is_void() {
        let data = data();
        run(&Failing::at(Call::Sync, FILES - 1, Errno::EIO), &data).unwrap_err();
        // As it is, but written: by a server that came and went.
        let control = data.path().join("global/pg_control");
        let bytes = fs::read(&control).unwrap();
        fs::write(&control, bytes).unwrap();
        let changed = run(&Real, &data).unwrap();
        assert_eq!(changed.earlier, Earlier::Void);
        assert_eq!(changed.pages.pages, (FILES * PAGES) as u64);
        assert_checksums(&data);
    }

    #[test]
    fn damaged_files_are_told_again() {
        let data = data();
        let damaged = data.path().join("base/5/16390");
        let mut bytes = fs::read(&damaged).unwrap();
        bytes[14..16].fill(0);
        fs::write(&damaged, bytes).unwrap();
        run(&Failing::at(Call::Sync, FILES - 1, Errno::EIO), &data).unwrap_err();
        let changed = run(&Real, &data).unwrap();
        assert!(matches!(changed.earlier, Earlier::PassedOver { .. }), "{changed:?}");
        assert_eq!(changed.pages.refused_pages, [RefusedPage { path: damaged, block: 0 }]);
    }
}
