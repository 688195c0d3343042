//! A backup that was unpacked or combined in the cluster's directory becomes the data directory that a
//! server starts on: without what says how the cluster was run, and without links that lead elsewhere.

use std::fs;
use std::path::Path;

use crate::DrillError;
use crate::layout::{LEFT_OUT, MADE_EMPTY, entries, is_temporary};
use crate::writer::CopyWriter;

/// Removes what a drill leaves out of a copy, and makes the directories that a server needs. Returns what
/// a reader has to know of.
pub(crate) fn adopt(cluster: &Path, writer: CopyWriter) -> Result<Vec<String>, DrillError> {
    let mut adoption = Adoption { cluster, writer, notes: Vec::new() };
    let data = cluster.join("data");
    for entry in entries(&data)? {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == TABLESPACES {
            adoption.links(&path)?;
        } else if LEFT_OUT.contains(&&*name) || MADE_EMPTY.contains(&&*name) {
            adoption.remove(&path)?;
        } else {
            adoption.prune(&path)?;
        }
    }
    for name in MADE_EMPTY {
        let path = data.join(name);
        writer.directory(&path).map_err(DrillError::write(&path))?;
    }
    for entry in entries(&cluster.join("tablespaces"))? {
        adoption.prune(&entry.path())?;
    }
    Ok(adoption.notes)
}

struct Adoption<'a> {
    cluster: &'a Path,
    writer: CopyWriter,
    notes: Vec<String>,
}

impl Adoption<'_> {
    /// Removes what is temporary, and what is neither a file nor a directory.
    fn prune(&mut self, path: &Path) -> Result<(), DrillError> {
        let kind = fs::symlink_metadata(path).map_err(DrillError::read(path))?.file_type();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if is_temporary(&name) {
            self.remove(path)
        } else if kind.is_dir() {
            entries(path)?.iter().try_for_each(|entry| self.prune(&entry.path()))
        } else if kind.is_file() {
            Ok(())
        } else {
            self.remove_link(path)
        }
    }

    /// A tablespace's link leads to the cluster's own directory of its name, or it goes. One that was
    /// made "in place" is a part of the data directory.
    fn links(&mut self, place: &Path) -> Result<(), DrillError> {
        for entry in entries(place)? {
            let own = self.cluster.join("tablespaces").join(entry.file_name());
            let path = entry.path();
            if entry.file_type().map_err(DrillError::read(&path))?.is_dir() {
                self.prune(&path)?;
            } else if fs::read_link(&path).is_ok_and(|target| target == own) {
                // It stays.
            } else {
                self.remove_link(&path)?;
            }
        }
        Ok(())
    }

    fn remove_link(&mut self, path: &Path) -> Result<(), DrillError> {
        let shown = path.strip_prefix(self.cluster.join("data")).unwrap_or(path);
        let note = format!("{} is neither a file nor a directory: left out", shown.display());
        self.notes.push(note);
        self.remove(path)
    }

    fn remove(&self, path: &Path) -> Result<(), DrillError> {
        self.writer.remove_all(path).map_err(DrillError::write(path))
    }
}

const TABLESPACES: &str = "pg_tblspc";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_leads_out_goes_and_the_rest_stays() {
        let place = tempfile::tempdir().unwrap();
        let cluster = place.path();
        let at = |path: &str| cluster.join(path);
        for directory in [
            "data/base/1/pgsql_tmp",
            "data/pg_tblspc/16402",
            "data/pg_replslot/slot",
            "data/log",
            "tablespaces/16400/PG_17_1/5",
            "tablespaces/16401",
        ] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        for file in ["data/base/1/1259", "data/postgresql.conf", "data/backup_label", "data/log/x"]
        {
            fs::write(at(file), "text").unwrap();
        }
        symlink(at("tablespaces/16400"), at("data/pg_tblspc/16400")).unwrap();
        symlink("/srv/production", at("data/pg_tblspc/16401")).unwrap();
        symlink("/etc/passwd", at("data/base/1/1260")).unwrap();
        symlink("/etc", at("tablespaces/16400/PG_17_1/6")).unwrap();
        let notes = adopt(cluster, CopyWriter::own()).unwrap();
        assert_eq!(notes.len(), 3, "{notes:?}");
        for there in [
            "data/base/1/1259",
            "data/backup_label",
            "data/pg_tblspc/16400",
            "data/pg_tblspc/16402",
            "data/pg_wal/archive_status",
            "data/pg_replslot",
        ] {
            assert!(at(there).exists(), "{there}");
        }
        for gone in [
            "data/base/1/pgsql_tmp",
            "data/base/1/1260",
            "data/pg_tblspc/16401",
            "data/pg_replslot/slot",
            "data/postgresql.conf",
            "data/log",
            "tablespaces/16400/PG_17_1/6",
        ] {
            assert!(fs::symlink_metadata(at(gone)).is_err(), "{gone}");
        }
    }
}
