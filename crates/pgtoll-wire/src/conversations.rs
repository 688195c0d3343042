//! Whole conversations with a server that is a script: sound ones, and hostile ones that must end
//! in an error.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::{Config, Connection, Error, Parameter, Row, Secret, UnixEndpoint};

#[test]
fn the_greeting_names_process_and_settings() {
    let (connection, _peer) = connect(&greeting());
    let connection = connection.unwrap();
    assert_eq!(connection.backend_pid(), 4711);
    assert_eq!(connection.parameter("server_version"), Some("15.7"));
    assert_eq!(connection.parameter("client_encoding"), None);
}

#[test]
fn startup_says_who_we_are() {
    let (connection, mut peer) = connect(&greeting());
    connection.unwrap().close();
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    let parameters = "user\0alice\0database\0shop\0application_name\0pgtoll\0\
                      client_encoding\0UTF8\0work_mem\x001MB\0\0";
    let startup = [b"\0\x03\0\0", parameters.as_bytes()].concat();
    let terminate = b"X\0\0\0\x04";
    assert_eq!(heard[4..], [&startup[..], terminate].concat());
}

#[test]
fn queries_return_the_rows_of_all_result_sets() {
    let mut connection = greeted(&[
        row_description(&["a", "b"]),
        data_row(&[Some("1"), None]),
        data_row(&[Some("2"), Some("x")]),
        frame(b'C', b"SELECT 2\0"),
        frame(b'N', b"SNOTICE\0\0"),
        frame(b'A', b"\0\0\0\x01channel\0payload\0"),
        frame(b'S', b"TimeZone\0UTC\0"),
        row_description(&["c"]),
        data_row(&[Some("t")]),
        frame(b'C', b"SELECT 1\0"),
        ready(),
    ]);
    let rows = connection.query("SELECT").unwrap();
    assert_eq!(connection.parameter("TimeZone"), Some("UTC"));
    let [first, second, third] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(first.columns(), ["a", "b"]);
    assert_eq!(first.parse::<i64>("a").unwrap(), 1);
    assert_eq!(first.value("b").unwrap(), None);
    assert!(matches!(first.text("b"), Err(Error::Null { .. })));
    assert!(matches!(first.text("c"), Err(Error::NoColumn { .. })));
    assert_eq!(second.values(), [Some("2".to_owned()), Some("x".to_owned())]);
    assert!(matches!(second.parse::<i64>("b"), Err(Error::Value { .. })));
    assert_eq!(third.text("c").unwrap(), "t");
}

#[test]
fn a_completion_has_the_last_tag_the_first_value_and_the_warning() {
    let warning = b"SWARNUNG\0VWARNING\0C01000\0Mcanceled\0RSyncRepWaitForLSN\0\0";
    let mut connection = greeted(&[
        frame(b'C', b"BEGIN\0"),
        row_description(&["node"]),
        data_row(&[Some("a")]),
        data_row(&[Some("b")]),
        frame(b'C', b"INSERT 0 2\0"),
        ready(),
        frame(b'N', b"VNOTICE\0Mfirst\0\0"),
        frame(b'N', warning),
        frame(b'C', b"COMMIT\0"),
        ready(),
        frame(b'C', b"ROLLBACK\0"),
        ready(),
    ]);
    let inserted = connection.complete("BEGIN; INSERT").unwrap();
    assert_eq!((inserted.tag.as_str(), inserted.value.as_deref()), ("INSERT 0 2", Some("a")));
    assert_eq!(inserted.warning, None);
    let committed = connection.complete("COMMIT").unwrap();
    assert_eq!((committed.tag.as_str(), committed.value), ("COMMIT", None));
    assert_eq!(committed.warning.unwrap().routine.as_deref(), Some("SyncRepWaitForLSN"));
    // A warning is not told twice.
    let rolled_back = connection.complete("ROLLBACK").unwrap();
    assert_eq!((rolled_back.tag.as_str(), rolled_back.warning), ("ROLLBACK", None));
}

#[test]
fn one_row_is_exactly_one() {
    let answer = |count: usize| {
        let rows = data_row(&[Some("1")]).repeat(count);
        let complete = frame(b'C', b"SELECT\0");
        greeted(&[row_description(&["a"]), rows, complete, ready()]).query_one("SELECT")
    };
    assert!(matches!(answer(0), Err(Error::RowCount { actual: 0 })));
    assert!(answer(1).is_ok());
    assert!(matches!(answer(2), Err(Error::RowCount { actual: 2 })));
}

