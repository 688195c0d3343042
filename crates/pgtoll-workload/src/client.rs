//! A client: a connection and the load that it generates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use pgtoll_record::Latencies;
use pgtoll_wire::{Connection, Parameter, Row};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::expression::{
    Context, EvaluationError, Expression, Scalar, Slot, Value, Variables, integer,
};
use crate::program::{Bound, Execution, Program, ProgramStep, ScriptLine, Sleep};
use crate::random;
use crate::{LoadError, Mix};

/// A client with its connection.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    programs: Vec<Program>,
    /// The program of each weight's last unit, as running totals.
    weights: Vec<u64>,
    variables: Variables,
    /// The values that [`Client::reseed`] sets variables to.
    defined: Vec<(Slot, i64)>,
    seed_slot: Slot,
    /// For what scripts draw, and for nothing else: with the same seed they ask for the same rows,
    /// however transactions are chosen and timed.
    random: Pcg64,
    /// The generator of the order and times of scripts.
    order: Pcg64,
    notes: Vec<String>,
    latencies: Latencies,
}

/// The work in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Transactions that were completed.
    pub transactions: u64,
    /// From the first one's beginning to the last one's end; of an open loop, from the schedule's
    /// beginning to its end or the last transaction's, whichever is later.
    pub elapsed: Duration,
    /// Transactions of an open loop that began more than a millisecond after their time.
    pub late: u64,
}

/// When the work of clients is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Every client has completed this many transactions.
    Transactions(u64),
    /// All clients together have completed this many, and each at least one: none waits for another
    /// one at the end.
    TogetherTransactions(u64),
    /// This time is over, and what was running then is completed.
    Time(Duration),
}

/// The progress that the clients of a crowd share.
#[derive(Debug)]
pub(crate) struct SharedProgress {
    /// One of them has failed.
    pub(crate) failed: AtomicBool,
    /// Transactions that all of them have begun.
    begun: AtomicU64,
}

impl SharedProgress {
    /// This many transactions begin without asking: the first of each client in a closed loop.
    pub(crate) fn after(begun: usize) -> Self {
        Self { failed: AtomicBool::new(false), begun: AtomicU64::new(begun as u64) }
    }

    /// Whether one more of `count` transactions is left, which the caller then begins.
    fn begin_another(&self, count: u64) -> bool {
        self.begun.fetch_add(1, Ordering::Relaxed) < count
    }
}

impl Client {
    /// Prepares the scripts; `scale` is what `:scale` stands for, and the scale factor of pgbench's
    /// tables. `:client_id`, `:default_seed` and `:random_seed` are 0.
    pub fn new(connection: Connection, mix: &Mix, scale: u32) -> Result<Self, LoadError> {
        let mut variables = Variables::default();
        let mut total = 0;
        let mut programs = Vec::new();
        let mut weights = Vec::new();
        for (script, weight) in mix.scripts().iter().filter(|(_, weight)| *weight > 0) {
            total += u64::from(*weight);
            weights.push(total);
            programs.push(Program::compile(script, &mut variables));
        }
        let seed_slot = variables.slot("random_seed");
        let mut client = Self {
            connection,
            programs,
            weights,
            variables,
            defined: Vec::new(),
            seed_slot,
            random: Pcg64::seed_from_u64(0),
            order: Pcg64::seed_from_u64(0),
            notes: Vec::new(),
            latencies: Latencies::new(),
        };
        client.define("scale", scale.max(1).into());
        client.define("client_id", 0);
        client.define("default_seed", 0);
        client.reseed(0);
        for program in &mut client.programs {
            program.prepare(&mut client.connection, &mut client.variables)?;
        }
        Ok(client)
    }

    /// Sets a variable, now and whenever the client is reseeded: `pgbench -D`.
    pub fn define(&mut self, name: &str, value: i64) {
        let slot = self.variables.slot(name);
        self.defined.retain(|(defined, _)| *defined != slot);
        self.defined.push((slot, value));
        self.variables.set(slot, Value::Scalar(Scalar::Integer(value)));
    }

