//! Disks that tear, shrink and fail; servers that say this or that.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pgtoll_format::{ForkNumber, Lsn, RelFileLocator, RelationFork};

use super::super::{Files, ReadAt, Storage};
use super::*;
use crate::directory::tests::{directory, heap_page, map_page, page};
use crate::found::RunningCounts;

const PAGE: usize = 8192;
const REDO: Lsn = Lsn(0x0300_0000);
const END: Lsn = Lsn(0x0500_0000);
const BETWEEN: Lsn = Lsn(0x0400_0000);
const TABLE: RelationFork = RelationFork {
    relation: RelFileLocator { tablespace: 1663, database: 5, rel_number: 16384 },
    number: ForkNumber::MAIN,
};

struct NoPauses;

impl Pauses for NoPauses {
    fn pause(&self, _: Duration) -> bool {
        true
    }

    fn stop(&self) {}
}

/// Says always the same, but for how far it is.
struct Fixed {
    /// One after the other; the last one stays.
    moments: Vec<Result<WalHorizon, Unsettled>>,
    images: Result<ImagesInWal, WalImagesError>,
    said: ServerAnswer,
}

impl Witness for Fixed {
    fn now(&mut self) -> Result<WalHorizon, Unsettled> {
        if self.moments.len() > 1 { self.moments.remove(0) } else { self.moments[0].clone() }
    }

    fn images(
        &mut self,
        forks: &HashSet<(RelationFork, u32)>,
        from: Lsn,
    ) -> Result<ImagesInWal, WalImagesError> {
        assert_eq!(from, REDO);
        let mut images = self.images.clone()?;
        images.last.retain(|key, _| forks.contains(key));
        Ok(images)
    }

    fn ask(&mut self, _: RelationFork, _: u32) -> ServerAnswer {
        self.said.clone()
    }
}

const MOMENT: WalHorizon = WalHorizon {
    redo: REDO,
    wal_end: Some(END),
    full_page_writes: true,
    replays: false,
    first_lsn: Lsn(0x0100_0000),
};

fn witness() -> Fixed {
    let images = ImagesInWal { last: HashMap::new(), to: END, full_page_writes: true };
    Fixed {
        moments: vec![Ok(MOMENT)],
        images: Ok(images),
        said: ServerAnswer::Nothing(Unsettled::NoServer),
    }
}

/// A page with this LSN whose checksum is wrong.
fn bad(block: u32, lsn: Lsn) -> Vec<u8> {
    let mut page = page(block);
    let halves = lsn.0.to_be_bytes();
    let half = |from: usize| u32::from_be_bytes(halves[from..from + 4].try_into().unwrap());
    page[..4].copy_from_slice(&half(0).to_le_bytes());
    page[4..8].copy_from_slice(&half(4).to_le_bytes());
    page[5000] ^= 1;
    page
}

fn run(disk: &dyn Storage, data: &DataDirectory, witness: &mut dyn Witness) -> Verified {
    let verify = VerifySettings {
        jobs: 1.try_into().unwrap(),
        rate: None,
        only_below: Vec::new(),
        rows: true,
    };
    let settings = RunningSettings { verify, patience: Duration::from_secs(2) };
    let mut progress = |_| ControlFlow::Continue(());
    verify_running(disk, data, &settings, witness, &NoPauses, &|_| true, &mut progress)
}

/// A page of zeros is none that was changed, one of ones none that will be: see the rules.
fn check(lsn: Lsn, file: &str, change: impl FnOnce(&mut Fixed), expected: Option<Unsettled>) {
    let (_place, data) = directory(&[("16384", page(0)), (file, [page(0), bad(1, lsn)].concat())]);
    let mut witness = witness();
    change(&mut witness);
    let found = run(&Files, &data, &mut witness);
    let [finding] = &found.findings[..] else { panic!("{:?}", found.findings) };
    assert_eq!(finding.block, 1);
    match (&finding.defect, expected) {
        (Defect::Unsettled { why, .. }, Some(expected)) => assert_eq!(*why, expected),
        (Defect::Invalid { .. }, None) => {}
        (other, expected) => panic!("{lsn} {file}: {other:?}, not {expected:?}"),
    }
}

