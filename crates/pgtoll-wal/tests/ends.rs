//! How reading ends: at the WAL's own end, or where something is wrong.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use pgtoll_format::Lsn;
use pgtoll_format::wal::{Parts, Record, WalError};
use pgtoll_testing::wal_writer::{PAGE, SEGMENT, Writer, main_data};
use pgtoll_wal::{
    Collect, Contents, End, Gap, WalReadError, WalStatistics, WalSummary, scan, scan_with, segments,
};

/// Three segments and a bit of records of 5,000 bytes, and where each begins.
fn write(directory: &Path) -> Vec<u64> {
    let mut writer = Writer::new(0xD118, 1);
    let places = (0..650).map(|_| writer.record(10, 0, &main_data(&[1; 5000]))).collect();
    for (number, segment) in (1..).zip(writer.finish().chunks(SEGMENT)) {
        fs::write(directory.join(format!("0000000100000000{number:08X}")), segment).unwrap();
    }
    places
}

/// Up to the first gap.
fn read(directory: &Path, threads: usize) -> (WalSummary<WalStatistics>, End) {
    let files = segments(&[directory.to_owned()]).unwrap();
    scan_with(&files, threads, WalStatistics::default, &mut |_| ControlFlow::Continue(())).unwrap()
}

const ALL: Range<Lsn> = Lsn::INVALID..Lsn::MAX;

/// Past all gaps.
fn read_all(directory: &Path, range: &Range<Lsn>) -> (WalSummary<Contents>, End) {
    let files = segments(&[directory.to_owned()]).unwrap();
    scan(&files, range, 2, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn change(directory: &Path, number: u32, change: impl Fn(&mut Vec<u8>)) {
    let path = directory.join(format!("0000000100000000{number:08X}"));
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
}

#[test]
fn threads_make_no_difference() {
    let directory = tempfile::tempdir().unwrap();
    let places = write(directory.path());
    for threads in [1, 4] {
        let (summary, end) = read(directory.path(), threads);
        assert!(matches!(end, End::Own(WalError::NoRecord { length: 0, .. })), "{end:?}");
        assert_eq!(summary.collected.total().records, 650);
        assert_eq!(summary.from, Some(Lsn(places[0])));
        assert_eq!(summary.segments, 4);
    }
}

/// Where records begin, in the order in which they come.
#[derive(Default)]
struct Places(Vec<u64>);

impl Collect for Places {
    fn add(&mut self, record: &Record<'_>, _: &Parts) {
        self.0.push(record.at.0);
    }

    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

#[test]
fn what_is_collected_comes_in_the_order_of_the_wal() {
    let directory = tempfile::tempdir().unwrap();
    let places = write(directory.path());
    let files = segments(&[directory.path().to_owned()]).unwrap();
    for threads in [0, 1, 4, 100] {
        let new = || (Places::default(), WalStatistics::default());
        let (summary, _) =
            scan_with(&files, threads, new, &mut |_| ControlFlow::Continue(())).unwrap();
        let (found, statistics) = summary.collected;
        assert_eq!(found.0, places);
        assert_eq!(statistics.total().records, places.len() as u64);
    }
}

/// Panics at its first record, or when it is put behind another.
struct Failing {
    adding: bool,
}

impl Collect for Failing {
    fn add(&mut self, _: &Record<'_>, _: &Parts) {
        assert!(!self.adding, "on purpose");
    }

    fn append(&mut self, _: Self) {
        panic!("on purpose");
    }
}

#[test]
fn a_collectors_panic_ends_the_reading() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    // More segments than may be read ahead: the same one again and again, each in its place.
    let first = fs::read(directory.path().join("000000010000000000000001")).unwrap();
    for number in 5..40 {
        fs::write(directory.path().join(format!("0000000100000000{number:08X}")), &first).unwrap();
    }
    let files = segments(&[directory.path().to_owned()]).unwrap();
    for adding in [true, false] {
        let read = || {
            scan_with(&files, 2, || Failing { adding }, &mut |_| ControlFlow::Continue(()))
                .map(|_| ())
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
    }
}

#[test]
fn a_zeroed_page_is_damage_since_the_wal_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let places = write(directory.path());
    let page = SEGMENT as u64 * 2 + PAGE as u64 * 10;
    change(directory.path(), 2, |bytes| bytes[PAGE * 10..PAGE * 11].fill(0));
    let (summary, end) = read(directory.path(), 2);
    let End::Damaged { error, goes_on, .. } = end else { panic!("{end:?}") };
    assert!(matches!(error, WalError::OtherMagic { at, .. } if at == Lsn(page)), "{error:?}");
    assert_eq!(goes_on, Lsn(page + PAGE as u64));
    // A record belongs to what is read when all of it lies before.
    let before = places.iter().filter(|place| *place + 5026 < page).count();
    assert_eq!(summary.collected.total().records, before as u64);
}

#[test]
fn a_wrong_byte_at_a_segments_end_is_damage_because_of_the_next_segment() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    change(directory.path(), 1, |bytes| bytes[SEGMENT - 100] ^= 1);
    let (_, end) = read(directory.path(), 2);
    let End::Damaged { error, goes_on, .. } = end else { panic!("{end:?}") };
    assert!(matches!(error, WalError::Crc { .. }), "{error:?}");
    // The record ends on the next segment's first page, where its CRC is known to be wrong.
    assert_eq!(goes_on, Lsn(SEGMENT as u64 * 2 + PAGE as u64));
}

#[test]
fn a_file_that_is_cut_short_is_told() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    change(directory.path(), 2, |bytes| bytes.truncate(PAGE * 3));
    let (_, end) = read(directory.path(), 2);
    let expected = Lsn(SEGMENT as u64 * 2 + PAGE as u64 * 3);
    assert!(matches!(end, End::CutShort { at, .. } if at == expected), "{end:?}");
}

