use std::fs;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use proptest::prelude::*;

use super::*;
use crate::tls::Roots;

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment {
        variables: variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        home: Some("/home/alice".into()),
        user: Some("alice".to_owned()),
    }
}

fn read(text: &str, variables: &[(&str, &str)]) -> Dsn {
    Dsn::parse_in(text, &environment(variables)).unwrap()
}

fn refusal(text: &str) -> String {
    Dsn::parse_in(text, &environment(&[])).unwrap_err().to_string()
}

#[test]
fn the_text_comes_before_the_environment_and_that_before_defaults() {
    let check = |text, variables: &[(&str, &str)], expected: &str| {
        assert_eq!(read(text, variables).redacted(), expected);
    };
    let all = [
        ("PGHOST", "db"),
        ("PGPORT", "1"),
        ("PGUSER", "bob"),
        ("PGDATABASE", "shop"),
        ("PGSSLMODE", "require"),
        ("PGPASSWORD", "sesame"),
        ("PGAPPNAME", "cron"),
        ("PGCONNECT_TIMEOUT", "3"),
    ];
    check(
        "",
        &all,
        "host=db port=1 dbname=shop user=bob password=*** connect_timeout=3 \
         application_name=cron sslmode=require",
    );
    check(
        "host=other port=2 user=carol sslmode=disable dbname=d connect_timeout=0",
        &all,
        "host=other port=2 dbname=d user=carol password=*** connect_timeout=0 \
         application_name=cron sslmode=disable",
    );
    check("host=/run/pg", &[], "host=/run/pg port=5432 dbname=alice user=alice");
    check("host=h user=bob", &[], "host=h port=5432 dbname=bob user=bob");
    // A name alone is a database's, and an empty value is the default whatever the environment has.
    check("shop", &[("PGHOST", "h")], "host=h port=5432 dbname=shop user=alice");
    check("user='' host=h", &[("PGUSER", "bob")], "host=h port=5432 dbname=alice user=alice");
}

#[test]
fn settings_are_what_libpq_makes_of_them() {
    let dsn = read("host=a", &[("PGOPTIONS", "-c x=1"), ("PGCONNECT_TIMEOUT", " 7 ")]);
    assert_eq!((dsn.application_name.as_str(), dsn.options.as_str()), ("pgtoll", "-c x=1"));
    assert_eq!(dsn.connect_timeout, Some(Duration::from_secs(7)));
    assert_eq!(dsn.password_file, Some("/home/alice/.pgpass".into()));
    assert_eq!(
        (dsn.tls.mode, dsn.binding, dsn.target),
        (SslMode::Prefer, Binding::Prefer, Target::Any)
    );
    assert_eq!(dsn.tls.roots, Roots::File("/home/alice/.postgresql/root.crt".into()));
    assert!(!dsn.tls.identity.unwrap().named && dsn.keepalives.on);
    let dsn = read("connect_timeout=-1 fallback_application_name=f keepalives=0 host=h", &[]);
    assert_eq!((dsn.connect_timeout, dsn.application_name.as_str()), (None, "f"));
    assert!(!dsn.keepalives.on);
    let dsn = read("sslrootcert=system host=h", &[]);
    assert_eq!((dsn.tls.mode, dsn.tls.roots), (SslMode::VerifyFull, Roots::System));
}

#[test]
fn lists_of_hosts() {
    let hosts = |text| {
        let found = read(text, &[]).hosts;
        let shown = found.iter().map(|host| {
            format!("{}|{}|{}", host.name, host.address.as_deref().unwrap_or("-"), host.port)
        });
        shown.collect::<Vec<_>>()
    };
    assert_eq!(hosts("host=a,b port=1,2"), ["a|-|1", "b|-|2"]);
    assert_eq!(hosts("host=a,b port=1"), ["a|-|1", "b|-|1"]);
    assert_eq!(hosts("host=a,b port=,2"), ["a|-|5432", "b|-|2"]);
    assert_eq!(hosts("host=a,b hostaddr=::1,"), ["a|::1|5432", "b|-|5432"]);
    assert_eq!(hosts("hostaddr=127.0.0.1"), ["|127.0.0.1|5432"]);
    assert_eq!(hosts("postgresql://[::1]:1,b/x"), ["::1|-|1", "b|-|5432"]);
    assert_eq!(
        refusal("host=a,b port=1,2,3"),
        "the list of ports does not have 2 entries, one for each host"
    );
    assert_eq!(
        refusal("host=a,b hostaddr=::1"),
        "the list of hosts does not have 1 entries, one for each host"
    );
    for port in ["0", "65536", "x", "-1"] {
        let expected = "invalid value for port: expected a number from 1 to 65535";
        assert_eq!(refusal(&format!("port={port}")), expected);
    }
}

