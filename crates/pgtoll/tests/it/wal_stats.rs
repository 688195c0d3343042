//! `pgtoll wal stats` as a user meets it: what it says of files that are not what they should be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pgtoll_record::{WalEndKind, WalStatisticsRecord};

use crate::reports::forms::check_openmetrics;
use crate::support::{Ran, Scratch, pgtoll, run};
use pgtoll_testing::wal_writer::{PAGE, SEGMENT, Writer, main_data};

type Damage = fn(&mut Vec<u8>);

const MAGIC_OF_18: u16 = 0xD118;

/// Three segments and a bit of records; the path of each.
fn archive(scratch: &Scratch, magic: u16) -> (PathBuf, Vec<PathBuf>) {
    let directory = scratch.path("archive");
    fs::create_dir(&directory).unwrap();
    let mut writer = Writer::new(magic, 1);
    for _ in 0..650 {
        writer.record(10, 0, &main_data(&[1; 5000]));
    }
    let bytes = writer.finish();
    let write = |(number, segment): (u32, &[u8])| {
        let path = directory.join(format!("0000000100000000{number:08X}"));
        fs::write(&path, segment).unwrap();
        path
    };
    let paths = (1..).zip(bytes.chunks(SEGMENT)).map(write).collect();
    (directory, paths)
}

fn stats(path: &Path) -> Ran {
    run(pgtoll().args(["wal", "stats"]).arg(path))
}

/// One line that says what is wrong, one that says what to do, and the right status.
fn check(ran: &Ran, words: &str) {
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{ran:?}");
    assert!(lines[0].starts_with("pgtoll: ") && lines[0].contains(words), "{ran:?}");
    assert!(lines[1].starts_with("hint: "), "{ran:?}");
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_is_no_wal_is_one_clear_line() {
    let scratch = Scratch::new();
    check(&stats(&scratch.path("nowhere")), "No such file or directory");
    check(&stats(&scratch.work()), "holds no WAL segment");
    let file = scratch.path("000000010000000000000001");
    let write = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        stats(&file)
    };
    check(&write(&[]), "it is empty");
    check(&write(&vec![0; SEGMENT]), "nothing but zeros");
    let random: Vec<u8> = (0..SEGMENT as u64)
        .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()[7])
        .collect();
    check(&write(&random), "no WAL segment");
    check(&write(b"\x1F\x8B cut short"), "000000010000000000000001");
    let other = scratch.path("notes.txt");
    fs::write(&other, "no WAL").unwrap();
    check(&stats(&other), "notes.txt holds no WAL segment");
}

#[test]
fn wal_of_a_version_that_is_not_known_is_told() {
    let scratch = Scratch::new();
    // PostgreSQL 12.
    let (directory, _) = archive(&scratch, 0xD101);
    let ran = stats(&directory);
    check(&ran, "WAL of an unknown version (page magic D101)");
    assert!(ran.stdout.is_empty(), "{ran:?}");
}

