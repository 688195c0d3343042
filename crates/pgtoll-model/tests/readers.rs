//! Hints that a source has not logged, and checkpoints that follow each other closely: a little
//! server does the same work under two settings, and one is predicted from the other's WAL.

use pgtoll_format::Lsn;
use pgtoll_model::{
    BlockKey, Geometry, ImageCompression, Reference, Rule, Schedule, Settings, WhatIf,
    WhatIfOutcome, checkpoint_segments,
};

const GEOMETRY: Geometry = Geometry { segment_bytes: 1 << 20, page_bytes: 8192 };
/// Bytes of a segment that records can use.
const USABLE: u64 = 128 * (8192 - 24) - 16;
const BEGIN: Lsn = Lsn((1 << 20) + 40);
const PAGES: u32 = 2000;
const IMAGE: u16 = 4005;
/// Checkpoints write all at once.
const TARGET: f64 = 0.01;

/// What the server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// A page changes; it is left with as many rows without hints.
    Change { block: u32, unhinted: u8, makes: bool },
    /// Somebody reads a row of a page.
    Read { block: u32, row: u8 },
}

/// Even, and the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u8) -> u8 {
        let bits = self.page(u32::from(most));
        u8::try_from(bits).unwrap_or(most)
    }

    fn page(&mut self, most: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(most)).unwrap_or(0)
    }
}

/// A server with checksums, and what it logged of the work.
struct Server {
    segments: u64,
    position: u64,
    redo: u64,
    /// Of each page: its LSN, and which of its rows have no hints (60 of them).
    pages: Vec<(u64, u64)>,
    images: u64,
    log: Vec<Logged>,
}

enum Logged {
    Record(u32, Reference),
    Checkpoint,
}

impl Server {
    fn new(max_wal_size: u64, rows: u64) -> Self {
        let segments = checkpoint_segments(max_wal_size, 1 << 20, TARGET);
        let pages = vec![(0, rows); PAGES as usize];
        Self { segments, position: USABLE, redo: USABLE, pages, images: 0, log: Vec::new() }
    }

    fn does(mut self, work: &[Work]) -> Self {
        for work in work {
            match *work {
                Work::Change { block, unhinted, makes } => {
                    let page = &mut self.pages[block as usize];
                    page.1 |= (1_u64 << unhinted) - 1;
                    let rule = if makes { Rule::Init } else { Rule::Regular };
                    self.log(block, rule);
                }
                Work::Read { block, row } => {
                    let page = &mut self.pages[block as usize];
                    let had_none = page.1 >> row & 1 == 1;
                    page.1 &= !(1 << row);
                    if had_none && page.0 <= self.redo {
                        self.log(block, Rule::Hint);
                    }
                }
            }
        }
        self
    }

    fn log(&mut self, block: u32, rule: Rule) {
        let needs = rule != Rule::Init && self.pages[block as usize].0 <= self.redo;
        let image = needs.then_some([IMAGE; ImageCompression::COUNT]);
        let bytes = match rule {
            Rule::Hint => 46,
            Rule::Init => 7000,
            _ => 120,
        };
        self.images += u64::from(needs);
        let length = bytes + if needs { u32::from(IMAGE) } else { 0 };
        self.position += u64::from(length).next_multiple_of(8);
        self.pages[block as usize].0 = self.position;
        let block = BlockKey { fork: 0, block };
        let grows_by = if rule == Rule::Init { 3976 } else { 0 };
        let data_bytes = 0;
        let freeze_bytes = 0;
        let reference =
            Reference { block, rule, image, data_bytes, grows_by, freeze_bytes, pruned_bytes: 0 };
        self.log.push(Logged::Record(bytes, reference));
        if self.position / USABLE >= self.redo / USABLE + self.segments {
            self.redo = self.position;
            self.log.push(Logged::Checkpoint);
        }
    }
}

fn settings(schedule: Schedule) -> Settings {
    let compression = ImageCompression::AsStored;
    Settings { schedule, hints: true, full_page_writes: true, compression }
}

fn rule(max_wal_size: u64) -> Schedule {
    Schedule::Rule { max_wal_size, timeout_us: i64::MAX, completion_target: TARGET }
}

