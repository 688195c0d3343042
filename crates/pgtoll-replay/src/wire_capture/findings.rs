//! Capabilities of a capture from the protocol.

use pgtoll_record::{LogCounts, LogFinding, LogFindingState};

use crate::describe::{finding, volatile};
use crate::workload::WireCounts;

/// A finding for each respect in which a replay may fall short of the captured work.
pub(crate) fn findings(counts: &LogCounts, wire: &WireCounts) -> Vec<LogFinding> {
    let mut findings = vec![
        finding(
            "timing",
            LogFindingState::Complete,
            "begins and ends to the microsecond, as the clients' machine saw them",
            None,
        ),
        commits(counts),
        parameters(counts, wire),
        sessions(counts, wire),
    ];
    findings.extend(copy(counts));
    findings.extend(left_out(counts));
    findings.extend(volatile(counts));
    findings
}

fn commits(counts: &LogCounts) -> LogFinding {
    let topic = "commit order";
    let open = counts.autocommit_simple;
    if open > 0 {
        let text = format!(
            "{open} statements write outside of transaction blocks: of two on the same row at the same \
             time the protocol does not say which came first"
        );
        let remedy =
            Some("a csvlog with log_executor_stats = on has the order of simple statements");
        return finding(topic, LogFindingState::Partial, text, remedy);
    }
    finding(topic, LogFindingState::Complete, "each commit has its place", None)
}

fn parameters(counts: &LogCounts, wire: &WireCounts) -> LogFinding {
    let topic = "parameters";
    if counts.without_parameters > 0 {
        let text = format!(
            "{} executions are left out: statements that were prepared in SQL, or that failed before they \
             were executed",
            counts.without_parameters
        );
        return finding(topic, LogFindingState::Partial, text, None);
    }
    if wire.databases_without_types > 0 {
        let databases = wire.databases_without_types;
        let word = if databases == 1 { "database" } else { "databases" };
        let text = format!(
            "user-defined types of {databases} {word} could not be looked up: the plan has their OIDs, which hold \
             in a physical copy only"
        );
        let remedy = Some("a --to whose role may connect to each database");
        return finding(topic, LogFindingState::Partial, text, remedy);
    }
    let text = match counts.extended {
        0 => "no statement has any".to_owned(),
        extended => format!("{extended} executions with all their values"),
    };
    finding(topic, LogFindingState::Complete, text, None)
}

fn sessions(counts: &LogCounts, wire: &WireCounts) -> LogFinding {
    let parts = [
        (
            wire.sessions_untracked,
            "sessions are captured only up to a message that is not understood",
        ),
        (
            wire.sessions_not_captured,
            "sessions of replication or another protocol are not captured",
        ),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, label)| format!("{count} {label}"))
        .collect();
    if parts.is_empty() {
        let text = format!("{} sessions, begin and end captured", counts.sessions);
        return finding("sessions", LogFindingState::Complete, text, None);
    }
    let text = format!("{} sessions; {}", counts.sessions, parts.join("; "));
    finding("sessions", LogFindingState::Partial, text, None)
}

fn copy(counts: &LogCounts) -> Option<LogFinding> {
    let text =
        format!("{} COPY FROM STDIN, whose data are not in the plan: left out", counts.copy_in);
    let remedy = Some("--copy-data 16MB keeps those of that size; begin after larger loads");
    (counts.copy_in > 0).then(|| finding("COPY", LogFindingState::Missing, text, remedy))
}

fn left_out(counts: &LogCounts) -> Option<LogFinding> {
    let parts = [
        (counts.fast_path, "fast-path calls"),
        (counts.fetches, "fetches from open portals (their statement is executed as a whole)"),
        (counts.not_utf8, "texts that are not UTF-8"),
        (counts.errors_without_statement, "errors of no statement"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, label)| format!("{count} {label}"))
        .collect();
    let text = parts.join(", ");
    (!parts.is_empty()).then(|| finding("left out", LogFindingState::Partial, text, None))
}
