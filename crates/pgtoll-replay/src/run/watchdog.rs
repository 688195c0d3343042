//! Finds circles of waits, in which a session waits for another one's statement that waits, at the server
//! or here, for the first one; and lets one of them go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use pgtoll_interrupt::Interrupt;
use pgtoll_record::OrderBreak;
use pgtoll_wire::Connection;

use crate::run::coordinator::{Coordinator, RunState, SessionState};
use crate::sql;
use crate::workload::CapturedWorkload;

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(50);
/// Shorter waits are no circles.
const PATIENCE: Duration = Duration::from_millis(50);
/// Breaks that are described.
const BREAKS_MAX: usize = 100;

/// The waits that were given up.
#[derive(Debug, Default)]
pub(crate) struct Breaks {
    pub(crate) count: u64,
    pub(crate) first: Vec<OrderBreak>,
}

/// Looks until all sessions are over or everybody is to end.
pub(crate) fn watch(
    coordinator: &Coordinator<'_>,
    workload: &CapturedWorkload,
    mut monitor: Option<Connection>,
    interrupt: &Interrupt,
) -> Breaks {
    let mut breaks = Breaks::default();
    loop {
        let state = coordinator.state();
        if state.stop || state.sessions_over.iter().all(|over| *over) {
            return breaks;
        }
        let waited = coordinator.changed.wait_timeout(state, INTERVAL);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if interrupt.signal().is_some() {
            drop(state);
            coordinator.stop();
            return breaks;
        }
        let now = Instant::now();
        let is_long = |of: &SessionState| match of {
            SessionState::ForOrder { since, .. } => now.duration_since(*since) >= PATIENCE,
            _ => false,
        };
        if !state.sessions.iter().any(is_long) {
            continue;
        }
        let before = state.sessions.clone();
        let pids = state.pids.clone();
        drop(state);
        let at_server = server_waits(&mut monitor, &before, &pids);
        let mut state = coordinator.state();
        if let Some(circle) = circle(coordinator, &state, &before, &at_server) {
            breaks.add(coordinator, workload, &mut state, &circle);
        }
    }
}

/// Of the sessions with a statement at the server that waits for a lock: the sessions that hold it.
fn server_waits(
    monitor: &mut Option<Connection>,
    sessions: &[SessionState],
    pids: &[i32],
) -> BTreeMap<u32, Vec<u32>> {
    let by_pid: BTreeMap<i32, u32> =
        pids.iter().copied().zip(0..).filter(|(pid, _)| *pid != 0).collect();
    let asked: Vec<String> = sessions
        .iter()
        .zip(pids)
        .filter(|(of, pid)| matches!(of, SessionState::AtServer { .. }) && **pid != 0)
        .map(|(_, pid)| pid.to_string())
        .collect();
    let (Some(connection), false) = (monitor.as_mut(), asked.is_empty()) else {
        return BTreeMap::new();
    };
    let sql = format!(
        "SELECT pid::text AS pid, holders FROM (SELECT pid, pg_catalog.array_to_string(\
         pg_catalog.pg_blocking_pids(pid), ',') AS holders FROM pg_catalog.unnest('{{{}}}'::int4[]) \
         AS pid) AS waits WHERE holders <> ''",
        asked.join(",")
    );
    let Ok(rows) = connection.query(&sql) else {
        // Circles among ourselves are found without it.
        *monitor = None;
        return BTreeMap::new();
    };
    let session = |pid: &str| by_pid.get(&pid.parse().ok()?).copied();
    let waits = rows.iter().filter_map(|row| {
        let holders = row.text("holders").ok()?.split(',').filter_map(session).collect();
        Some((session(row.text("pid").ok()?)?, holders))
    });
    waits.collect()
}

/// The sessions of a circle of waits, one that waits here first.
fn circle(
    coordinator: &Coordinator<'_>,
    state: &RunState,
    before: &[SessionState],
    at_server: &BTreeMap<u32, Vec<u32>>,
) -> Option<Vec<u32>> {
    let next = |session: u32| -> Vec<u32> {
        let now = state.sessions[session as usize];
        // What has changed since the server was asked is no wait.
        if now != before[session as usize] {
            return Vec::new();
        }
        match now {
            SessionState::ForOrder { step, .. } => {
                state.blockers(coordinator, step).into_iter().map(|(_, of)| of).collect()
            }
            SessionState::AtServer { .. } => at_server.get(&session).cloned().unwrap_or_default(),
            SessionState::Idle | SessionState::Over => Vec::new(),
        }
    };
    let waiting = (0_u32..).zip(&state.sessions);
    let waiting = waiting.filter(|(_, of)| matches!(of, SessionState::ForOrder { .. }));
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

impl Breaks {
    /// Lets the circle's first session go.
    fn add(
        &mut self,
        coordinator: &Coordinator<'_>,
        workload: &CapturedWorkload,
        state: &mut RunState,
        circle: &[u32],
    ) {
        let Some(SessionState::ForOrder { step, .. }) =
            circle.first().map(|session| state.sessions[*session as usize])
        else {
            return;
        };
        if !state.is_pending(step) {
            return;
        }
        self.count += 1;
        let blocker = state.blockers(coordinator, step).first().map(|(before, _)| *before);
        let text = |step: u32| {
            let texts: Vec<&str> = workload.steps[step as usize].request.texts().collect();
            sql::shape(&texts.join("; "))
        };
        if self.first.len() < BREAKS_MAX {
            let sessions: Vec<String> =
                circle.iter().map(|session| (session + 1).to_string()).collect();
            self.first.push(OrderBreak {
                step: u64::from(step) + 1,
                statement: text(step),
                waited_for: blocker.map(|step| u64::from(step) + 1),
                waited_for_statement: blocker.map(text),
                reason: format!("a circle of waits of the sessions {}", sessions.join(", ")),
            });
        }
        coordinator.release(state, step);
    }
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
