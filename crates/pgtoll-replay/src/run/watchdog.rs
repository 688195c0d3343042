//! Sees to it that a replay continues: finds circles of waits, in which a session waits for another one's
//! statement that waits, at the server or here, for the first one; and finds that no session makes progress.
//! Then one of the sessions is let go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pgtoll_record::OrderBreak;
use pgtoll_system::Interrupt;
use pgtoll_wire::Connection;

use crate::run::coordinator::{Coordinator, RunState, SessionState};
use crate::run::session::SessionContext;
use crate::sql::{self, TwoPhase};
use crate::workload::CapturedWorkload;

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(50);
/// Shorter waits are no circles.
const WAIT_MIN: Duration = Duration::from_millis(50);
/// After the first stall, the patience is divided by this.
const SOONER: u32 = 10;
/// Breaks that are described.
const BREAKS_MAX: usize = 100;

/// The waits that were given up.
#[derive(Debug, Default)]
pub(crate) struct Breaks {
    pub(crate) count: u64,
    pub(crate) first: Vec<OrderBreak>,
}

/// The statements at the server that wait for locks: each session, and those that have to continue before.
type ServerWaits = BTreeMap<u32, Vec<u32>>;

/// Looks at a replay while it runs.
pub(crate) struct Watchdog<'a> {
    coordinator: &'a Coordinator<'a>,
    workload: &'a CapturedWorkload,
    /// `None` where the server cannot be asked any more: circles among ourselves are found without.
    monitor: Option<Connection>,
    /// The steps that finish prepared transactions, by these transactions' names.
    finishing: BTreeMap<&'a str, Vec<u32>>,
    patience: Duration,
    breaks: Breaks,
}

/// For how long no session has made progress.
struct Stillness {
    done: u64,
    since: Instant,
    patience: Duration,
}

impl<'a> Watchdog<'a> {
    pub(crate) fn new(context: &SessionContext<'a>, monitor: Option<Connection>) -> Self {
        let mut finishing: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (step, effect) in (0_u32..).zip(&context.coordinator.transactions.effects) {
            if let Some(TwoPhase::Finish(name)) = &effect.two_phase {
                finishing.entry(name).or_default().push(step);
            }
        }
        Self {
            coordinator: context.coordinator,
            workload: context.workload,
            monitor,
            finishing,
            patience: context.patience,
            breaks: Breaks::default(),
        }
    }

    /// Looks until all sessions are over or everybody is to end.
    pub(crate) fn watch(mut self, interrupt: &Interrupt) -> Breaks {
        let coordinator = self.coordinator;
        let mut still = Stillness { done: 0, since: Instant::now(), patience: self.patience };
        loop {
            let state = coordinator.state();
            if state.stop || state.sessions_over.iter().all(|over| *over) {
                return self.breaks;
            }
            let waited = coordinator.changed.wait_timeout(state, INTERVAL);
            let state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if interrupt.signal().is_some() {
                drop(state);
                coordinator.stop();
                return self.breaks;
            }
            let now = Instant::now();
            let is_still = still.look(&state, now);
            let is_long = |state: &SessionState| match state {
                SessionState::ForOrder { since, .. } => now.duration_since(*since) >= WAIT_MIN,
                _ => false,
            };
            if !is_still && !state.sessions.iter().any(is_long) {
                continue;
            }
            let before = state.sessions.clone();
            let waits = self.server_waits(state);
            let mut state = coordinator.state();
            if let Some(circle) = circle(coordinator, &state, &before, &waits) {
                self.break_circle(&mut state, &circle);
            } else if is_still && state.sessions == before {
                self.break_stillness(&mut state, &waits);
                still.begin_again(now);
            }
        }
    }

