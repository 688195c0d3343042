//! Why a repair takes nothing from a source, does not touch a block, or replays no WAL.

use std::io;
use std::path::PathBuf;

use pgtoll_format::{ClusterState, ControlError, Lsn};
use pgtoll_wire::Error as ConnectionError;

/// Why nothing is taken from a source.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceRefusal {
    #[error("it is the damaged cluster itself")]
    Itself,
    #[error("it is of another cluster: its system identifier is {found}, not {own}")]
    OtherCluster { found: u64, own: u64 },
    #[error("its files are of another version or layout")]
    OtherLayout,
    #[error("it has no data checksums, so its pages cannot be proved sound")]
    NoChecksums,
    #[error(
        "it is on timeline {timeline}; the history files do not connect it to the cluster's timeline {own}"
    )]
    OtherTimeline { timeline: u32, own: u32 },
    #[error("its last checkpoint, at {checkpoint}, is behind the cluster's, at {own}")]
    Ahead { checkpoint: Lsn, own: Lsn },
    #[error("its last checkpoint, at {0}, is not in the cluster's WAL: it is of another past")]
    OtherPast(Lsn),
    #[error("it is not a standby: it is not in recovery")]
    NoStandby,
    #[error("a server runs on it: process {0}")]
    Running(u32),
    #[error("no backup_label: it is not a base backup")]
    NoLabelInTars,
    #[error(
        "no backup_label ({0}): it is not a base backup, or a server was started on it; for a stopped server use --from-stopped"
    )]
    NoLabel(io::Error),
    #[error("its backup_label does not say where the backup began")]
    LabelWithoutBegin,
    #[error("it is a base backup: take it with --from-backup")]
    BaseBackup,
    #[error("it was not stopped in good order: its state is \"{0}\"")]
    NotStopped(ClusterState),
    #[error("read {}: {error}", path.display())]
    Tar { path: PathBuf, error: io::Error },
    #[error("it has no global/pg_control")]
    NoControlFile,
}

/// Why a source's copy of a block is not taken, or a block of a running server is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockRefusal {
    /// It is beyond the end of the source's file, or the file is not there.
    #[error("the source has no such block")]
    NoBlock,
    /// The source's file could not be read.
    #[error("read the page: {0}")]
    Unreadable(String),
    /// A hard link, perhaps.
    #[error("the source's file is the damaged one itself")]
    DamagedFile,
    /// The fork's number is not 0 to 3.
    #[error("an unknown fork")]
    UnknownFork,
    /// Redo makes no file for this block.
    #[error("it has no place")]
    NoPlace,
    /// It was dropped, or got another file.
    #[error("the {0} knows no relation with this file")]
    UnknownRelation(&'static str),
    /// `datallowconn` is false.
    #[error("its database takes no connections")]
    ClosedDatabase,
    /// It is missing on the standby, or `datallowconn` is false.
    #[error("the standby has no such database that takes connections")]
    NoDatabase,
    /// The extension is missing in this database of the standby.
    #[error(
        "the extension pageinspect is not in the standby's database {0}: CREATE EXTENSION pageinspect \
         there, on the primary"
    )]
    NoPageinspect(String),
    /// The standby's answer is shorter or longer than a page.
    #[error("the standby sent {0} bytes for a page")]
    Length(usize),
    /// Maps and init forks are not repaired beside a running server.
    #[error("only main forks are repaired while the server runs: stop it first")]
    OtherFork,
    /// A session cannot begin without the system catalogs.
    #[error("the system's catalogs are needed to connect: stop the server first")]
    Catalog,
    /// `hashpage.c` reads pages that are there in modes that do not check them.
    #[error(
        "servers write pages of hash indexes without reading them: stop the server first, or REINDEX"
    )]
    HashIndex,
    /// It has the page in memory, or read it in another state.
    #[error(
        "the server does not refuse it, from memory or on a second reading: what it has may be newer \
         than the disk; CHECKPOINT, then look again, or stop the server first"
    )]
    Taken,
    /// The server's answer is unknown, for this reason.
    #[error("the server cannot be asked whether it refuses it: {0}")]
    NotAsked(String),
    /// The server's message.
    #[error("its locks were not granted: {0}")]
    NotLocked(String),
    /// The relation has another file or definition than in the plan.
    #[error("the relation was changed meanwhile")]
    RelationChanged,
    /// The block has other bytes than in the plan.
    #[error("it was written since the plan was made")]
    BlockChanged,
    /// The page could not be written.
    #[error("write {}: {error}", path.display())]
    NotWritten {
        /// The relation's file.
        path: PathBuf,
        /// The system's message.
        error: String,
    },
    /// It reads something else, or sees other damage.
    #[error("written, and the server refuses it still")]
    RefusedStill,
    /// The server's answer after writing is unknown, for this reason.
    #[error("written, but the server could not be asked again: {0}")]
    NotAskedAgain(String),
    /// A message of a server, a connection, the system or redo.
    #[error("{0}")]
    Told(String),
}

impl From<ConnectionError> for BlockRefusal {
    fn from(error: ConnectionError) -> Self {
        Self::Told(error.to_string())
    }
}

/// Why no WAL was replayed.
#[derive(Debug, thiserror::Error)]
pub enum RedoRefusal {
    /// pgtoll does not know the cluster's major version.
    #[error("its version is unknown")]
    UnknownVersion,
    /// The control file of the cluster.
    #[error("read {}: {error}", path.display())]
    ControlFile {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The control file cannot be changed for redo.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Each replay ended at another record.
    #[error("redo fails at too many records")]
    TooManyFailures,
    /// A replay ended at a record of which no block can be spared, in the server's words.
    #[error("{0}")]
    Failed(String),
    /// No server could replay it.
    #[error("{0}")]
    NoServer(String),
}
