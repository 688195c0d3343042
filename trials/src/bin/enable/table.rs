//! What the bench prints.

use std::fmt::Write as _;

use pgtoll_trials::Usage;

use crate::record::Header;
use crate::runs::Arm;

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
