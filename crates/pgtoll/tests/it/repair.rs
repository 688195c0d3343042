//! `pgtoll repair`: pages that are proved are written, and nothing else is.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::{
    HeaderField, LinePointerState, PageDifference, PageKind, SplitMix64, line_pointers,
};
use serde_json::Value;

use crate::repair_standby::await_replay;
use crate::support::{Scratch, pgtoll, program, run, server, servers, set_mode};
use crate::verify::{PAGE, PAGE_BYTES, check_program, execute, overwrite, path_of};

/// Rows, long values, an index and a sequence, all hinted and on disk.
pub(crate) const TABLES: [&str; 3] = [
    "CREATE TABLE t (a int PRIMARY KEY, b text);
     INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 20000) i;
     CREATE TABLE long (a int, b text); ALTER TABLE long ALTER b SET STORAGE EXTERNAL;
     INSERT INTO long SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 60) i;
     CREATE SEQUENCE s; SELECT nextval('s')",
    "VACUUM (FREEZE) t; VACUUM (FREEZE) long; SELECT count(*) FROM t; SELECT sum(length(b)) FROM long",
    "CHECKPOINT",
];

/// Changes some pages of each, after the backup.
pub(crate) const HOT: &str = "UPDATE t SET b = 'hot' WHERE a % 4000 = 0;
    INSERT INTO long VALUES (99, repeat('hot', 3000)); SELECT nextval('s')";

/// What all tables have in them.
const CONTENT: &str = "SELECT (SELECT md5(string_agg(a || b, ',' ORDER BY a)) FROM t) ||
    (SELECT md5(string_agg(a || b, ',' ORDER BY a)) FROM long) AS content";

