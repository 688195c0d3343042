//! Captures work from the protocol: a proxy between clients and their server that writes a plan.
//!
//! Bytes are passed on first and looked at afterwards. Whatever becomes of the capture, the connections continue.

mod findings;
mod observer;
mod session;
mod splitter;
mod startup;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex};
use std::thread::{Builder, Scope, scope};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::geteuid;
use pgtoll_record::{LogSource, Provenance};
use pgtoll_system::Interrupt;
use pgtoll_wire::{ClientListener, Dsn, Interruption};

use crate::ReplayError;
use crate::user_types::read_user_types;
use crate::values::UserType;
use crate::workload::{PlanHeader, WireCounts};
pub(crate) use findings::findings;
use observer::{Mark, SessionObserver};
use session::serve;
use writer::{CaptureEvent, CaptureState, Written, write_plan};

/// A capture that is to be made.
#[derive(Debug)]
pub struct WireCapture<'a> {
    /// The listener for clients.
    pub listener: &'a ClientListener,
    /// The server. Clients bring their own roles, databases and passwords.
    pub dsn: &'a Dsn,
    /// The provenance in the plan.
    pub provenance: &'a Provenance,
    /// The most bytes of data of a `COPY … FROM STDIN` that are kept; none of those that have more.
    pub copy_data_max: usize,
}

/// How far a capture is.
#[derive(Clone, Copy, Debug)]
pub struct CaptureProgress<'a> {
    /// Connections that are open.
    pub connections: usize,
    /// Steps that were captured.
    pub steps: u64,
    /// Why nothing is captured any more, once that is so. Connections continue.
    pub lost: Option<&'a str>,
}

/// The result of a capture.
#[derive(Debug)]
pub struct WireCaptured {
    /// The plan's header, with what was counted.
    pub header: PlanHeader,
    /// Why the plan is not complete, if it is not.
    pub lost: Option<String>,
}

/// The state that the sessions of a capture share.
struct CaptureContext<'a> {
    dsn: Dsn,
    own_uid: u32,
    /// As [`WireCapture::copy_data_max`].
    copy_data_max: usize,
    begun: Instant,
    state: &'a CaptureState,
    /// Asks sessions to end when the server has answered, and all to end at once.
    stop: Interruption,
    stop_now: Interruption,
    ids: AtomicU64,
    bytes: AtomicU64,
    wire: Mutex<WireCounts>,
    connections: Mutex<usize>,
    changed: Condvar,
}

