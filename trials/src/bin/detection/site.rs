//! The cluster that is damaged, over and over again: copies of one.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::trials::DetectionOutcome;
use pgtoll_trials::settings;

pub(crate) const BLOCK_BYTES: usize = 8192;

/// A cluster with a table and its index, and what their queries must give.
pub(crate) struct Site {
    pub(crate) installation: Installation,
    pub(crate) pgtoll: PathBuf,
    with: Cluster,
    without: Cluster,
    files: BTreeMap<&'static str, String>,
    older: BTreeMap<&'static str, PathBuf>,
    /// What each of [`QUERIES`] gives where nothing is damaged.
    truth: Vec<String>,
    directory: PathBuf,
    copies: Cell<u32>,
}

/// Half of each page stays free: rows are changed within their pages. All rows are frozen and
/// visible, as of a table that was vacuumed.
const FIRST: [&str; 4] = [
    "CREATE TABLE t (a int, b text) WITH (fillfactor = 50)",
    "INSERT INTO t SELECT 2 * i, md5(i::text) FROM generate_series(1, 20000) i",
    "CREATE INDEX t_a ON t (a)",
    "VACUUM (FREEZE) t",
];
/// Changes what older copies of the pages do not know.
const LATER: [&str; 4] = [
    "UPDATE t SET b = 'changed' WHERE a % 20 = 0",
    "INSERT INTO t SELECT 2 * i + 1, 'late' FROM generate_series(500, 5000, 40) i",
    "VACUUM t",
    // Still in the index: a map that says that all of the page's rows are visible hides the deletion.
    "DELETE FROM t WHERE a BETWEEN 30000 AND 30020",
];

/// By the index and the visibility map alone, by a sequential scan, and by the index: settings, and a query.
/// An index scan that meets deleted rows marks their entries, so that the first would not see them any more.
const QUERIES: [(&str, &str); 3] = [
    (
        "SET enable_seqscan = off; SET enable_indexonlyscan = on",
        "SELECT count(*)::text AS found FROM t WHERE a > 0",
    ),
    (BY_TABLE, "SELECT count(*) || ' ' || sum(hashtext(b)) AS found FROM t"),
    (
        "SET enable_seqscan = off",
        "SELECT count(*) || ' ' || sum(hashtext(b)) AS found FROM t WHERE a > 0",
    ),
];
/// Only sequential scans.
const BY_TABLE: &str = "SET enable_indexscan = off";

/// What the server itself has for comparing a table with its visibility map.
const COMPARE: &str = "SELECT (SELECT count(*) FROM pg_check_visible('t')) \
                       + (SELECT count(*) FROM pg_check_frozen('t')) AS found";

impl Site {
    pub(crate) fn make(guard: &mut Guard, installation: &Installation) -> anyhow::Result<Self> {
        let directory = guard.directory().to_owned();
        let with = Cluster::init(guard, installation, "with", true)?;
        let settings = settings([
            ("autovacuum", "off"),
            ("enable_bitmapscan", "off"),
            ("enable_indexonlyscan", "off"),
            ("fsync", "off"),
            ("max_parallel_workers_per_gather", "0"),
            ("shared_buffers", "16MB"),
        ]);
        with.configure(guard, &settings)?;
        with.start(guard)?;
        let mut session = with.connect("postgres")?;
        FIRST.iter().try_for_each(|sql| session.execute(sql))?;
        let mut files = BTreeMap::new();
        for (label, name) in [("table", "t"), ("index", "t_a")] {
            let row =
                session.query_one(&format!("SELECT pg_relation_filepath('{name}') AS file"))?;
            files.insert(label, row.text("file")?.to_owned());
        }
        files.insert("map", format!("{}_vm", files["table"]));
        drop(session);
        with.stop(guard, StopMode::Fast)?;
        let mut older = BTreeMap::new();
        for (label, file) in &files {
            let kept = directory.join(format!("older-{label}"));
            std::fs::copy(with.data().join(file), &kept).context("keep older pages")?;
            older.insert(*label, kept);
        }
        with.start(guard)?;
        let mut session = with.connect("postgres")?;
        LATER.iter().try_for_each(|sql| session.execute(sql))?;
        drop(session);
        let truth = results(&with, Some(BY_TABLE))?.into_iter().collect::<Result<_, _>>()?;
        with.stop(guard, StopMode::Fast)?;
        let without = with.copy(guard, "without")?;
        let data = without.data();
        let arguments = ["--disable", "-D", &data.to_string_lossy()];
        guard.run(&installation.program("pg_checksums")?, &arguments)?;
        Ok(Self {
            installation: installation.clone(),
            pgtoll: pgtoll_trials::beside("pgtoll")?,
            with,
            without,
            files,
            older,
            truth,
            directory,
            copies: Cell::new(0),
        })
    }

    /// The file, and the block in it, that stand for this relation.
    pub(crate) fn target(&self, relation: &str) -> (&str, u64) {
        // Neither the first page nor the root of the index: a leaf that changed later. The map has but
        // one.
        let block = match relation {
            "table" => 7,
            "index" => 5,
            _ => 0,
        };
        (self.files.get(relation).map_or("", String::as_str), block)
    }

    /// The relation's file before it was changed last.
    pub(crate) fn older(&self, relation: &str) -> &Path {
        self.older.get(relation).map_or(Path::new(""), PathBuf::as_path)
    }

    /// A copy to damage.
    pub(crate) fn copy(&self, guard: &mut Guard, checksums: bool) -> anyhow::Result<Cluster> {
        let item = if checksums { &self.with } else { &self.without };
        let name = self.new_name("copy");
        Ok(item.copy(guard, &name)?)
    }

    fn new_name(&self, label: &str) -> String {
        self.copies.set(self.copies.get() + 1);
        format!("{label}{}", self.copies.get())
    }

    /// A path where nothing is yet.
    pub(crate) fn new_file(&self, label: &str) -> PathBuf {
        self.directory.join(self.new_name(label))
    }

    /// Whether a query of the running cluster fails; if none does, whether all are right.
    pub(crate) fn queried(&self, cluster: &Cluster) -> anyhow::Result<Queried> {
        let results = results(cluster, None)?;
        if results.iter().any(Result::is_err) {
            return Ok(Queried::Error);
        }
        let right = results.into_iter().flatten().eq(self.truth.iter().cloned());
        Ok(if right { Queried::Right } else { Queried::Wrong })
    }
}

/// What the queries say.
pub(crate) enum Queried {
    Error,
    Wrong,
    Right,
}

/// Whether the server itself finds that the table and its map contradict each other, or an error.
pub(crate) fn compared_by_server(cluster: &Cluster) -> anyhow::Result<DetectionOutcome> {
    let mut session = cluster.connect("postgres")?;
    session.execute("CREATE EXTENSION pg_visibility")?;
    let found = session.query_one(COMPARE);
    Ok(match found.and_then(|row| row.text("found").map(|found| found == "0")) {
        Ok(true) => DetectionOutcome::Unnoticed,
        Ok(false) | Err(_) => DetectionOutcome::Found,
    })
}

/// What each query gives, with its own settings or with these; an error only where there is no server.
fn results(
    cluster: &Cluster,
    settings: Option<&str>,
) -> anyhow::Result<Vec<Result<String, pgtoll_wire::Error>>> {
    let mut results = Vec::new();
    for (own, sql) in QUERIES {
        let mut session = cluster.connect("postgres")?;
        session.execute(settings.unwrap_or(own))?;
        results
            .push(session.query_one(sql).and_then(|row| row.text("found").map(ToOwned::to_owned)));
    }
    Ok(results)
}
