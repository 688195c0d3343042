//! Names, messages and records that mean to take over a terminal or a spreadsheet.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;

use pgtoll_cluster::StopMode;
use pgtoll_report::is_unprintable;
use serde_json::Value;

use crate::support::{PATIENCE, Ran, Scratch, ends_within, pgtoll, pid_of, run, running, server};

/// Colours, a title, a line of its own, and text that reads from right to left.
const HOSTILE: &str = "=\u{1b}[31m\u{1b}]0;t\u{7}\nINJECTED\u{9b}2J\u{7f}\u{202e}\u{2066}\u{e0041}";

/// A terminal obeys nothing of it.
#[track_caller]
fn assert_clean(ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        let text = text.replace("\r\n", "\n");
        let line = text.lines().find(|line| line.contains(is_unprintable));
        assert_eq!(line, None, "{ran:?}");
    }
}

/// Nothing begins a line that looks like one of pgtoll's.
#[track_caller]
fn assert_not_injected(text: &str) {
    assert!(!text.lines().any(|line| line.starts_with("INJECTED")), "{text}");
}

#[test]
fn paths_do_not_reach_a_terminal_as_they_are() {
    let scratch = Scratch::new();
    let path = scratch.path(HOSTILE);
    let commands = [
        vec!["verify"],
        vec!["report"],
        vec!["wal", "stats"],
        vec!["page", "checksum"],
        vec!["enable"],
        vec!["measure", "--check"],
        vec!["verify", "--settle"],
        vec!["report", "--format"],
    ];
    for command in commands {
        let ran = run(pgtoll().args(&command).arg(&path));
        assert_eq!(ran.status, Some(2), "{command:?}: {ran:?}");
        assert_clean(&ran);
        assert_not_injected(&ran.stderr);
        assert!(ran.stderr.contains("\\u{202e}"), "{command:?}: {ran:?}");
    }
    // An option that is none, as a file's name is one where a shell replaces `*`.
    let ran = run(pgtoll().args(["report", &format!("--{HOSTILE}")]));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert_clean(&ran);
    // Neither is what is no text at all.
    let bytes = std::ffi::OsString::from_vec(b"/\xff\x1b[31m".to_vec());
    assert_clean(&run(pgtoll().arg("report").arg(bytes)));
    // An experiment's line with a mistake in it.
    let experiment = scratch.path("bad.toml");
    fs::write(&experiment, format!("name = \"{}\"\n", HOSTILE.replace('\n', ""))).unwrap();
    let ran = run(pgtoll().args(["measure", "--check"]).arg(&experiment));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert_clean(&ran);
}

#[test]
fn a_servers_words_do_not_reach_a_terminal_as_they_are() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut startup = [0; 4];
        stream.read_exact(&mut startup).unwrap();
        let mut rest = vec![0; u32::from_be_bytes(startup) as usize - 4];
        stream.read_exact(&mut rest).unwrap();
        let fields =
            [('S', "FATAL"), ('C', "28000"), ('M', HOSTILE), ('D', HOSTILE), ('H', HOSTILE)];
        let mut body: Vec<u8> = Vec::new();
        for (field, text) in fields {
            body.extend([field as u8]);
            body.extend(text.as_bytes());
            body.push(0);
        }
        body.push(0);
        let mut message = vec![b'E'];
        message.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        message.extend(body);
        stream.write_all(&message).unwrap();
    });
    let dsn = format!("host=127.0.0.1 port={port} user=x sslmode=disable gssencmode=disable");
    let ran = run(pgtoll().args(["wal", "stats", "--dsn", &dsn]));
    server.join().unwrap();
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert_clean(&ran);
    assert_not_injected(&ran.stderr);
    assert!(ran.stderr.contains("\\u{202e}"), "{ran:?}");
}

