//! Operations in turns, checked by the same operations in one piece.

use pgtoll_record::{Comparison, Interval, OnePieceCheck, Run, Workload};
use pgtoll_stats::{Options, pair_up, paired_ratio};

use crate::intervals::ROUNDS_NEEDED;
use crate::metrics::name;
use crate::samples::samples_in_one_piece;

/// Returns the check of each comparison in turns by operations in one piece.
pub(crate) fn one_piece_checks(run: &Run, comparisons: &[Comparison]) -> Vec<OnePieceCheck> {
    let workload = |name: &str| run.header.workloads.iter().find(|workload| workload.name == name);
    let checks = comparisons
        .iter()
        .filter_map(|comparison| check(run, workload(&comparison.workload)?, comparison));
    checks.collect()
}

/// `None` of what is not done in turns, and before there are two in one piece.
fn check(run: &Run, workload: &Workload, comparison: &Comparison) -> Option<OnePieceCheck> {
    let samples = samples_in_one_piece(run.into(), workload, comparison.metric);
    let arm = run.header.arms.iter().find(|arm| arm.name == comparison.arm)?;
    let against =
        comparison.against.as_deref().or(arm.twin_of.as_deref()).unwrap_or(&run.header.baseline);
    let rounds = pair_up(&samples, &comparison.arm, against);
    if rounds.len() < ROUNDS_NEEDED {
        return None;
    }
    let options = Options { seed: run.header.seed, ..Options::default() };
    let estimate = paired_ratio(&rounds, &options).ok()?;
    let in_one_piece =
        Interval { estimate: estimate.ratio, lower: estimate.lower, upper: estimate.upper };
    let agrees = in_one_piece.lower <= comparison.ratio.upper
        && comparison.ratio.lower <= in_one_piece.upper;
    Some(OnePieceCheck {
        workload: comparison.workload.clone(),
        metric: comparison.metric,
        arm: comparison.arm.clone(),
        in_one_piece,
        agrees,
    })
}

/// How the checks ended, for who reads the result.
pub(crate) fn one_piece_notes(checks: &[OnePieceCheck]) -> Vec<String> {
    if checks.is_empty() {
        return Vec::new();
    }
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let apart = checks.iter().filter(|check| !check.agrees).map(|check| {
        let Interval { lower, upper, .. } = check.in_one_piece;
        format!(
            "{}: {} of {} in one piece differs by {:+.1} to {:+.1} %, which does not overlap with \
             what the arms' turns show",
            check.workload,
            name(check.metric),
            check.arm,
            percent(lower),
            percent(upper)
        )
    });
    let agreeing = checks.iter().filter(|check| check.agrees).count();
    let summary = format!(
        "operations in turns were checked by the same ones in one piece: {agreeing} of {} intervals \
         overlap",
        checks.len()
    );
    std::iter::once(summary).chain(apart).collect()
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{Metric, Operation, Run, Work};

    use crate::summarise;

    const RECORD: &str = include_str!("../../../records/2026-11-22-pg17/run.jsonl");

    /// A run whose `first-select` costs `checksums` this much in turns and in one piece, where it
    /// costs the others 100.
    fn run(in_turns: u32, in_one_piece: u32) -> Run {
        let mut run = Run::parse(RECORD).unwrap();
        let selects = run
            .header
            .workloads
            .iter_mut()
            .find(|workload| workload.name == "first-select")
            .unwrap();
        let Work::Operation { turn_ns, .. } = &mut selects.work else { panic!("{selects:?}") };
        *turn_ns = Some(5_000_000);
        let arms = [("off", 1), ("hints", 2), ("checksums", 4), ("twin", 3)];
        let operation = |repetition: u32, (arm, number): (&str, u32)| {
            let turns = (repetition <= 10).then_some(20);
            let costs = if turns.is_some() { in_turns } else { in_one_piece };
            let costs = if arm == "checksums" { costs } else { 100 };
            let cpu_ns = u64::from(costs * (1000 + 2 * ((repetition * 7 + number) % 5))) * 1000;
            Operation {
                workload: "first-select".to_owned(),
                repetition,
                half: 1,
                arm: arm.to_owned(),
                server_cpu_ns: cpu_ns,
                duration_ns: cpu_ns,
                turns,
                ..Operation::default()
            }
        };
        run.operations = (1..=13).flat_map(|item| arms.map(|arm| operation(item, arm))).collect();
        run
    }

    #[test]
    fn what_is_in_one_piece_checks_and_is_not_mixed_in() {
        let result = summarise(&run(150, 150));
        let pick = |metric| {
            let mut all = result.comparisons.iter();
            all.find(|comparison| comparison.arm == "checksums" && comparison.metric == metric)
                .unwrap()
        };
        let cpu = pick(Metric::CpuPerOperation);
        assert_eq!(cpu.rounds, 10);
        assert!((cpu.ratio.estimate - 1.5).abs() < 0.01, "{cpu:?}");
        assert_eq!(result.in_one_piece.len(), 6);
        assert!(result.in_one_piece.iter().all(|check| check.agrees), "{:?}", result.in_one_piece);
        assert!(result.notes.iter().any(|note| note.contains("6 of 6 intervals overlap")));
    }

    #[test]
    fn a_bias_of_turns_is_noted() {
        let result = summarise(&run(150, 250));
        let apart = result.in_one_piece.iter().filter(|check| !check.agrees);
        assert_eq!(apart.count(), 2);
        let notes = result.notes.join("\n");
        assert!(notes.contains("4 of 6 intervals overlap"), "{notes}");
        assert!(notes.contains("server CPU of checksums in one piece differs by"), "{notes}");
    }
}
