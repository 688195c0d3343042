//! Logs of real servers: each format, and each envelope, has the same work.

#![expect(clippy::unwrap_used, reason = "tests")]

use pgtoll_record::LogFindingState;
use pgtoll_replay::{
    CapturedWorkload, LogInput, LogReading, ReplayError, StatementRequest, check, read_logs,
};

const LOGS: [[&[u8]; 3]; 2] = [
    [
        include_bytes!("server-logs/zoo15.log"),
        include_bytes!("server-logs/zoo15.csv"),
        include_bytes!("server-logs/zoo15.json"),
    ],
    [
        include_bytes!("server-logs/zoo18.log"),
        include_bytes!("server-logs/zoo18.csv"),
        include_bytes!("server-logs/zoo18.json"),
    ],
];

fn read(log: &[u8]) -> Result<CapturedWorkload, ReplayError> {
    read_logs(
        [LogInput { name: "log".to_owned(), content: Box::new(log) }],
        &LogReading::default(),
        |_| {},
    )
}

#[test]
fn every_format_has_the_same_work() {
    for formats in LOGS {
        let [stderr, csv, json] = formats.map(|log| read(log).unwrap());
        assert_eq!(stderr.steps, csv.steps);
        assert_eq!(csv.steps, json.steps);
        assert_eq!(stderr.sessions, csv.sessions);
        assert_eq!(csv.header.counts, json.header.counts);
    }
}

#[test]
fn parameters_and_pipelines_are_those_that_were_sent() {
    for [log, ..] in LOGS {
        let workload = read(log).unwrap();
        let extended = |request: &StatementRequest| match request {
            StatementRequest::Extended(executions) => Some(executions.clone()),
            _ => None,
        };
        let all: Vec<_> =
            workload.steps.iter().filter_map(|step| extended(&step.request)).collect();
        let first = &all[0][0];
        assert_eq!(first.sql, "select * from z where id=$1 and t=$2");
        let value = "it's \"q\"\nnl, $3 = 'x'".to_owned();
        assert_eq!(first.parameters, [Some("1".to_owned().into()), Some(value.into())]);
        assert!(all.iter().any(|s| s.len() == 2), "one pipeline: {all:?}");
        let counts = &workload.header.counts;
        assert_eq!((counts.copy_in, counts.fetches, counts.cancelled), (1, 2, 2));
        let codes: Vec<_> =
            workload.steps.iter().filter_map(|step| step.failed.as_deref()).collect();
        assert!(
            ["22012", "42P01", "42601", "57014", "40P01"].iter().all(|item| codes.contains(item))
        );
        let findings = check(&workload.header).unwrap();
        let copy = findings.iter().find(|finding| finding.topic == "COPY").unwrap();
        assert_eq!(copy.state, LogFindingState::Missing);
    }
}

#[test]
fn logs_that_end_anywhere_have_what_is_whole() {
    for log in LOGS.into_iter().flatten() {
        let all = read(log).unwrap();
        for length in (4000..log.len()).step_by(991) {
            let part = read(&log[..length]).unwrap();
            assert!(part.steps.len() <= all.steps.len());
            assert!(part.header.counts.entries <= all.header.counts.entries);
        }
    }
}

/// Events of a log: a line each, or a line with those that continue it.
fn events(log: &[u8], whole: bool) -> Vec<String> {
    let mut events: Vec<String> = Vec::new();
    for line in str::from_utf8(log).unwrap().lines() {
        match events.last_mut() {
            Some(last) if whole && line.starts_with('\t') => last.extend(["\n", line]),
            _ => events.push(line.to_owned()),
        }
    }
    events
}

