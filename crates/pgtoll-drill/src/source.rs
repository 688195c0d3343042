//! The backup, as it lies.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use pgtoll_cluster::{Finder, Installation};
use pgtoll_datadir::{DataDirectory, DatadirError, backup_label_start};
use pgtoll_format::{ByteSize, ClusterState, ControlFile, Lsn};
use pgtoll_record::{DrillFinding, DrilledForm, DrilledKind};
use pgtoll_system::Interrupt;
use pgtoll_verify::{BackupWal, bytes_in_manifest};
use pgtoll_wal::{SegmentFile, segments};

use crate::DrillError;
use crate::repository::RepositorySurvey;
use crate::step::DrillStep;
use crate::tars::{SurveyLimits, TarFacts, TarFiles, TarSurvey, histories_in_tar};

/// A backup that can be drilled: a base backup, plain, in tars or in a repository of another tool, or the
/// copy of a server that was shut down.
#[derive(Debug)]
pub struct DrillSource {
    /// The directory, or the tar.
    pub path: PathBuf,
    /// Its major version.
    pub major: u32,
    pub(crate) kind: DrilledKind,
    pub(crate) form: SourceForm,
    /// The control file, or why it cannot be read.
    pub(crate) control: Result<ControlFile, DatadirError>,
    pub(crate) label: Option<BackupLabel>,
    /// The end of the backup, as its manifest says.
    pub(crate) stop: Option<Lsn>,
    /// The places of its own WAL.
    pub(crate) wal: Vec<PathBuf>,
    /// Segments of WAL of its own that are no files.
    pub(crate) segments: Vec<SegmentFile>,
    /// Histories of timelines that are in tars.
    pub(crate) histories: BTreeMap<String, Vec<u8>>,
}

/// How a backup lies there.
#[derive(Debug)]
pub(crate) enum SourceForm {
    /// A directory.
    Directory,
    /// A backup in tars.
    Tars(Box<TarSurvey>),
    /// Files in a repository of pgBackRest.
    Repository(Box<RepositorySurvey>),
    /// An incremental backup and those before it, the full one first; it is the last itself.
    Chain(Vec<DrillSource>),
}

impl SourceForm {
    pub(crate) fn recorded(&self) -> DrilledForm {
        match self {
            Self::Directory => DrilledForm::Directory,
            Self::Tars(_) => DrilledForm::Tars,
            Self::Repository(_) => DrilledForm::Repository,
            Self::Chain(_) => DrilledForm::Chain,
        }
    }

    /// How its tars or files are compressed, in PostgreSQL's words.
    pub(crate) fn packing(&self) -> Option<&'static str> {
        match self {
            Self::Directory | Self::Chain(_) => None,
            Self::Tars(survey) => survey.files.packing(),
            Self::Repository(survey) => survey.packing(),
        }
    }

    /// Returns the findings from before the restore.
    pub(crate) fn findings(&self) -> Vec<DrillFinding> {
        match self {
            Self::Directory => Vec::new(),
            Self::Tars(survey) => survey.findings.clone(),
            Self::Repository(survey) => survey.findings.clone(),
            Self::Chain(members) => {
                members.iter().flat_map(|member| member.form.findings()).collect()
            }
        }
    }

    /// The backups of a chain, the full one first; none where it is no chain.
    pub(crate) fn members(&self) -> &[DrillSource] {
        match self {
            Self::Directory | Self::Tars(_) | Self::Repository(_) => &[],
            Self::Chain(members) => members,
        }
    }
}

/// How a backup is looked at.
pub struct SourceSearch<'a> {
    /// The directory of the restore.
    pub work_dir: &'a Path,
    /// Ends it.
    pub interrupt: &'a Interrupt,
    /// Is given what is done: tars are read through.
    pub watch: &'a mut dyn FnMut(DrillStep<'_>),
}

impl fmt::Debug for SourceSearch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceSearch").field("work_dir", &self.work_dir).finish_non_exhaustive()
    }
}

/// The content of a `backup_label`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackupLabel {
    /// The start of recovery; `None`: it does not say.
    pub(crate) start: Option<Lsn>,
    /// The timeline; `None`: it does not say (before 11, and damaged).
    pub(crate) timeline: Option<u32>,
    /// The backup was taken from a standby, so that WAL has no record of its end.
    pub(crate) from_standby: bool,
    /// The start of the backup that it builds on; `None`: it is a full backup.
    pub(crate) incremental_from: Option<Lsn>,
}

impl BackupLabel {
    pub(crate) fn parse(text: &str) -> Self {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        Self {
            start: backup_label_start(text),
            timeline: value("START TIMELINE: ").and_then(|text| text.trim().parse().ok()),
            from_standby: value("BACKUP FROM: ").is_some_and(|text| text.trim() == "standby"),
            incremental_from: value("INCREMENTAL FROM LSN: ")
                .map(|text| text.trim().parse().unwrap_or(Lsn::INVALID)),
        }
    }
}

