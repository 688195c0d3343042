//! Backups that can be restored pass the drill, and damaged ones fail it with the right verdict.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_system::Interrupt;
use serde_json::Value;

use crate::support::{Ran, Scratch, all_servers, pgtoll, pid_of, run, server, servers};

/// A cluster with an archive, and what is drilled of it.
pub(crate) struct Drilled {
    pub(crate) cluster: Cluster,
    pub(crate) archive: PathBuf,
    /// Where the drill works.
    pub(crate) drills: Scratch,
}

impl Drilled {
    pub(crate) fn new(
        guard: &mut Guard,
        server: &Installation,
        name: &str,
        checksums: bool,
    ) -> Self {
        let name = format!("{name}{}", server.version.major());
        let segments = ["--wal-segsize=1"];
        let cluster = Cluster::init_with(guard, server, &name, checksums, &segments).unwrap();
        let archive = cluster.directory().join("archive");
        guard.run(Path::new("mkdir"), &[&archive.display().to_string()]).unwrap();
        let command = format!("cp %p {}/%f", archive.display());
        let settings = [
            ("autovacuum", "off"),
            ("fsync", "off"),
            ("shared_buffers", "16MB"),
            ("wal_level", "replica"),
            ("max_wal_senders", "4"),
            ("max_prepared_transactions", "2"),
            ("archive_mode", "on"),
            ("archive_command", &command),
        ];
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        cluster.configure(guard, &settings.collect()).unwrap();
        cluster.start(guard).unwrap();
        let drilled = Self { cluster, archive, drills: Scratch::new() };
        drilled.execute(FILL);
        drilled
    }

    pub(crate) fn execute(&self, statements: &str) {
        let mut session = self.cluster.connect("postgres").unwrap();
        for sql in statements.split(';').filter(|sql| !sql.trim().is_empty()) {
            session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }

    pub(crate) fn value(&self, sql: &str) -> String {
        let mut session = self.cluster.connect("postgres").unwrap();
        session.query_one(sql).unwrap().values()[0].clone().unwrap()
    }

    /// The main fork of a relation, below the data directory.
    pub(crate) fn file(&self, relation: &str) -> PathBuf {
        self.value(&format!("SELECT pg_relation_filepath('{relation}')")).into()
    }

    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.cluster.directory().join(name)
    }

    /// What `pg_basebackup` makes.
    pub(crate) fn backup(&self, guard: &mut Guard, name: &str, arguments: &[&str]) -> PathBuf {
        let place = self.place(name);
        let shown = place.display().to_string();
        let all = [&["-D", &shown, "-c", "fast", "--no-sync"], arguments].concat();
        self.cluster.run_client(guard, "pg_basebackup", &all).unwrap();
        place
    }

    /// A backup with the low-level functions, on which the server writes several segments meanwhile. All
    /// of its WAL is in the archive.
    fn long_backup(&self, guard: &mut Guard, name: &str) -> PathBuf {
        let place = self.place(name);
        let mut session = self.cluster.connect("postgres").unwrap();
        session.execute("SELECT pg_backup_start('drill', true)").unwrap();
        copy(guard, &self.cluster.data(), &place);
        for _ in 0..3 {
            self.execute("UPDATE t SET b = b || 'x' WHERE id % 3 = 0; SELECT pg_switch_wal()");
        }
        let stopped = session.query_one("SELECT labelfile FROM pg_backup_stop(true)").unwrap();
        fs::write(place.join("backup_label"), stopped.text("labelfile").unwrap()).unwrap();
        fs::remove_file(place.join("postmaster.pid")).unwrap();
        let wal = place.join("pg_wal").display().to_string();
        guard.run(Path::new("rm"), &["-r", &wal]).unwrap();
        guard.run(Path::new("mkdir"), &[&wal]).unwrap();
        place
    }

