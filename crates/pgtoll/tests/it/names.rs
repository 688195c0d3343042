//! The names that pgtoll reads from a data directory's files are those that the server tells, and
//! what it reads in the control file is what `pg_controldata` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_datadir::{Names, RelationName, TableName, Unread};
use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::{ControlFile, Lsn, RelFileLocator};
use pgtoll_wire::{Connection, Row};
use proptest::prelude::*;

use crate::support::{Scratch, program, run, servers};

/// All of a cluster's relations that have files.
type Relations = BTreeMap<RelFileLocator, RelationName>;

#[test]
fn names_are_those_that_the_server_tells() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        check_server(&server, &mut guard);
    }
}

fn check_server(server: &Installation, guard: &mut Guard) {
    let name = format!("names{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, true).unwrap();
    let settings = [
        ("autovacuum", "off"),
        // What is killed is the server, not the machine.
        ("fsync", "off"),
        ("max_prepared_transactions", "5"),
        ("max_locks_per_transaction", "1000"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    check_control_file(server, &cluster.data());

    cluster.start(guard).unwrap();
    let mut session = cluster.connect("postgres").unwrap();
    work_everywhere(&cluster, &mut session);
    let mut open = left_open(&cluster);
    session.execute("CHECKPOINT").unwrap();
    let notice = known_relations(&cluster);
    check(&cluster.data(), &notice, "running");
    cluster.kill(guard).unwrap();
    open.clear();
    check(&cluster.data(), &notice, "killed");
    check_control_file(server, &cluster.data());
    check_damage(&cluster.data(), &notice);
    check_any_damage(&cluster.data(), &notice);

    cluster.start(guard).unwrap();
    let mut session = cluster.connect("postgres").unwrap();
    rewrite_catalogs(&cluster, &mut session);
    let report = known_relations(&cluster);
    drop(session);
    cluster.stop(guard, StopMode::Fast).unwrap();
    check(&cluster.data(), &report, "stopped");
    check_control_file(server, &cluster.data());

    cluster.start(guard).unwrap();
    let mut session = cluster.connect("postgres").unwrap();
    run_all(&mut session, &["DROP TABLE parts", "CREATE TABLE last AS SELECT 1 AS a"]);
    session.execute("CHECKPOINT").unwrap();
    let message = known_relations(&cluster);
    cluster.stop(guard, StopMode::Immediate).unwrap();
    check(&cluster.data(), &message, "stopped at once");
    cluster.remove(guard).unwrap();
}

/// Databases and tablespaces, relations of every kind, and what changes, ends or hides them.
fn work_everywhere(cluster: &Cluster, session: &mut Connection) {
    let place = cluster.data().parent().unwrap().join("space");
    let make = format!("COPY (SELECT 1 WHERE false) TO PROGRAM 'mkdir {}'", place.display());
    let space = format!("CREATE TABLESPACE space LOCATION '{}'", place.display());
    run_all(session, &[&make, &space]);
    run_all(
        session,
        &[
            "CREATE DATABASE \"in space, Größe\" TABLESPACE space",
            "CREATE DATABASE gone TABLESPACE space",
            "DROP DATABASE gone",
            "ALTER DATABASE template0 ALLOW_CONNECTIONS true",
        ],
    );
    for database in ["postgres", "in space, Größe"] {
        let mut session = cluster.connect(database).unwrap();
        run_all(&mut session, &RELATIONS);
        for i in 0..300 {
            let sql = [
                format!("CREATE TABLE many_{i} (a int PRIMARY KEY, b text)"),
                format!("ALTER TABLE many_{i} RENAME TO much_{i}"),
                format!("ALTER TABLE much_{i} SET (fillfactor = 50)"),
            ];
            run_all(&mut session, &sql.each_ref().map(String::as_str));
            if i % 7 == 0 {
                session.execute(&format!("DROP TABLE much_{i}")).unwrap();
            }
        }
    }
}

const RELATIONS: [&str; 24] = [
    "CREATE SCHEMA \"of its own\"",
    "CREATE TABLE plain (a int PRIMARY KEY, b text, c int[])",
    "CREATE TABLE \"of its own\".\"Größe \n\" (a serial, b text)",
    "CREATE INDEX \"of c\" ON plain USING gin (c)",
    "CREATE UNLOGGED TABLE unlogged (a int, b text)",
    "CREATE MATERIALIZED VIEW seen AS SELECT * FROM plain",
    "CREATE VIEW thin AS SELECT * FROM plain",
    "CREATE TABLE parts (a int PRIMARY KEY, b text) PARTITION BY RANGE (a)",
    "CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (10)",
    "CREATE TYPE pair AS (a int, b int)",
    "CREATE TABLE moved (a int PRIMARY KEY, b text)",
    "ALTER TABLE moved SET TABLESPACE space",
    "CREATE TABLE there (a int PRIMARY KEY, b text) TABLESPACE space",
    "ALTER TABLE there SET TABLESPACE pg_default",
    "CREATE TABLE emptied (a int, b text)",
    "INSERT INTO emptied SELECT i, i FROM generate_series(1, 1000) i; TRUNCATE emptied",
    "CREATE TABLE dropped (a int, b text)",
    "DROP TABLE dropped",
    "CREATE TABLE before (a int); ALTER TABLE before RENAME TO after",
    "BEGIN; CREATE TABLE never (a int, b text); ROLLBACK",
    "BEGIN; ALTER TABLE plain RENAME TO never; TRUNCATE emptied; ROLLBACK",
    "BEGIN; CREATE TABLE half (a int); SAVEPOINT s; ALTER TABLE half RENAME TO no;
     CREATE TABLE nor (a int); ROLLBACK TO s; CREATE TABLE whole (a text); RELEASE s; COMMIT",
    "REINDEX TABLE plain",
    "VACUUM FULL plain",
];

/// What is not finished when the server is killed. The sessions hold locks as long as they live.
fn left_open(cluster: &Cluster) -> Vec<Connection> {
    let mut sessions: Vec<Connection> =
        (0..4).map(|_| cluster.connect("postgres").unwrap()).collect();
    let [locks, updates, works, _] = sessions.as_mut_slice() else { unreachable!() };
    locks
        .execute(
            "CREATE TABLE locked_1 (a int); CREATE TABLE locked_2 (a int);
             CREATE TABLE locked_3 (a int)",
        )
        .unwrap();
    // Rows that one transaction has locked and another has changed, or has not after all: their
    // multixacts tell which.
    locks.execute("BEGIN").unwrap();
    for table in ["locked_1", "locked_2", "locked_3"] {
        let lock = format!("SELECT FROM pg_class WHERE relname = '{table}' FOR KEY SHARE");
        locks.execute(&lock).unwrap();
    }
    let update =
        |table: &str| format!("UPDATE pg_class SET relpersistence = 'u' WHERE relname = '{table}'");
    updates.execute(&update("locked_1")).unwrap();
    updates.execute(&format!("BEGIN; {}; ROLLBACK", update("locked_2"))).unwrap();
    updates.execute(&format!("BEGIN; {}", update("locked_3"))).unwrap();
    // So that the multixact alone tells: a part of the transaction that locked drops the table, and
    // does not after all.
    works.execute("CREATE TABLE locked_4 (a int); CREATE TABLE locked_5 (a int)").unwrap();
    for (table, end) in [("locked_4", "RELEASE s"), ("locked_5", "ROLLBACK TO s")] {
        let sql = format!(
            "BEGIN; SELECT FROM pg_class WHERE relname = '{table}' FOR KEY SHARE;
             SAVEPOINT s; DROP TABLE {table}; {end}; COMMIT"
        );
        works.execute(&sql).unwrap();
    }
    works.execute("CREATE TEMPORARY TABLE passing (a int PRIMARY KEY, b text)").unwrap();
    works
        .execute("BEGIN; CREATE TABLE prepared (a int, b text); PREPARE TRANSACTION 'create'")
        .unwrap();
    works.execute("BEGIN; DROP TABLE emptied; PREPARE TRANSACTION 'drop'").unwrap();
    works.execute("BEGIN; DROP TABLE \"after\"; CREATE TABLE unfinished (a text)").unwrap();
    sessions
}

/// Mapped catalogs and shared ones get new files.
fn rewrite_catalogs(cluster: &Cluster, session: &mut Connection) {
    run_all(
        session,
        &[
            "ROLLBACK PREPARED 'create'",
            "COMMIT PREPARED 'drop'",
            "VACUUM FULL pg_class",
            "VACUUM FULL pg_namespace",
            "VACUUM FULL pg_index",
            "VACUUM FULL pg_database",
            "VACUUM FULL pg_tablespace",
            "REINDEX TABLE pg_class",
            "REINDEX TABLE pg_database",
            "ALTER TABLESPACE space RENAME TO room",
            "ALTER DATABASE \"in space, Größe\" RENAME TO roomy",
            "VACUUM FREEZE",
        ],
    );
    let mut session = cluster.connect("roomy").unwrap();
    run_all(
        &mut session,
        &["VACUUM FULL pg_class", "TRUNCATE plain, moved", "ALTER TABLE there SET TABLESPACE room"],
    );
    drop(session);
    let mut session = cluster.connect("postgres").unwrap();
    run_all(&mut session, &["ALTER DATABASE roomy SET TABLESPACE pg_default"]);
}

fn run_all(session: &mut Connection, statements: &[&str]) {
    for sql in statements {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// What the server tells of the relations of all databases.
fn known_relations(cluster: &Cluster) -> Relations {
    let databases =
        cluster.connect("postgres").unwrap().query("SELECT datname FROM pg_database").unwrap();
    let mut message = Relations::new();
    for database in &databases {
        let database = database.text("datname").unwrap();
        let rows = cluster.connect(database).unwrap().query(TOLD).unwrap();
        assert!(rows.len() > 100, "{database}: {} relations", rows.len());
        message.extend(rows.iter().map(|row| named(row, database)));
    }
    message
}

/// What an index of a TOAST table serves is the table that the TOAST table serves.
const TOLD: &str = "
    WITH bases AS (
        SELECT c.oid, coalesce(i.indrelid, c.oid) AS base, i.indrelid
        FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
    )
    SELECT c.oid, c.relname, n.nspname, c.relkind, c.relpersistence, c.relisshared,
        pg_relation_filenode(c.oid) AS number,
        CASE WHEN c.reltablespace = 0 THEN d.dattablespace ELSE c.reltablespace END AS tablespace,
        CASE WHEN c.relisshared THEN 0 ELSE d.oid END AS database,
        o.relname AS of_relation, onsp.nspname AS of_schema
    FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_database d ON d.datname = current_database()
        JOIN bases b ON b.oid = c.oid
        LEFT JOIN pg_class t ON t.reltoastrelid = b.base
        LEFT JOIN pg_class o ON o.oid = coalesce(t.oid, b.indrelid)
        LEFT JOIN pg_namespace onsp ON onsp.oid = o.relnamespace
    WHERE pg_relation_filenode(c.oid) IS NOT NULL";

fn named(row: &Row, database: &str) -> (RelFileLocator, RelationName) {
    let letter = |column: &str| row.text(column).unwrap().as_bytes()[0];
    let is_shared = row.text("relisshared").unwrap() == "t";
    let files = RelFileLocator {
        tablespace: row.parse("tablespace").unwrap(),
        database: row.parse("database").unwrap(),
        rel_number: row.parse("number").unwrap(),
    };
    let item = row.value("of_relation").unwrap().map(|relation| TableName {
        schema: Some(row.text("of_schema").unwrap().into()),
        relation: relation.to_owned(),
    });
    let name = RelationName {
        oid: row.parse("oid").unwrap(),
        database: (!is_shared).then(|| database.into()),
        schema: Some(row.text("nspname").unwrap().into()),
        relation: row.text("relname").unwrap().to_owned(),
        kind: RelationKind::from_letter(letter("relkind")),
        persistence: Persistence::from_letter(letter("relpersistence")),
        of: item,
    };
    (files, name)
}

fn read(data: &Path) -> (Names, Relations) {
    let names = Names::of_data_directory(data).unwrap();
    let relations = names.iter().map(|(files, name)| (files, name.clone())).collect();
    (names, relations)
}

fn check(data: &Path, message: &Relations, when: &str) {
    let (names, relations) = read(data);
    assert_eq!(names.unread(), Unread::default(), "{when}");
    for (files, name) in message {
        assert_eq!(names.relation(*files), Some(name), "{when}, {}: {files:?}", data.display());
    }
    let more: Vec<_> = relations.iter().filter(|(files, _)| !message.contains_key(files)).collect();
    assert!(more.is_empty(), "{when}, {}: {more:?}", data.display());
    let tablespaces: BTreeSet<u32> = message.keys().map(|files| files.tablespace).collect();
    assert!(tablespaces.len() > 2, "{tablespaces:?}");
    assert!(tablespaces.iter().all(|oid| names.tablespace(*oid).is_some()));
    assert_eq!(names.database(1), Some("template1"));
}

/// Damage costs the names that it hits, and is counted.
fn check_damage(data: &Path, message: &Relations) {
    let pick = |relation: &str, database: Option<&str>| -> RelFileLocator {
        let is_it =
            |name: &RelationName| name.relation == relation && name.database.as_deref() == database;
        *message.iter().find(|(_, name)| is_it(name)).unwrap().0
    };
    let in_base = |relation: &str| {
        let files = pick(relation, Some("postgres"));
        data.join(format!("base/{}/{}", files.database, files.rel_number))
    };
    let damaged = |path: &Path, at: u64, bytes: &[u8]| {
        let file = fs::File::options().read(true).write(true).open(path).unwrap();
        let mut before = vec![0; bytes.len()];
        file.read_exact_at(&mut before, at).unwrap();
        file.write_all_at(bytes, at).unwrap();
        let read = read(data);
        file.write_all_at(&before, at).unwrap();
        read
    };

    // The header of a page of pg_class.
    let (names, relations) = damaged(&in_base("pg_class"), 8192 + 12, &[0xFF; 4]);
    assert_eq!(names.unread(), Unread { pages: 1, ..Unread::default() });
    assert!(relations.len() < message.len() && relations.len() > message.len() / 2);
    assert!(relations.iter().all(|(files, name)| message[files].relation == name.relation));

    // All of pg_namespace: what has no schema's name still has its own.
    let (names, relations) = damaged(&in_base("pg_namespace"), 0, &[0xFF; 24]);
    assert_eq!(names.unread(), Unread { pages: 1, ..Unread::default() });
    assert!(relations.keys().eq(message.keys()));
    assert_eq!(names.relation(pick("plain", Some("postgres"))).unwrap().schema, None);

    // pg_database: the databases are found all the same, without their names.
    let files = pick("pg_database", None);
    let path = data.join(format!("global/{}", files.rel_number));
    let (names, relations) = damaged(&path, 0, &[0xFF; 24]);
    assert_eq!(names.unread(), Unread { pages: 1, ..Unread::default() });
    assert!(relations.keys().eq(message.keys()));
    assert_eq!(names.relation(pick("plain", Some("postgres"))).unwrap().database, None);

    // A map: what only it knows is not found.
    let map = in_base("pg_class").with_file_name("pg_filenode.map");
    let (names, relations) = damaged(&map, 100, &[0xFF]);
    assert_eq!(names.unread(), Unread { maps: 1, ..Unread::default() });
    assert_eq!(names.relation(pick("pg_class", Some("postgres"))), None);
    assert!(relations.contains_key(&pick("plain", Some("postgres"))));

    // A whole database is away.
    let directory = map.parent().unwrap();
    let away = directory.with_file_name("away");
    fs::rename(directory, &away).unwrap();
    let (names, _) = read(data);
    fs::rename(&away, directory).unwrap();
    assert_eq!(names.unread(), Unread { databases: 1, ..Unread::default() });
    assert_eq!(names.relation(pick("plain", Some("postgres"))), None);
    assert_eq!(names.database(pick("plain", Some("postgres")).database), Some("postgres"));
}

/// Whatever bytes change in whatever file, there are names or an error.
fn check_any_damage(data: &Path, message: &Relations) {
    let in_base = |relation: &str| {
        let is_it = |name: &RelationName| {
            name.relation == relation && name.database.as_deref() == Some("postgres")
        };
        let files = message.iter().find(|(_, name)| is_it(name)).unwrap().0;
        data.join(format!("base/{}/{}", files.database, files.rel_number))
    };
    let files = vec![
        in_base("pg_class"),
        in_base("pg_namespace"),
        in_base("pg_class").with_file_name("pg_filenode.map"),
        data.join("global/pg_control"),
        data.join("global/pg_filenode.map"),
        data.join("pg_xact/0000"),
        multixacts(data, "offsets"),
        multixacts(data, "members"),
    ];
    // Most of what is read stands at the begin of a page.
    let change = (0..50_usize, 0..200_usize, any::<u8>());
    let changes = prop::collection::vec(change, 1..20);
    proptest!(ProptestConfig::with_cases(100), |(path in prop::sample::select(files), changes in changes)| {
        let before = fs::read(&path).unwrap();
        let mut bytes = before.clone();
        for (page, at, byte) in changes {
            let at = (page * 8192 + at) % bytes.len();
            bytes[at] = byte;
        }
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let read = Names::of_data_directory(data);
        file.write_all_at(&before, 0).unwrap();
        let may_fail = path.ends_with("pg_control");
        prop_assert!(read.is_ok() || may_fail, "{:?}", read);
    });
}

/// The only file of that part of `pg_multixact`.
fn multixacts(data: &Path, part: &str) -> PathBuf {
    let directory = data.join("pg_multixact").join(part);
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.swap_remove(0)
}

fn check_control_file(server: &Installation, data: &Path) {
    let mut command = program(server.bin.join("pg_controldata"));
    let ran = run(command.env("LC_ALL", "C").env("TZ", "UTC").arg(data));
    let theirs: BTreeMap<&str, &str> = ran
        .stdout
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    let file = ControlFile::read(&fs::read(data.join("global/pg_control")).unwrap()).unwrap();
    let ours = printed(&file);
    for (name, value) in &ours {
        // 19 prints a position's lower half with eight digits.
        let report = theirs.get(name).copied().unwrap_or_default();
        let message =
            report.parse().map_or(report.to_owned(), |position: Lsn| position.to_string());
        assert_eq!(message, *value, "{name}, {}", server.version);
    }
    let not_ours = ["Date/time type storage", "Mock authentication nonce"];
    let missing: Vec<&str> = theirs
        .keys()
        .copied()
        .filter(|name| !ours.contains_key(name) && !not_ours.contains(name))
        // The name of the file follows from the position.
        .filter(|name| !name.ends_with("REDO WAL file"))
        .collect();
    assert!(missing.is_empty(), "{missing:?}, {}", server.version);
    assert_eq!(file.float_format.to_bits(), 1_234_567.0_f64.to_bits());
}

/// What `pg_controldata` prints, in its words.
fn printed(file: &ControlFile) -> BTreeMap<&'static str, String> {
    let on = |on: bool| if on { "on" } else { "off" }.to_owned();
    let checkpoint = &file.last_checkpoint;
    let xid = checkpoint.next_xid;
    let mut lines: BTreeMap<&str, String> = [
        ("pg_control version number", file.control_version.to_string()),
        ("Catalog version number", file.catalog_version.to_string()),
        ("Database system identifier", file.system_identifier.to_string()),
        ("Database cluster state", file.state.to_string()),
        ("pg_control last modified", time(file.updated)),
        ("Latest checkpoint location", file.checkpoint.to_string()),
        ("Latest checkpoint's REDO location", checkpoint.redo.to_string()),
        ("Latest checkpoint's TimeLineID", checkpoint.timeline.to_string()),
        ("Latest checkpoint's PrevTimeLineID", checkpoint.previous_timeline.to_string()),
        ("Latest checkpoint's full_page_writes", on(checkpoint.full_page_writes)),
        ("Latest checkpoint's NextXID", format!("{}:{}", xid >> 32, xid & 0xFFFF_FFFF)),
        ("Latest checkpoint's NextOID", checkpoint.next_oid.to_string()),
        ("Latest checkpoint's NextMultiXactId", checkpoint.next_multixact.to_string()),
        ("Latest checkpoint's NextMultiOffset", checkpoint.next_multixact_offset.to_string()),
        ("Latest checkpoint's oldestXID", checkpoint.oldest_xid.to_string()),
        ("Latest checkpoint's oldestXID's DB", checkpoint.oldest_xid_database.to_string()),
        ("Latest checkpoint's oldestActiveXID", checkpoint.oldest_active_xid.to_string()),
        ("Latest checkpoint's oldestMultiXid", checkpoint.oldest_multixact.to_string()),
        ("Latest checkpoint's oldestMulti's DB", checkpoint.oldest_multixact_database.to_string()),
        (
            "Latest checkpoint's oldestCommitTsXid",
            checkpoint.oldest_commit_timestamp_xid.to_string(),
        ),
        (
            "Latest checkpoint's newestCommitTsXid",
            checkpoint.newest_commit_timestamp_xid.to_string(),
        ),
        ("Time of latest checkpoint", time(checkpoint.time)),
        ("Fake LSN counter for unlogged rels", file.unlogged_lsn.to_string()),
        ("Minimum recovery ending location", file.minimum_recovery_end.to_string()),
        ("Min recovery ending loc's timeline", file.minimum_recovery_timeline.to_string()),
        ("Backup start location", file.backup_start.to_string()),
        ("Backup end location", file.backup_end.to_string()),
        (
            "End-of-backup record required",
            if file.backup_end_required { "yes" } else { "no" }.to_owned(),
        ),
        ("wal_level setting", file.wal_level.to_string()),
        ("wal_log_hints setting", on(file.wal_log_hints)),
        ("max_connections setting", file.max_connections.to_string()),
        ("max_worker_processes setting", file.max_worker_processes.to_string()),
        ("max_wal_senders setting", file.max_wal_senders.to_string()),
        ("max_prepared_xacts setting", file.max_prepared_transactions.to_string()),
        ("max_locks_per_xact setting", file.max_locks_per_transaction.to_string()),
        ("track_commit_timestamp setting", on(file.track_commit_timestamp)),
        ("Maximum data alignment", file.alignment_max.to_string()),
        ("Database block size", file.block_bytes.to_string()),
        ("Blocks per segment of large relation", file.file_blocks.to_string()),
        ("WAL block size", file.wal_block_bytes.to_string()),
        ("Bytes per WAL segment", file.wal_segment_bytes.to_string()),
        ("Maximum length of identifiers", file.name_bytes.to_string()),
        ("Maximum columns in an index", file.index_columns_max.to_string()),
        ("Maximum size of a TOAST chunk", file.toast_chunk_bytes_max.to_string()),
        ("Size of a large-object chunk", file.large_object_chunk_bytes.to_string()),
        (
            "Float8 argument passing",
            if file.float8_by_value { "by value" } else { "by reference" }.to_owned(),
        ),
        ("Data page checksum version", file.checksum_version.to_string()),
    ]
    .into();
    if let Some(signed) = file.char_is_signed {
        let signed = if signed { "signed" } else { "unsigned" };
        lines.insert("Default char data signedness", signed.to_owned());
    }
    if let Some(decoding) = checkpoint.logical_decoding {
        lines.insert("Latest checkpoint's logical decoding", on(decoding));
        lines.insert("Pages per SLRU segment", file.slru_file_blocks.to_string());
    }
    lines
}

/// As `strftime` prints `%c` for programmers.
fn time(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds).unwrap();
    time.strftime("%a %b %e %H:%M:%S %Y").to_string()
}
