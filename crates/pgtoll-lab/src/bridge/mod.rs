//! The bridge: one server with foreign tables of two others, a CSV file and Redis. What queries over all
//! of them show, what commits over several servers do, and what becomes of a query when Redis fails.

mod context;
mod data;
mod error;
mod join;
mod log;
mod observatory;
mod redis_failures;
mod redis_tables;
mod servers;
mod tables;
mod torn;
mod writes;

use pgtoll_cluster::{Guard, Installation, Redis};
use pgtoll_record::{BRIDGE_SCHEMA, BridgeRecord, Host, Provenance};
use pgtoll_system::Interrupt;

use self::context::BridgeContext;
pub use self::error::BridgeError;
use self::log::StepLog;
use self::servers::{BridgeServers, settings};

/// The site of the lab.
#[derive(Debug)]
pub struct BridgeSite<'a> {
    /// The servers.
    pub installation: &'a Installation,
    /// The Redis server beside them.
    pub redis: &'a Redis,
    /// The guard that starts all programs.
    pub guard: Guard,
    /// The machine.
    pub host: Host,
    /// Set by the signals that end the lab.
    pub interrupt: &'a Interrupt,
}

type Work = fn(&mut StepLog, &mut BridgeContext<'_>) -> Result<(), BridgeError>;
/// Name, title, lesson, and what is done.
type Step = ([&'static str; 3], Work);

/// In this order: the last one ends Redis.
const STEPS: [Step; 11] = [
    (
        [
            "tables",
            "foreign tables of two servers, a CSV file and a Redis hash",
            "Redis is a program for file_fdw: redis-cli -e runs a script in Redis that prints CSV \
             with a line of titles. Who defines or changes such a table must be a superuser or a \
             member of pg_execute_server_program; the program runs as the server's user.",
        ],
        tables::define,
    ),
    (
        [
            "join",
            "one query over PostgreSQL, the CSV file and Redis",
            "The condition is applied by the orders' own server; the file and the hash are read as \
             a whole, each time. Keep them small, or copy them into a table first.",
        ],
        join::join,
    ),
    (
        [
            "redis-answers",
            "a key that is absent, and one of another type",
            "An error of Redis fails the query only if the program ends with another status than 0: \
             that takes redis-cli -e, and no pipe behind it, which hides the status (or a shell \
             that is told pipefail).",
        ],
        redis_failures::answers,
    ),
    (
        [
            "defaults",
            "a column that its own server fills in",
            "postgres_fdw sends every column of the foreign table, NULL where the INSERT names \
             none, so that the default is never used. Insert through a second foreign table \
             without that column.",
        ],
        writes::defaults,
    ),
    (
        [
            "transactions",
            "COMMIT and ROLLBACK over the hub and one other server",
            "Both ends of a transaction reach the other server, as long as nothing fails at COMMIT.",
        ],
        writes::transactions,
    ),
    (
        [
            "prepare",
            "PREPARE TRANSACTION",
            "There is no two-phase commit through postgres_fdw: a transaction that used a foreign \
             table, even to read, cannot be prepared.",
        ],
        writes::prepare,
    ),
    (
        [
            "torn-commit",
            "one of two servers refuses at COMMIT",
            "postgres_fdw commits on one server after the other. When a later one refuses, the \
             application gets an error and the hub rolls back, but the first server has committed. \
             Write to one server only in a transaction, and let constraints there be immediate.",
        ],
        torn::two_servers,
    ),
    (
        [
            "torn-retry",
            "the hub refuses at COMMIT, and the application retries",
            "One foreign server is enough: the hub may fail after that has committed (here a \
             serialization failure; a crash in between would do the same). A retry, which is what \
             40001 asks for, then writes twice.",
        ],
        torn::retry,
    ),
    (
        [
            "outbox",
            "the same failures, with an outbox",
            "Commit locally what is to be sent, with a key; send it by INSERT … ON CONFLICT DO \
             NOTHING and delete it in one transaction. Whatever fails and however often it is \
             retried, it is there once.",
        ],
        torn::outbox,
    ),
    (
        [
            "observatory",
            "figures of a record, two live servers and Redis in one query",
            "A record's figures (pgtoll report --format csv) are a table beside statistics views of \
             any number of servers and Redis's counters.",
        ],
        observatory::observe,
    ),
    (
        [
            "redis-death",
            "Redis is killed while a query waits for it",
            "The query fails, and so does each one after that: a Redis that is down never looks \
             like one that is empty.",
        ],
        redis_failures::death,
    ),
];

/// Builds a bridge and does all steps. `on_step` is notified of the record after each. What was done until
/// an error or a signal is in the record; an error where nothing was begun is one of this function.
pub fn bridge(
    site: BridgeSite<'_>,
    provenance: &Provenance,
    on_step: &mut dyn FnMut(&BridgeRecord),
) -> Result<BridgeRecord, BridgeError> {
    let BridgeSite { installation, redis, mut guard, host, interrupt } = site;
    let servers = BridgeServers::start(&mut guard, installation, redis, interrupt)?;
    let mut record = BridgeRecord {
        schema: BRIDGE_SCHEMA.to_owned(),
        pgtoll: provenance.version.clone(),
        command: provenance.command.clone(),
        made: provenance.made.clone(),
        server: format!("PostgreSQL {} ({})", installation.version, installation.origin),
        redis: redis.version(&mut guard)?,
        extensions: servers.extensions.clone(),
        host,
        settings: settings(),
        steps: Vec::new(),
        scans: Vec::new(),
        complete: false,
        ended: None,
        notes: NOTES.map(str::to_owned).to_vec(),
    };
    let mut context =
        BridgeContext { guard: &mut guard, interrupt, servers: &servers, scans: Vec::new() };
    for (words, work) in STEPS {
        let mut log = StepLog::begin(words, context.guard.directory());
        let done = work(&mut log, &mut context);
        // What follows from a signal is not the news.
        let done = interrupt.check().map_err(BridgeError::from).and(done);
        record.steps.push(log.end(done.is_ok()));
        record.scans.clone_from(&context.scans);
        if let Err(error) = done {
            record.ended =
                Some(format!("step {}: {}", words[0], pgtoll_system::error_chain(&error)));
            return Ok(record);
        }
        on_step(&record);
    }
    record.complete = true;
    on_step(&record);
    Ok(record)
}

/// How many steps there are.
pub const BRIDGE_STEPS: usize = STEPS.len();

const NOTES: [&str; 3] = [
    "all servers share a machine and listen on Unix sockets: no time includes a network",
    "the SQL of each stepand its result are in the record (--json); DIR is the run's directory",
    "in which order postgres_fdw commits is not documented: it depends on numbers that the server \
     gives to user mappings",
];
