//! Verifies a data directory that no server writes to.

use std::collections::{BTreeMap, HashSet};
use std::mem;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use pgtoll_datadir::DataDirectory;
use pgtoll_format::RelFileLocator;

use crate::backup::{self, IncrementalFile};
use crate::defect::BlockFinding;
use crate::found::Verified;
use crate::layout;
use crate::listing::{Beside, Listing, Position};
use crate::maps::MapRule;
use crate::resume::{ResumeError, ResumeJournal};
use crate::settings::{PROGRESS, VerifyProgress, VerifySettings};
use crate::storage::{Files, Storage};
use crate::work::{Portion, Work};

/// Reads the relations of a data directory on which no server runs, those for which `wanted` is
/// true, and says what is wrong. Nothing that is wrong ends it, but `progress` can.
pub fn verify(
    data: &DataDirectory,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelFileLocator) -> bool,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Verified {
    verify_on(&Files, data, settings, wanted, progress)
}

/// As [`verify`], with files that another disk opens.
pub fn verify_on(
    disk: &dyn Storage,
    data: &DataDirectory,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelFileLocator) -> bool,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Verified {
    DirectoryVerification::new(data, settings, wanted).run(disk, None, progress)
}

/// As [`verify_on`], from where the journal says that it was left, and kept there as it continues. A
/// journal of other files, or of what has changed since, is an error.
pub fn verify_again(
    disk: &dyn Storage,
    data: &DataDirectory,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelFileLocator) -> bool,
    journal: &mut ResumeJournal,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<Verified, ResumeError> {
    let mut scan = DirectoryVerification::new(data, settings, wanted);
    scan.part.start = journal.begin(data, &scan.files, scan.fingerprint, &mut scan.verified)?;
    Ok(scan.run(disk, Some(journal), progress))
}

/// The verification of a data directory.
pub(crate) struct DirectoryVerification<'a> {
    data: &'a DataDirectory,
    settings: &'a VerifySettings,
    pub(crate) files: Listing,
    /// The incremental files of an incremental backup.
    incremental: Vec<IncrementalFile>,
    /// A fingerprint of the whole list.
    fingerprint: u64,
    /// The part of them that is read; earlier results are in `verified`.
    part: Range<Position>,
    /// How many small files a thread takes at once.
    unit_files: usize,
    /// When pages and maps may be compared.
    pub(crate) maps: MapRule,
    pub(crate) verified: Verified,
}

impl<'a> DirectoryVerification<'a> {
    /// Lists the files, and says what is wrong with their lengths.
    fn new(
        data: &'a DataDirectory,
        settings: &'a VerifySettings,
        wanted: &dyn Fn(RelFileLocator) -> bool,
    ) -> Self {
        let mut scan = Self::listed(data, settings, wanted);
        for finding in layout::findings(scan.files.iter(), data) {
            scan.verified.add(finding);
        }
        scan
    }

    /// Lists the files.
    pub(crate) fn listed(
        data: &'a DataDirectory,
        settings: &'a VerifySettings,
        wanted: &dyn Fn(RelFileLocator) -> bool,
    ) -> Self {
        let only_below = &settings.only_below;
        let (files, beside) = Listing::new(&data.path, &data.control, only_below, wanted);
        let Beside { temporary, mut foreign, unlisted, fingerprint } = beside;
        let mut incremental = backup::incremental_files(data, &mut foreign);
        if !incremental.is_empty() {
            let listed: HashSet<RelFileLocator> =
                files.iter().map(|file| file.fork.relation).collect();
            let is_below =
                |path: &Path| only_below.iter().any(|only_below| path.starts_with(only_below));
            incremental.retain(|incremental| {
                let is_meant = only_below.is_empty() || is_below(&incremental.path);
                (is_meant || listed.contains(&incremental.relation)) && wanted(incremental.relation)
            });
        }
        let skips_rows = !settings.rows;
        let mut verified =
            Verified { temporary, foreign, unlisted, skips_rows, ..Verified::default() };
        verified.files = files.len() as u64;
        let part = Position::default()..files.end();
        let scan = Self::of_part(data, settings, files, part);
        Self { incremental, fingerprint, verified, ..scan }
    }