/// The events in a form of export; each has its number as its time, in ms.
fn export(form: &str, events: &[String]) -> String {
    let event = |(number, event): (usize, &String)| {
        let text = serde_json::to_string(event).unwrap();
        let time = format!(
            "2026-11-29T10:{:02}:{:02}.{:03}Z",
            number / 60_000,
            number / 1000 % 60,
            number % 1000
        );
        match form {
            "CloudWatch" => format!(
                "{{\"logStreamName\":\"shop.0\",\"timestamp\":{number},\"message\":{text},\"eventId\":\"{number}\"}}"
            ),
            "Cloud Logging" => format!(
                "{{\"insertId\":\"{number}\",\"textPayload\":{text},\"timestamp\":\"{time}\"}}"
            ),
            "Azure" => format!("{{\"time\":\"{time}\",\"properties\":{{\"message\":{text}}}}}"),
            "Docker" => {
                format!("{{\"log\":{}\\n\",\"time\":\"{time}\"}}", text.strip_suffix('"').unwrap())
            }
            "containers" => format!("{time} stderr F {event}"),
            _ => format!("{time} {event}"),
        }
    };
    let events: Vec<String> = events.iter().enumerate().map(event).collect();
    match form {
        "CloudWatch" => format!("{{\"events\":[{}]}}", events.join(",")),
        _ => events.join("\n") + "\n",
    }
}

#[test]
fn every_envelope_has_the_same_work() {
    for log in LOGS.concat() {
        let bare = read(log).unwrap();
        for (form, whole) in [
            ("CloudWatch", true),
            ("CloudWatch", false),
            ("Cloud Logging", true),
            ("Azure", true),
            ("Docker", false),
            ("containers", false),
            ("S3", true),
        ] {
            let wrapped = read(export(form, &events(log, whole)).as_bytes()).unwrap();
            assert_eq!(wrapped.steps, bare.steps, "{form}");
            assert_eq!(wrapped.sessions, bare.sessions, "{form}");
            assert_eq!(wrapped.header.counts, bare.header.counts, "{form}");
        }
    }
}

#[test]
fn records_that_cloudnativepg_nests_have_the_same_work() {
    const KEYS: [(&str, &str); 15] = [
        ("timestamp", "log_time"),
        ("user", "user_name"),
        ("dbname", "database_name"),
        ("pid", "process_id"),
        ("session_id", "session_id"),
        ("ps", "command_tag"),
        ("vxid", "virtual_transaction_id"),
        ("txid", "transaction_id"),
        ("error_severity", "error_severity"),
        ("state_code", "sql_state_code"),
        ("message", "message"),
        ("detail", "detail"),
        ("context", "context"),
        ("statement", "query"),
        ("application_name", "application_name"),
    ];
    for [_, _, log] in LOGS {
        let nested = |line: &str| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |value: &serde_json::Value| {
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            };
            let pair =
                |(key, column): &(&str, &str)| Some(((*column).to_owned(), text(entry.get(key)?)));
            let record: std::collections::BTreeMap<String, String> =
                KEYS.iter().filter_map(pair).collect();
            serde_json::json!({"level": "info", "logger": "postgres", "msg": "record", "record": record, "logging_pod": "shop-1"}).to_string() + "\n"
        };
        let export: String = str::from_utf8(log).unwrap().lines().map(nested).collect();
        let (bare, wrapped) = (read(log).unwrap(), read(export.as_bytes()).unwrap());
        assert_eq!((&wrapped.steps, &wrapped.sessions), (&bare.steps, &bare.sessions));
        assert_eq!(wrapped.header.counts, bare.header.counts);
    }
}

/// Lines of a real `rsyslogd`, beside the server's own log of the same work.
const SYSLOGS: [(&[u8], &[u8]); 5] = [
    (
        include_bytes!("server-logs/syslog-split.log"),
        include_bytes!("server-logs/syslog-split.rfc3164"),
    ),
    (
        include_bytes!("server-logs/syslog-split.log"),
        include_bytes!("server-logs/syslog-split.rfc3339"),
    ),
    (
        include_bytes!("server-logs/syslog-split.log"),
        include_bytes!("server-logs/syslog-split.rfc5424"),
    ),
    (
        include_bytes!("server-logs/syslog-whole.log"),
        include_bytes!("server-logs/syslog-whole.rfc3164"),
    ),
    (
        include_bytes!("server-logs/syslog-unnumbered.log"),
        include_bytes!("server-logs/syslog-unnumbered.rfc5424"),
    ),
];

