//! Replays a workload to a server.

mod bottleneck;
mod coordinator;
mod limits;
mod session;
mod watchdog;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use pgtoll_record::{Latencies, ReplayDone, ReplayTable, ReplayTarget};
use pgtoll_system::Interrupt;
use pgtoll_wire::{Connection, Dsn};

use crate::ReplayError;
use crate::catalog::TableFacts;
use crate::latencies::{histogram, quantiles};
use crate::order::{Order, OrderMode, order};
use crate::tables::{ComparedTable, TableState, compared, table_states};
use crate::transactions::ReplayTransactions;
use crate::user_types::TypeNumbers;
use crate::workload::{CapturedSession, CapturedWorkload};
use coordinator::Coordinator;
use session::{SessionContext, SessionTally, add_divergence};
use watchdog::{Breaks, Watchdog};

/// How a workload is replayed.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// By what statements are ordered.
    pub order: OrderMode,
    /// The recorded time's multiple; as fast as possible without one.
    pub speed: Option<f64>,
    /// Databases whose sessions go to another one.
    pub map: BTreeMap<String, String>,
    /// The role of all sessions; without one each has its own.
    pub user: Option<String>,
    /// Tables whose state is looked at when all is replayed.
    pub tables: Vec<ComparedTable>,
    /// The database that has these tables as they should be then.
    pub expected: Option<Dsn>,
    /// Keep the time of each step, for [`Replayed::step_ns`].
    pub keeps_times: bool,
    /// How long all sessions may wait for each other, and for locks, until one of them is let go.
    pub patience: Duration,
}

impl Default for ReplaySettings {
    fn default() -> Self {
        Self {
            order: OrderMode::default(),
            speed: None,
            map: BTreeMap::new(),
            user: None,
            tables: Vec::new(),
            expected: None,
            keeps_times: false,
            patience: Duration::from_secs(10),
        }
    }
}

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// The server.
    pub target: ReplayTarget,
    /// The edges between statements, as the target's catalog makes them.
    pub(crate) order: Order,
    /// The replay.
    pub done: ReplayDone,
    /// The signal that ended it early.
    pub ended: Option<String>,
    /// Sessions that ended early, each with the reason.
    pub broken: Vec<String>,
    /// Why tables were not looked at.
    pub tables_failed: Option<String>,
    /// The time of each step at the server in ns, 0 of those that were not executed, or failed. Empty
    /// unless [`ReplaySettings::keeps_times`].
    pub step_ns: Vec<u64>,
}

/// How far a replay is.
#[derive(Clone, Copy, Debug)]
pub struct ReplayProgress {
    /// Steps that are over.
    pub done: u64,
    /// Steps of the plan.
    pub all: u64,
}

