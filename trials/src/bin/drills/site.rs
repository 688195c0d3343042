//! The clusters of the drills: one that stays as it is, a copy that is damaged, and the sources of its
//! repair.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_trials::{dsn, settings};
use pgtoll_wire::Connection;

pub(crate) const PAGE: usize = 8192;

/// A relation that is damaged.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    pub(crate) name: String,
    /// Its first file, below the data directory.
    pub(crate) file: PathBuf,
}

pub(crate) struct Site {
    pub(crate) pgtoll: PathBuf,
    pub(crate) truth: Cluster,
    pub(crate) damaged: Cluster,
    pub(crate) relations: Vec<Relation>,
    /// Kinds of sources, and the options that name them.
    pub(crate) sources: BTreeMap<&'static str, Vec<String>>,
    /// Relations' files at the time of the backup.
    pub(crate) backup: PathBuf,
    /// What the queries give where nothing is damaged.
    content: Vec<String>,
    copies: u32,
    is_running: bool,
    standby: Cluster,
}

/// Tables with each kind of index, long values, and a sequence.
const FIRST: &str = "
    CREATE TABLE t (id int PRIMARY KEY, b text, tags int[], at point);
    CREATE SEQUENCE s; SELECT setval('s', 100);
    INSERT INTO t SELECT i, md5(i::text), ARRAY[i % 50, i % 7], point(i % 100, i / 100)
        FROM generate_series(1, 12000) i;
    CREATE INDEX t_hash ON t USING hash (b);
    CREATE INDEX t_gin ON t USING gin (tags);
    CREATE INDEX t_gist ON t USING gist (at);
    CREATE INDEX t_spgist ON t USING spgist (b);
    CREATE INDEX t_brin ON t USING brin (id) WITH (pages_per_range = 4);
    CREATE INDEX t_expression ON t (lower(b));
    CREATE TABLE long (id int PRIMARY KEY, b text);
    ALTER TABLE long ALTER b SET STORAGE EXTERNAL;
    INSERT INTO long SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 150) i;
    CREATE TABLE plain AS SELECT i AS id, md5(i::text) AS b FROM generate_series(1, 12000) i;
    VACUUM (FREEZE, ANALYZE) t; VACUUM (FREEZE, ANALYZE) long; VACUUM plain;
    CHECKPOINT";
/// Changes after the backup, on its timeline.
const LATER: &str = "
    UPDATE t SET b = md5(b), tags = tags || 99 WHERE id % 40 = 0;
    DELETE FROM t WHERE id % 97 = 0;
    INSERT INTO t SELECT i, md5(i::text), ARRAY[i % 50], point(i % 100, 7)
        FROM generate_series(20001, 22000) i;
    INSERT INTO long SELECT i, repeat(md5(i::text), 200) FROM generate_series(201, 240) i;
    UPDATE plain SET b = 'later' WHERE id % 300 = 0;
    SELECT sum(nextval('s')) FROM generate_series(1, 50);
    CREATE TABLE late AS SELECT * FROM plain WHERE id < 2000;
    VACUUM t; CHECKPOINT";
/// Changes on the timeline of a promoted server.
const PROMOTED: &str = "
    UPDATE t SET tags = tags || 98 WHERE id % 60 = 0;
    INSERT INTO plain SELECT i, md5(i::text) FROM generate_series(30001, 31000) i;
    UPDATE late SET b = 'promoted' WHERE id % 90 = 0;
    INSERT INTO long SELECT i, repeat(md5(i::text), 200) FROM generate_series(301, 310) i;
    CHECKPOINT;
    UPDATE t SET b = md5(b) WHERE id % 500 = 0;
    CHECKPOINT";
