//! One module a subcommand.

pub(crate) mod measure;
pub(crate) mod postgres;
pub(crate) mod report;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_record::{Run, RunResult};

/// An error of how pgtoll was called.
#[derive(Debug)]
pub(crate) struct Usage {
    message: String,
    pub(crate) hint: String,
}

impl Usage {
    pub(crate) fn error(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        Self { message: message.into(), hint: hint.into() }.into()
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Usage {}

/// Reads a run's record: a result directory, or the file itself.
fn read_run(path: &Path) -> anyhow::Result<Run> {
    let file = if path.is_dir() { path.join(pgtoll_bench::RECORD_FILE) } else { path.to_owned() };
    let bytes = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    // A record that broke off may end within a character.
    Run::parse(&String::from_utf8_lossy(&bytes)).with_context(|| format!("read {}", file.display()))
}

/// The result as it is printed with `--json` and written to `result.json`.
fn to_json(result: &RunResult) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(result)? + "\n")
}

/// `path` as it can be given to servers that run elsewhere: absolute, links resolved.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| format!("find {}", path.display()))
}
