//! Drills of incremental backups: chains that the real `pg_combinebackup` combines pass, and those that do
//! not fit, or are damaged, fail with the right verdict.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use pgtoll_cluster::{Guard, Installation, StopMode};
use serde_json::Value;

use crate::drill::{Drilled, change, check_interrupted, contents, copy, verdicts};
use crate::drill_tars::pack;
use crate::support::{Scratch, servers};
use crate::verify_backups::summaries_name_maps;

/// Those with incremental backups.
fn servers_with_summaries() -> Vec<Installation> {
    servers().into_iter().filter(|server| server.version.major() >= 17).collect()
}

/// A cluster whose WAL is summarized, and whose visibility maps are empty: servers before 17.11 and 18.5 keep
/// stale bits in what is combined.
fn summarized(guard: &mut Guard, server: &Installation, name: &str, checksums: bool) -> Drilled {
    let drilled = Drilled::new(guard, server, name, checksums);
    drilled.execute(
        "ALTER SYSTEM SET summarize_wal = on; SELECT pg_reload_conf();
         CREATE EXTENSION pg_visibility;
         SELECT count(pg_truncate_visibility_map(oid)) FROM pg_class
             WHERE relkind IN ('r', 'm', 't') AND relpersistence = 'p'",
    );
    drilled
}

fn incremental(
    drilled: &Drilled,
    guard: &mut Guard,
    name: &str,
    before: &Path,
    arguments: &[&str],
) -> PathBuf {
    let manifest = format!("--incremental={}", before.join("backup_manifest").display());
    drilled.backup(guard, name, &[&[manifest.as_str()], arguments].concat())
}

/// The paths behind the first one, as arguments.
fn shown(paths: &[&Path]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}

fn passes(drilled: &Drilled, chain: &[&Path], more: &[&str]) -> Value {
    let later = shown(&chain[1..]);
    let arguments: Vec<&str> =
        later.iter().map(String::as_str).chain(more.iter().copied()).collect();
    drilled.passes(chain[0], &arguments)
}

fn fails(drilled: &Drilled, chain: &[&Path], expected: [&str; 3]) -> Value {
    let later = shown(&chain[1..]);
    let arguments: Vec<&str> = later.iter().map(String::as_str).collect();
    let record = drilled.record(chain[0], &arguments, 1);
    assert_eq!(verdicts(&record), expected, "{record:#}");
    record
}

#[test]
fn good_chains_pass_the_drill() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers_with_summaries() {
        let drilled = summarized(&mut guard, &server, "chain", true);
        let guard = &mut guard;
        let space = drilled.place("space=1");
        guard.run(Path::new("mkdir"), &[&space.display().to_string()]).unwrap();
        drilled.execute(&format!("CREATE TABLESPACE space LOCATION '{}'", space.display()));
        drilled.execute("CREATE TABLE in_space TABLESPACE space AS SELECT * FROM t");
        let map = |name: &str| {
            let shown = |path: PathBuf| path.display().to_string().replace('=', "\\=");
            format!("--tablespace-mapping={}={}", shown(space.clone()), shown(drilled.place(name)))
        };
        let full = drilled.backup(guard, "full", &[&map("full=space")]);
        drilled
            .execute("UPDATE t SET b = 'first' WHERE id % 1000 = 1; UPDATE in_space SET b = 'x'");
        let first = incremental(&drilled, guard, "first", &full, &[&map("first-space")]);
        drilled
            .execute("CREATE TABLE later AS SELECT * FROM t; DELETE FROM in_space WHERE id < 100");
        let second = incremental(&drilled, guard, "second", &first, &[&map("second-space")]);
        let spaces = ["full=space", "first-space", "second-space"].map(|name| drilled.place(name));
        let before = spaces.each_ref().map(|space| contents(space));
        let record = passes(&drilled, &[&full, &first, &second], &[]);
        assert!(spaces.each_ref().map(|space| contents(space)) == before);
        let backup = &record["backup"];
        assert_eq!(backup["form"], "chain", "{record:#}");
        let chain = backup["chain"].as_array().unwrap();
        assert_eq!(chain.len(), 3, "{record:#}");
        assert_eq!(chain[0]["incremental_from"], Value::Null);
        assert_eq!(chain[2]["incremental_from"], chain[1]["start"], "{record:#}");
        assert_eq!(record["pages"]["members"].as_array().unwrap().len(), 3);
        // What is said to be needed for the files is what they become.
        let output = backup["bytes"].as_u64().unwrap();
        let read = record["pages"]["backup"]["read"]["bytes"].as_u64().unwrap();
        assert!((read..read + (4 << 20)).contains(&output), "{output} of {read}");
        passes(&drilled, &[&full, &first], &[]);
        // Tars and directories; WAL that lies elsewhere.
        let tars = drilled.backup(guard, "tars", &["-Ft"]);
        pack(&tars, ".gz");
        drilled.execute("UPDATE t SET b = 'third' WHERE id % 1000 = 3");
        let third = incremental(&drilled, guard, "third", &tars, &["-Ft", "-X", "none"]);
        drilled.archive_all();
        let archive = drilled.archive.display().to_string();
        let record = passes(&drilled, &[&tars, &third], &["--wal", &archive, "--until", "latest"]);
        assert_eq!(record["backup"]["chain"][0]["packing"], "gzip", "{record:#}");
        drilled.cluster.stop(guard, StopMode::Immediate).unwrap();
    }
}

