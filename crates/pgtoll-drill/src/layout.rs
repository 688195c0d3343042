//! The files of a backup that are copied, and their places.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use pgtoll_record::DrilledTablespace;
use pgtoll_system::Interrupt;

use crate::DrillError;
use crate::repository::RepositorySurvey;
use crate::tars::{TarSurvey, mapped_oids};
use crate::writer::{CopyWriter, link_tablespace};

/// The files of a backup that are copied. Paths of the copy are relative to the cluster's directory, which has
/// `data` and `tablespaces`.
#[derive(Debug, Default)]
pub(crate) struct CopyLayout {
    /// In the order in which they are made.
    directories: Vec<PathBuf>,
    files: Vec<CopiedFile>,
    pub(crate) tablespaces: Vec<DrilledTablespace>,
    /// Notes on files that are left out.
    pub(crate) notes: Vec<String>,
    /// Bytes of the files.
    pub(crate) bytes: u64,
    /// Bytes of what is unpacked before, and removed again.
    pub(crate) staged_bytes: u64,
}

#[derive(Debug)]
struct CopiedFile {
    from: PathBuf,
    to: PathBuf,
}

impl CopyLayout {
    /// Lists the files of a backup.
    pub(crate) fn new(backup: &Path, major: u32) -> Result<Self, DrillError> {
        let mut layout = Self::default();
        layout.directories.extend(["data", "tablespaces"].map(PathBuf::from));
        layout.directories.extend(MADE_EMPTY.map(|name| Path::new("data").join(name)));
        for entry in entries(backup)? {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !LEFT_OUT.contains(&&*name) && !MADE_EMPTY.contains(&&*name) {
                layout.add(&entry, Path::new("data"))?;
            }
        }
        layout.add_tablespaces(backup, major)?;
        Ok(layout)
    }

    /// Makes the layout of unpacked tars: nothing is copied.
    pub(crate) fn of_tars(survey: &TarSurvey) -> Self {
        let pick = |oid| {
            let tar = survey.files.tablespaces.get(&oid);
            DrilledTablespace { oid, path: tar.map(|tar| tar.path.display().to_string()) }
        };
        Self {
            tablespaces: survey.tablespaces().map(pick).collect(),
            bytes: survey.bytes,
            ..Self::default()
        }
    }

    /// Makes the layout of an unpacked repository: nothing is copied.
    pub(crate) fn of_repository(backup: &Path, survey: &RepositorySurvey) -> Self {
        let there = survey.tablespaces.iter().map(|oid| {
            let path = backup.join("pg_tblspc").join(oid.to_string());
            DrilledTablespace { oid: *oid, path: Some(path.display().to_string()) }
        });
        let missing = survey.missing_tablespaces.iter();
        let missing = missing.map(|oid| DrilledTablespace { oid: *oid, path: None });
        Self { tablespaces: there.chain(missing).collect(), bytes: survey.bytes, ..Self::default() }
    }

    /// Makes the layout of a combined chain: nothing is copied, and some bytes are unpacked before.
    pub(crate) fn of_chain(
        tablespaces: Vec<DrilledTablespace>,
        bytes: u64,
        staged_bytes: u64,
    ) -> Self {
        Self { tablespaces, bytes, staged_bytes, ..Self::default() }
    }

    /// A file, or a directory with all below it. Links are not followed.
    fn add(&mut self, entry: &DirEntry, below: &Path) -> Result<(), DrillError> {
        let path = entry.path();
        let kind = entry.file_type().map_err(DrillError::read(&path))?;
        let name = entry.file_name();
        if is_temporary(&name.to_string_lossy()) {
            return Ok(());
        }
        let to = below.join(&name);
        if kind.is_dir() {
            self.directories.push(to.clone());
            for entry in entries(&path)? {
                self.add(&entry, &to)?;
            }
        } else if kind.is_file() {
            self.bytes += entry.metadata().map_err(DrillError::read(&path))?.len();
            self.files.push(CopiedFile { from: path, to });
        } else {
            self.notes
                .push(format!("{} is neither a file nor a directory: left out", path.display()));
        }
        Ok(())
    }

    /// Tablespaces are read where their links lead, and copied to the cluster's own directory.
    fn add_tablespaces(&mut self, backup: &Path, major: u32) -> Result<(), DrillError> {
        let place = backup.join("pg_tblspc");
        let mut missing = mapped_tablespaces(backup)?;
        let links = match entries(&place) {
            Err(DrillError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Vec::new()
            }
            found => found?,
        };
        for link in links {
            let Some(oid) = link.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            missing.remove(&oid);
            let path = link.path();
            if link.file_type().map_err(DrillError::read(&path))?.is_dir() {
                // Made "in place": it is a part of the data directory.
                self.add(&link, Path::new("data/pg_tblspc"))?;
                continue;
            }
            self.add_tablespace(oid, &path, major)?;
        }
        for oid in missing {
            self.miss_tablespace(oid);
        }
        Ok(())
    }

    fn add_tablespace(&mut self, oid: u32, link: &Path, major: u32) -> Result<(), DrillError> {
        let below = Path::new("tablespaces").join(oid.to_string());
        let Ok(real) = fs::canonicalize(link) else {
            self.miss_tablespace(oid);
            return Ok(());
        };
        self.directories.push(below.clone());
        for entry in entries(&real)? {
            // Others are of servers of other versions.
            if entry.file_name().to_string_lossy().starts_with(&format!("PG_{major}_")) {
                self.add(&entry, &below)?;
            }
        }
        let path = Some(real.display().to_string());
        self.tablespaces.push(DrilledTablespace { oid, path });
        Ok(())
    }

