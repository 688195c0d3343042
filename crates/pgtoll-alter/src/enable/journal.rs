//! The journal of files that have their checksums on disk already, so that an interrupted run
//! resumes where it ended.
//! where it ended.
//!
//! The journal is a file in the data directory: a header, then a line for each file, written when
//! that file was synced. A line says which file it was, to the time of its last change; the header
//! says the same of the control file, and with it of the checkpoint. Every line begins with a CRC
//! over header and line. So what a server, or anybody else, wrote to after the line was written is
//! not passed over, whatever became of the journal meanwhile.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;
use pgtoll_format::crc32c;

use crate::{Hold, WriteError};
use pgtoll_datadir::RelationFile;

/// A journal that is written.
#[derive(Debug)]
pub(super) struct EnableJournal {
    data: PathBuf,
    path: PathBuf,
    file: File,
    header: String,
    /// The lines that it had when it was opened.
    found: HashSet<String>,
    /// There was a journal, of another state of the cluster.
    was_void: bool,
    end: Mutex<End>,
}

/// The end of the file.
#[derive(Debug)]
struct End {
    at: u64,
    synced: Instant,
}

/// In the data directory, where servers pass it over.
const NAME: &str = "pgtoll_enable.journal";
/// The work that a power cut may lose: these files are read again.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// More than a line has beside the path: five numbers.
const LINE_BYTES: u64 = 120;

impl EnableJournal {
    /// Opens the journal of the data directory, or begins one. Has room for lines of all `files`, so
    /// that a disk that is full is noticed before anything is written.
    pub(super) fn open(hold: &Hold, files: &[RelationFile]) -> Result<Self, WriteError> {
        let data = hold.data().to_owned();
        let path = data.join(NAME);
        let header = header(hold)?;
        let line =
            |file: &RelationFile| LINE_BYTES + relative(&file.path, &data).as_os_str().len() as u64;
        let room = header.len() as u64 + files.iter().map(line).sum::<u64>();
        let mode = fs::metadata(&data).map_err(WriteError::read(&data))?.mode();
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // Who may read the directory may read it: backups do.
            .mode(0o600 | mode & 0o040)
            .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
            .open(&path)
            .and_then(regular)
            .map_err(write_error(&path))?;
        let mut text = Vec::new();
        // What was damaged in the middle counts up to there.
        (&file).take(2 * room).read_to_end(&mut text).map_err(WriteError::read(&path))?;
        let begin = || {
            reserve(&file, room)?;
            file.write_all_at(header.as_bytes(), 0)
        };
        let is_ours = text.starts_with(header.as_bytes());
        let (found, at) = if let Some(lines) = text.strip_prefix(header.as_bytes()) {
            let (found, bytes) = valid(&header, lines);
            reserve(&file, room).map_err(write_error(&path))?;
            (found, bytes as u64)
        } else {
            let begun = file.set_len(0).and_then(|()| begin());
            begun.inspect_err(|_| drop(fs::remove_file(&path))).map_err(write_error(&path))?;
            (HashSet::new(), 0)
        };
        let was_void = !is_ours && !text.is_empty();
        let end = End { at: at + header.len() as u64, synced: Instant::now() };
        Ok(Self { data, path, file, header, found, was_void, end: Mutex::new(end) })
    }

    /// Whether the file was synced with its checksums, and not written to since.
    pub(super) fn has(&self, file: &RelationFile) -> bool {
        !self.found.is_empty()
            && fs::metadata(&file.path)
                .is_ok_and(|found| self.found.contains(&self.line(&file.path, &found)))
    }

    /// There was a journal, and the cluster was used since.
    pub(super) fn was_void(&self) -> bool {
        self.was_void
    }