    /// A part of files that were listed before.
    pub(crate) fn of_part(
        data: &'a DataDirectory,
        settings: &'a VerifySettings,
        files: Listing,
        part: Range<Position>,
    ) -> Self {
        Self {
            data,
            settings,
            files,
            incremental: Vec::new(),
            fingerprint: 0,
            part,
            unit_files: settings.rate.map_or(UNIT_FILES, |_| 16),
            maps: MapRule::from_data(data),
            verified: Verified::default(),
        }
    }

    fn run(
        mut self,
        disk: &dyn Storage,
        journal: Option<&mut ResumeJournal>,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) -> Verified {
        let mut verified = mem::take(&mut self.verified);
        self.read(disk, &mut verified, journal, &mut Verified::add, progress);
        let Self { data, settings, files, incremental, .. } = self;
        // An incremental backup names in another way what it has not all of.
        if settings.only_below.is_empty() && incremental.is_empty() {
            verified.files_of_all = Some(files);
        }
        backup::read_incremental(incremental, data, settings, &mut verified, progress);
        verified.findings.sort_by_key(|finding| (finding.fork, finding.block));
        verified
    }

    /// Reads the files and gives `take` what is wrong.
    pub(crate) fn read(
        &self,
        disk: &dyn Storage,
        verified: &mut Verified,
        journal: Option<&mut ResumeJournal>,
        take: Take<'_>,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) {
        let Self { data, settings, files, part, unit_files, maps, .. } = self;
        let work = Work::new(disk, data, files, part.clone(), *unit_files, settings, *maps);
        let jobs = settings.jobs.get();
        let all_bytes = files.bytes();
        let mut collector = Collector::new(verified, part.start, journal, take);
        let worker = || {
            let mut reader = work.reader();
            move |emit: &mut dyn FnMut(Portion) -> bool| reader.next().is_some_and(&mut *emit)
        };
        let before = collector.verified.pages.bytes;
        let started = pgtoll_system::threads::run_workers(jobs, PROGRESS, worker, |portion| {
            collector.take(portion);
            let now = VerifyProgress { bytes: before + work.read_bytes(), all_bytes };
            if !collector.verified.is_interrupted && progress(now).is_break() {
                collector.verified.is_interrupted = true;
                work.stop();
            }
        });
        collector.end();
        verified.threads(started, jobs);
    }
}

/// The sink for findings.
pub(crate) type Take<'a> = &'a mut dyn FnMut(&mut Verified, BlockFinding);

/// Puts together what the threads send, in the order of the list.
struct Collector<'a> {
    verified: &'a mut Verified,
    /// All before this is in `verified`.
    to: Position,
    next: u64,
    /// Portions behind one that is still being read.
    waiting: BTreeMap<u64, Portion>,
    journal: Option<&'a mut ResumeJournal>,
    take: Take<'a>,
}

impl<'a> Collector<'a> {
    fn new(
        verified: &'a mut Verified,
        to: Position,
        journal: Option<&'a mut ResumeJournal>,
        take: Take<'a>,
    ) -> Self {
        Self { verified, to, next: 0, waiting: BTreeMap::new(), journal, take }
    }

    fn end(mut self) {
        if let Some(journal) = &mut self.journal {
            journal.write(self.verified, self.to);
        }
        // Bytes read for nothing, if they are read again: a caller that does not continue wants to know.
        for portion in mem::take(&mut self.waiting).into_values() {
            self.add(portion);
        }
    }

    /// Takes a portion, if one came.
    fn take(&mut self, portion: Option<Portion>) {
        let Some(portion) = portion else { return };
        self.waiting.insert(portion.number, portion);
        while self.waiting.get(&self.next).is_some_and(|portion| !portion.is_cut) {
            if let Some(portion) = self.waiting.remove(&self.next) {
                self.to = portion.to;
                self.add(portion);
            }
            self.next += 1;
        }
        if let Some(journal) = &mut self.journal {
            journal.write_now_and_then(self.verified, self.to);
        }
    }

    fn add(&mut self, portion: Portion) {
        let pages = &mut self.verified.pages;
        pages.bytes += portion.pages.bytes;
        pages.blocks += portion.pages.blocks;
        pages.new += portion.pages.new;
        self.verified.zeros.extend(portion.zeros);
        self.verified.unmapped.extend(portion.unmapped);
        for finding in portion.findings {
            (self.take)(self.verified, finding);
        }
    }
}

