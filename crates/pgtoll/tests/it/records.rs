//! `pgtoll report` on whole and broken records.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pgtoll_record::{Comparison, Line, Run, RunResult};
use pgtoll_testing::run_text;

use crate::support::{Scratch, pgtoll, run};

/// The committed records of single runs.
pub(crate) fn committed() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let entries = fs::read_dir(&directory).unwrap().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| run_text(path).is_some()).collect();
    found.sort();
    assert!(!found.is_empty(), "no record in {}", directory.display());
    found
}

/// The last ones of the experiment `checksums`, each of another major version.
pub(crate) fn of_checksums() -> Vec<PathBuf> {
    let header = |path: &PathBuf| Run::parse(&run_text(path).unwrap()).unwrap().header;
    let headers = committed().into_iter().map(|path| (header(&path), path));
    let of_checksums = headers.filter(|(header, _)| header.experiment == "checksums");
    // Names begin with dates.
    let last: BTreeMap<u32, PathBuf> =
        of_checksums.map(|(header, path)| (header.server.version.major(), path)).collect();
    assert!(last.len() > 2, "{last:?}");
    last.into_values().collect()
}

#[test]
fn committed_records_give_their_committed_results() {
    let mut with_results = 0;
    for record in committed() {
        // Those that are kept small have none.
        let Ok(then) = fs::read_to_string(record.join("result.json")) else { continue };
        with_results += 1;
        let ran = run(pgtoll().args(["report", "--json"]).arg(&record));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let again: RunResult = serde_json::from_str(&ran.stdout).unwrap();
        let then: RunResult = serde_json::from_str(&then).unwrap();
        assert!(again.complete);
        // Metrics came later; so did the widening for a null arm.
        assert!(again.comparisons.len() >= then.comparisons.len());
        for then in &then.comparisons {
            let is_same = |comparison: &&Comparison| {
                comparison.workload == then.workload
                    && comparison.metric == then.metric
                    && comparison.arm == then.arm
            };
            let again = again.comparisons.iter().find(is_same).unwrap();
            assert!((again.ratio.estimate - then.ratio.estimate).abs() < 1e-9, "{again:?}");
            let widening = |comparison: &Comparison| comparison.null_factor.unwrap_or(1.0);
            let factor = widening(again) / widening(then);
            assert!((again.half_width / then.half_width / factor - 1.0).abs() < 1e-9, "{again:?}");
            assert!(factor > 1.0 || again.verdict == then.verdict, "{again:?}");
        }
    }
    assert!(with_results > 3, "{with_results}");
}

/// As `small.jsonl` is shown: compressed under another name, in a directory as records are kept, and
/// cut off within the compressed data.
#[test]
fn compressed_records_are_read_as_they_are() {
    let scratch = Scratch::new();
    let plain = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/small.jsonl");
    let shown = |path: &Path| run(pgtoll().args(["report", "--format", "md"]).arg(path));
    let expected = shown(&plain);
    let packed = zstd::encode_all(fs::read(&plain).unwrap().as_slice(), 0).unwrap();
    let file = scratch.work().join("run.jsonl.zst");
    fs::write(&file, &packed).unwrap();
    for path in [file.as_path(), &scratch.work()] {
        let ran = shown(path);
        assert_eq!((ran.status, &ran.stdout), (expected.status, &expected.stdout), "{ran:?}");
    }
    fs::write(&file, &packed[..packed.len() / 2]).unwrap();
    let ran = shown(&file);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("incomplete"), "{ran:?}");
}

#[test]
fn a_record_cut_after_any_line_is_incomplete_and_no_worse() {
    let text = run_text(&of_checksums()[0]).unwrap();
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    for (index, &end) in ends.iter().enumerate() {
        // Every line near the beginning and the end, else every 50th: each cut is read whole.
        if index > 60 && index + 60 < ends.len() && index % 50 != 0 {
            continue;
        }
        // Cut behind the line, and in its middle.
        let before = if index == 0 { 0 } else { ends[index - 1] };
        for cut in [end, usize::midpoint(before, end)] {
            let Ok(run) = Run::parse(&text[..cut]) else {
                assert_eq!(index, 0, "cut at {cut}");
                continue;
            };
            assert_eq!(run.is_complete(), cut == text.len(), "cut at {cut}");
            if index % 10 == 0 || index + 5 > ends.len() {
                let table = pgtoll_report_table(&run);
                assert_eq!(table.contains("incomplete: "), cut != text.len(), "{table}");
            }
        }
    }
}

fn pgtoll_report_table(run: &Run) -> String {
    pgtoll_report::terminal_table(&pgtoll_estimate::summarise(run), pgtoll_report::Style::Plain)
}

#[test]
fn lines_and_fields_of_later_versions_are_passed_over() {
    let text = run_text(&of_checksums()[0]).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let header = first.replacen('{', "{\"of_a_later_version\":[1],", 1);
    let later = format!("{header}\n{{\"t\":\"weather\",\"rain\":true}}\n{rest}");
    assert_eq!(Run::parse(&later).unwrap(), Run::parse(&text).unwrap());
    let damaged = format!("{header}\n{{\"t\":\"slice\",\"round\":1}}\n{rest}");
    let run = Run::parse(&damaged).unwrap();
    assert_eq!(run.unreadable_lines, [2]);
    assert!(pgtoll_report_table(&run).contains("lines of the record that cannot be read: 2"));
}

#[test]
fn lines_are_written_as_they_are_read() {
    let text = run_text(&of_checksums()[0]).unwrap();
    for line in text.lines() {
        let read: Line = serde_json::from_str(line).unwrap();
        let again: Line = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }
}

const HINT: &str =
    "hint: name a result directory, a run.jsonl, or what a command printed with --json";

#[test]
fn what_is_no_record_is_told_in_one_line() {
    let scratch = Scratch::new();
    let check = |contents: &[u8], expected: &str| {
        let file = scratch.path("run.jsonl");
        fs::write(&file, contents).unwrap();
        let ran = run(pgtoll().arg("report").arg(&file));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        let lines: Vec<&str> = ran.stderr.lines().collect();
        assert!(lines.len() == 1 || lines[1..] == [HINT], "{ran:?}");
        assert!(lines[0].contains(expected), "{ran:?}");
    };
    check(b"", "the record is empty");
    check(b"\xff\xfe\0random", "no record: not a text");
    check(b"\xff\xferandom", "read the record's first line");
    check(b"{}\n", "read the record's first line");
    check(b"{\"t\":\"note\",\"text\":\"x\"}\n", "the record's first line is not its header");
    let ran = run(pgtoll().args(["report", "/dev/stdin"]).stdin(Stdio::null()));
    assert!(ran.stderr.ends_with(&format!("the record is empty\n{HINT}\n")), "{ran:?}");
    let ran = run(pgtoll().args(["report", "/does/not/exist"]));
    assert_eq!(
        ran.stderr,
        "pgtoll: read /does/not/exist: No such file or directory (os error 2)\n"
    );
}
