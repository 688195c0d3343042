//! WAL that was read while a server was watched, and what predictions were compared with.

use pgtoll_format::Lsn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Interval, WhatIfCheck, WhatIfRow};

/// WAL that a server sent while it was watched, and what would become of it under other settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchedWal {
    /// The start of its first record: before the redo point that was the last one when reading began.
    #[schemars(with = "String")]
    pub from: Lsn,
    /// The end of its last record.
    #[schemars(with = "String")]
    pub to: Lsn,
    /// Bytes between them.
    pub bytes: u64,
    /// How long the server was sending, in seconds.
    pub seconds: f64,
    /// CPU of the server's process that sent it (the walsender), in seconds; `None` where the server is
    /// remote.
    pub sender_cpu_seconds: Option<f64>,
    /// Why reading ended before watching did; `None` where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// How often the connection was lost, and reading resumed where it was.
    #[serde(default, skip_serializing_if = "never_resumed")]
    pub resumed: u32,
    /// Redo points in it.
    pub redo_points: u64,
    /// Whole checkpoint cycles, in their order.
    pub cycles: Vec<WatchedWalCycle>,
    /// How well its redo points explain its images.
    pub check: WhatIfCheck,
    /// Its own redo points, replayed.
    pub today: WhatIfRow,
    /// Its outcomes under other settings: first the server's own by their rule, then hints
    /// logged or not the other way round, then each setting that was asked about.
    pub rows: Vec<WhatIfRow>,
    /// Notes for the reader of these figures.
    pub notes: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn never_resumed(resumed: &u32) -> bool {
    *resumed == 0
}

/// A checkpoint cycle of the WAL, from one redo point to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchedWalCycle {
    /// The redo point that it begins with.
    #[schemars(with = "String")]
    pub from: Lsn,
    /// The redo point that it ends with.
    #[schemars(with = "String")]
    pub to: Lsn,
    /// Bytes of WAL.
    pub bytes: u64,
    /// Full-page images.
    pub images: u64,
    /// Bytes of them.
    pub image_bytes: u64,
    /// Distinct pages that were changed; hints and bits of the visibility map are no changes.
    pub changed_pages: u64,
    /// Distinct pages that were first changed by a record that always has its image: such pages may
    /// have been written past shared buffers.
    pub forced_pages: u64,
    /// Distinct pages that were only marked all-visible.
    pub visible_pages: u64,
    /// Bytes of dead rows that are freed with their page's image where hints are not logged. Where they are,
    /// the image comes before, with these rows.
    #[serde(default)]
    pub pruned_bytes: u64,
    /// The most bytes by which such images could be longer.
    #[serde(default)]
    pub pruned_bytes_most: u64,
    /// The same work with checkpoints at the same places, without hints; `None` where they are not
    /// logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_hints: Option<CycleWithoutHints>,
}

/// A cycle's WAL without hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CycleWithoutHints {
    /// Bytes of WAL.
    pub bytes: u64,
    /// Full-page images.
    pub images: u64,
    /// Bytes of them.
    pub image_bytes: u64,
    /// Bytes that come on top if `VACUUM` had to freeze what it froze right after a hint's image.
    pub freeze_bytes: u64,
}

/// Predictions of what was seen of the server itself, compared with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionChecks {
    /// Each cycle predicted by those before; `None` with fewer than two whole cycles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cycle: Option<NextCycleCheck>,
    /// WAL under today's settings, replayed by their rule, less what was read, of what was read;
    /// `None` without two redo points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_settings_error: Option<f64>,
    /// The cost of logging hints, predicted as if they were not logged; `None` where they are not, or
    /// WAL was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind: Option<BlindCheck>,
}

/// The rate of each whole checkpoint cycle but the first, predicted by the mean of those before:
/// errors are shares of what came.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NextCycleCheck {
    /// Cycles that were predicted.
    pub cycles: u64,
    /// Bytes of WAL a second: the mean of the errors' amounts.
    pub wal_error: f64,
    /// The largest of them.
    pub wal_error_most: f64,
    /// Full-page images a second: the mean; `None` where they are not counted, or there are none.
    pub images_error: Option<f64>,
    /// The largest of them.
    pub images_error_most: Option<f64>,
}

/// The cost of logging hints for a server that logs them: predicted by what does not depend on it, beside
/// what the what-if finds in the WAL.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlindCheck {
    /// Checkpoint cycles that were both watched and read.
    pub cycles: u64,
    /// Blocks written in them.
    pub written_blocks: u64,
    /// The part by others than the checkpointer.
    pub evicted_blocks: u64,
    /// Distinct pages that they changed.
    pub changed_pages: u64,
    /// Images for hints net of those that a later change needs: the pages written that no record but
    /// hints' changed (estimator E3).
    pub predicted_images: Interval,
    /// The same by the what-if.
    pub found_images: u64,
    /// WAL more than without hints, as a share of that: predicted.
    pub predicted_share: Interval,
    /// The same by the what-if.
    pub found_share: f64,
    /// Whether the range holds what was found.
    pub holds: bool,
}
