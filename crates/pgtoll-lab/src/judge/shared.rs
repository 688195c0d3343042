//! State that the threads of a run share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pgtoll_wire::Error;

use super::error::FileError;
use super::events::{EventLog, RunEvent};
use super::node::NodeTable;
use super::outcome::{code_name, code_of};

/// The state that the threads of a run share.
#[derive(Debug)]
pub(crate) struct JudgeState {
    /// The run's number, which no other run has.
    pub(crate) run: u64,
    /// Set when the clients are connected.
    began: OnceLock<Instant>,
    /// When each client is to be served once again, and then to end; `u64::MAX`: not yet.
    heal_from_ns: AtomicU64,
    stop: StopFlag,
    nodes: Mutex<NodeTable>,
    log: Mutex<LoggedEvents>,
    /// For each client: one more than the highest transaction that was acknowledged to it.
    acknowledged: Vec<AtomicU64>,
    /// The sum over all clients.
    pub(crate) acknowledged_total: AtomicU64,
    pub(crate) failed_total: AtomicU64,
    pub(crate) last_acknowledged_ns: AtomicU64,
}

#[derive(Debug)]
struct LoggedEvents {
    log: EventLog,
    error_codes: BTreeSet<String>,
    failure: Option<FileError>,
}

impl JudgeState {
    pub(crate) fn new(run: u64, clients: u32, log: EventLog) -> Self {
        let log = LoggedEvents { log, error_codes: BTreeSet::new(), failure: None };
        Self {
            run,
            began: OnceLock::new(),
            heal_from_ns: AtomicU64::new(u64::MAX),
            stop: StopFlag::default(),
            nodes: Mutex::default(),
            log: Mutex::new(log),
            acknowledged: (0..clients).map(|_| AtomicU64::new(0)).collect(),
            acknowledged_total: AtomicU64::new(0),
            failed_total: AtomicU64::new(0),
            last_acknowledged_ns: AtomicU64::new(0),
        }
    }

    /// The run begins now, unless it has begun.
    pub(crate) fn begin(&self) -> Instant {
        *self.began.get_or_init(Instant::now)
    }

    /// Nanoseconds from the begin of the run.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.begin().elapsed())
    }

    pub(crate) fn heal_from_ns(&self) -> u64 {
        self.heal_from_ns.load(Ordering::SeqCst)
    }

    pub(crate) fn begin_healing(&self, at_ns: u64) {
        self.heal_from_ns.store(at_ns, Ordering::SeqCst);
        self.stop.wake();
    }

    /// From now on no client begins another transaction.
    pub(crate) fn stop(&self) {
        self.stop.set();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// Waits until a time of the run, until healing begins at another time than this,
    /// or until the run is stopped.
    pub(crate) fn wait_until(&self, at_ns: u64, heal_from_ns: u64) {
        let at = self.begin() + Duration::from_nanos(at_ns);
        self.stop.wait_until(at, || self.heal_from_ns() != heal_from_ns);
    }

    /// The number of the server that said this of itself.
    pub(crate) fn node_number(&self, text: &str) -> Option<u16> {
        let (number, is_new) = locked(&self.nodes).number(text)?;
        if is_new {
            self.log(&RunEvent::Node { number, text: text.to_owned() });
        }
        Some(number)
    }

    /// Keeps the words of the first error of each kind.
    pub(crate) fn note_error(&self, error: &Error) -> [u8; 5] {
        let code = code_of(error);
        let name = code_name(code);
        let mut events = locked(&self.log);
        if events.error_codes.len() < ERROR_KINDS_MAX && events.error_codes.insert(name.clone()) {
            let message: String =
                pgtoll_system::error_chain(error).chars().take(WORDS_MAX).collect();
            drop(events);
            self.log(&RunEvent::Error { code: name, message });
        }
        code
    }

    /// Appends to the file of events. What cannot be written ends the run.
    pub(crate) fn log(&self, event: &RunEvent) {
        let mut events = locked(&self.log);
        if let Err(error) = events.log.append(event) {
            events.failure.get_or_insert(error);
            self.stop.set();
        }
    }

    /// Why the run cannot continue: no journal can be written.
    pub(crate) fn fail(&self, error: FileError) {
        locked(&self.log).failure.get_or_insert(error);
        self.stop.set();
    }

    pub(crate) fn take_failure(&self) -> Option<FileError> {
        locked(&self.log).failure.take()
    }

    /// A transaction was acknowledged to its client.
    pub(crate) fn acknowledge(&self, client: usize, sequence: u64, at_ns: u64) {
        if let Some(acknowledged) = self.acknowledged.get(client) {
            acknowledged.store(sequence + 1, Ordering::SeqCst);
        }
        self.acknowledged_total.fetch_add(1, Ordering::Relaxed);
        self.last_acknowledged_ns.fetch_max(at_ns, Ordering::Relaxed);
    }

    /// One more than the highest transaction that was acknowledged to the client.
    pub(crate) fn acknowledged_of(&self, client: usize) -> u64 {
        self.acknowledged.get(client).map_or(0, |acknowledged| acknowledged.load(Ordering::SeqCst))
    }
}

/// Kinds of errors whose words are kept.
const ERROR_KINDS_MAX: usize = 50;
/// Characters of an error's words that are kept.
const WORDS_MAX: usize = 300;

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    pgtoll_system::lock(mutex)
}

/// Ends waits.
#[derive(Debug, Default)]
struct StopFlag {
    is_set: AtomicBool,
    waiting: Mutex<()>,
    changed: Condvar,
}

impl StopFlag {
    fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        // Whoever looks at what changed holds the lock until it waits.
        drop(locked(&self.waiting));
        self.changed.notify_all();
    }

    /// Waits until then, until the flag is set, or until something is `over`.
    fn wait_until(&self, at: Instant, over: impl Fn() -> bool) {
        let mut waiting = locked(&self.waiting);
        while !self.is_set() && !over() {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
