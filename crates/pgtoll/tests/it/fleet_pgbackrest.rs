//! Repositories that the real pgBackRest makes, packed in each way, are verified where they lie: pages
//! that were damaged before the backup, and objects that were damaged in the store.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_testing::ObjectServer;
use serde_json::Value;

use crate::fleet::{json, put_files, run_fleet};
use crate::support::{Scratch, server};
use crate::verify::execute;

pub(crate) const PROGRAM: &str = "/usr/bin/pgbackrest";

/// `cargo xtask test` installs it.
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
pub(crate) fn is_there() -> bool {
    let is_there = Path::new(PROGRAM).exists();
    let is_set_up = std::env::var_os("PGTOLL_TEST_MAJORS").is_some();
    assert!(is_there || !is_set_up, "pgbackrest is not installed");
    if !is_there {
        eprintln!("not tested: pgbackrest is not installed");
    }
    is_there
}

/// A cluster that is stopped, with a table in a tablespace.
pub(crate) struct Source {
    pub(crate) cluster: Cluster,
    table: PathBuf,
}

impl Source {
    pub(crate) fn make(guard: &mut Guard, scratch: &Scratch) -> Self {
        let cluster = Cluster::init(guard, &server(), "source", true).unwrap();
        cluster.start(guard).unwrap();
        let place = scratch.work().join("space");
        fs::create_dir(&place).unwrap();
        let user = fs::metadata(cluster.data()).unwrap();
        chown(&place, Some(user.uid()), None).unwrap();
        execute(
            &cluster,
            &[
                &format!("CREATE TABLESPACE space LOCATION '{}'", place.display()),
                "CREATE TABLE orders TABLESPACE space AS SELECT generate_series(1, 3000) AS id",
                "CREATE TABLE large AS SELECT repeat(md5(i::text), 20) FROM generate_series(1, 9000) i",
            ],
        );
        let table = crate::verify::path_of(&cluster, "orders");
        cluster.stop(guard, StopMode::Fast).unwrap();
        Self { cluster, table }
    }

    /// Backs up, with these settings of pgBackRest.
    fn back_up(&self, guard: &mut Guard, repository: &Path, settings: &[&str], kind: &str) {
        let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let lock = repository.with_extension("lock");
        let common = [path("repo1-path", repository), path("lock-path", &lock)];
        let common: Vec<&str> = common.iter().map(String::as_str).collect();
        if !repository.join("backup").exists() {
            self.run(guard, &[&common[..], &["stanza-create"]].concat());
        }
        let options = ["--repo1-retention-full=9", kind, "backup"];
        self.run(guard, &[&common[..], settings, &options].concat());
    }

    /// Runs pgBackRest with these options and this command, as the cluster's user.
    pub(crate) fn run(&self, guard: &mut Guard, words: &[&str]) {
        let data = format!("--pg1-path={}", self.cluster.data().display());
        let common = ["--stanza=main", "--log-level-file=off", "--no-online", &data];
        guard.run(Path::new(PROGRAM), &[&common[..], words].concat()).unwrap();
    }

    /// Changes bytes of the table's second page. pgBackRest looks at a file again if its time in whole seconds is
    /// another one; this is of no second in which a backup was made.
    pub(crate) fn damage(&self) {
        let file = OpenOptions::new().write(true).open(self.cluster.data().join(&self.table));
        let file = file.unwrap();
        file.write_all_at(&[0x5A; 64], 8192 + 4096).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }
}

