//! Errors that end a run.

use std::io;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, ClusterError, Difference};
use pgtoll_format::{ByteSize, Lsn};
use pgtoll_system::Interrupted;
use pgtoll_wal::WalReadError;

/// With less, a server cannot even write a WAL segment.
const LEAST_FREE: u64 = 16 << 20;

/// An error that ends a run. [`hint`](Self::hint) has advice.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A server of ours failed, or a signal came.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The server's WAL could not be read.
    #[error("read the WAL of arm \"{arm}\"")]
    Wal {
        /// The arm.
        arm: String,
        /// The error.
        source: WalReadError,
    },
    /// WAL that was to be counted is missing.
    #[error("arm \"{arm}\": its WAL from {from} to {to} is not all there any more")]
    WalIncomplete {
        /// The arm.
        arm: String,
        /// Its start.
        from: Lsn,
        /// Its end.
        to: Lsn,
    },
    /// The load could not be generated.
    #[error("load arm \"{arm}\"")]
    Load {
        /// The arm.
        arm: String,
        /// The end of its server's log.
        log: String,
        /// The error.
        source: Box<pgtoll_workload::LoadError>,
    },
    /// A statement of ours failed.
    #[error("query arm \"{arm}\"")]
    Query {
        /// The arm.
        arm: String,
        /// The end of its server's log.
        log: String,
        /// The error.
        source: Box<pgtoll_wire::Error>,
    },
    /// A counter could not be read.
    #[error("{0}")]
    Observe(#[from] pgtoll_observe::ObserveError),
    /// An arm is not what the experiment says.
    #[error("arm \"{arm}\" has {name} = {found}, where the experiment says {expected}")]
    NotAsSaid {
        /// The arm.
        arm: String,
        /// The setting.
        name: String,
        /// The value that the server shows.
        found: String,
        /// The expected value.
        expected: String,
    },
    /// An arm's files are not those that all arms were copied from.
    #[error("arm \"{arm}\" is not a copy: {difference}")]
    FilesDiffer {
        /// The arm.
        arm: String,
        /// The difference.
        difference: Difference,
    },
    /// The same set-up made other rows on another server.
    #[error("table {table} does not hold the same rows on PostgreSQL {version} as on {baseline}")]
    ContentsDiffer {
        /// The first table, with its schema.
        table: String,
        /// The server's version.
        version: String,
        /// The version of the baseline's server.
        baseline: String,
    },
    /// A setting cannot be changed without a restart.
    #[error("setting {name} takes effect at a restart only (its context is {context})")]
    NotReloadable {
        /// Its path.
        name: String,
        /// `pg_settings.context`.
        context: String,
    },
    /// The program that makes the load ended in the middle of a round.
    #[error("the load of arm \"{arm}\" ended by itself ({status})")]
    LoadEnded {
        /// The arm.
        arm: String,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// A step's program failed.
    #[error("\"{program}\" failed in arm \"{arm}\" ({status})")]
    ProgramFailed {
        /// The arm.
        arm: String,
        /// The shell's command.
        program: String,
        /// How it ended, and its last line.
        status: String,
    },
    /// The server does not take a value.
    #[error("the server refuses {name} = {value}")]
    SettingRefused {
        /// The setting.
        name: String,
        /// The value.
        value: String,
    },
    /// Stopping the program did not stop its load.
    #[error("the load of arm \"{arm}\" still runs after its program was stopped")]
    LoadGoesOn {
        /// The arm.
        arm: String,
    },
    /// The server cannot be what the experiment compares.
    #[error("skipped: {reason}")]
    Skipped {
        /// The reason, in a sentence.
        reason: String,
    },
    /// The server is slower than its load.
    #[error("at {asked} transactions a second the load piles up: {achieved:.0} a second get done")]
    RateTooHigh {
        /// Transactions a second that were asked for.
        asked: f64,
        /// That got done.
        achieved: f64,
    },
    /// Too old for a program's load.
    #[error("PostgreSQL {0} does not flush transaction counts on demand")]
    TooOldForCommands(String),
    /// The server never ran into its limit of memory.
    #[error("arm \"{arm}\" does not fill its limit of {limit} of memory: its data fit")]
    LimitNotReached {
        /// The arm.
        arm: String,
        /// The limit.
        limit: ByteSize,
    },
    /// The disk is too small.
    #[error(
        "{} has {} free, and {} are needed",
        path.display(), ByteSize(*free_bytes).rounded(), ByteSize(*needed_bytes).rounded()
    )]
    DiskTooSmall {
        /// The position.
        path: PathBuf,
        /// The available bytes.
        free_bytes: u64,
        /// The bytes that the plan needs.
        needed_bytes: u64,
    },
    /// The arms' data do not fit into memory together.
    #[error(
        "{} of memory are available, and the arms together need {}",
        ByteSize(*available_bytes).rounded(), ByteSize(*needed_bytes).rounded()
    )]
    MemoryTooSmall {
        /// The available bytes.
        available_bytes: u64,
        /// The bytes that the plan needs.
        needed_bytes: u64,
    },
    /// Something failed, and the disk of the clusters is full.
    #[error("{} is full", path.display())]
    DiskFull {
        /// The position.
        path: PathBuf,
        /// The error.
        source: Box<BenchError>,
    },
    /// The record could not be written.
    #[error("write {}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of a cluster could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl From<Interrupted> for BenchError {
    fn from(interrupted: Interrupted) -> Self {
        ClusterError::from(interrupted).into()
    }
}

