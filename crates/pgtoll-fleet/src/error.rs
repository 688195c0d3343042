//! Errors of fleets.

use pgtoll_store::{StoreError, StoreUrl};

/// Backups cannot be found, planned, verified or merged.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages name")]
pub enum FleetError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is none.
    #[error("{url}: no backup here")]
    NoBackup { url: StoreUrl },
    /// The result cannot be read.
    #[error("{url}: {reason}")]
    Unread { url: StoreUrl, reason: String },
    /// There are several, and one has to be named.
    #[error("{url}: {} backups here, such as {}", ids.len(), ids[..ids.len().min(3)].join(", "))]
    Several { url: StoreUrl, ids: Vec<String> },
    /// No backup has this name.
    #[error("{url}: no backup is called {id:?}")]
    Unknown { url: StoreUrl, id: String },
    /// There are several clusters, and one has to be named.
    #[error("{url}: backups of {} clusters here: {}", clusters.len(), clusters.join(", "))]
    SeveralClusters { url: StoreUrl, clusters: Vec<String> },
    /// No cluster has this name.
    #[error("{url}: no backups of {name:?} here, but of {}", clusters.join(", "))]
    UnknownCluster { url: StoreUrl, name: String, clusters: Vec<String> },
    /// The file is no plan.
    #[error("{url} is not a plan of a fleet: {reason}")]
    Plan { url: StoreUrl, reason: String },
    /// There is another plan.
    #[error("{url} exists, and is another plan")]
    PlanExists { url: StoreUrl },
    /// A shard's number.
    #[error("no shard {index}: the plan has {shards}, numbered from 0")]
    Shard { index: u32, shards: u32 },
    /// An engine's variable is no number.
    #[error("{variable} is {text:?}, which is not a shard number")]
    ShardVariable { variable: &'static str, text: String },
    /// No shard was named.
    #[error("which shard is to run?")]
    NoShard,
    /// A data directory's or control file's.
    #[error(transparent)]
    Datadir(#[from] pgtoll_datadir::DatadirError),
}

impl FleetError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Store(error) => return error.hint(),
            Self::Datadir(error) => return error.hint(),
            Self::NoBackup { .. } => {
                "name a tar, a prefix with base.tar, a data directory's files, or a server's prefix \
                 of barman-cloud"
            }
            Self::Several { .. } => {
                "name one with --backup latest or --backup ID; all: pgtoll fleet plan"
            }
            Self::SeveralClusters { .. } | Self::UnknownCluster { .. } => {
                "name one with --stanza NAME: pgBackRest's stanza, or barman's server"
            }
            Self::Unknown { .. } => "leave --backup out to see their names",
            Self::Plan { .. } => "name the plan that pgtoll fleet plan wrote with --output",
            Self::PlanExists { .. } => {
                "replace it with --replace, or name another file in the same directory: results of \
                 backups that did not change are taken over"
            }
            Self::Shard { .. } => "with Slurm for example: sbatch --array=0-19 for 20 shards",
            Self::NoShard => {
                "name it with --shard INDEX/COUNT, or --all; else it is read from \
                 JOB_COMPLETION_INDEX, SLURM_ARRAY_TASK_ID, AWS_BATCH_JOB_ARRAY_INDEX or \
                 CLOUD_RUN_TASK_INDEX"
            }
            Self::ShardVariable { .. } => "name the shard with --shard INDEX/COUNT, or --all",
            Self::Unread { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