pub(crate) fn cluster(guard: &mut Guard, server: &Installation, name: &str) -> Cluster {
    let name = format!("{name}{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, true).unwrap();
    let settings = [
        ("autovacuum", "off"),
        ("fsync", "off"),
        ("wal_level", "replica"),
        ("max_wal_senders", "4"),
        ("wal_keep_size", "4GB"),
    ];
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    cluster.configure(guard, &settings.map(owned).into()).unwrap();
    cluster.start(guard).unwrap();
    execute(&cluster, &TABLES);
    cluster
}

pub(crate) fn backup(guard: &mut Guard, cluster: &Cluster) -> PathBuf {
    let place = cluster.directory().join("backup");
    let shown = place.display().to_string();
    cluster.run_client(guard, "pg_basebackup", &["-D", &shown, "-c", "fast", "--no-sync"]).unwrap();
    place
}

pub(crate) fn content(cluster: &Cluster) -> String {
    let mut session = cluster.connect("postgres").unwrap();
    session.query_one(CONTENT).unwrap().text("content").unwrap().to_owned()
}

/// The sequence's next value.
pub(crate) fn next_value(cluster: &Cluster) -> i64 {
    let mut session = cluster.connect("postgres").unwrap();
    let row = session.query_one("SELECT nextval('s') AS value").unwrap();
    row.text("value").unwrap().parse().unwrap()
}

/// The files of a table, its index, its long values and a sequence, below the data directory.
pub(crate) fn paths(cluster: &Cluster) -> [PathBuf; 4] {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = "SELECT reltoastrelid::regclass::text AS toast FROM pg_class WHERE relname = 'long'";
    let toast = session.query_one(sql).unwrap().text("toast").unwrap().to_owned();
    ["t", "t_pkey", &toast, "s"].map(|name| path_of(cluster, name))
}

pub(crate) fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

pub(crate) fn read_page(path: &Path, block: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    open(path).read_exact_at(&mut page, block * PAGE).unwrap();
    page
}

pub(crate) fn lsn(page: &[u8]) -> [u8; 8] {
    page[..8].try_into().unwrap()
}

/// The program's record, if it ends with this status.
pub(crate) fn repair(scratch: &Scratch, data: &Path, arguments: &[&str], status: i32) -> Value {
    repaired(scratch, data, arguments, &[status])
}

/// The program's record, whether damaged pages are left or not.
pub(crate) fn repair_any(scratch: &Scratch, data: &Path, arguments: &[&str]) -> Value {
    repaired(scratch, data, arguments, &[0, 1])
}

#[expect(clippy::print_stderr, reason = "shows the log of a server, where that is asked for")]
fn repaired(scratch: &Scratch, data: &Path, arguments: &[&str], statuses: &[i32]) -> Value {
    let ledger = scratch.path("ledger.jsonl");
    let mut command = pgtoll();
    command.arg("repair").arg(data).args(arguments).arg("--json").arg("--ledger").arg(&ledger);
    if arguments.contains(&"--yes") {
        let count = fs::read_dir(scratch.path("")).unwrap().count();
        command.arg("--undo-file").arg(scratch.path(&format!("{count}.undo")));
    }
    let ran = run(&mut command);
    assert!(ran.status.is_some_and(|status| statuses.contains(&status)), "{ran:?}");
    // What the server has said that replays WAL, where PGTOLL_TEST_SHOW_LOG is set.
    eprint!("{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// The same without WAL alone, which has nearly all pages of clusters that are so young.
fn repair_by_copies(scratch: &Scratch, data: &Path, arguments: &[&str], status: i32) -> Value {
    repair(scratch, data, &[arguments, &["--no-redo"]].concat(), status)
}

pub(crate) fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Class and reason of each block that was looked at.
pub(crate) fn classes(value: &Value) -> Vec<(&str, &str)> {
    let blocks = value["blocks"].as_array().unwrap();
    assert!(blocks.iter().all(|block| block["reason"] != ""), "{value:#}");
    blocks
        .iter()
        .map(|block| (block["class"].as_str().unwrap(), block["reason"].as_str().unwrap()))
        .collect()
}

/// Damages of a fixed seed: so many different blocks of these files, each as it was before.
pub(crate) fn damage(
    data: &Path,
    files: &[PathBuf],
    count: u64,
) -> BTreeMap<(PathBuf, u64), Vec<u8>> {
    let mut random = SplitMix64(21);
    let mut before = BTreeMap::new();
    while (before.len() as u64) < count {
        let file = &files[usize::try_from(random.below(files.len() as u64)).unwrap()];
        let path = data.join(file);
        let blocks = fs::metadata(&path).unwrap().len() / PAGE;
        let block = random.below(blocks);
        let key = (file.clone(), block);
        // What was never used, nothing can prove.
        let is_zero = read_page(&path, block).iter().all(|byte| *byte == 0);
        if before.contains_key(&key) || is_zero {
            // The sequence has one block.
            if file == &files[3] && before.len() as u64 + 1 == count {
                break;
            }
            continue;
        }
        before.insert(key, read_page(&path, block));
        let kind = random.below(5);
        let bit = random.below(PAGE * 8);
        overwrite(&open(&path), block, |page| match kind {
            0 => page[usize::try_from(bit / 8).unwrap()] ^= 1 << (bit % 8),
            1 => page[512..1024].fill_with(|| random.draw().to_le_bytes()[0]),
            2 => page[..24].fill(0xA5),
            3 => page[4096..].fill(0x5A),
            _ => page.fill_with(|| random.draw().to_le_bytes()[0]),
        });
        // A checksum misses one in 65,536.
        while is_sound(&read_page(&path, block), block) {
            overwrite(&open(&path), block, |page| page[7000] ^= 1 << random.below(8));
        }
    }
    before
}

/// Whether a server would take it.
fn is_sound(page: &[u8], block: u64) -> bool {
    let stored = u16::from_le_bytes([page[8], page[9]]);
    pgtoll_checksum::page_checksum(page, u32::try_from(block).unwrap()) == stored
}

/// Puts back what no WAL has and what can be made anew: indexes get pages ready that they do not use.
pub(crate) fn put_back(
    data: &Path,
    output: &Value,
    before: &BTreeMap<(PathBuf, u64), Vec<u8>>,
) -> usize {
    let mut count = 0;
    for block in
        output["blocks"].as_array().unwrap().iter().filter(|array| array["installed"] != true)
    {
        // Redo gives BRIN's range map the number of a page that is not there.
        let kind = block["last_record"]["kind"].as_str().unwrap_or_default();
        // A record of an index may be about blocks that no image makes anew beside it.
        let is_unmade = block["last_record"].is_null()
            || kind.starts_with("BRIN/")
            || block["reason"]
                .as_str()
                .is_some_and(|block| block.contains("redo of the record at"));
        assert!(is_unmade && block["class"] == "derivable", "{block:#}");
        let key =
            (PathBuf::from(block["path"].as_str().unwrap()), block["block"].as_u64().unwrap());
        overwrite(&open(&data.join(&key.0)), key.1, |page| page.copy_from_slice(&before[&key]));
        count += 1;
    }
    assert!(count < 5, "{count} blocks are in no WAL");
    count
}

pub(crate) fn check_checksums(guard: &mut Guard, server: &Installation, cluster: &Cluster) {
    let program = server.program("pg_checksums").unwrap();
    guard.run(&program, &["--check", "-D", shown(&cluster.data())]).unwrap();
}

#[test]
fn random_damage_is_repaired_or_refused() {
    for server in servers() {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        check_random(&scratch, &mut guard, &server);
    }
}

fn check_random(scratch: &Scratch, guard: &mut Guard, server: &Installation) {
    let cluster = cluster(guard, server, "random");
    let backup = backup(guard, &cluster);
    execute(&cluster, &[HOT, "CHECKPOINT"]);
    let files = paths(&cluster);
    let expected = content(&cluster);
    cluster.stop(guard, StopMode::Fast).unwrap();
    let copy = cluster.copy(guard, "copy").unwrap();
    let data = cluster.data();
    let before = damage(&data, &files, 60);
    // A plan writes nothing.
    let damaged: Vec<Vec<u8>> =
        files.iter().map(|file| fs::read(data.join(file)).unwrap()).collect();
    let plan = repair_by_copies(scratch, &data, &["--from-backup", shown(&backup)], 1);
    let after: Vec<Vec<u8>> = files.iter().map(|file| fs::read(data.join(file)).unwrap()).collect();
    assert!(damaged == after);
    assert_eq!(plan["blocks"].as_array().unwrap().len(), before.len(), "{plan:#}");
    // From the backup all pages that no WAL names since, and no others.
    let first = repair_by_copies(scratch, &data, &["--from-backup", shown(&backup), "--yes"], 1);
    let mut written = 0;
    let mut refused = 0;
    for block in first["blocks"].as_array().unwrap() {
        let file = PathBuf::from(block["path"].as_str().unwrap());
        let number = block["block"].as_u64().unwrap();
        let now = read_page(&data.join(&file), number);
        let right = &before[&(file.clone(), number)];
        if block["installed"] == true {
            written += 1;
            assert!(["exact", "proved"].contains(&block["class"].as_str().unwrap()), "{block:#}");
            assert_eq!(lsn(&now), lsn(right), "{block:#}");
            assert!(&now == right, "hints were on disk before the backup: {block:#}");
        } else {
            refused += 1;
            // What is newer than the backup, or is not there at all.
            let old = backup.join(&file);
            let is_there = fs::metadata(&old).unwrap().len() >= (number + 1) * PAGE;
            assert!(!is_there || lsn(&read_page(&old, number)) != lsn(right), "{block:#}");
        }
    }
    assert!(written > 30 && refused > 0, "{written} written, {refused} refused");
    assert_eq!(first["remaining"].as_u64(), Some(refused));
    // The rest from a copy that was made when the server had stopped.
    let from = copy.data();
    let second = repair_by_copies(scratch, &data, &["--from-stopped", shown(&from), "--yes"], 0);
    assert_eq!(second["remaining"].as_u64(), Some(0), "{second:#}");
    for ((file, number), right) in &before {
        assert!(&read_page(&data.join(file), *number) == right, "{} {number}", file.display());
    }
    check_checksums(guard, server, &cluster);
    check_program(&[], &data, 0);
    cluster.start(guard).unwrap();
    assert_eq!(content(&cluster), expected);
    assert_eq!(next_value(&cluster), 3);
    cluster.stop(guard, StopMode::Fast).unwrap();
    check_ledger(scratch);
}

/// Of each attempt a line before and one after, which a report shows.
fn check_ledger(scratch: &Scratch) {
    let ledger = scratch.path("ledger.jsonl");
    let text = fs::read_to_string(&ledger).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcomes: Vec<&str> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["begun", "finished", "begun", "finished"]);
    let table = run(pgtoll().arg("report").arg(&ledger));
    assert_eq!(table.status, Some(0), "{table:?}");
    assert_eq!(table.stdout.matches("repair finished").count(), 2, "{}", table.stdout);
    // An attempt that broke off is no reason to hide the others.
    fs::write(&ledger, &text[..text.len() - 100]).unwrap();
    let table = run(pgtoll().arg("report").arg(&ledger));
    assert_eq!(table.stdout.matches("repair finished").count(), 1, "{}", table.stdout);
}

#[test]
fn pages_of_a_backup_under_load_are_right_or_refused() {
    for server in servers() {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        check_load(&scratch, &mut guard, &server);
    }
}

fn check_load(scratch: &Scratch, guard: &mut Guard, server: &Installation) {
    let cluster = cluster(guard, server, "load");
    cluster.run_client(guard, "pgbench", &["-i", "-q", "-s", "2", "postgres"]).unwrap();
    let mut load = program(server.bin.join("pgbench"));
    load.envs(cluster.environment()).args(["-n", "-c", "2", "-t", "700", "postgres"]);
    let mut load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let backup = backup(guard, &cluster);
    assert!(load.wait().unwrap().success());
    let names = ["pgbench_accounts", "pgbench_accounts_pkey", "pgbench_history", "pgbench_tellers"];
    let files = names.map(|name| path_of(&cluster, name));
    cluster.stop(guard, StopMode::Fast).unwrap();
    let copy = cluster.copy(guard, "copy").unwrap();
    let data = cluster.data();
    let before = damage(&data, &files, 300);
    let output = repair_by_copies(scratch, &data, &["--from-backup", shown(&backup), "--yes"], 1);
    let mut written = 0;
    for block in
        output["blocks"].as_array().unwrap().iter().filter(|array| array["installed"] == true)
    {
        let file = PathBuf::from(block["path"].as_str().unwrap());
        let number = block["block"].as_u64().unwrap();
        let now = read_page(&data.join(&file), number);
        let right = &before[&(file.clone(), number)];
        written += 1;
        assert_eq!(lsn(&now), lsn(right), "{block:#}");
        if PageKind::from_page(right) == PageKind::Heap {
            assert!(are_masked_equal(&now, right), "{block:#}");
        }
    }
    assert!(written > 20 && written < 300, "{written} written");
    let from = copy.data();
    repair_by_copies(scratch, &data, &["--from-stopped", shown(&from), "--yes"], 0);
    for ((file, number), right) in &before {
        let now = read_page(&data.join(file), *number);
        let is_right = match PageKind::from_page(right) {
            PageKind::Heap => are_masked_equal(&now, right),
            _ => lsn(&now) == lsn(right),
        };
        assert!(is_right, "{} {number}", file.display());
    }
    check_checksums(guard, server, &cluster);
    check_program(&[], &data, 0);
    cluster.start(guard).unwrap();
    let mut session = cluster.connect("postgres").unwrap();
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) AS a,
        (SELECT sum(tbalance) FROM pgbench_tellers) AS t,
        (SELECT sum(delta) FROM pgbench_history) AS h, (SELECT count(*) FROM pgbench_history) AS n";
    let row = session.query_one(sums).unwrap();
    let [a, t, h, n] = ["a", "t", "h", "n"].map(|name| row.text(name).unwrap());
    let differing = "SELECT a.ctid, a.aid, a.abalance, h.s FROM pgbench_accounts a
        FULL JOIN (SELECT aid, sum(delta) AS s FROM pgbench_history GROUP BY aid) h USING (aid)
        WHERE coalesce(a.abalance, 0) <> coalesce(h.s, 0)";
    let rows = session.query(differing).unwrap();
    assert_eq!((a, t, n), (h, h, "1400"), "{rows:?}");
    session.close();
    cluster.stop(guard, StopMode::Fast).unwrap();
}

/// Whether pages of a table differ in nothing but what its mask (`heap_mask`) leaves out: hints, the
/// commands within transactions that made rows, and what lies in no item, the hole and padding.
pub(crate) fn are_masked_equal(one: &[u8], other: &[u8]) -> bool {
    are_equal_but(one, other, &[HeaderField::Checksum, HeaderField::Flags, HeaderField::PruneXid])
}

/// The same where only one of them has the LSN of an image for hints.
fn differ_in_hints(one: &[u8], other: &[u8]) -> bool {
    let fields =
        [HeaderField::Lsn, HeaderField::Checksum, HeaderField::Flags, HeaderField::PruneXid];
    are_equal_but(one, other, &fields)
}

fn are_equal_but(one: &[u8], other: &[u8], fields: &[HeaderField]) -> bool {
    let without_commands = |page: &[u8]| {
        let mut masked = page.to_vec();
        for pointer in line_pointers(page)
            .filter(|line_pointer| line_pointer.state == LinePointerState::Normal)
        {
            let command = usize::from(pointer.offset) + COMMAND_AT;
            if let Some(bytes) = masked.get_mut(command..command + 4) {
                bytes.fill(0);
            }
        }
        masked
    };
    let one = without_commands(one);
    let other = without_commands(other);
    let Some(difference) = PageDifference::between(&one, &other) else { return false };
    difference.header.iter().all(|field| fields.contains(field))
        && difference.line_pointers.is_empty()
        && difference.items.is_empty()
        && !difference.special
}

/// Where a row has `t_cid`.
const COMMAND_AT: usize = 8;

#[test]
fn wrong_candidates_are_refused_and_nothing_is_written() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = cluster(&mut guard, &server, "wrong");
    let backup = backup(&mut guard, &cluster);
    execute(&cluster, &["UPDATE t SET b = 'hot' WHERE a = 1", "CHECKPOINT"]);
    let [table, ..] = paths(&cluster);
    let data = cluster.data();
    let path = data.join(&table);
    // The updated row is on the first block and on the last one.
    let hot = 0;
    let cold = 7;
    let check = |damage: &[u64], arguments: &[&str], expected: &str, words: &str| {
        let whole = fs::read(&path).unwrap();
        for block in damage {
            overwrite(&open(&path), *block, |page| page[..64].fill(0xA5));
        }
        let damaged = fs::read(&path).unwrap();
        let output = repair_by_copies(&scratch, &data, &[arguments, &["--yes"]].concat(), 1);
        assert!(fs::read(&path).unwrap() == damaged, "{output:#}");
        for (class, reason) in classes(&output) {
            assert!(
                class == expected && reason.contains("no source") || reason.contains(words),
                "{output:#}"
            );
        }
        let reasons = output["blocks"][0]["candidates"][0]["reason"].as_str().unwrap();
        assert!(reasons.contains(words), "{output:#}");
        fs::write(&path, whole).unwrap();
    };
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let from = ["--from-backup", shown(&backup)];
    check(&[hot], &from, "refused", "older than the last record");
    check_foreign(&mut guard, &server, &|other, words| {
        check(&[cold], &["--from-stopped", shown(other)], "refused", words);
    });
    check_damaged_source(&backup.join(&table), cold, &|| {
        check(&[cold], &from, "refused", "damaged, too");
    });
    // A server that is started on the backup takes its label away.
    fs::rename(backup.join("backup_label"), backup.join("backup_label.old")).unwrap();
    check(&[cold], &from, "refused", "no backup_label");
    fs::rename(backup.join("backup_label.old"), backup.join("backup_label")).unwrap();
    check_other_timeline(&mut guard, &cluster, &|other, words| {
        check(&[cold], &["--from-stopped", shown(other)], "refused", words);
    });
    check_zeros(&mut guard, &cluster, &path, &|from_zeros, words| {
        let damaged = fs::read(&path).unwrap();
        let output =
            repair_by_copies(&scratch, &data, &[&from[..], &["--yes"], from_zeros].concat(), 1);
        assert!(fs::read(&path).unwrap() == damaged, "{output:#}");
        assert!(output["blocks"][0]["reason"].as_str().unwrap().contains(words), "{output:#}");
    });
}

