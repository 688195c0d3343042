//! The same sums, made by the test itself from what `pg_waldump` prints of every record.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;

use pgtoll_cluster::Installation;
use pgtoll_format::wal::Compression;
use pgtoll_format::{ForkNumber, Lsn};
use pgtoll_record::{CycleBegin, ImageCause};
use pgtoll_wal::{Contents, WalSummary};

use super::{Counts, counts, segment_names};
use crate::support::{program, run};

const PAGE: u64 = 8192;

/// What `pg_waldump --bkp-details` prints of all segments of a directory.
#[derive(Debug)]
pub(super) struct Dump {
    pub(super) lines: Vec<Line>,
    /// Its last words: why it did not read on.
    pub(super) error: String,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) at: Lsn,
    /// `Heap/INSERT+INIT`.
    name: String,
    record_bytes: u64,
    total_bytes: u64,
    description: String,
    blocks: Vec<Block>,
}

/// Relation, fork, block.
type Place = (String, u8, u32);

#[derive(Debug)]
struct Block {
    id: u8,
    place: Place,
    image: Option<Image>,
}

#[derive(Debug)]
struct Image {
    bytes: u64,
    uncompressed_bytes: u64,
    is_check: bool,
    compression: Option<Compression>,
}

/// Records, record bytes, image bytes, and by cause images, their bytes, and uncompressed.
type Sums = ([u64; 3], [[u64; 3]; 4]);

impl Dump {
    /// Rows that records of pruning without an image free, by where the record begins, and whether all are
    /// printed: until 15, unused ones are not.
    pub(super) fn pruned_rows(&self) -> BTreeMap<Lsn, (u16, bool)> {
        let is_prune = |line: &&Line| {
            ["Heap2/PRUNE", "Heap2/PRUNE_ON_ACCESS", "Heap2/PRUNE_VACUUM_SCAN"]
                .contains(&&*line.name)
        };
        let number = |line: &Line, word: &str| -> Option<u16> {
            let (_, after) = line.description.split_once(word)?;
            after.trim_start_matches([':', ' ']).split([' ', ',']).next()?.parse().ok()
        };
        let rows = |line: &Line| {
            let unused = number(line, "nunused");
            let rows = number(line, "nredirected")? + number(line, "ndead")? + unused.unwrap_or(0);
            Some((line.at, (rows, unused.is_some())))
        };
        let lines = self.lines.iter().filter(is_prune);
        lines
            .filter(|line| line.blocks.iter().all(|block| block.image.is_none()))
            .filter_map(rows)
            .collect()
    }

    pub(super) fn new(server: &Installation, wal: &Path) -> Self {
        let names = segment_names(wal);
        let mut command = program(server.bin.join("pg_waldump"));
        command.env("TZ", "UTC").args(["--bkp-details", "--path"]).arg(wal);
        let ran = run(command.arg(names.first().unwrap()).arg(names.last().unwrap()));
        let mut lines: Vec<Line> = Vec::new();
        for text in ran.stdout.lines() {
            if let Some(line) = Line::parse(text) {
                lines.push(line);
            } else if let Some(block) = Block::parse(text) {
                lines.last_mut().unwrap().blocks.push(block);
            }
        }
        assert!(lines.len() > 100, "{}", ran.stderr);
        Self { lines, error: ran.stderr }
    }

    /// Where `pg_waldump` found no further record, where its message tells.
    pub(super) fn end(&self) -> Option<Lsn> {
        let (_, message) = self.error.split_once("error in WAL record at ")?;
        let (_, message) = message.split_once(": ")?;
        let report = ["invalid record length at ", "record with incorrect prev-link "];
        if !report.iter().any(|words| message.starts_with(words)) {
            return None;
        }
        let (_, place) = message.split_once(" at ")?;
        Some(lsn(place.split([':', ' ']).next()?))
    }

    /// Everything that pgtoll says of this WAL is what is told here.
    pub(super) fn check(&self, summary: &WalSummary<Contents>, name: &str) {
        assert_eq!(counts(summary), self.counts(), "{name}");
        assert_eq!(summary.from, Some(self.lines[0].at), "{name}");
        let causes = self.causes(name);
        self.check_causes(summary, &causes, name);
        self.check_forks(summary, name);
        self.check_cycles(summary, &causes, name);
        self.check_pieces(summary, &causes, name);
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for line in &self.lines {
            let or_default = counts.entry(line.name.clone()).or_default();
            add(or_default, &line.amount());
        }
        counts
    }