    /// Lets all WAL until now be archived.
    pub(crate) fn archive_all(&self) {
        // A segment without a record is not switched.
        self.value("SELECT pg_logical_emit_message(false, 'drill', '')::text");
        let name = self.value("SELECT pg_walfile_name(pg_switch_wal())");
        // The last file that was archived may be a backup's history file, whose name is less.
        let ready = format!("{name}.ready");
        let sql = format!(
            "SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready' AND name <= '{ready}'"
        );
        let interrupt = Interrupt::new();
        // After a command that failed three times the archiver waits for a minute.
        for _ in 0..1500 {
            if self.value(&sql) == "0" {
                return;
            }
            interrupt.wait(Duration::from_millis(100)).unwrap();
        }
        let archiver = self.value("SELECT s::text FROM pg_stat_archiver s");
        panic!("{name} is not archived: {archiver}");
    }

    /// Drills a backup, and sees to it that nothing stays behind.
    pub(crate) fn drill(&self, path: &Path, arguments: &[&str]) -> Ran {
        let ran = run(&mut self.command(path, arguments));
        self.drills.assert_empty();
        ran
    }

    fn command(&self, path: &Path, arguments: &[&str]) -> Command {
        let mut command = pgtoll();
        command.args(["--quiet", "verify", "--drill"]).arg(path).args(arguments);
        if !arguments.contains(&"--work-dir") {
            command.arg("--work-dir").arg(self.drills.work());
        }
        command
    }

    /// The record, whose table fits a terminal.
    pub(crate) fn record(&self, path: &Path, arguments: &[&str], status: i32) -> Value {
        let ran = self.drill(path, &[arguments, &["--json"]].concat());
        assert_eq!(ran.status, Some(status), "{ran:?}");
        let record: Value = serde_json::from_str(&ran.stdout).unwrap();
        let file = self.drills.path("record.json");
        fs::write(&file, &ran.stdout).unwrap();
        let table = run(pgtoll().arg("report").arg(&file));
        assert_eq!(table.status, Some(0), "{table:?}");
        let too_long = |line: &&str| line.chars().count() > 80 && !line.contains("/test-");
        assert_eq!(table.stdout.lines().find(too_long), None, "{}", table.stdout);
        let page = run(pgtoll().args(["report", "--format", "html"]).arg(&file));
        assert!(page.stdout.contains("Can the backup be restored?"), "{page:?}");
        record
    }

    pub(crate) fn passes(&self, path: &Path, arguments: &[&str]) -> Value {
        let record = self.record(path, arguments, 0);
        assert_eq!(verdicts(&record), ["passed"; 3], "{record:#}");
        let databases = record["pages"]["databases"].as_array().unwrap();
        let postgres = databases.iter().find(|database| database["name"] == "postgres").unwrap();
        assert!(postgres["tables"].as_u64() > Some(60), "{record:#}");
        assert!(postgres["indexes"].as_u64() > Some(100), "{record:#}");
        assert!(postgres["structures"].as_u64() > Some(60), "{record:#}");
        record
    }
}

/// Tables with an index, with long values, with dropped and generated columns, and a sequence.
const FILL: &str = "
    CREATE TABLE t (id int PRIMARY KEY, b text);
    INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 20000) i;
    CREATE TABLE long (id serial, dropped int, v text, g int GENERATED ALWAYS AS (1) STORED);
    ALTER TABLE long DROP COLUMN dropped;
    ALTER TABLE long ALTER v SET STORAGE EXTERNAL;
    INSERT INTO long (v) SELECT repeat(md5(i::text), 200) FROM generate_series(1, 100) i;
    CREATE MATERIALIZED VIEW seen AS SELECT id FROM t WHERE id < 10;
    CREATE TABLE none ();
    CREATE DATABASE other;
    ALTER DATABASE other SET statement_timeout = 1;
    ALTER DATABASE other SET session_preload_libraries = 'no_such_library';
    ALTER DATABASE other SET default_transaction_read_only = on;
    VACUUM;
    CHECKPOINT";

const FORBID: &str = "
    CREATE FUNCTION forbid() RETURNS event_trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE EXCEPTION 'forbidden'; END $$;
    CREATE EVENT TRIGGER forbid ON ddl_command_start EXECUTE FUNCTION forbid()";

