//! `synchronous_commit`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The wait of a commit (`synchronous_commit`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SynchronousCommit {
    /// Nothing: WAL is flushed soon after.
    Off,
    /// The primary's disk.
    Local,
    /// The standby's kernel has it, too.
    RemoteWrite,
    /// The standby's disk, too.
    On,
    /// The standby shows it to readers.
    RemoteApply,
}

impl SynchronousCommit {
    /// All of them, the weakest first.
    pub const ALL: [Self; 5] =
        [Self::Off, Self::Local, Self::RemoteWrite, Self::On, Self::RemoteApply];

    /// As `postgresql.conf` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Local => "local",
            Self::RemoteWrite => "remote_write",
            Self::On => "on",
            Self::RemoteApply => "remote_apply",
        }
    }

    /// Whether a commit waits for the standby.
    pub fn is_remote(self) -> bool {
        !matches!(self, Self::Off | Self::Local)
    }
}
