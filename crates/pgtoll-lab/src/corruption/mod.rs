//! A damaged page of a primary: whether the damage reaches the standby, and a failover away from it.

mod failover;
mod pair;
mod spread;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pgtoll_alter::CorruptError;
use pgtoll_cluster::{Cluster, ClusterError, Guard, Installation, Pgbouncer, StopMode};
use pgtoll_record::{
    CORRUPTION_SCHEMA, CorruptionDesign, CorruptionFailover, CorruptionRecord, DamageSpread, Host,
    Provenance,
};
use pgtoll_system::Interrupt;

use self::failover::fail_over;
use self::spread::damage_spread;
use crate::{ExchangeSite, JudgeError};

/// The plan.
#[derive(Clone, Debug)]
pub struct CorruptionPlan {
    /// Number of failovers.
    pub runs: u32,
    /// Clients that write.
    pub clients: u32,
    /// Transactions a second of all clients together.
    pub rate_per_second: f64,
    /// How long transactions fall due, in each run.
    pub duration: Duration,
    /// The pooler that clients connect to; `None`: they know both hosts.
    pub pooler: Option<Pgbouncer>,
}

/// Why a run could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorruptionError {
    /// A server could not be made, started or stopped.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The damage.
    #[error(transparent)]
    Corrupt(#[from] CorruptError),
    /// The judge.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// A connection.
    #[error(transparent)]
    Wire(#[from] pgtoll_wire::Error),
    /// The way to the servers, a mistake of pgtoll's.
    #[error(transparent)]
    Dsn(#[from] pgtoll_wire::DsnError),
    /// A file of the primary.
    #[error("read {path}")]
    Read {
        /// The file.
        path: String,
        /// The underlying error.
        source: std::io::Error,
    },
    /// A record that was to be continued is of something else.
    #[error("the record to be continued has another {what}")]
    AnotherRecord {
        /// The part that differs: `machine`, `server`, `design`.
        what: &'static str,
    },
    /// Something that a server should have done.
    #[error("{0}")]
    Unexpected(String),
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] pgtoll_system::Interrupted),
}

impl CorruptionError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cluster(error) => error.hint(),
            Self::Corrupt(error) => error.hint(),
            Self::Judge(error) => error.hint(),
            Self::Wire(error) => error.hint(),
            Self::Dsn(error) => error.hint(),
            _ => None,
        }
    }
}

/// The step that was just done.
#[derive(Clone, Copy, Debug)]
pub enum CorruptionProgress<'a> {
    /// A page was damaged, and a neighbouring row updated.
    Spread(&'a DamageSpread),
    /// A failover.
    Failover(&'a CorruptionFailover),
}

/// The state that all runs of this lab share.
struct LabContext<'a> {
    plan: &'a CorruptionPlan,
    guard: &'a Arc<Mutex<Guard>>,
    interrupt: &'a Interrupt,
    provenance: &'a Provenance,
}

