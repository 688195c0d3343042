//! What WAL and indexes say of pages that no checksum convicts: everything of damage, and nothing
//! of what servers do.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::wal::{Parts, Record};
use pgtoll_format::{ForkNumber, Lsn, PageHeader};
use pgtoll_verify::{
    Defect, Evidence, Verified, WalCompared, compare_with_indexes, compare_with_wal, verify,
};
use pgtoll_wal::{Collect, checkpoint_segments, scan_with};
use serde_json::Value;

use crate::support::{Scratch, servers, servers_in_turn, set_mode};
use crate::verify::{
    PAGE, PAGE_BYTES, WORK, check_program, execute, findings, overwrite, path_of, relation,
    settings,
};

fn cluster(
    guard: &mut Guard,
    server: &Installation,
    name: &str,
    checksums: bool,
    more: &[(&str, &str)],
) -> Cluster {
    let name = format!("{name}{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, checksums).unwrap();
    let few = [
        ("autovacuum", "off"),
        ("fsync", "off"),
        ("shared_buffers", "8MB"),
        ("max_wal_size", "4GB"),
        ("wal_keep_size", "4GB"),
        ("allow_in_place_tablespaces", "on"),
    ];
    configure(guard, &cluster, &[&few, more].concat());
    cluster
}

fn configure(guard: &mut Guard, cluster: &Cluster, settings: &[(&str, &str)]) {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let settings: BTreeMap<_, _> = settings.iter().map(owned).collect();
    cluster.configure(guard, &settings).unwrap();
}

/// All that pages, catalogs and WAL say, and what was compared.
fn compared_with_wal(data: &DataDirectory, names: &Names) -> (Verified, WalCompared) {
    let go_on = &mut |_| ControlFlow::Continue(());
    let mut all = verify(data, &settings(), &|_| true, go_on);
    all.compare_with(names, data, &|_| true);
    let wal = compare_with_wal(&mut all, data, names, &settings(), &|_| true, go_on).unwrap();
    (all, wal)
}

/// All that pages, catalogs and B-trees say.
fn compared_with_indexes(data: &DataDirectory, names: &Names) -> Verified {
    let go_on = &mut |_| ControlFlow::Continue(());
    let mut all = verify(data, &settings(), &|_| true, go_on);
    all.compare_with(names, data, &|_| true);
    let indexes =
        compare_with_indexes(&mut all, data, names, &settings(), &|_| true, go_on).unwrap();
    assert!(indexes.tables > 50, "{indexes:?}");
    all
}

fn opened(data: &Path) -> (DataDirectory, Names) {
    let data = DataDirectory::open(data).unwrap();
    let names = Names::of_data_directory(&data.path).unwrap();
    (data, names)
}

/// More of what a server does to files: everything that cuts, copies, renews or removes them.
const MORE: [&str; 11] = [
    "INSERT INTO t SELECT i, md5(i::text), ARRAY[i % 7, i] FROM generate_series(30001, 60000) i;
     DELETE FROM t WHERE a % 3 = 0",
    "VACUUM t; UPDATE t SET b = md5(b) WHERE a % 5 = 0; DELETE FROM t WHERE a > 31000",
    "VACUUM t; INSERT INTO t SELECT i, md5(i::text), ARRAY[i % 7, i] FROM generate_series(60001, 80000) i",
    "CREATE TABLE hot (a int PRIMARY KEY, b int) WITH (fillfactor = 50);
     INSERT INTO hot SELECT i, 0 FROM generate_series(1, 5000) i;
     UPDATE hot SET b = b + 1; SELECT count(*) FROM hot; UPDATE hot SET b = b + 1;
     SELECT a FROM hot WHERE a < 100 FOR UPDATE; UPDATE hot SET b = b + 1 WHERE a > 4000",
    "CLUSTER t USING t_pkey; VACUUM FULL long; REINDEX TABLE hot; REINDEX TABLE CONCURRENTLY hot",
    "BEGIN; CREATE TABLE within AS SELECT * FROM hot; CREATE INDEX ON within (a); TRUNCATE within;
     INSERT INTO within SELECT * FROM hot; COMMIT; TRUNCATE within;
     INSERT INTO within SELECT * FROM hot",
    "CREATE TABLE cut AS SELECT * FROM t; CREATE INDEX ON cut (a); CREATE INDEX ON cut USING hash (b);
     DELETE FROM cut WHERE a > 1000; VACUUM cut; INSERT INTO cut SELECT * FROM t WHERE a > 50000;
     CREATE TABLE rolled_back AS SELECT * FROM t; DROP TABLE rolled_back",
    "SELECT setval('s', 1000); SELECT sum(nextval('s')) FROM generate_series(1, 100);
     ALTER TABLE hot SET UNLOGGED; UPDATE hot SET b = 7; ALTER TABLE hot SET LOGGED;
     UPDATE hot SET b = 8 WHERE a % 2 = 0",
    "CREATE DATABASE one; CREATE DATABASE copied STRATEGY file_copy;
     CREATE DATABASE logged STRATEGY wal_log; DROP DATABASE one; CREATE DATABASE one;
     ALTER DATABASE copied SET TABLESPACE space; ALTER TABLE cut SET TABLESPACE space",
    "CREATE TABLE twice AS SELECT i / 2 AS a FROM generate_series(1, 20000) i",
    "DELETE FROM twice WHERE a > 10; VACUUM twice; VACUUM",
];

/// All of it, and an index that could not be made, which nobody keeps up to date.
fn work(cluster: &Cluster, guard: &mut Guard) {
    // A place of its own for whoever replays it.
    execute(cluster, &["CREATE TABLESPACE space LOCATION ''"]);
    execute(cluster, &WORK);
    let (last, before) = MORE.split_last().unwrap();
    execute(cluster, before);
    let mut session = cluster.connect("postgres").unwrap();
    session.execute("CREATE UNIQUE INDEX CONCURRENTLY failed ON twice (a)").unwrap_err();
    execute(cluster, &[last]);
    cluster.run_client(guard, "pgbench", &["-i", "-q", "-s", "1", "postgres"]).unwrap();
    let load = ["-n", "-c", "3", "-t", "300", "postgres"];
    cluster.run_client(guard, "pgbench", &load).unwrap();
}

/// What a crash leaves: pages that were never used, rows of nobody, and recovery.
fn crash(cluster: &Cluster, guard: &mut Guard) {
    let mut open = cluster.connect("postgres").unwrap();
    open.execute("BEGIN; CREATE TABLE never AS SELECT * FROM t").unwrap();
    open.execute("INSERT INTO t (a) SELECT -i FROM generate_series(1, 20000) i").unwrap();
    execute(cluster, &["CHECKPOINT; UPDATE hot SET b = 9; INSERT INTO within SELECT * FROM hot"]);
    open.execute("INSERT INTO never SELECT * FROM never").unwrap();
    cluster.kill(guard).unwrap();
    drop(open);
    cluster.start(guard).unwrap();
    execute(cluster, &["DELETE FROM hot WHERE a > 3000; VACUUM hot"]);
    cluster.stop(guard, StopMode::Fast).unwrap();
}

#[test]
fn what_servers_do_is_no_damage() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let on = [("wal_compression", "on")];
        check_sound(&mut guard, &server, "logged", true, &on);
    }
    for server in servers_in_turn(1) {
        let minimal = [
            ("wal_level", "minimal"),
            ("max_wal_senders", "0"),
            ("full_page_writes", "off"),
            // Images that are only there to compare replay with; of all kinds it were gigabytes.
            ("wal_consistency_checking", "heap2,hash,sequence"),
            ("wal_compression", "on"),
        ];
        check_sound(&mut guard, &server, "minimal", false, &minimal);
    }
}

