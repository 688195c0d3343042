//! The stream below a connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, send};

use crate::tls::TlsStream;

/// A Unix socket, a TCP socket, or TLS over the latter.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Whether reading finds something that has already left the socket, so that waiting for the
    /// socket could be waiting for ever.
    pub(crate) fn has_decrypted(&self) -> bool {
        match self {
            Self::Unix(_) | Self::Tcp(_) => false,
            Self::Tls(stream) => stream.has_decrypted(),
        }
    }

    /// How much the socket takes without waiting, which is all where the server reads what it is sent:
    /// asking first whether it would costs a call for each question. Nothing of what has to be encrypted.
    pub(crate) fn send_at_once(&self, bytes: &[u8]) -> usize {
        let socket = match self {
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Tls(_) => return 0,
        };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        // An error shows again where the rest is sent.
        send(socket, bytes, flags).unwrap_or(0)
    }

    pub(crate) fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_write_timeout(time),
            Self::Tcp(stream) => stream.set_write_timeout(time),
            Self::Tls(stream) => stream.socket().set_write_timeout(time),
        }
    }

    /// Returns the value that SCRAM binds a password's proof to: nothing without TLS, or when the certificate's
    /// signature names no hash.
    pub(crate) fn end_point(&self) -> Option<&[u8]> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => None,
            Self::Tls(stream) => stream.end_point(),
        }
    }

    /// The server's address; `None` of a Unix socket.
    pub(crate) fn tcp_peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Tls(stream) => stream.socket().peer_addr().ok(),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(from),
            Self::Tcp(stream) => stream.write(from),
            Self::Tls(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.socket().as_fd(),
        }
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }
}
