//! Physical replication, for a reader that wants the WAL and nothing else.
//!
//! What such a reader may never do is to make the server believe that its data is safe. It reports
//! no flush and no apply position, so no commit waits for it, or ends its waiting because of it. It
//! uses no slot, so the server keeps no WAL for it.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{BufMut as _, BytesMut};
use postgres_protocol::message::backend::{
    COMMAND_COMPLETE_TAG, COPY_DATA_TAG, COPY_DONE_TAG, DATA_ROW_TAG, ERROR_RESPONSE_TAG, Message,
    NOTICE_RESPONSE_TAG, PARAMETER_STATUS_TAG, READY_FOR_QUERY_TAG, ROW_DESCRIPTION_TAG,
};
use postgres_protocol::message::frontend::{self, CopyData};

use crate::connection::{decode_error, unexpected};
use crate::row::{self, Columns};
use crate::{Config, Connection, Error, ErrorResponse, Row};

/// A session for physical replication. It knows a few commands, and no SQL.
#[derive(Debug)]
pub struct ReplicationConnection {
    connection: Connection,
}

/// The answer to `IDENTIFY_SYSTEM`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemIdentity {
    /// The number that `initdb` gave to the cluster, and that all copies of it share.
    pub system_id: u64,
    /// The timeline that the server is on.
    pub timeline: u32,
    /// Up to where WAL can be sent: what is flushed, on a standby what is received and replayed.
    pub position: u64,
}

/// A file that says which timelines a timeline came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineHistory {
    /// The file's name, `0000000N.history`.
    pub file_name: String,
    /// Its content.
    pub content: Vec<u8>,
}

impl ReplicationConnection {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// A session over a socket that is connected already: for the fuzzer's scripts.
    #[doc(hidden)]
    pub fn over(stream: UnixStream, config: &Config) -> Result<Self, Error> {
        Connection::over(stream, config).map(Self::new)
    }

    /// The process that serves this connection, the WAL sender.
    pub fn backend_pid(&self) -> i32 {
        self.connection.backend_pid()
    }

    /// The server's version in its own words, such as `15.7 (Debian 15.7-1)`.
    pub fn server_version(&self) -> Option<&str> {
        self.connection.parameter("server_version")
    }

    /// Returns the server's cluster and its position.
    pub fn identify_system(&mut self) -> Result<SystemIdentity, Error> {
        let row = self.connection.query_one("IDENTIFY_SYSTEM")?;
        let position = row.text("xlogpos")?;
        Ok(SystemIdentity {
            system_id: row.parse("systemid")?,
            timeline: row.parse("timeline")?,
            position: position_of(position).ok_or_else(|| setting("xlogpos", position))?,
        })
    }

    /// The value of a setting, as `SHOW` gives it: with its unit.
    pub fn show(&mut self, name: &str) -> Result<String, Error> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(Error::unsendable("setting", "not the name of a setting"));
        }
        let row = self.connection.query_one(&format!("SHOW {name}"))?;
        Ok(row.text(name)?.to_owned())
    }

    /// The size of the server's WAL segments, in bytes.
    pub fn wal_segment_size(&mut self) -> Result<u64, Error> {
        let shown = self.show("wal_segment_size")?;
        bytes_of(&shown).ok_or_else(|| setting("wal_segment_size", &shown))
    }

    /// Returns the history of a timeline. The first one has no history, and the server says so by an
    /// error.
    pub fn timeline_history(&mut self, timeline: u32) -> Result<TimelineHistory, Error> {
        let mut history = None;
        let question = format!("TIMELINE_HISTORY {timeline}");
        // The file's bytes come as they are, in whatever encoding.
        self.connection.ask(&question, |reply| {
            if reply.tag() == DATA_ROW_TAG
                && let Message::DataRow(body) = reply.decode()?
            {
                history = Some(history_of(&body)?);
            }
            Ok(())
        })?;
        history.ok_or_else(|| Error::protocol("no history of the timeline"))
    }

    /// Asks for the WAL from a position on, in bytes, of a timeline that the server has. WAL that
    /// is not written yet follows as it is flushed, until the stream [ends](StreamEnd).
    ///
    /// Fails with [`Error::WalRemoved`], here or with the first message, if it is gone.
    pub fn start(mut self, position: u64, timeline: u32) -> Result<ReplicationStream, Error> {
        let shown = Position(position);
        let sql = format!("START_REPLICATION PHYSICAL {shown} TIMELINE {timeline}");
        let transport = self.connection.usable()?;
        frontend::query(&sql, transport.outbox())
            .map_err(|source| Error::unsendable("command", source))?;
        transport.send()?;
        let mut stream = ReplicationStream {
            connection: self.connection,
            position,
            timeline,
            state: State::Streaming,
        };
        let tag = loop {
            if let Some(tag) = stream.await_tag(None)? {
                break tag;
            }
        };
        match tag {
            COPY_BOTH_RESPONSE_TAG => {
                stream.connection.transport.receive()?;
            }
            // Nothing to send: the position is where the timeline ends.
            ROW_DESCRIPTION_TAG | COMMAND_COMPLETE_TAG => stream.read_end_of_timeline()?,
            _ => return Err(unexpected(stream.connection.transport.receive()?)),
        }
        Ok(stream)
    }

    /// Says goodbye.
    pub fn close(self) {
        self.connection.close();
    }
}

