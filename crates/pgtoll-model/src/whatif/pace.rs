//! The pace of the source's checkpoints: how long after their mark they ended, and which requests
//! were lost. Under other settings it is the same.
//! lost. Under other settings they go the same way.

/// The source's checkpoints, as far as they were seen.
#[derive(Clone, Debug, Default)]
pub(super) struct SourcePace {
    /// How much work was done between the place where the writes of one should have ended and its
    /// end; `None`: it ended before.
    delays: Vec<Option<u64>>,
    /// For checkpoints that were requested while the one before ran: whether the request was lost, and the
    /// next segment's end asked again.
    losses: Vec<bool>,
    /// The last one ran when the next was asked for.
    is_late: bool,
}

/// By how much longer a checkpointer would have napped that was woken.
const WOKEN: u64 = 2;
/// Delays that are kept.
const DELAYS: usize = 1 << 12;

impl SourcePace {
    /// A checkpoint was complete; how much work was done since its mark, and whether the next one had
    /// been asked for.
    pub(super) fn ended(&mut self, since_mark: Option<u64>, is_late: bool) {
        if self.delays.len() >= DELAYS {
            return;
        }
        self.is_late = is_late;
        // The request woke it from a nap that would have been longer.
        let woken = if is_late { WOKEN } else { 1 };
        self.delays.push(since_mark.map(|work| work * woken));
    }

    /// The next one began: was its request lost?
    pub(super) fn began(&mut self, is_forced: bool, was_lost: impl FnOnce() -> bool) {
        if std::mem::take(&mut self.is_late) && !is_forced {
            self.losses.push(was_lost());
        }
    }

    /// The delay of a setting's checkpoint, by its number; `None`: it ends before its mark.
    pub(super) fn delay(&self, number: u64) -> Option<u64> {
        nth(&self.delays, number).unwrap_or(Some(0))
    }

    /// Whether the request is lost, by the number of those that waited.
    pub(super) fn loses(&self, number: u64) -> bool {
        nth(&self.losses, number).unwrap_or(false)
    }
}

/// Repeats the observed values in the same order.
#[expect(clippy::cast_possible_truncation, reason = "what is less than a length")]
fn nth<T: Copy>(seen: &[T], number: u64) -> Option<T> {
    seen.get(number.checked_rem(seen.len() as u64)? as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_comes_again_in_its_order() {
        let mut pace = SourcePace::default();
        assert_eq!((pace.delay(3), pace.loses(3)), (Some(0), false));
        pace.ended(Some(100), false);
        pace.began(false, || panic!("nothing was asked for"));
        pace.ended(Some(100), true);
        pace.began(false, || true);
        pace.ended(None, false);
        assert_eq!(
            [0, 1, 2, 3].map(|number| pace.delay(number)),
            [Some(100), Some(200), None, Some(100)]
        );
        assert!(pace.loses(0) && pace.loses(7));
    }
}
