//! The destination of each kind of statement.

use std::collections::BTreeMap;

use pgtoll_cluster::{ClusterError, Guard};
use pgtoll_record::{BalanceNeed, BalanceRecord, BalanceRoute};

use super::BalanceContext;
use super::error::BalanceError;
use super::set::{BalancedSet, PRIMARY, first_value};
use BalanceNeed::{Any, Primary};

/// How a kind's last statement is sent.
#[derive(Clone, Copy, PartialEq)]
enum Sent {
    /// As a simple query.
    Simple,
    /// Prepared and executed by messages of the protocol.
    Prepared,
    /// By psql, which shows what `COPY` sends.
    Psql,
}
use Sent::{Prepared, Psql, Simple};

/// The peculiarity, the permitted servers, the protocol of the last statement, and all statements.
type Kind = (&'static str, BalanceNeed, Sent, &'static [&'static str]);

/// Each last statement's answer is the server's name, but for `COPY FROM`, which no standby does.
const KINDS: [Kind; 32] = [
    ("SELECT", Any, Simple, &["SELECT current_setting('cluster_name')"]),
    ("spaces in front", Any, Simple, &["  \t SELECT current_setting('cluster_name')"]),
    ("mixed case", Any, Simple, &["sElEcT Current_Setting('cluster_name')"]),
    ("a comment in front", Any, Simple, &["/* app */ SELECT current_setting('cluster_name')"]),
    ("a comment behind", Any, Simple, &["SELECT current_setting('cluster_name') /* app */"]),
    (
        "the balancer's own hint",
        Primary,
        Simple,
        &["/*NO LOAD BALANCE*/ SELECT current_setting('cluster_name')"],
    ),
    ("SHOW", Any, Simple, &["SHOW cluster_name"]),
    (
        "WITH",
        Any,
        Simple,
        &["WITH one AS (SELECT 1) SELECT current_setting('cluster_name') FROM one"],
    ),
    (
        "a catalog",
        Any,
        Simple,
        &["SELECT current_setting('cluster_name') FROM pg_class WHERE relname = 'readings'"],
    ),
    ("a stable function", Any, Simple, &["SELECT current_setting('cluster_name'), now()"]),
    (
        "a volatile function that reads",
        Any,
        Simple,
        &["SELECT current_setting('cluster_name'), random()"],
    ),
    ("prepared, by the protocol", Any, Prepared, &["SELECT current_setting('cluster_name')"]),
    (
        "prepared, by PREPARE",
        Any,
        Simple,
        &["PREPARE reads AS SELECT current_setting('cluster_name')", "EXECUTE reads"],
    ),
    ("COPY TO", Any, Psql, &["COPY (SELECT current_setting('cluster_name')) TO STDOUT"]),
    (
        "a cursor",
        Any,
        Simple,
        &["BEGIN", "DECLARE one CURSOR FOR SELECT current_setting('cluster_name')", "FETCH one"],
    ),
    ("after SET", Any, Simple, &["SET work_mem = '7MB'", "SELECT current_setting('cluster_name')"]),
    (
        "in a transaction",
        Any,
        Simple,
        &["BEGIN", "SELECT current_setting('cluster_name') FROM readings WHERE id = 1"],
    ),
    (
        "in a transaction that wrote",
        Primary,
        Simple,
        &[
            "BEGIN",
            "INSERT INTO written (note) VALUES ('transaction')",
            "SELECT current_setting('cluster_name') FROM written LIMIT 1",
        ],
    ),
    (
        "after a transaction that wrote",
        Any,
        Simple,
        &[
            "BEGIN",
            "INSERT INTO written (note) VALUES ('transaction')",
            "COMMIT",
            "SELECT current_setting('cluster_name')",
        ],
    ),
    (
        "in a SERIALIZABLE transaction",
        Primary,
        Simple,
        &["BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT current_setting('cluster_name')"],
    ),
    (
        "INSERT … RETURNING",
        Primary,
        Simple,
        &["INSERT INTO written (note) VALUES ('insert') RETURNING current_setting('cluster_name')"],
    ),
    (
        "INSERT, prepared by the protocol",
        Primary,
        Prepared,
        &["INSERT INTO written (note) VALUES ('insert') RETURNING current_setting('cluster_name')"],
    ),
    (
        "INSERT, prepared by PREPARE",
        Primary,
        Simple,
        &[
            "PREPARE writes AS INSERT INTO written (note) VALUES ('insert') \
             RETURNING current_setting('cluster_name')",
            "EXECUTE writes",
        ],
    ),
    (
        "WITH … INSERT",
        Primary,
        Simple,
        &["WITH one AS (INSERT INTO written (note) VALUES ('with') RETURNING id) \
           SELECT current_setting('cluster_name') FROM one"],
    ),
    (
        "FOR UPDATE",
        Primary,
        Simple,
        &["SELECT current_setting('cluster_name') FROM readings WHERE id = 1 FOR UPDATE"],
    ),
    ("nextval", Primary, Simple, &["SELECT current_setting('cluster_name'), nextval('numbers')"]),
    (
        "an advisory lock",
        Primary,
        Simple,
        &["SELECT current_setting('cluster_name'), pg_advisory_xact_lock(7)"],
    ),
    ("a function that writes", Primary, Simple, &["SELECT writes_a_row()"]),
    ("a procedure that writes", Primary, Simple, &["CALL writes_a_row_too(NULL)"]),
    (
        "a temporary table",
        Primary,
        Simple,
        &[
            "CREATE TEMPORARY TABLE own AS SELECT 1 AS id",
            "SELECT current_setting('cluster_name') FROM own",
        ],
    ),
    (
        "an unlogged table",
        Primary,
        Simple,
        &["SELECT current_setting('cluster_name') FROM unlogged"],
    ),
    ("COPY FROM", Primary, Psql, &["COPY written (note) FROM STDIN"]),
];

/// Tries each kind in this many sessions: which standby a session reads from is chosen when it begins.
pub(super) fn routes(
    context: &mut BalanceContext<'_>,
    record: &mut BalanceRecord,
) -> Result<(), BalanceError> {
    for (kind, need, sent, statements) in KINDS {
        let mut answers = BTreeMap::new();
        let mut errors = 0;
        let mut first_error = None;
        for _ in 0..context.plan.route_sessions {
            context.interrupt.check()?;
            match answer(context.set, context.guard, sent, statements)? {
                Ok(node) => *answers.entry(node).or_default() += 1,
                Err(error) => {
                    errors += 1;
                    first_error.get_or_insert(error);
                }
            }
        }
        record.routes.push(BalanceRoute {
            kind: kind.to_owned(),
            statements: statements.iter().map(|statement| (*statement).to_owned()).collect(),
            need,
            sessions: u64::from(context.plan.route_sessions),
            answers,
            errors,
            first_error,
        });
    }
    Ok(())
}

/// The server that answers the last statement in a session of its own, or what the client is told.
fn answer(
    set: &BalancedSet,
    guard: &mut Guard,
    sent: Sent,
    statements: &[&str],
) -> Result<Result<String, String>, BalanceError> {
    if sent == Psql {
        return answer_of_psql(set, guard, statements);
    }
    let attempt = || -> Result<String, pgtoll_wire::Error> {
        let mut connection = set.connect()?;
        let (last, before) = statements.split_last().unwrap_or((&"", &[]));
        before.iter().try_for_each(|sql| connection.execute(sql))?;
        let node = if sent == Prepared {
            let statement = connection.prepare(last)?;
            let rows = connection.query_prepared(&statement, &[])?;
            rows.last().and_then(|row| row.values().first().cloned().flatten()).unwrap_or_default()
        } else {
            first_value(&mut connection, last)?
        };
        connection.close();
        Ok(node)
    };
    Ok(attempt().map_err(|error| pgtoll_system::error_chain(&error)))
}

fn answer_of_psql(
    set: &BalancedSet,
    guard: &mut Guard,
    statements: &[&str],
) -> Result<Result<String, String>, BalanceError> {
    let psql = set.primary.client("psql")?;
    let mut arguments = set.pool.client_arguments();
    arguments.extend(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"].map(str::to_owned));
    for sql in statements {
        arguments.extend(["-c".to_owned(), (*sql).to_owned()]);
    }
    arguments.push("postgres".to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match guard.run(&psql, &arguments) {
        // `COPY FROM` answers nothing, and no standby does it.
        Ok(output) if output.tail.trim().is_empty() => Ok(Ok(PRIMARY.to_owned())),
        Ok(output) => Ok(Ok(output.tail.trim().to_owned())),
        Err(error @ ClusterError::Program { .. }) => Ok(Err(pgtoll_system::error_chain(&error))),
        Err(error) => Err(error.into()),
    }
}
