//! A page that was damaged on purpose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of [`CorruptRecord`].
pub const CORRUPT_SCHEMA: &str = "pgtoll.corrupt/1";

/// The result of `pgtoll corrupt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CorruptRecord {
    /// [`CORRUPT_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// Whether it was damaged or put right.
    pub outcome: CorruptOutcome,
    /// The data directory.
    pub data: String,
    /// The file.
    pub file: String,
    /// The block's number in the file, from 0; `None` where it was put right.
    pub block: Option<u64>,
    /// The kind of damage, as `--kind` names it.
    pub kind: Option<String>,
    /// The seed.
    pub seed: u64,
    /// Bytes of the sound file.
    pub bytes_before: u64,
    /// Bytes of the damaged one; `None`: it was moved away.
    pub bytes_after: Option<u64>,
    /// The file that undoes the damage.
    pub undo_file: String,
}

/// Whether a page was damaged or put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CorruptOutcome {
    /// It was damaged.
    Damaged,
    /// It is as it was.
    Undone,
}
