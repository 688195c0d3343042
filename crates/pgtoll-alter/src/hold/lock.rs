//! `postmaster.pid`: the one that was found, and the one that is ours.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::signal::kill;
use nix::sys::stat::fstatat;
use nix::unistd::{Pid, geteuid};
use pgtoll_system::Draft;

use pgtoll_datadir::LOCK_BYTES_MAX;

use crate::WriteError;

const NAME: &str = "postmaster.pid";

/// The place of the lock of a data directory.
pub(super) fn path(data: &Path) -> PathBuf {
    data.join(NAME)
}

/// A lock that another process left: the one that it names cannot be seen, and is gone or runs in
/// another PID namespace or on another host.
#[derive(Debug)]
pub(super) struct LeftLock {
    /// Open, so that no other file gets this one's inode.
    file: File,
    /// As the file names it; without the minus of a single-user server.
    pub(super) pid: i32,
    /// A postmaster's; a single-user server and pgtoll put a minus before their pid.
    is_postmaster: bool,
}

impl LeftLock {
    /// Reads the lock of a data directory that `owner` owns. `None`: there is none. An error where
    /// the process that it names runs, or shared memory of it is in use.
    pub(super) fn find(data: &Path, owner: u32) -> Result<Option<Self>, WriteError> {
        let path = path(data);
        let file = match pgtoll_system::open_unlinked(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if is_no_file(&error) => return Err(WriteError::LockKind { path }),
            Err(source) => return Err(WriteError::Read { path, source }),
        };
        let mut text = String::new();
        let read = (&file).take(LOCK_BYTES_MAX).read_to_string(&mut text);
        match read {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(WriteError::BadLock { path });
            }
            read => read.map_err(WriteError::read(&path))?,
        };
        let number = text.lines().next().and_then(|line| line.trim().parse::<i32>().ok());
        let pid = number.and_then(i32::checked_abs).filter(|&pid| pid > 0);
        let (Some(number), Some(pid)) = (number, pid) else {
            return Err(WriteError::BadLock { path });
        };
        let left = Self { file, pid, is_postmaster: number > 0 };
        // Any process on this host that holds it, in whichever PID namespace.
        let is_flocked = matches!(left.file.try_lock_shared(), Err(TryLockError::WouldBlock));
        let is_of_pgtoll = text.lines().nth(MARK_LINE) == Some(MARK);
        let is_used = match is_of_pgtoll {
            true if is_flocked => {
                return Err(WriteError::HeldByPgtoll { path: data.to_owned(), pid });
            }
            // Its maker had it locked, and is gone: another process may have its pid by now.
            true => false,
            false => is_flocked || (!left.is_own_pid() && is_running(pid, owner)),
        };
        if is_used {
            return Err(WriteError::Running { path: data.to_owned(), pid });
        }
        // `key id`: backends may have outlived their postmaster.
        let shared = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        match shared.and_then(|id| id.parse().ok()).filter(|&id| is_attached(id)) {
            Some(id) => Err(WriteError::SharedMemory { path: data.to_owned(), id }),
            None => Ok(Some(left)),
        }
    }

    /// Whether it is a postmaster's that has the pid of this process: in another PID namespace.
    pub(super) fn names_this_process(&self) -> bool {
        self.is_postmaster && self.is_own_pid()
    }

    fn is_own_pid(&self) -> bool {
        u32::try_from(self.pid) == Ok(std::process::id())
    }

    /// Removes this very file; another one that has its name by now stays.
    fn remove(&self, data: &Path) -> io::Result<()> {
        remove(data, identity(&self.file)?)
    }
}

/// A link, a socket, or no regular file.
fn is_no_file(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
        || [Errno::ELOOP, Errno::ENXIO]
            .iter()
            .any(|item| error.raw_os_error() == Some(*item as i32))
}

/// `postmaster.pid`, made by us.
#[derive(Debug)]
pub(super) struct Lock {
    data: PathBuf,
    /// The data directory, for looks at the lock that cost little.
    directory: File,
    /// Open and locked (`flock`) as long as we live; no other file gets its inode.
    _file: File,
    made: (u64, u64),
}

