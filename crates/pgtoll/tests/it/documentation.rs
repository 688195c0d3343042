//! What is made from code and committed is up to date. `cargo xtask generate` makes it again.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Scratch, pgtoll, run};

/// The form of the trial's record.
#[expect(dead_code, reason = "the trial itself uses the rest")]
#[path = "../../examples/detection/record.rs"]
mod record;
/// The trial's table.
#[path = "../../examples/detection/table.rs"]
mod table;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with what it should be, or writes it when `PGTOLL_UPDATE` is set.
fn check(path: &Path, expected: &str) {
    if std::env::var_os("PGTOLL_UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, expected).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "{} is not up to date: cargo xtask generate", path.display());
}

#[test]
fn generated_schemas() {
    let pretty = |value| serde_json::to_string_pretty(&value).unwrap() + "\n";
    let reference = root().join("docs/src/reference");
    check(&reference.join("record.schema.json"), &pretty(pgtoll_record::line_schema()));
    check(&reference.join("doctor.schema.json"), &pretty(pgtoll_record::examination_schema()));
    check(
        &reference.join("wal-statistics.schema.json"),
        &pretty(pgtoll_record::wal_statistics_schema()),
    );
    check(&reference.join("wal-whatif.schema.json"), &pretty(pgtoll_record::wal_whatif_schema()));
    check(
        &reference.join("verification.schema.json"),
        &pretty(pgtoll_record::verification_schema()),
    );
    check(&reference.join("checksums.schema.json"), &pretty(pgtoll_record::checksums_schema()));
    check(&reference.join("corrupt.schema.json"), &pretty(pgtoll_record::corrupt_schema()));
    check(&reference.join("page.schema.json"), &pretty(pgtoll_record::page_schema()));
    check(
        &reference.join("page-checksums.schema.json"),
        &pretty(pgtoll_record::page_checksums_schema()),
    );
    check(
        &reference.join("page-difference.schema.json"),
        &pretty(pgtoll_record::page_difference_schema()),
    );
    check(&reference.join("experiment.schema.json"), &pretty(pgtoll_bench::experiment_schema()));
    check(&reference.join("result.schema.json"), &pretty(pgtoll_record::result_schema()));
}

#[test]
fn generated_command_line_reference() {
    let scratch = Scratch::new();
    let ran = run(pgtoll().arg("__package").arg(scratch.work()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let reference = fs::read_to_string(scratch.work().join("cli.md")).unwrap();
    check(&root().join("docs/src/reference/cli.md"), &reference);
}

/// Every block between `<!-- report RECORD -->` and `<!-- /report -->` is what `pgtoll report`
/// prints of that record.
#[test]
fn generated_reports() {
    let mut blocks = 0;
    for path in markdown_files(&root()) {
        let text = fs::read_to_string(&path).unwrap();
        let mut made = String::new();
        let mut rest = text.as_str();
        while let Some((before, tail)) = rest.split_once("<!-- report ") {
            let (record, tail) = tail.split_once(" -->").unwrap();
            let (_, tail) = tail.split_once("<!-- /report -->").unwrap();
            let ran = run(pgtoll().arg("report").arg(root().join(record)));
            assert_eq!(ran.status, Some(0), "{record}: {ran:?}");
            let table = &ran.stdout;
            let block =
                format!("{before}<!-- report {record} -->\n```text\n{table}```\n<!-- /report -->");
            made.push_str(&block);
            rest = tail;
            blocks += 1;
        }
        made += rest;
        check(&path, &made);
    }
    assert!(blocks > 0, "no report stands in the documentation");
}

/// The block between `<!-- detection RECORD -->` and `<!-- /detection -->` is the table of that
/// record.
#[test]
fn generated_detection() {
    let path = root().join("docs/src/detection.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, tail) = text.split_once("<!-- detection ").unwrap();
    let (record, tail) = tail.split_once(" -->").unwrap();
    let (_, after) = tail.split_once("<!-- /detection -->").unwrap();
    let found = fs::read_to_string(root().join(record)).unwrap();
    let found: record::Detection = serde_json::from_str(&found).unwrap();
    assert!(found.rows.iter().all(|row| !row.is_missed()), "pgtoll misses what others find");
    let table = table::markdown(&found);
    let block = "detection";
    check(&path, &format!("{before}<!-- {block} {record} -->\n{table}<!-- /{block} -->{after}"));
}

fn markdown_files(root: &Path) -> Vec<PathBuf> {
    let files = |directory: PathBuf| {
        let entries = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|of| of == "md")).collect::<Vec<_>>()
    };
    [files(root.to_owned()), files(root.join("docs/src"))].concat()
}

#[test]
fn the_books_summary_lists_every_chapter_and_no_other() {
    let summary = fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    for path in markdown_files(&root()).iter().filter(|path| path.starts_with(root().join("docs")))
    {
        let name = path.file_name().unwrap().to_str().unwrap();
        let listed = summary.contains(&format!("({name})"));
        assert_eq!(listed, name != "SUMMARY.md", "{name}");
    }
    for link in summary.split("](").skip(1) {
        let target = link.split(')').next().unwrap();
        assert!(root().join("docs/src").join(target).is_file(), "{target}");
    }
}
