//! Documents of a log and of a replay.

use std::fmt::Write as _;

use pgtoll_record::{
    LogEnvelope, LogExamination, LogFinding, LogFindingState, LogSource, PrintedRecord as _,
    ReplayBottleneck, ReplayDone, ReplayLatencyCount, ReplayPlanned, ReplayQuantiles, ReplayRecord,
    ReplayTable,
};

use crate::document::{Block, Document, Section, Table};
use crate::records::{ReportedRecord, TableOptions};
use crate::wal_numbers::counted;

impl ReportedRecord for LogExamination {
    /// The content of the logs, their uses, and the settings that would allow more.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll replay doctor",
            question: "What can be replayed from these logs?",
            answer: vec![log_answer(self)],
            again: self.command.clone(),
            ..Document::default()
        };
        let sources = Block::List(self.sources.iter().map(source_words).collect());
        document.push(Section::detail("Read", vec![sources]));
        let facts = Block::Facts(self.findings.iter().map(log_fact).collect());
        document.push(Section::detail("What they allow", vec![facts]));
        document.notes.extend(self.plan.as_ref().map(|plan| {
            if self.redacted {
                format!(
                    "{plan} has the statements without their values, and names of roles, databases, \
                     tables and columns: look into it before you give it away"
                )
            } else {
                format!("{plan} has the statements and their values: keep it as you keep the log")
            }
        }));
        document
    }
}

fn log_answer(examination: &LogExamination) -> String {
    let counts = &examination.counts;
    format!(
        "{} of {} in {:.1} s: {} by the simple protocol, {} by the extended one; {} failed, {} of \
         them cancelled.",
        counted(counts.statements, "statement", "statements"),
        counted(counts.sessions, "session", "sessions"),
        examination.length_s,
        counts.simple,
        counts.extended,
        counts.failed,
        counts.cancelled
    )
}

fn source_words(source: &LogSource) -> String {
    let prefix = source.prefix.as_ref().map_or(String::new(), |prefix| format!(" ({prefix})"));
    let cut = if source.is_truncated { ", its last entry is cut" } else { "" };
    let foreign = match source.foreign_lines {
        0 => String::new(),
        lines => format!(", {lines} lines of no entry"),
    };
    let envelope = source.envelope.as_ref().map_or_else(String::new, envelope_words);
    format!(
        "{}: {}{prefix}{envelope}, {} entries{foreign}{cut}",
        source.name, source.format, source.entries
    )
}

/// The form of an export, and how its events differ from the server's own log.
fn envelope_words(envelope: &LogEnvelope) -> String {
    let LogEnvelope { form, events, foreign, duplicates, reordered, late, damaged, missing } =
        envelope;
    let counts = [
        (foreign, "of others"),
        (duplicates, "came twice"),
        (reordered, "put in order"),
        (late, "too late for their place"),
        (damaged, "cut or damaged"),
        (missing, "missing"),
    ];
    let seen = counts.into_iter().filter(|(count, _)| **count > 0);
    let words: Vec<String> = seen.map(|(count, words)| format!("{count} {words}")).collect();
    let words = std::iter::once(format!("{events} events")).chain(words).collect::<Vec<_>>();
    format!(" in {form} ({})", words.join(", "))
}

/// A topic with its state, and what the logs have of it, with what would give more.
fn log_fact(finding: &LogFinding) -> (String, String) {
    let state = match finding.state {
        LogFindingState::Complete => "ok",
        LogFindingState::Partial => "part",
        LogFindingState::Missing => "none",
    };
    let remedy = finding.remedy.iter().map(|remedy| format!(" -> {remedy}"));
    let text = finding.text.clone() + &remedy.collect::<String>();
    (format!("{state:<4}  {}", finding.topic), text)
}

