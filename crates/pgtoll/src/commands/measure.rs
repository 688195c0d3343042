//! `pgtoll measure`: from arguments to a plan, from a plan to a record, from the record to a
//! table.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_bench::{BUILT_IN, BenchError, Choices, Experiment, Plan, Progress, RECORD_FILE, Site};
use pgtoll_cluster::{GuardOptions, Installation, Interrupt, ServerUser, Wheel, leftovers};
use pgtoll_format::TimeSpan;
use pgtoll_record::RunResult;

use crate::arguments::MeasureArguments;
use crate::calibration;
use crate::commands::{Usage, absolute, read_run, to_json};
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(arguments: &MeasureArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let experiment = experiment(&arguments.experiment)?;
    let plan = Plan::new(experiment, &choices(arguments));
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let work_dir = absolute(&arguments.work_dir)?;
    let user = ServerUser::choose()?;
    let found = Installation::find(arguments.postgres.as_deref())?;
    for warning in plan.warnings() {
        printer.warn(&format!("pgtoll: warning: {warning}"));
    }
    if arguments.dry_run {
        let server = found.as_ref().map_or_else(to_be_fetched, |found| Ok(server(found)))?;
        printer.data(&introduction(&plan, &server, &user, &work_dir));
        plan.check_room(&work_dir)?;
        return Ok(Status::Done);
    }
    let installation = if let Some(found) = found {
        found
    } else {
        printer.stage(&to_be_fetched()?);
        Wheel::newest()?.install(&interrupt)?
    };
    printer.say(introduction(&plan, &server(&installation), &user, &work_dir).trim_end());
    tell_leftovers(&work_dir, &user, printer);
    plan.check_room(&work_dir)?;
    let output = make_output(arguments, &plan)?;
    let site = Site {
        installation: &installation,
        guard: &GuardOptions {
            keep: arguments.keep,
            ..GuardOptions::of_this_program(work_dir, user)
        },
        interrupt: &interrupt,
        output: &output,
        calibration: calibration::of_host(&pgtoll_bench::host(&arguments.work_dir)?),
        pgtoll: env!("CARGO_PKG_VERSION"),
        command: command(arguments, &plan),
    };
    let outcome = pgtoll_bench::measure(&plan, &site, &mut |event| {
        panic_if_told(event);
        show(event, &plan, arguments.keep, printer);
    });
    if outcome.is_err() {
        tell_leftovers(&site.guard.base, &site.guard.user, printer);
    }
    finish(outcome, &output, arguments.json, printer)
}

/// The built-in experiment of this name, or the file at this path.
fn experiment(name: &str) -> anyhow::Result<Experiment> {
    if let Some(built_in) = Experiment::built_in(name) {
        return built_in.with_context(|| format!("read built-in experiment {name}"));
    }
    if !name.contains(['/', '.']) {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        return Err(Usage::error(
            format!("no experiment \"{name}\""),
            format!("built in: {}; or give the path of a TOML file", names.join(", ")),
        ));
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("read {name}"))?;
    Experiment::parse(&text).with_context(|| format!("read {name}"))
}

/// What `--quick` stands for.
const QUICK_BUDGET: Duration = Duration::from_secs(60);
const QUICK_ROUNDS: u32 = 4;
const QUICK_REPETITIONS: u32 = 2;

fn choices(arguments: &MeasureArguments) -> Choices {
    let quick = |value| arguments.quick.then_some(value);
    Choices {
        scale: arguments.scale,
        budget: arguments.budget.map(|TimeSpan(time)| time).or(quick(QUICK_BUDGET)),
        repetitions: arguments.repetitions.or(arguments.quick.then_some(QUICK_REPETITIONS)),
        rounds: arguments.rounds.or(arguments.quick.then_some(QUICK_ROUNDS)),
        round_time: arguments.round_time.map(|TimeSpan(time)| time),
        count_less: arguments.quick,
        precision: arguments.precision,
        slice: arguments.slice.map(|TimeSpan(time)| time),
        // Short enough to be typed again.
        seed: arguments.seed.unwrap_or_else(|| {
            u64::from(jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() / 1000)
        }),
    }
}

fn server(installation: &Installation) -> String {
    let Installation { bin, version, origin } = installation;
    format!("PostgreSQL {version} in {} ({origin})", bin.display())
}

fn to_be_fetched() -> anyhow::Result<String> {
    Ok(format!("no PostgreSQL server found: {}, fetched with pip", Wheel::newest()?))
}

/// What is going to happen, a line each.
fn introduction(plan: &Plan, server: &str, user: &ServerUser, work_dir: &Path) -> String {
    let mut lines = plan.lines();
    lines.insert(1, format!("server: {server}"));
    let because = if user.changed { ", since PostgreSQL refuses root" } else { "" };
    let place = work_dir.display();
    lines.push(format!("clusters are made in {place}; servers run as user {}{because}", user.name));
    lines.join("\n") + "\n"
}

