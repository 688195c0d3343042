//! An incremental backup and those before it, combined by the real `pg_combinebackup` in the cluster's
//! directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pgtoll_cluster::{Cluster, Guard};
use pgtoll_system::Interrupt;

use crate::DrillError;
use crate::incremental_files::{combined_file_bytes, is_incremental};
use crate::layout::entries;
use crate::source::{DrillSource, SourceForm};

/// Why the backups could not be combined.
pub(crate) type CombineFailure = String;

/// Backups that are combined.
pub(crate) struct Combination<'a> {
    pub(crate) cluster: &'a Cluster,
    /// The data directory of each, the full one first.
    pub(crate) members: &'a [PathBuf],
    pub(crate) interrupt: &'a Interrupt,
}

impl Combination<'_> {
    /// Lets `pg_combinebackup` make the cluster's data directory. Every tablespace is put into a directory
    /// of the cluster's: without a mapping it would be written where the backup's link leads.
    pub(crate) fn run(&self, guard: &mut Guard) -> Result<Result<(), CombineFailure>, DrillError> {
        let program = self.cluster.client(COMBINE)?;
        let arguments = self.arguments()?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        guard.spawn(COMBINE, &program, &arguments, &[("LC_ALL".into(), "C".into())].into())?;
        while guard.has_ended(COMBINE)?.is_none() {
            self.interrupt.wait(LOOK_EVERY)?;
        }
        let output = guard.reap(COMBINE, LOOK_EVERY)?;
        if output.success {
            return Ok(Ok(()));
        }
        let log = pgtoll_system::read(&guard.program_log(COMBINE), LOG_BYTES_MAX);
        let log = String::from_utf8_lossy(&log.unwrap_or_default()).into_owned();
        if log.contains("No space left on device") {
            let full = io::ErrorKind::StorageFull.into();
            return Err(DrillError::write(self.cluster.directory())(full));
        }
        Ok(Err(error_words(&log).unwrap_or(output.status)))
    }

    fn arguments(&self) -> Result<Vec<String>, DrillError> {
        let shown = |path: &Path| path.to_string_lossy().into_owned();
        let mut arguments: Vec<String> = self.members.iter().map(|path| shown(path)).collect();
        arguments.extend(["--no-sync".to_owned(), "-o".to_owned(), shown(&self.cluster.data())]);
        for (name, target) in
            self.members.last().map(|last| links(last)).transpose()?.into_iter().flatten()
        {
            let new = self.cluster.directory().join("tablespaces").join(name);
            let escaped = |path: &Path| shown(path).replace('=', "\\=");
            let mapping = format!("{}={}", escaped(&target), escaped(&new));
            arguments.push(format!("--tablespace-mapping={mapping}"));
        }
        Ok(arguments)
    }
}

/// The links of a backup's tablespaces: names and targets.
fn links(data: &Path) -> Result<Vec<(String, PathBuf)>, DrillError> {
    let place = data.join("pg_tblspc");
    let mut links = Vec::new();
    for entry in entries(&place)? {
        let path = entry.path();
        if entry.file_type().map_err(DrillError::read(&path))?.is_symlink() {
            let target = fs::read_link(&path).map_err(DrillError::read(&path))?;
            links.push((entry.file_name().to_string_lossy().into_owned(), target));
        }
    }
    Ok(links)
}

/// Returns the last error of `pg_combinebackup`.
fn error_words(log: &str) -> Option<String> {
    let line = log.lines().rev().find_map(|line| line.split_once("error: "))?;
    Some(format!("{COMBINE}: {}", line.1))
}

/// Bytes of what the backups of a chain are combined to, at most, and of what is unpacked of them before.
pub(crate) fn combined_bytes(members: &[DrillSource]) -> Result<(u64, u64), DrillError> {
    let unpacked = members.iter().map(|member| match &member.form {
        SourceForm::Tars(survey) => survey.bytes,
        SourceForm::Directory | SourceForm::Repository(_) | SourceForm::Chain(_) => 0,
    });
    let combined = match members.last().map(|last| (&last.form, &last.path)) {
        Some((SourceForm::Tars(survey), _)) => survey.combined_bytes,
        Some((SourceForm::Directory | SourceForm::Chain(_), path)) => bytes_below(path, true)?,
        Some((SourceForm::Repository(_), _)) | None => 0,
    };
    Ok((combined, unpacked.sum()))
}

/// Bytes of a directory's files, with what incremental ones become. Tablespaces are behind links.
fn bytes_below(directory: &Path, is_root: bool) -> Result<u64, DrillError> {
    let mut bytes = 0;
    for entry in entries(directory)? {
        let path = entry.path();
        let kind = entry.file_type().map_err(DrillError::read(&path))?;
        let name = entry.file_name();
        if kind.is_dir() && is_root && name == "pg_tblspc" {
            for (_, target) in links(directory)? {
                bytes += bytes_below(&target, false).unwrap_or_default();
            }
            bytes += bytes_below(&path, false)?;
        } else if kind.is_dir() {
            bytes += bytes_below(&path, false)?;
        } else if kind.is_file() && is_incremental(&name.to_string_lossy()) {
            bytes += combined_file_bytes(&path).map_err(DrillError::read(&path))?;
        } else if kind.is_file() {
            bytes += entry.metadata().map_err(DrillError::read(&path))?.len();
        }
    }
    Ok(bytes)
}

/// The program that combines backups.
pub(crate) const COMBINE: &str = "pg_combinebackup";
/// It writes as fast as the disk can, and is only looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOG_BYTES_MAX: u64 = 16 << 20;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_counts() {
        let log = "pg_combinebackup: warning: x\npg_combinebackup: error: backup at \"a\" starts at \
                   LSN 0/2, but expected 0/4\npg_combinebackup: removing output directory \"b\"\n";
        let expected = "pg_combinebackup: backup at \"a\" starts at LSN 0/2, but expected 0/4";
        assert_eq!(error_words(log).as_deref(), Some(expected));
        assert_eq!(error_words("killed"), None);
    }

    #[test]
    fn incremental_files_say_how_long_they_become() {
        let place = tempfile::tempdir().unwrap();
        let words = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("base")).unwrap();
        fs::write(path("base/1"), [0; 100]).unwrap();
        fs::write(path("base/INCREMENTAL.2"), words(&[0xd3ae_1f0d, 2, 5, 7, 9])).unwrap();
        fs::write(path("base/INCREMENTAL.3"), words(&[0xd3ae_1f0d, 0, 5])).unwrap();
        fs::write(path("base/INCREMENTAL.4"), "damaged").unwrap();
        assert_eq!(bytes_below(place.path(), true).unwrap(), 100 + 10 * 8192 + 5 * 8192);
    }
}
