//! What pgtoll says of base backups in tars, and of incremental ones, is what it says of the same
//! backup as a directory; and what recovery replaces is no damage.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_datadir::DataDirectory;
use pgtoll_format::{IncrementalHeader, facts_of_major};
use pgtoll_record::FindingClass;
use pgtoll_testing::ObjectServer;
use pgtoll_verify::{
    BackupWal, BlockFinding, TarBackup, Verified, VerifySettings, WalAtHand, verify, verify_tars,
};
use serde_json::Value;

use crate::fleet;
use crate::support::{Ran, Scratch, flip, pgtoll, program, run, server, servers, set_mode};

const PAGE: u64 = 8192;

fn cluster(guard: &mut Guard, server: &Installation, name: &str, more: &[(&str, &str)]) -> Cluster {
    let name = format!("{name}{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, true).unwrap();
    let settings = [
        ("autovacuum", "off"),
        ("fsync", "off"),
        ("shared_buffers", "16MB"),
        ("wal_level", "replica"),
        ("max_wal_senders", "4"),
    ];
    let settings = settings.iter().chain(more);
    let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    cluster.configure(guard, &settings.collect()).unwrap();
    cluster.start(guard).unwrap();
    cluster
}

fn execute(cluster: &Cluster, statements: &[&str]) {
    let mut session = cluster.connect("postgres").unwrap();
    for sql in statements.iter().flat_map(|sql| sql.split(';')) {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

fn path_of(cluster: &Cluster, relation: &str) -> PathBuf {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = format!("SELECT pg_relation_filepath('{relation}') AS path");
    session.query_one(&sql).unwrap().text("path").unwrap().into()
}

/// A base backup below the servers' own directory.
fn backup(
    guard: &mut Guard,
    cluster: &Cluster,
    name: &str,
    arguments: &[&str],
) -> Result<PathBuf, String> {
    let place = cluster.data().parent().unwrap().join(name);
    let shown = place.display().to_string();
    let all = [&["-D", &shown, "-c", "fast", "--no-sync"], arguments].concat();
    let ran = cluster.run_client(guard, "pg_basebackup", &all);
    ran.map(|_| place).map_err(|error| error.to_string())
}

fn settings() -> VerifySettings {
    VerifySettings { jobs: 2.try_into().unwrap(), rate: None, only_below: Vec::new(), rows: true }
}

fn of_directory(path: &Path) -> (Verified, WalAtHand) {
    let data = DataDirectory::open(path).unwrap();
    let mut found = verify(&data, &settings(), &|_| true, &mut |_| ControlFlow::Continue(()));
    let wal = found.settle(&BackupWal::of_directory(&data).unwrap(), 2);
    (found, wal)
}

fn of_tars(path: &Path) -> (Verified, WalAtHand) {
    let backup = TarBackup::at(path).unwrap().unwrap();
    let found = verify_tars(&backup, &settings(), &|_| true, &mut |_| ControlFlow::Continue(()));
    let mut found = found.unwrap();
    let wal = BackupWal::of_tars(&backup, &found).unwrap();
    let wal = found.verified.settle(&wal, 2);
    (found.verified, wal)
}

/// The program's status, and what it says as JSON; as a table it fits a terminal.
fn run_verify(path: &Path, arguments: &[&str], status: i32) -> Value {
    let ran = run(pgtoll().arg("verify").arg(path).arg("--json").args(arguments));
    assert_eq!(ran.status, Some(status), "{ran:?}");
    let table = run(pgtoll().arg("verify").arg(path).args(arguments));
    assert_eq!(table.status, Some(status), "{table:?}");
    let shown = path.display().to_string();
    let too_long = |line: &&str| line.chars().count() > 80 && !line.contains(&shown);
    assert_eq!(table.stdout.lines().find(too_long), None, "{table:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// A table, and what is done to a page of it.
type Damage = (&'static str, fn(&mut [u8]));

/// Half of them are in a tablespace.
const DAMAGED: [Damage; 6] = [
    ("bit", |page| page[5000] ^= 4),
    ("garbage", |page| {
        for (at, byte) in page.iter_mut().enumerate() {
            *byte = u8::try_from((at * 131 + at / 7 * 29) % 251).unwrap();
        }
    }),
    ("ones", |page| page.fill(0xFF)),
    ("upper", |page| page[14..16].fill(0)),
    ("sector", |page| page[..4096].fill(0)),
    ("other", |page| page[8100..].rotate_left(1)),
];

fn change(path: &Path, block: u64, change: impl FnOnce(&mut [u8])) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut page = [0; 8192];
    file.read_exact_at(&mut page, block * PAGE).unwrap();
    change(&mut page);
    file.write_all_at(&page, block * PAGE).unwrap();
}

#[test]
fn tars_are_judged_as_directories_are() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        check_tars(&server, &mut guard);
    }
}

fn check_tars(server: &Installation, guard: &mut Guard) {
    let cluster = cluster(guard, server, "tars", &[]);
    let place = cluster.data().parent().unwrap().join("space");
    let make = format!("COPY (SELECT 1 WHERE false) TO PROGRAM 'mkdir {}'", place.display());
    execute(&cluster, &[&make]);
    execute(&cluster, &[&format!("CREATE TABLESPACE space LOCATION '{}'", place.display())]);
    let mut paths = Vec::new();
    for (number, (table, _)) in DAMAGED.iter().enumerate() {
        let space = if number % 2 == 0 { "TABLESPACE space" } else { "" };
        let sql = format!(
            "CREATE TABLE \"{table}\" {space} AS
             SELECT i, repeat('x', 100) b FROM generate_series(1, 5000) i"
        );
        execute(&cluster, &[&sql]);
        paths.push(cluster.data().join(path_of(&cluster, &format!("\"{table}\""))));
    }
    execute(&cluster, &["CREATE TABLE cut AS SELECT generate_series(1, 5000) i"]);
    let cut = cluster.data().join(path_of(&cluster, "cut"));
    let clean = backup(guard, &cluster, "clean", &["-Ft"]).unwrap();
    let sound = run_verify(&clean, &[], 0);
    assert_eq!(
        (&sound["source"]["form"], &sound["source"]["backup"]),
        (&"tar".into(), &true.into())
    );
    assert_eq!(sound["source"]["major"], server.version.major());
    check_parts(&clean);

    cluster.stop(guard, StopMode::Fast).unwrap();
    for ((_, apply), path) in DAMAGED.iter().zip(&paths) {
        change(path, 7, apply);
    }
    File::options().write(true).open(&cut).unwrap().set_len(20 * PAGE + 100).unwrap();
    cluster.start(guard).unwrap();
    let mapping = format!("{}={}", place.display(), place.with_file_name("mapped").display());
    let plain = ["-Fp", "--no-verify-checksums", "-T", &mapping];
    let plain = backup(guard, &cluster, "directory", &plain).unwrap();
    let (expected, wal) = of_directory(&plain);
    assert_eq!(wal, WalAtHand::Whole);
    let failures =
        expected.findings.iter().filter(|finding| finding.defect.class() == FindingClass::Failure);
    assert!(failures.clone().all(|finding| finding.block == 7), "{:?}", expected.findings);
    assert_eq!(failures.count(), DAMAGED.len());
    assert_eq!(expected.findings.len(), DAMAGED.len() + 1, "and what was cut");
    for (packing, ending) in [("none", ""), ("gzip", ".gz"), ("lz4", ".lz4"), ("zstd", ".zst")] {
        check_packing(guard, &cluster, packing, ending, &expected);
    }
    cluster.stop(guard, StopMode::Immediate).unwrap();
    cluster.remove(guard).unwrap();
}

fn check_packing(
    guard: &mut Guard,
    cluster: &Cluster,
    packing: &str,
    ending: &str,
    expected: &Verified,
) {
    let compress = format!("--compress={packing}");
    let arguments = ["-Ft", "--no-verify-checksums", &compress];
    let made = backup(guard, cluster, packing, &arguments);
    let made = made.or_else(|error| {
        // Not every build can pack: then we do.
        assert!(error.contains("this build does not support"), "{error}");
        let place = backup(guard, cluster, &format!("{packing}-own"), &arguments[..2])?;
        pack(&place, ending);
        Ok::<_, String>(place)
    });
    let place = made.unwrap();
    assert!(place.join(format!("base.tar{ending}")).is_file());
    let (found, wal) = of_tars(&place);
    assert_eq!(wal, WalAtHand::Whole, "{packing}");
    assert_eq!(found.findings, expected.findings, "{packing}");
    assert_eq!(found.counts, expected.counts, "{packing}");
    let message = run_verify(&place, &[], 1);
    let form = if packing == "none" { "tar".to_owned() } else { format!("tar, {packing}") };
    assert_eq!(message["source"]["form"], form);
    let name_of = |relation: &Value| relation["name"]["relation"].as_str().unwrap().to_owned();
    let names: BTreeSet<String> =
        message["relations"].as_array().unwrap().iter().map(name_of).collect();
    let tables = DAMAGED.iter().map(|(table, _)| *table).chain(["cut"]);
    assert_eq!(names, tables.map(str::to_owned).collect());
    let only = run_verify(&place, &["--only", "public.bit"], 1);
    assert_eq!(only["failures"], 1);
}

/// Packs each tar of a backup, as the server's programs would.
fn pack(place: &Path, ending: &str) {
    for entry in fs::read_dir(place).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "tar") {
            continue;
        }
        let mut plain = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut plain).unwrap();
        let packed = match ending {
            ".lz4" => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(&plain).unwrap();
                encoder.finish().unwrap()
            }
            ".zst" => zstd::encode_all(plain.as_slice(), 1).unwrap(),
            other => panic!("{other}"),
        };
        fs::write(format!("{}{ending}", path.display()), packed).unwrap();
        fs::remove_file(path).unwrap();
    }
}

