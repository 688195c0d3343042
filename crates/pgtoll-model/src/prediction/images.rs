//! Net full-page images that logging hints would add: the pages that a checkpoint cycle dirties
//! without logging them. With hints not logged, a page's LSN moves neither by hints nor by the
//! visibility map's bits, so these are the dirty pages with an LSN before the cycle's redo point
//! (`MarkBufferDirtyHint` in `bufmgr.c`, `log_heap_visible` in `heapam.c`).

use super::Bounded;

/// Bytes of WAL beside the image itself: headers of the record, the block and the image, and
/// alignment. 8,152 to 8,265 bytes were measured for a page without a hole.
pub const IMAGE_RECORD_BYTES: f64 = 50.0;

/// A census of dirty buffers in a checkpoint cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CensusCounts {
    /// Dirty buffers of the main fork and the free space map.
    pub dirty: u64,
    /// The part in databases whose pages could be read.
    pub covered: u64,
    /// Pages that were looked at.
    pub sampled: u64,
    /// The part of permanent blocks with an LSN before the redo point.
    pub hint_only: u64,
    /// Pages that were looked at and are soon evicted (usage count 0 or 1).
    pub low: u64,
    /// The part of permanent blocks with an LSN before the redo point.
    pub low_hint_only: u64,
    /// The uncertainty of `low`: blocks that are dirty since before a checkpoint that still runs, or again.
    pub low_unsure: u64,
    /// Seconds from the cycle's begin to the census.
    pub age_s: f64,
    /// Seconds from the cycle's begin to its end.
    pub cycle_s: f64,
}

/// Fewer pages that are evicted next say little about those that are.
const FEW: u64 = 30;

impl CensusCounts {
    /// Pages in shared buffers that would have been logged (estimator E2).
    pub fn stock(&self) -> f64 {
        share(self.hint_only, self.sampled) * float(self.dirty)
    }

    /// The same with the sample's error; pages that could not be read are in the upper bound.
    pub(super) fn bounded_stock(&self) -> Bounded {
        let share = binomial(self.hint_only, self.sampled, self.covered);
        let covered = float(self.covered);
        let left_out = float(self.dirty.saturating_sub(self.covered));
        Bounded {
            estimate: self.stock(),
            lower: share.lower * covered,
            upper: share.upper * covered + left_out,
        }
    }

    /// The share of pages changed by hints alone among those that are evicted next (estimator E2+).
    /// Too few of these: the share among all, and no bounds.
    pub(super) fn evicted_share(&self) -> Bounded {
        if !self.knows_low() {
            return Bounded::new(share(self.hint_only, self.sampled), 0.0, 1.0);
        }
        let known = binomial(self.low_hint_only, self.low, u64::MAX);
        let most = (self.low_hint_only + self.low_unsure).min(self.low);
        Bounded { upper: binomial(most, self.low, u64::MAX).upper, ..known }
    }

    pub(super) fn knows_low(&self) -> bool {
        self.low >= FEW
    }

    /// The same share, not zero where a sample has none.
    pub(super) fn least_known_share(&self) -> f64 {
        let (hits, all) = if self.knows_low() {
            (self.low_hint_only, self.low)
        } else {
            (self.hint_only, self.sampled)
        };
        (float(hits) + 0.5) / (float(all) + 1.0)
    }
}

/// The counts that are known without a census.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatementCounts {
    /// Pages that SELECTs dirtied beyond their images (estimator E1'); `None`: not known.
    pub select_dirtied: Option<u64>,
    /// Blocks written by all.
    pub written: u64,
    /// The evicted part.
    pub evicted: u64,
    /// Full-page images that were logged, at least, each of another page that was written.
    pub images: u64,
    /// Blocks of the cycles before that checkpoints had still to write when these began.
    pub carried: u64,
    /// `VACUUM` may have marked pages all-visible.
    pub may_be_marked: bool,
}