#[test]
fn mistakes_are_named() {
    assert_eq!(refusal("hots=a"), "unknown connection keyword \"hots\"");
    assert_eq!(refusal("postgresql://h?hots=a"), "unknown connection keyword \"hots\"");
    assert_eq!(
        refusal("require_auth=none"),
        "connection keyword \"require_auth\" is not supported"
    );
    assert_eq!(
        refusal("sslmode=maybe"),
        "invalid value for sslmode: expected disable, allow, prefer, require, verify-ca, verify-full"
    );
    assert_eq!(
        refusal("sslrootcert=system sslmode=require"),
        "sslrootcert=system needs sslmode=verify-full"
    );
    assert_eq!(
        refusal("gssencmode=require"),
        "invalid value for gssencmode: expected disable, prefer"
    );
    assert_eq!(
        refusal("connect_timeout=soon"),
        "invalid value for connect_timeout: expected a number"
    );
    assert_eq!(refusal("service=none"), "service \"none\" is not defined");
    assert_eq!(
        refusal("ssl_max_protocol_version=TLSv1.1"),
        "invalid value for ssl_max_protocol_version: expected TLSv1.2 or TLSv1.3, not below the \
         minimum"
    );
    let nobody = Dsn::parse_in("", &Environment::default()).unwrap_err();
    assert!(matches!(nobody, DsnError::NoUser));
}

#[test]
fn services_come_between_the_text_and_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users.conf");
    fs::write(&users, "[one]\nhost=h\nport=7\npassword=sesame\n[bad]\nhots=x\n").unwrap();
    fs::write(directory.path().join("pg_service.conf"), "[two]\nhost=system\n").unwrap();
    let users = users.to_str().unwrap();
    let mut variables =
        vec![("PGSERVICEFILE", users), ("PGHOST", "env"), ("PGDATABASE", "d"), ("PGPORT", "1")];
    variables.push(("PGSYSCONFDIR", directory.path().to_str().unwrap()));
    let dsn = read("service=one port=8", &variables);
    let expected =
        format!("host=h port=8 dbname=d user=alice password=*** service=one servicefile={users}");
    assert_eq!(dsn.redacted(), expected);
    assert_eq!(dsn.password, Some(Secret::new("sesame")));
    let dsn = read("service=two", &variables);
    assert_eq!((dsn.hosts[0].name.as_str(), dsn.hosts[0].port), ("system", 1));
    variables.push(("PGSERVICE", "one"));
    assert_eq!(read("", &variables).hosts[0].port, 7);
    let error = Dsn::parse_in("service=bad", &environment(&variables)).unwrap_err();
    assert_eq!(error.to_string(), "unknown connection keyword \"hots\"");
    let error = Dsn::parse_in("service=x servicefile=/none", &environment(&[])).unwrap_err();
    assert_eq!(error.to_string(), "could not read /none");
}

