//! What pgtoll counts in WAL equals what `pg_waldump` counts, to the byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::wal::RecordType;
use pgtoll_scan::{End, ImageCause, WalSummary, scan, segments};

#[path = "../../../pgtoll-format/tests/writer/mod.rs"]
mod writer;

use crate::support::{Scratch, program, run, servers};

/// Records, their bytes, bytes of images: by the name of their type.
type Counts = BTreeMap<String, [u64; 3]>;

/// Every access method, two-phase commits, prepared and rolled back, hints after a checkpoint, and
/// a record that is longer than many pages.
const WORK: [&str; 4] = [
    "CREATE TABLE t (a int, b int[], c text, p point);
     INSERT INTO t SELECT i, ARRAY[i % 100], repeat(md5(i::text), 3), point(i, i % 7)
         FROM generate_series(1, 20000) i;
     CREATE INDEX ON t (a);
     CREATE INDEX ON t USING hash (a);
     CREATE INDEX ON t USING gin (b);
     CREATE INDEX ON t USING gist (p);
     CREATE INDEX ON t USING spgist (p);
     CREATE INDEX ON t USING brin (a);
     CREATE SEQUENCE s; SELECT nextval('s')",
    "CHECKPOINT; SELECT count(*) FROM t WHERE c <> ''; UPDATE t SET a = -a WHERE a % 3 = 0;
     DELETE FROM t WHERE a % 5 = 0; INSERT INTO t SELECT * FROM t WHERE a % 7 = 0",
    "BEGIN; UPDATE t SET c = '' WHERE a % 11 = 0; PREPARE TRANSACTION 'one'; COMMIT PREPARED 'one';
     BEGIN; DELETE FROM t WHERE a % 13 = 0; PREPARE TRANSACTION 'two'; ROLLBACK PREPARED 'two';
     BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s; INSERT INTO t VALUES (2); ROLLBACK",
    "SELECT pg_logical_emit_message(true, 'pgtoll', repeat('x', 9000000)); CHECKPOINT;
     TRUNCATE t; CREATE TABLE u AS SELECT 1; DROP TABLE u",
];

#[test]
fn statistics_equal_pg_waldumps() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        for compression in compressions(&server) {
            let name = format!("pg{}{compression}", server.version.major());
            let cluster = Cluster::init(&mut guard, &server, &name, true).unwrap();
            make_wal(&cluster, compression, &mut guard);
            let files = segments(&[cluster.data()]).unwrap();
            let (summary, end) = scan(&files, 2).unwrap();
            assert!(matches!(end, End::Own(_)), "{name}: {end:?}");
            let theirs = theirs(&server, &cluster.data().join("pg_wal"));
            assert_eq!(counts(&summary), theirs, "{name}");
            assert!(theirs.len() > 50, "{name}: {} types of records", theirs.len());
            check_images(&summary, compression, &name);
            check_archives(&files, &summary, &scratch, &name);
            cluster.remove(&mut guard).unwrap();
        }
    }
}

fn compressions(server: &Installation) -> Vec<&'static str> {
    if server.version.major() < 15 { vec!["off", "on"] } else { vec!["off", "pglz"] }
}

