//! The ledger: a line for each attempt to write, and one for how it ended.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_record::RepairRecord;

use crate::mistakes::Usage;

/// A ledger that is open for adding to it.
pub(super) struct Ledger {
    path: PathBuf,
    file: File,
}

impl Ledger {
    /// Opens it, before pgtoll becomes the data directory's owner.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = pgtoll_system::open_append_private(path).map_err(|error| {
            let hint = "no page was written; name another file with --ledger";
            Usage::error(format!("write {}: {error}", path.display()), hint)
        })?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds a record, and has it on disk.
    pub(super) fn add(&mut self, record: &RepairRecord) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_all());
        written.with_context(|| format!("write {}", self.path.display()))
    }
}