impl ReportedRecord for ReplayRecord {
    /// The plan, the replay, and its divergences from the log.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll replay run",
            question: "How did the replay go?",
            subject: headline(self),
            answer: answer(self),
            findings: self.conclusion().sentences(),
            sections: vec![Section::detail(
                "The work",
                vec![Block::Facts(work(&self.planned, self))],
            )],
            notes: Vec::new(),
            again: self.command.clone(),
        };
        if let Some(done) = &self.done {
            document.push(Section::detail("Statistics", vec![Block::Facts(statistics(done))]));
            document.push(times(self, done));
            document.push(divergence(done));
            document.push(breaks(done));
        }
        document
    }
}

fn fact(name: &str, words: impl Into<String>) -> (String, String) {
    (name.to_owned(), words.into())
}

fn work(planned: &ReplayPlanned, record: &ReplayRecord) -> Vec<(String, String)> {
    let mut facts =
        vec![fact("recorded", recorded_words(planned)), fact("order", order_words(record))];
    for (reason, count) in &planned.skipped {
        facts.push(fact("not replayed", format!("{count}: {reason}")));
    }
    for (code, count) in &planned.failed {
        facts.push(fact("failed when recorded", format!("{count} with {code}")));
    }
    if planned.uncertain_pairs > 0 {
        let words = format!(
            "the log leaves open the order of {} pairs of statements on the same rows, or what one saw \
             of the other: the data may end otherwise than when they were logged",
            planned.uncertain_pairs
        );
        facts.push(fact("open", words));
    }
    facts.extend(unrepeatable_words(planned).map(|words| fact("not repeatable", words)));
    facts
}

fn statistics(done: &ReplayDone) -> Vec<(String, String)> {
    let mut facts = vec![
        fact("replayed", replayed_words(done)),
        fact("concurrency", concurrency_words(done)),
        fact("replayer", replayer_words(done)),
        fact("errors", errors_words(done)),
    ];
    for (reason, count) in &done.skipped {
        facts.push(fact("not executed", format!("{count}: {reason}")));
    }
    facts
}

fn times(record: &ReplayRecord, done: &ReplayDone) -> Section {
    let quantiles = [
        ("recorded", record.planned.latency_ms.as_ref()),
        ("replayed", done.latency_ms.as_ref()),
        ("later than due", done.lateness_ms.as_ref()),
    ];
    let rows =
        quantiles.into_iter().filter_map(|(name, quantile)| Some(quantile_row(name, quantile?)));
    let head = ["ms", "statements", "mean", "median", "p95", "p99", "max"];
    let quantiles = Block::Table(Table::new(&head, rows.collect()));
    let histogram = Block::Table(Table::new(&HISTOGRAM_HEAD, histogram_rows(record, done)));
    Section::detail("How long statements took", vec![quantiles, histogram])
}

fn divergence(done: &ReplayDone) -> Option<Section> {
    let words = done.divergences.iter().map(|divergence| {
        format!(
            "{} times {} instead of {}: {}",
            divergence.count,
            code_word(divergence.now.as_deref()),
            code_word(divergence.logged.as_deref()),
            divergence.statement
        )
    });
    let tables = done.tables.iter().map(|table| {
        let without = match table.without.as_slice() {
            [] => String::new(),
            columns => format!(" without {}", columns.join(", ")),
        };
        format!("table {}{without}: {}", table.name, table_words(table))
    });
    let items: Vec<String> = words.chain(tables).collect();
    (!items.is_empty())
        .then(|| Section::detail("Divergence from the log", vec![Block::List(items)]))
}

fn breaks(done: &ReplayDone) -> Option<Section> {
    let words = done.breaks.iter().map(|broken| {
        let waited = broken.waited_for.map_or(String::new(), |step| format!(" before step {step}"));
        format!("step {} went{waited}: {} ({})", broken.step, broken.reason, broken.statement)
    });
    let mut items: Vec<String> = words.collect();
    let more = done.order_breaks.saturating_sub(items.len() as u64);
    if more > 0 {
        items.push(format!("{more} more are counted and not described"));
    }
    (!items.is_empty()).then(|| Section::detail("Breaks of the order", vec![Block::List(items)]))
}

