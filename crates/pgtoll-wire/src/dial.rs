//! From an address to a connected socket.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, SetSockOpt, SockFlag, SockType, SockaddrStorage, UnixAddr, getsockopt,
    setsockopt, sockopt,
};

use crate::waiting::{time_left, time_out_unset, wait_readable, wait_writable};
use crate::{Error, Interruption, UnixEndpoint};

/// Connects to a server's socket. The standard library cannot bound how long that takes, and it
/// takes long when more clients connect than the server accepts.
pub(crate) fn dial_unix(
    endpoint: &UnixEndpoint,
    deadline: Option<Instant>,
    interruption: Option<&Interruption>,
) -> Result<UnixStream, Error> {
    let path = endpoint.socket_path();
    let Ok(address) = unix_address(&path) else {
        return Err(Error::SocketPath { path, limit: SOCKET_PATH_BYTES_MAX });
    };
    let stream =
        socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
            .map(UnixStream::from)
            .map_err(|errno| Error::Io { action: "make a socket", source: errno.into() })?;
    loop {
        let left = time_left(deadline)?;
        // The kernel tells nobody when such a socket can be connected, so one looks in between.
        let piece = interruption.map(|_| INTERRUPTIBLE);
        let patience = left.into_iter().chain(piece).min();
        stream.set_write_timeout(patience).map_err(time_out_unset)?;
        match socket::connect(stream.as_raw_fd(), &address) {
            Ok(()) => {
                stream.set_write_timeout(left).map_err(time_out_unset)?;
                return Ok(stream);
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) if patience.is_some() => {
                wait_readable(stream.as_fd(), Some(Duration::ZERO), interruption)?;
            }
            Err(errno) => {
                let address = path.display().to_string();
                return Err(Error::Connect { address, source: errno.into() });
            }
        }
    }
}

/// Refuses a socket at which another user's process listens, before anything is sent.
pub(crate) fn check_peer(
    stream: &UnixStream,
    endpoint: &UnixEndpoint,
    expected: u32,
) -> Result<(), Error> {
    let peer = getsockopt(stream, sockopt::PeerCredentials)
        .map_err(|errno| Error::Io { action: "ask whose socket it is", source: errno.into() })?;
    if peer.uid() == expected {
        return Ok(());
    }
    Err(Error::Peer { path: endpoint.socket_path(), actual: peer.uid(), expected })
}

/// As libpq has it, a name that begins with `@` is not in the file system.
fn unix_address(path: &Path) -> nix::Result<UnixAddr> {
    match path.as_os_str().as_encoded_bytes() {
        [b'@', name @ ..] => UnixAddr::new_abstract(name),
        _ => UnixAddr::new(path),
    }
}

/// Whether somebody made a socket with this name. Nobody may listen at it.
pub(crate) fn has_socket(endpoint: &UnixEndpoint) -> bool {
    fs::exists(endpoint.socket_path()).unwrap_or(false)
}

/// All addresses of a host: itself if it is one, those of `/etc/hosts`, else those that the
/// system's resolver knows, in its order.
pub(crate) fn resolve(
    host: &str,
    port: u16,
    interruption: Option<&Interruption>,
) -> Result<Vec<SocketAddr>, Error> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let unresolved =
        |source: io::Error| Error::Resolve { host: host.to_owned(), source: Box::new(source) };
    let known = listed(&fs::read("/etc/hosts").unwrap_or_default(), host);
    if !known.is_empty() {
        return Ok(known.into_iter().map(|address| SocketAddr::new(address, port)).collect());
    }
    // A static glibc would load modules of the machine's own glibc here, which may end in a crash.
    if cfg!(all(target_env = "gnu", target_feature = "crt-static")) {
        let reason = "this build looks names up in /etc/hosts only, so give hostaddr";
        return Err(unresolved(io::Error::other(reason)));
    }
    let addresses = look_up(host, port, interruption)?.map_err(unresolved)?;
    if addresses.is_empty() {
        return Err(unresolved(io::Error::other("no addresses")));
    }
    Ok(addresses)
}

/// Asks the system's resolver. It cannot be interrupted, so that another thread has to wait for it.
fn look_up(
    host: &str,
    port: u16,
    interruption: Option<&Interruption>,
) -> Result<io::Result<Vec<SocketAddr>>, Error> {
    let requested = (host.to_owned(), port);
    let resolve = move || requested.to_socket_addrs().map(Iterator::collect);
    if interruption.is_none() {
        return Ok(resolve());
    }
    let failed = |source| Error::Io { action: "look up a host", source };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let (sender, receiver) = mpsc::channel();
    let resolver = thread::Builder::new().name("resolver".to_owned());
    let spawned = resolver.spawn(move || {
        let _ = sender.send(resolve());
        drop(theirs);
    });
    spawned.map_err(failed)?;
    while !wait_readable(ours.as_fd(), None, interruption)? {}
    receiver.recv().map_err(|error| failed(io::Error::other(error)))
}

