//! What the bench prints.

use std::fmt::Write as _;

use pgtoll_checksum::Kernel;

use crate::record::{Header, Run};
use crate::runs::{Arm, Place};

/// What is going to be compared.
pub(crate) fn introduction(header: &Header) -> String {
    format!(
        "page checksums by every kernel that this processor can run\n\
         {} cores of {}; {} repetitions in balanced orders, one thread\n\
         the best kernel here is {}; times as fast in the same repetition, with 95 %\n\
         intervals\n\n",
        header.host.cores, header.host.cpu, header.repetitions, header.best
    )
}

/// Each kernel's speed: the median of its repetitions.
pub(crate) fn speeds(arms: &[Arm], runs: &[Run]) -> String {
    let mut text =
        format!("{:<18}{:>14}{:>14}{:>14}\n", "GB/s", "pages at once", "cache", "memory");
    for arm in arms {
        let speed = |place| {
            let own = runs.iter().filter(|run| run.arm == arm.name() && run.place == place);
            median(own.map(|run| 1.0 / run.nanoseconds_a_byte()).collect())
        };
        let at_once = match arm {
            Arm::Kernel(kernel) => kernel.pages_at_once().to_string(),
            Arm::PlainSum => String::new(),
        };
        let _ = writeln!(
            text,
            "{:<18}{at_once:>14}{:>14.1}{:>14.1}{}",
            arm.name(),
            speed(Place::Cache),
            speed(Place::Memory),
            if arm.name() == Kernel::best().name() { "  best" } else { "" }
        );
    }
    text
}

/// Of floats that are numbers; of none, not a number.
fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
