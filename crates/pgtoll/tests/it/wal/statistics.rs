//! WAL of every kind, and its copies in archives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::ops::ControlFlow;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::Lsn;
use pgtoll_format::wal::rmgr::XLOG_FPI_FOR_HINT;
use pgtoll_format::wal::{Compression, Parts, Record};
use pgtoll_record::ImageCause;
use pgtoll_wal::{Collect, Contents, End, SegmentFile, WalSummary, scan_with, segments};

use super::oracle::Dump;
use super::{ACCESS_METHODS, counts, scanned, theirs};
use crate::support::{Scratch, servers};

/// Two-phase commits, prepared and rolled back, a record that is longer than many pages, and one
/// that ends its segment.
const TRANSACTIONS: &str = "
    BEGIN; UPDATE t SET c = '' WHERE a % 11 = 0; PREPARE TRANSACTION 'one'; COMMIT PREPARED 'one';
    BEGIN; DELETE FROM t WHERE a % 13 = 0; PREPARE TRANSACTION 'two'; ROLLBACK PREPARED 'two';
    BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s; INSERT INTO t VALUES (2); ROLLBACK;
    SELECT pg_switch_wal();
    SELECT pg_logical_emit_message(true, 'pgtoll', repeat('x', 9000000)); SELECT pg_switch_wal()";

/// What is written for logical decoding, and what decoding itself writes.
const DECODING: &str = "
    SELECT pg_create_logical_replication_slot('pgtoll', 'pgoutput');
    CREATE PUBLICATION pgtoll FOR ALL TABLES;
    ALTER TABLE t REPLICA IDENTITY FULL;
    INSERT INTO t SELECT i FROM generate_series(1, 500) i; UPDATE t SET a = 7 WHERE a < 100;
    DELETE FROM t WHERE a = 7; CREATE TABLE catalog_change (a int);
    DO $$ BEGIN ASSERT (SELECT count(*) > 1000 FROM pg_logical_slot_get_binary_changes(
        'pgtoll', NULL, NULL, 'proto_version', '1', 'publication_names', 'pgtoll')); END $$";

/// Images that are there to check replay.
const CHECKED: &str = "
    SET wal_consistency_checking = 'all'; INSERT INTO t SELECT i FROM generate_series(1, 300) i;
    UPDATE t SET a = a + 1 WHERE a < 300; CREATE INDEX ON t (a, c); VACUUM t";

#[test]
fn statistics_equal_pg_waldumps() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let mut seen = BTreeSet::new();
    for (number, server) in servers().into_iter().enumerate() {
        let major = server.version.major();
        let name = format!("pg{major}");
        // Each server with another size of segments.
        let size = format!("--wal-segsize={}", ["4", "64", "16"][number % 3]);
        let cluster = Cluster::init_with(&mut guard, &server, &name, true, &[&size]).unwrap();
        let compressions = make_wal(&cluster, &server, &mut guard);
        let files = segments(&[cluster.data()]).unwrap();
        let (summary, end) = scanned(&files);
        assert!(matches!(end, End::Own(_)), "{name}: {end:?}");
        let theirs = theirs(&server, &cluster.data().join("pg_wal"));
        assert_eq!(counts(&summary), theirs, "{name}");
        assert!(theirs.len() > 70, "{name}: {} types of records", theirs.len());
        let dump = Dump::new(&server, &cluster.data().join("pg_wal"));
        dump.check(&summary, &name);
        check_prunes(&files, &dump, &name);
        let found = check_images(&summary, &name);
        assert_eq!(found, compressions, "{name}");
        seen.extend(found);
        if number == 0 {
            check_archives(&files, &summary, &scratch, &name);
        }
        cluster.remove(&mut guard).unwrap();
    }
    let missing: Vec<&str> =
        ["pglz", "lz4", "zstd"].into_iter().filter(|item| !seen.contains(*item)).collect();
    assert!(missing.is_empty(), "no server here compresses images with {missing:?}");
}

