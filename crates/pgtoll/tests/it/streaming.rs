//! WAL from real servers, read so that nobody depends on the reader.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_wire::{
    Connection, Dsn, Environment, Error, ReplicationConnection, ReplicationStream, Row, StreamEnd,
    WalMessage,
};

use crate::support::{PATIENCE, Scratch, running, server, servers};

const TICK: Duration = Duration::from_millis(50);

#[test]
fn what_is_streamed_is_what_is_in_the_files() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, _) = running(&mut guard, &server, &name);
        let mut connection = replication(&cluster);
        let identity = connection.identify_system().unwrap();
        assert_eq!(identity.timeline, 1);
        let segment = connection.wal_segment_size().unwrap();
        assert_eq!(segment, 16 << 20);
        let version = connection.server_version().unwrap();
        assert!(version.starts_with(&server.version.to_string()), "{version}");
        assert_eq!(connection.show("wal_level").unwrap(), "replica");
        assert!(matches!(connection.show("a; b"), Err(Error::Encode { .. })));
        assert!(matches!(connection.show("nothing_such"), Err(Error::Server(_))));

        let from = identity.position - identity.position % segment;
        let mut stream = connection.start(from, 1).unwrap();
        let mut session = cluster.connect("postgres").unwrap();
        session.execute("CREATE TABLE t AS SELECT generate_series(1, 300000) i").unwrap();
        let until = flushed(&mut session);
        assert!(until > from + segment, "the work fills more than a segment");
        let (bytes, _) = read_to(&mut stream, until);
        assert_eq!(stream.position(), from + bytes.len() as u64);
        check_files(&cluster, from, &bytes[..usize::try_from(until - from).unwrap()], segment);
        let row =
            session.query_one("SELECT application_name, usename FROM pg_stat_replication").unwrap();
        assert_eq!(row.text("application_name").unwrap(), "pgtoll");
        stream.close();
        no_trace_is_left(&mut session);
        let log = fs::read_to_string(cluster.log()).unwrap();
        assert!(!log.contains("could not"), "{log}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
    }
}

/// Byte by byte with the segments in `pg_wal`.
fn check_files(cluster: &Cluster, from: u64, bytes: &[u8], segment: u64) {
    for (index, piece) in bytes.chunks(usize::try_from(segment).unwrap()).enumerate() {
        let number = from / segment + index as u64;
        let name = format!("{:08X}{:08X}{:08X}", 1, number >> 8, number & 0xFF);
        let file = fs::read(cluster.data().join("pg_wal").join(name)).unwrap();
        assert!(file[..piece.len()] == *piece, "segment {number}");
    }
}

#[test]
fn no_commit_is_acknowledged() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, _) = running(&mut guard, &server, &name);
        let mut session = cluster.connect("postgres").unwrap();
        session.execute("CREATE TABLE t (i int)").unwrap();
        for setting in [
            "synchronous_standby_names = 'ANY 1 (pgtoll, *)'",
            // The server asks its readers for an answer once in half of this time, and ends those
            // that have none for all of it.
            "wal_sender_timeout = '6s'",
            // A worker's commit would wait too.
            "autovacuum = off",
        ] {
            session.execute(&format!("ALTER SYSTEM SET {setting}")).unwrap();
        }
        session.execute("SELECT pg_reload_conf()").unwrap();
        let mut connection = replication(&cluster);
        let identity = connection.identify_system().unwrap();
        let mut stream = connection.start(identity.position, 1).unwrap();
        for level in ["remote_write", "on", "remote_apply"] {
            let commit = committing(&cluster, level);
            let until = waiting_commit(&mut session, &mut stream);
            read_to(&mut stream, until);
            answer(&mut stream);
            let row = answered(&mut session, &mut stream, until);
            assert_eq!(row.text("state").unwrap(), "streaming");
            assert_eq!(row.text("sync_state").unwrap(), "async", "{level}");
            assert_eq!(row.text("sync_priority").unwrap(), "0");
            assert_eq!(row.value("flush_lsn").unwrap(), None);
            assert_eq!(row.value("replay_lsn").unwrap(), None);
            assert!(is_waiting(&mut session), "{level}: the commit still waits");
            assert!(!commit.is_finished());
            // Who does report a flush position lets it through, so the check could have failed.
            if level == "on" {
                let receiver = receiver(&mut guard, &cluster, &server, &scratch);
                commit.join().unwrap();
                guard.signal(&receiver, pgtoll_cluster::ProgramSignal::Terminate).unwrap();
                guard.reap(&receiver, PATIENCE).unwrap();
            } else {
                cancel(&mut session);
                commit.join().unwrap();
            }
        }
        stream.close();
        no_trace_is_left(&mut session);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
    }
}