/// Another cluster's files.
fn check_foreign(guard: &mut Guard, server: &Installation, check: &dyn Fn(&Path, &str)) {
    let other = cluster(guard, server, "other");
    other.stop(guard, StopMode::Fast).unwrap();
    check(&other.data(), "it is of another cluster");
    other.remove(guard).unwrap();
}

/// A source whose page is damaged too.
fn check_damaged_source(path: &Path, block: u64, check: &dyn Fn()) {
    let before = read_page(path, block);
    overwrite(&open(path), block, |page| page[5000] ^= 1);
    check();
    overwrite(&open(path), block, |page| page.copy_from_slice(&before));
}

/// A copy that was promoted, and wrote on its own timeline.
fn check_other_timeline(guard: &mut Guard, cluster: &Cluster, check: &dyn Fn(&Path, &str)) {
    let other = cluster.copy(guard, "promoted").unwrap();
    fs::write(other.data().join("standby.signal"), "").unwrap();
    other.start(guard).unwrap();
    other.promote().unwrap();
    execute(&other, &["UPDATE t SET b = 'other' WHERE a > 100", "CHECKPOINT"]);
    other.stop(guard, StopMode::Fast).unwrap();
    check(&other.data(), "on timeline 2");
    other.remove(guard).unwrap();
    // On the same timeline, but of another past.
    let other = cluster.copy(guard, "apart").unwrap();
    other.start(guard).unwrap();
    execute(&other, &["UPDATE t SET b = 'other' WHERE a < 10"]);
    other.stop(guard, StopMode::Fast).unwrap();
    check(&other.data(), "is behind the cluster's");
    cluster.start(guard).unwrap();
    execute(cluster, &["UPDATE t SET b = 'own' WHERE a < 2000", "CHECKPOINT"]);
    cluster.stop(guard, StopMode::Fast).unwrap();
    check(&other.data(), "of another past");
    other.remove(guard).unwrap();
}