#[test]
fn a_server_error_leaves_the_connection_usable() {
    let fields = b"SFEHLER\0VERROR\0C42P01\0Mno such table\0Dd\0Hh\0P15\0\0";
    let mut connection = greeted(&[frame(b'E', fields), ready(), frame(b'C', b"BEGIN\0"), ready()]);
    let error = connection.execute("SELECT * FROM x").unwrap_err();
    assert_eq!(error.sqlstate(), Some("42P01"));
    assert_eq!(error.to_string(), "ERROR: no such table (SQLSTATE 42P01); detail: d; hint: h");
    let Error::Server(error) = error else { panic!("{error:?}") };
    assert_eq!(error.statement.as_deref(), Some("SELECT * FROM x"));
    assert_eq!(error.position, Some(15));
    connection.execute("BEGIN").unwrap();
}

#[test]
fn last_words_are_the_reason_for_a_hangup() {
    let farewell = frame(b'E', b"SFATAL\0C57P01\0Mterminating connection\0\0");
    let mut connection = greeted(&[farewell]);
    let error = connection.execute("SELECT 1").unwrap_err();
    assert_eq!(error.sqlstate(), Some("57P01"));
    let again = connection.execute("SELECT 1");
    assert!(matches!(again, Err(Error::GivenUp)));
}

#[test]
fn last_words_are_read_even_if_sending_fails() {
    let farewell = frame(b'E', b"SFATAL\0C57P01\0Mterminating connection\0\0");
    let (connection, peer) = connect(&[greeting(), farewell].concat());
    drop(peer);
    let error = connection.unwrap().execute("SELECT 1").unwrap_err();
    assert_eq!(error.sqlstate(), Some("57P01"));
}

#[test]
fn a_silent_hangup_is_closed() {
    let mut connection = greeted(&[]);
    let error = connection.execute("SELECT 1").unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    assert!(matches!(connect(&[]).0, Err(Error::Closed { .. })));
}

#[test]
fn prepared_statements_count_rows() {
    let mut connection = greeted(&[
        prepared(&[20, 25]),
        executed(2, "SELECT 2"),
        executed(0, "INSERT 0 5"),
        executed(3, "SHOW"),
    ]);
    let statement = connection.prepare("SELECT $1, $2").unwrap();
    assert_eq!(statement.parameter_types(), [20, 25]);
    let parameters = [Parameter::Integer(1), Parameter::Text("x")];
    for expected in [2, 5, 3] {
        let count = connection.execute_prepared(&statement, &parameters);
        assert_eq!(count.unwrap(), expected);
    }
    let wrong = connection.execute_prepared(&statement, &[]);
    assert!(matches!(wrong, Err(Error::ParameterCount { .. })));
}

#[test]
fn what_cannot_be_sent_is_not_half_sent() {
    let (connection, mut peer) = connect(&[greeting(), frame(b'I', b""), ready()].concat());
    let mut connection = connection.unwrap();
    let error = connection.execute("SELECT '\0'").unwrap_err();
    assert!(matches!(error, Error::Encode { .. }), "{error:?}");
    connection.execute("").unwrap();
    drop(connection);
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    assert!(heard.ends_with(b"1MB\0\0Q\0\0\0\x05\0"), "{heard:?}");
}

#[test]
fn data_are_copied_once() {
    let copy_in = || frame(b'G', b"\0\0\x01\0\0");
    let refusal = frame(b'E', b"SERROR\0C57014\0MCOPY from stdin failed\0\0");
    let done = frame(b'C', b"COPY 1\0");
    let replies = [greeting(), copy_in(), done, copy_in(), refusal, ready()].concat();
    let (connection, mut peer) = connect(&replies);
    let mut connection = connection.unwrap();
    let sql = "COPY t FROM STDIN; COPY u FROM STDIN";
    let error = connection.copy_in(sql, b"1\n").unwrap_err();
    assert_eq!(error.sqlstate(), Some("57014"));
    drop(connection);
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    let sent = b"d\0\0\0\x061\nc\0\0\0\x04f";
    assert!(heard.windows(sent.len()).any(|pair| pair == sent), "{heard:?}");
}