/// A session of its own that commits, and returns when it may.
fn committing(cluster: &Cluster, level: &str) -> JoinHandle<()> {
    let mut session = cluster.connect("postgres").unwrap();
    session.execute(&format!("SET synchronous_commit = {level}")).unwrap();
    thread::spawn(move || session.execute("INSERT INTO t VALUES (1)").unwrap())
}

/// Reads until a commit waits for a standby. Returns the position up to which there is WAL then.
fn waiting_commit(session: &mut Connection, stream: &mut ReplicationStream) -> u64 {
    let begun = Instant::now();
    while !is_waiting(session) {
        assert!(begun.elapsed() < PATIENCE);
        stream.receive(Some(TICK)).unwrap();
    }
    flushed(session)
}

fn is_waiting(session: &mut Connection) -> bool {
    let waiting = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND state = 'active'";
    session.query(waiting).unwrap().len() == 1
}

fn cancel(session: &mut Connection) {
    let waiting =
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    session.execute(waiting).unwrap();
}

/// Reads until the server has asked for an answer once more.
fn answer(stream: &mut ReplicationStream) {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE);
        if let Some(WalMessage::Keepalive(keepalive)) = stream.receive(Some(TICK)).unwrap()
            && keepalive.reply_requested
        {
            return;
        }
    }
}

/// The reader's row of `pg_stat_replication`, as soon as it says that this position has been read.
fn answered(session: &mut Connection, stream: &mut ReplicationStream, position: u64) -> Row {
    let sql = format!(
        "SELECT state, sync_state, sync_priority, flush_lsn, replay_lsn
           FROM pg_stat_replication WHERE write_lsn - '0/0' >= {position}"
    );
    let begun = Instant::now();
    loop {
        if let Some(row) = session.query(&sql).unwrap().pop() {
            return row;
        }
        assert!(begun.elapsed() < PATIENCE, "the answer has not arrived");
        stream.receive(Some(TICK)).unwrap();
    }
}

/// `pg_receivewal` as a synchronous standby.
fn receiver(
    guard: &mut Guard,
    cluster: &Cluster,
    server: &Installation,
    scratch: &Scratch,
) -> String {
    let directory = scratch.work().join(format!("received-{}", cluster.name()));
    let directory = directory.to_str().unwrap();
    guard.run(Path::new("mkdir"), &[directory]).unwrap();
    let socket = cluster.data().parent().unwrap().to_owned();
    let arguments = ["-h", socket.to_str().unwrap(), "-p", "5432", "-U", "postgres"];
    let arguments = [&arguments[..], &["-D", directory, "--synchronous", "--no-loop"]].concat();
    guard
        .spawn("receiver", &server.bin.join("pg_receivewal"), &arguments, &BTreeMap::new())
        .unwrap();
    "receiver".to_owned()
}

/// A server that shuts down waits for its readers. It must not wait for ever for this one.
#[test]
fn a_shutdown_is_not_held_up() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, _) = running(&mut guard, &server, &name);
        let mut connection = replication(&cluster);
        let now = connection.identify_system().unwrap().position;
        let mut stream = connection.start(now - now % (16 << 20), 1).unwrap();
        // A WAL sender that has answered, but not yet sent, is ended by a shutdown like any
        // session (`HandleWalSndInitStopping`): the first WAL shows that it streams.
        read_to(&mut stream, now);
        let reader = thread::spawn(move || {
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE {
                if let Some(WalMessage::End(end)) = stream.receive(Some(TICK)).unwrap() {
                    return (Some(end), stream.position());
                }
            }
            (None, stream.position())
        });
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let (end, position) = reader.join().unwrap();
        assert_eq!(end, Some(StreamEnd::Shutdown));
        assert!(position > now, "the last checkpoint has come");
    }
}

