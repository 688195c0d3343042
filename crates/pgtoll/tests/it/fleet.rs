//! Backups in stores are verified where they lie, with the findings of the same backup as a directory;
//! and a fleet's answer does not depend on how many shards it was cut into. The server of objects is
//! the tests' own: how a real one behaves is not shown here.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_testing::{ObjectFault, ObjectServer};
use serde_json::Value;

use crate::support::{Ran, Scratch, pgtoll, run, server};

const PAGE: usize = 8192;

/// A plain base backup of a small cluster with checksums, and the file of a table in it.
pub(crate) struct Backups {
    pub(crate) sound: PathBuf,
    pub(crate) damaged: PathBuf,
    table: PathBuf,
}

impl Backups {
    pub(crate) fn make(scratch: &Scratch, guard: &mut Guard) -> Self {
        Self::new(scratch, guard, true)
    }

    fn new(scratch: &Scratch, guard: &mut Guard, has_checksums: bool) -> Self {
        let server = server();
        let cluster = Cluster::init(guard, &server, "fleet", has_checksums).unwrap();
        let settings = [("fsync", "off"), ("wal_level", "replica"), ("max_wal_senders", "4")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        cluster.configure(guard, &settings.into_iter().collect()).unwrap();
        cluster.start(guard).unwrap();
        let mut session = cluster.connect("postgres").unwrap();
        session.execute("CREATE TABLE orders AS SELECT generate_series(1, 3000) AS id").unwrap();
        let sql = "SELECT pg_relation_filepath('orders') AS path";
        let table: PathBuf = session.query_one(sql).unwrap().text("path").unwrap().into();
        let place = cluster.data().parent().unwrap().join("backup");
        let shown = place.display().to_string();
        cluster.run_client(guard, "pg_basebackup", &["-D", &shown, "-c", "fast"]).unwrap();
        drop(session);
        cluster.stop(guard, StopMode::Fast).unwrap();
        let sound = scratch.path("sound");
        let damaged = scratch.path("damaged");
        copy(&place, &sound);
        copy(&place, &damaged);
        let path = damaged.join(&table);
        let mut bytes = fs::read(&path).unwrap();
        bytes[PAGE + 5000] ^= 4;
        fs::write(&path, bytes).unwrap();
        Self { sound, damaged, table }
    }
}

fn copy(from: &Path, to: &Path) {
    for (name, path) in files(from) {
        let target = to.join(name);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(path, target).unwrap();
    }
    // Directories without files.
    for name in ["pg_tblspc", "pg_replslot", "pg_twophase", "pg_commit_ts"] {
        fs::create_dir_all(to.join(name)).unwrap();
    }
}

/// Files below a directory by their names there, the control file last, as in a base backup.
fn files(root: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.push((name, path));
            }
        }
    }
    found.sort_by_key(|(name, _)| (name == "global/pg_control", name.clone()));
    found
}

pub(crate) fn tar(root: &Path) -> Vec<u8> {
    tar_of(root, &|_| true)
}

fn tar_of(root: &Path, is_wanted: &dyn Fn(&str) -> bool) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, path) in files(root).into_iter().filter(|(name, _)| is_wanted(name)) {
        tar.append_file(name, &mut File::open(path).unwrap()).unwrap();
    }
    tar.into_inner().unwrap()
}

pub(crate) fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

pub(crate) fn put_files(server: &ObjectServer, prefix: &str, root: &Path) {
    for (name, path) in files(root) {
        server.put(&format!("{prefix}/{name}"), &fs::read(path).unwrap());
    }
}

pub(crate) fn command(server: &ObjectServer, words: &[&str]) -> Command {
    let mut command = pgtoll();
    command.args(words).env_remove("AWS_PROFILE").envs(server.environment());
    command
}

pub(crate) fn run_fleet(server: &ObjectServer, words: &[&str], status: i32) -> Ran {
    let ran = run(&mut command(server, words));
    assert_eq!(ran.status, Some(status), "{words:?}: {ran:?}");
    ran
}

pub(crate) fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