/// Pages of zeros, which servers accept: an older page does not replace them, and no page once a server
/// has written on them.
fn check_zeros(guard: &mut Guard, cluster: &Cluster, path: &Path, check: &dyn Fn(&[&str], &str)) {
    overwrite(&open(path), 0, |page| page.fill(0));
    let named = ["--block", "postgres.public.t:0"];
    check(&named, "older than the last record");
    cluster.start(guard).unwrap();
    let mut session = cluster.connect("postgres").unwrap();
    // The server takes the page for a new one, and puts rows on it.
    session.execute("VACUUM t").unwrap();
    session
        .execute("INSERT INTO t SELECT i, md5(i::text) FROM generate_series(30001, 34000) i")
        .unwrap();
    session.close();
    cluster.stop(guard, StopMode::Fast).unwrap();
    let now = read_page(path, 0);
    assert_ne!(lsn(&now), [0; 8], "the server wrote on the page of zeros");
    overwrite(&open(path), 0, |page| page.fill(0));
    check(&named, "older than the last record");
    overwrite(&open(path), 0, |page| page.copy_from_slice(&now));
    let data = cluster.data();
    let ran = run(pgtoll().arg("repair").arg(&data).args(named).args(["--json", "--no-redo"]));
    let output: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.status, &output["blocks"][0]["class"]), (Some(0), &Value::from("sound")));
}

