//! A case: a primary and a standby behind a link, clients that commit, and the primary's death.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pgtoll_cluster::{Cluster, ClusterError, Guard, ServerProcesses, StopMode};
use pgtoll_record::{
    ExchangeCase, Interval, JudgeRecord, Latencies, LossWindow, Provenance, SynchronousCommit,
};
use pgtoll_stats::{mean, sample_sd, t_quantile};
use pgtoll_system::Interrupt;
use pgtoll_wire::Dsn;
use pgtoll_workload::{Crowd, Mix, Script, Until};

use super::{ExchangeError, ExchangePlan};
use crate::link::{Link, LinkDelay, LinkState};
use crate::{JudgeFault, JudgeFaultEnd, JudgePlan, judge};

/// The state that all cases share.
pub(super) struct CaseContext<'a> {
    pub(super) plan: &'a ExchangePlan,
    pub(super) template: &'a Cluster,
    pub(super) guard: &'a Arc<Mutex<Guard>>,
    pub(super) interrupt: &'a Interrupt,
    pub(super) provenance: &'a Provenance,
    pub(super) settings: BTreeMap<String, String>,
}

/// Runs a case, and removes its servers.
pub(super) fn run_case(
    context: &CaseContext<'_>,
    commit: SynchronousCommit,
    delay: Duration,
    repetition: u32,
) -> Result<ExchangeCase, ExchangeError> {
    let pair = Pair::start(context, delay)?;
    let load = pair.load(context.plan, commit)?;
    let share = if context.plan.bursts { JUDGED_SHARE_IN_BURSTS } else { JUDGED_SHARE };
    let rate = (load.transactions_per_second.estimate * share).max(1.0);
    let (judged, forecast) = pair.judge(context, commit, rate, repetition)?;
    let added = |level| Some((level, forecast.as_ref()?.added_ms(level)?));
    pair.remove(&mut pgtoll_system::lock(context.guard))?;
    let verdict = judged.verdict.as_ref();
    let impossible = verdict
        .map(|verdict| verdict.ghosts.count + verdict.phantoms.count + verdict.duplicates.count);
    Ok(ExchangeCase {
        commit,
        delay_ms: delay.as_secs_f64() * 1e3,
        repetition,
        transactions_per_second: load.transactions_per_second,
        p50_ms: load.p50_ms,
        p99_ms: load.p99_ms,
        judged_rate: rate,
        acknowledged: judged.transactions.acknowledged,
        lost: verdict.map(|verdict| verdict.lost.count),
        oldest_lost_s: verdict.and_then(|verdict| verdict.lost.oldest_before_s),
        forecast: forecast.as_ref().and_then(|loss| loss.host),
        added_ms: SynchronousCommit::ALL.into_iter().filter_map(added).collect(),
        unknown: judged.transactions.unknown,
        recovered: verdict.map(|verdict| verdict.recovered.count),
        impossible,
        outage_s: judged.outage.map(|gap| gap.seconds),
        findings: judged.findings,
    })
}

/// The share of the clients' rate that falls due for the judge: more would only queue.
const JUDGED_SHARE: f64 = 0.5;
/// In a burst it is more than three times as many.
const JUDGED_SHARE_IN_BURSTS: f64 = 0.25;
/// Deaths of repetitions are spread over this time, which is longer than a burst's period.
const DEATHS_OVER: Duration = Duration::from_millis(500);
/// The load's time is cut into this number of slices, whose rates give the interval.
const SLICES: u32 = 8;
const LOAD: &str = "INSERT INTO load (payload) VALUES (repeat('x', 100));\n";
const STANDBY: &str = "standby";
/// The watch ends this long before the primary's death.
const BEFORE_DEATH: Duration = Duration::from_millis(200);
/// How long the standby may take until it streams.
const STREAMING_LIMIT: Duration = Duration::from_secs(30);