/// Replays a workload to the server of `dsn`, whose databases have to be confirmed as disposable
/// ([`ReplayError::NotDisposable`]). A signal ends it early; what was done until then is returned.
pub fn replay(
    workload: &CapturedWorkload,
    dsn: &Dsn,
    settings: &ReplaySettings,
    interrupt: &Interrupt,
    progress: &mut (dyn FnMut(ReplayProgress) + Send),
) -> Result<Replayed, ReplayError> {
    // Without the sessions' own settings: a plan must not be able to confirm that a database may be lost.
    let plain: Vec<Dsn> = workload
        .sessions
        .iter()
        .map(|session| settings.target(dsn, &session.user, &session.database))
        .collect();
    let steps = steps_of_sessions(workload);
    let in_use = plain.iter().zip(&steps).filter(|(_, steps)| !steps.is_empty());
    let (facts, version, mut monitor) = inspect(in_use.map(|(dsn, _)| dsn))?;
    limits::raise_file_limit();
    limits::check_connections(monitor.as_mut(), workload.sessions_open_max())?;
    // What is wrong with them shows before anything is changed.
    let in_use = plain.iter().zip(&steps).filter(|(_, steps)| !steps.is_empty());
    let databases: BTreeSet<&str> = in_use.map(|(dsn, _)| dsn.database()).collect();
    let tables = TablesToCompare::new(dsn, &databases, settings)?;
    let types = type_numbers(workload, dsn, settings)?;
    let with_settings =
        |(dsn, session): (&Dsn, &CapturedSession)| dsn.with_settings(session.settings.clone());
    let targets: Vec<Dsn> = plain.iter().zip(&workload.sessions).map(with_settings).collect();
    let transactions = ReplayTransactions::from_workload(workload);
    let order = order(workload, &transactions, &facts, settings.order);
    let coordinator = Coordinator::new(workload, &order, &transactions);
    let cpu_before = cpu_time();
    let begun = Instant::now();
    let context = SessionContext {
        coordinator: &coordinator,
        workload,
        types: &types,
        begun,
        speed: settings.speed,
        keeps_times: settings.keeps_times,
        patience: settings.patience,
    };
    let (tallies, breaks) = run_sessions(&context, &targets, &steps, monitor, interrupt, progress)?;
    let run = begun.elapsed();
    let cpu = cpu_time().saturating_sub(cpu_before);
    let concurrency = coordinator.concurrency();
    let mut done = sum(&tallies, settings.speed.is_some(), breaks);
    done.run_s = run.as_secs_f64();
    done.concurrency_mean = concurrency.busy.as_secs_f64() / run.as_secs_f64().max(1e-9);
    done.concurrency_max = concurrency.max;
    done.order_wait_s = concurrency.order_wait.as_secs_f64();
    done.due_wait_s = concurrency.due_wait.as_secs_f64();
    done.client_cpu_s = cpu.as_secs_f64();
    done.client_cpus = thread::available_parallelism().ok().map(|cpus| cpus.get() as u64);
    done.bottleneck = bottleneck::bottleneck(&done);
    let ended = interrupt.signal().map(str::to_owned);
    let mut tables_failed = None;
    if let Some(tables) = tables.filter(|_| ended.is_none()) {
        match tables.compare() {
            Ok(tables) => done.tables = tables,
            Err(error) => tables_failed = Some(pgtoll_system::error_chain(&error)),
        }
    }
    let broken = tallies.iter().enumerate().filter_map(|(session, tally)| {
        tally.broken.as_ref().map(|reason| format!("session {}: {reason}", session + 1))
    });
    Ok(Replayed {
        target: ReplayTarget { dsn: dsn.redacted(), version },
        done,
        ended,
        broken: broken.collect(),
        tables_failed,
        step_ns: step_times(workload, &tallies, settings),
        order,
    })
}

fn step_times(
    workload: &CapturedWorkload,
    tallies: &[SessionTally],
    settings: &ReplaySettings,
) -> Vec<u64> {
    let steps = if settings.keeps_times { workload.steps.len() } else { 0 };
    let mut times = vec![0; steps];
    for (step, ns) in tallies.iter().flat_map(|tally| &tally.times) {
        times[*step as usize] = *ns;
    }
    times
}

/// The target's tables, and how they should be.
struct TablesToCompare<'a> {
    target: Dsn,
    tables: &'a [ComparedTable],
    expected: Option<Vec<TableState>>,
}

impl<'a> TablesToCompare<'a> {
    /// `None` where no table is to be compared.
    fn new(
        dsn: &Dsn,
        databases: &BTreeSet<&str>,
        settings: &'a ReplaySettings,
    ) -> Result<Option<Self>, ReplayError> {
        let tables = settings.tables.as_slice();
        if tables.is_empty() {
            return Ok(None);
        }
        let mut databases_left = databases.iter();
        let (Some(database), None) = (databases_left.next(), databases_left.next()) else {
            return Err(ReplayError::SeveralDatabases { databases: databases.len() });
        };
        let expected =
            settings.expected.as_ref().map(|dsn| table_states(dsn, tables)).transpose()?;
        Ok(Some(Self { target: dsn.with_database(database), tables, expected }))
    }

    fn compare(&self) -> Result<Vec<ReplayTable>, ReplayError> {
        let states = table_states(&self.target, self.tables)?;
        Ok(compared(self.tables, states, self.expected.as_deref()))
    }
}

impl ReplaySettings {
    pub(crate) fn target(&self, dsn: &Dsn, user: &str, database: &str) -> Dsn {
        let database = self.map.get(database).map_or(database, String::as_str);
        let dsn = if database.is_empty() { dsn.clone() } else { dsn.with_database(database) };
        match &self.user {
            Some(user) => dsn.with_user(user),
            None if user.is_empty() => dsn,
            None => dsn.with_user(user),
        }
    }
}

fn steps_of_sessions(workload: &CapturedWorkload) -> Vec<Vec<u32>> {
    let mut steps = vec![Vec::new(); workload.sessions.len()];
    for (index, step) in (0_u32..).zip(&workload.steps) {
        steps[step.session as usize].push(index);
    }
    steps
}

