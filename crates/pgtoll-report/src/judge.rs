//! Judged runs: the verdict first.

use std::fmt::Write as _;

use pgtoll_record::{
    AcknowledgementGap, ClientTimeline, IdSet, JudgeRecord, JudgeVerdict, JudgedClient, JudgedNode,
    NodeIdentity, TransactionExample,
};

use crate::document::{Block, Document, Section, Table};
use crate::html::timeline;
use crate::records::{ReportedRecord, TableOptions};
use crate::text::{seconds_text, wrapped};
use crate::wal_numbers::{count, counted};

impl ReportedRecord for JudgeRecord {
    /// The verdict, what clients saw, what became of the transactions, and each client over time.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll lab judge",
            question: "What did an application see?",
            subject: subject_words(self),
            answer: vec![judge_headline(self)],
            findings: self.findings.clone(),
            notes: self
                .notes
                .iter()
                .map(String::as_str)
                .chain([PLACE])
                .map(str::to_owned)
                .collect(),
            again: self.command.clone(),
            ..Document::default()
        };
        document.push(Section::detail("What clients saw", vec![count_table(&seen_rows(self))]));
        if self.verdict.is_some() {
            let table = count_table(&set_rows(self));
            document.push(Section::detail("What became of the transactions", vec![table]));
        }
        document.push(client_section(self));
        for (title, lines) in [
            ("Servers that answered", node_lines(self)),
            ("Readers", read_lines(self)),
            ("Errors", error_lines(self)),
            ("Some of these transactions", example_lines(self)),
        ] {
            document.push(
                (!lines.is_empty()).then(|| Section::detail(title, vec![Block::List(lines)])),
            );
        }
        document.notes.extend(self.journal.iter().map(|journal| format!("journals: {journal}")));
        document
    }
}

fn count_table(rows: &[NamedCount]) -> Block {
    let row = |(name, number, words): &NamedCount| {
        vec![(*name).to_owned(), count(*number), words.clone()]
    };
    let rows = rows.iter().map(row).collect();
    Block::Table(Table::with_prose(&["transactions", "number", "meaning"], rows))
}

fn client_section(record: &JudgeRecord) -> Section {
    let row = |(number, client)| client_row(number, client).to_vec();
    let rows: Vec<Vec<String>> = record.clients.iter().enumerate().map(row).collect();
    let (shown, others) = rows.split_at(rows.len().min(SHOWN));
    let mut blocks = vec![Block::Table(Table::new(&CLIENT_HEAD, shown.to_vec()))];
    if !others.is_empty() {
        blocks.push(Block::Paragraph(format!("and {} more", others.len())));
    }
    blocks.push(Block::Composed {
        text: client_lines(record),
        page: timeline("clients-over-time", &client_timeline(record)),
    });
    Section::detail("Clients", blocks)
}

/// The clients over time, as labs have it.
fn client_timeline(record: &JudgeRecord) -> ClientTimeline {
    ClientTimeline {
        seconds: record.seconds,
        bin_s: record.bin_s,
        clients: record.clients.iter().map(|client| client.line.clone()).collect(),
        events: record.events.clone(),
    }
}

/// A note for every such record.
const PLACE: &str = "times and losses are those of this run: of its load, its network \
    and this fault; repeat it, since losses are a distribution";

/// The answer in one line.
fn judge_headline(judge: &JudgeRecord) -> String {
    let counts = &judge.transactions;
    let mut words = match &judge.verdict {
        Some(verdict) => format!(
            "{} of {} lost",
            count(verdict.lost.count),
            counted(counts.acknowledged, "acknowledged transaction", "acknowledged transactions")
        ),
        None => format!(
            "Unknown whether any of {} is lost",
            counted(counts.acknowledged, "acknowledged transaction", "acknowledged transactions")
        ),
    };
    if let Some(outage) = &judge.outage {
        let _ = write!(words, "; longest outage {}", gap_words(outage));
    }
    let _ = write!(words, "; {} unknown", count(counts.unknown));
    if let Some(verdict) = judge.verdict.as_ref().filter(|_| counts.unknown > 0) {
        let _ = write!(words, ", {} of them committed", count(verdict.recovered.count));
    }
    words.push('.');
    words
}

