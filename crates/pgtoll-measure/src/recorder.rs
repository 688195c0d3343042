//! Writes the record, so that whatever ends the run leaves all that it measured.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use pgtoll_record::Line;
use pgtoll_system::Draft;

use crate::BenchError;

/// The record's name in a result directory.
pub const RECORD_FILE: &str = "run.jsonl";

/// Appends lines. A slice's line may wait in memory until its round's end: rounds that did not
/// end do not count anyway.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Recorder {
    /// A new record in `directory` with its first line, all or nothing. An existing one is not
    /// overwritten.
    pub(crate) fn create(directory: &Path, header: &Line) -> Result<Self, BenchError> {
        let path = directory.join(RECORD_FILE);
        if path.exists() {
            let source = io::ErrorKind::AlreadyExists.into();
            return Err(BenchError::Record { path, source });
        }
        Self::begin(&path, header).map_err(|source| BenchError::Record { path, source })
    }

    fn begin(path: &Path, header: &Line) -> io::Result<Self> {
        let mut draft = Draft::from_path(path)?;
        draft.write_all(&line_of(header)?)?;
        draft.share()?;
        let file = BufWriter::new(draft.publish_new()?);
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn write(&mut self, line: &Line) -> Result<(), BenchError> {
        let written = line_of(line).and_then(|bytes| self.file.write_all(&bytes));
        written.map_err(|source| self.error(source))
    }

    /// Everything written so far is on disk when this returns.
    pub(crate) fn sync(&mut self) -> Result<(), BenchError> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        synced.map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> BenchError {
        BenchError::Record { path: self.path.clone(), source }
    }
}

fn line_of(line: &Line) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}
