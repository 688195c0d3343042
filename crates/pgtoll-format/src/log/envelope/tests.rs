use proptest::prelude::*;

use super::*;

const LINES: [&str; 3] = [
    "2026-11-29 10:00:00.001 UTC [7] LOG:  statement: select 1,\n\t'\"{[x]}\\'",
    "2026-11-29 10:00:00.002 UTC [7] LOG:  duration: 1.0 ms",
    "2026-11-29 10:00:00.003 UTC [8] ERROR:  division by zero",
];

/// The server's log in pieces of an export of this length, and the counts.
fn unwrapped(export: &[u8], piece: usize) -> (String, EnvelopeCounts) {
    let mut reader = EnvelopeReader::new(detect_envelope(export).expect("an envelope"));
    let mut log = Vec::new();
    for piece in export.chunks(piece.max(1)) {
        reader.push(piece);
        reader.take(&mut log);
    }
    reader.finish();
    reader.take(&mut log);
    (String::from_utf8(log).unwrap(), reader.counts().clone())
}

fn plain(lines: &[&str]) -> String {
    lines.join("\n") + "\n"
}

/// An export of events at these milliseconds, each made from its number, its time and its text as JSON.
fn events(event: impl Fn(usize, u64, &str) -> String, separator: &str) -> String {
    let event = |(number, line): (usize, &&str)| {
        let text = serde_json::to_string(line).unwrap();
        event(number, 1_796_000_000_000 + number as u64, &text)
    };
    LINES.iter().enumerate().map(event).collect::<Vec<_>>().join(separator)
}

fn rfc3339(ms: u64) -> String {
    format!("2026-11-29T10:00:00.{:03}Z", ms % 1000)
}

/// Each provider's form, with the same three lines.
fn exports() -> Vec<(&'static str, String)> {
    let cloudwatch = |number: usize, ms: u64, text: &str| {
        format!(
            "{{\"logStreamName\": \"shop.0\", \"timestamp\": {ms}, \"message\": {text},\n \
             \"ingestionTime\": {ms}, \"eventId\": \"{number}\"}}"
        )
    };
    let google = |number: usize, ms: u64, text: &str| {
        let time = rfc3339(ms);
        format!(
            "{{\"insertId\":\"{number}\",\"resource\":{{\"type\":\"cloudsql_database\",\"labels\":\
             {{\"database_id\":\"p:shop\"}}}},\"textPayload\":{text},\"timestamp\":\"{time}\"}}"
        )
    };
    let azure = |_: usize, ms: u64, text: &str| {
        let time = rfc3339(ms);
        format!(
            "{{\"time\":\"{time}\",\"resourceId\":\"/SHOP\",\"category\":\"PostgreSQLLogs\",\
             \"properties\":{{\"errorLevel\":\"LOG\",\"message\":{text}}}}}"
        )
    };
    let docker = |_: usize, ms: u64, text: &str| {
        let text = text.strip_suffix('"').unwrap_or_default();
        format!("{{\"log\":{text}\\n\",\"stream\":\"stderr\",\"time\":\"{}\"}}", rfc3339(ms))
    };
    let collector = |_: usize, ms: u64, text: &str| {
        format!("{{\"ts\":{}.{:03},\"message\":{text}}}", ms / 1000, ms % 1000)
    };
    let loki = |_: usize, ms: u64, text: &str| {
        format!(
            "{{\"labels\":{{\"pod\":\"a\"}},\"line\":{text},\"timestamp\":\"{}\"}}",
            rfc3339(ms)
        )
    };
    let fluent_bit = |_: usize, ms: u64, text: &str| {
        let date = format!("{}.{:03}", ms / 1000, ms % 1000);
        let pod = "\"kubernetes\":{\"pod_name\":\"shop-1\",\"labels\":{}}";
        format!("{{\"date\":{date},\"stream\":\"stderr\",\"log\":{text},{pod}}}")
    };
    let container: Vec<String> = LINES
        .iter()
        .zip(0_u64..)
        .flat_map(|(line, ms)| line.split('\n').map(move |part| (ms, part)))
        .map(|(ms, part)| format!("{} stderr F {part}", rfc3339(ms)))
        .collect();
    let s3: Vec<String> =
        LINES.iter().zip(0_u64..).map(|(line, ms)| format!("{} {line}", rfc3339(ms))).collect();
    vec![
        (
            "filter-log-events",
            format!(
                "{{\n\"searchedLogStreams\": [{{\"searchedCompletely\": true}}],\n\"events\": [\n{}\n],\n\
                 \"nextToken\": \"a{{\"\n}}\n",
                events(cloudwatch, ",\n")
            ),
        ),
        (
            "get-log-events",
            format!("{{\"events\":[{}],\"nextForwardToken\":\"f/1\"}}", events(cloudwatch, ",")),
        ),
        ("gcloud", format!("[\n{}\n]\n", events(google, ",\n"))),
        ("Cloud Storage", events(google, "\n") + "\n"),
        ("Azure", events(azure, "\n")),
        ("Docker", events(docker, "\n")),
        ("a collector", events(collector, "\n")),
        ("Loki", events(loki, "\n")),
        ("Fluent Bit", events(fluent_bit, "\n")),
        ("a container runtime", container.join("\n")),
        ("S3", s3.join("\n")),
    ]
}