/// Shows whether the damage reaches the standby, without checksums and with them, then fails over
/// away from it, as far as that is not in `earlier`: a record of the same design that ended before all was
/// done. What was done until an error or a signal is in the record. `on_progress` gets what was done just
/// now, and the record so far.
///
/// # Errors
///
/// Where `earlier` is of another design, machine or server. Nothing was done then.
pub fn corruption(
    plan: &CorruptionPlan,
    site: ExchangeSite<'_>,
    provenance: &Provenance,
    earlier: Option<CorruptionRecord>,
    on_progress: &mut dyn FnMut(CorruptionProgress<'_>, &CorruptionRecord),
) -> Result<CorruptionRecord, CorruptionError> {
    let ExchangeSite { installation, guard, host, interrupt } = site;
    let mut record = empty_record(plan, installation, host, provenance);
    if let Some(earlier) = earlier {
        record = continued(earlier, &record)?;
    }
    let guard = Arc::new(Mutex::new(guard));
    let context = LabContext { plan, guard: &guard, interrupt, provenance };
    match run_all(&context, installation, &mut record, on_progress) {
        Ok(()) => record.complete = true,
        Err(error) => record.ended = Some(pgtoll_system::error_chain(&error)),
    }
    Ok(record)
}

/// The earlier record, to be added to.
fn continued(
    earlier: CorruptionRecord,
    own: &CorruptionRecord,
) -> Result<CorruptionRecord, CorruptionError> {
    let differences = [
        ("pgtoll", earlier.pgtoll == own.pgtoll),
        ("server", earlier.server == own.server),
        ("machine", earlier.host == own.host),
        ("design", earlier.design == own.design),
    ];
    if let Some((label, _)) = differences.into_iter().find(|(_, is_same)| !is_same) {
        return Err(CorruptionError::AnotherRecord { what: label });
    }
    Ok(CorruptionRecord { ended: None, complete: false, ..earlier })
}

fn empty_record(
    plan: &CorruptionPlan,
    installation: &Installation,
    host: Host,
    provenance: &Provenance,
) -> CorruptionRecord {
    CorruptionRecord {
        schema: CORRUPTION_SCHEMA.to_owned(),
        pgtoll: provenance.version.clone(),
        command: provenance.command.clone(),
        made: provenance.made.clone(),
        server: format!("PostgreSQL {} ({})", installation.version, installation.origin),
        host,
        design: CorruptionDesign {
            runs: plan.runs,
            clients: plan.clients,
            rate_per_second: plan.rate_per_second,
            seconds: plan.duration.as_secs_f64(),
            entry: entry(plan).to_owned(),
            poll_s: failover::POLL.as_secs_f64(),
        },
        settings: settings(),
        spread: Vec::new(),
        failovers: Vec::new(),
        complete: false,
        ended: None,
        notes: NOTES.into_iter().chain([entry_note(plan)]).map(str::to_owned).collect(),
    }
}

fn run_all(
    context: &LabContext<'_>,
    installation: &Installation,
    record: &mut CorruptionRecord,
    on_progress: &mut dyn FnMut(CorruptionProgress<'_>, &CorruptionRecord),
) -> Result<(), CorruptionError> {
    for checksums in [false, true] {
        let is_spread_done = record.spread.iter().any(|spread| spread.checksums == checksums);
        let last = if checksums { context.plan.runs } else { 0 };
        let is_done = |run: &u32| record.failovers.iter().any(|failover| failover.run == *run);
        let missing: Vec<u32> = (1..=last).filter(|run| !is_done(run)).collect();
        if is_spread_done && missing.is_empty() {
            continue;
        }
        let template = template(installation, &mut pgtoll_system::lock(context.guard), checksums)?;
        if !is_spread_done {
            let spread = damage_spread(context, &template, checksums)?;
            record.spread.push(spread.clone());
            on_progress(CorruptionProgress::Spread(&spread), record);
        }
        for run in missing {
            context.interrupt.check()?;
            let failover = fail_over(context, &template, run)?;
            record.failovers.push(failover.clone());
            on_progress(CorruptionProgress::Failover(&failover), record);
        }
        template.remove(&mut pgtoll_system::lock(context.guard))?;
    }
    Ok(())
}

/// A stopped cluster with the table whose page is to be damaged, of some 40 pages. Nothing but this
/// lab reads the table.
fn template(
    installation: &Installation,
    guard: &mut Guard,
    checksums: bool,
) -> Result<Cluster, CorruptionError> {
    let name = if checksums { "checksums" } else { "none" };
    let template = Cluster::init(guard, installation, name, checksums)?;
    template.configure(guard, &settings())?;
    template.start(guard)?;
    let mut connection = template.connect("postgres")?;
    connection.execute(
        "CREATE TABLE victim (id int, changes int, text text) WITH (autovacuum_enabled = off)",
    )?;
    connection
        .execute("INSERT INTO victim SELECT i, 0, md5(i::text) FROM generate_series(1, 5000) i")?;
    connection.execute("VACUUM (FREEZE) victim")?;
    connection.close();
    template.stop(guard, StopMode::Fast)?;
    Ok(template)
}

/// Returns the settings of all servers.
fn settings() -> BTreeMap<String, String> {
    [
        // Before a standby that has just lost its primary is promoted it may wait for this long.
        ("wal_retrieve_retry_interval", "100ms"),
        ("wal_keep_size", "1GB"),
        ("max_connections", "200"),
        ("shared_buffers", "128MB"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

const NOTES: [&str; 5] = [
    "process faults on one kernel: both servers share CPUs, memory and a disk",
    "the page was changed in its file while the primary was stopped and is read from there: 16 bytes \
     of a row's text, which no server notices without checksums",
    "the standby counts as verified when it has read every row of the damaged table, with checksums \
     verified, and the damaged row as it was written; its other files were not read",
    "the old primary is stopped (fast, with all WAL sent) before the standby is promoted: there is no \
     time with two primaries, and replication need not be synchronous",
    "the reader meets the page in each run at another moment between two looks of the watcher, at equal \
     distances: the mean time until it is noticed is that of a reader at any moment",
];

/// How writers reach the primary.
fn entry(plan: &CorruptionPlan) -> &'static str {
    if plan.pooler.is_some() { "pgbouncer" } else { "both hosts" }
}

fn entry_note(plan: &CorruptionPlan) -> &'static str {
    if plan.pooler.is_some() {
        "writers connect to pgbouncer (by transaction), which holds new transactions back (PAUSE) from \
         before the old primary stops until the standby is promoted"
    } else {
        "writers connect with both hosts and target_session_attrs=primary, as libpq's clients can; \
         nothing holds them back, so that open transactions fail, and those that fall due while no \
         server is a primary"
    }
}
