//! Repositories that the real barman-cloud makes of real clusters, in a server of S3 that is not the tests'
//! own (moto): sound backups pass, pages that were damaged before a backup and objects that were damaged in
//! the store are named, and a fleet's answer is that of one machine.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_store::{Store, StoreUrl};
use pgtoll_system::Interrupt;
use serde_json::Value;

use crate::fleet::{comparable, found, json};
use crate::support::{Ran, Scratch, pgtoll, program, run, server, write_program};
use crate::verify::{execute, path_of};

/// Where moto is, unless Python finds it by itself.
const MOTO: &str = "PGTOLL_TEST_MOTO";
const BUCKET: &str = "s3://backups";

/// `cargo xtask test` installs both.
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
pub(crate) fn are_there(program: &str) -> bool {
    let mut missing = Vec::new();
    if !Path::new(program).exists() {
        missing.push(program);
    }
    let has_moto = run(python().args(["-c", "import moto.server"])).status == Some(0);
    missing.extend((!has_moto).then_some("moto"));
    let is_set_up = std::env::var_os("PGTOLL_TEST_MAJORS").is_some();
    assert!(missing.is_empty() || !is_set_up, "{missing:?} not installed");
    if !missing.is_empty() {
        eprintln!("not tested: {missing:?} not installed");
    }
    missing.is_empty()
}

fn python() -> Command {
    let mut command = program("python3");
    if let Some(place) = std::env::var_os(MOTO) {
        command.env("PYTHONPATH", place);
    }
    command
}

/// A server of objects, until this is dropped, or this process is gone.
pub(crate) struct MotoServer {
    child: Child,
    pub(crate) port: u16,
}

impl MotoServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Behind TLS with this certificate and key, a file.
    pub(crate) fn start_with_tls(certificate: &Path) -> Self {
        Self::start_with(&[certificate])
    }

    fn start_with(arguments: &[&Path]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/moto_server.py");
        let mut command = python();
        command
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn environment(&self) -> [(&'static str, String); 6] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
        ]
    }

    fn run(&self, words: &[&str]) -> Ran {
        let mut command = pgtoll();
        command.args(words).env_remove("AWS_PROFILE").envs(self.environment());
        run(&mut command)
    }

    fn run_fleet(&self, words: &[&str], status: i32) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.status, Some(status), "{words:?}: {ran:?}");
        ran
    }

    fn store(&self) -> Store {
        Store::open_with(&url(BUCKET), &Interrupt::new(), &self.environment()).unwrap()
    }
}

impl Drop for MotoServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn url(text: &str) -> StoreUrl {
    text.parse().unwrap()
}

/// How a repository is packed, by its server's name in barman, and its backups' own options.
const WAYS: [(&str, Option<&str>, &[&str]); 3] = [
    ("plain", None, &[]),
    ("packed", Some("--gzip"), &[]),
    ("archives", None, &["--max-archive-size", "8MB"]),
];

/// What is damaged before the second backup: relations, and `pgtoll corrupt`'s words.
const DAMAGE: [(&str, &str, u64); 4] = [
    ("orders", "bit", 1),
    ("items", "garbage", 1),
    ("parts", "zero-half", 1),
    ("users", "transposed", 2),
];

/// A running cluster whose WAL barman-cloud archives, to each repository.
struct Source<'a> {
    guard: Guard,
    cluster: Cluster,
    store: &'a MotoServer,
}