#[test]
fn every_form_gives_the_servers_own_log() {
    for (name, export) in exports() {
        for piece in [1, 7, 4096] {
            let (log, counts) = unwrapped(export.as_bytes(), piece);
            assert_eq!(log, plain(&LINES), "{name} in pieces of {piece}");
            let EnvelopeCounts { damaged, late, duplicates, .. } = counts;
            assert_eq!((damaged, late, duplicates), (0, 0, 0), "{name}");
        }
    }
}

#[test]
fn the_nested_records_of_cloudnativepg_become_jsonlog() {
    let export = r#"{"level":"info","ts":"2026-11-29T09:59:59Z","logger":"instance-manager","msg":"started"}
{"level":"info","ts":"2026-11-29T10:00:00.823314307Z","logger":"postgres","msg":"record","logging_pod":"shop-1","record":{"log_time":"2026-11-29 10:00:00.822 UTC","user_name":"alice","database_name":"shop","process_id":"4003","session_id":"69376dbf.fa3","command_tag":"SELECT","virtual_transaction_id":"2/81","transaction_id":"0","error_severity":"LOG","sql_state_code":"00000","message":"statement: select 1","application_name":"psql","backend_type":"client backend"}}
"#;
    let (log, counts) = unwrapped(export.as_bytes(), 4096);
    assert_eq!((counts.events, counts.foreign, counts.servers["shop-1"]), (1, 1, 1));
    let mut reader = crate::log::LogReader::new(crate::log::LogFormat::Json);
    reader.push(log.as_bytes());
    let entry = reader.next_entry().unwrap().unwrap();
    assert_eq!(
        (entry.user.as_deref(), &*entry.message),
        (Some(&b"alice"[..]), &b"statement: select 1"[..])
    );
}

#[test]
fn plain_logs_have_no_envelope() {
    let jsonlog = br#"{"timestamp":"2026-11-29 10:00:00.822 UTC","pid":7,"error_severity":"LOG","message":"x"}"#;
    for log in [LINES[0].as_bytes(), jsonlog, b"", b"{", b"{}\n", b"2026-11-29 x"] {
        assert_eq!(detect_envelope(log), None, "{}", String::from_utf8_lossy(log));
    }
}

#[test]
fn events_that_come_backwards_mixed_or_twice_are_put_in_order() {
    let event = |ms: u64, text: &str| {
        format!("{{\"timestamp\":{ms},\"eventId\":\"{text}\",\"message\":\"{text}\"}}\n")
    };
    let backwards = [event(5, "c"), event(5, "b"), event(4, "a")].concat();
    assert_eq!(unwrapped(backwards.as_bytes(), 4096).0, "a\nb\nc\n");
    let mixed =
        [event(1, "a"), event(4, "c"), event(4, "d"), event(2, "b"), event(4, "e")].concat();
    let (log, counts) = unwrapped(mixed.as_bytes(), 4096);
    assert_eq!((&*log, counts.reordered), ("a\nb\nc\nd\ne\n", 1));
    let twice = [event(1, "a"), event(2, "b"), event(1, "a")].concat();
    let (log, counts) = unwrapped(twice.as_bytes(), 4096);
    assert_eq!((&*log, counts.duplicates, counts.events), ("a\nb\n", 1, 2));
}

#[test]
fn pieces_of_syslog_are_joined_and_what_is_missing_is_counted() {
    let line = |pid: u32, text: &str| format!("Nov 29 10:00:00 db1 postgres[{pid}]: {text}\n");
    let export = [
        line(7, "[1-1] LOG:  statement: select 1,"),
        line(8, "[4-1] LOG:  x"),
        line(7, "[1-2] #0112"),
        line(7, "[2-1] ERROR:  y"),
        line(7, "[2-3] STATEMENT:  z"),
        line(7, "[5-1] LOG:  end"),
        line(9, "[1-2] #011begun before"),
        "Nov 29 10:00:00 db1 sshd[7]: x\n".to_owned(),
        "no line\n".to_owned(),
    ]
    .concat();
    let (log, counts) = unwrapped(export.as_bytes(), 4096);
    let time = "1969-11-29 10:00:00.000 UTC";
    let expected = [
        format!("{time} [7] LOG:  statement: select 1,\n\t2\n"),
        format!("{time} [8] LOG:  x\n{time} [7] LOG:  end\n"),
    ];
    assert_eq!(log, expected.concat());
    let EnvelopeCounts { events, damaged, missing, foreign, .. } = counts;
    assert_eq!((events, damaged, missing, foreign), (3, 3, 2, 1));
}

