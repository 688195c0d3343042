//! A data directory, how it was left, and the rules that therefore hold.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pgtoll_format::{ClusterState, ControlFile, Lsn};

use crate::names::major;
use crate::postmaster::LOCK_BYTES_MAX;
use crate::{DatadirError, control_file};

/// A data directory, or a plain base backup of one.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    /// Its place.
    pub path: PathBuf,
    /// Its control file.
    pub control: ControlFile,
    /// Its major version.
    pub major: u32,
    /// The start of the backup that this directory is; `None`: it is not a backup.
    pub backup_start: Option<Lsn>,
}

impl DataDirectory {
    /// The data directory at this path.
    pub fn open(path: &Path) -> Result<Self, DatadirError> {
        let control = control_file(path)?;
        let major = major(path, &control)?.major;
        let backup_start = backup_start(&path.join("backup_label"))?;
        Ok(Self { path: path.to_owned(), control, major, backup_start })
    }

    /// The data directory that this path is, or is in; `None`: it is in none.
    pub fn around(path: &Path) -> Option<PathBuf> {
        // As it is named first: a tablespace's link in `pg_tblspc` leads out of the directory.
        let named = std::path::absolute(path).ok();
        let real = fs::canonicalize(path).ok();
        let above = |path: PathBuf| {
            let is_data = |path: &&Path| path.join("global/pg_control").exists();
            path.ancestors().find(is_data).map(Path::to_owned)
        };
        named.and_then(above).or_else(|| real.and_then(above))
    }

    /// The process of the server that runs on it; `None`: none does.
    ///
    /// A server ignores the process that `postmaster.pid` names where it is another user's than
    /// the directory, and so do we.
    pub fn server(&self) -> Result<Option<u32>, DatadirError> {
        let path = self.path.join("postmaster.pid");
        let text = match pgtoll_system::read(&path, LOCK_BYTES_MAX) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(DatadirError::Read { path, source }),
        };
        let number = text.lines().next().and_then(|line| line.trim().parse::<i64>().ok());
        let pid = number.and_then(|number| u32::try_from(number.abs()).ok());
        let owner = |path: &Path| fs::metadata(path).map(|found| found.uid()).ok();
        Ok(pid.filter(|pid| {
            let process = owner(Path::new(&format!("/proc/{pid}")));
            process.is_some() && process == owner(&self.path)
        }))
    }

    /// Whether the server was stopped in good order, so that the files are all that there is: what
    /// contradicts itself then is a suspicion.
    pub fn is_consistent(&self) -> bool {
        self.control.state == ClusterState::ShutDown && self.backup_start.is_none()
    }

    /// Whether the pages have checksums that can be relied on.
    pub fn has_checksums(&self) -> bool {
        self.control.checksum_version == 1
    }

    /// The highest LSN that a page can carry; `None`: only the WAL itself shows it.
    pub fn wal_end(&self) -> Option<Lsn> {
        let control = &self.control;
        if self.backup_start.is_some() {
            return None;
        }
        match control.state {
            // The checkpoint of a shutdown is the last record that there is.
            ClusterState::ShutDown => Some(control.checkpoint),
            // A page is written after this place was put behind it. Before a backup's end is
            // reached its pages may be newer.
            ClusterState::ShutDownInRecovery
                if control.backup_start == Lsn(0) && control.backup_end == Lsn(0) =>
            {
                Some(control.minimum_recovery_end)
                    .filter(|minimum_recovery_end| *minimum_recovery_end > control.checkpoint)
            }
            _ => None,
        }
    }
}

/// The start of the backup with this label; `None`: no label.
fn backup_start(path: &Path) -> Result<Option<Lsn>, DatadirError> {
    let read = |source| DatadirError::Read { path: path.to_owned(), source };
    match pgtoll_system::open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read(error)),
    }
    let text = fs::read(path).map_err(read)?;
    Ok(Some(backup_label_start(&String::from_utf8_lossy(&text)).unwrap_or(Lsn(0))))
}

/// The redo point in the text of a `backup_label`:
/// `START WAL LOCATION: 0/2000028 (file 000000010000000000000002)`
pub fn backup_label_start(label: &str) -> Option<Lsn> {
    let rest = label.lines().find_map(|line| line.strip_prefix("START WAL LOCATION: "))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backups_begin_stands_in_its_label() {
        let label = "START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\nLABEL: x\n";
        assert_eq!(backup_label_start(label), Some(Lsn(0x0200_0028)));
        assert_eq!(backup_label_start("LABEL: x"), None);
        assert_eq!(backup_label_start("START WAL LOCATION: "), None);
    }
}