#[test]
fn what_is_no_wal_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let none = segments(&[directory.path().to_owned()]).unwrap_err();
    assert!(matches!(none, WalReadError::NoSegments { .. }));
    let path = directory.path().join("000000010000000000000001");
    fs::write(&path, vec![0x5A; SEGMENT]).unwrap();
    let error = scan(&segments(std::slice::from_ref(&path)).unwrap(), &ALL, 2, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert!(matches!(error, WalReadError::NotWal { source: WalError::NoSegment, .. }), "{error}");
    assert!(error.hint().is_some());
    let mut other = Writer::new(0xD999, 1);
    other.record(0, 0, &main_data(&[0]));
    fs::write(&path, other.finish()).unwrap();
    let error =
        scan(&segments(&[path]).unwrap(), &ALL, 2, &mut |_| ControlFlow::Continue(())).unwrap_err();
    let unknown =
        matches!(&error, WalReadError::NotWal { source: WalError::UnknownMagic { .. }, .. });
    assert!(unknown, "{error}");
}

#[test]
fn names_and_addresses_beyond_any_server_are_no_wal_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut beyond = Writer::new(0xD118, (1 << 44) - 1);
    beyond.record(0, 0, &main_data(&[0]));
    let mut sound = Writer::new(0xD118, 1);
    sound.record(0, 0, &main_data(&[0]));
    let [beyond, sound] = [beyond, sound].map(Writer::finish);
    let path = directory.path().join("00000001FFFFFFFFFFFFFFFF");
    fs::write(&path, beyond).unwrap();
    let error = scan(&segments(std::slice::from_ref(&path)).unwrap(), &ALL, 2, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert!(matches!(error, WalReadError::NotWal { .. }), "{error}");
    fs::write(&path, sound).unwrap();
    let (summary, end) =
        scan(&segments(&[path]).unwrap(), &ALL, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(matches!(end, End::Own(WalError::OtherPage { .. })), "{end:?}");
    assert_eq!(summary.collected.statistics.total().records, 0);
}

#[test]
fn a_later_segment_that_cannot_be_read_is_told_though_a_record_reaches_into_it() {
    for damage in [|bytes: &mut Vec<u8>| bytes.fill(0), |bytes: &mut Vec<u8>| bytes[24] ^= 1] {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path());
        change(directory.path(), 2, damage);
        let (summary, end) = read(directory.path(), 2);
        assert!(matches!(end, End::Damaged { .. }), "{end:?}");
        assert_eq!(summary.collected.total().records, 207);
    }
}

