//! Streams of a server that is a script.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::*;
use crate::{Config, UnixEndpoint};

#[test]
fn wal_and_keepalives_come_in_order() {
    let script = [begin(), wal(16, b"abc"), keepalive(19, 1), wal(19, b"de"), keepalive(21, 0)];
    let (stream, mut peer) = stream(&script.concat());
    let mut stream = stream.unwrap();
    assert_eq!(
        stream.receive(None).unwrap().unwrap(),
        WalMessage::Data(WalData { start: 16, end: 100, time: -5, bytes: b"abc" })
    );
    assert_eq!(stream.position(), 19);
    let requested = Keepalive { end: 19, time: 7, reply_requested: true };
    assert_eq!(stream.receive(None).unwrap().unwrap(), WalMessage::Keepalive(requested));
    assert!(
        matches!(stream.receive(None), Ok(Some(WalMessage::Data(data))) if data.bytes == b"de")
    );
    assert!(matches!(stream.receive(None), Ok(Some(WalMessage::Keepalive(_)))));
    drop(stream);
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    let command = b"Q\0\0\0\x31START_REPLICATION PHYSICAL 0/10 TIMELINE 1\0";
    let at = heard.windows(command.len() - 5).position(|part| part == &command[5..]).unwrap();
    let answers = &heard[at + command.len() - 5..];
    // One answer only, to the one question: 19 received, nothing flushed, nothing applied.
    assert_eq!(answers.len(), 5 + 34);
    assert_eq!(answers[..6], *b"d\0\0\0\x26r");
    assert_eq!(answers[6..14], 19_u64.to_be_bytes());
    assert_eq!(answers[14..30], [0; 16]);
    assert_eq!(answers[38], 0);
}

#[test]
fn waiting_ends_with_the_patience() {
    let (stream, mut peer) = open();
    peer.write_all(&[greeting(), begin()].concat()).unwrap();
    let connection = Connection::handshake(stream, None, &config()).unwrap();
    let mut stream = ReplicationConnection::new(connection).start(16, 1).unwrap();
    assert_eq!(stream.receive(Some(Duration::ZERO)).unwrap(), None);
    let begun = Instant::now();
    assert_eq!(stream.receive(Some(Duration::from_millis(20))).unwrap(), None);
    assert!(begun.elapsed() >= Duration::from_millis(19));
    peer.write_all(&keepalive(16, 0)).unwrap();
    assert!(matches!(stream.receive(None), Ok(Some(WalMessage::Keepalive(_)))));
}

#[test]
fn a_timeline_ends_with_the_next_one() {
    let end = [
        begin(),
        wal(16, b"abc"),
        frame(b'c', b""),
        wal(19, b"late"),
        row_description(&["next_tli", "next_tli_startpos"]),
        data_row(&["2", "A/13"]),
        frame(b'C', b"SELECT\0"),
        frame(b'C', b"START_STREAMING\0"),
        frame(b'Z', b"I"),
    ];
    let (stream, _peer) = stream(&end.concat());
    let mut stream = stream.unwrap();
    stream.receive(None).unwrap();
    let next = StreamEnd::Timeline { next: Some((2, 0xA_0000_0013)) };
    assert_eq!(stream.receive(None).unwrap(), Some(WalMessage::End(next)));
    assert_eq!(stream.receive(None).unwrap(), Some(WalMessage::End(next)));
    assert!(stream.into_connection().is_ok());
}

#[test]
fn a_shutdown_is_an_end() {
    let (stream, _peer) = stream(&[begin(), frame(b'C', b"COPY 0\0")].concat());
    let mut stream = stream.unwrap();
    let end = stream.receive(None).unwrap();
    assert_eq!(end, Some(WalMessage::End(StreamEnd::Shutdown)));
    assert!(matches!(stream.into_connection(), Err(Error::GivenUp)));
}

#[test]
fn removed_wal_has_an_error_of_its_own() {
    let gone =
        frame(b'E', b"SERROR\0C58P01\0Mrequested WAL segment X has already been removed\0\0");
    let check = |error: Error| {
        assert_eq!(error.to_string(), "server no longer has the WAL at 0/10 of timeline 1");
        assert_eq!(error.sqlstate(), Some("58P01"));
        assert!(error.hint().is_some());
    };
    check(stream(&gone).0.unwrap_err());
    let mut stream = stream(&[begin(), gone].concat()).0.unwrap();
    check(stream.receive(None).unwrap_err());
    assert!(matches!(stream.receive(None), Err(Error::GivenUp)));
}