/// WAL as it comes from the server.
///
/// A server gives up a reader that it has not heard of for `wal_sender_timeout` (a minute), so
/// [`receive`](Self::receive) has to be called more often than that: it answers the server.
#[derive(Debug)]
pub struct ReplicationStream {
    connection: Connection,
    position: u64,
    timeline: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Streaming,
    Ended(StreamEnd),
    Failed,
}

/// A message of a streaming server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalMessage<'a> {
    /// A piece of WAL, which follows the one before without a gap.
    Data(WalData<'a>),
    /// Nothing but where the server is. It has been answered if the server wished so.
    Keepalive(Keepalive),
    /// There is no more.
    End(StreamEnd),
}

/// A piece of WAL. It may begin and end in the midst of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalData<'a> {
    /// The position of the first byte.
    pub start: u64,
    /// Up to where the server has WAL to send, as of when it sent this.
    pub end: u64,
    /// When the server sent this by its clock: microseconds since 2000-01-01 00:00 UTC.
    pub time: i64,
    /// The WAL.
    pub bytes: &'a [u8],
}

/// A sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Up to where the server has sent WAL.
    pub end: u64,
    /// When the server sent this by its clock: microseconds since 2000-01-01 00:00 UTC.
    pub time: i64,
    /// Whether the server wanted an answer. It has got one.
    pub reply_requested: bool,
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The timeline is over, since the server, or its source, was promoted or switched to another.
    Timeline {
        /// The next timeline and the position where it begins, if the server says.
        next: Option<(u32, u64)>,
    },
    /// The server shuts down, and everything up to its last checkpoint has come.
    Shutdown,
}