impl DrillSource {
    /// The backup at this path. Of a directory nothing but its kind is looked at; compressed tars are read
    /// through.
    pub fn open(path: &Path, search: &mut SourceSearch<'_>) -> Result<Self, DrillError> {
        let source = Self::alone(path, search)?;
        match source.incremental_from() {
            Some(_) => Err(DrillError::Incremental { path: source.path }),
            None => Ok(source),
        }
    }

    /// A backup of any kind, by itself.
    pub(crate) fn alone(path: &Path, search: &mut SourceSearch<'_>) -> Result<Self, DrillError> {
        let path = std::path::absolute(path).map_err(DrillError::read(path))?;
        if has_data(&path)? {
            return Self::of_directory(path);
        }
        match TarFiles::at(&path)? {
            Some(files) => Self::of_tars(path, files, search),
            None => Err(DrillError::NotABackup { path }),
        }
    }

    /// Its start.
    pub(crate) fn start(&self) -> Option<Lsn> {
        self.label?.start
    }

    /// The start of the backup that it builds on; `None`: it is a full backup.
    pub(crate) fn incremental_from(&self) -> Option<Lsn> {
        self.label?.incremental_from
    }

    fn of_directory(path: PathBuf) -> Result<Self, DrillError> {
        let label = label(&path)?;
        let data = DataDirectory::open(&path);
        let major = match &data {
            Ok(data) => data.major,
            Err(DatadirError::Control { .. } | DatadirError::Read { .. }) => {
                version(&path).ok_or_else(|| DrillError::NoVersion { path: path.clone() })?
            }
            Err(_) => return Err(data.err().map_or(DrillError::NoVersion { path }, Into::into)),
        };
        if let Some(pid) = data.as_ref().ok().map(DataDirectory::server).transpose()?.flatten() {
            return Err(DrillError::Running { path, pid });
        }
        let manifest = path.join("backup_manifest");
        let control = data.map(|data| data.control);
        let kind = kind(&path, label.is_some(), manifest.exists(), &control)?;
        let own = path.join("pg_wal");
        let has_wal = segments(std::slice::from_ref(&own)).is_ok_and(|found| !found.is_empty());
        Ok(Self {
            major,
            kind,
            form: SourceForm::Directory,
            stop: manifest_stop(&control, label, &manifest),
            control,
            label,
            wal: has_wal.then_some(own).into_iter().collect(),
            segments: Vec::new(),
            histories: BTreeMap::new(),
            path,
        })
    }

    pub(crate) fn of_tars(
        path: PathBuf,
        files: TarFiles,
        search: &mut SourceSearch<'_>,
    ) -> Result<Self, DrillError> {
        let (survey, facts) = survey(&path, files, search)?;
        let TarFacts { control, label, major, has_wal, mut histories } = facts;
        let label = label.map(|text| BackupLabel::parse(&String::from_utf8_lossy(&text)));
        let Some(major) = major else {
            return Err(match survey.findings.into_iter().next() {
                Some(first) => DrillError::DamagedTars { words: first.words },
                None => DrillError::NotABackup { path },
            });
        };
        let TarFiles { base, wal, manifest, .. } = &survey.files;
        let is_backup = manifest.is_some() || !survey.broken.is_empty();
        if let Some(wal) = wal {
            histories.extend(histories_in_tar(wal, search.interrupt));
            search.interrupt.check()?;
        }
        let in_base = has_wal.then(|| base.path.clone());
        Ok(Self {
            major,
            kind: kind(&path, label.is_some(), is_backup, &control)?,
            stop: manifest.as_deref().and_then(|manifest| manifest_stop(&control, label, manifest)),
            control,
            label,
            wal: in_base.into_iter().chain(wal.clone()).collect(),
            segments: Vec::new(),
            histories,
            form: SourceForm::Tars(Box::new(survey)),
            path,
        })
    }

    /// The server that recovers it: the one that was named, else one of its major version.
    pub fn installation(
        &self,
        named: Option<&str>,
        interrupt: &Interrupt,
    ) -> Result<Installation, DrillError> {
        let major = self.major.to_string();
        let finder = Finder::of_this_program(interrupt);
        let found = finder.find(Some(named.unwrap_or(&major)))?;
        let installation = found.ok_or(pgtoll_cluster::ClusterError::MajorNotFound {
            major: self.major,
            installable: false,
        })?;
        let server = installation.version.major();
        if server != self.major {
            let backup = self.major;
            let bin = installation.bin;
            return Err(DrillError::OtherMajor { backup, server, bin });
        }
        Ok(installation)
    }
}

fn has_data(path: &Path) -> Result<bool, DrillError> {
    let metadata = fs::metadata(path).map_err(DrillError::read(path))?;
    if metadata.is_dir() {
        fs::read_dir(path).map_err(DrillError::read(path))?;
    }
    Ok(path.join("PG_VERSION").exists() || path.join("global").is_dir())
}