/// Returns the server, the load and the fault.
fn subject_words(judge: &JudgeRecord) -> String {
    let design = &judge.design;
    let mut words = format!(
        "PostgreSQL {}: {}, {} transactions/s, {} of load.",
        judge.server.version,
        counted(u64::from(design.clients), "client", "clients"),
        design.rate_per_second,
        seconds_text(design.seconds)
    );
    for name in ["synchronous_commit", "synchronous_standby_names"] {
        if let Some(value) = judge.server.settings.get(name).filter(|value| !value.is_empty()) {
            let _ = write!(words, " {name} = {value}.");
        }
    }
    if let Some(ended) = &judge.ended {
        let _ = write!(words, " The run ended early: {ended}.");
    }
    for line in fault_lines(judge) {
        let _ = write!(words, " {line}");
    }
    words
}

/// Returns the fault and its end.
fn fault_lines(judge: &JudgeRecord) -> Vec<String> {
    let Some(fault) = &judge.fault else {
        return vec!["No fault was injected by pgtoll.".to_owned()];
    };
    let end = match (&fault.status, fault.ended_s) {
        (Some(status), Some(ended)) => {
            format!("{status} after {}", seconds_text(ended - fault.began_s))
        }
        _ => "it had not ended".to_owned(),
    };
    let mut lines =
        vec![format!("Fault at {}: {} ({end}).", seconds_text(fault.began_s), fault.what)];
    if !fault.success && !fault.output.trim().is_empty() {
        lines.push(format!("It printed: {}", fault.output.trim()));
    }
    lines
}

