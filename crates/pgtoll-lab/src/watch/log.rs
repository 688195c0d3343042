//! The end of a server's log, look by look.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::WatchError;

/// A log that is read from the end it had when the watch began.
#[derive(Debug)]
pub(super) struct LogTail {
    path: PathBuf,
    /// By inode, so that a file that is renamed is the same, and one that takes its place another.
    files: BTreeMap<u64, FileEnd>,
}

#[derive(Debug, Default)]
struct FileEnd {
    read_bytes: u64,
    /// A line that has no end yet.
    begun: Vec<u8>,
}

/// Read of a file at each look, at most; the rest at the next.
const LOOK_BYTES: u64 = 16 << 20;
/// Kept of a line without an end.
const LINE_BYTES: usize = 1 << 16;

impl LogTail {
    /// Makes a tail of a file, or of all files in a directory.
    pub(super) fn at_end(path: &Path) -> Result<Self, WatchError> {
        let mut tail = Self { path: path.to_owned(), files: BTreeMap::new() };
        for file in tail.paths().map_err(|source| tail.error(source))? {
            let metadata = fs::metadata(&file).map_err(|source| tail.error(source))?;
            let end = FileEnd { read_bytes: metadata.len(), begun: Vec::new() };
            tail.files.insert(metadata.ino(), end);
        }
        Ok(tail)
    }

    /// Returns the whole lines that were logged since the last call.
    pub(super) fn new_lines(&mut self) -> Result<String, WatchError> {
        let paths = self.paths().map_err(|source| self.error(source))?;
        let mut lines = Vec::new();
        for path in paths {
            match self.read_new(&path, &mut lines) {
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => read.map_err(|source| self.error(source))?,
            }
        }
        Ok(String::from_utf8_lossy(&lines).into_owned())
    }

    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        if !self.path.is_dir() {
            // Between two files of a rotation there may be none.
            return Ok(self.path.exists().then(|| self.path.clone()).into_iter().collect());
        }
        let entries = fs::read_dir(&self.path)?.flatten().map(|entry| entry.path());
        Ok(entries.filter(|path| path.is_file()).collect())
    }

    fn read_new(&mut self, path: &Path, lines: &mut Vec<u8>) -> io::Result<()> {
        let mut file = pgtoll_system::open(path)?;
        let metadata = file.metadata()?;
        let end = self.files.entry(metadata.ino()).or_default();
        if metadata.len() < end.read_bytes {
            // Rotated in place.
            *end = FileEnd::default();
        }
        file.seek(SeekFrom::Start(end.read_bytes))?;
        let mut new = std::mem::take(&mut end.begun);
        let read = file.take(LOOK_BYTES).read_to_end(&mut new)?;
        end.read_bytes += read as u64;
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        end.begun = new.split_off(whole);
        if end.begun.len() > LINE_BYTES {
            end.begun.drain(..end.begun.len() - LINE_BYTES);
        }
        lines.append(&mut new);
        Ok(())
    }

    fn error(&self, source: io::Error) -> WatchError {
        WatchError::Log { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn append(path: &Path, text: &str) {
        let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn new_lines_are_read_once_through_rotations() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("server.log");
        append(&log, "old\n");
        let mut tail = LogTail::at_end(&log).unwrap();
        assert_eq!(tail.new_lines().unwrap(), "");
        append(&log, "one\ntw");
        assert_eq!(tail.new_lines().unwrap(), "one\n");
        append(&log, "o\n");
        assert_eq!(tail.new_lines().unwrap(), "two\n");
        // By name.
        fs::rename(&log, directory.path().join("server.log.1")).unwrap();
        append(&log, "three\n");
        assert_eq!(tail.new_lines().unwrap(), "three\n");
        // In place.
        fs::write(&log, "4\n").unwrap();
        assert_eq!(tail.new_lines().unwrap(), "4\n");
        fs::remove_file(&log).unwrap();
        assert_eq!(tail.new_lines().unwrap(), "");
    }

    #[test]
    fn a_directory_is_all_of_its_files() {
        let directory = tempfile::tempdir().unwrap();
        append(&directory.path().join("a.log"), "old\n");
        let mut tail = LogTail::at_end(directory.path()).unwrap();
        append(&directory.path().join("a.log"), "one\n");
        append(&directory.path().join("b.log"), "two\n");
        let lines = tail.new_lines().unwrap();
        assert!(lines.contains("one\n") && lines.contains("two\n") && !lines.contains("old"));
    }
}
