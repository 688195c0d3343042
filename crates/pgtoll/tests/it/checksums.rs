//! The checksums that servers stored, and those that they tell, are what every kernel computes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use pgtoll_checksum::{Kernel, page_checksum};
use pgtoll_cluster::{Cluster, StopMode};
use pgtoll_wire::Connection;

use crate::support::{Scratch, servers};

const PAGE_BYTES: usize = 8192;
/// The bytes that are read at once: more pages than any kernel does at a time, and a rest.
const PAGES_AT_ONCE: usize = 31;
/// A relation's files have that many blocks, all but the last.
const SEGMENT_BLOCKS: u32 = 131_072;
/// Of three servers these are half a million, and a relation has a second file.
const PAGES: u64 = 167_000;

/// Relations of every kind, then one that is large: four rows a page, none of them like another.
const RELATIONS: [&str; 3] = [
    "CREATE TABLE t (a int, b int[], c text, p point);
     CREATE INDEX ON t (a);
     CREATE INDEX ON t USING hash (a);
     CREATE INDEX ON t USING gin (b);
     CREATE INDEX ON t USING gist (p);
     CREATE INDEX ON t USING spgist (c);
     CREATE INDEX ON t USING brin (a) WITH (pages_per_range = 1);
     CREATE UNLOGGED TABLE u (a int PRIMARY KEY);
     CREATE SEQUENCE s; SELECT nextval('s')",
    "INSERT INTO t SELECT i, ARRAY[i % 100, i], repeat(md5(i::text), 9), point(i, i % 7)
         FROM generate_series(1, 20000) i;
     INSERT INTO u SELECT generate_series(1, 2000);
     DELETE FROM t WHERE a % 3 = 0; UPDATE t SET a = -a WHERE a % 5 = 0",
    "CREATE TABLE large (a int, b text);
     ALTER TABLE large ALTER b SET STORAGE PLAIN;
     INSERT INTO large SELECT i, repeat(md5(i::text), 60) FROM generate_series(1, 664000) i",
];

/// A file of a relation.
#[derive(Debug)]
struct RelationFile {
    path: PathBuf,
    /// `main`, `fsm`, `vm` or `init`.
    fork: &'static str,
    segment: u32,
}

#[test]
fn every_kernel_computes_what_servers_stored() {
    for server in servers() {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        let cluster = Cluster::init(&mut guard, &server, "stored", true).unwrap();
        // What is stored is not about durability.
        let settings = [("fsync", "off"), ("max_wal_size", "512MB"), ("wal_level", "minimal")];
        let settings = [settings.as_slice(), &[("max_wal_senders", "0")]].concat();
        let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        cluster.configure(&mut guard, &settings.collect()).unwrap();
        cluster.start(&mut guard).unwrap();
        let mut connection = cluster.connect("postgres").unwrap();
        for statements in RELATIONS {
            connection.execute(statements).unwrap();
        }
        connection.execute("VACUUM").unwrap();
        connection.close();
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let counts = compare(&relation_files(&cluster.data()));
        println!("{}: pages compared, by fork: {counts:?}", server.version);
        assert!(counts.values().sum::<u64>() >= PAGES, "{}: {counts:?}", server.version);
        let forks: Vec<_> = counts.keys().copied().collect();
        assert_eq!(forks, ["fsm", "init", "main", "vm"], "{}", server.version);
        cluster.remove(&mut guard).unwrap();
        guard.finish().unwrap();
    }
}

#[test]
fn page_checksum_is_what_pageinspect_says() {
    for server in servers() {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        let cluster = Cluster::init(&mut guard, &server, "said", true).unwrap();
        cluster.start(&mut guard).unwrap();
        let mut connection = cluster.connect("postgres").unwrap();
        connection.execute("CREATE EXTENSION pageinspect").unwrap();
        // As they are in memory, at their own places and at others.
        let pages = ask(
            &mut connection,
            "SELECT get_raw_page('pg_proc', block::int) AS page, place
                 FROM generate_series(0, pg_relation_size('pg_proc') / 8192 - 1) block,
                      unnest(ARRAY[block, 131072 + block, 4294967294 - block]) place",
        );
        let patterns = ask(
            &mut connection,
            "SELECT decode(repeat(of, 16384 / length(of)), 'hex') AS page, place
                 FROM unnest('{01,04,ff,abcd,e6d6,4a5e}'::text[]) of,
                      unnest('{0,50,100,4294967294}'::int8[]) place",
        );
        assert!(pages > 200 && patterns == 24, "{}: {pages} {patterns}", server.version);
        connection.close();
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        guard.finish().unwrap();
    }
}