#[test]
fn damage_is_a_gap_that_is_named_and_the_rest_is_read() {
    let scratch = Scratch::new();
    let (directory, paths) = archive(&scratch, MAGIC_OF_18);
    assert_eq!(stats(&directory).status, Some(0));
    let whole = fs::read(&paths[1]).unwrap();
    let damages: [(&str, Damage); 4] = [
        ("000000010000000000000002 is cut short: it ends at 0/250000", |bytes| {
            bytes.truncate(SEGMENT / 16 * 5);
        }),
        ("damaged at 0/214000", |bytes| bytes[PAGE * 10..PAGE * 11].fill(0)),
        ("damaged at 0/2", |bytes| bytes[PAGE * 20 + 100] ^= 1),
        ("damaged at 0/2", |bytes| bytes.fill(0)),
    ];
    for (words, damage) in damages {
        change(&paths[1], damage);
        let ran = stats(&directory);
        check(&ran, words);
        assert!(ran.stderr.starts_with("pgtoll: not read from 0/"), "{ran:?}");
        assert!(ran.stdout.contains("left out: 0/") && ran.stdout.contains("Heap"), "{ran:?}");
        fs::write(&paths[1], &whole).unwrap();
    }
    fs::remove_file(&paths[1]).unwrap();
    let ran = run(pgtoll().args(["wal", "stats", "--json"]).arg(&directory));
    check(&ran, "segment 000000010000000000000002 is missing, from 0/200000 on");
    let statistics: WalStatisticsRecord = serde_json::from_str(&ran.stdout).unwrap();
    // Complete is not said of it, also to whoever does not know of gaps.
    assert_eq!(statistics.end.kind, WalEndKind::Missing);
    let [gap] = statistics.source.gaps.as_slice() else { panic!("{:?}", statistics.source) };
    assert!(
        statistics.source.from < Some(gap.from) && Some(gap.to) < statistics.source.to,
        "{gap:?}"
    );
    assert!(
        statistics.total.records > 400 && statistics.cycles.iter().all(|cycle| !cycle.whole),
        "{statistics:?}"
    );
    // Nothing is behind the last segment: that is where reading ends.
    fs::write(&paths[1], &whole).unwrap();
    change(&paths[3], |bytes| bytes.truncate(PAGE));
    let ran = stats(&directory);
    check(&ran, "is cut short: it ends at 0/402000; the WAL before it is shown");
    assert!(!ran.stdout.contains("left out"), "{ran:?}");
}

