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
/// `new` makes.
///
/// It is streamed as to a standby, without a slot and without any confirmation, so that no commit
/// waits for it and nothing is kept for it. Read is what was there when it began or, with `time`,
/// what comes within that time. `watch` is told where reading is, and where it shall end.
pub fn stream_with<C: Collect>(
    dsn: &Dsn,
    time: Option<Duration>,
    new: impl Fn() -> C + 'static,
    watch: &mut dyn FnMut(Lsn, Option<Lsn>) -> ControlFlow<()>,
) -> Result<(WalSummary<C>, End), ServerError> {
    let redo = redo_point(&mut dsn.connect()?)?;
    let refused = ServerError::Replication;
    let mut connection = dsn.connect_replication().map_err(refused)?;
    let segment_bytes = connection.wal_segment_size().map_err(refused)?.max(1);
    let server = connection.identify_system().map_err(refused)?;
    let position = Lsn(server.position);
    let begin = redo.min(position).align_down(segment_bytes);
    let until = time.is_none().then_some(position);
    let mut streaming = connection.start(begin.0, server.timeline).map_err(refused)?;
    let mut wal = WalStream::new(new, until);
    let began = Instant::now();
    let limit = time.and_then(|time| began.checked_add(time));
    let end = loop {
        let at = Lsn(streaming.position());
        let is_over = limit.is_some_and(|limit| Instant::now() >= limit);
        if is_over || until.is_some_and(|until| at >= until) {
            break End::Asked(at);
        }
        if watch(at, until).is_break() {
            break End::Interrupted;
        }
        match streaming.receive(Some(PATIENCE)).map_err(refused)? {
            Some(WalMessage::Data(data)) => wal.feed(data.bytes)?,
            Some(WalMessage::End(StreamEnd::Shutdown)) => break End::ServerStopped(at),
            Some(WalMessage::End(StreamEnd::Timeline { .. })) => break End::TimelineEnd(at),
            Some(WalMessage::Keepalive(_)) | None => {}
        }
    };
    streaming.close();
    Ok((WalSummary { streamed: Some(began.elapsed()), ..wal.finish() }, end))
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
