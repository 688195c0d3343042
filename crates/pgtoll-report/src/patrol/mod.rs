//! Patrols: the verdict, the rounds, and the findings by fork.

mod gauges;

use std::time::Duration;

use jiff::Timestamp;
use pgtoll_format::{ByteSize, TimeSpan, shell_quoted};
use pgtoll_record::{PatrolFinding, PatrolRecord, PatrolRound};

use crate::document::{Block, Document, DocumentStep, Section, Table};
use crate::plugin::{PluginFacts, PluginFigure};
use crate::records::{ReportedRecord, TableOptions};
use crate::verification::{blocks, class, severity, sums};

impl ReportedRecord for PatrolRecord {
    const HAS_GAUGES: bool = true;
    const IS_CHECK: bool = true;

    fn check(&self) -> Option<PluginFacts> {
        Some(PluginFacts {
            made: Some(self.made),
            figures: vec![
                PluginFigure::count("failures", self.failures),
                PluginFigure::count("suspicions", self.suspicions),
                PluginFigure::count("unverified_blocks", self.unverified),
                PluginFigure::seconds("oldest_page_age", oldest_seconds(self)),
            ],
        })
    }

    /// The verdict, how far the round is, and what is wrong by fork.
    fn document(&self, options: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll verify --patrol",
            question: "Are the pages sound, round after round?",
            subject: source_words(self),
            answer: vec![format!("{}: {}", self.source.path, verdict(self))],
            notes: self.notes.clone(),
            again: self.command.clone(),
            ..Document::default()
        };
        document.push(Section::detail("Rounds", vec![Block::List(round_lines(self))]));
        let is_same = |one: &PatrolFinding, next: &PatrolFinding| {
            one.path == next.path && one.fork == next.fork
        };
        for findings in self.findings.chunk_by(is_same) {
            document.push(fork_section(self, findings, options.most));
        }
        document.push(Section::list("Could not be listed", &self.unlisted, options.most));
        document
    }

    fn gauges(&self) -> Option<String> {
        Some(gauges::patrol_openmetrics(self))
    }
}

fn source_words(patrol: &PatrolRecord) -> String {
    let checksums = if patrol.source.checksums { "with checksums" } else { "without checksums" };
    let server = if patrol.source.running { "a server runs on it" } else { "no server runs on it" };
    format!("PostgreSQL {}, {checksums}, {server}", patrol.source.major)
}

fn round_lines(patrol: &PatrolRecord) -> Vec<String> {
    let source = &patrol.source;
    let bytes = ByteSize(source.bytes).rounded();
    let rate = ByteSize(patrol.budget.rate_bytes).rounded();
    let mut lines = vec![
        format!(
            "round {}: {:.0} % of {bytes} in {} files; at {rate}/s a round takes {}",
            patrol.round.number,
            100.0 * share_of_round(patrol),
            source.files,
            seconds_words(patrol.budget.round_seconds),
        ),
        format!(
            "read since {:.0}: {} pages, {}",
            patrol.began,
            patrol.read.pages,
            ByteSize(patrol.read.bytes).rounded()
        ),
    ];
    lines.extend(patrol.last_round.as_ref().map(last_round_words));
    lines.push(age_words(patrol));
    lines
}

fn last_round_words(round: &PatrolRound) -> String {
    let ended = round.ended.unwrap_or(round.began);
    let took = seconds_words(seconds_between(round.began, ended));
    format!("last full round: ended {ended:.0}, took {took}, {} pages", round.read.pages)
}

/// How long the page waits that waits longest.
fn age_words(patrol: &PatrolRecord) -> String {
    let age = oldest_seconds(patrol);
    let within = seconds_words(patrol.budget.within_seconds);
    let waits = match patrol.last_round {
        Some(_) => format!("the page that waits longest was read {} ago", seconds_words(age)),
        None => format!("some pages were not read yet, since {}", seconds_words(age)),
    };
    let late = if age > patrol.budget.within_seconds { "late: " } else { "" };
    format!("{late}{waits}; each is to be read within {within}")
}

fn verdict(patrol: &PatrolRecord) -> String {
    let left_out = left_out(patrol);
    if patrol.findings.is_empty() && left_out == 0 && patrol.unlisted.is_empty() {
        return match patrol.last_round {
            Some(_) => "sound".to_owned(),
            None => "nothing wrong so far; no round has come to its end".to_owned(),
        };
    }
    let more = match left_out {
        0 => String::new(),
        blocks => format!(", and {blocks} blocks more that are not listed"),
    };
    format!("{}{more}", sums(patrol.failures, patrol.suspicions, patrol.unverified))
}

/// Blocks with something wrong that the list had no room for.
fn left_out(patrol: &PatrolRecord) -> u64 {
    let before = patrol.last_round.as_ref().map_or(0, |round| round.left_out);
    before.max(patrol.round.left_out)
}

/// How much of the round was read, of what there was to read when files were listed last.
#[expect(clippy::cast_precision_loss, reason = "a share is a double")]
fn share_of_round(patrol: &PatrolRecord) -> f64 {
    match patrol.source.bytes {
        0 => 0.0,
        all => (patrol.round.read.bytes as f64 / all as f64).min(1.0),
    }
}

/// How long ago the page was read that waits longest.
fn oldest_seconds(patrol: &PatrolRecord) -> u64 {
    seconds_between(patrol.oldest_read, patrol.made)
}

/// A clock may have been put back.
fn seconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_secs()).unwrap_or(0)
}

fn seconds_words(seconds: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    match seconds {
        0..=172_800 => TimeSpan(Duration::from_secs(seconds)).rounded(),
        _ => format!("{:.1} d", seconds as f64 / 86_400.0),
    }
}

fn fork_section(patrol: &PatrolRecord, findings: &[PatrolFinding], most: usize) -> Option<Section> {
    let first = findings.first()?;
    let row = |finding: &PatrolFinding| {
        let block = blocks(&finding.page);
        let class = class(finding.page.class).to_owned();
        vec![block, class, format!("{:.0}", finding.found), finding.page.words.clone()]
    };
    let rows = findings.iter().take(most).map(row).collect();
    let table = Table::with_prose(&["block", "class", "found", "what is wrong"], rows);
    let mut blocks = vec![Block::Table(table)];
    if let Some(more) = findings.len().checked_sub(most).filter(|more| *more > 0) {
        blocks.push(Block::Paragraph(format!("... {more} more")));
    }
    let file = format!("{}/{}", patrol.source.path.trim_end_matches('/'), first.path);
    blocks.push(Block::Steps(vec![DocumentStep {
        what: "verify the file".to_owned(),
        command: Some(format!("pgtoll verify {}", shell_quoted(&file))),
        is_sql: false,
    }]));
    Some(Section::detail(&title(first), blocks))
}

fn title(finding: &PatrolFinding) -> String {
    let fork =
        if finding.fork == "main" { String::new() } else { format!(", fork {}", finding.fork) };
    let severity = severity(finding.severity);
    match finding.name.as_ref().map(ToString::to_string) {
        None => format!("file {}{fork}: {severity}", finding.path),
        Some(name) => format!("{name} (file {}{fork}): {severity}", finding.path),
    }
}

#[cfg(test)]
pub(crate) mod tests;
