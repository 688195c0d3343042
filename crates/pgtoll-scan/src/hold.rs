//! A data directory that is held: no server runs on it, and none can start.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Gid, Pid, Uid, geteuid, setgroups, setresgid, setresuid};
use pgtoll_format::{CONTROL_FILE_BYTES, ClusterState, ControlFile};

use crate::{ScanError, WriteError};

/// A data directory whose `postmaster.pid` is ours. Dropping it lets the directory go.
///
/// The file names this process as PostgreSQL's single-user server would: by its pid with a minus.
/// `pg_ctl` then neither starts a server nor sends a signal. When this process is killed, the file
/// names a process that is gone, and the next server takes it away.
#[derive(Debug)]
pub struct Hold {
    data: PathBuf,
    lock: Lock,
    control: ControlFile,
    control_bytes: Vec<u8>,
}

impl Hold {
    /// Takes hold of a data directory whose server was stopped in good order.
    ///
    /// A server passes over a lock whose process belongs to somebody else. So a process of root
    /// becomes the directory's owner, altogether and for good; any other user has to be the owner.
    pub fn take(data: &Path) -> Result<Self, WriteError> {
        let hold = Self::take_as_left(data)?;
        match hold.control.state {
            ClusterState::ShutDown | ClusterState::ShutDownInRecovery => Ok(hold),
            state => Err(WriteError::NotShutDown { path: data.to_owned(), state }),
        }
    }

    /// Takes hold of a data directory however its server ended: after a crash, of a backup.
    pub fn take_as_left(data: &Path) -> Result<Self, WriteError> {
        let found = fs::metadata(data).map_err(WriteError::read(data))?;
        become_owner(data, found.uid(), found.gid())?;
        // What is no data directory gets no file.
        crate::control_file(data)?;
        let lock = Lock::make(data)?;
        // Only now nobody else changes it.
        let (control_bytes, control) = (read_control(data)?, crate::control_file(data)?);
        Ok(Self { data: data.to_owned(), lock, control, control_bytes })
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// What the control file said when the directory was taken.
    pub fn control(&self) -> &ControlFile {
        &self.control
    }

    /// The control file's bytes at that moment.
    pub(crate) fn control_bytes(&self) -> &[u8] {
        &self.control_bytes
    }

    /// Where the control file is.
    pub(crate) fn control_path(&self) -> PathBuf {
        control_path(&self.data)
    }

    /// Says so when somebody has taken the lock away, or changed the control file, in spite of the
    /// lock: a server in another container may not see this process.
    pub fn check(&self) -> Result<(), WriteError> {
        let lost = || WriteError::Lost { path: self.data.clone() };
        if !self.lock.is_ours() || read_control(&self.data)? != self.control_bytes {
            return Err(lost());
        }
        Ok(())
    }

    /// Writes into the control file whether pages have checksums, as a server writes it: in place,
    /// in one piece. Whatever is on the pages has to be on disk before.
    pub(crate) fn set_checksum_version(&self, version: u32, sync: bool) -> Result<(), WriteError> {
        self.check()?;
        let path = control_path(&self.data);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let bytes = ControlFile::with_checksum_version(&self.control_bytes, version, now)
            .map_err(|source| ScanError::Control { path: path.clone(), source })?;
        let write = || {
            let file = File::options().write(true).open(&path)?;
            file.write_all_at(&bytes, 0)?;
            if sync { file.sync_all() } else { Ok(()) }
        };
        write().map_err(|source| WriteError::Write { path: path.clone(), source })
    }
}

fn control_path(data: &Path) -> PathBuf {
    data.join("global/pg_control")
}

fn read_control(data: &Path) -> Result<Vec<u8>, WriteError> {
    let path = control_path(data);
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(CONTROL_FILE_BYTES as u64).read_to_end(&mut bytes))
        .map_err(WriteError::read(&path))?;
    Ok(bytes)
}

fn become_owner(data: &Path, uid: u32, gid: u32) -> Result<(), WriteError> {
    let own = geteuid();
    // A server that runs as root there is not, and only a directory's owner can run one on it.
    if own.as_raw() == uid {
        return Ok(());
    }
    if !own.is_root() {
        return Err(WriteError::NotOwner { path: data.to_owned(), uid });
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let become_it = || {
        setgroups(&[gid])?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)
    };
    become_it().map_err(|error| WriteError::Become { uid: uid.as_raw(), source: error.into() })
}

/// `postmaster.pid`, made by us.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    /// Which file was made: its device and its inode.
    made: (u64, u64),
}

impl Lock {
    /// Makes the file, in place of one whose process is gone, as `CreateLockFile` does.
    fn make(data: &Path) -> Result<Self, WriteError> {
        let path = data.join("postmaster.pid");
        for _ in 0..LOCK_TRIES {
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    let made = fill(&file, data);
                    let made = made.inspect_err(|_| drop(fs::remove_file(&path)));
                    return match made {
                        Ok(made) => Ok(Self { path, made }),
                        Err(source) => Err(WriteError::Write { path, source }),
                    };
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => stale(data, &path)?,
                Err(source) => return Err(WriteError::Write { path, source }),
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(WriteError::Write { path, source: error });
                }
                _ => {}
            }
        }
        Err(WriteError::Lost { path: data.to_owned() })
    }

    fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.made)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_ours() {
            // Where that fails, a server finds that the process is gone.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Somebody else may make a lock each time that one was taken away.
const LOCK_TRIES: usize = 10;

/// The lines of a single-user server.
fn fill(mut file: &File, data: &Path) -> io::Result<(u64, u64)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let data = fs::canonicalize(data)?;
    let text = format!("-{}\n{}\n{now}\n0\n\n", std::process::id(), data.display());
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    let made = file.metadata()?;
    Ok((made.dev(), made.ino()))
}

/// An error unless the process that the lock names is gone, and all that shared memory with it.
fn stale(data: &Path, path: &Path) -> Result<(), WriteError> {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(LOCK_BYTES_MAX).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(WriteError::read(path))?,
    };
    let pid = text.lines().next().and_then(|line| line.trim().parse::<i32>().ok());
    let pid = pid.and_then(i32::checked_abs).filter(|&pid| pid > 0);
    let pid = pid.ok_or_else(|| WriteError::BadLock { path: path.to_owned() })?;
    let is_own = u32::try_from(pid) == Ok(std::process::id());
    // A process of another user is not one of a server here.
    if !is_own && !matches!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH | Errno::EPERM)) {
        return Err(WriteError::Running { path: data.to_owned(), pid });
    }
    // `key id`: backends may have outlived their postmaster.
    let shared = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
    match shared.and_then(|id| id.parse().ok()).filter(|&id| is_attached(id)) {
        Some(id) => Err(WriteError::SharedMemory { path: data.to_owned(), id }),
        None => Ok(()),
    }
}

/// A server's file has eight short lines and two paths.
const LOCK_BYTES_MAX: u64 = 1 << 14;

/// Whether a process uses the System V segment of this identifier.
fn is_attached(id: i64) -> bool {
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    segments.lines().skip(1).any(|line| {
        let fields: Vec<i64> =
            line.split_whitespace().map(|field| field.parse().unwrap_or(-1)).collect();
        fields.get(1) == Some(&id) && fields.get(6).is_some_and(|&attached| attached > 0)
    })
}