const NAMES: [&str; 15] = [
    "t",
    "t_pkey",
    "t_hash",
    "t_gin",
    "t_gist",
    "t_spgist",
    "t_brin",
    "t_expression",
    "long",
    "long_pkey",
    "plain",
    "late",
    "s",
    "pg_class",
    "pg_attribute",
];
/// By sequential scans, then by each index.
const QUERIES: [&str; 11] = [
    "SET enable_seqscan = on; SELECT count(*) || ' ' || sum(hashtext(t::text)) FROM t",
    "SET enable_seqscan = on; SELECT count(*) || ' ' || sum(hashtext(b)) FROM long",
    "SET enable_seqscan = on; SELECT count(*) || ' ' || sum(hashtext(b)) FROM plain",
    "SET enable_seqscan = on; SELECT count(*) || ' ' || sum(hashtext(b)) FROM late",
    "SET enable_seqscan = off; SELECT count(*) || ' ' || sum(hashtext(b)) FROM t WHERE id > 0",
    "SET enable_seqscan = off; SELECT count(*)::text FROM t WHERE lower(b) > ''",
    "SET enable_seqscan = off; SELECT string_agg(n::text, ',') FROM generate_series(0, 99) k,
        LATERAL (SELECT count(*) n FROM t WHERE tags @> ARRAY[k]) x",
    "SET enable_seqscan = off; SELECT count(*)::text FROM t WHERE at <@ box '((0,0),(99,200))'",
    "SET enable_seqscan = off; SELECT sum(n)::text FROM generate_series(1, 12000) i,
        LATERAL (SELECT count(*) n FROM t WHERE b = md5(i::text)) x",
    "SET enable_seqscan = off; SELECT count(*) || ' ' || sum(hashtext(b)) FROM long WHERE id > 0",
    "SELECT count(*) || ' ' || sum(attnum) FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid",
];

impl Site {
    pub(crate) fn make(
        guard: &mut Guard,
        installation: &Installation,
        is_running: bool,
    ) -> anyhow::Result<Self> {
        let directory = guard.directory().to_owned();
        let [archive, gap, backup, tars] =
            ["archive", "gap", "backup", "tars"].map(|name| directory.join(name));
        let truth = Cluster::init(guard, installation, "truth", true)?;
        for path in [&archive, &gap] {
            guard.run(Path::new("mkdir"), &[&path.to_string_lossy()])?;
        }
        let archive_command = format!("cp %p {}/%f", archive.display());
        truth.configure(
            guard,
            &settings([
                ("archive_mode", "on"),
                ("archive_command", &archive_command),
                ("autovacuum", "off"),
                ("fsync", "off"),
                ("max_parallel_workers_per_gather", "0"),
                ("max_wal_size", "1GB"),
                ("shared_buffers", "16MB"),
                ("wal_keep_size", "1GB"),
            ]),
        )?;
        truth.start(guard)?;
        execute(&mut truth.connect(DATABASE)?, FIRST)?;
        for (path, form) in [(&backup, "-Fp"), (&tars, "-Ft")] {
            let path = path.to_string_lossy().into_owned();
            let options = ["-D", &path, form, "-c", "fast", "--no-sync", "-X", "none"];
            truth.run_client(guard, "pg_basebackup", &options)?;
        }
        execute(&mut truth.connect(DATABASE)?, LATER)?;
        truth.stop(guard, StopMode::Fast)?;
        guard.write(&truth.data().join("standby.signal"), String::new())?;
        truth.start(guard)?;
        truth.promote()?;
        let mut session = truth.connect(DATABASE)?;
        execute(&mut session, PROMOTED)?;
        let relations = relations(&mut session)?;
        let content = content(&truth)?;
        session.execute("SELECT pg_switch_wal()")?;
        drop(session);
        truth.stop(guard, StopMode::Fast)?;
        let stopped = truth.copy(guard, "stopped")?;
        let standby = truth.copy(guard, "standby")?;
        guard.write(&standby.data().join("standby.signal"), String::new())?;
        standby.start(guard)?;
        let sibling = Cluster::init(guard, installation, "sibling", true)?;
        copy_with_gap(guard, &archive, &gap)?;
        let damaged = truth.copy(guard, "damaged0")?;
        if is_running {
            damaged.start(guard)?;
        }
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let named = |option: &str, place: &Path| vec![option.to_owned(), path(place)];
        let wal = named("--wal", &archive);
        let sources = BTreeMap::from([
            ("backup and WAL", [named("--from-backup", &backup), wal.clone()].concat()),
            ("tars and WAL", [named("--from-backup", &tars), wal.clone()].concat()),
            ("backup", named("--from-backup", &backup)),
            ("WAL", wal),
            ("a stopped copy", named("--from-stopped", &stopped.data())),
            ("a standby", vec!["--from-standby".to_owned(), dsn(&standby, DATABASE)]),
            ("a sibling", named("--from-stopped", &sibling.data())),
            (GAP, [named("--from-backup", &backup), named("--wal", &gap)].concat()),
            ("nothing", Vec::new()),
        ]);
        Ok(Self {
            pgtoll: pgtoll_trials::beside("pgtoll")?,
            truth,
            damaged,
            relations,
            sources,
            backup,
            content,
            copies: 0,
            is_running,
            standby,
        })
    }