    /// From now on the client does what belongs to this seed, whatever it did before: variables
    /// that scripts have set are forgotten.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Pcg64::seed_from_u64(seed);
        self.order = Pcg64::seed_from_u64(!seed);
        self.variables.unset_all();
        let seed = Value::Scalar(Scalar::Integer(seed.cast_signed()));
        self.variables.set(self.seed_slot, seed);
        for (slot, value) in &self.defined {
            self.variables.set(*slot, Value::Scalar(Scalar::Integer(*value)));
        }
    }

    /// From now on the scripts' random functions draw what belongs to this seed; which script comes
    /// next, and when, stays as it was.
    pub fn reseed_draws(&mut self, seed: u64) {
        self.random = Pcg64::seed_from_u64(seed);
    }

    /// Runs transactions until `length` is over; the one that is running then is finished and
    /// counted, and its time with it. At least one is run.
    pub fn run_for(&mut self, length: Duration) -> Result<Tally, LoadError> {
        self.run_while(|_, elapsed| elapsed < length)
    }

    /// Runs this many transactions.
    pub fn run_count(&mut self, count: u64) -> Result<Tally, LoadError> {
        match count {
            0 => Ok(Tally { transactions: 0, elapsed: Duration::ZERO, late: 0 }),
            _ => self.run_while(|transactions, _| transactions < count),
        }
    }

    /// Starts transactions at random times, `rate_per_second` on average, until `length` is over,
    /// and finishes them all. The times are a Poisson process that belongs to the seed. A
    /// transaction's latency begins at its time, also when the one before was still running then;
    /// it is started right after that.
    pub fn run_open(&mut self, length: Duration, rate_per_second: f64) -> Result<Tally, LoadError> {
        self.open_loop(rate_per_second, |_, scheduled| scheduled < length, length)
    }

    /// Works in an open loop when there is a rate, else in a closed one; ends early when another client
    /// of the same crowd has failed.
    pub(crate) fn run_until(
        &mut self,
        until: Until,
        rate_per_second: Option<f64>,
        shared: &SharedProgress,
    ) -> Result<Tally, LoadError> {
        let goes_on = |transactions, time| {
            !shared.failed.load(Ordering::Relaxed)
                && match until {
                    Until::Transactions(count) => transactions < count,
                    Until::TogetherTransactions(count) => shared.begin_another(count),
                    Until::Time(length) => time < length,
                }
        };
        match (rate_per_second, until) {
            (Some(rate), Until::Time(length)) => self.open_loop(rate, goes_on, length),
            (Some(rate), _) => self.open_loop(rate, goes_on, Duration::ZERO),
            (None, _) => self.run_while(goes_on),
        }
    }

    /// As long as `goes_on` says so of the number of transactions and the next one's time, and for
    /// `at_least` so long.
    fn open_loop(
        &mut self,
        rate_per_second: f64,
        goes_on: impl Fn(u64, Duration) -> bool,
        at_least: Duration,
    ) -> Result<Tally, LoadError> {
        let gap_s = rate_per_second.recip();
        if !(gap_s.is_normal() && gap_s > 0.0) {
            return Err(LoadError::Rate(rate_per_second));
        }
        let _precise = PreciseSleep::begin();
        let begin = Instant::now();
        let mut transactions = 0;
        let mut late = 0;
        let mut scheduled_s = 0.0;
        loop {
            scheduled_s += random::gap(&mut self.order) * gap_s;
            let scheduled = Duration::try_from_secs_f64(scheduled_s).unwrap_or(Duration::MAX);
            if !goes_on(transactions, scheduled) {
                break;
            }
            let started = wait_until(begin, scheduled);
            late += u64::from(started > scheduled + LATE);
            self.transaction()?;
            transactions += 1;
            self.latencies.record(begin.elapsed().saturating_sub(scheduled));
        }
        let elapsed = wait_until(begin, at_least);
        Ok(Tally { transactions, elapsed, late })
    }

    /// The latencies of all transactions since the last call, or since the beginning.
    pub fn take_latencies(&mut self) -> Latencies {
        std::mem::take(&mut self.latencies)
    }

    /// Returns the output of scripts' `debug` since the last call, type and value; of very many, the
    /// first ones.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The client's connection, for other statements between the load.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Ends the connection.
    pub fn close(self) {
        self.connection.close();
    }

    /// One transaction after the other, at least one, as long as `goes_on` says so of their number
    /// and the time. The clock is read once a transaction.
    fn run_while(&mut self, goes_on: impl Fn(u64, Duration) -> bool) -> Result<Tally, LoadError> {
        let begin = Instant::now();
        let mut before = Duration::ZERO;
        let mut transactions = 0;
        loop {
            self.transaction()?;
            transactions += 1;
            let elapsed = begin.elapsed();
            self.latencies.record(elapsed.saturating_sub(before));
            before = elapsed;
            if !goes_on(transactions, elapsed) {
                return Ok(Tally { transactions, elapsed, late: 0 });
            }
        }
    }

    fn transaction(&mut self) -> Result<(), LoadError> {
        let index = self.draw();
        let Self { connection, programs, variables, random, notes, .. } = self;
        let Program { name, built_in, steps } = &mut programs[index];
        let mut next = 0;
        while let Some(step) = steps.get_mut(next) {
            next += 1;
            let place = || ScriptLine { script: Arc::clone(name), line: step.line };
            let mut evaluate =
                |expression: &Expression<Slot>, variables: &Variables, random: &mut Pcg64| {
                    let context = &mut Context { variables, random, notes: &mut *notes };
                    expression.evaluate(context).map_err(|source| place().evaluation(source))
                };
            match &mut step.kind {
                ProgramStep::Set(slot, expression) => {
                    let value = evaluate(expression, variables, random)?;
                    variables.set(*slot, Value::Scalar(value));
                }
                ProgramStep::Draw(slot, bounds, expression) => {
                    let value = match draw(*bounds, variables, random) {
                        Some(number) => Scalar::Integer(number),
                        None => evaluate(expression, variables, random)?,
                    };
                    variables.set(*slot, Value::Scalar(value));
                }
                ProgramStep::JumpUnless(condition, to) => {
                    if !evaluate(condition, variables, random)?.is_true() {
                        next = *to;
                    }
                }
                ProgramStep::Jump(to) => next = *to,
                ProgramStep::Sleep { duration, unit_us } => {
                    let amount =
                        amount(duration, variables).map_err(|source| place().evaluation(source))?;
                    sleep(Duration::from_micros(amount.saturating_mul(*unit_us)));
                }
                ProgramStep::Execute(execution) => {
                    if execution.prepared.is_none() {
                        execution.prepare(&place(), connection, variables)?;
                    }
                    let rows = execute(execution, &place, connection, variables)?;
                    if *built_in && rows != 1 && !execution.parameters.is_empty() {
                        let statement = execution.sql.clone();
                        return Err(LoadError::WrongRows { statement, rows });
                    }
                }
            }
        }
        if connection.in_transaction() {
            return Err(LoadError::OpenTransaction { script: name.to_string() });
        }
        Ok(())
    }

    /// The script of the next transaction.
    fn draw(&mut self) -> usize {
        match self.weights.as_slice() {
            [] | [_] => 0,
            [.., total] => {
                let drawn = self.order.random_range(0..*total);
                self.weights.partition_point(|weight| *weight <= drawn)
            }
        }
    }
}