/// Rows of three cells: name, number, words.
type NamedCount = (&'static str, u64, String);

/// The observations of clients.
fn seen_rows(judge: &JudgeRecord) -> Vec<NamedCount> {
    let counts = &judge.transactions;
    let limit = seconds_text(judge.design.wait_limit_s);
    let latency =
        |name: &str, ms: Option<f64>| ms.map(|ms| format!("{name} {}", seconds_text(ms / 1000.0)));
    let latencies: Vec<String> = [
        latency("median", counts.p50_ms),
        latency("99 %", counts.p99_ms),
        latency("longest", counts.max_ms),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut rows = vec![
        ("due", counts.due, String::new()),
        ("acknowledged", counts.acknowledged, latencies.join(", ")),
        ("  waited", counts.waited, format!("longer than {limit} from due")),
        ("  unaffected", counts.unaffected, "neither waited nor failed".to_owned()),
        ("failed", counts.failed, "for certain: an error before COMMIT, or a rollback".to_owned()),
        ("  no connection", counts.refused, "could be made".to_owned()),
        ("unknown", counts.unknown, "COMMIT was sent, no definite answer came".to_owned()),
    ];
    if counts.unreplicated > 0 {
        let words = "with a warning: standbys were not awaited".to_owned();
        rows.insert(4, ("  unreplicated", counts.unreplicated, words));
    }
    if counts.timed_out > 0 {
        rows.push(("  timed out", counts.timed_out, "after --reply-timeout".to_owned()));
    }
    if counts.hung > 0 {
        rows.push(("  hung", counts.hung, "until the end of the run".to_owned()));
    }
    rows.push(("not begun", counts.unsent, "their client was busy until the end".to_owned()));
    rows
}

/// The outcome of the transactions.
fn set_rows(judge: &JudgeRecord) -> Vec<NamedCount> {
    let Some(verdict) = &judge.verdict else { return Vec::new() };
    let lost = &verdict.lost;
    let before = if judge.fault.is_some() { "the fault" } else { "the longest outage" };
    let mut rows = vec![("lost", lost.count, "acknowledged, absent".to_owned())];
    if lost.count > 0 {
        let oldest = lost
            .oldest_before_s
            .map_or_else(String::new, |age| format!(", the earliest {} before", seconds_text(age)));
        rows.extend([
            ("  before", lost.before_fault, format!("acknowledged before {before}{oldest}")),
            ("  by deposed", lost.by_deposed, "afterwards, by a deposed primary".to_owned()),
            ("  by survivor", lost.by_survivor, "afterwards, by the last primary".to_owned()),
        ]);
        if lost.unreplicated > 0 {
            let words = "of these, with the warning that standbys were not awaited".to_owned();
            rows.push(("  unreplicated", lost.unreplicated, words));
        }
    }
    rows.extend([
        ("recovered", verdict.recovered.count, "unknown, present".to_owned()),
        ("ghosts", verdict.ghosts.count, "failed, present".to_owned()),
        ("phantoms", verdict.phantoms.count, "present, never sent".to_owned()),
        ("duplicates", verdict.duplicates.count, "present more than once".to_owned()),
    ]);
    rows
}

/// Titles of the clients' table.
const CLIENT_HEAD: [&str; 7] =
    ["client", "acknowledged", "waited", "failed", "unknown", "longest outage", "served again"];

/// A client's row.
fn client_row(number: usize, client: &JudgedClient) -> [String; 7] {
    let healed = match client.healed_s {
        Some(seconds) => format!("after {}", seconds_text(seconds)),
        None if client.hung => "no: hung".to_owned(),
        None => "no".to_owned(),
    };
    [
        number.to_string(),
        count(client.acknowledged),
        count(client.waited),
        count(client.failed),
        count(client.unknown),
        client.outage.as_ref().map_or_else(|| "-".to_owned(), gap_words),
        healed,
    ]
}

/// Clients, and lines of a list, that a terminal is shown.
const SHOWN: usize = 16;
/// Columns of a client's line in a terminal.
const COLUMNS: usize = 60;

/// Each client over time, for a terminal.
fn client_lines(record: &JudgeRecord) -> Vec<String> {
    let bins = record.clients.iter().map(|client| client.line.len()).max().unwrap_or(0);
    let per_column = bins.div_ceil(COLUMNS).max(1);
    let line = |(number, client): (usize, &JudgedClient)| {
        let letters: Vec<char> = client.line.chars().collect();
        let columns: String = letters.chunks(per_column).map(worst).collect();
        format!(" {number:>6}  {}", columns.trim_end())
    };
    let mut lines: Vec<String> = record.clients.iter().enumerate().take(SHOWN).map(line).collect();
    if bins > 0 {
        #[expect(clippy::cast_precision_loss, reason = "bins are few")]
        let column_s = record.bin_s * per_column as f64;
        lines.push(format!(
            "         {} a column: - served, w waiting, x an error",
            seconds_text(column_s)
        ));
    }
    let events = record.events.iter().take(SHOWN);
    let event_lines = events.map(|event| {
        wrapped("         ", &format!("{}: {}", seconds_text(event.at_s), event.what))
    });
    lines.extend(event_lines.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()));
    lines
}

/// The letter for several bins.
fn worst(bins: &[char]) -> char {
    let has = |letter| bins.contains(&letter);
    match () {
        () if has('e') => 'x',
        () if has('w') => 'w',
        () if has('s') => '-',
        () => ' ',
    }
}

/// A server by name.
fn node_words(identity: &NodeIdentity) -> String {
    let mut words = if identity.address.is_empty() {
        format!("port {}", identity.port)
    } else {
        format!("{}:{}", identity.address, identity.port)
    };
    if !identity.cluster_name.is_empty() {
        let _ = write!(words, " ({})", identity.cluster_name);
    }
    if let Some(timeline) = identity.timeline {
        let _ = write!(words, ", timeline {timeline}");
    }
    let _ = write!(words, ", up since {}", identity.started);
    words
}

/// The servers that acknowledged, and which one was read in the end.
fn node_lines(judge: &JudgeRecord) -> Vec<String> {
    let line = |node: &JudgedNode| {
        let mut words =
            format!("{}: {} acknowledged", node_words(&node.identity), count(node.acknowledged));
        if let (Some(first), Some(last)) = (node.first_s, node.last_s) {
            let _ = write!(words, ", from {} to {}", seconds_text(first), seconds_text(last));
        }
        if node.deposed {
            words.push_str("; deposed");
        }
        if node.after_successor > 0 {
            let _ = write!(words, "; {} after its successor", count(node.after_successor));
        }
        words
    };
    let mut lines: Vec<String> = judge.nodes.iter().take(SHOWN).map(line).collect();
    if let Some(JudgeVerdict { read_on, rows, .. }) = &judge.verdict {
        lines.push(format!("read in the end: {}, {} rows", node_words(read_on), count(*rows)));
    }
    lines
}

/// The observations of readers.
fn read_lines(judge: &JudgeRecord) -> Vec<String> {
    let Some(reads) = &judge.reads else { return Vec::new() };
    let place = if reads.dsn.is_some() { "at --read-dsn" } else { "where the clients write" };
    let stalest = if reads.stale > 0 {
        let most = counted(reads.stalest_transactions, "transaction", "transactions");
        format!(", the stalest {most}")
    } else {
        String::new()
    };
    let mut lines = vec![
        format!(
            "{} {place}, {} failed",
            counted(reads.reads, "read", "reads"),
            count(reads.failed)
        ),
        format!(
            "{} lacked what had been acknowledged before (read your writes){stalest}",
            count(reads.stale)
        ),
        format!(
            "{} lacked what the same reader had seen (monotonic reads)",
            count(reads.backwards)
        ),
    ];
    if let Some(probe) = &reads.long_fork {
        lines.push(format!(
            "Long Fork: {} of {} seen in different orders here and there ({} half seen at all)",
            count(probe.forks),
            counted(probe.pairs, "pair", "pairs"),
            count(probe.half_seen)
        ));
    }
    lines
}

/// Errors by kind.
fn error_lines(judge: &JudgeRecord) -> Vec<String> {
    let line = |error: &pgtoll_record::SeenError| {
        format!("{} x {}: {}", count(error.count), error.code, error.message)
    };
    judge.errors.iter().map(line).collect()
}

/// Some transactions of each set that should be empty.
fn example_lines(record: &JudgeRecord) -> Vec<String> {
    let Some(verdict) = &record.verdict else { return Vec::new() };
    let sets: [(&str, &[TransactionExample]); 4] = [
        ("lost", &verdict.lost.examples),
        ("ghost", examples(&verdict.ghosts)),
        ("phantom", examples(&verdict.phantoms)),
        ("duplicate", examples(&verdict.duplicates)),
    ];
    let line = |name: &str, example: &TransactionExample| {
        let at = example
            .at_s
            .map_or_else(String::new, |at| format!(", answered at {}", seconds_text(at)));
        format!("{name}: client {}, transaction {}{at}", example.client, example.sequence)
    };
    let lines =
        sets.iter().flat_map(|(name, set)| set.iter().take(5).map(|judge| line(name, judge)));
    lines.collect()
}

fn examples(set: &IdSet) -> &[TransactionExample] {
    &set.examples
}

/// A gap's length, and whether it ended.
fn gap_words(gap: &AcknowledgementGap) -> String {
    let open = if gap.open { ", not over" } else { "" };
    format!("{}{open}", seconds_text(gap.seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(record: &JudgeRecord) -> String {
        record.text(&TableOptions::default())
    }

    fn record() -> JudgeRecord {
        serde_json::from_str(include_str!("../tests/fixtures/judge.json")).unwrap()
    }

    #[test]
    fn the_verdict_comes_first_and_all_is_in_80_columns() {
        let text = text(&record());
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn without_the_ids_no_loss_is_claimed_or_denied() {
        let mut record = record();
        record.verdict = None;
        let headline = judge_headline(&record);
        assert!(headline.starts_with("Unknown whether any of "), "{headline}");
        assert!(!text(&record).contains("What became of the transactions"));
    }

    #[test]
    fn words_of_strangers_are_escaped() {
        let mut record = record();
        record.errors[0].message = "a\u{1b}[31m<b>".to_owned();
        record.nodes[0].identity.cluster_name = "\u{1b}<i>".to_owned();
        assert!(!text(&record).contains('\u{1b}'));
        let page = record.html();
        assert!(
            !page.contains("<b>") && !page.contains("<i>") && page.contains("&lt;b&gt;"),
            "{page}"
        );
    }

    #[test]
    fn the_page_has_the_answer_and_every_client() {
        let record = record();
        let page = record.html();
        assert!(page.contains(&judge_headline(&record)));
        for row in set_rows(&record) {
            assert!(page.contains(row.0.trim()), "{row:?}");
        }
        for (number, client) in record.clients.iter().enumerate() {
            assert!(page.contains(&client_row(number, client)[1]), "{number}");
        }
    }
}
