//! Runs a plan and writes its record.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use pgtoll_cluster::{ClusterError, Guard, Installation, MemoryGroup, StopMode};
use pgtoll_record::{End, EndStatus, Line, Prepared};
use pgtoll_wire::Connection;

use crate::builds::builds;
use crate::counting::count_all;
use crate::header::header;
use crate::names::{DATABASE, PGBENCH};
use crate::operations::Operations;
use crate::plans::plan_differences;
use crate::prepare::{Arms, check_reloadable, prepare};
use crate::recorder::Recorder;
use crate::run::Run;
use crate::servers::Origins;
use crate::skipping::{reason_to_skip, without_skipped};
use crate::timed::run_rounds;
use crate::{BenchError, Experiment, Plan, Progress, Site, StepSpec};

/// Runs the plan. Whatever ends it, the record holds what was measured, and no process and no
/// directory stays (but for the guard's `keep`).
pub fn measure(
    plan: &Plan,
    site: &Site<'_>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), BenchError> {
    let began = Instant::now();
    plan.check_room(&site.guard.base)?;
    check_programs(&plan.experiment, site.baseline(&plan.experiment))?;
    let mut guard = Guard::begin(site.guard, site.interrupt)?;
    progress(Progress::Directory(guard.directory()));
    let first = Line::Header(Box::new(header(plan, site)?));
    let mut recorder = Recorder::create(site.output, &first)?;
    let outcome = run(plan, site, &mut guard, &mut recorder, progress);
    // When a signal came, whatever failed failed because of it.
    let outcome = site.interrupt.check().map_err(BenchError::from).and(outcome);
    let outcome = outcome.map_err(|error| error.or_disk_full(guard.directory()));
    recorder.write(&Line::End(end(&outcome, began)))?;
    recorder.sync()?;
    let finished = guard.finish();
    MemoryGroup::remove_all();
    outcome?;
    Ok(finished?)
}

/// The server came with the client programs that nothing of pgtoll's own stands in for.
fn check_programs(experiment: &Experiment, installation: &Installation) -> Result<(), BenchError> {
    if experiment.setup.is_some() {
        installation.psql()?;
    }
    let mut steps = experiment.workloads.iter().flat_map(|workload| &workload.steps);
    if steps.any(|step| step.pgbench.is_some()) {
        installation.program(PGBENCH)?;
    }
    Ok(())
}

/// Everything between the record's first line and its last.
fn run(
    plan: &Plan,
    site: &Site<'_>,
    guard: &mut Guard,
    recorder: &mut Recorder,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), BenchError> {
    let mut run = Run {
        plan,
        interrupt: site.interrupt,
        calibration: &site.calibration,
        guard,
        recorder,
        progress,
        began: Instant::now(),
    };
    check_versions(site, &plan.experiment)?;
    let pgtoll = own_program(site, &mut run)?;
    let origins = Origins::make(site, &mut run)?;
    let mut plan = without_skipped(origins.baseline(), &mut run)?;
    hold_io_workers(&mut plan.experiment, site)?;
    let run = &mut Run { plan: &plan, ..run };
    let arms = prepare(origins, run)?;
    write_prepared(&arms, run)?;
    plan.warnings().into_iter().try_for_each(|text| run.note(text))?;
    check_reloadable(&arms, run)?;
    count_all(&arms.loaded, run)?;
    Operations::new(&arms, &pgtoll, run).run(run)?;
    let timed = plan.experiment.sliced().filter(|workload| plan.timed.contains(&workload.name));
    timed.into_iter().try_for_each(|workload| run_rounds(workload, &arms.loaded, run))
}

/// Keeps the number of I/O workers constant where it would change with the load, unless the experiment
/// sets it: a worker that comes or goes in a slice makes the slice's CPU time exact to a tick only.
fn hold_io_workers(experiment: &mut Experiment, site: &Site<'_>) -> Result<(), BenchError> {
    let arms = experiment.arms.iter().map(|arm| &arm.settings);
    let workloads = experiment.workloads.iter().map(|workload| &workload.settings);
    let layers = arms.chain(workloads).chain([&experiment.settings]);
    let known: BTreeSet<String> = layers.flat_map(BTreeMap::keys).cloned().collect();
    let has_servers = experiment.has_servers();
    for index in 0..experiment.arms.len() {
        let server = site.server(&experiment.arms[index]);
        let held = server.version.facts().map_err(ClusterError::from)?.constant_io_workers;
        if held.iter().any(|(name, _)| known.contains(*name)) {
            continue;
        }
        let held = held.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        if has_servers {
            experiment.arms[index].settings.extend(held);
        } else {
            experiment.settings.extend(held);
        }
    }
    Ok(())
}

