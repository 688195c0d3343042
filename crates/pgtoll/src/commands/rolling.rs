//! `pgtoll enable --rolling` and `pgtoll disable --rolling`: data checksums on and off over a replica
//! set that serves.

use std::ffi::OsString;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_record::{RollingRecord, Status};
use pgtoll_report::{RecordKind, ReportedRecord as _, TableOptions};
use pgtoll_rolling::{
    NodeAnswer, NodeVerb, RollingDialogue, RollingEvent, RollingOptions, RollingQuestion,
    RollingRun,
};
use pgtoll_system::Interrupt;

use crate::again;
use crate::arguments::{DisableArguments, EnableArguments, FormatOptions, RollingArguments};
use crate::commands::output;
use crate::mistakes::Usage;
use crate::printer::Printer;
use crate::test_hooks::pause_if_told;

/// The request of both commands.
#[derive(Clone, Copy)]
pub(crate) struct RollingCommand<'a> {
    enable: bool,
    dry_run: bool,
    jobs: Option<u16>,
    arguments: &'a RollingArguments,
    format: FormatOptions,
}

impl<'a> RollingCommand<'a> {
    pub(crate) fn of_enable(enable_arguments: &'a EnableArguments) -> Self {
        let EnableArguments { dry_run, jobs, set, format, .. } = enable_arguments;
        Self { enable: true, dry_run: *dry_run, jobs: *jobs, arguments: set, format: *format }
    }

    pub(crate) fn of_disable(disable_arguments: &'a DisableArguments) -> Self {
        let DisableArguments { dry_run, set, format, .. } = disable_arguments;
        Self { enable: false, dry_run: *dry_run, jobs: None, arguments: set, format: *format }
    }
}

pub(crate) fn run(command: RollingCommand<'_>, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format(command.format, RecordKind::for_record::<RollingRecord>())?;
    let path = command.arguments.rolling.clone().unwrap_or_default();
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let options = options(&command)?;
    let (record, error) = {
        let mut dialogue = Dialogue { printer, is_confirmed: command.arguments.yes };
        let run = RollingRun::over(&path, options, again::provenance(), &interrupt, &mut dialogue)?;
        match (command.dry_run, command.arguments) {
            (true, _) => (run.dry_run()?, None),
            (_, RollingArguments { resume: true, .. }) => run.resume()?,
            (_, RollingArguments { abort: true, .. }) => run.abort()?,
            _ => run.begin()?,
        }
    };
    let status = output::finish(record, format, &TableOptions::default(), None, printer)?;
    error.map_or(Ok(status), |error| Err(error.into()))
}

fn options(command: &RollingCommand<'_>) -> anyhow::Result<RollingOptions> {
    let argument = command.arguments;
    let executable: PathBuf = std::env::current_exe().context("find this program")?;
    Ok(RollingOptions {
        enable: command.enable,
        only: argument.only.clone(),
        to: argument.to.clone(),
        switch_back: argument.switch_back,
        verify: !argument.skip_verify,
        suspend_sync: argument.suspend_sync,
        managers_paused: argument.managers_paused,
        is_switchover_confirmed: argument.yes,
        before_switch: argument.before_switch.clone(),
        after_switch: argument.after_switch.clone(),
        jobs: command.jobs,
        executable: executable.to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Steps go to stderr, questions to the user at the terminal.
struct Dialogue<'a> {
    printer: &'a mut Printer,
    /// By `--yes`.
    is_confirmed: bool,
}

impl RollingDialogue for Dialogue<'_> {
    fn event(&mut self, event: RollingEvent<'_>) {
        match event {
            RollingEvent::Step(words) => self.printer.stage(words),
            RollingEvent::Point(name) => pause_if_told(&format!("rolling-{name}")),
        }
    }

    fn confirm(&mut self, question: &RollingQuestion<'_>) -> bool {
        let text = match question {
            RollingQuestion::Begin(plan) => {
                format!("{}\nBegin? Type yes: ", plan.text(&TableOptions::default()))
            }
            RollingQuestion::Switchover { from, to } => {
                format!("Stop {from} now, and let {to} take over? Type yes: ")
            }
        };
        if self.is_confirmed {
            return true;
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return false;
        }
        self.printer.warn(&text);
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).is_ok() && line.trim() == "yes"
    }
}

/// Runs a request of the leading pgtoll on a node's machine: `__node VERB PGDATA [JOBS]`.
pub(crate) fn node(words: &[OsString], printer: &mut Printer) -> anyhow::Result<Status> {
    let usage = || Usage::error("__node is for pgtoll itself", "see pgtoll enable --help");
    let (verb, data, jobs) = match words {
        [verb, data] => (verb, data, None),
        [verb, data, jobs] => (verb, data, jobs.to_str().and_then(|text| text.parse().ok())),
        _ => return Err(usage()),
    };
    let verb = verb.to_str().and_then(NodeVerb::of_word).ok_or_else(usage)?;
    let answer = pgtoll_rolling::answer(verb, Path::new(data), env!("CARGO_PKG_VERSION"), jobs);
    printer.data(&format!("{}\n", serde_json::to_string(&answer)?));
    Ok(if matches!(answer, NodeAnswer::Failed { .. }) {
        Status::CouldNotTell
    } else {
        Status::Done
    })
}
