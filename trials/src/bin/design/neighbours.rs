//! The background load: processes that work in bursts, as a machine's other users do.
//!
//! Each has a guard of its own, hence a session of its own, and ends with the bench however that
//! ends: the guard kills it, and it looks at its socket itself.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::resource::{UsageWho, getrusage};
use pgtoll_cluster::{ClusterError, Guard, GuardOptions};
use pgtoll_record::trials::DesignNeighbours;
use pgtoll_system::Interrupt;
use serde::{Deserialize, Serialize};

use crate::bursts::Bursts;

/// The first argument of a neighbour's process.
pub(crate) const ARGUMENT: &str = "__neighbour";
/// The program that a guard runs: the guard's own, which is this one.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// How often a busy neighbour looks whether it shall end.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Processes that wait to be [let go](Self::go).
#[derive(Debug)]
pub(crate) struct Neighbours(Vec<Neighbour>);

#[derive(Debug)]
struct Neighbour {
    stream: UnixStream,
    /// Waits for the process in the guard's stead; gone once it was joined.
    waits: Option<JoinHandle<Result<(), ClusterError>>>,
}

/// The report of one neighbour at its end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Report {
    seconds: f64,
    busy_seconds: f64,
    cpu_seconds: f64,
}

impl Neighbours {
    /// Starts the processes; they wait.
    pub(crate) fn begin(
        count: u32,
        seed: u64,
        options: &GuardOptions,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let mut neighbours = Self(Vec::new());
        for number in 0..count {
            let neighbour = Neighbour::begin(number, seed, options, interrupt);
            neighbours.0.push(neighbour.context("start a neighbour")?);
        }
        Ok(neighbours)
    }

    /// Their schedules begin now.
    pub(crate) fn go(&mut self) -> io::Result<()> {
        self.0.iter_mut().try_for_each(|neighbour| neighbour.stream.write_all(b"g"))
    }

    /// Ends them and adds up what they did.
    pub(crate) fn stop(mut self) -> anyhow::Result<DesignNeighbours> {
        let mut all = DesignNeighbours::default();
        for neighbour in &mut self.0 {
            let report = neighbour.stop().context("stop a neighbour")?;
            all.seconds = all.seconds.max(report.seconds);
            all.cores_wanted += report.busy_seconds / report.seconds;
            all.cores_used += report.cpu_seconds / report.seconds;
        }
        Ok(all)
    }
}

impl Neighbour {
    fn begin(
        number: u32,
        seed: u64,
        options: &GuardOptions,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let name = format!("pgtoll-design-{}-{seed}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name)?;
        let listener = UnixListener::bind_addr(&address)?;
        let mut guard = Guard::begin(options, interrupt)?;
        let arguments = [ARGUMENT.to_owned(), name, seed.to_string(), number.to_string()];
        let waits = std::thread::spawn(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ran = guard.run(Path::new(THIS_PROGRAM), &arguments);
            // If it never came to call, who waits for its call wakes up.
            let _ = UnixStream::connect_addr(&address);
            ran?;
            guard.finish()
        });
        let (stream, _) = listener.accept()?;
        let mut neighbour = Self { stream, waits: Some(waits) };
        if neighbour.stream.read(&mut [0])? == 0 {
            neighbour.join()?;
            bail!("it did not start");
        }
        Ok(neighbour)
    }

    fn stop(&mut self) -> anyhow::Result<Report> {
        self.stream.shutdown(std::net::Shutdown::Write)?;
        let mut report = String::new();
        self.stream.read_to_string(&mut report)?;
        self.join()?;
        serde_json::from_str(&report).context("read its report")
    }

    fn join(&mut self) -> anyhow::Result<()> {
        let Some(waits) = self.waits.take() else { return Ok(()) };
        let Ok(ended) = waits.join() else { bail!("its thread panicked") };
        Ok(ended?)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // The bench failed elsewhere, and says that.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.join();
    }
}

/// A neighbour's own process: calls the bench, waits until it is let go, works in bursts until the
/// bench's end of the socket closes, and reports.
pub(crate) fn process(arguments: &[String]) -> anyhow::Result<()> {
    let [name, seed, number] = arguments else { bail!("{ARGUMENT} NAME SEED NUMBER") };
    let address = SocketAddr::from_abstract_name(name)?;
    let mut stream = UnixStream::connect_addr(&address)?;
    stream.write_all(b"h")?;
    if stream.read(&mut [0])? == 0 {
        return Ok(());
    }
    let (ended, end) = channel::<()>();
    let mut reader = stream.try_clone()?;
    std::thread::spawn(move || {
        let _ = reader.read(&mut [0]);
        drop(ended);
    });
    let report = work(Bursts::new(seed.parse()?, number.parse()?), &end)?;
    stream.write_all(serde_json::to_string(&report)?.as_bytes())?;
    Ok(())
}

fn work(bursts: Bursts, end: &Receiver<()>) -> anyhow::Result<Report> {
    let began = Instant::now();
    let mut busy = Duration::ZERO;
    // Spans follow each other by the clock, so that a span that came late does not move the rest.
    let mut until = began;
    for span in bursts {
        let from = until;
        until += span.length;
        let ended = if span.busy { spin(until, end) } else { rest(until, end) };
        if span.busy {
            busy += until.min(Instant::now()).saturating_duration_since(from);
        }
        if ended {
            break;
        }
    }
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let cpu = [usage.user_time(), usage.system_time()].map(|time| {
        Duration::from_secs(u64::try_from(time.tv_sec()).unwrap_or(0))
            + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or(0))
    });
    Ok(Report {
        seconds: began.elapsed().as_secs_f64(),
        busy_seconds: busy.as_secs_f64(),
        cpu_seconds: cpu.iter().sum::<Duration>().as_secs_f64(),
    })
}

/// Works until then; `true` when the end came first.
fn spin(until: Instant, end: &Receiver<()>) -> bool {
    while Instant::now() < until {
        let look = Instant::now() + LOOK_EVERY;
        while Instant::now() < look {}
        if end.try_recv() == Err(TryRecvError::Disconnected) {
            return true;
        }
    }
    false
}

/// Does nothing until then; `true` when the end came first.
fn rest(until: Instant, end: &Receiver<()>) -> bool {
    let length = until.saturating_duration_since(Instant::now());
    end.recv_timeout(length) == Err(RecvTimeoutError::Disconnected)
}
