//! A session with a server, from the first question on.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::time::Instant;

use postgres_protocol::message::backend::{
    BIND_COMPLETE_TAG, CLOSE_COMPLETE_TAG, COMMAND_COMPLETE_TAG, COPY_DATA_TAG, COPY_DONE_TAG,
    COPY_IN_RESPONSE_TAG, COPY_OUT_RESPONSE_TAG, DATA_ROW_TAG, EMPTY_QUERY_RESPONSE_TAG,
    ERROR_RESPONSE_TAG, Message, NOTICE_RESPONSE_TAG, NOTIFICATION_RESPONSE_TAG,
    PARAMETER_STATUS_TAG, PARSE_COMPLETE_TAG, ParameterStatusBody, READY_FOR_QUERY_TAG,
    ROW_DESCRIPTION_TAG,
};
use postgres_protocol::message::frontend::{self, CopyData};

use crate::cancel::CancelHandle;
use crate::row::{self, Columns};
use crate::transport::{MessageFrame, Transport};
use crate::{Error, ErrorResponse, ExtendedExecution, Parameter, PreparedStatement, Row};

/// A session with a server.
///
/// Calls block until the server has answered. Notices and notifications are ignored, but for
/// warnings in a [`Completion`].
pub struct Connection {
    pub(crate) transport: Transport,
    pub(crate) backend_pid: i32,
    /// The secret key of the session.
    pub(crate) secret: i32,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) given_up: bool,
    pub(crate) in_transaction: bool,
    pub(crate) cancel: Option<CancelHandle>,
    /// The first warning in the answer to the last question.
    pub(crate) warning: Option<Box<ErrorResponse>>,
}

/// How a statement ended that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The last statement's command tag, such as `COMMIT` or `INSERT 0 1`.
    pub tag: String,
    /// The first value of the first row, if there was one that is not null.
    pub value: Option<String>,
    /// The first message of severity `WARNING`.
    pub warning: Option<Box<ErrorResponse>>,
}

impl Connection {
    /// The process that serves this connection.
    pub fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    /// Whether another process answers than the one that the connection was promised: a pooler is between.
    pub fn is_pooled(&mut self) -> Result<bool, Error> {
        let pid: i32 = self.query_one("SELECT pg_backend_pid() AS pid")?.parse("pid")?;
        Ok(pid != self.backend_pid)
    }

    /// Returns a handle that cancels this session's statements, also when the connection is of no use any more. `None`
    /// where the way to the server is not known.
    pub fn cancel_handle(&self) -> Option<&CancelHandle> {
        self.cancel.as_ref()
    }

