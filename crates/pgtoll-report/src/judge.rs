//! What an application saw, as text: the verdict first.

use std::fmt::Write as _;

use pgtoll_record::{
    AcknowledgementGap, IdSet, JudgeRecord, JudgeVerdict, JudgedClient, JudgedNode, NodeIdentity,
    TransactionExample,
};

use crate::text::{aligned, wrapped};
use crate::wal_numbers::{count, counted};

/// The verdict, what clients saw, what became of the transactions, and each client over time.
pub(crate) fn judge_text(of: &JudgeRecord) -> String {
    let mut text = wrapped("", &judge_headline(of));
    for finding in &of.findings {
        text.push_str(&wrapped("finding: ", finding));
    }
    text.push('\n');
    text.push_str(&wrapped("", &subject_words(of)));
    for line in fault_lines(of) {
        text.push_str(&wrapped("", &line));
    }
    text.push_str("\nwhat clients saw\n");
    text.push_str(&table(&seen_rows(of)));
    if of.verdict.is_some() {
        text.push_str("\nwhat became of the transactions\n");
        text.push_str(&table(&set_rows(of)));
    }
    text.push_str("\nclients\n");
    text.push_str(&client_table(of));
    text.push_str(&lines(of));
    push_list(&mut text, "servers that answered", &node_lines(of));
    push_list(&mut text, "readers", &read_lines(of));
    push_list(&mut text, "errors", &error_lines(of));
    push_list(&mut text, "some of them", &example_lines(of));
    for note in of.notes.iter().map(String::as_str).chain([PLACE]) {
        text.push_str(&wrapped("note: ", note));
    }
    if let Some(journal) = &of.journal {
        text.push_str(&wrapped("journals: ", journal));
    }
    text
}

/// What every such record has to be read with.
pub(crate) const PLACE: &str = "times and losses are those of this run: of its load, its network \
    and this fault; repeat it, since losses are a distribution";

