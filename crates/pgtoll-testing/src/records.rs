//! Committed records of runs.

use std::fs;
use std::path::Path;

/// The text of the run's record in this directory, where there is one: `run.jsonl`, or compressed as
/// large ones are kept.
pub fn run_text(directory: &Path) -> Option<String> {
    if let Ok(text) = fs::read_to_string(directory.join("run.jsonl")) {
        return Some(text);
    }
    let packed = fs::read(directory.join("run.jsonl.zst")).ok()?;
    Some(String::from_utf8(zstd::decode_all(packed.as_slice()).unwrap()).unwrap())
}
