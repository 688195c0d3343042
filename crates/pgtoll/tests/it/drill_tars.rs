//! Drills of backups in tars: good ones pass, and damaged and hostile ones fail with the right verdict and
//! leave nothing outside of the drill's directory.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use pgtoll_cluster::{Guard, StopMode};
use serde_json::Value;
use tar::{Builder, EntryType, Header};

use crate::drill::{Drilled, check_interrupted, contents, copy, verdicts};
use crate::support::{Scratch, flip, pgtoll, run, server, servers};

/// A cluster with a tablespace; the tablespace's directory and OID.
fn drilled_with_space(
    guard: &mut Guard,
    server: &pgtoll_cluster::Installation,
    name: &str,
) -> (Drilled, PathBuf, String) {
    let drilled = Drilled::new(guard, server, name, true);
    let space = drilled.place("space");
    guard.run(Path::new("mkdir"), &[&space.display().to_string()]).unwrap();
    drilled.execute(&format!("CREATE TABLESPACE space LOCATION '{}'", space.display()));
    drilled.execute("CREATE TABLE in_space TABLESPACE space AS SELECT * FROM t");
    let oid = drilled.value("SELECT oid FROM pg_tablespace WHERE spcname = 'space'");
    (drilled, space, oid)
}

/// Compresses the tars of a backup.
pub(crate) fn pack(place: &Path, ending: &str) {
    for entry in fs::read_dir(place).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "tar") {
            continue;
        }
        let plain = fs::read(&path).unwrap();
        let packed = match ending {
            ".gz" => {
                let fast = flate2::Compression::fast();
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), fast);
                encoder.write_all(&plain).unwrap();
                encoder.finish().unwrap()
            }
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

/// The files of a backup's directory in another one.
fn same_files(backup: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(backup).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Where a member's bytes begin in a tar.
fn offset(tar: &Path, member: &Path) -> u64 {
    let mut archive = tar::Archive::new(File::open(tar).unwrap());
    let mut entries = archive.entries_with_seek().unwrap().map(Result::unwrap);
    entries.find(|entry| entry.path().unwrap() == member).unwrap().raw_file_position()
}

fn cut(path: &Path, percent: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() * percent / 100).unwrap();
}

fn describe(record: &Value) -> Vec<String> {
    let findings = record["pages"]["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["words"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn good_backups_in_tars_pass_the_drill() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let (drilled, space, oid) = drilled_with_space(&mut guard, &server, "tars");
        drilled.execute("CHECKPOINT");
        let before = contents(&space);
        let plain = drilled.backup(&mut guard, "plain", &["-Ft"]);
        let record = drilled.passes(&plain, &[]);
        let backup = &record["backup"];
        assert_eq!((&backup["form"], &backup["packing"]), (&"tars".into(), &Value::Null));
        let tar = plain.join(format!("{oid}.tar"));
        assert_eq!(backup["tablespaces"][0]["path"], tar.display().to_string(), "{record:#}");
        assert!(record["pages"]["backup"]["read"]["blocks"].as_u64() > Some(500), "{record:#}");
        assert!(record["pages"]["backup"]["manifest"]["files"].as_u64() > Some(500), "{record:#}");
        drilled.passes(&plain.join("base.tar"), &[]);
        for (ending, packing) in [(".gz", "gzip"), (".lz4", "lz4"), (".zst", "zstd")] {
            let packed = drilled.drills.path(packing);
            same_files(&plain, &packed);
            pack(&packed, ending);
            let record = drilled.passes(&packed, &[]);
            assert_eq!(record["backup"]["packing"], packing, "{record:#}");
            assert_eq!(record["backup"]["bytes"], backup["bytes"], "{record:#}");
        }
        let fetched = drilled.backup(&mut guard, "fetched", &["-Ft", "-X", "fetch", "-z"]);
        drilled.passes(&fetched, &[]);
        let without =
            drilled.backup(&mut guard, "without", &["-Ft", "-X", "none", "--no-manifest"]);
        drilled.execute("INSERT INTO long (v) VALUES ('after')");
        drilled.archive_all();
        let missing = drilled.record(&without, &[], 1);
        assert_eq!(verdicts(&missing), ["unknown", "failed", "failed"], "{missing:#}");
        let archive = drilled.archive.display().to_string();
        drilled.passes(&without, &["--wal", &archive, "--until", "latest"]);
        assert!(contents(&space) == before, "the server's own tablespace");
        drilled.cluster.stop(&mut guard, StopMode::Fast).unwrap();
        // What tar makes of a server that was shut down.
        let found = drilled.drills.path("cold");
        fs::create_dir(&found).unwrap();
        for (directory, name) in
            [(drilled.cluster.data(), "base.tar".to_owned()), (space.clone(), format!("{oid}.tar"))]
        {
            let made = drilled.place(&name);
            let directory = directory.display().to_string();
            let shown = made.display().to_string();
            guard.run(Path::new("tar"), &["-cf", &shown, "-C", &directory, "."]).unwrap();
            fs::copy(made, found.join(name)).unwrap();
        }
        let record = drilled.passes(&found, &[]);
        assert_eq!(record["backup"]["kind"], "cold_copy", "{record:#}");
    }
}