#[test]
fn what_a_file_has_behind_its_segment_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    let (expected, _) = read(directory.path(), 2);
    change(directory.path(), 2, |bytes| bytes.extend(vec![0xA5; 3 * PAGE]));
    let (summary, end) = read(directory.path(), 2);
    assert!(matches!(end, End::Own(WalError::NoRecord { length: 0, .. })), "{end:?}");
    assert_eq!((summary.to, summary.segments), (expected.to, expected.segments));
    assert_eq!(summary.collected.total(), expected.collected.total());
}

/// No server completes a checkpoint with each record: looking for all their redo points would mean
/// to read the segment as often.
#[test]
fn made_up_checkpoints_do_not_let_a_segment_be_read_without_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(0xD110, 1);
    let mut records = 0;
    for _ in 0..5000 {
        let redo = writer.record(10, 0, &main_data(&[1; 8]));
        let mut checkpoint = vec![0; 88];
        checkpoint[..8].copy_from_slice(&redo.to_le_bytes());
        writer.record(0, 0x10, &main_data(&checkpoint));
        records += 2;
    }
    fs::write(directory.path().join("000000010000000000000001"), writer.finish()).unwrap();
    let (summary, end) = read_all(directory.path(), &ALL);
    assert!(matches!(end, End::Own(_)), "{end:?}");
    assert_eq!(summary.collected.statistics.total().records, records);
    assert!(summary.collected.cycle_error_bytes > 0);
    let of_cycles: u64 =
        summary.collected.cycles.iter().map(|cycle| cycle.sums.amount.records).sum();
    assert_eq!((of_cycles, summary.collected.cycles.len()), (records, 5000));
}

/// Records of `places` that begin in the gap, or end behind its begin.
fn lost(places: &[u64], gap: &Gap) -> u64 {
    places.iter().filter(|place| **place >= gap.from.0 && **place < gap.to.0).count() as u64
}

#[test]
fn what_is_behind_a_gap_is_read() {
    type Damage = fn(&Path);
    let damages: [(Damage, &str); 6] = [
        (
            |item| fs::remove_file(item.join("000000010000000000000002")).unwrap(),
            "segment 000000010000000000000002 is missing, from 0/200000 on",
        ),
        (
            |item| change(item, 2, |bytes| bytes[PAGE * 10..PAGE * 11].fill(0)),
            "02: damaged at 0/214000",
        ),
        (|item| change(item, 2, |bytes| bytes.fill(0)), "damaged at 0/2"),
        (|item| change(item, 2, |bytes| bytes[24] ^= 1), "belongs to another cluster"),
        (
            |item| change(item, 2, |bytes| bytes.truncate(PAGE * 3)),
            "is cut short: it ends at 0/206000",
        ),
        (
            |item| change(item, 2, |bytes| bytes[..4].copy_from_slice(b"\x1F\x8B\0\0")),
            "cannot be read",
        ),
    ];
    for (damage, words) in damages {
        let directory = tempfile::tempdir().unwrap();
        let places = write(directory.path());
        damage(directory.path());
        let (summary, end) = read_all(directory.path(), &ALL);
        assert!(matches!(end, End::Own(WalError::NoRecord { .. })), "{words}: {end:?}");
        let [gap] = summary.gaps.as_slice() else { panic!("{words}: {:?}", summary.gaps) };
        assert!(gap.why.to_string().contains(words), "{words}: {gap}");
        // The first record that begins in segment 3.
        let behind = *places.iter().find(|place| **place >= SEGMENT as u64 * 3).unwrap();
        assert_eq!(gap.to, Lsn(behind), "{words}");
        assert!(places.contains(&gap.from.0), "{words}: {gap}");
        let records = summary.collected.statistics.total().records;
        assert_eq!(records, places.len() as u64 - lost(&places, gap), "{words}");
        let of_cycles: u64 =
            summary.collected.cycles.iter().map(|cycle| cycle.sums.amount.records).sum();
        assert_eq!(of_cycles, records, "{words}");
        assert_eq!(summary.collected.gaps_us, [None]);
    }
}