impl ScriptLine {
    fn evaluation(&self, source: Box<EvaluationError>) -> LoadError {
        LoadError::Evaluation { script: self.script.to_string(), line: self.line, source }
    }
}

/// Executes a statement that is prepared; returns how many rows it returned or changed.
fn execute(
    execution: &Execution,
    place: &impl Fn() -> ScriptLine,
    connection: &mut Connection,
    variables: &mut Variables,
) -> Result<u64, LoadError> {
    let Execution { sql, prepared: Some(prepared), parameters: slots, capture, columns } =
        execution
    else {
        return Ok(0);
    };
    let texts = texts(slots, variables);
    // Statements with more parameters than this are rare.
    let mut few = [Parameter::Null; 8];
    let mut many = Vec::new();
    let parameters = if let Some(few) = few.get_mut(..slots.len()) {
        few
    } else {
        many.resize(slots.len(), Parameter::Null);
        &mut many[..]
    };
    for (index, slot) in slots.iter().enumerate() {
        let text = texts.get(index).map_or("", String::as_str);
        parameters[index] =
            parameter(*slot, variables, text).map_err(|source| place().evaluation(source))?;
    }
    let failed = |source| place().server(sql, source);
    let Some(capture) = capture else {
        return connection.execute_prepared(prepared, parameters).map_err(failed);
    };
    let mut rows = connection.query_prepared(prepared, parameters).map_err(failed)?;
    let count = rows.len();
    if capture.exactly_one && count != 1 {
        let ScriptLine { script, line } = place();
        return Err(LoadError::Captured { script: script.to_string(), line, rows: count });
    }
    if let Some(last) = rows.pop() {
        remember(&last, columns, variables);
    }
    Ok(count as u64)
}