/// A damage of a copy of the backup, the verdicts on pages, WAL chain and start (an empty one may be any),
/// and words of a finding or reason.
type Damage = (&'static str, fn(&Damaged<'_>), [&'static str; 3], &'static str);

/// A backup in tars that is damaged.
struct Damaged<'a> {
    place: PathBuf,
    /// The table's file below the data directory.
    table: PathBuf,
    space: &'a str,
}

impl Damaged<'_> {
    fn base(&self) -> PathBuf {
        self.place.join("base.tar")
    }
}

const DAMAGES: [Damage; 9] = [
    (
        "page",
        |item| flip(&item.base(), offset(&item.base(), &item.table) + 3 * 8192 + 5000),
        ["failed", "passed", "passed"],
        "files of the backup are damaged",
    ),
    ("cut", |item| cut(&item.base(), 90), ["failed", "unknown", "failed"], "base.tar: cut short"),
    (
        "cut-gz",
        |item| {
            pack(&item.place, ".gz");
            cut(&item.place.join("base.tar.gz"), 90);
        },
        ["failed", "unknown", "failed"],
        "base.tar.gz: cut short",
    ),
    (
        "flipped-gz",
        |item| {
            pack(&item.place, ".gz");
            let base = item.place.join("base.tar.gz");
            flip(&base, fs::metadata(&base).unwrap().len() - 6);
        },
        ["failed", "passed", "passed"],
        "base.tar.gz: cannot be read further",
    ),
    (
        "no-space",
        |item| fs::remove_file(item.place.join(format!("{}.tar", item.space))).unwrap(),
        ["failed", "passed", "passed"],
        "are missing",
    ),
    (
        "cut-space",
        |item| cut(&item.place.join(format!("{}.tar", item.space)), 50),
        ["failed", "passed", "passed"],
        ".tar: cut short",
    ),
    (
        "no-wal",
        |item| fs::remove_file(item.place.join("pg_wal.tar")).unwrap(),
        ["unknown", "failed", "failed"],
        "the backup has no WAL",
    ),
    (
        "cut-wal",
        |item| cut(&item.place.join("pg_wal.tar"), 50),
        ["unknown", "failed", "failed"],
        "pg_wal.tar",
    ),
    (
        "no-manifest-file",
        |item| {
            let base = item.base();
            let name = offset(&base, &item.table) - 512;
            // Another file than the catalogs say.
            let file = File::options().read(true).write(true).open(&base).unwrap();
            let mut block = [0; 512];
            file.read_exact_at(&mut block, name).unwrap();
            let mut header = Header::from_byte_slice(&block).clone();
            header.set_path("base/1/999999").unwrap();
            header.set_cksum();
            file.write_all_at(header.as_bytes(), name).unwrap();
        },
        ["failed", "passed", "passed"],
        "files of the backup are damaged",
    ),
];