/// Images of a whole cycle by counters alone. Every page that would be logged is written, and so is
/// every page that was: at most all that is written less the images. A SELECT that dirties a page
/// again after its eviction counts twice, hence the estimate's share.
///
/// A page that a checkpoint had still to write is written once for two cycles, and may have had an image in
/// both, or be marked all-visible before it is written: as many as were carried over may be missing among the
/// written.
pub fn window_images(counts: &StatementCounts) -> Bounded {
    let once_for_two =
        if counts.may_be_marked { counts.carried } else { counts.carried.min(counts.images) };
    let upper = float(counts.written.saturating_add(once_for_two).saturating_sub(counts.images));
    let Some(dirtied) = counts.select_dirtied.map(float) else {
        return Bounded { estimate: upper / 2.0, lower: 0.0, upper };
    };
    let kept = 1.0 - share(counts.evicted, counts.written);
    // Pages that VACUUM would log are not SELECTs': the upper bound stays.
    Bounded::new(dirtied * kept, 0.0, upper)
}

/// Images of tables, TOAST tables among them, that were dropped before a census could see them. All their
/// pages are new in the cycle, and pages that a record made new have no image for a hint
/// (`XLogCheckBufferNeedsBackup` compares LSNs). But a free space map is changed by no record, and is logged
/// whole: at least its leaf, and with VACUUM and COPY a page for each of its three levels (`freespace.c`).
/// Temporary and empty tables have none that is logged: of a table and its TOAST table one is taken to have
/// a leaf.
pub fn gone_images(gone: u64) -> Bounded {
    Bounded::new(float(gone) / 2.0, 0.0, FREE_SPACE_LEVELS * float(gone))
}

const FREE_SPACE_LEVELS: f64 = 3.0;

