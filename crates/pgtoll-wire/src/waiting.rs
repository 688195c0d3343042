//! Waiting for a server, until it answers, the time is over, or somebody interrupts.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{self, PollFd, PollFlags, PollTimeout};

use crate::Error;

/// Ends all waiting for servers of the connections that were given it
/// ([`Dsn::with_interruption`](crate::Dsn::with_interruption)), from another thread: they return
/// [`Error::Interrupted`]. Clones are one and the same.
#[derive(Debug, Clone)]
pub struct Interruption {
    /// When the second one is shut down, the first one can be read.
    sockets: Arc<(UnixStream, UnixStream)>,
    at: Option<Instant>,
}

impl Interruption {
    /// One that nothing has triggered yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { sockets: Arc::new(UnixStream::pair()?), at: None })
    }

    /// One that comes by itself after this time.
    pub fn after(time: Duration) -> io::Result<Self> {
        Ok(Self { at: Instant::now().checked_add(time), ..Self::new()? })
    }

    /// Ends all waiting, now and later.
    pub fn interrupt(&self) {
        // The other end is ours too, so it is there.
        let _ = self.sockets.1.shutdown(Shutdown::Both);
    }

    fn is_over(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.sockets.0.as_fd()
    }
}

pub(crate) fn time_left(deadline: Option<Instant>) -> Result<Option<Duration>, Error> {
    let Some(deadline) = deadline else {
        return Ok(None);
    };
    match deadline.checked_duration_since(Instant::now()) {
        // Zero would be no time-out at all, and so would what rounds to zero microseconds.
        Some(left) if left >= Duration::from_micros(1) => Ok(Some(left)),
        _ => Err(Error::ConnectTimeout),
    }
}

pub(crate) fn time_out_unset(source: io::Error) -> Error {
    Error::Io { action: "set the time-out of a socket", source }
}

/// Whether the socket can be read before the time is over, or a signal interrupts the call.
pub(crate) fn wait_readable(
    socket: BorrowedFd<'_>,
    patience: Option<Duration>,
    interruption: Option<&Interruption>,
) -> Result<bool, Error> {
    let waited = wait(socket, PollFlags::POLLIN, patience, interruption)?;
    // A server that never stops sending must not keep us from hearing it.
    if waited.is_interrupted { Err(Error::Interrupted) } else { Ok(waited.is_ready) }
}

/// Whether the socket can be written to before the time is over, or a signal interrupts the call.
/// What can be sent is sent, so that a farewell follows an interruption.
pub(crate) fn wait_writable(
    socket: BorrowedFd<'_>,
    patience: Option<Duration>,
    interruption: Option<&Interruption>,
) -> Result<bool, Error> {
    let waited = wait(socket, PollFlags::POLLOUT, patience, interruption)?;
    match waited {
        Waited { is_ready: false, is_interrupted: true } => Err(Error::Interrupted),
        Waited { is_ready, .. } => Ok(is_ready),
    }
}

struct Waited {
    is_ready: bool,
    is_interrupted: bool,
}

fn wait(
    socket: BorrowedFd<'_>,
    events: PollFlags,
    patience: Option<Duration>,
    interruption: Option<&Interruption>,
) -> Result<Waited, Error> {
    let left = interruption
        .and_then(|interruption| interruption.at)
        .map(|at| at.saturating_duration_since(Instant::now()));
    let patience = match patience.into_iter().chain(left).min() {
        // Rounded up, so that a millisecond's rest is not spent in a loop.
        Some(left) => {
            PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX)
        }
        None => PollTimeout::NONE,
    };
    let other = interruption.map_or(socket, Interruption::socket);
    let mut waits = [PollFd::new(socket, events), PollFd::new(other, PollFlags::POLLIN)];
    let count = if interruption.is_some() { 2 } else { 1 };
    match poll::poll(&mut waits[..count], patience) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => {
            return Err(Error::Io { action: "wait for the server", source: errno.into() });
        }
    }
    let happened = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
    Ok(Waited {
        is_ready: happened(&waits[0]),
        is_interrupted: interruption
            .is_some_and(|interruption| happened(&waits[1]) || interruption.is_over()),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn an_interruption_ends_waiting_at_once_and_for_ever() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let interruption = Interruption::new().unwrap();
        let readable = || wait_readable(ours.as_fd(), Some(Duration::ZERO), Some(&interruption));
        assert!(!readable().unwrap());
        theirs.write_all(b"x").unwrap();
        assert!(readable().unwrap());
        interruption.clone().interrupt();
        for _ in 0..2 {
            assert!(matches!(readable(), Err(Error::Interrupted)));
        }
        // A farewell can still be sent.
        assert!(wait_writable(ours.as_fd(), None, Some(&interruption)).unwrap());
        assert!(wait_readable(ours.as_fd(), None, None).unwrap());
    }

    #[test]
    fn an_interruption_comes_by_itself() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let interruption = Interruption::after(Duration::from_millis(1)).unwrap();
        let outcome = loop {
            match wait_readable(ours.as_fd(), None, Some(&interruption)) {
                Ok(false) => {}
                outcome => break outcome,
            }
        };
        assert!(matches!(outcome, Err(Error::Interrupted)));
    }
}
