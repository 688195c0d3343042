//! A data directory that is held: no server runs on it, and none can start.

mod lock;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};
use pgtoll_format::{CONTROL_FILE_BYTES, ClusterState, ControlFile};

use self::lock::{LeftLock, Lock};
use crate::{MaybeOverwritten, WriteError};
use pgtoll_datadir::DatadirError;

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

/// How a data directory must have been left, to be held.
///
/// A process of another PID namespace (a container) or of another host cannot be seen from here.
/// What can be seen is the control file: a server that runs has "in production" in it, or "in
/// archive recovery". So a lock is removed only from a directory that was shut down, unless the
/// caller made sure that the server crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldPolicy {
    /// The control file says "shut down", or "shut down in recovery".
    ShutDown,
    /// That, or there is no `postmaster.pid`: a copy, a backup.
    ShutDownOrUnlocked,
    /// Any state. A lock whose process cannot be seen is that of a server that crashed: the caller
    /// made sure that none runs elsewhere.
    Crashed,
}

impl Hold {
    /// Takes hold of a data directory whose server was stopped in good order.
    pub fn take(data: &Path) -> Result<Self, WriteError> {
        Self::take_with(data, HoldPolicy::ShutDown)
    }

    /// Takes hold of a data directory that was left as `policy` says. A refusal changes nothing.
    ///
    /// A server passes over a lock whose process belongs to somebody else. So a process of root
    /// becomes the directory's owner, altogether and for good; any other user has to be the owner.
    pub fn take_with(data: &Path, policy: HoldPolicy) -> Result<Self, WriteError> {
        become_owner_of(data)?;
        // A link on the way was named by the caller; nothing behind it is followed any more.
        let real = fs::canonicalize(data).map_err(WriteError::read(data))?;
        let before = examine(data, policy)?;
        let lock = Lock::make(&real, || examine(data, policy).map(|found| found.left))?;
        // From here on no other process changes it.
        let (control_bytes, control) = read_control(data)?;
        if control_bytes != before.control_bytes {
            return Err(WriteError::Lost { path: data.to_owned(), overwritten: Vec::new() });
        }
        Ok(Self { data: data.to_owned(), lock, control, control_bytes })
    }

