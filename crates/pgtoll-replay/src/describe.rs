//! Capabilities of a log, and the settings that would add more.

use pgtoll_record::{LogCounts, LogFinding, LogFindingState};

/// A finding for each respect in which a replay may fall short of the recorded work.
pub(crate) fn findings(counts: &LogCounts) -> Vec<LogFinding> {
    let mut findings =
        vec![timing(counts), order(counts), commits(counts), parameters(counts), sessions(counts)];
    findings.extend(copy(counts));
    findings.extend(missing(counts));
    findings.extend(left_out(counts));
    findings.extend(volatile(counts));
    findings
}

pub(crate) fn finding(
    topic: &str,
    state: LogFindingState,
    text: impl Into<String>,
    remedy: Option<&str>,
) -> LogFinding {
    let remedy = remedy.map(str::to_owned);
    LogFinding { topic: topic.to_owned(), state, text: text.into(), remedy }
}

fn timing(counts: &LogCounts) -> LogFinding {
    let topic = "timing";
    if counts.with_milliseconds == 0 {
        let text = "times have no milliseconds: statements of a second begin at once";
        return finding(topic, LogFindingState::Partial, text, Some("log_line_prefix with %m"));
    }
    if counts.durations == 0 {
        let text = "begins to the millisecond; no durations to compare with";
        return finding(topic, LogFindingState::Partial, text, Some("log_duration = on"));
    }
    let text = format!("begins to the millisecond, {} durations", counts.durations);
    finding(topic, LogFindingState::Complete, text, None)
}

fn order(counts: &LogCounts) -> LogFinding {
    let topic = "begin and end";
    if counts.begins == 0 {
        let text = "only ends are logged; begins are computed from durations, and a COMMIT's place \
                    is that of its end, where other sessions may have gone on already";
        return finding(topic, LogFindingState::Partial, text, Some("log_statement = 'all'"));
    }
    if counts.durations == 0 {
        let text = "only begins are logged; statements outside of transaction blocks are ordered by \
                    their begin, which need not be the order of their commits";
        return finding(topic, LogFindingState::Partial, text, Some("log_duration = on"));
    }
    finding(topic, LogFindingState::Complete, "begins and ends of statements are logged", None)
}

fn commits(counts: &LogCounts) -> LogFinding {
    let topic = "commit order";
    let open = counts.autocommit_simple.saturating_sub(counts.autocommit_exact);
    if open > 0 {
        let text = format!(
            "{open} simple statements write outside of transaction blocks: of two on the same row at \
             the same time the log does not say which came first"
        );
        let remedy = Some("log_executor_stats = on (twice the log)");
        return finding(topic, LogFindingState::Partial, text, remedy);
    }
    if counts.with_vxid == 0 && counts.extended > 0 {
        let text = "without virtual transaction ids, statements that a client sent with one Sync cannot be distinguished";
        let remedy = Some("log_line_prefix with %v, or csvlog, or jsonlog");
        return finding(topic, LogFindingState::Partial, text, remedy);
    }
    finding(topic, LogFindingState::Complete, "each commit has its place in the log", None)
}

fn parameters(counts: &LogCounts) -> LogFinding {
    let topic = "parameters";
    let remedy = Some("log_parameter_max_length = -1, log_parameter_max_length_on_error = -1");
    let missing = counts.without_parameters;
    if missing > 0 {
        let text = format!("{missing} statements have no parameters logged: they are left out");
        return finding(topic, LogFindingState::Partial, text, remedy);
    }
    if counts.cut_parameters > 0 {
        let text =
            format!("{} statements have cut parameters: they are left out", counts.cut_parameters);
        return finding(topic, LogFindingState::Partial, text, remedy);
    }
    let text = match counts.extended {
        0 => "no statement has any".to_owned(),
        extended => format!("{extended} executions with all their values"),
    };
    finding(topic, LogFindingState::Complete, text, None)
}

fn sessions(counts: &LogCounts) -> LogFinding {
    let topic = "sessions";
    let begun = counts.sessions_begun;
    let ended = counts.sessions_ended;
    if begun < counts.sessions || ended < counts.sessions {
        let text = format!(
            "of {} sessions at least {} were open before the log or after it, or their begin and end \
             are not logged",
            counts.sessions,
            counts.sessions - begun.min(ended)
        );
        let remedy = Some("log_connections = on, log_disconnections = on");
        return finding(topic, LogFindingState::Partial, text, remedy);
    }
    let text = format!("{} sessions, begin and end logged", counts.sessions);
    finding(topic, LogFindingState::Complete, text, None)
}

fn copy(counts: &LogCounts) -> Option<LogFinding> {
    let text = format!("{} COPY FROM STDIN, whose data no log has: left out", counts.copy_in);
    let remedy = Some("begin the log after the load, from a copy of the data");
    (counts.copy_in > 0).then(|| finding("COPY", LogFindingState::Missing, text, remedy))
}

/// Statements missing from the log, where it shows that.
fn missing(counts: &LogCounts) -> Option<LogFinding> {
    let mut parts = Vec::new();
    for (name, value) in &counts.settings_changed {
        let leaves_out = match name.as_str() {
            "log_min_duration_statement" => value != "0" && counts.begins == 0,
            "log_min_duration_sample" => value != "-1",
            _ => value != "1" && value != "0",
        };
        if leaves_out {
            parts.push(format!("{name} was changed to {value}"));
        }
    }
    let shortest_us = counts.shortest_us.unwrap_or(0);
    if counts.begins == 0 && counts.durations >= LEAST_DURATIONS && shortest_us >= 1000 {
        let shortest_ms = shortest_us / 1000;
        parts.push(format!("no statement is shorter than {shortest_ms} ms"));
    }
    if counts.half_blocks > counts.sessions.max(counts.blocks / 20) {
        parts.push(format!("{} transactions have no begin or no end", counts.half_blocks));
    }
    let text = format!("statements are not in the log: {}", parts.join("; "));
    let remedy = Some("log_statement = 'all', log_min_duration_statement = 0, no sampling");
    (!parts.is_empty()).then(|| finding("sample", LogFindingState::Missing, text, remedy))
}

/// With this number of durations, some are below a millisecond.
const LEAST_DURATIONS: u64 = 100;

fn left_out(counts: &LogCounts) -> Option<LogFinding> {
    let parts = [
        (counts.fast_path, "fast-path calls"),
        (counts.fetches, "fetches from open portals (their statement is executed as a whole)"),
        (counts.not_utf8, "statements that are not UTF-8"),
        (counts.errors_without_statement, "errors without their statement"),
        (counts.audits, "entries of pgaudit"),
        (counts.plans, "plans of auto_explain"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, label)| format!("{count} {label}"))
        .collect();
    let text = parts.join(", ");
    (!parts.is_empty()).then(|| finding("left out", LogFindingState::Partial, text, None))
}

pub(crate) fn volatile(counts: &LogCounts) -> Option<LogFinding> {
    let calls: Vec<String> =
        counts.volatile_calls.iter().map(|(name, count)| format!("{name} ({count})")).collect();
    let text = format!("other values than when it was logged: {}", calls.join(", "));
    (!calls.is_empty()).then(|| finding("values", LogFindingState::Partial, text, None))
}