/// How long it took, what went otherwise, and what kept it from being faster.
fn answer(replay: &ReplayRecord) -> Vec<String> {
    let Some(done) = &replay.done else { return vec![recorded_words(&replay.planned)] };
    let mut sentences = vec![
        format!("Recorded in {:.1} s, replayed in {:.1} s.", replay.planned.length_s, done.run_s),
        format!("Errors: {}. Order breaks: {}.", errors_words(done), done.order_breaks),
    ];
    if done.broken_sessions > 0 {
        sentences.push(format!("{} sessions ended early.", done.broken_sessions));
    }
    let differing = done.tables.iter().filter(|table| table.same == Some(false)).count();
    let compared = done.tables.iter().filter(|table| table.same.is_some()).count();
    if compared > 0 {
        sentences
            .push(format!("{differing} of {compared} tables differ from what they should be."));
    }
    if let Some(words) = bottleneck_words(done) {
        sentences.push(format!("Bottleneck: {words}."));
    }
    sentences
}

fn quantile_row(name: &str, quantiles: &ReplayQuantiles) -> Vec<String> {
    let times = [quantiles.mean, quantiles.median, quantiles.p95, quantiles.p99, quantiles.max]
        .map(|ms| format!("{ms:.2}"));
    [vec![name.to_owned(), quantiles.count.to_string()], times.to_vec()].concat()
}

fn unrepeatable_words(planned: &ReplayPlanned) -> Option<String> {
    let counts: Vec<String> =
        planned.unrepeatable.iter().map(|(why, count)| format!("{why} ({count})")).collect();
    (!counts.is_empty()).then(|| {
        format!(
            "statements whose results need not be those that were logged: {}",
            counts.join(", ")
        )
    })
}

fn headline(replay: &ReplayRecord) -> String {
    let Some(target) = &replay.target else {
        return "dry run: nothing was sent to a server".to_owned();
    };
    let speed = match replay.speed {
        Some(speed) => format!("at {speed} times the recorded speed"),
        None => "as fast as possible".to_owned(),
    };
    let end = match (&replay.ended, replay.complete) {
        (Some(signal), _) => format!(", ended early by {signal}"),
        (None, true) => String::new(),
        (None, false) => ", not complete".to_owned(),
    };
    format!("replayed to PostgreSQL {} ({}) {speed}{end}", target.version, target.dsn)
}

fn recorded_words(planned: &ReplayPlanned) -> String {
    format!(
        "{:.1} s, {} sessions (at most {} at a time), {} transactions, {} statements or groups",
        planned.length_s,
        planned.sessions,
        planned.sessions_open_max,
        planned.transactions,
        planned.steps
    )
}

fn order_words(replay: &ReplayRecord) -> String {
    let ReplayPlanned { edges, barriers, .. } = replay.planned;
    match replay.order.as_str() {
        "none" => "none but each session's own".to_owned(),
        order => format!(
            "by {order}: {edges} waits for other sessions' statements, {barriers} statements that wait \
             for all before them"
        ),
    }
}

/// Whether a table is as it should be.
fn table_words(table: &ReplayTable) -> String {
    match (table.same, table.expected_rows) {
        (Some(true), _) => format!("same {} rows", table.rows),
        (_, Some(expected)) if expected != table.rows => {
            format!("DIFFERENT: {} rows instead of {expected}", table.rows)
        }
        (Some(false), _) => format!("DIFFERENT: other values in {} rows", table.rows),
        (None, _) => format!("{} rows, hash {}", table.rows, table.hash),
    }
}

/// An error code; `None` is no error.
fn code_word(code: Option<&str>) -> &str {
    code.unwrap_or("success")
}

fn replayed_words(done: &ReplayDone) -> String {
    let rate = if done.run_s > 0.0 { count(done.statements) / done.run_s } else { 0.0 };
    format!(
        "{:.1} s, {} connections, {} statements, {rate:.0} a second",
        done.run_s, done.connections, done.statements
    )
}