#[test]
fn copying_to_the_server_is_refused() {
    let copy_in = frame(b'G', b"\0\0\x01\0\0");
    let refusal = frame(b'E', b"SERROR\0C57014\0MCOPY from stdin failed\0\0");
    let (connection, mut peer) = connect(&[greeting(), copy_in, refusal, ready()].concat());
    let mut connection = connection.unwrap();
    let error = connection.execute("COPY t FROM STDIN").unwrap_err();
    assert_eq!(error.sqlstate(), Some("57014"));
    drop(connection);
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    assert!(heard.ends_with(b"this client has no data to copy\0"));
}

#[test]
fn passwords_are_sent_as_asked() {
    let check = |request: &[u8], expected: &[u8]| {
        let script = [frame(b'R', request), greeting()].concat();
        let (connection, mut peer) = connect(&script);
        drop(connection.unwrap());
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).unwrap();
        assert!(heard.ends_with(expected), "{heard:?}");
    };
    check(b"\0\0\0\x03", b"p\0\0\0\x0bsesame\0");
    // The MD5 of (the MD5 of `sesamealice`) and `salt`, as `md5sum` computes it.
    check(b"\0\0\0\x05salt", b"p\0\0\0\x28md580f49edbaff3f744cd7f68869bd3152d\0");
}

