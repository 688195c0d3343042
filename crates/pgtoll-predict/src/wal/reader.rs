//! The thread that reads WAL.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use pgtoll_format::wal::{Parts, Record};
use pgtoll_format::{ByteSize, Lsn};
use pgtoll_observe::LocalSession;
use pgtoll_system::Interrupt;
use pgtoll_wal::{
    Answer, Collect, End, ServerError, StreamProgress, StreamWatch, Streamed, WalSummary,
    WhatIfCollector, stream_watched,
};
use pgtoll_wire::Dsn;

use crate::PredictError;
use crate::wal::interim::Interim;
use crate::wal::plan::WalQuestion;

/// The summary of the WAL that was read.
#[derive(Debug)]
pub(crate) struct ReadWal {
    pub(crate) streamed: Streamed<Answer>,
    /// CPU of the walsender.
    pub(crate) sender_cpu_s: Option<f64>,
    /// Why it ended before it was asked to.
    pub(crate) ended: Option<String>,
}

/// Ends reading.
#[derive(Debug)]
pub(crate) struct Stop(AtomicU64);

impl Default for Stop {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Stop {
    /// Ends it when this has come; `None`: now.
    pub(crate) fn at(&self, until: Option<Lsn>) {
        self.0.store(until.map_or(0, |until| until.0), Ordering::Relaxed);
    }

    /// Ends it at once when the result is dropped.
    pub(crate) fn when_dropped(&self) -> StopsWhenDropped<'_> {
        StopsWhenDropped(self)
    }

    /// Up to where to read, once that is known.
    fn until(&self) -> Option<Lsn> {
        let until = self.0.load(Ordering::Relaxed);
        (until != u64::MAX).then_some(Lsn(until))
    }
}

/// See [`Stop::when_dropped`].
pub(crate) struct StopsWhenDropped<'a>(&'a Stop);

impl Drop for StopsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.at(None);
    }
}

/// Reads WAL on a thread of its own.
pub(crate) struct WalReader<'a> {
    pub(crate) dsn: &'a Dsn,
    pub(crate) asked: &'a WalQuestion,
    /// The process of the server, if it runs on this machine.
    pub(crate) postmaster: Option<i32>,
    pub(crate) stop: &'a Stop,
    pub(crate) interrupt: &'a Interrupt,
    /// The place for interim results.
    pub(crate) interim: &'a Interim<ReadWal>,
}

/// The memory for the blocks of the WAL; beside them at most half as much waits for a
/// redo point, on versions before 17.
const MEMORY: u64 = 1 << 30;
/// How long what the server has written until the end is waited for.
const REST: Duration = Duration::from_secs(30);
/// How often the walsender's CPU is read: the last reading counts when it has ended.
const CPU_PAUSE: Duration = Duration::from_secs(1);
/// Between two tries to connect again, and how many of them there are until WAL has to come.
const RETRY: Duration = Duration::from_secs(1);
const RETRIES: u32 = 60;
/// Longer than any watch.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

impl<'a> WalReader<'a> {
    /// Starts the thread, and waits until the server sends. `remedy`: what the role may be missing.
    pub(crate) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        remedy: &str,
    ) -> Result<ScopedJoinHandle<'scope, Result<ReadWal, PredictError>>, PredictError>
    where
        'a: 'scope,
    {
        let (started, starts) = sync_channel(1);
        let refused = remedy.to_owned();
        let running = Builder::new()
            .name("wal".to_owned())
            .spawn_scoped(scope, move || self.read(&started, refused))
            .map_err(PredictError::Thread)?;
        if starts.recv().is_err() {
            // It has ended without having read anything.
            super::joined(running)?;
            return Err(pgtoll_wire::Error::Interrupted.into());
        }
        Ok(running)
    }

    fn read(self, started: &SyncSender<()>, remedy: String) -> Result<ReadWal, PredictError> {
        let memory = Arc::new(AtomicU64::new(0));
        let question = self.asked.question.clone();
        let measured = memory.clone();
        let new = move || MeasuredWhatIf {
            whatif: WhatIfCollector::new(question.clone()),
            memory: measured.clone(),
        };
        let mut watch = ReadingWatch::new(&self, &memory, started);
        let streamed = stream_watched(self.dsn, Some(LONGEST), new, &mut watch);
        let streamed = streamed.map_err(|error| refusal(error, remedy))?;
        let Streamed { summary, redo, resumed, end } = streamed;
        let ended = watch.ended.take().or_else(|| match &end {
            Ok(End::Interrupted | End::Asked(_)) => None,
            Ok(end) => Some(end.to_string()),
            Err(error) => Some(error.to_string()),
        });
        let sender_cpu_s = watch.cpu_s();
        let summary = summary.map(|summary| summary.whatif.finish());
        let streamed = Streamed { summary, redo, resumed, end };
        Ok(ReadWal { streamed, sender_cpu_s, ended })
    }
}

/// Returns the refusal of a role that may not stream.
fn refusal(error: ServerError, remedy: String) -> PredictError {
    match &error {
        ServerError::Replication(source)
            if matches!(source.sqlstate(), Some("28000" | "42501")) =>
        {
            PredictError::Refused { error, remedy }
        }
        _ => PredictError::Wal(error),
    }
}

