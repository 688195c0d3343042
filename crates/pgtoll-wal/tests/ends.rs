//! How reading ends: at the WAL's own end, or where something is wrong.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use pgtoll_format::Lsn;
use pgtoll_format::wal::{Parts, Record, WalError};
use pgtoll_testing::wal_writer::{PAGE, SEGMENT, Writer, main_data};
use pgtoll_wal::{
    Collect, Contents, End, WalReadError, WalStatistics, WalSummary, scan, scan_with, segments,
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

fn read(directory: &Path, threads: usize) -> (WalSummary<Contents>, End) {
    scan(&segments(&[directory.to_owned()]).unwrap(), threads, &mut |_| ControlFlow::Continue(()))
        .unwrap()
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
        assert_eq!(summary.collected.statistics.total().records, 650);
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
        assert!(std::panic::catch_unwind(read).is_err());
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
    assert_eq!(summary.collected.statistics.total().records, before as u64);
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
    let error =
        scan(
            &segments(std::slice::from_ref(&path)).unwrap(),
            2,
            &mut |_| ControlFlow::Continue(()),
        )
        .unwrap_err();
    assert!(matches!(error, WalReadError::NotWal { source: WalError::NoSegment, .. }), "{error}");
    assert!(error.hint().is_some());
    let mut other = Writer::new(0xD999, 1);
    other.record(0, 0, &main_data(&[0]));
    fs::write(&path, other.finish()).unwrap();
    let error =
        scan(&segments(&[path]).unwrap(), 2, &mut |_| ControlFlow::Continue(())).unwrap_err();
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
    let error =
        scan(
            &segments(std::slice::from_ref(&path)).unwrap(),
            2,
            &mut |_| ControlFlow::Continue(()),
        )
        .unwrap_err();
    assert!(matches!(error, WalReadError::NotWal { .. }), "{error}");
    fs::write(&path, sound).unwrap();
    let (summary, end) =
        scan(&segments(&[path]).unwrap(), 2, &mut |_| ControlFlow::Continue(())).unwrap();
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
        assert_eq!(summary.collected.statistics.total().records, 207);
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
    assert_eq!(summary.collected.statistics.total(), expected.collected.statistics.total());
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
    let (summary, end) = read(directory.path(), 1);
    assert!(matches!(end, End::Own(_)), "{end:?}");
    assert_eq!(summary.collected.statistics.total().records, records);
    assert!(!summary.collected.cycles_are_exact);
    let of_cycles: u64 =
        summary.collected.cycles.iter().map(|cycle| cycle.sums.amount.records).sum();
    assert_eq!((of_cycles, summary.collected.cycles.len()), (records, 5000));
}
