//! A step's statements and checks, as they go into the record.

use std::fmt::Display;
use std::path::Path;
use std::time::Instant;

use pgtoll_cluster::Cluster;
use pgtoll_record::{BridgeCheck, BridgeStatement, BridgeStep};
use pgtoll_wire::{Connection, ErrorResponse, Row};

use super::error::BridgeError;
use super::redis_tables::RedisScript;

/// A session whose statements go into the record.
pub(super) struct RecordedSession {
    name: &'static str,
    connection: Connection,
}

/// A server's answer, which may be an error.
pub(super) type Answer<T> = Result<T, Box<ErrorResponse>>;

impl RecordedSession {
    /// A session with this server.
    pub(super) fn open(name: &'static str, server: &Cluster) -> Result<Self, BridgeError> {
        Ok(Self { name, connection: server.connect("postgres")? })
    }

    /// The process that serves it.
    pub(super) fn backend_pid(&self) -> i32 {
        self.connection.backend_pid()
    }

    /// Rows of a query that does not go into the record.
    pub(super) fn query(&mut self, sql: &str) -> Result<Vec<Row>, BridgeError> {
        let session = self.name;
        let rows = self.connection.query(sql);
        rows.map_err(|source| BridgeError::Statement { session, source })
    }

    /// The same of a query that may fail.
    pub(super) fn attempt(&mut self, sql: &str) -> Result<Answer<Vec<Row>>, BridgeError> {
        answer_of(self.name, self.connection.query(sql))
    }
}

/// A step that is being done.
pub(super) struct StepLog {
    step: BridgeStep,
    /// The run's directory, which is [`PLACE`] in the record.
    directory: String,
    began: Instant,
}

/// The placeholder of the run's directory.
const PLACE: &str = "DIR";
/// Rows of a query that go into the record.
const ROWS_MAX: usize = 100;

impl StepLog {
    /// A step of this name, title and lesson.
    pub(super) fn begin([name, title, lesson]: [&str; 3], directory: &Path) -> Self {
        let step = BridgeStep {
            name: name.to_owned(),
            title: title.to_owned(),
            lesson: lesson.to_owned(),
            ..BridgeStep::default()
        };
        let directory = directory.to_string_lossy().into_owned();
        Self { step, directory, began: Instant::now() }
    }

    /// The step as far as it was done.
    pub(super) fn end(mut self, complete: bool) -> BridgeStep {
        self.step.complete = complete;
        self.step.seconds = self.began.elapsed().as_secs_f64();
        self.step
    }

    /// Runs a statement.
    pub(super) fn run(
        &mut self,
        session: &mut RecordedSession,
        sql: &str,
    ) -> Result<(), BridgeError> {
        self.attempt(session, sql)?.map_err(|error| statement_error(session.name, error))
    }

    /// Runs statements, one by one.
    pub(super) fn run_all(
        &mut self,
        session: &mut RecordedSession,
        statements: &[impl AsRef<str>],
    ) -> Result<(), BridgeError> {
        statements.iter().try_for_each(|sql| self.run(session, sql.as_ref()))
    }

    /// Runs a statement that may fail.
    pub(super) fn attempt(
        &mut self,
        session: &mut RecordedSession,
        sql: &str,
    ) -> Result<Answer<()>, BridgeError> {
        let answer = answer_of(session.name, session.connection.complete(sql));
        let words = match &answer {
            Ok(Ok(completion)) => completion.tag.clone(),
            Ok(Err(error)) => error_words(error),
            Err(error) => no_answer(error),
        };
        self.push(session.name, sql, &words, &[]);
        Ok(answer?.map(drop))
    }

    /// Rows of a query.
    pub(super) fn query(
        &mut self,
        session: &mut RecordedSession,
        sql: &str,
    ) -> Result<Vec<Row>, BridgeError> {
        self.attempt_query(session, sql)?.map_err(|error| statement_error(session.name, error))
    }

    /// Rows of a query that may fail.
    pub(super) fn attempt_query(
        &mut self,
        session: &mut RecordedSession,
        sql: &str,
    ) -> Result<Answer<Vec<Row>>, BridgeError> {
        let answer = session.attempt(sql);
        match &answer {
            Ok(answer) => self.note(session.name, sql, answer),
            Err(error) => self.push(session.name, sql, &no_answer(error), &[]),
        }
        answer
    }