#[test]
fn a_gap_in_wal_is_plausible_at_most() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = cluster(&mut guard, &server, "gap");
    let backup = backup(&mut guard, &cluster);
    execute(
        &cluster,
        &["SELECT pg_switch_wal()", HOT, "SELECT pg_switch_wal()", HOT, "CHECKPOINT"],
    );
    let [table, ..] = paths(&cluster);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let data = cluster.data();
    let path = data.join(&table);
    let right = read_page(&path, 7);
    // The archive has the segment that the cluster has lost.
    let archive = scratch.path("archive");
    fs::create_dir(&archive).unwrap();
    let mut segments: Vec<PathBuf> =
        fs::read_dir(data.join("pg_wal")).unwrap().map(|dir| dir.unwrap().path()).collect();
    segments.retain(|segment| segment.file_name().unwrap().len() == 24);
    segments.sort();
    let label = fs::read_to_string(backup.join("backup_label")).unwrap();
    let start = label.split("(file ").nth(1).unwrap()[..24].to_owned();
    let after =
        segments.iter().position(|segment| *segment.file_name().unwrap() == *start).unwrap() + 1;
    let lost = &segments[after];
    fs::copy(lost, archive.join(lost.file_name().unwrap())).unwrap();
    fs::remove_file(lost).unwrap();
    // The backup's own WAL does not have it either.
    let from = ["--from-backup", shown(&backup)];
    // The header is lost: nothing speaks for the page.
    overwrite(&open(&path), 7, |page| page[..64].fill(0xA5));
    let result = repair_by_copies(
        &scratch,
        &data,
        &[&from, &["--yes", "--accept", "plausible"][..]].concat(),
        1,
    );
    assert_eq!(classes(&result)[0].0, "refused", "{result:#}");
    assert!(result["blocks"][0]["reason"].as_str().unwrap().contains("no WAL from"), "{result:#}");
    // The LSN is there, and says as much as a torn page would.
    overwrite(&open(&path), 7, |page| page.copy_from_slice(&right));
    overwrite(&open(&path), 7, |page| page[5000] ^= 1);
    let damaged = fs::read(&path).unwrap();
    let printed = repair_by_copies(&scratch, &data, &[&from, &["--yes"][..]].concat(), 1);
    assert_eq!(classes(&printed)[0].0, "plausible", "{printed:#}");
    assert!(fs::read(&path).unwrap() == damaged);
    // With the archive it is proved.
    let archived = ["--wal", shown(&archive)];
    let message = repair_by_copies(&scratch, &data, &[&from[..], &archived].concat(), 1);
    assert_eq!(classes(&message)[0].0, "exact", "{message:#}");
    let output = repair_by_copies(
        &scratch,
        &data,
        &[&from, &["--yes", "--accept", "plausible"][..]].concat(),
        0,
    );
    assert_eq!(output["blocks"][0]["installed"], true, "{output:#}");
    assert!(read_page(&path, 7) == right);
}

