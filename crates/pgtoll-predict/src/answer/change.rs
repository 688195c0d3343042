//! Changes of WAL, as records have them.

use pgtoll_model::prediction::Bounded;
use pgtoll_record::{Interval, PredictedWal, PredictionBasis};

use crate::answer::digest::{HintImages, WatchDigest, p95};
use crate::interval;

pub(super) fn hint_wal(digest: &WatchDigest, images: &HintImages) -> PredictedWal {
    // Pages that were counted as a bound may all be as large as pages can be.
    let alone = match images.basis {
        PredictionBasis::Counters | PredictionBasis::Statements => {
            images.per_second.times_bounds(images.bytes)
        }
        _ => images.per_second.times(images.bytes),
    };
    let alone = Bounded::sum_of_bounds(&[alone, digest.fuller]);
    // What is forced comes when it comes, whatever the WAL.
    let load = digest.load.filter(|_| !digest.forced);
    let extra = load.map_or(alone, |load| load.with_more_images(alone));
    let of_windows: Vec<f64> =
        images.of_windows.iter().map(|item| item * images.bytes.estimate).collect();
    PredictedWal {
        extra_p95_bytes_per_second: p95(&of_windows),
        images_per_second: Some(interval(images.per_second)),
        image_bytes: Some(interval(images.bytes)),
        estimators: images.estimators.clone(),
        ..wal_change(digest, extra, images.basis)
    }
}

pub(super) fn wal_change(
    digest: &WatchDigest,
    extra: Bounded,
    basis: PredictionBasis,
) -> PredictedWal {
    let baseline = digest.rates.wal_bytes_per_second;
    let share: Option<Interval> = (baseline > 0.0).then(|| interval(extra.scaled(1.0 / baseline)));
    PredictedWal {
        baseline_bytes_per_second: baseline,
        extra_bytes_per_second: interval(extra),
        extra_share: share,
        extra_p95_bytes_per_second: None,
        images_per_second: None,
        image_bytes: None,
        basis,
        estimators: std::collections::BTreeMap::new(),
    }
}