    /// The first value of the first row of a query, as text.
    pub(super) fn value(
        &mut self,
        session: &mut RecordedSession,
        sql: &str,
    ) -> Result<String, BridgeError> {
        let rows = self.query(session, sql)?;
        Ok(rows.first().map_or_else(|| "no row".to_owned(), row_words))
    }

    /// Notes a query that was run elsewhere.
    pub(super) fn note(&mut self, session: &str, sql: &str, answer: &Answer<Vec<Row>>) {
        match answer {
            Ok(rows) => {
                let shown: Vec<String> = rows.iter().take(ROWS_MAX).map(row_words).collect();
                self.push(session, sql, &rows_words(rows.len()), &shown);
            }
            Err(error) => self.push(session, sql, &error_words(error), &[]),
        }
    }

    /// Notes a script that a foreign table's program needs.
    pub(super) fn push_script(&mut self, script: &RedisScript) {
        self.push("file", script.text, &script.file.to_string_lossy(), &[]);
    }

    /// Notes a statement and its result.
    pub(super) fn push(&mut self, session: &str, sql: &str, result: &str, rows: &[String]) {
        let placed = |text: &str| text.replace(&self.directory, PLACE);
        self.step.statements.push(BridgeStatement {
            session: session.to_owned(),
            sql: placed(sql),
            result: placed(result),
            rows: rows.iter().map(|row| placed(row)).collect(),
        });
    }

    /// Checks that something is as expected.
    pub(super) fn check(&mut self, subject: &str, expected: impl Display, found: impl Display) {
        let expected = expected.to_string();
        let found = found.to_string();
        let holds = expected == found;
        self.check_that(subject, &expected, &found, holds);
    }

    /// Checks that a statement was refused with this SQLSTATE.
    pub(super) fn check_refused<T>(&mut self, subject: &str, sqlstate: &str, answer: &Answer<T>) {
        let (found, holds) = match answer {
            Ok(_) => ("no error".to_owned(), false),
            Err(error) => (error_words(error), error.sqlstate == sqlstate),
        };
        self.check_that(subject, &format!("ERROR {sqlstate}"), &found, holds);
    }

    /// Notes a check that the caller made.
    pub(super) fn check_that(&mut self, subject: &str, expected: &str, found: &str, holds: bool) {
        self.step.checks.push(BridgeCheck {
            subject: subject.to_owned(),
            expected: expected.to_owned(),
            found: found.replace(&self.directory, PLACE),
            holds,
        });
    }

    /// A text of the run with its directory replaced.
    pub(super) fn placed(&self, text: &str) -> String {
        text.replace(&self.directory, PLACE)
    }
}

/// Tells errors that a server answered with, after which the session continues, from others.
fn answer_of<T>(
    session: &'static str,
    result: Result<T, pgtoll_wire::Error>,
) -> Result<Answer<T>, BridgeError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(pgtoll_wire::Error::Server(error)) if error.severity == "ERROR" => Ok(Err(error)),
        Err(source) => Err(BridgeError::Statement { session, source }),
    }
}

fn statement_error(session: &'static str, error: Box<ErrorResponse>) -> BridgeError {
    BridgeError::Statement { session, source: pgtoll_wire::Error::Server(error) }
}

fn error_words(error: &ErrorResponse) -> String {
    let detail = error.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
    format!("ERROR {}: {}{detail}", error.sqlstate, error.message)
}

fn no_answer(error: &BridgeError) -> String {
    format!("no answer: {}", pgtoll_system::error_chain(error))
}

/// `1 row`, `2 rows`.
pub(super) fn rows_words(count: usize) -> String {
    if count == 1 { "1 row".to_owned() } else { format!("{count} rows") }
}

/// A row's values, ` | ` between them.
pub(super) fn row_words(row: &Row) -> String {
    let values = row.values().iter().map(|value| value.as_deref().unwrap_or("NULL"));
    values.collect::<Vec<_>>().join(" | ")
}
