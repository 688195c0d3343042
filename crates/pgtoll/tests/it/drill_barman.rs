//! Drills of what the real barman-cloud stores, copied to a directory: good backups pass, and damaged ones
//! fail with the right verdict.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use pgtoll_cluster::StopMode;
use pgtoll_store::{Store, StoreUrl};
use pgtoll_system::Interrupt;
use serde_json::Value;

use crate::drill::{Drilled, contents, segments, verdicts};
use crate::fleet_barman::{MotoServer, are_there};
use crate::support::{Scratch, program, run, server};

const FLEET: &str = "s3://backups/fleet";

/// barman's servers, with its options.
const WAYS: [(&str, &[&str]); 2] =
    [("packed", &["--gzip"]), ("parts", &["--max-archive-size", "8MB"])];

/// Runs a program of barman-cloud for one of its servers.
fn barman(moto: &MotoServer, drilled: &Drilled, words: &[&str], server: &str, last: Option<&Path>) {
    let mut command = program(format!("/usr/bin/{}", words[0]));
    command.args(["--endpoint-url", &moto.endpoint()]).args(&words[1..]).args([FLEET, server]);
    command.args(last).envs(drilled.cluster.environment()).envs(moto.environment());
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
}

/// Everything in the store, below this directory.
fn fetch(moto: &MotoServer, to: &Path) {
    let url: StoreUrl = FLEET.parse().unwrap();
    let store = Store::open_with(&url, &Interrupt::new(), &moto.environment()).unwrap();
    for object in store.list(&url).unwrap() {
        let key = object.url.to_string().replace(&format!("{FLEET}/"), "");
        let path = to.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, store.read(&object.url, 1 << 30).unwrap()).unwrap();
    }
}

/// The directory of a server's only backup.
fn backup_of(server: &Path) -> PathBuf {
    fs::read_dir(server.join("base")).unwrap().next().unwrap().unwrap().path()
}

/// A damage of a copy of the server's directory, the verdicts on pages, WAL chain and start (an empty one
/// may be any), and words of a finding or reason.
type Damage<'a> = (&'a str, &'a dyn Fn(&Path), [&'a str; 3], &'a str);

fn check_damage(drilled: &Drilled, parts: &Path, (name, damage, expected, output): Damage<'_>) {
    let copy = drilled.drills.path(name);
    for (path, _, content) in contents(parts) {
        let to = copy.join(path.strip_prefix(parts).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, content).unwrap();
    }
    damage(&copy);
    let record = drilled.record(&copy, &["--backup", "latest"], 1);
    for (found, expected) in verdicts(&record).iter().zip(expected) {
        assert!(expected.is_empty() || *found == expected, "{name}: {record:#}");
    }
    let findings = record["pages"]["findings"].as_array().unwrap().iter();
    let reasons = ["pages", "wal", "start"].map(|stage| &record[stage]["reason"]);
    let mut texts = findings.map(|finding| &finding["words"]).chain(reasons);
    let is_said = |text: &Value| text.as_str().unwrap().contains(output);
    assert!(texts.any(is_said), "{name}: {record:#}");
    fs::remove_dir_all(copy).unwrap();
}

/// Changes a byte of a page in whichever tar has this file.
fn change_page(backup: &Path, file: &Path) {
    for entry in fs::read_dir(backup).unwrap().flatten() {
        if entry.path().extension().is_none_or(|ending| ending != "tar") {
            continue;
        }
        let mut archive = tar::Archive::new(File::open(entry.path()).unwrap());
        let mut members = archive.entries_with_seek().unwrap().map(Result::unwrap);
        if let Some(member) = members.find(|member| member.path().unwrap().ends_with(file)) {
            let at = member.raw_file_position() + 3 * 8192 + 5000;
            let tar = File::options().read(true).write(true).open(entry.path()).unwrap();
            let mut byte = [0];
            tar.read_exact_at(&mut byte, at).unwrap();
            tar.write_all_at(&[byte[0] ^ 4], at).unwrap();
            return;
        }
    }
    panic!("no tar has {}", file.display());
}

