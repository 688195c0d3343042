//! Logs of real servers: each format has the same work.

use pgtoll_record::LogFindingState;
use pgtoll_replay::{CapturedWorkload, LogInput, ReplayError, StatementRequest, check, read_logs};

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
    read_logs([LogInput { name: "log".to_owned(), content: Box::new(log) }], None, |_| {})
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
