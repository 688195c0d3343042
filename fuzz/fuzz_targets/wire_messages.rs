//! Any bytes as a server's messages, in pieces: a session of queries, and one of replication.

#![no_main]

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use libfuzzer_sys::fuzz_target;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use pgtoll_wire::{
    Config, Connection, Error, Parameter, ReplicationConnection, Secret, UnixEndpoint, WalMessage,
};

fuzz_target!(|input: (u8, Vec<&[u8]>)| {
    let (session, pieces) = input;
    let mut config = Config::new(UnixEndpoint::new("/none", 5432), "alice", "shop");
    config.password = Some(Secret::new("sesame"));
    let is_admitted = session & 1 == 0;
    let server = serve(is_admitted, &pieces);
    // What the client says goes nowhere, and does not have to.
    if session & 2 == 0 {
        let _ = Connection::over(server.0, &config).map(query);
    } else {
        let _ = ReplicationConnection::over(server.0, &config).and_then(stream);
    }
});

/// Each packet is read by itself, as if it had come alone.
fn serve(is_admitted: bool, pieces: &[&[u8]]) -> (UnixStream, UnixStream) {
    let kind = (AddressFamily::Unix, SockType::SeqPacket);
    let (client, server) =
        socketpair(kind.0, kind.1, None, SockFlag::SOCK_CLOEXEC).expect("there are descriptors");
    let client = UnixStream::from(client);
    let mut server = UnixStream::from(server);
    server.set_nonblocking(true).expect("it is a socket");
    let greeting: &[u8] = if is_admitted { GREETING } else { &[] };
    for piece in [greeting].iter().chain(pieces).filter(|piece| !piece.is_empty()) {
        if server.write_all(piece).is_err() {
            break;
        }
    }
    server.shutdown(Shutdown::Write).expect("it is connected");
    (client, server)
}

const GREETING: &[u8] = b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x09\x01\x02\x03\x04Z\0\0\0\x05I";

fn query(mut connection: Connection) {
    let rows = connection.query("SELECT").unwrap_or_default();
    for row in &rows {
        assert_eq!(row.values().len(), row.columns().len());
    }
    let _ = connection.execute("SELECT");
    if let Ok(statement) = connection.prepare("SELECT $1") {
        let parameters = vec![Parameter::Integer(1); statement.parameter_types().len()];
        let _ = connection.execute_prepared(&statement, &parameters);
        let _ = connection.query_prepared(&statement, &parameters);
    }
    connection.close();
}

fn stream(mut connection: ReplicationConnection) -> Result<(), Error> {
    let _ = connection.wal_segment_size();
    let _ = connection.timeline_history(2);
    let _ = connection.identify_system();
    let mut wal = connection.start(0, 1)?;
    let mut position = wal.position();
    loop {
        match wal.receive(None)? {
            Some(WalMessage::Data(data)) => {
                assert_eq!(data.start, position);
                position += data.bytes.len() as u64;
            }
            Some(WalMessage::End(_)) => return Ok(()),
            Some(WalMessage::Keepalive(_)) | None => {}
        }
    }
}