#[test]
fn passwords_come_from_a_file_of_the_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pgpass");
    fs::write(
        &file,
        "localhost:*:*:*:socket\n/run/pg:*:*:*:path\nh:5432:replication:*:stream\nh:5432:d:alice:table\n",
    )
    .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let variables = [("PGPASSFILE", file.to_str().unwrap())];
    let look = |text, session| {
        let dsn = read(text, &variables);
        dsn.secret(&dsn.hosts[0], session)
    };
    let found = |password| Some(Ok(Secret::new(password)));
    assert_eq!(look("host=h dbname=d", Session::Sql), found("table"));
    assert_eq!(look("host=h dbname=d", Session::Replication), found("stream"));
    assert_eq!(look("host=/run/pg", Session::Sql), found("path"));
    assert_eq!(look("host=/tmp", Session::Sql), found("socket"));
    assert_eq!(look("host=h dbname=other", Session::Sql), None);
    assert_eq!(look("host=h dbname=d password=told", Session::Sql), found("told"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(look("host=h dbname=d", Session::Sql), Some(Err(file.clone())));
}

/// Connects to servers that answer the request for TLS by these bytes, one each, and hang up.
fn answered(words: &str, answers: &[&'static [u8]]) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = answers.to_vec();
    let server = thread::spawn(move || {
        for answer in answers {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = [0; 8];
            client.read_exact(&mut request).unwrap();
            client.write_all(answer).unwrap();
            let _ = client.shutdown(std::net::Shutdown::Write);
            let _ = client.read_to_end(&mut Vec::new());
        }
    });
    let dsn = read(&format!("host=127.0.0.1 port={port} {words}"), &[]);
    let error = dsn.connect().unwrap_err();
    server.join().unwrap();
    error
}

#[test]
fn servers_that_do_not_speak_tls() {
    assert!(matches!(answered("sslmode=require", &[b"N"]), Error::NoTls));
    assert!(matches!(answered("sslmode=require", &[b"E"]), Error::Protocol { .. }));
    assert!(matches!(answered("sslmode=require", &[b""]), Error::Closed { .. }));
    assert!(matches!(answered("sslmode=require", &[b"S"]), Error::Closed { .. }));
    let plain_text = b"SR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
    assert!(matches!(answered("sslmode=require", &[plain_text]), Error::Tls { .. }));
    // Without TLS the second server has nothing to say.
    assert!(matches!(answered("sslmode=prefer", &[plain_text, b""]), Error::Closed { .. }));
    // What one server refuses is asked of no other.
    let refused = b"E\0\0\0\x1dSFATAL\0C28P01\0Mwrong pw\0\0";
    let error = answered("sslmode=disable", &[refused]);
    assert_eq!(error.sqlstate(), Some("28P01"), "{error:?}");
}

#[test]
fn an_interruption_ends_waiting_for_a_silent_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for words in ["sslmode=require", "sslmode=disable"] {
        let interruption = Interruption::new().unwrap();
        let dsn = read(&format!("host=localhost port={port} {words}"), &[]);
        let dsn = dsn.with_interruption(&interruption);
        let waiting = thread::spawn(move || dsn.with_database("other").connect());
        // It has connected, and waits.
        let _client = listener.accept().unwrap();
        interruption.interrupt();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{error:?}");
    }
}

#[test]
fn an_interruption_ends_waiting_for_a_place_at_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = UnixEndpoint::new(directory.path(), 5432);
    let kind = (AddressFamily::Unix, SockType::Stream);
    let socket = socket(kind.0, kind.1, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let address = UnixAddr::new(&endpoint.socket_path()).unwrap();
    bind(socket.as_raw_fd(), &address).unwrap();
    // Nobody accepts, and one client more than this has to wait.
    listen(&socket, Backlog::new(0).unwrap()).unwrap();
    let _first = UnixStream::connect(endpoint.socket_path()).unwrap();
    let interruption = Interruption::new().unwrap();
    interruption.interrupt();
    let dsn = read(&format!("host={}", directory.path().display()), &[]);
    let error = dsn.with_interruption(&interruption).connect().unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error:?}");
    let error = read(&format!("host={} connect_timeout=1", directory.path().display()), &[])
        .connect()
        .unwrap_err();
    assert!(matches!(error, Error::ConnectTimeout), "{error:?}");
}

#[test]
fn a_found_socket_gets_nothing_of_the_callers() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = UnixEndpoint::new(directory.path().join("a,127.0.0.1"), 5432);
    fs::create_dir(&endpoint.directory).unwrap();
    let dsn = |owner| Dsn::of_socket(&endpoint, "alice", "shop", owner).unwrap();
    let found = dsn(7);
    assert!(found.password.is_none() && found.password_file.is_none() && found.options.is_empty());
    assert!(found.tls.identity.is_none());
    let host = endpoint.directory.display();
    let shown = format!("host={host} port=5432 dbname=shop user=alice");
    assert_eq!((found.redacted(), found.hosts.len()), (shown, 1));

    let listener = UnixListener::bind(endpoint.socket_path()).unwrap();
    let uid = nix::unistd::geteuid().as_raw();
    let error = dsn(uid + 1).with_database("other").connect().unwrap_err();
    assert!(matches!(error, Error::Peer { actual, .. } if actual == uid), "{error:?}");
    let mut heard = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut heard).unwrap();
    assert!(heard.is_empty(), "{heard:?}");
    let server = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        heard
    });
    let error = dsn(uid).connect().unwrap_err();
    assert!(matches!(error, Error::PasswordRequired), "{error:?}");
    assert!(server.join().unwrap().ends_with(b"client_encoding\0UTF8\0\0"));
}