fn check_sound(
    guard: &mut Guard,
    server: &Installation,
    name: &str,
    checksums: bool,
    more: &[(&str, &str)],
) {
    let cluster = cluster(guard, server, name, checksums, more);
    check_none(&cluster, 0);
    let before = cluster.copy(guard, &format!("{name}-before{}", server.version.major())).unwrap();
    cluster.start(guard).unwrap();
    work(&cluster, guard);
    cluster.stop(guard, StopMode::Fast).unwrap();
    check_none(&cluster, 500);
    if checksums {
        check_recovered(&cluster, before, guard);
    } else {
        before.remove(guard).unwrap();
    }
    cluster.start(guard).unwrap();
    crash(&cluster, guard);
    check_none(&cluster, 500);

    // Pages that a server made room for, and never used.
    let data = cluster.data();
    for relation in ["public.hot", "public.hot_pkey", "public.within"] {
        let mut file = File::options().append(true).open(file_of(&data, relation)).unwrap();
        file.write_all(&vec![0; 3 * PAGE_BYTES]).unwrap();
    }
    check_none(&cluster, 500);
    check_without_wal(&data);
    cluster.remove(guard).unwrap();
}

fn check_none(cluster: &Cluster, least: u64) {
    let (data, names) = opened(&cluster.data());
    let (found, wal) = compared_with_wal(&data, &names);
    assert_eq!(found.findings, [], "{}", cluster.name());
    assert_eq!(compared_with_indexes(&data, &names).findings, [], "{}", cluster.name());
    check_program(&[], &cluster.data(), 0);
    assert!(wal.blocks >= least && wal.dropped.is_none(), "{}: {wal:?}", cluster.name());
}

