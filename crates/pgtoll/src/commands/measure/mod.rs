//! `pgtoll measure`: from arguments to a plan, from a plan to a record, from the record to a
//! table.

mod plans;
mod servers;
mod several;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_cluster::{Finder, GuardOptions, Installation, ServerPackage, ServerUser, leftovers};
use pgtoll_estimate::{Threshold, Twins};
use pgtoll_format::{MajorFacts, TimeSpan, facts_of_major};
use pgtoll_measure::{
    BUILT_IN, BenchError, Choices, Experiment, InterimEstimate, OwnWork, Plan, Progress,
    RECORD_FILE, SettingsOfServer, Site, null, over_budget, reason_to_skip, too_coarse_for,
};
use pgtoll_record::{ExperimentList, Overview, PlanRecord, RunResult, Status};
use pgtoll_report::{Format, RecordKind, ReportedRecord, TableOptions};
use pgtoll_system::Interrupt;
use pgtoll_wire::Dsn;

use crate::again::{self, Resolved};
use crate::arguments::MeasureArguments;
use crate::calibration;
use crate::commands::postgres::say_skipped;
use crate::commands::server_waits::ServerWaits;
use crate::commands::{absolute, output, read_run, thresholds};
use crate::mistakes::{BadExperiment, Usage};
use crate::printer::Printer;
use crate::test_hooks::panic_if_told;

pub(crate) use several::OVERVIEW_FILE;

pub(crate) fn run(arguments: &MeasureArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let kind = record_kind(arguments);
    let format = output::format(arguments.format, kind)?;
    if arguments.list {
        return print(plans::list(arguments)?, format, printer);
    }
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let like = arguments.like.as_ref().map(|dsn| Like::new(dsn, arguments, &interrupt, printer));
    let like = like.transpose()?;
    let compared = servers::compared(arguments, &interrupt, printer)?;
    let requested = planned_experiments(arguments, like.as_ref(), &compared, printer)?;
    if arguments.check {
        return print(plans::checked(&requested), format, printer);
    }
    let servers = servers::named(&requested, &interrupt)?;
    let work_dir = absolute(&arguments.work_dir)?;
    let user = ServerUser::choose()?;
    for warning in requested.iter().flat_map(|item| &item.warnings) {
        printer.warn(&format!("pgtoll: warning: {warning}"));
    }
    if arguments.dry_run {
        let finder = Finder::of_this_program(&interrupt);
        let found = find(&finder, arguments.postgres.as_deref(), printer)?;
        if let Some(found) = &found {
            warn_of_skipped(&requested, found, printer);
        }
        let default = || found.as_ref().map_or_else(to_be_fetched, |found| Ok(server(found)));
        let server = servers::words(&servers).map_or_else(default, Ok)?;
        print(plans::plan(&requested, &server, &user, &work_dir), format, printer)?;
        check_output(&requested, arguments)?;
        return check_disk_space(&requested, &work_dir, printer);
    }
    let installation = installation(arguments.postgres.as_deref(), &interrupt, printer)?;
    let words = servers::words(&servers).unwrap_or_else(|| server(&installation));
    let plan = plans::plan(&requested, &words, &user, &work_dir);
    let introduction = plan.text(&TableOptions::default());
    printer.say(introduction.trim_end());
    tell_leftovers(&work_dir, &user, printer);
    let guard =
        GuardOptions { keep: arguments.keep, ..GuardOptions::of_this_program(work_dir, user) };
    let workplace = Workplace { arguments, installation, servers, guard, interrupt, format };
    match requested.as_slice() {
        [one] if !arguments.all => workplace.measure(one, printer),
        several => several::run(several, &workplace, printer),
    }
}

/// Names the experiments that this server's version skips.
fn warn_of_skipped(requested: &[PlannedExperiment], found: &Installation, printer: &mut Printer) {
    for PlannedExperiment { name, plan, .. } in requested {
        if let Some(reason) = reason_to_skip(&plan.experiment, &found.version) {
            printer.warn(&format!("pgtoll: warning: {name} will be skipped: {reason}"));
        }
    }
}

/// Returns the kind of the record that will be printed.
fn record_kind(arguments: &MeasureArguments) -> RecordKind {
    match arguments {
        MeasureArguments { list: true, .. } => RecordKind::for_record::<ExperimentList>(),
        MeasureArguments { check: true, .. } | MeasureArguments { dry_run: true, .. } => {
            RecordKind::for_record::<PlanRecord>()
        }
        argument if argument.all || argument.experiments.len() > 1 => {
            RecordKind::for_record::<Overview>()
        }
        _ => RecordKind::for_record::<RunResult>(),
    }
}

