//! Watching: windows from the end of one checkpoint to the end of the next.

use std::time::{Duration, Instant};

use pgtoll_format::{Lsn, MajorFacts};
use pgtoll_interrupt::Interrupt;
use pgtoll_observe::{ClusterCpu, CpuSample};
use pgtoll_record::{
    CarriedMarks, DirtyCensus, ServerWatch, WatchCost, WatchWindow, WatchedServer,
};
use pgtoll_wire::{Dsn, Error, Interruption};

use crate::PredictError;
use crate::allowance::CensusAllowance;
use crate::answer::SeenSettings;
use crate::census::{CensusPlan, CensusTaker, DirtyList};
use crate::looks::{CounterLook, Glimpse, evicted_now};
use crate::marks::FollowedPages;
use crate::running::RunningCheckpoint;
use crate::server::{Privileges, identify, visibility};
use crate::session::{SessionCost, WatchSession};
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
    /// What was seen until now: windows are added as they end.
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
    let mut session = WatchSession::open(dsn)?;
    let (server, facts, privileges) = identify(&mut session)?;
    let mut watcher = Watcher::new(dsn, plan, facts, session, (&server, &privileges))?;
    watcher.watch.sources = privileges.sources;
    loop {
        let step = watcher.step();
        let window_ended = matches!(step, Ok(true));
        let (watch, elapsed) = (&watcher.watch, watcher.began.elapsed());
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
/// Where cycles last only seconds, and where they last minutes.
const SHORT_PAUSE_S: f64 = 0.1;
const LONG_PAUSE_S: f64 = 1.0;
/// Looks in a cycle of minutes, so that its ends are known to an eightieth of it.
const LOOKS: f64 = 80.0;

/// As many censuses in the part of a checkpoint cycle that can be seen.
const CENSUSES: f64 = 8.0;
/// The shortest time between two, in seconds.
const CENSUS_PAUSE_S: f64 = 0.2;
/// Pages of a sample during the cycle, and near its end.
const SAMPLES: (u32, u32) = (400, 2000);
const GENTLE_SAMPLES: (u32, u32) = (200, 500);
/// The cycle's end is near after this part of it.
const NEAR_END: f64 = 0.85;

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
    /// Where WAL ended at the look before.
    insert_before: Lsn,
    /// When the last checkpoint was due that was skipped, by the server's clock.
    skipped_s: f64,
    /// The checkpoint that runs, if its begin was seen.
    running: Option<RunningCheckpoint>,
    cpu: Option<ClusterCpu>,
    window: Option<OpenWindow>,
    watch: ServerWatch,
    /// Of sessions that are closed.
    cost: SessionCost,
    began: Instant,
    settings: SeenSettings,
    block_bytes: u64,
}

/// A window that has not ended.
struct OpenWindow {
    begin: Glimpse,
    /// When the checkpoint began that its cycle begins with.
    begun_s: f64,
    look: CounterLook,
    cpu: Option<CpuSample>,
    /// It began with the end of a checkpoint.
    is_cycle: bool,
    /// Each with the server's clock.
    censuses: Vec<(f64, DirtyCensus)>,
    /// When the last one was taken, or failed; at first the window's begin.
    last_census_s: f64,
    /// From when on censuses could be taken.
    seen_from_s: f64,
    /// Blocks evicted before the censuses' count of them begins.
    evicted_before: u64,
    /// Blocks that were dirty when its checkpoint began, if that was seen.
    dirty_before: Option<u64>,
    /// Of these, what VACUUM marked meanwhile.
    marks: Option<CarriedMarks>,
}

