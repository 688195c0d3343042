//! Patrols of a cluster that is played, on a clock that is turned.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pgtoll_record::{
    FindingClass, FindingKind, PageFinding, PatrolBlock, PatrolFinding, PatrolRecord, PatrolSource,
    Severity,
};

use super::error::PatrolError;
use super::patrolled::{PatrolListing, PatrolPiece, Patrolled, PieceResult};
use super::rounds::run;
use super::state::PatrolState;
use super::timing::{PatrolClock, PatrolSettings, elapsed, rate_in_time};

const RATE: u64 = 16 << 20;
/// A page here is what is read in a quarter of a second, or more.
const PAGE: u64 = RATE / 4;
const HOUR: Duration = Duration::from_secs(3600);

struct Clock(Cell<Timestamp>);

impl Clock {
    fn new() -> Self {
        Self(Cell::new("2026-11-01T00:00:00Z".parse().unwrap()))
    }
}

impl PatrolClock for Clock {
    fn now(&self) -> Timestamp {
        self.0.get()
    }

    fn wait(&self, time: Duration) {
        self.0.set(self.0.get() + SignedDuration::try_from(time).unwrap());
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// What is known of a page: when it was read last, or made.
type Pages = Vec<Timestamp>;

struct Cluster<'a> {
    clock: &'a Clock,
    within: Duration,
    page_bytes: u64,
    files: BTreeMap<PatrolBlock, Pages>,
    /// As they were when they were listed.
    listed: Vec<(PatrolBlock, u64)>,
    unlisted: Vec<String>,
    bad: BTreeSet<PatrolBlock>,
    pages_read: u64,
    random: u64,
}

impl<'a> Cluster<'a> {
    /// Files of some pages each, this many pages together.
    fn new(clock: &'a Clock, within: Duration, page_bytes: u64, pages: u64) -> Self {
        let mut cluster = Self {
            clock,
            within,
            page_bytes,
            files: BTreeMap::new(),
            listed: Vec::new(),
            unlisted: Vec::new(),
            bad: BTreeSet::new(),
            pages_read: 0,
            random: 88_172_645_463_325_252,
        };
        let mut left = pages;
        while left > 0 {
            let some = (1 + cluster.random(200)).min(left);
            cluster.add_file(some);
            left -= some;
        }
        cluster
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn pages(&self) -> u64 {
        self.files.values().map(|pages| pages.len() as u64).sum()
    }

    fn add_file(&mut self, pages: u64) {
        let database = u32::try_from(self.random(5)).unwrap();
        let filenode = u32::try_from(self.random(1 << 31)).unwrap();
        let file = PatrolBlock { tablespace: 1663, database, filenode, ..PatrolBlock::default() };
        let made = vec![self.clock.now(); usize::try_from(pages).unwrap()];
        self.files.insert(file, made);
    }

    fn any_file(&mut self) -> PatrolBlock {
        let number = usize::try_from(self.random(self.files.len() as u64)).unwrap();
        *self.files.keys().nth(number).unwrap()
    }

    /// Something happens: a file is dropped and another one made, one is cut off and another one grows.
    fn change(&mut self) {
        let dropped = self.any_file();
        let pages = self.files.remove(&dropped).unwrap();
        for page in &pages {
            self.check(*page, &dropped);
        }
        self.add_file(pages.len() as u64);
        let cut = self.any_file();
        let grown = self.any_file();
        let now = self.clock.now();
        if let Some(page) = self.files.get_mut(&cut).and_then(Vec::pop) {
            self.check(page, &cut);
            self.files.get_mut(&grown).unwrap().push(now);
        }
    }

    /// No page waits longer than it may.
    fn check(&self, page: Timestamp, file: &PatrolBlock) {
        let waited = elapsed(page, self.clock.now());
        assert!(waited <= self.within, "{file:?}: {waited:?} > {:?}", self.within);
    }

    fn read_page(
        &mut self,
        file: PatrolBlock,
        block: PatrolBlock,
        now: Timestamp,
        result: &mut PieceResult,
    ) {
        let index = usize::try_from(block.block).unwrap();
        let there = self.files.get(&file).and_then(|pages| pages.get(index)).copied();
        // Dropped, or cut off.
        let Some(last) = there else { return };
        self.check(last, &file);
        self.files.get_mut(&file).unwrap()[index] = now;
        result.read.pages += 1;
        if self.bad.contains(&block) {
            result.findings.push(finding(block, now));
        }
    }

    fn oldest(&self) -> Timestamp {
        *self.files.values().flatten().min().unwrap()
    }
}

impl Patrolled for Cluster<'_> {
    fn list(&mut self) -> Result<PatrolListing, PatrolError> {
        self.clock.wait(Duration::from_millis(100));
        let files = self.files.iter().map(|(file, pages)| (*file, pages.len() as u64));
        self.listed = files.collect();
        let source = PatrolSource {
            path: "/main".into(),
            major: 18,
            system_identifier: 1,
            block_bytes: 8192,
            file_blocks: 131_072,
            checksums: true,
            running: true,
            files: self.listed.len() as u64,
            bytes: self.pages() * self.page_bytes,
        };
        Ok(PatrolListing { source, unlisted: self.unlisted.clone(), notes: Vec::new() })
    }