/// A tar by itself; and a tablespace's, which has no control file.
fn check_parts(clean: &Path) {
    let base = run_verify(&clean.join("base.tar"), &[], 0);
    assert!(base["read"]["blocks"].as_u64().unwrap() > 500, "{base}");
    let entries = fs::read_dir(clean).unwrap().flatten().map(|entry| entry.path());
    let is_space = |path: &PathBuf| {
        path.file_stem().unwrap().to_str().unwrap().bytes().all(|byte| byte.is_ascii_digit())
    };
    let space = entries.into_iter().find(is_space).unwrap();
    let space = run_verify(&space, &[], 0);
    assert!(
        space["notes"][0].as_str().unwrap().starts_with("no control file was found"),
        "{space}"
    );
    assert!(space["read"]["blocks"].as_u64().unwrap() > 100, "{space}");
}

#[test]
fn a_backup_under_load_is_sound() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = cluster(&mut guard, &server, "load", &[("shared_buffers", "1MB")]);
        cluster.run_client(&mut guard, "pgbench", &["-i", "-q", "-s", "3", "postgres"]).unwrap();
        let mut load = program(server.bin.join("pgbench"));
        load.envs(cluster.environment()).args(["-n", "-c", "4", "-T", "100", "postgres"]);
        let mut load = load.stdout(std::process::Stdio::null()).spawn().unwrap();
        let tars = backup(&mut guard, &cluster, "tars", &["-Ft"]).unwrap();
        let plain = backup(&mut guard, &cluster, "plain", &["-Fp"]).unwrap();
        load.kill().unwrap();
        load.wait().unwrap();
        for place in [&tars, &plain] {
            let message = run_verify(place, &[], 0);
            assert_eq!(message["outcome"], "sound", "{message}");
        }
        assert_ne!(of_tars(&tars).1, WalAtHand::Missing);
        cluster.stop(&mut guard, StopMode::Immediate).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn incremental_backups_are_verified() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers().into_iter().filter(|server| server.version.major() >= 17) {
        check_incremental(&server, &mut guard);
    }
}

