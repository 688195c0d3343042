//! `pgtoll enable` and `pgtoll disable`: data checksums on and off, offline.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use pgtoll_cluster::Interrupt;
use pgtoll_format::ControlFile;
use pgtoll_record::{
    BlockOfFile, CHECKSUMS_SCHEMA, ChecksumsOutcome, ChecksumsPages, ChecksumsRecord,
};
use pgtoll_scan::{
    EnableOptions, Hold, RelationFile, Step, SwitchProgress, Switched, SwitchedPages, WriteError,
    control_file, relation_files,
};

use crate::arguments::{DisableArguments, EnableArguments};
use crate::exit::Status;
use crate::printer::Printer;

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
    let switched = pgtoll_scan::enable(&hold, &options, &mut |progress| {
        show(progress, printer);
        match interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    let switched = switched.map_err(still_off)?;
    let mut record = record(&arguments.data, hold.control(), &switched);
    record.enabled = true;
    if !switched.already {
        record.outcome = ChecksumsOutcome::Enabled;
        record.pages = Some(pages(&switched.pages));
        record.seconds = Some(began.elapsed().as_secs_f64());
        record.next = AFTER_ENABLE.map(str::to_owned).to_vec();
    }
    drop(hold);
    deliver(&record, arguments.json, printer);
    let is_sound = switched.pages.refused == 0 && switched.pages.cut_short.is_empty();
    Ok(if is_sound { Status::Done } else { Status::Finding })
}

pub(crate) fn disable(
    arguments: &DisableArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let hold = Hold::take(&arguments.data)?;
    let switched = pgtoll_scan::disable(&hold, !arguments.no_sync)?;
    let mut record = record(&arguments.data, hold.control(), &switched);
    if !switched.already {
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
    let of_control = matches!(&error, WriteError::Write { path, .. } | WriteError::Sync { path, .. }
        if path.ends_with("global/pg_control"));
    let error = anyhow::Error::new(error);
    if of_control { error } else { error.context("data checksums are still off") }
}

fn jobs(arguments: &EnableArguments) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    arguments.jobs.map_or_else(cores, usize::from)
}

const MIB: u64 = 1 << 20;

fn show(progress: SwitchProgress, printer: &mut Printer) {
    let what = match progress.step {
        Step::Write => "write checksums",
        Step::Sync => "sync",
        Step::Verify => "read again",
    };
    printer.progress(&format!("{what}, MiB"), progress.done / MIB, (progress.all / MIB).max(1));
}

fn record(data: &Path, control: &ControlFile, switched: &Switched) -> ChecksumsRecord {
    ChecksumsRecord {
        schema: CHECKSUMS_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        data: data.display().to_string(),
        system_identifier: control.system_identifier.to_string(),
        outcome: ChecksumsOutcome::Already,
        enabled: false,
        files: switched.files,
        bytes: switched.bytes,
        pages: None,
        seconds: None,
        predicted_seconds: None,
        foreign: switched.foreign.iter().map(|path| path.display().to_string()).collect(),
        next: Vec::new(),
    }
}

fn pages(of: &SwitchedPages) -> ChecksumsPages {
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
        serde_json::to_string_pretty(record).unwrap_or_default() + "\n"
    } else {
        pgtoll_report::checksums_text(record)
    };
    printer.data(&text);
}

/// What would be done, and how long it would take. A server may run meanwhile.
fn dry_run(arguments: &EnableArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let data = &arguments.data;
    let control = control_file(data)?;
    let list = relation_files(data, &control);
    if let Some((path, source)) = list.unreadable.into_iter().next() {
        return Err(WriteError::Read { path, source }.into());
    }
    let switched = Switched {
        already: false,
        files: list.files.len() as u64,
        bytes: list.files.iter().map(|file| file.bytes).sum(),
        pages: SwitchedPages::default(),
        foreign: list.foreign,
    };
    let mut record = record(data, &control, &switched);
    record.enabled = control.checksum_version == 1;
    if !record.enabled {
        record.outcome = ChecksumsOutcome::DryRun;
        let probe = probe(data, &list.files).context("probe the disk")?;
        record.predicted_seconds = Some(probe.seconds(switched.bytes));
    }
    deliver(&record, arguments.json, printer);
    Ok(Status::Done)
}

/// How fast the disk is, in seconds a byte.
struct Probe {
    read: f64,
    write: f64,
}

impl Probe {
    /// Reading and writing go on side by side at best, one after the other at worst.
    fn seconds(&self, bytes: u64) -> (f64, f64) {
        #[expect(clippy::cast_precision_loss, reason = "a prediction")]
        let bytes = bytes as f64;
        (self.read.max(self.write) * bytes, (self.read + self.write) * bytes)
    }
}

/// Bytes that the probe reads at most, and writes.
const PROBE_BYTES: u64 = 64 << 20;
const PROBE_BUFFER: usize = 1 << 20;

/// Reads a little of the largest files and writes a file without a name, which is gone afterwards.
fn probe(data: &Path, files: &[RelationFile]) -> std::io::Result<Probe> {
    let mut buffer = vec![0x5A; PROBE_BUFFER];
    let mut largest: Vec<&RelationFile> = files.iter().collect();
    largest.sort_by_key(|file| std::cmp::Reverse(file.bytes));
    let (began, mut read) = (Instant::now(), 0);
    for of in largest {
        let (file, mut at) = (fs::File::open(&of.path)?, 0);
        while read < PROBE_BYTES {
            let bytes = file.read_at(&mut buffer, at)? as u64;
            if bytes == 0 {
                break;
            }
            (at, read) = (at + bytes, read + bytes);
        }
    }
    let read_seconds = began.elapsed().as_secs_f64();
    let mut file = tempfile::tempfile_in(data)?;
    let (began, mut written) = (Instant::now(), 0);
    file.seek(SeekFrom::Start(0))?;
    while written < PROBE_BYTES {
        file.write_all(&buffer)?;
        written += buffer.len() as u64;
    }
    file.sync_all()?;
    let write_seconds = began.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "they are small")]
    let rate = |seconds: f64, bytes: u64| seconds / bytes.max(1) as f64;
    Ok(Probe { read: rate(read_seconds, read), write: rate(write_seconds, written) })
}
