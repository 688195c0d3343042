//! Predictions as a table, and beside their goals.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use crate::work::{Setting, WalCompression, Workload};
use crate::{Kind, Line, Prediction};

pub(crate) fn name(of: &Setting) -> String {
    let mut name = format!("{}MB", of.max_wal_size_mb);
    if !of.hints {
        name.push_str(", hints off");
    }
    if of.compression != WalCompression::Off {
        let _ = write!(name, ", {}", of.compression.name());
    }
    name
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::OwnRedoPoints, "own redo points"),
    (Kind::Own, "own settings"),
    (Kind::Longer, "longer distance"),
    (Kind::ShorterWithoutHints, "shorter, no hints"),
    (Kind::Shorter, "shorter, hints"),
    (Kind::HintsOff, "hints off"),
    (Kind::Compressed, "compressed"),
];

fn words(kind: Kind) -> &'static str {
    KINDS.iter().find(|of| of.0 == kind).map_or("", |of| of.1)
}

/// The largest error that is good enough; `None`: it is told, and no goal.
fn goal(of: &Prediction) -> Option<f64> {
    match of.kind {
        Kind::OwnRedoPoints | Kind::Own => Some(0.001),
        Kind::Longer => Some(0.025),
        Kind::ShorterWithoutHints | Kind::Shorter if of.workload == Workload::Pgbench => Some(0.05),
        Kind::ShorterWithoutHints | Kind::Shorter => None,
        Kind::HintsOff => Some(0.01),
        Kind::Compressed => Some(0.04),
    }
}

fn is_reached(of: &Prediction) -> bool {
    of.absent == 0 && goal(of).is_none_or(|goal| of.error().abs() <= goal)
}

/// Every prediction is as good as it should be.
pub(crate) fn reached(all: &[Prediction]) -> bool {
    all.iter().all(is_reached)
}

/// What it comes to, then every prediction.
pub(crate) fn markdown(all: &[Prediction]) -> String {
    let mut text =
        String::from("| | goal | predictions | within it | worst |\n|---|---|---|---|---|\n");
    for (kind, words) in KINDS {
        for workload in Workload::ALL {
            let of: Vec<&Prediction> =
                all.iter().filter(|of| of.kind == kind && of.workload == workload).collect();
            let Some(first) = of.first() else { continue };
            let worst = of
                .iter()
                .map(|of| of.error())
                .max_by(|one, other| one.abs().total_cmp(&other.abs()));
            let goal =
                goal(first).map_or_else(|| "–".to_owned(), |goal| format!("{:.1} %", goal * 100.0));
            let within = of.iter().filter(|of| is_reached(of)).count();
            let within = if goal == "–" { "–".to_owned() } else { within.to_string() };
            let _ = writeln!(
                text,
                "| {words}, {} | {goal} | {} | {within} | {:+.2} % |",
                workload.name(),
                of.len(),
                worst.unwrap_or(0.0) * 100.0
            );
        }
    }
    let absent: u64 = all.iter().map(|of| of.absent).sum();
    let _ = writeln!(text, "\nPredicted but absent images, in all sources together: {absent}.\n");
    text.push_str(
        "| server | work | | from | to | predicted | really | error |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for of in all.iter().filter(|of| of.kind != Kind::OwnRedoPoints) {
        let missed = if is_reached(of) { "" } else { " (missed)" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {:+.2} %{missed} |",
            of.server,
            of.workload.name(),
            words(of.kind),
            name(&of.source),
            name(&of.target),
            megabytes(of.predicted_bytes),
            megabytes(of.actual_bytes),
            of.error() * 100.0
        );
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
fn megabytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / 1e6)
}

const BEGIN: &str = "<!-- whatif-trial -->\n";
const END: &str = "<!-- /whatif-trial -->";

/// Replaces what stands between the marks of a chapter by the record's table.
pub(crate) fn into_book(record: &Path, book: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(record).context("read the record")?;
    let mut all = Vec::new();
    let mut header = None;
    for line in text.lines() {
        match serde_json::from_str(line).context("read the record")? {
            Line::Prediction(prediction) => all.push(prediction),
            Line::Header(of) => header = Some(of),
        }
    }
    let header = header.context("the record has no header")?;
    let chapter = std::fs::read_to_string(book).context("read the chapter")?;
    let (before, rest) = chapter.split_once(BEGIN).context("the chapter has no place for it")?;
    let (_, after) = rest.split_once(END).context("the chapter has no place for it")?;
    let made = format!(
        "{BEGIN}`{}`, {}, {} cores of {}; sizes in 10^6 bytes.\n\n{}{END}",
        header.command,
        header.started.get(..10).unwrap_or_default(),
        header.host.cores,
        header.host.cpu,
        markdown(&all)
    );
    std::fs::write(book, format!("{before}{made}{after}")).context("write the chapter")
}
