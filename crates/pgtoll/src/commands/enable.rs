//! `pgtoll enable` and `pgtoll disable`: data checksums on and off, offline.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use pgtoll_alter::{EnableOptions, EnableProgress, EnableStep, EnableThreads, Hold, WriteError};
use pgtoll_record::Status;
use pgtoll_system::Interrupt;

use crate::arguments::{DisableArguments, EnableArguments};
use crate::commands::output;
use crate::commands::rolling::{self, RollingCommand};
use crate::printer::Printer;
use crate::test_hooks::pause_if_told;

pub(crate) fn enable(arguments: &EnableArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let Some(data) = &arguments.data else {
        return rolling::run(RollingCommand::of_enable(arguments), printer);
    };
    if arguments.dry_run {
        return dry_run(data, arguments, printer);
    }
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let began = Instant::now();
    if arguments.rewrite {
        turn_off(data, !arguments.no_sync)?;
    }
    let hold = Hold::take(data)?;
    let mut has_said = false;
    let changed = pgtoll_alter::enable(&hold, &options(arguments), &mut |progress| {
        let EnableThreads { at_work, wanted } = progress.threads;
        if at_work < wanted && !has_said {
            has_said = true;
            printer.say(&format!("note: only {at_work} of {wanted} threads could be started"));
        }
        show(progress, printer);
        pause_if_told("enable");
        match interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    let changed = changed.map_err(still_off)?;
    let seconds = began.elapsed().as_secs_f64();
    let record = changed.record_of_enable(data, hold.control(), VERSION, seconds);
    drop(hold);
    output::finish_on_stdout(record, arguments.format, printer)
}

pub(crate) fn disable(
    arguments: &DisableArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let Some(data) = &arguments.data else {
        return rolling::run(RollingCommand::of_disable(arguments), printer);
    };
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let hold = Hold::take(data)?;
    let changed = pgtoll_alter::disable(&hold, !arguments.no_sync)?;
    let record = changed.record_of_disable(data, hold.control(), VERSION);
    drop(hold);
    output::finish_on_stdout(record, arguments.format, printer)
}

/// While checksums are written again the control file says "off", as long as it takes.
fn turn_off(data: &Path, sync: bool) -> anyhow::Result<()> {
    let hold = Hold::take(data)?;
    if hold.control().checksum_version != 0 {
        pgtoll_alter::disable(&hold, sync)?;
    }
    Ok(())
}

/// Whatever went wrong, the control file still says "off", unless it was just that which failed.
fn still_off(error: WriteError) -> anyhow::Error {
    let is_of_control_file = error.is_of_control_file();
    let error = anyhow::Error::new(error);
    if is_of_control_file { error } else { error.context("data checksums are still off") }
}

fn options(arguments: &EnableArguments) -> EnableOptions {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    EnableOptions {
        jobs: arguments.jobs.map_or_else(cores, usize::from),
        sync: !arguments.no_sync,
        verify: arguments.verify_after,
    }
}

const MIB: u64 = 1 << 20;

fn show(progress: EnableProgress, printer: &mut Printer) {
    let label = match progress.step {
        EnableStep::Write => "write checksums",
        EnableStep::Sync => "sync",
        EnableStep::Verify => "read again",
    };
    let done = progress.done / MIB;
    let all = (progress.all / MIB).max(1);
    printer.progress(&format!("{label}: {done} of {all} MiB"), done, all);
}

/// Predicts the work and its time. A server may run meanwhile.
fn dry_run(
    data: &Path,
    arguments: &EnableArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let record = pgtoll_alter::dry_run(data, &options(arguments), VERSION)?;
    output::finish_on_stdout(record, arguments.format, printer)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
