//! `pgtoll doctor`: is this machine fit to be measured on, and how noisy is it?

mod findings;
mod null;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_cluster::{Finder, Guard, GuardOptions, ServerUser};
use pgtoll_interrupt::Interrupt;
use pgtoll_observe as observe;
use pgtoll_observe::{MachineSample, MachineUse};
use pgtoll_record::{EXAMINATION_SCHEMA, Examination};

use crate::arguments::DoctorArguments;
use crate::calibration;
use crate::commands::{absolute, output};
use crate::exit::Status;
use crate::printer::Printer;

/// How long to look at what else runs.
const LOOK: Duration = Duration::from_secs(3);
/// Enough for a 99th percentile.
const SYNCS: usize = 200;
/// For a disk with heads that move this is enough too.
const SYNC_TIME: Duration = Duration::from_secs(2);

pub(crate) fn run(arguments: &DoctorArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let work_dir = absolute(&arguments.work_dir)?;
    let user = ServerUser::choose()?;
    let finder = Finder::of_this_program(&interrupt);
    let installed = finder.installed()?;
    let server = match arguments.postgres.as_deref() {
        None => installed.default_installation().cloned(),
        asked => finder.find(asked)?,
    };
    let guard = GuardOptions::of_this_program(work_dir.clone(), user);
    // Whether servers could be made there at all: what cannot work is told as `measure` tells it.
    Guard::begin(&guard, &interrupt)?.finish()?;
    let seen = Seen::now(&work_dir, &interrupt, printer)?;
    let host = pgtoll_bench::host(&work_dir)?;
    let calibration = calibration::of_host(&host);
    let mut examination = Examination {
        schema: EXAMINATION_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        started: jiff::Timestamp::now().to_string(),
        work_dir: work_dir.display().to_string(),
        findings: findings::all(&guard, server.as_ref(), &installed, &host, &seen, &calibration)?,
        host,
        calibration,
        null: None,
    };
    let Some(time) = arguments.null else {
        return Ok(show(&examination, arguments.json, printer));
    };
    let outcome = null::run(time.0, arguments, &guard, &interrupt, printer)?;
    examination.calibration = calibration::of_host(&examination.host);
    findings::recalibrate(&mut examination);
    examination.null = Some(outcome.runs);
    let status = show(&examination, arguments.json, printer);
    outcome.ended.map_or(Ok(status), Err)
}

fn show(examination: &Examination, json: bool, printer: &mut Printer) -> Status {
    let text = if json {
        // It is made of strings and numbers.
        output::json(examination).unwrap_or_default()
    } else {
        pgtoll_report::examination_text(examination)
    };
    printer.data(&text);
    if examination.warnings().next().is_some() { Status::Finding } else { Status::Done }
}

/// What it takes time to see.
struct Seen {
    /// CPU use while pgtoll did nothing.
    machine: MachineUse,
    /// Shares of that time in which some task waited.
    pressure: Waited,
    /// How long syncs took, sorted; an error where the file could not be written.
    syncs: std::io::Result<Vec<Duration>>,
}

/// Shares of a time in which some task waited; `None` where the kernel does not tell.
struct Waited {
    cpu: Option<f64>,
    io: Option<f64>,
    memory: Option<f64>,
}

impl Seen {
    fn now(work_dir: &Path, interrupt: &Interrupt, printer: &mut Printer) -> anyhow::Result<Self> {
        printer.stage("look at what else runs, for 3 s");
        let (before, waited_before) = (MachineSample::now()?, observe::pressure());
        interrupt.wait(LOOK)?;
        let machine = MachineSample::now()?.since(&before);
        let now = observe::pressure();
        let share = |now: Option<u64>, before: Option<u64>| {
            #[expect(clippy::cast_precision_loss, reason = "three seconds of µs")]
            let waited = now?.saturating_sub(before?) as f64;
            Some((waited / 1e6 / LOOK.as_secs_f64()).min(1.0))
        };
        let pressure = Waited {
            cpu: share(now.cpu_us, waited_before.cpu_us),
            io: share(now.io_us, waited_before.io_us),
            memory: share(now.memory_us, waited_before.memory_us),
        };
        printer.stage("sync a file, for up to 2 s");
        let is_over = || interrupt.signal().is_some();
        let syncs = observe::sync_times(work_dir, SYNCS, SYNC_TIME, &is_over);
        interrupt.check()?;
        let syncs = syncs.map(|mut times| {
            times.sort_unstable();
            times
        });
        Ok(Self { machine, pressure, syncs })
    }
}