/// Each session's work: two destinations have entries of one millisecond in different orders.
fn sessions(workload: &CapturedWorkload) -> Vec<Vec<String>> {
    let mut sessions = vec![Vec::new(); workload.sessions.len()];
    let mut steps: Vec<_> = workload.steps.iter().collect();
    steps.sort_by_key(|step| step.begin);
    for step in steps {
        let mut step = step.clone();
        let session: &mut Vec<String> = &mut sessions[step.session as usize];
        (step.session, step.begin, step.end) = (0, 0, 0);
        session.push(format!("{step:?}"));
    }
    sessions.sort();
    sessions
}

#[test]
fn syslog_has_the_same_work() {
    for (number, (plain, syslog)) in SYSLOGS.into_iter().enumerate() {
        let (bare, wrapped) = (read(plain).unwrap(), read(syslog).unwrap());
        assert!(bare.steps.len() > 100);
        assert_eq!(sessions(&wrapped), sessions(&bare), "{number}");
        assert_eq!(wrapped.header.counts, bare.header.counts, "{number}");
        let envelope = wrapped.header.sources[0].envelope.clone().unwrap();
        assert_eq!((envelope.damaged, envelope.missing, envelope.late), (0, 0, 0), "{number}");
    }
}

#[test]
fn syslog_gives_what_a_prefix_has_not() {
    let csv = read(include_bytes!("server-logs/syslog-bare.csv")).unwrap();
    let syslog = read(include_bytes!("server-logs/syslog-bare.rfc3339")).unwrap();
    let prefix = syslog.header.sources[0].prefix.as_deref();
    assert_eq!(prefix, Some("%m [%p] %q%u@%d "));
    let texts = |workload: &CapturedWorkload| {
        let text = |step: &pgtoll_replay::CapturedStep| format!("{:?}", step.request);
        let mut texts: Vec<String> = workload.steps.iter().map(text).collect();
        texts.sort();
        texts
    };
    assert_eq!(texts(&syslog), texts(&csv));
    assert_eq!(syslog.sessions.len(), csv.sessions.len());
}

#[test]
fn entries_that_repeat_a_statement_are_skipped_and_samples_are_said() {
    let mut log = String::new();
    let mut add = |text: &str| {
        log.push_str("2026-11-29 10:00:00.001 UTC [7] LOG:  ");
        log.push_str(text);
        log.push('\n');
    };
    add("duration: 2.000 ms  plan:\n\tQuery Text: select 1");
    add("AUDIT: SESSION,1,1,READ,SELECT,,,select 1,<not logged>");
    add("parameter \"log_transaction_sample_rate\" changed to \"0.1\"");
    for _ in 0..100 {
        add("duration: 12.000 ms  statement: select 1");
    }
    let workload = read(log.as_bytes()).unwrap();
    let counts = &workload.header.counts;
    assert_eq!((counts.plans, counts.audits, counts.statements), (1, 1, 100));
    let findings = check(&workload.header).unwrap();
    let text = |topic: &str| {
        findings.iter().find(|finding| finding.topic == topic).map(|finding| finding.text.clone())
    };
    assert_eq!(
        text("sample").as_deref(),
        Some(
            "statements are not in the log: log_transaction_sample_rate was changed to 0.1; no statement is \
             shorter than 12 ms"
        )
    );
    assert_eq!(text("left out").as_deref(), Some("1 entries of pgaudit, 1 plans of auto_explain"));
}

#[test]
fn an_export_of_several_servers_takes_a_name() {
    let event = |server: &str, text: &str| {
        format!(
            "{{\"logStreamName\":\"{server}\",\"timestamp\":1,\"message\":\"2026-11-29 10:00:00 UTC [7] LOG:  statement: {text}\"}}\n"
        )
    };
    let export = event("shop.0", "select 1") + &event("till.0", "select 2");
    let read = |server: Option<&str>| {
        let content = Box::new(export.as_bytes());
        let reading = LogReading { server, ..LogReading::default() };
        read_logs([LogInput { name: "log".to_owned(), content }], &reading, |_| {})
    };
    let error = read(None).unwrap_err();
    assert_eq!(error.to_string(), "log has events of several servers: shop.0, till.0");
    assert_eq!(error.hint().as_deref(), Some("name one: --server NAME"));
    let till = read(Some("till.0")).unwrap();
    assert_eq!(till.steps.len(), 1);
    assert_eq!(till.header.sources[0].envelope.as_ref().unwrap().foreign, 1);
}