/// Decides whether reading continues, and follows what it costs.
struct ReadingWatch<'a> {
    stop: &'a Stop,
    interrupt: &'a Interrupt,
    interim: &'a Interim<ReadWal>,
    memory: &'a AtomicU64,
    started: &'a SyncSender<()>,
    began: Instant,
    postmaster: Option<i32>,
    sender: Option<(i32, LocalSession)>,
    /// The CPU time of the sender, and of those before it.
    cpu_ns: Option<u64>,
    earlier_cpu_ns: u64,
    cpu_read: Option<Instant>,
    stopped: Option<Instant>,
    /// Tries to connect since WAL came the last time, up to where.
    tries: u32,
    at: Lsn,
    resumed: u32,
    ended: Option<String>,
}

impl<'a> ReadingWatch<'a> {
    fn new(reader: &WalReader<'a>, memory: &'a AtomicU64, started: &'a SyncSender<()>) -> Self {
        Self {
            stop: reader.stop,
            interrupt: reader.interrupt,
            interim: reader.interim,
            memory,
            started,
            began: Instant::now(),
            postmaster: reader.postmaster,
            sender: None,
            cpu_ns: None,
            earlier_cpu_ns: 0,
            cpu_read: None,
            stopped: None,
            tries: 0,
            at: Lsn(0),
            resumed: 0,
            ended: None,
        }
    }

    /// Whether it ends here.
    fn follow(&mut self, progress: &StreamProgress) -> ControlFlow<()> {
        self.resumed = progress.resumed;
        if progress.at > self.at {
            (self.at, self.tries) = (progress.at, 0);
        }
        let until = self.stop.until();
        let is_over = until.is_some_and(|until| progress.at >= until) || self.is_given_up(until);
        let memory = self.memory.load(Ordering::Relaxed);
        if memory > MEMORY {
            let limit = ByteSize(MEMORY).rounded();
            self.ended =
                Some(format!("the blocks that were named took more than {limit} of memory"));
        }
        let ends = is_over || memory > MEMORY || self.interrupt.signal().is_some();
        let is_due = self.cpu_read.is_none_or(|read| read.elapsed() >= CPU_PAUSE);
        if ends || is_due {
            self.read_cpu(progress.sender_pid);
        }
        if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The rest does not come in time.
    fn is_given_up(&mut self, until: Option<Lsn>) -> bool {
        until.is_some() && self.stopped.get_or_insert_with(Instant::now).elapsed() > REST
    }

    /// A server elsewhere may have a process of the same number.
    fn read_cpu(&mut self, pid: i32) {
        self.cpu_read = Some(Instant::now());
        let Some(postmaster) = self.postmaster else { return };
        if self.sender.is_none_or(|(known, _)| known != pid) {
            let found = LocalSession::find(pid, "walsender ");
            let found = found.filter(|found| found.postmaster == postmaster);
            self.earlier_cpu_ns = self.cpu_ns.unwrap_or(0);
            self.sender = found.map(|found| (pid, found));
        }
        let used = self.sender.and_then(|(_, sender)| sender.cpu_ns());
        self.cpu_ns = used.map(|used| used + self.earlier_cpu_ns).or(self.cpu_ns);
    }

    fn cpu_s(&self) -> Option<f64> {
        self.cpu_ns.map(|ns| Duration::from_nanos(ns).as_secs_f64())
    }
}

impl StreamWatch<MeasuredWhatIf> for ReadingWatch<'_> {
    fn goes_on(&mut self, progress: &StreamProgress) -> ControlFlow<()> {
        // Nobody may wait for it any more.
        let _ = self.started.try_send(());
        self.follow(progress)
    }

    fn wants_look(&self) -> bool {
        self.interim.is_wanted()
    }

    fn look(&mut self, read: &mut WalSummary<MeasuredWhatIf>, redo: Lsn) {
        let mut summary = read.interim(|summary| summary.whatif.interim());
        summary.streamed = Some(self.began.elapsed());
        let resumed = self.resumed;
        let end = Ok(End::Interrupted);
        let streamed = Streamed { summary, redo, resumed, end };
        self.interim.leave(ReadWal { streamed, sender_cpu_s: self.cpu_s(), ended: None });
    }

    /// A server that is restarted takes a while, and WAL that came is worth waiting for.
    fn retry(&mut self, _: &str) -> ControlFlow<()> {
        let is_over = self.stop.until().is_some() || self.tries >= RETRIES;
        if is_over || self.interrupt.wait(RETRY).is_err() || self.stop.until().is_some() {
            return ControlFlow::Break(());
        }
        self.tries += 1;
        ControlFlow::Continue(())
    }
}

/// A what-if whose memory can be seen from outside.
struct MeasuredWhatIf {
    whatif: WhatIfCollector,
    memory: Arc<AtomicU64>,
}

impl Collect for MeasuredWhatIf {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        self.whatif.add(record, parts);
    }

    fn append(&mut self, later: Self) {
        self.whatif.append(later.whatif);
        self.memory.store(self.whatif.memory(), Ordering::Relaxed);
    }

    fn gap(&mut self, from: Lsn, to: Lsn) {
        self.whatif.gap(from, to);
    }
}
