//! Savings of a server that no longer logs hints: by its own WAL, replayed without them.

use super::Bounded;

/// A checkpoint cycle of WAL with hints, and the same work without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintlessCycle {
    /// Bytes of WAL.
    pub bytes: u64,
    /// Full-page images.
    pub images: u64,
    /// Bytes of WAL without hints.
    pub bytes_without: u64,
    /// Images without hints.
    pub images_without: u64,
    /// Bytes that come on top if `VACUUM` had to freeze what it froze right after a hint's image.
    pub freeze_bytes: u64,
}

/// The shares of hints in the WAL with them.
#[derive(Clone, Debug, PartialEq)]
pub struct HintSaving {
    /// The change without hints, of all bytes: not positive.
    pub share: Bounded,
    /// The estimates of the cycles.
    pub of_cycles: Vec<f64>,
    /// Bytes of WAL for an image that is saved; `None`: none is.
    pub image_bytes: Option<f64>,
}

/// The replay's own error, as a share of WAL with hints: in the prediction trial 18 savings of up to
/// 45 % were found to within 0.7 points, those that VACUUM's freezes decide apart
/// (`docs/src/prediction-trial.md`).
const MODEL_ERROR: f64 = 0.01;

/// The saving by whole cycles; `None` without any. Beside the replay's error there is how unlike cycles
/// are: `unlike` as a share of the saving. What `VACUUM` may have had to freeze makes it smaller.
pub fn hint_saving(cycles: &[HintlessCycle], unlike: impl Fn(&[f64]) -> f64) -> Option<HintSaving> {
    let sum = |value: fn(&HintlessCycle) -> u64| {
        float(cycles.iter().map(value).fold(0, u64::saturating_add))
    };
    let bytes = sum(|item| item.bytes);
    if bytes <= 0.0 {
        return None;
    }
    let saved = bytes - sum(|item| item.bytes_without);
    let images = sum(|item| item.images) - sum(|item| item.images_without);
    let share = (-saved / bytes).min(0.0);
    let of_cycles: Vec<f64> = cycles
        .iter()
        .filter(|cycle| cycle.bytes > 0)
        .map(|cycle| (float(cycle.bytes_without) / float(cycle.bytes) - 1.0).min(0.0))
        .collect();
    let half = unlike(&of_cycles);
    let around = |half: f64| Bounded { estimate: 0.0, lower: -half, upper: half };
    let all = Bounded::sum(&[Bounded::exact(share), around(MODEL_ERROR), around(half)]);
    let freezes = sum(|item| item.freeze_bytes) / bytes;
    let share = Bounded::new(share, all.lower.max(-1.0), (all.upper + freezes).min(0.0));
    let image_bytes = (images >= 1.0 && saved > 0.0).then(|| saved / images);
    Some(HintSaving { share, of_cycles, image_bytes })
}

#[expect(clippy::cast_precision_loss, reason = "bytes of WAL are far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const CYCLE: HintlessCycle = HintlessCycle {
        bytes: 1_000_000,
        images: 100,
        bytes_without: 680_000,
        images_without: 60,
        freeze_bytes: 0,
    };

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_saving_is_a_share_of_the_wal_with_hints() {
        let saving = hint_saving(&[CYCLE, CYCLE], |_| 0.0).unwrap();
        assert!(near(saving.share.estimate, -0.32), "{saving:?}");
        assert!(near(saving.share.lower, -0.33) && near(saving.share.upper, -0.31), "{saving:?}");
        assert!(near(saving.image_bytes.unwrap(), 8_000.0), "{saving:?}");
        assert_eq!(saving.of_cycles.len(), 2);
        assert_eq!(hint_saving(&[], |_| 0.0), None);
    }

    #[test]
    fn unlike_cycles_widen_and_freezes_make_it_smaller() {
        let saving = hint_saving(&[CYCLE], |shares| -shares[0] * 0.3).unwrap();
        // 1 point and 9.6 points.
        assert!(near(saving.share.lower, -0.32 - 0.096_f64.hypot(0.01)), "{saving:?}");
        let frozen = HintlessCycle { freeze_bytes: 300_000, ..CYCLE };
        let saving = hint_saving(&[frozen], |_| 0.0).unwrap();
        assert!(near(saving.share.lower, -0.33) && near(saving.share.upper, -0.01), "{saving:?}");
        let more = HintlessCycle { bytes_without: 1_000_100, images_without: 100, ..CYCLE };
        let saving = hint_saving(&[more], |_| 0.0).unwrap();
        assert!(near(saving.share.estimate, 0.0) && near(saving.share.upper, 0.0), "{saving:?}");
        assert_eq!(saving.image_bytes, None);
    }
}