/// Looks at each database once, before anything is changed, and keeps a connection for the watchdog.
fn inspect<'a>(
    targets: impl Iterator<Item = &'a Dsn>,
) -> Result<(TableFacts, String, Option<Connection>), ReplayError> {
    let mut facts = TableFacts::default();
    let mut version = String::new();
    let mut monitor = None;
    let mut roles = BTreeSet::new();
    let mut databases = BTreeSet::new();
    for dsn in targets {
        if !roles.insert((dsn.user().to_owned(), dsn.database().to_owned())) {
            continue;
        }
        let failed =
            |action: String| move |source| ReplayError::Server { action, source: Box::new(source) };
        let user = dsn.user();
        let database = dsn.database();
        let connect = format!("connect to database \"{database}\" as \"{user}\"");
        let mut connection = dsn.connect().map_err(failed(connect))?;
        if databases.insert(database.to_owned()) {
            let look = || failed(format!("look at database \"{database}\""));
            let row = connection.query_one(STATE).map_err(look())?;
            let text = |name| row.text(name).map(str::to_owned).map_err(look());
            if text("standby")? == "true" {
                return Err(ReplayError::Standby);
            }
            if !is_on(&text("disposable")?) {
                let quoted = text("quoted")?;
                return Err(ReplayError::NotDisposable { database: database.to_owned(), quoted });
            }
            version = text("version")?;
            facts.read(&mut connection).map_err(look())?;
        }
        if monitor.is_none() {
            monitor = Some(connection);
        } else {
            connection.close();
        }
    }
    Ok((facts, version, monitor))
}

/// The numbers that types of captured databases have at the target, of those that differ.
fn type_numbers(
    workload: &CapturedWorkload,
    dsn: &Dsn,
    settings: &ReplaySettings,
) -> Result<BTreeMap<String, TypeNumbers>, ReplayError> {
    let mut numbers = BTreeMap::new();
    for (database, types) in &workload.header.types {
        let Some(session) = workload.sessions.iter().find(|session| session.database == *database)
        else {
            continue;
        };
        let target = settings.target(dsn, &session.user, database);
        let read = || {
            let mut connection = target.connect()?;
            let numbers = TypeNumbers::read(&mut connection, types)?;
            connection.close();
            Ok(numbers)
        };
        let failed = |source| {
            let action = format!("look up types in database \"{}\"", target.database());
            ReplayError::Server { action, source: Box::new(source) }
        };
        numbers.insert(database.clone(), read().map_err(failed)?);
    }
    Ok(numbers)
}

const STATE: &str = "SELECT pg_catalog.pg_is_in_recovery()::text AS standby, \
    coalesce(pg_catalog.current_setting('pgtoll.disposable', true), '') AS disposable, \
    pg_catalog.quote_ident(pg_catalog.current_database()) AS quoted, \
    pg_catalog.current_setting('server_version') AS version";

fn is_on(value: &str) -> bool {
    ["on", "true", "yes", "1"].contains(&value)
}

