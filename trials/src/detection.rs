//! The table of the trial of detection, in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pgtoll_record::trials::{DetectionOutcome, DetectionRecord, DetectionRow, Detector};

/// A row for each damage, a column for each detector. Where servers' versions differ, a cell names
/// them.
pub fn markdown(detection: &DetectionRecord) -> String {
    let mut text =
        format!("PostgreSQL {}; `{}`\n\n", detection.servers.join(", "), detection.command);
    let titles: Vec<&str> = Detector::ALL.map(title).into();
    let _ = writeln!(text, "| damage | {} |", titles.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(titles.len()));
    for (relation, damage) in damages(&detection.rows) {
        let rows: Vec<&DetectionRow> = detection
            .rows
            .iter()
            .filter(|row| row.relation == relation && row.damage == damage)
            .collect();
        let cells: Vec<String> =
            Detector::ALL.iter().map(|detector| cell(&rows, *detector)).collect();
        let _ = writeln!(text, "| {relation}: `{damage}` | {} |", cells.join(" | "));
    }
    text
}

/// Each damage once, in the order in which it was done.
fn damages(rows: &[DetectionRow]) -> Vec<(&str, &str)> {
    let mut damages = Vec::new();
    for row in rows {
        let damage = (row.relation.as_str(), row.damage.as_str());
        if !damages.contains(&damage) {
            damages.push(damage);
        }
    }
    damages
}

fn cell(rows: &[&DetectionRow], detector: Detector) -> String {
    let mut by_outcome: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in rows {
        let outcome = row.found.get(&detector).copied().unwrap_or(DetectionOutcome::NotRun);
        by_outcome.entry(word(outcome)).or_default().push(row.major.to_string());
    }
    if let [(only, _)] = by_outcome.iter().collect::<Vec<_>>().as_slice() {
        return (**only).to_owned();
    }
    by_outcome.remove(word(DetectionOutcome::NotRun));
    let each = by_outcome.iter().map(|(word, majors)| format!("{}: {word}", majors.join(", ")));
    each.collect::<Vec<_>>().join("; ")
}

fn word(outcome: DetectionOutcome) -> &'static str {
    match outcome {
        DetectionOutcome::Found => "**found**",
        DetectionOutcome::Unverified => "unverified",
        DetectionOutcome::WrongResult => "wrong result",
        DetectionOutcome::Unnoticed => "–",
        DetectionOutcome::NotRun => "",
    }
}

fn title(detector: Detector) -> &'static str {
    match detector {
        Detector::Offline => "`pgtoll verify`, stopped",
        Detector::Online => "running",
        Detector::PgChecksums => "`pg_checksums`",
        Detector::PgBasebackup => "`pg_basebackup`",
        Detector::PgVerifybackup => "`pg_verifybackup`",
        Detector::PgBackRest => "`pgbackrest backup`",
        Detector::PgAmcheck => "`pg_amcheck`",
        Detector::PgVisibility => "`pg_visibility`",
        Detector::Server => "queries",
        Detector::Ignoring => "queries, `ignore_checksum_failure`",
        Detector::WithoutChecksums => "queries, no checksums",
    }
}