    fn piece(&self, from: PatrolBlock, bytes_max: u64) -> Option<PatrolPiece> {
        let begin = self
            .listed
            .partition_point(|(file, pages)| PatrolBlock { block: *pages, ..*file } <= from);
        let mut room = bytes_max / self.page_bytes;
        self.listed.get(begin)?;
        for (file, pages) in &self.listed[begin..] {
            let first = if *file <= from { from.block } else { 0 };
            if pages - first > room {
                let to = Some(PatrolBlock { block: first + room, ..*file });
                return Some(PatrolPiece { from, to });
            }
            room -= pages - first;
        }
        Some(PatrolPiece { from, to: None })
    }

    fn read(&mut self, piece: &PatrolPiece, now: Timestamp) -> Result<PieceResult, PatrolError> {
        let mut result = PieceResult::default();
        let begin = self
            .listed
            .partition_point(|(file, pages)| PatrolBlock { block: *pages, ..*file } <= piece.from);
        for at in begin..self.listed.len() {
            let (file, pages) = self.listed[at];
            let blocks = (0..pages).map(|block| PatrolBlock { block, ..file });
            if piece.to.is_some_and(|to| to <= file) {
                break;
            }
            for block in blocks.filter(|block| piece.has(block)) {
                self.read_page(file, block, now, &mut result);
            }
        }
        result.read.bytes = result.read.pages * self.page_bytes;
        self.pages_read += result.read.pages;
        // Somewhat faster than is allowed.
        self.clock
            .wait(Duration::from_secs(result.read.bytes) * 8 / 10 / u32::try_from(RATE).unwrap());
        Ok(result)
    }

