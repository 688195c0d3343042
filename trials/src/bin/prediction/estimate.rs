//! Predictions from a run: the relative change of its WAL (0.1: ten percent more).

use pgtoll_record::trials::{
    PredictionTrialCensus as Census, PredictionTrialCycle as Cycle, PredictionTrialRun as Run,
};

use crate::{float, product};

/// A way to predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Estimator {
    /// Nothing changes.
    Zero,
    /// Images of `FPI_FOR_HINT` in the WAL of a server that logs hints.
    GrossHints,
    /// An image for every block that is written.
    BlocksWritten,
    /// E1': what SELECTs dirtied beyond their images.
    Selects,
    /// The same of all statements.
    Statements,
    /// E2: pages changed by hints alone, in shared buffers before each checkpoint.
    LastCensus,
    /// E2+ as of that census alone: their share among pages soon to be evicted, for those evicted.
    LastCensusEvictions,
    /// E2+ with that share's mean over the cycle: as `pgtoll predict` works it out.
    Censuses,
    /// The what-if, from WAL with images for hints to WAL without.
    WhatIf,
}

impl Estimator {
    pub(crate) const NAIVE: [Self; 3] = [Self::Zero, Self::GrossHints, Self::BlocksWritten];

    /// From a server without checksums to one with them.
    pub(crate) const TO_ON: [Self; 8] = [
        Self::LastCensus,
        Self::LastCensusEvictions,
        Self::Censuses,
        Self::Selects,
        Self::Statements,
        Self::Zero,
        Self::GrossHints,
        Self::BlocksWritten,
    ];

    /// From a server with checksums to one without.
    pub(crate) const TO_OFF: [Self; 4] =
        [Self::WhatIf, Self::Zero, Self::GrossHints, Self::BlocksWritten];

    /// In tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zero => "zero",
            Self::GrossHints => "gross hints",
            Self::BlocksWritten => "blocks written",
            Self::Selects => "SELECTs (E1')",
            Self::Statements => "statements",
            Self::LastCensus => "last census (E2)",
            Self::LastCensusEvictions => "with evictions (E2+)",
            Self::Censuses => "censuses over the cycle",
            Self::WhatIf => "what-if",
        }
    }

    /// The relative change if the server that ran `source` turned checksums on. `rehearsal` ran with
    /// hints logged.
    pub(crate) fn to_on(self, source: &Run, rehearsal: &Run) -> Option<f64> {
        let image = image_bytes(source);
        let pages = |cycle: fn(&Cycle) -> Option<f64>| {
            source.cycles.iter().map(cycle).sum::<Option<f64>>().map(|pages| pages * image)
        };
        let bytes = match self {
            Self::Zero => 0.0,
            Self::GrossHints => gross_bytes(rehearsal),
            Self::BlocksWritten => float(source.blocks_written) * record_bytes(PAGE_BYTES),
            Self::Selects => float(source.select_dirtied) * image,
            Self::Statements => float(source.statement_dirtied) * image,
            Self::LastCensus => pages(|cycle| Some(hint_only(cycle.censuses.last()?)))?,
            Self::LastCensusEvictions => pages(|cycle| {
                let last = cycle.censuses.last()?;
                Some(hint_only(last) + evicted_share(last) * float(cycle.evicted))
            })?,
            Self::Censuses => return product::change(source).map(|range| range.middle),
            Self::WhatIf => return None,
        };
        Some(bytes / float(source.wal_bytes))
    }

    /// The relative change if the server that ran `source` turned checksums off.
    pub(crate) fn to_off(self, source: &Run) -> Option<f64> {
        let bytes = match self {
            Self::Zero => 0.0,
            Self::GrossHints => gross_bytes(source),
            Self::BlocksWritten => float(source.blocks_written) * record_bytes(PAGE_BYTES),
            Self::WhatIf => float(source.wal_bytes) - float(source.without_hints_bytes?),
            _ => return None,
        };
        // There is no less WAL than none.
        Some((-bytes / float(source.wal_bytes)).max(-1.0))
    }
}

const PAGE_BYTES: f64 = 8192.0;

/// WAL of an image: with the head of its record, and of the WAL's own pages.
fn record_bytes(image_bytes: f64) -> f64 {
    (image_bytes + 50.0) * (1.0 + 24.0 / PAGE_BYTES)
}

fn gross_bytes(run: &Run) -> f64 {
    float(run.hint_image_bytes) + 50.0 * float(run.hint_images)
}

/// The mean over all pages that censuses found changed by hints alone.
fn image_bytes(run: &Run) -> f64 {
    let mut pages = 0;
    let mut bytes = 0;
    for census in run.cycles.iter().flat_map(|cycle| &cycle.censuses) {
        pages += census.hint_only;
        bytes += census.hint_only_bytes;
    }
    record_bytes(if pages == 0 { PAGE_BYTES } else { float(bytes) / float(pages) })
}

/// Pages changed by hints alone, of all dirty ones.
fn hint_only(census: &Census) -> f64 {
    share(census.hint_only, census.sampled) * float(census.dirty)
}

/// The share of pages changed by hints alone among those that are evicted next. Few of these say
/// little: then that among all.
fn evicted_share(census: &Census) -> f64 {
    if census.low < FEW {
        return share(census.hint_only, census.sampled);
    }
    share(census.low_hint_only, census.low)
}

const FEW: u64 = 30;

fn share(part: u64, all: u64) -> f64 {
    float(part) / float(all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census(sampled: u64, hint_only: u64) -> Census {
        let low = sampled;
        let low_hint_only = hint_only;
        Census { dirty: 2 * sampled, sampled, hint_only, low, low_hint_only, hint_only_bytes: 0 }
    }

    #[test]
    fn pages_are_extrapolated_from_the_sample() {
        assert!((hint_only(&census(100, 25)) - 50.0).abs() < 1e-9);
        assert!(hint_only(&Census::default()).abs() < 1e-9, "an empty census has none");
    }
}