#[test]
fn authentication_that_we_cannot_do_is_an_error() {
    let check = |request: &[u8]| connect(&frame(b'R', request)).0.unwrap_err();
    let error = check(b"\0\0\0\x07");
    assert_eq!(error.to_string(), "server asks for gss authentication, which is not supported");
    let error = check(b"\0\0\0\x0aSCRAM-SHA-512\0\0");
    assert!(matches!(error, Error::AuthenticationMethod { .. }));
    let error = check(b"\0\0\0\xff");
    assert!(matches!(error, Error::Protocol { .. }));

    let (stream, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(&frame(b'R', b"\0\0\0\x03")).unwrap();
    let mut without_password = config();
    without_password.password = None;
    let error = Connection::handshake(stream, None, &without_password).unwrap_err();
    assert!(matches!(error, Error::PasswordRequired));
}

#[test]
fn scram_does_not_end_before_the_server_has_proved_itself() {
    let request = frame(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let error = connect(&[request, greeting()].concat()).0.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
}

#[test]
fn connecting_ends_at_the_deadline() {
    let (stream, _peer) = UnixStream::pair().unwrap();
    let deadline = Instant::now() + Duration::from_millis(20);
    let connection = Connection::handshake(stream, Some(deadline), &config());
    assert!(matches!(connection, Err(Error::ConnectTimeout)));
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_conversation_can_break_off_anywhere() {
    let script = conversation();
    let whole = outcomes(&script);
    assert!(whole.iter().all(Result::is_ok), "{whole:?}");
    for length in 0..script.len() {
        let cut = outcomes(&script[..length]);
        let sound = cut.iter().take_while(|outcome| outcome.is_ok()).count();
        assert!(sound < whole.len(), "cut at {length}");
        assert_eq!(cut[..sound], whole[..sound], "cut at {length}");
    }
}

#[test]
fn a_conversation_can_arrive_byte_by_byte() {
    let (stream, mut peer) = UnixStream::pair().unwrap();
    let script = conversation();
    let expected = outcomes(&script);
    let server = thread::spawn(move || {
        for byte in script {
            peer.write_all(&[byte]).unwrap();
            thread::yield_now();
        }
        // What the client says is read only now, which the socket's buffer allows.
        peer.read_to_end(&mut Vec::new()).unwrap();
    });
    assert_eq!(converse(Connection::handshake(stream, None, &config())), expected);
    server.join().unwrap();
}

/// Talks to a server that says this, then the same thing for ever.
fn endless(
    begin: &[u8],
    again: &[u8],
    talk: impl FnOnce(Result<Connection, Error>) -> Error,
) -> String {
    let (stream, mut peer) = UnixStream::pair().unwrap();
    let begin = begin.to_vec();
    let again = again.repeat(1 + 100_000 / again.len());
    let server = thread::spawn(move || {
        let mut output = peer.write_all(&begin);
        while output.is_ok() {
            output = peer.write_all(&again);
        }
    });
    let error = talk(Connection::handshake(stream, None, &config()));
    server.join().unwrap();
    error.to_string()
}

#[test]
fn a_server_that_never_ends_is_left() {
    let connect = |connection: Result<Connection, Error>| connection.unwrap_err();
    let settings = frame(b'S', b"TimeZone\0UTC\0");
    let entry = endless(&frame(b'R', &[0; 4]), &settings, connect);
    assert_eq!(entry, "server sent more than 100,000 notices in one answer");
    let large = frame(b'N', &vec![b'x'; 1 << 20]);
    let item = endless(&[], &large, connect);
    assert_eq!(item, "server sent more than 64 MB of notices in one answer");
    let names: Vec<u8> =
        (0..1001).flat_map(|at| frame(b'S', format!("name{at}\0x\0").as_bytes())).collect();
    let printed_text = endless(&frame(b'R', &[0; 4]), &names, connect);
    assert_eq!(printed_text, "server sent more than 1,000 settings");

    let begin = [greeting(), row_description(&["a"])].concat();
    let row = data_row(&[Some(&"x".repeat(60_000))]);
    let result = endless(&begin, &row, |connection| connection.unwrap().query("x").unwrap_err());
    assert_eq!(result, "server sent more than 256 MB of rows in one answer");
    let empty = [row_description(&[]), data_row(&[])].concat();
    let printed =
        endless(&greeting(), &empty, |connection| connection.unwrap().query("x").unwrap_err());
    assert_eq!(printed, "server sent more than 256 MB of rows in one answer");
    let begin = [greeting(), prepared(&[]), frame(b'2', b"")].concat();
    let message = endless(&begin, &data_row(&[]), |connection| {
        let mut connection = connection.unwrap();
        let statement = connection.prepare("x").unwrap();
        connection.query_prepared(&statement, &[]).unwrap_err()
    });
    assert_eq!(message, "server sent more than 256 MB of rows in one answer");
    let begin = [greeting(), frame(b'C', b"BEGIN\0")].concat();
    let aside = frame(b'A', b"\0\0\0\x01channel\0payload\0");
    let output =
        endless(&begin, &aside, |connection| connection.unwrap().execute("x").unwrap_err());
    assert_eq!(output, "server sent more than 100,000 notices in one answer");
}

#[test]
fn only_rows_may_be_long() {
    let check = |tag: u8, length: u32, limit: usize| {
        let script = [&[tag], &length.to_be_bytes()[..]].concat();
        let error = connect(&script).0.unwrap_err().to_string();
        let expected =
            format!("server broke the protocol: message of {length} bytes, more than {limit}");
        assert_eq!(error, expected);
    };
    check(b'S', 1 << 20, 64 * 1024);
    check(b'R', 1 << 20, 64 * 1024);
    check(b'E', 1 << 28, 16 << 20);
    check(b'D', 1 << 30, 256 << 20);
}

#[test]
fn a_long_error_is_shortened() {
    let text = "x".repeat(100_000);
    let fields = format!("SERROR\0C22012\0M{text}\0D{text}\0\0");
    let mut connection = greeted(&[frame(b'E', fields.as_bytes()), ready()]);
    let error = connection.execute("SELECT").unwrap_err().to_string();
    assert!(error.len() < 40_000 && error.contains("x…"), "{} bytes", error.len());
}

proptest! {
    #[test]
    fn garbage_is_survived(garbage in prop::collection::vec(any::<u8>(), 0..2000)) {
        outcomes(&garbage);
        outcomes(&[greeting(), garbage].concat());
    }

    #[test]
    fn damage_is_survived(
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut script = conversation();
        for (place, byte) in damages {
            let place = place.index(script.len());
            script[place] = byte;
        }
        outcomes(&script);
    }

    #[test]
    fn messages_in_any_order_are_survived(
        authentication in prop::collection::vec(plausible_frame("RRRREN"), 0..4),
        messages in prop::collection::vec(plausible_frame("123ACDEGHIKNRSTZZZWcdnst?"), 0..40),
        greeted in any::<bool>(),
    ) {
        let start = if greeted { greeting() } else { authentication.concat() };
        outcomes(&[start, messages.concat()].concat());
    }
}

fn plausible_frame(tags: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        Just(Vec::new()),
        Just(b"I".to_vec()),
        Just(b"SELECT 7\0".to_vec()),
        Just(b"SERROR\0C22012\0Mdivision by zero\0\0".to_vec()),
        Just(b"\0\0\0\x0aSCRAM-SHA-256\0\0".to_vec()),
        Just(b"\0\0\0\x0br=,s=,i=0".to_vec()),
        prop::sample::select(vec![0_u8, 3, 5, 9, 11, 12]).prop_map(|kind| vec![0, 0, 0, kind]),
        (0_u8..3, prop::collection::vec(0_u8..5, 0..40)).prop_map(|(count, bytes)| [
            &[0, count],
            &bytes[..]
        ]
        .concat()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    (prop::sample::select(tags.as_bytes()), body).prop_map(|(tag, body)| frame(tag, &body))
}

/// Returns the outcome of each question in a sequence: a count of rows, or the error's text.
fn outcomes(script: &[u8]) -> Vec<Result<usize, String>> {
    converse(connect(script).0)
}

fn converse(connection: Result<Connection, Error>) -> Vec<Result<usize, String>> {
    let mut connection = match connection {
        Ok(connection) => connection,
        Err(error) => return vec![Err(error.to_string())],
    };
    let shown = |error: Error| error.to_string();
    let mut outcomes = vec![Ok(0)];
    let rows = connection.query("SELECT");
    outcomes.push(rows.map(|rows: Vec<Row>| rows.len()).map_err(shown));
    outcomes.push(connection.execute("SELECT").map(|()| 0).map_err(shown));
    match connection.prepare("SELECT $1") {
        Ok(statement) => {
            let parameters = vec![Parameter::Integer(1); statement.parameter_types().len()];
            let count = connection.execute_prepared(&statement, &parameters);
            outcomes.push(count.map(|count| usize::from(count > 0)).map_err(shown));
        }
        Err(error) => outcomes.push(Err(shown(error))),
    }
    connection.close();
    outcomes
}

/// The answers to the questions of [`converse`].
fn conversation() -> Vec<u8> {
    [
        greeting(),
        row_description(&["a", "b"]),
        data_row(&[Some("1"), None]),
        frame(b'C', b"SELECT 1\0"),
        ready(),
        frame(b'N', b"SNOTICE\0C00000\0Mhello\0\0"),
        frame(b'C', b"CREATE TABLE\0"),
        ready(),
        prepared(&[23]),
        executed(2, "SELECT 2"),
    ]
    .concat()
}

fn greeted(answers: &[Vec<u8>]) -> Connection {
    connect(&[greeting(), answers.concat()].concat()).0.unwrap()
}

/// Connects to a server that sends a script and nothing more, whatever it hears.
fn connect(script: &[u8]) -> (Result<Connection, Error>, UnixStream) {
    let (stream, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(script).unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    (Connection::handshake(stream, None, &config()), peer)
}

fn config() -> Config {
    let mut config = Config::new(UnixEndpoint::new("/run/pg", 5432), "alice", "shop");
    config.password = Some(Secret::new("sesame"));
    config.options = vec![("work_mem".to_owned(), "1MB".to_owned())];
    config
}

fn greeting() -> Vec<u8> {
    [
        frame(b'R', &[0; 4]),
        frame(b'S', b"server_version\x0015.7\0"),
        frame(b'K', &[0, 0, 0x12, 0x67, 1, 2, 3, 4]),
        ready(),
    ]
    .concat()
}

fn prepared(types: &[u32]) -> Vec<u8> {
    let oids: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
    [
        frame(b'1', b""),
        frame(b't', &[&count(types.len())[..], &oids].concat()),
        frame(b'n', b""),
        ready(),
    ]
    .concat()
}

fn executed(rows: usize, command_tag: &str) -> Vec<u8> {
    [
        frame(b'2', b""),
        data_row(&[Some("x")]).repeat(rows),
        frame(b'C', format!("{command_tag}\0").as_bytes()),
        ready(),
    ]
    .concat()
}

fn row_description(names: &[&str]) -> Vec<u8> {
    let mut body = count(names.len()).to_vec();
    for name in names {
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&[0; 19]);
    }
    frame(b'T', &body)
}

fn data_row(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = count(values.len()).to_vec();
    for value in values {
        let length = value.map_or(-1, |text| i32::try_from(text.len()).unwrap());
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default().as_bytes());
    }
    frame(b'D', &body)
}

fn ready() -> Vec<u8> {
    frame(b'Z', b"I")
}

fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn count(count: usize) -> [u8; 2] {
    u16::try_from(count).unwrap().to_be_bytes()
}
