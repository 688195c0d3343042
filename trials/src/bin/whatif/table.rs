//! Predictions as a table, and beside their goals.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use pgtoll_record::trials::{
    WhatIfTrialCompression, WhatIfTrialKind as Kind, WhatIfTrialLine, WhatIfTrialPrediction,
    WhatIfTrialSetting, WhatIfTrialWorkload,
};

use crate::work;

/// A setting in a few words.
pub(crate) fn name(setting: &WhatIfTrialSetting) -> String {
    let mut name = format!("{}MB", setting.max_wal_size_mb);
    if !setting.hints {
        name.push_str(", hints off");
    }
    if setting.compression != WhatIfTrialCompression::Off {
        let _ = write!(name, ", {}", setting.compression.name());
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

fn describe(kind: Kind) -> &'static str {
    KINDS.iter().find(|(own, _)| *own == kind).map_or("", |(_, words)| words)
}

/// The largest error that is good enough; `None`: the error is reported and has no goal.
fn goal(prediction: &WhatIfTrialPrediction) -> Option<f64> {
    match prediction.kind {
        Kind::OwnRedoPoints | Kind::Own => Some(0.001),
        Kind::Longer => Some(0.025),
        Kind::ShorterWithoutHints | Kind::Shorter
            if prediction.workload == WhatIfTrialWorkload::Pgbench =>
        {
            Some(0.05)
        }
        Kind::ShorterWithoutHints | Kind::Shorter => None,
        Kind::HintsOff => Some(0.01),
        Kind::Compressed => Some(0.04),
    }
}

fn is_reached(prediction: &WhatIfTrialPrediction) -> bool {
    let is_near = |goal| prediction.error().abs() <= goal;
    prediction.absent == 0 && goal(prediction).is_none_or(is_near)
}

/// Every prediction is as good as it should be.
pub(crate) fn reached(all: &[WhatIfTrialPrediction]) -> bool {
    all.iter().all(is_reached)
}

/// How many predictions are good enough, then each of them.
pub(crate) fn markdown(all: &[WhatIfTrialPrediction]) -> String {
    let mut text =
        String::from("| | goal | predictions | within it | worst |\n|---|---|---|---|---|\n");
    for (kind, words) in KINDS {
        for workload in WhatIfTrialWorkload::ALL {
            let own = all.iter().filter(|own| own.kind == kind && own.workload == workload);
            let own: Vec<&WhatIfTrialPrediction> = own.collect();
            let Some(first) = own.first() else { continue };
            let errors = own.iter().map(|prediction| prediction.error());
            let worst = errors.max_by(|one, other| one.abs().total_cmp(&other.abs()));
            let goal =
                goal(first).map_or_else(|| "–".to_owned(), |goal| format!("{:.1} %", goal * 100.0));
            let within = own.iter().filter(|prediction| is_reached(prediction)).count();
            let within = if goal == "–" { "–".to_owned() } else { within.to_string() };
            let _ = writeln!(
                text,
                "| {words}, {} | {goal} | {} | {within} | {:+.2} % |",
                work::name(workload),
                own.len(),
                worst.unwrap_or(0.0) * 100.0
            );
        }
    }
    let absent: u64 = all.iter().map(|prediction| prediction.absent).sum();
    let _ = writeln!(text, "\nPredicted but absent images, in all sources together: {absent}.\n");
    text.push_str(
        "| server | work | | from | to | predicted | really | error |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for prediction in all.iter().filter(|prediction| prediction.kind != Kind::OwnRedoPoints) {
        let missed = if is_reached(prediction) { "" } else { " (missed)" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {:+.2} %{missed} |",
            prediction.server,
            work::name(prediction.workload),
            describe(prediction.kind),
            name(&prediction.source),
            name(&prediction.target),
            megabytes(prediction.predicted_bytes),
            megabytes(prediction.actual_bytes),
            prediction.error() * 100.0
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

/// Replaces the table between the marks of a chapter by that of the record.
pub(crate) fn into_book(record: &Path, book: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(record).context("read the record")?;
    let mut all = Vec::new();
    let mut header = None;
    for line in text.lines() {
        match serde_json::from_str(line).context("read the record")? {
            WhatIfTrialLine::Prediction(prediction) => all.push(prediction),
            WhatIfTrialLine::Header(found) => header = Some(found),
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
