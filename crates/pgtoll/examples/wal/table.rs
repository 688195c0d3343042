//! What the bench prints.

use std::fmt::Write as _;

use pgtoll_format::ByteSize;

use crate::make::{Kind, Wal};
use crate::record::{Header, Outcome};
use crate::runs::{Peak, Total};

/// What is going to be compared.
pub(crate) fn introduction(header: &Header) -> String {
    format!(
        "reading WAL beside pg_waldump of {}\n\
         {} cores of {}; {} repetitions in balanced orders, each run of WAL that is in\n\
         the page cache; ratios of the same repetition, with 95 % intervals\n",
        header.server, header.host.cores, header.host.cpu, header.repetitions
    )
}

/// The WAL.
#[expect(clippy::cast_precision_loss, reason = "it is told in per cent")]
pub(crate) fn wal(kind: Kind, wal: &Wal, total: &Total) -> String {
    let share = total.image_bytes as f64 / (total.record_bytes + total.image_bytes) as f64 * 100.0;
    format!(
        "\n{}: {} in {} segments, {} records, {share:.0} % images\n",
        kind.name(),
        ByteSize(wal.bytes).rounded(),
        wal.files.len(),
        total.records
    )
}

/// What the reading took, whatever there was to read.
pub(crate) fn memory(peak: Peak) -> String {
    let Peak { quarter_kb, whole_kb } = peak;
    format!("peak memory of two threads: {quarter_kb} kB for a quarter of it, {whole_kb} kB\n")
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
