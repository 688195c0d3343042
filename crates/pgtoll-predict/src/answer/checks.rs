//! Predictions of what was seen of the server itself, compared with it.

use pgtoll_model::prediction::{Bounded, WrittenPages};
use pgtoll_record::{
    BlindCheck, NextCycleCheck, PredictionChecks, ServerWatch, WatchWindow, WatchedServer,
    WatchedWal, WatchedWalCycle,
};

use crate::answer::digest::{
    FLOOR, MODEL_ERROR, SeenSettings, cycles_of, float, image_bytes, pages_written,
};
use crate::interval;

/// All comparisons that what was seen allows.
pub(super) fn checks(server: &WatchedServer, watch: &ServerWatch) -> PredictionChecks {
    let settings = SeenSettings::from_server(server);
    let wal = watch.wal.as_ref();
    let logs = settings.logs_hints() && settings.full_page_writes;
    PredictionChecks {
        next_cycle: next_cycle(&watch.windows),
        own_settings_error: wal.and_then(own_settings_error),
        blind: wal.filter(|_| logs).and_then(|wal| {
            let block = float(server.block_bytes.max(1));
            blind(&watch.windows, wal, image_bytes(&watch.windows, block, settings.compression))
        }),
    }
}

/// The rate of each whole cycle but the first, predicted by those before.
fn next_cycle(windows: &[WatchWindow]) -> Option<NextCycleCheck> {
    let cycles: Vec<&WatchWindow> = windows.iter().filter(|window| window.is_cycle).collect();
    let bytes: Vec<_> = cycles.iter().map(|cycle| Some((cycle.seconds, cycle.wal_bytes))).collect();
    let images: Vec<_> =
        cycles.iter().map(|cycle| Some((cycle.seconds, cycle.wal_images?))).collect();
    let (wal_error, wal_error_most) = errors(&bytes)?;
    let images = errors(&images);
    Some(NextCycleCheck {
        cycles: cycles.len().saturating_sub(1) as u64,
        wal_error,
        wal_error_most,
        images_error: images.map(|image| image.0),
        images_error_most: images.map(|image| image.1),
    })
}

/// The mean and the largest error, as shares of what came; `None` where nothing did, or something is
/// not known.
fn errors(cycles: &[Option<(f64, u64)>]) -> Option<(f64, f64)> {
    let mut seconds = 0.0;
    let mut sum = 0.0;
    let mut errors = Vec::new();
    for cycle in cycles {
        let (time, count) = (*cycle)?;
        let rate = float(count) / time.max(0.001);
        if seconds > 0.0 && rate > 0.0 {
            errors.push((sum / seconds / rate - 1.0).abs());
        }
        seconds += time;
        sum += float(count);
    }
    let most = errors.iter().copied().max_by(f64::total_cmp)?;
    Some((pgtoll_stats::mean(&errors)?, most))
}

fn own_settings_error(wal: &WatchedWal) -> Option<f64> {
    let own = wal.rows.first().filter(|_| wal.redo_points >= 2 && wal.today.bytes > 0)?;
    Some(float(own.bytes) / float(wal.today.bytes) - 1.0)
}

/// Returns the cost of hints, by the pages that were written and the records that are there without hints, beside
/// what is really in the WAL. Statements do not help: a SELECT's images are not distinguished here. Nor
/// do censuses: a hint's image has moved the page's LSN. An image takes `image_bytes`, as in the
/// prediction for a server without hints: those that are there without hints may be of other pages.
fn blind(windows: &[WatchWindow], wal: &WatchedWal, image_bytes: Bounded) -> Option<BlindCheck> {
    let mut images = Vec::new();
    let mut pages = WrittenPages::default();
    let mut count = 0_u64;
    let mut truth = WrittenTruth::default();
    for window in windows {
        let Some(pages_written) = pages_written(window, wal) else { continue };
        let written_pages = WrittenPages { select_dirtied: None, ..pages_written };
        images.push(written_pages.images());
        pages.checkpointed = pages.checkpointed.saturating_add(written_pages.checkpointed);
        pages.evicted = pages.evicted.saturating_add(written_pages.evicted);
        pages.changed = pages.changed.saturating_add(written_pages.changed);
        let cycles = cycles_of(window, wal)?;
        count += cycles.len() as u64;
        cycles.iter().try_for_each(|cycle| truth.add(cycle))?;
    }
    if truth.bytes_without <= 0.0 {
        return None;
    }
    let sum = |value: fn(&Bounded) -> f64| images.iter().map(value).sum::<f64>();
    // As a prediction for a server without hints, less what is said of other cycles than these.
    let slack = |floor: f64| floor * truth.bytes_without / image_bytes.estimate;
    let lower = sum(|item| item.lower) * (1.0 - MODEL_ERROR) + slack(FLOOR.lower);
    let upper = sum(|item| item.upper) * (1.0 + MODEL_ERROR) + slack(FLOOR.upper);
    let predicted = Bounded::new(sum(|item| item.estimate), lower.max(0.0), upper);
    let extra = Bounded::sum_of_bounds(&[predicted.times(image_bytes), truth.fuller]);
    let found = (truth.images - truth.images_without).max(0.0);
    Some(BlindCheck {
        cycles: count,
        written_blocks: pages.written(),
        evicted_blocks: pages.evicted,
        changed_pages: pages.changed,
        predicted_images: interval(predicted),
        found_images: whole(found),
        predicted_share: interval(extra.scaled(1.0 / truth.bytes_without)),
        found_share: (truth.bytes / truth.bytes_without - 1.0).max(0.0),
        holds: (predicted.lower..=predicted.upper).contains(&found),
    })
}

/// The WAL with hints, and without.
#[derive(Default)]
struct WrittenTruth {
    bytes: f64,
    images: f64,
    bytes_without: f64,
    images_without: f64,
    /// Bytes by which images are longer since dead rows are on their pages still.
    fuller: Bounded,
}

impl WrittenTruth {
    fn add(&mut self, cycle: &WatchedWalCycle) -> Option<()> {
        let without = cycle.without_hints?;
        self.bytes += float(cycle.bytes);
        self.images += float(cycle.images);
        self.bytes_without += float(without.bytes);
        self.images_without += float(without.images);
        let fuller = Bounded::new(float(cycle.pruned_bytes), 0.0, float(cycle.pruned_bytes_most));
        self.fuller = Bounded::sum_of_bounds(&[self.fuller, fuller]);
        Some(())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of images")]
fn whole(images: f64) -> u64 {
    images as u64
}
