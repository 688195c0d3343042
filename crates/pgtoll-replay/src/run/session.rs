//! A session of a replay: what it was logged to ask for, one thing after the other.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use pgtoll_record::{AFTER_FAILURE, FAILED_WHEN_LOGGED, Latencies, ReplayDivergence};
use pgtoll_wire::{Connection, Dsn, Error, ExtendedExecution, Parameter};

use crate::run::coordinator::{Coordinator, Turn};
use crate::sql::{self, Control};
use crate::transactions::Treatment;
use crate::user_types::TypeNumbers;
use crate::values::ParameterValue;
use crate::workload::{CapturedStep, CapturedWorkload, ExecutedStatement, StatementRequest};

/// The counts of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionTally {
    pub(crate) connected: bool,
    pub(crate) statements: u64,
    pub(crate) latencies: Latencies,
    /// The times at the server of steps without an error, ns, if they are kept.
    pub(crate) times: Vec<(u32, u64)>,
    pub(crate) lateness: Latencies,
    /// From its begin to its end.
    pub(crate) time: Duration,
    pub(crate) skipped: BTreeMap<&'static str, u64>,
    pub(crate) expected_errors: u64,
    pub(crate) unexpected_errors: u64,
    pub(crate) missing_errors: u64,
    /// Transactions that were begun again after a failure of serialization or a deadlock that the log does not
    /// have.
    pub(crate) retried: u64,
    pub(crate) divergences: Vec<ReplayDivergence>,
    /// Why it ended early.
    pub(crate) broken: Option<String>,
}

/// The context of a session's replay.
pub(crate) struct SessionContext<'a> {
    pub(crate) coordinator: &'a Coordinator<'a>,
    pub(crate) workload: &'a CapturedWorkload,
    /// By captured database.
    pub(crate) types: &'a BTreeMap<String, TypeNumbers>,
    pub(crate) begun: Instant,
    /// The recorded time's multiple; as fast as possible without one.
    pub(crate) speed: Option<f64>,
    /// Keep the time of each step.
    pub(crate) keeps_times: bool,
    /// As [`ReplaySettings::patience`](super::ReplaySettings::patience).
    pub(crate) patience: Duration,
}

/// Divergences of one session that are described.
const DIVERGENCES_MAX: usize = 100;

impl SessionContext<'_> {
    /// When something that was logged at this time is due.
    pub(crate) fn due(&self, offset_us: u64) -> Option<Instant> {
        let speed = self.speed?;
        #[expect(clippy::cast_precision_loss, reason = "microseconds of less than a century")]
        let offset = Duration::try_from_secs_f64(offset_us as f64 / 1e6 / speed).ok()?;
        self.begun.checked_add(offset)
    }

    /// Connects and does the steps, whatever becomes of single ones.
    pub(crate) fn play(&self, session: u32, dsn: &Dsn, steps: &[u32]) -> SessionTally {
        let mut tally = SessionTally::default();
        let begun = Instant::now();
        match dsn.connect() {
            Ok(connection) => {
                tally.connected = true;
                let mut state = self.coordinator.state();
                state.pids[session as usize] = connection.backend_pid();
                state.cancels[session as usize] = connection.cancel_handle().cloned();
                drop(state);
                let mut player = Player {
                    context: self,
                    session,
                    connection,
                    prepared: HashMap::new(),
                    skips_transaction: None,
                    tally: &mut tally,
                };
                player.play_all(steps);
                player.connection.close();
            }
            Err(error) => tally.broken = Some(pgtoll_system::error_chain(&error)),
        }
        let mut left_out = 0;
        for step in steps {
            let is_done = self.coordinator.state().done[*step as usize];
            if !is_done {
                left_out += 1;
                self.coordinator.leave_out(*step);
            }
        }
        if left_out > 0 {
            *tally.skipped.entry("session ended early").or_default() += left_out;
        }
        tally.time = begun.elapsed();
        self.coordinator.end_session(session);
        tally
    }
}

struct Player<'a> {
    context: &'a SessionContext<'a>,
    session: u32,
    connection: Connection,
    /// The statements of named prepared statements, and their parameters' types.
    prepared: HashMap<String, (String, Vec<u32>)>,
    /// The transaction whose other steps are left out, since it went otherwise than when it was logged.
    skips_transaction: Option<u32>,
    tally: &'a mut SessionTally,
}

