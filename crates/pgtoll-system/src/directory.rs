//! The directory that a file lies in, opened without following other users' links.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::geteuid;

/// An open directory and the name of a file in it.
#[derive(Debug)]
pub(crate) struct FilePlace {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

impl FilePlace {
    /// Finds the directory of `path`. A symbolic link on the way is followed if root or the caller
    /// owns it; any other link is an error of kind [`io::ErrorKind::PermissionDenied`].
    pub(crate) fn from_path(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in a file's name")
        })?;
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok(Self { directory: walk(parent)?, name: name.to_owned() })
    }

    /// Returns the file of this name; `None`: no such file. A link is not followed.
    pub(crate) fn found(&self) -> io::Result<Option<FileStat>> {
        match fstatat(&self.directory, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(nix::errno::Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the target of a link of this name.
    pub(crate) fn link_target(&self) -> io::Result<OsString> {
        Ok(readlinkat(&self.directory, self.name.as_os_str())?)
    }

    /// Whether every user may make files here, but remove their own only (`/tmp`).
    pub(crate) fn is_shared(&self) -> io::Result<bool> {
        let mode = Mode::from_bits_truncate(fstat(&self.directory)?.st_mode);
        Ok(mode.contains(Mode::S_ISVTX) && mode.intersects(Mode::S_IWOTH | Mode::S_IWGRP))
    }
}

/// Whether root or the caller made this file.
pub(crate) fn is_trusted(file: &FileStat) -> bool {
    file.st_uid == 0 || file.st_uid == geteuid().as_raw()
}

pub(crate) fn is_kind(file: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(file.st_mode) & SFlag::S_IFMT == kind
}

/// As many links as the kernel follows.
const LINKS_MAX: u32 = 40;

fn walk(path: &Path) -> io::Result<OwnedFd> {
    let mut at = root_of(path)?;
    let mut rest = components(path);
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        let next = openat(&at, name.as_os_str(), DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty())?;
        let found = fstat(&next)?;
        if is_kind(&found, SFlag::S_IFDIR) {
            at = next;
            continue;
        }
        if !is_kind(&found, SFlag::S_IFLNK) {
            return Err(nix::errno::Errno::ENOTDIR.into());
        }
        if !is_trusted(&found) {
            return Err(link_of_another_user(&name));
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(nix::errno::Errno::ELOOP.into());
        }
        let target = readlinkat(&next, "")?;
        let target = Path::new(&target);
        if target.is_absolute() {
            at = root_of(target)?;
        }
        let mut longer = components(target);
        longer.extend(rest);
        rest = longer;
    }
    Ok(at)
}

/// The directory is named, not read: search permission is enough.
const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

fn root_of(path: &Path) -> io::Result<OwnedFd> {
    let from = if path.is_absolute() { "/" } else { "." };
    Ok(open(from, DIRECTORY, Mode::empty())?)
}

fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

pub(crate) fn link_of_another_user(name: &OsStr) -> io::Error {
    let message = format!("{} is a symbolic link of another user", name.display());
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}
