//! From the times of statements to what can be said of them.

use std::collections::BTreeMap;

use pgtoll_record::{
    RatioRange, ReplayArmRole, ReplayComparison, ReplayQuantity, ReplayTotal, ShapeComparison,
    ShapeDifference, ShapeVerdict,
};
use pgtoll_stats::{
    Options, Pair, Round, Trio, TwinComparison, adjusted_p_values, beside_others, mean,
    paired_ratio, ratio_beside_twin, sample_sd, t_p_value,
};

use super::baseline_place;
use crate::sql;
use crate::transactions::{ReplayTransactions, Treatment};
use crate::workload::CapturedWorkload;

/// Slices that a shape's executions in a replay are divided into: as many statements in each, in the order
/// of the plan.
const SLICES: usize = 16;
/// Shapes that are compared: those that take most of the baseline's time.
const SHAPES_MAX: usize = 500;
const RESAMPLES: usize = 200;

/// The times of statements by shape, in all rounds.
pub(super) struct ShapeTimes {
    arms: Vec<String>,
    shapes: Vec<Shape>,
    /// Time at the server by round and arm, of statements that were executed on every arm, ns.
    totals: Vec<Vec<f64>>,
}

/// A statement without its values.
struct Shape {
    statement: String,
    steps: Vec<u32>,
    /// For each round and slice: the time of each arm, ns.
    rounds: Vec<Vec<Vec<f64>>>,
    executions: u64,
    /// One that was executed on every arm.
    example: Option<u32>,
}

impl ShapeTimes {
    pub(super) fn new(workload: &CapturedWorkload, arms: Vec<String>) -> Self {
        let transactions = ReplayTransactions::from_workload(workload);
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut shapes: Vec<Shape> = Vec::new();
        for ((index, step), treatment) in
            (0_u32..).zip(&workload.steps).zip(&transactions.treatment)
        {
            if *treatment != Treatment::Execute {
                continue;
            }
            let texts: Vec<&str> = step.request.texts().collect();
            let statement = sql::shape(&texts.join("; "));
            let place = *places.entry(statement.clone()).or_insert_with(|| {
                let steps = Vec::new();
                let rounds = Vec::new();
                shapes.push(Shape { statement, steps, rounds, executions: 0, example: None });
                shapes.len() - 1
            });
            shapes[place].steps.push(index);
        }
        Self { arms, shapes, totals: Vec::new() }
    }

    /// Takes a round's times of all steps by arm, ns; 0: not executed, or failed.
    pub(super) fn add_round(&mut self, step_ns: &[Vec<u64>]) {
        let mut totals = vec![0.0; step_ns.len()];
        for shape in &mut self.shapes {
            let on_all = |step: &&u32| step_ns.iter().all(|step_ns| step_ns[**step as usize] > 0);
            let steps: Vec<u32> = shape.steps.iter().filter(on_all).copied().collect();
            let slices = steps.chunks(steps.len().div_ceil(SLICES).max(1));
            let sum = |slice: &[u32]| -> Vec<f64> {
                let of_arm = |times: &Vec<u64>| {
                    slice.iter().map(|step| as_float(times[*step as usize])).sum()
                };
                step_ns.iter().map(of_arm).collect()
            };
            let slices: Vec<Vec<f64>> = slices.map(sum).collect();
            for slice in &slices {
                for (total, time) in totals.iter_mut().zip(slice) {
                    *total += time;
                }
            }
            shape.executions += steps.len() as u64;
            shape.example = steps.get(steps.len() / 2).copied().or(shape.example);
            shape.rounds.push(slices);
        }
        self.totals.push(totals);
    }

    /// A step with this statement that was executed on every arm.
    pub(super) fn example(&self, statement: &str) -> Option<u32> {
        self.shapes.iter().find(|shape| shape.statement == statement)?.example
    }

