//! A session that watches: read-only, impatient, and with an account of what it costs the server.

use std::time::Instant;

use pgtoll_observe::LocalSession;
use pgtoll_wire::{Connection, Dsn, Error, Row};

use crate::PredictError;

/// The `application_name` of a prediction's sessions.
pub(crate) const APPLICATION: &str = "pgtoll predict";

/// The cost of sessions for the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionCost {
    /// Statements.
    pub statements: u64,
    /// Seconds until the answers came.
    pub waited_s: f64,
    /// Seconds of CPU of processes on this machine.
    pub cpu_s: f64,
}

/// A session with the server.
#[derive(Debug)]
pub struct WatchSession {
    connection: Connection,
    /// The process that really answers.
    pid: i32,
    local: Option<LocalSession>,
    begun_cpu_ns: u64,
    cost: SessionCost,
    /// The statement that is asked again and again, once it is prepared.
    repeated: Option<String>,
}

/// Its own settings: it may wait neither for locks nor for a statement without end, and write
/// nothing.
const SETUP: &str = "SET statement_timeout = '60s'; \
                     SET lock_timeout = '1s'; SET default_transaction_read_only = on; \
                     SET max_parallel_workers_per_gather = 0; SET search_path = pg_catalog";

impl WatchSession {
    /// Connects; `application` is what the server's views show. A connection pooler is refused.
    pub fn open(dsn: &Dsn, application: &str) -> Result<Self, PredictError> {
        let mut connection = dsn.connect()?;
        let row = connection.query_one(
            "SELECT pg_backend_pid() AS pid, inet_client_port() AS port, current_database() AS \
             database, session_user AS role",
        )?;
        let pid = row.parse("pid")?;
        if pid != connection.backend_pid() {
            return Err(PredictError::Pooler { named: connection.backend_pid(), found: pid });
        }
        connection.execute(&format!("SET application_name = '{application}'; {SETUP}"))?;
        let client = match row.value("port")? {
            Some("-1") | None => "[local]".to_owned(),
            Some(port) => format!("({port})"),
        };
        let text = format!("{} {} ", row.text("role")?, row.text("database")?);
        let local =
            LocalSession::find(pid, &text).filter(|_| LocalSession::find(pid, &client).is_some());
        let begun_cpu_ns = local.and_then(|local| local.cpu_ns()).unwrap_or(0);
        Ok(Self {
            connection,
            pid,
            local,
            begun_cpu_ns,
            cost: SessionCost::default(),
            repeated: None,
        })
    }

    /// Returns the rows of a statement.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, Error> {
        let began = Instant::now();
        let rows = self.connection.query(sql);
        self.cost.statements += 1;
        self.cost.waited_s += began.elapsed().as_secs_f64();
        rows
    }

    /// For the one statement of a session that is asked at every look: the server plans it once, which
    /// halves what it costs.
    pub fn query_repeated(&mut self, sql: &str) -> Result<Row, Error> {
        if self.repeated.as_deref() != Some(sql) {
            self.query(&format!("PREPARE look AS {sql}"))?;
            self.repeated = Some(sql.to_owned());
        }
        self.query_one("EXECUTE look")
    }

    /// Returns the one row of a statement.
    pub fn query_one(&mut self, sql: &str) -> Result<Row, Error> {
        let mut rows = self.query(sql)?;
        match (rows.pop(), rows.len()) {
            (Some(row), 0) => Ok(row),
            (_, others) => Err(Error::RowCount { actual: others }),
        }
    }

    /// The postmaster, if it runs on this machine.
    pub fn postmaster(&self) -> Option<i32> {
        self.local.map(|local| local.postmaster)
    }

    /// A parameter that the server reported, such as `server_version`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.connection.parameter(name)
    }

    /// Fails where another process answers than before: a pooler has handed the session on.
    pub fn check_pid(&self, found: i32) -> Result<(), PredictError> {
        if found == self.pid {
            return Ok(());
        }
        Err(PredictError::Pooler { named: self.pid, found })
    }

    /// Returns the cost so far.
    pub fn cost(&self) -> SessionCost {
        let cpu_ns = self.local.and_then(|local| local.cpu_ns()).unwrap_or(self.begun_cpu_ns);
        let cpu_ns = cpu_ns.saturating_sub(self.begun_cpu_ns);
        SessionCost { cpu_s: std::time::Duration::from_nanos(cpu_ns).as_secs_f64(), ..self.cost }
    }

    /// Says goodbye; what it has cost.
    pub fn close(self) -> SessionCost {
        let cost = self.cost();
        self.connection.close();
        cost
    }
}

impl SessionCost {
    /// Adds another session's cost.
    pub fn add(&mut self, other: Self) {
        self.statements += other.statements;
        self.waited_s += other.waited_s;
        self.cpu_s += other.cpu_s;
    }
}
