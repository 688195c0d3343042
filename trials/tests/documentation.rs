//! What is made from the trials' records and committed is up to date. `cargo xtask generate` makes it
//! again.

use std::fs;
use std::path::{Path, PathBuf};

use pgtoll_record::trials::DetectionRecord;
use pgtoll_trials::detection::markdown;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
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
    let found: DetectionRecord = serde_json::from_str(&found).unwrap();
    assert!(found.rows.iter().all(|row| !row.is_missed()), "pgtoll misses what others find");
    let table = markdown(&found);
    let expected =
        format!("{before}<!-- detection {record} -->\n{table}<!-- /detection -->{after}");
    if std::env::var_os("PGTOLL_UPDATE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap();
    assert!(found == expected, "{} is not up to date: cargo xtask generate", path.display());
}
