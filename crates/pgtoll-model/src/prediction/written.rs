//! Net full-page images that logging hints would add, or adds, by the pages that were written and the
//! pages that WAL records changed: neither depends on whether hints are logged.

use super::Bounded;

/// Pages of one or several whole checkpoint cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenPages {
    /// Blocks written by checkpoints: each page once a cycle at most.
    pub checkpointed: u64,
    /// Blocks written by all others: a page may be among them several times.
    pub evicted: u64,
    /// Blocks of the cycles before that checkpoints had still to write when these began.
    pub carried: u64,
    /// Distinct pages that WAL records changed. Hints and bits of the visibility map are no changes.
    pub changed: u64,
    /// Distinct pages that were first changed by a record that always has its image: they may have
    /// been written past shared buffers, by nobody who is counted.
    pub forced: u64,
    /// Distinct pages that records only marked all-visible (estimator E4).
    pub visible: u64,
    /// Pages that SELECTs dirtied beyond their images (E1'); `None`: not known, or hints are logged.
    pub select_dirtied: Option<u64>,
}

impl WrittenPages {
    /// Net images of hints. A page that only hints changed is written at least once, so they are at
    /// most the pages written less those that records changed (E3). Checkpoints write none but pages
    /// of the cycle, each once, so they are at least what is left of these alone. Without evictions
    /// both are the same.
    ///
    /// A page that a checkpoint had still to write may have been changed or marked before it was written, and
    /// is written once for two cycles: as many as were carried over may be missing among the written.
    ///
    /// The estimate is what SELECTs dirtied, less the share that is evicted and counts again, beside
    /// the pages that were marked all-visible; without statements the middle of the bounds.
    pub fn images(&self) -> Bounded {
        let lower = self.checkpointed.saturating_sub(self.changed.saturating_add(self.forced));
        let lower = float(lower.max(self.visible));
        let written = self.written();
        let upper = float(written.saturating_sub(self.changed));
        let estimate = match self.select_dirtied {
            Some(dirtied) => float(self.visible) + float(dirtied) * (1.0 - self.evicted_share()),
            None => f64::midpoint(lower, upper.max(lower)),
        };
        let once_for_two = self.carried.min(self.changed.saturating_add(self.visible));
        let most = written.saturating_add(once_for_two).saturating_sub(self.changed);
        Bounded::new(estimate, lower, float(most))
    }

    /// Blocks written by all.
    pub fn written(&self) -> u64 {
        self.checkpointed.saturating_add(self.evicted)
    }

    fn evicted_share(&self) -> f64 {
        if self.written() == 0 { 0.0 } else { float(self.evicted) / float(self.written()) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "pages, far below 2^53")]
fn float(pages: u64) -> f64 {
    pages as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_evictions_the_bounds_meet() {
        let pages =
            WrittenPages { checkpointed: 1000, changed: 700, visible: 200, ..<_>::default() };
        assert_eq!(pages.images(), Bounded::exact(300.0));
    }

    /// 700 changed pages, of which 300 had been dirty since the cycle before and were written with it.
    #[test]
    fn a_page_that_is_written_once_for_two_cycles_is_in_the_upper_bound() {
        let pages =
            WrittenPages { checkpointed: 450, carried: 300, changed: 700, ..<_>::default() };
        assert_eq!(pages.images(), Bounded { estimate: 0.0, lower: 0.0, upper: 50.0 });
        let few_changed = WrittenPages { changed: 100, ..pages };
        assert_eq!(few_changed.images(), Bounded { estimate: 350.0, lower: 350.0, upper: 450.0 });
    }

    #[test]
    fn evicted_pages_count_several_times_at_most() {
        let pages =
            WrittenPages { checkpointed: 800, evicted: 500, changed: 700, ..<_>::default() };
        assert_eq!(pages.images(), Bounded { estimate: 350.0, lower: 100.0, upper: 600.0 });
        let visible = WrittenPages { visible: 150, ..pages };
        assert_eq!(visible.images().lower.to_bits(), 150_f64.to_bits());
        // Of 400 pages that SELECTs dirtied five thirteenths were evicted.
        let statements = WrittenPages { select_dirtied: Some(390), ..visible };
        assert_eq!(statements.images().estimate.to_bits(), 390_f64.to_bits());
        let many = WrittenPages { select_dirtied: Some(4000), ..visible };
        assert_eq!(many.images().estimate.to_bits(), 600_f64.to_bits());
    }

    #[test]
    fn pages_that_bulk_writes_made_do_not_count_as_hinted() {
        let built =
            WrittenPages { checkpointed: 1000, changed: 100, forced: 900, ..<_>::default() };
        assert_eq!(built.images(), Bounded { estimate: 450.0, lower: 0.0, upper: 900.0 });
        // More was changed than was written: of a table that was dropped.
        let dropped = WrittenPages { checkpointed: 10, changed: 100, visible: 5, ..<_>::default() };
        assert_eq!(dropped.images(), Bounded::exact(5.0));
    }
}
