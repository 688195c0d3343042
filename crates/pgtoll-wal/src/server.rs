//! The WAL of a running server, by the replication protocol.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use pgtoll_format::Lsn;
use pgtoll_format::wal::WalError;
use pgtoll_wire::{
    Connection, Dsn, Error, ReplicationStream, StreamEnd, SystemIdentity, WalMessage,
};

use crate::collect::Collect;
use crate::end::End;
use crate::scan::{Contents, WalSummary};
use crate::stream::WalStream;

/// WAL could not be had from a server, or not be read.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The server, or the way to it.
    #[error(transparent)]
    Wire(#[from] Error),
    /// The server does not send its WAL.
    #[error(transparent)]
    Replication(Error),
    /// It sent data that is not known WAL.
    #[error("the server sent {0}")]
    Wal(#[from] WalError),
}

impl ServerError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Wire(error) => return error.hint(),
            Self::Replication(error) => match error.sqlstate() {
                Some("42501") => {
                    "ALTER ROLE … REPLICATION; managed servers send their WAL to no client"
                }
                // No such role, or no line in pg_hba.conf.
                Some("28000") => "add a line for the database replication to pg_hba.conf",
                Some("53300") => "raise max_wal_senders",
                _ => return error.hint(),
            },
            Self::Wal(WalError::UnknownMagic { .. }) => {
                "pgtoll reads the WAL of released PostgreSQL 13 to 18 and of 19rc1"
            }
            Self::Wal(_) => return None,
        };
        Some(hint.to_owned())
    }
}

/// How often `watch` is asked while nothing comes.
const PATIENCE: Duration = Duration::from_millis(200);

/// Streams a server's WAL and counts it; see [`stream_with`].
pub fn stream(
    dsn: &Dsn,
    time: Option<Duration>,
    watch: &mut dyn FnMut(Lsn, Option<Lsn>) -> ControlFlow<()>,
) -> Result<(WalSummary<Contents>, End), ServerError> {
    let (summary, end) = stream_with(dsn, time, <_>::default, watch)?;
    Ok((contents(summary), end))
}

/// Reads a server's WAL, from the segment in which its last checkpoint began, into collectors that
/// `new` makes; see [`stream_watched`]. An error ends it without what was read until then.
pub fn stream_with<C: Collect>(
    dsn: &Dsn,
    time: Option<Duration>,
    new: impl Fn() -> C + 'static,
    watch: &mut dyn FnMut(Lsn, Option<Lsn>) -> ControlFlow<()>,
) -> Result<(WalSummary<C>, End), ServerError> {
    let streamed = stream_watched(dsn, time, new, &mut Asked(watch))?;
    Ok((streamed.summary, streamed.end?))
}

/// How far streaming has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamProgress {
    /// All WAL before this position has come.
    pub at: Lsn,
    /// The requested end; `None`: by `time`.
    pub until: Option<Lsn>,
    /// The server's process that sends it.
    pub sender_pid: i32,
    /// How often the connection was lost, and reading resumed where it was.
    pub resumed: u32,
}

/// Follows a stream, and decides when it ends.
pub trait StreamWatch<C> {
    /// Whether it continues: asked after each message, and several times a second while none comes.
    fn goes_on(&mut self, progress: &StreamProgress) -> ControlFlow<()>;

    /// Whether [`look`](Self::look) should be shown what was read until now.
    fn wants_look(&self) -> bool {
        false
    }

    /// Sees what was read until now, and the redo point that it began with.
    fn look(&mut self, read: &mut WalSummary<C>, redo: Lsn) {
        let _ = read;
        let _ = redo;
    }

    /// The connection was lost, or the server was stopped. Waits until another try, from where reading was,
    /// or ends it.
    fn retry(&mut self, why: &str) -> ControlFlow<()> {
        let _ = why;
        ControlFlow::Break(())
    }
}

/// A stream whose end a function decides, and that is not resumed.
struct Asked<'a>(&'a mut dyn FnMut(Lsn, Option<Lsn>) -> ControlFlow<()>);

impl<C> StreamWatch<C> for Asked<'_> {
    fn goes_on(&mut self, progress: &StreamProgress) -> ControlFlow<()> {
        (self.0)(progress.at, progress.until)
    }
}

/// The result of a stream.
#[derive(Debug)]
pub struct Streamed<C> {
    /// The summary of the WAL that was read.
    pub summary: WalSummary<C>,
    /// The redo point of the last completed checkpoint: what is before it in the same
    /// segment came along.
    pub redo: Lsn,
    /// How often the connection was lost, and reading resumed where it was.
    pub resumed: u32,
    /// Why it ended; an error where the connection was lost for good, or what came is no WAL.
    pub end: Result<End, ServerError>,
}