/// A copy from before all that work, which another timeline's recovery brings as far: each record
/// was replayed, and says what it said.
fn check_recovered(cluster: &Cluster, copy: Cluster, guard: &mut Guard) {
    let wal = cluster.data().join("pg_wal");
    let restore = format!("cp {}/%f %p", wal.display());
    let settings = [
        ("restore_command", restore.as_str()),
        ("allow_in_place_tablespaces", "on"),
        ("wal_keep_size", "4GB"),
        ("max_wal_size", "4GB"),
        ("hot_standby", "off"),
        ("fsync", "off"),
    ];
    configure(guard, &copy, &settings);
    let signal = copy.data().join("recovery.signal");
    fs::write(&signal, "").unwrap();
    set_mode(&signal, 0o666);
    copy.start(guard).unwrap();
    let mut session = copy.connect("postgres").unwrap();
    let row = session.query_one("SELECT count(*) AS count FROM hot").unwrap();
    assert_eq!(row.parse::<u64>("count").unwrap(), 5000);
    session.execute("INSERT INTO hot SELECT -i, 0 FROM generate_series(1, 1000) i").unwrap();
    drop(session);
    copy.stop(guard, StopMode::Fast).unwrap();
    check_none(&copy, 3000);
    copy.remove(guard).unwrap();
}

/// Without the segment of the last checkpoint nothing can be said; and that is said.
fn check_without_wal(data: &Path) {
    let mut names: Vec<PathBuf> = fs::read_dir(data.join("pg_wal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    names.sort();
    for path in &names {
        fs::rename(path, path.with_extension("away")).unwrap();
    }
    let message = check_program(&[], data, 2);
    let left_out = message["left_out"][0].as_str().unwrap();
    assert!(left_out.starts_with("WAL: "), "{left_out}");
    assert_eq!(message["outcome"], "unverified");
    let output = check_program(&["--quick"], data, 0);
    assert_eq!(output["outcome"], "no_damage_seen");
    for path in &names {
        fs::rename(path.with_extension("away"), path).unwrap();
    }
}

/// The first file of a relation, by its name.
fn file_of(data: &Path, name: &str) -> PathBuf {
    let names = Names::of_data_directory(data).unwrap();
    let full = format!("postgres.{name}");
    let (files, _) = names.iter().find(|(_, name)| name.to_string() == full).unwrap();
    data.join(format!("base/{}/{}", files.database, files.rel_number))
}

#[test]
fn lost_writes_are_found() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        check_damage(&mut guard, &server);
    }
}

/// Sessions that read the same new rows at once each log an image for hints, and the page keeps the
/// LSN of the first one that marks it: no write was lost.
#[test]
fn hints_that_sessions_set_at_once_are_no_lost_writes() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        // Few buffers of WAL, so that a session waits between its record and the page's LSN; and
        // few pages, so that all scans of the table meet.
        let few = [("shared_buffers", "1MB"), ("wal_buffers", "64kB"), ("max_connections", "40")];
        let cluster = cluster(&mut guard, &server, "hints", true, &few);
        cluster.start(&mut guard).unwrap();
        execute(&cluster, &["CREATE TABLE t (a int, b text)"]);
        let path = cluster.data().join(path_of(&cluster, "t"));
        let mut raced = 0;
        for _ in 0..ROUNDS {
            execute(&cluster, &[ROWS, "CHECKPOINT"]);
            std::thread::scope(|threads| {
                for _ in 0..16 {
                    threads.spawn(|| execute(&cluster, &["SELECT count(*) FROM t WHERE a >= 0"]));
                }
            });
            cluster.stop(&mut guard, StopMode::Fast).unwrap();
            check_program(&[], &cluster.data(), 0);
            raced = older_than_hints(&cluster.data(), &path);
            if raced > 0 {
                break;
            }
            cluster.start(&mut guard).unwrap();
        }
        // The lock under which 19 sets hints lets in one session.
        assert!(raced > 0 || server.version.major() >= 19, "{}", server.version);
        // A page of zeros is damage, whatever changed it.
        change_block(&path, 0, |page| page.fill(0));
        let output = check_program(&[], &cluster.data(), 1);
        assert_eq!(relation(&output, "t")["findings"].as_array().unwrap().len(), 1, "{output:#}");
        cluster.remove(&mut guard).unwrap();
    }
}

