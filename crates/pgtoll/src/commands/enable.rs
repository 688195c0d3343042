//! `pgtoll enable` and `pgtoll disable`: data checksums on and off, offline.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use pgtoll_alter::{
    ChecksumsChanged, Earlier, EnableOptions, EnableProgress, EnableStep, EnableThreads,
    EnabledPages, Hold, Prediction, WriteError, data_directory_control, predict,
};
use pgtoll_datadir::relation_files;
use pgtoll_format::ControlFile;
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{
    BlockOfFile, CHECKSUMS_SCHEMA, ChecksumsOutcome, ChecksumsPages, ChecksumsRecord,
    ChecksumsSample, EarlierRun,
};

use crate::arguments::{DisableArguments, EnableArguments};
use crate::commands::output;
use crate::exit::Status;
use crate::printer::Printer;
use crate::test_hooks::pause_if_told;

pub(crate) fn enable(arguments: &EnableArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    if arguments.dry_run {
        return dry_run(arguments, printer);
    }
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let began = Instant::now();
    let hold = Hold::take(&arguments.data)?;
    let options = EnableOptions {
        jobs: jobs(arguments),
        sync: !arguments.no_sync,
        verify: arguments.verify_after,
    };
    let mut has_said = false;
    let changed = pgtoll_alter::enable(&hold, &options, &mut |progress| {
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
    let mut record = record(&arguments.data, hold.control(), &changed);
    record.enabled = true;
    if !changed.already {
        record.outcome = ChecksumsOutcome::Enabled;
        record.pages = Some(pages(&changed.pages));
        record.seconds = Some(began.elapsed().as_secs_f64());
        record.next = AFTER_ENABLE.map(str::to_owned).to_vec();
    }
    drop(hold);
    deliver(&record, arguments.json, printer);
    let is_sound = changed.pages.refused == 0 && changed.pages.cut_short.is_empty();
    Ok(if is_sound { Status::Done } else { Status::Finding })
}

pub(crate) fn disable(
    arguments: &DisableArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let hold = Hold::take(&arguments.data)?;
    let changed = pgtoll_alter::disable(&hold, !arguments.no_sync)?;
    let mut record = record(&arguments.data, hold.control(), &changed);
    if !changed.already {
        record.outcome = ChecksumsOutcome::Disabled;
        record.next = AFTER_DISABLE.map(str::to_owned).to_vec();
    }
    drop(hold);
    deliver(&record, arguments.json, printer);
    Ok(Status::Done)
}

const AFTER_ENABLE: [&str; 3] = [
    "take a new full backup: an incremental one on top of an older full one restores pages without \
     checksums",
    "do the same on every standby, or make them anew, before this cluster runs with them",
    "do not use pg_rewind between this cluster and one whose checksums are off",
];
const AFTER_DISABLE: [&str; 2] = [
    "take a new full backup before incremental ones",
    "do the same on every standby, or make them anew",
];

/// Whatever went wrong, the control file still says "off", unless it was just that which failed.
fn still_off(error: WriteError) -> anyhow::Error {
    let is_control = |path: &Path| path.ends_with("global/pg_control");
    let of_control = match &error {
        WriteError::Write { path, .. } | WriteError::Sync { path, .. } => is_control(path),
        WriteError::Lost { overwritten, .. } => overwritten.iter().any(|of| is_control(&of.path)),
        _ => false,
    };
    let error = anyhow::Error::new(error);
    if of_control { error } else { error.context("data checksums are still off") }
}

fn jobs(arguments: &EnableArguments) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    arguments.jobs.map_or_else(cores, usize::from)
}

const MIB: u64 = 1 << 20;

fn show(progress: EnableProgress, printer: &mut Printer) {
    let what = match progress.step {
        EnableStep::Write => "write checksums",
        EnableStep::Sync => "sync",
        EnableStep::Verify => "read again",
    };
    let (done, all) = (progress.done / MIB, (progress.all / MIB).max(1));
    printer.progress(&format!("{what}: {done} of {all} MiB"), done, all);
}

fn record(data: &Path, control: &ControlFile, changed: &ChecksumsChanged) -> ChecksumsRecord {
    ChecksumsRecord {
        schema: CHECKSUMS_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        data: data.display().to_string(),
        system_identifier: control.system_identifier.to_string(),
        outcome: ChecksumsOutcome::Already,
        enabled: false,
        files: changed.files,
        bytes: changed.bytes,
        pages: None,
        earlier: earlier(changed.earlier),
        seconds: None,
        predicted_seconds: None,
        sample: None,
        foreign: changed.foreign.iter().map(|path| path.display().to_string()).collect(),
        next: Vec::new(),
    }
}

fn pages(of: &EnabledPages) -> ChecksumsPages {
    ChecksumsPages {
        all: of.pages,
        written: of.written,
        new: of.new,
        refused: of.refused,
        refused_pages: of
            .refused_pages
            .iter()
            .map(|page| BlockOfFile { file: page.path.display().to_string(), block: page.block })
            .collect(),
        cut_short: of.cut_short.iter().map(|path| path.display().to_string()).collect(),
    }
}

fn deliver(record: &ChecksumsRecord, json: bool, printer: &mut Printer) {
    let text = if json {
        // It is made of strings and numbers.
        output::json(record).unwrap_or_default()
    } else {
        pgtoll_report::checksums_text(record)
    };
    printer.data(&text);
}

fn sample(of: &Prediction) -> ChecksumsSample {
    let rate = |seconds: f64| if seconds > 0.0 { 1.0 / seconds } else { 0.0 };
    ChecksumsSample {
        pages: of.pages,
        stale: of.stale,
        read_bytes_per_second: rate(of.read),
        disk_bytes_per_second: of.disk.map(rate),
    }
}

fn earlier(of: Earlier) -> Option<EarlierRun> {
    match of {
        Earlier::None => None,
        Earlier::Void => Some(EarlierRun { valid: false, files: 0, bytes: 0 }),
        Earlier::PassedOver { files, bytes } => Some(EarlierRun { valid: true, files, bytes }),
    }
}

/// What would be done, and how long it would take. A server may run meanwhile.
fn dry_run(arguments: &EnableArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let data = &arguments.data;
    let control = data_directory_control(data)?;
    let list = relation_files(data, &control);
    if let Some((path, source)) = list.unreadable.into_iter().next() {
        return Err(WriteError::Read { path, source }.into());
    }
    let changed = ChecksumsChanged {
        already: false,
        files: list.files.len() as u64,
        bytes: list.files.iter().map(|file| file.bytes).sum(),
        pages: EnabledPages::default(),
        earlier: Earlier::None,
        foreign: list.foreign,
    };
    let mut record = record(data, &control, &changed);
    record.enabled = control.checksum_version == 1;
    if !record.enabled {
        record.outcome = ChecksumsOutcome::DryRun;
        let found = predict(&list.files, &control)?;
        let sync = !arguments.no_sync;
        record.predicted_seconds = Some(found.seconds(changed.bytes, jobs(arguments), sync));
        record.sample = Some(sample(&found));
    }
    deliver(&record, arguments.json, printer);
    Ok(Status::Done)
}