fn check_incremental(server: &Installation, guard: &mut Guard) {
    let cluster = cluster(guard, server, "incremental", &[("summarize_wal", "on")]);
    execute(
        &cluster,
        &["CREATE TABLE t AS SELECT i, repeat('x', 100) b FROM generate_series(1, 50000) i"],
    );
    // What a first look leaves on each page would be new to the second backup.
    execute(&cluster, &["VACUUM (FREEZE) t"]);
    let full = backup(guard, &cluster, "full", &["-Fp"]).unwrap();
    execute(&cluster, &["UPDATE t SET b = 'y' WHERE i % 10000 = 5"]);
    let manifest = format!("--incremental={}", full.join("backup_manifest").display());
    let plain = backup(guard, &cluster, "plain", &["-Fp", &manifest]).unwrap();
    let tars = backup(guard, &cluster, "tars", &["-Ft", &manifest]).unwrap();
    let file = path_of(&cluster, "t");
    let name = format!("INCREMENTAL.{}", file.file_name().unwrap().to_str().unwrap());
    let within = file.with_file_name(&name);
    let path = plain.join(&within);
    let begin = fs::read(&path).unwrap();
    let header = IncrementalHeader::read(&begin, 131_072).unwrap();
    let numbers = header.numbers(&begin[IncrementalHeader::BYTES..], 131_072).unwrap();
    assert!(numbers.len() > 3 && numbers[2] > 2, "{numbers:?}");
    assert_eq!(header.file_bytes(8192), begin.len() as u64);
    let data = header.header_bytes(8192);

    for (place, at) in [(&plain, 0), (&tars, offset(&tars.join("base.tar"), &within))] {
        let notice = run_verify(place, &[], 0);
        assert!(notice["read"]["incremental_files"].as_u64().unwrap() > 10, "{notice}");
        let damaged = if *place == plain { path.clone() } else { tars.join("base.tar") };
        let bit = at + data + 2 * PAGE + 5000;
        flip(&damaged, bit);
        let report = run_verify(place, &[], 1);
        assert_eq!(report["failures"], 1, "{report}");
        let finding = &report["relations"][0]["findings"][0];
        assert_eq!((&finding["block"], &finding["kind"]), (&numbers[2].into(), &"checksum".into()));
        flip(&damaged, bit);
        // The first byte is of what it begins with, the next ones of its numbers.
        for byte in [0, 4, 5, 14] {
            flip(&damaged, at + byte);
            let message = run_verify(place, &[], 1);
            let finding = &message["relations"][0]["findings"][0];
            assert_eq!(finding["kind"], "damaged_incremental", "{byte}: {message}");
            flip(&damaged, at + byte);
        }
        run_verify(place, &[], 0);
    }
    check_combined(server, guard, &full, &plain, &path);
    cluster.stop(guard, StopMode::Immediate).unwrap();
    cluster.remove(guard).unwrap();
}