impl<'a> Source<'a> {
    fn make(scratch: &Scratch, store: &'a MotoServer) -> Self {
        let mut guard = scratch.guard();
        let cluster = Cluster::init(&mut guard, &server(), "source", true).unwrap();
        let archive = scratch.path("archive.sh");
        write_program(&archive, &archive_script(store));
        let settings = [
            ("fsync", "off".to_owned()),
            ("wal_level", "replica".to_owned()),
            ("archive_mode", "on".to_owned()),
            ("archive_command", format!("{} \"%p\"", archive.display())),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
        cluster.configure(&mut guard, &settings).unwrap();
        cluster.start(&mut guard).unwrap();
        let place = scratch.work().join("space");
        fs::create_dir(&place).unwrap();
        let owner = fs::metadata(cluster.data()).unwrap().uid();
        chown(&place, Some(owner), None).unwrap();
        let space = format!("CREATE TABLESPACE space LOCATION '{}'", place.display());
        execute(&cluster, &[&space]);
        for (name, ..) in DAMAGE {
            let sql = "AS SELECT i AS id, md5(i::text) AS text FROM generate_series(1, 2000) i";
            let place = if name == "items" { "TABLESPACE space" } else { "" };
            execute(&cluster, &[&format!("CREATE TABLE {name} {place} {sql}")]);
        }
        execute(&cluster, &["CHECKPOINT"]);
        Self { guard, cluster, store }
    }

    fn back_up(&self) {
        for (name, packing, options) in WAYS {
            let ran = run(program("/usr/bin/barman-cloud-backup")
                .args(["--endpoint-url", &self.store.endpoint(), "--immediate-checkpoint"])
                .args(packing)
                .args(options)
                .args([&format!("{BUCKET}/fleet"), name])
                .envs(self.cluster.environment())
                .envs(self.store.environment()));
            assert_eq!(ran.status, Some(0), "{ran:?}");
        }
    }

    fn damage(&mut self) {
        self.cluster.stop(&mut self.guard, StopMode::Fast).unwrap();
        for (number, (name, kind, _)) in DAMAGE.into_iter().enumerate() {
            let undo = self.cluster.directory().join(format!("undo{number}.json"));
            let relation = format!("postgres.public.{name}");
            let data = self.cluster.data();
            let mut command = pgtoll();
            command.args(["corrupt", "--relation", &relation, "--kind", kind, "--block", "1"]);
            command.args(["--yes", "--undo-file"]).arg(undo).arg(data);
            if kind == "transposed" {
                command.args(["--with", "2"]);
            }
            let ran = run(&mut command);
            assert_eq!(ran.status, Some(0), "{ran:?}");
        }
        self.cluster.start(&mut self.guard).unwrap();
    }
}

/// What the server runs for each segment.
fn archive_script(store: &MotoServer) -> String {
    let variables = store.environment().map(|(name, value)| format!("export {name}={value}"));
    let archive = |(name, packing, _): (&str, Option<&str>, _)| {
        let program = "/usr/bin/barman-cloud-wal-archive";
        let endpoint = store.endpoint();
        let packing = packing.unwrap_or_default();
        format!("{program} --endpoint-url {endpoint} {packing} {BUCKET}/fleet {name} \"$1\"")
    };
    let lines = ["#!/bin/sh".to_owned(), "set -e".to_owned()];
    let lines: Vec<String> = lines.into_iter().chain(variables).chain(WAYS.map(archive)).collect();
    lines.join("\n") + "\n"
}

/// barman's names of a repository's backups, the oldest first.
fn ids(store: &Store, name: &str) -> Vec<String> {
    let base = url(&format!("{BUCKET}/fleet/{name}/base"));
    let objects = store.list(&base).unwrap();
    let infos = objects.iter().filter(|object| object.url.name() == "backup.info");
    infos.map(|object| object.url.parent().unwrap().name().to_owned()).collect()
}

#[test]
fn barmans_backups_are_verified_where_they_lie() {
    if !are_there("/usr/bin/barman-cloud-backup") {
        return;
    }
    let scratch = Scratch::new();
    let moto = MotoServer::start();
    let mut source = Source::make(&scratch, &moto);
    let orders = path_of(&source.cluster, "orders").display().to_string();
    source.back_up();
    source.damage();
    source.back_up();
    let store = moto.store();
    for (name, ..) in WAYS {
        let ids = ids(&store, name);
        let [sound, damaged] = &*ids else { panic!("{ids:?}") };
        let at = format!("{BUCKET}/fleet/{name}");
        let record = json(&moto.run_fleet(&["verify", &at, "--backup", sound, "--json"], 0));
        assert!(record["read"]["blocks"].as_u64().unwrap() > 2000, "{record:#}");
        for id in ["latest", damaged] {
            let words = ["verify", &at, "--backup", id, "--json"];
            check_damage(&json(&moto.run_fleet(&words, 1)), &DAMAGE);
        }
        let wal = json(&moto.run_fleet(&["wal", "stats", &format!("{at}/wals"), "--json"], 0));
        assert!(wal["total"]["records"].as_u64().unwrap() > 1000, "{wal:#}");
    }
    check_store_damage(&moto, &store, &orders);
    check_fleet(&moto);
}

/// Each damaged relation is named, with as many failures as it has.
fn check_damage(record: &Value, expected: &[(&str, &str, u64)]) {
    let relations = record["relations"].as_array().unwrap();
    let mut found: Vec<(&str, u64)> = relations
        .iter()
        .map(|relation| {
            (relation["name"]["relation"].as_str().unwrap(), relation["failures"].as_u64().unwrap())
        })
        .collect();
    found.sort_unstable();
    let mut expected: Vec<(&str, u64)> =
        expected.iter().map(|(name, _, failures)| (*name, *failures)).collect();
    expected.sort_unstable();
    assert_eq!(found, expected, "{record:#}");
}

/// The first backups again, with objects that were changed, cut or lost in the store. They are left so.
fn check_store_damage(moto: &MotoServer, store: &Store, orders: &str) {
    let object = |name: &str, file: &str| {
        url(&format!("{BUCKET}/fleet/{name}/base/{}/{file}", ids(store, name)[0]))
    };
    let verified = |name: &str, status: i32| {
        let at = format!("{BUCKET}/fleet/{name}");
        let id = ids(store, name).swap_remove(0);
        moto.run_fleet(&["verify", &at, "--backup", &id, "--json"], status)
    };
    let plain = object("plain", "data.tar");
    let whole = store.read(&plain, 1 << 30).unwrap();
    let mut changed = whole.clone();
    changed[place_of(&whole, orders) + 3 * 8192 + 4000] ^= 1;
    store.put(&plain, &changed).unwrap();
    check_damage(&json(&verified("plain", 1)), &[("orders", "bit", 1)]);
    store.put(&plain, &whole[..whole.len() / 2]).unwrap();
    let cut = json(&verified("plain", 2));
    assert_ne!(cut["outcome"], "sound");
    assert!(cut["unlisted"][0].as_str().unwrap().contains("data.tar: cut short"), "{cut:#}");
    store.put(&plain, &changed).unwrap();

    // Changed bytes of what is compressed may unpack to anything, but to no sound backup.
    let packed = object("packed", "data.tar.gz");
    let mut changed = store.read(&packed, 1 << 30).unwrap();
    let middle = changed.len() / 2;
    changed[middle..middle + 64].fill(0xA5);
    store.put(&packed, &changed).unwrap();
    let ran = moto.run(&["verify", &packed.to_string(), "--json"]);
    assert!(matches!(ran.status, Some(1 | 2)), "{ran:?}");
    assert_ne!(json(&ran)["outcome"], "sound");
    store.put(&packed, &changed[..middle]).unwrap();
    let cut = json(&verified("packed", 2));
    assert!(cut["unlisted"][0].as_str().unwrap().contains("data.tar.gz: "), "{cut:#}");
}

/// Where a file's bytes are in a tar.
fn place_of(tar: &[u8], path: &str) -> usize {
    let mut archive = tar::Archive::new(tar);
    let mut entries = archive.entries().unwrap().map(Result::unwrap);
    let entry = entries.find(|entry| entry.path().unwrap().ends_with(path)).unwrap();
    usize::try_from(entry.raw_file_position()).unwrap()
}

/// All backups by one machine, by shards, and in parts as barman cut them.
fn check_fleet(moto: &MotoServer) {
    let merged = |at: &str| comparable(&moto.run_fleet(&["fleet", "merge", at, "--json"], 1));
    let plan = |at: &str, more: &[&str]| {
        let fleet = format!("{BUCKET}/fleet");
        let words = ["fleet", "plan", &fleet, "--shards", "3", "-o", at];
        moto.run_fleet(&[&words[..], more].concat(), 0).stdout
    };
    let alone = format!("{BUCKET}/alone/plan.json");
    let planned = plan(&alone, &[]);
    assert!(planned.starts_with("6 backups, "), "{planned}");
    moto.run_fleet(&["fleet", "run", &alone, "--all"], 0);
    let expected = merged(&alone);
    let backups = expected["backups"].as_array().unwrap().iter();
    let outcomes: Vec<&str> = backups.map(|backup| backup["outcome"].as_str().unwrap()).collect();
    // Of the first ones one was damaged in the store, and one can no longer be unpacked.
    let words = ["findings", "findings", "findings", "findings", "unverified", "sound"];
    assert_eq!(outcomes, words, "{expected:#}");
    let sharded = format!("{BUCKET}/sharded/plan.json");
    plan(&sharded, &[]);
    for shard in ["0/3", "1/3", "2/3"] {
        moto.run_fleet(&["fleet", "run", &sharded, "--shard", shard], 0);
    }
    assert_eq!(merged(&sharded), expected);
    // What has a result is passed over: the store decided who wrote it.
    let again = moto.run_fleet(&["fleet", "run", &sharded, "--all"], 0);
    assert!(again.stderr.contains("0 verified, 6 had a result"), "{again:?}");

    let parts = format!("{BUCKET}/parts/plan.json");
    let planned = plan(&parts, &["--unit-size", "10MB"]);
    assert!(planned.contains("cut into "), "{planned}");
    moto.run_fleet(&["fleet", "run", &parts, "--all"], 0);
    assert_eq!(found(&merged(&parts)), found(&expected));
}