#[test]
fn what_is_no_wal_is_an_error() {
    let check = |message: Vec<u8>, expected: &str| {
        let mut stream = stream(&[begin(), message].concat()).0.unwrap();
        let error = stream.receive(None).unwrap_err();
        assert_eq!(error.to_string(), format!("server broke the protocol: {expected}"));
        assert!(matches!(stream.receive(None), Err(Error::GivenUp)));
    };
    check(wal(15, b"x"), "WAL at 0/F instead of 0/10");
    check(frame(b'd', b"w123"), "WAL without its position");
    check(frame(b'd', b"k123"), "malformed keepalive");
    check(frame(b'd', b""), "neither WAL nor a keepalive");
    check(frame(b'd', b"x"), "neither WAL nor a keepalive");
    check(frame(b'T', b""), "unexpected message 'T'");
    let last = stream_at(u64::MAX, &[begin(), wal(u64::MAX, b"x")].concat());
    assert!(matches!(last.0.unwrap().receive(None), Err(Error::Protocol { .. })));
}

#[test]
fn positions_and_sizes() {
    assert_eq!(position_of("1A/2B"), Some(0x1A_0000_002B));
    for text in ["", "/", "1", "1/", "/1", "1/2/3", "100000000/0", "x/1"] {
        assert_eq!(position_of(text), None, "{text}");
    }
    assert_eq!(bytes_of("16MB"), Some(16 << 20));
    assert_eq!(bytes_of("1GB"), Some(1 << 30));
    assert_eq!(bytes_of("99999999999999999999"), None);
    assert_eq!(bytes_of("99999999999999GB"), None);
    assert_eq!(bytes_of("MB"), None);
}

proptest! {
    #[test]
    fn any_stream_is_survived(
        messages in prop::collection::vec(message(), 0..12),
        begun in any::<bool>(),
    ) {
        let begin = if begun { begin() } else { Vec::new() };
        let script = [begin, messages.concat()].concat();
        let (stream, _peer) = stream(&script);
        let Ok(mut stream) = stream else { return Ok(()) };
        // Every message is one step, and then the script is over.
        let steps = (0..=messages.len()).take_while(|_| {
            matches!(stream.receive(None), Ok(Some(WalMessage::Data(_) | WalMessage::Keepalive(_))))
        });
        prop_assert!(steps.count() <= messages.len());
        stream.close();
    }
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        Just(b"I".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
        (prop::sample::select(vec![b'w', b'k']), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(kind, rest)| [&[kind][..], &rest].concat()),
    ];
    let arbitrary = (prop::sample::select(&b"ddddccCCTDZNSEWA1"[..]), body)
        .prop_map(|(tag, body)| frame(tag, &body));
    prop_oneof![
        arbitrary,
        (10_u64..20, prop::collection::vec(any::<u8>(), 0..9))
            .prop_map(|(start, bytes)| wal(start, &bytes)),
        (any::<u64>(), 0_u8..2).prop_map(|(end, requested)| keepalive(end, requested)),
    ]
}

fn stream(script: &[u8]) -> (Result<ReplicationStream, Error>, UnixStream) {
    stream_at(16, script)
}

fn stream_at(position: u64, script: &[u8]) -> (Result<ReplicationStream, Error>, UnixStream) {
    let (stream, mut peer) = open();
    peer.write_all(&[greeting(), script.to_vec()].concat()).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let connection = Connection::handshake(stream, None, &config()).unwrap();
    (ReplicationConnection::new(connection).start(position, 1), peer)
}

fn open() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

fn config() -> Config {
    Config::new(UnixEndpoint::new("/run/pg", 5432), "alice", "shop")
}

fn greeting() -> Vec<u8> {
    [frame(b'R', &[0; 4]), frame(b'K', &[0; 8]), frame(b'Z', b"I")].concat()
}

fn begin() -> Vec<u8> {
    frame(b'W', &[0; 3])
}

fn wal(start: u64, bytes: &[u8]) -> Vec<u8> {
    let numbers = [start.to_be_bytes(), 100_u64.to_be_bytes(), (-5_i64).to_be_bytes()].concat();
    frame(b'd', &[b"w", &numbers[..], bytes].concat())
}

fn keepalive(end: u64, requested: u8) -> Vec<u8> {
    frame(b'd', &[b"k", &end.to_be_bytes()[..], &7_i64.to_be_bytes(), &[requested]].concat())
}

fn row_description(names: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(names.len()).unwrap().to_be_bytes().to_vec();
    for name in names {
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&[0; 19]);
    }
    frame(b'T', &body)
}

fn data_row(values: &[&str]) -> Vec<u8> {
    let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        body.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend_from_slice(value.as_bytes());
    }
    frame(b'D', &body)
}

fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag], &length[..], body].concat()
}
