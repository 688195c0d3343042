//! The directory beside a data directory that has the undo files and the ledger of its repairs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::error::RepairError;
use crate::hold::become_owner_of;

/// `<PGDATA>.pgtoll`: of the data directory's owner, and of nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairDirectory {
    data: PathBuf,
    path: PathBuf,
}

impl RepairDirectory {
    /// The directory that belongs to a data directory, by that one's real path.
    pub fn beside(data: &Path) -> Result<Self, RepairError> {
        let error = |source| RepairError::Directory { path: data.to_owned(), source };
        let data = fs::canonicalize(data).map_err(error)?;
        let mut path = data.clone().into_os_string();
        path.push(".pgtoll");
        Ok(Self { data, path: path.into() })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ledger: a line for each attempt to write.
    pub fn ledger(&self) -> PathBuf {
        self.path.join("ledger.jsonl")
    }

    /// The file for a new repair, by its time.
    pub fn undo_file(&self, time: &str) -> PathBuf {
        self.path.join(format!("{time}{UNDO}"))
    }

    /// Makes it where it is missing, and makes a process of root that of the data directory's owner,
    /// for good.
    ///
    /// Root makes it itself only where nobody else can write to the directory above it: elsewhere
    /// another user could exchange it before it is handed over.
    pub fn make(&self) -> Result<(), RepairError> {
        let error = |source| RepairError::Directory { path: self.path.clone(), source };
        let owner = fs::metadata(&self.data).map_err(error)?;
        if geteuid().is_root() && self.is_missing() && self.has_safe_parent().map_err(error)? {
            create(&self.path).map_err(error)?;
            lchown(&self.path, Some(owner.uid()), Some(owner.gid())).map_err(error)?;
        }
        become_owner_of(&self.data)?;
        if self.is_missing() {
            create(&self.path).map_err(error)?;
        }
        let made = fs::symlink_metadata(&self.path).map_err(error)?;
        let is_private = made.mode() & OTHERS == 0;
        if made.is_dir() && made.uid() == owner.uid() && is_private {
            return Ok(());
        }
        Err(RepairError::SharedDirectory { path: self.path.clone() })
    }

    fn is_missing(&self) -> bool {
        let found = fs::symlink_metadata(&self.path);
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether only root can write to the directory above.
    fn has_safe_parent(&self) -> io::Result<bool> {
        let parent = fs::metadata(self.path.parent().unwrap_or(Path::new("/")))?;
        Ok(parent.uid() == 0 && parent.mode() & 0o022 == 0)
    }

    /// The undo file of the last repair that was not taken back; `None`: there is none.
    pub fn last_undo_file(&self) -> Result<Option<PathBuf>, RepairError> {
        let error = |source| RepairError::Directory { path: self.path.clone(), source };
        let entries = match fs::read_dir(&self.path) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.map_err(error)?,
        };
        let mut last = None;
        for entry in entries {
            let name = entry.map_err(error)?.file_name();
            if name.to_str().is_some_and(|name| name.ends_with(UNDO)) {
                last = last.max(Some(name));
            }
        }
        Ok(last.map(|name| self.path.join(name)))
    }

    /// Renames an undo file of this directory whose repair was taken back, so that it is not found
    /// again. Leaves files elsewhere as they are.
    pub fn retire(&self, undo_file: &Path) -> Result<(), RepairError> {
        if undo_file.parent() != Some(&self.path) {
            return Ok(());
        }
        let mut undone = undo_file.to_owned().into_os_string();
        undone.push(".undone");
        let error = |source| RepairError::Directory { path: self.path.clone(), source };
        fs::rename(undo_file, undone).map_err(error)
    }
}

fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// The rights of all but the owner.
const OTHERS: u32 = 0o077;
/// How names of undo files end.
const UNDO: &str = ".undo.json";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn beside() -> (tempfile::TempDir, RepairDirectory) {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("data")).unwrap();
        let directory = RepairDirectory::beside(&place.path().join("data")).unwrap();
        (place, directory)
    }

    #[test]
    fn the_last_repair_that_stands_is_undone_first() {
        let (_place, directory) = beside();
        assert_eq!(directory.last_undo_file().unwrap(), None);
        directory.make().unwrap();
        directory.make().unwrap();
        let mode = fs::metadata(directory.path()).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700);
        let first = directory.undo_file("20260101");
        let second = directory.undo_file("20260102");
        for path in [&second, &first, &directory.ledger()] {
            fs::write(path, "").unwrap();
        }
        assert_eq!(directory.last_undo_file().unwrap().as_ref(), Some(&second));
        directory.retire(&second).unwrap();
        assert_eq!(directory.last_undo_file().unwrap().as_ref(), Some(&first));
        directory.retire(&first).unwrap();
        assert_eq!(directory.last_undo_file().unwrap(), None);
    }

    #[test]
    fn a_planted_directory_is_refused() {
        let (place, directory) = beside();
        symlink(place.path(), directory.path()).unwrap();
        assert!(matches!(directory.make(), Err(RepairError::SharedDirectory { .. })));
        fs::remove_file(directory.path()).unwrap();
        fs::create_dir(directory.path()).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(directory.make(), Err(RepairError::SharedDirectory { .. })));
        fs::remove_dir(directory.path()).unwrap();
        fs::write(directory.path(), "").unwrap();
        assert!(matches!(directory.make(), Err(RepairError::SharedDirectory { .. })));
    }
}
