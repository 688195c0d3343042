//! Results of a query when Redis has nothing, answers with an error, or dies.

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use pgtoll_wire::Row;

use super::context::BridgeContext;
use super::error::BridgeError;
use super::log::{RecordedSession, StepLog, row_words, rows_words};
use super::tables::{file_table, program_table};

/// Keys that are absent, or of another type.
pub(super) fn answers(
    log: &mut StepLog,
    context: &mut BridgeContext<'_>,
) -> Result<(), BridgeError> {
    let servers = context.servers;
    let words = ["SET", "visits", "17"];
    let answer = servers.redis.command(context.guard, &words)?.tail;
    log.push("redis", &words.join(" "), answer.trim(), &[]);
    let mut hub = servers.session("hub")?;
    for (table, key) in [("absent", "no_such_key"), ("mistaken", "visits")] {
        let program = servers.programs.hash(key);
        log.run(&mut hub, &program_table(&format!("{table} {COLUMNS}"), &program))?;
    }
    for (table, option) in [("unchecked", ""), ("piped", "-e ")] {
        let program = servers.programs.piped_hash(option, "visits");
        let options = format!("program '{program}', format 'csv'");
        log.run(&mut hub, &file_table(&format!("{table} {COLUMNS}"), &options))?;
    }
    let absent = log.query(&mut hub, "SELECT * FROM absent")?;
    log.check("a key that is absent", "0 rows", rows_words(absent.len()));
    let mistaken = log.attempt_query(&mut hub, "SELECT * FROM mistaken")?;
    log.check_refused("a key of another type", PROGRAM_FAILED, &mistaken);
    let unchecked = log.attempt_query(&mut hub, "SELECT * FROM unchecked")?;
    let found = unchecked.map_or_else(|error| error.message, |rows| all_words(&rows));
    let holds = found.starts_with("WRONGTYPE ");
    log.check_that("the same by a pipe: the error is a row", "WRONGTYPE …", &found, holds);
    let piped = log.attempt_query(&mut hub, "SELECT * FROM piped")?;
    let found = piped.map_or_else(|error| error.message, |rows| rows_words(rows.len()));
    log.check("by a pipe, with redis-cli -e: the error is lost", "0 rows", found);
    Ok(())
}

const COLUMNS: &str = "(field text, value text)";

fn all_words(rows: &[Row]) -> String {
    rows.iter().map(row_words).collect::<Vec<_>>().join("; ")
}

/// Redis dies while a query waits for it, and is dead for the next one.
pub(super) fn death(log: &mut StepLog, context: &mut BridgeContext<'_>) -> Result<(), BridgeError> {
    let mut hub = context.servers.session("hub")?;
    let redis = &context.servers.redis;
    redis.freeze(context.guard)?;
    let mut query = context.servers.session("second")?;
    let waiting_pid = query.backend_pid();
    let (seen, killed, answer) = thread::scope(|scope| {
        let waiting = scope.spawn(move || query.attempt(CARTS));
        let seen = wait_until_active(&mut hub, waiting_pid, context);
        // Whatever was seen: else the query would wait for ever.
        let killed = redis.kill(context.guard);
        (seen, killed, waiting.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    seen?;
    killed?;
    let answer = answer?;
    log.note("second", CARTS, &answer);
    log.check_refused("a query that waits for Redis when it is killed", PROGRAM_FAILED, &answer);
    let dead = log.attempt_query(&mut hub, CARTS)?;
    log.check_refused("a query after that", PROGRAM_FAILED, &dead);
    Ok(())
}

const CARTS: &str = "SELECT count(*) FROM carts";
/// `external_routine_exception`: a program ended with another status than 0.
const PROGRAM_FAILED: &str = "38000";
/// How long a statement may take to begin.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until a session's statement runs.
fn wait_until_active(
    hub: &mut RecordedSession,
    pid: i32,
    context: &BridgeContext<'_>,
) -> Result<(), BridgeError> {
    let sql = format!(
        "SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND state = 'active' AND query = '{CARTS}'"
    );
    let until = Instant::now() + LIMIT;
    while hub.query(&sql)?.is_empty() {
        if Instant::now() > until {
            let seconds = LIMIT.as_secs();
            return Err(BridgeError::NotReached { what: "a query that waits for Redis", seconds });
        }
        context.interrupt.wait(Duration::from_millis(10))?;
    }
    Ok(())
}
