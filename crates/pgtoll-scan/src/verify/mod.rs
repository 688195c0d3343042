//! Are the pages of a data directory sound? The verdict of each page is that of the server; what
//! contradicts itself although no server would notice is a suspicion.

mod data;
mod disk;
mod found;
mod layout;
mod pace;
mod visible;
mod work;

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use pgtoll_format::wal::RelationFiles;
use pgtoll_format::{Verdict, verdict};

pub use data::DataDirectory;
pub use disk::{Disk, Files, ReadAt};
pub use found::{Class, Counts, Finding, Layout, Pages, Verified, WhatIsWrong};

use crate::{Fork, RelationFile, relation_files};
use work::{Portion, Work};

/// How it is verified.
#[derive(Clone, Debug)]
pub struct VerifySettings {
    /// Files, and pieces of them, that are read at once.
    pub jobs: NonZeroUsize,
    /// Bytes a second over all jobs; `None`: as fast as it goes.
    pub rate: Option<u64>,
    /// Only relations that have a file at these paths or below them, all of their files; empty: all
    /// relations. The paths begin as the data directory's does.
    pub only_below: Vec<PathBuf>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes that there are to read.
    pub all_bytes: u64,
}

/// What a server says of a page at this block of its fork, whose cluster has checksums or not.
pub fn page_verdict(page: &[u8], block: u32, has_checksums: bool) -> Verdict {
    // A page that was never used has no checksum.
    let is_page = pgtoll_checksum::is_page(page.len());
    let computed = has_checksums && is_page;
    verdict(page, computed.then(|| pgtoll_checksum::page_checksum(page, block)))
}

/// Reads the relations of a data directory on which no server runs, those for which `wanted` is
/// true, and says what is wrong. Nothing that is wrong ends it, but `progress` can.
pub fn verify(
    data: &DataDirectory,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelationFiles) -> bool,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Verified {
    verify_on(&Files, data, settings, wanted, progress)
}

/// As [`verify`], with files that another disk opens.
pub fn verify_on(
    disk: &dyn Disk,
    data: &DataDirectory,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelationFiles) -> bool,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Verified {
    let (files, mut verified) = listed(data, settings, wanted);
    for finding in layout::findings(&files, data) {
        verified.add(finding);
    }
    verified.firsts = layout::empty_ones(&files);
    verified.files = files.len() as u64;
    read(disk, data, settings, &files, &mut verified, progress);
    verified.findings.sort_by_key(|finding| (finding.fork, finding.block));
    verified
}

/// The fork that a file belongs to.
fn fork_of(file: &RelationFile) -> Fork {
    Fork { relation: file.relation, fork: file.name.fork }
}

/// The files that are to be read.
fn listed(
    data: &DataDirectory,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelationFiles) -> bool,
) -> (Vec<RelationFile>, Verified) {
    let list = relation_files(&data.path, &data.control);
    let is_below = |file: &RelationFile| {
        let below = &settings.only_below;
        below.is_empty() || below.iter().any(|path| file.path.starts_with(path))
    };
    let mut verified = Verified { unlisted: list.unreadable, ..Verified::default() };
    for path in list.foreign {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("INCREMENTAL.") {
            verified.incremental += 1;
        } else {
            verified.foreign.push(path);
        }
    }
    let before = list.files.len();
    let mut files = list.files;
    files.retain(|file| file.name.backend.is_none());
    verified.temporary = (before - files.len()) as u64;
    // No block has so high a number, and no server would look there.
    let beyond = files.extract_if(.., |file| file.first_block(&data.control).is_none());
    verified.foreign.extend(beyond.map(|file| file.path));
    // An incremental backup names in another way what it has not all of.
    if settings.only_below.is_empty() && verified.incremental == 0 {
        let is_first = |file: &&RelationFile| file.name.fork == 0 && file.name.segment == 0;
        verified.present = files.iter().filter(is_first).map(fork_of).collect();
    }
    // What one file says is judged by the others: all of a relation are read, or none.
    let below: HashSet<RelationFiles> =
        files.iter().filter(|file| is_below(file)).map(|file| file.relation).collect();
    files.retain(|file| below.contains(&file.relation) && wanted(file.relation));
    (files, verified)
}

fn read(
    disk: &dyn Disk,
    data: &DataDirectory,
    settings: &VerifySettings,
    files: &[RelationFile],
    verified: &mut Verified,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) {
    let work = Work::new(disk, data, files, settings.rate);
    let jobs = settings.jobs.get();
    thread::scope(|threads| {
        let (sender, receiver) = sync_channel(2 * jobs);
        for _ in 0..jobs {
            let (sender, work) = (sender.clone(), &work);
            threads.spawn(move || work.run(&sender));
        }
        drop(sender);
        collect(&receiver, &work, verified, progress);
    });
}

