//! Reads after writes: whether a session finds what it has just committed.

use std::time::Instant;

use pgtoll_record::{BalanceRecord, BalanceRung, BalanceWait, Latencies};
use pgtoll_wire::Connection;

use super::BalanceContext;
use super::error::BalanceError;
use super::set::{PRIMARY, first_value, until};
use super::split::share;

/// The wait of commits, the primary's `synchronous_commit` and `synchronous_standby_names`, and how
/// many standbys have to count as synchronous.
type Rung = ([&'static str; 3], u64);

const BOTH: &str = "2 (standby1, standby2)";
const RUNGS: [Rung; 5] = [
    (["they are on the primary's disk", "on", ""], 0),
    (["both standbys have received it", "remote_write", BOTH], 2),
    (["both standbys have it on disk", "on", BOTH], 2),
    (["one standby, whichever, has applied it", "remote_apply", "ANY 1 (standby1, standby2)"], 2),
    (["both standbys have applied it", "remote_apply", BOTH], 2),
];
/// Readers that wait, where commits do not.
const WAITS: [(&str, WaitKind); 2] = [
    ("readers wait, balanced", WaitKind::Balanced),
    ("readers wait, each on its standby", WaitKind::Direct),
];
/// Sessions that write and read in turn, so that there are some on each standby.
const SESSIONS: usize = 8;

/// Tries every rung, and leaves the primary as it was.
pub(super) fn freshness(
    context: &mut BalanceContext<'_>,
    record: &mut BalanceRecord,
) -> Result<(), BalanceError> {
    for (rung, synchronous) in RUNGS {
        set_rung(context, rung, synchronous)?;
        record.freshness.push(try_rung(context, rung, None)?);
    }
    let (rung, synchronous) = RUNGS[0];
    set_rung(context, rung, synchronous)?;
    if context.has_wait {
        let [_, commit, names] = rung;
        for (words, kind) in WAITS {
            let tried = try_rung(context, [words, commit, names], Some(kind))?;
            record.freshness.push(tried);
        }
    }
    Ok(())
}

/// Sets what commits wait for, and waits until it is so in new sessions.
fn set_rung(
    context: &BalanceContext<'_>,
    [_, commit, names]: [&str; 3],
    synchronous: u64,
) -> Result<(), BalanceError> {
    let mut connection = context.set.primary.connect("postgres")?;
    connection.execute(&format!("ALTER SYSTEM SET synchronous_commit = {commit}"))?;
    connection.execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"))?;
    connection.execute("SELECT pg_reload_conf()")?;
    connection.close();
    let expected = format!("{commit} {names} {synchronous}");
    until(context.interrupt, "what commits are to wait for", || {
        let mut connection = context.set.primary.connect("postgres")?;
        let row = connection.query_one(
            "SELECT concat_ws(' ', current_setting('synchronous_commit'), \
                              current_setting('synchronous_standby_names'), \
                              (SELECT count(*) FROM pg_stat_replication \
                               WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum'))) \
             AS state",
        )?;
        let state = row.text("state")?.to_owned();
        connection.close();
        Ok(if state == expected { Ok(()) } else { Err(state) })
    })
}

/// With readers that wait, on standbys of their own or through the balancer, if any do.
fn try_rung(
    context: &BalanceContext<'_>,
    [rung, commit, names]: [&str; 3],
    waits: Option<WaitKind>,
) -> Result<BalanceRung, BalanceError> {
    let mut waits = waits.map(ReaderWaits::new);
    let mut writers = balanced_sessions(context)?;
    let mut readers = match &waits {
        Some(waits) if waits.tally.is_direct => standby_sessions(context)?,
        _ => Vec::new(),
    };
    let mut standby_reads = 0;
    let mut stale = 0;
    let mut latencies = Latencies::new();
    for at in 0..context.plan.writes as usize {
        context.interrupt.check()?;
        let writer = &mut writers[at % SESSIONS];
        let id = write_row(writer, &mut latencies)?;
        // A volatile function: the primary executes it.
        let place = waits.is_some().then(|| first_value(writer, PLACE)).transpose()?;
        let reader = readers.get_mut(at % SESSIONS).unwrap_or(writer);
        if let (Some(waits), Some(place)) = (&mut waits, place) {
            waits.wait(reader, &place)?;
        }
        let found = is_found(reader, &id)?;
        standby_reads += u64::from(found.is_some());
        stale += u64::from(found == Some(false));
    }
    writers.into_iter().chain(readers).for_each(Connection::close);
    Ok(BalanceRung {
        rung: rung.to_owned(),
        synchronous_commit: commit.to_owned(),
        synchronous_standby_names: names.to_owned(),
        writes: u64::from(context.plan.writes),
        standby_reads,
        stale,
        stale_share: share(stale, standby_reads),
        write_p50_ms: median_ms(&latencies),
        wait: waits.map(ReaderWaits::ended),
    })
}

/// The place of the primary's WAL.
const PLACE: &str = "SELECT pg_current_wal_insert_lsn()";

/// The kind of wait of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitKind {
    /// The server that the balancer chooses.
    Balanced,
    /// On a standby, without the balancer.
    Direct,
}

/// How readers waited.
struct ReaderWaits {
    tally: BalanceWait,
    latencies: Latencies,
}

impl ReaderWaits {
    fn new(kind: WaitKind) -> Self {
        let is_direct = kind == WaitKind::Direct;
        let tally = BalanceWait { is_direct, applied: 0, on_primary: 0, p50_ms: None };
        Self { tally, latencies: Latencies::new() }
    }

    /// Until WAL was applied up to this place, where a standby is asked.
    fn wait(&mut self, reader: &mut Connection, place: &str) -> Result<(), BalanceError> {
        let began = Instant::now();
        let sql = format!("WAIT FOR LSN '{place}' WITH (TIMEOUT '10s', NO_THROW)");
        match first_value(reader, &sql)?.as_str() {
            "success" => self.tally.applied += 1,
            "not in recovery" => self.tally.on_primary += 1,
            _ => {}
        }
        self.latencies.record(began.elapsed());
        Ok(())
    }

    fn ended(self) -> BalanceWait {
        BalanceWait { p50_ms: median_ms(&self.latencies), ..self.tally }
    }
}

fn standby_sessions(context: &BalanceContext<'_>) -> Result<Vec<Connection>, BalanceError> {
    let standbys = &context.set.standbys;
    let sessions = (0..SESSIONS).map(|at| standbys[at % standbys.len()].connect("postgres"));
    Ok(sessions.collect::<Result<_, _>>()?)
}

fn balanced_sessions(context: &BalanceContext<'_>) -> Result<Vec<Connection>, BalanceError> {
    let sessions = (0..SESSIONS).map(|_| context.set.connect());
    Ok(sessions.collect::<Result<_, _>>()?)
}

/// A new row's number.
fn write_row(session: &mut Connection, latencies: &mut Latencies) -> Result<String, BalanceError> {
    let began = Instant::now();
    let written = session.query_one("INSERT INTO written (note) VALUES ('fresh') RETURNING id")?;
    latencies.record(began.elapsed());
    Ok(written.text("id")?.to_owned())
}

/// Whether a standby finds the row; `None` where the primary was asked.
fn is_found(session: &mut Connection, id: &str) -> Result<Option<bool>, BalanceError> {
    let read = session.query_one(&format!(
        "SELECT current_setting('cluster_name') AS node, \
                (SELECT count(*) FROM written WHERE id = {id}) AS found"
    ))?;
    let is_found = read.text("found")? != "0";
    Ok((read.text("node")? != PRIMARY).then_some(is_found))
}

fn median_ms(latencies: &Latencies) -> Option<f64> {
    latencies.quantile(0.5).map(|time| time.as_secs_f64() * 1e3)
}