fn image(at: Lsn) -> impl FnOnce(&mut Fixed) {
    move |witness| {
        witness.images.as_mut().unwrap().last.insert((TABLE, 1), at);
    }
}

#[test]
fn proofs_decide_what_is_damaged() {
    let none = |_: &mut Fixed| {};
    // Changed before the last checkpoint began, or by WAL that is not there.
    check(REDO, "16384", none, None);
    check(Lsn(END.0 + 1), "16384", none, None);
    check(Lsn(u64::MAX), "16384", none, None);
    // In between: with an image, or without.
    check(BETWEEN, "16384", none, None);
    check(BETWEEN, "16384", image(BETWEEN), Some(Unsettled::InFlight));
    // An image excuses no page that does not say that it is newer.
    check(REDO, "16384", image(BETWEEN), None);
    // An index that is being built has no LSN yet.
    check(Lsn(1), "16384", none, Some(Unsettled::NoServer));
    // Of these the WAL has nothing to say.
    check(REDO, "16384_fsm", none, Some(Unsettled::NoServer));
    check(REDO, "16384_vm", none, Some(Unsettled::NoServer));
    check(REDO, "16384_init", none, None);
    let off = |witness: &mut Fixed| {
        witness.moments = vec![Ok(WalHorizon { full_page_writes: false, ..MOMENT })];
    };
    check(BETWEEN, "16384", off, Some(Unsettled::NoServer));
    check(REDO, "16384", off, None);
    let was_off = |witness: &mut Fixed| {
        witness.images.as_mut().unwrap().full_page_writes = false;
    };
    check(BETWEEN, "16384", was_off, Some(Unsettled::NoServer));
}

#[test]
fn what_is_not_known_is_not_concluded() {
    let horizon = |change: fn(&mut WalHorizon)| {
        move |witness: &mut Fixed| {
            let mut horizon = MOMENT;
            change(&mut horizon);
            witness.moments = vec![Ok(horizon)];
        }
    };
    // Who replays may have anything on the disk that the WAL has an image of.
    let replays = horizon(|item| item.replays = true);
    check(REDO, "16384", replays, None);
    let both = |witness: &mut Fixed| {
        replays(witness);
        image(BETWEEN)(witness);
    };
    check(REDO, "16384", both, Some(Unsettled::InFlight));
    check(Lsn(u64::MAX), "16384", both, Some(Unsettled::InFlight));
    // Without a known end of WAL, the end of what was read counts.
    check(Lsn(END.0 + 1), "16384", horizon(|item| item.wal_end = None), None);
    check(BETWEEN, "16384", horizon(|item| item.wal_end = None), None);
    let short = |witness: &mut Fixed| witness.images.as_mut().unwrap().to = REDO;
    let ends = format!("it ends at {REDO}");
    check(BETWEEN, "16384", short, Some(Unsettled::NoWal(ends)));
    let unread =
        |witness: &mut Fixed| witness.images = Err(WalImagesError::Unread("gone".to_owned()));
    check(BETWEEN, "16384", unread, Some(Unsettled::NoWal("gone".to_owned())));
    check(REDO, "16384", unread, None);
    let down = || Unsettled::NotReady("down".to_owned());
    let gone = |witness: &mut Fixed| witness.moments = vec![Ok(MOMENT), Err(down())];
    check(REDO, "16384", gone, Some(down()));
}

#[test]
fn the_server_is_asked_for_the_rest() {
    let says = |output: ServerAnswer| move |witness: &mut Fixed| witness.said = output;
    check(Lsn(1), "16384_fsm", says(ServerAnswer::Refuses), None);
    let memory = ServerAnswer::Takes { from_disk: false };
    check(REDO, "16384_vm", says(memory.clone()), Some(Unsettled::Resident));
    check(
        REDO,
        "16384_vm",
        says(ServerAnswer::Takes { from_disk: true }),
        Some(Unsettled::Resident),
    );
    let both = |output: ServerAnswer| {
        |witness: &mut Fixed| {
            witness.said = output;
            image(BETWEEN)(witness);
        }
    };
    check(BETWEEN, "16384", both(ServerAnswer::Refuses), None);
    check(BETWEEN, "16384", both(memory), Some(Unsettled::InFlight));
}