    fn is_listed(&self, block: &PatrolBlock) -> bool {
        self.listed.iter().any(|(file, _)| *file == PatrolBlock { block: 0, ..*block })
    }
}

fn finding(at: PatrolBlock, now: Timestamp) -> PatrolFinding {
    PatrolFinding {
        at,
        found: now,
        seen: now,
        path: format!("base/{}/{}", at.database, at.filenode),
        fork: "main".into(),
        name: None,
        severity: Severity::Unknown,
        page: PageFinding {
            block: u32::try_from(at.block).unwrap(),
            blocks: 1,
            class: FindingClass::Failure,
            kind: FindingKind::Checksum,
            words: "wrong checksum".into(),
            stored_checksum: Some(1),
            computed_checksum: Some(2),
            lsn: None,
            wal: None,
            index: None,
        },
    }
}

fn settings(within: Duration, run_time: Duration) -> PatrolSettings {
    PatrolSettings {
        rate: RATE,
        within,
        run_time: Some(run_time),
        version: "0".into(),
        command: Vec::new(),
    }
}

/// A patrol that begins.
fn begin(cluster: &mut Cluster<'_>, settings: &PatrolSettings) -> PatrolState {
    let began = cluster.clock.now();
    let listing = cluster.list().unwrap();
    let mut state = PatrolState::new(listing.source, began);
    go_on(cluster, settings, &mut state);
    state
}

fn go_on(cluster: &mut Cluster<'_>, settings: &PatrolSettings, state: &mut PatrolState) {
    let listing = cluster.list().unwrap();
    state.set(settings);
    state.set_listing(listing);
}

fn run_on(cluster: &mut Cluster<'_>, settings: &PatrolSettings, state: &mut PatrolState) {
    let clock = cluster.clock;
    run(cluster, state, clock, settings, &mut |_| Ok(ControlFlow::Continue(()))).unwrap();
}

/// The state as it is read again from its file.
fn read_again(record: &PatrolRecord) -> PatrolState {
    PatrolState::from_record(serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap())
}

/// Runs of an hour with a minute in between, every third of them killed, over a cluster that changes; the
/// cluster looks itself whether each page is read in time.
fn check_promise(within: Duration, all: Duration, page_bytes: u64) {
    let clock = Clock::new();
    // As much as can be read in time, but for what the pauses and the changes take.
    let pages = within.as_secs() * RATE / page_bytes * 85 / 100;
    let mut cluster = Cluster::new(&clock, within, page_bytes, pages);
    let settings = settings(within, HOUR);
    let mut state = begin(&mut cluster, &settings);
    let began = clock.now();
    assert_eq!(rate_in_time(state.record(began)), None);
    let mut runs = 0_u64;
    let mut lost_most = 0;
    while elapsed(began, clock.now()) < all {
        runs += 1;
        let pieces = if runs.is_multiple_of(3) { 200 + cluster.random(500) } else { u64::MAX };
        let lost = run_until_killed(&mut cluster, &settings, &mut state, pieces);
        lost_most = lost_most.max(lost * page_bytes);
        clock.wait(Duration::from_secs(60));
        cluster.change();
        go_on(&mut cluster, &settings, &mut state);
        check_age(&cluster, &mut state);
    }
    // A piece, and no more.
    assert!((1..=64 << 20).contains(&lost_most), "{lost_most} bytes");
    let record = state.record(clock.now());
    assert!(record.last_round.as_ref().unwrap().number > 1, "{record:?}");
    // No faster than it may.
    let most = elapsed(began, clock.now()).as_secs() * RATE;
    assert!(cluster.pages_read * page_bytes <= most, "{} > {most}", cluster.pages_read);
    for (file, pages) in &cluster.files {
        for page in pages {
            cluster.check(*page, file);
        }
    }
}

/// Kills the run in the piece behind this many. How many pages were read in vain.
fn run_until_killed(
    cluster: &mut Cluster<'_>,
    settings: &PatrolSettings,
    state: &mut PatrolState,
    pieces: u64,
) -> u64 {
    let clock = cluster.clock;
    let before = (cluster.pages_read, state.record(clock.now()).read.pages);
    let mut kept = Kept { pieces, last: None };
    let mut keep = |record: &PatrolRecord| Ok(kept.piece(record));
    run(cluster, state, clock, settings, &mut keep).unwrap();
    let last = kept.last.unwrap_or_else(|| state.record(clock.now()).clone());
    *state = read_again(&last);
    (cluster.pages_read - before.0) - (last.read.pages - before.1)
}

/// The age that is told is that of the oldest page, or a little more.
fn check_age(cluster: &Cluster<'_>, state: &mut PatrolState) {
    let oldest = cluster.oldest();
    let message = state.record(cluster.clock.now()).oldest_read;
    assert!(message <= oldest, "{message} > {oldest}");
    if state.record(cluster.clock.now()).last_round.is_some() {
        let more = elapsed(message, oldest);
        assert!(more <= cluster.within / 50 + 2 * HOUR / 60, "{more:?}");
    }
}

/// What was written of a run until it is killed.
struct Kept {
    /// With the piece behind this many it is killed.
    pieces: u64,
    last: Option<PatrolRecord>,
}

impl Kept {
    fn piece(&mut self, record: &PatrolRecord) -> ControlFlow<()> {
        if self.last.is_some() {
            return ControlFlow::Break(());
        }
        self.pieces = self.pieces.saturating_sub(1);
        if self.pieces == 0 {
            self.last = Some(record.clone());
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn a_patrol_over_24_simulated_hours_reads_each_page_in_time() {
    check_promise(6 * HOUR, 24 * HOUR, PAGE);
}

#[test]
fn a_patrol_over_three_simulated_weeks_reads_each_page_in_a_week() {
    check_promise(7 * 24 * HOUR, 21 * 24 * HOUR, 16 * PAGE);
}

#[test]
fn a_rate_that_is_too_low_is_known_at_once_and_the_one_that_would_do() {
    let clock = Clock::new();
    let mut cluster = Cluster::new(&clock, 24 * HOUR, PAGE, 2 * 3600 * (RATE / PAGE));
    let pick = |cluster: &mut Cluster<'_>, within: Duration, rate: u64| {
        let settings = PatrolSettings { rate, ..settings(within, HOUR) };
        let mut state = begin(cluster, &settings);
        rate_in_time(state.record(clock.now()))
    };
    assert_eq!(pick(&mut cluster, 24 * HOUR, RATE), None);
    let rate = pick(&mut cluster, HOUR, RATE).unwrap();
    // Twice as fast, and a tenth more: files are listed every five minutes.
    assert!((2 * RATE..RATE * 5 / 2).contains(&rate), "{rate}");
    assert_eq!(pick(&mut cluster, HOUR, rate), None);
}

#[test]
fn a_finding_stays_until_its_block_reads_sound() {
    let clock = Clock::new();
    let mut cluster = Cluster::new(&clock, 24 * HOUR, PAGE, 3600 * (RATE / PAGE));
    let settings = settings(24 * HOUR, 2 * HOUR);
    let mut state = begin(&mut cluster, &settings);
    let files: Vec<PatrolBlock> =
        cluster.files.iter().filter(|(_, pages)| pages.len() > 2).map(|(file, _)| *file).collect();
    let [first, second] = [files[1], files[files.len() - 2]];
    cluster.bad = [PatrolBlock { block: 1, ..first }, PatrolBlock { block: 2, ..second }].into();
    run_on(&mut cluster, &settings, &mut state);
    let record = state.record(clock.now()).clone();
    assert_eq!((record.failures, record.findings.len()), (2, 2));
    let found: Vec<Timestamp> = record.findings.iter().map(|finding| finding.found).collect();
    // Found in the first round, seen in the second, and looked at in between.
    assert!(record.findings.iter().all(|finding| finding.found < finding.seen), "{record:?}");

    go_on(&mut cluster, &settings, &mut state);
    run_on(&mut cluster, &settings, &mut state);
    let record = state.record(clock.now()).clone();
    assert_eq!(record.findings.iter().map(|finding| finding.found).collect::<Vec<_>>(), found);

    // One is repaired, and the other's file is dropped.
    cluster.bad.pop_first();
    let short = PatrolSettings { run_time: Some(Duration::ZERO), ..settings.clone() };
    go_on(&mut cluster, &settings, &mut state);
    run_on(&mut cluster, &short, &mut state);
    assert_eq!(state.record(clock.now()).findings.len(), 1, "a second look is at once");
    let dropped = cluster.files.remove(&second).unwrap();
    cluster.unlisted = vec!["base/4: Permission denied".into()];
    go_on(&mut cluster, &settings, &mut state);
    run_on(&mut cluster, &short, &mut state);
    assert_eq!(state.record(clock.now()).failures, 1, "nothing is known of it");
    assert!(!dropped.is_empty());
    cluster.unlisted.clear();
    go_on(&mut cluster, &settings, &mut state);
    run_on(&mut cluster, &short, &mut state);
    assert_eq!(state.record(clock.now()).failures, 0);
}

#[test]
fn blocks_that_follow_each_other_are_one_finding_where_there_are_many() {
    let clock = Clock::new();
    let mut cluster = Cluster::new(&clock, 24 * HOUR, PAGE, 0);
    cluster.add_file(30_000);
    let file = *cluster.files.keys().next().unwrap();
    // Every second one of the last 25,000 of them.
    let is_bad = |block: &u64| *block < 100 || (*block > 5000 && block.is_multiple_of(2));
    cluster.bad = (0..30_000).filter(is_bad).map(|block| PatrolBlock { block, ..file }).collect();
    let settings =
        PatrolSettings { rate: 1 << 40, ..settings(24 * HOUR, Duration::from_secs(6000)) };
    let mut state = begin(&mut cluster, &settings);
    let piece = PatrolPiece { from: PatrolBlock::default(), to: None };
    let result = cluster.read(&piece, clock.now()).unwrap();
    state.add_piece(&piece, result, clock.now(), &|_| true);
    let record = state.record(clock.now());
    assert_eq!(record.findings[0].page.blocks, 100);
    assert_eq!(record.findings.len(), 10_000);
    let left_out = record.last_round.as_ref().unwrap().left_out;
    assert_eq!(record.failures + left_out, 100 + 12_499);
}