/// The answer in one line.
pub(crate) fn judge_headline(of: &JudgeRecord) -> String {
    let counts = &of.transactions;
    let mut words = match &of.verdict {
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
    if let Some(outage) = &of.outage {
        let _ = write!(words, "; longest outage {}", gap_words(outage));
    }
    let _ = write!(words, "; {} unknown", count(counts.unknown));
    if let Some(verdict) = of.verdict.as_ref().filter(|_| counts.unknown > 0) {
        let _ = write!(words, ", {} of them committed", count(verdict.recovered.count));
    }
    words.push('.');
    words
}

/// Who did what to which server.
pub(crate) fn subject_words(of: &JudgeRecord) -> String {
    let design = &of.design;
    let mut words = format!(
        "PostgreSQL {}: {}, {} transactions/s, {} of load.",
        of.server.version,
        counted(u64::from(design.clients), "client", "clients"),
        design.rate_per_second,
        span(design.seconds)
    );
    for name in ["synchronous_commit", "synchronous_standby_names"] {
        if let Some(value) = of.server.settings.get(name).filter(|value| !value.is_empty()) {
            let _ = write!(words, " {name} = {value}.");
        }
    }
    if let Some(ended) = &of.ended {
        let _ = write!(words, " The run ended early: {ended}.");
    }
    words
}

/// What was done to the server, and how that ended.
pub(crate) fn fault_lines(of: &JudgeRecord) -> Vec<String> {
    let Some(fault) = &of.fault else {
        return vec!["No fault was injected by pgtoll.".to_owned()];
    };
    let end = match (&fault.status, fault.ended_s) {
        (Some(status), Some(ended)) => {
            format!("{status} after {}", span(ended - fault.began_s))
        }
        _ => "it had not ended".to_owned(),
    };
    let mut lines = vec![format!("Fault at {}: {} ({end}).", span(fault.began_s), fault.what)];
    if !fault.success && !fault.output.trim().is_empty() {
        lines.push(format!("It printed: {}", fault.output.trim()));
    }
    lines
}

/// Rows of three cells: name, number, words.
pub(crate) type NamedCount = (&'static str, u64, String);

/// What clients saw.
pub(crate) fn seen_rows(of: &JudgeRecord) -> Vec<NamedCount> {
    let counts = &of.transactions;
    let limit = span(of.design.wait_limit_s);
    let latency =
        |name: &str, ms: Option<f64>| ms.map(|ms| format!("{name} {}", span(ms / 1000.0)));
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

/// What became of the transactions.
pub(crate) fn set_rows(of: &JudgeRecord) -> Vec<NamedCount> {
    let Some(verdict) = &of.verdict else { return Vec::new() };
    let lost = &verdict.lost;
    let before = if of.fault.is_some() { "the fault" } else { "the longest outage" };
    let mut rows = vec![("lost", lost.count, "acknowledged, absent".to_owned())];
    if lost.count > 0 {
        let oldest = lost
            .oldest_before_s
            .map_or_else(String::new, |age| format!(", the earliest {} before", span(age)));
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

fn table(rows: &[NamedCount]) -> String {
    let width = rows.iter().map(|(_, number, _)| count(*number).len()).max().unwrap_or(0);
    let line = |(name, number, words): &NamedCount| {
        format!(" {name:<15}  {:>width$}  {words}", count(*number)).trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Titles of the clients' table.
pub(crate) const CLIENT_HEAD: [&str; 7] =
    ["client", "acknowledged", "waited", "failed", "unknown", "longest outage", "served again"];

/// A client's row.
pub(crate) fn client_row(number: usize, of: &JudgedClient) -> [String; 7] {
    let healed = match of.healed_s {
        Some(seconds) => format!("after {}", span(seconds)),
        None if of.hung => "no: hung".to_owned(),
        None => "no".to_owned(),
    };
    [
        number.to_string(),
        count(of.acknowledged),
        count(of.waited),
        count(of.failed),
        count(of.unknown),
        of.outage.as_ref().map_or_else(|| "-".to_owned(), gap_words),
        healed,
    ]
}

fn client_table(of: &JudgeRecord) -> String {
    let head = CLIENT_HEAD.map(str::to_owned).to_vec();
    let rows = of.clients.iter().enumerate().take(SHOWN);
    let rows = rows.map(|(number, client)| client_row(number, client).to_vec());
    let mut text = aligned(std::iter::once(head).chain(rows).collect(), Vec::new());
    if of.clients.len() > SHOWN {
        let _ = writeln!(text, " and {} more", of.clients.len() - SHOWN);
    }
    text
}

/// Clients, and lines of a list, that a terminal is shown.
const SHOWN: usize = 16;
/// Columns of a client's line in a terminal.
const COLUMNS: usize = 60;

/// Each client over time.
fn lines(of: &JudgeRecord) -> String {
    let bins = of.clients.iter().map(|client| client.line.len()).max().unwrap_or(0);
    let per_column = bins.div_ceil(COLUMNS).max(1);
    let mut text = String::new();
    for (number, client) in of.clients.iter().enumerate().take(SHOWN) {
        let letters: Vec<char> = client.line.chars().collect();
        let columns: String = letters.chunks(per_column).map(worst).collect();
        let _ = writeln!(text, " {number:>6}  {}", columns.trim_end());
    }
    if bins > 0 {
        #[expect(clippy::cast_precision_loss, reason = "bins are few")]
        let column_s = of.bin_s * per_column as f64;
        let legend =
            format!("over time, {} a column: - served, w waiting, x an error", span(column_s));
        text.push_str(&wrapped("         ", &legend));
    }
    for event in of.events.iter().take(SHOWN) {
        text.push_str(&wrapped("         ", &format!("{}: {}", span(event.at_s), event.what)));
    }
    text
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

fn push_list(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    for line in lines {
        text.push_str(&wrapped("  ", line));
    }
}

/// A server by name.
fn node_words(of: &NodeIdentity) -> String {
    let mut words = if of.address.is_empty() {
        format!("port {}", of.port)
    } else {
        format!("{}:{}", of.address, of.port)
    };
    if !of.cluster_name.is_empty() {
        let _ = write!(words, " ({})", of.cluster_name);
    }
    if let Some(timeline) = of.timeline {
        let _ = write!(words, ", timeline {timeline}");
    }
    let _ = write!(words, ", up since {}", of.started);
    words
}

/// The servers that acknowledged, and which one was read in the end.
pub(crate) fn node_lines(of: &JudgeRecord) -> Vec<String> {
    let line = |node: &JudgedNode| {
        let mut words =
            format!("{}: {} acknowledged", node_words(&node.identity), count(node.acknowledged));
        if let (Some(first), Some(last)) = (node.first_s, node.last_s) {
            let _ = write!(words, ", from {} to {}", span(first), span(last));
        }
        if node.deposed {
            words.push_str("; deposed");
        }
        if node.after_successor > 0 {
            let _ = write!(words, "; {} after its successor", count(node.after_successor));
        }
        words
    };
    let mut lines: Vec<String> = of.nodes.iter().take(SHOWN).map(line).collect();
    if let Some(JudgeVerdict { read_on, rows, .. }) = &of.verdict {
        lines.push(format!("read in the end: {}, {} rows", node_words(read_on), count(*rows)));
    }
    lines
}

/// What readers saw.
pub(crate) fn read_lines(of: &JudgeRecord) -> Vec<String> {
    let Some(reads) = &of.reads else { return Vec::new() };
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
pub(crate) fn error_lines(of: &JudgeRecord) -> Vec<String> {
    let line = |error: &pgtoll_record::SeenError| {
        format!("{} x {}: {}", count(error.count), error.code, error.message)
    };
    of.errors.iter().map(line).collect()
}

/// Some transactions of each set that should be empty.
pub(crate) fn example_lines(of: &JudgeRecord) -> Vec<String> {
    let Some(verdict) = &of.verdict else { return Vec::new() };
    let sets: [(&str, &[TransactionExample]); 4] = [
        ("lost", &verdict.lost.examples),
        ("ghost", examples(&verdict.ghosts)),
        ("phantom", examples(&verdict.phantoms)),
        ("duplicate", examples(&verdict.duplicates)),
    ];
    let line = |name: &str, of: &TransactionExample| {
        let at = of.at_s.map_or_else(String::new, |at| format!(", answered at {}", span(at)));
        format!("{name}: client {}, transaction {}{at}", of.client, of.sequence)
    };
    let lines = sets.iter().flat_map(|(name, of)| of.iter().take(5).map(|of| line(name, of)));
    lines.collect()
}

fn examples(set: &IdSet) -> &[TransactionExample] {
    &set.examples
}

/// A gap's length, and whether it ended.
pub(crate) fn gap_words(of: &AcknowledgementGap) -> String {
    let open = if of.open { ", not over" } else { "" };
    format!("{}{open}", span(of.seconds))
}

/// Seconds in three digits: `1.92 s`, `250 ms`.
pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "-".to_owned(),
        s if s.abs() < 0.001 => format!("{:.2} ms", s * 1e3),
        s if s.abs() < 0.00995 => format!("{:.1} ms", s * 1e3),
        s if s.abs() < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s.abs() < 9.995 => format!("{s:.2} s"),
        s if s.abs() < 99.95 => format!("{s:.1} s"),
        s => format!("{s:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> JudgeRecord {
        serde_json::from_str(include_str!("../tests/fixtures/judge.json")).unwrap()
    }

    #[test]
    fn the_verdict_comes_first_and_all_is_in_80_columns() {
        let text = judge_text(&record());
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn without_the_ids_no_loss_is_claimed_or_denied() {
        let mut of = record();
        of.verdict = None;
        let headline = judge_headline(&of);
        assert!(headline.starts_with("Unknown whether any of "), "{headline}");
        assert!(!judge_text(&of).contains("what became of the transactions"));
    }

    #[test]
    fn words_of_strangers_are_escaped() {
        let mut of = record();
        of.errors[0].message = "a\u{1b}[31m<b>".to_owned();
        of.nodes[0].identity.cluster_name = "\u{1b}<i>".to_owned();
        assert!(!judge_text(&of).contains('\u{1b}'));
        let page = crate::html::judge_html(&of);
        assert!(
            !page.contains("<b>") && !page.contains("<i>") && page.contains("&lt;b&gt;"),
            "{page}"
        );
    }

    #[test]
    fn the_page_has_the_answer_and_every_client() {
        let of = record();
        let page = crate::html::judge_html(&of);
        assert!(page.contains(&judge_headline(&of)));
        for row in set_rows(&of) {
            assert!(page.contains(row.0.trim()), "{row:?}");
        }
        for (number, client) in of.clients.iter().enumerate() {
            assert!(page.contains(&client_row(number, client)[1]), "{number}");
        }
    }
}
