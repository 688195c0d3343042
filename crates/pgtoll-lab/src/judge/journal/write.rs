//! Writing of a journal.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use super::entry::{JournalEntry, encode_header};

/// A client's journal. Each entry is with the system when a call returns, so that it outlives this
/// process; it need not outlive the machine.
#[derive(Debug)]
pub(crate) struct JournalWriter(File);

impl JournalWriter {
    /// Makes the file, which must not exist.
    pub(crate) fn create(path: &Path, run: u64, client: u64) -> io::Result<Self> {
        let mut file = File::options().write(true).create_new(true).open(path)?;
        file.write_all(&encode_header(run, client))?;
        Ok(Self(file))
    }

    pub(crate) fn append(&mut self, entry: &JournalEntry) -> io::Result<()> {
        self.0.write_all(&entry.encode())
    }
}