    /// Fills in what the times say.
    pub(super) fn judge(&self, record: &mut ReplayComparison) {
        let rounds = self.totals.len();
        if rounds == 0 {
            return;
        }
        let Some(baseline) = baseline_place(&record.arms) else { return };
        let of_role = |role| {
            let arms = record.arms.iter().enumerate();
            arms.filter(move |(_, arm)| arm.role == role).map(|(place, _)| place)
        };
        let Some(twin) = of_role(ReplayArmRole::Twin).next() else { return };
        let treatments: Vec<usize> = of_role(ReplayArmRole::Treatment).collect();
        let all: f64 = self.totals.iter().map(|total| total[baseline]).sum();
        let shapes = self.largest(baseline, all, record);
        let options = Options { resamples: RESAMPLES, seed: record.seed, ..Options::default() };
        let found: Vec<Vec<ShapeRatios>> = treatments
            .iter()
            .map(|arm| compare_shapes(&shapes, [*arm, baseline, twin], &options))
            .collect();
        let mut twin_p_values = Vec::new();
        for (place, shape) in shapes.iter().enumerate() {
            let time = shape.time(baseline);
            let share = if all > 0.0 { time / all } else { 0.0 };
            let found: Vec<&ShapeRatios> = found.iter().map(|shapes| &shapes[place]).collect();
            let of_first = found.iter().find_map(|ratio| ratio.alone.as_ref());
            let of_twin = of_first.map(|item| p_value_of_mean(&item.twin_log_ratios));
            twin_p_values.push(of_twin.unwrap_or(1.0));
            let floor = of_first.map(|item| item.floor.exp() - 1.0);
            let differences = treatments
                .iter()
                .zip(found)
                .map(|(arm, found)| difference(&self.arms[*arm], share, found));
            let differences: Vec<ShapeDifference> = differences.collect();
            record.shapes.push(ShapeComparison {
                statement: shape.statement.clone(),
                executions: shape.executions / rounds as u64,
                share,
                baseline_ms: time / as_float(shape.executions) / 1e6,
                floor,
                arms: differences,
            });
        }
        decide(record);
        check_twin(record, &twin_p_values);
        self.push_totals(record, baseline, twin);
        check_queues(record, baseline);
    }

    /// The shapes that take most of the baseline's time, all of which is `all`.
    fn largest(&self, baseline: usize, all: f64, record: &mut ReplayComparison) -> Vec<&Shape> {
        let mut shapes: Vec<&Shape> =
            self.shapes.iter().filter(|shape| shape.executions > 0).collect();
        shapes.sort_by(|one, other| other.time(baseline).total_cmp(&one.time(baseline)));
        if shapes.len() > SHAPES_MAX {
            let rest = shapes.split_off(SHAPES_MAX);
            let time: f64 = rest.iter().map(|shape| shape.time(baseline)).sum();
            record.notes.push(format!(
                "{} shapes with {:.1} % of the baseline's time are not compared: those with the most \
                 are",
                rest.len(),
                100.0 * time / all
            ));
        }
        shapes
    }

    fn push_totals(&self, record: &mut ReplayComparison, baseline: usize, twin: usize) {
        for quantity in QUANTITIES {
            let values = |arm: usize| -> Option<Vec<f64>> {
                let runs = record.arms[arm].runs.iter().zip(&self.totals);
                runs.map(|(run, totals)| match quantity {
                    ReplayQuantity::StatementTime => Some(totals[arm] / 1e9),
                    ReplayQuantity::RunTime => Some(run.run_s),
                    ReplayQuantity::Cpu => Some(run.cpu_s),
                    ReplayQuantity::Wal => Some(as_float(run.wal_bytes)),
                    ReplayQuantity::WalImages => run.wal_images.map(as_float),
                })
                .collect()
            };
            let (Some(of_baseline), Some(of_twin)) = (values(baseline), values(twin)) else {
                continue;
            };
            let mut totals = Vec::new();
            for arm in (0..record.arms.len()).filter(|arm| *arm != baseline) {
                let Some(of_arm) = values(arm) else { continue };
                let ratio = if arm == twin {
                    twin_ratio(&of_twin, &of_baseline)
                } else {
                    let rounds = whole(&of_arm, &of_baseline, &of_twin);
                    ratio_beside_twin(&rounds, &Options::default()).ok().as_ref().map(range)
                };
                totals.push(ReplayTotal {
                    quantity,
                    arm: record.arms[arm].name.clone(),
                    baseline: mean(&of_baseline).unwrap_or_default(),
                    value: mean(&of_arm).unwrap_or_default(),
                    ratio,
                });
            }
            record.totals.extend(totals);
        }
    }
}

/// The twin should differ in nothing. Where it does, the machine or the order of arms is to blame.
fn check_twin(record: &mut ReplayComparison, p_values: &[f64]) {
    let adjusted = adjusted_p_values(p_values);
    let differing = adjusted.iter().filter(|p| **p <= record.false_discovery_rate).count();
    if differing > 0 {
        record.notes.push(format!(
            "the twin, which is the same as the baseline, differs from it in {differing} of {} \
             shapes: something else was going on while arms took turns",
            p_values.len()
        ));
    }
}

fn check_queues(record: &mut ReplayComparison, baseline: usize) {
    let total = |quantity: ReplayQuantity| {
        let found = record.totals.iter().find(|total| total.quantity == quantity);
        found.map_or(0.0, |total| total.baseline)
    };
    let runs = &record.arms[baseline].runs;
    let client: Vec<f64> = runs.iter().map(|run| run.client_cpu_s).collect();
    let cpu = total(ReplayQuantity::Cpu) + mean(&client).unwrap_or_default();
    let length = total(ReplayQuantity::RunTime);
    let cores = record.host.cores;
    let under_way = total(ReplayQuantity::StatementTime) / length;
    record.notes.extend(queue_note(under_way, cpu / (length * as_float(cores)), cores));
}

