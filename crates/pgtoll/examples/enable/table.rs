//! What the bench prints.

use std::fmt::Write as _;

use crate::record::{Header, Outcome};
use crate::runs::{Arm, Usage};

/// What is going to be compared.
pub(crate) fn introduction(header: &Header) -> String {
    format!(
        "turning checksums on beside pg_checksums --enable\n\
         {} cores of {}; {} repetitions in balanced orders, each of a fresh copy whose\n\
         files are in the page cache, and clean; ratios of the same repetition, with\n\
         95 % intervals\n",
        header.host.cores, header.host.cpu, header.repetitions
    )
}

/// Each arm's times: the medians of its repetitions.
pub(crate) fn times(server: &str, runs: &[(Arm, Usage)]) -> String {
    let mut text = format!("\n{server:<46}{:>10}{:>10}\n", "wall", "CPU");
    let has_run = |arm: &Arm| runs.iter().any(|(of, _)| of == arm);
    for arm in Arm::ALL.into_iter().filter(has_run) {
        let median = |of: fn(&Usage) -> f64| {
            let own = runs.iter().filter(|(of, _)| *of == arm);
            let mut own: Vec<f64> = own.map(|(_, usage)| of(usage)).collect();
            own.sort_by(f64::total_cmp);
            own.get(own.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let (wall, cpu) = (median(|usage| usage.wall_s), median(Usage::cpu_s));
        let _ = writeln!(text, "{:<46}{wall:>8.2} s{cpu:>8.2} s", arm.name());
    }
    text
}

/// Ratios and goals.
pub(crate) fn outcomes(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:<42}{:>7}{:>18}{:>8}\n", "", "ratio", "95 % interval", "goal");
    for of in outcomes {
        let interval = format!("[{:.3}, {:.3}]", of.lower, of.upper);
        let goal = of.at_most.map_or_else(String::new, |at_most| format!("{at_most:.3}"));
        let _ = writeln!(
            text,
            "{:<42}{:>7.3}{interval:>18}{goal:>8}  {}",
            of.what,
            of.ratio,
            verdict(of)
        );
    }
    text
}

fn verdict(of: &Outcome) -> &'static str {
    match of.at_most {
        None => "",
        Some(at_most) if of.upper <= at_most => "reached",
        Some(at_most) if of.ratio <= at_most => "reached, by its middle",
        Some(at_most) if of.lower <= at_most => "missed, by its middle",
        Some(_) => "missed",
    }
}