#[test]
fn a_silent_server_ends_the_patience() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for words in ["sslmode=require", "sslmode=disable"] {
        let words = format!("host=127.0.0.1 port={port} connect_timeout=1 {words}");
        let error = read(&words, &[]).connect().unwrap_err();
        assert!(matches!(error, Error::ConnectTimeout), "{error:?}");
    }
}

#[test]
fn every_keyword_and_every_variable_is_there_once() {
    let mut names: Vec<_> = KEYWORDS.iter().map(|keyword| keyword.name).collect();
    names.extend(KEYWORDS.iter().filter_map(|keyword| keyword.variable));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

proptest! {
    #[test]
    fn secrets_are_never_shown(
        secret in "[A-Z0-9]{8,20}",
        form in 0..18,
    ) {
        let text = match form {
            0 => format!("postgresql://u:{secret}@h/d"),
            1 => format!("host=h user=u password='{secret}' dbname=d"),
            2 => format!("postgresql://h/d?password={secret}&options=-c%20a.b%3D{secret}"),
            3 => format!("host=h sslpassword={secret} options={secret}"),
            4 => format!("host=h password=a {secret}=x"),
            5 => format!("host=x passwrd={secret}"),
            6 => format!("postgresql://u:{secret}@h:99999999/db"),
            7 => format!("postgresql://u:{secret}%zz@h"),
            8 => format!("postgresql://u:{secret}@h/d?require_auth=none"),
            9 => format!("password={secret} port=abc"),
            10 => format!("postgresql://u:a@{secret}@h/d"),
            11 => format!("postgresql://u:a/{secret}@h/d"),
            12 => format!("postgresql://u:12/{secret}@h/d"),
            13 => format!("postgresql://u:{secret}/a@h/d"),
            14 => format!("postgresql://h/d?password=a&{}=b", secret.to_lowercase()),
            15 => format!("host=h password=a sslmode={secret}"),
            16 => format!("postgresql://u:a?{secret}@h:x"),
            _ => format!("host=h password=a {secret}"),
        };
        let variables = [("PGPASSWORD", secret.as_str()), ("PGOPTIONS", secret.as_str())];
        let environment = environment(&variables);
        let shown = match Dsn::parse_in(&text, &environment) {
            Ok(dsn) => format!("{dsn:?} {dsn} {} {environment:?}", dsn.redacted()),
            Err(error) => format!("{error:?} {error} {:?} {environment:?}", error.hint()),
        };
        prop_assert!(!shown.contains(&secret), "{}", shown);
    }

    #[test]
    fn what_is_redacted_can_be_read(
        host in "[a-z/ '\\\\]{1,10}",
        database in "[^\0,]{1,10}",
        user in "[^\0]{1,10}",
    ) {
        let text = format!(
            "host={} dbname={} user={} password=x",
            text::quoted(&host), text::quoted(&database), text::quoted(&user)
        );
        let first = read(&text, &[]);
        let again = read(&first.redacted(), &[]);
        prop_assert_eq!(first.redacted(), again.redacted());
        prop_assert_eq!((again.user(), again.database()), (user.as_str(), database.as_str()));
    }

    #[test]
    fn no_text_panics(text in any::<String>(), words in "(host|port|user|sslmode|hostaddr)=[a1,:/' ]{0,9} ") {
        let _ = Dsn::parse_in(&text, &environment(&[]));
        let _ = Dsn::parse_in(&words.repeat(2), &environment(&[("PGPORT", "1,2")]));
    }
}

#[test]
fn a_connection_string_is_edited() {
    let check = |text: &str, expected: &str| {
        let changes = [("host", Some("b c")), ("hostaddr", None), ("port", Some("2"))];
        let edited = Dsn::edited(text, &changes).unwrap();
        assert_eq!(edited, expected);
        let dsn = Dsn::parse_in(&format!("{edited} user=u"), &Environment::default()).unwrap();
        assert_eq!(dsn.endpoints(), [("b c".to_owned(), 2)]);
    };
    check(
        r"host=a hostaddr=1.2.3.4 password='it\'s' user=r",
        r"password='it\'s' user=r host='b c' port=2",
    );
    check("user=r password=x port=1", "user=r password=x host='b c' port=2");
    check("postgresql://r@a:1/", "user=r host='b c' port=2");
    check("", "host='b c' port=2");
}