/// The same work with other sizes; `today` is the source's, if it is known.
fn predicted(source: &Server, today: Option<u64>, wanted: &[u64]) -> Vec<WhatIfOutcome> {
    let requested = wanted.iter().map(|size| settings(rule(*size)));
    let all: Vec<Settings> = std::iter::once(settings(Schedule::Source)).chain(requested).collect();
    let mut whatif = WhatIf::new(GEOMETRY, 0, &all);
    if let Some(today) = today {
        whatif.assume_schedule(rule(today));
    }
    whatif.fork([1663, 16384, 0]);
    whatif.begin(BEGIN, Some(0));
    // The checkpoint with which it all begins.
    whatif.source_checkpoint(true);
    for log in &source.log {
        match log {
            Logged::Record(bytes, reference) => whatif.record(*bytes, &[*reference]),
            Logged::Checkpoint => {
                whatif.source_checkpoint(false);
                whatif.source_written();
            }
        }
    }
    whatif.finish().split_off(1)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn error(predicted: &WhatIfOutcome, server: &Server) -> f64 {
    predicted.images as f64 / server.images as f64 - 1.0
}

const LONG: u64 = 8 << 20;
const SHORT: u64 = 3 << 20;

/// Pages with many rows that nobody has read, changed now and then.
fn reads_of_old_rows() -> Vec<Work> {
    let mut chance = Chance(7);
    let mut one = |number: u32| {
        let block = chance.page(PAGES);
        if number.is_multiple_of(8) {
            Work::Change { block, unhinted: 0, makes: false }
        } else {
            Work::Read { block, row: chance.below(60) }
        }
    };
    (0..120_000).map(&mut one).collect()
}

#[test]
fn readers_of_pages_with_an_unknown_past_are_reckoned_with() {
    let work = reads_of_old_rows();
    let rows = (1 << 60) - 1;
    let long = Server::new(LONG, rows).does(&work);
    let short = Server::new(SHORT, rows).does(&work);
    let known = predicted(&long, Some(LONG), &[SHORT]);
    // As it is where nobody says what the source's settings were: a lower bound.
    let least = predicted(&long, None, &[SHORT]);
    assert!(error(&least[0], &short) < -0.3, "{} of {}", least[0].images, short.images);
    assert!(error(&known[0], &short).abs() < 0.15, "{} of {}", known[0].images, short.images);
}

/// Pages filled with rows, which all need a hint once. Before the first checkpoint nothing is known of
/// their readers, and so they stay too few.
#[test]
fn readers_of_new_rows_are_reckoned_with_from_the_first_checkpoint_on() {
    let mut chance = Chance(11);
    let mut made = 0;
    let work: Vec<Work> = (0..360_000)
        .map(|number| {
            if number % 180 == 0 && made < PAGES {
                made += 1;
                return Work::Change { block: made - 1, unhinted: 60, makes: true };
            }
            let block = chance.page(made);
            if number % 9 == 0 {
                return Work::Change { block, unhinted: 1, makes: false };
            }
            Work::Read { block, row: chance.below(60) }
        })
        .collect();
    let distant = 8 << 20;
    let near = 2 << 20;
    let long = Server::new(distant, 0).does(&work);
    let short = Server::new(near, 0).does(&work);
    let known = predicted(&long, Some(distant), &[near]);
    let least = predicted(&long, None, &[near]);
    assert!(error(&least[0], &short) < -0.5, "{} of {}", least[0].images, short.images);
    assert!(error(&known[0], &short).abs() < 0.4, "{} of {}", known[0].images, short.images);
}

/// Whoever reads a page to change it leaves a trace: no other hints follow from that.
#[test]
fn who_reads_to_change_is_no_reader() {
    let mut chance = Chance(13);
    let work: Vec<Work> = (0..60_000)
        .flat_map(|_| {
            let block = chance.page(PAGES);
            let row = chance.below(60);
            [Work::Read { block, row }, Work::Change { block, unhinted: 1, makes: false }]
        })
        .collect();
    let rows = (1 << 60) - 1;
    let long = Server::new(LONG, rows).does(&work);
    let short = Server::new(SHORT, rows).does(&work);
    let known = predicted(&long, Some(LONG), &[SHORT, LONG]);
    assert!(error(&known[0], &short).abs() < 0.005, "{} of {}", known[0].images, short.images);
    assert!(error(&known[1], &long).abs() < 0.005, "{} of {}", known[1].images, long.images);
}

#[test]
fn what_is_answered_does_not_hang_on_what_else_is_asked() {
    let work = reads_of_old_rows();
    let long = Server::new(LONG, (1 << 60) - 1).does(&work);
    let sizes: Vec<u64> = (2..66).map(|megabytes| megabytes << 20).collect();
    let together = predicted(&long, Some(LONG), &sizes);
    for (size, outcome) in sizes.iter().zip(&together).step_by(9) {
        assert_eq!(&predicted(&long, Some(LONG), &[*size])[0], outcome, "{size}");
    }
}

/// A correction that was kept for 128 settings once: some log a hint later than others.
#[test]
fn any_number_of_settings_are_each_as_if_asked_alone() {
    let work = reads_of_old_rows();
    let long = Server::new(LONG, (1 << 60) - 1).does(&work[..40_000]);
    // From one segment on, in steps of less than a segment, so that many begin checkpoints together;
    // and in an order in which each part has short and long ones.
    let step = |number: u64| number * 73 % 200;
    let sizes: Vec<u64> = (0..200).map(|number| (2 << 20) + step(number) * (LONG / 150)).collect();
    let alone: Vec<WhatIfOutcome> =
        sizes.iter().flat_map(|size| predicted(&long, Some(LONG), &[*size])).collect();
    let different: std::collections::BTreeSet<u64> =
        alone.iter().map(|alone| alone.images).collect();
    assert!(different.len() > 5, "{different:?}");
    for count in [127, 128, 129, 200] {
        assert_eq!(predicted(&long, Some(LONG), &sizes[..count]), alone[..count], "{count}");
        // Whatever their place.
        let last: Vec<u64> = sizes[..count].iter().rev().copied().collect();
        let mut backwards = predicted(&long, Some(LONG), &last);
        backwards.reverse();
        assert_eq!(backwards, alone[..count], "{count}");
    }
}
