//! A store behind TLS, with a private CA: whose certificate is accepted, and what is said of the others.

use std::fs;
use std::path::PathBuf;

use pgtoll_cluster::Guard;
use pgtoll_testing::ObjectServer;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::fleet::{Backups, command, json, run_fleet, tar};
use crate::fleet_barman::{MotoServer, are_there};
use crate::fleet_pgbackrest::{PROGRAM as PGBACKREST, Source, check_damaged};
use crate::support::{Ran, Scratch, pgtoll, run};

/// A CA of the tests, and where its certificate is.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    path: PathBuf,
}

impl Authority {
    fn make(scratch: &Scratch, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let path = scratch.path(name);
        fs::write(&path, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), path }
    }

    /// A certificate for this name, valid until this year, and its key.
    fn certify(&self, name: &str, until: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A server with such a certificate.
    fn serve(&self, name: &str, until: i32) -> ObjectServer {
        let (certificate, key) = self.certify(name, until);
        ObjectServer::start_with_tls(&certificate, &key)
    }
}

/// pgtoll with these roots.
fn with_roots(server: &ObjectServer, roots: &str, words: &[&str]) -> Ran {
    run(command(server, words).env("SSL_CERT_FILE", roots).env_remove("SSL_CERT_DIR"))
}

#[test]
fn a_store_behind_tls_is_read_if_its_certificate_is_of_a_trusted_root() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let own = Authority::make(&scratch, "own");
    let other = Authority::make(&scratch, "other");
    let own_roots = own.path.to_str().unwrap();
    let other_roots = other.path.to_str().unwrap();
    let sound = tar(&backups.sound);
    let damaged = tar(&backups.damaged);
    let filled = |server: ObjectServer| {
        server.put("b/sound/base.tar", &sound);
        server.put("b/damaged/base.tar", &damaged);
        server
    };
    let server = filled(own.serve("localhost", 2099));
    let ran = with_roots(&server, own_roots, &["verify", "s3://b/sound"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let ran = with_roots(&server, own_roots, &["verify", "s3://b/damaged", "--json"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert_eq!(json(&ran)["failures"], 1);

    let check = |server: &ObjectServer, roots: &str, why: &str, hint: &str| {
        let before = server.connections();
        let ran = with_roots(server, roots, &["verify", "s3://b/sound"]);
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        let lines: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{ran:?}");
        assert!(lines[0].contains("s3://b/sound: ") && lines[0].ends_with(why), "{ran:?}");
        assert!(lines[1].starts_with("hint: ") && lines[1].contains(hint), "{ran:?}");
        // It is refused the next time, too: once is enough.
        assert!(server.connections() - before <= 1, "{}", server.connections());
    };
    let refused = "the server's certificate is refused: ";
    let unknown = format!("{refused}it is not signed by a trusted root");
    check(&server, other_roots, &unknown, "SSL_CERT_FILE");
    check(&server, "/none", "no root certificates were found on this system", "ca-certificates");
    let expired = filled(own.serve("localhost", 2001));
    check(&expired, own_roots, &format!("{refused}it has expired"), "clock");
    let elsewhere = filled(own.serve("store.test", 2099));
    check(&elsewhere, own_roots, &format!("{refused}it is for another name"), "AWS_ENDPOINT_URL");

    // A fleet whose store has another certificate when its shards run.
    let plan = scratch.path("plan.json").display().to_string();
    let planned = with_roots(&server, own_roots, &["fleet", "plan", "s3://b", "-o", &plan]);
    assert_eq!(planned.status, Some(0), "{planned:?}");
    let ran = with_roots(&expired, own_roots, &["fleet", "run", &plan, "--all"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("s3://b/sound: not verified: "), "{ran:?}");
    let merged = run_fleet(&expired, &["fleet", "merge", &plan], 2).stdout;
    assert!(merged.starts_with("0 of 2 backups sound"), "{merged}");
    assert!(merged.contains("it has expired"), "{merged}");
    let ran = with_roots(&server, own_roots, &["fleet", "run", &plan, "--all"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    run_fleet(&server, &["fleet", "merge", &plan], 1);
}

/// Options of pgBackRest for a repository in a store behind TLS, in a file that its user reads: secrets are
/// not taken from a command line.
fn repository_options(guard: &mut Guard, moto: &MotoServer, authority: &Authority) -> String {
    let [roots, file, lock] =
        ["root.pem", "store.conf", "lock"].map(|name| guard.directory().join(name));
    let text = format!(
        "[global]\nrepo1-type=s3\nrepo1-path=/repository\nrepo1-s3-bucket=backups\n\
         repo1-s3-endpoint=localhost\nrepo1-s3-region=us-east-1\nrepo1-s3-uri-style=path\n\
         repo1-s3-key=test\nrepo1-s3-key-secret=test\nrepo1-storage-host=localhost\n\
         repo1-storage-port={}\nrepo1-storage-ca-file={}\nrepo1-bundle=y\ncompress-type=zst\n\
         repo1-retention-full=9\nlock-path={}\n",
        moto.port,
        roots.display(),
        lock.display()
    );
    guard.write(&roots, fs::read_to_string(&authority.path).unwrap()).unwrap();
    guard.write(&file, text).unwrap();
    format!("--config={}", file.display())
}

/// Server, proxy and backups are none of the tests' own: moto behind `HAProxy`, and pgBackRest, which speaks
/// to stores by TLS only.
#[test]
fn a_repository_that_pgbackrest_writes_to_a_store_behind_tls_is_read_with_its_root_only() {
    if !are_there(PGBACKREST) || !are_there("/usr/sbin/haproxy") {
        return;
    }
    let scratch = Scratch::new();
    let authority = Authority::make(&scratch, "own");
    let (certificate, key) = authority.certify("localhost", 2099);
    let both = scratch.path("both.pem");
    fs::write(&both, certificate + &key).unwrap();
    let moto = MotoServer::start_with_tls(&both);
    let mut guard = scratch.guard();
    let source = Source::make(&mut guard, &scratch);
    let options = repository_options(&mut guard, &moto, &authority);
    source.run(&mut guard, &[&options, "stanza-create"]);
    source.run(&mut guard, &[&options, "--type=full", "backup"]);

    let verified = |roots: Option<&PathBuf>, words: &[&str]| {
        let mut command = pgtoll();
        command.args(["verify", "s3://backups/repository", "--backup", "latest"]).args(words);
        command.env("AWS_ENDPOINT_URL", format!("https://localhost:{}", moto.port));
        command.envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]);
        command.env("AWS_REGION", "us-east-1").env_remove("SSL_CERT_DIR");
        command.env_remove("AWS_PROFILE").env_remove("SSL_CERT_FILE");
        run(command.envs(roots.map(|path| ("SSL_CERT_FILE", path))))
    };
    let own = Some(&authority.path);
    let sound = verified(own, &["--json"]);
    assert_eq!(sound.status, Some(0), "{sound:?}");
    let blocks = json(&sound)["read"]["blocks"].as_u64().unwrap();
    assert!(blocks > 2000, "{sound:?}");
    let refused = verified(None, &[]);
    assert_eq!((refused.status, &*refused.stdout), (Some(2), ""), "{refused:?}");
    let expected = "pgtoll: s3://backups/repository: the server's certificate is refused: it is not \
                    signed by a trusted root\nhint: ";
    assert!(refused.stderr.starts_with(expected), "{refused:?}");

    source.damage();
    source.run(&mut guard, &[&options, "--type=incr", "backup"]);
    let damaged = verified(own, &["--json"]);
    assert_eq!(damaged.status, Some(1), "{damaged:?}");
    check_damaged(&json(&damaged), blocks);
}