/// Returns a note: if more statements are under way than processors can serve, each one's time is mostly that of others:
/// a statement that is slower by a fifth then shows half of that, and all vary together. `busy` is the
/// part of the processors' time that was used.
fn queue_note(under_way: f64, busy: f64, cores: u64) -> Option<String> {
    let is_crowded = busy > BUSY && under_way > CROWDED * as_float(cores);
    is_crowded.then(|| {
        format!(
            "{under_way:.1} statements were under way on average, and all processors ({cores}) were busy \
             {:.0} % of the time: statements waited for each other, so each one's time is mostly that of others, and a difference looks smaller than it is; --speed 1 replays the \
             work when it was due",
            100.0 * busy
        )
    })
}

/// The part of the processors' time from which on statements wait for them.
const BUSY: f64 = 0.8;
/// Statements under way for each processor, from which on most of their time is waiting.
const CROWDED: f64 = 1.5;

/// How probable a mean at least as far from 0 is where nothing differs.
fn p_value_of_mean(values: &[f64]) -> f64 {
    let count = as_float(values.len() as u64);
    let error = sample_sd(values).map(|sd| sd / count.sqrt());
    match (mean(values), error) {
        (Some(mean), Some(error)) if error > 0.0 => t_p_value(mean / error, count - 1.0),
        _ => 1.0,
    }
}

const QUANTITIES: [ReplayQuantity; 5] = [
    ReplayQuantity::StatementTime,
    ReplayQuantity::RunTime,
    ReplayQuantity::Cpu,
    ReplayQuantity::Wal,
    ReplayQuantity::WalImages,
];

impl Shape {
    /// Returns the time of all rounds on an arm, ns.
    fn time(&self, arm: usize) -> f64 {
        self.rounds.iter().flatten().map(|slice| slice[arm]).sum()
    }

    /// The slices of all rounds: of a treatment, the baseline and its twin.
    fn rounds_of(&self, [treatment, baseline, twin]: [usize; 3]) -> Vec<Vec<Trio>> {
        let trio = |slice: &Vec<f64>| Trio {
            treatment: slice[treatment],
            baseline: slice[baseline],
            twin: slice[twin],
        };
        self.rounds.iter().map(|slices| slices.iter().map(trio).collect()).collect()
    }
}

/// A shape on a treatment beside the baseline and its twin.
struct ShapeRatios {
    alone: Option<TwinComparison>,
    /// Without what the other shapes of the same replays share.
    beside_others: Option<TwinComparison>,
}

fn compare_shapes(shapes: &[&Shape], arms: [usize; 3], options: &Options) -> Vec<ShapeRatios> {
    let compare = |rounds: Vec<Vec<Trio>>| {
        // Those in which it was executed.
        let rounds: Vec<_> = rounds.into_iter().filter(|slices| !slices.is_empty()).collect();
        ratio_beside_twin(&rounds, options)
            .ok()
            .filter(|ratio_beside_twin| ratio_beside_twin.p_value.is_finite())
    };
    let rounds: Vec<Vec<Vec<Trio>>> = shapes.iter().map(|shape| shape.rounds_of(arms)).collect();
    let freed = beside_others(&rounds);
    let both = rounds.into_iter().zip(freed);
    both.map(|(alone, freed)| ShapeRatios { alone: compare(alone), beside_others: compare(freed) })
        .collect()
}

/// A trio for each round.
fn whole(treatment: &[f64], baseline: &[f64], twin: &[f64]) -> Vec<Vec<Trio>> {
    let all = treatment.iter().zip(baseline).zip(twin);
    all.map(|((treatment, baseline), twin)| {
        vec![Trio { treatment: *treatment, baseline: *baseline, twin: *twin }]
    })
    .collect()
}

/// The twin beside the baseline alone.
fn twin_ratio(twin: &[f64], baseline: &[f64]) -> Option<RatioRange> {
    let pairs = twin.iter().zip(baseline).map(|(twin, baseline)| Pair {
        numerator_treatment: *twin,
        denominator_treatment: 1.0,
        numerator_baseline: *baseline,
        denominator_baseline: 1.0,
    });
    let rounds: Vec<Round> = pairs.map(|pair| Round { pairs: vec![pair] }).collect();
    let found = paired_ratio(&rounds, &Options::default()).ok()?;
    Some(RatioRange { ratio: found.ratio, lower: found.lower, upper: found.upper })
}

fn range(comparison: &TwinComparison) -> RatioRange {
    RatioRange { ratio: comparison.ratio, lower: comparison.lower, upper: comparison.upper }
}

