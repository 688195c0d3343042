//! A whole capture between clients and a server of a few lines.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use pgtoll_wire::{Config, Connection, ListenAddress, Secret, UnixEndpoint};

use super::*;
use crate::workload::{CapturedWorkload, StatementRequest};

/// Answers each query, and asks for a password. Serves until nobody connects any more.
fn serve_queries(socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            // The capture's first look says nothing.
            thread::spawn(move || drop(answer(client.unwrap())));
        }
    });
}

fn answer(mut client: UnixStream) -> io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut packet = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut packet)?;
    client.write_all(b"R\0\0\0\x08\0\0\0\x03")?;
    assert_eq!(read_message(&mut client)?, (b'p', b"sesame\0".to_vec()));
    client.write_all(b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x09\x01\x02\x03\x04Z\0\0\0\x05I")?;
    while let (b'Q', _) = read_message(&mut client)? {
        client.write_all(b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I")?;
    }
    Ok(())
}

fn read_message(from: &mut UnixStream) -> io::Result<(u8, Vec<u8>)> {
    let mut header = [0; 5];
    from.read_exact(&mut header)?;
    let [tag, length @ ..] = header;
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    from.read_exact(&mut body)?;
    Ok((tag, body))
}

/// A file that has room for this many bytes.
#[derive(Clone, Default)]
struct SmallFile {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: Option<usize>,
}

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.bytes.lock().unwrap();
        if self.room.is_some_and(|room| file.len() + bytes.len() > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Captures what `work` does; then a signal comes.
fn captured(file: &SmallFile, work: impl FnOnce(&Config) + Send) -> WireCaptured {
    let directory = tempfile::tempdir().unwrap();
    let server = UnixEndpoint::new(directory.path(), 5432);
    serve_queries(&server.socket_path());
    let own = UnixEndpoint::new(directory.path(), 6432);
    let listener = ClientListener::bind(&ListenAddress::Unix(own.clone())).unwrap();
    let dsn = format!("host={} user=alice dbname=shop", directory.path().display());
    let dsn = Dsn::parse_in(&dsn, &pgtoll_wire::Environment::default()).unwrap();
    let provenance =
        Provenance { version: "1".to_owned(), command: Vec::new(), made: String::new() };
    let capture =
        WireCapture { listener: &listener, dsn: &dsn, provenance: &provenance, copy_data_max: 0 };
    let interrupt = Interrupt::new();
    let mut config = Config::new(own, "alice", "shop");
    config.password = Some(Secret::new("sesame"));
    scope(|scope| {
        let capturing = scope.spawn(|| capture.run(file.clone(), &interrupt, &mut |_| {}).unwrap());
        let worked = catch_unwind(AssertUnwindSafe(|| work(&config)));
        interrupt.trigger();
        let captured = capturing.join().unwrap();
        worked.unwrap();
        captured
    })
}

#[test]
fn a_capture_is_a_plan_without_passwords() {
    let file = SmallFile::default();
    let captured = captured(&file, |config| {
        let mut open = Connection::connect(config).unwrap();
        open.execute("select 'left open'").unwrap();
        let mut connection = Connection::connect(config).unwrap();
        for number in 0..3 {
            connection.execute(&format!("select {number}")).unwrap();
        }
        connection.close();
        // The connection stays open until the capture is over.
        std::mem::forget(open);
    });
    assert_eq!(captured.lost, None);
    let bytes = file.bytes.lock().unwrap().clone();
    let plan = CapturedWorkload::read(&bytes[..]).unwrap();
    assert_eq!(plan.header, captured.header);
    assert_eq!((plan.sessions.len(), plan.header.counts.statements), (2, 4));
    let pick = |session: u32| {
        let steps = plan.steps.iter().filter(|step| step.session == session);
        steps.map(|step| step.request.clone()).collect::<Vec<_>>()
    };
    let simple = |sql: &str| StatementRequest::Simple(sql.to_owned());
    assert_eq!(pick(0), [simple("select 'left open'")]);
    assert_eq!(pick(1), [simple("select 0"), simple("select 1"), simple("select 2")]);
    let session = &plan.sessions[1];
    assert_eq!((&*session.user, &*session.database), ("alice", "shop"));
    assert!(session.end_us.is_some() && !session.application_name.is_empty());
    assert!(!format!("{plan:?}").contains("sesame"));
    for length in (0..bytes.len()).step_by(7) {
        assert!(CapturedWorkload::read(&bytes[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_full_disk_ends_the_capture_and_no_connection() {
    for room in [0, 100] {
        let file = SmallFile { room: Some(room), ..SmallFile::default() };
        let captured = captured(&file, |config| {
            let mut connection = Connection::connect(config).unwrap();
            // More than is packed before it is written.
            for number in 0..3000_u64 {
                let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                connection.execute(&format!("select '{noise}{}'", noise.rotate_left(7))).unwrap();
            }
            connection.close();
        });
        let reason = captured.lost.unwrap();
        assert!(reason.contains("no storage space"), "{reason}");
    }
}