pub(crate) fn copy(guard: &mut Guard, from: &Path, to: &Path) {
    let from = from.display().to_string();
    let to = to.display().to_string();
    // A running server removes files meanwhile.
    let _ = guard.run(Path::new("cp"), &["-a", &from, &to]);
}

pub(crate) fn verdicts(record: &Value) -> [&str; 3] {
    ["pages", "wal", "start"].map(|stage| record[stage]["verdict"].as_str().unwrap())
}

pub(crate) fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.file_name().unwrap().len() == 24).collect();
    paths.sort();
    paths
}

pub(crate) fn change(path: &Path, at: u64, change: impl FnOnce(&mut [u8; 8192])) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut page = [0; 8192];
    file.read_exact_at(&mut page, at).unwrap();
    change(&mut page);
    file.write_all_at(&page, at).unwrap();
}

#[test]
fn good_backups_pass_the_drill() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let drilled = Drilled::new(&mut guard, &server, "good", true);
        let mut session = drilled.cluster.connect("postgres").unwrap();
        session.execute(FORBID).unwrap();
        session.close();
        // A prepared transaction holds a lock that nobody lets go.
        drilled.execute("BEGIN; LOCK TABLE long; PREPARE TRANSACTION 'held'");
        let with_wal = drilled.backup(&mut guard, "with-wal", &[]);
        let record = drilled.passes(&with_wal, &[]);
        assert_eq!(record["backup"]["kind"], "base_backup");
        assert_eq!(record["wal"]["segments"], 1, "{record:#}");
        let without = drilled.backup(&mut guard, "without-wal", &["-X", "none"]);
        drilled.execute("ROLLBACK PREPARED 'held'");
        drilled.archive_all();
        let missing = drilled.record(&without, &[], 1);
        assert_eq!(verdicts(&missing), ["unknown", "failed", "failed"], "{missing:#}");
        let archive = drilled.archive.display().to_string();
        drilled.passes(&without, &["--wal", &archive]);
        check_packed(&drilled, &without);
        drilled.execute("INSERT INTO long (v) VALUES ('before')");
        let lsn = drilled.value("SELECT pg_current_wal_lsn()");
        let time = drilled.value(
            "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
        );
        drilled.execute("INSERT INTO long (v) VALUES ('after')");
        drilled.archive_all();
        for until in ["latest", &lsn, &time] {
            let record = drilled.passes(&without, &["--wal", &archive, "--until", until]);
            assert_eq!(record["until"] == "latest", until == "latest");
        }
        let long = drilled.long_backup(&mut guard, "long");
        let record = drilled.passes(&long, &["--wal", &archive]);
        assert!(record["wal"]["segments"].as_u64() > Some(3), "{record:#}");
        // The superuser that initdb made may be called otherwise.
        drilled.execute("CREATE ROLE admin SUPERUSER LOGIN");
        let mut admin = drilled.cluster.connect_as("admin", "postgres", &[]).unwrap();
        admin.execute("ALTER ROLE postgres RENAME TO \"first one\"").unwrap();
        admin.close();
        drilled.cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let cold = drilled.place("cold");
        copy(&mut guard, &drilled.cluster.data(), &cold);
        let record = drilled.passes(&cold, &[]);
        assert_eq!(record["backup"]["kind"], "cold_copy");
    }
}

#[test]
fn a_backup_of_a_standby_passes_the_drill() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let drilled = Drilled::new(&mut guard, &server, "primary", true);
        let name = format!("standby{}", server.version.major());
        let upstream = drilled.cluster.directory();
        let standby = drilled.cluster.standby(&mut guard, &name, upstream).unwrap();
        standby.launch(&mut guard).unwrap();
        let place = standby.directory().join("backup");
        let shown = place.display().to_string();
        let arguments = ["-D", &shown, "-c", "fast", "--no-sync"];
        let interrupt = Interrupt::new();
        let mut tries = 0..100;
        while standby.run_client(&mut guard, "pg_basebackup", &arguments).is_err() {
            assert!(tries.next().is_some(), "{}", standby.last_words());
            interrupt.wait(Duration::from_millis(100)).unwrap();
        }
        let record = drilled.passes(&place, &[]);
        assert!(record["wal"]["stop"].is_string(), "{record:#}");
        standby.stop(&mut guard, StopMode::Immediate).unwrap();
        drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    }
}