/// The texts of the parameters that have to be made first; none without doubles.
fn texts(slots: &[Slot], variables: &Variables) -> Vec<String> {
    let is_double =
        |slot: &Slot| matches!(variables.value(*slot), Value::Scalar(Scalar::Double(_)));
    if !slots.iter().any(is_double) {
        return Vec::new();
    }
    let text = |slot: &Slot| match variables.value(*slot) {
        Value::Scalar(scalar @ Scalar::Double(_)) => scalar.to_string(),
        _ => String::new(),
    };
    slots.iter().map(text).collect()
}

fn parameter<'a>(
    slot: Slot,
    variables: &'a Variables,
    double: &'a str,
) -> Result<Parameter<'a>, Box<EvaluationError>> {
    Ok(match variables.value(slot) {
        Value::Scalar(Scalar::Integer(number)) => Parameter::Integer(*number),
        Value::Scalar(Scalar::Null) => Parameter::Null,
        Value::Scalar(Scalar::Boolean(true)) => Parameter::Text("true"),
        Value::Scalar(Scalar::Boolean(false)) => Parameter::Text("false"),
        Value::Scalar(Scalar::Double(_)) => Parameter::Text(double),
        Value::Text(text) => Parameter::Text(text),
        Value::Unset => return Err(variables.undefined(slot).into()),
    })
}

fn remember(row: &Row, columns: &[Slot], variables: &mut Variables) {
    for (slot, value) in columns.iter().zip(row.values()) {
        variables.set(
            *slot,
            match value {
                Some(text) => Value::Text(text.clone()),
                None => Value::Scalar(Scalar::Null),
            },
        );
    }
}

/// A random number, unless the bounds are none.
fn draw([from, to]: [Bound; 2], variables: &Variables, random: &mut Pcg64) -> Option<i64> {
    let from = from.value(variables)?;
    let to = to.value(variables)?;
    let is_range = from <= to && to.checked_sub(from)? < i64::MAX;
    is_range.then(|| random::uniform(random, from, to))
}

fn amount(sleep: &Sleep, variables: &Variables) -> Result<u64, Box<EvaluationError>> {
    let slot = match sleep {
        Sleep::Constant(number) => return Ok(*number),
        Sleep::Variable(slot) => *slot,
    };
    let number = integer(variables.scalar(slot)?)?;
    // A negative time is over, as in pgbench.
    Ok(u64::try_from(number).unwrap_or(0))
}

/// Waits for a time after `begin`, unless it is over; returns the time it then is.
fn wait_until(begin: Instant, time: Duration) -> Duration {
    loop {
        let now = begin.elapsed();
        match time.checked_sub(now) {
            None | Some(Duration::ZERO) => return now,
            Some(left) => sleep(left),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "time itself is the event that is waited for")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// More than any wake-up takes on a machine that has a processor to spare.
const LATE: Duration = Duration::from_millis(1);

/// While it lives, the thread wakes up when it asked to, and not up to 50 µs later, as Linux lets
/// ordinary threads.
struct PreciseSleep {
    slack_ns: Option<u64>,
}

impl PreciseSleep {
    /// Requests exact timers; without them transactions begin a little later, which latencies show.
    fn begin() -> Self {
        let slack_ns = prctl::get_timerslack().ok().and_then(|slack| u64::try_from(slack).ok());
        let _ = prctl::set_timerslack(1);
        Self { slack_ns }
    }
}

impl Drop for PreciseSleep {
    fn drop(&mut self) {
        if let Some(slack_ns) = self.slack_ns {
            let _ = prctl::set_timerslack(slack_ns);
        }
    }
}
