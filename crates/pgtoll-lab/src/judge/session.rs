//! The clients' threads, and what the main thread does meanwhile: the fault, healing, the end.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, Scope, scope};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pgtoll_system::Interrupt;
use pgtoll_wire::{Dsn, Interruption, masked};

use super::error::JudgeError;
use super::events::RunEvent;
use super::fault::{JudgeFault, JudgeFaultEnd};
use super::long_fork::{HalfSeen, PairClient, forks};
use super::plan::JudgePlan;
use super::progress::{JudgeProgress, OnProgress};
use super::reader::{ReadTally, ReaderClient};

use super::schedule::DueSchedule;
use super::shared::{JudgeState, nanoseconds};
use super::writer::WriterClient;

/// A message of a thread to the main one.
enum Told {
    WriterEnded,
    ReaderEnded(ReadTally),
    PairsWritten(u64),
    PairsSeen { here: bool, half_seen: HalfSeen },
    FaultEnded(JudgeFaultEnd),
}

/// How often progress is told, and a signal noticed, at least.
const TICK: Duration = Duration::from_millis(100);
/// After a signal, clients may take so long to hear the answers that they wait for.
const GRACE: Duration = Duration::from_secs(2);

/// Lets the clients work until each was served after the load and the fault, or the time for that is
/// over, or a signal comes. `waits` ends what they still wait for then.
pub(crate) fn run_clients(
    plan: &JudgePlan,
    state: &JudgeState,
    fault: Option<JudgeFault>,
    directory: &Path,
    waits: &Interruption,
    interrupt: &Interrupt,
    on_progress: &mut OnProgress<'_>,
) -> Result<(), JudgeError> {
    let (sender, receiver) = channel();
    let mut writers = writers(plan, state, directory, waits)?;
    for writer in &mut writers {
        writer.connect();
    }
    state.begin();
    state.log(&RunEvent::Began { at: Timestamp::now().to_string() });
    scope(|scope| {
        let mut session = Session {
            plan,
            state,
            receiver,
            sender: sender.clone(),
            writers_left: writers.len(),
            readers_left: plan.readers,
            reads: ReadTally::default(),
            probes_left: 0,
            pairs: PairsTally::default(),
            fault: FaultPhase::from_fault(fault),
        };
        let started = start(scope, writers, readers(plan, state, waits), &sender)
            .and_then(|()| start_probe(scope, plan, state, waits, &sender));
        let ended = started.and_then(|probes| {
            session.probes_left = probes;
            session.lead(interrupt, waits, on_progress)
        });
        state.stop();
        waits.interrupt();
        ended
    })
}

fn writers<'a>(
    plan: &JudgePlan,
    state: &'a JudgeState,
    directory: &Path,
    waits: &Interruption,
) -> Result<Vec<WriterClient<'a>>, JudgeError> {
    let writer = |client| {
        let dsn = plan.dsn_of(client).with_default_connect_timeout(plan.connect_timeout);
        let dsn = dsn.with_interruption(waits);
        let schedule =
            DueSchedule::of_client(client, plan.clients, plan.rate_per_second, plan.bursts);
        WriterClient::new(client, dsn, plan.reply_timeout, schedule, state, directory)
    };
    Ok((0..plan.clients).map(writer).collect::<Result<_, _>>()?)
}

fn readers<'a>(
    plan: &JudgePlan,
    state: &'a JudgeState,
    waits: &Interruption,
) -> Vec<ReaderClient<'a>> {
    let dsn = plan.read_dsn.as_ref().unwrap_or(&plan.dsn);
    let dsn = dsn.with_default_connect_timeout(plan.connect_timeout).with_interruption(waits);
    let reader = |number: u32| {
        let client = number % plan.clients;
        ReaderClient {
            client,
            run: state.run,
            dsn: dsn.clone(),
            reply_timeout: plan.reply_timeout,
            schedule: DueSchedule::of_client(
                client,
                plan.clients,
                plan.rate_per_second,
                plan.bursts,
            ),
            state,
        }
    };
    (0..plan.readers).map(reader).collect()
}

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    writers: Vec<WriterClient<'scope>>,
    readers: Vec<ReaderClient<'scope>>,
    sender: &Sender<Told>,
) -> Result<(), JudgeError> {
    let thread = || Builder::new().name("client".to_owned());
    for (client, mut writer) in (0..).zip(writers) {
        let sender = sender.clone();
        let work = move || {
            writer.work();
            let _ = sender.send(Told::WriterEnded);
        };
        thread()
            .spawn_scoped(scope, work)
            .map_err(|source| JudgeError::Thread { client, source })?;
    }
    for (client, reader) in (0..).zip(readers) {
        let sender = sender.clone();
        let work = move || drop(sender.send(Told::ReaderEnded(reader.work())));
        thread()
            .spawn_scoped(scope, work)
            .map_err(|source| JudgeError::Thread { client, source })?;
    }
    Ok(())
}

