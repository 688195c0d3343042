//! Outcomes of a grid with their ranges, and as records have them.

use pgtoll_model::{Candidate, EstimateClass, Grid, JudgedOutcome, SourceWal, shown};
use pgtoll_record::{WhatIfClass, WhatIfRow};

use crate::whatif::Answer;

/// A grid's outcomes with their ranges.
pub(crate) struct Estimates {
    pub(crate) today: JudgedOutcome,
    pub(crate) rows: Vec<JudgedOutcome>,
    pub(crate) curve: Vec<JudgedOutcome>,
    pub(crate) compressed: Vec<JudgedOutcome>,
}

impl Estimates {
    pub(crate) fn new(wal: &SourceWal, grid: &Grid, answer: &Answer) -> Self {
        let mut outcomes = answer.outcomes.iter();
        let mut estimates = |candidates: &[Candidate]| -> Vec<JudgedOutcome> {
            let pairs = candidates.iter().zip(outcomes.by_ref());
            pairs.map(|(candidate, outcome)| wal.estimate(candidate, outcome)).collect()
        };
        let today = estimates(std::slice::from_ref(&grid.today)).swap_remove(0);
        let rows = estimates(&grid.rows);
        let mut curve = estimates(&grid.curve);
        let compressed = estimates(&grid.compressed);
        shown(&mut curve);
        Self { today, rows, curve, compressed }
    }
}

/// As a record has it.
pub(crate) fn row(estimate: &JudgedOutcome, wal: &SourceWal) -> WhatIfRow {
    let JudgedOutcome { candidate, outcome, class, low_bytes, high_bytes } = *estimate;
    let rule = candidate.rule;
    let timeout = rule.and_then(|rule| rule.timeout);
    WhatIfRow {
        max_wal_size_bytes: rule.map(|rule| rule.max_wal_size.0),
        checkpoint_timeout_s: timeout.map(|timeout| timeout.0.as_secs_f64()),
        checkpoint_completion_target: rule.map(|rule| rule.completion_target),
        wal_compression: candidate.compression.name().to_owned(),
        hints: candidate.hints,
        full_page_writes: candidate.full_page_writes,
        bytes: outcome.bytes,
        low_bytes,
        high_bytes,
        class: class_of(class),
        bytes_per_second: wal.bytes_per_second(outcome.bytes),
        images: outcome.images,
        image_bytes: outcome.image_bytes,
        checkpoints_by_volume: outcome.by_volume,
        checkpoints_by_time: outcome.by_time,
        checkpoints_forced: outcome.forced,
        archive_bytes: outcome.segments * wal.segment_bytes,
        longest_cycle_bytes: outcome.longest_cycle,
        replay_bytes: outcome.replay_most,
    }
}

fn class_of(class: EstimateClass) -> WhatIfClass {
    match class {
        EstimateClass::Exact => WhatIfClass::Exact,
        EstimateClass::Longer => WhatIfClass::Longer,
        EstimateClass::Shorter => WhatIfClass::Shorter,
        EstimateClass::ShorterWithHints => WhatIfClass::ShorterWithHints,
        EstimateClass::LowerBound => WhatIfClass::LowerBound,
        EstimateClass::Extrapolated => WhatIfClass::Extrapolated,
    }
}

/// A share; 1 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "bytes of WAL are far below 2^53")]
    let ratio = part as f64 / whole as f64;
    if whole == 0 { 1.0 } else { ratio }
}
