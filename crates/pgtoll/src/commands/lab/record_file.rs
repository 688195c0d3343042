//! The file that `--record` names: written after each run, and continued where it ended early.

use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::output;
use crate::mistakes::Usage;

/// The record in the file, which is to be continued; `None` where there is no such file. `command` makes
/// such records.
pub(super) fn earlier_record<R: DeserializeOwned>(
    file: Option<&Path>,
    command: &str,
    is_complete: impl Fn(&R) -> bool,
) -> anyhow::Result<Option<R>> {
    let Some(file) = file.filter(|file| file.exists()) else { return Ok(None) };
    let context = || format!("read {}", file.display());
    let text = pgtoll_system::read_to_string(file, RECORD_BYTES_MAX).with_context(context)?;
    let record: R = serde_json::from_str(&text).map_err(|_| {
        let message = format!("{} is not a record of {command}", file.display());
        Usage::error(message, "name a new file")
    })?;
    if is_complete(&record) {
        let message = format!("{} has all of its runs", file.display());
        return Err(Usage::error(message, "name a new file"));
    }
    Ok(Some(record))
}

/// A thousand runs have some megabytes.
const RECORD_BYTES_MAX: u64 = 1 << 28;

/// Refuses a file that exists, where a record is not continued: its parts build on each other's servers.
pub(super) fn refuse_existing(file: &Path) -> anyhow::Result<()> {
    if file.exists() {
        let message = format!("{} exists", file.display());
        return Err(Usage::error(message, "name a new file"));
    }
    Ok(())
}

/// The file, if one was named. Of errors the first one is kept.
pub(super) struct RecordFile<'a> {
    path: Option<&'a Path>,
    written: anyhow::Result<()>,
}

impl<'a> RecordFile<'a> {
    pub(super) fn new(path: Option<&'a Path>) -> Self {
        Self { path, written: Ok(()) }
    }

    /// Writes the record so far.
    pub(super) fn write(&mut self, record: &impl Serialize) {
        if let (Some(path), Ok(())) = (self.path, &self.written) {
            self.written = write(path, record);
        }
    }

    /// Writes the whole record; an error where it, or a part of it before, could not be written.
    pub(super) fn finish(mut self, record: &impl Serialize) -> anyhow::Result<()> {
        self.write(record);
        self.written
    }
}

fn write(path: &Path, record: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(record).context("write the record")?;
    text.push('\n');
    output::write(path, &text)
}
