//! Backups of many clusters, in object stores or directories: found, planned, verified in shards by an
//! engine that is there (Kubernetes, Slurm, `parallel`), and merged into one answer.
//!
//! Entry points: [`plan()`], [`run_shard`], [`merge()`]; [`stored_tars`] for one backup by its URL,
//! [`stored_backup`] for the place of one;
//! [`standard_input`]. [`Layout`] says which backups objects are. Nothing here schedules anything: a
//! shard is an index, a result is written under a condition, and only [`merge()`] judges.

mod cpu_times;
mod error;
mod failure;
mod find;
mod input;
mod layout;
mod merge;
mod pgbackrest;
mod plan;
mod shard;
mod stored_wal;

pub use cpu_times::built_in_cpu_times;
pub use error::FleetError;
pub use find::{BackupChoice, stored_backup, stored_tars};
pub use input::standard_input;
pub use layout::{Layout, StoredBackup, UnreadBackup};
pub use merge::merge;
pub use plan::{FleetPlanning, plan, read_plan, write_plan};
pub use shard::{FleetShard, ShardEvent, ShardSummary, ShardTask, run_shard, shard_of_engine};
pub use stored_wal::{stored_segments, stored_wal};