/// Compares what the server says of these pages at these places with what the best kernel does.
fn ask(connection: &mut Connection, text: &str) -> usize {
    let query = format!(
        "SELECT encode(page, 'hex') AS page, place,
             page_checksum(page, place)::int & 65535 AS checksum FROM ({text}) pages"
    );
    let rows = connection.query(&query).unwrap();
    for row in &rows {
        let hex = row.text("page").unwrap();
        let digits = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        let page: Vec<u8> = (0..hex.len() / 2).map(digits).collect();
        let block: u32 = row.parse("place").unwrap();
        let checksum: u16 = row.parse("checksum").unwrap();
        assert_eq!(page_checksum(&page, block), checksum, "block {block}");
    }
    rows.len()
}

/// Compares every page that is not new, by every kernel. Returns how many these were, by fork.
fn compare(files: &[RelationFile]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    let mut buffer = vec![0; PAGES_AT_ONCE * PAGE_BYTES];
    for file in files {
        let mut from = File::open(&file.path).unwrap();
        let mut block = file.segment * SEGMENT_BLOCKS;
        loop {
            let length = read(&mut from, &mut buffer);
            assert_eq!(length % PAGE_BYTES, 0, "{file:?}");
            if length == 0 {
                break;
            }
            let pages = &buffer[..length];
            *counts.entry(file.fork).or_default() += compare_pages(pages, block, file);
            block += u32::try_from(length / PAGE_BYTES).unwrap();
        }
    }
    counts
}

fn compare_pages(pages: &[u8], first_block: u32, file: &RelationFile) -> u64 {
    let number = |page: &[u8], at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
    // A page without `pd_upper` is new, and has no checksum.
    let stored: Vec<Option<u16>> = pages
        .chunks(PAGE_BYTES)
        .map(|page| (number(page, 14) != 0).then(|| number(page, 8)))
        .collect();
    let mut computed = vec![0; stored.len()];
    for kernel in Kernel::all().iter().filter(|kernel| kernel.is_available()) {
        kernel.checksums(pages, PAGE_BYTES, first_block, &mut computed);
        for ((block, stored), computed) in (first_block..).zip(&stored).zip(&computed) {
            let agrees = stored.is_none_or(|stored| stored == *computed);
            let name = kernel.name();
            assert!(agrees, "{name}: block {block}: {computed}, not {stored:?}, {file:?}");
        }
    }
    stored.iter().flatten().count().try_into().unwrap()
}

/// As much as there is, up to the buffer's length.
fn read(from: &mut File, buffer: &mut [u8]) -> usize {
    let mut length = 0;
    while length < buffer.len() {
        match from.read(&mut buffer[length..]).unwrap() {
            0 => break,
            more => length += more,
        }
    }
    length
}

/// All relations' files: `global/1260`, `base/5/16384_fsm`, `base/5/16385.1`.
fn relation_files(data: &Path) -> Vec<RelationFile> {
    let mut directories = vec![data.join("global")];
    let databases = fs::read_dir(data.join("base")).unwrap();
    directories.extend(databases.map(|entry| entry.unwrap().path()));
    let mut files = Vec::new();
    for directory in directories {
        for entry in fs::read_dir(directory).unwrap() {
            files.extend(relation_file(entry.unwrap().path()));
        }
    }
    files
}

fn relation_file(path: PathBuf) -> Option<RelationFile> {
    let name = path.file_name()?.to_str()?;
    let (name, segment) = match name.split_once('.') {
        Some((name, segment)) => (name, segment.parse().ok()?),
        None => (name, 0),
    };
    let (number, fork) = name.split_once('_').unwrap_or((name, "main"));
    number.parse::<u32>().ok()?;
    let fork = ["main", "fsm", "vm", "init"].into_iter().find(|known| *known == fork)?;
    Some(RelationFile { path, fork, segment })
}