    /// The places where cycles begin.
    fn redo_points(&self) -> BTreeMap<Lsn, CycleBegin> {
        let mut points = BTreeMap::new();
        for line in &self.lines {
            match line.name.as_str() {
                "XLOG/CHECKPOINT_REDO" => points.insert(line.at, CycleBegin::Online),
                "XLOG/CHECKPOINT_ONLINE" => points.insert(line.redo(), CycleBegin::Online),
                "XLOG/CHECKPOINT_SHUTDOWN" => points.insert(line.redo(), CycleBegin::Shutdown),
                _ => None,
            };
        }
        points.retain(|redo, _| *redo >= self.lines[0].at);
        points
    }

    /// Why each image is there, record by record. One that is said to be the first of its page is:
    /// no record of the same cycle has changed that page before.
    fn causes(&self, name: &str) -> Vec<Vec<ImageCause>> {
        let points = self.redo_points();
        let last = points.last_key_value().map_or(Lsn(0), |(redo, _)| *redo);
        // Until 16 nothing tells where a checkpoint began that the server did not live to complete.
        let is_told = self.lines.iter().any(|line| line.name == "XLOG/CHECKPOINT_REDO");
        let mut touched: HashMap<&Place, &str> = HashMap::new();
        let mut causes = Vec::new();
        for line in &self.lines {
            if points.contains_key(&line.at) {
                touched.clear();
            }
            if line.name == "Storage/TRUNCATE" {
                // `TRUNCATE base/5/16384 to 3 blocks flags 7`: what comes there later is new.
                let path = line.description.split(' ').nth(1).unwrap();
                let (_, number) = path.rsplit_once('/').unwrap();
                touched.retain(|(relation, ..), _| relation.rsplit_once('/').unwrap().1 != number);
            }
            let mut of_line = Vec::new();
            for block in &line.blocks {
                let before = touched.get(&block.place).copied();
                if let Some(image) = &block.image {
                    let cause = cause(&line.name, block.id, image);
                    assert!(
                        before.is_none_or(|before| may_be_again(&line.name, before))
                            || (line.at >= last && !is_told)
                            || cause == ImageCause::Forced
                            || cause == ImageCause::Check,
                        "{name}: {cause:?} after {before:?} at {}: {}",
                        line.at,
                        line.name
                    );
                    of_line.push(cause);
                }
                if block.image.is_some() || !is_for_lock(&line.name, block.id) {
                    touched.insert(&block.place, &line.name);
                }
            }
            causes.push(of_line);
        }
        causes
    }

    /// The records that begin from one place to another, by their numbers.
    fn within(&self, from: Lsn, to: Lsn) -> Range<usize> {
        let number = |at: Lsn| self.lines.partition_point(|line| line.at < at);
        number(from)..number(to)
    }

    fn sums(&self, causes: &[Vec<ImageCause>], within: Range<usize>) -> Sums {
        let mut sums = Sums::default();
        for (line, causes) in self.lines[within.clone()].iter().zip(&causes[within]) {
            add(&mut sums.0, &line.amount());
            for (image, cause) in line.images().zip(causes) {
                add(&mut sums.1[*cause as usize], &[1, image.bytes, image.uncompressed_bytes]);
            }
        }
        sums
    }

    fn check_causes(&self, summary: &WalSummary<Contents>, causes: &[Vec<ImageCause>], name: &str) {
        let (_, expected) = self.sums(causes, 0..self.lines.len());
        let found = summary.collected.statistics.causes();
        let found: Vec<[u64; 3]> =
            found.map(|(_, count)| [count.images, count.bytes, count.uncompressed_bytes]).collect();
        assert_eq!(found, expected, "{name}");
        let mut expected: BTreeMap<Option<Compression>, [u64; 3]> = BTreeMap::new();
        for image in self.lines.iter().flat_map(Line::images) {
            let or_default = expected.entry(image.compression).or_default();
            add(or_default, &[1, image.bytes, image.uncompressed_bytes]);
        }
        let found: BTreeMap<Option<Compression>, [u64; 3]> = summary
            .collected
            .statistics
            .compressions()
            .filter(|(_, compression)| compression.images > 0)
            .map(|(kind, compression)| {
                (kind, [compression.images, compression.bytes, compression.uncompressed_bytes])
            })
            .collect();
        assert_eq!(found, expected, "{name}");
    }

