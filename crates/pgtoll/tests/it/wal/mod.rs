//! What pgtoll counts in WAL equals what `pg_waldump` says, to the byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pgtoll_cluster::Installation;
use pgtoll_format::Lsn;
use pgtoll_format::wal::RecordType;
use pgtoll_format::wal::rmgr::XLOG_SWITCH;
use pgtoll_testing::wal_writer;
use pgtoll_wal::{Contents, End, SegmentFile, WalSummary, scan};

mod history;
mod oracle;
mod statistics;
mod stored;
mod timelines;

use crate::support::{Scratch, program, run, servers};

/// Records, their bytes, bytes of images: by the name of their type.
type Counts = BTreeMap<String, [u64; 3]>;

/// Every access method, with what each logs in its own way: splits, cleanups, freed pages.
const ACCESS_METHODS: [&str; 3] = [
    "CREATE TABLE t (a int, b int[], c text, p point);
     CREATE INDEX ON t (a);
     CREATE INDEX ON t USING hash (a);
     CREATE INDEX gin ON t USING gin (b);
     CREATE INDEX ON t USING gist (p);
     CREATE INDEX ON t USING spgist (c);
     CREATE INDEX ON t USING brin (a) WITH (pages_per_range = 4);
     INSERT INTO t SELECT i, ARRAY[i % 100, i % 7], repeat(md5(i::text), 3), point(i, i % 7)
         FROM generate_series(1, 5000) i;
     CREATE SEQUENCE s; SELECT nextval('s')",
    "CHECKPOINT;
     INSERT INTO t SELECT -i, ARRAY[i % 100, i], md5(i::text), point(-i, i % 7)
         FROM generate_series(1, 3000) i;
     UPDATE t SET a = -a WHERE a % 3 = 0; DELETE FROM t WHERE a % 5 = 0;
     SELECT count(*) FROM t WHERE c <> ''; VACUUM t; CHECKPOINT;
     DELETE FROM t WHERE a % 3 = 0 OR a > 2000; VACUUM (FREEZE) t;
     SELECT gin_clean_pending_list('gin')",
    "CREATE INDEX CONCURRENTLY ON t (c); CREATE TABLE u AS SELECT * FROM t; REINDEX TABLE t;
     SELECT count(a) FROM (SELECT a FROM t FOR SHARE) locked; CHECKPOINT;
     UPDATE t SET c = 'x'; TRUNCATE u; DROP TABLE u; INSERT INTO t VALUES (1); VACUUM t",
];

fn scanned(files: &[SegmentFile]) -> (WalSummary<Contents>, End) {
    scan(files, &(Lsn::INVALID..Lsn::MAX), 2, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn counts(summary: &WalSummary<Contents>) -> Counts {
    let types = summary.collected.statistics.types();
    types
        .map(|(kind, item)| {
            (kind.name(summary.major), [item.records, item.record_bytes, item.image_bytes])
        })
        .collect()
}

/// What `pg_waldump --stats=record` says of all segments there.
fn theirs(server: &Installation, wal: &Path) -> Counts {
    let names = segment_names(wal);
    statistics_of(server, wal, &[names.first().unwrap(), names.last().unwrap()])
}

/// What `pg_waldump --stats=record` says, given these arguments.
fn statistics_of(server: &Installation, wal: &Path, arguments: &[&str]) -> Counts {
    let mut command = program(server.bin.join("pg_waldump"));
    command.args(["--stats=record", "--path"]).arg(wal).args(arguments);
    let ran = run(&mut command);
    let counts: Counts = ran.stdout.lines().filter_map(row).collect();
    assert!(!counts.is_empty(), "{ran:?}");
    counts
}

/// Plain segments there.
fn segment_names(wal: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(wal).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_digit = |c: char| c.is_ascii_hexdigit();
    names.filter(|name| name.len() == 24 && name.chars().all(is_digit)).collect()
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

/// Copies these segments into a new directory, all of them under the name that they would have on
/// this timeline: `pg_waldump` follows names only.
fn renamed(files: &[SegmentFile], timeline: u32, directory: &Path) -> PathBuf {
    fs::create_dir(directory).unwrap();
    for file in files {
        let (high, low) = file.name.place;
        let name = format!("{timeline:08X}{high:08X}{low:08X}");
        fs::copy(&file.path, directory.join(name)).unwrap();
    }
    directory.to_owned()
}

#[test]
fn record_types_are_called_as_by_pg_waldump() {
    for server in servers() {
        let facts = server.version.facts().unwrap();
        let scratch = Scratch::new();
        let mut writer = wal_writer::Writer::new(facts.wal.magic, 1);
        let kinds: Vec<RecordType> = (0..22_u8)
            .flat_map(|manager| (0..16_u8).map(move |info| RecordType { manager, info: info << 4 }))
            // After a switch nothing is read up to the next segment.
            .filter(|kind| *kind != XLOG_SWITCH)
            // The first of a transaction's bits is a flag.
            .filter(|kind| kind.manager != 1 || kind.info < 0x80)
            .collect();
        for kind in &kinds {
            writer.record(kind.manager, kind.info, &wal_writer::main_data(&[0; 4]));
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