#[test]
fn chains_that_do_not_fit_fail_with_the_right_verdict() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers_with_summaries() {
        let drilled = summarized(&mut guard, &server, "misfit", true);
        let foreign = summarized(&mut guard, &server, "foreign", true);
        let guard = &mut guard;
        let full = drilled.backup(guard, "full", &[]);
        let strange = foreign.backup(guard, "strange", &[]);
        foreign.cluster.stop(guard, StopMode::Immediate).unwrap();
        drilled.execute("UPDATE t SET b = 'first' WHERE id % 1000 = 1");
        let first = incremental(&drilled, guard, "first", &full, &[]);
        drilled.execute("UPDATE t SET b = 'second' WHERE id % 1000 = 2");
        let second = incremental(&drilled, guard, "second", &first, &[]);
        passes(&drilled, &[&full, &first, &second], &[]);
        let note = |record: &Value, words: &str| {
            let notes = record["notes"].to_string();
            assert!(notes.contains(words), "{words}: {record:#}");
            let reason = record["start"]["reason"].as_str().unwrap();
            assert!(reason.contains("pg_combinebackup: "), "{reason}");
        };
        let not_combined = ["unknown", "unknown", "failed"];
        let record = fails(&drilled, &[&full, &second], not_combined);
        note(&record, "name all backups of the chain");
        let record = fails(&drilled, &[&first, &second], not_combined);
        note(&record, "the chain begins with the full backup");
        let record = fails(&drilled, &[&strange, &first], not_combined);
        note(&record, "is of cluster");
        // Damaged ones.
        let damaged = |guard: &mut Guard, name: &str, damage: &dyn Fn(&Path)| {
            let place = drilled.place(name);
            copy(guard, &full, &place);
            damage(&place);
            place
        };
        let manifest = damaged(guard, "manifest", &|place| {
            let file = File::options().write(true).open(place.join("backup_manifest")).unwrap();
            file.write_all_at(b"x", 40).unwrap();
        });
        let combined = fails(&drilled, &[&manifest, &first], ["failed", "unknown", "failed"]);
        assert!(combined["start"]["reason"].as_str().unwrap().contains("manifest"), "{combined:#}");
        let table = drilled.file("t");
        let page = damaged(guard, "page", &|place| {
            change(&place.join(&table), 8192 * 9, |page| page[5000] ^= 4);
        });
        fails(&drilled, &[&page, &first], ["failed", "passed", "passed"]);
        let missing = damaged(guard, "missing", &|place| {
            fs::remove_file(place.join(&table)).unwrap();
        });
        fails(&drilled, &[&missing, &first], ["failed", "unknown", "failed"]);
        check_mistakes(&drilled, [&full, &first, &second]);
        let points = [("drill-combine", Signal::SIGINT), ("drill-combine", Signal::SIGKILL)];
        check_interrupted(&drilled, &[&full, &first], &points);
        drilled.cluster.stop(guard, StopMode::Immediate).unwrap();
    }
}

