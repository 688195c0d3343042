//! Addresses that clients connect to: a Unix socket like a server's, or a TCP port.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::str::FromStr;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;

use crate::relay::RelayEnd;
use crate::{Interruption, UnixEndpoint};

/// An address to listen on: `HOST:PORT`, `:PORT` (loopback), or the directory of a Unix socket with or without
/// `:PORT` (5432).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// The Unix socket that a server with this directory and port would make.
    Unix(UnixEndpoint),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl ListenAddress {
    /// Whether only processes of this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => address.ip().is_loopback(),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected HOST:PORT, :PORT, or a directory for a Unix socket";
        let (before, port) = match text.rsplit_once(':') {
            Some((before, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                (before, Some(digits.parse::<u16>().map_err(|_| FORM)?))
            }
            _ => (text, None),
        };
        if before.starts_with('/') {
            return Ok(Self::Unix(UnixEndpoint::new(before, port.unwrap_or(DEFAULT_PORT))));
        }
        let port = port.ok_or(FORM)?;
        if before.is_empty() {
            return Ok(Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        let host = before.trim_start_matches('[').trim_end_matches(']');
        let found = (host, port).to_socket_addrs().map_err(|error| error.to_string())?;
        found.into_iter().next().map(Self::Tcp).ok_or_else(|| FORM.to_owned())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(endpoint) => write!(formatter, "{}", endpoint.socket_path().display()),
            Self::Tcp(address) => write!(formatter, "{address}"),
        }
    }
}

/// PostgreSQL's.
const DEFAULT_PORT: u16 = 5432;

/// Listens for clients. A Unix socket is removed with it.
#[derive(Debug)]
pub struct ClientListener {
    socket: Socket,
    address: ListenAddress,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl ClientListener {
    /// Listens. Every user of the machine may connect to a Unix socket, as to a server's. The socket of a
    /// process that was killed is replaced.
    pub fn bind(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Unix(endpoint) => {
                let path = endpoint.socket_path();
                let socket = match UnixListener::bind(&path) {
                    Err(error) if error.kind() == ErrorKind::AddrInUse && is_left(endpoint) => {
                        fs::remove_file(&path)?;
                        UnixListener::bind(&path)?
                    }
                    bound => bound?,
                };
                fs::set_permissions(&path, Permissions::from_mode(0o777))?;
                socket.set_nonblocking(true)?;
                Ok(Self { socket: Socket::Unix(socket), address: address.clone() })
            }
            ListenAddress::Tcp(wanted) => {
                let socket = TcpListener::bind(wanted)?;
                socket.set_nonblocking(true)?;
                let address = ListenAddress::Tcp(socket.local_addr()?);
                Ok(Self { socket: Socket::Tcp(socket), address })
            }
        }
    }

    /// Returns its address; for port 0 the port that the system chose.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Waits for the next client; `None` after the interruption. A client that is gone again, or for which
    /// there is no file descriptor, is passed over.
    pub fn accept(&self, interruption: &Interruption) -> io::Result<Option<RelayEnd>> {
        loop {
            if !self.wait(interruption)? {
                return Ok(None);
            }
            let accepted = match &self.socket {
                Socket::Unix(socket) => {
                    socket.accept().and_then(|(client, _)| RelayEnd::of_unix(client))
                }
                Socket::Tcp(socket) => {
                    socket.accept().and_then(|(client, _)| RelayEnd::of_tcp(client))
                }
            };
            match accepted {
                Ok(client) => return Ok(Some(client)),
                Err(error) if is_out_of_descriptors(&error) => {
                    let until_one_is_closed = PollTimeout::from(100_u8);
                    wait_for(&mut [interruption.socket()], until_one_is_closed)?;
                }
                Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(error),
                Err(_) => {}
            }
        }
    }

    fn wait(&self, interruption: &Interruption) -> io::Result<bool> {
        let socket = match &self.socket {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket) => socket.as_fd(),
        };
        loop {
            let found = wait_for(&mut [socket, interruption.socket()], PollTimeout::NONE)?;
            if found[1] {
                return Ok(false);
            }
            if found[0] {
                return Ok(true);
            }
        }
    }
}

impl Drop for ClientListener {
    fn drop(&mut self) {
        if let ListenAddress::Unix(endpoint) = &self.address {
            // Somebody may have removed it before.
            let _ = fs::remove_file(endpoint.socket_path());
        }
    }
}

/// Waits until one of these can be read.
fn wait_for(sockets: &mut [BorrowedFd<'_>], timeout: PollTimeout) -> io::Result<Vec<bool>> {
    let mut waits: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::new(*socket, PollFlags::POLLIN)).collect();
    match poll(&mut waits, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(waits.iter().map(|wait| wait.any().unwrap_or(false)).collect())
}

/// Whether a socket of this user has no process that listens any more.
fn is_left(endpoint: &UnixEndpoint) -> bool {
    let path = endpoint.socket_path();
    let is_ours = fs::symlink_metadata(&path).is_ok_and(|metadata| {
        metadata.file_type().is_socket() && metadata.uid() == geteuid().as_raw()
    });
    let refused = UnixStream::connect(&path);
    is_ours && refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let unix = |directory: &str, port| ListenAddress::Unix(UnixEndpoint::new(directory, port));
        let tcp = |text: &str| ListenAddress::Tcp(text.parse().unwrap());
        let check = |text: &str, expected| assert_eq!(text.parse(), Ok(expected), "{text}");
        check("/run/capture", unix("/run/capture", 5432));
        check("/run/capture:6432", unix("/run/capture", 6432));
        check(":6432", tcp("127.0.0.1:6432"));
        check("127.0.0.1:0", tcp("127.0.0.1:0"));
        check("[::1]:6432", tcp("[::1]:6432"));
        check("0.0.0.0:6432", tcp("0.0.0.0:6432"));
        for wrong in ["", "localhost", "relative/directory", "/run:99999", ":x", "::"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
        assert!(!tcp("0.0.0.0:6432").is_local() && unix("/run", 1).is_local());
    }

    #[test]
    fn a_socket_that_was_left_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = UnixEndpoint::new(directory.path(), 5432);
        let address = ListenAddress::Unix(endpoint.clone());
        // The standard library's listener leaves its file.
        drop(UnixListener::bind(endpoint.socket_path()).unwrap());
        let listener = ClientListener::bind(&address).unwrap();
        let again = ClientListener::bind(&address).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        let client = UnixStream::connect(endpoint.socket_path()).unwrap();
        let interruption = Interruption::new().unwrap();
        assert!(listener.accept(&interruption).unwrap().is_some());
        interruption.interrupt();
        assert!(listener.accept(&interruption).unwrap().is_none());
        drop((client, listener));
        assert!(!endpoint.socket_path().exists());
    }
}
