//! Pieces of WAL brought into equal bins, over time or over its position.

use jiff::Timestamp;
use pgtoll_format::Lsn;
use pgtoll_record::{WalKind, WalPiece, WalStatisticsRecord};

/// Bytes of each kind, in the order of [`WalKind::ALL`].
pub(super) type OfKinds = [f64; WalKind::ALL.len()];

/// The WAL between two points of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) bytes: OfKinds,
}

/// Pieces along an axis, each from where the one before it ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WalSeries {
    pub(super) stretches: Vec<Stretch>,
    /// Bytes before it begins, written in an unknown time.
    pub(super) before: f64,
}

impl WalSeries {
    /// Over microseconds since 1970; `None` where no two of them are known.
    ///
    /// A piece's bytes came between the time of the piece before it and its own. Where that is no
    /// time at all, or it has none, they join the next. What came before the first time is left out.
    pub(super) fn over_time(statistics: &WalStatisticsRecord) -> Option<Self> {
        let first: Option<Timestamp> =
            statistics.source.first_time.as_deref().and_then(|time| time.parse().ok());
        let ends = statistics.pieces.iter().map(|piece| (piece.until_us.and_then(place), piece));
        let begin = first.map(Timestamp::as_microsecond).and_then(place);
        Self::joined(begin, ends)
    }

    /// Over bytes since the first record.
    pub(super) fn over_position(statistics: &WalStatisticsRecord) -> Option<Self> {
        let begin = origin(statistics)?;
        let nexts = statistics.pieces.iter().skip(1).map(|next| Some(next.from));
        let ends =
            nexts.chain([statistics.source.to]).map(|end| end.map(|end| distance(begin, end)));
        Self::joined(Some(0.0), ends.zip(&statistics.pieces))
    }

    fn joined<'a>(
        begin: Option<f64>,
        pieces: impl Iterator<Item = (Option<f64>, &'a WalPiece)>,
    ) -> Option<Self> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut last: Option<f64> = None;
        let mut waiting = OfKinds::default();
        let mut before = 0.0;
        for (end, piece) in pieces {
            let bytes = of_piece(piece);
            let Some(from) = last.or(begin.filter(|_| end.is_some())) else {
                before += total(&bytes);
                last = end;
                continue;
            };
            add(&mut waiting, &bytes);
            let to = end.unwrap_or(from);
            if to > from {
                stretches.push(Stretch { from, to, bytes: std::mem::take(&mut waiting) });
            }
            last = Some(from.max(to));
        }
        add(&mut stretches.last_mut()?.bytes, &waiting);
        Some(Self { stretches, before })
    }

    pub(super) fn ends(&self) -> (f64, f64) {
        let from = self.stretches.first().map_or(0.0, |stretch| stretch.from);
        (from, self.stretches.last().map_or(from, |stretch| stretch.to))
    }

    /// The bytes in each of this many equal bins. A stretch's are spread evenly over it.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bins are few"
    )]
    pub(super) fn binned(&self, count: usize) -> Vec<OfKinds> {
        let (begin, end) = self.ends();
        let wide = (end - begin) / count as f64;
        let mut bins = vec![OfKinds::default(); count];
        if wide <= 0.0 || count == 0 {
            return bins;
        }
        for stretch in &self.stretches {
            let bin_of = |at: f64| (((at - begin) / wide) as usize).min(count - 1);
            let first = bin_of(stretch.from);
            let last = bin_of(stretch.to);
            for (bin, index) in bins[first..=last].iter_mut().zip(first..) {
                // At its own ends a stretch goes by those, so that rounding loses nothing of it.
                let edge = |index: usize| begin + wide * index as f64;
                let from = if index == first { stretch.from } else { edge(index) };
                let to = if index == last { stretch.to } else { edge(index + 1) };
                let share = ((to - from) / (stretch.to - stretch.from)).max(0.0);
                add(bin, &stretch.bytes.map(|bytes| bytes * share));
            }
        }
        bins
    }
}