/// Adds up what the threads send until all have ended.
fn collect(
    receiver: &Receiver<Portion>,
    work: &Work<'_>,
    verified: &mut Verified,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) {
    let all_bytes = work.all_bytes();
    loop {
        match receiver.recv_timeout(PROGRESS) {
            Ok(portion) => {
                verified.pages.bytes += portion.pages.bytes;
                verified.pages.blocks += portion.pages.blocks;
                verified.pages.new += portion.pages.new;
                verified.firsts.extend(portion.first);
                portion.findings.into_iter().for_each(|finding| verified.add(finding));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Progress { bytes: verified.pages.bytes, all_bytes };
        if !verified.is_interrupted && progress(now).is_break() {
            verified.is_interrupted = true;
            work.stop();
        }
    }
}

/// How often it is asked whether to go on.
const PROGRESS: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// A directory with these files of relation 16384 in database 5, whose files have 4 blocks.
    fn directory(files: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, DataDirectory) {
        let place = tempfile::tempdir().unwrap();
        for directory in ["global", "base/5", "pg_tblspc"] {
            fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        for (name, bytes) in files {
            fs::write(place.path().join("base/5").join(name), bytes).unwrap();
        }
        let mut control = relation_files::tests::control();
        control.file_blocks = 4;
        control.checksum_version = 1;
        control.state = pgtoll_format::ClusterState::ShutDown;
        control.checkpoint = pgtoll_format::Lsn(1 << 20);
        let path = place.path().to_owned();
        (place, DataDirectory { path, control, major: 15, backup_start: None })
    }

    fn verified(data: &DataDirectory) -> Verified {
        let settings =
            VerifySettings { jobs: 2.try_into().unwrap(), rate: None, only_below: Vec::new() };
        verify(data, &settings, &|_| true, &mut |_| ControlFlow::Continue(()))
    }

    /// A valid empty page at this block.
    fn page(block: u32) -> Vec<u8> {
        let mut page = vec![0; 8192];
        for (at, value) in [(12, 24_u16), (14, 8192), (16, 8192)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let checksum = pgtoll_checksum::page_checksum(&page, block);
        page[8..10].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    fn pages(blocks: std::ops::Range<u32>) -> Vec<u8> {
        blocks.flat_map(page).collect()
    }

    fn check(files: &[(&str, Vec<u8>)], expected: &[(u32, Layout)]) {
        let (_place, data) = directory(files);
        let found = verified(&data);
        let layouts: Vec<(u32, Layout)> = found
            .findings
            .iter()
            .map(|finding| match finding.what {
                WhatIsWrong::Layout(layout) => (finding.block, layout),
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(layouts, expected);
    }

    #[test]
    fn files_that_follow_each_other_are_whole() {
        check(&[("16384", pages(0..4)), ("16384.1", pages(4..6))], &[]);
        // What was cut off is left behind empty.
        check(&[("16384", pages(0..2)), ("16384.1", vec![]), ("16384.2", vec![])], &[]);
        check(&[("16384", vec![]), ("16384.1", vec![])], &[]);
        check(
            &[("16384", pages(0..3)), ("16384.1", pages(4..5))],
            &[(3, Layout::Short { segment: 0 })],
        );
        check(
            &[("16384", pages(0..4)), ("16384.3", pages(12..13))],
            &[(4, Layout::Missing { segment: 1, count: 2 })],
        );
        let mut cut = pages(0..2);
        cut.truncate(8192 + 100);
        check(&[("16384", cut)], &[(1, Layout::EndsInBlock { bytes: 100 })]);
        check(&[("16384", pages(0..5))], &[(4, Layout::TooLong { segment: 0 })]);
    }

    #[test]
    fn a_file_of_blocks_that_have_no_number_is_foreign() {
        let (_place, data) = directory(&[("16384.4294967295", pages(0..1))]);
        let found = verified(&data);
        assert_eq!((found.foreign.len(), found.pages.blocks), (1, 0));
    }

    #[test]
    fn who_interrupts_gets_what_was_found() {
        let (_place, data) = directory(&[("16384", pages(1..4))]);
        let settings =
            VerifySettings { jobs: 1.try_into().unwrap(), rate: None, only_below: Vec::new() };
        let found = verify(&data, &settings, &|_| true, &mut |now| match now.bytes {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        assert!(found.is_interrupted && !found.is_whole());
        assert_eq!(found.total().failures, 3, "a page of another block is none of this one");
    }

    #[test]
    fn a_file_stands_for_its_relation() {
        let (_place, data) =
            directory(&[("16384", pages(0..4)), ("16384.1", pages(4..5)), ("16385", pages(0..1))]);
        let below = |path: &Path| {
            let only_below = vec![path.to_owned()];
            let settings = VerifySettings { jobs: 1.try_into().unwrap(), rate: None, only_below };
            verify(&data, &settings, &|_| true, &mut |_| ControlFlow::Continue(())).pages.blocks
        };
        assert_eq!(below(&data.path.join("base/5/16384.1")), 5);
        assert_eq!(below(&data.path.join("base")), 6);
        assert_eq!(below(&data.path.join("global")), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_files_are_verified(
            files in prop::collection::vec(
                (
                    prop::sample::select(vec![
                        "16384", "16384.1", "16384_vm", "16384_fsm", "16384_init",
                        "16384.4294967295", "16384_vm.7",
                    ]),
                    prop::collection::vec(any::<u8>(), 0..200),
                    0_usize..50_000,
                ),
                0..5,
            ),
        ) {
            let filled = |(name, some, bytes): &(&'static str, Vec<u8>, usize)| {
                let all: Vec<u8> = some.iter().copied().cycle().take(*bytes).collect();
                (*name, all)
            };
            let files: Vec<_> = files.iter().map(filled).collect();
            let (_place, data) = directory(&files);
            let found = verified(&data);
            let foreign = data.path.join("base/5/16384.4294967295");
            let written: u64 = fs::read_dir(data.path.join("base/5"))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| *path != foreign)
                .map(|path| path.metadata().unwrap().len())
                .sum();
            prop_assert_eq!(found.pages.bytes, written);
            prop_assert!(found.unlisted.is_empty() && !found.is_interrupted);
        }
    }
}