/// An experiment that was asked for.
struct PlannedExperiment {
    /// A built-in one's name, or its file.
    name: String,
    plan: Plan,
    thresholds: Vec<Threshold>,
    /// Warnings that are printed before it runs.
    warnings: Vec<String>,
    /// The run's own name.
    run_name: Option<String>,
}

/// The site of experiments.
struct Workplace<'a> {
    arguments: &'a MeasureArguments,
    installation: Installation,
    /// The servers that arms name.
    servers: BTreeMap<String, Installation>,
    guard: GuardOptions,
    interrupt: Interrupt,
    format: Format,
}

impl Workplace<'_> {
    /// Runs one experiment and shows its table.
    fn measure(
        &self,
        requested: &PlannedExperiment,
        printer: &mut Printer,
    ) -> anyhow::Result<Status> {
        self.check_version(requested)?;
        requested.plan.check_room(&self.guard.base)?;
        let default = || results_directory(&requested.plan.experiment.name);
        let output = self.arguments.output.clone().unwrap_or_else(default);
        make_output(&output)?;
        let outcome = self.record(requested, &output, printer)?;
        let result = finish(outcome, &output, self.format, printer)?;
        Ok(thresholds::judge(&requested.thresholds, &result, None, printer))
    }

    /// An error when the server's version skips the experiment.
    fn check_version(&self, requested: &PlannedExperiment) -> Result<(), BenchError> {
        let server = servers::baseline(&requested.plan.experiment, &self.servers);
        let server = server.unwrap_or(&self.installation);
        let reason = reason_to_skip(&requested.plan.experiment, &server.version);
        reason.map_or(Ok(()), |reason| Err(BenchError::Skipped { reason }))
    }

    /// Writes the record into `output`, which exists; the inner result is how the run ended.
    fn record(
        &self,
        requested: &PlannedExperiment,
        output: &Path,
        printer: &mut Printer,
    ) -> anyhow::Result<Result<(), BenchError>> {
        let site = Site {
            installation: &self.installation,
            servers: &self.servers,
            guard: &self.guard,
            interrupt: &self.interrupt,
            output,
            name: requested.run_name.clone(),
            calibration: calibration::twins(&pgtoll_measure::host(&self.guard.base)?).calibration(),
            pgtoll: env!("CARGO_PKG_VERSION"),
            command: command(requested, self.arguments),
        };
        Ok(record(&requested.plan, &site, printer))
    }
}

/// Every experiment that was asked for, planned: a mistake in one is told before any of them runs.
fn planned_experiments(
    arguments: &MeasureArguments,
    like: Option<&Like>,
    compared: &servers::ComparedServers,
    printer: &Printer,
) -> anyhow::Result<Vec<PlannedExperiment>> {
    let names: Vec<&str> = if arguments.all {
        // `pgtoll doctor` runs the null experiment, which compares nothing that differs.
        BUILT_IN.iter().map(|(name, _)| *name).filter(|name| *name != null::EXPERIMENT).collect()
    } else {
        arguments.experiments.iter().map(String::as_str).collect()
    };
    let several = arguments.all || names.len() > 1;
    if several && !arguments.workload.is_empty() {
        let hint = "name one experiment, whose work it takes the place of";
        return Err(Usage::error("--workload is for one experiment", hint));
    }
    let choices = choices(arguments);
    let plans = names.iter().map(|name| {
        let mut experiment = experiment(name)?;
        experiment.compare_servers(&compared.servers, compared.settings_of.as_deref());
        if let Some(like) = like {
            like.apply(&mut experiment, printer);
        }
        let experiment = apply_overrides(experiment, arguments)?;
        Ok((*name, Plan::new(experiment, &choices)))
    });
    let plans: Vec<(&str, Plan)> = plans.collect::<anyhow::Result<_>>()?;
    for (index, (_, plan)) in plans.iter().enumerate() {
        let name = &plan.experiment.name;
        if plans[..index].iter().any(|(_, before)| before.experiment.name == *name) {
            return Err(Usage::error(
                format!("two of the experiments are called {name:?}"),
                "each has a directory of its name: run them apart, or give one another name",
            ));
        }
    }
    let thresholds = thresholds::of_plans(&arguments.fail_if, plans.iter().map(|(_, plan)| plan))?;
    let host = pgtoll_measure::host(&absolute(&arguments.work_dir)?);
    let twins = host.map(|host| calibration::twins(&host)).unwrap_or_default();
    let wanted = plans.into_iter().zip(thresholds);
    let requested = wanted.map(|((name, plan), thresholds)| PlannedExperiment {
        name: name.to_owned(),
        warnings: warnings(&plan, arguments, &twins),
        plan,
        thresholds,
        run_name: arguments.name.clone(),
    });
    Ok(requested.collect())
}

