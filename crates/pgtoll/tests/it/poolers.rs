//! Poolers in front of a server: commands that need one session refuse them, a capture names them, and one that
//! keeps sessions at a server is none.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use pgtoll_cluster::{Cluster, Guard, Pgpool, PgpoolNode};

use crate::predict::started;
use crate::predict_reach::finish;
use crate::replay_record::Recording;
use crate::support::{Scratch, ordinary_user, pgtoll, program, run, server};

/// A program that `cargo xtask test` installs.
fn installed(name: &str) -> Option<PathBuf> {
    let places = ["/usr/sbin", "/usr/bin"].map(|directory| Path::new(directory).join(name));
    let found = places.into_iter().find(|path| path.exists());
    if found.is_none() {
        let is_set_up = std::env::var_os("PGTOLL_TEST_MAJORS").is_some();
        assert!(!is_set_up, "{name} is not installed");
    }
    found
}

/// PgBouncer, which is killed when it goes out of scope.
struct Bouncer {
    child: Child,
    dsn: String,
}

impl Bouncer {
    /// In transaction mode: sessions are handed from client to client between transactions.
    fn start(scratch: &Scratch, cluster: &Cluster, at: &Path) -> Self {
        let environment = cluster.environment();
        let directory = scratch.work();
        let configuration = directory.join("pgbouncer.ini");
        let text = format!(
            "[databases]\npostgres = host={} port={} user={} dbname=postgres\n[pgbouncer]\n\
             listen_port = 6543\nunix_socket_dir = {}\nauth_type = any\npool_mode = transaction\n\
             ignore_startup_parameters = extra_float_digits,options\nlogfile = {}\n",
            environment["PGHOST"],
            environment["PGPORT"],
            environment["PGUSER"],
            directory.display(),
            directory.join("pgbouncer.log").display(),
        );
        std::fs::write(&configuration, text).unwrap();
        let mut command = program(at);
        if let Some(user) = ordinary_user() {
            command.args(["-u", &user.name]);
        }
        let mut child = command.arg("-q").arg(&configuration).spawn().unwrap();
        while !directory.join(".s.PGSQL.6543").exists() {
            assert!(child.try_wait().unwrap().is_none(), "pgbouncer has ended");
        }
        let dsn = format!("host={} port=6543 user=anybody dbname=postgres", directory.display());
        Self { child, dsn }
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_pooler_in_front_is_refused_or_named() {
    let Some(pgbouncer) = installed("pgbouncer") else {
        eprintln!("not tested: pgbouncer is not installed");
        return;
    };
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = started(&mut guard, &server(), &[]);
    let pooler = Bouncer::start(&scratch, &cluster, &pgbouncer);
    for command in ["predict", "checkup"] {
        let ran = run(pgtoll().args([command, "--for", "1s", "--dsn", &pooler.dsn]));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("a connection pooler is in front of the server"), "{ran:?}");
        assert!(ran.stderr.contains("hint: connect to the server's own host and port"), "{ran:?}");
    }
    let plan = scratch.path("pooled.plan");
    let capture = scratch.path("capture");
    std::fs::create_dir_all(&capture).unwrap();
    let recording = Recording::begin(capture.to_str().unwrap(), &pooler.dsn, &plan, &[]);
    assert!(recording.warnings.concat().contains("a connection pooler is at --to"));
    recording.end();
    drop(pooler);
    finish(cluster, &mut guard);
}

/// It hands on what the server promised, and a session stays with its server.
#[test]
fn a_pooler_that_keeps_sessions_is_watched_through() {
    if installed("pgpool").is_none() {
        eprintln!("not tested: pgpool is not installed");
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = started(&mut guard, &server(), &[]);
    let pool = start_pgpool(&mut guard, &cluster);
    let dsn = format!(
        "host={} port={} user={} dbname=postgres",
        pool.display(),
        Pgpool::PORT,
        cluster.environment()["PGUSER"]
    );
    for command in ["predict", "checkup"] {
        let ran = run(pgtoll().args([command, "--for", "1s", "--json", "--dsn", &dsn]));
        let record: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let version = record["server"]["version"].as_str().unwrap().to_owned();
        assert!(version.starts_with(&server().version.to_string()), "{version}");
    }
    finish(cluster, &mut guard);
}

/// Its directory, once it takes clients.
fn start_pgpool(guard: &mut Guard, cluster: &Cluster) -> PathBuf {
    let nodes = [PgpoolNode { server: cluster, weight: 1 }];
    let pool = Pgpool::find().unwrap().start(guard, "pool", &nodes, 8).unwrap();
    while pool.connect(Duration::from_secs(5)).is_err() {
        std::thread::yield_now();
    }
    guard.directory().join("pool")
}
