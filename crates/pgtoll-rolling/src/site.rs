//! A node as the leading pgtoll reaches it: by commands on its machine, and by connections to its
//! server.

use std::time::{Duration, Instant};

use pgtoll_cluster::{UserCommand, UserCommandEnd};
use pgtoll_format::single_quoted;
use pgtoll_system::Interrupt;
use pgtoll_wire::Connection;

use crate::{NodeAnswer, NodeConfig, NodeReport, NodeVerb, RollingError};

/// How long a server may take to stop, or to start, before pgtoll gives up waiting. A shutdown
/// checkpoint of many gigabytes takes minutes.
pub(crate) const SERVER_LIMIT: Duration = Duration::from_secs(600);
/// How long a started server may take until it takes connections: it replays from its last restart
/// point first.
pub(crate) const RECOVERY_LIMIT: Duration = Duration::from_secs(600);
/// How long a server may take to answer a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Between looks at what a server reports: short against a switchover.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A node, and how this run works on it.
#[derive(Clone, Debug)]
pub(crate) struct NodeSite {
    pub(crate) config: NodeConfig,
    /// This program, for nodes on this machine.
    pub(crate) executable: String,
    /// Threads of a conversion there; `None`: all cores.
    pub(crate) jobs: Option<u16>,
}

impl NodeSite {
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Asks pgtoll on the node's machine. A refusal there is an error here.
    pub(crate) fn ask(&self, verb: NodeVerb) -> Result<NodeAnswer, RollingError> {
        let jobs = self.jobs.map(|jobs| format!(" {jobs}")).unwrap_or_default();
        let line = format!("{} __node {} {{pgdata}}{jobs}", self.program(), verb.word());
        let end = UserCommand::start(&self.config.command_line(&line))?.wait()?;
        let mut answers =
            end.tail.lines().rev().map(str::trim).filter(|line| line.starts_with(['{', '"']));
        let answer = answers.find_map(|line| serde_json::from_str(line).ok());
        let node = self.name().to_owned();
        match answer {
            Some(NodeAnswer::Failed { message, hint }) => {
                Err(RollingError::Node { node, message, hint })
            }
            Some(answer) => Ok(answer),
            None => Err(RollingError::NoAnswer { node, output: last_words(&end) }),
        }
    }

    pub(crate) fn report(&self) -> Result<NodeReport, RollingError> {
        match self.ask(NodeVerb::Report)? {
            NodeAnswer::Report(report) => Ok(report),
            other => Err(self.strange(&other)),
        }
    }

    pub(crate) fn strange(&self, answer: &NodeAnswer) -> RollingError {
        RollingError::NoAnswer { node: self.name().to_owned(), output: format!("{answer:?}") }
    }

    /// Verifies all pages with pgtoll on the node's machine, while the server runs: whether they are
    /// sound; `None`: it could not tell.
    pub(crate) fn verify(&self) -> Result<(Option<bool>, String), RollingError> {
        let line = format!("{} --quiet verify {{pgdata}}", self.program());
        let end = UserCommand::start(&self.config.command_line(&line))?.wait()?;
        let is_sound = match &*end.status {
            _ if end.success => Some(true),
            "exit status: 1" => Some(false),
            _ => None,
        };
        Ok((is_sound, last_words(&end)))
    }

    fn program(&self) -> String {
        match (&self.config.pgtoll, &self.config.run) {
            (Some(program), _) => single_quoted(program),
            (None, Some(_)) => "pgtoll".to_owned(),
            (None, None) => single_quoted(&self.executable),
        }
    }

    /// Stops the server: how long it took.
    pub(crate) fn stop(&self) -> Result<Duration, RollingError> {
        self.run("stop", &self.config.stop)
    }

    /// Starts the server: how long it took.
    pub(crate) fn start(&self) -> Result<Duration, RollingError> {
        self.run("start", &self.config.start)
    }

    /// Runs one of the node's commands on its machine. One that does not end in time continues.
    pub(crate) fn run(&self, label: &'static str, line: &str) -> Result<Duration, RollingError> {
        let began = Instant::now();
        let command = UserCommand::start(&self.config.command_line(line))?;
        let node = self.name().to_owned();
        if !command.ends_within(SERVER_LIMIT)? {
            return Err(RollingError::Slow { node, what: label, seconds: SERVER_LIMIT.as_secs() });
        }
        let end = command.wait()?;
        if end.success {
            return Ok(began.elapsed());
        }
        let status = end.status.clone();
        let output = last_words(&end);
        Err(RollingError::Command { node, what: label, status, output })
    }