impl Lock {
    /// Makes the file in `data`, which is absolute and without links; in place of one that
    /// `left` finds and approves of.
    pub(super) fn make(
        data: &Path,
        left: impl Fn() -> Result<Option<LeftLock>, WriteError>,
    ) -> Result<Self, WriteError> {
        let path = path(data);
        let error = |source| WriteError::Lock { path: path.clone(), source };
        let flags = (OFlag::O_DIRECTORY | OFlag::O_PATH).bits();
        let directory = File::options().read(true).custom_flags(flags).open(data);
        let directory = directory.map_err(error)?;
        for _ in 0..LOCK_TRIES {
            if let Some(left) = left()? {
                left.remove(data).map_err(error)?;
            }
            match publish(&path) {
                Ok(file) => {
                    let made = identity(&file).map_err(error)?;
                    return Ok(Self { data: data.to_owned(), directory, _file: file, made });
                }
                Err(exists) if exists.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(error(source)),
            }
        }
        Err(WriteError::Lost { path: data.to_owned(), overwritten: Vec::new() })
    }

    pub(super) fn is_ours(&self) -> bool {
        let found = fstatat(&self.directory, NAME, AtFlags::AT_SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == self.made)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if remove(&self.data, self.made).is_err() && self.is_ours() {
            // Where that fails too, a server finds that the process is gone.
            let _ = fs::remove_file(path(&self.data));
        }
    }
}

/// Another process may make a lock each time that one was taken away.
const LOCK_TRIES: usize = 10;

/// Gives a complete file its name, locked already.
fn publish(path: &Path) -> io::Result<File> {
    let mut draft = Draft::from_path(path)?;
    let is_locked = draft.file().try_lock().is_ok();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let data = path.parent().unwrap_or(Path::new("/")).display();
    // The lines of a single-user server: process, directory, start, port, socket.
    let text = format!("-{}\n{data}\n{now}\n0\n\n", std::process::id());
    let mark = if is_locked { format!("\n\n{MARK}\n") } else { String::new() };
    draft.write_all((text + &mark).as_bytes())?;
    draft.publish_new()
}

/// In the line of a postmaster's state. PostgreSQL reads it only while a server starts.
const MARK: &str = "pgtoll";
const MARK_LINE: usize = 7;

/// Device and inode.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}

/// Removes the lock of `data` if it is this file. It is moved aside first: between a look and
/// `unlink` another process could replace it.
fn remove(data: &Path, wanted: (u64, u64)) -> io::Result<()> {
    let path = path(data);
    let mut aside = tempfile::Builder::new();
    let aside = aside.prefix(".pgtoll-").make_in(data, |aside| fs::rename(&path, aside));
    let aside = match aside {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        aside => aside?,
    };
    let moved = fs::symlink_metadata(aside.path())?;
    if (moved.dev(), moved.ino()) != wanted {
        match fs::hard_link(aside.path(), &path) {
            // A third process was faster; the second one finds that its lock is gone.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => fs::rename(aside.path(), &path)?,
            Ok(()) => {}
        }
    }
    aside.close()
}

/// Whether a process of this pid runs, as root's or `owner`'s. One of another user is no server's:
/// only the owner of a data directory can run one.
fn is_running(pid: i32, owner: u32) -> bool {
    if matches!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH | Errno::EPERM)) {
        return false;
    }
    // Root may send signals to all.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let is_owners = |users: &str| users.split_whitespace().any(|uid| uid.parse() == Ok(owner));
    !geteuid().is_root() || users.is_none_or(is_owners)
}