/// Makes WAL of every kind; which compressions its server has.
fn make_wal(cluster: &Cluster, server: &Installation, guard: &mut Guard) -> BTreeSet<&'static str> {
    let settings = [
        ("wal_level", "logical"),
        ("wal_keep_size", "4GB"),
        ("max_prepared_transactions", "5"),
        ("autovacuum", "off"),
        ("fsync", "off"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    let compressions = compressions(cluster, server);
    for work in ACCESS_METHODS {
        // Each statement by itself: some cannot stand in a transaction.
        cluster.run_psql(guard, "postgres", work).unwrap();
    }
    for (value, _) in &compressions {
        let work = format!(
            "CHECKPOINT; SET wal_compression = {value};
             UPDATE t SET a = a + 1; SELECT count(*) FROM pg_class; CREATE TABLE u AS TABLE t;
             CREATE INDEX ON u (c); DROP TABLE u; VACUUM t"
        );
        cluster.run_psql(guard, "postgres", &work).unwrap();
    }
    for work in [TRANSACTIONS, DECODING, CHECKED] {
        cluster.run_psql(guard, "postgres", work).unwrap();
    }
    // A crash in the middle of a transaction, and what recovery writes.
    let mut connection = cluster.connect("postgres").unwrap();
    connection.execute("BEGIN; INSERT INTO t SELECT i FROM generate_series(1, 1000) i").unwrap();
    cluster.kill(guard).unwrap();
    cluster.start(guard).unwrap();
    cluster.run_psql(guard, "postgres", "VACUUM t; ANALYZE t").unwrap();
    cluster.stop(guard, StopMode::Fast).unwrap();
    compressions.into_iter().map(|(_, name)| name).collect()
}

/// Values of `wal_compression`, with the kind of each: those that the server was built with.
fn compressions(cluster: &Cluster, server: &Installation) -> Vec<(&'static str, &'static str)> {
    let mut connection = cluster.connect("postgres").unwrap();
    let kinds: Vec<(&str, &str)> = ["pglz", "lz4", "zstd"]
        .into_iter()
        .filter(|kind| connection.execute(&format!("SET wal_compression = {kind}")).is_ok())
        .map(|kind| (kind, kind))
        .collect();
    if kinds.len() < 3 {
        // Not through the test's own output, which nobody sees of a test that passes.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "PostgreSQL {} compresses images with {kinds:?} only", server.version)
            .unwrap();
    }
    // Until 14 it is a switch.
    if kinds.is_empty() { vec![("on", "pglz")] } else { kinds }
}

/// Rows that records of pruning free the space of.
#[derive(Default)]
struct PrunedRows(BTreeMap<Lsn, u16>);

impl Collect for PrunedRows {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        if record.prunes(parts) {
            self.0.extend(record.pruned_rows(parts).map(|rows| (record.at, rows)));
        }
    }

    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// As many rows as `pg_waldump` prints, where it prints them all.
fn check_prunes(files: &[SegmentFile], dump: &Dump, name: &str) {
    let watch = &mut |_: usize| ControlFlow::Continue(());
    let (summary, _) = scan_with(files, 2, PrunedRows::default, watch).unwrap();
    let PrunedRows(ours) = summary.collected;
    let theirs = dump.pruned_rows();
    assert!(theirs.len() > 10, "{name}: {theirs:?}");
    for (at, (rows, is_all)) in theirs {
        // A record that only freezes frees nothing.
        let own = ours.get(&at).copied().unwrap_or(0);
        assert!(own == rows || !is_all && own > rows, "{name}: {at}: {own} for {rows}");
    }
}

/// Images by cause are all images, and hints' are those of their record type. Which compressions
/// there are.
fn check_images(summary: &WalSummary<Contents>, name: &str) -> BTreeSet<&'static str> {
    let total = summary.collected.statistics.total();
    let causes: Vec<(ImageCause, u64)> =
        summary.collected.statistics.causes().map(|(cause, item)| (cause, item.bytes)).collect();
    assert!(causes.iter().all(|(_, bytes)| *bytes > 0), "{name}: {causes:?}");
    assert_eq!(causes.iter().map(|(_, bytes)| bytes).sum::<u64>(), total.image_bytes, "{name}");
    let mut types = summary.collected.statistics.types();
    let of_hints = types.find(|(kind, _)| *kind == XLOG_FPI_FOR_HINT).unwrap().1;
    assert!(causes.contains(&(ImageCause::Hint, of_hints.image_bytes)), "{name}");
    let compressions = summary
        .collected
        .statistics
        .compressions()
        .filter(|(_, compression)| compression.images > 0);
    compressions
        .filter_map(|(kind, _)| match kind? {
            Compression::Pglz => Some("pglz"),
            Compression::Lz4 => Some("lz4"),
            Compression::Zstd => Some("zstd"),
        })
        .collect()
}

/// The same WAL in an archive, compressed in every way, and cut short.
fn check_archives(
    files: &[SegmentFile],
    summary: &WalSummary<Contents>,
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
    let (again, end) = scanned(&packed);
    assert!(matches!(end, End::Own(_)), "{name}: {end:?}");
    assert_eq!((counts(&again), again.from, again.to), (counts(summary), summary.from, summary.to));
    fs::remove_file(&packed[1].path).unwrap();
    let (broken, _) = scanned(&segments(&[archive]).unwrap());
    let expected = files[1].path.file_name().unwrap().to_str().unwrap();
    let [gap] = broken.gaps.as_slice() else { panic!("{name}: {:?}", broken.gaps) };
    assert!(matches!(&*gap.why, End::Missing { name, .. } if name == expected), "{gap:?}");
    assert_eq!(broken.to, summary.to, "{name}: what is behind the gap is read");
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