#[test]
fn a_relations_name_does_not_reach_a_terminal_as_it_is() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = running(&mut guard, &server(), "words");
    let name = HOSTILE.replace('"', "\"\"");
    let mut session = cluster.connect("postgres").unwrap();
    session.execute(&format!("CREATE SCHEMA \"{name}\"")).unwrap();
    session
        .execute(&format!(
            "CREATE TABLE \"{name}\".\"{name}\" AS SELECT generate_series(1, 9999) i"
        ))
        .unwrap();
    let sql = "SELECT pg_relation_filepath(oid) AS path FROM pg_class WHERE relname LIKE '=%'";
    let path: PathBuf = cluster.data().join(session.query_one(sql).unwrap().text("path").unwrap());
    drop(session);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    // A header that is impossible, with checksums or without.
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0xFF; 24], 8192 * 3).unwrap();

    let ran = run(pgtoll().arg("verify").arg(cluster.data()));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert_clean(&ran);
    // What is advised is SQL all the same.
    assert!(
        ran.stdout.contains(r#"SELECT * FROM ONLY U&"=\001B[31m\001B]0;t\0007\000AINJ"#),
        "{ran:?}"
    );
    let ran = run(pgtoll().arg("verify").arg(cluster.data()).arg("--json"));
    assert_clean(&ran);
    let record: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(record["relations"][0]["name"]["relation"], HOSTILE, "the data are as they are");
    cluster.remove(&mut guard).unwrap();
}

/// The record of a small run, each value changed.
fn changed(change: impl Fn(&mut Value)) -> String {
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/small.jsonl");
    let text = fs::read_to_string(record).unwrap();
    let lines = text.lines().map(|line| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        each(&mut value, &change);
        format!("{value}\n")
    });
    lines.collect()
}

fn each(value: &mut Value, change: &impl Fn(&mut Value)) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|item| each(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each(field, change)),
        other => change(other),
    }
}

const FORMATS: [&str; 7] = ["table", "md", "json", "html", "gobench", "csv", "openmetrics"];

#[test]
fn a_record_does_not_reach_a_terminal_as_it_is() {
    let scratch = Scratch::new();
    let record = scratch.path("run.jsonl");
    let text = changed(|value| {
        let is_name =
            value.as_str().is_some_and(|text| !text.starts_with("pgtoll.") && text.contains(' '));
        if is_name || *value == "off" {
            *value = format!("{HOSTILE}{}", value.as_str().unwrap()).into();
        }
    });
    assert!(text.matches("INJECTED").count() > 10);
    fs::write(&record, text).unwrap();
    for format in FORMATS {
        let ran = run(pgtoll().args(["report", "--format", format]).arg(&record));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert_clean(&ran);
        let file = scratch.path("report");
        let ran =
            run(pgtoll().args(["report", "--format", format]).arg(&record).arg("-o").arg(&file));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let text = fs::read_to_string(&file).unwrap();
        if !["table", "html"].contains(&format) {
            assert_not_injected(&text);
        }
        assert_clean(&Ran { stdout: text, ..ran });
    }
    let ran = run(pgtoll().args(["report", "--json"]).arg(&record));
    assert!(serde_json::from_str::<Value>(&ran.stdout).unwrap().to_string().contains('\u{202e}'));
    let ran = run(pgtoll().args(["report", "--format", "csv"]).arg(&record));
    assert!(ran.stdout.contains(",'=") && !ran.stdout.contains(",="), "{ran:?}");
}

#[test]
fn no_number_of_a_record_ends_the_report_in_a_panic() {
    let scratch = Scratch::new();
    let record = scratch.path("run.jsonl");
    for number in [u64::MAX, i64::MAX as u64, u64::from(u32::MAX)] {
        let text = changed(|value| {
            if value.is_u64() {
                *value = number.into();
            }
        });
        fs::write(&record, text).unwrap();
        for format in FORMATS {
            let ran = run(pgtoll().args(["report", "--format", format]).arg(&record));
            assert!(matches!(ran.status, Some(0 | 2)), "{format}: {}", ran.stderr);
            assert!(!ran.stderr.contains("panicked"), "{format}: {}", ran.stderr);
        }
    }
}

#[test]
fn a_record_may_come_through_a_pipe_and_has_an_end() {
    let text = changed(|_| ());
    let mut command = pgtoll();
    command.args(["report", "/dev/stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains("server CPU us/tx"));

    let mut command = pgtoll();
    let child = command.args(["report", "/dev/zero"]).stderr(Stdio::piped()).spawn().unwrap();
    assert!(ends_within(pid_of(&child), PATIENCE));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no record: not a text"));
}
