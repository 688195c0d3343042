//! Archives that are cut short, incomplete, or larger than they look.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use nix::unistd::geteuid;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use serde_json::Value;
use tar::{EntryType, Header};

use crate::support::{
    Ran, Scratch, pgtoll, pgtoll_for_all, program, run, server, servers, small_measure,
};

/// A running cluster with a table of some blocks.
fn cluster(guard: &mut Guard, server: &Installation) -> Cluster {
    let cluster = Cluster::init(guard, server, &format!("m{}", server.version.major()), true);
    let cluster = cluster.unwrap();
    let settings = [
        ("autovacuum", "off"),
        ("fsync", "off"),
        ("shared_buffers", "16MB"),
        ("wal_level", "replica"),
        ("max_wal_senders", "4"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    execute(&cluster, "CREATE TABLE t AS SELECT i FROM generate_series(1, 5000) i");
    cluster
}

fn execute(cluster: &Cluster, sql: &str) {
    cluster.connect("postgres").unwrap().execute(sql).unwrap();
}

fn path_of(cluster: &Cluster, relation: &str) -> String {
    let sql = format!("SELECT pg_relation_filepath('{relation}') AS path");
    let mut session = cluster.connect("postgres").unwrap();
    session.query_one(&sql).unwrap().text("path").unwrap().to_owned()
}

fn database_of(cluster: &Cluster) -> String {
    let sql = "SELECT oid::text AS oid FROM pg_database WHERE datname = 'postgres'";
    let mut session = cluster.connect("postgres").unwrap();
    session.query_one(sql).unwrap().text("oid").unwrap().to_owned()
}

fn backup(guard: &mut Guard, cluster: &Cluster, name: &str, arguments: &[&str]) -> PathBuf {
    let place = cluster.data().parent().unwrap().join(name);
    let shown = place.display().to_string();
    let all = [&["-D", &shown, "-c", "fast", "--no-sync"], arguments].concat();
    cluster.run_client(guard, "pg_basebackup", &all).unwrap();
    place
}

/// Verifies it; the status, and what is said as JSON.
fn verified(path: &Path, arguments: &[&str], status: i32) -> Value {
    let ran = run(pgtoll().arg("verify").arg(path).arg("--json").args(arguments));
    assert_eq!(ran.status, Some(status), "{}: {ran:?}", path.display());
    let table = run(pgtoll().arg("verify").arg(path).args(arguments));
    assert_eq!(table.status, Some(status), "{table:?}");
    let words = [": sound: ", ": no damage seen in "];
    let says_sound = words.iter().any(|words| table.stdout.contains(words));
    assert_eq!(says_sound, status == 0, "{table:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Kind and path of each file that is missing or wrong.
fn wrong_files(output: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let files = output["files"].as_array().unwrap();
    files.iter().map(|file| (text(&file["kind"]), text(&file["path"]))).collect()
}

fn one(kind: &str, path: &str) -> Vec<(String, String)> {
    vec![(kind.to_owned(), path.to_owned())]
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Where in the tar the header of this member is, and where its bytes begin.
fn place_in(tar: &Path, member: &str) -> (usize, usize) {
    let mut archive = tar::Archive::new(File::open(tar).unwrap());
    let mut entries = archive.entries_with_seek().unwrap().map(Result::unwrap);
    let entry = entries.find(|entry| entry.path().unwrap() == Path::new(member)).unwrap();
    let place = |at: u64| usize::try_from(at).unwrap();
    (place(entry.raw_header_position()), place(entry.raw_file_position()))
}

#[test]
fn tars_whose_end_is_no_end_are_not_sound() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = cluster(&mut guard, &server);
        let table = path_of(&cluster, "t");
        let place = backup(&mut guard, &cluster, "tars", &["-Ft"]);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        check_ends(&scratch, &place, &table, server.version.major());
        cluster.remove(&mut guard).unwrap();
    }
}

fn check_ends(scratch: &Scratch, place: &Path, table: &str, major: u32) {
    verified(place, &[], 0);
    let sound = read(&place.join("base.tar"));
    let (header, content) = place_in(&place.join("base.tar"), table);
    let directory = scratch.path(&format!("alone{major}"));
    fs::create_dir(&directory).unwrap();
    // Without its manifest, and packed.
    let alone = |bytes: &[u8], status: i32| {
        let plain = directory.join("base.tar");
        let gz = directory.join("other.tar.gz");
        fs::write(&plain, bytes).unwrap();
        let output = verified(&plain, &[], status);
        fs::write(&gz, packed(bytes)).unwrap();
        let other = verified(&gz, &[], status);
        assert_eq!(
            (&output["read"], &output["incomplete"]),
            (&other["read"], &other["incomplete"])
        );
        output
    };
    alone(&sound, 0);

    // One header block is zero.
    let mut changed = sound.clone();
    changed[header..header + 512].fill(0);
    let printed_text = alone(&changed, 2);
    let expected = format!("damaged: a lone zero block at byte {header}");
    assert!(printed_text["unlisted"][0].as_str().unwrap().contains(&expected), "{printed_text}");
    fs::write(place.join("base.tar"), &changed).unwrap();
    verified(place, &[], 2);

    // Zeros from there to the end, as after a crash: the tar ends in good order.
    let mut changed = sound.clone();
    changed[content + 8192..].fill(0);
    let result = alone(&changed, 2);
    let reasons = result["incomplete"].to_string();
    assert!(reasons.contains("global/pg_control is missing"), "{result}");
    fs::write(place.join("base.tar"), &changed).unwrap();
    let printed = verified(place, &[], 1);
    let missing = wrong_files(&printed);
    assert!(missing.contains(&("missing".into(), "global/pg_control".into())), "{missing:?}");

    // Nothing but zeros; something behind the end; one block less at the end.
    let message = alone(&vec![0; 100_352], 2);
    assert!(message["incomplete"].to_string().contains("no file of a relation"), "{message}");
    alone(&[sound.as_slice(), b"behind"].concat(), 2);
    alone(&[sound.as_slice(), &[0; 9000]].concat(), 0);
    let output = alone(&sound[..sound.len() - 512], 2);
    assert!(output["unlisted"][0].as_str().unwrap().contains("cut short"), "{output}");
    alone(&sound[..sound.len() - 1024], 2);
    fs::write(place.join("base.tar"), &sound).unwrap();
    verified(place, &[], 0);
    verified(&place.join("pg_wal.tar"), &[], 2);
}

#[test]
fn a_tar_of_something_else_is_not_sound() {
    let scratch = Scratch::new();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(4);
    builder.append_data(&mut header, "etc/hostname", &b"host"[..]).unwrap();
    let tar = scratch.path("base.tar");
    fs::write(&tar, builder.into_inner().unwrap()).unwrap();
    let output = verified(&tar, &[], 2);
    assert!(output["incomplete"].to_string().contains("no file of a relation"), "{output}");
}

#[test]
fn what_pg_verifybackup_misses_is_a_finding() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = cluster(&mut guard, &server);
        let table = path_of(&cluster, "t");
        let database = database_of(&cluster);
        let plain = backup(&mut guard, &cluster, "plain", &["-Fp"]);
        let tars = backup(&mut guard, &cluster, "tars", &["-Ft", "--manifest-checksums=SHA256"]);
        check_manifest(&server, &mut guard, &plain, &table, &database);
        check_manifest_of_tars(&server, &scratch, &mut guard, &tars, &table);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

/// What is done to a backup and undone; status and finding without and with checksums.
type Change<'a> = (&'a dyn Fn(), &'a dyn Fn(), Option<(&'a str, &'a str)>, bool);

fn check_manifest(
    server: &Installation,
    guard: &mut Guard,
    plain: &Path,
    table: &str,
    database: &str,
) {
    let shown = plain.display().to_string();
    let judge = |guard: &mut Guard, flags: &[&str]| {
        let arguments = [&["-n", &shown], flags].concat();
        guard.run(&server.bin.join("pg_verifybackup"), &arguments).is_ok()
    };
    let path = plain.join(table);
    let content = read(&plain.join(table));
    let restore = || fs::write(&path, &content).unwrap();
    let extra = path.with_file_name("99999");
    let version = plain.join("PG_VERSION");
    let manifest = plain.join("backup_manifest");
    let text = read(&manifest);
    let auto = plain.join("postgresql.auto.conf");
    let nothing = || ();
    // As with `pg_basebackup --waldir`.
    let wal = plain.with_file_name("wal");
    fs::rename(plain.join("pg_wal"), &wal).unwrap();
    symlink(&wal, plain.join("pg_wal")).unwrap();
    let changes: [Change<'_>; 8] = [
        (&nothing, &nothing, None, false),
        (&|| fs::remove_file(&path).unwrap(), &restore, Some(("missing", table)), false),
        (
            &|| File::options().write(true).open(&path).unwrap().set_len(8192).unwrap(),
            &restore,
            Some(("length", table)),
            false,
        ),
        (
            &|| fs::write(&extra, "").unwrap(),
            &|| fs::remove_file(&extra).unwrap(),
            Some(("extra", extra.strip_prefix(plain).unwrap().to_str().unwrap())),
            false,
        ),
        // As long as it was: only a checksum finds it.
        (
            &|| fs::write(&version, format!("{}\t", server.version.major())).unwrap(),
            &|| fs::write(&version, format!("{}\n", server.version.major())).unwrap(),
            Some(("checksum", "PG_VERSION")),
            true,
        ),
        (
            &|| fs::write(&manifest, &text[..text.len() / 2]).unwrap(),
            &|| fs::write(&manifest, &text).unwrap(),
            Some(("manifest", "backup_manifest")),
            false,
        ),
        (
            &|| {
                let changed = String::from_utf8(text.clone()).unwrap().replacen("8192", "8193", 1);
                fs::write(&manifest, changed).unwrap();
            },
            &|| fs::write(&manifest, &text).unwrap(),
            Some(("manifest", "backup_manifest")),
            false,
        ),
        // What pg_basebackup writes itself.
        (&|| fs::write(&auto, "# later").unwrap(), &|| fs::write(&auto, "").unwrap(), None, false),
    ];
    for (number, (apply, undo, expected, needs_checksums)) in changes.into_iter().enumerate() {
        apply();
        for checksums in [false, true] {
            let expected = expected.filter(|_| checksums || !needs_checksums);
            let expected = expected.map_or_else(Vec::new, |(kind, path)| one(kind, path));
            let flags: &[&str] = if checksums { &["--manifest-checksums"] } else { &[] };
            let ours = run(pgtoll().arg("verify").arg(plain).arg("--json").args(flags));
            let output: Value = serde_json::from_str(&ours.stdout).unwrap();
            let of_files = wrong_files(&output);
            assert_eq!(of_files, expected, "{number} {checksums}: {ours:?}");
            assert_eq!(ours.status, Some(i32::from(!expected.is_empty())), "{number}: {ours:?}");
            let theirs = judge(guard, if checksums { &[] } else { &["-s"] });
            assert_eq!(theirs, expected.is_empty(), "{number} {checksums}");
        }
        undo();
    }
    // A database without its directory, with the manifest and without it.
    let directory = plain.join("base").join(database);
    let aside = plain.parent().unwrap().join("aside");
    fs::rename(&directory, &aside).unwrap();
    let message = verified(plain, &[], 1);
    let missing = wrong_files(&message);
    assert!(missing.len() > 100 && missing.contains(&("missing".into(), table.into())));
    assert!(!judge(guard, &["-s"]));
    fs::remove_file(&manifest).unwrap();
    let output = verified(plain, &[], 1);
    assert_eq!(wrong_files(&output), one("no_database", &format!("base/{database}")));
    verified(plain, &["--manifest-checksums"], 1);
    fs::rename(&aside, &directory).unwrap();
    verified(plain, &[], 0);
    // Nothing to compare with, though it was asked for.
    verified(plain, &["--manifest-checksums"], 2);
    // A server that ran on it has changed it, and leaves the manifest.
    fs::write(&manifest, &text).unwrap();
    fs::rename(plain.join("backup_label"), plain.join("backup_label.old")).unwrap();
    fs::write(plain.join("postmaster.opts"), "").unwrap();
    assert_eq!(verified(plain, &[], 0)["manifest"], Value::Null);
}

fn check_manifest_of_tars(
    server: &Installation,
    scratch: &Scratch,
    guard: &mut Guard,
    tars: &Path,
    table: &str,
) {
    let printed = verified(tars, &["--manifest-checksums"], 0);
    assert!(printed["manifest"]["checksum_bytes"].as_u64().unwrap() > 20_000_000, "{printed}");
    assert!(printed["manifest"]["files"].as_u64().unwrap() > 900, "{printed}");
    let base = tars.join("base.tar");
    let (_, at) = place_in(&base, "PG_VERSION");
    let file = File::options().write(true).open(&base).unwrap();
    file.write_all_at(b"99", at as u64).unwrap();
    verified(tars, &[], 0);
    let message = verified(tars, &["--manifest-checksums"], 1);
    assert_eq!(wrong_files(&message), one("checksum", "PG_VERSION"));
    if server.version.major() >= 18 {
        let shown = tars.display().to_string();
        assert!(guard.run(&server.bin.join("pg_verifybackup"), &["-n", &shown]).is_err());
    }
    file.write_all_at(server.version.major().to_string().as_bytes(), at as u64).unwrap();

    // A member is gone: the tar was made anew without it.
    let mut old = tar::Archive::new(File::open(&base).unwrap());
    let mut new = tar::Builder::new(Vec::new());
    for entry in old.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap() != Path::new(table) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            new.append(entry.header(), bytes.as_slice()).unwrap();
        }
    }
    fs::write(&base, new.into_inner().unwrap()).unwrap();
    let output = verified(tars, &[], 1);
    assert_eq!(wrong_files(&output), one("missing", table));
    // The same with the manifest in the tar, as `pg_basebackup -D -` and people have it.
    let bytes = read(&base);
    // Behind the members that are there: the builder only adds.
    let mut builder = tar::Builder::new(bytes[..bytes.len() - 1024].to_vec());
    let mut header = Header::new_gnu();
    let manifest = read(&tars.join("backup_manifest"));
    header.set_size(manifest.len() as u64);
    builder.append_data(&mut header, "backup_manifest", manifest.as_slice()).unwrap();
    let tar = scratch.path(&format!("mine{}.tar", server.version.major()));
    fs::write(&tar, builder.into_inner().unwrap()).unwrap();
    assert_eq!(wrong_files(&verified(&tar, &[], 1)), one("missing", table));
}

#[test]
fn a_tablespace_without_its_tar_is_missed() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server());
    let space = cluster.data().parent().unwrap().join("space");
    execute(
        &cluster,
        &format!("COPY (SELECT 1 WHERE false) TO PROGRAM 'mkdir {}'", space.display()),
    );
    execute(&cluster, &format!("CREATE TABLESPACE space LOCATION '{}'", space.display()));
    execute(&cluster, "CREATE TABLE elsewhere TABLESPACE space AS SELECT 1 AS i");
    let tars = backup(&mut guard, &cluster, "tars", &["-Ft"]);
    let names = fs::read_dir(&tars).unwrap().flatten().map(|entry| entry.file_name());
    let is_oid = |name: &str| name.starts_with(|character: char| character.is_ascii_digit());
    let names = names.map(|name| name.into_string().unwrap());
    let tar = names.into_iter().find(|name| is_oid(name)).unwrap();
    let oid = tar.strip_suffix(".tar").unwrap();
    verified(&tars, &["--manifest-checksums"], 0);
    verified(&tars.join("base.tar"), &[], 0);
    verified(&tars.join(&tar), &[], 0);
    let alone = scratch.path(&tar);
    fs::rename(tars.join(&tar), &alone).unwrap();
    let printed = verified(&alone, &[], 2);
    assert!(
        printed["incomplete"].to_string().contains("a tablespace's tar by itself"),
        "{printed}"
    );
    let message = verified(&tars, &[], 1);
    assert!(wrong_files(&message).iter().all(|(kind, path)| {
        kind == "missing" && path.starts_with(&format!("pg_tblspc/{oid}/"))
    }));
    fs::remove_file(tars.join("backup_manifest")).unwrap();
    let output = verified(&tars, &[], 1);
    assert_eq!(wrong_files(&output), one("no_tablespace", &format!("pg_tblspc/{oid}")));
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    cluster.remove(&mut guard).unwrap();
}

