//! The bench's output.

use std::fmt::Write as _;

use pgtoll_record::trials::{
    DesignEstimate, DesignHeader, DesignNeighbours, DesignSummary, DesignTrial,
};

use crate::bursts::MEAN_SPAN;

/// What is going to be compared, and under what.
pub(crate) fn introduction(header: &DesignHeader) -> String {
    let DesignHeader { wall_seconds, run_seconds, runs_per_cluster, rounds, slice_ms, .. } = header;
    let cores = header.host.cores;
    let neighbours = header.neighbours;
    format!(
        "two identical clusters: how wide is the 95 % interval of their ratio?\n\
         \x20 sequential: pgbench -S, {runs_per_cluster} x {run_seconds} s of a, then of b; Welch\n\
         \x20 pgtoll:     {rounds} rounds, slices of {slice_ms} ms in random order; not widened\n\
         each has {wall_seconds} s in each trial (pgtoll's with restarts and warm-ups)\n\
         background load: {neighbours} processes on {cores} cores, busy and idle in turn, spans of\n\
         exponential length, {mean} s on average; in a trial both designs see the same\n\
         schedule from its start, one after the other, which comes first is random\n\
         {server}, pgbench scale {scale}, {trials} trials, seed {seed}\n\
         half-widths are of the logarithm of the ratio\n",
        mean = MEAN_SPAN.as_secs(),
        server = header.server,
        scale = header.scale,
        trials = header.trials,
        seed = header.seed,
    )
}

/// One trial.
pub(crate) fn trial(trial: &DesignTrial) -> String {
    let first = if trial.sequential_first { "sequential" } else { "pgtoll" };
    let mut text = format!("\ntrial {}, {first} first\n{}\n", trial.number, heading());
    let sequential = &trial.sequential;
    let sliced = &trial.sliced;
    let rows = [
        ("sequential, tps", sequential.wall_seconds, &sequential.tps, sequential.neighbours),
        ("pgtoll, tps", sliced.wall_seconds, &sliced.tps, sliced.neighbours),
        ("pgtoll, server CPU/tx", sliced.wall_seconds, &sliced.cpu, sliced.neighbours),
    ];
    for (name, wall_seconds, estimate, neighbours) in rows {
        let _ = writeln!(text, "{}", row(name, wall_seconds, estimate, neighbours));
    }
    let _ =
        writeln!(text, "half-widths of tps, sequential / pgtoll: {:.1}", trial.half_widths_ratio);
    text
}

fn heading() -> String {
    format!(
        "{:<22}{:>7}{:>8}{:>17}{:>11}{:>4}{:>11}",
        "", "wall s", "ratio", "95 % interval", "half-width", "1?", "load"
    )
}

fn row(
    name: &str,
    wall_seconds: f64,
    estimate: &DesignEstimate,
    neighbours: DesignNeighbours,
) -> String {
    let covers = if estimate.covers_one { "yes" } else { "no" };
    let interval = format!("[{:.3}, {:.3}]", estimate.lower, estimate.upper);
    let load = format!("{:.2}/{:.2}", neighbours.cores_used, neighbours.cores_wanted);
    format!(
        "{name:<22}{wall_seconds:>7.1}{:>8.3}{interval:>17}{:>11.4}{covers:>4}{load:>11}",
        estimate.ratio, estimate.half_width
    )
}

/// The medians, and whether the goal is reached.
pub(crate) fn summary(summary: &DesignSummary) -> String {
    let DesignSummary { trials, goal, .. } = summary;
    let row = |name: &str, half_width: f64, covers: u64| {
        format!("{name:<22}{half_width:>10.4}   covers 1 in {covers} of {trials}\n")
    };
    let verdict = if summary.half_widths_ratio >= *goal { "reached" } else { "missed" };
    [
        format!("\nmedian half-widths of {trials} trials\n"),
        row("sequential, tps", summary.sequential_tps_half_width, summary.sequential_covers_one),
        row("pgtoll, tps", summary.sliced_tps_half_width, summary.sliced_tps_covers_one),
        row("pgtoll, server CPU/tx", summary.sliced_cpu_half_width, summary.sliced_cpu_covers_one),
        format!(
            "median ratio, tps: {:.1}; the goal of {goal:.0} is {verdict}\n",
            summary.half_widths_ratio
        ),
    ]
    .concat()
}

/// What the columns `1?` and `load` mean.
pub(crate) const LEGEND: &str = "\
1?: the interval covers the truth, 1
load: cores that the neighbours had, of those that their schedule asked for
";
