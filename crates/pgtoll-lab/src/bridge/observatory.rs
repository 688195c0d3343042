//! The bridge as an observatory: figures of a record, two live servers' statistics and Redis's counters
//! in one query.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use pgtoll_record::CSV_COLUMNS;
use pgtoll_wire::Row;
use pgtoll_workload::{Crowd, Mix, Script, Until};

use super::context::BridgeContext;
use super::error::BridgeError;
use super::log::{RecordedSession, StepLog};
use super::tables::{csv_options, file_table, program_table};

/// Lets both servers work, and looks at what was measured beside what they and Redis count.
pub(super) fn observe(
    log: &mut StepLog,
    context: &mut BridgeContext<'_>,
) -> Result<(), BridgeError> {
    let mut csv = format!("{}\n", CSV_COLUMNS.join(","));
    for server in SERVERS {
        let (transactions, seconds) = load(context, server)?;
        let rate = rate(transactions, seconds);
        let _ = write!(
            csv,
            "bridge,insert,{server},transactions,{transactions},transactions,true,,,,,,,true\n\
             bridge,insert,{server},tps,{rate},1/s,false,,,,,,,true\n"
        );
    }
    let file = context.guard.directory().join("samples.csv");
    context.guard.write(&file, csv)?;
    let mut hub = context.servers.session("hub")?;
    log.run(&mut hub, &file_table(SAMPLES, &csv_options(&file)))?;
    for server in SERVERS {
        log.run_all(&mut hub, &statistics_of(server))?;
    }
    log.push_script(&context.servers.programs.info_script);
    let info =
        program_table("redis_info (name text, value text)", &context.servers.programs.info());
    log.run(&mut hub, &info)?;
    let before = wait_for_statistics(&mut hub, context)?;
    let rows = log.query(&mut hub, OBSERVATORY)?;
    check(log, &before, &rows)
}

/// The servers that are looked at.
const SERVERS: [&str; 2] = ["billing", "shop"];
/// How long each of them works.
const LOAD_TIME: Duration = Duration::from_secs(1);
/// Clients of each.
const CLIENTS: usize = 2;
/// How long a server may take to count what its sessions did.
const LIMIT: Duration = Duration::from_secs(30);

const SAMPLES: &str = "samples (
    record text, workload text, arm text, metric text, value float8, unit text, exact boolean,
    ratio float8, ratio_lower float8, ratio_upper float8, verdict text, rounds int, kappa float8,
    complete boolean)";

/// A server's statistics views as foreign tables, in a schema of its name.
fn statistics_of(server: &str) -> [String; 2] {
    [
        format!("CREATE SCHEMA {server}"),
        format!(
            "IMPORT FOREIGN SCHEMA pg_catalog LIMIT TO (pg_stat_database)\n\
             FROM SERVER {server} INTO {server}"
        ),
    ]
}

/// A row for each server.
const OBSERVATORY: &str = "\
SELECT s.arm AS server, s.value AS measured, d.xact_commit AS committed, d.tup_inserted AS inserted,
  d.blks_hit AS hit, d.blks_read AS read, i.value AS redis_commands
FROM samples AS s
  JOIN (SELECT 'billing' AS server, * FROM billing.pg_stat_database
        UNION ALL SELECT 'shop', * FROM shop.pg_stat_database) AS d ON d.server = s.arm
  CROSS JOIN redis_info AS i
WHERE s.metric = 'transactions' AND d.datname = 'postgres' AND i.name = 'total_commands_processed'
ORDER BY s.arm";

/// Transactions of clients that commit as fast as they can, and how many seconds they took.
fn load(context: &BridgeContext<'_>, server: &str) -> Result<(u64, f64), BridgeError> {
    let cluster = context.servers.server(server);
    cluster.connect("postgres")?.execute("CREATE TABLE visits (id bigserial, at timestamptz)")?;
    let connections = (0..CLIENTS).map(|_| cluster.connect("postgres"));
    let connections = connections.collect::<Result<Vec<_>, _>>()?;
    let script = Script::parse("visits", "INSERT INTO visits (at) VALUES (now());\n")?;
    let mut crowd = Crowd::new(connections, &Mix::from(script), 1)?;
    let tally = crowd.run(Until::Time(LOAD_TIME), None)?;
    // Their sessions' counters are complete when they have ended.
    crowd.close();
    Ok((tally.transactions, tally.elapsed.as_secs_f64()))
}

#[expect(clippy::cast_precision_loss, reason = "transactions of a second, far below 2^53")]
fn rate(transactions: u64, seconds: f64) -> f64 {
    (transactions as f64 / seconds).round()
}

/// Waits until both servers count at least what was measured. Sessions report what they did at their
/// end, before 15 with some delay. What it saw last is checked, not this.
fn wait_for_statistics(
    hub: &mut RecordedSession,
    context: &BridgeContext<'_>,
) -> Result<Vec<Row>, BridgeError> {
    let until = Instant::now() + LIMIT;
    loop {
        let rows = hub.query(OBSERVATORY)?;
        let counted = |row: &Row| Ok::<_, BridgeError>(number(row, "committed")? >= measured(row)?);
        let are_counted = rows.iter().map(counted).collect::<Result<Vec<bool>, _>>()?;
        if are_counted.iter().all(|is_counted| *is_counted) || Instant::now() > until {
            return Ok(rows);
        }
        context.interrupt.wait(Duration::from_millis(100))?;
    }
}

fn check(log: &mut StepLog, before: &[Row], rows: &[Row]) -> Result<(), BridgeError> {
    let servers = rows.iter().map(|row| row.text("server")).collect::<Result<Vec<_>, _>>()?;
    log.check("servers in the result", SERVERS.join(", "), servers.join(", "));
    for row in rows {
        let subject = format!("{}: commits that it counts", row.text("server")?);
        let measured = measured(row)?;
        let committed = number(row, "committed")?;
        let expected = format!("at least the {measured} that were measured");
        let holds = measured > 0 && committed >= measured;
        log.check_that(&subject, &expected, &format!("{committed}, measured {measured}"), holds);
    }
    let commands = |rows: &[Row]| match rows.first() {
        Some(row) => number(row, "redis_commands"),
        None => Ok(0),
    };
    let first = commands(before)?;
    let then = commands(rows)?;
    let found = format!("{first}, then {then}");
    let expected = "more at the second look";
    log.check_that("commands that Redis counts", expected, &found, then > first);
    Ok(())
}

/// Returns the count that the CSV file has.
fn measured(row: &Row) -> Result<u64, BridgeError> {
    number(row, "measured")
}

fn number(row: &Row, column: &str) -> Result<u64, BridgeError> {
    Ok(row.parse(column)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_foreign_table_has_the_columns_of_the_file() {
        let (_, columns) = SAMPLES.split_once('(').unwrap();
        let names: Vec<&str> =
            columns.split(',').filter_map(|column| column.split_whitespace().next()).collect();
        assert_eq!(names, CSV_COLUMNS);
    }
}
