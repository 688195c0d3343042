//! Connections that are passed on: two ends, and bytes between them without waiting.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use std::time::Duration;

use crate::Interruption;
use crate::stream::Stream;

/// One end of a connection that is passed on. No call of it waits; [`await_traffic`] does.
#[derive(Debug)]
pub struct RelayEnd {
    stream: Stream,
    /// Bytes that the socket has not taken yet, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// Nothing more comes from here.
    has_ended: bool,
    /// The peer is gone: what is sent to it is dropped.
    is_gone: bool,
}

/// Returns the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayPeer {
    /// A process on this machine, of the user with this number.
    Unix {
        /// The user's number.
        uid: u32,
    },
    /// A host.
    Tcp {
        /// Its address.
        address: IpAddr,
    },
}

/// The result of [`await_traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayTraffic {
    /// The first end may have bytes, or its end.
    pub first_readable: bool,
    /// So may the second one.
    pub second_readable: bool,
    /// The interruption came.
    pub is_interrupted: bool,
}

impl RelayEnd {
    pub(crate) fn over(stream: impl Into<Stream>) -> io::Result<Self> {
        let stream = stream.into();
        match &stream {
            Stream::Unix(socket) => socket.set_nonblocking(true)?,
            Stream::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
            }
            Stream::Tls(tls) => tls.socket().set_nonblocking(true)?,
        }
        Ok(Self { stream, unsent: Vec::new(), sent: 0, has_ended: false, is_gone: false })
    }

    /// The end of a client's TCP connection.
    pub fn of_tcp(socket: TcpStream) -> io::Result<Self> {
        Self::over(Stream::Tcp(socket))
    }

    /// The end of a Unix socket.
    pub fn of_unix(socket: UnixStream) -> io::Result<Self> {
        Self::over(Stream::Unix(socket))
    }

    /// Returns the peer.
    pub fn peer(&self) -> io::Result<RelayPeer> {
        match &self.stream {
            Stream::Unix(socket) => {
                let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
                Ok(RelayPeer::Unix { uid: credentials.uid() })
            }
            Stream::Tcp(socket) => Ok(RelayPeer::Tcp { address: socket.peer_addr()?.ip() }),
            Stream::Tls(tls) => Ok(RelayPeer::Tcp { address: tls.socket().peer_addr()?.ip() }),
        }
    }

    /// Whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.stream.is_tls()
    }

    /// Reads what is there: `None` when nothing is, `Some(0)` at the end of the connection, and from
    /// then on.
    pub fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        if self.has_ended {
            return Some(0);
        }
        let received = match &mut self.stream {
            Stream::Tls(tls) => tls.receive_now(into),
            other => other.read(into),
        };
        match received {
            Ok(length) if length > 0 => Some(length),
            Err(error) if is_not_yet(&error) => None,
            // A connection that breaks has ended, too.
            Ok(_) | Err(_) => {
                self.has_ended = true;
                Some(0)
            }
        }
    }

    /// Whether the other side has nothing more to say.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Sends what the socket takes and keeps the rest for [`send_rest`](Self::send_rest). To a peer that
    /// is gone nothing is sent.
    pub fn send(&mut self, bytes: &[u8]) {
        if self.is_gone {
            return;
        }
        let sent = if self.unsent() == 0 { self.send_now(bytes) } else { 0 };
        if !self.is_gone {
            self.unsent.extend_from_slice(&bytes[sent..]);
        }
    }

    /// Sends more of what was kept.
    pub fn send_rest(&mut self) {
        if self.unsent() > 0 {
            let rest = std::mem::take(&mut self.unsent);
            self.sent += self.send_now(&rest[self.sent..]);
            self.unsent = rest;
            if self.is_gone || self.sent == self.unsent.len() {
                self.unsent.clear();
                self.sent = 0;
            }
        } else if let Stream::Tls(tls) = &mut self.stream
            && let Err(error) = tls.flush()
            && !is_not_yet(&error)
        {
            self.is_gone = true;
        }
    }

    fn send_now(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            let taken = match &mut self.stream {
                Stream::Tls(tls) => tls.send_now(&bytes[sent..]),
                other => other.write(&bytes[sent..]),
            };
            match taken {
                Ok(length) if length > 0 => sent += length,
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_not_yet(&error) => break,
                Err(_) => {
                    self.is_gone = true;
                    return bytes.len();
                }
            }
        }
        sent
    }

    /// Bytes that the socket did not take yet.
    pub fn unsent(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Says to the peer that nothing more comes.
    pub fn end_sending(&mut self) {
        // The peer may be gone.
        match &mut self.stream {
            Stream::Unix(socket) => drop(socket.shutdown(Shutdown::Write)),
            Stream::Tcp(socket) => drop(socket.shutdown(Shutdown::Write)),
            Stream::Tls(tls) => tls.end_sending(),
        }
    }

    fn wants_to_send(&self) -> bool {
        let of_tls = matches!(&self.stream, Stream::Tls(tls) if tls.wants_write());
        !self.is_gone && (self.unsent() > 0 || of_tls)
    }

    fn events(&self, reads: bool) -> PollFlags {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, reads && !self.has_ended);
        events.set(PollFlags::POLLOUT, self.wants_to_send());
        events
    }
}

