//! What the bench prints.

use std::fmt::Write as _;

use pgtoll_format::ByteSize;

use crate::record::{Header, Outcome};

/// What is going to be compared.
pub(crate) fn introduction(header: &Header) -> String {
    format!(
        "verifying beside pg_checksums --check of {}\n\
         {} cores of {}; {} repetitions in balanced orders, of files that are in the\n\
         page cache, or cold: not at all; ratios of the same repetition, with 95 %\n\
         intervals\n",
        header.servers.join(" and "),
        header.host.cores,
        header.host.cpu,
        header.repetitions
    )
}

/// The cluster.
pub(crate) fn cluster(major: u32, bytes: u64, files: usize) -> String {
    format!("\nPostgreSQL {major}: {} in {files} files\n", ByteSize(bytes).rounded())
}

/// Ratios and goals.
pub(crate) fn outcomes(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:<42}{:>7}{:>17}{:>8}\n", "", "ratio", "95 % interval", "goal");
    for of in outcomes {
        let interval = format!("[{:.3}, {:.3}]", of.lower, of.upper);
        let goal = of.at_most.map_or_else(String::new, |at_most| format!("{at_most:.3}"));
        let _ = writeln!(
            text,
            "{:<42}{:>7.3}{interval:>17}{goal:>8}  {}",
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