#[test]
fn damaged_tars_fail_with_the_right_verdict() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let (drilled, _, oid) = drilled_with_space(&mut guard, &server, "damagedtars");
        let backup = drilled.backup(&mut guard, "backup", &["-Ft"]);
        for (name, damage, expected, output) in DAMAGES {
            let place = drilled.drills.path(name);
            same_files(&backup, &place);
            damage(&Damaged { place: place.clone(), table: drilled.file("t"), space: &oid });
            let record = drilled.record(&place, &[], 1);
            for (found, expected) in verdicts(&record).iter().zip(expected) {
                assert!(expected.is_empty() || *found == expected, "{name}: {record:#}");
            }
            let mut texts = describe(&record);
            for stage in ["pages", "wal", "start"] {
                texts.push(record[stage]["reason"].as_str().unwrap().to_owned());
            }
            assert!(texts.iter().any(|text| text.contains(output)), "{name}: {texts:#?}");
            fs::remove_dir_all(place).unwrap();
        }
        // WAL that lies elsewhere replaces a tar that is cut short, and that is said.
        let place = drilled.drills.path("elsewhere");
        same_files(&backup, &place);
        cut(&place.join("pg_wal.tar"), 50);
        drilled.archive_all();
        let record = drilled.passes(&place, &["--wal", &drilled.archive.display().to_string()]);
        assert!(record["notes"][0].as_str().unwrap().contains("pg_wal.tar"), "{record:#}");
        drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    }
}

/// A member as no server writes one: its name as it is, whatever a builder says of it.
fn member(kind: EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o4777);
    header.set_size(content.len() as u64);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..name.len()].copy_from_slice(name.as_bytes());
    gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, content).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    // Without the blocks that end a tar.
    bytes.truncate(bytes.len() - 1024);
    bytes
}

/// Puts members before all others of a tar.
fn prepend(tar: &Path, members: &[Vec<u8>]) {
    let mut rest = Vec::new();
    File::open(tar).unwrap().read_to_end(&mut rest).unwrap();
    fs::write(tar, [members.concat(), rest].concat()).unwrap();
}

#[test]
fn hostile_tars_write_nothing_outside() {
    use EntryType::{Block, Fifo, Link, Regular, Symlink};

    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let (drilled, space, oid) = drilled_with_space(&mut guard, &server, "hostile");
        let backup = drilled.backup(&mut guard, "backup", &["-Ft"]);
        let outside = drilled.drills.path("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        drilled.execute("CHECKPOINT");
        let before = (contents(&outside), contents(&space));
        let at = |name: &str| outside.join(name).display().to_string();
        let root = outside.display().to_string();
        let kept = at("kept");
        let linked = format!("pg_tblspc/{oid}");
        let cases: Vec<(&str, Vec<Vec<u8>>, &str)> = vec![
            ("absolute", vec![member(Regular, &at("x"), "", b"x")], "leads out of the backup"),
            ("dots", vec![member(Regular, "base/../../../../outside/x", "", b"x")], "leads out"),
            (
                "link",
                vec![
                    member(Symlink, "base/out", &root, b""),
                    member(Regular, "base/out/kept", "", b"changed"),
                ],
                "is a link",
            ),
            ("hard-link", vec![member(Link, "base/hard", &kept, b"")], "is neither a file"),
            ("device", vec![member(Block, "base/disk", "", b"")], "is neither a file"),
            ("fifo", vec![member(Fifo, "base/fifo", "", b"")], "is neither a file"),
            (
                "twice",
                vec![member(Regular, "PG_VERSION", "", b"99\n")],
                "PG_VERSION is there twice",
            ),
            ("file-above", vec![member(Regular, "base", "", b"")], "is a directory, too"),
            // A tablespace's link is the drill's own, wherever the tar says that it leads.
            ("space", vec![member(Symlink, &linked, &root, b"")], ""),
        ];
        for (name, members, expected) in cases {
            let place = drilled.drills.path(name);
            same_files(&backup, &place);
            prepend(&place.join("base.tar"), &members);
            let status = i32::from(!expected.is_empty());
            let record = drilled.record(&place, &[], status);
            let verdict = if expected.is_empty() { "passed" } else { "failed" };
            assert_eq!(record["pages"]["verdict"], verdict, "{name}: {record:#}");
            let found = describe(&record);
            let is_said = found.iter().any(|words| words.contains(expected));
            assert!(is_said || expected.is_empty(), "{name}: {found:#?}");
            assert!((contents(&outside), contents(&space)) == before, "{name}");
            fs::remove_dir_all(place).unwrap();
        }
        drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    }
}

