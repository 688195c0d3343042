//! Drills of repositories that the real pgBackRest makes: good backups of each kind pass, and damaged ones
//! fail with the right verdict. Nothing is written into a repository.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::sys::signal::Signal;
use pgtoll_cluster::{Guard, StopMode};
use serde_json::Value;

use crate::drill::{Drilled, change, check_interrupted, contents, copy, verdicts};
use crate::fleet_pgbackrest::{PROGRAM, is_there};
use crate::support::{PATIENCE, Scratch, pgtoll, run, server};

/// A running cluster with a tablespace, whose WAL pgBackRest archives.
struct Repository {
    drilled: Drilled,
    path: PathBuf,
    space: PathBuf,
}

impl Repository {
    fn make(guard: &mut Guard, name: &str) -> Self {
        let drilled = Drilled::new(guard, &server(), name, true);
        let path = drilled.place("repository");
        let space = drilled.place("space");
        guard.run(Path::new("mkdir"), &[&space.display().to_string()]).unwrap();
        let repository = Self { drilled, path, space };
        repository.run(guard, &["stanza-create"]).unwrap();
        // It takes no options of connections.
        let mut push = repository.describe(&["archive-push"]);
        let connection = ["--pg1-port", "--pg1-user", "--pg1-socket-path"];
        push.retain(|word| !connection.iter().any(|name| word.starts_with(name)));
        let push = push.join(" ");
        repository.drilled.execute(&format!(
            "ALTER SYSTEM SET archive_command = '{PROGRAM} {push} %p'; SELECT pg_reload_conf();
             CREATE TABLESPACE space LOCATION '{}';
             CREATE TABLE in_space TABLESPACE space AS SELECT * FROM t",
            repository.space.display()
        ));
        repository
    }

    /// The options that say which repository and which cluster, and these words.
    fn describe(&self, words: &[&str]) -> Vec<String> {
        let pick = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let cluster = &self.drilled.cluster;
        let environment = cluster.environment();
        let mut all = vec![
            "--stanza=main".to_owned(),
            "--log-level-file=off".to_owned(),
            pick("pg1-path", &cluster.data()),
            pick("pg1-socket-path", cluster.directory()),
            format!("--pg1-port={}", environment["PGPORT"]),
            format!("--pg1-user={}", environment["PGUSER"]),
            pick("repo1-path", &self.path),
            pick("lock-path", &self.drilled.place("lock")),
        ];
        all.extend(words.iter().map(|word| (*word).to_owned()));
        all
    }

    /// Runs pgBackRest with these options and this command, as the cluster's user.
    fn run(&self, guard: &mut Guard, words: &[&str]) -> Result<(), pgtoll_cluster::ClusterError> {
        let words = self.describe(words);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        guard.run(Path::new(PROGRAM), &words).map(drop)
    }

    /// Backs up, and returns the new backup's label.
    fn back_up(&self, guard: &mut Guard, options: &[&str]) -> String {
        let common = ["--start-fast", "--repo1-retention-full=9", "--compress-level=1"];
        self.run(guard, &[&common[..], options, &["backup"]].concat()).unwrap();
        labels(&self.path).pop().unwrap()
    }

    /// The same while the server writes several segments, until a backup needs more than two.
    fn back_up_long(&self, guard: &mut Guard, options: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let label = self.back_up_beside_writer(guard, options);
            if needed_segments(&self.path, &label).len() > 2 {
                return label;
            }
            assert!(begun.elapsed() < PATIENCE, "no backup took several segments");
        }
    }

    fn back_up_beside_writer(&self, guard: &mut Guard, options: &[&str]) -> String {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    self.drilled.execute("INSERT INTO long (v) VALUES ('meanwhile')");
                    self.drilled.archive_all();
                }
            });
            let label = self.back_up(guard, options);
            is_done.store(true, Ordering::Relaxed);
            writer.join().unwrap();
            label
        })
    }

    fn passes(&self, label: &str) -> Value {
        let record = self.drilled.passes(&self.path, &["--stanza", "main", "--backup", label]);
        let backup = self.path.join("backup/main").join(label);
        assert_eq!(record["backup"]["path"], backup.display().to_string(), "{record:#}");
        assert_eq!(record["backup"]["form"], "repository", "{record:#}");
        let space = &record["backup"]["tablespaces"][0]["path"];
        assert!(space.as_str().unwrap().contains("/pg_tblspc/"), "{record:#}");
        assert!(record["pages"]["backup"]["read"]["blocks"].as_u64() > Some(500), "{record:#}");
        record
    }
}