    /// Asks the server which sessions' statements wait for locks, and for whom.
    fn server_waits(&mut self, state: MutexGuard<'_, RunState>) -> ServerWaits {
        let by_pid: BTreeMap<i32, u32> =
            state.pids.iter().copied().zip(0..).filter(|(pid, _)| *pid != 0).collect();
        let at_server = state
            .sessions
            .iter()
            .zip(&state.pids)
            .filter(|(item, pid)| matches!(item, SessionState::AtServer { .. }) && **pid != 0);
        let wanted: Vec<String> = at_server.map(|(_, pid)| pid.to_string()).collect();
        // Who has to finish each prepared transaction, the next one of that name.
        let finishers: BTreeMap<&str, u32> = self
            .finishing
            .iter()
            .filter_map(|(name, steps)| {
                let next = steps.iter().find(|step| !state.done[**step as usize])?;
                Some((*name, state.session_of(*next)))
            })
            .collect();
        drop(state);
        let (Some(connection), false) = (self.monitor.as_mut(), wanted.is_empty()) else {
            return BTreeMap::new();
        };
        let pids = format!("'{{{}}}'::int4[]", wanted.join(","));
        let mut waits = ServerWaits::new();
        let mut ask = |sql: &str, holders: &dyn Fn(&str) -> Vec<u32>| {
            for row in connection.query(sql)? {
                let pid = row.text("pid")?.parse().ok();
                if let Some(session) = pid.and_then(|pid: i32| by_pid.get(&pid)) {
                    waits.entry(*session).or_default().extend(holders(row.text("holder")?));
                }
            }
            Ok::<(), pgtoll_wire::Error>(())
        };
        let session = |pid: &str| by_pid.get(&pid.parse().ok()?).copied();
        let mut requested =
            ask(&blocking(&pids), &|pids| pids.split(',').filter_map(session).collect());
        if requested.is_ok() && !finishers.is_empty() {
            let finisher = |name: &str| finishers.get(name).copied().into_iter().collect();
            requested = ask(&prepared(&pids), &finisher);
        }
        if requested.is_err() {
            self.monitor = None;
            return BTreeMap::new();
        }
        waits
    }

    /// Lets the circle's first session go.
    fn break_circle(&mut self, state: &mut RunState, circle: &[u32]) {
        let Some(SessionState::ForOrder { step, .. }) =
            circle.first().map(|session| state.sessions[*session as usize])
        else {
            return;
        };
        if state.is_pending(step) {
            let sessions: Vec<String> =
                circle.iter().map(|session| (session + 1).to_string()).collect();
            let reason = format!("a circle of waits of the sessions {}", sessions.join(", "));
            self.add(state, step, reason);
            self.coordinator.release(state, step);
        }
    }

    /// If every session waits, here or for a lock, lets the earliest continue; if all are at the server, cancels its
    /// statement.
    fn break_stillness(&mut self, state: &mut RunState, waits: &ServerWaits) {
        let mut here = Vec::new();
        let mut there = Vec::new();
        for (session, item) in (0_u32..).zip(&state.sessions) {
            match item {
                SessionState::ForOrder { step, .. } => here.push(*step),
                SessionState::AtServer { step, .. } if waits.contains_key(&session) => {
                    there.push(*step);
                }
                // It works.
                SessionState::AtServer { .. } => return,
                SessionState::Idle | SessionState::Over => {}
            }
        }
        let rank = |step: &u32| self.coordinator.transactions.of_step[*step as usize];
        let seconds = self.patience.as_secs_f64();
        if let Some(step) = here.into_iter().min_by_key(rank) {
            self.add(state, step, format!("no session made progress for {seconds} s"));
            self.coordinator.release(state, step);
        } else if let Some(step) = there.into_iter().min_by_key(rank) {
            self.add(
                state,
                step,
                format!(
                    "cancelled: it waited for a lock, and no session made progress for {seconds} s"
                ),
            );
            if let Some(handle) = &state.cancels[state.session_of(step) as usize] {
                // One that could not be cancelled is tried again.
                let _ = handle.cancel();
            }
        }
    }

    fn add(&mut self, state: &RunState, step: u32, reason: String) {
        self.breaks.count += 1;
        if self.breaks.first.len() >= BREAKS_MAX {
            return;
        }
        let blocker = state.blockers(self.coordinator, step).first().map(|(before, _)| *before);
        let text = |step: u32| {
            let texts: Vec<&str> = self.workload.steps[step as usize].request.texts().collect();
            sql::shape(&texts.join("; "))
        };
        self.breaks.first.push(OrderBreak {
            step: u64::from(step) + 1,
            statement: text(step),
            waited_for: blocker.map(|step| u64::from(step) + 1),
            waited_for_statement: blocker.map(text),
            reason,
        });
    }
}

