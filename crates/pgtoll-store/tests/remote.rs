//! A store over HTTP, and what is said when it fails. The server is the tests' own: how a real one
//! behaves is not shown here.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

use std::io::Read as _;
use std::net::TcpListener;

use pgtoll_store::{Store, StoreError, StoreUrl, StoredObject};
use pgtoll_system::Interrupt;
use pgtoll_testing::{ObjectFault, ObjectServer};

fn url(text: &str) -> StoreUrl {
    text.parse().unwrap()
}

fn store_of(server: &ObjectServer) -> Store {
    Store::open_with(&url("s3://b"), &Interrupt::new(), &server.environment()).unwrap()
}

/// Bytes of which none can be mistaken for another's place.
fn content(bytes: usize) -> Vec<u8> {
    (0..=bytes / 8).flat_map(|at| (at as u64).to_le_bytes()).take(bytes).collect()
}

#[test]
fn an_object_is_read_in_ranges_and_is_what_it_was() {
    let server = ObjectServer::start();
    let store = store_of(&server);
    for bytes in [0, 1, 8 << 20, (20 << 20) + 5] {
        server.put("b/p/base.tar", &content(bytes));
        let object = store.head(&url("s3://b/p/base.tar")).unwrap();
        assert_eq!(object.bytes, bytes as u64);
        let mut read = Vec::new();
        store.reader(&object).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == content(bytes), "{bytes}");
    }
    let gets = server.requests().iter().filter(|request| request.starts_with("GET")).count();
    assert_eq!(gets, 1 + 1 + 3);
}

#[test]
fn ten_thousand_objects_are_listed_in_pages() {
    let server = ObjectServer::start();
    (0..10_000).for_each(|at| server.put(&format!("b/p/{at:05}"), b"x"));
    server.put("b/pq/elsewhere", b"x");
    let objects = store_of(&server).list(&url("s3://b/p")).unwrap();
    assert_eq!(objects.len(), 10_000);
    assert_eq!(objects[9_999].url, url("s3://b/p/09999"));
    assert!(store_of(&server).list(&url("s3://b/none")).unwrap().is_empty());
}

#[test]
fn small_objects_are_read_at_the_same_time_and_come_in_order() {
    let server = ObjectServer::start();
    (0..100).for_each(|at| server.put(&format!("b/p/{at:02}"), &content(at)));
    let store = store_of(&server);
    let objects = store.list(&url("s3://b/p")).unwrap();
    let objects: Vec<&StoredObject> = objects.iter().collect();
    let read = store.read_each(&objects, 99).unwrap();
    assert!(read.iter().enumerate().all(|(at, bytes)| *bytes == content(at)));
    // One request each.
    assert_eq!(server.requests().iter().filter(|request| !request.ends_with("/b")).count(), 100);
    let long = store.read_each(&objects, 98).unwrap_err();
    assert_eq!(long.to_string(), "s3://b/p/99: longer than 98 bytes");
    server.put("b/p/50", b"another");
    let replaced = store.read_each(&objects, 99).unwrap_err();
    assert_eq!(replaced.to_string(), "s3://b/p/50: replaced or changed while it was read");
}

#[test]
fn throttling_and_a_connection_that_ends_in_the_body_are_survived() {
    for fault in [ObjectFault::Throttle, ObjectFault::Cut] {
        let server = ObjectServer::start();
        server.put("b/base.tar", &content(9 << 20));
        let store = store_of(&server);
        let object = store.head(&url("s3://b/base.tar")).unwrap();
        server.fail(fault, 2);
        let mut read = Vec::new();
        store.reader(&object).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == content(9 << 20), "{fault:?}");
        let gets = server.requests().iter().filter(|request| request.starts_with("GET")).count();
        assert!(gets >= 4, "{fault:?}: {gets} requests");
    }
}

/// What reading an object says while the server fails like this.
fn check(fault: ObjectFault, expected: &str, hint: &str) {
    let server = ObjectServer::start();
    server.put("b/base.tar", &content(100));
    let store = store_of(&server);
    let object = store.head(&url("s3://b/base.tar")).unwrap();
    server.fail(fault, 100);
    let error = store.reader(&object).unwrap().read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.to_string(), expected);
    let error: StoreError = error.downcast().unwrap();
    assert!(error.hint().unwrap_or_default().contains(hint), "{:?}", error.hint());
}

#[test]
fn each_failure_is_one_clear_line() {
    let denied = "s3://b/base.tar: access denied (AccessDenied: as it was told)";
    check(ObjectFault::Deny, denied, "s3:GetObject");
    let expired = "s3://b/base.tar: credentials are missing, wrong or expired (ExpiredToken: as it \
                   was told)";
    check(ObjectFault::Expire, expired, "AWS_SESSION_TOKEN");
    check(ObjectFault::Miss, "s3://b/base.tar: not found", "AWS_REGION");
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_is_an_error() {
    let server = ObjectServer::start();
    // More than is fetched ahead.
    server.put("b/base.tar", &content(60 << 20));
    let store = store_of(&server);
    let object = store.head(&url("s3://b/base.tar")).unwrap();
    let mut reader = store.reader(&object).unwrap();
    reader.read_exact(&mut [0; 1000]).unwrap();
    server.put("b/base.tar", &content(60 << 20));
    let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "s3://b/base.tar: replaced or changed while it was read");
}

#[test]
fn a_server_that_never_answers_is_told_soon() {
    // Nothing listens there any more.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let variables = [
        ("AWS_ENDPOINT_URL", format!("http://{closed}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
    ];
    let store = Store::open_with(&url("s3://b"), &Interrupt::new(), &variables).unwrap();
    let error = store.head(&url("s3://b/base.tar")).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("s3://b/base.tar: error sending request"), "{text}");
    assert!(text.ends_with("Connection refused (os error 111), after 4 retries"), "{text}");
    assert!(error.hint().unwrap().starts_with("is the server reachable"), "{error}");
}

#[test]
fn of_several_writers_one_is_told_that_it_wrote() {
    let server = ObjectServer::start();
    let store = store_of(&server);
    let at = url("s3://b/units/1.json");
    assert!(store.put_new(&at, b"first").unwrap());
    assert!(!store.put_new(&at, b"second").unwrap());
    assert_eq!(server.object("b/units/1.json").unwrap(), b"first");
    store.put(&at, b"third").unwrap();
    assert_eq!(store.read(&at, 100).unwrap(), b"third");
    assert!(matches!(store.read(&at, 4), Err(StoreError::TooLong { .. })));
}

#[test]
fn a_profile_is_refused_with_what_to_do() {
    let variables = [("AWS_PROFILE", "prod".to_owned())];
    if std::env::var_os("AWS_ACCESS_KEY_ID").is_some() {
        return;
    }
    let error = Store::open_with(&url("s3://b"), &Interrupt::new(), &variables).unwrap_err();
    assert!(error.hint().unwrap().contains("export-credentials"), "{error}");
}