#[test]
fn a_stopped_standby_has_pages_that_wal_changed_since_a_backup() {
    for server in servers() {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        let cluster = cluster(&mut guard, &server, "primary");
        let standby = cluster.standby(&mut guard, "standby", cluster.directory()).unwrap();
        standby.start(&mut guard).unwrap();
        execute(&cluster, &[HOT, "CHECKPOINT"]);
        let files = paths(&cluster);
        let expected = content(&cluster);
        // A primary that stops does not wait for a standby that has not come yet.
        await_replay(&cluster, &standby);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        standby.stop(&mut guard, StopMode::Fast).unwrap();
        let data = cluster.data();
        let before = damage(&data, &files, 30);
        let from = standby.data();
        let output =
            repair_by_copies(&scratch, &data, &["--from-stopped", shown(&from), "--yes"], 0);
        assert_eq!(output["blocks"].as_array().unwrap().len(), before.len(), "{output:#}");
        for (class, reason) in classes(&output) {
            assert!(["exact", "proved"].contains(&class), "{class}: {reason}");
        }
        for ((file, number), right) in &before {
            let now = read_page(&data.join(file), *number);
            // The standby may have been stopped before it replayed an image for hints.
            let is_right = lsn(&now) == lsn(right)
                || PageKind::from_page(right) == PageKind::Heap && differ_in_hints(&now, right);
            assert!(is_right, "{} {number}", file.display());
        }
        check_checksums(&mut guard, &server, &cluster);
        check_program(&[], &data, 0);
        assert!(before.contains_key(&(files[3].clone(), 0)), "the sequence is among them");
        cluster.start(&mut guard).unwrap();
        assert_eq!(content(&cluster), expected);
        // As after a crash: values are left out, none comes again.
        assert!((3..=35).contains(&next_value(&cluster)));
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
    }
}