impl BenchError {
    pub(crate) fn load(cluster: &Cluster, source: pgtoll_workload::LoadError) -> Self {
        let arm = cluster.name().to_owned();
        Self::Load { arm, log: cluster.last_words(), source: Box::new(source) }
    }

    pub(crate) fn query(cluster: &Cluster, source: pgtoll_wire::Error) -> Self {
        let arm = cluster.name().to_owned();
        Self::Query { arm, log: cluster.last_words(), source: Box::new(source) }
    }

    /// Returns advice.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cluster(error) => error.hint(),
            Self::ContentsDiffer { .. } => Some(
                "let the set-up make the same rows each time: without random() or after setseed(), \
                 and without now()"
                    .into(),
            ),
            Self::DiskFull { .. } => Some(
                "free some space, name another disk with --work-dir, or use a smaller --scale"
                    .into(),
            ),
            Self::DiskTooSmall { .. } => {
                Some("name another disk with --work-dir, or use a smaller --scale".into())
            }
            Self::MemoryTooSmall { .. } => Some(
                "use a smaller --scale or smaller shared_buffers: arms in turn compare only when \
                 all are in memory, or each has a limit of its own (`memory` of a workload)"
                    .into(),
            ),
            Self::LoadGoesOn { .. } => Some(
                "its statements must end within a minute, and its processes must stay in their process \
                 group: no setsid, no timeout, no container"
                    .into(),
            ),
            Self::Skipped { .. } => Some(
                "`pgtoll postgres list` names the servers here; --postgres chooses another one".into(),
            ),
            Self::RateTooHigh { .. } => Some("use a lower --rate, or none".into()),
            Self::TooOldForCommands(_) => Some("use PostgreSQL 15 or later, or a script".into()),
            Self::NotReloadable { .. } => {
                Some("leave out `crossover = true`: then each arm has a server of its own".into())
            }
            Self::LoadEnded { output, .. } => Some(format!(
                "it has to work until it is ended; its last words: {}",
                output.lines().next_back().unwrap_or("none")
            )),
            Self::ProgramFailed { .. } => Some(
                "it runs as the servers' user, in an empty directory of its own, with the server's \
                 programs first in PATH; `measure` with --keep leaves the server's log"
                    .into(),
            ),
            Self::LimitNotReached { .. } => {
                Some("use a larger --scale or a smaller `memory` of the workload".into())
            }
            Self::Load { log, .. } | Self::Query { log, .. } => {
                Some(format!("the last word of that server's log: {log}"))
            }
            Self::Record { .. } => Some("name another directory with --output".into()),
            _ => None,
        }
    }

    /// A full disk fails in many words; few of them are about the disk.
    pub(crate) fn or_disk_full(self, work_base: &Path) -> Self {
        let free = pgtoll_observe::free_bytes(work_base);
        if self.is_interruption() || free.is_ok_and(|bytes| bytes > LEAST_FREE) {
            return self;
        }
        Self::DiskFull { path: work_base.to_owned(), source: Box::new(self) }
    }

    /// Why the experiment was skipped; `None` of what went wrong.
    pub fn skipped(&self) -> Option<&str> {
        match self {
            Self::Skipped { reason } => Some(reason),
            _ => None,
        }
    }

    /// A signal ended the run.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::Cluster(ClusterError::Interrupted(_)))
    }
}