    /// A record's own bytes count for the fork of its first block, images for their own.
    fn check_forks(&self, summary: &WalSummary<Contents>, name: &str) {
        let mut expected: BTreeMap<(String, u8), [u64; 4]> = BTreeMap::new();
        let mut without = [0; 3];
        for line in &self.lines {
            let Some(first) = line.blocks.first() else {
                add(&mut without, &line.amount());
                continue;
            };
            let default = expected.entry((first.place.0.clone(), first.place.1)).or_default();
            add(default, &[1, line.record_bytes, 0, 0]);
            for block in &line.blocks {
                let or_default =
                    expected.entry((block.place.0.clone(), block.place.1)).or_default();
                if let Some(image) = &block.image {
                    add(or_default, &[0, 0, image.bytes, 1]);
                }
            }
        }
        let found: BTreeMap<(String, u8), [u64; 4]> = summary
            .collected
            .statistics
            .forks()
            .into_iter()
            .map(|(fork, item)| {
                let relation = fork.relation;
                let relation = format!(
                    "{}/{}/{}",
                    relation.tablespace, relation.database, relation.rel_number
                );
                let amount = item.amount;
                let sums = [amount.records, amount.record_bytes, amount.image_bytes, item.images];
                ((relation, fork.number.0), sums)
            })
            .collect();
        assert_eq!(found, expected, "{name}");
        let without_fork = summary.collected.statistics.without_fork();
        assert_eq!(
            [without_fork.records, without_fork.record_bytes, without_fork.image_bytes],
            without,
            "{name}"
        );
    }

    fn check_cycles(&self, summary: &WalSummary<Contents>, causes: &[Vec<ImageCause>], name: &str) {
        assert_eq!(summary.collected.cycle_error_bytes, 0, "{name}");
        let points = self.redo_points();
        let first = self.lines[0].at;
        let mut begins = points.clone();
        begins.entry(first).or_insert(CycleBegin::Unknown);
        let found: Vec<_> =
            summary.collected.cycles.iter().map(|cycle| (cycle.from, cycle.begin)).collect();
        assert_eq!(found, begins.clone().into_iter().collect::<Vec<_>>(), "{name}");
        let ends: Vec<Lsn> = begins.into_keys().skip(1).chain([Lsn(u64::MAX)]).collect();
        let mut total = [0; 3];
        for (cycle, end) in summary.collected.cycles.iter().zip(ends) {
            let expected = self.sums(causes, self.within(cycle.from, end));
            assert_eq!(sums_of(&cycle.sums), expected, "{name}: from {} to {end}", cycle.from);
            add(&mut total, &expected.0);
            // Each image is in its cause's sum, each byte in its kind's.
            assert_eq!(cycle.sums.kinds.iter().sum::<u64>(), expected.0[1] + expected.0[2]);
        }
        assert_eq!(total, self.sums(causes, 0..self.lines.len()).0, "{name}");
    }

    fn check_pieces(&self, summary: &WalSummary<Contents>, causes: &[Vec<ImageCause>], name: &str) {
        let ends =
            summary.collected.pieces.iter().skip(1).map(|piece| piece.from).chain([Lsn(u64::MAX)]);
        let mut total = [0; 3];
        let mut from = Lsn(0);
        for (piece, end) in summary.collected.pieces.iter().zip(ends) {
            assert!(piece.from > from, "{name}");
            from = piece.from;
            let within = self.within(piece.from, end);
            let expected = self.sums(causes, within.clone());
            assert_eq!(sums_of(&piece.sums), expected, "{name}: from {} to {end}", piece.from);
            let own = self.lines[within].iter();
            let times: BTreeSet<i64> = own.filter_map(Line::transaction_end_us).collect();
            let expected_times = (times.first().copied(), times.last().copied());
            assert_eq!((piece.since_us, piece.until_us), expected_times, "{name}: {}", piece.from);
            add(&mut total, &expected.0);
        }
        assert_eq!(total, self.sums(causes, 0..self.lines.len()).0, "{name}");
    }
}

/// As pgtoll's own facts have it, but told by names.
fn cause(name: &str, block: u8, image: &Image) -> ImageCause {
    match (name, block) {
        _ if image.is_check => ImageCause::Check,
        ("XLOG/FPI_FOR_HINT", _) => ImageCause::Hint,
        ("XLOG/FPI" | "Gin/SPLIT" | "Gin/VACUUM_PAGE" | "Hash/SPLIT_PAGE", _)
        | ("Hash/SQUEEZE_PAGE", 2) => ImageCause::Forced,
        _ => ImageCause::FirstTouch,
    }
}

/// What may be the first of its page though a record named it before: that one did not set the
/// page's LSN, by which the server tells. For hints it does not where the page is just being written
/// out (`MarkBufferDirtyHint` in `bufmgr.c`), and two sessions may log them at once, since they need
/// a shared lock only. Until 16 a sorted build of `GiST` logs pages that it has written with an LSN
/// of its own, 1.
fn may_be_again(name: &str, before: &str) -> bool {
    before == "XLOG/FPI_FOR_HINT" || (name.starts_with("Gist/") && before == "XLOG/FPI")
}

/// The bucket's first page is named for its lock alone (`hash_xlog.h`), and not changed.
fn is_for_lock(name: &str, block: u8) -> bool {
    let kinds = ["Hash/DELETE", "Hash/SQUEEZE_PAGE", "Hash/MOVE_PAGE_CONTENTS"];
    block == 0 && kinds.contains(&name)
}

