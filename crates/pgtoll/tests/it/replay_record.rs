//! `pgtoll replay record`: pgbench through the capture, and what its plan does on a copy.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_record::{LogExamination, ReplayRecord};

use crate::replay::{PGBENCH_STATE, check_clean};
use crate::support::{Ran, Scratch, pgtoll, pid_of, run, running, servers};

/// A capture that goes on.
pub(crate) struct Recording {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    /// Lines before it listened.
    pub(crate) warnings: Vec<String>,
    /// Where it listens: a socket's file, or address and port.
    pub(crate) address: String,
}

impl Recording {
    /// Listens in the directory `capture`.
    pub(crate) fn start(scratch: &Scratch, cluster: &Cluster, plan: &Path) -> Self {
        Self::start_to(scratch, &dsn(cluster), plan)
    }

    pub(crate) fn start_to(scratch: &Scratch, to: &str, plan: &Path) -> Self {
        let directory = scratch.path("capture");
        fs::create_dir_all(&directory).unwrap();
        Self::begin(directory.to_str().unwrap(), to, plan, &["--copy-data", "1MB"])
    }

    pub(crate) fn begin(listen: &str, to: &str, plan: &Path, options: &[&str]) -> Self {
        let mut child = pgtoll()
            .args(["replay", "record", "--json", "--to", to, "--listen", listen, "-o"])
            .arg(plan)
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let mut warnings = Vec::new();
        while stderr.read_line(&mut line).unwrap() > 0 && !line.contains("listening at") {
            warnings.push(std::mem::take(&mut line));
        }
        let address =
            line.strip_prefix("pgtoll: listening at ").and_then(|item| item.split_once(';'));
        let Some((address, _)) = address else { panic!("{warnings:?} {line}") };
        Self { child, stderr, warnings, address: address.to_owned() }
    }

    /// pgbench with 8 clients, 25 transactions each.
    fn pgbench(&self, guard: &mut Guard, cluster: &Cluster, protocol: &str) {
        let (socket, _) = self.address.rsplit_once('/').unwrap();
        let work = ["-n", "-c", "8", "-j", "2", "-t", "25", "-M", protocol];
        let arguments = [&work[..], &["-h", socket, "-p", "5432", "captured"]].concat();
        cluster.run_client(guard, "pgbench", &arguments).unwrap();
    }

    pub(crate) fn end(mut self) -> Ran {
        kill(Pid::from_raw(pid_of(&self.child)), Signal::SIGINT).unwrap();
        let mut stdout = String::new();
        let mut stderr = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap().code();
        assert!(!Path::new(&self.address).exists());
        Ran { status, stdout, stderr }
    }
}

pub(crate) fn dsn(cluster: &Cluster) -> String {
    let environment = cluster.environment();
    format!(
        "host={} port={} user={} dbname=postgres",
        environment["PGHOST"], environment["PGPORT"], environment["PGUSER"]
    )
}

fn state(cluster: &Cluster, database: &str) -> String {
    let mut connection = cluster.connect(database).unwrap();
    let row = connection.query_one(PGBENCH_STATE).unwrap();
    row.text("state").unwrap().to_owned()
}

/// A server with `captured` and a copy of it.
fn prepare(guard: &mut Guard, server: &pgtoll_cluster::Installation) -> Cluster {
    let name = format!("pg{}", server.version.major());
    let (cluster, _) = running(guard, server, &name);
    for database in ["captured", "copied"] {
        let create = format!("CREATE DATABASE {database}");
        cluster.run_psql(guard, "postgres", &create).unwrap();
        cluster.run_client(guard, "pgbench", &["-i", "-q", "-s", "1", database]).unwrap();
    }
    let confirm = "ALTER DATABASE copied SET pgtoll.disposable = on";
    cluster.run_psql(guard, "postgres", confirm).unwrap();
    cluster
}

#[test]
fn pgbench_through_a_capture_goes_the_same_way_again() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = prepare(&mut guard, &server);
        let plan = scratch.path(&format!("pg{}.plan", server.version.major()));
        let recording = Recording::start(&scratch, &cluster, &plan);
        for protocol in ["simple", "extended", "prepared"] {
            recording.pgbench(&mut guard, &cluster, protocol);
        }
        let recorded = recording.end();
        assert_eq!(recorded.status, Some(0), "{recorded:?}");
        let counts = serde_json::from_str::<LogExamination>(&recorded.stdout).unwrap().counts;
        let of_a_protocol = 8 * 25 * 7;
        assert!(counts.simple >= of_a_protocol, "{counts:?}");
        assert_eq!((counts.extended, counts.failed), (2 * of_a_protocol, 0), "{counts:?}");
        assert_eq!(fs::metadata(&plan).unwrap().permissions().mode() & 0o777, 0o600);

        let plan = plan.to_str().unwrap();
        let doctor = run(pgtoll().args(["replay", "doctor", plan]));
        assert_eq!(doctor.status, Some(0), "{doctor:?}");
        assert!(doctor.stdout.contains("each commit has its place"), "{doctor:?}");
        let ran = run(pgtoll()
            .args(["replay", "run", plan, "--order", "key", "--speed", "max", "--json"])
            .args(["--dsn", &dsn(&cluster), "--map", "captured=copied"]));
        let record: ReplayRecord =
            serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        check_clean(&ran, &record);
        assert_eq!(state(&cluster, "captured"), state(&cluster, "copied"));
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn a_capture_that_cannot_be_written_leaves_connections_alone() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = prepare(&mut guard, &servers().swap_remove(0));
    let recording = Recording::start(&scratch, &cluster, Path::new("/dev/full"));
    for protocol in ["simple", "prepared"] {
        recording.pgbench(&mut guard, &cluster, protocol);
    }
    let recorded = recording.end();
    assert_eq!(recorded.status, Some(2), "{recorded:?}");
    assert!(recorded.stderr.contains("/dev/full is not complete"), "{recorded:?}");
    assert!(recorded.stderr.contains("No space left on device"), "{recorded:?}");
    let history = "SELECT count(*)::text AS state FROM pgbench_history";
    let mut connection = cluster.connect("captured").unwrap();
    let row = connection.query_one(history).unwrap();
    assert_eq!(row.text("state").unwrap(), "400");
    // The plan of an earlier capture is not overwritten, and a server that is not there is told at once.
    let taken = scratch.path("taken.plan");
    fs::write(&taken, "").unwrap();
    let check = |to: &str, plan: &Path, message: &str| {
        let listen = scratch.path("capture");
        let ran = run(pgtoll()
            .args(["replay", "record", "--to", to, "--listen"])
            .arg(listen)
            .arg("-o")
            .arg(plan));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(message), "{message}: {ran:?}");
    };
    check(&dsn(&cluster), &taken, "taken.plan exists already");
    check("host=/nonexistent", &scratch.path("new.plan"), "could not connect to /nonexistent");
    assert!(!scratch.path("new.plan").exists());
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    cluster.remove(&mut guard).unwrap();
}