    /// The current value of a setting that the server reports without being asked, such as
    /// `server_version`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Runs one or more statements, and returns the rows of all of them. What `COPY` sends is
    /// ignored; `COPY FROM STDIN` fails.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, Error> {
        let mut rows = Rows::default();
        self.query_each(sql, |row, bytes| rows.push(row, bytes))?;
        Ok(rows.rows)
    }

    /// As [`query`](Self::query), and hands each row on with the bytes of memory that it takes,
    /// instead of keeping it. An error of `on_row` ends the connection.
    pub fn query_each(
        &mut self,
        sql: &str,
        mut on_row: impl FnMut(Row, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut columns: Option<Columns> = None;
        // Rows keep the names of their columns.
        let mut columns_bytes = 0;
        self.ask(sql, |reply| {
            match reply.tag() {
                ROW_DESCRIPTION_TAG | DATA_ROW_TAG => {}
                COMMAND_COMPLETE_TAG | EMPTY_QUERY_RESPONSE_TAG => columns = None,
                _ => return Err(unexpected(reply)),
            }
            match (reply.decode()?, &columns) {
                (Message::RowDescription(body), _) => {
                    columns = Some(row::decode_columns(&body)?);
                    columns_bytes = reply.body().len();
                }
                (Message::DataRow(body), Some(columns)) => {
                    let row = Row::decode(&body, columns)?;
                    let bytes = row.bytes(reply.body().len()) + mem::take(&mut columns_bytes);
                    on_row(row, bytes)?;
                }
                (Message::DataRow(_), None) => return Err(unexpected(reply)),
                _ => {}
            }
            Ok(())
        })
    }

    /// Runs a query that returns exactly one row.
    pub fn query_one(&mut self, sql: &str) -> Result<Row, Error> {
        match <[Row; 1]>::try_from(self.query(sql)?) {
            Ok([row]) => Ok(row),
            Err(rows) => Err(Error::RowCount { actual: rows.len() }),
        }
    }

    /// Runs one or more statements, whatever they return.
    pub fn execute(&mut self, sql: &str) -> Result<(), Error> {
        self.ask(sql, |reply| match reply.tag() {
            ROW_DESCRIPTION_TAG
            | DATA_ROW_TAG
            | COMMAND_COMPLETE_TAG
            | EMPTY_QUERY_RESPONSE_TAG => Ok(()),
            _ => Err(unexpected(reply)),
        })
    }

    /// Runs one or more statements, and says how the last one ended: a `COMMIT` that did not commit
    /// has the tag `ROLLBACK`, and one that did not wait for its standbys a warning.
    pub fn complete(&mut self, sql: &str) -> Result<Completion, Error> {
        let mut tag = String::new();
        let mut value = None;
        let mut columns: Option<Columns> = None;
        self.ask(sql, |reply| {
            match (reply.tag(), &columns) {
                (ROW_DESCRIPTION_TAG, _) => {
                    if let Message::RowDescription(body) = reply.decode()? {
                        columns = Some(row::decode_columns(&body)?);
                    }
                }
                (DATA_ROW_TAG, Some(columns)) if value.is_none() => {
                    if let Message::DataRow(body) = reply.decode()? {
                        value = Row::decode(&body, columns)?.values().first().cloned().flatten();
                    }
                }
                (DATA_ROW_TAG | EMPTY_QUERY_RESPONSE_TAG, _) => {}
                (COMMAND_COMPLETE_TAG, _) => {
                    let text = reply.body().strip_suffix(&[0]).unwrap_or_default();
                    tag = String::from_utf8_lossy(text).into_owned();
                }
                _ => return Err(unexpected(reply)),
            }
            Ok(())
        })?;
        Ok(Completion { tag, value, warning: self.warning.take() })
    }

    /// From now on no call waits for the server longer than until then: it fails with
    /// [`Error::ConnectTimeout`], and the connection is given up. `None` waits as long as it takes.
    pub fn wait_until(&mut self, deadline: Option<Instant>) {
        self.transport.set_deadline(deadline);
    }

    /// Parses a statement, whose parameters are `$1`, `$2` and so on. The server keeps it until
    /// the connection closes.
    pub fn prepare(&mut self, sql: &str) -> Result<PreparedStatement, Error> {
        self.prepare_typed(sql, &[])
    }

    /// As [`prepare`](Self::prepare). `types` are the OIDs of the first parameters' types, 0 of those that
    /// the server is to infer.
    pub fn prepare_typed(&mut self, sql: &str, types: &[u32]) -> Result<PreparedStatement, Error> {
        let mut statement = PreparedStatement::unnamed(sql, types);
        let outbox = self.usable()?.outbox();
        statement.encode_preparation(outbox)?;
        let mut described = false;
        self.exchange(Dialogue::Extended, sql, |reply| {
            match reply.decode()? {
                Message::ParseComplete | Message::NoData => {}
                Message::RowDescription(body) => statement.describe_rows(&body)?,
                Message::ParameterDescription(body) => {
                    statement.describe(&body)?;
                    described = true;
                }
                _ => return Err(unexpected(reply)),
            }
            Ok(())
        })?;
        if !described {
            self.given_up = true;
            return Err(Error::protocol("statement was not described"));
        }
        Ok(statement)
    }

    /// Executes a prepared statement, in a transaction of its own unless one is open, and ignores
    /// the rows. Returns how many rows the command says that it returned or changed, or, if it
    /// does not say, how many were received.
    pub fn execute_prepared(
        &mut self,
        statement: &PreparedStatement,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, Error> {
        let outbox = self.usable()?.outbox();
        statement.encode_execution(parameters, outbox)?;
        let mut received = 0;
        let mut reported = None;
        self.exchange(Dialogue::Extended, statement.sql(), |reply| {
            match reply.tag() {
                DATA_ROW_TAG => received += 1,
                COMMAND_COMPLETE_TAG => reported = row_count(reply.body()),
                BIND_COMPLETE_TAG | EMPTY_QUERY_RESPONSE_TAG => {}
                _ => return Err(unexpected(reply)),
            }
            Ok(())
        })?;
        Ok(reported.unwrap_or(received))
    }

    /// As [`execute_prepared`](Self::execute_prepared), and returns the rows.
    pub fn query_prepared(
        &mut self,
        statement: &PreparedStatement,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let outbox = self.usable()?.outbox();
        statement.encode_execution(parameters, outbox)?;
        let mut rows = Rows::default();
        self.exchange(Dialogue::Extended, statement.sql(), |reply| {
            match reply.decode()? {
                Message::DataRow(body) => {
                    let row = Row::decode(&body, statement.shared_columns())?;
                    let bytes = row.bytes(reply.body().len());
                    rows.push(row, bytes)?;
                }
                Message::CommandComplete(_)
                | Message::BindComplete
                | Message::EmptyQueryResponse => {}
                _ => return Err(unexpected(reply)),
            }
            Ok(())
        })?;
        Ok(rows.rows)
    }

    /// Executes statements in one round trip and with one Sync, so that outside of a transaction block they
    /// are one transaction. Ignores the rows.
    pub fn execute_extended(&mut self, executions: &[ExtendedExecution<'_>]) -> Result<(), Error> {
        let outbox = self.usable()?.outbox();
        for execution in executions {
            execution.encode(outbox)?;
        }
        frontend::sync(outbox);
        let sql = executions.first().map_or("", |execution| execution.sql);
        self.exchange(Dialogue::Extended, sql, |reply| match reply.tag() {
            PARSE_COMPLETE_TAG
            | BIND_COMPLETE_TAG
            | CLOSE_COMPLETE_TAG
            | DATA_ROW_TAG
            | COMMAND_COMPLETE_TAG
            | EMPTY_QUERY_RESPONSE_TAG => Ok(()),
            _ => Err(unexpected(reply)),
        })
    }

    /// Runs `COPY … FROM STDIN` and sends these data, in the statement's format.
    pub fn copy_in(&mut self, sql: &str, data: &[u8]) -> Result<(), Error> {
        let outbox = self.usable()?.outbox();
        frontend::query(sql, outbox).map_err(|source| Error::unsendable("query", source))?;
        self.exchange(Dialogue::CopyIn(data), sql, |reply| match reply.tag() {
            ROW_DESCRIPTION_TAG
            | DATA_ROW_TAG
            | COMMAND_COMPLETE_TAG
            | EMPTY_QUERY_RESPONSE_TAG => Ok(()),
            _ => Err(unexpected(reply)),
        })
    }

    /// Whether a transaction was open when the server answered last, be it a failed one.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Says goodbye. A connection that is dropped instead just vanishes, which the server logs if
    /// a transaction is open.
    pub fn close(mut self) {
        if let Ok(transport) = self.usable() {
            frontend::terminate(transport.outbox());
            // Nothing depends on whether the server still hears it.
            let _ = transport.send();
        }
    }

    pub(crate) fn ask(
        &mut self,
        sql: &str,
        on_reply: impl FnMut(MessageFrame<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let outbox = self.usable()?.outbox();
        frontend::query(sql, outbox).map_err(|source| Error::unsendable("query", source))?;
        self.exchange(Dialogue::Simple, sql, on_reply)
    }

    pub(crate) fn usable(&mut self) -> Result<&mut Transport, Error> {
        if self.given_up {
            return Err(Error::GivenUp);
        }
        Ok(&mut self.transport)
    }

    /// Sends the outbox and hands the answers on, until the server is ready again.
    fn exchange(
        &mut self,
        dialogue: Dialogue<'_>,
        sql: &str,
        on_reply: impl FnMut(MessageFrame<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let error = match self.converse(dialogue, on_reply) {
            Ok(None) => return Ok(()),
            Ok(Some(refusal)) => Error::Server(refusal),
            Err(error) => {
                self.given_up = true;
                error
            }
        };
        Err(match error {
            Error::Server(mut refusal) => {
                refusal.statement = Some(sql.to_owned());
                Error::Server(refusal)
            }
            error => error,
        })
    }

    /// The conversation itself. An error that it returns as a value is one after which the server
    /// is ready for the next question.
    fn converse(
        &mut self,
        mut dialogue: Dialogue<'_>,
        mut on_reply: impl FnMut(MessageFrame<'_>) -> Result<(), Error>,
    ) -> Result<Option<Box<ErrorResponse>>, Error> {
        self.warning = None;
        self.transport.send()?;
        let mut refusal = None;
        loop {
            let reply = match self.transport.receive() {
                Ok(reply) => reply,
                Err(error) => return Err(last_words(refusal, error)),
            };
            match reply.tag() {
                READY_FOR_QUERY_TAG => {
                    self.in_transaction = reply.body() != b"I";
                    break;
                }
                ERROR_RESPONSE_TAG => {
                    let error = decode_error(reply)?;
                    refusal.get_or_insert(error);
                }
                PARAMETER_STATUS_TAG => match reply.decode()? {
                    Message::ParameterStatus(body) => remember(&mut self.parameters, &body)?,
                    _ => return Err(unexpected(reply)),
                },
                COPY_IN_RESPONSE_TAG => {
                    send_copy(&mut self.transport, dialogue)?;
                    // There are data for one `COPY`.
                    if matches!(dialogue, Dialogue::CopyIn(_)) {
                        dialogue = Dialogue::Simple;
                    }
                }
                NOTICE_RESPONSE_TAG => {
                    if self.warning.is_none() {
                        self.warning = decode_warning(reply)?;
                    }
                }
                NOTIFICATION_RESPONSE_TAG
                | COPY_OUT_RESPONSE_TAG
                | COPY_DATA_TAG
                | COPY_DONE_TAG => {}
                _ => on_reply(reply)?,
            }
        }
        Ok(refusal)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("backend_pid", &self.backend_pid)
            .field("parameters", &self.parameters)
            .field("given_up", &self.given_up)
            .finish_non_exhaustive()
    }
}

/// The protocol in use: simple or extended.
#[derive(Debug, Clone, Copy)]
enum Dialogue<'a> {
    Simple,
    Extended,
    /// A simple one, with the data of a `COPY`.
    CopyIn(&'a [u8]),
}

/// An error that the server reported before it hung up is the reason for that.
fn last_words(refusal: Option<Box<ErrorResponse>>, error: Error) -> Error {
    match (refusal, error) {
        (Some(refusal), Error::Closed { .. }) => Error::Server(refusal),
        (_, error) => error,
    }
}

/// Answers a server that waits for `COPY` data. In the extended dialogue it has skipped the Sync
/// that we sent with the question, and waits for another one after the failure.
fn send_copy(transport: &mut Transport, dialogue: Dialogue<'_>) -> Result<(), Error> {
    if let Dialogue::CopyIn(data) = dialogue {
        for piece in data.chunks(COPY_PIECE_BYTES) {
            CopyData::new(piece)
                .map_err(|source| Error::unsendable("data to copy", source))?
                .write(transport.outbox());
            transport.send()?;
        }
        frontend::copy_done(transport.outbox());
        return transport.send();
    }
    let outbox = transport.outbox();
    frontend::copy_fail("this client has no data to copy", outbox)
        .map_err(|source| Error::unsendable("refusal to copy", source))?;
    if matches!(dialogue, Dialogue::Extended) {
        frontend::sync(outbox);
    }
    transport.send()
}

/// As `libpq`'s own clients send at once, about.
const COPY_PIECE_BYTES: usize = 64 << 10;

pub(crate) fn decode_error(reply: MessageFrame<'_>) -> Result<Box<ErrorResponse>, Error> {
    match reply.decode()? {
        Message::ErrorResponse(body) => ErrorResponse::decode(body.fields()),
        _ => Err(unexpected(reply)),
    }
}

/// A notice, if it is a warning.
fn decode_warning(reply: MessageFrame<'_>) -> Result<Option<Box<ErrorResponse>>, Error> {
    match reply.decode()? {
        Message::NoticeResponse(body) => {
            let notice = ErrorResponse::decode(body.fields())?;
            Ok(Some(notice).filter(|notice| notice.severity == "WARNING"))
        }
        _ => Err(unexpected(reply)),
    }
}

pub(crate) fn remember(
    parameters: &mut BTreeMap<String, String>,
    body: &ParameterStatusBody,
) -> Result<(), Error> {
    let malformed = |source| Error::undecodable("malformed parameter status", source);
    let name = body.name().map_err(malformed)?;
    let value = body.value().map_err(malformed)?;
    if parameters.len() >= PARAMETERS_MAX && !parameters.contains_key(name) {
        return Err(Error::TooMuch { limit: "1,000 settings" });
    }
    parameters.insert(name.to_owned(), value.to_owned());
    Ok(())
}

/// PostgreSQL reports about 15.
const PARAMETERS_MAX: usize = 1000;

/// The rows of a result, as far as memory is there for them.
#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
    bytes: usize,
}

impl Rows {
    fn push(&mut self, row: Row, bytes: usize) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > ROWS_BYTES_MAX {
            return Err(Error::TooMuch { limit: "256 MB of rows in one answer" });
        }
        self.rows.push(row);
        Ok(())
    }
}

const ROWS_BYTES_MAX: usize = 256 * 1024 * 1024;

pub(crate) fn unexpected(reply: MessageFrame<'_>) -> Error {
    Error::protocol(format!("unexpected message '{}'", reply.tag().escape_ascii()))
}

/// The count at the end of a command tag such as `INSERT 0 5`.
fn row_count(command_tag: &[u8]) -> Option<u64> {
    let tag = command_tag.strip_suffix(&[0])?;
    let last_word = tag.rsplit(|&byte| byte == b' ').next()?;
    str::from_utf8(last_word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_counts_are_the_last_word_of_the_command_tag() {
        let check = |tag: &[u8], expected| assert_eq!(row_count(tag), expected, "{tag:?}");
        check(b"SELECT 1\0", Some(1));
        check(b"INSERT 0 5\0", Some(5));
        check(b"BEGIN\0", None);
        check(b"SELECT 99999999999999999999\0", None);
        check(b"SELECT 1", None);
        check(b"\0", None);
        check(b"", None);
    }
}