fn end(outcome: &Result<(), BenchError>, began: Instant) -> End {
    End {
        status: match outcome {
            Ok(()) => EndStatus::Complete,
            Err(error) if error.is_interruption() => EndStatus::Interrupted,
            Err(_) => EndStatus::Failed,
        },
        reason: outcome.as_ref().err().map(ToString::to_string),
        seconds: began.elapsed().as_secs_f64(),
    }
}

/// The servers' versions have what the experiment compares. A program's transactions are read from the
/// server's counters at each slice's end.
fn check_versions(site: &Site<'_>, experiment: &Experiment) -> Result<(), BenchError> {
    if let Some(reason) = reason_to_skip(experiment, &site.baseline(experiment).version) {
        return Err(BenchError::Skipped { reason });
    }
    if experiment.workloads.iter().all(|workload| workload.command.is_none()) {
        return Ok(());
    }
    for arm in &experiment.arms {
        let version = &site.server(arm).version;
        if !version.facts().map_err(ClusterError::from)?.has_force_next_flush {
            return Err(BenchError::TooOldForCommands(version.to_string()));
        }
    }
    Ok(())
}

/// pgtoll's own program. Where steps call it, the servers' user has to be able to.
fn own_program(site: &Site<'_>, run: &mut Run<'_>) -> Result<PathBuf, BenchError> {
    let executable = &site.guard.executable;
    let path = std::fs::canonicalize(executable)
        .map_err(|source| BenchError::Read { path: executable.clone(), source })?;
    let mut steps = run.plan.experiment.workloads.iter().flat_map(|workload| &workload.steps);
    if steps.any(StepSpec::calls_pgtoll) {
        run.guard.check_executable(&path)?;
    }
    Ok(path)
}

/// Records the size of the data and the server's own text of its version.
fn write_prepared(arms: &Arms, run: &mut Run<'_>) -> Result<(), BenchError> {
    let Some(first) = arms.loaded.first().or(arms.empty.first()) else { return Ok(()) };
    let data_bytes = first.bytes()?;
    first.configure(run.guard, &run.plan.experiment.settings)?;
    first.start(run.guard)?;
    let mut connection = first.connect(DATABASE)?;
    let shown = version_text(&mut connection)
        .and_then(|version| Ok((version, settings_shown(&mut connection)?)));
    connection.close();
    first.stop(run.guard, StopMode::Fast)?;
    let (version_text, settings) = shown.map_err(|source| BenchError::query(first, source))?;
    let builds = builds(arms, run)?;
    let plans = plan_differences(arms, run)?;
    run.write(&Line::Prepared(Prepared { version_text, data_bytes, settings, builds, plans }))
}

fn version_text(connection: &mut Connection) -> Result<String, pgtoll_wire::Error> {
    connection.query_one("SELECT version() AS version")?.parse("version")
}

/// Returns the settings that differ from the defaults, and the I/O method (18 and later), with units. Where the server lies
/// is no such setting.
fn settings_shown(
    connection: &mut Connection,
) -> Result<BTreeMap<String, String>, pgtoll_wire::Error> {
    let sql = "SELECT name, current_setting(name) FROM pg_settings \
               WHERE (source NOT IN ('default', 'override') OR name IN ('io_method', 'io_workers', 'io_min_workers', 'io_max_workers')) \
               AND category <> 'File Locations' AND name NOT LIKE 'unix_socket%' \
               ORDER BY name";
    let rows = connection.query(sql)?;
    let pairs = rows.into_iter().filter_map(|row| match row.values() {
        [Some(name), value] => Some((name.clone(), value.clone().unwrap_or_default())),
        _ => None,
    });
    Ok(pairs.collect())
}