fn warnings(plan: &Plan, arguments: &MeasureArguments, twins: &Twins) -> Vec<String> {
    let over_budget = arguments.budget.and_then(|_| over_budget(plan));
    let coarse = arguments.quick.then(|| too_coarse_for(plan, twins)).into_iter().flatten();
    plan.warnings().into_iter().chain(over_budget).chain(coarse).collect()
}

/// Whether the disk and the memory are large enough for each of them.
fn check_disk_space(
    requested: &[PlannedExperiment],
    work_dir: &Path,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    if let [one] = requested {
        one.plan.check_room(work_dir)?;
        return Ok(Status::Done);
    }
    let mut status = Status::Done;
    for experiment in requested {
        if let Err(error) = experiment.plan.check_room(work_dir) {
            printer.error(&anyhow::Error::new(error).context(experiment.name.clone()));
            status = Status::CouldNotTell;
        }
    }
    Ok(status)
}

/// Runs the plan and shows how it gets on.
pub(crate) fn record(
    plan: &Plan,
    site: &Site<'_>,
    printer: &mut Printer,
) -> Result<(), BenchError> {
    let outcome = pgtoll_measure::measure(plan, site, &mut |event| {
        panic_if_told(event);
        show(event, plan, site.guard.keep, printer);
    });
    if outcome.is_err() {
        tell_leftovers(&site.guard.base, &site.guard.user, printer);
    }
    outcome
}

