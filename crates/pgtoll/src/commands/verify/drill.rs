//! `pgtoll verify --drill`: a backup restored into a server of pgtoll's own.

use std::num::NonZero;

use pgtoll_cluster::{GuardOptions, ServerUser};
use pgtoll_drill::{DrillOptions, DrillPlan, DrillSource, DrillStep, SourceSearch};
use pgtoll_format::shell_quoted;
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{Provenance, VerificationOutcome};
use pgtoll_report::{FinishedRecord, RecordKind, TableOptions, printable};

use super::cores;
use crate::arguments::VerifyArguments;
use crate::commands::{absolute, output, url};
use crate::exit::Status;
use crate::mistakes::Usage;
use crate::printer::Printer;
use crate::test_hooks::pause_if_told;

pub(super) fn run(
    arguments: &VerifyArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format_of_output(&arguments.output, RecordKind::Drill.formats())?;
    let format = output::offered(format, RecordKind::Drill)?;
    if let Some(stored) = arguments.paths.iter().chain(&arguments.wal).find(|of| url(of).is_some())
    {
        let message =
            format!("--drill reads files of this machine, and {} is a URL", stored.display());
        return Err(Usage::error(message, "copy the backup, or its WAL, to this machine"));
    }
    let drill = &arguments.drill;
    let work_dir = absolute(&drill.work_dir)?;
    let mut watch = |step: DrillStep<'_>| show(step, printer);
    let mut search = SourceSearch { work_dir: &work_dir, interrupt, watch: &mut watch };
    let source = match arguments.paths.as_slice() {
        [path] => DrillSource::open(path, &mut search)?,
        paths => DrillSource::open_chain(paths, &mut search)?,
    };
    let installation = source.installation(drill.postgres.as_deref(), interrupt)?;
    let guard = GuardOptions::of_this_program(work_dir, ServerUser::choose()?);
    let options = DrillOptions {
        wal: arguments.wal.clone(),
        target: drill.until,
        jobs: arguments.jobs.map_or_else(cores, NonZero::from),
        patience: drill.patience.0,
        installation,
        guard,
    };
    let plan = DrillPlan::of(source, options, interrupt)?;
    for sentence in plan.sentences() {
        printer.say(&printable(&sentence));
    }
    let record = plan.run(&provenance(arguments), interrupt, &mut |step| show(step, printer))?;
    let status = match record.outcome {
        VerificationOutcome::Sound => Status::Done,
        VerificationOutcome::Findings => Status::Finding,
        VerificationOutcome::Unverified => Status::CouldNotTell,
    };
    let table = TableOptions { most: arguments.top, ..TableOptions::default() };
    let record = FinishedRecord::Drill(Box::new(record));
    output::show(&record, format, &table, arguments.output.output.as_ref(), printer)?;
    Ok(status)
}

fn show(step: DrillStep<'_>, printer: &mut Printer) {
    match step {
        DrillStep::Sentence(sentence) => printer.say(&printable(sentence)),
        DrillStep::Stage(name) => {
            printer.stage(name);
            pause_if_told(&format!("drill-{}", name.split(' ').next().unwrap_or_default()));
        }
        DrillStep::Bytes { what, done, all } => printer.progress(what, done, all),
    }
}

fn provenance(arguments: &VerifyArguments) -> Provenance {
    let drill = &arguments.drill;
    let mut command = vec!["pgtoll".to_owned(), "verify".to_owned(), "--drill".to_owned()];
    command.extend(arguments.paths.iter().map(|path| shell_quoted(&path.to_string_lossy())));
    let mut add = |option: &str, value: &str| {
        command.extend([option.to_owned(), shell_quoted(value)]);
    };
    for wal in &arguments.wal {
        add("--wal", &wal.to_string_lossy());
    }
    add("--until", &drill.until.to_string());
    if let Some(postgres) = &drill.postgres {
        add("--postgres", postgres);
    }
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        made: jiff::Timestamp::now().to_string(),
    }
}