impl Player<'_> {
    fn play_all(&mut self, steps: &[u32]) {
        let coordinator = self.context.coordinator;
        // The step that had its turn last, until that is told.
        let mut finished = None;
        for index in steps {
            let treatment = coordinator.transactions.treatment[*index as usize];
            let rank = coordinator.transactions.of_step[*index as usize];
            if let Some(reason) = self.reason_to_skip(treatment, rank) {
                self.skip(reason);
                coordinator.leave_out(*index);
                continue;
            }
            let due = self.context.due(self.context.workload.steps[*index as usize].start_us);
            let turn = coordinator.await_turn(self.session, finished.take(), *index, due);
            let Turn::Go(sent) = turn else { return };
            if let Some(due) = due {
                self.tally.lateness.record(sent.saturating_duration_since(due));
            }
            let outcome = self.treat(*index, treatment, rank, sent);
            finished = Some(*index);
            if let Err(error) = outcome {
                self.end_early(&error);
                break;
            }
        }
        if let Some(last) = finished {
            coordinator.complete(self.session, last);
        }
    }

    /// Why a step has no turn.
    fn reason_to_skip(&self, treatment: Treatment, rank: u32) -> Option<&'static str> {
        if self.skips_transaction == Some(rank) {
            Some("its transaction went otherwise")
        } else if treatment == Treatment::SkipEnded {
            Some(AFTER_FAILURE)
        } else {
            None
        }
    }

    fn end_early(&mut self, error: &Error) {
        // Ctrl-C ends all sessions. The server would continue with their statements.
        if !matches!(error, Error::Interrupted) {
            self.tally.broken = Some(pgtoll_system::error_chain(error));
        } else if let Some(handle) = self.connection.cancel_handle() {
            // A statement that continues is not worth a report's loss.
            let _ = handle.cancel();
        }
    }

    /// An error is one after which the connection is of no use.
    fn treat(
        &mut self,
        index: u32,
        treatment: Treatment,
        rank: u32,
        sent: Instant,
    ) -> Result<(), Error> {
        let step = &self.context.workload.steps[index as usize];
        match treatment {
            Treatment::Execute => {
                let outcome = self.execute(step);
                self.tally.statements += 1;
                let time = sent.elapsed();
                self.tally.latencies.record(time);
                if self.context.keeps_times && outcome.is_ok() {
                    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                    self.tally.times.push((index, ns.max(1)));
                }
                let code = match outcome {
                    Ok(()) => None,
                    Err(Error::Server(response)) if response.severity == "ERROR" => {
                        Some(response.sqlstate.clone())
                    }
                    Err(error) => return Err(error),
                };
                let code = match code {
                    Some(code) if step.failed.is_none() && self.can_retry(index, &code) => {
                        self.retry(index, rank, code)?
                    }
                    code => code,
                };
                self.compare(step, rank, code.as_deref())
            }
            Treatment::Rollback => {
                self.skip(FAILED_WHEN_LOGGED);
                self.connection.execute("ROLLBACK")
            }
            Treatment::SkipFailed => {
                self.skip(FAILED_WHEN_LOGGED);
                Ok(())
            }
            Treatment::SkipIncomplete => {
                self.skip("not all of it is in the log");
                Ok(())
            }
            Treatment::SkipRedacted => {
                self.skip("its values are not in the plan");
                Ok(())
            }
            Treatment::SkipEnded => Ok(()),
        }
    }

    fn execute(&mut self, step: &CapturedStep) -> Result<(), Error> {
        match &step.request {
            StatementRequest::Simple(sql) => self.connection.execute(sql),
            StatementRequest::Copy { sql, data } => self.connection.copy_in(sql, data),
            StatementRequest::Extended(executions) => {
                let outcome = self.execute_extended(executions);
                if outcome.is_err() {
                    // Whether the server has it now is not known.
                    for execution in executions {
                        self.prepared.remove(&execution.name);
                    }
                }
                outcome
            }
            StatementRequest::Incomplete { .. } => Ok(()),
        }
    }

    fn execute_extended(&mut self, executions: &[ExecutedStatement]) -> Result<(), Error> {
        let database = &self.context.workload.sessions[self.session as usize].database;
        let executions = match self.context.types.get(database) {
            Some(numbers) => numbers.translated(executions),
            None => Cow::Borrowed(executions),
        };
        let parameters: Vec<Vec<Parameter<'_>>> = executions
            .iter()
            .map(|execution| {
                execution
                    .parameters
                    .iter()
                    .map(|item| ParameterValue::parameter(item.as_ref()))
                    .collect()
            })
            .collect();
        let mut messages = Vec::with_capacity(executions.len());
        for (execution, parameters) in executions.iter().zip(&parameters) {
            let ExecutedStatement { name, sql, types, .. } = execution;
            let is_same = |(text, item): &(String, Vec<u32>)| text == sql && item == types;
            let is_known = !name.is_empty() && self.prepared.get(name).is_some_and(is_same);
            if !is_known && !name.is_empty() {
                self.prepared.insert(name.clone(), (sql.clone(), types.clone()));
            }
            messages.push(ExtendedExecution { name, sql, parse: !is_known, types, parameters });
        }
        self.connection.execute_extended(&messages)
    }

    /// Whether a transaction can be done again. A query that ends a transaction and writes may have committed
    /// a part of it.
    fn can_retry(&self, index: u32, code: &str) -> bool {
        let effect = &self.context.coordinator.transactions.effects[index as usize];
        let ends = effect.control.iter().any(|control| control.ends_block());
        let writes = effect.is_everything || !effect.touches.is_empty();
        is_retried(code) && !(ends && writes)
    }

    /// Does a transaction again up to a step that failed though it had not when it was logged, as its client
    /// would have done. Returns the code of the last failure, if there is one again.
    fn retry(&mut self, index: u32, rank: u32, code: String) -> Result<Option<String>, Error> {
        let coordinator = self.context.coordinator;
        let steps = &coordinator.transactions.list[rank as usize].steps;
        let workload = self.context.workload;
        let session = self.session;
        let is_again = |step: &&u32| {
            workload.steps[**step as usize].session == session
                && coordinator.transactions.treatment[**step as usize] == Treatment::Execute
        };
        let again: Vec<u32> =
            steps.iter().filter(is_again).copied().take_while(|step| *step <= index).collect();
        let mut last = code;
        for attempt in 0..RETRIES_MAX {
            if self.connection.in_transaction() {
                self.connection.execute("ROLLBACK")?;
            }
            // At once the other transaction is still there: each attempt leaves it twice the time.
            std::thread::park_timeout(Duration::from_millis((1 << attempt) - 1));
            match self.execute_again(&again)? {
                None => {
                    self.tally.retried += 1;
                    return Ok(None);
                }
                Some(code) => last = code,
            }
            if !is_retried(&last) {
                break;
            }
        }
        Ok(Some(last))
    }

    /// Executes steps up to the first that fails though it had not when it was logged. Returns its code.
    fn execute_again(&mut self, steps: &[u32]) -> Result<Option<String>, Error> {
        for index in steps {
            let step = &self.context.workload.steps[*index as usize];
            match self.execute(step) {
                Err(Error::Server(response)) if response.severity == "ERROR" => {
                    if step.failed.as_deref() != Some(&*response.sqlstate) {
                        return Ok(Some(response.sqlstate.clone()));
                    }
                }
                outcome => outcome?,
            }
        }
        Ok(None)
    }

    /// Compares a statement's end with the logged one.
    fn compare(&mut self, step: &CapturedStep, rank: u32, code: Option<&str>) -> Result<(), Error> {
        match (step.failed.as_deref(), code) {
            (None, None) => return Ok(()),
            (Some(logged), Some(now)) if logged == now || logged.is_empty() => {
                self.tally.expected_errors += 1;
                return Ok(());
            }
            (_, Some(_)) => self.tally.unexpected_errors += 1,
            (Some(_), None) => self.tally.missing_errors += 1,
        }
        let texts: Vec<&str> = step.request.texts().collect();
        let divergence = ReplayDivergence {
            statement: sql::shape(&texts.join("; ")),
            logged: step.failed.clone(),
            now: code.map(str::to_owned),
            count: 1,
        };
        add_divergence(&mut self.tally.divergences, divergence, DIVERGENCES_MAX);
        if code.is_none() && self.connection.in_transaction() {
            // When it was logged its transaction had ended here.
            let controls = step.request.texts().flat_map(sql::controls).last();
            if controls != Some(Control::RollbackTo) {
                self.skips_transaction = Some(rank);
                return self.connection.execute("ROLLBACK");
            }
        }
        Ok(())
    }

    fn skip(&mut self, reason: &'static str) {
        *self.tally.skipped.entry(reason).or_default() += 1;
    }
}

/// Serialization failure and deadlock: what clients begin again after.
fn is_retried(code: &str) -> bool {
    ["40001", "40P01"].contains(&code)
}

const RETRIES_MAX: u32 = 10;

/// Adds a divergence to the one that is alike.
pub(crate) fn add_divergence(list: &mut Vec<ReplayDivergence>, one: ReplayDivergence, most: usize) {
    let has_room = list.len() < most;
    let alike = |divergence: &&mut ReplayDivergence| {
        divergence.statement == one.statement
            && divergence.logged == one.logged
            && divergence.now == one.now
    };
    match list.iter_mut().find(alike) {
        Some(found) => found.count += one.count,
        None if has_room => list.push(one),
        None => {}
    }
}