fn difference(arm: &str, share: f64, found: &ShapeRatios) -> ShapeDifference {
    let ShapeRatios { alone, beside_others } = found;
    ShapeDifference {
        arm: arm.to_owned(),
        verdict: ShapeVerdict::NotResolved,
        range: alone.as_ref().map(range),
        p_value: alone.as_ref().map(|alone| alone.p_value),
        beside_others: beside_others.as_ref().map(range),
        beside_others_p_value: beside_others.as_ref().map(|beside_other| beside_other.p_value),
        adjusted_p_value: None,
        impact: alone.as_ref().map(|alone| share * (alone.ratio - 1.0)),
        round_ratios: alone.as_ref().map_or_else(Vec::new, |alone| {
            alone.round_log_ratios.iter().map(|ratio| ratio.exp()).collect()
        }),
        plans: None,
    }
}

/// The p-value of the two comparisons of a shape: twice the smaller one, as two were looked at. A statement
/// is not called slower because all others became faster: the one beside the others counts only where
/// the statement alone lies on the same side of 1.
fn p_value_of_both(difference: &ShapeDifference) -> Option<f64> {
    let alone = difference.p_value?;
    let (Some(range), Some(beside), Some(p_value)) =
        (difference.range, difference.beside_others, difference.beside_others_p_value)
    else {
        return Some(alone);
    };
    let agree = (range.ratio > 1.0) == (beside.ratio > 1.0);
    let smaller = if agree { alone.min(p_value) } else { alone };
    Some((2.0 * smaller).min(1.0))
}

/// Adjusts the p-values for the number of comparisons, and says what follows.
pub(super) fn decide(record: &mut ReplayComparison) {
    let rate = record.false_discovery_rate;
    let margin = record.margin;
    let mut all: Vec<&mut ShapeDifference> =
        record.shapes.iter_mut().flat_map(|shape| &mut shape.arms).collect();
    all.retain(|difference| difference.p_value.is_some());
    let p_values: Vec<f64> =
        all.iter().filter_map(|difference| p_value_of_both(difference)).collect();
    for (item, adjusted) in all.into_iter().zip(adjusted_p_values(&p_values)) {
        item.adjusted_p_value = Some(adjusted);
        let Some(range) = item.range else { continue };
        item.verdict = if adjusted <= rate {
            if range.ratio > 1.0 { ShapeVerdict::Slower } else { ShapeVerdict::Faster }
        } else if range.lower >= 1.0 - margin && range.upper <= 1.0 + margin {
            ShapeVerdict::Unchanged
        } else {
            ShapeVerdict::NotResolved
        };
    }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of weeks, bytes, counts")]
fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ratio and its p-value, alone and beside the others.
    fn of_both(alone: (f64, f64), beside: Option<(f64, f64)>) -> ShapeDifference {
        let range = |ratio| RatioRange { ratio, lower: ratio * 0.9, upper: ratio * 1.1 };
        ShapeDifference {
            range: Some(range(alone.0)),
            p_value: Some(alone.1),
            beside_others: beside.map(|beside| range(beside.0)),
            beside_others_p_value: beside.map(|beside| beside.1),
            ..difference("arm", 0.1, &ShapeRatios { alone: None, beside_others: None })
        }
    }

    #[test]
    fn the_ratio_beside_the_others_counts_where_both_agree() {
        for (alone, beside, expected) in [
            ((1.1, 0.04), None, 0.04),
            ((1.1, 0.04), Some((1.2, 0.001)), 0.002),
            ((1.1, 0.001), Some((1.2, 0.04)), 0.002),
            ((0.9, 0.04), Some((0.8, 0.001)), 0.002),
            // All others became slower.
            ((1.01, 0.6), Some((0.9, 0.001)), 1.0),
            ((0.99, 0.04), Some((1.2, 0.001)), 0.08),
        ] {
            let found = p_value_of_both(&of_both(alone, beside));
            assert_eq!(found, Some(expected), "{alone:?} {beside:?}");
        }
        let neither = difference("arm", 0.1, &ShapeRatios { alone: None, beside_others: None });
        assert_eq!(p_value_of_both(&neither), None);
    }

    #[test]
    fn statements_that_wait_for_processors_are_told() {
        let note = queue_note(3.4, 0.96, 1).unwrap();
        assert!(note.starts_with("3.4 statements were under way"), "{note}");
        assert!(note.contains("(1) were busy 96 %"), "{note}");
        for (under_way, busy, cores) in
            [(0.9, 0.97, 1), (3.4, 0.5, 1), (3.4, 0.96, 4), (f64::NAN, f64::NAN, 2)]
        {
            assert_eq!(queue_note(under_way, busy, cores), None, "{under_way} {busy} {cores}");
        }
    }
}
