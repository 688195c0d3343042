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
        match sample(rounds, index, guard)? {
            Ok(profile) => {
                let of_function = profile.by_symbol.iter();
                let of_function = of_function.filter(|(name, _)| name.starts_with(function));
                recorder.write(&Line::Profile(Profile {
                    workload: name.clone(),
                    arm: arm.name.clone(),
                    function: function.clone(),
                    samples: of_function.map(|(_, samples)| samples).sum(),
                    of: profile.samples,
                }))?;
            }
            Err(reason) => {
                recorder.write(&Line::Note(Note { text: no_share(name, function, &reason) }))?;
                break;
            }
        }
    }
    recorder.sync()
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
    let report = match Profiler::begin(guard, NAME, &pids)? {
        Ok(profiler) => {
            server.work(Length::Time(SAMPLED), guard, rounds.interrupt)?;
            profiler.finish(guard)?
        }
        Err(reason) => Err(reason),
    };
    server.stop(rounds.facts, guard)?;
    Ok(report.map(|report| pgtoll_observe::Profile::parse(&report)))
}

fn no_share(workload: &str, function: &str, reason: &NoProfile) -> String {
    let hint = reason.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!(
        "{workload}: the share of {function}* in the CPU time was not sampled: {reason}{hint}. By \
         hand: perf record -e cpu-clock:u -p PID with the server at work, then perf report"
    )
}