    /// Whether a data directory could be held, as far as reading shows: what [`Self::take_with`]
    /// would say. Changes nothing, also not this process's user.
    pub fn check_left(data: &Path, policy: HoldPolicy) -> Result<ControlFile, WriteError> {
        let uid = fs::metadata(data).map_err(not_data_directory(data))?.uid();
        if !geteuid().is_root() && geteuid().as_raw() != uid {
            return Err(WriteError::NotOwner { path: data.to_owned(), uid });
        }
        examine(data, policy).map(|found| found.control)
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the control file at the time when the directory was taken.
    pub fn control(&self) -> &ControlFile {
        &self.control
    }

    /// The control file's bytes at that moment.
    pub(crate) fn control_bytes(&self) -> &[u8] {
        &self.control_bytes
    }

    /// The place of the control file.
    pub(crate) fn control_path(&self) -> PathBuf {
        control_path(&self.data)
    }

    /// Whether `postmaster.pid` is still ours: one system call.
    pub(crate) fn is_held(&self) -> bool {
        self.lock.is_ours()
    }

    /// Says so when somebody has taken the lock away, or changed the control file, in spite of the
    /// lock: a server in another container may not see this process.
    pub fn check(&self) -> Result<(), WriteError> {
        if !self.is_held() || read_control(&self.data)?.0 != self.control_bytes {
            return Err(self.lost(Vec::new()));
        }
        Ok(())
    }

    pub(crate) fn lost(&self, overwritten: Vec<MaybeOverwritten>) -> WriteError {
        WriteError::Lost { path: self.data.clone(), overwritten }
    }

    /// Writes into the control file whether pages have checksums, as a server writes it: in place,
    /// in one piece. Whatever is on the pages has to be on disk before.
    pub(crate) fn set_checksum_version(&self, version: u32, sync: bool) -> Result<(), WriteError> {
        self.check()?;
        let path = control_path(&self.data);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let bytes = ControlFile::with_checksum_version(&self.control_bytes, version, now)
            .map_err(|source| DatadirError::Control { path: path.clone(), source })?;
        let write = || {
            let file = File::options().write(true).open(&path)?;
            file.write_all_at(&bytes, 0)?;
            if sync { file.sync_all() } else { Ok(()) }
        };
        write().map_err(|source| WriteError::Write { path: path.clone(), source })?;
        if !self.is_held() {
            return Err(self.lost(vec![MaybeOverwritten { path, blocks: None }]));
        }
        Ok(())
    }
}

/// Makes a process of root that of a data directory's owner, for good.
pub fn become_owner_of(data: &Path) -> Result<(), WriteError> {
    let found = fs::metadata(data).map_err(not_data_directory(data))?;
    become_owner(data, found.uid(), found.gid())
}

/// The control file and the lock of a data directory.
struct Examined {
    control: ControlFile,
    control_bytes: Vec<u8>,
    left: Option<LeftLock>,
}

/// Reads both; an error where a server runs, or may run as far as `policy` allows for.
fn examine(data: &Path, policy: HoldPolicy) -> Result<Examined, WriteError> {
    let owner = fs::metadata(data).map_err(not_data_directory(data))?.uid();
    // What is no data directory gets no file.
    data_directory_control(data)?;
    let left = LeftLock::find(data, owner)?;
    let (control_bytes, control) = read_control(data)?;
    let state = control.state;
    let is_shut_down = matches!(state, ClusterState::ShutDown | ClusterState::ShutDownInRecovery);
    let path = || data.to_owned();
    match (policy, &left) {
        _ if is_shut_down => {}
        (HoldPolicy::Crashed, _) | (HoldPolicy::ShutDownOrUnlocked, None) => {}
        (HoldPolicy::ShutDown, left) => {
            let pid = left.as_ref().map(|left| left.pid);
            return Err(WriteError::NotShutDown { path: path(), state, pid });
        }
        (HoldPolicy::ShutDownOrUnlocked, Some(left)) => {
            return Err(WriteError::MayRun { path: path(), state, pid: left.pid });
        }
    }
    if let Some(left) = left.as_ref().filter(|left| left.names_this_process())
        && policy != HoldPolicy::Crashed
    {
        return Err(WriteError::OwnPid { path: lock::path(data), pid: left.pid });
    }
    Ok(Examined { control, control_bytes, left })
}

/// Returns the control file of a data directory that is to be written to.
pub fn data_directory_control(data: &Path) -> Result<ControlFile, WriteError> {
    pgtoll_datadir::control_file(data).map_err(|error| match error {
        DatadirError::Read { source, .. } if is_missing(&source) => {
            not_data_directory(data)(source)
        }
        error => error.into(),
    })
}

fn not_data_directory(data: &Path) -> impl Fn(io::Error) -> WriteError {
    move |source| {
        let path = data.to_owned();
        if is_missing(&source) {
            WriteError::NotDataDirectory { path, source }
        } else {
            WriteError::Read { path, source }
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn control_path(data: &Path) -> PathBuf {
    data.join("global/pg_control")
}

fn read_control(data: &Path) -> Result<(Vec<u8>, ControlFile), WriteError> {
    let path = control_path(data);
    let mut bytes = Vec::new();
    pgtoll_system::open(&path)
        .and_then(|file| file.take(CONTROL_FILE_BYTES as u64).read_to_end(&mut bytes))
        .map_err(WriteError::read(&path))?;
    let control = ControlFile::read(&bytes);
    let control = control.map_err(|source| DatadirError::Control { path, source })?;
    Ok((bytes, control))
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
    let uid = Uid::from_raw(uid);
    let gid = Gid::from_raw(gid);
    let become_it = || {
        setgroups(&[gid])?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)
    };
    become_it().map_err(|error| WriteError::Become { uid: uid.as_raw(), source: error.into() })
}