const ROUNDS: usize = 20;
const ROWS: &str = "INSERT INTO t SELECT i, repeat('x', 1500) FROM generate_series(1, 10000) i";

/// The last image for hints of each block, in the order of the WAL.
#[derive(Default)]
struct Hints(BTreeMap<(u32, u32), Lsn>);

impl Collect for Hints {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        for block in parts.blocks.iter().filter(|block| block.fork == ForkNumber::MAIN) {
            let key = (block.relation.rel_number, block.block);
            if record.is_hint_image(block) {
                self.0.insert(key, record.end);
            } else {
                self.0.remove(&key);
            }
        }
    }

    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// Pages of this file that are older than the last image for their hints.
fn older_than_hints(data: &Path, file: &Path) -> usize {
    let data = DataDirectory::open(data).unwrap();
    let segments = checkpoint_segments(&data).unwrap();
    let (read, _) =
        scan_with(&segments, 1, Hints::default, &mut |_| ControlFlow::Continue(())).unwrap();
    let number = file.file_name().unwrap().to_str().unwrap().parse::<u32>().unwrap();
    let of_file = read.collected.0.iter().filter(|((collected, _), _)| *collected == number);
    let lsn = |block: u32| PageHeader::read(&read_block(file, block.into())).unwrap().lsn;
    of_file.filter(|((_, block), hint)| lsn(*block) < **hint).count()
}

fn read_block(path: &Path, block: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    File::open(path).unwrap().read_exact_at(&mut page, block * PAGE).unwrap();
    page
}

fn change_block(path: &Path, block: u64, change: impl FnOnce(&mut [u8])) {
    overwrite(&File::options().read(true).write(true).open(path).unwrap(), block, change);
}

fn check_damage(guard: &mut Guard, server: &Installation) {
    let cluster = cluster(guard, server, "lost", true, &[]);
    cluster.start(guard).unwrap();
    for table in ["stale", "stale_index", "zero", "zero_index", "zero_leaf", "cut", "cut_index"] {
        let sql = format!(
            "CREATE TABLE {table} (i int, b text);
             INSERT INTO {table} SELECT i, repeat('x', 100) FROM generate_series(1, 5000) i;
             CREATE INDEX {table}_i ON {table} (i)"
        );
        execute(&cluster, &[&sql]);
    }
    let path = |relation: &str| cluster.data().join(path_of(&cluster, relation));
    let names =
        ["stale", "stale_index_i", "zero", "zero_index_i", "zero_leaf_i", "cut", "cut_index_i"];
    let paths = names.map(path);
    let [stale, stale_index, zero, zero_index, zero_leaf, cut, cut_index] = &paths;
    cluster.stop(guard, StopMode::Fast).unwrap();
    let old = [read_block(stale, 3), read_block(stale_index, 5)];
    cluster.start(guard).unwrap();
    execute(&cluster, &["UPDATE stale SET b = 'y'; UPDATE stale_index SET i = i + 1"]);
    cluster.stop(guard, StopMode::Fast).unwrap();
    let output = check_program(&[], &cluster.data(), 0);
    assert_eq!(output["outcome"], "sound");

    let [old_row, old_leaf] = &old;
    change_block(stale, 3, |page| page.copy_from_slice(old_row));
    change_block(stale_index, 5, |page| page.copy_from_slice(old_leaf));
    change_block(zero, 7, |page| page.fill(0));
    // The root, and a leaf.
    change_block(zero_index, 3, |page| page.fill(0));
    change_block(zero_leaf, 4, |page| page.fill(0));
    for (path, blocks) in [(cut, 20), (cut_index, 6)] {
        File::options().write(true).open(path).unwrap().set_len(blocks * PAGE).unwrap();
    }
    check_program(&["--quick"], &cluster.data(), 0);
    check_found(&cluster.data(), &paths);
    check_said(&cluster.data());
    cluster.remove(guard).unwrap();
}