fn concurrency_words(done: &ReplayDone) -> String {
    format!(
        "{:.1} statements at the server on average, {} at most; {:.1} s of waiting for the order",
        done.concurrency_mean, done.concurrency_max, done.order_wait_s
    )
}

fn replayer_words(done: &ReplayDone) -> String {
    let cpus = done.client_cpus.map_or(String::new(), |cpus| format!(", of {cpus} CPUs"));
    format!("{:.2} s of CPU time{cpus}", done.client_cpu_s)
}

fn errors_words(done: &ReplayDone) -> String {
    let mut words = format!(
        "{} as recorded, {} unexpected, {} missing",
        done.expected_errors, done.unexpected_errors, done.missing_errors
    );
    if done.retried > 0 {
        let transactions = if done.retried == 1 { "transaction" } else { "transactions" };
        // Writing to a string does not fail.
        let _ = write!(
            words,
            "; {} {transactions} restarted after a conflict; others may have written first",
            done.retried
        );
    }
    words
}

/// Returns the bottleneck of the replay, and the time of its sessions.
fn bottleneck_words(done: &ReplayDone) -> Option<String> {
    let label = match done.bottleneck? {
        ReplayBottleneck::Pace => "none: it kept up with the recorded work",
        ReplayBottleneck::Server => "the server",
        ReplayBottleneck::Order => "the order: sessions waited for each other's statements",
        ReplayBottleneck::Replayer => "the replaying process, not the server",
    };
    if done.sessions_s <= 0.0 {
        return Some(label.to_owned());
    }
    let percent = |seconds: f64| (100.0 * seconds / done.sessions_s).clamp(0.0, 100.0);
    let server = percent(done.concurrency_mean * done.run_s);
    let order = percent(done.order_wait_s);
    let due = percent(done.due_wait_s);
    let own = (100.0 - server - order - due).max(0.0);
    Some(format!(
        "{label} (of the sessions' time {server:.0} % at the server, {order:.0} % waiting for the order, \
         {due:.0} % until statements were due, {own:.0} % in the replayer)"
    ))
}

const HISTOGRAM_HEAD: [&str; 5] = ["ms", "recorded", "share", "replayed", "share"];

/// Statements by how long they took: the class, then count and share when they were logged and now.
fn histogram_rows(record: &ReplayRecord, done: &ReplayDone) -> Vec<Vec<String>> {
    let total = |counts: &[ReplayLatencyCount]| {
        counts.iter().map(|replay| replay.statements).fold(0, u64::saturating_add)
    };
    let recorded = &record.planned.histogram;
    let replayed = &done.histogram;
    let cells = |counts: &[ReplayLatencyCount], up_to_ms: Option<f64>| {
        let found = counts
            .iter()
            .find(|replay| replay.up_to_ms == up_to_ms)
            .filter(|replay| replay.statements > 0);
        found.map_or([String::new(), String::new()], |found| {
            let share = 100.0 * count(found.statements) / count(total(counts));
            [found.statements.to_string(), format!("{share:.1} %")]
        })
    };
    let mut longest = None;
    let mut rows = Vec::new();
    for class in if replayed.is_empty() { recorded } else { replayed } {
        let name = match (class.up_to_ms, longest) {
            (Some(ms), _) => format!("to {ms}"),
            (None, Some(longest)) => format!("above {longest}"),
            (None, None) => "any".to_owned(),
        };
        longest = class.up_to_ms;
        let [before, now] = [recorded, replayed].map(|item| cells(item, class.up_to_ms));
        if !before[0].is_empty() || !now[0].is_empty() {
            rows.push([vec![name], before.to_vec(), now.to_vec()].concat());
        }
    }
    rows
}