/// The server that was asked for, or the one there is; fetched when there is none.
pub(crate) fn installation(
    requested: Option<&str>,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Installation> {
    let finder = Finder::of_this_program(interrupt);
    if let Some(found) = find(&finder, requested, printer)? {
        return Ok(found);
    }
    printer.stage(&to_be_fetched()?);
    Ok(ServerPackage::newest()?.install(&finder)?)
}

/// The server that was asked for, or the one there is. Where there is none, servers that are not
/// used are named.
fn find(
    finder: &Finder,
    requested: Option<&str>,
    printer: &Printer,
) -> anyhow::Result<Option<Installation>> {
    if requested.is_some() {
        return Ok(finder.find(requested)?);
    }
    let found = finder.installed()?;
    if found.default_installation().is_none() {
        say_skipped(&found.skipped, printer);
    }
    Ok(found.into_default_installation()?)
}

/// The built-in experiment of this name, or the file at this path.
fn experiment(name: &str) -> anyhow::Result<Experiment> {
    if let Some(built_in) = Experiment::built_in(name) {
        return built_in.map_err(|error| BadExperiment::error(name, error));
    }
    if !name.contains(['/', '.']) {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        return Err(Usage::error(
            format!("no experiment \"{name}\""),
            format!("built in: {}; or give the path of a TOML file", names.join(", ")),
        ));
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("read {name}"))?;
    let directory = Path::new(name).parent().unwrap_or(Path::new(""));
    Experiment::parse(&text, directory).map_err(|error| BadExperiment::error(name, error))
}

/// The user's own server, and the one that is measured.
struct Like {
    settings: SettingsOfServer,
    facts: &'static MajorFacts,
    memory_bytes: u64,
}

impl Like {
    fn new(
        dsn: &Dsn,
        arguments: &MeasureArguments,
        interrupt: &Interrupt,
        printer: &Printer,
    ) -> anyhow::Result<Self> {
        let waits = ServerWaits::until(interrupt)?;
        let settings = SettingsOfServer::from_dsn(&waits.limit_waits(dsn))
            .context("read settings for --like")?;
        let finder = Finder::of_this_program(interrupt);
        let found = find(&finder, arguments.postgres.as_deref(), printer)?;
        let facts = match &found {
            Some(found) => found.version.facts()?,
            None => {
                facts_of_major(ServerPackage::newest()?.major).context("a wheel of no version")?
            }
        };
        let memory_bytes = pgtoll_observe::memory()?.total_bytes;
        Ok(Self { settings, facts, memory_bytes })
    }

    fn apply(&self, experiment: &mut Experiment, printer: &Printer) {
        let like = self.settings.for_experiment(experiment, self.facts, self.memory_bytes);
        for line in like.lines(&self.settings) {
            printer.say(&line);
        }
        like.apply(experiment);
    }
}

/// The experiment with what the command line says of settings, setup and work.
fn apply_overrides(
    mut experiment: Experiment,
    arguments: &MeasureArguments,
) -> anyhow::Result<Experiment> {
    for (name, value) in &arguments.set {
        if let Some(arm) = experiment.arms.iter().find(|arm| arm.settings.contains_key(name)) {
            return Err(Usage::error(
                format!("--set {name}: arm \"{}\" of the experiment sets it", arm.name),
                "leave it out, or write an experiment of your own",
            ));
        }
        // The command line has the last word.
        experiment.workloads.iter_mut().for_each(|workload| {
            workload.settings.remove(name);
        });
        experiment.settings.insert(name.clone(), value.clone());
    }
    if let Some(path) = &arguments.setup {
        let text = std::fs::read_to_string(path);
        experiment.setup = Some(text.with_context(|| format!("read {}", path.display()))?);
    }
    if arguments.twins.is_some() {
        experiment.twin_each();
    }
    if !arguments.workload.is_empty() {
        experiment.take_own_work(OwnWork {
            name: arguments.name.clone(),
            entries: arguments.workload.clone(),
            rate: arguments.rate,
            clients: arguments.clients,
        })?;
    }
    Ok(experiment.checked()?)
}

/// The budget of `--quick`.
const QUICK_BUDGET: Duration = Duration::from_secs(60);
const QUICK_ROUNDS: u32 = 4;

fn choices(arguments: &MeasureArguments) -> Choices {
    let quick = |value| arguments.quick.then_some(value);
    Choices {
        scale: arguments.scale,
        budget: arguments.budget.map(|TimeSpan(time)| time).or(quick(QUICK_BUDGET)),
        repetitions: arguments.repetitions,
        rounds: arguments.rounds.or(arguments.quick.then_some(QUICK_ROUNDS)),
        round_time: arguments.round_time.map(|TimeSpan(time)| time),
        brief: arguments.quick,
        precision: arguments.precision,
        slice: arguments.slice.map(|TimeSpan(time)| time),
        seed: arguments.seed.unwrap_or_else(any_seed),
    }
}

/// Another one each time, short enough to be typed again.
pub(crate) fn any_seed() -> u64 {
    u64::from(jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() / 1000)
}

fn server(installation: &Installation) -> String {
    let Installation { bin, version, origin } = installation;
    format!("PostgreSQL {version} in {} ({origin})", bin.display())
}

fn to_be_fetched() -> anyhow::Result<String> {
    Ok(format!("no PostgreSQL server found: {}, fetched with pip", ServerPackage::newest()?))
}

pub(crate) fn tell_leftovers(work_dir: &Path, user: &ServerUser, printer: &Printer) {
    for leftover in leftovers(work_dir, user) {
        printer.warn(&format!(
            "pgtoll: {} was left behind by a run whose guard was killed",
            leftover.directory.display()
        ));
        printer.warn(&format!("hint: {}", leftover.removal()));
    }
}

/// The default directory of an experiment's record.
pub(crate) fn results_directory(experiment: &str) -> PathBuf {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%SZ");
    Path::new("pgtoll-results").join(format!("{now}-{experiment}"))
}

pub(crate) fn make_output(output: &Path) -> anyhow::Result<()> {
    refuse_if_there(output, RECORD_FILE, "a record")?;
    let made = std::fs::create_dir_all(output);
    made.map_err(|source| BenchError::Record { path: output.to_owned(), source })?;
    Ok(())
}

/// Refuses what a run would refuse, and makes nothing.
fn check_output(
    requested: &[PlannedExperiment],
    arguments: &MeasureArguments,
) -> anyhow::Result<()> {
    let Some(output) = &arguments.output else { return Ok(()) };
    // The part of the path that is there is a directory.
    if let Some(there) = output.ancestors().find(|path| path.symlink_metadata().is_ok())
        && !there.is_dir()
    {
        let source = std::io::ErrorKind::NotADirectory.into();
        return Err(BenchError::Record { path: output.clone(), source }.into());
    }
    if let ([_], false) = (requested, arguments.all) {
        return refuse_if_there(output, RECORD_FILE, "a record");
    }
    refuse_if_there(output, OVERVIEW_FILE, "an overview")?;
    requested.iter().try_for_each(|experiment| {
        refuse_if_there(&output.join(&experiment.plan.experiment.name), RECORD_FILE, "a record")
    })
}

/// No record is overwritten.
fn refuse_if_there(output: &Path, file: &str, label: &str) -> anyhow::Result<()> {
    if output.join(file).exists() {
        return Err(Usage::error(
            format!("{} holds {label} already", output.display()),
            "name another directory with --output",
        ));
    }
    Ok(())
}

/// The command that makes the run again: what was resolved is said.
fn command(
    PlannedExperiment { name, plan, .. }: &PlannedExperiment,
    arguments: &MeasureArguments,
) -> Vec<String> {
    let mut options =
        vec![("--scale", plan.experiment.scale.to_string()), ("--seed", plan.seed.to_string())];
    if !arguments.quick {
        options.push(("--repetitions", plan.design.repetitions.to_string()));
        if arguments.precision.is_none() {
            options.push(("--rounds", plan.design.rounds.to_string()));
        }
    }
    if arguments.work_dir != Path::new(crate::arguments::WORK_DIR) {
        options.push(("--work-dir", arguments.work_dir.to_string_lossy().into_owned()));
    }
    again::command(Resolved {
        left_out: &["all", "experiments", "keep"],
        positional: &[name],
        options: &options,
    })
}

fn show(event: Progress<'_>, plan: &Plan, keep: bool, printer: &mut Printer) {
    match event {
        Progress::Directory(path) if keep => {
            printer.say(&format!("pgtoll: clusters stay in {}", path.display()));
        }
        Progress::Directory(_) => {}
        Progress::Stage(name) => printer.stage(name),
        Progress::Skipped { arm, reason } => {
            printer.warn(&format!("pgtoll: arm {arm} is skipped: {reason}"));
        }
        Progress::Repetition { title, repetition, repetitions, interim } => {
            printer
                .stage(&with_interim(&format!("{title}: {repetition} of {repetitions}"), &interim));
        }
        Progress::Block { workload, round, block, interim } => {
            let slicing = plan.slicing.get(workload);
            let blocks = slicing.map_or(1, |slicing| u64::from(slicing.blocks_per_round));
            let all = blocks * u64::from(plan.design.rounds);
            let done = blocks * u64::from(round - 1) + u64::from(block - 1);
            let title = format!("{workload}: round {round} of {}", plan.design.rounds);
            if block == 1 {
                printer.milestone(&with_interim(&title, &interim));
            }
            // The bar itself says how much time is left.
            let interim = InterimEstimate { left: None, ..interim };
            printer.progress(&with_interim(&title, &interim), done, all);
        }
    }
}

fn with_interim(title: &str, interim: &InterimEstimate) -> String {
    let interim = interim.to_string();
    if interim.is_empty() { title.to_owned() } else { format!("{title} ({interim})") }
}

/// Shows the measurements, however the run ended.
fn finish(
    outcome: Result<(), BenchError>,
    output: &Path,
    format: Format,
    printer: &mut Printer,
) -> anyhow::Result<RunResult> {
    let Err(error) = outcome else {
        let result = show_result(output, format, printer)?;
        calibration::remember(&result);
        return Ok(result);
    };
    // There was none before the run, so it is the run's.
    if output.join(RECORD_FILE).exists() {
        show_result(output, format, printer)?;
    }
    Err(error.into())
}

fn show_result(output: &Path, format: Format, printer: &mut Printer) -> anyhow::Result<RunResult> {
    let result = write_result(output)?;
    if format == Format::Json || !result.values.is_empty() {
        print(result.clone(), format, printer)?;
    }
    printer.say(&format!("record: {}", output.display()));
    printer.say(&format!("report: {}", output.join(REPORT_FILE).display()));
    Ok(result)
}

/// Prints a record in a format that its kind has.
fn print(
    record: impl ReportedRecord,
    format: Format,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    output::finish(record, format, &TableOptions::default(), None, printer)
}

/// The page in a result directory.
const REPORT_FILE: &str = "report.html";

/// The summary of the record in `output`, written beside it, and as a page.
pub(crate) fn write_result(output: &Path) -> anyhow::Result<RunResult> {
    let run = read_run(output)?;
    let result = pgtoll_estimate::summarise(&run);
    for (name, text) in
        [("result.json", &result.json()), (REPORT_FILE, &pgtoll_report::html_report(&run, &result))]
    {
        output::write(&output.join(name), text)?;
    }
    Ok(result)
}