/// The same archive, its segments compressed.
fn check_packed(drilled: &Drilled, backup: &Path) {
    let packed = drilled.drills.path("packed");
    fs::create_dir(&packed).unwrap();
    for path in segments(&drilled.archive) {
        let name = format!("{}.gz", path.file_name().unwrap().display());
        let file = File::create(packed.join(name)).unwrap();
        let mut writer = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        writer.write_all(&fs::read(&path).unwrap()).unwrap();
        writer.finish().unwrap();
    }
    drilled.passes(backup, &["--wal", &packed.display().to_string()]);
}

/// A damage, and the verdicts on pages, WAL chain and start; an empty one may be any.
type Damage = (&'static str, fn(&Drilled, &Path), [&'static str; 3]);

#[test]
fn damaged_backups_fail_with_the_right_verdict() {
    const DAMAGES: [Damage; 9] = [
        (
            "page",
            |item, backup| {
                change(&backup.join(item.file("t")), 8192 * 3, |page| page[5000] ^= 4);
            },
            ["failed", "passed", "passed"],
        ),
        (
            "missing-file",
            |item, backup| {
                fs::remove_file(backup.join(item.file("t"))).unwrap();
            },
            ["failed", "passed", "passed"],
        ),
        (
            "short-file",
            |item, backup| {
                let file = File::options().write(true).open(backup.join(item.file("t"))).unwrap();
                file.set_len(8192 * 5).unwrap();
            },
            ["failed", "passed", "passed"],
        ),
        (
            "no-label",
            |_, backup| {
                fs::remove_file(backup.join("backup_label")).unwrap();
            },
            ["failed", "failed", "unknown"],
        ),
        (
            "control",
            |_, backup| {
                fs::write(backup.join("global/pg_control"), [0; 8192]).unwrap();
            },
            ["unknown", "unknown", "failed"],
        ),
        (
            "xact",
            |_, backup| {
                let file = backup.join("pg_xact/0000");
                let bytes = fs::read(&file).unwrap().len();
                fs::write(&file, vec![0; bytes]).unwrap();
            },
            ["failed", "passed", ""],
        ),
        (
            "version",
            |_, backup| {
                fs::remove_file(backup.join("PG_VERSION")).unwrap();
            },
            ["failed", "passed", "failed"],
        ),
        (
            "wal-page",
            |_, backup| {
                let first = segments(&backup.join("pg_wal")).remove(0);
                change(&first, 0, |page| page[40..].fill(0xA5));
            },
            ["unknown", "failed", "failed"],
        ),
        (
            "wal-short",
            |_, backup| {
                let first = segments(&backup.join("pg_wal")).remove(0);
                File::options().write(true).open(first).unwrap().set_len(8192).unwrap();
            },
            ["unknown", "failed", "failed"],
        ),
    ];
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let drilled = Drilled::new(&mut guard, &server, "damaged", true);
        let backup = drilled.backup(&mut guard, "backup", &[]);
        for (name, damage, expected) in DAMAGES {
            let damaged = drilled.place(name);
            copy(&mut guard, &backup, &damaged);
            damage(&drilled, &damaged);
            let record = drilled.record(&damaged, &[], 1);
            for (found, expected) in verdicts(&record).iter().zip(expected) {
                assert!(expected.is_empty() || *found == expected, "{name}: {record:#}");
            }
        }
        drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    }
}

