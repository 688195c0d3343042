//! What a log allows, and how a replay went, as text of 80 columns.

use std::fmt::Write as _;

use pgtoll_record::{
    LogExamination, LogFindingState, ReplayDone, ReplayPlanned, ReplayQuantiles, ReplayRecord,
    ReplayTable,
};

use crate::printable::printable;
use crate::text::wrapped;

/// The logs, what they allow, and which settings would buy more.
pub fn log_examination_text(of: &LogExamination) -> String {
    let mut text = String::new();
    for source in &of.sources {
        let prefix = source.prefix.as_ref().map_or(String::new(), |of| format!(" ({of})"));
        let cut = if source.is_truncated { ", its last entry is cut" } else { "" };
        let foreign = match source.foreign_lines {
            0 => String::new(),
            lines => format!(", {lines} lines of no entry"),
        };
        let line = format!(
            "{}: {}{prefix}, {} entries{foreign}{cut}",
            source.name, source.format, source.entries
        );
        text.push_str(&wrapped("", &line));
    }
    let counts = &of.counts;
    let line = format!(
        "{} statements of {} sessions in {:.1} s: {} by the simple protocol, {} by the extended one; \
         {} failed, {} of them cancelled",
        counts.statements,
        counts.sessions,
        of.length_s,
        counts.simple,
        counts.extended,
        counts.failed,
        counts.cancelled
    );
    text.push_str(&wrapped("", &line));
    text.push('\n');
    for finding in &of.findings {
        let state = match finding.state {
            LogFindingState::Complete => "ok",
            LogFindingState::Partial => "part",
            LogFindingState::Missing => "none",
        };
        let topic = printable(&finding.topic);
        text.push_str(&wrapped(&format!("  {state:<4}  {topic:<14}  "), &finding.text));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&wrapped(&format!("{:<24}", ""), &format!("-> {remedy}")));
        }
    }
    if let Some(plan) = &of.plan {
        text.push('\n');
        let line = if of.redacted {
            format!(
                "{plan} has the statements without their values, and names of roles, databases, \
                 tables and columns: look into it before you give it away"
            )
        } else {
            format!("{plan} has the statements and their values: keep it as you keep the log")
        };
        text.push_str(&wrapped("", &line));
    }
    text
}

/// What was planned and done, and where it went otherwise.
pub fn replay_text(of: &ReplayRecord) -> String {
    let mut text = wrapped("", &headline(of));
    text.push('\n');
    let planned = &of.planned;
    row(&mut text, "recorded", &recorded_words(planned));
    for (reason, count) in &planned.skipped {
        row(&mut text, "not replayed", &format!("{count}: {reason}"));
    }
    row(&mut text, "order", &order_words(of));
    if planned.uncertain_pairs > 0 {
        let words = format!(
            "the log leaves open the order of {} pairs of statements on the same rows, or what one saw \
             of the other: the data may end otherwise than when they were logged",
            planned.uncertain_pairs
        );
        row(&mut text, "", &words);
    }
    if let Some(done) = &of.done {
        push_done(&mut text, of, done);
    }
    text
}

fn headline(of: &ReplayRecord) -> String {
    let Some(target) = &of.target else {
        return "dry run: nothing was sent to a server".to_owned();
    };
    let speed = match of.speed {
        Some(speed) => format!("at {speed} times the recorded speed"),
        None => "as fast as possible".to_owned(),
    };
    let end = match (&of.ended, of.complete) {
        (Some(signal), _) => format!(", ended early by {signal}"),
        (None, true) => String::new(),
        (None, false) => ", not complete".to_owned(),
    };
    format!("replayed to PostgreSQL {} ({}) {speed}{end}", target.version, target.dsn)
}

fn recorded_words(of: &ReplayPlanned) -> String {
    format!(
        "{:.1} s, {} sessions (at most {} at a time), {} transactions, {} statements or groups",
        of.length_s, of.sessions, of.sessions_open_max, of.transactions, of.steps
    )
}

fn order_words(of: &ReplayRecord) -> String {
    let ReplayPlanned { edges, barriers, .. } = of.planned;
    match of.order.as_str() {
        "none" => "none but each session's own".to_owned(),
        order => format!(
            "by {order}: {edges} waits for other sessions' statements, {barriers} statements that wait \
             for all before them"
        ),
    }
}