fn make_wal(cluster: &Cluster, compression: &str, guard: &mut Guard) {
    let settings = [
        ("wal_level", "logical"),
        ("wal_keep_size", "4GB"),
        ("wal_compression", compression),
        ("max_prepared_transactions", "5"),
        ("autovacuum", "off"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    for work in WORK {
        // Each statement by itself: some cannot stand in a transaction.
        cluster.run_psql(guard, "postgres", work).unwrap();
    }
    // A crash in the middle of a transaction, and what recovery writes.
    let mut connection = cluster.connect("postgres").unwrap();
    connection.execute("BEGIN; INSERT INTO t SELECT i FROM generate_series(1, 1000) i").unwrap();
    cluster.kill(guard).unwrap();
    cluster.start(guard).unwrap();
    cluster.run_psql(guard, "postgres", "VACUUM t; ANALYZE t").unwrap();
    cluster.stop(guard, StopMode::Fast).unwrap();
}

fn counts(summary: &WalSummary) -> Counts {
    let types = summary.statistics.types();
    types
        .map(|(kind, of)| (kind.name(summary.major), [of.records, of.record_bytes, of.image_bytes]))
        .collect()
}

/// What `pg_waldump --stats=record` says of all segments there.
fn theirs(server: &Installation, wal: &Path) -> Counts {
    let names: BTreeSet<String> = fs::read_dir(wal)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.len() == 24)
        .collect();
    let mut command = program(server.bin.join("pg_waldump"));
    command.args(["--stats=record", "--path"]).arg(wal);
    let ran = run(command.arg(names.first().unwrap()).arg(names.last().unwrap()));
    let rows = ran.stdout.lines().filter_map(row);
    let counts: Counts = rows.collect();
    assert!(!counts.is_empty(), "{ran:?}");
    counts
}

/// `Heap/INSERT   20000 ( 12.34)   1260000 (  1.23)   0 (  0.00)   1260000 (  1.23)`
fn row(line: &str) -> Option<(String, [u64; 3])> {
    let (name, rest) = line.split_once("   ")?;
    // Percentages stand in parentheses and have a point.
    let numbers: Vec<u64> = rest.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [records, record_bytes, image_bytes, _] = numbers.as_slice() else { return None };
    let known = name.contains('/') && *records > 0;
    known.then(|| (name.trim().to_owned(), [*records, *record_bytes, *image_bytes]))
}

/// Images by cause are all images, and hints' are those of their record type.
fn check_images(summary: &WalSummary, compression: &str, name: &str) {
    let total = summary.statistics.total();
    let causes: BTreeMap<ImageCause, u64> =
        summary.statistics.causes().map(|(cause, of)| (cause, of.bytes)).collect();
    assert_eq!(causes.values().sum::<u64>(), total.image_bytes, "{name}");
    let hints = RecordType { manager: 0, info: 0xA0 };
    let mut types = summary.statistics.types();
    let of_hints = types.find(|(kind, _)| *kind == hints).unwrap().1;
    assert_eq!(causes[&ImageCause::Hint], of_hints.image_bytes, "{name}");
    let compressed: u64 = summary
        .statistics
        .compressions()
        .filter(|(kind, _)| kind.is_some())
        .map(|(_, of)| of.images)
        .sum();
    assert_eq!(compressed > 0, compression != "off", "{name}");
    let forks: u64 = summary.statistics.forks().iter().map(|(_, of)| of.image_bytes).sum();
    assert_eq!(forks, total.image_bytes, "{name}");
}

/// The same WAL in an archive, compressed in every way, and cut short.
fn check_archives(
    files: &[pgtoll_scan::SegmentFile],
    summary: &WalSummary,
    scratch: &Scratch,
    name: &str,
) {
    let archive = scratch.path(&format!("archive-{name}"));
    fs::create_dir(&archive).unwrap();
    for (index, file) in files.iter().enumerate() {
        let segment = file.path.file_name().unwrap().to_str().unwrap();
        let bytes = fs::read(&file.path).unwrap();
        let (packed, ending) = match index % 3 {
            0 => (gzip(&bytes), "gz"),
            1 => (zstd::encode_all(bytes.as_slice(), 1).unwrap(), "zst"),
            _ => (lz4(&bytes), "lz4"),
        };
        fs::write(archive.join(format!("{segment}.{ending}")), packed).unwrap();
    }
    let packed = segments(std::slice::from_ref(&archive)).unwrap();
    let (again, end) = scan(&packed, 2).unwrap();
    assert!(matches!(end, End::Own(_)), "{name}: {end:?}");
    assert_eq!((counts(&again), again.from, again.to), (counts(summary), summary.from, summary.to));
    fs::remove_file(&packed[1].path).unwrap();
    let (_, end) = scan(&segments(&[archive]).unwrap(), 2).unwrap();
    let expected = files[1].path.file_name().unwrap().to_str().unwrap();
    assert!(matches!(&end, End::Missing { name, .. } if name == expected), "{end:?}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn record_types_are_called_as_by_pg_waldump() {
    for server in servers() {
        let facts = server.version.facts().unwrap();
        let scratch = Scratch::new();
        let mut writer = writer::Writer::new(facts.wal.magic, 1);
        let kinds: Vec<RecordType> = (0..22_u8)
            .flat_map(|manager| (0..16_u8).map(move |info| RecordType { manager, info: info << 4 }))
            // After a switch nothing is read up to the next segment.
            .filter(|kind| *kind != RecordType { manager: 0, info: 0x40 })
            // The first of a transaction's bits is a flag.
            .filter(|kind| kind.manager != 1 || kind.info < 0x80)
            .collect();
        for kind in &kinds {
            writer.record(kind.manager, kind.info, &writer::main_data(&[0; 4]));
        }
        let wal = scratch.path("wal");
        fs::create_dir(&wal).unwrap();
        fs::write(wal.join("000000010000000000000001"), writer.finish()).unwrap();
        let theirs: Vec<String> = theirs(&server, &wal).into_keys().collect();
        let ours: BTreeSet<String> =
            kinds.iter().map(|kind| kind.name(server.version.major())).collect();
        assert_eq!(theirs, ours.into_iter().collect::<Vec<_>>(), "{}", server.version);
    }
}
