//! WAL of the same work with other settings.

use pgtoll_format::Lsn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{WalEnd, WalSource};

/// The version of the form of a what-if.
pub const WAL_WHATIF_SCHEMA: &str = "pgtoll.wal-whatif/1";

/// How much WAL the same work would have made with other settings, worked out from the WAL that it
/// made. All are estimates but what is said of the source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WalWhatIfRecord {
    /// [`WAL_WHATIF_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again, as long as the WAL is there.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The WAL.
    pub source: WalSource,
    /// Why it was not read further.
    pub end: WalEnd,
    /// Bytes of WAL that were read, from the first record's begin to the last one's end.
    pub bytes: u64,
    /// From the first transaction's end to the last one's, in seconds; `None` where no time is told.
    pub seconds: Option<f64>,
    /// Redo points of the source, in their order.
    pub redo_points: Vec<WhatIfRedoPoint>,
    /// The settings that the source was made with.
    pub source_settings: WhatIfSourceSettings,
    /// How well the source's own redo points explain the source.
    pub check: WhatIfCheck,
    /// The source's own redo points, replayed: what all else is compared with.
    pub today: WhatIfRow,
    /// The answers, in the order of the questions.
    pub rows: Vec<WhatIfRow>,
    /// WAL against the distance of checkpoints, the shortest first, if nothing but that distance
    /// decides when they begin.
    pub curve: Vec<WhatIfRow>,
    /// The first of the curve's points after which twice the distance saves less than a
    /// twentieth; `None`: it is not in the curve.
    pub knee: Option<usize>,
    /// The recommendation; `None`: no setting is worth it, or the WAL is too short.
    pub recommendation: Option<WhatIfRecommendation>,
    /// The evidence for the recommendation, or for its absence; `None` in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<WhatIfEvidence>,
    /// One image in this many was compressed to find out; 1: all were.
    pub compressed_one_in: u32,
    /// Blocks that were named.
    pub blocks: u64,
    /// Bytes of memory that were kept for them.
    pub block_memory_bytes: u64,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A redo point of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfRedoPoint {
    /// The position.
    #[schemars(with = "String")]
    pub at: Lsn,
    /// When its checkpoint began (RFC 3339).
    pub time: Option<String>,
    /// It began whatever `max_wal_size` and `checkpoint_timeout`: a shutdown, a backup, the command.
    pub forced: bool,
    /// No record tells of it, but an image shows that a checkpoint had begun.
    pub inferred: bool,
}

/// The settings of the server that made the WAL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfSourceSettings {
    /// Their source: a server, a file, or the WAL itself.
    pub by: String,
    /// `max_wal_size` in bytes.
    pub max_wal_size_bytes: u64,
    /// `checkpoint_timeout` in seconds.
    pub checkpoint_timeout_s: f64,
    /// `checkpoint_completion_target`.
    pub checkpoint_completion_target: f64,
    /// Hints were logged: data checksums or `wal_log_hints`.
    pub hints: bool,
    /// The settings that are guesses from the WAL itself: `max_wal_size`, `checkpoint_timeout`, `hints`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guessed: Vec<String>,
}

/// The self-check.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfCheck {
    /// References to blocks that may need an image.
    pub references: u64,
    /// The part that has an image.
    pub images: u64,
    /// They should have one, and have none: never, where all is understood.
    pub absent: u64,
    /// They should have none, and have one.
    pub unpredicted: u64,
    /// Bytes that the replay of the source's own redo points makes, less those of the source, of
    /// the source's.
    pub bytes_error: f64,
}

/// Settings, and what becomes of the WAL under them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfRow {
    /// `max_wal_size` in bytes; `None`: checkpoints are where the source's were.
    pub max_wal_size_bytes: Option<u64>,
    /// `checkpoint_timeout` in seconds; `None`: no time begins a checkpoint.
    pub checkpoint_timeout_s: Option<f64>,
    /// `checkpoint_completion_target`.
    pub checkpoint_completion_target: Option<f64>,
    /// `wal_compression`; `as stored`: as in the source.
    pub wal_compression: String,
    /// Hints are logged.
    pub hints: bool,
    /// `full_page_writes`.
    pub full_page_writes: bool,
    /// Bytes of WAL: what replicas are sent.
    pub bytes: u64,
    /// The lower bound of the true value.
    pub low_bytes: u64,
    /// The same; `None`: nobody can tell.
    pub high_bytes: Option<u64>,
    /// How sure that is.
    pub class: WhatIfClass,
    /// Bytes a second; `None` where no time is told.
    pub bytes_per_second: Option<f64>,
    /// Full-page images.
    pub images: u64,
    /// Bytes of them with their headers.
    pub image_bytes: u64,
    /// Checkpoints for `max_wal_size`.
    pub checkpoints_by_volume: u64,
    /// Checkpoints for `checkpoint_timeout`.
    pub checkpoints_by_time: u64,
    /// Checkpoints of the source that stay whatever the settings; of the source's own schedule all.
    pub checkpoints_forced: u64,
    /// Bytes of the segments that go to an archive, before it compresses them.
    pub archive_bytes: u64,
    /// The longest way from one redo point to the next.
    pub longest_cycle_bytes: u64,
    /// The most WAL that a recovery after a crash had to replay.
    pub replay_bytes: u64,
}

impl WhatIfRow {
    /// All of its checkpoints.
    pub fn checkpoints(&self) -> u64 {
        let begun = self.checkpoints_by_volume.saturating_add(self.checkpoints_by_time);
        begun.saturating_add(self.checkpoints_forced)
    }
}

/// How sure an estimate is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WhatIfClass {
    /// Checkpoints as far apart as in the source.
    Exact,
    /// Further apart: a few per cent.
    Longer,
    /// Nearer, and all that would have been logged is known.
    Shorter,
    /// Nearer, and hints are logged: those that the source did not log are estimated from those that
    /// it did.
    ShorterWithHints,
    /// It is at least this: hints are asked for and the source logs none; or hints are not to be
    /// logged, and the source does not show whether `VACUUM` had to freeze what it froze right after a
    /// hint's image.
    LowerBound,
    /// The source has fewer than two redo points, or less WAL than twice the distance.
    Extrapolated,
}

/// The recommended `max_wal_size`, with its reason and its price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfRecommendation {
    /// Lines for `postgresql.conf`.
    pub settings: Vec<String>,
    /// Its outcome.
    pub row: WhatIfRow,
    /// The reason, in a sentence.
    pub reason: String,
    /// The cost of it.
    pub price: String,
}

/// The evidence for a recommendation, and the rows that are left out though they save a twentieth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfEvidence {
    /// The WAL shows how checkpoints follow each other: it has two redo points, the second of which
    /// was not forced. With less nothing is recommended.
    pub enough: bool,
    /// LZ4 was considered.
    pub lz4: bool,
    /// Places in `rows` whose figures are certain. Only where nothing is recommended.
    pub certain: Vec<usize>,
    /// Places in `rows` whose figures are extrapolated.
    pub extrapolated: Vec<usize>,
    /// The observation that would make an extrapolated row certain.
    pub needs: Option<WhatIfNeed>,
    /// So long a stream, in seconds, would be enough for these; `None` where files were read.
    pub stream_s: Option<u64>,
}

/// How much WAL a row takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfNeed {
    /// Its place in `rows`.
    pub row: usize,
    /// Bytes of WAL like the source's.
    pub bytes: u64,
}