/// The small files that a thread takes at once, unless the rate is limited.
const UNIT_FILES: usize = 512;

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use pgtoll_format::{ClusterState, Fault, Lsn, Verdict};
    use proptest::prelude::*;

    use super::*;
    use crate::{Defect, DirectFiles, LayoutDefect, MappedFiles, StaleClaim, page_verdict};

    /// A directory with these files of relation 16384 in database 5, whose files have 4 blocks.
    pub(crate) fn directory(files: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, DataDirectory) {
        let place = tempfile::tempdir().unwrap();
        for directory in ["global", "base/5", "pg_tblspc"] {
            fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        for (name, bytes) in files {
            fs::write(place.path().join("base/5").join(name), bytes).unwrap();
        }
        let mut control =
            pgtoll_format::ControlFile::read(&pgtoll_testing::control_file()).unwrap();
        control.file_blocks = 4;
        control.checksum_version = 1;
        control.state = ClusterState::ShutDown;
        control.checkpoint = Lsn(1 << 20);
        let path = place.path().to_owned();
        (place, DataDirectory { path, control, major: 15, backup_start: None })
    }

    fn verified(data: &DataDirectory) -> Verified {
        verify(data, &settings(), &|_| true, &mut |_| ControlFlow::Continue(()))
    }

    fn settings() -> VerifySettings {
        VerifySettings {
            jobs: 2.try_into().unwrap(),
            rate: None,
            only_below: Vec::new(),
            rows: true,
        }
    }

    /// A valid empty page at this block.
    pub(crate) fn page(block: u32) -> Vec<u8> {
        let mut page = vec![0; 8192];
        for (at, value) in [(12, 24_u16), (14, 8192), (16, 8192)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let checksum = pgtoll_checksum::page_checksum(&page, block);
        page[8..10].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    fn pages(blocks: Range<u32>) -> Vec<u8> {
        blocks.flat_map(page).collect()
    }

    fn check(files: &[(&str, Vec<u8>)], expected: &[(u32, LayoutDefect)]) {
        let (_place, data) = directory(files);
        let found = verified(&data);
        let layouts: Vec<(u32, LayoutDefect)> = found
            .findings
            .iter()
            .map(|finding| match finding.defect {
                Defect::Layout(layout) => (finding.block, layout),
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
            &[(3, LayoutDefect::Short { segment: 0 })],
        );
        check(
            &[("16384", pages(0..4)), ("16384.3", pages(12..13))],
            &[(4, LayoutDefect::Missing { segment: 1, count: 2 })],
        );
        let mut cut = pages(0..2);
        cut.truncate(8192 + 100);
        check(&[("16384", cut)], &[(1, LayoutDefect::EndsInBlock { bytes: 100 })]);
        check(&[("16384", pages(0..5))], &[(4, LayoutDefect::TooLong { segment: 0 })]);
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
        let settings = VerifySettings {
            jobs: 1.try_into().unwrap(),
            rate: None,
            only_below: Vec::new(),
            rows: true,
        };
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
            let settings =
                VerifySettings { jobs: 1.try_into().unwrap(), rate: None, only_below, rows: true };
            verify(&data, &settings, &|_| true, &mut |_| ControlFlow::Continue(())).pages.blocks
        };
        assert_eq!(below(&data.path.join("base/5/16384.1")), 5);
        assert_eq!(below(&data.path.join("base")), 6);
        assert_eq!(below(&data.path.join("global")), 0);
    }

    /// Pages of which some are damaged in some way, at random.
    fn any_pages(first: u32, block_bytes: usize, damage: &[u8]) -> Vec<u8> {
        let size = u16::try_from(block_bytes).unwrap();
        let page = |(kind, block): (&u8, u32)| {
            let mut page = vec![0; block_bytes];
            for (at, value) in [(12, 24_u16), (14, size), (16, size)] {
                page[at..at + 2].copy_from_slice(&value.to_le_bytes());
            }
            page[block_bytes - 1] = *kind;
            // What comes of these is another fault each, or none.
            match kind % 16 {
                0 => return vec![0; block_bytes],
                1 => page[14] = 0,
                2 => page[14..16].fill(0),
                3 => page[11] = 0xFF,
                _ => {}
            }
            let checksum = pgtoll_checksum::page_checksum(&page, block);
            page[8..10].copy_from_slice(&checksum.to_le_bytes());
            page[100] ^= u8::from(kind % 16 == 4);
            page[0] ^= u8::from(kind % 16 == 5);
            page
        };
        damage.iter().zip(first..).flat_map(page).collect()
    }

    /// What the pages of a file are, one by one.
    fn faults(pages: &[u8], first: u32, block_bytes: usize, sums: bool) -> Vec<(u32, Fault)> {
        let verdicts = pages
            .chunks_exact(block_bytes)
            .zip(first..)
            .map(|(page, block)| (block, page_verdict(page, block, sums)));
        verdicts
            .filter_map(|(block, verdict)| match verdict {
                Verdict::Invalid(fault) => Some((block, fault)),
                _ => None,
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Many pages at once, however they are read, come to the same as each by itself.
        #[test]
        fn every_page_has_its_own_verdict(
            damage in prop::collection::vec(any::<u8>(), 1..120),
            segment in 0_u32..3,
            exponent in 10_u32..16,
            sums: bool,
            rest in 0_usize..500,
        ) {
            let block_bytes = 1_usize << exponent;
            let blocks = 128;
            let mut pages = any_pages(segment * blocks, block_bytes, &damage);
            let expected = faults(&pages, segment * blocks, block_bytes, sums);
            let new = pages.chunks(block_bytes).filter(|page| page.iter().all(|byte| *byte == 0));
            let expected_new = new.count() as u64;
            pages.resize(pages.len() + rest, 7);
            let name = if segment == 0 { "16384".to_owned() } else { format!("16384.{segment}") };
            let (_place, mut data) = directory(&[(&name, pages)]);
            data.control.block_bytes = block_bytes.try_into().unwrap();
            data.control.file_blocks = blocks;
            data.control.checksum_version = u32::from(sums);
            // Then nothing is a suspicion.
            data.control.state = ClusterState::InProduction;
            let mapped = MappedFiles::default();
            let direct = DirectFiles::default();
            for disk in [&Files as &dyn Storage, &mapped, &direct] {
                let found = verify_on(disk, &data, &settings(), &|_| true, &mut |_| ControlFlow::Continue(()));
                let invalid = found.findings.iter().filter_map(|finding| match finding.defect {
                    Defect::Invalid { fault, .. } => Some((finding.block, fault)),
                    _ => None,
                });
                prop_assert_eq!(invalid.collect::<Vec<_>>(), expected.clone());
                prop_assert_eq!(found.pages.blocks, damage.len() as u64);
                prop_assert_eq!(found.pages.new, expected_new);
            }
        }
    }

    /// Files of several relations, damaged at random, in a directory.
    fn damaged() -> (tempfile::TempDir, DataDirectory) {
        let damage = |file: u8| (0..20 + file).map(move |at| at.wrapping_mul(37) ^ file);
        let files = (0..8_u8).map(|file| {
            let name = (16384 + u32::from(file)).to_string();
            (name, any_pages(0, 8192, &damage(file).collect::<Vec<_>>()))
        });
        let files: Vec<(String, Vec<u8>)> = files.collect();
        let files: Vec<(&str, Vec<u8>)> =
            files.iter().map(|(name, pages)| (name.as_str(), pages.clone())).collect();
        let (place, mut data) = directory(&files);
        data.control.file_blocks = 1000;
        (place, data)
    }

    /// Goes on with a journal, a file a unit, and stops when `stop` says so.
    fn again(
        data: &DataDirectory,
        path: &Path,
        rate: Option<u64>,
        stop: &mut dyn FnMut(VerifyProgress) -> bool,
    ) -> Result<Verified, ResumeError> {
        let mut journal = ResumeJournal::open(path)?;
        journal.every = Duration::ZERO;
        // Of several threads one may have read for nothing what lies behind another's file.
        let jobs = if rate.is_some() { NonZeroUsize::MIN } else { settings().jobs };
        let settings = VerifySettings { jobs, rate, ..settings() };
        let mut scan = DirectoryVerification::new(data, &settings, &|_| true);
        scan.unit_files = 1;
        scan.part.start = journal.begin(data, &scan.files, scan.fingerprint, &mut scan.verified)?;
        Ok(scan.run(&Files, Some(&mut journal), &mut |now| {
            if stop(now) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }))
    }

    fn check_same(found: &Verified, whole: &Verified) {
        assert!(!found.is_interrupted && whole.total().failures > 10);
        assert_eq!(found.findings, whole.findings);
        assert_eq!((&found.counts, found.pages), (&whole.counts, whole.pages));
        assert_eq!((&found.zeros, found.files), (&whole.zeros, whole.files));
    }

    /// At one byte a second a file is read at once, and the next one waits until it is stopped.
    #[test]
    fn who_goes_on_reads_the_rest_and_finds_the_same() {
        let (place, data) = damaged();
        let whole = verified(&data);
        let path = place.path().join("journal");
        let mut runs = 0;
        let mut bytes = 0;
        let found = loop {
            let before = ResumeJournal::open(&path).unwrap().read_before();
            assert_eq!(before, bytes, "what was read is not read again");
            let found = again(&data, &path, Some(1), &mut |now| now.bytes > before).unwrap();
            (runs, bytes) = (runs + 1, found.pages.bytes);
            if !found.is_interrupted {
                break found;
            }
        };
        assert!(runs >= 8, "{runs}");
        check_same(&found, &whole);
    }

    /// Whenever it is killed, what it left is enough.
    #[test]
    fn whoever_was_killed_finds_the_same() {
        let (place, data) = damaged();
        let whole = verified(&data);
        let path = place.path().join("journal");
        let mut left = 0;
        again(&data, &path, None, &mut |_| {
            fs::copy(&path, place.path().join(format!("left.{left}"))).unwrap();
            left += 1;
            false
        })
        .unwrap();
        assert!(left > 0);
        for left in 0..left {
            let path = place.path().join(format!("left.{left}"));
            check_same(&again(&data, &path, None, &mut |_| false).unwrap(), &whole);
        }
    }

    #[test]
    fn a_journal_is_of_these_files_as_they_are() {
        let (place, mut data) = damaged();
        let path = place.path().join("journal");
        let check = |data: &DataDirectory, expected: &str| {
            let found = again(data, &path, None, &mut |_| false).map(drop);
            let output = found.map_err(|error| error.to_string()).err().unwrap_or_default();
            assert!(output.ends_with(expected), "{output}: {expected}");
        };
        check(&data, "");
        check(&data, "");
        let foreign = |bytes: &[u8]| {
            let other = place.path().join("foreign");
            fs::write(&other, bytes).unwrap();
            ResumeJournal::open(&other).map(drop).unwrap_err().to_string()
        };
        let whole = fs::read(&path).unwrap();
        for bytes in [&b""[..], b"{}", &whole[..whole.len() / 2], b"\xFF"] {
            assert!(foreign(bytes).contains("is not a resume file"));
        }
        let newer = String::from_utf8(whole).unwrap().replace("pgtoll.resume/1", "pgtoll.resume/2");
        assert!(foreign(newer.as_bytes()).contains("is not a resume file"));
        data.control.checkpoint.0 += 1;
        check(&data, "is of the cluster before a server ran on it again");
        data.control.checkpoint.0 -= 1;
        data.control.system_identifier += 1;
        check(&data, "is of another cluster");
        data.control.system_identifier -= 1;
        let mut journal = ResumeJournal::open(&path).unwrap();
        let is_wanted = |relation: RelFileLocator| relation.rel_number == 16385;
        let go_on = &mut |_| ControlFlow::Continue(());
        let some = verify_again(&Files, &data, &settings(), &is_wanted, &mut journal, go_on);
        let output = some.map(drop).unwrap_err().to_string();
        assert!(output.ends_with("is of another choice of relations"), "{output}");
        fs::write(data.path.join("base/5/16384"), page(0)).unwrap();
        check(&data, "is of files that have changed since");
        check(&DataDirectory { path: data.path.join("global"), ..data }, "changed since");
        let nowhere = ResumeJournal::open(Path::new("/dev/null/none")).map(drop);
        assert!(matches!(nowhere, Err(ResumeError::Read { .. })));
    }

    /// A page with one row that is frozen, with this LSN and flag.
    pub(crate) fn heap_page(block: u32, lsn: u32, is_visible: bool) -> Vec<u8> {
        let mut page = page(block);
        page[4..8].copy_from_slice(&lsn.to_le_bytes());
        page[10] = if is_visible { 4 } else { 0 };
        for (at, value) in [(12, 28_u16), (14, 8128), (18, 0x2004)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        page[24..28].copy_from_slice(&(0x1FC0_u32 | 1 << 15 | 64 << 17).to_le_bytes());
        page[8128..8132].copy_from_slice(&700_u32.to_le_bytes());
        page[8148..8150].copy_from_slice(&0x0B00_u16.to_le_bytes());
        summed(page, block)
    }

    /// The first page of a map with these bytes of bits.
    pub(crate) fn map_page(lsn: u32, bits: &[u8]) -> Vec<u8> {
        let mut page = page(0);
        page[4..8].copy_from_slice(&lsn.to_le_bytes());
        page[24..24 + bits.len()].copy_from_slice(bits);
        summed(page, 0)
    }

    fn summed(mut page: Vec<u8>, block: u32) -> Vec<u8> {
        let checksum = pgtoll_checksum::page_checksum(&page, block);
        page[8..10].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    #[test]
    fn maps_are_compared_where_that_is_safe() {
        let stale =
            |first, blocks, claim, since| (first, Defect::MapStale { blocks, claim, since });
        let redo = Lsn(0x0300_0000);
        let old = 0x0200_0000;
        let new = 0x0400_0000;
        let table = |newest| {
            let pages = [(0, old, true), (1, old, false), (2, old, false), (3, newest, false)];
            pages.map(|(block, lsn, is_visible)| heap_page(block, lsn, is_visible)).concat()
        };
        let found = |state, backup, map: Vec<u8>, newest| {
            let (_place, mut data) = directory(&[("16384", table(newest)), ("16384_vm", map)]);
            data.control.state = state;
            data.control.checkpoint = Lsn(0x0500_0000);
            data.control.last_checkpoint.redo = redo;
            data.backup_start = backup;
            let verified = verified(&data);
            let suspicions = verified.total().suspicions;
            let all: Vec<_> = verified
                .findings
                .into_iter()
                .map(|finding| (finding.block, finding.defect))
                .collect();
            let visible = all.iter().filter(|(_, s)| s.is_of_visibility());
            assert_eq!(
                suspicions,
                visible.map(|(_, visible)| u64::from(visible.blocks())).sum::<u64>()
            );
            all
        };
        let visible = StaleClaim::Visible;
        let alone = StaleClaim::FrozenAlone;
        let stopped = ClusterState::ShutDown;
        let crashed = ClusterState::InProduction;
        let all = || map_page(old, &[0b1111_1111]);
        assert_eq!(found(stopped, None, all(), new), [stale(1, 3, visible, None)]);
        let since = Some(redo);
        let both = [stale(1, 2, visible, since)];
        assert_eq!(found(crashed, None, all(), new), both);
        assert_eq!(found(stopped, Some(redo), all(), new), both);
        // A stop of a standby is no stop in good order.
        assert_eq!(found(ClusterState::ShutDownInRecovery, None, all(), new), both);
        assert_eq!(found(crashed, None, map_page(new, &[0b1111_1111]), new), []);
        assert_eq!(found(stopped, None, map_page(old, &[0b0000_0011]), new), []);
        assert_eq!(
            found(stopped, None, map_page(old, &[0b1000_0011]), new),
            [stale(3, 1, alone, None)]
        );
        // A damaged page of the map is no witness.
        let mut damaged = all();
        damaged[5000] ^= 1;
        let [(0, Defect::Invalid { .. })] = found(stopped, None, damaged, new)[..] else {
            panic!()
        };
    }

    #[test]
    fn what_a_table_s_map_and_catalogs_say_together() {
        let redo = 0x0200_0000;
        let pages = (0..2).flat_map(|block| heap_page(block, redo, true)).collect();
        let map = map_page(redo, &[0b0000_1111, 0b1100_0000]);
        let (_place, data) = directory(&[("16384", pages), ("16384_vm", map)]);
        let mut data = data;
        data.control.checkpoint = Lsn(0x0500_0000);
        let mut found = verified(&data);
        let beyond = Defect::Layout(LayoutDefect::VisibleBeyondEnd { last: 7 });
        let fork = found.findings[0].fork;
        assert_eq!(found.findings, [BlockFinding { fork, block: 2, defect: beyond.clone() }]);
        // Without a name it stays; the catalogs settle it.
        found.settle_maps(None);
        assert_eq!(found.findings[0].defect, beyond);
        assert_eq!(found.total().suspicions, 1);
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
