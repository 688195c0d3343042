//! Notes for a reader of a result.

use pgtoll_record::{ArmRound, Comparison, Metric, Outliers, Run, Workload};

use crate::figures::signed_percent;
use crate::intervals::ROUNDS_NEEDED;
use crate::metrics::{BEYOND, has_equal_slices, is_cut_off, metrics, name, slice_over_quantile};

pub(crate) fn notes(run: &Run, comparisons: &[Comparison]) -> Vec<String> {
    let mut notes = run.notes.clone();
    let skipped = run.skipped.iter();
    notes.extend(
        skipped.map(|skipped| format!("arm {} was skipped: {}", skipped.arm, skipped.reason)),
    );
    if !run.is_complete() {
        notes.push(incomplete(run));
    }
    if comparisons.is_empty() {
        notes.push(format!(
            "no intervals: they need at least {ROUNDS_NEEDED} completed rounds or repetitions"
        ));
    }
    if !run.unreadable_lines.is_empty() {
        let lines: Vec<String> = run.unreadable_lines.iter().map(usize::to_string).collect();
        notes.push(format!("lines of the record that cannot be read: {}", lines.join(", ")));
    }
    // Of the same slices other metrics show the same.
    let first = |comparison: &&Comparison| comparison.metric == Metric::CpuPerTransaction;
    notes.extend(comparisons.iter().filter(first).filter_map(changed_note));
    notes.extend(comparisons.iter().filter_map(|comparison| null_note(comparison, comparisons)));
    notes.extend(predictions_note(run));
    notes.extend(cpu_totals_note(run));
    notes.extend(run.header.workloads.iter().filter_map(|workload| cut_off_note(run, workload)));
    let changed = run.slices.iter().filter(|slice| slice.processes_changed).count();
    if changed > 0 {
        notes.push(format!(
            "in {changed} of {} slices a server process came or went: their CPU time is exact to \
             10 ms only",
            run.slices.len()
        ));
    }
    notes
}

/// Returns a note on the lowest percentile that slices are too short for: higher ones are missing too.
fn cut_off_note(run: &Run, workload: &Workload) -> Option<String> {
    let mut cut_off =
        metrics(workload).into_iter().filter(|metric| is_cut_off(run, workload, *metric));
    let lowest = cut_off.next()?;
    let name = name(lowest);
    let times = slice_over_quantile(lowest)?;
    let higher = if cut_off.next().is_some() { " and higher ones" } else { "" };
    let needs = if has_equal_slices(run, workload) {
        format!("{} transactions a round (--round-time)", times * BEYOND)
    } else {
        format!("slices that are {times} times as long (--slice)")
    };
    Some(format!("{}: no {name}{higher}: it needs {needs}", workload.name))
}

/// Returns a note on a null arm that widened the intervals of its row.
fn null_note(item: &Comparison, comparisons: &[Comparison]) -> Option<String> {
    let factor = item.null_factor.filter(|_| item.null)?;
    let is_of_row = |other: &&Comparison| {
        other.null && other.workload == item.workload && other.metric == item.metric
    };
    let off =
        |comparison: &Comparison| comparison.ratio.estimate.ln().abs() / comparison.half_width;
    let mut row = comparisons.iter().filter(is_of_row);
    let is_worst = row.all(|other| off(other) <= off(item));
    is_worst.then(|| {
        format!(
            "{}: the null arm {} differed by {} % in {}: intervals of this row are {factor:.1} \
             times as wide for it",
            item.workload,
            item.arm,
            signed_percent(item.ratio.estimate, 1),
            name(item.metric)
        )
    })
}

/// So improbable that among all comparisons of a run hardly one is noted by chance.
const HARDLY: f64 = 0.001;

/// Returns a note on a change in a comparison that is not chance.
fn changed_note(comparison: &Comparison) -> Option<String> {
    let row =
        || format!("{}: {} of {}", comparison.workload, name(comparison.metric), comparison.arm);
    let outliers = comparison.steadiness?.outliers.filter(|outliers| outliers.p < HARDLY);
    outliers.map(|Outliers { arm, baseline, slices, .. }| {
        format!(
            "{}: {arm} of {slices} slices are far off, against {baseline} of the baseline; they \
             count, and the typical slice does not show them",
            row()
        )
    })
}

fn incomplete(run: &Run) -> String {
    let reason = run.end.as_ref().and_then(|end| end.reason.as_deref());
    let reason = match (reason, &run.end) {
        (Some(reason), _) => reason,
        (None, Some(_)) => "a part of the record cannot be read",
        (None, None) => "the record breaks off",
    };
    let timed = run.header.workloads.iter();
    let timed = timed.filter(|timed| timed.timed && timed.slicing.is_some()).count();
    let planned = (run.header.design.rounds as usize).saturating_mul(timed);
    format!("incomplete: {} of {planned} rounds ({reason})", run.rounds.len())
}

/// Beyond this the two ways of counting a server's CPU time disagree enough to be told.
const CPU_TOTALS_MAY_DIFFER_BY: f64 = 0.02;
/// The cost of a shutdown between both counts.
const SHUTDOWN_NS: f64 = 200e6;

/// The kernel tells a server's CPU time twice: while it runs, process by process, and at its end
/// in one sum. They differ by what the shutdown costs, and should by no more.
#[expect(clippy::cast_precision_loss, reason = "a round's nanoseconds are far below 2^53")]
fn cpu_totals_note(run: &Run) -> Option<String> {
    let arms = || run.rounds.iter().flat_map(|round| &round.arms);
    let apart = |arm: &ArmRound| (arm.cpu_reaped_ns as f64 - arm.cpu_observed_ns as f64).abs();
    let is_far = |arm: &&ArmRound| {
        let relative = apart(arm) / (arm.cpu_reaped_ns as f64).max(1.0);
        relative > CPU_TOTALS_MAY_DIFFER_BY && apart(arm) > SHUTDOWN_NS
    };
    let worst = arms().filter(is_far).max_by(|a, b| apart(a).total_cmp(&apart(b)))?;
    Some(format!(
        "a server's CPU time by its processes' clocks and by its end (wait4) are more than 2 % \
         apart in {} of {} server runs, most in arm {}: {:.2} s and {:.2} s",
        arms().filter(is_far).count(),
        arms().count(),
        worst.arm,
        worst.cpu_observed_ns as f64 / 1e9,
        worst.cpu_reaped_ns as f64 / 1e9,
    ))
}

/// The WAL that predictions are made from, and how far off they were.
#[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
fn predictions_note(run: &Run) -> Option<String> {
    let from = &run.predicted.first()?.from;
    let errors = run.predicted.iter().filter_map(|predicted| {
        let mut counted = run.counted.iter();
        let same = counted.find(|counted| {
            counted.workload == predicted.workload && counted.arm == predicted.arm
        })?;
        Some((predicted.wal_bytes as f64 / same.counters.wal_bytes as f64 - 1.0).abs())
    });
    let worst = errors.filter(|error| error.is_finite()).max_by(f64::total_cmp)?;
    Some(format!(
        "predicted WAL is what `pgtoll wal whatif` says of an arm's settings from the WAL of {from}; \
         it is within {:.1} % of what the arm really wrote, shown above it",
        worst * 100.0
    ))
}