#[test]
fn wal_that_is_not_whole_fails_the_drill() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let drilled = Drilled::new(&mut guard, &server, "chain", true);
        let backup = drilled.long_backup(&mut guard, "backup");
        let record = drilled.passes(&backup, &["--wal", &drilled.archive.display().to_string()]);
        let count = usize::try_from(record["wal"]["segments"].as_u64().unwrap()).unwrap();
        let names = segments(&drilled.archive);
        let needed = &names[names.len() - count..];
        let check = |name: &str, damage: &dyn Fn(&Path), words: &str| {
            let archive = drilled.drills.path(name);
            fs::create_dir(&archive).unwrap();
            for path in &names {
                fs::copy(path, archive.join(path.file_name().unwrap())).unwrap();
            }
            damage(&archive);
            let record = drilled.record(&backup, &["--wal", &archive.display().to_string()], 1);
            assert_eq!(verdicts(&record), ["unknown", "failed", "failed"], "{name}: {record:#}");
            let reason = record["wal"]["reason"].as_str().unwrap();
            assert!(reason.contains(words), "{name}: {reason}");
        };
        let name = |number: usize| needed[number].file_name().unwrap().to_owned();
        let remove = |archive: &Path, number| fs::remove_file(archive.join(name(number))).unwrap();
        check("no-first", &|archive| remove(archive, 0), "is missing");
        check("no-middle", &|archive| remove(archive, 2), "is missing");
        check("no-last", &|archive| remove(archive, count - 1), "where the backup ends");
        let damaged_record = |archive: &Path| {
            let path = archive.join(name(1));
            change(&path, 8192, |page| page[4000..4100].fill(0xA5));
        };
        check("record", &damaged_record, "damaged");
        // The header of a segment's first page has the cluster's identifier.
        let foreign = |archive: &Path| change(&archive.join(name(0)), 0, |page| page[24] ^= 1);
        check("foreign", &foreign, "is WAL of cluster");
        drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    }
}

#[test]
fn what_no_checksum_convicts_is_found_by_reading() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let drilled = Drilled::new(&mut guard, &server, "reading", false);
        let findings = |record: &Value| -> Vec<(String, String)> {
            let found = record["pages"]["findings"].as_array().unwrap();
            let text =
                |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
            found.iter().map(|array| (text(array, "check"), text(array, "relation"))).collect()
        };
        // An index that misses rows.
        drilled.execute(
            "CREATE TABLE missed (i int); CREATE INDEX missing ON missed (i);
             UPDATE pg_index SET indisready = false WHERE indexrelid = 'missing'::regclass;
             INSERT INTO missed SELECT generate_series(1, 100);
             UPDATE pg_index SET indisready = true WHERE indexrelid = 'missing'::regclass",
        );
        let backup = drilled.backup(&mut guard, "index", &[]);
        let record = drilled.record(&backup, &[], 1);
        assert_eq!(verdicts(&record), ["failed", "passed", "passed"], "{record:#}");
        let expected = ("index".to_owned(), "public.missing".to_owned());
        assert_eq!(findings(&record), [expected], "{record:#}");
        drilled.execute("DROP TABLE missed");
        // A long value whose chunks are garbage, and a row that leads behind its page.
        let backup = drilled.backup(&mut guard, "values", &["--no-manifest"]);
        let toast = drilled.value(
            "SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = 'long'",
        );
        change(&backup.join(toast), 8192 * 2, |page| page[8000..8100].fill(0));
        change(&backup.join(drilled.file("t")), 8192 * 4, |page| page[28..32].fill(0x7F));
        let record = drilled.record(&backup, &[], 1);
        assert_eq!(verdicts(&record), ["failed", "passed", "passed"], "{record:#}");
        let found = findings(&record);
        let relations: Vec<&str> = found.iter().map(|(_, relation)| relation.as_str()).collect();
        assert!(relations.contains(&"public.t"), "{record:#}");
        drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    }
}