fn tell_leftovers(work_dir: &Path, user: &ServerUser, printer: &Printer) {
    for leftover in leftovers(work_dir, user) {
        printer.warn(&format!(
            "pgtoll: {} was left behind by a run whose guard was killed",
            leftover.directory.display()
        ));
        printer.warn(&format!("hint: {}", leftover.removal()));
    }
}

fn make_output(arguments: &MeasureArguments, plan: &Plan) -> anyhow::Result<PathBuf> {
    let output = arguments.output.clone().unwrap_or_else(|| {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%SZ");
        Path::new("pgtoll-results").join(format!("{now}-{}", plan.experiment.name))
    });
    if output.join(RECORD_FILE).exists() {
        return Err(Usage::error(
            format!("{} holds a record already", output.display()),
            "name another directory with --output",
        ));
    }
    let made = std::fs::create_dir_all(&output);
    made.map_err(|source| BenchError::Record { path: output.clone(), source })?;
    Ok(output)
}

/// The command that makes the run again: what was resolved is said.
fn command(arguments: &MeasureArguments, plan: &Plan) -> Vec<String> {
    let mut command = vec!["pgtoll".into(), "measure".into(), arguments.experiment.clone()];
    let mut option = |name: &str, value: String| command.extend([name.to_owned(), value]);
    if let Some(postgres) = &arguments.postgres {
        option("--postgres", postgres.clone());
    }
    option("--scale", plan.experiment.scale.to_string());
    if let Some(budget) = arguments.budget {
        option("--budget", budget.to_string());
    }
    if let Some(precision) = arguments.precision {
        option("--precision", format!("{}%", precision * 100.0));
    } else if !arguments.quick {
        option("--rounds", plan.design.rounds.to_string());
    }
    if !arguments.quick {
        option("--repetitions", plan.design.repetitions.to_string());
    }
    if let Some(time) = arguments.round_time {
        option("--round-time", time.to_string());
    }
    option("--slice", TimeSpan(Duration::from_nanos(plan.design.slice_ns)).to_string());
    option("--seed", plan.seed.to_string());
    if arguments.work_dir != Path::new(crate::arguments::WORK_DIR) {
        option("--work-dir", arguments.work_dir.display().to_string());
    }
    command.extend(arguments.quick.then(|| "--quick".to_owned()));
    command
}

fn show(event: Progress<'_>, plan: &Plan, keep: bool, printer: &mut Printer) {
    match event {
        Progress::Directory(path) if keep => {
            printer.say(&format!("pgtoll: clusters stay in {}", path.display()));
        }
        Progress::Directory(_) => {}
        Progress::Stage(name) => printer.stage(name),
        Progress::Block { workload, round, block } => {
            let of_round = u64::from(plan.design.blocks_per_round);
            let all = of_round * u64::from(plan.design.rounds);
            let done = of_round * u64::from(round - 1) + u64::from(block - 1);
            let what = format!("{workload}: round {round} of {}", plan.design.rounds);
            if block == 1 {
                printer.milestone(&what);
            }
            printer.progress(&what, done, all);
        }
    }
}

/// What was measured is shown, however the run ended.
fn finish(
    outcome: Result<(), BenchError>,
    output: &Path,
    json: bool,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let Err(error) = outcome else {
        calibration::remember(&show_result(output, json, printer)?);
        return Ok(Status::Done);
    };
    // There was none before the run, so it is the run's.
    if output.join(RECORD_FILE).exists() {
        show_result(output, json, printer)?;
    }
    Err(error.into())
}

fn show_result(output: &Path, json: bool, printer: &mut Printer) -> anyhow::Result<RunResult> {
    let result = pgtoll_report::summarise(&read_run(output)?);
    let text = to_json(&result)?;
    let path = output.join("result.json");
    std::fs::write(&path, &text).with_context(|| format!("write {}", path.display()))?;
    if json {
        printer.data(&text);
    } else if !result.values.is_empty() {
        printer.data(&pgtoll_report::terminal_table(&result));
    }
    printer.say(&format!("record: {}", output.display()));
    Ok(result)
}

/// Debug builds panic at the block that `PGTOLL_TEST_PANIC_AT` names (`ROUND:BLOCK`), so that a
/// test can see that nothing stays behind.
fn panic_if_told(event: Progress<'_>) {
    if cfg!(debug_assertions)
        && let Progress::Block { round, block, .. } = event
        && std::env::var("PGTOLL_TEST_PANIC_AT").is_ok_and(|at| at == format!("{round}:{block}"))
    {
        panic!("told to panic at round {round}, block {block}");
    }
}
