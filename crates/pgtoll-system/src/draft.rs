//! Writing: complete, or not at all.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, linkat, unlinkat};

use crate::directory::{FilePlace, is_kind, is_trusted, link_of_another_user};

/// A file that is being written: mode 0600, under a random name in the directory where it will
/// stay. Dropping it before it is published removes it.
#[derive(Debug)]
pub struct Draft {
    place: FilePlace,
    temporary: OsString,
    file: File,
    published: bool,
}

impl Draft {
    /// A draft of the file `path`. Nothing has that name because of it yet.
    pub fn from_path(path: &Path) -> io::Result<Self> {
        Self::at(FilePlace::from_path(path)?)
    }

    fn at(place: FilePlace) -> io::Result<Self> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for _ in 0..NAME_TRIES {
            let temporary = OsString::from(format!(".pgtoll-{:016x}", random()));
            let mode = Mode::S_IRUSR | Mode::S_IWUSR;
            match openat(&place.directory, temporary.as_os_str(), flags, mode) {
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(file) => {
                    return Ok(Self { place, temporary, file: file.into(), published: false });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The file, for more than [`Write`].
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file the mode that the umask leaves of 0666: a result that other users may read.
    pub fn share(&self) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(0o666 & !umask()))
    }

    /// Syncs the content and gives the file its name, in place of what has that name. A link is
    /// replaced, not followed.
    pub fn replace(mut self) -> io::Result<File> {
        self.file.sync_data()?;
        let directory = &self.place.directory;
        renameat(directory, self.temporary.as_os_str(), directory, self.place.name.as_os_str())?;
        self.published = true;
        self.file.try_clone()
    }

    /// Syncs the content and gives the file its name, unless something has that name: then an
    /// error of kind [`io::ErrorKind::AlreadyExists`].
    pub fn publish_new(self) -> io::Result<File> {
        self.file.sync_data()?;
        let directory = &self.place.directory;
        let name = self.place.name.as_os_str();
        // The temporary name goes when `self` is dropped.
        linkat(directory, self.temporary.as_os_str(), directory, name, AtFlags::empty())?;
        self.file.try_clone()
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published {
            let name = self.temporary.as_os_str();
            // The directory may be gone.
            let _ = unlinkat(&self.place.directory, name, UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// A name that exists already is another program's.
const NAME_TRIES: u32 = 16;

/// Unpredictable enough: a name that exists is never opened.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Writes a file that only its owner may read (state, undo data, journals): complete, mode 0600, in
/// place of what has that name.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut draft = Draft::from_path(path)?;
    draft.write_all(content)?;
    draft.replace().map(drop)
}

/// Makes a file that only its owner may read and that grows while it is written: a name that is taken is an
/// error of kind [`io::ErrorKind::AlreadyExists`], unless it is a character device of root (`/dev/null`).
pub fn create_private(path: &Path) -> io::Result<File> {
    let place = FilePlace::from_path(path)?;
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let new = flags | OFlag::O_CREAT | OFlag::O_EXCL;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    match openat(&place.directory, place.name.as_os_str(), new, mode) {
        Err(Errno::EEXIST) => {}
        opened => return Ok(opened?.into()),
    }
    let is_device = |found: &FileStat| is_kind(found, SFlag::S_IFCHR) && found.st_uid == 0;
    if !place.found()?.as_ref().is_some_and(is_device) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let file = openat(&place.directory, place.name.as_os_str(), flags, Mode::empty())?;
    if is_device(&fstat(&file)?) {
        Ok(file.into())
    } else {
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Adds to the end of a file that only its owner may read, in one write. The file is made if it is
/// not there; a link, a FIFO, a device or another user's file is an error.
pub fn append_private(path: &Path, content: &[u8]) -> io::Result<()> {
    open_append_private(path)?.write_all(content)
}

/// Opens a file as [`append_private`] does, for a process that becomes another user before it writes.
pub fn open_append_private(path: &Path) -> io::Result<File> {
    let place = FilePlace::from_path(path)?;
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NONBLOCK;
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = openat(&place.directory, place.name.as_os_str(), flags, mode)?;
    let found = fstat(&file)?;
    if !is_kind(&found, SFlag::S_IFREG) || !is_trusted(&found) {
        let message = "not a regular file of root or the caller";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(file.into())
}

/// Writes a result to the path that a user named for it.
///
/// * A new file gets the mode that the umask leaves of 0666.
/// * A regular file is replaced, complete; it keeps its owner, group and mode.
/// * A pipe or a character device (`/dev/stdout`, a FIFO) is written to; a block device or a
///   directory is an error.
/// * A link is followed if root or the caller made it.
/// * Other users' files and FIFOs in a directory that everybody may write to (`/tmp`) are an error
///   of kind [`io::ErrorKind::PermissionDenied`].
pub fn write_output(path: &Path, content: &[u8]) -> io::Result<()> {
    write_output_through(path, content, LINKS_MAX)
}

const LINKS_MAX: u32 = 40;

fn write_output_through(path: &Path, content: &[u8], links_left: u32) -> io::Result<()> {
    let place = FilePlace::from_path(path)?;
    let found = place.found()?;
    let Some(found) = found else { return write_new(place, content) };
    if !is_trusted(&found) && place.is_shared()? {
        let message = "it belongs to another user, in a directory that everybody may write to";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    if is_kind(&found, SFlag::S_IFREG) {
        return replace_output(place, content, &found);
    }
    if is_kind(&found, SFlag::S_IFLNK) {
        if !is_trusted(&found) {
            return Err(link_of_another_user(&place.name));
        }
        // What `/proc/self/fd` has only looks like a link: a descriptor may have no path.
        if std::fs::metadata(path).is_ok_and(|target| !target.is_file()) {
            return write_through(path, content);
        }
        let links_left = links_left.checked_sub(1).ok_or(Errno::ELOOP)?;
        let target = path.parent().unwrap_or(Path::new("")).join(place.link_target()?);
        return write_output_through(&target, content, links_left);
    }
    write_through(path, content)
}

fn write_new(place: FilePlace, content: &[u8]) -> io::Result<()> {
    let mut draft = Draft::at(place)?;
    draft.write_all(content)?;
    draft.share()?;
    draft.replace().map(drop)
}

fn replace_output(place: FilePlace, content: &[u8], old: &FileStat) -> io::Result<()> {
    let mut draft = Draft::at(place)?;
    draft.write_all(content)?;
    let user = Uid::from_raw(old.st_uid);
    let group = Gid::from_raw(old.st_gid);
    let kept = fchown(&draft.file, Some(user), Some(group));
    let mode = match kept {
        Ok(()) => old.st_mode & 0o777,
        // Another user's group or name cannot be given away: it must not gain access by that.
        Err(_) => old.st_mode & 0o700,
    };
    draft.file.set_permissions(Permissions::from_mode(mode))?;
    draft.replace().map(drop)
}

/// Writes to a pipe, a terminal or another character device.
fn write_through(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
    let flags = OFlag::O_NOCTTY.bits();
    let mut file = File::options().write(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a block device"));
    }
    file.write_all(content)
}

/// The process's umask, read without changing it: another thread may be making a file.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    // Without /proc, a file that only its owner can read is the safe choice.
    octal.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o077)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn names(directory: &Path) -> Vec<OsString> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_private_file_replaces_a_link_and_leaves_its_target() {
        let directory = tempfile::tempdir().unwrap();
        let precious = directory.path().join("precious");
        let state = directory.path().join("state");
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &state).unwrap();
        write_private(&state, b"new").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&state).unwrap(), "new");
        assert_eq!(mode(&state), 0o100_600 & 0o7777);
    }

    #[test]
    fn an_unpublished_draft_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut draft = Draft::from_path(&directory.path().join("state")).unwrap();
        draft.write_all(b"half").unwrap();
        drop(draft);
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_new_file_does_not_replace_an_existing_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        fs::write(&path, "other").unwrap();
        let refused = Draft::from_path(&path).unwrap().publish_new().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "other");
        assert_eq!(names(directory.path()), ["lock"]);
        fs::remove_file(&path).unwrap();
        let file = Draft::from_path(&path).unwrap().publish_new().unwrap();
        assert_eq!(file.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
        assert_eq!(names(directory.path()), ["lock"]);
    }

    #[test]
    fn an_output_keeps_the_mode_of_the_file_that_it_replaces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.html");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write_output(&path, b"new").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("new", 0o600));
    }

    #[test]
    fn an_own_link_leads_to_the_output_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.html");
        let link = directory.path().join("latest");
        symlink("report.html", &link).unwrap();
        write_output(&link, b"first").unwrap();
        write_output(&link, b"second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn another_users_links_and_shared_files_are_refused() {
        if !nix::unistd::geteuid().is_root() {
            // Only root can make another user's link. The suite of CI runs as root.
            return;
        }
        let nobody = (Some(Uid::from_raw(65534)), Some(Gid::from_raw(65534)));
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("real")).unwrap();
        let link = directory.path().join("link");
        symlink("real", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), Some(65534)).unwrap();
        for through in [link.join("state"), link.clone()] {
            let refused = write_output(&through, b"x").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{through:?}");
        }
        assert!(write_private(&link.join("state"), b"x").is_err());

        fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
        let planted = directory.path().join("planted");
        fs::write(&planted, "").unwrap();
        fchown(File::open(&planted).unwrap(), nobody.0, nobody.1).unwrap();
        let refused = write_output(&planted, b"x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn lines_are_added_to_an_own_file_and_not_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        let link = directory.path().join("link");
        append_private(&path, b"1\n").unwrap();
        append_private(&path, b"2\n").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("1\n2\n", 0o600));
        symlink(&path, &link).unwrap();
        assert!(append_private(&link, b"3\n").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        write_output(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(write_output(directory.path(), b"x").is_err());
        assert!(write_output(Path::new("/"), b"x").is_err());
    }

    #[test]
    fn a_private_file_takes_no_name_that_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan");
        create_private(&path).unwrap().write_all(b"x").unwrap();
        assert_eq!(mode(&path) & 0o777, 0o600);
        let link = directory.path().join("link");
        symlink("/dev/null", &link).unwrap();
        for taken in [path.as_path(), &link, directory.path()] {
            let error = create_private(taken).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{}", taken.display());
        }
        create_private(Path::new("/dev/null")).unwrap().write_all(b"x").unwrap();
        let mut full = create_private(Path::new("/dev/full")).unwrap();
        assert_eq!(full.write_all(b"x").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