type Work<'a> = Box<dyn FnOnce() -> Told + Send + 'a>;

/// Starts the probe for Long Fork where readers have a place of their own. Returns its threads.
fn start_probe<'scope>(
    scope: &'scope Scope<'scope, '_>,
    plan: &JudgePlan,
    state: &'scope JudgeState,
    waits: &Interruption,
    sender: &Sender<Told>,
) -> Result<usize, JudgeError> {
    let Some(there) = plan.read_dsn.as_ref().filter(|_| plan.readers > 0) else { return Ok(0) };
    let client = |dsn: &Dsn| {
        let dsn = dsn.with_default_connect_timeout(plan.connect_timeout).with_interruption(waits);
        PairClient { run: state.run, dsn, state }
    };
    let one = client(&plan.dsn);
    let other = client(&plan.dsn);
    let at_writers = client(&plan.dsn);
    let at_readers = client(there);
    let works: [Work<'scope>; 4] = [
        Box::new(move || Told::PairsWritten(one.write(0))),
        Box::new(move || Told::PairsWritten(other.write(1))),
        Box::new(move || Told::PairsSeen { here: true, half_seen: at_writers.look() }),
        Box::new(move || Told::PairsSeen { here: false, half_seen: at_readers.look() }),
    ];
    let count = works.len();
    for (client, work) in (plan.clients..).zip(works) {
        let sender = sender.clone();
        let started = Builder::new()
            .name("probe".to_owned())
            .spawn_scoped(scope, move || drop(sender.send(work())));
        started.map_err(|source| JudgeError::Thread { client, source })?;
    }
    Ok(count)
}

/// The sums of the probe for Long Fork.
#[derive(Debug, Default)]
struct PairsTally {
    /// The writes of both writers.
    halves: u64,
    here: HalfSeen,
    there: HalfSeen,
}

enum FaultPhase {
    None,
    Planned(JudgeFault),
    Running,
    Over,
}

impl FaultPhase {
    fn from_fault(fault: Option<JudgeFault>) -> Self {
        fault.map_or(Self::None, Self::Planned)
    }

    fn is_over(&self) -> bool {
        matches!(self, Self::None | Self::Over)
    }
}

/// The main thread's part of a run.
struct Session<'a> {
    plan: &'a JudgePlan,
    state: &'a JudgeState,
    receiver: Receiver<Told>,
    sender: Sender<Told>,
    writers_left: usize,
    readers_left: u32,
    reads: ReadTally,
    probes_left: usize,
    pairs: PairsTally,
    fault: FaultPhase,
}