impl WireCapture<'_> {
    /// Passes connections on and writes what they do into `plan`, until a signal comes. Sessions then end
    /// when the server has answered what it was asked, or after five seconds.
    ///
    /// `progress` is called when clients are served, and now and then. An error is one before the first
    /// connection; what happens later is in the result.
    pub fn run(
        &self,
        plan: impl Write + Send,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(CaptureProgress<'_>),
    ) -> Result<WireCaptured, ReplayError> {
        let failed = |action: &str| {
            let action = action.to_owned();
            move |source| ReplayError::Server { action, source: Box::new(source) }
        };
        let dsn = self.dsn.with_default_connect_timeout(CONNECT_TIMEOUT);
        // A server that cannot be reached is told now, and not to each client.
        drop(dsn.connect_relayed().map_err(failed("reach the server"))?);
        let pair = || {
            Interruption::new().map_err(|source| {
                let action = "make a pair of sockets";
                failed(action)(pgtoll_wire::Error::Io { action, source })
            })
        };
        raise_file_limit();
        let state = CaptureState::default();
        let stop_now = pair()?;
        let context = CaptureContext {
            dsn: dsn.with_interruption(&stop_now),
            own_uid: geteuid().as_raw(),
            copy_data_max: self.copy_data_max,
            begun: Instant::now(),
            state: &state,
            stop: pair()?,
            stop_now,
            ids: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            wire: Mutex::default(),
            connections: Mutex::new(0),
            changed: Condvar::new(),
        };
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let header = PlanHeader {
            version: self.provenance.version.clone(),
            made: self.provenance.made.clone(),
            begin_us: since_1970
                .map_or(0, |since_1970| i64::try_from(since_1970.as_micros()).unwrap_or_default()),
            wire: Some(WireCounts::default()),
            ..PlanHeader::default()
        };
        let header = self.run_threads(&context, &header, plan, interrupt, progress)?;
        Ok(WireCaptured { header, lost: state.lost_reason().map(str::to_owned) })
    }

    fn run_threads(
        &self,
        context: &CaptureContext<'_>,
        header: &PlanHeader,
        plan: impl Write + Send,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(CaptureProgress<'_>),
    ) -> Result<PlanHeader, ReplayError> {
        let (sender, events) = channel();
        let refused = |source| ReplayError::Thread { session: 0, source };
        scope(|scope| {
            let writing = move || {
                let complete = |written: &Written| self.complete(context, header, written);
                write_plan(plan, header, &events, context.state, complete)
            };
            let writer = Builder::new().name("plan".to_owned()).spawn_scoped(scope, writing);
            let writer = writer.map_err(refused)?;
            let listener = self.listener;
            let accepting = move || accept_clients(scope, context, listener, &sender);
            let acceptor = Builder::new().name("clients".to_owned());
            acceptor.spawn_scoped(scope, accepting).map_err(refused)?;
            progress(context.progress());
            while interrupt.wait(SHOW_INTERVAL).is_ok() {
                progress(context.progress());
            }
            context.stop.interrupt();
            context.await_sessions(DRAIN_TIME);
            context.stop_now.interrupt();
            Ok(writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    /// Looks types up as the capture's own role.
    fn user_types(
        &self,
        database: &str,
        oids: &BTreeSet<u32>,
    ) -> Result<Vec<UserType>, pgtoll_wire::Error> {
        let dsn = self.dsn.with_default_connect_timeout(CONNECT_TIMEOUT);
        let mut connection = dsn.with_database(database).connect()?;
        let types = read_user_types(&mut connection, oids)?;
        connection.close();
        Ok(types)
    }

    /// The header at the capture's end.
    fn complete(
        &self,
        context: &CaptureContext<'_>,
        header: &PlanHeader,
        written: &Written,
    ) -> PlanHeader {
        let mut wire = context.wire().clone();
        let mut types = BTreeMap::new();
        for (database, oids) in &written.types {
            match self.user_types(database, oids) {
                Ok(found) => drop(types.insert(database.clone(), found)),
                // The capture's own role may not be let in where clients are.
                Err(_) => wire.databases_without_types += 1,
            }
        }
        let source = LogSource {
            name: self.dsn.redacted(),
            format: "protocol 3".to_owned(),
            bytes: context.bytes.load(Ordering::Relaxed),
            entries: written.counts.entries,
            ..LogSource::default()
        };
        PlanHeader {
            sources: vec![source],
            length_us: context.elapsed_us(),
            counts: written.counts.clone(),
            types,
            wire: Some(wire),
            ..header.clone()
        }
    }
}

impl CaptureContext<'_> {
    fn mark(&self) -> Mark {
        let at_us = self.elapsed_us();
        Mark { number: self.state.number.fetch_add(1, Ordering::SeqCst), at_us }
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn wire(&self) -> std::sync::MutexGuard<'_, WireCounts> {
        pgtoll_system::lock(&self.wire)
    }

    fn count_connection(&self, change: impl FnOnce(&mut usize)) {
        change(&mut pgtoll_system::lock(&self.connections));
        self.changed.notify_all();
    }

    fn progress(&self) -> CaptureProgress<'_> {
        CaptureProgress {
            connections: *pgtoll_system::lock(&self.connections),
            steps: self.state.steps.load(Ordering::Relaxed),
            lost: self.state.lost_reason(),
        }
    }

    /// Waits until no session is left, or the time is over.
    fn await_sessions(&self, longest: Duration) {
        let connections = pgtoll_system::lock(&self.connections);
        // Whether the time was over makes no difference.
        drop(self.changed.wait_timeout_while(connections, longest, |open| *open > 0));
    }
}

/// Starts a thread for each client. A client for which there is none is closed.
fn accept_clients<'scope>(
    scope: &'scope Scope<'scope, '_>,
    context: &'scope CaptureContext<'_>,
    listener: &ClientListener,
    sender: &Sender<CaptureEvent>,
) {
    while let Ok(Some(client)) = listener.accept(&context.stop) {
        let id = context.ids.fetch_add(1, Ordering::Relaxed);
        let sender = sender.clone();
        context.count_connection(|open| *open += 1);
        let work = move || {
            serve(context, id, client, &sender);
            context.count_connection(|open| *open -= 1);
        };
        let name = format!("client {}", id + 1);
        if Builder::new().name(name).spawn_scoped(scope, work).is_err() {
            context.count_connection(|open| *open -= 1);
        }
    }
}

/// Each client takes two file descriptors. What the system allows is as good as it gets.
fn raise_file_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// How a session's messages are read, for tests and the fuzzer: pieces of bytes in turn, each with whether
/// it is the client's. Returns the steps' number, and whether the messages were understood to their end.
#[doc(hidden)]
pub fn examine_messages<'a>(pieces: impl IntoIterator<Item = (bool, &'a [u8])>) -> (usize, bool) {
    let mut observer = SessionObserver::new(64);
    let mut is_understood = true;
    for (number, (is_client, bytes)) in (1_u64..).zip(pieces) {
        let mark = Mark { number, at_us: number };
        let outcome =
            if is_client { observer.sent(bytes, mark) } else { observer.received(bytes, mark) };
        if outcome.is_err() {
            is_understood = false;
            break;
        }
    }
    observer.end();
    (observer.take_steps().len(), is_understood)
}

/// How long a client waits for the server to be reached, unless the connection string says how long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long statements continue after the signal.
const DRAIN_TIME: Duration = Duration::from_secs(5);

const SHOW_INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
