//! Calibration: the factor by which a machine's intervals have to be wider, by comparisons of twins
//! there.
//!
//! Each complete run gives the comparisons of its twin, a line each; the intervals of a later run
//! are widened by what they show. A run never judges itself: its own twin's comparisons are added
//! after its header was written.

use std::collections::BTreeSet;

use pgtoll_record::{Calibration, Host, Metric, RunResult};
use pgtoll_stats::{NullComparison, median, t_quantile, widening};
use serde::{Deserialize, Serialize};

/// Comparisons at least: fewer estimate a 95th percentile too badly.
pub const COMPARISONS_NEEDED: usize = 10;
/// A twin of fewer rounds or repetitions has an interval that hardly can miss.
const ROUNDS_NEEDED: u32 = 5;

/// A comparison of an arm with its twin.
#[derive(Debug, Serialize, Deserialize)]
struct TwinComparison {
    machine: TwinMachine,
    started: String,
    workload: String,
    metric: Metric,
    log_ratio: f64,
    /// Before any widening.
    half_width: f64,
    /// `None` in lines of earlier versions, as the rounds: at least 5 of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    experiment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rounds: Option<u32>,
}

/// How wide an interval of server CPU will be, as far as earlier ones show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedWidth {
    /// Half of it, as a part of the baseline: 0.05 is 5 %.
    pub ratio: f64,
    /// Earlier comparisons of twins that it comes from.
    pub comparisons: usize,
}

/// The facts that must be equal for a comparison to calibrate another.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TwinMachine {
    cpu: String,
    cores: u64,
    memory_bytes: u64,
}

impl From<&Host> for TwinMachine {
    fn from(host: &Host) -> Self {
        Self { cpu: host.cpu.clone(), cores: host.cores, memory_bytes: host.memory_bytes }
    }
}

/// A machine's comparisons of twins.
#[derive(Debug, Default)]
pub struct Twins {
    comparisons: Vec<TwinComparison>,
}

impl Twins {
    /// The machine's, of all that were kept. A line that is cut short, or of a later version, is
    /// passed over.
    pub fn parse(text: &str, host: &Host) -> Self {
        let machine = TwinMachine::from(host);
        let all = text.lines().filter_map(|line| serde_json::from_str::<TwinComparison>(line).ok());
        Self { comparisons: all.filter(|comparison| comparison.machine == machine).collect() }
    }

    /// The factors for a run on the machine; none for metrics of which there are not enough
    /// comparisons.
    pub fn calibration(&self) -> Vec<Calibration> {
        let factor = |metric: Metric| {
            let independent = self.independent(metric);
            let nulls: Vec<NullComparison> = self
                .of_metric(metric)
                .map(|metric| NullComparison {
                    log_ratio: metric.log_ratio,
                    half_width: metric.half_width,
                })
                .collect();
            let widening =
                (independent >= COMPARISONS_NEEDED).then(|| widening(&nulls, 0.95))??;
            let comparisons = u32::try_from(independent).unwrap_or(u32::MAX);
            Some(Calibration { metric, widening, comparisons })
        };
        Metric::ALL.into_iter().filter_map(factor).collect()
    }

    /// Half the width that an interval of a workload's server CPU will have after this many rounds or
    /// starts: the median of what comparisons of twins under the same workload had here, as if they had
    /// had this many. Their rounds may have been longer. `None` where there were none.
    pub fn expected_width(
        &self,
        experiment: &str,
        workload: &str,
        rounds: u32,
    ) -> Option<ExpectedWidth> {
        let same = self.comparisons.iter().filter(|comparison| {
            comparison.experiment.as_deref() == Some(experiment)
                && comparison.workload == workload
                && matches!(comparison.metric, Metric::CpuPerTransaction | Metric::CpuPerOperation)
        });
        let widths: Vec<f64> = same
            .filter_map(|same| {
                Some(same.half_width * mean_error(rounds)? / mean_error(same.rounds?)?)
            })
            .collect();
        let ratio = median(&widths)?.exp_m1();
        ratio.is_finite().then_some(ExpectedWidth { ratio, comparisons: widths.len() })
    }

    /// Independent comparisons of the metric that has most.
    pub fn most_comparisons(&self) -> usize {
        let counts = Metric::ALL.into_iter().map(|metric| self.independent(metric));
        counts.max().unwrap_or(0)
    }

    fn of_metric(&self, metric: Metric) -> impl Iterator<Item = &TwinComparison> {
        let has_rounds = |comparison: &TwinComparison| {
            comparison.rounds.is_none_or(|round| round >= ROUNDS_NEEDED)
        };
        let own = self.comparisons.iter().filter(move |comparison| has_rounds(comparison));
        own.filter(move |comparison| comparison.metric == metric)
    }

    /// Twins of one run share their baseline: under one workload their comparisons count as one.
    fn independent(&self, metric: Metric) -> usize {
        let pairs = self.of_metric(metric).map(|metric| (&metric.started, &metric.workload));
        pairs.collect::<BTreeSet<_>>().len()
    }
}