#[test]
fn removed_wal_and_the_end_of_a_timeline() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let cluster = Cluster::init(&mut guard, &server, &name, false).unwrap();
        let settings = [("max_wal_size", "32MB"), ("min_wal_size", "32MB")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        cluster.configure(&mut guard, &settings.into()).unwrap();
        cluster.start(&mut guard).unwrap();
        let mut session = cluster.connect("postgres").unwrap();
        session.execute("CREATE TABLE t (i int)").unwrap();
        for _ in 0..4 {
            session.execute("INSERT INTO t VALUES (1)").unwrap();
            session.execute("SELECT pg_switch_wal()").unwrap();
            session.execute("CHECKPOINT").unwrap();
        }
        let first = 1 << 24;
        let error = first_error(replication(&cluster).start(first, 1));
        assert!(
            matches!(error, Error::WalRemoved { timeline: 1, position, .. } if position == first),
            "{error:?}"
        );
        let ahead = flushed(&mut session) + (1 << 30);
        let error = first_error(replication(&cluster).start(ahead, 1));
        assert!(matches!(error, Error::Server(_)), "{error:?}");

        // A standby of nobody, which is promoted while somebody reads.
        drop(session);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let signal = cluster.data().join("standby.signal");
        guard.run(Path::new("touch"), &[signal.to_str().unwrap()]).unwrap();
        cluster.start(&mut guard).unwrap();
        let mut connection = replication(&cluster);
        let identity = connection.identify_system().unwrap();
        let stream = connection.start(identity.position, 1).unwrap();
        check_promotion(&cluster, stream);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
    }
}

fn check_promotion(cluster: &Cluster, mut stream: ReplicationStream) {
    let mut session = cluster.connect("postgres").unwrap();
    session.execute("SELECT pg_promote()").unwrap();
    let begun = Instant::now();
    let next = loop {
        assert!(begun.elapsed() < PATIENCE);
        match stream.receive(Some(TICK)).unwrap() {
            Some(WalMessage::End(StreamEnd::Timeline { next })) => break next.unwrap(),
            Some(WalMessage::End(end)) => panic!("{end:?}"),
            _ => {}
        }
    };
    assert_eq!(next, (2, stream.position()));
    let mut connection = stream.into_connection().unwrap();
    let history = connection.timeline_history(2).unwrap();
    assert_eq!(history.file_name, "00000002.history");
    let content = String::from_utf8(history.content).unwrap();
    assert!(content.starts_with("1\t"), "{content}");
    assert!(connection.timeline_history(1).is_err(), "the first has none");
    assert_eq!(connection.identify_system().unwrap().timeline, 2);
    // Begun where a timeline ends, a stream is at its end at once.
    let stream = connection.start(next.1, 1).unwrap();
    let mut connection = stream.into_connection().unwrap();
    connection.identify_system().unwrap();
    let mut stream = connection.start(next.1, 2).unwrap();
    session.execute("INSERT INTO t VALUES (1)").unwrap();
    let until = flushed(&mut session);
    read_to(&mut stream, until);
    stream.close();
}

fn first_error(stream: Result<ReplicationStream, Error>) -> Error {
    match stream {
        Ok(mut stream) => loop {
            match stream.receive(None) {
                Ok(_) => {}
                Err(error) => return error,
            }
        },
        Err(error) => error,
    }
}

#[test]
fn a_killed_server_is_a_closed_stream() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = running(&mut guard, &server(), "one");
    let mut connection = replication(&cluster);
    let from = connection.identify_system().unwrap().position;
    let stream = connection.start(from, 1);
    cluster.kill(&mut guard).unwrap();
    assert!(matches!(first_error(stream), Error::Closed { .. }));
}

/// Reads up to a position. Returns the WAL, and how many keepalives came with it.
fn read_to(stream: &mut ReplicationStream, until: u64) -> (Vec<u8>, u32) {
    let mut bytes = Vec::new();
    let mut keepalives = 0;
    let begun = Instant::now();
    while stream.position() < until {
        assert!(begun.elapsed() < PATIENCE);
        match stream.receive(Some(TICK)).unwrap() {
            Some(WalMessage::Data(data)) => bytes.extend_from_slice(data.bytes),
            Some(WalMessage::Keepalive(_)) => keepalives += 1,
            Some(WalMessage::End(end)) => panic!("{end:?}"),
            None => {}
        }
    }
    (bytes, keepalives)
}

fn flushed(session: &mut Connection) -> u64 {
    let row = session.query_one("SELECT pg_current_wal_flush_lsn() - '0/0' AS at").unwrap();
    row.parse("at").unwrap()
}

/// Neither slot nor session.
fn no_trace_is_left(session: &mut Connection) {
    let slots = session.query("SELECT FROM pg_replication_slots").unwrap();
    assert_eq!(slots.len(), 0);
    let begun = Instant::now();
    while !session.query("SELECT FROM pg_stat_replication").unwrap().is_empty() {
        assert!(begun.elapsed() < PATIENCE);
    }
}

fn replication(cluster: &Cluster) -> ReplicationConnection {
    let directory = cluster.data().parent().unwrap().display().to_string();
    let text = format!("host='{directory}' user=postgres connect_timeout=60");
    Dsn::parse_in(&text, &Environment::default()).unwrap().connect_replication().unwrap()
}
