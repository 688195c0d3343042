//! The one place that writes files: those of the copy, as the servers' user.
//!
//! The copy lies in a directory of that user. Whatever a process of theirs puts there meanwhile, root
//! follows it no further than they could themselves: the file system sees their user and group.

use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::{Gid, Uid, getegid, geteuid, setfsgid, setfsuid};
use pgtoll_cluster::ServerUser;

use crate::DrillError;

/// Makes files as the servers' user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyWriter {
    /// `None`: the caller is that user.
    user: Option<(Uid, Gid)>,
}

impl CopyWriter {
    pub(crate) fn from_user(user: &ServerUser) -> Self {
        let (uid, gid) = user.ids();
        Self { user: user.changed.then(|| (Uid::from_raw(uid), Gid::from_raw(gid))) }
    }

    /// As the caller.
    #[cfg(test)]
    pub(crate) fn own() -> Self {
        Self { user: None }
    }

    /// Does this as that user. Only the calling thread is affected.
    fn as_user<T>(self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some((uid, gid)) = self.user else { return work() };
        let own_uid = geteuid();
        let own_gid = getegid();
        setfsgid(gid);
        setfsuid(uid);
        let done = work();
        setfsuid(own_uid);
        setfsgid(own_gid);
        done
    }

    /// Whether that user can read this directory and the file of this name in it.
    pub(crate) fn can_read(self, directory: &Path, name: &str) -> io::Result<()> {
        self.as_user(|| {
            std::fs::read_dir(directory)?;
            File::open(directory.join(name)).map(|_| ())
        })
    }

    /// Makes a directory, unless it is there.
    pub(crate) fn directory(self, path: &Path) -> io::Result<()> {
        self.as_user(|| match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made,
        })
    }

    /// A new file.
    pub(crate) fn new_file(self, path: &Path) -> io::Result<File> {
        self.as_user(|| File::options().write(true).create_new(true).mode(0o600).open(path))
    }

    /// A new file with this content.
    pub(crate) fn write_new(self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.new_file(path)?.write_all_at(content, 0)
    }

    /// A new link.
    pub(crate) fn link(self, target: &Path, path: &Path) -> io::Result<()> {
        self.as_user(|| symlink(target, path))
    }

    /// Replaces bytes of a file that is there.
    pub(crate) fn patch(self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.open(path)?.write_all_at(bytes, at)
    }

    /// Fills a file that is there with zeros from here on; its length stays.
    pub(crate) fn zero_from(self, path: &Path, at: u64) -> io::Result<()> {
        let file = self.open(path)?;
        let bytes = file.metadata()?.len();
        file.set_len(at.min(bytes))?;
        file.set_len(bytes)
    }

    /// Removes a file, a link, or a directory with all that is below it.
    pub(crate) fn remove_all(self, path: &Path) -> io::Result<()> {
        self.as_user(|| {
            let is_directory = std::fs::symlink_metadata(path)?.is_dir();
            if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
        })
    }

    /// Removes a file.
    pub(crate) fn remove(self, path: &Path) -> io::Result<()> {
        self.as_user(|| std::fs::remove_file(path))
    }

    fn open(self, path: &Path) -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let open = || File::options().write(true).custom_flags(flags.bits()).open(path);
        self.as_user(open)
    }
}

/// Directories of the copy that were made.
pub(crate) struct MadeDirectories {
    made: HashSet<PathBuf>,
    writer: CopyWriter,
}

impl MadeDirectories {
    pub(crate) fn new(writer: CopyWriter) -> Self {
        Self { made: HashSet::new(), writer }
    }

    /// Makes this directory and those above it, below `to`.
    pub(crate) fn make(&mut self, path: &Path, to: &Path) -> Result<(), DrillError> {
        let mut missing: Vec<&Path> = path
            .ancestors()
            .take_while(|ancestor| *ancestor != to && !self.made.contains(*ancestor))
            .collect();
        while let Some(path) = missing.pop() {
            self.writer.directory(path).map_err(DrillError::write(path))?;
            self.made.insert(path.to_owned());
        }
        Ok(())
    }
}

/// Makes the data directory of what is unpacked, and directories of tablespaces with their links.
pub(crate) fn make_places(
    cluster: &Path,
    tablespaces: impl Iterator<Item = u32>,
    writer: CopyWriter,
) -> Result<(), DrillError> {
    for name in ["data", "tablespaces", "data/pg_tblspc"] {
        let path = cluster.join(name);
        writer.directory(&path).map_err(DrillError::write(&path))?;
    }
    for oid in tablespaces {
        let path = cluster.join("tablespaces").join(oid.to_string());
        writer.directory(&path).map_err(DrillError::write(&path))?;
        link_tablespace(cluster, oid, writer)?;
    }
    Ok(())
}

/// Leads a tablespace's link to the directory of that name beside the copy's data directory.
pub(crate) fn link_tablespace(
    cluster: &Path,
    oid: u32,
    writer: CopyWriter,
) -> Result<(), DrillError> {
    let target = cluster.join("tablespaces").join(oid.to_string());
    let link = cluster.join("data/pg_tblspc").join(oid.to_string());
    match writer.link(&target, &link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(DrillError::write(&link)),
    }
}