/// Half a 95 % interval of the mean of this number of values with a standard deviation of 1; `None` of one.
fn mean_error(values: u32) -> Option<f64> {
    let values = f64::from(values);
    (values > 1.0).then(|| t_quantile(0.95, values - 1.0) / values.sqrt())
}

/// The lines that a complete run adds; none for other runs.
pub fn twin_lines(result: &RunResult) -> String {
    let all = result.comparisons.iter().filter(|_| result.complete);
    let nulls = all.filter(|comparison| comparison.null && comparison.rounds > 1);
    let lines = nulls.filter_map(|null| {
        let comparison = TwinComparison {
            machine: TwinMachine::from(&result.header.host),
            started: result.header.started.clone(),
            workload: null.workload.clone(),
            metric: null.metric,
            log_ratio: null.ratio.estimate.ln(),
            half_width: null.half_width_before_widening(),
            experiment: Some(result.header.experiment.clone()),
            rounds: Some(null.rounds),
        };
        Some(serde_json::to_string(&comparison).ok()? + "\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use pgtoll_record::Run;

    use super::*;
    use crate::summarise;

    const RECORD: &str = include_str!("../../../records/2026-11-22-pg17/run.jsonl");

    #[test]
    fn twins_of_one_run_count_once() {
        let line = |started: &str, workload: &str| TwinComparison {
            machine: TwinMachine { cpu: "one".into(), cores: 2, memory_bytes: 1 },
            started: started.into(),
            workload: workload.into(),
            metric: Metric::CpuPerTransaction,
            log_ratio: 0.0,
            half_width: 0.1,
            experiment: Some("e".into()),
            rounds: Some(6),
        };
        let all = [line("1", "read"), line("1", "read"), line("1", "write"), line("2", "read")];
        let twins = Twins { comparisons: all.into() };
        assert_eq!(twins.most_comparisons(), 3);
        assert!(twins.calibration().is_empty());
    }

    #[test]
    fn earlier_twins_say_how_wide_an_interval_will_be() {
        let line = |workload: &str, half_width, rounds| TwinComparison {
            machine: TwinMachine { cpu: "one".into(), cores: 2, memory_bytes: 1 },
            started: "1".into(),
            workload: workload.into(),
            metric: Metric::CpuPerTransaction,
            log_ratio: 0.0,
            half_width,
            experiment: Some("e".into()),
            rounds,
        };
        let all = [("read", 0.01, Some(6)), ("read", 0.03, Some(6)), ("read", 0.02, Some(6))];
        let older = [("read", 0.5, None), ("write", 0.5, Some(6)), ("once", 0.5, Some(1))];
        let lines = all.into_iter().chain(older).map(|(name, width, item)| line(name, width, item));
        let twins = Twins { comparisons: lines.collect() };
        let width = |name, rounds| twins.expected_width("e", name, rounds);
        let same = width("read", 6).unwrap();
        assert!((same.ratio - 0.0202).abs() < 1e-4, "{same:?}");
        assert_eq!(same.comparisons, 3);
        // t: 3.182 of 4 rounds, 2.571 of 6.
        let fewer = width("read", 4).unwrap().ratio.ln_1p();
        assert!((fewer - 0.02 * (3.182 / 2.0) / (2.571 / 6.0_f64.sqrt())).abs() < 1e-4, "{fewer}");
        assert_eq!(width("read", 1), None);
        assert_eq!(width("once", 4), None);
        assert_eq!(twins.expected_width("other", "read", 6), None);
    }

    #[test]
    fn a_quick_look_calibrates_nothing() {
        let run = Run::parse(RECORD).unwrap();
        let mut result = summarise(&run);
        for comparison in &mut result.comparisons {
            comparison.rounds = ROUNDS_NEEDED - 1;
        }
        let kept = twin_lines(&result);
        assert!(kept.contains("\"rounds\":4"), "{kept}");
        assert_eq!(Twins::parse(&kept, &run.header.host).most_comparisons(), 0);
    }

    #[test]
    fn ten_runs_of_a_machine_calibrate_it_and_no_other() {
        let run = Run::parse(RECORD).unwrap();
        let mut result = summarise(&run);
        let mut kept = String::new();
        for started in 0..10 {
            result.header.started = started.to_string();
            kept += &twin_lines(&result);
        }
        let host = &run.header.host;
        let cut_short = &kept[..kept.len() - 2];
        assert!(Twins::parse(cut_short, host).most_comparisons() >= 10);
        let calibration = Twins::parse(&kept, host).calibration();
        assert!(
            calibration.iter().any(|calibration| calibration.metric == Metric::CpuPerTransaction)
        );
        assert!(
            calibration
                .iter()
                .all(|calibration| calibration.widening >= 1.0 && calibration.comparisons >= 10)
        );
        let other = Host { cores: host.cores + 1, ..host.clone() };
        assert_eq!(Twins::parse(&kept, &other).most_comparisons(), 0);
        result.complete = false;
        assert_eq!(twin_lines(&result), "");
    }
}