#[test]
fn a_data_directory_with_little_in_it_is_not_sound() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server());
    execute(&cluster, "CREATE DATABASE gone");
    execute(&cluster, "CREATE DATABASE half");
    let sql = "SELECT string_agg(oid::text, ' ' ORDER BY datname) AS oids FROM pg_database
               WHERE datname IN ('gone', 'half')";
    let row = cluster.connect("postgres").unwrap().query_one(sql).unwrap();
    let (gone, half) = row.text("oids").unwrap().split_once(' ').unwrap();
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let data = &cluster.data();
    verified(data, &[], 0);

    let version = read(&data.join("PG_VERSION"));
    for text in [&b""[..], b"abc\n"] {
        fs::write(data.join("PG_VERSION"), text).unwrap();
        assert_eq!(wrong_files(&verified(data, &[], 1)), one("no_version", "PG_VERSION"));
    }
    fs::write(data.join("PG_VERSION"), version).unwrap();

    // A database's pg_class, and then its directory.
    let class = ["1259", "1259_fsm", "1259_vm"].map(|name| data.join("base").join(half).join(name));
    for path in &class {
        fs::rename(path, scratch.path(name_of(path))).unwrap();
    }
    let printed = verified(data, &[], 2);
    assert!(
        printed["incomplete"][0].as_str().unwrap().contains("3 catalogs could not"),
        "{printed}"
    );
    for path in &class {
        fs::rename(scratch.path(name_of(path)), path).unwrap();
    }
    fs::remove_dir_all(data.join("base").join(gone)).unwrap();
    let message = verified(data, &[], 1);
    assert_eq!(wrong_files(&message), one("no_database", &format!("base/{gone}")));
    // One that is being dropped has none.
    cluster.start(&mut guard).unwrap();
    execute(&cluster, "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'gone'");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    verified(data, &[], 0);

    // The control file alone.
    let bare = scratch.path("bare");
    for directory in ["global", "base", "pg_tblspc"] {
        fs::create_dir_all(bare.join(directory)).unwrap();
    }
    fs::copy(data.join("global/pg_control"), bare.join("global/pg_control")).unwrap();
    fs::copy(data.join("PG_VERSION"), bare.join("PG_VERSION")).unwrap();
    let output = verified(&bare, &[], 2);
    assert!(output["incomplete"].to_string().contains("no file of a relation"), "{output}");
    cluster.remove(&mut guard).unwrap();
}