#[test]
fn a_tablespace_that_wal_makes_is_left_alone() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let drilled = Drilled::new(&mut guard, &server, "space", true);
        let spaces = ["old", "new"].map(|name| drilled.place(name));
        for space in &spaces {
            guard.run(Path::new("mkdir"), &[&space.display().to_string()]).unwrap();
        }
        let [old, new] = spaces.each_ref().map(|space| space.display().to_string());
        let make = |name: &str, place: &str| {
            drilled.execute(&format!("CREATE TABLESPACE \"{name}\" LOCATION '{place}'"));
            let table = format!("CREATE TABLE in_{name} TABLESPACE \"{name}\" AS SELECT * FROM t");
            drilled.execute(&table);
        };
        make("old", &old);
        let copied = drilled.place("copied").display().to_string();
        let mapping = format!("--tablespace-mapping={old}={copied}");
        let backup = drilled.backup(&mut guard, "backup", &[&mapping]);
        let record = drilled.passes(&backup, &[]);
        assert_eq!(record["backup"]["tablespaces"][0]["path"], copied.as_str(), "{record:#}");
        make("new", &new);
        drilled.execute("CHECKPOINT");
        drilled.archive_all();
        let before = spaces.each_ref().map(|space| contents(space));
        let copied_before = contents(Path::new(&copied));
        let archive = drilled.archive.display().to_string();
        let record = drilled.passes(&backup, &["--wal", &archive, "--until", "latest"]);
        let made = &record["wal"]["made_tablespaces"];
        assert_eq!(made.as_array().unwrap().len(), 1, "{record:#}");
        assert_eq!(made[0]["path"], new.as_str());
        // The production server's files are those that were there.
        assert_eq!(spaces.each_ref().map(|space| contents(space)), before);
        assert_eq!(contents(Path::new(&copied)), copied_before);
        assert_eq!(drilled.value("SELECT count(*) FROM in_new"), "20000");
        // A tablespace that is lost.
        guard.run(Path::new("rm"), &["-r", &copied]).unwrap();
        let record = drilled.record(&backup, &[], 1);
        assert_eq!(record["pages"]["verdict"], "failed", "{record:#}");
        drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    }
}

/// Files below a directory with their lengths, inodes and content.
pub(crate) fn contents(directory: &Path) -> Vec<(PathBuf, u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let inode = fs::metadata(&path).unwrap().ino();
                found.push((path.clone(), inode, fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

#[test]
fn mistakes_of_a_drill_are_one_line_and_a_hint() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let drilled = Drilled::new(&mut guard, &server(), "mistakes", true);
    let backup = drilled.backup(&mut guard, "backup", &[]);
    let data = drilled.cluster.data();
    let check = |path: &Path, arguments: &[&str], words: &str, hint: &str| {
        let ran = drilled.drill(path, arguments);
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        let lines: Vec<&str> = ran.stderr.lines().collect();
        let [output, hinted] = lines.as_slice() else { panic!("{ran:?}") };
        assert!(output.starts_with("pgtoll: ") && output.contains(words), "{output}");
        assert!(hinted.starts_with("hint: ") && hinted.contains(hint), "{hinted}");
    };
    check(&data, &[], "a server runs on", "pg_basebackup");
    check(&backup, &[&backup.display().to_string()], "here are several", "one after the other");
    check(&drilled.place("archive"), &[], "is not a base backup", "PG_VERSION");
    check(&backup, &["-o", "drilled.csv"], "unknown ending .csv", ".html");
    check(&backup, &["--postgres", "/usr"], "holds no PostgreSQL server", "--postgres");
    check(&backup, &["--work-dir", "/nowhere"], "find /nowhere", "--work-dir");
    let empty = drilled.drills.path("empty");
    fs::create_dir(&empty).unwrap();
    check(&backup, &["--wal", &empty.display().to_string()], "holds no WAL segment", "archive");
    check(&backup, &["--wal", "s3://b/wals"], "s3://b/wals is a URL", "copy the backup");
    let tars = drilled.backup(&mut guard, "tars", &["-Ft"]);
    fs::write(tars.join("base.tar.gz"), "").unwrap();
    check(&tars, &[], "several tars of a data directory", "name the tar");
    check(&tars.join("base.tar.gz"), &[], "base.tar.gz: cut short", "Fetch it again");
    let installed: Vec<u32> = all_servers().iter().map(|server| server.version.major()).collect();
    let other = (13..=19).rev().find(|major| !installed.contains(major)).unwrap();
    fs::write(backup.join("PG_VERSION"), format!("{other}\n")).unwrap();
    check(&backup, &[], &format!("no PostgreSQL {other} found"), "pgtoll postgres");
    fs::write(backup.join("PG_VERSION"), format!("{}\n", server().version.major())).unwrap();
    let large = File::create(backup.join("base/large")).unwrap();
    large.set_len(1 << 43).unwrap();
    check(&backup, &[], "the drill needs 8", "--work-dir");
    fs::remove_file(backup.join("base/large")).unwrap();
    fs::remove_file(backup.join("backup_label")).unwrap();
    fs::remove_file(backup.join("backup_manifest")).unwrap();
    check(&backup, &[], "its control file says \"in production\"", "base backup");
    for (arguments, words) in [
        (vec!["--quick"], "cannot be used with"),
        (vec!["--dsn", "host=/run"], "cannot be used with"),
        (vec!["--until", "now"], "is neither consistency nor latest"),
        (vec!["--patience", "0s"], "not between"),
    ] {
        let ran = drilled.drill(&backup, &arguments);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(words), "{ran:?}");
    }
    let ran = run(pgtoll().args(["verify", "--until", "latest"]).arg(&backup));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--drill"), "{ran:?}");
}

#[test]
fn a_drill_says_first_what_it_takes() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let drilled = Drilled::new(&mut guard, &server(), "first", true);
    let backup = drilled.backup(&mut guard, "backup", &[]);
    let mut command = pgtoll();
    command.args(["verify", "--drill"]).arg(&backup).arg("--work-dir").arg(drilled.drills.work());
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let first: Vec<&str> = ran.stderr.lines().take(3).collect();
    assert!(first[0].contains("are copied, with "), "{ran:?}");
    assert!(first[1].contains("free in"), "{ran:?}");
    assert!(first[2].contains("recovers it as user"), "{ran:?}");
    assert!(ran.stdout.starts_with("Sound: the backup can be restored.\n"), "{ran:?}");
}