/// Starts each session when it is due, or, at full speed, when those have ended that ended before it
/// began; waits for all.
fn run_sessions(
    context: &SessionContext<'_>,
    targets: &[Dsn],
    steps: &[Vec<u32>],
    monitor: Option<Connection>,
    interrupt: &Interrupt,
    progress: &mut (dyn FnMut(ReplayProgress) + Send),
) -> Result<(Vec<SessionTally>, Breaks), ReplayError> {
    let coordinator = context.coordinator;
    let tallies: Vec<Mutex<SessionTally>> = steps.iter().map(|_| Mutex::default()).collect();
    for (session, _) in (0_u32..).zip(steps).filter(|(_, steps)| steps.is_empty()) {
        coordinator.end_session(session);
    }
    let needs = needs(context.workload);
    let all = context.workload.steps.len() as u64;
    let (breaks, refused) = thread::scope(|scope| {
        let watchdog = Builder::new()
            .name("watchdog".to_owned())
            .spawn_scoped(scope, || Watchdog::new(context, monitor).watch(interrupt));
        let mut refused = None;
        for session in starts(context.workload, steps) {
            if !await_start(context, session, &needs[session as usize]) {
                break;
            }
            let dsn = &targets[session as usize];
            let steps = &steps[session as usize];
            let tally = &tallies[session as usize];
            let work = move || {
                let played = context.play(session, dsn, steps);
                *pgtoll_system::lock(tally) = played;
            };
            let name = format!("session {}", session + 1);
            if let Err(source) = Builder::new().name(name).spawn_scoped(scope, work) {
                coordinator.stop();
                refused = Some(ReplayError::Thread { session: u64::from(session) + 1, source });
                break;
            }
        }
        await_end(context, all, progress);
        let breaks = watchdog.map(thread::ScopedJoinHandle::join);
        (breaks, refused)
    });
    if let Some(error) = refused {
        return Err(error);
    }
    let breaks = match breaks {
        Ok(Ok(breaks)) => breaks,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(source) => return Err(ReplayError::Thread { session: 0, source }),
    };
    let tallies = tallies.into_iter();
    let tallies = tallies.map(|tally| tally.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok((tallies.collect(), breaks))
}

/// The sessions with steps, in the order of their begin.
fn starts(workload: &CapturedWorkload, steps: &[Vec<u32>]) -> Vec<u32> {
    let with_steps = (0_u32..).zip(steps).filter(|(_, steps)| !steps.is_empty());
    let mut sessions: Vec<u32> = with_steps.map(|(session, _)| session).collect();
    sessions.sort_by_key(|session| workload.sessions[*session as usize].begin);
    sessions
}

/// Returns for each session those that ended last before it began: up to as many as there are sessions at a time,
/// since these wait for earlier ones in their turn.
fn needs(workload: &CapturedWorkload) -> Vec<Vec<u32>> {
    let mut by_end: Vec<u32> = (0_u32..).take(workload.sessions.len()).collect();
    by_end.sort_by_key(|session| workload.sessions[*session as usize].end);
    let before = |begin: u64| {
        by_end.partition_point(|session| workload.sessions[*session as usize].end < begin)
    };
    let ended: Vec<usize> = workload.sessions.iter().map(|session| before(session.begin)).collect();
    ended.iter().map(|ended| by_end[ended.saturating_sub(NEEDS_MAX)..*ended].to_vec()).collect()
}

const NEEDS_MAX: usize = 2000;

/// Whether the session is to start: false when all are to end.
fn await_start(context: &SessionContext<'_>, session: u32, needs: &[u32]) -> bool {
    let due = context.due(context.workload.sessions[session as usize].begin_us);
    let coordinator = context.coordinator;
    let mut state = coordinator.state();
    state.wait_for_start(due.is_some());
    let is_to_start = loop {
        if state.stop {
            break false;
        }
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let waits = match left {
            Some(left) => !left.is_zero(),
            None => needs.iter().any(|need| !state.sessions_over[*need as usize]),
        };
        if !waits {
            break true;
        }
        let longest = left.unwrap_or(SHOW_INTERVAL).min(SHOW_INTERVAL);
        let waited = coordinator.changed.wait_timeout(state, longest);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    };
    state.end_wait_for_start(due.is_some());
    is_to_start
}

const SHOW_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until no session continues, and reports how far it is.
fn await_end(
    context: &SessionContext<'_>,
    all: u64,
    progress: &mut (dyn FnMut(ReplayProgress) + Send),
) {
    let coordinator = context.coordinator;
    let mut state = coordinator.state();
    while !state.stop && !state.sessions_over.iter().all(|over| *over) {
        let waited = coordinator.changed.wait_timeout(state, SHOW_INTERVAL);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        progress(ReplayProgress { done: state.done_count, all });
    }
}

fn sum(tallies: &[SessionTally], is_timed: bool, breaks: Breaks) -> ReplayDone {
    let mut done =
        ReplayDone { order_breaks: breaks.count, breaks: breaks.first, ..ReplayDone::default() };
    let mut latencies = Latencies::new();
    let mut lateness = Latencies::new();
    for tally in tallies {
        done.connections += u64::from(tally.connected);
        done.broken_sessions += u64::from(tally.broken.is_some());
        done.sessions_s += tally.time.as_secs_f64();
        done.statements += tally.statements;
        done.expected_errors += tally.expected_errors;
        done.unexpected_errors += tally.unexpected_errors;
        done.missing_errors += tally.missing_errors;
        done.retried += tally.retried;
        latencies.merge(&tally.latencies);
        lateness.merge(&tally.lateness);
        for (reason, count) in &tally.skipped {
            *done.skipped.entry((*reason).to_owned()).or_default() += count;
        }
        for divergence in &tally.divergences {
            add_divergence(&mut done.divergences, divergence.clone(), DIVERGENCES_MAX);
        }
    }
    done.latency_ms = quantiles(&latencies);
    done.histogram = histogram(&latencies);
    done.lateness_ms = quantiles(&lateness).filter(|_| is_timed);
    done
}

const DIVERGENCES_MAX: usize = 100;

fn cpu_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let all = [usage.user_time(), usage.system_time()];
    let micros = all.iter().map(|item| item.tv_sec() * 1_000_000 + item.tv_usec()).sum::<i64>();
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}
