//! Connection strings against a real server: passwords and certificates over TCP.
//!
//! The server listens on a loopback address that no other process of these tests uses, so no port
//! has to be found. `host=db.test hostaddr=…` names it without a resolver.

use std::fs;
use std::os::unix::fs::chown;

use nix::unistd::User;
use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_replay::CapturedWorkload;
use pgtoll_wire::{Connection, Dsn, Environment, Error};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

use crate::replay_record::Recording;
use crate::support::{Scratch, program, run, running, server, set_mode};

/// A server with TLS and rules for each way of authentication.
struct Served {
    guard: Guard,
    cluster: Cluster,
    address: String,
    scratch: Scratch,
}

#[test]
fn passwords_over_tcp() {
    let served = Served::new();
    let plain = "sslmode=disable";
    served.check(&format!("user=guest password='x y' {plain}"), Ok("plain"));
    served.check(&format!("user=old password=old {plain}"), Ok("plain"));
    served.check(&format!("user=guest password=wrong {plain}"), Err("28P01"));
    served.check(&format!("user=guest {plain}"), Err("server asks for password authentication"));
    // Of several hosts the first that can be reached, and none after one that refuses.
    let nobody = format!("{}.1", served.address.rsplit_once('.').unwrap().0);
    let two = |name: &str, password: &str| {
        let text = format!("hostaddr={name} user=guest dbname=postgres password='{password}'");
        dsn(&text).connect()
    };
    let address = &served.address;
    assert!(two(&format!("{nobody},{address}"), "x y").is_ok());
    let error = two(&format!("{address},{nobody}"), "wrong").unwrap_err();
    assert_eq!(error.sqlstate(), Some("28P01"));
    let error = two(&format!("{nobody},{nobody}"), "x y").unwrap_err();
    assert!(matches!(&error, Error::Hosts { attempts } if attempts.len() == 2), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    let error = two(&nobody, "x y").unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    served.check("user=guest password='x y' target_session_attrs=read-write", Ok("tls"));
    let wanted = "server is not standby, as target_session_attrs asks for";
    served.check("user=guest password='x y' target_session_attrs=standby", Err(wanted));
    served.check("user=guest password='x y' target_session_attrs=prefer-standby", Ok("tls"));
    served.check_password_file();
    served.check_uri();
    served.check_replication();
}

#[test]
fn every_sslmode_does_what_it_says() {
    let served = Served::new();
    let root = served.scratch.path("root.crt");
    let other = served.scratch.path("other.crt");
    let root = root.to_str().unwrap();
    let other = other.to_str().unwrap();
    let who = "user=guest password='x y'";
    // Without a file of roots, encrypted or not, and to whomever.
    for (mode, expected) in
        [("disable", "plain"), ("allow", "plain"), ("prefer", "tls"), ("require", "tls")]
    {
        served.check(&format!("{who} sslmode={mode}"), Ok(expected));
    }
    served.check(&format!("{who} sslmode=verify-ca"), Err("no root certificates"));
    served.check(
        &format!("{who} sslmode=verify-full sslrootcert=/none"),
        Err("could not use /none: root certificate file does not exist"),
    );
    // Roots that signed the certificate, and roots that did not.
    for mode in ["require", "verify-ca", "verify-full"] {
        served.check(&format!("{who} sslmode={mode} sslrootcert='{root}'"), Ok("tls"));
        let unknown = Err("certificate is not signed by a trusted root");
        served.check(&format!("{who} sslmode={mode} sslrootcert='{other}'"), unknown);
    }
    // Nobody among the system's roots, or a system that has none.
    served.check(&format!("{who} sslrootcert=system"), Err("root"));
    // The right roots, and a host that the certificate does not name.
    let elsewhere = format!("{who} host=elsewhere.test sslrootcert='{root}'");
    served.check(&format!("{elsewhere} sslmode=verify-ca"), Ok("tls"));
    let wrong = Err("certificate is not for host \"elsewhere.test\"");
    served.check(&format!("{elsewhere} sslmode=verify-full"), wrong);
    let by_address = format!("{who} host='' sslrootcert='{root}' sslmode=verify-full");
    served.check(&by_address, Ok("tls"));
    for (version, expected) in [("TLSv1.2", "TLSv1.2"), ("TLSv1.3", "TLSv1.3")] {
        let limits =
            format!("ssl_min_protocol_version={version} ssl_max_protocol_version={version}");
        let mut connection = served.connect(&format!("{who} sslmode=require {limits}")).unwrap();
        let row = connection
            .query_one("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
            .unwrap();
        assert_eq!(row.text("version").unwrap(), expected);
    }
    // The server's rules may be about TLS, too.
    served.check("user=secure password=s sslmode=allow", Ok("tls"));
    served.check("user=secure password=s sslmode=disable", Err("28000"));
    served.check("user=naked password=n sslmode=prefer", Ok("plain"));
    served.check("user=naked password=n sslmode=require", Err("28000"));
    // What failed over TLS is not tried without.
    served.check("user=guest password=wrong sslmode=prefer", Err("28P01"));
}

#[test]
fn proofs_are_bound_to_the_channel() {
    let served = Served::new();
    let who = "user=guest password='x y'";
    for binding in ["disable", "prefer", "require"] {
        served.check(&format!("{who} channel_binding={binding} sslmode=require"), Ok("tls"));
    }
    let missing = "server does not offer channel binding";
    served.check(&format!("{who} channel_binding=require sslmode=disable"), Err(missing));
    served.check("user=old password=old channel_binding=require", Err(missing));
}

/// Between the capture and the server there is TLS, between the client and the capture none.
#[test]
fn a_capture_reaches_the_server_by_tls_and_keeps_no_password() {
    let served = Served::new();
    let plan = served.scratch.path("tls.plan");
    let root = served.scratch.path("root.crt");
    let to = format!(
        "host=db.test hostaddr={} sslmode=verify-full sslrootcert='{}'",
        served.address,
        root.display()
    );
    let recording = Recording::begin(":0", &to, &plan, &[]);
    let (host, port) = recording.address.split_once(':').unwrap();
    let who = format!("hostaddr={host} port={port} password='x y'");
    served.check(&format!("{who} user=guest"), Ok("tls"));
    served.check(&format!("{who} user=old password=old"), Ok("tls"));
    served.check(&format!("{who} user=guest password=sesame"), Err("28P01"));
    served.check(&format!("{who} user=guest sslmode=require"), Err("does not support TLS"));
    served.check(&format!("{who} user=guest channel_binding=require"), Err("channel binding"));
    // More than sockets and TLS take at once, in both directions.
    let mut connection = served.connect(&format!("{who} user=guest")).unwrap();
    let bytes = 3_000_000;
    let text = "x".repeat(bytes);
    let row = connection.query_one(&format!("SELECT length('{text}') AS sent")).unwrap();
    assert_eq!(row.parse::<usize>("sent").unwrap(), bytes);
    let row = connection.query_one(&format!("SELECT repeat('y', {bytes}) AS text")).unwrap();
    assert_eq!(row.text("text").unwrap().len(), bytes);
    connection.close();
    let recorded = recording.end();
    assert_eq!(recorded.status, Some(0), "{recorded:?}");
    let plan = CapturedWorkload::read(fs::File::open(plan).unwrap()).unwrap();
    assert_eq!((plan.sessions.len(), plan.steps.len()), (3, 4));
    let shown = format!("{plan:?}");
    assert!(!shown.contains("x y") && !shown.contains("sesame"));
}

#[test]
fn clients_show_certificates() {
    let served = Served::new();
    let file = |name: &str| served.scratch.path(name).display().to_string();
    let identity = format!("sslcert='{}' sslkey='{}'", file("client.crt"), file("client.key"));
    let who = "user=certified sslmode=require";
    served.check(&format!("{who} {identity}"), Ok("tls"));
    served.check(&format!("{who} {identity} sslcertmode=disable"), Err("28000"));
    served.check(who, Err("28000"));
    set_mode(&served.scratch.path("client.key"), 0o644);
    let exposed = "private key can be read by group or others";
    served.check(&format!("{who} {identity}"), Err(exposed));
}

/// Certificates that the manual of PostgreSQL tells how to make.
#[test]
fn certificates_by_the_manual() {
    let mut served = Served::new();
    let who = "user=guest password='x y'";
    // "A simple self-signed certificate": a common name and no alternative one, and its own root.
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "db.test");
    let certificate = params.self_signed(&key).unwrap();
    served.install(&certificate.pem(), &key.serialize_pem());
    let own = served.scratch.path("own.crt");
    fs::write(&own, certificate.pem()).unwrap();
    let own = format!("sslrootcert='{}'", own.display());
    served.check(&format!("{who} {own} sslmode=verify-full channel_binding=require"), Ok("tls"));
    let elsewhere = format!("{who} {own} host=elsewhere.test");
    served.check(&format!("{elsewhere} sslmode=verify-ca"), Ok("tls"));
    served.check(&format!("{elsewhere} sslmode=verify-full"), Err("is not for host"));
    // The same with a validity that is over.
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    let expired = params.self_signed(&key).unwrap();
    served.install(&expired.pem(), &key.serialize_pem());
    fs::write(served.scratch.path("own.crt"), expired.pem()).unwrap();
    served.check(&format!("{who} {own} sslmode=verify-ca"), Err("Expired"));
    served.check(&format!("{who} sslmode=require channel_binding=require"), Ok("tls"));
    // Signed by a root with `openssl x509 -req`, which before OpenSSL 3.4 makes version 1.
    let Some((pem, key)) = version_1(&served.scratch) else {
        eprintln!("not tested: this OpenSSL makes no certificates of version 1");
        return;
    };
    served.install(&pem, &key);
    served.check(&format!("{who} sslmode=require channel_binding=require"), Ok("tls"));
    let root = served.scratch.path("root.crt").display().to_string();
    let refused = "certificate is of version 1, which cannot be verified";
    served.check(&format!("{who} sslmode=verify-ca sslrootcert='{root}'"), Err(refused));
}

/// A certificate of version 1 and its key.
fn version_1(scratch: &Scratch) -> Option<(String, String)> {
    let path = |name: &str| scratch.path(name).display().to_string();
    let request = path("v1.csr");
    let key = path("v1.key");
    let signed = path("v1.crt");
    let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let requested = run(program("openssl").args(words(format!(
        "req -new -newkey rsa:2048 -nodes -subj /CN=db.test -out {request} -keyout {key}"
    ))));
    assert_eq!(requested.status, Some(0), "{requested:?}");
    let ran = run(program("openssl")
        .args(words(format!("x509 -req -days 1 -in {request} -signkey {key} -out {signed}"))));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let shown = run(program("openssl").args(words(format!("x509 -noout -text -in {signed}"))));
    let old = shown.stdout.contains("Version: 1 ");
    old.then(|| (fs::read_to_string(signed).unwrap(), fs::read_to_string(key).unwrap()))
}

impl Served {
    fn new() -> Self {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        let (cluster, _) = running(&mut guard, &server(), "one");
        let mut session = cluster.connect("postgres").unwrap();
        session
            .execute(
                "SET password_encryption = 'scram-sha-256';
                 CREATE ROLE guest LOGIN REPLICATION PASSWORD 'x y';
                 CREATE ROLE secure LOGIN PASSWORD 's'; CREATE ROLE naked LOGIN PASSWORD 'n';
                 CREATE ROLE certified LOGIN;
                 SET password_encryption = 'md5'; CREATE ROLE old LOGIN PASSWORD 'old'",
            )
            .unwrap();
        session.close();
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let mut served = Self { guard, cluster, address: unique_address(), scratch };
        served.make_certificates();
        served
    }

    /// A root, another one that signs nothing, a server's and a client's certificate.
    fn make_certificates(&mut self) {
        let root_key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.distinguished_name.push(DnType::CommonName, "pgtoll test root");
        let root_pem = root.self_signed(&root_key).unwrap().pem();
        fs::write(self.scratch.path("root.crt"), root_pem).unwrap();
        let issuer = Issuer::new(root.clone(), root_key);
        root.distinguished_name.push(DnType::CommonName, "another root");
        let other = root.self_signed(&KeyPair::generate().unwrap()).unwrap();
        fs::write(self.scratch.path("other.crt"), other.pem()).unwrap();

        let client_key = KeyPair::generate().unwrap();
        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::CommonName, "certified");
        let client = client.signed_by(&client_key, &issuer).unwrap();
        fs::write(self.scratch.path("client.crt"), client.pem()).unwrap();
        fs::write(self.scratch.path("client.key"), client_key.serialize_pem()).unwrap();
        set_mode(&self.scratch.path("client.key"), 0o600);

        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["db.test".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress(self.address.parse().unwrap()));
        let certificate = params.signed_by(&key, &issuer).unwrap();
        self.write_and_start(&certificate.pem(), &key.serialize_pem());
    }

    /// Gives the server another certificate.
    fn install(&mut self, certificate: &str, key: &str) {
        self.cluster.stop(&mut self.guard, StopMode::Fast).unwrap();
        self.write_and_start(certificate, key);
    }

    fn write_and_start(&mut self, certificate: &str, key: &str) {
        let path = |name: &str| self.scratch.path(name);
        fs::write(path("server.crt"), certificate).unwrap();
        fs::write(path("server.key"), key).unwrap();
        set_mode(&path("server.key"), 0o600);
        let user = User::from_name(&self.guard.user().name).unwrap().unwrap();
        chown(path("server.key"), Some(user.uid.as_raw()), None).unwrap();
        let rules = "local all postgres trust
            hostssl all certified 127.0.0.0/8 cert
            hostssl all secure 127.0.0.0/8 scram-sha-256
            hostnossl all naked 127.0.0.0/8 scram-sha-256
            host all guest 127.0.0.0/8 scram-sha-256
            host replication guest 127.0.0.0/8 scram-sha-256
            host all old 127.0.0.0/8 md5\n";
        fs::write(path("hba"), rules).unwrap();
        let text = |name: &str| path(name).display().to_string();
        let settings = [
            ("listen_addresses", self.address.clone()),
            ("hba_file", text("hba")),
            ("ssl", "on".to_owned()),
            ("ssl_cert_file", text("server.crt")),
            ("ssl_key_file", text("server.key")),
            ("ssl_ca_file", text("root.crt")),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        self.cluster.configure(&mut self.guard, &settings.into()).unwrap();
        self.cluster.start(&mut self.guard).unwrap();
    }

    /// Later words count.
    fn connect(&self, words: &str) -> Result<Connection, Error> {
        let address = &self.address;
        let start = "connect_timeout=60 host=db.test dbname=postgres";
        dsn(&format!("{start} hostaddr={address} {words}")).connect()
    }

    /// Whether the session is encrypted, or what a part of the error is: the chain's text, or the
    /// SQLSTATE.
    fn check(&self, words: &str, expected: Result<&str, &str>) {
        let outcome = self.connect(words).map(|mut connection| {
            let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
            let row = connection.query_one(sql).unwrap();
            if row.text("ssl").unwrap() == "t" { "tls" } else { "plain" }
        });
        match (outcome, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{words}"),
            (Err(error), Err(part)) => {
                let shown = chain(&error);
                assert!(shown.contains(part), "{words}: {shown}");
                assert!(!shown.contains("x y") && !shown.contains("sesame"), "{shown}");
            }
            (Ok(found), Err(part)) => panic!("{words}: {found} instead of {part}"),
            (Err(error), Ok(_)) => panic!("{words}: {}", chain(&error)),
        }
    }

    fn check_password_file(&self) {
        let path = self.scratch.path("pgpass");
        fs::write(&path, "db.test:5432:*:guest:x y\n*:*:*:*:wrong\n").unwrap();
        let words = format!("user=guest passfile='{}'", path.display());
        set_mode(&path, 0o600);
        self.check(&words, Ok("tls"));
        self.check(&format!("{words} host=other.test"), Err("28P01"));
        set_mode(&path, 0o640);
        self.check(&words, Err("is ignored: others than its owner may access it"));
    }

    fn check_uri(&self) {
        let uri =
            format!("postgresql://guest:x%20y@{}:5432/postgres?sslmode=require", self.address);
        let named = dsn(&uri);
        let redacted = named.redacted();
        let expected = "port=5432 dbname=postgres user=guest password=*** sslmode=require";
        assert_eq!(redacted, format!("host={} {expected}", self.address));
        let row = named.connect().unwrap().query_one("SELECT current_user AS me").unwrap();
        assert_eq!(row.text("me").unwrap(), "guest");
    }

    fn check_replication(&self) {
        let words = format!("hostaddr={} user=guest sslmode=require", self.address);
        let error = dsn(&words).connect_replication().unwrap_err();
        assert!(matches!(error, Error::PasswordRequired));
        let named = dsn(&format!("{words} password='x y'"));
        let mut connection = named.connect_replication().unwrap();
        let identity = connection.identify_system().unwrap();
        let mut stream = connection.start(identity.position & !0xFF_FFFF, 1).unwrap();
        while stream.position() < identity.position {
            stream.receive(None).unwrap();
        }
        stream.close();
    }
}

/// 127.0.0.0/8 has an address for every process and every test.
fn unique_address() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(2);
    let pid = std::process::id();
    let high = 1 + pid / 256 % 254;
    let low = pid % 256;
    format!("127.{high}.{low}.{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// In an environment where nothing is set.
fn dsn(text: &str) -> Dsn {
    Dsn::parse_in(text, &Environment::default()).unwrap()
}

fn chain(error: &Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        texts.push(source.to_string());
        next = source.source();
    }
    texts.join(": ")
}