impl ReplicationStream {
    /// Waits for the next message. Returns nothing when the time is over, or when a signal or an
    /// [`Interruption`](crate::Interruption) ended the wait: then is the time to look whether to go
    /// on. With `None` it waits as long as it takes, or until [`Error::Interrupted`]. After the end
    /// it returns the end again.
    pub fn receive(&mut self, patience: Option<Duration>) -> Result<Option<WalMessage<'_>>, Error> {
        let limit = patience.and_then(|patience| Instant::now().checked_add(patience));
        let tag = match self.state {
            State::Streaming => self.await_tag(limit)?,
            State::Ended(end) => return Ok(Some(WalMessage::End(end))),
            State::Failed => return Err(Error::GivenUp),
        };
        match tag {
            None => Ok(None),
            Some(COPY_DATA_TAG) => self.read_message().map(Some),
            Some(COPY_DONE_TAG) => {
                self.fail_on_error(Self::leave_timeline)?;
                self.ended().map(Some)
            }
            // A server that shuts down ends the command without ending the copying.
            Some(COMMAND_COMPLETE_TAG) => {
                self.state = State::Ended(StreamEnd::Shutdown);
                self.connection.given_up = true;
                self.ended().map(Some)
            }
            Some(_) => {
                self.state = State::Failed;
                Err(unexpected(self.connection.transport.receive()?))
            }
        }
    }

    /// The position behind the last byte that [`receive`](Self::receive) returned.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The timeline that is streamed.
    pub fn timeline(&self) -> u32 {
        self.timeline
    }

    /// The connection, to continue with the next timeline. Fails unless the stream has ended with its
    /// timeline.
    pub fn into_connection(self) -> Result<ReplicationConnection, Error> {
        match self.state {
            State::Ended(StreamEnd::Timeline { .. }) => {
                Ok(ReplicationConnection { connection: self.connection })
            }
            _ => Err(Error::GivenUp),
        }
    }

    /// Stops the server's sending and says goodbye, so that the server logs nothing of a lost
    /// connection. What is still on its way is thrown away, for a second at most.
    pub fn close(mut self) {
        if self.state == State::Streaming {
            let limit = Instant::now() + FAREWELL;
            self.connection.transport.forget_interruption();
            frontend::copy_done(self.connection.transport.outbox());
            let mut output = self.connection.transport.send();
            while output.is_ok() {
                match self.connection.transport.arrives_before(Some(limit)) {
                    Ok(Some(READY_FOR_QUERY_TAG) | None) | Err(_) => break,
                    Ok(Some(_)) => output = self.connection.transport.receive().map(|_| ()),
                }
            }
        }
        self.connection.close();
    }

    fn ended(&self) -> Result<WalMessage<'_>, Error> {
        match self.state {
            State::Ended(end) => Ok(WalMessage::End(end)),
            State::Streaming | State::Failed => Err(Error::GivenUp),
        }
    }

    /// The tag of the next message that is for us. An error of the server is one here.
    fn await_tag(&mut self, limit: Option<Instant>) -> Result<Option<u8>, Error> {
        self.fail_on_error(|stream| {
            loop {
                let tag = match stream.connection.transport.arrives_before(limit) {
                    Err(Error::Interrupted) if limit.is_some() => None,
                    arrived => arrived?,
                };
                let Some(tag) = tag else { return Ok(None) };
                match tag {
                    NOTICE_RESPONSE_TAG | PARAMETER_STATUS_TAG => {
                        stream.connection.transport.receive()?;
                    }
                    ERROR_RESPONSE_TAG => {
                        let error = decode_error(stream.connection.transport.receive()?)?;
                        return Err(stream.refusal(error));
                    }
                    tag => return Ok(Some(tag)),
                }
            }
        })
    }

    fn fail_on_error<T>(
        &mut self,
        label: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let outcome = label(self);
        if outcome.is_err() {
            self.state = State::Failed;
            self.connection.given_up = true;
        }
        outcome
    }

    /// The server misses a file of WAL when it is to send it.
    fn refusal(&self, error: Box<ErrorResponse>) -> Error {
        if error.sqlstate == UNDEFINED_FILE {
            let position = self.position;
            let timeline = self.timeline;
            return Error::WalRemoved { position, timeline, source: error };
        }
        Error::Server(error)
    }

    fn read_message(&mut self) -> Result<WalMessage<'_>, Error> {
        if self.connection.transport.first_byte() == Some(b'w') {
            let frame = self.connection.transport.receive()?;
            return match data_of(frame.body(), self.position) {
                Ok(data) => {
                    self.position = data.start + data.bytes.len() as u64;
                    Ok(WalMessage::Data(data))
                }
                Err(error) => {
                    self.state = State::Failed;
                    self.connection.given_up = true;
                    Err(error)
                }
            };
        }
        self.fail_on_error(|stream| {
            let keepalive = keepalive_of(stream.connection.transport.receive()?.body())?;
            if keepalive.reply_requested {
                stream.report()?;
            }
            Ok(WalMessage::Keepalive(keepalive))
        })
    }

    /// Tells the server that its reader lives, and what it has received: nothing is flushed and
    /// nothing is applied. A server that shuts down waits until what is received is all.
    fn report(&mut self) -> Result<(), Error> {
        let mut status = BytesMut::with_capacity(34);
        status.put_u8(b'r');
        status.put_u64(self.position);
        status.put_u64(INVALID_POSITION);
        status.put_u64(INVALID_POSITION);
        status.put_i64(now());
        status.put_u8(0);
        let transport = &mut self.connection.transport;
        let message = CopyData::new(status)
            .map_err(|source| Error::unsendable("status of the reader", source))?;
        message.write(transport.outbox());
        transport.send()
    }

    /// The server has ended the copying, so we end it, too, and hear what is next.
    fn leave_timeline(&mut self) -> Result<(), Error> {
        let transport = &mut self.connection.transport;
        transport.receive()?;
        frontend::copy_done(transport.outbox());
        transport.send()?;
        self.read_end_of_timeline()
    }

    fn read_end_of_timeline(&mut self) -> Result<(), Error> {
        let mut columns: Option<Columns> = None;
        let mut next = None;
        loop {
            let reply = self.connection.transport.receive()?;
            match reply.tag() {
                READY_FOR_QUERY_TAG => break,
                ERROR_RESPONSE_TAG => return Err(Error::Server(decode_error(reply)?)),
                COMMAND_COMPLETE_TAG
                | NOTICE_RESPONSE_TAG
                | PARAMETER_STATUS_TAG
                // What was on its way when we answered.
                | COPY_DATA_TAG
                | COPY_DONE_TAG => {}
                ROW_DESCRIPTION_TAG | DATA_ROW_TAG => match (reply.decode()?, &columns) {
                    (Message::RowDescription(body), _) => {
                        columns = Some(row::decode_columns(&body)?);
                    }
                    (Message::DataRow(body), Some(columns)) => {
                        next = Some(next_timeline(&Row::decode(&body, columns)?)?);
                    }
                    _ => return Err(Error::protocol("row without a description")),
                },
                _ => return Err(unexpected(reply)),
            }
        }
        self.state = State::Ended(StreamEnd::Timeline { next });
        Ok(())
    }
}

