//! The state that all sessions of a replay share: it decides whose turn it is.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pgtoll_wire::CancelHandle;

use crate::order::Order;
use crate::transactions::ReplayTransactions;
use crate::workload::CapturedWorkload;

/// The state that all sessions of a replay share.
pub(crate) struct Coordinator<'a> {
    pub(crate) order: &'a Order,
    pub(crate) transactions: &'a ReplayTransactions,
    /// Steps that wait for each step.
    successors: Vec<Vec<u32>>,
    /// The places of each transaction in sequences.
    places: Vec<Vec<(u32, u32)>>,
    state: Mutex<RunState>,
    /// One for each session.
    turns: Vec<Condvar>,
    /// Somebody ended, or all should.
    pub(crate) changed: Condvar,
}

/// The part that changes.
pub(crate) struct RunState {
    /// The open waits of each step.
    pending: Vec<u32>,
    pub(crate) done: Vec<bool>,
    /// How many of them are.
    pub(crate) done_count: u64,
    /// Sessions that wait for their time.
    waiting_for_time: u32,
    sequences: Vec<SequenceState>,
    steps_left: Vec<u32>,
    pub(crate) sessions: Vec<SessionState>,
    pub(crate) pids: Vec<i32>,
    /// How each session's statement is cancelled.
    pub(crate) cancels: Vec<Option<CancelHandle>>,
    session_of_step: Vec<u32>,
    pub(crate) sessions_over: Vec<bool>,
    pub(crate) stop: bool,
    at_server: u64,
    at_server_max: u64,
    /// Seconds that statements were at the server, added up, until `counted`.
    busy: Duration,
    counted: Instant,
    order_wait: Duration,
    due_wait: Duration,
}

#[derive(Default)]
struct SequenceState {
    over: Vec<bool>,
    /// All before this one are over.
    prefix: u32,
    /// Steps by how many have to be over before.
    waiters: BTreeMap<u32, Vec<u32>>,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SessionState {
    /// It waits for its time, or does nothing that others wait for.
    Idle,
    /// It waits for others' steps.
    ForOrder { step: u32, since: Instant },
    /// A statement is at the server.
    AtServer { step: u32, since: Instant },
    /// It has ended.
    Over,
}

/// Whether a session continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Since then its statement is at the server.
    Go(Instant),
    Stop,
}

/// How busy the run was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Concurrency {
    pub(crate) busy: Duration,
    pub(crate) max: u64,
    pub(crate) order_wait: Duration,
    pub(crate) due_wait: Duration,
}