impl Line {
    /// `rmgr: Heap  len (rec/tot):  54/  8222, tx:  733, lsn: 0/0154A5C8, prev 0/0154A590, desc: …`
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("rmgr: ")?;
        let (manager, rest) = rest.split_once("len (rec/tot):").unwrap();
        let (lengths, rest) = rest.split_once(", tx:").unwrap();
        let (record_bytes, total_bytes) = lengths.split_once('/').unwrap();
        let (_, rest) = rest.split_once("lsn: ").unwrap();
        let (at, rest) = rest.split_once(", prev ").unwrap();
        let (_, description) = rest.split_once("desc: ").unwrap();
        let kind = description.split(' ').next().unwrap();
        Some(Self {
            at: lsn(at),
            name: format!("{}/{kind}", manager.trim()),
            record_bytes: record_bytes.trim().parse().unwrap(),
            total_bytes: total_bytes.trim().parse().unwrap(),
            description: description.to_owned(),
            blocks: Vec::new(),
        })
    }

    fn amount(&self) -> [u64; 3] {
        let image_bytes = self.images().map(|image| image.bytes).sum();
        assert_eq!(self.total_bytes, self.record_bytes + image_bytes, "{self:?}");
        [1, self.record_bytes, image_bytes]
    }

    fn images(&self) -> impl Iterator<Item = &Image> {
        self.blocks.iter().filter_map(|block| block.image.as_ref())
    }

    /// `CHECKPOINT_ONLINE redo 0/7B6640; tli 1; …`
    fn redo(&self) -> Lsn {
        let (_, rest) = self.description.split_once("redo ").unwrap();
        lsn(rest.split(';').next().unwrap())
    }

    /// `COMMIT 2026-11-22 09:13:54.053407 UTC; …`, `ABORT_PREPARED 740: 2026-…`
    fn transaction_end_us(&self) -> Option<i64> {
        let kinds = ["COMMIT", "ABORT", "COMMIT_PREPARED", "ABORT_PREPARED"];
        kinds.iter().find(|kind| self.name == format!("Transaction/{kind}"))?;
        let mut words = self.description.split(' ');
        let date = words.find(|word| word.len() == 10 && word.as_bytes()[4] == b'-').unwrap();
        let time = words.next().unwrap();
        let time: jiff::Timestamp = format!("{date}T{time}Z").parse().unwrap();
        Some(time.as_microsecond())
    }
}

impl Block {
    /// `blkref #0: rel 1663/5/1249 fork main blk 58 (FPW); hole: offset: 1, length: 76,
    /// compression saved: 5082, method: pglz`
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("\tblkref #")?;
        let (id, rest) = rest.split_once(": rel ").unwrap();
        let (relation, rest) = rest.split_once(" fork ").unwrap();
        let (fork, rest) = rest.split_once(" blk ").unwrap();
        let (block, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let fork = ForkNumber::from_name(fork).unwrap();
        let place = (relation.to_owned(), fork.0, block.parse().unwrap());
        let image = rest.starts_with("(FPW").then(|| Image::parse(rest));
        Some(Self { id: id.parse().unwrap(), place, image })
    }
}

impl Image {
    fn parse(text: &str) -> Self {
        let number = |name: &str| -> u64 {
            let Some((_, rest)) = text.split_once(name) else { return 0 };
            rest.split(',').next().unwrap().parse().unwrap()
        };
        let uncompressed_bytes = PAGE - number("length: ");
        let compression = match text.split_once("method: ") {
            Some((_, "pglz")) => Some(Compression::Pglz),
            Some((_, "lz4")) => Some(Compression::Lz4),
            Some((_, "zstd")) => Some(Compression::Zstd),
            Some((_, other)) => panic!("{other}"),
            // Until 14 there is no other.
            None => text.contains("compression saved: ").then_some(Compression::Pglz),
        };
        Self {
            bytes: uncompressed_bytes - number("compression saved: "),
            uncompressed_bytes,
            is_check: text.contains("for WAL verification"),
            compression,
        }
    }
}

fn sums_of(sums: &pgtoll_wal::Sums) -> Sums {
    let amount = [sums.amount.records, sums.amount.record_bytes, sums.amount.image_bytes];
    (amount, sums.causes.map(|cause| [cause.images, cause.bytes, cause.uncompressed_bytes]))
}

fn add<const N: usize>(sums: &mut [u64; N], other: &[u64; N]) {
    sums.iter_mut().zip(other).for_each(|(own, other)| *own += other);
}

fn lsn(text: &str) -> Lsn {
    let (high, low) = text.trim().split_once('/').unwrap();
    let number = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
    Lsn(number(high) << 32 | number(low))
}