#[test]
fn barmans_backups_pass_the_drill_and_damaged_ones_fail() {
    if !are_there("/usr/bin/barman-cloud-backup") {
        return;
    }
    let scratch = Scratch::new();
    let moto = MotoServer::start();
    let mut guard = scratch.guard();
    let drilled = Drilled::new(&mut guard, &server(), "barman", true);
    let space = drilled.place("space");
    guard.run(Path::new("mkdir"), &[&space.display().to_string()]).unwrap();
    drilled.execute(&format!("CREATE TABLESPACE space LOCATION '{}'", space.display()));
    drilled.execute("CREATE TABLE in_space TABLESPACE space AS SELECT * FROM t");
    let oid = drilled.value("SELECT oid FROM pg_tablespace WHERE spcname = 'space'");
    let first = drilled.value("SELECT pg_walfile_name(pg_current_wal_lsn())");
    for (name, options) in WAYS {
        let words = [&["barman-cloud-backup", "--immediate-checkpoint"][..], options].concat();
        barman(&moto, &drilled, &words, name, None);
    }
    drilled.archive_all();
    for segment in segments(&drilled.archive) {
        if segment.file_name().unwrap().to_str().unwrap() >= &*first {
            barman(
                &moto,
                &drilled,
                &["barman-cloud-wal-archive", "--gzip"],
                "packed",
                Some(&segment),
            );
            barman(&moto, &drilled, &["barman-cloud-wal-archive"], "parts", Some(&segment));
        }
    }
    let fleet = drilled.drills.path("fleet");
    fetch(&moto, &fleet);
    let before = (contents(&fleet), contents(&space));
    for (name, _) in WAYS {
        let record = drilled.passes(&fleet, &["--stanza", name, "--backup", "latest"]);
        assert_eq!(record["backup"]["form"], "tars", "{record:#}");
        assert_eq!(record["backup"]["tablespaces"][0]["oid"].to_string(), oid, "{record:#}");
        let wals = fleet.join(name).join("wals").display().to_string();
        assert_eq!(record["wal"]["sources"][0], wals, "{record:#}");
    }
    drilled.passes(&backup_of(&fleet.join("packed")), &[]);
    let parts = fleet.join("parts");
    let table = drilled.file("t");
    assert!(backup_of(&parts).join("data_0001.tar").exists());
    let damages: [Damage<'_>; 4] = [
        (
            "space",
            &|item| fs::remove_file(backup_of(item).join(format!("{oid}.tar"))).unwrap(),
            ["failed", "passed", "passed"],
            "the files of tablespace ",
        ),
        (
            "page",
            &|item| change_page(&backup_of(item), &table),
            ["failed", "passed", "passed"],
            "files of the backup are damaged",
        ),
        (
            "part",
            &|item| fs::remove_file(backup_of(item).join("data_0001.tar")).unwrap(),
            ["failed", "", ""],
            "data_0002.tar is there, and the part before it is missing",
        ),
        (
            "wal",
            &|item| {
                let info = fs::read_to_string(backup_of(item).join("backup.info")).unwrap();
                let begin = info.lines().find_map(|line| line.strip_prefix("begin_wal=")).unwrap();
                fs::remove_file(item.join("wals").join(&begin[..16]).join(begin)).unwrap();
            },
            ["unknown", "failed", "failed"],
            " is missing",
        ),
    ];
    for damage in damages {
        check_damage(&drilled, &parts, damage);
    }
    assert!((contents(&fleet), contents(&space)) == before);
    let info = backup_of(&parts).join("backup.info");
    let text = fs::read_to_string(&info).unwrap();
    fs::write(&info, text.replace("status=DONE", "status=FAILED")).unwrap();
    let ran = drilled.drill(&parts, &["--backup", "latest"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("backup.info has status FAILED"), "{ran:?}");
    drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
}