#[test]
fn what_has_no_source_is_derivable_or_refused() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = cluster(&mut guard, &server, "alone");
    let [table, index, ..] = paths(&cluster);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let data = cluster.data();
    let sound = repair_by_copies(&scratch, &data, &[], 0);
    assert_eq!(sound["blocks"].as_array().unwrap().len(), 0);
    let map = PathBuf::from(format!("{}_vm", shown(&table)));
    for (path, block) in [(&table, 2), (&index, 2), (&map, 0)] {
        overwrite(&open(&data.join(path)), block, |page| page[5000] ^= 1);
    }
    let output = repair_by_copies(&scratch, &data, &["--yes"], 1);
    let found: BTreeMap<(&str, &str), &str> = output["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|array| {
            let text = |key: &str| array[key].as_str().unwrap();
            ((array["name"]["relation"].as_str().unwrap(), text("fork")), text("class"))
        })
        .collect();
    let expected =
        [(("t", "main"), "refused"), (("t", "vm"), "derivable"), (("t_pkey", "main"), "derivable")];
    assert_eq!(found, expected.into());
    let short = run(pgtoll().arg("repair").arg(&data).arg("--no-redo"));
    assert!(short.stdout.contains("\n  - postgres.public.t_pkey:2 derivable: "), "{short:?}");
    let table = run(pgtoll().arg("repair").arg(&data).args(["--no-redo", "--full"]));
    assert_eq!(table.status, Some(1), "{table:?}");
    assert!(table.stdout.contains("REINDEX"), "{}", table.stdout);
    assert!(table.stdout.contains("pg_truncate_visibility_map"), "{}", table.stdout);
    let path = shown(&data);
    let too_long = |line: &&str| line.chars().count() > 80 && !line.contains(path);
    assert_eq!(table.stdout.lines().find(too_long), None);
    // The findings of a verification are taken as they are.
    let findings = scratch.path("findings.json");
    let verified = run(pgtoll().arg("verify").arg(&data).arg("--json"));
    fs::write(&findings, verified.stdout).unwrap();
    let again = repair_by_copies(&scratch, &data, &["--findings", shown(&findings)], 1);
    assert_eq!(again["blocks"], output["blocks"]);
}