/// Reads a server's WAL, from the segment in which its last checkpoint began, into collectors that
/// `new` makes. What was read until a connection was lost is kept, and reading resumes where it was
/// as long as `watch` retries.
///
/// It is streamed as to a standby, without a slot and without any confirmation, so that no commit
/// waits for it and nothing is kept for it. Read is what was there when it began or, with `time`,
/// what comes within that time.
pub fn stream_watched<C: Collect>(
    dsn: &Dsn,
    time: Option<Duration>,
    new: impl Fn() -> C + 'static,
    watch: &mut dyn StreamWatch<C>,
) -> Result<Streamed<C>, ServerError> {
    let redo = redo_point(&mut dsn.connect()?)?;
    let refused = ServerError::Replication;
    let mut connection = dsn.connect_replication().map_err(refused)?;
    let segment_bytes = connection.wal_segment_size().map_err(refused)?.max(1);
    let server = connection.identify_system().map_err(refused)?;
    let position = Lsn(server.position);
    let begin = redo.min(position).align_down(segment_bytes);
    let until = time.is_none().then_some(position);
    let sender_pid = connection.backend_pid();
    let streaming = connection.start(begin.0, server.timeline).map_err(refused)?;
    let began = Instant::now();
    let limit = time.and_then(|time| began.checked_add(time));
    let wal = WalStream::new(new, until);
    let mut reading = Reading { dsn, server, redo, until, limit, wal, watch };
    let (end, resumed) = reading.read(Sender { streaming, pid: sender_pid, resumed: 0 });
    let summary = WalSummary { streamed: Some(began.elapsed()), ..reading.wal.finish() };
    Ok(Streamed { summary, redo, resumed, end })
}

/// The connection that WAL comes from.
struct Sender {
    streaming: ReplicationStream,
    /// The server's process.
    pid: i32,
    /// Connections before this one.
    resumed: u32,
}

/// A stream that is read.
struct Reading<'a, C> {
    dsn: &'a Dsn,
    /// As it was at the beginning: another cluster or timeline does not continue it.
    server: SystemIdentity,
    redo: Lsn,
    until: Option<Lsn>,
    limit: Option<Instant>,
    wal: WalStream<C>,
    watch: &'a mut dyn StreamWatch<C>,
}

impl<C: Collect> Reading<'_, C> {
    /// To its end; how often it was resumed.
    fn read(&mut self, mut sender: Sender) -> (Result<End, ServerError>, u32) {
        loop {
            let end = self.receive(&mut sender);
            let at = Lsn(sender.streaming.position());
            let resumed = sender.resumed;
            sender.streaming.close();
            let why = match &end {
                Ok(stopped @ End::ServerStopped(_)) => stopped.to_string(),
                // The caller is gone.
                Err(ServerError::Replication(Error::WalRemoved { .. })) => return (end, resumed),
                Err(ServerError::Replication(error)) => error.to_string(),
                _ => return (end, resumed),
            };
            let Some(next) = self.resume(at, &why) else { return (end, resumed) };
            sender = Sender { resumed: resumed + 1, ..next };
        }
    }

    /// Until the connection ends, or what is wanted has come.
    fn receive(&mut self, sender: &mut Sender) -> Result<End, ServerError> {
        loop {
            let at = Lsn(sender.streaming.position());
            let is_over = self.limit.is_some_and(|limit| Instant::now() >= limit);
            if is_over || self.until.is_some_and(|until| at >= until) {
                return Ok(End::Asked(at));
            }
            let Sender { pid: sender_pid, resumed, .. } = *sender;
            let progress = StreamProgress { at, until: self.until, sender_pid, resumed };
            if self.watch.goes_on(&progress).is_break() {
                return Ok(End::Interrupted);
            }
            if self.watch.wants_look() {
                self.watch.look(self.wal.so_far(), self.redo);
            }
            let message = sender.streaming.receive(Some(PATIENCE));
            match message.map_err(ServerError::Replication)? {
                Some(WalMessage::Data(data)) => self.wal.feed(data.bytes)?,
                Some(WalMessage::End(StreamEnd::Shutdown)) => return Ok(End::ServerStopped(at)),
                Some(WalMessage::End(StreamEnd::Timeline { .. })) => {
                    return Ok(End::TimelineEnd(at));
                }
                Some(WalMessage::Keepalive(_)) | None => {}
            }
        }
    }

    /// The same WAL from where it was; `None` where that is not to be had.
    fn resume(&mut self, at: Lsn, why: &str) -> Option<Sender> {
        while self.watch.retry(why).is_continue() {
            // A server that does not answer may be starting.
            if let Ok(found) = self.connect(at) {
                return found;
            }
        }
        None
    }

    /// `None`: what follows there is of another cluster or timeline, or was lost.
    fn connect(&self, at: Lsn) -> Result<Option<Sender>, Error> {
        let mut connection = self.dsn.connect_replication()?;
        let SystemIdentity { system_id, timeline, position } = connection.identify_system()?;
        let is_same = (system_id, timeline) == (self.server.system_id, self.server.timeline);
        if !is_same || position < at.0 {
            return Ok(None);
        }
        let pid = connection.backend_pid();
        Ok(Some(Sender { streaming: connection.start(at.0, timeline)?, pid, resumed: 0 }))
    }
}

/// Returns the redo point of the server's last checkpoint.
fn redo_point(connection: &mut Connection) -> Result<Lsn, Error> {
    let row = connection.query_one("SELECT redo_lsn FROM pg_control_checkpoint()")?;
    row.parse("redo_lsn")
}

fn contents(
    summary: WalSummary<(crate::WalStatistics, crate::WalTimeline)>,
) -> WalSummary<Contents> {
    summary.map(|(statistics, timeline)| {
        // What was streamed is gone.
        Contents::new(statistics, timeline.finish(|_, _| None))
    })
}