impl Session<'_> {
    fn lead(
        mut self,
        interrupt: &Interrupt,
        waits: &Interruption,
        on_progress: &mut OnProgress<'_>,
    ) -> Result<(), JudgeError> {
        while self.writers_left > 0 && !self.state.is_stopped() {
            let now_ns = self.state.now_ns();
            if let Some(signal) = interrupt.signal() {
                self.state.log(&RunEvent::Interrupted { at_ns: now_ns, signal: signal.to_owned() });
                break;
            }
            self.begin_fault_when_due(now_ns, on_progress);
            if self.is_healing_over(now_ns, on_progress) {
                break;
            }
            let last_ns = self.state.last_acknowledged_ns.load(Ordering::Relaxed);
            on_progress(JudgeProgress::Load {
                elapsed: Duration::from_nanos(now_ns),
                acknowledged: self.state.acknowledged_total.load(Ordering::Relaxed),
                failed: self.state.failed_total.load(Ordering::Relaxed),
                silent: Duration::from_nanos(now_ns.saturating_sub(last_ns)),
            });
            self.hear(self.next_tick(now_ns), on_progress);
        }
        self.state.stop();
        if interrupt.signal().is_some() {
            self.hear_rest(GRACE, on_progress);
        }
        self.state.log(&RunEvent::Ended { at_ns: self.state.now_ns() });
        waits.interrupt();
        self.hear_rest(GRACE, on_progress);
        let ReadTally { reads, failed, stale, stalest, backwards } = self.reads;
        if self.plan.readers > 0 {
            self.state.log(&RunEvent::Reads { reads, failed, stale, stalest, backwards });
        }
        if self.plan.readers > 0 && self.plan.read_dsn.is_some() {
            let (half_seen, forks) = forks(&self.pairs.here, &self.pairs.there);
            let pairs = self.pairs.halves / 2;
            self.state.log(&RunEvent::Pairs { pairs, half_seen, forks });
        }
        self.state.take_failure().map_or(Ok(()), |failure| Err(failure.into()))
    }

    fn begin_fault_when_due(&mut self, now_ns: u64, on_progress: &mut OnProgress<'_>) {
        match std::mem::replace(&mut self.fault, FaultPhase::None) {
            FaultPhase::Planned(fault) if now_ns >= nanoseconds(fault.at) => {
                // It may be a command line with a password.
                let label = masked(&fault.what).into_owned();
                on_progress(JudgeProgress::Event(&format!("fault: {label}")));
                let at_ns = self.state.now_ns();
                self.state.log(&RunEvent::FaultBegan { at_ns, what: label });
                let sender = self.sender.clone();
                let act = move || drop(sender.send(Told::FaultEnded((fault.action)())));
                // Left alone if it never ends.
                match Builder::new().name("fault".to_owned()).spawn(act) {
                    Ok(_) => self.fault = FaultPhase::Running,
                    Err(error) => self.end_fault(
                        JudgeFaultEnd {
                            success: false,
                            status: format!("not started: {error}"),
                            output: String::new(),
                        },
                        on_progress,
                    ),
                }
            }
            phase => self.fault = phase,
        }
    }

    fn end_fault(&mut self, end: JudgeFaultEnd, on_progress: &mut OnProgress<'_>) {
        on_progress(JudgeProgress::Event(&format!("the fault is over: {}", end.status)));
        self.fault = FaultPhase::Over;
        let JudgeFaultEnd { success, status, output } = end;
        let at_ns = self.state.now_ns();
        let output = masked(&output).into_owned();
        self.state.log(&RunEvent::FaultEnded { at_ns, success, status, output });
    }

    /// Begins healing when load and fault are over; a fault may outlast the load as long as clients
    /// may take to heal. Returns whether the time for that is over, too.
    fn is_healing_over(&self, now_ns: u64, on_progress: &mut OnProgress<'_>) -> bool {
        let limit_ns = nanoseconds(self.plan.heal_limit);
        let heal_from_ns = self.state.heal_from_ns();
        if heal_from_ns != u64::MAX {
            return now_ns >= heal_from_ns.saturating_add(limit_ns);
        }
        let load_ns = nanoseconds(self.plan.duration);
        if now_ns >= load_ns && (self.fault.is_over() || now_ns >= load_ns.saturating_add(limit_ns))
        {
            on_progress(JudgeProgress::Event("healing: each client is to be served again"));
            self.state.log(&RunEvent::HealBegan { at_ns: now_ns });
            self.state.begin_healing(now_ns);
        }
        false
    }

    fn next_tick(&self, now_ns: u64) -> Duration {
        let mut until_ns = now_ns.saturating_add(nanoseconds(TICK));
        if let FaultPhase::Planned(fault) = &self.fault {
            until_ns = until_ns.min(nanoseconds(fault.at));
        }
        Duration::from_nanos(until_ns.saturating_sub(now_ns))
    }

    /// Takes what threads tell within this time.
    fn hear(&mut self, time: Duration, on_progress: &mut OnProgress<'_>) {
        match self.receiver.recv_timeout(time) {
            Ok(Told::WriterEnded) => self.writers_left -= 1,
            Ok(Told::ReaderEnded(tally)) => {
                self.readers_left -= 1;
                self.reads.add(&tally);
            }
            Ok(Told::PairsWritten(halves)) => {
                self.probes_left -= 1;
                self.pairs.halves += halves;
            }
            Ok(Told::PairsSeen { here, half_seen }) => {
                self.probes_left -= 1;
                *if here { &mut self.pairs.here } else { &mut self.pairs.there } = half_seen;
            }
            Ok(Told::FaultEnded(end)) => self.end_fault(end, on_progress),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }

    /// Waits for all clients, for so long.
    fn hear_rest(&mut self, time: Duration, on_progress: &mut OnProgress<'_>) {
        let until = Instant::now() + time;
        while self.writers_left > 0 || self.readers_left > 0 || self.probes_left > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.hear(left, on_progress);
        }
    }
}