fn check_found(data: &Path, paths: &[PathBuf; 7]) {
    let (data, names) = opened(data);
    let (by_wal, _) = compared_with_wal(&data, &names);
    let by_indexes = compared_with_indexes(&data, &names);
    let at = |found: &Verified, path: &Path| -> Vec<(u32, Evidence)> {
        let evidence = |label: &Defect| match label {
            Defect::Evidence(evidence) => *evidence,
            other => panic!("{other:?}"),
        };
        let item = findings(found, path).into_iter();
        item.map(|finding| (finding.block, evidence(&finding.defect))).collect()
    };
    let [stale, stale_index, zero, zero_index, zero_leaf, cut, cut_index] = paths;
    for (path, block) in [(stale, 3), (stale_index, 5)] {
        let item = at(&by_wal, path);
        let is_older =
            matches!(item[..], [(at, Evidence::Stale { lsn, wal })] if at == block && lsn < wal);
        assert!(is_older, "{item:?}");
    }
    for (path, block) in [(zero, 7), (zero_index, 3), (zero_leaf, 4)] {
        let item = at(&by_wal, path);
        let is_found = matches!(item[..], [(at, Evidence::ZeroButLogged { .. })] if at == block);
        assert!(is_found, "{item:?}");
    }
    let element = at(&by_indexes, zero);
    let [(7, Evidence::ZeroButIndexed { .. })] = element[..] else { panic!("{element:?}") };
    for (path, block) in [(zero_index, 3), (zero_leaf, 4)] {
        let item = at(&by_indexes, path);
        let is_found = matches!(item[..], [(at, Evidence::ZeroButLinked { .. })] if at == block);
        assert!(is_found, "{block}: {item:?}");
    }
    let logged = at(&by_wal, cut);
    let [(20, Evidence::MissingButLogged { last: logged, .. })] = logged[..] else {
        panic!("{logged:?}")
    };
    let entry = at(&by_indexes, cut);
    let [(20, Evidence::MissingButIndexed { last, .. })] = entry[..] else { panic!("{entry:?}") };
    assert!(logged == last && last > 70, "{entry:?}");
    let logged = at(&by_wal, cut_index);
    let [(6, Evidence::MissingButLogged { last: logged, .. })] = logged[..] else {
        panic!("{logged:?}")
    };
    let item = at(&by_indexes, cut_index);
    let [(6, Evidence::MissingButLinked { last, .. })] = item[..] else { panic!("{item:?}") };
    assert!(logged == last && last > 10, "{item:?}");
    for found in [by_wal, by_indexes] {
        let ours: usize = paths.iter().map(|path| findings(&found, path).len()).sum();
        assert_eq!(found.findings.len(), ours, "{:?}", found.findings);
    }
}

fn check_said(data: &Path) {
    let message = check_program(&[], data, 1);
    let kinds = |name: &str| -> Vec<Value> {
        let findings = relation(&message, name)["findings"].as_array().unwrap();
        findings.iter().map(|finding| finding["kind"].clone()).collect()
    };
    assert_eq!(kinds("stale"), ["lost_write"]);
    assert_eq!(kinds("zero"), ["zero_but_logged"]);
    assert_eq!(kinds("zero_leaf_i"), ["zero_but_logged"]);
    assert_eq!(kinds("cut"), ["missing_but_logged"]);
    assert_eq!(kinds("cut_index_i"), ["missing_but_logged"]);
    let found = &relation(&message, "zero")["findings"];
    assert!(found[0]["wal"].as_str().unwrap().contains('/'), "{found}");
    let remedy = relation(&message, "zero")["remedy"].as_str().unwrap();
    assert!(remedy.contains("REINDEX TABLE public.zero"), "{remedy}");
    let covered = message["covered"].as_array().unwrap();
    assert_eq!(covered[0], "checksums");
    assert!(covered[3].as_str().unwrap().starts_with("WAL from 0/"), "{covered:?}");
    assert_eq!(covered[4], "zeroed pages by B-trees");
    // A table alone, with its index.
    let output = check_program(&["--only", "zero"], data, 1);
    assert_eq!(output["suspicions"], 1);
}