/// What a record says of the pages, wherever they lie.
fn pages(record: &Value) -> (Vec<Value>, Value, Value) {
    let relations = record["relations"].as_array().unwrap().iter();
    let found = relations.map(|relation| relation["findings"].clone()).collect();
    (found, record["failures"].clone(), record["read"]["blocks"].clone())
}

#[test]
fn stored_backups_have_the_findings_of_the_same_directory() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let server = ObjectServer::start();
    let sound = tar(&backups.sound);
    let damaged = tar(&backups.damaged);
    server.put("b/sound/base.tar.gz", &gzipped(&sound));
    server.put("b/damaged/base.tar.zst", &zstd::encode_all(&damaged[..], 1).unwrap());
    put_files(&server, "b/files/sound", &backups.sound);
    put_files(&server, "b/files/damaged", &backups.damaged);
    for (id, bytes) in [("20261122T020000", &damaged), ("20261123T020000", &sound)] {
        server.put(&format!("b/cnpg/main/base/{id}/backup.info"), b"status=DONE\n");
        server.put(&format!("b/cnpg/main/base/{id}/data.tar"), bytes);
    }

    let is_control = |name: &str| name == "global/pg_control";
    let first = tar_of(&backups.damaged, &|name| !is_control(name));
    let rest = tar_of(&backups.damaged, &is_control);
    server.put("b/w/basebackups_005/base_1_backup_stop_sentinel.json", b"{\"LSN\": 1}");
    server.put("b/w/basebackups_005/base_1/tar_partitions/part_001.tar", &first);
    server.put("b/w/basebackups_005/base_1/tar_partitions/pg_control.tar", &rest);
    server.put("b/d/basebackups_005/base_1_backup_stop_sentinel.json", b"{\"DeltaFrom\": \"x\"}");
    server.put("b/d/basebackups_005/base_1/tar_partitions/pg_control.tar", &rest);
    let delta = run_fleet(&server, &["verify", "s3://b/d"], 2);
    assert!(delta.stderr.contains("a delta of WAL-G"), "{delta:?}");

    let local = |path: &Path, status| {
        let path = path.display().to_string();
        pages(&json(&run_fleet(&server, &["verify", &path, "--json"], status)))
    };
    let sound_pages = local(&backups.sound, 0);
    let damaged_pages = local(&backups.damaged, 1);
    assert_eq!(damaged_pages.0.len(), 1);
    let check = |words: &[&str], is_sound: bool| {
        let words = [&["verify", "--json"], words].concat();
        let record = json(&run_fleet(&server, &words, i32::from(!is_sound)));
        let expected = if is_sound { &sound_pages } else { &damaged_pages };
        assert_eq!(&pages(&record), expected, "{words:?}: {record:#}");
        record
    };
    check(&["s3://b/sound/base.tar.gz"], true);
    check(&["s3://b/sound"], true);
    let record = check(&["s3://b/damaged/base.tar.zst"], false);
    assert_eq!(record["source"]["path"], "s3://b/damaged/base.tar.zst");
    assert_eq!(record["relations"][0]["name"]["relation"], "orders");
    let path = record["relations"][0]["path"].as_str().unwrap();
    assert!(path.ends_with(backups.table.to_str().unwrap()), "{path}");
    check(&["s3://b/w"], false);
    check(&["s3://b/files/sound"], true);
    check(&["s3://b/files/damaged"], false);
    check(&["s3://b/cnpg/main", "--backup", "latest"], true);
    check(&["s3://b/cnpg/main", "--backup", "20261122T020000"], false);

    let several = run_fleet(&server, &["verify", "s3://b/cnpg/main"], 2);
    assert!(several.stderr.contains("2 backups here, such as 20261122T020000"), "{several:?}");
    assert!(several.stderr.contains("hint: name one with --backup latest"), "{several:?}");
    let none = run_fleet(&server, &["verify", "s3://b/nothing"], 2);
    assert!(none.stderr.contains("s3://b/nothing: no backup here"), "{none:?}");
    let wrong = run_fleet(&server, &["verify", "ftp://b/base.tar"], 2);
    assert!(wrong.stderr.contains("is not a URL of s3://"), "{wrong:?}");
    server.fail(ObjectFault::Deny, 100);
    let denied = run_fleet(&server, &["verify", "s3://b/sound/base.tar.gz"], 2);
    assert!(denied.stdout.contains("access denied"), "{denied:?}");
    server.fail(ObjectFault::Cut, 2);
    check(&["s3://b/damaged/base.tar.zst"], false);

    // An archive of barman's on a file system.
    let main = scratch.path("barman/main/base/20261123T020000");
    fs::create_dir_all(&main).unwrap();
    fs::write(main.join("backup.info"), "status=DONE\n").unwrap();
    fs::write(main.join("data.tar"), &damaged).unwrap();
    let directory = scratch.path("barman").display().to_string();
    check(&[&main.display().to_string()], false);
    check(&[&directory, "--backup", "latest"], false);
    check(&[&format!("file://{directory}/main"), "--backup", "latest"], false);
}