fn name_of(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// A packed tar whose only member is as long as that: zeros, 1 MiB of them packed again and again.
fn bomb(kind: EntryType, name: &str, mebibytes: usize) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_path(name).unwrap();
    header.set_size((mebibytes as u64) << 20);
    header.set_cksum();
    [packed(header.as_bytes()), packed(&vec![0; 1 << 20]).repeat(mebibytes)].concat()
}

#[test]
fn small_tars_of_wal_take_neither_memory_nor_disk() {
    let scratch = Scratch::new();
    let tar = scratch.path("pg_wal.tar.gz");
    let limited = |limit: &str| {
        let mut command = program("prlimit");
        command.args([limit, "--core=0", "--"]).arg(env!("CARGO_BIN_EXE_pgtoll"));
        run(command.args(["wal", "stats"]).arg(&tar).env("TMPDIR", scratch.work()))
    };
    fs::write(&tar, bomb(EntryType::GNULongName, "././@LongLink", 700)).unwrap();
    let Ran { status, stderr, .. } = limited("--as=400000000");
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("damaged: no tar header at byte 0"), "{stderr}");
    fs::write(&tar, bomb(EntryType::Regular, "000000010000000000000001", 1025)).unwrap();
    let Ran { status, stderr, .. } = limited("--fsize=1000000");
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("has 1074790400 bytes: no WAL segment"), "{stderr}");
}