    /// The copy has an empty one, so that replay finds a place for what it makes there.
    fn miss_tablespace(&mut self, oid: u32) {
        self.directories.push(Path::new("tablespaces").join(oid.to_string()));
        self.tablespaces.push(DrilledTablespace { oid, path: None });
    }

    /// Copies all of it into the cluster's directory, and links its tablespaces there. `progress` is
    /// given the bytes that were copied.
    pub(crate) fn copy(
        &self,
        cluster: &Path,
        writer: CopyWriter,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), DrillError> {
        for directory in &self.directories {
            let path = cluster.join(directory);
            writer.directory(&path).map_err(DrillError::write(&path))?;
        }
        for tablespace in &self.tablespaces {
            link_tablespace(cluster, tablespace.oid, writer)?;
        }
        let mut done = 0;
        for file in &self.files {
            let to = cluster.join(&file.to);
            let mut from =
                pgtoll_system::open_unlinked(&file.from).map_err(DrillError::read(&file.from))?;
            let mut copy = writer.new_file(&to).map_err(DrillError::write(&to))?;
            loop {
                interrupt.check()?;
                let mut piece = io::Read::take(&mut from, PIECE_BYTES);
                let copied = io::copy(&mut piece, &mut copy).map_err(DrillError::write(&to))?;
                if copied == 0 {
                    break;
                }
                done += copied;
                progress(done);
            }
        }
        Ok(())
    }
}

/// Returns the tablespaces of `tablespace_map`, which a server would link at their old places.
fn mapped_tablespaces(backup: &Path) -> Result<BTreeSet<u32>, DrillError> {
    let path = backup.join("tablespace_map");
    match pgtoll_system::read(&path, MAP_BYTES_MAX) {
        Ok(bytes) => Ok(mapped_oids(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(DrillError::read(&path)(error)),
    }
}

/// The entries of a directory, by their names.
pub(crate) fn entries(directory: &Path) -> Result<Vec<DirEntry>, DrillError> {
    let read = || fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>();
    let mut entries = read().map_err(DrillError::read(directory))?;
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

/// Returns whether servers remove or remake the file when they start.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with("pgsql_tmp") || name.starts_with("pg_internal.init")
}

/// Directories whose content belongs to the server that made it: slots hold WAL back, the others are
/// made again at each start. WAL is copied by itself, and links are made.
pub(crate) const MADE_EMPTY: [&str; 11] = [
    "pg_dynshmem",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_tblspc",
    "pg_wal",
    "pg_wal/archive_status",
];

/// Files about the operation of the cluster, which are left out: configuration, place, role, logs.
pub(crate) const LEFT_OUT: [&str; 16] = [
    "backup_label.old",
    "backup_manifest",
    "current_logfiles",
    "log",
    "lost+found",
    "pg_hba.conf",
    "pg_ident.conf",
    "pg_log",
    "postgresql.auto.conf",
    "postgresql.conf",
    "postmaster.opts",
    "postmaster.pid",
    "recovery.signal",
    "standby.signal",
    "tablespace_map",
    "tablespace_map.old",
];

/// Bytes that are copied between two looks at whether a signal came.
const PIECE_BYTES: u64 = 64 << 20;
/// Bytes of a `tablespace_map` at most: a line for each tablespace.
const MAP_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn tablespaces_are_copied_and_links_lead_nowhere_else() {
        let place = tempfile::tempdir().unwrap();
        let backup = place.path().join("backup");
        let space = place.path().join("space");
        for directory in ["pg_tblspc", "pg_wal", "base/1/pgsql_tmp", "global", "log"] {
            fs::create_dir_all(backup.join(directory)).unwrap();
        }
        fs::create_dir_all(space.join("PG_17_202406281/5")).unwrap();
        fs::create_dir_all(space.join("PG_15_202209061/5")).unwrap();
        let write = |path: PathBuf| fs::write(path, "text").unwrap();
        for name in ["PG_VERSION", "postgresql.conf", "base/1/1259", "pg_wal/0", "log/x"] {
            write(backup.join(name));
        }
        write(space.join("PG_17_202406281/5/16400"));
        write(space.join("PG_15_202209061/5/16400"));
        symlink(&space, backup.join("pg_tblspc/16500")).unwrap();
        symlink("/etc", backup.join("elsewhere")).unwrap();
        fs::write(backup.join("tablespace_map"), "16500 /a b\n16501 /srv/other\n").unwrap();
        let layout = CopyLayout::new(&backup, 17).unwrap();
        assert_eq!(layout.bytes, 12);
        let oids: Vec<(u32, bool)> = layout
            .tablespaces
            .iter()
            .map(|tablespace| (tablespace.oid, tablespace.path.is_some()))
            .collect();
        assert_eq!(oids, [(16500, true), (16501, false)]);
        assert!(layout.notes[0].contains("elsewhere"), "{:?}", layout.notes);
        let cluster = place.path().join("copy");
        fs::create_dir(&cluster).unwrap();
        layout.copy(&cluster, CopyWriter::own(), &Interrupt::new(), &mut |_| {}).unwrap();
        let is_there = |path: &str| cluster.join(path).exists();
        assert!(is_there("data/base/1/1259") && is_there("data/pg_wal/archive_status"));
        assert!(is_there("data/pg_tblspc/16500/PG_17_202406281/5/16400"));
        assert!(is_there("data/pg_tblspc/16501") && !is_there("tablespaces/16500/PG_15_202209061"));
        for absent in ["data/postgresql.conf", "data/pg_wal/0", "data/log", "data/elsewhere"] {
            assert!(!is_there(absent), "{absent}");
        }
        let target = fs::read_link(cluster.join("data/pg_tblspc/16500")).unwrap();
        assert!(target.starts_with(&cluster), "{}", target.display());
    }
}