#[test]
fn a_part_of_the_wal_is_named_by_place() {
    let scratch = Scratch::new();
    let (directory, _) = archive(&scratch, MAGIC_OF_18);
    let pick = |arguments: &[&str]| {
        run(pgtoll().args(["wal", "stats", "--json"]).arg(&directory).args(arguments))
    };
    let part = |arguments: &[&str]| -> WalStatisticsRecord {
        let ran = pick(arguments);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let middle = part(&["--from", "0/200000", "--to", "0/300000"]);
    let before = part(&["--to", "0/200000"]);
    let behind = part(&["--from", "0/300000"]);
    let sum = [&before, &middle, &behind].iter().map(|item| item.total.records).sum::<u64>();
    assert_eq!(sum, part(&[]).total.records);
    assert_eq!(middle.end.kind, WalEndKind::Complete);
    assert_eq!(middle.end.words, "read up to 0/300000, as requested");
    assert_eq!(middle.command[4..], ["--from", "0/200000", "--to", "0/300000"]);
    assert_eq!(part(&["--timeline", "1"]).total, part(&[]).total);
    check(&pick(&["--timeline", "2"]), "no segment of timeline 2; there are timelines 1");
    check(&pick(&["--from", "0/3", "--to", "0/2"]), "no WAL from 0/3 to 0/2");
    check(&pick(&["--from", "A/0"]), "the range lies outside the WAL, whose segments are from 0/1");
    let since = pick(&["--from", "2026-11-22T10:00:00Z"]);
    check(&since, "no commit or checkpoint at 2026-11-22T10:00:00Z or later");
    for value in ["yesterday", "2026-11-22", "12:00"] {
        let ran = pick(&["--from", value]);
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        let words = format!("\"{value}\" is neither an LSN like 16/B374D848 nor a time");
        assert!(ran.stderr.contains(&words), "{ran:?}");
    }
}

#[test]
fn a_segment_of_another_cluster_is_told() {
    let scratch = Scratch::new();
    let (directory, paths) = archive(&scratch, MAGIC_OF_18);
    // The identifier stands behind the page's header.
    change(&paths[2], |bytes| bytes[24] ^= 1);
    check(&stats(&directory), "the segment belongs to another cluster");
}

#[test]
fn json_is_of_the_form_that_is_published() {
    let scratch = Scratch::new();
    let (directory, _) = archive(&scratch, MAGIC_OF_18);
    let ran = run(pgtoll().args(["wal", "stats", "--json"]).arg(&directory));
    let record: WalStatisticsRecord = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(record.total.records, 650);
    assert_eq!(record.end.kind, WalEndKind::Own);
    assert_eq!(record.source.segments, 4);
    let of_pieces: u64 = record.pieces.iter().flat_map(|piece| piece.bytes.values()).sum();
    assert_eq!(of_pieces, record.total.bytes());
    assert_eq!(record.command[..3], ["pgtoll", "wal", "stats"]);
}

#[test]
fn what_was_written_as_json_is_shown_again() {
    let scratch = Scratch::new();
    let (directory, _) = archive(&scratch, MAGIC_OF_18);
    let file = scratch.path("week.json");
    let ran = run(pgtoll().args(["wal", "stats", "-o"]).args([&file, &directory]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let again = run(pgtoll().arg("report").arg(&file));
    assert_eq!(again.stdout, stats(&directory).stdout);
    let page = run(pgtoll().args(["report", "--format", "html"]).arg(&file));
    assert!(page.stdout.starts_with("<!DOCTYPE html>"), "{page:?}");
    let ran = run(pgtoll().args(["report", "--format", "csv"]).arg(&file));
    check(&ran, "a record of wal stats has no format csv");
}

#[test]
fn output_goes_to_a_file_by_its_name() {
    let scratch = Scratch::new();
    let (directory, _) = archive(&scratch, MAGIC_OF_18);
    for (name, begin) in [("wal.html", "<!DOCTYPE html>"), ("wal.json", "{"), ("wal.txt", "WAL of")]
    {
        let path = scratch.path(name);
        let ran = run(pgtoll().args(["wal", "stats", "-o"]).args([&path, &directory]));
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
        assert!(fs::read_to_string(&path).unwrap().starts_with(begin), "{name}");
    }
    let nowhere = scratch.path("nowhere/wal.json");
    let ran = run(pgtoll().args(["wal", "stats", "-o"]).args([&nowhere, &directory]));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.starts_with("pgtoll: write "), "{ran:?}");
}

#[test]
fn gauges_are_those_of_the_record() {
    let scratch = Scratch::new();
    let (directory, paths) = archive(&scratch, MAGIC_OF_18);
    let output =
        |arguments: &[&str]| run(pgtoll().args(["wal", "stats"]).arg(&directory).args(arguments));
    let record: WalStatisticsRecord = serde_json::from_str(&output(&["--json"]).stdout).unwrap();
    let check = |text: &str, complete: u8| {
        check_openmetrics(text);
        let cluster = format!("system_identifier=\"{}\"", record.source.system_identifier);
        assert!(text.contains(&format!("pgtoll_wal_complete{{{cluster}}} {complete}\n")), "{text}");
        cluster
    };
    let ran = output(&["--format", "openmetrics"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let cluster = check(&ran.stdout, 1);
    let total = record.total;
    for (gauge, value) in [
        (format!("pgtoll_wal_records{{{cluster}}}"), total.records),
        (format!("pgtoll_wal_bytes{{{cluster},part=\"records\"}}"), total.record_bytes),
        (format!("pgtoll_wal_bytes{{{cluster},part=\"images\"}}"), total.image_bytes),
        (format!("pgtoll_wal_read_bytes{{{cluster}}}"), record.source.bytes()),
        (format!("pgtoll_wal_images{{{cluster},cause=\"hint\"}}"), 0),
    ] {
        assert!(ran.stdout.contains(&format!("\n{gauge} {value}\n")), "{gauge}: {}", ran.stdout);
    }
    let file = scratch.path("wal.prom");
    assert_eq!(output(&["-o", &file.display().to_string()]).status, Some(0));
    let written = fs::read_to_string(&file).unwrap();
    let without_time = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("pgtoll_wal_time_seconds"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(without_time(&written), without_time(&ran.stdout));
    // A gap is said, too.
    fs::remove_file(&paths[1]).unwrap();
    let ran = output(&["--format", "openmetrics"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    check(&ran.stdout, 0);
}

#[test]
fn a_reader_of_statistics_may_leave() {
    let scratch = Scratch::new();
    let (directory, _) = archive(&scratch, MAGIC_OF_18);
    let mut command = pgtoll();
    command.args(["wal", "stats"]).arg(&directory).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
