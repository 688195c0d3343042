//! Answers from the WAL that was read, replayed with other settings.

use pgtoll_model::prediction::{Bounded, HintSaving, HintlessCycle, hint_saving};
use pgtoll_record::{
    PredictedWal, PredictionBasis, WatchedWal, WatchedWalCycle, WhatIfClass, WhatIfRow,
};

use crate::answer::change::wal_change;
use crate::answer::digest::{UNLIKE_CYCLES, WatchDigest, between_windows, float, p95};
use crate::interval;
use crate::question::AskedValue;

/// The saving of a server that no longer logs hints.
pub(super) struct GoneHints {
    pub(super) wal: PredictedWal,
    /// Images a second: negative.
    pub(super) images: Bounded,
    pub(super) reason: Option<String>,
}

/// `None` where the WAL has no hints that could be left out.
pub(super) fn hints_gone(digest: &WatchDigest, wal: &WatchedWal) -> Option<GoneHints> {
    let cycles: Vec<HintlessCycle> = wal.cycles.iter().filter_map(hintless).collect();
    let whole = hint_saving(&cycles, unlike_cycles).map(|saving| by_volume(saving, digest, wal));
    let is_whole = whole.is_some();
    let saving = whole.or_else(|| of_a_part(wal))?;
    let rate = digest.rates.wal_bytes_per_second;
    let extra = saving.share.scaled(rate);
    let images = saving.image_bytes.map_or(Bounded::ZERO, |bytes| extra.scaled(1.0 / bytes));
    let of_cycles: Vec<f64> = saving.of_cycles.iter().map(|share| share * rate).collect();
    let part = "fewer than two redo points were read: the estimate is from a part of a checkpoint cycle; between none and all images may be saved";
    Some(GoneHints {
        wal: PredictedWal {
            extra_p95_bytes_per_second: p95(&of_cycles),
            images_per_second: Some(interval(images)),
            image_bytes: saving.image_bytes.map(|bytes| interval(Bounded::exact(bytes))),
            ..wal_change(digest, extra, PredictionBasis::WhatIf)
        },
        images,
        reason: (!is_whole).then(|| part.to_owned()),
    })
}

fn hintless(cycle: &WatchedWalCycle) -> Option<HintlessCycle> {
    let without = cycle.without_hints?;
    Some(HintlessCycle {
        bytes: cycle.bytes,
        images: cycle.images,
        bytes_without: without.bytes,
        images_without: without.images,
        freeze_bytes: without.freeze_bytes,
    })
}

/// How unlike cycles are: as they showed, at least as much as those of other servers.
fn unlike_cycles(shares: &[f64]) -> f64 {
    let count = float(shares.len().max(1) as u64);
    let mean = shares.iter().sum::<f64>().abs() / count;
    between_windows(shares).max(mean * UNLIKE_CYCLES / count.sqrt())
}

/// Adjusts for checkpoints that WAL volume begins: less WAL begins fewer of them, and these need fewer images:
/// the replay by the server's own rule, with the what-if's own range.
fn by_volume(saving: HintSaving, digest: &WatchDigest, wal: &WatchedWal) -> HintSaving {
    let own = wal.rows.first().filter(|own| own.checkpoints_by_volume > 0 && own.bytes > 0);
    let is_off =
        |row: &&WhatIfRow| row.hints != wal.today.hints && row.max_wal_size_bytes.is_some();
    let (Some(own), Some(off), false) = (own, wal.rows.iter().find(is_off), digest.forced) else {
        return saving;
    };
    if off.class == WhatIfClass::Extrapolated {
        return saving;
    }
    let share = |bytes: u64| (float(bytes) / float(own.bytes) - 1.0).min(0.0);
    let off_share = share(off.bytes);
    let own_range =
        Bounded::new(off_share, share(off.low_bytes), off.high_bytes.map_or(0.0, share));
    let half = unlike_cycles(&saving.of_cycles);
    let unlike = Bounded { estimate: 0.0, lower: -half, upper: half };
    let all = Bounded::sum(&[own_range, unlike]);
    let share = Bounded::new(off_share, all.lower.max(-1.0), all.upper.min(0.0));
    HintSaving { share, ..saving }
}

/// Returns the range for WAL without a whole cycle: between no image and all.
fn of_a_part(wal: &WatchedWal) -> Option<HintSaving> {
    let is_off =
        |row: &&WhatIfRow| row.hints != wal.today.hints && row.max_wal_size_bytes.is_none();
    let off = wal.rows.iter().find(is_off).filter(|_| wal.today.hints && wal.today.bytes > 0)?;
    let bytes = float(wal.today.bytes);
    let saved = float(wal.today.bytes.saturating_sub(off.bytes));
    let images = float(wal.today.images.saturating_sub(off.images));
    let most = float(wal.today.image_bytes) / bytes;
    Some(HintSaving {
        share: Bounded::new(-saved / bytes, -most.min(1.0), 0.0),
        of_cycles: Vec::new(),
        image_bytes: (images >= 1.0 && saved > 0.0).then(|| saved / images),
    })
}

/// WAL more with this value, in bytes a second; `None` where it was not replayed, or too little WAL
/// was read to say so.
pub(super) fn changed(
    digest: &WatchDigest,
    wal: &WatchedWal,
    value: AskedValue,
) -> Option<Bounded> {
    let own = wal.rows.first()?;
    let is_asked = |row: &&WhatIfRow| row.hints == own.hints && is_of(row, own, value);
    let row = wal.rows.iter().skip(1).find(is_asked)?;
    let is_known = row.class != WhatIfClass::Extrapolated && wal.redo_points >= 2;
    let high = row.high_bytes.filter(|_| is_known && wal.today.bytes > 0)?;
    let share = |bytes: u64| float(bytes) / float(wal.today.bytes) - 1.0;
    let change = Bounded::new(share(row.bytes), share(row.low_bytes), share(high));
    Some(change.scaled(digest.rates.wal_bytes_per_second))
}

/// The row differs from the server's own settings in this value alone.
fn is_of(row: &WhatIfRow, own: &WhatIfRow, value: AskedValue) -> bool {
    let seconds = |row: &WhatIfRow| row.checkpoint_timeout_s.map(f64::to_bits);
    let same_size = row.max_wal_size_bytes == own.max_wal_size_bytes;
    let same_time = seconds(row) == seconds(own);
    let same_images = row.wal_compression == own.wal_compression;
    match value {
        AskedValue::Checksums(_) | AskedValue::Hints(_) => false,
        AskedValue::Compression(_) => {
            same_size && same_time && row.wal_compression == value.describe()
        }
        AskedValue::MaxWalSize(size) => {
            same_time && same_images && row.max_wal_size_bytes == Some(size.0)
        }
        AskedValue::Timeout(time) => {
            let requested = time.0.as_secs_f64().to_bits();
            same_size && same_images && seconds(row) == Some(requested)
        }
    }
}