#[test]
fn sparse_files_and_lies_about_sizes_are_no_surprise() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let drilled = Drilled::new(&mut guard, &server(), "sparse", true);
    let backup = drilled.backup(&mut guard, "backup", &["-Ft"]);
    let spoiled = |name: &str, members: &[Vec<u8>]| {
        let place = drilled.drills.path(name);
        same_files(&backup, &place);
        prepend(&place.join("base.tar"), members);
        place
    };
    // Another program would unpack it: the backup is not at fault, and not all was looked at.
    let sparse = spoiled("sparse", &[member(EntryType::GNUSparse, "base/holes", "", b"")]);
    let record = drilled.record(&sparse, &[], 2);
    assert_eq!(verdicts(&record), ["unknown", "passed", "passed"], "{record:#}");
    assert!(describe(&record)[0].contains("sparse"), "{record:#}");
    // A member that says it has more than there is in the tar.
    let mut long = member(EntryType::Regular, "base/long", "", b"");
    let mut header = Header::from_byte_slice(&long).clone();
    header.set_size(1 << 30);
    header.set_cksum();
    long.copy_from_slice(header.as_bytes());
    let place = spoiled("long", &[long]);
    let ran = drilled.drill(&place, &[]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("base.tar: cut short"), "{ran:?}");
    // A few megabytes that become more than any disk has: refused before a byte is written.
    let place = spoiled("bomb", &[]);
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    let mut header = Header::new_gnu();
    header.set_path("base/zeros").unwrap();
    header.set_size(1 << 50);
    header.set_cksum();
    encoder.write_all(header.as_bytes()).unwrap();
    encoder.write_all(&vec![0; 64 << 20]).unwrap();
    fs::write(place.join("base.tar.zst"), encoder.finish().unwrap()).unwrap();
    fs::remove_file(place.join("base.tar")).unwrap();
    let ran = drilled.drill(&place, &[]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("the drill needs 1024 TB"), "{ran:?}");
    // What is said of compressed tars before they are read.
    let packed = drilled.place("packed");
    copy(&mut guard, &backup, &packed);
    pack(&packed, ".zst");
    let mut command = pgtoll();
    command.args(["verify", "--drill"]).arg(&packed).arg("--work-dir").arg(drilled.drills.work());
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let output = "(zstd) are read through first, since no compressed tar says how large it is inside; \
                the manifest lists ";
    assert!(ran.stderr.contains(output), "{ran:?}");
    assert!(ran.stderr.contains("1 tar is unpacked to "), "{ran:?}");
    drilled.drills.assert_empty();
    symlink(&packed, drilled.drills.path("linked")).unwrap();
    drilled.passes(&drilled.drills.path("linked"), &[]);
    drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
}

#[test]
fn an_interrupted_drill_of_tars_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let drilled = Drilled::new(&mut guard, &server(), "interruptedtars", true);
    let backup = drilled.backup(&mut guard, "backup", &["-Ft", "-z"]);
    let points = [
        ("drill-look", Signal::SIGINT),
        ("drill-unpack", Signal::SIGTERM),
        ("drill-unpack", Signal::SIGKILL),
        ("drill-verify", Signal::SIGINT),
    ];
    check_interrupted(&drilled, &[&backup], &points);
    drilled.cluster.stop(&mut guard, StopMode::Immediate).unwrap();
}
