//! Questions to the restored server, which may lose a process over them.

use std::time::Duration;

use pgtoll_cluster::Cluster;
use pgtoll_system::Interrupt;
use pgtoll_wire::{Connection, Error, Row};

use crate::DrillError;

/// A session in one of the databases. When its server process ends, the next question is asked of a
/// new one.
pub(crate) struct Session<'a> {
    server: ServerOfDrill<'a>,
    database: String,
    connection: Option<Connection>,
}

/// The restored server, and as whom it is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerOfDrill<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) role: &'a str,
    pub(crate) interrupt: &'a Interrupt,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) words: String,
    pub(crate) sqlstate: Option<String>,
    /// False: it is this machine's, and says nothing of the backup.
    pub(crate) is_damage: bool,
}

impl<'a> ServerOfDrill<'a> {
    /// A session in this database. A server that lost a process before is waited for.
    pub(crate) fn session(
        self,
        database: &str,
    ) -> Result<Result<Session<'a>, Failure>, DrillError> {
        let mut session = Session { server: self, database: database.to_owned(), connection: None };
        Ok(session.connected()?.map(|()| session))
    }
}

impl Session<'_> {
    /// The rows of an answer, or why there is none.
    pub(crate) fn ask(&mut self, sql: &str) -> Result<Result<Vec<Row>, Failure>, DrillError> {
        if let Err(failure) = self.connected()? {
            return Ok(Err(failure));
        }
        let Some(connection) = &mut self.connection else {
            return Ok(Err(Failure::of_server("there is no connection")));
        };
        match connection.query(sql) {
            Ok(rows) => Ok(Ok(rows)),
            Err(error) => {
                // Ctrl-C ends the server, too.
                self.server.interrupt.check()?;
                let is_lost = is_lost(&error);
                if is_lost {
                    self.connection = None;
                }
                let mut failure = Failure::from_error(&error);
                if is_lost {
                    let log = self.server.cluster.last_words();
                    failure.words = format!("the server process ended: {log}");
                }
                Ok(Err(failure))
            }
        }
    }

    fn connected(&mut self) -> Result<Result<(), Failure>, DrillError> {
        if self.connection.is_some() {
            return Ok(Ok(()));
        }
        for _ in 0..TRIES {
            let server = self.server;
            match server.cluster.connect_as(server.role, &self.database, &SETTINGS) {
                Ok(connection) => {
                    self.connection = Some(connection);
                    return Ok(Ok(()));
                }
                Err(error) if is_recovering(&error) => {
                    server.interrupt.wait(TRY_EVERY)?;
                }
                Err(error) => {
                    server.interrupt.check()?;
                    return Ok(Err(Failure::from_error(&error)));
                }
            }
        }
        Ok(Err(Failure::of_server("the server did not come back after it had lost a process")))
    }
}

impl Failure {
    fn from_error(error: &Error) -> Self {
        let sqlstate = error.sqlstate().map(str::to_owned);
        let words = describe(error);
        let is_damage = !is_of_this_machine(&words, sqlstate.as_deref());
        Self { words, sqlstate, is_damage }
    }

    fn of_server(words: &str) -> Self {
        Self { words: words.to_owned(), sqlstate: None, is_damage: true }
    }
}

fn describe(error: &Error) -> String {
    match error {
        Error::Server(response) => match &response.detail {
            Some(detail) => format!("{}: {detail}", response.message),
            None => response.message.clone(),
        },
        other => pgtoll_system::error_chain(other),
    }
}

/// Returns whether the error is a shortage of this machine: libraries of extensions, locales of its system. And locks of
/// prepared transactions.
fn is_of_this_machine(words: &str, sqlstate: Option<&str>) -> bool {
    const MISSING: [&str; 6] = [
        "could not access file \"",
        "could not load library",
        "could not find function",
        "is incompatible with operating system",
        "could not create locale",
        "value is not UTF-8",
    ];
    matches!(sqlstate, Some("55P03")) || MISSING.iter().any(|text| words.contains(text))
}

fn is_lost(error: &Error) -> bool {
    let is_fatal = matches!(error, Error::Server(response) if response.severity != "ERROR");
    is_fatal || matches!(error, Error::Closed { .. } | Error::Io { .. } | Error::GivenUp)
}

/// Another process of the server ended without order: it recovers, or is about to.
fn is_recovering(error: &Error) -> bool {
    match error {
        Error::Server(response) => response.sqlstate == "57P03",
        Error::Closed { .. } | Error::Io { .. } | Error::Connect { .. } => true,
        _ => false,
    }
}

/// Settings that roles and databases of the backup may override.
const SETTINGS: [(&str, &str); 16] = [
    ("search_path", ""),
    ("statement_timeout", "0"),
    // A prepared transaction of the backup may hold a lock.
    ("lock_timeout", "60s"),
    ("idle_in_transaction_session_timeout", "0"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_isolation", "read committed"),
    ("session_replication_role", "replica"),
    ("session_preload_libraries", ""),
    ("local_preload_libraries", ""),
    ("max_parallel_workers_per_gather", "0"),
    ("jit", "off"),
    ("row_security", "off"),
    ("zero_damaged_pages", "off"),
    ("ignore_checksum_failure", "off"),
    ("enable_seqscan", "on"),
    ("client_min_messages", "error"),
];

/// How often a server that recovers is asked again: for a minute.
const TRIES: u32 = 600;
const TRY_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_lacks_is_no_damage() {
        let check = |words: &str, sqlstate, expected| {
            assert_eq!(is_of_this_machine(words, sqlstate), expected, "{words}");
        };
        check("could not access file \"$libdir/postgis-3\": No such file", Some("58P01"), true);
        check("could not open file \"base/5/16384\": No such file", Some("58P01"), false);
        check("canceling statement due to lock timeout", Some("55P03"), true);
        check("invalid page in block 3 of relation base/5/16384", Some("XX001"), false);
    }
}