/// The result of the load.
struct LoadResult {
    transactions_per_second: Interval,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// A primary and a standby.
struct Pair {
    primary: Arc<Cluster>,
    /// The postmaster's pid.
    postmaster: i32,
    standby: Arc<Cluster>,
    link: Arc<Link>,
    link_directory: PathBuf,
}

impl Pair {
    fn start(context: &CaseContext<'_>, delay: Duration) -> Result<Self, ExchangeError> {
        let mut guard = pgtoll_system::lock(context.guard);
        let primary = context.template.copy(&mut guard, "primary")?;
        let names = ("synchronous_standby_names".to_owned(), STANDBY.to_owned());
        let own = context.settings.iter().map(|(name, value)| (name.clone(), value.clone()));
        primary.configure(&mut guard, &own.chain([names]).collect())?;
        let postmaster = primary.start(&mut guard)?;
        let link_directory = guard.directory().join("link");
        guard.run(Path::new("mkdir"), &["-p", &link_directory.to_string_lossy()])?;
        let delay = LinkDelay { to_client: delay, to_server: Duration::ZERO };
        let link = Link::open(&socket(&link_directory), &socket(primary.directory()), delay)
            .map_err(ExchangeError::Link)?;
        let standby = primary.standby(&mut guard, STANDBY, &link_directory)?;
        // When it is promoted nobody confirms its commits.
        standby.configure(&mut guard, &context.settings)?;
        standby.start(&mut guard)?;
        let pair = Self {
            primary: Arc::new(primary),
            postmaster,
            standby: Arc::new(standby),
            link: Arc::new(link),
            link_directory,
        };
        pair.wait_for_streaming(context.interrupt)?;
        Ok(pair)
    }

    fn wait_for_streaming(&self, interrupt: &Interrupt) -> Result<(), ExchangeError> {
        let mut connection = self.primary.connect("postgres")?;
        let until = std::time::Instant::now() + STREAMING_LIMIT;
        loop {
            let row = connection.query_one(
                "SELECT coalesce(string_agg(state || '/' || sync_state, ', '), 'not connected') \
                 AS state FROM pg_stat_replication",
            )?;
            let state = row.text("state")?;
            if state == "streaming/sync" {
                connection.close();
                return Ok(());
            }
            if std::time::Instant::now() > until {
                return Err(ExchangeError::NotStreaming { state: state.to_owned() });
            }
            interrupt.wait(Duration::from_millis(20))?;
        }
    }

    /// Clients that commit as fast as they can.
    fn load(
        &self,
        plan: &ExchangePlan,
        commit: SynchronousCommit,
    ) -> Result<LoadResult, ExchangeError> {
        let connections = (0..plan.clients).map(|_| {
            let mut connection = self.primary.connect("postgres")?;
            connection.execute(&format!("SET synchronous_commit = {}", commit.name()))?;
            Ok(connection)
        });
        let connections = connections.collect::<Result<Vec<_>, ExchangeError>>()?;
        let mut crowd = Crowd::new(connections, &Mix::from(Script::parse("load", LOAD)?), 1)?;
        // Relation extension, caches.
        crowd.run(Until::TogetherTransactions(u64::from(plan.clients)), None)?;
        crowd.take_latencies();
        let slice = plan.load / SLICES;
        let rates = (0..SLICES).map(|_| {
            let tally = crowd.run(Until::Time(slice), None)?;
            Ok(float(tally.transactions) / tally.elapsed.as_secs_f64())
        });
        let rates = rates.collect::<Result<Vec<f64>, ExchangeError>>()?;
        let latencies = crowd.take_latencies();
        crowd.close();
        Ok(LoadResult {
            transactions_per_second: interval_of_mean(&rates),
            p50_ms: quantile_ms(&latencies, 0.5),
            p99_ms: quantile_ms(&latencies, 0.99),
        })
    }