#[test]
fn a_field_is_named_by_its_path() {
    let event = r#"{"time":"2026-11-29T10:00:00Z","a.b":{"c":"x"},"d":{"e":"y"},"f":{"pid":7}}"#;
    for (path, expected) in
        [("/a.b/c", "x\n"), ("d.e", "y\n"), ("f", "{\"pid\":7}\n"), ("d.c", ""), ("", "")]
    {
        let mut reader = EnvelopeReader::new(Envelope::Json).of_field(Some(path.to_owned()));
        reader.push(event.as_bytes());
        reader.finish();
        let mut log = Vec::new();
        reader.take(&mut log);
        assert_eq!(String::from_utf8(log).unwrap(), expected, "{path}");
    }
}

#[test]
fn events_that_come_backwards_beyond_the_window_are_seen() {
    let mut reader = EnvelopeReader::new(Envelope::Json);
    let mut log = Vec::new();
    for ms in (0..30_000).rev() {
        reader.push(format!("{{\"timestamp\":{ms},\"message\":\"x\"}}\n").as_bytes());
        reader.take(&mut log);
        assert!(ms > 5000 || reader.is_descending(), "{ms}");
    }
}

#[test]
fn a_cut_event_costs_itself_alone() {
    let event = |text: &str| format!("{{\"timestamp\":1,\"message\":\"{text}\"}}\n");
    for cut in ["{\"timestamp\":1,\"mess\n", "{\"timestamp\":\n"] {
        let export = [&event("a"), cut, &event("b")].concat();
        let (log, counts) = unwrapped(export.as_bytes(), 4096);
        assert_eq!((&*log, counts.damaged), ("a\nb\n", 1), "{cut}");
        let (log, counts) = unwrapped([&event("a"), cut].concat().as_bytes(), 4096);
        assert_eq!((&*log, counts.damaged), ("a\n", 1), "{cut}");
    }
}

#[test]
fn parts_of_a_line_are_joined() {
    let export = "2026-11-29T10:00:00.1Z stderr P one \n2026-11-29T10:00:00.1Z stderr F line\n";
    assert_eq!(unwrapped(export.as_bytes(), 4096).0, "one line\n");
    let long = "x".repeat(16 << 10);
    let docker = |log: &str| format!("{{\"log\":\"{log}\",\"time\":\"2026-11-29T10:00:00Z\"}}\n");
    let export = docker(&long) + &docker("y\\n");
    assert_eq!(unwrapped(export.as_bytes(), 4096).0, format!("{long}y\n"));
}

#[test]
fn other_servers_are_left_out() {
    let event = |server: &str| {
        format!("{{\"timestamp\":1,\"message\":\"{server}\",\"logStreamName\":\"{server}\"}}\n")
    };
    let export = [event("a"), event("b")].concat();
    let mut reader = EnvelopeReader::new(Envelope::Json).of_server(Some("b".to_owned()));
    reader.push(export.as_bytes());
    reader.finish();
    let mut log = Vec::new();
    reader.take(&mut log);
    assert_eq!(
        (log, reader.counts().foreign, reader.counts().servers.len()),
        (b"b\n".to_vec(), 1, 2)
    );
}

#[test]
fn times_have_up_to_nanoseconds_and_a_zone() {
    let at = rfc3339_ns(b"2026-11-29T10:00:00Z").unwrap();
    assert_eq!(rfc3339_ns(b"2026-11-29T10:00:00.000000001Z"), Some(at + 1));
    assert_eq!(rfc3339_ns(b"2026-11-29T11:30:00.5+01:30"), Some(at + 500_000_000));
    for text in
        [&b"2026-11-29 10:00:00Z"[..], b"2026-11-29T10:00:00", b"", b"2026-11-29T10:00:00+1:00"]
    {
        assert_eq!(rfc3339_ns(text), None);
    }
}

proptest! {
    #[test]
    fn pieces_make_no_difference(bytes in "([{}\\[\\]\",:a\\\\\n]|\"message\"|\"events\":\\[|\\{\"timestamp\":1,\"message\":\"a\"\\})*", piece in 1_usize..9) {
        let read = |piece: usize| {
            let mut reader = EnvelopeReader::new(Envelope::Json);
            let mut log = Vec::new();
            for piece in bytes.as_bytes().chunks(piece) {
                reader.push(piece);
                reader.take(&mut log);
            }
            reader.finish();
            reader.take(&mut log);
            (log, reader.counts().clone())
        };
        prop_assert_eq!(read(bytes.len().max(1)), read(piece));
    }
}
