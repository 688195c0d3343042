//! What this machine's own A/A comparisons say of its intervals, kept from run to run.
//!
//! Each complete run adds the comparisons of its twin to a file; a later run reads them and widens
//! its intervals by what they show. A run never judges itself: its own twin is added after its
//! header was written.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use pgtoll_record::{Calibration, Host, Metric, RunResult};
use pgtoll_stats::{NullComparison, widening};
use serde::{Deserialize, Serialize};

/// Fewer say too little of a 95th percentile.
pub(crate) const COMPARISONS_NEEDED: usize = 10;
/// A twin of fewer rounds or repetitions has an interval that hardly can miss.
const ROUNDS_NEEDED: u32 = 5;

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    machine: Machine,
    started: String,
    workload: String,
    metric: Metric,
    log_ratio: f64,
    /// Before any widening.
    half_width: f64,
}

/// What must be the same for a comparison to say something of another.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Machine {
    cpu: String,
    cores: u64,
    memory_bytes: u64,
}

impl Machine {
    fn of(host: &Host) -> Self {
        Self { cpu: host.cpu.clone(), cores: host.cores, memory_bytes: host.memory_bytes }
    }
}

/// The factors for a run on this machine; empty when there are not enough comparisons.
pub(crate) fn of_host(host: &Host) -> Vec<Calibration> {
    let lines = lines_of(host);
    Metric::ALL
        .into_iter()
        .filter_map(|metric| {
            let own: Vec<&Line> = lines.iter().filter(|line| line.metric == metric).collect();
            let nulls: Vec<NullComparison> = own
                .iter()
                .map(|of| NullComparison { log_ratio: of.log_ratio, half_width: of.half_width })
                .collect();
            let independent = independent(&own);
            let kappa = (independent >= COMPARISONS_NEEDED).then(|| widening(&nulls, 0.95))??;
            let comparisons = u32::try_from(independent).unwrap_or(u32::MAX);
            Some(Calibration { metric, kappa, comparisons })
        })
        .collect()
}

/// Independent comparisons on file, of the metric that has most.
pub(crate) fn on_file(host: &Host) -> usize {
    let lines = lines_of(host);
    let of_metric = |metric| {
        independent(&lines.iter().filter(|line| line.metric == metric).collect::<Vec<_>>())
    };
    Metric::ALL.into_iter().map(of_metric).max().unwrap_or(0)
}

fn lines_of(host: &Host) -> Vec<Line> {
    let text = path().and_then(|path| pgtoll_files::read_to_string(&path, BYTES_MAX).ok());
    let text = text.unwrap_or_default();
    let machine = Machine::of(host);
    // A line that is cut short or from a later version says nothing.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.filter(|line| line.machine == machine).collect()
}

/// Years of runs.
const BYTES_MAX: u64 = 64 << 20;

/// Twins of one run share their baseline: under one workload their comparisons count as one.
fn independent(lines: &[&Line]) -> usize {
    let of_pairs = lines.iter().map(|line| (&line.started, &line.workload));
    of_pairs.collect::<BTreeSet<_>>().len()
}

/// Adds the twins of a complete run. What cannot be written is left out: a result is no worse for
/// it.
pub(crate) fn remember(result: &RunResult) {
    let Some(path) = path().filter(|_| result.complete) else { return };
    let nulls = result.comparisons.iter().filter(|of| of.null && of.rounds >= ROUNDS_NEEDED);
    let mut text = String::new();
    for of in nulls {
        let line = Line {
            machine: Machine::of(&result.header.host),
            started: result.header.started.clone(),
            workload: of.workload.clone(),
            metric: of.metric,
            log_ratio: of.ratio.estimate.ln(),
            half_width: of.half_width / of.kappa.unwrap_or(1.0),
        };
        if let Ok(line) = serde_json::to_string(&line) {
            text += &(line + "\n");
        }
    }
    let _ = path.parent().map(fs::create_dir_all);
    // One write, so that lines of two runs do not mix.
    let _ = pgtoll_files::append_private(&path, text.as_bytes());
}

/// Where the comparisons are kept; `None` without a home.
pub(crate) fn path() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("pgtoll/twins.jsonl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_of_one_run_count_once() {
        let line = |started: &str, workload: &str| Line {
            machine: Machine { cpu: "one".into(), cores: 2, memory_bytes: 1 },
            started: started.into(),
            workload: workload.into(),
            metric: Metric::CpuPerTransaction,
            log_ratio: 0.0,
            half_width: 0.1,
        };
        let all = [line("1", "read"), line("1", "read"), line("1", "write"), line("2", "read")];
        assert_eq!(independent(&all.each_ref()), 3);
    }
}