fn push_done(text: &mut String, of: &ReplayRecord, done: &ReplayDone) {
    let rate = if done.run_s > 0.0 { count(done.statements) / done.run_s } else { 0.0 };
    let words = format!(
        "{:.1} s, {} connections, {} statements, {rate:.0} a second",
        done.run_s, done.connections, done.statements
    );
    row(text, "replayed", &words);
    let words = format!(
        "{:.1} statements at the server on average, {} at most; {:.1} s of waiting for the order",
        done.concurrency_mean, done.concurrency_max, done.order_wait_s
    );
    row(text, "concurrency", &words);
    let words = format!("{:.2} s of CPU time", done.client_cpu_s);
    row(text, "replayer", &words);
    if done.broken_sessions > 0 {
        row(text, "broken", &format!("{} sessions ended early", done.broken_sessions));
    }
    text.push('\n');
    let _ = writeln!(text, "  {:<12}{:>10}{:>10}{:>10}{:>10}", "ms", "median", "p95", "p99", "max");
    quantiles(text, "recorded", of.planned.latency_ms.as_ref());
    quantiles(text, "replayed", done.latency_ms.as_ref());
    quantiles(text, "late by", done.lateness_ms.as_ref());
    text.push('\n');
    let words = format!(
        "{} as recorded, {} unexpected, {} missing",
        done.expected_errors, done.unexpected_errors, done.missing_errors
    );
    row(text, "errors", &words);
    for divergence in &done.divergences {
        let code = |of: &Option<String>| of.clone().unwrap_or_else(|| "success".to_owned());
        let words = format!(
            "{} times {} instead of {}: {}",
            divergence.count,
            code(&divergence.now),
            code(&divergence.logged),
            divergence.statement
        );
        row(text, "", &words);
    }
    push_tables(text, &done.tables);
    row(text, "order breaks", &done.order_breaks.to_string());
    for of in &done.breaks {
        let waited = of.waited_for.map_or(String::new(), |step| format!(" before step {step}"));
        let words = format!("step {} went{waited}: {} ({})", of.step, of.reason, of.statement);
        row(text, "", &words);
    }
}

/// Whether tables are as they should be; without anything to compare with, their hashes.
fn push_tables(text: &mut String, tables: &[ReplayTable]) {
    for (index, table) in tables.iter().enumerate() {
        let without = match table.without.as_slice() {
            [] => String::new(),
            columns => format!(" without {}", columns.join(", ")),
        };
        let state = match (table.same, table.expected_rows) {
            (Some(true), _) => format!("same {} rows", table.rows),
            (_, Some(expected)) if expected != table.rows => {
                format!("DIFFERENT: {} rows instead of {expected}", table.rows)
            }
            (Some(false), _) => format!("DIFFERENT: other values in {} rows", table.rows),
            (None, _) => format!("{} rows, hash {}", table.rows, table.hash),
        };
        let words = format!("{}{without}: {state}", table.name);
        row(text, if index == 0 { "tables" } else { "" }, &words);
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a rate")]
fn count(of: u64) -> f64 {
    of as f64
}

fn quantiles(text: &mut String, name: &str, of: Option<&ReplayQuantiles>) {
    if let Some(of) = of {
        let _ = writeln!(
            text,
            "  {name:<12}{:>10.2}{:>10.2}{:>10.2}{:>10.2}",
            of.median, of.p95, of.p99, of.max
        );
    }
}

fn row(text: &mut String, name: &str, words: &str) {
    text.push_str(&wrapped(&format!("  {name:<14}"), words));
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
                failed: [("57014".to_owned(), 1)].into(),
                latency_ms: Some(quantiles),
            },
            done: Some(ReplayDone {
                run_s: 3.75,
                connections: 17,
                statements: 60_000,
                concurrency_mean: 7.25,
                concurrency_max: 16,
                latency_ms: Some(quantiles),
                lateness_ms: Some(quantiles),
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
                tables: vec![table("t", &[], Some(true)), table("u", &["made"], Some(false))],
                ..ReplayDone::default()
            }),
        }
    }

    #[test]
    fn a_replay_is_shown_in_80_columns() {
        let text = replay_text(&record());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }
}
