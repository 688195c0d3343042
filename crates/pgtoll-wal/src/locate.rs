//! The place of a time in the WAL.

use pgtoll_format::Lsn;
use pgtoll_format::wal::rmgr::{RM_XACT_ID, RM_XLOG_ID};
use pgtoll_format::wal::{Event, Parts, Record};

use crate::collect::Collect;

/// The first commit, rollback or checkpoint at a time or later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstEvent {
    since_us: i64,
    /// Its record, and when it was, in microseconds since 1970.
    pub(crate) found: Option<(Lsn, i64)>,
}

impl FirstEvent {
    pub(crate) fn since(since_us: i64) -> Self {
        Self { since_us, found: None }
    }
}

impl Collect for FirstEvent {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        if self.found.is_some() || !matches!(record.header.manager, RM_XLOG_ID | RM_XACT_ID) {
            return;
        }
        let time_us = match record.event(parts) {
            Some(Event::TransactionEnd { time_us }) => time_us,
            Some(Event::Checkpoint { time_s, .. }) => time_s.saturating_mul(1_000_000),
            Some(Event::RedoPoint) | None => return,
        };
        if time_us >= self.since_us {
            self.found = Some((record.at, time_us));
        }
    }

    fn append(&mut self, later: Self) {
        self.found = self.found.or(later.found);
    }
}

/// The first event at a time or later, in segments of which `first` gives the first event since a
/// time. Few segments are looked into: times rise with the WAL but for a clock that was set, and
/// [`DISORDER_US`].
pub(crate) fn locate(
    segments: usize,
    since_us: i64,
    mut first: impl FnMut(usize, i64) -> Option<(Lsn, i64)>,
) -> Option<Lsn> {
    let mut begin = 0;
    let mut end = segments;
    // Events before `begin` are earlier. From `end` on the first one is not earlier by more than the disorder.
    while begin < end {
        let middle = begin.midpoint(end);
        let found = (middle..end).find_map(|number| Some((number, first(number, i64::MIN)?)));
        match found {
            Some((number, (_, time_us))) if time_us.saturating_add(DISORDER_US) < since_us => {
                begin = number + 1;
            }
            _ => end = middle,
        }
    }
    let from = begin.saturating_sub(1);
    (from..segments).find_map(|number| first(number, since_us)).map(|(at, _)| at)
}

/// How much earlier than one before it an event may seem to be, in microseconds: a checkpoint's time is
/// rounded down to seconds, and a transaction takes its time before it writes its end.
const DISORDER_US: i64 = 5_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_event_since_a_time_is_found(
            steps in prop::collection::vec((0_i64..3_000_000, 1_usize..4, any::<bool>()), 0..60),
            late in prop::collection::vec(0..=DISORDER_US, 1..20),
            since_us in -5_i64..60_000_000,
        ) {
            // Events by segment; some segments have none.
            let mut late = late.into_iter().cycle();
            let mut time = 0;
            let mut at = 0;
            let mut segments = Vec::new();
            for (step, events, is_empty) in steps {
                let mut of_segment = Vec::new();
                for _ in 0..if is_empty { 0 } else { events } {
                    (time, at) = (time + step, at + 1);
                    of_segment.push((Lsn(at), time - late.next().unwrap_or_default()));
                }
                segments.push(of_segment);
            }
            let first = |number: usize, since: i64| {
                segments[number].iter().copied().find(|(_, time)| *time >= since)
            };
            let expected = segments.iter().flatten().find(|(_, time)| *time >= since_us);
            prop_assert_eq!(
                locate(segments.len(), since_us, first),
                expected.map(|(at, _)| *at)
            );
        }
    }
}