/// Whether a process uses the System V segment of this identifier.
fn is_attached(id: i64) -> bool {
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    segments.lines().skip(1).any(|line| {
        let fields: Vec<i64> =
            line.split_whitespace().map(|field| field.parse().unwrap_or(-1)).collect();
        fields.get(1) == Some(&id) && fields.get(6).is_some_and(|&attached| attached > 0)
    })
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// A pid above the highest that Linux gives.
    const GONE: i32 = 1 << 30;

    fn data_with_lock(text: &str) -> tempfile::TempDir {
        let data = tempfile::tempdir().unwrap();
        fs::write(path(data.path()), text).unwrap();
        data
    }

    fn find(data: &Path) -> Result<Option<LeftLock>, WriteError> {
        LeftLock::find(data, geteuid().as_raw())
    }

    fn make(data: &Path) -> Result<Lock, WriteError> {
        Lock::make(data, || find(data))
    }

    fn inode(data: &Path) -> u64 {
        fs::metadata(path(data)).unwrap().ino()
    }

    fn names(data: &Path) -> Vec<std::ffi::OsString> {
        fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_lock_of_a_process_that_is_gone_is_replaced_and_removed_in_the_end() {
        let data = data_with_lock(&format!("{GONE}\n"));
        let lock = make(data.path()).unwrap();
        let text = fs::read_to_string(path(data.path())).unwrap();
        assert!(text.starts_with(&format!("-{}\n", std::process::id())), "{text}");
        assert!(lock.is_ours());
        assert_eq!(names(data.path()), [NAME]);
        drop(lock);
        assert!(names(data.path()).is_empty());
    }

    #[test]
    fn a_lock_that_replaced_the_one_that_was_judged_stays() {
        let data = data_with_lock(&format!("{GONE}\n"));
        let left = find(data.path()).unwrap().unwrap();
        fs::remove_file(path(data.path())).unwrap();
        fs::write(path(data.path()), "77\n").unwrap();
        let competitor = inode(data.path());
        left.remove(data.path()).unwrap();
        assert_eq!(inode(data.path()), competitor);
        assert_eq!(fs::read_to_string(path(data.path())).unwrap(), "77\n");
        assert_eq!(names(data.path()), [NAME]);
    }

    #[test]
    fn a_lock_that_another_process_replaced_is_not_ours_and_stays() {
        let data = tempfile::tempdir().unwrap();
        let lock = make(data.path()).unwrap();
        fs::remove_file(path(data.path())).unwrap();
        assert!(!lock.is_ours());
        fs::write(path(data.path()), "77\n").unwrap();
        assert!(!lock.is_ours());
        drop(lock);
        assert_eq!(fs::read_to_string(path(data.path())).unwrap(), "77\n");
    }

    #[test]
    fn a_second_pgtoll_is_recognised_whatever_pid_its_namespace_gives_it() {
        let data = tempfile::tempdir().unwrap();
        let lock = make(data.path()).unwrap();
        // It has this process's pid, as two that are process 1 in their containers.
        let held = find(data.path()).unwrap_err();
        assert!(matches!(held, WriteError::HeldByPgtoll { .. }), "{held:?}");
        // What a killed one leaves: the same bytes, and no lock on them.
        let text = fs::read(path(data.path())).unwrap();
        drop(lock);
        fs::write(path(data.path()), &text).unwrap();
        make(data.path()).unwrap();
    }

    #[test]
    fn a_killed_pgtolls_lock_is_left_over_though_another_process_has_its_pid() {
        let text =
            |mark| format!("-{}\n/x\n1\n0\n\n\n\n{mark}\n", std::os::unix::process::parent_id());
        let data = data_with_lock(&text(MARK));
        assert!(find(data.path()).unwrap().is_some());
        let data = data_with_lock(&text("ready"));
        let runs = find(data.path()).unwrap_err();
        assert!(matches!(runs, WriteError::Running { .. }), "{runs:?}");
    }

    #[test]
    fn a_servers_lock_with_our_pid_is_told_from_pgtolls() {
        let own = std::process::id();
        let data = data_with_lock(&format!("{own}\n/x\n1\n5432\n"));
        assert!(find(data.path()).unwrap().unwrap().names_this_process());
        let data = data_with_lock(&format!("-{own}\n/x\n1\n0\n"));
        assert!(!find(data.path()).unwrap().unwrap().names_this_process());
    }

    #[test]
    fn what_is_no_lock_is_refused_without_waiting() {
        let check = |make: &dyn Fn(&Path)| {
            let data = tempfile::tempdir().unwrap();
            make(&path(data.path()));
            find(data.path()).unwrap_err()
        };
        for text in ["", "x\n", "0\n", "-2147483648\n"] {
            let bad = check(&|path| fs::write(path, text).unwrap());
            assert!(matches!(bad, WriteError::BadLock { .. }), "{bad:?}");
        }
        let bad = check(&|path| fs::write(path, [0xff, 0xfe]).unwrap());
        assert!(matches!(bad, WriteError::BadLock { .. }), "{bad:?}");
        let fifo = check(&|path| mkfifo(path, Mode::S_IRWXU).unwrap());
        let link = check(&|path| std::os::unix::fs::symlink("/dev/zero", path).unwrap());
        let directory = check(&|path| fs::create_dir(path).unwrap());
        let socket = check(&|path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()));
        for kind in [fifo, link, directory, socket] {
            assert!(matches!(kind, WriteError::LockKind { .. }), "{kind:?}");
        }
    }
}