impl Stillness {
    /// Whether no session has made progress for the patience, and time alone lets none continue.
    fn look(&mut self, state: &RunState, now: Instant) -> bool {
        if state.done_count != self.done || state.is_somebody_due() {
            (self.done, self.since) = (state.done_count, now);
        }
        now.duration_since(self.since) >= self.patience
    }

    fn begin_again(&mut self, now: Instant) {
        (self.since, self.patience) = (now, (self.patience / SOONER).max(INTERVAL));
    }
}

/// The sessions for whose locks statements wait; a prepared transaction has the number 0.
fn blocking(pids: &str) -> String {
    format!(
        "SELECT pid::text AS pid, holder FROM (SELECT pid, pg_catalog.array_to_string(\
         pg_catalog.pg_blocking_pids(pid), ',') AS holder FROM pg_catalog.unnest({pids}) AS pid) AS waits \
         WHERE holder <> ''"
    )
}

/// The prepared transactions for which statements wait; where the lock is no transaction's, all.
fn prepared(pids: &str) -> String {
    format!(
        "SELECT w.pid::text AS pid, p.gid AS holder FROM pg_catalog.pg_locks w \
         JOIN pg_catalog.pg_prepared_xacts p \
         ON w.locktype <> 'transactionid' OR w.transactionid = p.transaction \
         WHERE NOT w.granted AND w.pid = ANY ({pids}) AND 0 = ANY (pg_catalog.pg_blocking_pids(w.pid))"
    )
}

/// The sessions of a circle of waits, one that waits here first.
fn circle(
    coordinator: &Coordinator<'_>,
    state: &RunState,
    before: &[SessionState],
    waits: &ServerWaits,
) -> Option<Vec<u32>> {
    let next = |session: u32| -> Vec<u32> {
        let now = state.sessions[session as usize];
        // What has changed since the server was asked is no wait.
        if now != before[session as usize] {
            return Vec::new();
        }
        match now {
            SessionState::ForOrder { step, .. } => {
                state.blockers(coordinator, step).into_iter().map(|(_, blocker)| blocker).collect()
            }
            SessionState::AtServer { .. } => waits.get(&session).cloned().unwrap_or_default(),
            SessionState::Idle | SessionState::Over => Vec::new(),
        }
    };
    let waiting = (0_u32..).zip(&state.sessions);
    let waiting = waiting.filter(|(_, waiting)| matches!(waiting, SessionState::ForOrder { .. }));
    waiting.map(|(session, _)| session).find_map(|session| path_back(session, &next))
}

/// A way from a session back to itself.
fn path_back(start: u32, next: &impl Fn(u32) -> Vec<u32>) -> Option<Vec<u32>> {
    let mut seen = BTreeSet::from([start]);
    let mut path = vec![(start, next(start))];
    while let Some((_, ways)) = path.last_mut() {
        match ways.pop() {
            Some(session) if session == start => {
                return Some(path.into_iter().map(|(session, _)| session).collect());
            }
            Some(session) if seen.insert(session) => path.push((session, next(session))),
            Some(_) => {}
            None => {
                path.pop();
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_back_are_found_and_others_are_not() {
        let check = |edges: &[(u32, u32)], expected: Option<&[u32]>| {
            let next = |session: u32| {
                edges.iter().filter(|(from, _)| *from == session).map(|(_, to)| *to).collect()
            };
            assert_eq!(path_back(0, &next).as_deref(), expected, "{edges:?}");
        };
        check(&[(0, 1), (1, 2), (2, 0)], Some(&[0, 1, 2]));
        check(&[(0, 1), (1, 2), (2, 1)], None);
        check(&[(0, 1), (0, 3), (1, 2), (3, 0)], Some(&[0, 3]));
        check(&[], None);
    }
}