    /// Whether a server on the damaged copy gives what it should. The copy is initialized again afterwards.
    pub(crate) fn is_content_right(&mut self, guard: &mut Guard) -> anyhow::Result<bool> {
        self.damaged.start(guard)?;
        let found = content(&self.damaged);
        self.damaged.stop(guard, StopMode::Immediate)?;
        self.renew(guard)?;
        Ok(found.is_ok_and(|found| found == self.content))
    }

    /// Makes the damaged copy again.
    pub(crate) fn renew(&mut self, guard: &mut Guard) -> anyhow::Result<()> {
        self.copies += 1;
        let next = self.truth.copy(guard, &format!("damaged{}", self.copies))?;
        std::mem::replace(&mut self.damaged, next).remove(guard)?;
        Ok(())
    }

    pub(crate) fn end(self, guard: &mut Guard) -> anyhow::Result<()> {
        if self.is_running {
            self.damaged.stop(guard, StopMode::Immediate)?;
        }
        self.standby.stop(guard, StopMode::Immediate)?;
        Ok(())
    }
}

fn execute(session: &mut Connection, statements: &str) -> anyhow::Result<()> {
    for sql in statements.split(';') {
        session.execute(sql).with_context(|| sql.to_owned())?;
    }
    Ok(())
}

fn relations(session: &mut Connection) -> anyhow::Result<Vec<Relation>> {
    let mut relations = Vec::new();
    let mut add = |session: &mut Connection, name: &str, oid: &str| {
        let row = session.query_one(&format!("SELECT pg_relation_filepath({oid}) AS file"))?;
        relations.push(Relation { name: name.to_owned(), file: row.text("file")?.into() });
        Ok::<_, pgtoll_wire::Error>(())
    };
    for name in NAMES {
        add(session, name, &format!("'{name}'::regclass"))?;
    }
    let toast = "(SELECT reltoastrelid FROM pg_class WHERE relname = 'long')";
    add(session, "TOAST", toast)?;
    let index = format!("(SELECT indexrelid FROM pg_index WHERE indrelid = {toast})");
    add(session, "TOAST's index", &index)?;
    Ok(relations)
}

fn content(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let mut session = cluster.connect(DATABASE)?;
    let mut content = Vec::new();
    for sql in QUERIES {
        let (set, query) = sql.split_once(';').unwrap_or(("", sql));
        session.execute(set)?;
        let row = session.query_one(&format!("SELECT ({query}) AS found"))?;
        content.push(row.text("found")?.to_owned());
    }
    Ok(content)
}

/// The archive without a segment in its middle.
fn copy_with_gap(guard: &mut Guard, archive: &Path, gap: &Path) -> anyhow::Result<()> {
    let mut segments: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(archive)? {
        segments.push(entry?.path());
    }
    segments.retain(|path| path.file_name().is_some_and(|name| name.len() == 24));
    segments.sort();
    let middle = segments.len() / 2;
    for (_, path) in segments.iter().enumerate().filter(|(at, _)| *at != middle) {
        guard.run(Path::new("cp"), &[&path.to_string_lossy(), &gap.to_string_lossy()])?;
    }
    Ok(())
}

pub(crate) const GAP: &str = "backup and WAL with a gap";
const DATABASE: &str = "postgres";
