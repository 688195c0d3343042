//! Conversations, and the steps that come of them.

use proptest::prelude::*;

use super::*;

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn text(tag: u8, text: &str) -> Vec<u8> {
    message(tag, format!("{text}\0").as_bytes())
}

fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = format!("{name}\0{sql}\0").into_bytes();
    body.extend(u16::try_from(types.len()).unwrap().to_be_bytes());
    body.extend(types.iter().flat_map(|oid| oid.to_be_bytes()));
    message(b'P', &body)
}

fn bind(name: &str, format: u16, values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = format!("\0{name}\0").into_bytes();
    body.extend([0, 1]);
    body.extend(format.to_be_bytes());
    body.extend(u16::try_from(values.len()).unwrap().to_be_bytes());
    for value in values {
        let length = value.map_or(-1, |value| i32::try_from(value.len()).unwrap());
        body.extend(length.to_be_bytes());
        body.extend(value.unwrap_or_default());
    }
    body.extend([0, 0]);
    message(b'B', &body)
}

fn execute() -> Vec<u8> {
    message(b'E', b"\0\0\0\0\0")
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

fn failed(code: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0VERROR\0C{code}\0Mno\0\0").as_bytes())
}

/// A conversation: `true` is the client. Each turn has its own mark.
fn observe(turns: &[(bool, &[Vec<u8>])]) -> (Vec<CapturedStep>, ObservedCounts) {
    observe_copies(0, turns)
}

fn observe_copies(
    copy_data_max: usize,
    turns: &[(bool, &[Vec<u8>])],
) -> (Vec<CapturedStep>, ObservedCounts) {
    let mut observer = SessionObserver::new(copy_data_max);
    for (number, (is_client, messages)) in (1..).zip(turns) {
        let mark = Mark { number, at_us: number * 1000 };
        let bytes = messages.concat();
        let outcome =
            if *is_client { observer.sent(&bytes, mark) } else { observer.received(&bytes, mark) };
        assert_eq!(outcome, Ok(()), "{number}");
    }
    let is_idle = observer.is_idle();
    observer.end();
    assert!(is_idle || turns.last().is_some_and(|(is_client, _)| *is_client));
    (observer.take_steps(), observer.take_counts())
}

fn step(request: StatementRequest, begin: u64, end: u64) -> CapturedStep {
    CapturedStep {
        session: 0,
        start_us: begin * 1000,
        duration_us: Some((end - begin) * 1000),
        begin,
        end,
        before_commit: None,
        request,
        failed: None,
        has_written: None,
        in_block: Some(false),
        rows: None,
        ends_late: true,
    }
}

fn simple(sql: &str) -> StatementRequest {
    StatementRequest::Simple(sql.to_owned())
}

fn extended(list: &[(&str, &str, &[Option<&str>])]) -> StatementRequest {
    let execution = |(name, sql, values): &(&str, &str, &[Option<&str>])| ExecutedStatement {
        name: (*name).to_owned(),
        sql: (*sql).to_owned(),
        types: Vec::new(),
        parameters: values.iter().map(|value| value.map(|value| value.to_owned().into())).collect(),
    };
    StatementRequest::Extended(list.iter().map(execution).collect())
}

#[test]
fn simple_queries_of_one_and_of_several_statements() {
    let (steps, _) = observe(&[
        (true, &[text(b'Q', "begin")]),
        (false, &[text(b'C', "BEGIN"), ready(b'T')]),
        (true, &[text(b'Q', "update t set v = 1; select 1")]),
        (
            false,
            &[text(b'C', "UPDATE 3"), message(b'D', b"row"), text(b'C', "SELECT 1"), ready(b'T')],
        ),
        (true, &[text(b'Q', "commit")]),
        (false, &[text(b'C', "COMMIT"), ready(b'I')]),
        (true, &[text(b'Q', "selec")]),
        (false, &[failed("42601"), ready(b'I')]),
    ]);
    let in_block = |step| CapturedStep { in_block: Some(true), ends_late: false, ..step };
    let expected = [
        step(simple("begin"), 1, 2),
        in_block(CapturedStep {
            rows: Some(4),
            ..step(simple("update t set v = 1; select 1"), 3, 4)
        }),
        in_block(step(simple("commit"), 5, 6)),
        CapturedStep {
            failed: Some("42601".to_owned()),
            duration_us: None,
            ..step(simple("selec"), 7, 8)
        },
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_prepared_statement_is_executed_with_text_and_binary_values() {
    let sql = "select $1, $2";
    let (steps, counts) = observe(&[
        (true, &[parse("p", sql, &[0, 0]), message(b'D', b"Sp\0"), sync()]),
        (
            false,
            &[
                message(b'1', b""),
                message(b't', b"\0\x02\0\0\0\x17\0\0\0\x19"),
                message(b'T', b"columns"),
                ready(b'I'),
            ],
        ),
        (true, &[bind("p", 0, &[Some(b"7"), None]), execute(), sync()]),
        (false, &[message(b'2', b""), text(b'C', "SELECT 1"), ready(b'I')]),
        (true, &[bind("p", 1, &[Some(&[0, 0, 0, 8]), Some(b"x")]), execute(), sync()]),
        (false, &[message(b'2', b""), text(b'C', "SELECT 1"), ready(b'I')]),
        // A type that the client declares, and a binary value of a type that nobody named.
        (true, &[parse("", sql, &[600]), bind("", 1, &[None, Some(b"?")]), execute(), sync()]),
        (false, &[message(b'1', b""), message(b'2', b""), text(b'C', "SELECT 1"), ready(b'I')]),
    ]);
    let row = |step| CapturedStep { rows: Some(1), ..step };
    let binary = |name: &str, types: &[u32], values: &[Option<(u32, &[u8])>]| {
        let value =
            |(oid, bytes): (u32, &[u8])| ParameterValue::Binary { oid, bytes: bytes.to_vec() };
        StatementRequest::Extended(vec![ExecutedStatement {
            name: name.to_owned(),
            sql: sql.to_owned(),
            types: types.to_vec(),
            parameters: values.iter().map(|item| item.map(value)).collect(),
        }])
    };
    let expected = [
        row(step(extended(&[("p", sql, &[Some("7"), None])]), 3, 4)),
        row(step(binary("p", &[], &[Some((23, &[0, 0, 0, 8])), Some((25, b"x"))]), 5, 6)),
        row(step(binary("", &[600], &[None, Some((0, b"?"))]), 7, 8)),
    ];
    assert_eq!(steps, expected);
    assert_eq!(counts.without_parameters, 0);
}

/// Parse, bind and execute of an unnamed statement.
fn unnamed(sql: &str) -> Vec<u8> {
    [parse("", sql, &[]), bind("", 0, &[]), execute()].concat()
}

fn done(tag: &str) -> Vec<u8> {
    [message(b'1', b""), message(b'2', b""), text(b'C', tag)].concat()
}

#[test]
fn executions_with_one_sync_are_one_step_or_those_of_a_block() {
    let (steps, _) = observe(&[
        (true, &[unnamed("insert into t values (1)"), unnamed("select 1"), sync()]),
        (false, &[done("INSERT 0 1"), done("SELECT 1"), ready(b'I')]),
        (true, &[unnamed("begin"), unnamed("update t set v = 1"), sync()]),
        (false, &[done("BEGIN"), done("UPDATE 2"), ready(b'T')]),
        (true, &[unnamed("update t set v = 2"), unnamed("commit"), sync()]),
        (false, &[done("UPDATE 2"), done("COMMIT"), ready(b'I')]),
    ]);
    let one = |sql| extended(&[("", sql, &[])]);
    let found: Vec<_> = steps
        .iter()
        .map(|step| (&step.request, step.in_block, step.begin, step.ends_late))
        .collect();
    let both = extended(&[("", "insert into t values (1)", &[]), ("", "select 1", &[])]);
    let expected = [
        (&both, Some(false), 1, true),
        (&one("begin"), Some(false), 3, true),
        // Sent with the statement before: where its locks were given back is not known.
        (&one("update t set v = 1"), Some(true), 4, true),
        (&one("update t set v = 2"), Some(true), 5, false),
        (&one("commit"), Some(true), 6, true),
    ];
    assert_eq!(found, expected);
    assert_eq!((steps[0].rows, steps[0].end), (Some(2), 2));
}

#[test]
fn what_follows_an_error_is_not_executed_up_to_the_sync() {
    let (steps, counts) = observe(&[
        (true, &[parse("p", "select 1", &[]), sync()]),
        (false, &[message(b'1', b""), ready(b'I')]),
        // The second statement fails, and renames nothing.
        (
            true,
            &[unnamed("select 1"), unnamed("select 1/0"), parse("p", "select 2", &[]), execute()],
        ),
        (false, &[done("SELECT 1"), message(b'1', b""), message(b'2', b""), failed("22012")]),
        (true, &[bind("p", 0, &[]), execute(), sync()]),
        (false, &[ready(b'I')]),
        (true, &[bind("p", 0, &[]), execute(), sync()]),
        (false, &[message(b'2', b""), text(b'C', "SELECT 1"), ready(b'I')]),
        // A statement that cannot be parsed, and a commit that fails.
        (true, &[parse("q", "selec", &[]), sync()]),
        (false, &[failed("42601"), ready(b'I')]),
        (true, &[unnamed("insert into t values (1)"), sync()]),
        (false, &[done("INSERT 0 1"), failed("40001"), ready(b'I')]),
    ]);
    let both = extended(&[("", "select 1", &[]), ("", "select 1/0", &[])]);
    let insert = extended(&[("", "insert into t values (1)", &[])]);
    let known = extended(&[("p", "select 1", &[])]);
    let failures: Vec<_> =
        steps.iter().map(|step| (&step.request, step.failed.as_deref())).collect();
    let expected = [
        (&both, Some("22012")),
        (&known, None),
        (&simple("selec"), Some("42601")),
        (&insert, Some("40001")),
    ];
    assert_eq!(failures, expected);
    assert_eq!(counts.errors_without_statement, 0);
}

#[test]
fn copy_data_pass_and_are_counted() {
    let data = || [message(b'd', b"1\n"), message(b'd', b"2\n"), message(b'c', b"")].concat();
    let begins = || message(b'G', b"\0\0\0");
    let sql = "copy t from stdin";
    let (steps, counts) = observe(&[
        (true, &[text(b'Q', sql)]),
        (false, &[begins()]),
        (true, &[data()]),
        (false, &[text(b'C', "COPY 2"), ready(b'I')]),
        // The Sync that comes with the statement is one of the data.
        (true, &[unnamed(sql), sync()]),
        (false, &[message(b'1', b""), message(b'2', b""), begins()]),
        (true, &[sync(), data(), sync()]),
        (false, &[text(b'C', "COPY 2"), ready(b'I')]),
        // All at once.
        (true, &[unnamed(sql), sync(), data(), sync(), text(b'Q', "select 1")]),
        (
            false,
            &[message(b'1', b""), message(b'2', b""), begins(), text(b'C', "COPY 2"), ready(b'I')],
        ),
        (false, &[text(b'C', "SELECT 1"), ready(b'I')]),
        (true, &[text(b'Q', "copy t to stdout")]),
        (false, &[message(b'H', b"\0\0\0"), data(), text(b'C', "COPY 2"), ready(b'I')]),
    ]);
    let reason = IncompleteReason::CopyData;
    let copy = StatementRequest::Incomplete { sql: sql.to_owned(), reason };
    let requests: Vec<_> = steps.iter().map(|step| &step.request).collect();
    let others = [simple("select 1"), simple("copy t to stdout")];
    assert_eq!(requests, [&copy, &copy, &copy, &others[0], &others[1]]);
    assert_eq!((counts.copy_in, steps[0].rows), (3, Some(2)));
}

#[test]
fn copy_data_up_to_a_size_are_kept() {
    let data = || [message(b'd', b"1\n"), message(b'd', b"2\n"), message(b'c', b"")].concat();
    let begins = || message(b'G', b"\0\0\0");
    let sql = "copy t from stdin";
    let several = "copy t from stdin; copy u from stdin";
    let turns: [(bool, &[Vec<u8>]); 14] = [
        (true, &[text(b'Q', sql)]),
        (false, &[begins()]),
        (true, &[data()]),
        (false, &[text(b'C', "COPY 2"), ready(b'I')]),
        // All at once.
        (true, &[text(b'Q', sql), data()]),
        (false, &[begins(), text(b'C', "COPY 2"), ready(b'I')]),
        (true, &[text(b'Q', sql), message(b'd', b"1\n"), message(b'f', b"")]),
        (false, &[begins(), failed("57014"), ready(b'I')]),
        (true, &[text(b'Q', several)]),
        (false, &[begins()]),
        (true, &[data()]),
        (false, &[text(b'C', "COPY 2"), begins()]),
        (true, &[data()]),
        (false, &[text(b'C', "COPY 2"), ready(b'I')]),
    ];
    let reason = IncompleteReason::CopyData;
    let without = |sql: &str| StatementRequest::Incomplete { sql: sql.to_owned(), reason };
    let with = StatementRequest::Copy { sql: sql.to_owned(), data: b"1\n2\n".to_vec() };
    for (most, first, left_out) in [(4, with, 2), (3, without(sql), 4)] {
        let (steps, counts) = observe_copies(most, &turns);
        let requests: Vec<_> = steps.iter().map(|step| &step.request).collect();
        assert_eq!(requests, [&first, &first, &without(sql), &without(several)], "{most}");
        assert_eq!(counts.copy_in, left_out, "{most}");
    }
}

#[test]
fn a_portal_that_is_fetched_from_again_is_executed_once() {
    let (steps, counts) = observe(&[
        (true, &[unnamed("select 1"), message(b'H', b"")]),
        (false, &[message(b'1', b""), message(b'2', b""), message(b's', b"")]),
        (true, &[execute(), sync()]),
        (false, &[text(b'C', "SELECT 5"), ready(b'I')]),
    ]);
    assert_eq!((steps.len(), counts.fetches), (1, 1));
    assert_eq!((steps[0].begin, steps[0].end), (1, 2));
}

#[test]
fn what_was_not_answered_has_no_end() {
    let (steps, _) = observe(&[(true, &[text(b'Q', "insert into t values (1)")])]);
    assert_eq!((steps.len(), steps[0].duration_us, steps[0].end), (1, None, 1));
}

#[test]
fn passwords_are_not_kept() {
    let mut observer = SessionObserver::new(16);
    let password = text(b'p', "open sesame");
    for piece in password.chunks(3) {
        observer.sent(piece, Mark::default()).unwrap();
    }
    observer.received(&ready(b'I'), Mark::default()).unwrap();
    assert!(!format!("{observer:?}").contains("sesame"));
    let bytes = format!("{:?}", b"sesame");
    assert!(!format!("{observer:?}").contains(bytes.trim_matches(['[', ']'])));
}

proptest! {
    /// Pieces of messages, and messages in any order, end in steps or in a broken stream, never a panic.
    #[test]
    fn any_conversation_ends(
        turns in prop::collection::vec(
            (any::<bool>(), prop::sample::select(&b"QPBDCEFSHdcfX123tTnsIZGp"[..]),
             prop::collection::vec(prop::sample::select(&b"\0\0\0\x01IpsQ"[..]), 0..20)),
            0..40,
        ),
    ) {
        let mut observer = SessionObserver::new(16);
        for (number, (is_client, tag, body)) in (1..).zip(&turns) {
            let mark = Mark { number, at_us: number };
            let bytes = message(*tag, body);
            let _ = if *is_client { observer.sent(&bytes, mark) } else { observer.received(&bytes, mark) };
        }
        observer.end();
        for step in observer.take_steps() {
            prop_assert!(step.begin <= step.end);
        }
    }

    /// However the bytes of both directions are cut, the statements are the same.
    #[test]
    fn pieces_make_no_difference(lengths in prop::collection::vec(1_usize..50, 1..30)) {
        let client = [
            text(b'Q', "select 1"), unnamed("begin"), unnamed("update t set v = 1"), sync(),
            unnamed("copy t from stdin"), sync(), message(b'd', &[7; 100]), message(b'c', b""), sync(),
        ].concat();
        let server = [
            text(b'C', "SELECT 1"), ready(b'I'), done("BEGIN"), done("UPDATE 1"), ready(b'T'),
            message(b'1', b""), message(b'2', b""), message(b'G', b"\0\0\0"), text(b'C', "COPY 1"), ready(b'T'),
        ].concat();
        let requests = |lengths: &[usize]| {
            let mut observer = SessionObserver::new(16);
            for (is_client, mut rest) in [(true, &client[..]), (false, &server[..])] {
                for length in lengths.iter().cycle() {
                    if rest.is_empty() {
                        break;
                    }
                    let (piece, more) = rest.split_at((*length).min(rest.len()));
                    let mark = Mark::default();
                    let outcome =
                        if is_client { observer.sent(piece, mark) } else { observer.received(piece, mark) };
                    outcome.unwrap();
                    rest = more;
                }
            }
            let steps = observer.take_steps();
            steps.into_iter().map(|step| step.request).collect::<Vec<_>>()
        };
        let whole = requests(&[usize::MAX]);
        prop_assert_eq!(whole.len(), 4);
        prop_assert_eq!(requests(&lengths), whole);
    }
}