#[test]
fn gaps_at_both_ends_and_next_to_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let places = write(directory.path());
    change(directory.path(), 1, |bytes| bytes.fill(0));
    let (summary, _) = read_all(directory.path(), &ALL);
    let [gap] = summary.gaps.as_slice() else { panic!("{:?}", summary.gaps) };
    assert_eq!((gap.from, Some(gap.to)), (Lsn(SEGMENT as u64), summary.from));
    // Two segments that fail one after the other are one gap.
    change(directory.path(), 2, Vec::clear);
    let (summary, _) = read_all(directory.path(), &ALL);
    let [gap] = summary.gaps.as_slice() else { panic!("{:?}", summary.gaps) };
    let behind = *places.iter().find(|place| **place >= SEGMENT as u64 * 3).unwrap();
    assert_eq!(gap.to, Lsn(behind));
    // Nothing behind the last one: that is the end.
    change(directory.path(), 4, |bytes| bytes[24] ^= 1);
    change(directory.path(), 3, |bytes| bytes.truncate(PAGE * 5));
    let (summary, end) = read_all(directory.path(), &ALL);
    assert!(matches!(end, End::CutShort { .. }), "{end:?}");
    assert_eq!(summary.gaps.len(), 1);
}

#[test]
fn a_range_is_what_begins_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let places = write(directory.path());
    let check = |from: u64, to: u64, ends_there: bool| {
        let (summary, end) = read_all(directory.path(), &(Lsn(from)..Lsn(to)));
        let within: Vec<u64> =
            places.iter().copied().filter(|place| (from..to).contains(place)).collect();
        let total = summary.collected.statistics.total();
        assert_eq!(total.records, within.len() as u64, "{from} {to}: {end:?}");
        assert_eq!(summary.from, within.first().copied().map(Lsn), "{from} {to}");
        assert_eq!(matches!(end, End::RangeEnd(at) if at == Lsn(to)), ends_there, "{end:?}");
        assert!(summary.gaps.is_empty() && end.is_whole(), "{end:?}");
    };
    let segment = SEGMENT as u64;
    check(0, u64::MAX, false);
    check(segment * 2, segment * 3, true);
    check(segment * 2 + 5, segment * 3 + 77, true);
    check(places[300], places[301], true);
    check(places[300] + 1, places[301], true);
    check(places[649], u64::MAX, false);
    check(0, segment, true);
    check(segment * 100, segment * 101, false);
    // Damage outside the range does not matter.
    change(directory.path(), 1, |bytes| bytes[PAGE * 3] ^= 1);
    change(directory.path(), 3, |bytes| bytes[PAGE * 20] ^= 1);
    check(segment * 2, segment * 3, true);
    check(segment * 2, segment * 3 + PAGE as u64 * 2, true);
    // A part of the range is missing.
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    fs::remove_file(directory.path().join("000000010000000000000002")).unwrap();
    let range = Lsn(segment * 2 + 100)..Lsn(segment * 3 + PAGE as u64 * 2);
    let (summary, _) = read_all(directory.path(), &range);
    assert_eq!(summary.gaps[0].from, range.start);
    let range = Lsn(segment + PAGE as u64 * 20)..Lsn(segment * 2 + 100);
    let (_, end) = read_all(directory.path(), &range);
    assert!(matches!(end, End::Missing { .. }), "{end:?}");
}