/// Labels of the repository's backups, the oldest first.
fn labels(repository: &Path) -> Vec<String> {
    let names = fs::read_dir(repository.join("backup/main")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut labels: Vec<String> = names.filter(|name| name.starts_with("20")).collect();
    labels.sort();
    labels
}

const WAYS: [&[&str]; 4] = [
    &["--compress-type=zst", "--repo1-bundle"],
    &["--compress-type=gz"],
    &["--compress-type=lz4", "--repo1-bundle"],
    &["--compress-type=none", "--repo1-bundle"],
];

#[test]
fn pgbackrests_backups_are_verified_where_they_lie() {
    if !is_there() {
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let source = Source::make(&mut guard, &scratch);
    let server = ObjectServer::start();
    let repositories: Vec<(String, PathBuf)> = (0..WAYS.len())
        .map(|at| (format!("r{at}"), source.cluster.data().with_file_name(format!("repo{at}"))))
        .collect();
    for ((_, repository), settings) in repositories.iter().zip(WAYS) {
        source.back_up(&mut guard, repository, settings, "--type=full");
    }
    source.damage();
    for ((name, repository), settings) in repositories.iter().zip(WAYS) {
        source.back_up(&mut guard, repository, settings, "--type=incr");
        put_files(&server, &format!("b/{name}"), repository);
    }
    for (name, repository) in &repositories {
        let url = format!("s3://b/{name}");
        let labels = labels(repository);
        let [full, incremental] = &*labels else { panic!("{labels:?}") };
        let sound = json(&run_fleet(&server, &["verify", &url, "--backup", full, "--json"], 0));
        let blocks = sound["read"]["blocks"].as_u64().unwrap();
        assert!(blocks > 2000, "{sound:#}");
        for id in ["latest", incremental] {
            let words = ["verify", &url, "--backup", id, "--json"];
            check_damaged(&json(&run_fleet(&server, &words, 1)), blocks);
        }
    }
    let plan = ["fleet", "plan", "s3://b", "--shards", "3", "-o", "s3://ops/"];
    let planned = run_fleet(&server, &plan, 0).stdout;
    assert!(planned.contains("8 of pgBackRest"), "{planned}");
    run_fleet(&server, &["fleet", "run", "s3://ops/", "--all"], 0);
    let merged = run_fleet(&server, &["fleet", "merge", "s3://ops/"], 1).stdout;
    assert!(merged.starts_with("4 of 8 backups sound"), "{merged}");
    check_store_damage(&server, &repositories[0]);
}

pub(crate) fn check_damaged(record: &Value, blocks: u64) {
    assert_eq!(record["failures"], 1, "{record:#}");
    // The file is as it was backed up: the database had the damage.
    assert_eq!(record["wrong_files"], 0, "{record:#}");
    assert_eq!(record["read"]["blocks"].as_u64(), Some(blocks), "{record:#}");
    let relation = &record["relations"][0];
    assert_eq!(relation["name"]["relation"], "orders", "{record:#}");
    assert_eq!(relation["findings"][0]["block"], 1, "{record:#}");
}

/// Bytes of an object that is compressed, whatever they unpack to: the files that they are of are named.
fn check_store_damage(server: &ObjectServer, (name, repository): &(String, PathBuf)) {
    let full = &labels(repository)[0];
    let key = format!("b/{name}/backup/main/{full}/bundle/1");
    let whole = server.object(&key).unwrap();
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xA5);
    server.put(&key, &bytes);
    let url = format!("s3://b/{name}");
    let record = json(&run_fleet(server, &["verify", &url, "--backup", full, "--json"], 1));
    let files = record["files"].as_array().unwrap();
    assert!(!files.is_empty() && files.iter().all(|file| file["kind"] == "checksum"), "{record:#}");
    let notes = record["notes"].to_string();
    assert!(notes.contains("were damaged in the repository"), "{record:#}");
    // One that is not there, or is cut, is named before anything is read.
    server.put(&key, &whole[..middle]);
    let cut = run_fleet(server, &["verify", &url, "--backup", full], 2);
    assert!(cut.stderr.contains("bundle/1 is shorter than"), "{cut:?}");
    server.remove(&key);
    let lost = run_fleet(server, &["verify", &url, "--backup", full], 2);
    assert!(lost.stderr.contains("bundle/1 is not there"), "{lost:?}");
}
