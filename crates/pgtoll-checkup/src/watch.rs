//! The looks at a server, and what they come to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pgtoll_predict::{PredictError, WatchSession};
use pgtoll_record::{
    CheckupWatch, CommitWaits, LossBounds, LossWindow, Spread, StandbyWindow, WatchCost,
};
use pgtoll_stats::quantile;
use pgtoll_system::Interrupt;

use crate::commits::{CommitClock, float};
use crate::look::{ServerLook, SessionLook, StandbyLook, statement};
use crate::server::Rights;

/// Between looks on average; every two seconds where the watch is gentle.
const PAUSE: Duration = Duration::from_millis(100);
const GENTLE_PAUSE: Duration = Duration::from_secs(2);

/// How long is looked, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookPlan {
    pub(crate) time: Duration,
    pub(crate) gentle: bool,
}

/// The figures of a watch.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) watch: CheckupWatch,
    pub(crate) loss: Option<LossWindow>,
    /// Bytes of WAL since the redo point.
    pub(crate) since_redo: Option<Spread>,
}

/// Looks until the plan's time has passed or a signal comes. What was seen until the session broke is kept.
pub(crate) fn watch(
    session: WatchSession,
    plan: LookPlan,
    rights: Rights,
    interrupt: &Interrupt,
    on_progress: &mut dyn FnMut(Duration),
) -> Seen {
    let began = Instant::now();
    let mut session = session;
    let mut looks = Looks::default();
    let mut ended = None;
    let LookPlan { time, gentle } = plan;
    let statement = statement(rights.reads_redo, rights.monitors);
    let pause = if gentle { GENTLE_PAUSE } else { PAUSE };
    for number in 0.. {
        match ServerLook::take(&mut session, &statement) {
            Ok(look) => looks.add(look),
            Err(PredictError::Wire(pgtoll_wire::Error::Interrupted)) => {}
            Err(error) => {
                ended = Some(error.to_string());
                break;
            }
        }
        let elapsed = began.elapsed();
        on_progress(elapsed);
        if elapsed >= time {
            break;
        }
        let pause = jittered(pause, number).min(time.saturating_sub(elapsed));
        if let Err(signal) = interrupt.wait(pause) {
            ended = Some(signal.to_string());
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let cost = cost(session, seconds);
    let mut seen = looks.finish();
    seen.watch = CheckupWatch { seconds, ended, cost, ..seen.watch };
    seen
}

/// Half to one and a half times the pause, evenly spread: looks must not keep step with the server's own
/// periods.
fn jittered(pause: Duration, number: u32) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    pause.mul_f64(0.5 + (f64::from(number) * GOLDEN).fract())
}

fn cost(session: WatchSession, seconds: f64) -> WatchCost {
    let is_cpu = session.postmaster().is_some();
    let cost = session.close();
    let spent = if is_cpu { cost.cpu_s } else { cost.waited_s };
    WatchCost {
        statements: cost.statements,
        seconds: spent,
        is_cpu,
        share_of_core: spent / seconds.max(0.001),
    }
}

/// Figures of all looks.
#[derive(Debug, Default)]
struct Looks {
    clock: CommitClock,
    first: Option<ServerLook>,
    last: Option<ServerLook>,
    count: u64,
    crash: Vec<f64>,
    host: BoundSamples,
    standbys: BTreeMap<String, StandbySamples>,
    since_redo: Vec<f64>,
    sessions: Vec<SessionLook>,
}

/// Commits beyond what a standby had confirmed, and beyond what had been sent, look by look.
#[derive(Debug, Default)]
struct BoundSamples {
    confirmed: Vec<f64>,
    sent: Vec<f64>,
}

#[derive(Debug, Default)]
struct StandbySamples {
    sync_state: String,
    looks: u64,
    loss: BoundSamples,
    lags_ms: [Vec<f64>; 3],
    replay: ReplayClock,
}

/// The rate of replay while more was waiting: from one change of the reported position to the next.
#[derive(Debug, Default)]
struct ReplayClock {
    /// When the position changed last, and whether more was waiting then.
    last: Option<(f64, u64, bool)>,
    bytes: f64,
    seconds: f64,
}

/// A standby with less WAL to replay keeps up.
const BACKLOG_BYTES: u64 = 1 << 20;
/// A rate of less time is chance.
const BACKLOG_LEAST_S: f64 = 1.0;

impl ReplayClock {
    fn push(&mut self, now_s: f64, standby: &StandbyLook) {
        let Some(replayed) = standby.replayed else { return };
        let waits = standby.flushed.saturating_sub(replayed) >= BACKLOG_BYTES;
        match self.last {
            Some((_, before, _)) if before >= replayed => return,
            Some((then_s, before, true)) if waits => {
                self.bytes += float(replayed - before);
                self.seconds += now_s - then_s;
            }
            _ => {}
        }
        self.last = Some((now_s, replayed, waits));
    }

    fn bytes_per_second(&self) -> Option<f64> {
        (self.seconds >= BACKLOG_LEAST_S).then(|| self.bytes / self.seconds)
    }
}

impl Looks {
    fn add(&mut self, look: ServerLook) {
        self.clock.push(look.inserted, look.next_id);
        self.crash.push(self.clock.since(look.flushed).unwrap_or(0.0));
        self.since_redo.extend(look.redo.map(|redo| float(look.inserted.saturating_sub(redo))));
        self.sessions.extend(look.sessions);
        for standby in &look.standbys {
            self.add_standby(standby, look.flushed, look.now_s);
        }
        // A failover promotes the standby that is ahead of the others.
        let ahead = |position: fn(&StandbyLook) -> u64| look.standbys.iter().map(position).max();
        let [confirmed, sent] = [ahead(|standby| standby.flushed), ahead(|standby| standby.sent)];
        self.host.add(&self.clock, look.flushed, confirmed, sent);
        self.count += 1;
        self.first.get_or_insert_with(|| look.clone());
        self.last = Some(look);
    }

    fn add_standby(&mut self, standby: &StandbyLook, flushed: u64, now_s: f64) {
        let samples = self.standbys.entry(standby.name.clone()).or_default();
        samples.looks += 1;
        samples.sync_state.clone_from(&standby.sync_state);
        samples.replay.push(now_s, standby);
        samples.loss.add(&self.clock, flushed, Some(standby.flushed), Some(standby.sent));
        for (lags, lag) in samples.lags_ms.iter_mut().zip(standby.lags_ms) {
            lags.extend(lag);
        }
    }

    fn finish(self) -> Seen {
        let (Some(first), Some(last)) = (&self.first, &self.last) else { return Seen::default() };
        let seconds = (last.now_s - first.now_s).max(0.001);
        let rate = |from: u64, to: u64| float(to.saturating_sub(from)) / seconds;
        let watch = CheckupWatch {
            looks: self.count,
            writes_per_second: rate(first.next_id, last.next_id),
            wal_bytes_per_second: rate(first.inserted, last.inserted),
            waits: waits(&self.sessions),
            ..CheckupWatch::default()
        };
        let standbys = self.standbys.into_iter().filter_map(|(name, samples)| {
            let loss = samples.loss.bounds()?;
            let [write_lag_ms, flush_lag_ms, replay_lag_ms] =
                samples.lags_ms.map(|lags| spread(&lags));
            let replay_bytes_per_second = samples.replay.bytes_per_second();
            let StandbySamples { sync_state, looks, .. } = samples;
            Some(StandbyWindow {
                name,
                sync_state,
                looks,
                loss,
                write_lag_ms,
                flush_lag_ms,
                replay_lag_ms,
                replay_bytes_per_second,
            })
        });
        let loss = LossWindow {
            crash: spread(&self.crash).unwrap_or_default(),
            standbys: standbys.collect(),
            host: self.host.bounds(),
        };
        Seen { watch, loss: Some(loss), since_redo: spread(&self.since_redo) }
    }
}

impl BoundSamples {
    /// A standby that has all that the primary has flushed lacks nothing, also while WAL does not grow.
    fn add(
        &mut self,
        clock: &CommitClock,
        flushed: u64,
        confirmed: Option<u64>,
        sent: Option<u64>,
    ) {
        let commits = |position: Option<u64>| {
            let position = position?;
            clock.since(position).or((position >= flushed).then_some(0.0))
        };
        self.confirmed.extend(commits(confirmed));
        self.sent.extend(commits(sent));
    }

    fn bounds(&self) -> Option<LossBounds> {
        let [confirmed, sent] = [spread(&self.confirmed)?, spread(&self.sent)?];
        let lower = quantile(&self.sent, 0.025)?;
        let upper = quantile(&self.confirmed, 0.975)?;
        Some(LossBounds { confirmed, sent, range: (lower, upper) })
    }
}

fn spread(values: &[f64]) -> Option<Spread> {
    let [median, p95, most] = [0.5, 0.95, 1.0].map(|probability| quantile(values, probability));
    Some(Spread { median: median?, p95: p95?, most: most? })
}

fn waits(sessions: &[SessionLook]) -> Option<CommitWaits> {
    let sum = |count: fn(&SessionLook) -> f64| sessions.iter().map(count).sum::<f64>();
    let active = sum(|look| look.active);
    let share = |part: f64| if active > 0.0 { part / active } else { 0.0 };
    (!sessions.is_empty()).then(|| CommitWaits {
        active: active / float(sessions.len() as u64),
        wal_share: share(sum(|look| look.wait_for_wal)),
        standby_share: share(sum(|look| look.wait_for_standby)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(second: u32, standbys: &[(&str, u64, u64)]) -> ServerLook {
        let inserted = 10_000 + 1_000 * u64::from(second);
        let standby = |(name, sent, flushed): &(&str, u64, u64)| StandbyLook {
            name: (*name).to_owned(),
            sent: *sent,
            flushed: *flushed,
            lags_ms: [Some(1.0), None, None],
            ..StandbyLook::default()
        };
        ServerLook {
            now_s: f64::from(second),
            inserted,
            flushed: inserted - 100,
            // Ten transactions a second.
            next_id: 100 + 10 * u64::from(second),
            redo: Some(9_000),
            standbys: standbys.iter().map(standby).collect(),
            ..ServerLook::default()
        }
    }

    #[test]
    fn the_standby_that_is_ahead_decides_what_is_lost() {
        let mut looks = Looks::default();
        looks.add(look(0, &[]));
        looks.add(look(1, &[("near", 11_000, 10_800), ("far", 10_500, 10_000)]));
        let seen = looks.finish();
        let loss = seen.loss.unwrap();
        let host = loss.host.unwrap();
        assert_eq!((host.confirmed.most, host.sent.most), (2.0, 0.0));
        assert_eq!(host.range, (0.0, 2.0));
        let far = loss.standbys.iter().find(|standby| standby.name == "far").unwrap();
        assert_eq!((far.loss.confirmed.most, far.loss.sent.most), (10.0, 5.0));
        assert_eq!((far.write_lag_ms.unwrap().most, far.flush_lag_ms), (1.0, None));
        assert_eq!((loss.crash.most, seen.since_redo.unwrap().most), (1.0, 2_000.0));
        assert_eq!((seen.watch.writes_per_second, seen.watch.looks), (10.0, 2));
    }

    #[test]
    fn a_standby_that_lags_shows_how_fast_it_replays() {
        let rate = |flushed: u64| {
            let mut clock = ReplayClock::default();
            for second in 0..4_u32 {
                // The position is reported every other second.
                let replayed = Some(u64::from(second / 2) * (20 << 20));
                clock.push(
                    f64::from(second),
                    &StandbyLook { flushed, replayed, ..StandbyLook::default() },
                );
            }
            clock.bytes_per_second()
        };
        assert_eq!(rate(100 << 20), Some(f64::from(10 << 20)));
        assert_eq!(rate(20 << 20), None, "it has caught up");
    }

    #[test]
    fn without_a_standby_a_host_has_no_bound() {
        let mut looks = Looks::default();
        looks.add(look(0, &[]));
        let loss = looks.finish().loss.unwrap();
        assert_eq!((loss.host, loss.standbys.len()), (None, 0));
    }

    #[test]
    fn waits_are_shares_of_active_time() {
        let look = SessionLook { active: 4.0, wait_for_wal: 1.0, wait_for_standby: 2.0 };
        let waits = waits(&[look, SessionLook::default()]).unwrap();
        assert_eq!((waits.active, waits.wal_share, waits.standby_share), (2.0, 0.25, 0.5));
    }

    #[test]
    fn pauses_keep_no_step() {
        let pauses: Vec<Duration> =
            (0..100).map(|number| jittered(Duration::from_secs(1), number)).collect();
        let mean = pauses.iter().sum::<Duration>() / 100;
        assert!((mean.as_secs_f64() - 1.0).abs() < 0.02, "{mean:?}");
        assert!(pauses.iter().all(|pause| (0.5..1.5).contains(&pause.as_secs_f64())));
    }
}
