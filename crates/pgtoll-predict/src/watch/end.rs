//! The end of watching.

use std::time::Duration;

use pgtoll_record::{ServerWatch, WatchCost};
use pgtoll_wire::Interruption;

use super::Watcher;
use super::counting::{GENTLE_SAMPLES, SAMPLES};
use crate::PredictError;
use crate::allowance::CensusAllowance;
use crate::looks::Glimpse;
use crate::session::{APPLICATION, SessionCost, WatchSession};

/// How long a server is waited for after a signal.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

impl Watcher {
    /// A part of a cycle counts where there is no whole one.
    pub(super) fn finish(mut self, was_interrupted: bool) -> ServerWatch {
        let wants_rest =
            self.plan.cycles.is_none() || !self.watch.windows.iter().any(|window| window.is_cycle);
        let is_open = self.window.as_ref().is_some_and(|window| window.begin.now_s > 0.0);
        if was_interrupted && is_open {
            self.open_last_session();
        }
        if wants_rest && is_open {
            // A server that is gone leaves what was seen before.
            let _ = self.last_look();
        }
        if is_open {
            let _ = self.look_at_statements(true);
        }
        self.note_unaffordable_census();
        let has_cycles = self.watch.windows.iter().any(|window| window.is_cycle);
        if has_cycles {
            // Parts of cycles are in no proportion to whole ones.
            self.watch.windows.retain(|window| window.is_cycle);
        }
        self.watch.seconds = self.began.elapsed().as_secs_f64();
        let is_cpu = self.cpu.is_some();
        let mut cost = self.cost;
        cost.add(self.taker.as_ref().map_or_else(SessionCost::default, |taker| taker.cost));
        cost.add(self.session.close());
        let seconds = if is_cpu { cost.cpu_s } else { cost.waited_s };
        self.watch.cost = WatchCost {
            statements: cost.statements,
            seconds,
            is_cpu,
            share_of_core: seconds / self.watch.seconds.max(0.001),
        };
        self.watch
    }

    /// Notes a census that the watch was too short for.
    fn note_unaffordable_census(&mut self) {
        let Some(taker) = self.taker.as_ref().filter(|_| !self.may_count()) else { return };
        if self.census_costs_s > 0.0 {
            return;
        }
        let allowance = CensusAllowance::new(self.plan.gentle, self.plan.time);
        let minutes = allowance.watch_for(self.census_cost_s).as_secs().div_ceil(60);
        self.watch.discarded.push(format!(
            "censuses: one of {} buffers takes about {:.0} s of CPU: watch for {minutes} min or longer",
            taker.buffers, self.census_cost_s
        ));
    }

    /// A signal has ended all waiting of the session before.
    fn open_last_session(&mut self) {
        let Ok(patience) = Interruption::after(LAST_PATIENCE) else { return };
        self.dsn = self.dsn.with_interruption(&patience);
        if let Some(taker) = &mut self.taker {
            taker.dsn = self.dsn.clone();
        }
        if let Ok(session) = WatchSession::open(&self.dsn, APPLICATION) {
            self.cost.add(std::mem::replace(&mut self.session, session).close());
        }
    }

    fn last_look(&mut self) -> Result<(), PredictError> {
        let now = Glimpse::read(&mut self.session, self.facts)?;
        let is_same = self.window.as_ref().is_some_and(|window| window.begin.redo == now.redo);
        let is_counted = is_same && self.taker.is_some() && self.running.is_none();
        if is_counted && self.may_count() {
            let (_, many) = if self.plan.gentle { GENTLE_SAMPLES } else { SAMPLES };
            self.take_census(&now, many)?;
        }
        let before_s = self.last_look.as_ref().map_or(0.0, |before| before.now_s);
        self.end(&now, before_s)?;
        Ok(())
    }
}
