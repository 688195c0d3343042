//! `pgtoll doctor`: is this machine fit to be measured on, and how noisy is it?

mod null;

use anyhow::Context as _;
use pgtoll_cluster::{Finder, Guard, GuardOptions, ServerUser};
use pgtoll_measure::fitness::{self, IntervalFacts, Surroundings, Watch};
use pgtoll_record::{Calibration, EXAMINATION_SCHEMA, Examination, Host, Status};
use pgtoll_system::Interrupt;

use crate::arguments::DoctorArguments;
use crate::calibration;
use crate::commands::{absolute, output};
use crate::printer::Printer;

pub(crate) fn run(arguments: &DoctorArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let work_dir = absolute(&arguments.work_dir)?;
    let user = ServerUser::choose()?;
    let finder = Finder::of_this_program(&interrupt);
    let found = finder.installed()?;
    let server = match arguments.postgres.as_deref() {
        None => found.default_installation().cloned(),
        requested => finder.find(requested)?,
    };
    let guard = GuardOptions::of_this_program(work_dir.clone(), user);
    // Whether servers could be made there at all: what cannot work is reported as by `measure`.
    Guard::begin(&guard, &interrupt)?.finish()?;
    let watch = Watch::new(&work_dir, &interrupt, &mut |name| printer.stage(name))?;
    let host = pgtoll_measure::host(&work_dir)?;
    let calibration = calibration::twins(&host).calibration();
    let findings = fitness::findings(&Surroundings {
        guard: &guard,
        found: &found,
        server: server.as_ref(),
        host: &host,
        watch: &watch,
        intervals: intervals(&calibration, &host),
    })?;
    let mut examination = Examination {
        schema: EXAMINATION_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        started: jiff::Timestamp::now().to_string(),
        work_dir: work_dir.display().to_string(),
        findings,
        host,
        calibration,
        null: None,
    };
    let Some(time) = arguments.null else {
        return output::finish_on_stdout(examination, arguments.format, printer);
    };
    let outcome = null::run(time.0, arguments, &guard, &interrupt, printer)?;
    let calibration = calibration::twins(&examination.host).calibration();
    let intervals = intervals(&calibration, &examination.host);
    fitness::recalibrate(&mut examination.findings, &intervals);
    examination.calibration = calibration;
    examination.null = Some(outcome.runs);
    let status = output::finish_on_stdout(examination, arguments.format, printer)?;
    outcome.ended.map_or(Ok(status), Err)
}

fn intervals<'a>(calibration: &'a [Calibration], host: &Host) -> IntervalFacts<'a> {
    IntervalFacts {
        calibration,
        comparisons: calibration::twins(host).most_comparisons(),
        comparisons_needed: pgtoll_estimate::COMPARISONS_NEEDED,
        metric_title: pgtoll_report::metric_title,
    }
}