    /// Lets the primary's host die under load, which a checkup watches until then.
    fn judge(
        &self,
        context: &CaseContext<'_>,
        commit: SynchronousCommit,
        rate: f64,
        repetition: u32,
    ) -> Result<(JudgeRecord, Option<LossWindow>), ExchangeError> {
        let golden = f64::from(repetition) * 0.618_033_988_749_895;
        let death = context.plan.judged / 2 + DEATHS_OVER.mul_f64(golden.fract());
        let guard = context.guard.clone();
        let link = self.link.clone();
        let primary = self.primary.clone();
        let standby = self.standby.clone();
        let postmaster = self.postmaster;
        let fault = JudgeFault {
            what: "death of the primary's host, promotion of the standby".to_owned(),
            at: death,
            action: Box::new(move || {
                match host_dies(&guard, postmaster, &link, &primary, &standby) {
                    Ok(()) => JudgeFaultEnd::done("the standby was promoted"),
                    Err(error) => JudgeFaultEnd {
                        success: false,
                        status: error.to_string(),
                        output: String::new(),
                    },
                }
            }),
        };
        let plan = JudgePlan {
            clients: context.plan.clients,
            readers: 0,
            rate_per_second: rate,
            bursts: context.plan.bursts,
            duration: context.plan.judged,
            ..JudgePlan::new(self.dsn(commit)?)
        };
        let provenance = context.provenance.clone();
        let watched = self.dsn_of(&self.primary.directory().to_string_lossy(), "")?;
        let time = death.saturating_sub(BEFORE_DEATH);
        std::thread::scope(|scope| {
            let watch = || pgtoll_checkup::watch_loss(&watched, time, context.interrupt);
            let watching = scope.spawn(watch);
            let judged = judge(&plan, Some(fault), provenance, context.interrupt, &mut |_| {})?;
            // A server that cannot be watched has no forecast.
            let loss = watching.join().ok().and_then(Result::ok).flatten();
            Ok((judged, loss))
        })
    }

    /// The way to whichever of both is the primary.
    fn dsn(&self, commit: SynchronousCommit) -> Result<Dsn, ExchangeError> {
        let hosts = [self.primary.directory(), self.standby.directory()];
        let hosts = hosts.map(|directory| directory.display().to_string()).join(",");
        let options = format!("options='-c synchronous_commit={}'", commit.name());
        self.dsn_of(&hosts, &format!("target_session_attrs=primary {options}"))
    }

    fn dsn_of(&self, hosts: &str, parameters: &str) -> Result<Dsn, ExchangeError> {
        let environment = self.primary.environment();
        let value = |name: &str| environment.get(name).map_or("", String::as_str);
        let [port, user, database] = ["PGPORT", "PGUSER", "PGDATABASE"].map(value);
        Ok(format!("host='{hosts}' port={port} user={user} dbname={database} {parameters}")
            .parse()?)
    }

    fn remove(self, guard: &mut Guard) -> Result<(), ExchangeError> {
        let Self { primary, standby, link, link_directory, .. } = self;
        standby.stop(guard, StopMode::Immediate)?;
        drop(link);
        guard.run(Path::new("rm"), &["-rf", &link_directory.to_string_lossy()])?;
        for cluster in [primary, standby] {
            Cluster::clone(&cluster).remove(guard)?;
        }
        Ok(())
    }
}

/// The primary's processes stop at once, what is under way to the standby is lost, and the standby is
/// promoted.
fn host_dies(
    guard: &Mutex<Guard>,
    postmaster: i32,
    link: &Link,
    primary: &Cluster,
    standby: &Cluster,
) -> Result<(), ClusterError> {
    let processes = ServerProcesses::from_postmaster(postmaster)?;
    processes.suspend()?;
    link.set_state(LinkState::Cut);
    primary.kill(&mut pgtoll_system::lock(guard))?;
    standby.promote()
}

/// A server's socket in its directory.
fn socket(directory: &Path) -> PathBuf {
    directory.join(".s.PGSQL.5432")
}

/// The mean with its 95 % interval, by Student's t.
fn interval_of_mean(values: &[f64]) -> Interval {
    let estimate = mean(values).unwrap_or(0.0);
    let count = float(values.len() as u64);
    let half =
        sample_sd(values).map_or(0.0, |sd| t_quantile(0.95, count - 1.0) * sd / count.sqrt());
    Interval { estimate, lower: (estimate - half).max(0.0), upper: estimate + half }
}

fn quantile_ms(latencies: &Latencies, share: f64) -> Option<f64> {
    latencies.quantile(share).map(|time| time.as_secs_f64() * 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "transactions, far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}
