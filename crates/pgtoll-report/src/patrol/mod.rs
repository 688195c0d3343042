//! What a patrol read and found.

mod gauges;

use std::time::Duration;

use jiff::Timestamp;
use pgtoll_format::{ByteSize, TimeSpan, shell_quoted};
use pgtoll_record::{PatrolFinding, PatrolRecord, PatrolRound};

use crate::document::{Block, Document, Section, Step, Table};
use crate::records::{ReportedRecord, TableOptions};
use crate::verification::{blocks, class, severity, sums};

impl ReportedRecord for PatrolRecord {
    const HAS_GAUGES: bool = true;

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

fn source_words(of: &PatrolRecord) -> String {
    let checksums = if of.source.checksums { "with checksums" } else { "without checksums" };
    let server = if of.source.running { "a server runs on it" } else { "no server runs on it" };
    format!("PostgreSQL {}, {checksums}, {server}", of.source.major)
}

fn round_lines(of: &PatrolRecord) -> Vec<String> {
    let source = &of.source;
    let (bytes, rate) =
        (ByteSize(source.bytes).rounded(), ByteSize(of.budget.rate_bytes).rounded());
    let mut lines = vec![
        format!(
            "round {}: {:.0} % of {bytes} in {} files; at {rate}/s a round takes {}",
            of.round.number,
            100.0 * share_of_round(of),
            source.files,
            seconds_words(of.budget.round_seconds),
        ),
        format!(
            "read since {:.0}: {} pages, {}",
            of.began,
            of.read.pages,
            ByteSize(of.read.bytes).rounded()
        ),
    ];
    lines.extend(of.last_round.as_ref().map(last_round_words));
    lines.push(age_words(of));
    lines
}

fn last_round_words(of: &PatrolRound) -> String {
    let ended = of.ended.unwrap_or(of.began);
    let took = seconds_words(seconds_between(of.began, ended));
    format!("last full round: ended {ended:.0}, took {took}, {} pages", of.read.pages)
}

/// How long the page waits that waits longest.
fn age_words(of: &PatrolRecord) -> String {
    let age = oldest_seconds(of);
    let within = seconds_words(of.budget.within_seconds);
    let waits = match of.last_round {
        Some(_) => format!("the page that waits longest was read {} ago", seconds_words(age)),
        None => format!("some pages were not read yet, since {}", seconds_words(age)),
    };
    let late = if age > of.budget.within_seconds { "late: " } else { "" };
    format!("{late}{waits}; each is to be read within {within}")
}

fn verdict(of: &PatrolRecord) -> String {
    let left_out = left_out(of);
    if of.findings.is_empty() && left_out == 0 && of.unlisted.is_empty() {
        return match of.last_round {
            Some(_) => "sound".to_owned(),
            None => "nothing wrong so far; no round has come to its end".to_owned(),
        };
    }
    let more = match left_out {
        0 => String::new(),
        blocks => format!(", and {blocks} blocks more that are not listed"),
    };
    format!("{}{more}", sums(of.failures, of.suspicions, of.unverified))
}

/// Blocks with something wrong that the list had no room for.
fn left_out(of: &PatrolRecord) -> u64 {
    let before = of.last_round.as_ref().map_or(0, |round| round.left_out);
    before.max(of.round.left_out)
}

/// How much of the round was read, of what there was to read when files were listed last.
#[expect(clippy::cast_precision_loss, reason = "a share is a double")]
fn share_of_round(of: &PatrolRecord) -> f64 {
    match of.source.bytes {
        0 => 0.0,
        all => (of.round.read.bytes as f64 / all as f64).min(1.0),
    }
}

/// How long ago the page was read that waits longest.
fn oldest_seconds(of: &PatrolRecord) -> u64 {
    seconds_between(of.oldest_read, of.made)
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

fn fork_section(of: &PatrolRecord, findings: &[PatrolFinding], most: usize) -> Option<Section> {
    let first = findings.first()?;
    let row = |finding: &PatrolFinding| {
        let (block, class) = (blocks(&finding.page), class(finding.page.class).to_owned());
        vec![block, class, format!("{:.0}", finding.found), finding.page.words.clone()]
    };
    let rows = findings.iter().take(most).map(row).collect();
    let table = Table::with_prose(&["block", "class", "found", "what is wrong"], rows);
    let mut blocks = vec![Block::Table(table)];
    if let Some(more) = findings.len().checked_sub(most).filter(|more| *more > 0) {
        blocks.push(Block::Paragraph(format!("... {more} more")));
    }
    let file = format!("{}/{}", of.source.path.trim_end_matches('/'), first.path);
    blocks.push(Block::Steps(vec![Step {
        what: "verify the file".to_owned(),
        command: Some(format!("pgtoll verify {}", shell_quoted(&file))),
        is_sql: false,
    }]));
    Some(Section::detail(&title(first), blocks))
}

fn title(of: &PatrolFinding) -> String {
    let fork = if of.fork == "main" { String::new() } else { format!(", fork {}", of.fork) };
    let severity = severity(of.severity);
    match of.name.as_ref().map(ToString::to_string) {
        None => format!("file {}{fork}: {severity}", of.path),
        Some(name) => format!("{name} (file {}{fork}): {severity}", of.path),
    }
}

#[cfg(test)]
mod tests;