#[test]
fn an_interrupted_drill_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let drilled = Drilled::new(&mut guard, &server(), "interrupted", true);
    let backup = drilled.backup(&mut guard, "backup", &[]);
    let points = [
        ("drill-copy", Signal::SIGINT),
        ("drill-look", Signal::SIGTERM),
        ("drill-read", Signal::SIGINT),
        ("drill-read", Signal::SIGKILL),
    ];
    check_interrupted(&drilled, &[&backup], &points);
}

/// A drill of these paths that a signal meets at these points leaves nothing behind.
pub(crate) fn check_interrupted(drilled: &Drilled, paths: &[&Path], points: &[(&str, Signal)]) {
    for (point, signal) in points {
        let later: Vec<String> = paths[1..].iter().map(|path| path.display().to_string()).collect();
        let later: Vec<&str> = later.iter().map(String::as_str).collect();
        let mut command = drilled.command(paths[0], &later);
        let mut child = command.env("PGTOLL_TEST_PAUSE_AT", point).spawn().unwrap();
        let pid = Pid::from_raw(pid_of(&child));
        let paused = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(paused, WaitStatus::Stopped(..)), "{point}: {paused:?}");
        kill(pid, *signal).unwrap();
        kill(pid, Signal::SIGCONT).unwrap();
        let ended = child.wait().unwrap();
        let expected = if *signal == Signal::SIGKILL { None } else { Some(2) };
        assert_eq!(ended.code(), expected, "{point}: {ended:?}");
        wait_until_empty(&drilled.drills);
    }
}

/// The guard outlives a pgtoll that was killed by as long as it takes to clean up.
fn wait_until_empty(scratch: &Scratch) {
    let is_empty = || fs::read_dir(scratch.work()).unwrap().next().is_none();
    let interrupt = Interrupt::new();
    for _ in 0..1200 {
        if is_empty() {
            break;
        }
        interrupt.wait(Duration::from_millis(50)).unwrap();
    }
    scratch.assert_empty();
}
