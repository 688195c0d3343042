//! Progress and findings of a verification, in a file: an interrupted one resumes where it was
//! left.
//! on where it was left.
//!
//! Enable's journal is another thing: lines with a CRC each, appended in the data directory itself as
//! files are synced. This one is a document beside it, replaced as a whole.

use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pgtoll_format::{Lsn, RelationFork};
use pgtoll_system::Draft;
use serde::{Deserialize, Serialize};

use crate::defect::{BlockFinding, DefectCounts};
use crate::found::{PagesRead, Verified};
use crate::listing::{Listing, Position};
use crate::maps::Unmapped;
use crate::zeros::ZeroPages;
use pgtoll_datadir::DataDirectory;

/// The file, and what was in it.
#[derive(Debug)]
pub struct ResumeJournal {
    path: PathBuf,
    found: Option<Content>,
    of: Option<Subject>,
    written: Instant,
    /// How much work at most is lost when pgtoll is killed.
    pub(super) every: Duration,
    error: Option<io::Error>,
}

/// Why a journal is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// It could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It could not be written.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is something else, or of another version.
    #[error("{} is not a resume file of this pgtoll", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is of other files, or they have changed.
    #[error("{} is of {of}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// The name of its subject.
        of: &'static str,
    },
}

impl ResumeError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "run pgtoll as the file's owner".to_owned()
            }
            Self::Read { .. } => {
                "name a regular file that may be written, or is not there yet".to_owned()
            }
            Self::Write { .. } => {
                "name a file in a directory where you may write, with some space".to_owned()
            }
            Self::Foreign { .. } => "name another file: this one is left as it is".to_owned(),
            Self::Other { path, .. } => {
                format!("remove {} to begin from the start", path.display())
            }
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Content<F = Vec<BlockFinding>, Z = ZeroPages, U = Unmapped> {
    schema: String,
    pgtoll: String,
    of: Subject,
    to: Position,
    pages: PagesRead,
    counts: Vec<(RelationFork, DefectCounts)>,
    findings: F,
    zeros: Z,
    unmapped: U,
}

/// The subject at the start of the verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Subject {
    system_identifier: u64,
    checkpoint: Lsn,
    state: String,
    checksum_version: u32,
    backup_start: Option<Lsn>,
    /// Names, lengths and times of change of all files of relations.
    fingerprint: u64,
    /// The number of files that are read.
    files: usize,
    bytes: u64,
}

impl ResumeJournal {
    /// The journal in this file, which need not be there.
    pub fn open(path: &Path) -> Result<Self, ResumeError> {
        let found = match pgtoll_system::read(path, BYTES_MAX) {
            Ok(bytes) => {
                let foreign = || ResumeError::Foreign { path: path.to_owned() };
                Some(content_of(&bytes).ok_or_else(foreign)?)
            }
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(ResumeError::Foreign { path: path.to_owned() });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(ResumeError::Read { path: path.to_owned(), source }),
        };
        let path = path.to_owned();
        let written = Instant::now();
        Ok(Self { path, found, of: None, written, every: EVERY, error: None })
    }

    /// Bytes that need not be read again.
    pub fn read_before(&self) -> u64 {
        self.found.as_ref().map_or(0, |content| content.pages.bytes)
    }

    /// Returns the error of the last write, if it failed.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// All was read: nothing is left to continue with.
    pub fn remove(self) -> Result<(), ResumeError> {
        let removed = fs::remove_file(&self.path);
        removed.map_err(|source| ResumeError::Write { path: self.path, source })
    }

    /// The block to begin at; earlier findings are put in `verified`.
    pub(super) fn begin(
        &mut self,
        data: &DataDirectory,
        files: &Listing,
        fingerprint: u64,
        verified: &mut Verified,
    ) -> Result<Position, ResumeError> {
        let control = &data.control;
        let subject = Subject {
            system_identifier: control.system_identifier,
            checkpoint: control.checkpoint,
            state: control.state.to_string(),
            checksum_version: control.checksum_version,
            backup_start: data.backup_start,
            fingerprint,
            files: files.len(),
            bytes: files.bytes(),
        };
        let mut from = Position::default();
        if let Some(content) = self.found.take() {
            if let Some(other) = content.of.difference(&subject) {
                return Err(ResumeError::Other { path: self.path.clone(), of: other });
            }
            from = content.to;
            if !files.has(from) {
                return Err(ResumeError::Foreign { path: self.path.clone() });
            }
            verified.pages = content.pages;
            verified.counts = content.counts.into_iter().collect();
            verified.findings = content.findings;
            verified.zeros = content.zeros;
            verified.unmapped = content.unmapped;
        }
        self.of = Some(subject);
        // What cannot be written is better known before hours of reading than after.
        let written = self.try_write(verified, from);
        written.map_err(|source| ResumeError::Write { path: self.path.clone(), source })?;
        Ok(from)
    }

    /// Writes the findings so far, at most at intervals.
    pub(super) fn write_now_and_then(&mut self, verified: &Verified, to: Position) {
        if self.written.elapsed() >= self.every {
            self.write(verified, to);
        }
    }

    pub(super) fn write(&mut self, verified: &Verified, to: Position) {
        self.error = self.try_write(verified, to).err();
    }

    /// The file is the old one or the new one, whatever happens meanwhile.
    fn try_write(&mut self, verified: &Verified, to: Position) -> io::Result<()> {
        let Some(item) = self.of.clone() else { return Ok(()) };
        let content = Content {
            schema: SCHEMA.to_owned(),
            pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
            of: item,
            to,
            pages: verified.pages,
            counts: verified.counts.iter().map(|(fork, count)| (*fork, *count)).collect(),
            findings: &verified.findings,
            zeros: &verified.zeros,
            unmapped: &verified.unmapped,
        };
        let mut file = BufWriter::new(Draft::from_path(&self.path)?);
        serde_json::to_writer(&mut file, &content)?;
        file.write_all(b"\n")?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.replace()?;
        self.written = Instant::now();
        Ok(())
    }
}

/// Returns the content of the file; `None`: it is not a resume file of this pgtoll.
fn content_of(bytes: &[u8]) -> Option<Content> {
    let content = serde_json::from_slice::<Content>(bytes).ok()?;
    (content.schema == SCHEMA && content.pgtoll == env!("CARGO_PKG_VERSION")).then_some(content)
}

/// For fuzzing: whether these bytes are a resume file.
pub(crate) fn is_resume_file(bytes: &[u8]) -> bool {
    content_of(bytes).is_some()
}

impl Subject {
    /// In what the journal's subject is another one than this.
    fn difference(&self, now: &Self) -> Option<&'static str> {
        if self.system_identifier != now.system_identifier {
            return Some("another cluster");
        }
        if (self.checkpoint, self.backup_start) != (now.checkpoint, now.backup_start)
            || (&self.state, self.checksum_version) != (&now.state, now.checksum_version)
        {
            return Some("the cluster before a server ran on it again");
        }
        if self.fingerprint != now.fingerprint {
            return Some("files that have changed since");
        }
        ((self.files, self.bytes) != (now.files, now.bytes))
            .then_some("another choice of relations")
    }
}

const SCHEMA: &str = "pgtoll.resume/1";
/// The limit: 100,000 findings and the sums of a million forks take a tenth of it.
const BYTES_MAX: u64 = 1 << 30;
const EVERY: Duration = Duration::from_secs(5);