    /// Says that a file was synced, and that no thread will write to it any more.
    pub(super) fn add(&self, path: &Path, file: &File) -> Result<(), WriteError> {
        let found = file.metadata().map_err(WriteError::read(path))?;
        let line = self.line(path, &found);
        let line = format!("{:08x} {line}\n", checksum(&self.header, &line));
        let mut end = pgtoll_system::lock(&self.end);
        let written = self.file.write_all_at(line.as_bytes(), end.at);
        written.map_err(write_error(&self.path))?;
        end.at += line.len() as u64;
        if end.synced.elapsed() >= SYNC_EVERY {
            let synced = self.file.sync_data();
            synced.map_err(|source| WriteError::Sync { path: self.path.clone(), source })?;
            end.synced = Instant::now();
        }
        Ok(())
    }

    /// Returns the line of a file and its state.
    fn line(&self, path: &Path, found: &fs::Metadata) -> String {
        format!("{} {}", relative(path, &self.data).display(), identity(found))
    }
}

/// The directory's owner could have put a FIFO there, whose reader waits for ever.
fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

fn relative<'p>(path: &'p Path, data: &Path) -> &'p Path {
    path.strip_prefix(data).unwrap_or(path)
}

/// Takes away the journal of a data directory that needs none any more. That it stays does no harm.
pub(super) fn remove(data: &Path) {
    let _ = fs::remove_file(data.join(NAME));
}

fn write_error(path: &Path) -> impl Fn(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError::Write { path: path.clone(), source }
}

/// The cluster's state, and that of the control file, which every server that runs writes.
fn header(hold: &Hold) -> Result<String, WriteError> {
    let path = hold.control_path();
    let found = fs::metadata(&path).map_err(WriteError::read(&path))?;
    let control = hold.control();
    let line = format!(
        "pgtoll enable 1: system {} state \"{}\" checkpoint {} redo {} blocks {}*{} control {:08x} {}",
        control.system_identifier,
        control.state,
        control.checkpoint,
        control.last_checkpoint.redo,
        control.block_bytes,
        control.file_blocks,
        crc32c(hold.control_bytes()),
        identity(&found),
    );
    Ok(format!("{:08x} {line}\n", crc32c(line.as_bytes())))
}

/// Every change of a file changes the last of these, and none can be set back.
fn identity(metadata: &fs::Metadata) -> String {
    format!(
        "{} {} {} {}.{:09}",
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.ctime(),
        metadata.ctime_nsec()
    )
}

fn checksum(header: &str, line: &str) -> u32 {
    crc32c(format!("{header}{line}").as_bytes())
}

/// The lines up to the first one that is damaged or not whole, and how many bytes they are.
fn valid(header: &str, mut text: &[u8]) -> (HashSet<String>, usize) {
    let mut found = HashSet::new();
    let all = text.len();
    while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
        let line = str::from_utf8(&text[..end]).ok().and_then(|line| line.split_once(' '));
        match line {
            Some((crc, line)) if crc == format!("{:08x}", checksum(header, line)) => {
                found.insert(line.to_owned());
            }
            _ => break,
        }
        text = &text[end + 1..];
    }
    (found, all - text.len())
}

/// Reserves space; on file systems without that, a write fails later.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length = i64::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    match posix_fallocate(file, 0, length) {
        Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(header: &str, lines: &[&str]) -> Vec<u8> {
        let line = |line: &&str| format!("{:08x} {line}\n", checksum(header, line));
        lines.iter().map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn lines_count_up_to_the_first_that_is_not_whole() {
        let mut written = text("h", &["a 1", "b 2"]);
        let whole = written.len();
        let check = |header: &str, text: &[u8], lines: usize, bytes: usize| {
            let (found, valid) = valid(header, text);
            assert_eq!((found.len(), valid), (lines, bytes));
        };
        check("h", &written, 2, whole);
        // Another cluster's, or another checkpoint's.
        check("i", &written, 0, 0);
        check("h", &written[..whole - 1], 1, whole / 2);
        written.extend([0; 50]);
        check("h", &written, 2, whole);
        written[whole / 2 + 10] ^= 1;
        check("h", &written, 1, whole / 2);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text: Vec<u8>) {
            valid("h", &text);
        }
    }
}
