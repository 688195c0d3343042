//! The table, in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::record::{Detection, Detector, Outcome, Row};

/// A row for each damage, a column for each who looks. Where servers' versions differ, each says
/// so.
pub fn markdown(detection: &Detection) -> String {
    let mut text =
        format!("PostgreSQL {}; `{}`\n\n", detection.servers.join(", "), detection.command);
    let titles: Vec<&str> = Detector::ALL.map(title).into();
    let _ = writeln!(text, "| damage | {} |", titles.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(titles.len()));
    for (relation, damage) in damages(&detection.rows) {
        let rows: Vec<&Row> = detection
            .rows
            .iter()
            .filter(|row| row.relation == relation && row.damage == damage)
            .collect();
        let cells: Vec<String> = Detector::ALL.iter().map(|who| cell(&rows, *who)).collect();
        let _ = writeln!(text, "| {relation}: `{damage}` | {} |", cells.join(" | "));
    }
    text
}

/// Each damage once, in the order in which it was done.
fn damages(rows: &[Row]) -> Vec<(&str, &str)> {
    let mut damages = Vec::new();
    for row in rows {
        let damage = (row.relation.as_str(), row.damage.as_str());
        if !damages.contains(&damage) {
            damages.push(damage);
        }
    }
    damages
}

fn cell(rows: &[&Row], who: Detector) -> String {
    let mut by_outcome: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in rows {
        let outcome = row.found.get(&who).copied().unwrap_or(Outcome::NotRun);
        by_outcome.entry(word(outcome)).or_default().push(row.major.to_string());
    }
    if let [(only, _)] = by_outcome.iter().collect::<Vec<_>>().as_slice() {
        return (**only).to_owned();
    }
    let each = by_outcome.iter().map(|(word, majors)| format!("{}: {word}", majors.join(", ")));
    each.collect::<Vec<_>>().join("; ")
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Found => "**found**",
        Outcome::Unverified => "unverified",
        Outcome::WrongResult => "wrong result",
        Outcome::Unnoticed => "–",
        Outcome::NotRun => "",
    }
}

fn title(of: Detector) -> &'static str {
    match of {
        Detector::Offline => "`pgtoll verify`, stopped",
        Detector::Online => "running",
        Detector::PgChecksums => "`pg_checksums`",
        Detector::PgBasebackup => "`pg_basebackup`",
        Detector::PgVerifybackup => "`pg_verifybackup`",
        Detector::PgAmcheck => "`pg_amcheck`",
        Detector::Server => "queries",
        Detector::Ignoring => "queries, `ignore_checksum_failure`",
        Detector::WithoutChecksums => "queries, no checksums",
    }
}