/// What we call damaged PostgreSQL refuses, and what it combines is sound.
fn check_combined(
    server: &Installation,
    guard: &mut Guard,
    full: &Path,
    plain: &Path,
    path: &Path,
) {
    let to = plain.with_file_name("combined");
    let combine = |guard: &mut Guard| {
        let [full, plain, to] = [full, plain, &to].map(|path| path.display().to_string());
        let arguments = [&*full, &plain, "-o", &to, "--no-sync"];
        guard.run(&server.bin.join("pg_combinebackup"), &arguments)
    };
    flip(path, 0);
    assert!(combine(guard).is_err());
    flip(path, 0);
    combine(guard).unwrap();
    if summaries_name_maps(server) {
        run_verify(&to, &[], 0);
        return;
    }
    // The map is that of the full backup: pg_combinebackup was not told that bits were cleared.
    let message = run_verify(&to, &[], 1);
    assert_eq!((&message["failures"], &message["suspicions"]), (&0.into(), &5.into()), "{message}");
    let findings = message["relations"][0]["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["kind"] == "map_stale"), "{message}");
}

/// Whether changes that clear bits of a visibility map name it in the WAL, as they do since the same minor
/// releases that refuse a damaged map.
pub(crate) fn summaries_name_maps(server: &Installation) -> bool {
    let since = facts_of_major(server.version.major()).unwrap().replay_refuses_map_since;
    let version = server.version.to_string();
    let minor = version.split_once('.').and_then(|(_, minor)| minor.parse::<u32>().ok());
    since.is_some_and(|since| minor.unwrap_or(0) >= since)
}

/// Where in the tar the bytes of this member begin.
fn offset(tar: &Path, member: &Path) -> u64 {
    let mut archive = tar::Archive::new(File::open(tar).unwrap());
    let mut entries = archive.entries_with_seek().unwrap().map(Result::unwrap);
    entries.find(|entry| entry.path().unwrap() == member).unwrap().raw_file_position()
}

#[test]
fn what_recovery_replaces_is_no_damage() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        check_replaced(&server, &scratch, &mut guard);
    }
}

