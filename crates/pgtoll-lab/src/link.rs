//! A link between a server and its standby (or any client), over Unix sockets: what is sent arrives
//! after a delay, and the link can fall silent or be cut.
//!
//! A killed process still closes its sockets, and what it had handed to the kernel arrives. A host
//! that dies, or a cable, does neither: that is what a link of our own is for.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long bytes are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkDelay {
    /// From the server to the client: WAL on its way to a standby.
    pub to_client: Duration,
    /// From the client to the server: what a standby confirms.
    pub to_server: Duration,
}

/// The treatment of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// They arrive, each after the delay.
    Open,
    /// None arrive, and nobody is told: connections stay open.
    Silent,
    /// Connections are closed, what was under way is lost, new connections are closed at once.
    Cut,
}

/// A Unix socket that passes connections on. Closed when dropped.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    socket: PathBuf,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    server: PathBuf,
    control: Mutex<Control>,
    changed: Condvar,
}

#[derive(Debug)]
struct Control {
    state: LinkState,
    delay: LinkDelay,
    is_closed: bool,
    /// Both ends of each connection, to be shut down.
    streams: Vec<UnixStream>,
}

impl Link {
    /// Listens on the Unix socket `socket` and passes each connection on to the one of `server`.
    pub fn open(socket: &Path, server: &Path, delay: LinkDelay) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        // Servers run as another user; the directory is theirs alone.
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o777))?;
        let control =
            Control { state: LinkState::Open, delay, is_closed: false, streams: Vec::new() };
        let shared = Arc::new(Shared {
            server: server.to_owned(),
            control: Mutex::new(control),
            changed: Condvar::new(),
        });
        let accepting = shared.clone();
        let accept = move || accepting.accept_from(&listener);
        let acceptor = thread::Builder::new().name("link".into()).spawn(accept)?;
        Ok(Self { shared, socket: socket.to_owned(), acceptor: Some(acceptor) })
    }

    /// From now on for bytes that are sent later.
    pub fn set_delay(&self, delay: LinkDelay) {
        self.shared.lock().delay = delay;
    }

    /// Lets bytes through, or not.
    pub fn set_state(&self, state: LinkState) {
        let mut control = self.shared.lock();
        control.state = state;
        if state == LinkState::Cut {
            control.close_streams();
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        {
            let mut control = self.shared.lock();
            control.is_closed = true;
            control.state = LinkState::Cut;
            control.close_streams();
            self.shared.changed.notify_all();
        }
        // The acceptor waits for a connection.
        drop(UnixStream::connect(&self.socket));
        if let Some(acceptor) = self.acceptor.take() {
            // A panic there was reported there.
            let _ = acceptor.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Control {
    fn close_streams(&mut self) {
        for stream in self.streams.drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Control> {
        pgtoll_system::lock(&self.control)
    }

    fn accept_from(self: Arc<Self>, listener: &UnixListener) {
        for client in listener.incoming() {
            if self.lock().is_closed {
                return;
            }
            // A connection that cannot be passed on is closed, as a dead server's would be.
            if let Ok(client) = client {
                let _ = self.pass_on(client);
            }
        }
    }

    fn pass_on(self: &Arc<Self>, client: UnixStream) -> io::Result<()> {
        if self.lock().state == LinkState::Cut {
            return Ok(());
        }
        let server = UnixStream::connect(&self.server)?;
        let ends = [client.try_clone()?, server.try_clone()?];
        {
            let mut control = self.lock();
            if control.state == LinkState::Cut {
                return Ok(());
            }
            control.streams.extend(ends);
        }
        let back = (server.try_clone()?, client.try_clone()?);
        self.pump(client, server, |delay| delay.to_server)?;
        self.pump(back.0, back.1, |delay| delay.to_client)
    }

    /// Starts what carries bytes in one direction.
    fn pump(
        self: &Arc<Self>,
        from: UnixStream,
        to: UnixStream,
        delay: fn(&LinkDelay) -> Duration,
    ) -> io::Result<()> {
        let queue = Arc::new(Queue::default());
        let reading = self.clone();
        let filling = queue.clone();
        thread::Builder::new().spawn(move || reading.read_into(from, &filling, delay))?;
        let writing = self.clone();
        thread::Builder::new().spawn(move || writing.write_from(&queue, to))?;
        Ok(())
    }

    fn read_into(&self, mut from: UnixStream, queue: &Queue, delay: fn(&LinkDelay) -> Duration) {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let bytes = from.read(&mut buffer).unwrap_or(0);
            let due = Instant::now() + delay(&self.lock().delay);
            let is_end = bytes == 0;
            if !queue.push(Chunk { due, bytes: buffer[..bytes].to_vec() }) || is_end {
                return;
            }
        }
    }

    /// An empty chunk ends it.
    fn write_from(&self, queue: &Queue, mut to: UnixStream) {
        while let Some(chunk) = queue.pop() {
            let passes = self.wait_until(chunk.due);
            if !passes || chunk.bytes.is_empty() || to.write_all(&chunk.bytes).is_err() {
                break;
            }
        }
        queue.close();
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Until it is time and the link is open; `false` when it was cut.
    fn wait_until(&self, due: Instant) -> bool {
        let mut control = self.lock();
        loop {
            let left = due.saturating_duration_since(Instant::now());
            control = match control.state {
                LinkState::Cut => return false,
                LinkState::Open if left.is_zero() => return true,
                LinkState::Open => {
                    let waited = self.changed.wait_timeout(control, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                LinkState::Silent => {
                    self.changed.wait(control).unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

/// Bytes read at once, at most.
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes under way in one direction, at most: more wait with the sender, as in a full window.
const QUEUE_BYTES: usize = 64 << 20;

/// Bytes and when they arrive.
#[derive(Debug)]
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

/// The bytes under way in one direction.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    is_closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        pgtoll_system::lock(&self.waiting)
    }

    /// `false` when nobody takes it any more.
    fn push(&self, chunk: Chunk) -> bool {
        let mut waiting = self.lock();
        while waiting.bytes >= QUEUE_BYTES && !waiting.is_closed {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.is_closed {
            return false;
        }
        waiting.bytes += chunk.bytes.len();
        waiting.chunks.push_back(chunk);
        self.changed.notify_all();
        true
    }

    /// The next one, as soon as there is one; `None` when it is closed.
    fn pop(&self) -> Option<Chunk> {
        let mut waiting = self.lock();
        loop {
            if let Some(chunk) = waiting.chunks.pop_front() {
                waiting.bytes -= chunk.bytes.len();
                self.changed.notify_all();
                return Some(chunk);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server, a link to it, and both ends of a connection through it.
    fn connected(directory: &Path, delay: LinkDelay) -> (Link, UnixStream, UnixStream) {
        let server = directory.join("server");
        let socket = directory.join("link");
        let listener = UnixListener::bind(&server).unwrap();
        let link = Link::open(&socket, &server, delay).unwrap();
        let client = UnixStream::connect(&socket).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        (link, client, accepted)
    }

    fn read_text(stream: &mut UnixStream, bytes: usize) -> String {
        let mut buffer = vec![0; bytes];
        stream.read_exact(&mut buffer).unwrap();
        String::from_utf8(buffer).unwrap()
    }

    #[test]
    fn bytes_arrive_in_order_in_both_directions_and_not_before_the_delay() {
        let directory = tempfile::tempdir().unwrap();
        let to_client = Duration::from_millis(30);
        let delay = LinkDelay { to_client, to_server: Duration::ZERO };
        let (link, mut client, mut server) = connected(directory.path(), delay);
        client.write_all(b"ask").unwrap();
        assert_eq!(read_text(&mut server, 3), "ask");
        let sent = Instant::now();
        server.write_all(b"one ").unwrap();
        server.write_all(b"two").unwrap();
        assert_eq!(read_text(&mut client, 7), "one two");
        assert!(sent.elapsed() >= to_client, "{:?}", sent.elapsed());
        // An end is an end on the other side.
        drop(server);
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        drop(link);
        assert!(!directory.path().join("link").exists());
    }

    #[test]
    fn what_is_under_way_is_lost_with_a_cut_link() {
        let directory = tempfile::tempdir().unwrap();
        let delay = LinkDelay { to_client: Duration::ZERO, to_server: Duration::from_secs(3600) };
        let (link, mut client, mut server) = connected(directory.path(), delay);
        client.write_all(b"lost").unwrap();
        link.set_state(LinkState::Cut);
        // An end, or a reset where something was not read.
        let gets_nothing = |stream: &mut UnixStream| {
            let read = stream.read(&mut [0; 8]);
            assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        };
        gets_nothing(&mut server);
        gets_nothing(&mut client);
        gets_nothing(&mut UnixStream::connect(directory.path().join("link")).unwrap());
    }

    #[test]
    fn a_silent_link_says_nothing_until_it_is_open_again() {
        let directory = tempfile::tempdir().unwrap();
        let (link, mut client, mut server) = connected(directory.path(), LinkDelay::default());
        link.set_state(LinkState::Silent);
        client.write_all(b"later").unwrap();
        server.set_nonblocking(true).unwrap();
        let nothing = server.read(&mut [0; 8]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        link.set_state(LinkState::Open);
        server.set_nonblocking(false).unwrap();
        assert_eq!(read_text(&mut server, 5), "later");
    }
}
