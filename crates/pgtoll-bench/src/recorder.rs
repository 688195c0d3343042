//! Writes the record, so that whatever ends the run leaves all that it measured.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use pgtoll_record::Line;

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
        let unnamed = directory.join(format!(".{RECORD_FILE}.{}", std::process::id()));
        let made = Self::begin(&unnamed, &path, header);
        if made.is_err() {
            let _ = fs::remove_file(&unnamed);
        }
        made
    }

    fn begin(unnamed: &Path, path: &Path, header: &Line) -> Result<Self, BenchError> {
        let error = |source| BenchError::Record { path: path.to_owned(), source };
        let file = File::options().append(true).create_new(true).open(unnamed).map_err(error)?;
        let mut recorder = Self { path: path.to_owned(), file: BufWriter::new(file) };
        recorder.write(header)?;
        recorder.sync()?;
        fs::rename(unnamed, path).map_err(error)?;
        Ok(recorder)
    }

    pub(crate) fn write(&mut self, line: &Line) -> Result<(), BenchError> {
        let written = serde_json::to_writer(&mut self.file, line)
            .map_err(io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"));
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