/// A backup by hand: a page changes while it goes on.
fn check_replaced(server: &Installation, scratch: &Scratch, guard: &mut Guard) {
    let cluster = cluster(guard, server, "torn", &[]);
    let make = "CREATE TABLE t AS SELECT i, repeat('x', 100) b FROM generate_series(1, 5000) i";
    execute(&cluster, &[make, "VACUUM t", "CHECKPOINT"]);
    let file = path_of(&cluster, "t");
    let mut session = cluster.connect("postgres").unwrap();
    let (start, stop) = match server.version.major() {
        ..15 => ("pg_start_backup('x', true, false)", "pg_stop_backup(false, false)"),
        _ => ("pg_backup_start('x', true)", "pg_backup_stop(false)"),
    };
    session.query(&format!("SELECT {start}")).unwrap();
    session.execute("DELETE FROM t WHERE ctid = '(3,1)'").unwrap();
    session.execute("CHECKPOINT").unwrap();
    let copy = scratch.path(&format!("copy{}", server.version.major()));
    let copied = run(program("cp").arg("-r").arg(cluster.data()).arg(&copy));
    assert_eq!(copied.status, Some(0), "{copied:?}");
    let label = session.query_one(&format!("SELECT labelfile AS label FROM {stop}")).unwrap();
    fs::write(copy.join("backup_label"), label.text("label").unwrap()).unwrap();
    for name in ["postmaster.pid", "postmaster.opts"] {
        fs::remove_file(copy.join(name)).unwrap();
    }
    fs::remove_dir_all(copy.join("pg_wal")).unwrap();
    fs::create_dir(copy.join("pg_wal")).unwrap();
    run_verify(&copy, &[], 0);

    // The page that was changed has an image; the other one has none.
    change(&copy.join(&file), 3, |page| page[6000] ^= 4);
    let wal = cluster.data().join("pg_wal").display().to_string();
    let without = run_verify(&copy, &[], 2);
    assert_eq!(without["relations"][0]["findings"][0]["kind"], "may_be_torn", "{without}");
    assert_eq!((&without["unverified"], &without["failures"]), (&1.into(), &0.into()));
    let with = run_verify(&copy, &["--wal", &wal], 0);
    assert_eq!(with["healed_by_replay"], 1, "{with}");
    change(&copy.join(&file), 4, |page| page[6000] ^= 4);
    for arguments in [&[][..], &["--wal", &wal][..]] {
        let message = run_verify(&copy, arguments, 1);
        assert_eq!(message["failures"], 1, "an older page changed by itself: {message}");
    }

    check_replaced_in_store(&copy, Path::new(&wal), scratch);

    // The same as a tar that others made, with its WAL in it.
    let copied = run(program("cp").arg("-rT").arg(&wal).arg(copy.join("pg_wal")));
    assert_eq!(copied.status, Some(0), "{copied:?}");
    let tar = scratch.path(&format!("other{}.tar.gz", server.version.major()));
    let made = run(program("tar")
        .arg("-czf")
        .arg(&tar)
        .arg("-C")
        .arg(scratch.path(""))
        .arg(copy.file_name().unwrap()));
    assert_eq!(made.status, Some(0), "{made:?}");
    let (found, wal) = of_tars(&tar);
    let blocks: Vec<u32> =
        found.findings.iter().map(|finding: &BlockFinding| finding.block).collect();
    assert_eq!((blocks, found.healed_by_replay, wal), (vec![4], 1, WalAtHand::Whole));
    drop(session);
    cluster.stop(guard, StopMode::Immediate).unwrap();
    cluster.remove(guard).unwrap();
    fs::remove_dir_all(copy).unwrap();
}