fn next_timeline(row: &Row) -> Result<(u32, u64), Error> {
    let position = row.text("next_tli_startpos")?;
    let begins = position_of(position).ok_or_else(|| setting("next_tli_startpos", position))?;
    Ok((row.parse("next_tli")?, begins))
}

fn history_of(
    body: &postgres_protocol::message::backend::DataRowBody,
) -> Result<TimelineHistory, Error> {
    use fallible_iterator::FallibleIterator as _;
    let ranges: Vec<_> =
        body.ranges().collect().map_err(|source| Error::undecodable("malformed row", source))?;
    match &ranges[..] {
        [Some(name), Some(content)] => Ok(TimelineHistory {
            file_name: String::from_utf8_lossy(&body.buffer()[name.clone()]).into_owned(),
            content: body.buffer()[content.clone()].to_vec(),
        }),
        _ => Err(Error::protocol("history of a timeline without name or content")),
    }
}

/// Reads a piece of WAL, which must begin where the last piece ended.
fn data_of(body: &[u8], expected: u64) -> Result<WalData<'_>, Error> {
    let [start, end, time] = head(body, b'w').ok_or(Error::protocol("WAL without its position"))?;
    let bytes = &body[HEAD_BYTES..];
    if start != expected {
        let start = Position(start);
        let expected = Position(expected);
        return Err(Error::protocol(format!("WAL at {start} instead of {expected}")));
    }
    if start.checked_add(bytes.len() as u64).is_none() {
        return Err(Error::protocol("WAL beyond the last position"));
    }
    Ok(WalData { start, end, time: time.cast_signed(), bytes })
}

fn keepalive_of(body: &[u8]) -> Result<Keepalive, Error> {
    match body {
        [b'k', numbers @ .., reply_requested] if numbers.len() == 16 => {
            let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
            Ok(Keepalive {
                end: number(&numbers[..8]),
                time: number(&numbers[8..]).cast_signed(),
                reply_requested: *reply_requested != 0,
            })
        }
        [b'k', ..] => Err(Error::protocol("malformed keepalive")),
        _ => Err(Error::protocol("neither WAL nor a keepalive")),
    }
}

/// The kind's byte and the three numbers behind it.
fn head(body: &[u8], kind: u8) -> Option<[u64; 3]> {
    let (first, rest) = body.split_first()?;
    let (numbers, _) = rest.split_first_chunk::<24>()?;
    let mut head = [0; 3];
    for (number, bytes) in head.iter_mut().zip(numbers.chunks_exact(8)) {
        *number = u64::from_be_bytes(bytes.try_into().ok()?);
    }
    (*first == kind).then_some(head)
}

/// A kind and three numbers.
const HEAD_BYTES: usize = 25;

/// A position as the server writes it: two hexadecimal numbers.
struct Position(u64);

impl std::fmt::Display for Position {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

fn position_of(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let half = |text| u32::from_str_radix(text, 16).ok();
    Some(u64::from(half(high)?) << 32 | u64::from(half(low)?))
}

/// A size as `SHOW` writes it, in bytes.
fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "B" => 1,
        "kB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn setting(name: &str, value: &str) -> Error {
    Error::Setting { name: name.to_owned(), value: value.to_owned() }
}

/// The time by our clock, as the server counts it.
fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).map_or(i64::MAX, |time| time - MICROSECONDS_TO_2000)
}

/// From 1970-01-01 to 2000-01-01.
const MICROSECONDS_TO_2000: i64 = 946_684_800_000_000;

/// `InvalidXLogRecPtr`: a reader that reports this as flushed is no candidate for a synchronous
/// standby (`SyncRepGetCandidateStandbys` in PostgreSQL's `syncrep.c`), whatever it is called.
const INVALID_POSITION: u64 = 0;

/// `postgres-protocol` has no name for it.
const COPY_BOTH_RESPONSE_TAG: u8 = b'W';

/// The SQLSTATE of a file that is not there.
const UNDEFINED_FILE: &str = "58P01";

/// How long a goodbye may take.
const FAREWELL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
