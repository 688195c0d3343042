//! When censuses are taken, and what they cost.

use pgtoll_wire::Error;

use super::window::OpenWindow;
use super::{CENSUSES, Watcher};
use crate::PredictError;
use crate::allowance::CensusAllowance;
use crate::census::CensusPlan;
use crate::looks::{Glimpse, evicted_now};

/// The shortest time between two, in seconds.
const CENSUS_PAUSE_S: f64 = 0.2;
/// Pages of a sample during the cycle, and near its end.
pub(super) const SAMPLES: (u32, u32) = (400, 2000);
pub(super) const GENTLE_SAMPLES: (u32, u32) = (200, 500);
/// The cycle's end is near after this part of it.
const NEAR_END: f64 = 0.85;

const CENSUS_FAILURES: u32 = 5;

impl Watcher {
    /// Spread over the cycle, and once more just before the next checkpoint, as long as it is cheap:
    /// the pages that it should look at.
    pub(super) fn due_census(&self, now: &Glimpse) -> Option<u32> {
        let (Some(_), Some(window)) = (&self.taker, &self.window) else { return None };
        let has_any = !window.censuses.is_empty();
        if !self.may_count() {
            return None;
        }
        let (few, many) = if self.plan.gentle { GENTLE_SAMPLES } else { SAMPLES };
        if let Some(running) = &self.running {
            let pause = self.census_pause_s(running.begun_s, running.last_census_s, 0.0);
            return (now.now_s - running.last_census_s >= pause).then_some(few);
        }
        let left = self.seconds_to_checkpoint(now, window);
        if left < 0.0 && has_any {
            // It has begun: what is dirtied now belongs to its cycle, and cannot be told from before.
            return None;
        }
        let since_last = now.now_s - window.last_census_s;
        let age = now.now_s - window.begun_s;
        let lead = 2.0 + 2.0 * self.census_cost_s;
        let is_last = (0.0..=lead).contains(&left) && since_last > lead;
        let unseen = window.seen_from_s - window.begun_s;
        let is_due =
            since_last >= self.census_pause_s(window.seen_from_s, window.last_census_s, unseen);
        let is_near = is_last || self.cycle_s.is_some_and(|cycle| age >= NEAR_END * cycle);
        (is_last || is_due).then_some(if is_near { many } else { few })
    }

    /// Whether another census is cheap enough.
    pub(super) fn may_count(&self) -> bool {
        let allowance = CensusAllowance::new(self.plan.gentle, self.plan.time);
        allowance.permits(self.census_costs_s, self.census_cost_s, self.began.elapsed())
    }

    /// Seconds between the last census and the next: a part of what can be seen of the cycle. As long
    /// as no cycle was seen it may end at any time, so that censuses begin often.
    fn census_pause_s(&self, seen_from_s: f64, last_census_s: f64, unseen_s: f64) -> f64 {
        let part = (self.cycle_s.unwrap_or(self.settings.timeout_s) - unseen_s) / CENSUSES;
        let by_age = (last_census_s - seen_from_s) / 2.0;
        let pause = if self.cycle_s.is_some() { part } else { part.min(by_age) };
        pause.max(CENSUS_PAUSE_S)
    }

    fn seconds_to_checkpoint(&self, now: &Glimpse, window: &OpenWindow) -> f64 {
        let last_s = now.checkpoint_s.max(self.skipped_s);
        let by_time = last_s + self.settings.timeout_s - now.now_s;
        let rate = float(now.insert.bytes_since(window.begin.insert).unwrap_or(0))
            / (now.now_s - window.begin.now_s).max(0.1);
        let written = float(now.insert.bytes_since(now.redo).unwrap_or(0));
        let by_volume = (self.settings.trigger_bytes - written) / rate.max(1.0);
        by_time.min(by_volume)
    }

    /// A census that fails (a relation is locked, or gone) is none.
    pub(super) fn take_census(&mut self, now: &Glimpse, pages: u32) -> Result<(), PredictError> {
        let before = self.cost_until_now_s();
        let Some(taker) = &mut self.taker else { return Ok(()) };
        let evicted = evicted_now(&mut self.session, self.facts)?;
        let (redo, carried) = match &mut self.running {
            Some(running) => (running.redo, Some(&mut running.carried)),
            None => (now.redo, None),
        };
        let plan = CensusPlan { redo, most: pages, carried };
        let taken = taker.take(&mut self.session, now, plan);
        let after = self.cost_until_now_s();
        self.census_cost_s = after - before;
        self.census_costs_s += self.census_cost_s;
        let Some(window) = &mut self.window else { return Ok(()) };
        let evicted_before = if let Some(running) = &mut self.running {
            running.last_census_s = now.now_s;
            running.evicted.unwrap_or(0)
        } else {
            window.last_census_s = now.now_s;
            window.evicted_before
        };
        match taken {
            Ok(mut census) => {
                census.evicted = evicted.map(|evicted| evicted.saturating_sub(evicted_before));
                match &mut self.running {
                    Some(running) => running.censuses.push((now.now_s, census)),
                    None => window.add_census(now.now_s, census),
                }
                self.census_failures = 0;
            }
            Err(Error::Server(response)) => {
                let at = &now.now;
                self.watch.discarded.push(format!("{at}: a census failed: {}", response.message));
                self.census_failures += 1;
                if self.census_failures == CENSUS_FAILURES {
                    self.taker = None;
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of WAL, far below 2^53")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}