impl Watcher {
    fn new(
        dsn: &Dsn,
        plan: &WatchPlan,
        facts: &'static MajorFacts,
        mut session: WatchSession,
        (server, privileges): (&WatchedServer, &Privileges),
    ) -> Result<Self, PredictError> {
        let taker = match (&privileges.buffercache, &privileges.inspect) {
            (Some(schema), inspect @ Some(_)) => {
                let (schema, inspect) = (schema.clone(), inspect.clone());
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
            settings: SeenSettings::of(server),
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

    /// Opens a window at a look, and goes on with the censuses that were taken while its checkpoint
    /// ran.
    fn open(&mut self, begin: Glimpse, before_s: f64, is_cycle: bool) -> Result<(), PredictError> {
        let begun_s = begin.begun_s(before_s);
        let look = CounterLook::read(&mut self.session, self.facts, self.statements.as_deref())?;
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

    /// Of a checkpoint that has completed.
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
        let look = CounterLook::read(&mut self.session, self.facts, self.statements.as_deref())?;
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

    /// Spread over the cycle, and once more just before the next checkpoint, as long as it is cheap:
    /// the pages that it should look at.
    fn due_census(&self, now: &Glimpse) -> Option<u32> {
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
    fn may_count(&self) -> bool {
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
    fn take_census(&mut self, now: &Glimpse, pages: u32) -> Result<(), PredictError> {
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
        let at = self.window.as_ref().map_or_else(String::new, |of| format!("{}: ", of.begin.now));
        let left = self.plan.time.saturating_sub(self.began.elapsed());
        let until = Instant::now() + RECONNECT.min(left);
        loop {
            if interrupt.wait(RETRY).is_err() {
                return Err(Error::Interrupted.into());
            }
            let opened = WatchSession::open(&self.dsn);
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

    /// A part of a cycle counts where there is no whole one.
    fn finish(mut self, was_interrupted: bool) -> ServerWatch {
        let wants_rest =
            self.plan.cycles.is_none() || !self.watch.windows.iter().any(|window| window.is_cycle);
        let is_open = self.window.as_ref().is_some_and(|of| of.begin.now_s > 0.0);
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

    /// Where buffers are so many that the watch was too short for a census.
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
        if let Ok(session) = WatchSession::open(&self.dsn) {
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

impl OpenWindow {
    /// Goes on with the censuses of a checkpoint that has completed.
    fn take_over(&mut self, running: RunningCheckpoint) {
        self.seen_from_s = running.begun_s;
        self.dirty_before = Some(running.dirty);
        self.last_census_s = running.last_census_s;
        self.evicted_before = running.evicted.unwrap_or(0);
        for (at, census) in running.censuses {
            self.add_census(at, census);
        }
    }

    /// Blocks that its checkpoint wrote while it ran; of one whose begin was not seen as many as the
    /// next one wrote, `checkpointed`. A checkpoint that is quick leaves none.
    fn carried(&self, checkpointed: u64) -> u64 {
        let is_quick = self.begin.now_s - self.begun_s < QUICK_CHECKPOINT_S;
        self.dirty_before.unwrap_or(if is_quick { 0 } else { checkpointed })
    }

    fn add_census(&mut self, at: f64, census: DirtyCensus) {
        let age_s = (at - self.begun_s).max(0.0);
        self.censuses.push((at, DirtyCensus { age_s, ..census }));
    }

    /// The last census before the next checkpoint began, else the first one after; while it has not
    /// begun, the last. Before it, those that came earlier.
    fn cycle_censuses(&self, next_s: Option<f64>) -> (Vec<DirtyCensus>, Option<DirtyCensus>) {
        let is_before = |at: f64| next_s.is_none_or(|next| at <= next + 0.25);
        let count = self.censuses.iter().take_while(|(at, _)| is_before(*at)).count().max(1);
        let own = self.censuses.iter().take(count).map(|(_, census)| census.clone());
        let mut censuses: Vec<DirtyCensus> = own
            .map(|census| DirtyCensus { cycle_s: next_s.map(|next| next - self.begun_s), ..census })
            .collect();
        // Of buffers that the next checkpoint had begun to write: there are fewer than before.
        if let [.., before, last] = &censuses[..]
            && last.cycle_s.is_some_and(|cycle| cycle - last.age_s < CHECKPOINT_MAY_RUN_S)
            && last.dirty < before.dirty / 10 * 9
        {
            censuses.pop();
        }
        let last = censuses.pop();
        // All but the last are for their shares.
        for census in &mut censuses {
            census.relations.clear();
        }
        (censuses, last)
    }
}

/// A checkpoint that takes no longer is not spread over time.
const QUICK_CHECKPOINT_S: f64 = 3.0;
/// When checkpoints begin is known to the second.
const CHECKPOINT_MAY_RUN_S: f64 = 1.0;
const DISCARDED: usize = 100;
/// How long a server is waited for after a signal.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
const CENSUS_FAILURES: u32 = 5;
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

#[expect(clippy::cast_precision_loss, reason = "bytes of WAL, far below 2^53")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}