#[test]
fn a_relation_with_an_init_fork_is_not_logged() {
    let bytes = [page(0), bad(1, REDO)].concat();
    let (_place, data) = directory(&[("16384", bytes), ("16384_init", vec![])]);
    let found = run(&Files, &data, &mut witness());
    assert_eq!((found.total().failures, found.total().unverified), (0, 1), "{:?}", found.findings);
}

#[test]
fn a_checkpoint_is_waited_for() {
    let later = |wal_end: Lsn| {
        move |witness: &mut Fixed| {
            image(BETWEEN)(witness);
            let after = WalHorizon { redo: Lsn(BETWEEN.0 + 8), wal_end: Some(wal_end), ..MOMENT };
            witness.moments = vec![Ok(MOMENT), Ok(MOMENT), Ok(MOMENT), Ok(after)];
        }
    };
    // It should be on the disk by now.
    check(BETWEEN, "16384", later(END), None);
    let never = |witness: &mut Fixed| {
        image(BETWEEN)(witness);
        let down = Unsettled::NotReady("down".to_owned());
        witness.moments = vec![Ok(MOMENT), Ok(MOMENT), Err(down)];
    };
    check(BETWEEN, "16384", never, Some(Unsettled::InFlight));
}

/// A disk on which something happens with each read of a file.
struct Eventful<F> {
    path: PathBuf,
    reads: AtomicUsize,
    read: F,
}

struct EventfulFile<'a, F> {
    file: File,
    disk: Option<&'a Eventful<F>>,
}

impl<F: Fn(usize, &mut [u8]) -> io::Result<usize> + Sync> Storage for Eventful<F> {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt + '_>> {
        let disk = (path == self.path).then_some(self);
        Ok(Box::new(EventfulFile { file: File::open(path)?, disk }))
    }
}

impl<F: Fn(usize, &mut [u8]) -> io::Result<usize>> ReadAt for EventfulFile<'_, F> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let read = FileExt::read_at(&self.file, buffer, at)?;
        match self.disk {
            Some(disk) if read > 0 => {
                (disk.read)(disk.reads.fetch_add(1, Ordering::Relaxed), &mut buffer[..read])
            }
            _ => Ok(read),
        }
    }
}

fn eventful(read: impl Fn(usize, &mut [u8]) -> io::Result<usize> + Sync) -> Verified {
    let (_place, data) = directory(&[("16384", page(0))]);
    let path = data.path.join("base/5/16384");
    run(&Eventful { path, reads: AtomicUsize::new(0), read }, &data, &mut witness())
}

#[test]
fn a_torn_page_heals_when_it_is_read_again() {
    for heals_after in 1..8 {
        let found = eventful(|read, page| {
            // The second half is of another time.
            if read < heals_after {
                page[PAGE / 2..].fill(0x11);
            }
            Ok(page.len())
        });
        assert_eq!(found.findings, []);
        let RunningCounts { suspects, healed, .. } = found.running;
        assert_eq!((suspects, healed), (1, 1), "after {heals_after} reads");
        assert!(found.is_whole());
    }
}

#[test]
fn what_is_never_twice_the_same_is_unverified() {
    let found = eventful(|read, page| {
        page[5000] = read.to_le_bytes()[0] | 1;
        Ok(page.len())
    });
    let [finding] = &found.findings[..] else { panic!("{:?}", found.findings) };
    assert!(matches!(finding.defect, Defect::Unsettled { .. }), "{finding:?}");
}

