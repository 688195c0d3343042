//! In which functions an arm's server spends its time: samples that `perf` takes, apart from every
//! slice, since taking them costs time itself.

use std::time::Duration;

use pgtoll_cluster::{NoProfile, Profiler};
use pgtoll_record::{Line, Profile};

use crate::names::PROFILER;
use crate::round::Rounds;
use crate::run::Run;
use crate::server::Length;
use crate::{ArmSpec, BenchError};

const WARM_UP: Duration = Duration::from_millis(500);
const SAMPLED: Duration = Duration::from_secs(3);

/// Samples every arm that may have what the workload's `profile` names. Where `perf` cannot, the
/// record says why, and how to get it.
pub(crate) fn profile(rounds: &Rounds<'_>, run: &mut Run<'_>) -> Result<(), BenchError> {
    let Some(function) = &rounds.workload.profile else { return Ok(()) };
    let arms = run.plan.experiment.arms.iter().enumerate();
    for (index, arm) in arms.filter(|(_, arm)| run.plan.is_profiled(arm)) {
        run.interrupt.check()?;
        let name = &rounds.workload.name;
        run.stage(&format!("{name}: sample functions of arm {}", arm.name));
        let sampled = sample(rounds, index, run)?;
        if !keep(sampled, name, arm, function, run)? {
            break;
        }
    }
    run.recorder.sync()
}

/// The samples of `perf`, or the reason for their absence.
pub(crate) type Sampled = Result<pgtoll_observe::Profile, NoProfile>;

/// Writes the share of the functions whose names begin so in a workload's arm; or, and then
/// it is false, why nothing was sampled.
pub(crate) fn keep(
    sampled: Sampled,
    workload: &str,
    arm: &ArmSpec,
    function: &str,
    run: &mut Run<'_>,
) -> Result<bool, BenchError> {
    let sampled = match sampled {
        Ok(sampled) => sampled,
        Err(reason) => {
            run.note(no_share(workload, function, &reason))?;
            return Ok(false);
        }
    };
    let symbols = sampled.by_symbol.iter().filter(|(name, _)| name.starts_with(function));
    run.write(&Line::Profile(Profile {
        workload: workload.to_owned(),
        arm: arm.name.clone(),
        function: function.to_owned(),
        samples: symbols.map(|(_, samples)| samples).sum(),
        of: sampled.samples,
    }))?;
    Ok(true)
}

/// Samples of a server at work.
fn sample(rounds: &Rounds<'_>, arm: usize, run: &mut Run<'_>) -> Result<Sampled, BenchError> {
    let mut server = rounds.start(arm, run)?;
    server.work(Length::Time(WARM_UP), run)?;
    let pids = server.cpu.pids()?;
    let sampled = during(&pids, run, |run| {
        server.work(Length::Time(SAMPLED), run)?;
        Ok(())
    })?;
    server.stop(run)?;
    Ok(sampled)
}

/// Samples of these processes while the work is done. It is not begun where `perf` cannot.
pub(crate) fn during(
    pids: &[i32],
    run: &mut Run<'_>,
    work: impl FnOnce(&mut Run<'_>) -> Result<(), BenchError>,
) -> Result<Sampled, BenchError> {
    let profiler = match Profiler::begin(run.guard, PROFILER, pids)? {
        Ok(profiler) => profiler,
        Err(reason) => return Ok(Err(reason)),
    };
    work(run)?;
    let report = profiler.finish(run.guard)?;
    Ok(report.map(|report| pgtoll_observe::Profile::parse(&report)))
}

fn no_share(workload: &str, function: &str, reason: &NoProfile) -> String {
    let hint = reason.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!(
        "{workload}: the share of {function}* in the CPU time was not sampled: {reason}{hint}. By \
         hand: perf record -e cpu-clock:u -p PID with the server at work, then perf report"
    )
}
