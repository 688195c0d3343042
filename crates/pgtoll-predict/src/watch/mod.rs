//! Watching: windows from the end of one checkpoint to the end of the next.

mod counting;
mod end;
mod window;

use std::time::{Duration, Instant};

use pgtoll_format::{Lsn, MajorFacts};
use pgtoll_observe::ClusterCpu;
use pgtoll_record::{CarriedMarks, ServerWatch, WatchWindow, WatchedServer};
use pgtoll_system::Interrupt;
use pgtoll_wire::{Dsn, Error};

use self::window::OpenWindow;
use crate::PredictError;
use crate::allowance::CensusAllowance;
use crate::answer::SeenSettings;
use crate::census::{CensusTaker, DirtyList};
use crate::databases::{table_counts, visibility};
use crate::looks::{CounterLook, Glimpse, evicted_now};
use crate::marks::FollowedPages;
use crate::running::RunningCheckpoint;
use crate::server::{Privileges, identify};
use crate::session::{APPLICATION, SessionCost, WatchSession};
use crate::statements::StatementTally;

/// How long to watch, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchPlan {
    /// At most this long.
    pub time: Duration,
    /// Until this number of whole checkpoint cycles was seen; `None`: for the whole time.
    pub cycles: Option<u32>,
    /// Less often, smaller samples.
    pub gentle: bool,
    /// Keep the normalised text of statements.
    pub with_queries: bool,
}

/// How far watching has come.
#[derive(Clone, Copy, Debug)]
pub struct WatchProgress<'a> {
    /// Until now.
    pub elapsed: Duration,
    /// The observation so far: windows are added as they end.
    pub watch: &'a ServerWatch,
    /// The server that is watched.
    pub server: &'a WatchedServer,
    /// A window has just ended.
    pub window_ended: bool,
    /// Something is new that a record has: a window, or WAL that was read.
    pub has_news: bool,
}