#[test]
fn what_is_cut_off_or_dropped_is_gone() {
    // Cut off in the first read, or in a later one.
    for at in 0..3 {
        let found = eventful(|read, page| {
            page[100] ^= 1;
            if read < at {
                return Ok(page.len());
            }
            // The rest of the page is asked for again, and is not there either.
            if page.len() == PAGE { Ok(PAGE / 2) } else { Ok(0) }
        });
        assert_eq!(found.findings, [], "cut at read {at}");
        assert_eq!(found.running.dropped, 1, "cut at read {at}");
    }
    let (_place, data) = directory(&[("16384", bad(0, REDO)), ("16385", page(0))]);
    let path = data.path.join("base/5/16384");
    let read = |read: usize, page: &mut [u8]| {
        if read == 1 {
            fs::remove_file(&path).unwrap();
        }
        Ok(page.len())
    };
    let disk = Eventful { path: path.clone(), reads: AtomicUsize::new(0), read };
    let found = run(&disk, &data, &mut witness());
    assert_eq!((found.findings.len(), found.running.dropped), (0, 1), "{:?}", found.findings);
}

#[test]
fn what_cannot_be_read_is_unverified() {
    for from in [0, 1] {
        let found = eventful(|read, page| {
            page[5000] ^= 1;
            if read < from { Ok(page.len()) } else { Err(io::Error::from_raw_os_error(5)) }
        });
        let [finding] = &found.findings[..] else { panic!("{:?}", found.findings) };
        assert!(matches!(finding.defect, Defect::Unreadable { .. }), "{finding:?}");
        assert!(!found.is_whole());
    }
}

#[test]
fn who_interrupts_gets_what_was_found() {
    let bytes = (0..4).flat_map(|block| bad(block, REDO)).collect();
    let (_place, data) = directory(&[("16384", bytes)]);
    let verify = VerifySettings {
        jobs: 1.try_into().unwrap(),
        rate: None,
        only_below: Vec::new(),
        rows: true,
    };
    let settings = RunningSettings { verify, patience: Duration::ZERO };
    let mut progress = |now: VerifyProgress| match now.bytes {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let pauses = RealPauses::default();
    let found =
        verify_running(&Files, &data, &settings, &mut witness(), &pauses, &|_| true, &mut progress);
    assert!(found.is_interrupted && !found.is_whole());
    assert_eq!((found.total().failures, found.total().unverified), (0, 4));
}

/// A disk that gives a file's pages another content from the second time on that it is opened.
struct Cured<'a> {
    file: &'a str,
    then: Vec<u8>,
    opened: AtomicUsize,
}

impl Storage for Cured<'_> {
    fn open<'b>(&'b self, path: &Path) -> io::Result<Box<dyn ReadAt + 'b>> {
        let is_it = path.ends_with(self.file);
        if is_it && self.opened.fetch_add(1, Ordering::Relaxed) > 0 {
            fs::write(path, &self.then)?;
        }
        Files.open(path)
    }
}

#[test]
fn pages_that_contradict_their_maps_are_read_again() {
    let old = u32::try_from(REDO.0).unwrap();
    let stale = [heap_page(0, old, true), heap_page(1, old, false), heap_page(2, old, false)];
    let map = map_page(old, &[0b0011_1111]);
    let (_place, mut data) = directory(&[("16384", stale.concat()), ("16384_vm", map)]);
    data.control.last_checkpoint.redo = REDO;
    let claim = crate::StaleClaim::Visible;
    let defect = Defect::MapStale { blocks: 2, claim, since: Some(REDO) };
    let found = run(&Files, &data, &mut witness());
    assert_eq!(found.findings, [BlockFinding { fork: TABLE, block: 1, defect }]);
    assert_eq!(found.total().suspicions, 2);
    // A page that was being written is another one a moment later.
    let then = [heap_page(0, old, true), heap_page(1, old, false), heap_page(2, old + 8, true)];
    let opened = AtomicUsize::new(0);
    let disk = Cured { file: "16384", then: then.concat(), opened };
    let found = run(&disk, &data, &mut witness());
    let [BlockFinding { block: 1, defect: Defect::MapStale { blocks: 1, .. }, .. }] =
        found.findings[..]
    else {
        panic!("{:?}", found.findings)
    };
}