fn check_mistakes(drilled: &Drilled, [full, first, second]: [&Path; 3]) {
    let check = |chain: &[&Path], words: &str, hint: &str| {
        let later = shown(&chain[1..]);
        let arguments: Vec<&str> = later.iter().map(String::as_str).collect();
        let ran = drilled.drill(chain[0], &arguments);
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(words) && ran.stderr.contains(hint), "{ran:?}");
    };
    check(&[first], "is an incremental backup", "--drill FULL");
    check(&[full, full], "here are several", "one after the other");
    let right = shown(&[full, first, second]).join(" ");
    for order in [[full, second, first], [first, full, second], [second, first, full]] {
        check(&order, "not in the order", &format!("hint: pgtoll verify --drill {right}"));
    }
    if geteuid().is_root() {
        let owner = fs::metadata(full).unwrap();
        chown(full, Some(0), Some(0)).unwrap();
        let mode = owner.permissions();
        fs::set_permissions(full, fs::Permissions::from_mode(0o700)).unwrap();
        check(&[full, first], "cannot be read by", "let that user read it");
        chown(full, Some(owner.uid()), Some(owner.gid())).unwrap();
        fs::set_permissions(full, mode).unwrap();
    }
}

/// Rows that were deleted between two backups: older servers keep the bits of the visibility map that were
/// cleared, and an index-only scan of what is restored counts them.
#[test]
fn stale_maps_of_combined_backups_are_found() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers_with_summaries() {
        let drilled = summarized(&mut guard, &server, "stale", true);
        drilled.execute(
            "CREATE TABLE counted (id int PRIMARY KEY);
             INSERT INTO counted SELECT generate_series(1, 20000); VACUUM (FREEZE) counted",
        );
        let full = drilled.backup(&mut guard, "full", &[]);
        drilled.execute("DELETE FROM counted WHERE id % 100 = 0");
        let later = incremental(&drilled, &mut guard, "later", &full, &[]);
        if summaries_name_maps(&server) {
            passes(&drilled, &[&full, &later], &[]);
        } else {
            let record = fails(&drilled, &[&full, &later], ["failed", "passed", "passed"]);
            for files in ["backup", "restored"] {
                let relations = record["pages"][files]["relations"].as_array().unwrap();
                let counted = relations
                    .iter()
                    .find(|relation| relation["name"]["relation"] == "counted")
                    .unwrap();
                assert_eq!(counted["findings"][0]["kind"], "map_stale", "{record:#}");
            }
        }
        drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    }
}

/// A table that VACUUM cut off between two backups, without checksums: its map keeps bits of blocks that are
/// gone, which become those of new rows.
#[test]
fn maps_of_tables_that_were_cut_off_are_found() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers_with_summaries() {
        let drilled = summarized(&mut guard, &server, "cut", false);
        drilled.execute(
            "CREATE TABLE counted (id int PRIMARY KEY);
             INSERT INTO counted SELECT generate_series(1, 20000);
             DELETE FROM counted WHERE id > 10000; VACUUM (FREEZE, TRUNCATE off) counted",
        );
        let full = drilled.backup(&mut guard, "full", &[]);
        drilled.execute("VACUUM (FREEZE) counted");
        let later = incremental(&drilled, &mut guard, "later", &full, &[]);
        let record = fails(&drilled, &[&full, &later], ["failed", "passed", "passed"]);
        let relations = record["pages"]["restored"]["relations"].as_array().unwrap();
        let counted =
            relations.iter().find(|relation| relation["name"]["relation"] == "counted").unwrap();
        assert_eq!(counted["findings"][0]["kind"], "map_stale", "{record:#}");
        drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    }
}