/// The same in the layout of barman-cloud, where the WAL is beside the backup.
fn check_replaced_in_store(copy: &Path, wal: &Path, scratch: &Scratch) {
    let store = ObjectServer::start();
    let tar = scratch.path("data.tar");
    let made = run(program("tar").arg("-cf").arg(&tar).arg("-C").arg(copy).arg("."));
    assert_eq!(made.status, Some(0), "{made:?}");
    let backup = "b/main/base/20261123T020000";
    store.put(&format!("{backup}/data.tar"), &fs::read(&tar).unwrap());
    store.put(&format!("{backup}/backup.info"), b"status=DONE\n");
    fs::remove_file(tar).unwrap();
    let verified = |arguments: &[&str]| {
        let words = [&["verify", "s3://b/main", "--json"], arguments].concat();
        let record = fleet::json(&fleet::run_fleet(&store, &words, 1));
        assert_eq!(record["failures"], 1, "{record}");
        (record["healed_by_replay"].clone(), record["unverified"].clone())
    };
    assert_eq!(verified(&[]), (0.into(), 1.into()), "there is no WAL");
    // A server writes to them.
    let entries = fs::read_dir(wal).unwrap().map(|entry| entry.unwrap());
    for entry in entries.filter(|entry| entry.file_type().unwrap().is_file()) {
        let bytes = fs::read(entry.path()).unwrap();
        let name = entry.file_name();
        for prefix in ["main/wals/0000000100000000", "elsewhere"] {
            store.put(&format!("b/{prefix}/{}", name.to_string_lossy()), &bytes);
        }
    }
    assert_eq!(verified(&[]), (1.into(), 0.into()));
    assert_eq!(verified(&["--wal", "s3://b/elsewhere"]), (1.into(), 0.into()));
}

#[test]
fn a_tar_that_is_not_whole_is_told() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server(), "cut", &[]);
    let plain = backup(&mut guard, &cluster, "plain", &["-Ft"]).unwrap().join("base.tar");
    let packed = backup(&mut guard, &cluster, "packed", &["-Ft", "-z"]).unwrap();
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    set_mode(&plain, 0o644);
    let unlisted = |path: &Path| {
        let message = run_verify(path, &[], 2);
        assert_eq!(message["outcome"], "unverified");
        assert!(message["read"]["blocks"].as_u64().unwrap() > 100, "{message}");
        let lines = message["unlisted"].as_array().unwrap().clone();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].as_str().unwrap().to_owned()
    };
    let length = fs::metadata(&plain).unwrap().len();
    for end in [length - 1024, length / 2] {
        File::options().write(true).open(&plain).unwrap().set_len(end).unwrap();
        let output = unlisted(&plain);
        assert!(output.contains(&format!("cut short: it ends after {end} bytes")), "{output}");
    }
    let packed = packed.join("base.tar.gz");
    let length = fs::metadata(&packed).unwrap().len();
    flip(&packed, length - 6);
    let said_of = unlisted(&packed);
    assert!(said_of.contains("cannot be read further"), "{said_of}");
    flip(&packed, length - 6);
    File::options().write(true).open(&packed).unwrap().set_len(length / 2).unwrap();
    assert!(unlisted(&packed).contains("cut short"));

    // No tar at all, and a control file that is none.
    let none = scratch.path("base.tar");
    fs::write(&none, "not a tar".repeat(1000)).unwrap();
    let ran = run(pgtoll().arg("verify").arg(&none));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stdout.contains("no tar header at byte 0"), "{ran:?}");
    check_control(&mut guard, &cluster);
    cluster.remove(&mut guard).unwrap();
}

fn check_control(guard: &mut Guard, cluster: &Cluster) {
    cluster.start(guard).unwrap();
    let tar = backup(guard, cluster, "control", &["-Ft"]).unwrap().join("base.tar");
    cluster.stop(guard, StopMode::Fast).unwrap();
    flip(&tar, offset(&tar, Path::new("global/pg_control")) + 40);
    let Ran { status, stderr, .. } = run(pgtoll().arg("verify").arg(&tar));
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("global/pg_control: its CRC is wrong"), "{stderr}");
}

#[test]
fn without_checksums_a_tars_headers_are_judged() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "headers", false).unwrap();
    let settings = [("wal_level", "replica"), ("max_wal_senders", "4")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(&mut guard, &settings.into()).unwrap();
    cluster.start(&mut guard).unwrap();
    // The control file says it, which comes last: packed, it is found out too late.
    let place = backup(&mut guard, &cluster, "packed", &["-Ft", "-z"]).unwrap();
    let message = run_verify(&place, &[], 0);
    assert_eq!(message["source"]["checksums"], false);
    assert!(message["notes"][0].as_str().unwrap().contains("no checksums"), "{message}");
    cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    cluster.remove(&mut guard).unwrap();
}
