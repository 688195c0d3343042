//! Whose rights the guard has, and what it may use with them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, Gid, Uid, access, setgroups, setresgid, setresuid};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::ServerUser;
use crate::guard::protocol::Reply;

/// From here on the guard has no more rights than the servers.
pub(super) fn change_to(user: &ServerUser) -> io::Result<()> {
    if user.changed {
        let uid = Uid::from_raw(user.uid);
        let gid = Gid::from_raw(user.gid);
        setgroups(&[gid])?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
    }
    // Python, for one, looks for modules where it is started.
    std::env::set_current_dir("/")
}

pub(super) fn check_executable(path: &Path) -> Reply {
    match closed_part(path) {
        Some((path, purpose)) => Reply::Closed { path, purpose: purpose.into() },
        None => Reply::Done,
    }
}

/// The first part of `path` that this process may not enter or execute, and which of both.
pub(in crate::guard) fn closed_part(path: &Path) -> Option<(PathBuf, &'static str)> {
    let closed = first_closed(path, AccessFlags::X_OK)?;
    let purpose = if closed.is_file() { "execute" } else { "enter" };
    Some((closed, purpose))
}

/// Lets ext4 place the files of each cluster in another part of the disk. Beside a cluster that was
/// removed within minutes it looks at each of its inodes for each new file: making a cluster then
/// takes five to twenty times its CPU.
pub(super) fn spread_clusters(directory: &Path) {
    let spread = || -> io::Result<()> {
        let directory = File::open(directory)?;
        let flags = ioctl_getflags(&directory)?;
        Ok(ioctl_setflags(&directory, flags | IFlags::TOPDIR)?)
    };
    // Other file systems do not have the flag, and all continues without.
    let _ = spread();
}

/// The first part of `path`, from the root on, that this process may not use as `wanted`.
pub(super) fn first_closed(path: &Path, wanted: AccessFlags) -> Option<PathBuf> {
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    parts.into_iter().find(|part| access(*part, wanted) == Err(Errno::EACCES)).map(Path::to_owned)
}