/// The 95 % interval of a share by a sample without replacement (Wilson's, with the correction for
/// a finite population); exact where all were looked at.
fn binomial(hits: u64, sampled: u64, population: u64) -> Bounded {
    if sampled == 0 {
        return Bounded { estimate: 0.0, lower: 0.0, upper: 1.0 };
    }
    let estimate = share(hits, sampled);
    if sampled >= population {
        return Bounded::exact(estimate);
    }
    let population = float(population);
    let n = float(sampled) * (population - 1.0) / (population - float(sampled));
    let z2 = 1.96_f64.powi(2);
    let middle = (estimate + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half =
        1.96 / (1.0 + z2 / n) * (estimate * (1.0 - estimate) / n + z2 / (4.0 * n * n)).sqrt();
    Bounded::new(estimate, (middle - half).max(0.0), (middle + half).min(1.0))
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { float(part) / float(whole) }
}

#[expect(clippy::cast_precision_loss, reason = "pages, far below 2^53")]
fn float(pages: u64) -> f64 {
    pages as f64
}

#[cfg(test)]
mod tests {
    use super::super::{PlacedCensus, cycle_images};
    use super::*;

    fn images(counts: CensusCounts, evicted: f64) -> Bounded {
        cycle_images(&[PlacedCensus { counts, place: 1.0 }], evicted)
    }

    /// A trial: estimate without checksums, truth from a twin with checksums and the same work
    /// (PostgreSQL 15, one client). Pages of the stock, that were evicted, of these with hints alone.
    struct Twin {
        name: &'static str,
        truth: f64,
        stock: u64,
        evicted: f64,
        low_share: (u64, u64),
    }

    /// The evictions follow from E2 and E2+ of the trials: their difference is the term.
    const TWINS: [Twin; 6] = [
        Twin {
            name: "first SELECT after INSERT, no eviction",
            truth: 65_574.0,
            stock: 65_574,
            evicted: 0.0,
            low_share: (0, 0),
        },
        Twin {
            name: "VACUUM of it, no eviction",
            truth: 65_577.0,
            stock: 65_577,
            evicted: 0.0,
            low_share: (0, 0),
        },
        Twin {
            name: "TPC-B and select mix, cycle 2",
            truth: 7.0,
            stock: 7,
            evicted: 0.0,
            low_share: (0, 0),
        },
        Twin {
            name: "cold range SELECTs, 64 MB, cycle 1",
            truth: 31_584.0,
            stock: 5_323,
            evicted: 25_508.0,
            low_share: (1, 1),
        },
        Twin {
            name: "cold range SELECTs, 64 MB, cycle 3",
            truth: 11_639.0,
            stock: 1_450,
            evicted: 9_039.0,
            low_share: (1, 1),
        },
        Twin {
            name: "VACUUM after it, 64 MB",
            truth: 82_032.0,
            stock: 7_166,
            evicted: 75_197.0,
            low_share: (1, 1),
        },
    ];

    #[test]
    fn the_trials_truth_is_within_the_bounds() {
        for twin in TWINS {
            let low = twin.low_share.1 * 1000;
            let census = CensusCounts {
                dirty: twin.stock,
                covered: twin.stock,
                sampled: twin.stock,
                hint_only: twin.stock,
                low,
                low_hint_only: twin.low_share.0 * 1000,
                low_unsure: 0,
                age_s: 100.0,
                cycle_s: 100.0,
            };
            let images = images(census, twin.evicted);
            let is_near = (images.estimate / twin.truth - 1.0).abs() <= 0.12;
            assert!(is_near, "{}: {images:?} for {}", twin.name, twin.truth);
            let holds = (images.lower..=images.upper).contains(&twin.truth);
            assert!(holds, "{}: {images:?} for {}", twin.name, twin.truth);
        }
    }

    #[test]
    fn a_sample_widens_and_a_full_census_does_not() {
        let full = CensusCounts {
            dirty: 2000,
            covered: 2000,
            sampled: 2000,
            hint_only: 500,
            age_s: 60.0,
            cycle_s: 60.0,
            ..CensusCounts::default()
        };
        assert_eq!(images(full, 0.0), Bounded::exact(500.0));
        let sampled = CensusCounts { dirty: 200_000, covered: 200_000, ..full };
        let images = images(sampled, 0.0);
        assert!((images.estimate - 50_000.0).abs() < 1e-6);
        // 1.96 · sqrt(0.25 · 0.75 / 2000) is 1.9 % of the pages.
        assert!((46_000.0..46_500.0).contains(&images.lower), "{images:?}");
        assert!((53_500.0..54_100.0).contains(&images.upper), "{images:?}");
    }

    #[test]
    fn databases_that_could_not_be_read_count_in_the_upper_bound() {
        let census = CensusCounts {
            dirty: 1000,
            covered: 600,
            sampled: 600,
            hint_only: 300,
            age_s: 60.0,
            cycle_s: 60.0,
            ..CensusCounts::default()
        };
        let images = images(census, 0.0);
        assert_eq!((images.lower, images.estimate, images.upper), (300.0, 500.0, 700.0));
    }

    #[test]
    fn an_early_census_has_not_seen_all() {
        let census = CensusCounts {
            dirty: 100,
            covered: 100,
            sampled: 100,
            hint_only: 100,
            age_s: 20.0,
            cycle_s: 60.0,
            ..CensusCounts::default()
        };
        assert_eq!(images(census, 0.0), Bounded { estimate: 200.0, lower: 100.0, upper: 300.0 });
    }

    #[test]
    fn without_a_census_all_that_is_written_is_the_bound() {
        let counts = StatementCounts { written: 1000, images: 400, ..StatementCounts::default() };
        assert_eq!(window_images(&counts), Bounded { estimate: 300.0, lower: 0.0, upper: 600.0 });
        let counts = StatementCounts { select_dirtied: Some(200), evicted: 500, ..counts };
        assert_eq!(window_images(&counts), Bounded { estimate: 100.0, lower: 0.0, upper: 600.0 });
        // 50 pages were written once, and had an image in both cycles.
        let counts = StatementCounts { carried: 50, ..counts };
        assert_eq!(window_images(&counts), Bounded { estimate: 100.0, lower: 0.0, upper: 650.0 });
        let none = StatementCounts { images: 0, ..counts };
        assert_eq!(window_images(&none).upper.to_bits(), 1000_f64.to_bits());
    }

    #[test]
    fn each_relation_that_is_gone_may_have_had_a_free_space_map() {
        assert_eq!(gone_images(0), Bounded::ZERO);
        assert_eq!(gone_images(200), Bounded { estimate: 100.0, lower: 0.0, upper: 600.0 });
    }
}
