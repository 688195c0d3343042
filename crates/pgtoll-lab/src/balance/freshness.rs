//! Reads after writes: whether a session finds what it has just committed.

use std::time::Instant;

use pgtoll_record::{BalanceRecord, BalanceRung, Latencies};
use pgtoll_wire::Connection;

use super::BalanceContext;
use super::error::BalanceError;
use super::set::{PRIMARY, until};
use super::split::share;

/// What commits wait until, the primary's `synchronous_commit` and `synchronous_standby_names`, and how
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
/// Sessions that write and read in turn, so that there are some on each standby.
const SESSIONS: usize = 8;

/// Tries every rung, and leaves the primary as it was.
pub(super) fn freshness(
    context: &mut BalanceContext<'_>,
    record: &mut BalanceRecord,
) -> Result<(), BalanceError> {
    for (rung, synchronous) in RUNGS {
        set_rung(context, rung, synchronous)?;
        record.freshness.push(try_rung(context, rung)?);
    }
    let ([_, commit, names], synchronous) = RUNGS[0];
    set_rung(context, ["", commit, names], synchronous)
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

fn try_rung(
    context: &BalanceContext<'_>,
    [rung, commit, names]: [&str; 3],
) -> Result<BalanceRung, BalanceError> {
    let sessions = (0..SESSIONS).map(|_| context.set.connect());
    let mut sessions = sessions.collect::<Result<Vec<Connection>, _>>()?;
    let (mut standby_reads, mut stale) = (0, 0);
    let mut latencies = Latencies::new();
    for at in 0..context.plan.writes as usize {
        context.interrupt.check()?;
        let session = &mut sessions[at % SESSIONS];
        let began = Instant::now();
        let written =
            session.query_one("INSERT INTO written (note) VALUES ('fresh') RETURNING id")?;
        latencies.record(began.elapsed());
        let id = written.text("id")?;
        let read = session.query_one(&format!(
            "SELECT current_setting('cluster_name') AS node, \
                    (SELECT count(*) FROM written WHERE id = {id}) AS found"
        ))?;
        if read.text("node")? != PRIMARY {
            standby_reads += 1;
            stale += u64::from(read.text("found")? == "0");
        }
    }
    sessions.into_iter().for_each(Connection::close);
    Ok(BalanceRung {
        rung: rung.to_owned(),
        synchronous_commit: commit.to_owned(),
        synchronous_standby_names: names.to_owned(),
        writes: u64::from(context.plan.writes),
        standby_reads,
        stale,
        stale_share: share(stale, standby_reads),
        write_p50_ms: latencies.quantile(0.5).map(|time| time.as_secs_f64() * 1e3),
    })
}
