//! The distribution of sessions among the standbys.

use std::collections::BTreeMap;

use pgtoll_record::{BalanceRecord, BalanceSplit, Interval};
use pgtoll_stats::proportion_interval;

use super::BalanceContext;
use super::error::BalanceError;
use super::set::STANDBYS;

/// Counts the servers that answer new sessions.
pub(super) fn split(
    context: &mut BalanceContext<'_>,
    record: &mut BalanceRecord,
) -> Result<(), BalanceError> {
    let mut sessions: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..context.plan.split_sessions {
        context.interrupt.check()?;
        *sessions.entry(context.set.node_of_a_session()?).or_default() += 1;
    }
    let pick = |name: &str| sessions.get(name).copied().unwrap_or_default();
    let all: u64 = sessions.values().sum();
    let weights = &record.design.weights;
    let expected = f64::from(weights[STANDBYS[0]]) / f64::from(weights.values().sum::<u32>());
    record.split =
        share(pick(STANDBYS[0]), all).map(|share| BalanceSplit { sessions, share, expected });
    Ok(())
}

/// The share with its 95 % interval; `None` of nothing.
pub(super) fn share(hits: u64, all: u64) -> Option<Interval> {
    let (lower, upper) = proportion_interval(hits, all)?;
    #[expect(clippy::cast_precision_loss, reason = "sessions and reads are few")]
    let estimate = hits as f64 / all as f64;
    Some(Interval { estimate, lower, upper })
}