#[expect(clippy::cast_precision_loss, reason = "for a rate")]
fn count(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{OrderBreak, REPLAY_SCHEMA, ReplayDivergence, ReplayTarget};

    use super::*;

    fn table(name: &str, without: &[&str], same: Option<bool>) -> ReplayTable {
        ReplayTable {
            name: name.to_owned(),
            without: without.iter().map(|column| (*column).to_owned()).collect(),
            rows: 1000,
            hash: "1 2".to_owned(),
            expected_rows: same.map(|_| 1000),
            expected_hash: same.map(|_| "1 3".to_owned()),
            same,
        }
    }

    fn histogram(counts: [u64; 3]) -> Vec<ReplayLatencyCount> {
        let classes = [Some(0.3), Some(1.0), None];
        let counts = classes.into_iter().zip(counts);
        counts.map(|(up_to_ms, statements)| ReplayLatencyCount { up_to_ms, statements }).collect()
    }

    fn record() -> ReplayRecord {
        let quantiles =
            ReplayQuantiles { count: 3, mean: 0.5, median: 0.4, p95: 1.25, p99: 2.0, max: 12.345 };
        ReplayRecord {
            schema: REPLAY_SCHEMA.to_owned(),
            pgtoll: "0.1.0".to_owned(),
            command: Vec::new(),
            made: String::new(),
            sources: Vec::new(),
            target: Some(ReplayTarget {
                dsn: "host=/tmp port=5432 dbname=shop user=alice".to_owned(),
                version: "18.6".to_owned(),
            }),
            order: "key".to_owned(),
            speed: Some(2.0),
            complete: false,
            ended: Some("SIGINT".to_owned()),
            planned: ReplayPlanned {
                length_s: 7.5,
                sessions: 17,
                sessions_open_max: 16,
                steps: 112_000,
                transactions: 16_000,
                skipped: [("not all of it is in the log".to_owned(), 2)].into(),
                edges: 31_000,
                barriers: 1,
                uncertain_pairs: 3,
                unrepeatable: [("nextval".to_owned(), 12), ("skip locked".to_owned(), 2)].into(),
                failed: [("57014".to_owned(), 1)].into(),
                latency_ms: Some(quantiles),
                histogram: histogram([3, 90, 7]),
            },
            done: Some(ReplayDone {
                run_s: 3.75,
                connections: 17,
                statements: 60_000,
                concurrency_mean: 7.25,
                concurrency_max: 16,
                latency_ms: Some(quantiles),
                histogram: histogram([0, 95, 0]),
                lateness_ms: Some(quantiles),
                sessions_s: 40.0,
                due_wait_s: 6.0,
                order_wait_s: 1.5,
                order_breaks: 1,
                breaks: vec![OrderBreak {
                    step: 7,
                    statement: "update t set a = ?".to_owned(),
                    waited_for: Some(3),
                    waited_for_statement: None,
                    reason: "a circle of waits of the sessions 1, 2".to_owned(),
                }],
                expected_errors: 2,
                unexpected_errors: 1,
                divergences: vec![ReplayDivergence {
                    statement: "insert into t values ( ? )".to_owned(),
                    logged: None,
                    now: Some("23505".to_owned()),
                    count: 1,
                }],
                client_cpu_s: 0.5,
                client_cpus: Some(2),
                bottleneck: Some(ReplayBottleneck::Server),
                tables: vec![table("t", &[], Some(true)), table("u", &["made"], Some(false))],
                ..ReplayDone::default()
            }),
        }
    }

    #[test]
    fn a_replay_is_shown_in_80_columns() {
        let text = record().text(&TableOptions::default());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_page_has_what_the_text_has_and_no_markup_of_statements() {
        let mut record = record();
        let done = record.done.as_mut().unwrap();
        done.divergences[0].statement = "select '<script>'".to_owned();
        let page = record.html();
        for part in [
            "68 % at the server",
            "a circle of waits of the sessions 1, 2",
            "23505",
            "DIFFERENT: other values in 1000 rows",
            "to 0.3",
            "12.35",
            "ended early by SIGINT",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("select '<script>'"));
        let dry = ReplayRecord { target: None, done: None, ..record };
        assert!(dry.html().contains("dry run"));
    }
}