/// Labels of a repository's backups, the oldest first.
fn labels(repository: &Path) -> Vec<String> {
    let names = fs::read_dir(repository.join("backup/main")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut labels: Vec<String> = names.filter(|name| name.starts_with("20")).collect();
    labels.sort_by_key(|label| label.rsplit('_').next().unwrap().to_owned());
    labels
}

#[test]
fn pgbackrests_backups_of_each_kind_pass_the_drill() {
    if !is_there() {
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let repository = Repository::make(&mut guard, "kinds");
    let bundles = ["--compress-type=zst", "--repo1-bundle"];
    let change = "UPDATE t SET b = b || 'x' WHERE id % 50 = 0;
                  INSERT INTO in_space SELECT * FROM t WHERE id < 100";
    let full = repository.back_up(&mut guard, &[&bundles[..], &["--type=full"]].concat());
    repository.drilled.execute(change);
    let differential = repository.back_up(&mut guard, &[&bundles[..], &["--type=diff"]].concat());
    repository.drilled.execute(change);
    let incremental = repository.back_up(&mut guard, &[&bundles[..], &["--type=incr"]].concat());
    repository.drilled.archive_all();
    repository.drilled.execute("CHECKPOINT");
    let before = (contents(&repository.path), contents(&repository.space));
    for label in [&full, &differential, &incremental] {
        let record = repository.passes(label);
        assert_eq!(record["backup"]["packing"], "zstd", "{record:#}");
        let archive = archive(&repository.path);
        assert_eq!(record["wal"]["sources"][0], archive.display().to_string(), "{record:#}");
        assert!(record["wal"]["stop"].is_string(), "{record:#}");
    }
    let latest = repository.passes_latest();
    assert!(latest.ends_with(&incremental), "{latest}");
    let backup = repository.path.join("backup/main").join(&full);
    let points = [("drill-unpack", Signal::SIGINT), ("drill-unpack", Signal::SIGKILL)];
    check_interrupted(&repository.drilled, &[&backup], &points);
    let after = (contents(&repository.path), contents(&repository.space));
    assert!(after == before, "the repository, or the server's own tablespace");
    repository.drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
}

impl Repository {
    /// The path of the newest backup, which is said before anything is done, with the disk it needs.
    fn passes_latest(&self) -> String {
        let mut command = pgtoll();
        command.args(["verify", "--drill", "--json", "--backup", "latest", "--until", "latest"]);
        command.arg("--work-dir").arg(self.drilled.drills.work()).arg(&self.path);
        let ran = run(&mut command);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(
            ran.stderr.contains("files of a repository of pgBackRest are unpacked to"),
            "{ran:?}"
        );
        assert!(ran.stderr.contains("at most "), "{ran:?}");
        self.drilled.drills.assert_empty();
        let record: Value = serde_json::from_str(&ran.stdout).unwrap();
        record["backup"]["path"].as_str().unwrap().to_owned()
    }
}

#[test]
fn pgbackrests_packings_pass_the_drill() {
    if !is_there() {
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let repository = Repository::make(&mut guard, "packings");
    let ways: [(&[&str], Value); 4] = [
        (&["--compress-type=gz", "--type=full"], "gzip".into()),
        (&["--compress-type=gz", "--type=incr"], "gzip".into()),
        (&["--compress-type=lz4", "--type=full", "--repo1-bundle"], "lz4".into()),
        (&["--compress-type=none", "--type=full", "--repo1-bundle"], Value::Null),
    ];
    for (options, packing) in ways {
        let label = repository.back_up(&mut guard, options);
        let record = repository.passes(&label);
        assert_eq!(record["backup"]["packing"], packing, "{record:#}");
    }
    // Of a server that was shut down: it has no label, and needs no WAL.
    repository.drilled.cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let label = repository.back_up(&mut guard, &["--no-online", "--type=full"]);
    let archive = repository.path.join("archive");
    let away = repository.drilled.drills.path("archive");
    fs::rename(&archive, &away).unwrap();
    let record = repository.passes(&label);
    assert_eq!(record["backup"]["kind"], "cold_copy", "{record:#}");
    fs::rename(&away, &archive).unwrap();
    check_unread(&repository, &mut guard);
}

/// What cannot be drilled is said in a line, with what to do instead.
fn check_unread(repository: &Repository, guard: &mut Guard) {
    let drilled = &repository.drilled;
    let encrypted = drilled.place("encrypted");
    let options = ["--repo1-cipher-type=aes-256-cbc", "--no-online"];
    let back_up = ["--repo1-retention-full=9", "--type=full", "backup"];
    for command in [&["stanza-create"][..], &back_up] {
        let mut words = repository.describe(&[&options[..], command].concat());
        words.push(format!("--repo1-path={}", encrypted.display()));
        words.retain(|word| *word != format!("--repo1-path={}", repository.path.display()));
        let program = ["PGBACKREST_REPO1_CIPHER_PASS=secret", PROGRAM];
        let words: Vec<&str> =
            program.into_iter().chain(words.iter().map(String::as_str)).collect();
        guard.run(Path::new("/usr/bin/env"), &words).unwrap();
    }
    let refused = |path: &Path, arguments: &[&str], words: &[&str]| {
        let ran = drilled.drill(path, arguments);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert_eq!(ran.stdout, "", "{ran:?}");
        for words in words {
            assert!(ran.stderr.contains(words), "{words}: {ran:?}");
        }
    };
    let hint = "restore it with the tool that made it, if that can";
    refused(&encrypted, &["--backup", "latest"], &["encrypted", hint]);
    refused(&repository.path, &[], &["backups here, such as 20", "--backup latest"]);
    refused(&repository.path, &["--backup", "20200101-000000F"], &["no backup is called"]);
    let unknown = ["no backups of \"other\" here, but of main", "--stanza NAME"];
    refused(&repository.path, &["--stanza", "other", "--backup", "latest"], &unknown);
    let stanzas = repository.path.join("backup");
    copy(guard, &stanzas.join("main"), &stanzas.join("other"));
    let several = ["backups of 2 clusters here: main, other", "--stanza NAME"];
    refused(&repository.path, &["--backup", "latest"], &several);
    let manifest = stanzas.join("other").join(labels(&repository.path).pop().unwrap());
    let manifest = manifest.join("backup.manifest");
    let file = File::options().write(true).open(&manifest).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    refused(manifest.parent().unwrap(), &[], &["does not end with its checksum", hint]);
}

/// A damage of a copy of the repository, the verdicts on pages, WAL chain and start (an empty one may be
/// any), and words of a finding or reason.
type Damage = (&'static str, fn(&Damaged<'_>), [&'static str; 3], &'static str);

/// A repository that is damaged.
struct Damaged<'a> {
    repository: &'a Path,
    /// The backup.
    label: &'a str,
    /// The table's file below the data directory.
    table: &'a Path,
}

impl Damaged<'_> {
    fn file(&self, name: &Path) -> PathBuf {
        let backup = self.repository.join("backup/main").join(self.label);
        let mut path = backup.join("pg_data").join(name).into_os_string();
        path.push(".zst");
        path.into()
    }

    fn needed_segments(&self) -> Vec<PathBuf> {
        needed_segments(self.repository, self.label)
    }
}

/// The archive of the one version that a repository has backups of.
fn archive(repository: &Path) -> PathBuf {
    let entries = fs::read_dir(repository.join("archive/main")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let versions: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    let [version] = &versions[..] else { panic!("{versions:?}") };
    version.clone()
}

/// The segments in a repository's archive that a backup needs: the first, and those behind it.
fn needed_segments(repository: &Path, label: &str) -> Vec<PathBuf> {
    let manifest = repository.join("backup/main").join(label).join("backup.manifest");
    let manifest = fs::read_to_string(manifest).unwrap();
    let value = |name: &str| {
        let line = manifest.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches('"').to_owned()
    };
    let start = value("backup-archive-start=");
    let stop = value("backup-archive-stop=");
    let directory = archive(repository).join("0000000100000000");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap()[..24].to_owned();
    let mut segments: Vec<PathBuf> = entries
        .filter(|path| is_segment(path) && (&*start..=&*stop).contains(&&*name(path)))
        .collect();
    segments.sort();
    segments
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gz" || ending == "zst")
}

fn flip(path: &Path, at: impl FnOnce(u64) -> u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    let at = at(file.metadata().unwrap().len());
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

const DAMAGES: [Damage; 8] = [
    (
        "byte",
        |item| flip(&item.file(item.table), |bytes| bytes / 2),
        ["failed", "passed", "passed"],
        "1 finding in the repository",
    ),
    (
        "missing",
        |item| fs::remove_file(item.file(item.table)).unwrap(),
        ["failed", "passed", "passed"],
        "is missing; it should have base/",
    ),
    (
        "control",
        |item| fs::remove_file(item.file(Path::new("global/pg_control"))).unwrap(),
        ["failed", "unknown", "failed"],
        "global/pg_control.zst is missing",
    ),
    (
        "label",
        |item| fs::remove_file(item.file(Path::new("backup_label"))).unwrap(),
        ["failed", "failed", "unknown"],
        "backup_label is missing",
    ),
    (
        "gap",
        |item| {
            fs::remove_file(&item.needed_segments()[1]).unwrap();
        },
        ["unknown", "failed", "failed"],
        " is missing; it is whole up to ",
    ),
    (
        "segment",
        |item| flip(&item.needed_segments()[1], |bytes| bytes / 2),
        ["unknown", "failed", "failed"],
        "cannot be read",
    ),
    (
        "another",
        |item| {
            let needed = item.needed_segments();
            fs::copy(&needed[0], &needed[1]).unwrap();
        },
        ["unknown", "failed", "failed"],
        "cannot be read: its SHA-1 is not the one in its name",
    ),
    (
        "archive",
        |item| fs::remove_dir_all(item.repository.join("archive")).unwrap(),
        ["unknown", "failed", "failed"],
        "the backup has no WAL",
    ),
];

fn check_damage(drilled: &Drilled, damaged: &Damaged<'_>, expected: [&str; 3], output: &str) {
    let record = drilled.record(damaged.repository, &["--backup", damaged.label], 1);
    let name = damaged.repository.display();
    for (found, expected) in verdicts(&record).iter().zip(expected) {
        assert!(expected.is_empty() || *found == expected, "{name}: {record:#}");
    }
    let findings = record["pages"]["findings"].as_array().unwrap().iter();
    let reasons = ["pages", "wal", "start"].map(|stage| &record[stage]["reason"]);
    let mut texts = findings.map(|finding| &finding["words"]).chain(reasons);
    assert!(texts.any(|text| text.as_str().unwrap().contains(output)), "{name}: {record:#}");
}

#[test]
fn damaged_backups_of_pgbackrest_fail_with_the_right_verdict() {
    if !is_there() {
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let repository = Repository::make(&mut guard, "damagedrepo");
    let drilled = &repository.drilled;
    let table = drilled.file("t");
    let label = repository.back_up_long(&mut guard, &["--compress-type=zst", "--type=full"]);
    // Not compressed: nothing but the manifest's checksum says that a file of transactions changed.
    let plain = repository.back_up(&mut guard, &["--compress-type=none", "--type=full"]);
    drilled.execute("CHECKPOINT");
    change(&drilled.cluster.data().join(&table), 8192 * 3, |page| page[5000] ^= 4);
    let options = ["--compress-type=zst", "--type=full", "--repo1-bundle"];
    let before = repository.back_up(&mut guard, &options);
    drilled.archive_all();
    let damaged =
        |name: &str, label: &str, damage: &dyn Fn(&Damaged<'_>), expected, output: &str| {
            let place = drilled.drills.path(name);
            fs::create_dir(&place).unwrap();
            for name in ["backup", "archive"] {
                copy_all(&repository.path.join(name), &place.join(name));
            }
            let damaged = Damaged { repository: &place, label, table: &table };
            damage(&damaged);
            check_damage(drilled, &damaged, expected, output);
            fs::remove_dir_all(place).unwrap();
        };
    for (name, damage, expected, output) in DAMAGES {
        damaged(name, &label, &damage, expected, output);
    }
    let transactions = |damaged: &Damaged<'_>| {
        let file = damaged.file(Path::new("pg_xact/0000")).with_extension("");
        flip(&file, |_| 100);
    };
    let words = "its SHA-1 is not the one in the manifest";
    damaged("transactions", &plain, &transactions, ["failed", "passed", ""], words);
    let bundle = |damaged: &Damaged<'_>| {
        let path = damaged.repository.join("backup/main").join(damaged.label).join("bundle/1");
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    };
    damaged("bundle", &before, &bundle, ["failed", "", ""], "in the repository");
    let words = "files of the backup are damaged";
    damaged("before", &before, &|_| {}, ["failed", "passed", "passed"], words);
    drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
}

/// Copies a directory, as this user.
fn copy_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        // `latest` is a link.
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