#[test]
fn a_tar_is_verified_from_standard_input() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    for (root, status) in [(&backups.sound, 0), (&backups.damaged, 1)] {
        let path = scratch.path("piped.tar.gz");
        fs::write(&path, gzipped(&tar(root))).unwrap();
        let mut command = pgtoll();
        command.args(["verify", "-", "--json"]).stdin(Stdio::from(File::open(&path).unwrap()));
        let ran = run(&mut command);
        assert_eq!(ran.status, Some(status), "{ran:?}");
        assert_eq!(json(&ran)["source"]["path"], "-");
        // Half of it is not sound.
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let mut command = pgtoll();
        command.args(["verify", "-"]).stdin(Stdio::from(File::open(&path).unwrap()));
        let ran = run(&mut command);
        assert_ne!(ran.status, Some(0), "{ran:?}");
    }
}

fn merged(server: &ObjectServer, plan: &str, status: i32) -> Value {
    comparable(&run_fleet(server, &["fleet", "merge", plan, "--json"], status))
}

/// A merged record without what names the plan and the time.
pub(crate) fn comparable(merged: &Ran) -> Value {
    let mut record = json(merged);
    for key in ["command", "made", "plan"] {
        record.as_object_mut().unwrap().remove(key);
    }
    for backup in record["backups"].as_array_mut().unwrap() {
        backup.as_object_mut().unwrap().remove("verified");
    }
    record
}

