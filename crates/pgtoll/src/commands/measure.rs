//! `pgtoll measure`: from arguments to a plan, from a plan to a record, from the record to a
//! table.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_bench::{BUILT_IN, BenchError, Choices, Experiment, Plan, Progress, Site};
use pgtoll_cluster::{GuardOptions, Installation, Interrupt, ServerUser, leftovers};
use pgtoll_format::TimeSpan;

use crate::arguments::MeasureArguments;
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
    let installation =
        Installation::resolve(arguments.postgres.as_deref(), &interrupt, &mut |line| {
            printer.say(&format!("pgtoll: {line}"));
        })?;
    let lines = introduction(&plan, &installation, &user, &work_dir);
    if arguments.dry_run {
        printer.data(&(lines.join("\n") + "\n"));
        plan.check_room(&work_dir)?;
        return Ok(Status::Done);
    }
    for line in &lines {
        printer.say(line);
    }
    tell_leftovers(&work_dir, printer);
    plan.check_room(&work_dir)?;
    let output = make_output(arguments, &plan)?;
    let site = Site {
        installation: &installation,
        guard: &GuardOptions::of_this_program(work_dir, user),
        interrupt: &interrupt,
        output: &output,
        keep: arguments.keep,
        pgtoll: env!("CARGO_PKG_VERSION"),
        command: command(arguments, &plan),
    };
    let outcome = pgtoll_bench::measure(&plan, &site, &mut |event| {
        panic_if_told(event);
        show(event, &plan, arguments.keep, printer);
    });
    if outcome.is_err() {
        tell_leftovers(&site.guard.base, printer);
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

fn choices(arguments: &MeasureArguments) -> Choices {
    Choices {
        scale: arguments.scale,
        rounds: arguments.rounds,
        round_time: arguments.round_time.map(|TimeSpan(time)| time),
        slice: arguments.slice.map(|TimeSpan(time)| time),
        // Short enough to be typed again.
        seed: arguments.seed.unwrap_or_else(|| {
            u64::from(jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() / 1000)
        }),
    }
}

fn introduction(
    plan: &Plan,
    installation: &Installation,
    user: &ServerUser,
    work_dir: &Path,
) -> Vec<String> {
    let mut lines = plan.lines();
    lines.insert(
        1,
        format!(
            "server: PostgreSQL {} in {} ({})",
            installation.version,
            installation.bin.display(),
            installation.origin
        ),
    );
    let user_is = if user.changed {
        format!("servers run as user {}, since PostgreSQL refuses root", user.name)
    } else {
        format!("servers run as user {}", user.name)
    };
    lines.push(format!("clusters are made in {}; {user_is}", work_dir.display()));
    lines
}

fn tell_leftovers(work_dir: &Path, printer: &Printer) {
    for leftover in leftovers(work_dir) {
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
    option("--scale", plan.scale.to_string());
    option("--rounds", plan.design.rounds.to_string());
    if let Some(time) = arguments.round_time {
        option("--round-time", time.to_string());
    }
    option("--slice", TimeSpan(std::time::Duration::from_nanos(plan.design.slice_ns)).to_string());
    option("--seed", plan.seed.to_string());
    command
}

fn show(event: Progress<'_>, plan: &Plan, keep: bool, printer: &mut Printer) {
    match event {
        Progress::Directory(path) if keep => {
            printer.say(&format!("pgtoll: clusters stay in {}", path.display()));
        }
        Progress::Directory(_) => {}
        Progress::Stage(name) => printer.stage(name),
        Progress::Block { round, block } => {
            let of_round = u64::from(plan.design.blocks_per_round);
            let all = of_round * u64::from(plan.design.rounds);
            let done = of_round * u64::from(round - 1) + u64::from(block - 1);
            let what = format!("round {round} of {}", plan.design.rounds);
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
    if let Err(error) = outcome {
        let rounds = read_run(output).map_or(0, |run| run.rounds.len());
        if rounds > 0 {
            show_result(output, json, printer)?;
        }
        return Err(error.into());
    }
    show_result(output, json, printer)?;
    Ok(Status::Done)
}

fn show_result(output: &Path, json: bool, printer: &mut Printer) -> anyhow::Result<()> {
    let result = pgtoll_report::summarise(&read_run(output)?);
    let text = to_json(&result)?;
    let path = output.join("result.json");
    std::fs::write(&path, &text).with_context(|| format!("write {}", path.display()))?;
    printer.data(&if json { text } else { pgtoll_report::terminal_table(&result) });
    printer.say(&format!("record: {}", output.display()));
    Ok(())
}

/// Debug builds panic at the block that `PGTOLL_TEST_PANIC_AT` names (`ROUND:BLOCK`), so that a
/// test can see that nothing stays behind.
fn panic_if_told(event: Progress<'_>) {
    if cfg!(debug_assertions)
        && let Progress::Block { round, block } = event
        && std::env::var("PGTOLL_TEST_PANIC_AT").is_ok_and(|at| at == format!("{round}:{block}"))
    {
        panic!("told to panic at round {round}, block {block}");
    }
}