impl AsFd for RelayEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits until an end has bytes, or takes some that were kept, or the interruption comes, or the time is
/// over. `reads` says of each end whether it is read from; what was kept is sent.
pub fn await_traffic(
    first: &mut RelayEnd,
    mut second: Option<&mut RelayEnd>,
    reads: [bool; 2],
    interruption: &Interruption,
    patience: Option<Duration>,
) -> io::Result<RelayTraffic> {
    let wanted = [
        first.events(reads[0]),
        second.as_ref().map_or(PollFlags::empty(), |end| end.events(reads[1])),
    ];
    let is_decrypted = [
        first.stream.has_decrypted(),
        second.as_ref().is_some_and(|end| end.stream.has_decrypted()),
    ];
    let is_there = [0, 1].map(|at| is_decrypted[at] && wanted[at].contains(PollFlags::POLLIN));
    let timeout = match patience {
        _ if is_there[0] || is_there[1] => PollTimeout::ZERO,
        Some(time) => {
            PollTimeout::try_from(time + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX)
        }
        None => PollTimeout::NONE,
    };
    let ends = [Some(&*first), second.as_deref()];
    let found = poll_ends(ends, wanted, interruption, timeout)?;
    if found[0] {
        first.send_rest();
    }
    if found[1]
        && let Some(second) = &mut second
    {
        second.send_rest();
    }
    let readable =
        |at: usize| is_there[at] || (found[at] && wanted[at].contains(PollFlags::POLLIN));
    Ok(RelayTraffic {
        first_readable: readable(0),
        second_readable: readable(1),
        is_interrupted: found[2],
    })
}

/// Polls both ends and the interruption.
fn poll_ends(
    ends: [Option<&RelayEnd>; 2],
    wanted: [PollFlags; 2],
    interruption: &Interruption,
    timeout: PollTimeout,
) -> io::Result<[bool; 3]> {
    let mut waits = vec![PollFd::new(interruption.socket(), PollFlags::POLLIN)];
    let mut places = [None; 2];
    for ((place, end), wanted) in places.iter_mut().zip(ends).zip(wanted) {
        // An end from which nothing is wanted would report its hang-up again and again.
        if let Some(end) = end.filter(|_| !wanted.is_empty()) {
            *place = Some(waits.len());
            waits.push(PollFd::new(end.as_fd(), wanted));
        }
    }
    match poll(&mut waits, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let happened = |at: usize| waits[at].any().unwrap_or(false);
    let at_end = |place: Option<usize>| place.is_some_and(happened);
    Ok([at_end(places[0]), at_end(places[1]), happened(0)])
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end, and the peer's socket.
    fn end() -> (RelayEnd, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (RelayEnd::of_unix(ours).unwrap(), theirs)
    }

    #[test]
    fn what_the_socket_does_not_take_is_kept_and_sent_later() {
        let (mut first, mut theirs) = end();
        let (mut second, _other) = end();
        let sent: Vec<u8> = (0..4_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        first.send(&sent);
        assert!(first.unsent() > 0);
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            theirs.read_to_end(&mut received).unwrap();
            received
        });
        let never = Interruption::new().unwrap();
        while first.unsent() > 0 {
            await_traffic(&mut first, Some(&mut second), [true; 2], &never, None).unwrap();
        }
        first.end_sending();
        assert!(reader.join().unwrap() == sent);
    }

    #[test]
    fn a_peer_that_is_gone_ends_the_connection() {
        let (mut first, theirs) = end();
        let (mut second, _other) = end();
        assert_eq!(first.receive(&mut [0; 8]), None);
        drop(theirs);
        let never = Interruption::new().unwrap();
        let found = await_traffic(&mut first, Some(&mut second), [true; 2], &never, None).unwrap();
        assert!(found.first_readable && !found.second_readable, "{found:?}");
        assert_eq!((first.receive(&mut [0; 8]), first.has_ended()), (Some(0), true));
        first.send(b"into the void");
        assert_eq!(first.unsent(), 0);
    }

    #[test]
    fn an_interruption_ends_waiting() {
        let (mut first, _theirs) = end();
        let (mut second, _other) = end();
        let interruption = Interruption::new().unwrap();
        interruption.interrupt();
        let found = await_traffic(&mut first, Some(&mut second), [true; 2], &interruption, None);
        let found = found.unwrap();
        let expected = RelayTraffic { is_interrupted: true, ..RelayTraffic::default() };
        assert_eq!(found, expected);
    }
}
