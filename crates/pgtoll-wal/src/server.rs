//! The WAL of a running server, by the replication protocol.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use pgtoll_format::Lsn;
use pgtoll_format::wal::WalError;
use pgtoll_wire::{Connection, Dsn, Error, StreamEnd, WalMessage};

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
    /// What it sent is no WAL that is known.
    #[error("the server sent {0}")]
    Wal(#[from] WalError),
}

impl ServerError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Wire(error) => return error.hint(),
            Self::Replication(error) => match error.sqlstate() {
                // No such role, no line in pg_hba.conf, not the role for it, or no place.
                Some("28000" | "42501" | "53300") => {
                    "it takes a role with REPLICATION, a line for database replication in \
                     pg_hba.conf, and a free place among max_wal_senders"
                }
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

/// What a server's WAL consists of; see [`stream_with`].
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
    let streamed =
        stream_watched(dsn, time, new, &mut |progress| watch(progress.at, progress.until))?;
    Ok((streamed.summary, streamed.end?))
}

/// How far streaming has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamProgress {
    /// What is before this has come.
    pub at: Lsn,
    /// Where it shall end; `None`: as long as `time` says.
    pub until: Option<Lsn>,
    /// The server's process that sends it.
    pub sender_pid: i32,
}

/// What came of a stream.
#[derive(Debug)]
pub struct Streamed<C> {
    /// What was read.
    pub summary: WalSummary<C>,
    /// Where the last checkpoint began that was complete when it began: what is before it in the same
    /// segment came along.
    pub redo: Lsn,
    /// Why it ended; an error where the connection was lost, or what came is no WAL.
    pub end: Result<End, ServerError>,
}

/// Reads a server's WAL, from the segment in which its last checkpoint began, into collectors that
/// `new` makes. What was read until a connection was lost is kept.
///
/// It is streamed as to a standby, without a slot and without any confirmation, so that no commit
/// waits for it and nothing is kept for it. Read is what was there when it began or, with `time`,
/// what comes within that time. `watch` is asked after each message, and several times a second while
/// none comes.
pub fn stream_watched<C: Collect>(
    dsn: &Dsn,
    time: Option<Duration>,
    new: impl Fn() -> C + 'static,
    watch: &mut dyn FnMut(&StreamProgress) -> ControlFlow<()>,
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
    let mut streaming = connection.start(begin.0, server.timeline).map_err(refused)?;
    let mut wal = WalStream::new(new, until);
    let began = Instant::now();
    let limit = time.and_then(|time| began.checked_add(time));
    let end = loop {
        let at = Lsn(streaming.position());
        let is_over = limit.is_some_and(|limit| Instant::now() >= limit);
        if is_over || until.is_some_and(|until| at >= until) {
            break Ok(End::Asked(at));
        }
        if watch(&StreamProgress { at, until, sender_pid }).is_break() {
            break Ok(End::Interrupted);
        }
        match streaming.receive(Some(PATIENCE)) {
            Ok(Some(WalMessage::Data(data))) => {
                if let Err(error) = wal.feed(data.bytes) {
                    break Err(error.into());
                }
            }
            Ok(Some(WalMessage::End(StreamEnd::Shutdown))) => break Ok(End::ServerStopped(at)),
            Ok(Some(WalMessage::End(StreamEnd::Timeline { .. }))) => {
                break Ok(End::TimelineEnd(at));
            }
            Ok(Some(WalMessage::Keepalive(_)) | None) => {}
            Err(error) => break Err(refused(error)),
        }
    };
    streaming.close();
    let summary = WalSummary { streamed: Some(began.elapsed()), ..wal.finish() };
    Ok(Streamed { summary, redo, end })
}

/// Where the server's last checkpoint began.
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
