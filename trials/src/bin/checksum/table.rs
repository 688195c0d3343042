//! The bench's output.

use std::fmt::Write as _;

use pgtoll_checksum::Kernel;
use pgtoll_record::trials::{BenchHeader, BenchPlace};
use pgtoll_trials::bench::upper_median;

use crate::runs::{Arm, Run};

/// What is going to be compared.
pub(crate) fn introduction(header: &BenchHeader, best: &str) -> String {
    format!(
        "page checksums by every kernel that this processor can run\n\
         {} cores of {}; {} repetitions in balanced orders, one thread\n\
         the best kernel here is {}; times as fast in the same repetition, with 95 %\n\
         intervals\n\n",
        header.host.cores, header.host.cpu, header.repetitions, best
    )
}

/// Each kernel's speed: the median of its repetitions.
pub(crate) fn speeds(arms: &[Arm], runs: &[Run]) -> String {
    let mut text =
        format!("{:<18}{:>14}{:>14}{:>14}\n", "GB/s", "pages at once", "cache", "memory");
    for arm in arms {
        let speed = |place| {
            let own = runs.iter().filter(|run| run.arm == arm.name() && run.place == place);
            upper_median(own.map(|run| 1.0 / run.nanoseconds_a_byte))
        };
        let at_once = match arm {
            Arm::Kernel(kernel) => kernel.pages_at_once().to_string(),
            Arm::PlainSum => String::new(),
        };
        let _ = writeln!(
            text,
            "{:<18}{at_once:>14}{:>14.1}{:>14.1}{}",
            arm.name(),
            speed(BenchPlace::Cache),
            speed(BenchPlace::Memory),
            if arm.name() == Kernel::best().name() { "  best" } else { "" }
        );
    }
    text
}
