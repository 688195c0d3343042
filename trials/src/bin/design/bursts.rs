//! When a neighbour works: busy and idle spans in turn, of exponential lengths.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// The mean length of a span, busy or idle: the jobs of a machine's other users last seconds.
pub(crate) const MEAN_SPAN: Duration = Duration::from_secs(2);

/// A stretch of time in which a neighbour either works or does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) busy: bool,
    pub(crate) length: Duration,
}

/// An endless schedule. It begins as if it had gone on for ever: half of all neighbours are busy.
/// The same seed and number give the same schedule.
#[derive(Debug)]
pub(crate) struct Bursts {
    random: Pcg64,
    busy: bool,
}

impl Bursts {
    /// The schedule of one of the neighbours, distinguished by its `number`.
    pub(crate) fn new(seed: u64, number: usize) -> Self {
        let own = Pcg64::seed_from_u64(seed).random_iter().nth(number).unwrap_or_default();
        let mut random = Pcg64::seed_from_u64(own);
        let busy = random.random();
        Self { random, busy }
    }
}

impl Iterator for Bursts {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        // From 0 to below 1, so the logarithm is of a positive number.
        let uniform: f64 = self.random.random();
        let span = Span { busy: self.busy, length: MEAN_SPAN.mul_f64(-(1.0 - uniform).ln()) };
        self.busy = !self.busy;
        Some(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_number_decide_the_schedule() {
        let spans = |seed, number| Bursts::new(seed, number).take(20).collect::<Vec<_>>();
        assert_eq!(spans(1, 0), spans(1, 0));
        let others = [spans(1, 1), spans(2, 0), spans(2, 1), spans(0, 1)];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(&spans(1, 0), other);
            assert!(others[..index].iter().all(|earlier| earlier != other));
        }
    }

    #[test]
    fn spans_alternate_and_have_the_mean_that_is_stated() {
        let spans: Vec<Span> = Bursts::new(7, 3).take(20_000).collect();
        assert!(spans.windows(2).all(|pair| pair[0].busy != pair[1].busy));
        for busy in [true, false] {
            let of_kind = spans.iter().filter(|span| span.busy == busy);
            let mean = of_kind.map(|span| span.length.as_secs_f64()).sum::<f64>() / 10_000.0;
            // The mean of n exponential lengths has a standard error of a √n-th of itself.
            assert!((mean / MEAN_SPAN.as_secs_f64() - 1.0).abs() < 0.05, "{mean}");
        }
    }

    #[test]
    fn about_half_of_all_neighbours_begin_busy() {
        let busy = (0..200).filter(|&seed| Bursts::new(seed, 0).busy).count();
        assert!((70..130).contains(&busy), "{busy}");
    }
}