/// Looks through tars. Compressed ones are read to their ends: none says how large it is inside.
fn survey(
    path: &Path,
    files: TarFiles,
    search: &mut SourceSearch<'_>,
) -> Result<(TarSurvey, TarFacts), DrillError> {
    let work_dir = search.work_dir;
    // A directory that is not there is the guard's to report.
    let free = statvfs(work_dir)
        .map(|statistics| statistics.blocks_available() * statistics.fragment_size());
    let free_bytes = free.unwrap_or(u64::MAX);
    if let Some(packing) = files.packing() {
        let listed = files.manifest.as_deref().and_then(bytes_in_manifest);
        if let Some(needed_bytes) = listed.filter(|listed| *listed > free_bytes) {
            let work_dir = work_dir.to_owned();
            return Err(DrillError::NoSpace { needed_bytes, free_bytes, work_dir });
        }
        let size = |bytes| ByteSize(bytes).rounded();
        let needed = match listed {
            Some(listed) => format!("the manifest lists {}", size(listed)),
            None => "no manifest records it".to_owned(),
        };
        let sentence = format!(
            "{}: {} of tars ({packing}) are read through first, since no compressed tar says how \
             large it is inside; {needed}",
            path.display(),
            size(files.packed_bytes())
        );
        (search.watch)(DrillStep::Sentence(&sentence));
    }
    let label = "look through the tars";
    (search.watch)(DrillStep::Stage(label));
    let limits = SurveyLimits { free_bytes, work_dir, interrupt: search.interrupt };
    let watch = &mut *search.watch;
    TarSurvey::read(files, limits, &mut |done, all| {
        watch(DrillStep::Bytes { what: label, done, all });
    })
}

fn manifest_stop(
    control: &Result<ControlFile, DatadirError>,
    label: Option<BackupLabel>,
    manifest: &Path,
) -> Option<Lsn> {
    let start = label?.start?;
    BackupWal::of_manifest(control.as_ref().ok()?, start, manifest).stop()
}

fn label(path: &Path) -> Result<Option<BackupLabel>, DrillError> {
    let path = path.join("backup_label");
    match pgtoll_system::read(&path, LABEL_BYTES_MAX) {
        Ok(text) => Ok(Some(BackupLabel::parse(&String::from_utf8_lossy(&text)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DrillError::read(&path)(error)),
    }
}

fn version(path: &Path) -> Option<u32> {
    let text = pgtoll_system::read(&path.join("PG_VERSION"), 64).ok()?;
    String::from_utf8_lossy(&text).trim().parse().ok()
}

/// Returns its kind. It refuses directories on which no server was shut down.
pub(crate) fn kind(
    path: &Path,
    has_label: bool,
    is_backup: bool,
    control: &Result<ControlFile, DatadirError>,
) -> Result<DrilledKind, DrillError> {
    if has_label {
        return Ok(DrilledKind::BaseBackup);
    }
    match control.as_ref().map(|control| control.state) {
        Ok(ClusterState::ShutDown) => Ok(DrilledKind::ColdCopy),
        Ok(state) if !is_backup => {
            Err(DrillError::NotShutDown { path: path.to_owned(), state: state.to_string() })
        }
        Err(_) if !is_backup => Ok(DrilledKind::ColdCopy),
        _ => Ok(DrilledKind::WithoutLabel),
    }
}

/// Bytes of a `backup_label` at most; a server writes some 300.
const LABEL_BYTES_MAX: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_where_recovery_begins() {
        let text = "START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\n\
                    CHECKPOINT LOCATION: 0/2000080\nBACKUP METHOD: streamed\n\
                    BACKUP FROM: standby\nSTART TIME: x\nLABEL: x\nSTART TIMELINE: 3\n";
        let label = BackupLabel::parse(text);
        assert_eq!((label.start, label.timeline), (Some(Lsn(0x0200_0028)), Some(3)));
        assert!(label.from_standby && label.incremental_from.is_none());
        let incremental = BackupLabel::parse("INCREMENTAL FROM LSN: 0/1\n").incremental_from;
        assert_eq!(incremental, Some(Lsn(1)));
        assert_eq!(BackupLabel::parse("").start, None);
    }

    #[test]
    fn what_is_no_backup_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let check = |expected: &str| {
            let mut search = SourceSearch {
                work_dir: directory.path(),
                interrupt: &Interrupt::new(),
                watch: &mut |_| {},
            };
            let error = DrillSource::open(directory.path(), &mut search).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.hint().is_some());
        };
        check("is not a base backup");
        fs::write(directory.path().join("base.tar.gz"), "").unwrap();
        check("base.tar.gz: cut short");
        fs::write(directory.path().join("PG_VERSION"), "x").unwrap();
        check("neither PG_VERSION nor global/pg_control");
        fs::write(directory.path().join("PG_VERSION"), "17").unwrap();
        fs::write(directory.path().join("backup_label"), "INCREMENTAL FROM LSN: 0/1\n").unwrap();
        check("is an incremental backup");
    }
}