/// Watches a server, read-only, until the plan is fulfilled or a signal comes. `on_progress` is told
/// at each look. What was seen until a connection was lost for good is returned, and why it ended.
pub fn watch(
    dsn: &Dsn,
    plan: &WatchPlan,
    interrupt: &Interrupt,
    on_progress: &mut dyn FnMut(&WatchProgress<'_>),
) -> Result<(WatchedServer, ServerWatch), PredictError> {
    let mut session = WatchSession::open(dsn, APPLICATION)?;
    let (server, facts, privileges) = identify(&mut session)?;
    let mut watcher = Watcher::new(dsn, plan, facts, session, &server, &privileges)?;
    watcher.watch.sources = privileges.sources;
    loop {
        let step = watcher.step();
        let window_ended = matches!(step, Ok(true));
        let watch = &watcher.watch;
        let elapsed = watcher.began.elapsed();
        let has_news = window_ended;
        on_progress(&WatchProgress { elapsed, watch, server: &server, window_ended, has_news });
        match step {
            // The signal ends the pause below.
            Ok(_) | Err(PredictError::Wire(Error::Interrupted)) => {}
            Err(PredictError::Wire(error)) => {
                if let Err(error) = watcher.reconnect(&error, &server, interrupt) {
                    watcher.watch.ended = Some(error.to_string());
                    break;
                }
            }
            Err(error) => {
                watcher.watch.ended = Some(error.to_string());
                break;
            }
        }
        if watcher.is_done() {
            watcher.watch.complete = true;
            break;
        }
        let pause = watcher.pause();
        let pause = pause.min(plan.time.saturating_sub(watcher.began.elapsed()));
        if let Err(signal) = interrupt.wait(pause) {
            watcher.watch.ended = Some(signal.to_string());
            break;
        }
    }
    let was_interrupted = interrupt.signal().is_some();
    Ok((server, watcher.finish(was_interrupted)))
}

const PAUSE: Duration = Duration::from_millis(500);
const GENTLE_PAUSE: Duration = Duration::from_secs(5);
/// The pause with cycles of seconds.
const SHORT_PAUSE_S: f64 = 0.1;
const LONG_PAUSE_S: f64 = 1.0;
/// Looks in a cycle of minutes, so that its ends are known to an eightieth of it.
const LOOKS: f64 = 80.0;

/// As many censuses in the part of a checkpoint cycle that can be seen.
const CENSUSES: f64 = 8.0;

struct Watcher {
    dsn: Dsn,
    plan: WatchPlan,
    facts: &'static MajorFacts,
    session: WatchSession,
    statements: Option<String>,
    tally: Option<StatementTally>,
    taker: Option<CensusTaker>,
    /// Seconds that the last census took the server (the first: will take), and all.
    census_cost_s: f64,
    census_costs_s: f64,
    census_failures: u32,
    /// How long the last checkpoint cycle was that was seen whole.
    cycle_s: Option<f64>,
    last_look: Option<Glimpse>,
    /// The end of WAL at the look before.
    insert_before: Lsn,
    /// When the last checkpoint was due that was skipped, by the server's clock.
    skipped_s: f64,
    /// The checkpoint that runs, if its begin was seen.
    running: Option<RunningCheckpoint>,
    cpu: Option<ClusterCpu>,
    window: Option<OpenWindow>,
    watch: ServerWatch,
    /// The cost of closed sessions.
    cost: SessionCost,
    began: Instant,
    settings: SeenSettings,
    block_bytes: u64,
}

impl Watcher {
    fn new(
        dsn: &Dsn,
        plan: &WatchPlan,
        facts: &'static MajorFacts,
        mut session: WatchSession,
        server: &WatchedServer,
        privileges: &Privileges,
    ) -> Result<Self, PredictError> {
        let taker = match (&privileges.buffercache, &privileges.inspect) {
            (Some(schema), inspect @ Some(_)) => {
                let schema = schema.clone();
                let inspect = inspect.clone();
                Some(CensusTaker::new(&mut session, dsn, schema, inspect)?)
            }
            _ => None,
        };
        let (count, cost) = visibility(dsn, &mut session);
        let cpu = session.postmaster().and_then(|pid| ClusterCpu::attach(pid).ok());
        Ok(Self {
            dsn: dsn.clone(),
            plan: *plan,
            facts,
            statements: privileges.statements.clone(),
            tally: privileges
                .statements
                .clone()
                .map(|schema| StatementTally::new(schema, facts, plan.with_queries)),
            census_cost_s: taker
                .as_ref()
                .map_or(0.0, |taker| CensusAllowance::first_s(taker.buffers)),
            taker,
            census_costs_s: 0.0,
            census_failures: 0,
            cycle_s: None,
            last_look: None,
            insert_before: Lsn(0),
            skipped_s: 0.0,
            running: None,
            cpu,
            window: None,
            watch: ServerWatch {
                began: jiff::Timestamp::now().to_string(),
                visibility: Some(count),
                ..ServerWatch::default()
            },
            cost,
            began: Instant::now(),
            settings: SeenSettings::from_server(server),
            block_bytes: server.block_bytes.max(1),
            session,
        })
    }

    /// Until the next look.
    fn pause(&self) -> Duration {
        if self.plan.gentle {
            return GENTLE_PAUSE;
        }
        let Some(cycle) = self.cycle_s else { return PAUSE };
        let most = (cycle / LOOKS).clamp(PAUSE.as_secs_f64(), LONG_PAUSE_S);
        Duration::from_secs_f64((cycle / CENSUSES / 2.0).clamp(SHORT_PAUSE_S, most))
    }

    /// Looks once; whether a window has ended.
    fn step(&mut self) -> Result<bool, PredictError> {
        let now = Glimpse::read(&mut self.session, self.facts)?;
        let before = self.last_look.replace(now.clone());
        let before_s = before.as_ref().map_or(0.0, |before| before.now_s);
        self.session.check_pid(now.pid)?;
        if now.is_standby {
            return Err(PredictError::Standby);
        }
        let Some(window) = &self.window else {
            self.open(now, 0.0, false)?;
            return Ok(false);
        };
        if now.redo != window.begin.redo {
            let has_ended = self.end(&now, before_s)?;
            self.open(now, before_s, true)?;
            return Ok(has_ended);
        }
        if let Some(before) = &before {
            self.notice_checkpoint(before, &now)?;
            self.insert_before = before.insert;
        }
        if let Some(pages) = self.due_census(&now) {
            self.take_census(&now, pages)?;
        }
        Ok(false)
    }

    /// Has a checkpoint begun since the last look? It may have, moments before that, so that its redo
    /// point is after where WAL ended at the look before it.
    fn notice_checkpoint(&mut self, before: &Glimpse, now: &Glimpse) -> Result<(), PredictError> {
        let is_new = now.checkpoints > before.checkpoints && self.insert_before != Lsn(0);
        if is_new && before.skips_checkpoints() {
            self.skipped_s = now.now_s;
            return Ok(());
        }
        if !is_new || !self.may_count() {
            return Ok(());
        }
        let redo = self.insert_before;
        let cost = self.cost_until_now_s();
        let Some(taker) = &mut self.taker else { return Ok(()) };
        let evicted = evicted_now(&mut self.session, self.facts)?;
        let listed = taker.list_dirty(&mut self.session, salt(redo));
        let DirtyList { carried, pages, dirty } = match listed {
            // It took too long: the cycle has censuses when its checkpoint has completed.
            Err(Error::Server(_)) => return Ok(()),
            listed => listed?,
        };
        let followed = or_refused(taker.follow_marks(&mut self.session, pages, redo))?;
        self.census_costs_s += self.cost_until_now_s() - cost;
        self.running = Some(RunningCheckpoint {
            begun_s: before.now_s.midpoint(now.now_s),
            redo,
            evicted,
            carried,
            followed,
            dirty,
            censuses: Vec::new(),
            last_census_s: now.now_s,
        });
        Ok(())
    }

    fn counters(&mut self) -> Result<CounterLook, PredictError> {
        let look = CounterLook::read(&mut self.session, self.facts, self.statements.as_deref())?;
        // Where hints are logged today nothing is asked of them.
        if self.settings.logs_hints() {
            return Ok(look);
        }
        let (tables, cost) = table_counts(&self.dsn, &mut self.session);
        self.cost.add(cost);
        Ok(CounterLook { tables, ..look })
    }

    /// Opens a window at a look, and continues with the censuses that were taken while its checkpoint
    /// ran.
    fn open(&mut self, begin: Glimpse, before_s: f64, is_cycle: bool) -> Result<(), PredictError> {
        let begun_s = begin.begun_s(before_s);
        let look = self.counters()?;
        let cpu = self.cpu.as_mut().and_then(|cpu| cpu.sample().ok());
        self.look_at_statements(false)?;
        let running = self.running.take().filter(|running| running.is_of(begun_s, &begin));
        let mut window = OpenWindow {
            begun_s,
            cpu,
            is_cycle,
            censuses: Vec::new(),
            last_census_s: begin.now_s,
            seen_from_s: begin.now_s,
            evicted_before: look.evicted,
            dirty_before: None,
            marks: None,
            look,
            begin,
        };
        if let Some(mut running) = running {
            window.marks = self.count_marks(running.followed.take(), window.begin.redo)?;
            window.take_over(running);
        }
        self.window = Some(window);
        Ok(())
    }

    /// Counts the marks of a completed checkpoint.
    fn count_marks(
        &mut self,
        followed: Option<FollowedPages>,
        redo: Lsn,
    ) -> Result<Option<CarriedMarks>, PredictError> {
        let cost = self.cost_until_now_s();
        let (Some(taker), Some(followed)) = (&mut self.taker, followed) else { return Ok(None) };
        let marks = or_refused(taker.count_marks(&mut self.session, followed, redo))?;
        self.census_costs_s += self.cost_until_now_s() - cost;
        Ok(marks)
    }

    /// Ends the open window at a look; the last one was at `before_s`. `false` where it has to be thrown away.
    fn end(&mut self, now: &Glimpse, before_s: f64) -> Result<bool, PredictError> {
        let look = self.counters()?;
        let cpu = self.cpu.as_mut().and_then(|cpu| cpu.sample().ok());
        let Some(window) = self.window.take() else { return Ok(false) };
        if look.was_reset_since(&window.look) {
            self.discard(&format!("{}: statistics were reset", window.begin.now));
            return Ok(false);
        }
        let before_end = now.redo != window.begin.redo;
        // A part of a cycle before the first checkpoint that was seen is worth nothing beside whole
        // ones, and all there is without.
        let is_cycle = window.is_cycle && before_end;
        let (earlier_censuses, census) =
            window.cycle_censuses(before_end.then(|| now.begun_s(before_s)));
        if is_cycle {
            self.cycle_s = Some((now.begun_s(before_s) - window.begun_s).max(0.0));
        }
        let difference = |after: u64, before: u64| after.saturating_sub(before);
        let optional =
            |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        let forgot = look.forgotten != window.look.forgotten;
        let grown = optional(look.data_bytes, window.look.data_bytes);
        let cpu_used = cpu.zip(window.cpu.as_ref()).map(|(after, before)| after.since(before));
        let tables = look.tables.as_ref().zip(window.look.tables.as_ref());
        self.watch.windows.push(WatchWindow {
            began: window.begin.now.clone(),
            seconds: now.now_s - window.begin.now_s,
            is_cycle,
            redo: Some((window.begin.redo, now.redo)),
            wal_bytes: now.insert.bytes_since(window.begin.insert).unwrap_or(0),
            wal_records: optional(look.wal_records, window.look.wal_records),
            wal_images: optional(look.wal_images, window.look.wal_images),
            blocks_read: difference(look.blocks_read, window.look.blocks_read),
            blocks_checkpointed: difference(look.checkpointed, window.look.checkpointed),
            blocks_evicted: difference(look.evicted, window.look.evicted),
            blocks_extended: grown.map(|bytes| bytes / self.block_bytes),
            cpu_seconds: cpu_used.map(|used| Duration::from_nanos(used.nanoseconds).as_secs_f64()),
            // What was forgotten is not in the sum any more.
            select_dirtied: optional(look.select_dirtied, window.look.select_dirtied)
                .filter(|_| !forgot && look.select_dirtied >= window.look.select_dirtied),
            blocks_carried: window.carried(difference(look.checkpointed, window.look.checkpointed)),
            carried_marks: window.marks,
            relations_gone: tables.map(|(after, before)| after.gone.saturating_sub(before.gone)),
            pruned_bytes_most: tables.map(|(after, before)| after.pruned_since(before)),
            vacuums: tables.map(|(after, before)| after.vacuums_since(before)),
            forced_images_most: tables
                .and_then(|(after, before)| after.forced_images_since(before)),
            vacuumed_bytes_most: tables.map(|(after, before)| after.vacuumed_since(before)),
            census,
            earlier_censuses,
        });
        Ok(true)
    }

    /// At the ends of windows, not more often than is cheap.
    fn look_at_statements(&mut self, is_last: bool) -> Result<(), PredictError> {
        let Some(tally) = &mut self.tally else { return Ok(()) };
        match tally.look(&mut self.session, is_last) {
            Ok(()) => self.watch.statements = Some(tally.watch()),
            Err(Error::Server(response)) => {
                self.watch.discarded.push(format!("pg_stat_statements: {}", response.message));
                self.tally = None;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn discard(&mut self, why: &str) {
        self.window = None;
        self.running = None;
        self.last_look = None;
        self.insert_before = Lsn(0);
        if self.watch.discarded.len() < DISCARDED {
            self.watch.discarded.push(why.to_owned());
        }
    }

    /// CPU of the server where it can be seen, else the time until answers came.
    fn cost_until_now_s(&self) -> f64 {
        let mut cost = self.session.cost();
        if let Some(taker) = &self.taker {
            cost.add(taker.cost);
        }
        if self.cpu.is_some() { cost.cpu_s } else { cost.waited_s }
    }

    /// Waits until the server is there again: it may have been restarted.
    fn reconnect(
        &mut self,
        error: &Error,
        server: &WatchedServer,
        interrupt: &Interrupt,
    ) -> Result<(), PredictError> {
        let at = self
            .window
            .as_ref()
            .map_or_else(String::new, |window| format!("{}: ", window.begin.now));
        let left = self.plan.time.saturating_sub(self.began.elapsed());
        let until = Instant::now() + RECONNECT.min(left);
        loop {
            if interrupt.wait(RETRY).is_err() {
                return Err(Error::Interrupted.into());
            }
            let opened = WatchSession::open(&self.dsn, APPLICATION);
            let opened = opened.and_then(|mut session| Ok((identify(&mut session)?, session)));
            match opened {
                Ok(((found, _, _), session)) => {
                    let is_other = found.system_identifier != server.system_identifier;
                    if is_other {
                        self.discard(&format!("{at}another cluster answers"));
                        return Err(Error::Closed { source: None }.into());
                    }
                    let why = if found.started == server.started {
                        format!("{at}the connection was lost ({error})")
                    } else {
                        format!("{at}the server was restarted, or another took its place")
                    };
                    self.discard(&why);
                    let closed = std::mem::replace(&mut self.session, session);
                    self.cost.add(closed.close());
                    self.cpu =
                        self.session.postmaster().and_then(|pid| ClusterCpu::attach(pid).ok());
                    return Ok(());
                }
                Err(PredictError::Wire(_)) if Instant::now() < until => {}
                Err(error) => {
                    self.discard(&format!("{at}the connection was lost"));
                    return Err(error);
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        let cycles = self.watch.windows.iter().filter(|window| window.is_cycle).count();
        let has_cycles = self.plan.cycles.is_some_and(|wanted| cycles >= wanted as usize);
        has_cycles || self.began.elapsed() >= self.plan.time
    }
}

const DISCARDED: usize = 100;
const RETRY: Duration = Duration::from_secs(1);
const RECONNECT: Duration = Duration::from_secs(60);

/// `None` where the server refused it: a relation is locked, or gone.
fn or_refused<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Err(Error::Server(_)) => Ok(None),
        found => found.map(Some),
    }
}

/// Another one for each checkpoint.
fn salt(redo: Lsn) -> i64 {
    redo.0.cast_signed()
}
