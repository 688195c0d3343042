//! The backup, as it lies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Finder, Installation};
use pgtoll_datadir::{DataDirectory, DatadirError, backup_label_start};
use pgtoll_format::{ClusterState, Lsn};
use pgtoll_interrupt::Interrupt;
use pgtoll_record::DrilledKind;
use pgtoll_wal::Packing;

use crate::DrillError;

/// A backup that can be drilled: a plain base backup, or the copy of a server that was shut down.
#[derive(Debug)]
pub struct DrillSource {
    /// The directory.
    pub path: PathBuf,
    /// Its major version.
    pub major: u32,
    pub(crate) kind: DrilledKind,
    /// The data directory, or why its control file cannot be read.
    pub(crate) data: Result<DataDirectory, DatadirError>,
    pub(crate) label: Option<BackupLabel>,
}

/// What a `backup_label` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackupLabel {
    /// Where recovery begins; `None`: it does not say.
    pub(crate) start: Option<Lsn>,
    /// The timeline; `None`: it does not say (before 11, and damaged).
    pub(crate) timeline: Option<u32>,
    /// The backup was taken from a standby, so that WAL has no record of its end.
    pub(crate) from_standby: bool,
    is_incremental: bool,
}

impl BackupLabel {
    fn parse(text: &str) -> Self {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        Self {
            start: backup_label_start(text),
            timeline: value("START TIMELINE: ").and_then(|text| text.trim().parse().ok()),
            from_standby: value("BACKUP FROM: ").is_some_and(|text| text.trim() == "standby"),
            is_incremental: value("INCREMENTAL FROM LSN: ").is_some(),
        }
    }
}

impl DrillSource {
    /// The backup in this directory. Nothing but its kind is looked at.
    pub fn open(path: &Path) -> Result<Self, DrillError> {
        let path = std::path::absolute(path).map_err(DrillError::read(path))?;
        let metadata = fs::metadata(&path).map_err(DrillError::read(&path))?;
        if !metadata.is_dir() || !has_data(&path)? {
            let is_tar = Packing::of_tar(&path).is_some() || holds_tars(&path);
            return Err(if is_tar {
                DrillError::Tars { path }
            } else {
                DrillError::NotABackup { path }
            });
        }
        let label = label(&path)?;
        if label.is_some_and(|label| label.is_incremental) {
            return Err(DrillError::Incremental { path });
        }
        let data = DataDirectory::open(&path);
        let major = match &data {
            Ok(data) => data.major,
            Err(DatadirError::Control { .. } | DatadirError::Read { .. }) => {
                version(&path).ok_or_else(|| DrillError::NoVersion { path: path.clone() })?
            }
            Err(_) => return Err(data.err().map_or(DrillError::NoVersion { path }, Into::into)),
        };
        let kind = kind(&path, label.as_ref(), data.as_ref().ok())?;
        Ok(Self { path, major, kind, data, label })
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
            let (backup, bin) = (self.major, installation.bin);
            return Err(DrillError::OtherMajor { backup, server, bin });
        }
        Ok(installation)
    }
}

fn has_data(path: &Path) -> Result<bool, DrillError> {
    fs::read_dir(path).map_err(DrillError::read(path))?;
    Ok(path.join("PG_VERSION").exists() || path.join("global").is_dir())
}

fn holds_tars(path: &Path) -> bool {
    let names = fs::read_dir(path).into_iter().flatten().flatten();
    names.map(|entry| entry.path()).any(|path| {
        let is_base =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"base."));
        is_base && Packing::of_tar(&path).is_some()
    })
}

fn label(path: &Path) -> Result<Option<BackupLabel>, DrillError> {
    let path = path.join("backup_label");
    match pgtoll_files::read(&path, LABEL_BYTES_MAX) {
        Ok(text) => Ok(Some(BackupLabel::parse(&String::from_utf8_lossy(&text)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DrillError::read(&path)(error)),
    }
}

fn version(path: &Path) -> Option<u32> {
    let text = pgtoll_files::read(&path.join("PG_VERSION"), 64).ok()?;
    String::from_utf8_lossy(&text).trim().parse().ok()
}

/// What it is. Refused are directories that a server runs on, or has not been shut down on.
fn kind(
    path: &Path,
    label: Option<&BackupLabel>,
    data: Option<&DataDirectory>,
) -> Result<DrilledKind, DrillError> {
    if let Some(pid) = data.map(DataDirectory::server).transpose()?.flatten() {
        return Err(DrillError::Running { path: path.to_owned(), pid });
    }
    if label.is_some() {
        return Ok(DrilledKind::BaseBackup);
    }
    let is_backup = path.join("backup_manifest").exists();
    match data.map(|data| data.control.state) {
        Some(ClusterState::ShutDown) => Ok(DrilledKind::ColdCopy),
        Some(state) if !is_backup => {
            Err(DrillError::NotShutDown { path: path.to_owned(), state: state.to_string() })
        }
        None if !is_backup => Ok(DrilledKind::ColdCopy),
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
        assert!(label.from_standby && !label.is_incremental);
        assert!(BackupLabel::parse("INCREMENTAL FROM LSN: 0/1\n").is_incremental);
        assert_eq!(BackupLabel::parse("").start, None);
    }

    #[test]
    fn what_is_no_backup_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let check = |expected: &str| {
            let error = DrillSource::open(directory.path()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.hint().is_some());
        };
        check("is no base backup");
        fs::write(directory.path().join("base.tar.gz"), "").unwrap();
        check("is a backup in tars");
        fs::write(directory.path().join("PG_VERSION"), "x").unwrap();
        check("neither PG_VERSION nor global/pg_control");
        fs::write(directory.path().join("backup_label"), "INCREMENTAL FROM LSN: 0/1\n").unwrap();
        check("is an incremental backup");
    }
}