/// Undo file and ledger lie beside the data directory, and the last repair is found without its name.
#[test]
fn a_repair_is_undone_without_a_name() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = cluster(&mut guard, &server, "undo");
    let backup = backup(&mut guard, &cluster);
    let path = cluster.data().join(path_of(&cluster, "t"));
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let data = cluster.data();
    let right = fs::read(&path).unwrap();
    overwrite(&open(&path), 0, |page| page[5000] ^= 1);
    let damaged = fs::read(&path).unwrap();
    let repair = |arguments: &[&str]| run(pgtoll().arg("repair").arg(&data).args(arguments));
    let none = repair(&["--undo"]);
    assert_eq!(none.status, Some(2), "{none:?}");
    assert!(none.stderr.contains("has no repair to undo"), "{none:?}");
    let from = ["--from-backup", shown(&backup)];
    let plan = repair(&from);
    assert_eq!(plan.status, Some(1), "{plan:?}");
    assert!(plan.stdout.contains("To write this plan\n  pgtoll repair "), "{plan:?}");
    assert!(plan.stdout.contains(" --yes\n"), "{plan:?}");
    let beside = PathBuf::from(format!("{}.pgtoll", shown(&data)));
    assert!(!beside.exists(), "a plan leaves nothing behind");
    // Somebody else's directory is not used, and no page is written.
    fs::create_dir(&beside).unwrap();
    set_mode(&beside, 0o777);
    let refused = repair(&[&from[..], &["--yes"]].concat());
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("no page was written"), "{refused:?}");
    assert!(fs::read(&path).unwrap() == damaged);
    fs::remove_dir(&beside).unwrap();
    let written = repair(&[&from[..], &["--yes"]].concat());
    assert_eq!(written.status, Some(0), "{written:?}");
    assert!(written.stdout.contains("To check the result\n  pgtoll verify "), "{written:?}");
    assert!(fs::read(&path).unwrap() == right);
    let made = fs::metadata(&beside).unwrap();
    let owner = fs::metadata(&data).unwrap();
    assert_eq!((made.mode() & 0o777, made.uid()), (0o700, owner.uid()));
    assert_eq!(fs::read_dir(&beside).unwrap().count(), 2, "an undo file and the ledger");
    let undone = repair(&["--undo"]);
    assert_eq!(undone.status, Some(0), "{undone:?}");
    assert!(fs::read(&path).unwrap() == damaged);
    assert_eq!(repair(&["--undo"]).status, Some(2));
    let ledger = fs::read_to_string(beside.join("ledger.jsonl")).unwrap();
    assert_eq!(ledger.lines().count(), 3, "{ledger}");
    cluster.remove(&mut guard).unwrap();
}
