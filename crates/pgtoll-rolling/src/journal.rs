//! The journal of a run: its plan, what was consented to, and what has to be restored at its end. In
//! which state the nodes are is not in it: that is asked of the nodes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use pgtoll_record::{RollingNode, RollingSwitchover};
use serde::{Deserialize, Serialize};

use crate::RollingError;

/// The version of the form of [`Journal`].
const JOURNAL_SCHEMA: &str = "pgtoll.rolling_journal/1";
/// Bytes of a journal that are read.
const BYTES_MAX: u64 = 1 << 20;

/// The journal of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a user's choice")]
pub(crate) struct Journal {
    /// [`JOURNAL_SCHEMA`].
    pub(crate) schema: String,
    /// Checksums are being turned on; else off.
    pub(crate) enable: bool,
    pub(crate) system_identifier: u64,
    /// In the order in which they are converted, with what is known of them.
    pub(crate) nodes: Vec<RollingNode>,
    /// The primary at first.
    pub(crate) original_primary: String,
    /// The primary now, but for a switchover under way.
    pub(crate) primary: String,
    /// The node that becomes the primary meanwhile; `None`: no switchover is needed.
    pub(crate) candidate: Option<String>,
    /// The nodes that are to be converted.
    pub(crate) wanted: Vec<String>,
    pub(crate) switch_back: bool,
    pub(crate) verify: bool,
    /// The switchovers were confirmed with the run.
    pub(crate) is_switchover_confirmed: bool,
    pub(crate) before_switch: Option<String>,
    pub(crate) after_switch: Option<String>,
    /// A switchover that has begun and not ended.
    pub(crate) switchover: Option<OpenSwitchover>,
    pub(crate) switchovers: Vec<RollingSwitchover>,
    /// Settings that were changed for the run.
    pub(crate) restore: Vec<SettingBefore>,
    /// Slots that were made for old primaries.
    pub(crate) slots: Vec<OwnSlot>,
}

/// A replication slot that a run made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnSlot {
    /// Its place.
    pub(crate) node: String,
    pub(crate) name: String,
    /// The node whose `primary_slot_name` it is.
    pub(crate) standby: String,
}

/// A switchover that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenSwitchover {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The hook before it was run, so that the one after it has to be.
    pub(crate) has_hook_run: bool,
}

/// A setting as it was in `postgresql.auto.conf`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingBefore {
    pub(crate) node: String,
    pub(crate) name: String,
    /// `None`: it was not there.
    pub(crate) value: Option<String>,
}

impl Journal {
    pub(crate) fn schema() -> String {
        JOURNAL_SCHEMA.to_owned()
    }
}

/// The journal's file, which is locked as long as this lives.
#[derive(Debug)]
pub(crate) struct JournalFile {
    path: PathBuf,
    /// The lock on the file of nodes: the journal is replaced at each change.
    _lock: Flock<File>,
}

impl JournalFile {
    /// The journal beside this file of nodes, which is locked, so that no other process works on the
    /// same nodes.
    pub(crate) fn lock(nodes: &Path) -> Result<Self, RollingError> {
        let mut name = nodes.file_name().unwrap_or_default().to_os_string();
        name.push(".journal");
        let path = nodes.with_file_name(name);
        let failed =
            |source| RollingError::Journal { verb: "lock", path: nodes.to_owned(), source };
        let file = pgtoll_system::open(nodes).map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(RollingError::Locked { path: nodes.to_owned() }),
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }

    /// The journal of a run that has not ended; `None`: there is none.
    pub(crate) fn read(&self) -> Result<Option<Journal>, RollingError> {
        let failed =
            |source| RollingError::Journal { verb: "read", path: self.path.clone(), source };
        let text = match pgtoll_system::read_to_string(&self.path, BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed)?,
        };
        let journal: Journal =
            serde_json::from_str(&text).map_err(|error| failed(io::Error::other(error)))?;
        if journal.schema != JOURNAL_SCHEMA {
            let message = format!("its schema \"{}\" is of another pgtoll", journal.schema);
            return Err(failed(io::Error::other(message)));
        }
        Ok(Some(journal))
    }

    /// Has it on disk, in place of the one before.
    pub(crate) fn write(&self, journal: &Journal) -> Result<(), RollingError> {
        let write = || {
            let text = serde_json::to_vec_pretty(journal).map_err(io::Error::other)?;
            pgtoll_system::write_private(&self.path, &text)?;
            sync_parent(&self.path)
        };
        write().map_err(|source| self.error("write", source))
    }

    /// The run has ended.
    pub(crate) fn remove(&self) -> Result<(), RollingError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_parent(&self.path)),
        }
        .map_err(|source| self.error("remove", source))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, verb: &'static str, source: io::Error) -> RollingError {
        RollingError::Journal { verb, path: self.path.clone(), source }
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