/// The start of the WAL.
pub(super) fn origin(statistics: &WalStatisticsRecord) -> Option<Lsn> {
    statistics.source.from.or_else(|| statistics.pieces.first().map(|piece| piece.from))
}

/// Bytes from one position to a later one.
#[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
pub(super) fn distance(from: Lsn, to: Lsn) -> f64 {
    to.bytes_since(from).unwrap_or(0) as f64
}

/// A time in a calendar that people use.
#[expect(clippy::cast_precision_loss, reason = "below 2^53 until the year 2255")]
pub(super) fn place(microsecond: i64) -> Option<f64> {
    Timestamp::from_microsecond(microsecond).ok().map(|_| microsecond as f64)
}

pub(super) fn total(kinds: &OfKinds) -> f64 {
    kinds.iter().sum()
}

#[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
pub(super) fn of_piece(piece: &WalPiece) -> OfKinds {
    WalKind::ALL.map(|kind| piece.bytes.get(&kind).copied().unwrap_or(0) as f64)
}

fn add(sum: &mut OfKinds, other: &OfKinds) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += other;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(until: Option<i64>, bytes: u64) -> WalPiece {
        WalPiece { from: Lsn(0), until_us: until, bytes: [(WalKind::Heap, bytes)].into() }
    }

    fn series(begin: Option<i64>, pieces: &[(Option<i64>, u64)]) -> Option<WalSeries> {
        let pieces: Vec<WalPiece> =
            pieces.iter().map(|(until, item)| piece(*until, *item)).collect();
        let ends = pieces.iter().map(|piece| (piece.until_us.and_then(place), piece));
        WalSeries::joined(begin.and_then(place), ends)
    }

    fn shown(course: Option<WalSeries>) -> Vec<(f64, f64, f64)> {
        let stretches = course.map(|course| course.stretches).unwrap_or_default();
        stretches.iter().map(|stretch| (stretch.from, stretch.to, total(&stretch.bytes))).collect()
    }

    #[test]
    fn pieces_without_a_duration_join_the_next() {
        let pieces = [
            (None, 1),
            (Some(10), 2),
            (Some(20), 4),
            (Some(20), 8),
            (Some(15), 16),
            (Some(40), 32),
        ];
        let whole = series(None, &pieces).unwrap();
        assert!((whole.before - 3.0).abs() < 1e-9);
        assert_eq!(shown(Some(whole)), [(10.0, 20.0, 4.0), (20.0, 40.0, 56.0)]);
        assert_eq!(shown(series(Some(5), &pieces))[0], (5.0, 10.0, 2.0));
        let late = [(Some(10), 1), (Some(20), 2), (None, 4)];
        assert_eq!(shown(series(None, &late)), [(10.0, 20.0, 6.0)]);
        assert_eq!(series(None, &[(Some(10), 1)]), None);
        assert_eq!(series(None, &[(None, 1), (None, 1)]), None);
    }

    #[test]
    fn bytes_are_spread_over_their_time() {
        let course = series(Some(0), &[(Some(10), 10), (Some(40), 60)]).unwrap();
        let bins: Vec<f64> = course.binned(4).iter().map(total).collect();
        assert_eq!(bins, [10.0, 20.0, 20.0, 20.0]);
        let bins: Vec<f64> = course.binned(2).iter().map(total).collect();
        assert_eq!(bins, [30.0, 40.0]);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(
            begin: Option<i64>,
            pieces in prop::collection::vec((any::<Option<i64>>(), any::<u64>()), 0..20),
            count in 1_usize..300,
        ) {
            if let Some(course) = series(begin, &pieces) {
                #[expect(clippy::cast_precision_loss, reason = "compared to a millionth")]
                let all: f64 = pieces.iter().map(|(_, bytes)| *bytes as f64).sum();
                let binned: f64 = course.binned(count).iter().map(total).sum();
                let binned = binned + course.before;
                prop_assert!((binned - all).abs() <= all * 1e-6, "{binned} of {all}");
            }
        }
    }
}
