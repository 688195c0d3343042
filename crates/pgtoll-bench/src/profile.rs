//! In which functions an arm's server spends its time: samples that `perf` takes, apart from every
//! slice, since taking them costs time itself.

use std::time::Duration;

use pgtoll_cluster::{Guard, NoProfile, Profiler};
use pgtoll_record::{Line, Note, Profile};

use crate::BenchError;
use crate::measure::Progress;
use crate::recorder::Recorder;
use crate::round::Rounds;
use crate::server::Length;

const WARM_UP: Duration = Duration::from_millis(500);
const SAMPLED: Duration = Duration::from_secs(3);
/// The program's name with the guard.
const NAME: &str = "profiler";

/// Samples every arm that may have what the workload's `profile` names. Where `perf` cannot, the
/// record says why, and how to get it.
pub(crate) fn profile(
    rounds: &Rounds<'_>,
    guard: &mut Guard,
    recorder: &mut Recorder,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), BenchError> {
    let Some(function) = &rounds.workload.profile else { return Ok(()) };
    let arms = rounds.plan.experiment.arms.iter().enumerate();
    for (index, arm) in arms.filter(|(_, arm)| rounds.plan.is_profiled(arm)) {
        rounds.interrupt.check()?;
        let name = &rounds.workload.name;
        progress(Progress::Stage(&format!("{name}: sample functions of arm {}", arm.name)));
        let sampled = sample(rounds, index, guard)?;
        if !keep(sampled, (name, &arm.name), function, recorder)? {
            break;
        }
    }
    recorder.sync()
}

/// Writes the share of the functions whose names begin so in a workload's arm; or, and then
/// it is false, why nothing was sampled.
pub(crate) fn keep(
    sampled: Result<pgtoll_observe::Profile, NoProfile>,
    (workload, arm): (&str, &str),
    function: &str,
    recorder: &mut Recorder,
) -> Result<bool, BenchError> {
    let sampled = match sampled {
        Ok(sampled) => sampled,
        Err(reason) => {
            recorder.write(&Line::Note(Note { text: no_share(workload, function, &reason) }))?;
            return Ok(false);
        }
    };
    let of_function = sampled.by_symbol.iter();
    let of_function = of_function.filter(|(name, _)| name.starts_with(function));
    recorder.write(&Line::Profile(Profile {
        workload: workload.to_owned(),
        arm: arm.to_owned(),
        function: function.to_owned(),
        samples: of_function.map(|(_, samples)| samples).sum(),
        of: sampled.samples,
    }))?;
    Ok(true)
}

/// Samples of a server at work.
fn sample(
    rounds: &Rounds<'_>,
    arm: usize,
    guard: &mut Guard,
) -> Result<Result<pgtoll_observe::Profile, NoProfile>, BenchError> {
    let mut server = rounds.start(arm, guard)?;
    server.work(Length::Time(WARM_UP), guard, rounds.interrupt)?;
    let pids = server.cpu.pids()?;
    let work = |guard: &mut Guard| {
        server.work(Length::Time(SAMPLED), guard, rounds.interrupt)?;
        Ok(())
    };
    let sampled = during(&pids, guard, work)?;
    server.stop(rounds.facts, guard)?;
    Ok(sampled)
}

/// Samples of these processes while the work is done. It is not begun where `perf` cannot.
pub(crate) fn during(
    pids: &[i32],
    guard: &mut Guard,
    work: impl FnOnce(&mut Guard) -> Result<(), BenchError>,
) -> Result<Result<pgtoll_observe::Profile, NoProfile>, BenchError> {
    let profiler = match Profiler::begin(guard, NAME, pids)? {
        Ok(profiler) => profiler,
        Err(reason) => return Ok(Err(reason)),
    };
    work(guard)?;
    let report = profiler.finish(guard)?;
    Ok(report.map(|report| pgtoll_observe::Profile::parse(&report)))
}

fn no_share(workload: &str, function: &str, reason: &NoProfile) -> String {
    let hint = reason.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!(
        "{workload}: the share of {function}* in the CPU time was not sampled: {reason}{hint}. By \
         hand: perf record -e cpu-clock:u -p PID with the server at work, then perf report"
    )
}