#[test]
fn a_fleets_answer_does_not_depend_on_the_number_of_shards() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let server = ObjectServer::start();
    let sound = tar(&backups.sound);
    let damaged = tar(&backups.damaged);
    for (cluster, bytes) in [("eu", &sound), ("us", &damaged)] {
        let prefix = format!("b/{cluster}/base/20261123T020000");
        server.put(&format!("{prefix}/backup.info"), b"status=DONE\n");
        server.put(&format!("{prefix}/data.tar"), bytes);
    }
    put_files(&server, "b/plain/monday", &backups.sound);
    server.put("b/tars/base.tar.gz", &gzipped(&sound[..sound.len() / 2]));
    server.put("b/secret/base.tar.gpg", b"?");
    server.put("b/rest/backup/main/20261123-020000F/backup.manifest", b"[backup]");

    let plan = ["fleet", "plan", "s3://b", "--shards", "2", "-o", "s3://ops/w/plan.json"];
    let planned = run_fleet(&server, &plan, 0).stdout;
    assert!(planned.starts_with("4 backups, "), "{planned}");
    assert!(planned.contains("2 backups cannot be read"), "{planned}");
    // The same plan again is no mistake; another one is.
    run_fleet(&server, &plan, 0);
    let other = ["fleet", "plan", "s3://b/eu", "-o", "s3://ops/w/plan.json"];
    let refused = run_fleet(&server, &other, 2);
    assert!(refused.stderr.contains("exists, and is another plan"), "{refused:?}");
    run_fleet(&server, &[&other[..], &["--replace"]].concat(), 0);
    run_fleet(&server, &[&plan[..], &["--replace"]].concat(), 0);

    let nothing = merged(&server, "s3://ops/w/", 2);
    assert_eq!((&nothing["unverified"], &nothing["refused"]), (&4.into(), &2.into()));
    let first = run_fleet(&server, &["fleet", "run", "s3://ops/w/", "--all"], 0);
    assert!(first.stderr.contains("4 verified, 0 had a result"), "{first:?}");
    let expected = merged(&server, "s3://ops/w/", 1);
    assert_eq!(expected["sound"], 2, "{expected:#}");
    assert_eq!(expected["backups"][0]["failures"], 1, "{expected:#}");
    let outcomes: Vec<&Value> =
        expected["backups"].as_array().unwrap().iter().map(|array| &array["outcome"]).collect();
    let words = ["findings", "unverified", "refused", "refused", "sound", "sound"];
    assert_eq!(outcomes, words);
    let again = run_fleet(&server, &["fleet", "run", "s3://ops/w/", "--all"], 0);
    assert!(again.stderr.contains("0 verified, 4 had a result"), "{again:?}");

    for shards in [1, 2, 7, 28] {
        let at = format!("s3://ops/{shards}/plan.json");
        let count = shards.to_string();
        run_fleet(&server, &["fleet", "plan", "s3://b", "--shards", &count, "-o", &at], 0);
        for shard in 0..shards {
            let mut command = command(&server, &["fleet", "run", &at]);
            let ran = run(command.env("JOB_COMPLETION_INDEX", shard.to_string()));
            assert_eq!(ran.status, Some(0), "{ran:?}");
        }
        assert_eq!(merged(&server, &at, 1), expected, "{shards}");
        let table = run_fleet(&server, &["fleet", "merge", &at], 1).stdout;
        assert!(table.starts_with("2 of 6 backups sound"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let metrics =
            run_fleet(&server, &["fleet", "merge", &at, "--format", "openmetrics"], 1).stdout;
        assert!(metrics.contains("pgtoll_fleet_backups{outcome=\"sound\"} 2\n"), "{metrics}");
    }
}

#[test]
fn a_plans_core_hours_are_of_the_record_that_it_names() {
    let scratch = Scratch::new();
    let server = ObjectServer::start();
    for name in ["base.tar", "16385.tar.gz"] {
        server.put(&format!("b/monday/{name}"), &vec![0; 1_000_000]);
    }
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let own = fs::read_to_string(record.join("2026-11-26-bench-fleet.jsonl")).unwrap()
        + &fs::read_to_string(record.join("2026-11-26-bench-fleet-objects.jsonl")).unwrap();
    let plan = ["fleet", "plan", "s3://b"];
    let hours = |words: &[&str]| {
        let estimate =
            json(&run_fleet(&server, &[&plan[..], words, &["--json"]].concat(), 0))["estimate"]
                .clone();
        let range = &estimate["core_hours_range"];
        let values = [&range["lowest"], &estimate["core_hours"], &range["highest"]];
        values.map(|value| value.as_f64().unwrap())
    };
    let built_in = hours(&[]);
    assert!(built_in.is_sorted() && built_in[0] > 0.0, "{built_in:?}");
    let table = run_fleet(&server, &plan, 0).stdout;
    let source = "records/2026-11-26-bench-fleet.jsonl (AMD EPYC, 2 CPUs): cargo xtask bench";
    assert!(table.contains(source), "{table}");

    // A machine on which reading gzip takes eighteen times as long: its bytes are fewer.
    let slower = own.replace("\"packing\":\"gzip\",\"bytes\":3", "\"packing\":\"gzip\",\"bytes\":");
    assert_ne!(slower, own);
    let path = scratch.path("slower.jsonl").display().to_string();
    fs::write(&path, &slower).unwrap();
    let other = hours(&["--cpu-record", &path]);
    assert!(other[0] > built_in[2], "{other:?} {built_in:?}");
    let plan_of =
        json(&run_fleet(&server, &[&plan[..], &["--cpu-record", &path, "--json"]].concat(), 0));
    assert_eq!(plan_of["cpu_times"]["sources"][0]["record"], *path);
    let command = plan_of["command"].as_array().unwrap();
    assert_eq!(command.last().unwrap(), path.as_str(), "{command:?}");

    // The same units by other times are another plan only where it is to be replaced.
    let at = scratch.path("plan.json").display().to_string();
    let written = |words: &[&str]| {
        run_fleet(&server, &[&plan[..], &["-o", &at], words].concat(), 0);
        let plan: Value = serde_json::from_slice(&fs::read(&at).unwrap()).unwrap();
        plan["estimate"]["core_hours"].as_f64().unwrap()
    };
    let [_, first, _] = built_in;
    let close = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9;
    assert!(close(written(&[]), first));
    assert!(close(written(&["--cpu-record", &path]), first));
    assert!(close(written(&["--cpu-record", &path, "--replace"]), other[1]));

    fs::write(&path, own.lines().next().unwrap()).unwrap();
    let ran = run_fleet(&server, &[&plan[..], &["--cpu-record", &path]].concat(), 2);
    let expected = format!("pgtoll: {path} has no readings of backups that are not packed\nhint: ");
    assert!(ran.stderr.contains(&expected), "{ran:?}");
}

/// The same backup in each layout whose backups are cut, a part of its files an object.
fn put_in_parts(server: &ObjectServer, name: &str, root: &Path) {
    put_files(server, &format!("b/{name}/files"), root);
    let is_last = |path: &str| path == "global/pg_control" || path == "backup_label";
    let is_first = |path: &str| path.ends_with(['1', '3', '5', '7', '9']);
    let first = tar_of(root, &|path| !is_last(path) && is_first(path));
    let second = tar_of(root, &|path| !is_last(path) && !is_first(path));
    let prefix = format!("b/{name}/barman/base/20261123T020000");
    server.put(&format!("{prefix}/backup.info"), b"status=DONE\n");
    server.put(&format!("{prefix}/data.tar"), &first);
    server.put(&format!("{prefix}/data_0001.tar.gz"), &gzipped(&second));
    server.put(&format!("{prefix}/data_0002.tar"), &tar_of(root, &is_last));
    let prefix = format!("b/{name}/w/basebackups_005/base_1");
    server.put(&format!("{prefix}_backup_stop_sentinel.json"), b"{\"LSN\": 1}");
    for (part, bytes) in [("part_001", &first), ("part_002", &second)] {
        server.put(&format!("{prefix}/tar_partitions/{part}.tar"), bytes);
    }
    for (part, file) in [("pg_control", "global/pg_control"), ("backup_label", "backup_label")] {
        let tar = tar_of(root, &|path| path == file);
        server.put(&format!("{prefix}/tar_partitions/{part}.tar"), &tar);
    }
}

/// What was found in each backup, without the words for it.
pub(crate) fn found(merged: &Value) -> Vec<Vec<Value>> {
    let keys = ["url", "outcome", "bytes", "failures", "suspicions", "unverified", "wrong_files"];
    let backups = merged["backups"].as_array().unwrap().iter();
    backups.map(|backup| keys.map(|key| backup[key].clone()).into()).collect()
}

#[test]
fn backups_in_parts_have_the_answer_of_whole_ones() {
    let scratch = Scratch::new();
    let other = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    // A part has no control file, and its pages look wrong until the one that has it was asked.
    let plain = Backups::new(&other, &mut other.guard(), false);
    let server = ObjectServer::start();
    put_in_parts(&server, "sound", &backups.sound);
    put_in_parts(&server, "damaged", &backups.damaged);
    put_in_parts(&server, "plain", &plain.sound);
    let plan = ["fleet", "plan", "s3://b", "--shards", "7", "-o"];
    run_fleet(&server, &[&plan[..], &["s3://ops/whole/"]].concat(), 0);
    let cut = [&plan[..], &["s3://ops/parts/", "--unit-size", "2MB"]].concat();
    let planned = run_fleet(&server, &cut, 0).stdout;
    assert!(planned.starts_with("9 backups, "), "{planned}");
    assert!(planned.contains("9 cut into "), "{planned}");
    run_fleet(&server, &["fleet", "run", "s3://ops/whole/", "--all"], 0);
    let whole = merged(&server, "s3://ops/whole/", 1);
    assert_eq!((&whole["sound"], &whole["findings"]), (&6.into(), &3.into()), "{whole:#}");
    for shard in 0..7 {
        run_fleet(
            &server,
            &["fleet", "run", "s3://ops/parts/", "--shard", &format!("{shard}/7")],
            0,
        );
    }
    let parts = merged(&server, "s3://ops/parts/", 1);
    assert_eq!(found(&parts), found(&whole), "{parts:#}");
    for backup in parts["backups"].as_array().unwrap().iter().take(3) {
        let reason = backup["reasons"][0].as_str().unwrap();
        assert!(reason.starts_with("part ") && reason.contains("blocks 1: "), "{reason}");
        let is_named = reason.contains("postgres.public.orders");
        assert!(is_named || !backup["url"].as_str().unwrap().ends_with("files"), "{reason}");
    }

    // A part without a result, and one that has the control file and is damaged in the store.
    let planned = server.object("ops/parts/plan.json").unwrap();
    let planned: Value = serde_json::from_slice(&planned).unwrap();
    let is_of = |unit: &&Value, name: &str| unit["url"].as_str().unwrap().contains(name);
    let mut units = planned["units"].as_array().unwrap().iter();
    let unit = units.find(|unit| is_of(unit, "/sound/w/")).unwrap();
    server.remove(&format!("ops/parts/units/{}.json", unit["id"].as_str().unwrap()));
    let missed = merged(&server, "s3://ops/parts/", 1);
    let mut backups = missed["backups"].as_array().unwrap().iter();
    let backup = backups.find(|backup| is_of(backup, "/sound/w/")).unwrap();
    assert_eq!(backup["outcome"], "missing", "{backup:#}");
    let reason = backup["reasons"][0].as_str().unwrap();
    assert!(reason.starts_with("1 of ") && reason.ends_with("parts have no result"), "{reason}");
}

#[test]
fn a_shard_that_cannot_read_says_so_and_goes_on_when_it_is_run_again() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let server = ObjectServer::start();
    server.put("b/a/base.tar", &tar(&backups.sound));
    let plan = scratch.path("plan.json").display().to_string();
    run_fleet(&server, &["fleet", "plan", "s3://b", "-o", &plan], 0);
    let lost = run_fleet(&server, &["fleet", "run", &plan], 2);
    assert!(lost.stderr.contains("which shard is to run?"), "{lost:?}");
    server.fail(ObjectFault::Deny, 100);
    let denied = run_fleet(&server, &["fleet", "run", &plan, "--shard", "0/1"], 2);
    assert!(denied.stderr.contains("s3://b/a: not verified"), "{denied:?}");
    server.fail(ObjectFault::Deny, 0);
    let table = run_fleet(&server, &["fleet", "merge", &plan], 2).stdout;
    assert!(table.contains("s3://b/a: no result yet"), "{table}");
    assert!(table.contains("access denied"), "{table}");
    // Another version of the object is not what was planned.
    server.put("b/a/base.tar", &tar(&backups.damaged));
    let replaced = run_fleet(&server, &["fleet", "run", &plan, "--all"], 2);
    assert!(replaced.stderr.contains("replaced or changed"), "{replaced:?}");
    let planned = scratch.path("again.json").display().to_string();
    run_fleet(&server, &["fleet", "plan", "s3://b", "-o", &planned], 0);
    run_fleet(&server, &["fleet", "run", &planned, "--all"], 0);
    run_fleet(&server, &["fleet", "merge", &planned], 1);
    let shown = run_fleet(&server, &["report", &planned], 0).stdout;
    assert!(shown.starts_with("1 backup, "), "{shown}");
    // A result that was cut short makes that backup unverified.
    let results = fs::read_dir(scratch.path("units")).unwrap().map(|entry| entry.unwrap().path());
    let result =
        results.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    result.for_each(|path| fs::write(path, b"{").unwrap());
    let table = run_fleet(&server, &["fleet", "merge", &planned], 2).stdout;
    assert!(table.contains("is not a result of pgtoll"), "{table}");
}