impl<'a> Coordinator<'a> {
    pub(crate) fn new(
        workload: &CapturedWorkload,
        order: &'a Order,
        transactions: &'a ReplayTransactions,
    ) -> Self {
        let steps = workload.steps.len();
        let mut pending = vec![0; steps];
        let mut successors = vec![Vec::new(); steps];
        for (step, predecessors) in (0_u32..).zip(&order.predecessors) {
            for before in predecessors {
                successors[*before as usize].push(step);
                pending[step as usize] += 1;
            }
        }
        let mut places = vec![Vec::new(); transactions.list.len()];
        let mut sequences: Vec<SequenceState> = Vec::new();
        for (sequence, members) in (0_u32..).zip(&order.sequences) {
            for (place, rank) in (0_u32..).zip(members) {
                places[*rank as usize].push((sequence, place));
            }
            sequences
                .push(SequenceState { over: vec![false; members.len()], ..Default::default() });
        }
        for (step, waits) in &order.waits {
            for wait in waits {
                let waiters = &mut sequences[wait.sequence as usize].waiters;
                waiters.entry(wait.count).or_default().push(*step);
                pending[*step as usize] += 1;
            }
        }
        let steps_left = transactions
            .list
            .iter()
            .map(|item| u32::try_from(item.steps.len()).unwrap_or(u32::MAX))
            .collect();
        let sessions = workload.sessions.len();
        let state = RunState {
            pending,
            done: vec![false; steps],
            done_count: 0,
            waiting_for_time: 0,
            sequences,
            steps_left,
            sessions: vec![SessionState::Idle; sessions],
            pids: vec![0; sessions],
            cancels: vec![None; sessions],
            session_of_step: workload.steps.iter().map(|step| step.session).collect(),
            sessions_over: vec![false; sessions],
            stop: false,
            at_server: 0,
            at_server_max: 0,
            busy: Duration::ZERO,
            counted: Instant::now(),
            order_wait: Duration::ZERO,
            due_wait: Duration::ZERO,
        };
        Self {
            order,
            transactions,
            successors,
            places,
            state: Mutex::new(state),
            turns: (0..sessions).map(|_| Condvar::new()).collect(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, RunState> {
        pgtoll_system::lock(&self.state)
    }

    /// Waits until the step is due and nothing is before it any more. `finished` is the session's step
    /// that had its turn before, and is over: both at once, as all sessions want the same lock.
    pub(crate) fn await_turn(
        &self,
        session: u32,
        finished: Option<u32>,
        step: u32,
        due: Option<Instant>,
    ) -> Turn {
        let mut state = self.state();
        let before = Instant::now();
        if let Some(finished) = finished {
            self.end_turn(&mut state, session, finished, before);
        }
        let (mut state, mut now) = self.await_due(state, session, due, before);
        if state.pending[step as usize] > 0 && !state.stop {
            (state, now) = self.await_others(state, session, step, now);
        }
        if state.stop {
            return Turn::Stop;
        }
        state.sessions[session as usize] = SessionState::AtServer { step, since: now };
        state.count_busy(now);
        state.at_server += 1;
        state.at_server_max = state.at_server_max.max(state.at_server);
        Turn::Go(now)
    }

    /// Waits until then, or until all are to end.
    fn await_due<'s>(
        &self,
        mut state: MutexGuard<'s, RunState>,
        session: u32,
        due: Option<Instant>,
        before: Instant,
    ) -> (MutexGuard<'s, RunState>, Instant) {
        let Some(due) = due else { return (state, before) };
        let mut now = before;
        state.waiting_for_time += 1;
        while now < due && !state.stop {
            let turn = &self.turns[session as usize];
            let waited = turn.wait_timeout(state, due - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            now = Instant::now();
        }
        state.waiting_for_time -= 1;
        // Not later: what it is late by is no waiting for its time.
        state.due_wait += due.min(now).saturating_duration_since(before);
        (state, now)
    }

    /// Waits until nothing is before the step, or until all are to end.
    fn await_others<'s>(
        &self,
        mut state: MutexGuard<'s, RunState>,
        session: u32,
        step: u32,
        since: Instant,
    ) -> (MutexGuard<'s, RunState>, Instant) {
        state.sessions[session as usize] = SessionState::ForOrder { step, since };
        while state.pending[step as usize] > 0 && !state.stop {
            let waited = self.turns[session as usize].wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let now = Instant::now();
        state.order_wait += now - since;
        (state, now)
    }

    /// The step that had its turn is over, and no other of the session follows at once.
    pub(crate) fn complete(&self, session: u32, step: u32) {
        let mut state = self.state();
        let now = Instant::now();
        self.end_turn(&mut state, session, step, now);
    }

    fn end_turn(&self, state: &mut RunState, session: u32, step: u32, now: Instant) {
        state.count_busy(now);
        state.at_server -= 1;
        state.sessions[session as usize] = SessionState::Idle;
        self.mark_done(state, step);
    }

    /// The step is left out without a turn.
    pub(crate) fn leave_out(&self, step: u32) {
        let mut state = self.state();
        self.mark_done(&mut state, step);
    }

    /// The session has ended.
    pub(crate) fn end_session(&self, session: u32) {
        let mut state = self.state();
        if matches!(state.sessions[session as usize], SessionState::AtServer { .. }) {
            state.count_busy(Instant::now());
            state.at_server -= 1;
        }
        state.sessions[session as usize] = SessionState::Over;
        state.sessions_over[session as usize] = true;
        self.changed.notify_all();
    }

    /// Everybody ends.
    pub(crate) fn stop(&self) {
        self.state().stop = true;
        for turn in &self.turns {
            turn.notify_all();
        }
        self.changed.notify_all();
    }

    /// Lets a step go that waits for others.
    pub(crate) fn release(&self, state: &mut RunState, step: u32) {
        state.pending[step as usize] = 0;
        self.turns[state.session_of_step[step as usize] as usize].notify_all();
    }

    pub(crate) fn concurrency(&self) -> Concurrency {
        let state = self.state();
        Concurrency {
            busy: state.busy,
            max: state.at_server_max,
            order_wait: state.order_wait,
            due_wait: state.due_wait,
        }
    }

    fn mark_done(&self, state: &mut RunState, step: u32) {
        if std::mem::replace(&mut state.done[step as usize], true) {
            return;
        }
        state.done_count += 1;
        for successor in &self.successors[step as usize] {
            self.one_less(state, *successor);
        }
        let rank = self.transactions.of_step[step as usize] as usize;
        state.steps_left[rank] = state.steps_left[rank].saturating_sub(1);
        if state.steps_left[rank] > 0 {
            return;
        }
        for (sequence, place) in &self.places[rank] {
            for waiter in state.sequences[*sequence as usize].end_of(*place) {
                self.one_less(state, waiter);
            }
        }
    }

    fn one_less(&self, state: &mut RunState, step: u32) {
        let pending = &mut state.pending[step as usize];
        // A step that was let go is not waiting any more.
        *pending = pending.saturating_sub(1);
        if *pending == 0 {
            self.turns[state.session_of_step[step as usize] as usize].notify_all();
        }
    }
}

impl RunState {
    fn count_busy(&mut self, now: Instant) {
        let statements = u32::try_from(self.at_server).unwrap_or(u32::MAX);
        self.busy += now.saturating_duration_since(self.counted) * statements;
        self.counted = now;
    }

    /// Whether time alone lets somebody continue.
    pub(crate) fn is_somebody_due(&self) -> bool {
        self.waiting_for_time > 0
    }

    /// The session of a step.
    pub(crate) fn session_of(&self, step: u32) -> u32 {
        self.session_of_step[step as usize]
    }

    /// A session begins to wait for the time at which it starts, if it has one.
    pub(crate) fn wait_for_start(&mut self, has_time: bool) {
        self.waiting_for_time += u32::from(has_time);
    }

    /// That has come.
    pub(crate) fn end_wait_for_start(&mut self, had_time: bool) {
        self.waiting_for_time -= u32::from(had_time);
    }

    /// Whether the step still waits for others.
    pub(crate) fn is_pending(&self, step: u32) -> bool {
        self.pending[step as usize] > 0
    }

    /// A step that this one waits for, and the session that has to do it.
    pub(crate) fn blockers(&self, coordinator: &Coordinator<'_>, step: u32) -> Vec<(u32, u32)> {
        let predecessors = coordinator.order.predecessors[step as usize].iter().copied();
        let firsts = coordinator.order.waits.get(&step).into_iter().flatten().filter_map(|wait| {
            let sequence = &self.sequences[wait.sequence as usize];
            if sequence.prefix >= wait.count {
                return None;
            }
            let rank = coordinator.order.sequences[wait.sequence as usize]
                .get(sequence.prefix as usize)?;
            let steps = &coordinator.transactions.list[*rank as usize].steps;
            steps.iter().copied().find(|step| !self.done[*step as usize])
        });
        let open = predecessors.filter(|before| !self.done[*before as usize]).chain(firsts);
        open.map(|before| (before, self.session_of_step[before as usize])).collect()
    }
}

impl SequenceState {
    /// The transaction at this place is over: the steps that do not wait for the sequence any more.
    fn end_of(&mut self, place: u32) -> Vec<u32> {
        self.over[place as usize] = true;
        while self.over.get(self.prefix as usize).copied().unwrap_or(false) {
            self.prefix += 1;
        }
        let later = self.waiters.split_off(&(self.prefix + 1));
        let now = std::mem::replace(&mut self.waiters, later);
        now.into_values().flatten().collect()
    }
}