/// The limit holds for ordinary users only, and counts all of a user's processes: here those of one
/// who has no others. Only root can run as that user.
#[test]
fn under_a_limit_of_threads_verify_goes_on_with_those_there_are() {
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server());
    let tars = backup(&mut guard, &cluster, "tars", &["-Ft"]);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let opened = run(program("chmod").arg("-R").arg("a+rX").arg(scratch.work()));
    assert_eq!(opened.status, Some(0), "{opened:?}");
    let pgtoll = pgtoll_for_all(&scratch);
    let limited = |limit: &str, arguments: &[&str]| {
        let mut command = program("prlimit");
        command.arg(limit).arg("--").arg(&pgtoll).args(arguments).uid(LONELY).gid(LONELY);
        run(&mut command)
    };
    let data = cluster.data().display().to_string();
    let backup = tars.display().to_string();
    let wal = cluster.data().join("pg_wal").display().to_string();
    let all = |limit: &str| {
        [
            limited(limit, &["verify", "--jobs", "64", &data]),
            limited(limit, &["verify", "--jobs", "64", "--manifest-checksums", &backup]),
            limited(limit, &["wal", "stats", "--threads", "64", &wal]),
        ]
    };
    // One thread waits for signals: under the lower limit there is no other one beside the first.
    for limit in ["--nproc=2", "--nproc=5"] {
        let [directory, backup, wal] = all(limit);
        for ran in [&directory, &backup] {
            assert_eq!(ran.status, Some(0), "{limit}: {ran:?}");
            assert!(ran.stdout.contains(": sound: "), "{limit}: {ran:?}");
        }
        let is_told = |ran: &Ran| ran.stdout.contains("the system allowed");
        // A tar is read by one thread, however many are asked for.
        let expected = (true, limit == "--nproc=2");
        assert_eq!((is_told(&directory), is_told(&backup)), expected, "{limit}: {backup:?}");
        assert_eq!(wal.status, Some(0), "{limit}: {wal:?}");
    }
    cluster.remove(&mut guard).unwrap();
}

/// Nobody's number.
const LONELY: u32 = 2_000_000_123;

#[test]
fn a_panic_is_reported_in_a_line_and_ends_with_status_2() {
    let scratch = Scratch::new();
    let mut command = small_measure(&scratch);
    let ran = run(command.env("PGTOLL_TEST_PANIC_AT", "1:1"));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("pgtoll: internal error: ")).unwrap();
    assert!(lines[at].contains(" at crates/pgtoll/src/") && lines[at].contains(".rs:"));
    assert!(lines[at + 1].starts_with("hint: please report it"), "{lines:?}");
    scratch.assert_empty();
}