    pub(crate) fn connect(&self) -> Result<NodeConnection, RollingError> {
        let dsn = self.config.dsn.with_default_connect_timeout(CONNECT_LIMIT);
        let connection = dsn.connect().map_err(|source| self.error("connect to", source))?;
        Ok(NodeConnection { node: self.name().to_owned(), connection })
    }

    /// Connects to a server that starts, or that has to become ready.
    pub(crate) fn connect_within(&self, limit: Duration) -> Result<NodeConnection, RollingError> {
        let until = Instant::now() + limit;
        loop {
            match self.connect() {
                Err(_) if Instant::now() < until => pause(BETWEEN_LOOKS),
                connected => return connected,
            }
        }
    }

    fn error(&self, label: &'static str, source: pgtoll_wire::Error) -> RollingError {
        RollingError::Server { what: label, node: self.name().to_owned(), source }
    }
}

/// The last line of what a command printed.
fn last_words(end: &UserCommandEnd) -> String {
    let line = end.tail.lines().rev().find(|line| !line.trim().is_empty());
    line.map_or_else(|| end.status.clone(), |line| line.trim().to_owned())
}

/// Lets time go by, whatever signals come.
pub(crate) fn pause(time: Duration) {
    // One that no signal reaches.
    let _ = Interrupt::new().wait(time);
}

/// A connection to a node's server.
#[derive(Debug)]
pub(crate) struct NodeConnection {
    node: String,
    connection: Connection,
}

impl NodeConnection {
    pub(crate) fn execute(&mut self, sql: &str) -> Result<(), RollingError> {
        self.connection.execute(sql).map_err(|source| self.error("change", source))
    }

    /// `ALTER SYSTEM SET`.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), RollingError> {
        self.execute(&format!("ALTER SYSTEM SET {name} = {}", quoted(value)))
    }

    pub(crate) fn row(&mut self, sql: &str) -> Result<NodeRow, RollingError> {
        let row = self.connection.query_one(sql).map_err(|source| self.error("ask", source))?;
        Ok(NodeRow { node: self.node.clone(), row })
    }

    pub(crate) fn rows(&mut self, sql: &str) -> Result<Vec<NodeRow>, RollingError> {
        let rows = self.connection.query(sql).map_err(|source| self.error("ask", source))?;
        let of_node = |row| NodeRow { node: self.node.clone(), row };
        Ok(rows.into_iter().map(of_node).collect())
    }

    /// Asks until the answer's column `done` is true, at most so long.
    pub(crate) fn wait_until(
        &mut self,
        sql: &str,
        subject: &str,
        limit: Duration,
    ) -> Result<Duration, RollingError> {
        let began = Instant::now();
        loop {
            if self.row(sql)?.is_true("done")? {
                return Ok(began.elapsed());
            }
            if began.elapsed() > limit {
                let node = self.node.clone();
                let label = subject.to_owned();
                return Err(RollingError::NotInTime {
                    node,
                    what: label,
                    seconds: limit.as_secs(),
                });
            }
            pause(BETWEEN_LOOKS);
        }
    }

    pub(crate) fn close(self) {
        self.connection.close();
    }

    fn error(&self, label: &'static str, source: pgtoll_wire::Error) -> RollingError {
        RollingError::Server { what: label, node: self.node.clone(), source }
    }
}

/// An SQL string.
pub(crate) fn quoted(text: &str) -> String {
    let escape = if text.contains('\\') { " E" } else { "" };
    format!("{escape}'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A row that a node's server returned.
#[derive(Debug)]
pub(crate) struct NodeRow {
    node: String,
    row: pgtoll_wire::Row,
}

impl NodeRow {
    pub(crate) fn text(&self, column: &str) -> Result<Option<String>, RollingError> {
        let value = self.row.value(column).map_err(|source| self.error(source))?;
        Ok(value.map(str::to_owned))
    }

    /// The text, where null is an empty one.
    pub(crate) fn text_of_column(&self, column: &str) -> Result<String, RollingError> {
        self.text(column).map(Option::unwrap_or_default)
    }

    pub(crate) fn is_true(&self, column: &str) -> Result<bool, RollingError> {
        Ok(self.text(column)?.as_deref() == Some("t"))
    }

    /// A number; null is 0.
    pub(crate) fn number(&self, column: &str) -> Result<u64, RollingError> {
        if self.text(column)?.is_none() {
            return Ok(0);
        }
        let number: i64 = self.row.parse(column).map_err(|source| self.error(source))?;
        Ok(u64::try_from(number).unwrap_or(0))
    }

    fn error(&self, source: pgtoll_wire::Error) -> RollingError {
        RollingError::Server { what: "ask", node: self.node.clone(), source }
    }
}
