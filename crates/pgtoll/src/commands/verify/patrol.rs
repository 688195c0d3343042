//! `pgtoll verify --patrol`: all pages, round and round.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use pgtoll_datadir::{Attached, DataDirectory};
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{PatrolRecord, Status};
use pgtoll_report::{FinishedRecord, Format, RecordKind, TableOptions};
use pgtoll_system::Interrupt;
use pgtoll_verify::{
    PatrolClock, PatrolFile, PatrolSettings, PatrolledDirectory, RunningSettings, VerifySettings,
    patrol, rate_in_time,
};

use super::targets::{Directory, Target, targets};
use crate::again;
use crate::arguments::VerifyArguments;
use crate::commands::output;
use crate::commands::server_waits::ServerWaits;
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(super) fn run(
    state: &Path,
    arguments: &VerifyArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<PatrolRecord>().formats(),
    )?;
    let format = output::offered(format, RecordKind::for_record::<PatrolRecord>())?;
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let waits = ServerWaits::until(&interrupt)?;
    let data = only_directory(targets(arguments, &waits, &interrupt)?)?;
    let mut file = PatrolFile::open(state, &data)?;
    if let Some(output) = &arguments.output.output {
        PatrolFile::refuse_inside(output, &data)?;
    }
    let dsn = arguments.dsn.as_ref().map(|dsn| waits.limit_waits(dsn));
    let attach = |data: &DataDirectory| Attached::to(data, dsn.as_ref(), waits.interruption());
    let settings = settings(arguments);
    let reading = RunningSettings {
        verify: VerifySettings {
            jobs: arguments.jobs.map_or(NonZero::<usize>::MIN, NonZero::from),
            rate: Some(settings.rate),
            only_below: Vec::new(),
            rows: !arguments.no_rows,
        },
        patience: super::settle_time(arguments),
    };
    let mut directory = PatrolledDirectory::open(data, reading, &attach)?;
    let mut shown =
        Shown { printer, arguments, format, is_in_time: None, written: None, failure: None };
    let mut on_piece = |record: &PatrolRecord| shown.piece(record);
    let clock = SystemClock(interrupt.clone());
    let record = patrol(&mut file, &mut directory, &clock, &settings, &mut on_piece)?;
    if let Some(signal) = interrupt.signal() {
        shown.printer.say(&format!("pgtoll: ended by {signal}; the same command continues"));
    }
    shown.end(record)
}

/// The one data directory that is meant, and all of it.
fn only_directory(targets: Vec<Target>) -> anyhow::Result<DataDirectory> {
    let mut targets = targets.into_iter();
    if let (Some(Target::Directory(target)), None) = (targets.next(), targets.next()) {
        let Directory { data, below, .. } = *target;
        if below.is_empty() {
            return Ok(data);
        }
    }
    Err(Usage::error(
        "--patrol reads one data directory, and all of it",
        "name a cluster's data directory; each cluster has a patrol of its own",
    ))
}

fn settings(arguments: &VerifyArguments) -> PatrolSettings {
    PatrolSettings {
        // The command line requires one.
        rate: arguments.rate.map_or(1 << 20, |ByteSize(bytes)| bytes),
        within: arguments.within.map_or(WITHIN, |TimeSpan(time)| time),
        run_time: arguments.run_time.map(|TimeSpan(time)| time),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: again::provenance().command,
    }
}

/// The system's clock; a signal ends the patrol.
struct SystemClock(Interrupt);

impl PatrolClock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn wait(&self, time: Duration) {
        // Who asks next whether it is over is notified of the signal.
        let _ = self.0.wait(time);
    }

    fn is_over(&self) -> bool {
        self.0.signal().is_some()
    }
}

/// The displayed state of a running patrol.
struct Shown<'a> {
    printer: &'a mut Printer,
    arguments: &'a VerifyArguments,
    format: Format,
    /// Whether each page is read in time, as was said last.
    is_in_time: Option<bool>,
    /// When the output was written last.
    written: Option<Instant>,
    /// Why it could not be written, which ends the patrol.
    failure: Option<anyhow::Error>,
}

impl Shown<'_> {
    fn piece(&mut self, record: &PatrolRecord) -> ControlFlow<()> {
        let rate = rate_in_time(record);
        if self.is_in_time.replace(rate.is_none()) != Some(rate.is_none()) {
            self.announce(record, rate);
        }
        let read = record.round.read.bytes;
        let all = record.source.bytes;
        let text = format!("round {}: {} of {}", record.round.number, size(read), size(all));
        self.printer.progress(&text, read, all);
        if self.written.is_none_or(|written| written.elapsed() >= WRITE_EVERY) {
            self.failure = self.write(record).err();
        }
        if self.failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Announces the time of a round, and whether it is short enough.
    fn announce(&mut self, record: &PatrolRecord, rate: Option<u64>) {
        let span = |seconds| TimeSpan(Duration::from_secs(seconds)).rounded();
        let budget = &record.budget;
        let round = format!(
            "pgtoll: {} at {}/s take {}",
            size(record.source.bytes),
            size(budget.rate_bytes),
            span(budget.round_seconds),
        );
        let within = TimeSpan(Duration::from_secs(budget.within_seconds));
        match rate {
            None => self.printer.say(&format!("{round}; each page is to be read within {within}")),
            Some(rate) => {
                self.printer
                    .warn(&format!("{round}: too long for each page to be read within {within}"));
                self.printer.warn(&format!("hint: --rate {}/s would do", ByteSize(rate)));
            }
        }
    }

    /// Writes what is to be in a file all the time.
    fn write(&mut self, record: &PatrolRecord) -> anyhow::Result<()> {
        let Some(path) = self.arguments.output.output.as_ref() else { return Ok(()) };
        if path.as_path() == Path::new("-") {
            return Ok(());
        }
        let record = FinishedRecord::new(record.clone());
        output::show(&record, self.format, &self.table(), Some(path), self.printer)?;
        self.written = Some(Instant::now());
        Ok(())
    }

    fn end(self, record: PatrolRecord) -> anyhow::Result<Status> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let path = self.arguments.output.output.as_ref();
        output::finish(record, self.format, &self.table(), path, self.printer)
    }

    fn table(&self) -> TableOptions {
        TableOptions { most: self.arguments.top, ..TableOptions::default() }
    }
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).rounded()
}

const WITHIN: Duration = Duration::from_secs(7 * 86_400);
/// As often as Prometheus looks, or oftener.
const WRITE_EVERY: Duration = Duration::from_secs(15);
