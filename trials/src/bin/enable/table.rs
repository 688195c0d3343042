//! The bench's output.

use std::fmt::Write as _;

use pgtoll_record::trials::{BenchHeader, BenchUsage};
use pgtoll_trials::bench::{Runs, TimedArm as _, upper_median};

use crate::runs::Arm;

/// What is going to be compared.
pub(crate) fn introduction(header: &BenchHeader) -> String {
    format!(
        "turning checksums on beside pg_checksums --enable\n\
         {} cores of {}; {} repetitions in balanced orders, each of a fresh copy whose\n\
         files are in the page cache, and clean; ratios of the same repetition, with\n\
         95 % intervals\n",
        header.host.cores, header.host.cpu, header.repetitions
    )
}

/// Each arm's times: the medians of its repetitions.
pub(crate) fn times(title: &str, runs: &Runs<Arm>) -> String {
    let mut text = format!("\n{title:<46}{:>10}{:>10}\n", "wall", "CPU");
    for arm in Arm::ALL {
        let own: Vec<&BenchUsage> =
            runs.iter().filter(|(other, _)| other == arm).map(|(_, usage)| usage).collect();
        if own.is_empty() {
            continue;
        }
        let wall = upper_median(own.iter().map(|usage| usage.wall_s));
        let cpu = upper_median(own.iter().map(|usage| usage.cpu_s()));
        let _ = writeln!(text, "{:<46}{wall:>8.2} s{cpu:>8.2} s", arm.name());
    }
    text
}