/// The addresses that a hosts file has for a name.
fn listed(file: &[u8], host: &str) -> Vec<IpAddr> {
    let text = String::from_utf8_lossy(file);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let address = words.next()?.parse().ok()?;
            words.any(|name| name.eq_ignore_ascii_case(host)).then_some(address)
        })
        .collect()
}

/// Connects over TCP, and asks the kernel to notice a host that vanished.
pub(crate) fn dial_tcp(
    address: SocketAddr,
    keepalives: &Keepalives,
    deadline: Option<Instant>,
    interruption: Option<&Interruption>,
) -> Result<TcpStream, Error> {
    let refused =
        |errno: Errno| Error::Connect { address: address.to_string(), source: errno.into() };
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = socket::socket(family, SockType::Stream, flags, None)
        .map(TcpStream::from)
        .map_err(|errno| Error::Io { action: "make a socket", source: errno.into() })?;
    match socket::connect(stream.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) => {}
        Err(Errno::EINPROGRESS | Errno::EINTR) => {
            while !wait_writable(stream.as_fd(), time_left(deadline)?, interruption)? {}
            match getsockopt(&stream, sockopt::SocketError).map_err(refused)? {
                0 => {}
                error => return Err(refused(Errno::from_raw(error))),
            }
        }
        Err(errno) => return Err(refused(errno)),
    }
    let unset = |source| Error::Io { action: "set an option of a socket", source };
    stream.set_nonblocking(false).map_err(unset)?;
    stream.set_nodelay(true).map_err(unset)?;
    keepalives.apply(&stream).map_err(|errno| unset(errno.into()))?;
    stream.set_write_timeout(time_left(deadline)?).map_err(time_out_unset)?;
    Ok(stream)
}

/// Keepalive settings of TCP. `None` leaves one to the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keepalives {
    pub(crate) on: bool,
    pub(crate) idle_s: Option<u32>,
    pub(crate) interval_s: Option<u32>,
    pub(crate) count: Option<u32>,
    pub(crate) user_timeout_ms: Option<u32>,
}

impl Keepalives {
    fn apply(&self, stream: &TcpStream) -> nix::Result<()> {
        if let Some(time) = self.user_timeout_ms {
            setsockopt(stream, sockopt::TcpUserTimeout, &time)?;
        }
        if !self.on {
            return Ok(());
        }
        setsockopt(stream, sockopt::KeepAlive, &true)?;
        set(stream, sockopt::TcpKeepIdle, self.idle_s)?;
        set(stream, sockopt::TcpKeepInterval, self.interval_s)?;
        set(stream, sockopt::TcpKeepCount, self.count)
    }
}

fn set<O: SetSockOpt<Val = u32>>(
    stream: &TcpStream,
    option: O,
    value: Option<u32>,
) -> nix::Result<()> {
    value.map_or(Ok(()), |value| setsockopt(stream, option, &value))
}

/// How often a wait that nothing else ends is looked at.
const INTERRUPTIBLE: Duration = Duration::from_millis(100);

/// A socket address holds 108 bytes, the last of which is zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_socket_path_is_refused() {
        let fits = "d".repeat(SOCKET_PATH_BYTES_MAX - "/.s.PGSQL.5432".len());
        let connected = dial_unix(&UnixEndpoint::new(fits.clone(), 5432), None, None);
        assert!(matches!(connected, Err(Error::Connect { .. })));
        let connected = dial_unix(&UnixEndpoint::new(fits + "d", 5432), None, None);
        assert!(matches!(connected, Err(Error::SocketPath { .. })));
    }

    #[test]
    fn names_of_the_hosts_file() {
        let file = b"127.0.0.1 localhost\n::1\tlocalhost ip6 # db\n\n10.0.0.1 DB\nx db\n\xff db\n";
        let check = |host, expected: &[&str]| {
            let expected: Vec<IpAddr> = expected.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(listed(file, host), expected, "{host}");
        };
        check("localhost", &["127.0.0.1", "::1"]);
        check("db", &["10.0.0.1"]);
        check("x", &[]);
        check("127.0.0.1", &[]);
    }

    #[test]
    fn addresses_need_no_resolver() {
        let found = |host| resolve(host, 5433, None).unwrap();
        assert_eq!(found("127.0.0.1"), ["127.0.0.1:5433".parse().unwrap()]);
        assert_eq!(found("::1"), ["[::1]:5433".parse().unwrap()]);
    }
}
