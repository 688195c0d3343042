//! The workloads: their tables, their clients and how much each of these does in a cycle.

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard};
use pgtoll_record::trials::{PredictionTrialRegime as Regime, PredictionTrialWorkload as Workload};
use pgtoll_workload::{Mix, Script};

use crate::program::MONITOR;

pub(crate) const DATABASE: &str = "postgres";

/// Clients that run the same scripts.
pub(crate) struct ClientGroup {
    pub(crate) clients: usize,
    /// Transactions of each client in a cycle, for each of `--seconds`; 0: one transaction, at the
    /// cycle's beginning.
    pub(crate) transactions: u64,
    pub(crate) mix: Mix,
}

/// What the workload needs of the server, beside what all have.
pub(crate) fn shared_buffers(workload: Workload) -> &'static str {
    match workload {
        Workload::Eviction => "24MB",
        Workload::Skewed => "64MB",
        _ => "256MB",
    }
}

/// pgbench's scale factor.
const SCALE: u32 = 20;

/// Makes the tables, vacuumed as they are long after a load.
pub(crate) fn prepare(
    workload: Workload,
    cluster: &Cluster,
    guard: &mut Guard,
) -> anyhow::Result<()> {
    let mut connection = cluster.connect(DATABASE)?;
    for extension in ["pg_buffercache", "pageinspect", "pg_stat_statements"] {
        connection.execute(&format!("CREATE EXTENSION {extension}"))?;
    }
    connection.execute(&format!("CREATE ROLE {MONITOR} LOGIN IN ROLE pg_monitor"))?;
    if workload == Workload::TpcB {
        let scale = SCALE.to_string();
        let load = ["--initialize", "--quiet", "--scale", &scale, DATABASE];
        cluster.run_client(guard, "pgbench", &load)?;
    }
    for statement in tables(workload) {
        connection.execute(statement)?;
    }
    connection.execute("VACUUM (FREEZE, ANALYZE)")?;
    connection.close();
    Ok(())
}

fn tables(workload: Workload) -> &'static [&'static str] {
    match workload {
        Workload::TpcB => &[],
        // Vacuumed and analyzed as seldom as a table of 50 million rows, so that it is readers who
        // set hints. ANALYZE reads the whole of a table as small as this one.
        Workload::HintStorm => &[
            "CREATE SEQUENCE item_id",
            "CREATE TABLE item (id bigint PRIMARY KEY, v int, pad text) WITH \
             (autovacuum_vacuum_threshold = 5000000, autovacuum_analyze_threshold = 5000000, \
              autovacuum_vacuum_insert_threshold = 5000000)",
            "INSERT INTO item SELECT nextval('item_id'), 0, repeat('x', 100) \
             FROM generate_series(1, 500000)",
            "CREATE TABLE progress AS SELECT 500000::bigint AS id",
        ],
        // Vacuumed by a client.
        Workload::LoadVacuum => &[
            "CREATE TABLE load (id int, k text, pad text) \
             WITH (autovacuum_vacuum_insert_threshold = 50000000, \
             autovacuum_analyze_threshold = 50000000)",
            "INSERT INTO load SELECT i, md5(i::text), repeat('x', 60) \
             FROM generate_series(1, 200000) i",
        ],
        // Rows that were deleted once have left room in each page.
        Workload::Eviction => &[
            "CREATE TABLE wide (id int PRIMARY KEY, v int, pad text) WITH (fillfactor = 60, \
             autovacuum_vacuum_threshold = 5000000, autovacuum_analyze_threshold = 5000000)",
            "INSERT INTO wide SELECT i, 0, repeat('x', 200) FROM generate_series(1, 800000) i",
            "ALTER TABLE wide RESET (fillfactor)",
        ],
        Workload::AppendOnly => &[
            "CREATE TABLE event (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
             happened timestamptz NOT NULL DEFAULT now(), kind int, payload text) WITH \
             (autovacuum_vacuum_insert_threshold = 5000000, autovacuum_analyze_threshold = 5000000)",
            "CREATE INDEX ON event (kind, id)",
            "CREATE TABLE progress AS SELECT 200000::bigint AS id",
            "INSERT INTO event (kind, payload) SELECT i % 50, repeat('x', 200) \
             FROM generate_series(1, 200000) i",
        ],
        Workload::Skewed => &[
            "CREATE TABLE kv (id int PRIMARY KEY, k text, v int, pad text) WITH \
             (autovacuum_vacuum_threshold = 5000000, autovacuum_analyze_threshold = 5000000, \
              autovacuum_vacuum_insert_threshold = 5000000)",
            "INSERT INTO kv SELECT i, md5(i::text), 0, repeat('x', 100) \
             FROM generate_series(1, 600000) i",
            "CREATE INDEX ON kv (k)",
            "CREATE SEQUENCE kv_id START 1000000",
        ],
        Workload::Staging => &["CREATE TABLE imported (id int, v text)"],
        Workload::Partitions => {
            &["CREATE TABLE series (part int, at timestamptz, v float8) PARTITION BY LIST (part)"]
        }
        // Vacuumed by a client, as the next: what they pay hangs on when that comes, and autovacuum's chance
        // would be the truth's noise.
        Workload::Queue => &[
            "CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state int, pad text) \
             WITH (autovacuum_enabled = off)",
            "CREATE INDEX ON job (state)",
            "INSERT INTO job (state, pad) SELECT 0, repeat('x', 100) FROM generate_series(1, 20000)",
        ],
        Workload::Documents => &[
            "CREATE TABLE document (id int PRIMARY KEY, body jsonb) \
             WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)",
            DOCUMENTS,
            "CREATE INDEX ON document USING gin (body jsonb_path_ops)",
        ],
    }
}

/// The clients, eight in all. `seconds` is the amount of work of a cycle.
pub(crate) fn groups(
    workload: Workload,
    regime: Regime,
    seconds: u32,
) -> anyhow::Result<Vec<ClientGroup>> {
    let group = |clients, transactions, scripts: &[(&str, u32)]| {
        let parse =
            |(text, weight): &(&str, u32)| Ok((Script::parse(workload.name(), text)?, *weight));
        let scripts = scripts.iter().map(parse).collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::Ok(ClientGroup { clients, transactions, mix: Mix::new(scripts)? })
    };
    match workload {
        Workload::TpcB => {
            let mix = Script::built_in("tpcb-like").context("find the script of TPC-B")?.into();
            Ok(vec![ClientGroup { clients: 8, transactions: 160, mix }])
        }
        Workload::HintStorm => Ok(vec![
            group(1, 32, &[(STORM_INSERT, 3), (STORM_UPDATE, 1)])?,
            group(7, 160, &[(&storm_read(regime, seconds), 1)])?,
        ]),
        Workload::LoadVacuum => {
            Ok(vec![group(7, 6, &[(LOAD, 1)])?, group(1, 0, &[("VACUUM load;", 1)])?])
        }
        Workload::Eviction => Ok(vec![group(8, 320, &[(EVICTION_UPDATE, 1), (EVICTION_READ, 1)])?]),
        Workload::AppendOnly => Ok(vec![group(8, 64, &[(APPEND, 9), (&append_read(seconds), 1)])?]),
        Workload::Skewed => Ok(vec![group(8, 80, &[(SKEWED, 1)])?]),
        Workload::Staging => Ok(vec![group(8, 6, &[(STAGING, 1)])?]),
        Workload::Partitions => Ok(vec![group(8, 3, &[(PARTITIONS, 1)])?]),
        Workload::Queue => {
            Ok(vec![group(7, 90, &[(QUEUE, 1)])?, group(1, 0, &[("VACUUM job;", 1)])?])
        }
        Workload::Documents => Ok(vec![
            group(7, 45, &[(DOCUMENT_UPDATE, 3), (DOCUMENT_READ, 1)])?,
            group(1, 0, &[("VACUUM document;", 1)])?,
        ]),
    }
}

/// What is done before each part of a cycle, while no client works.
pub(crate) const fn before_part(workload: Workload) -> Option<&'static str> {
    match workload {
        Workload::HintStorm => Some("UPDATE progress SET id = (SELECT last_value FROM item_id)"),
        Workload::AppendOnly => Some("UPDATE progress SET id = (SELECT max(id) FROM event)"),
        _ => None,
    }
}

pub(crate) const fn scale(workload: Workload) -> u32 {
    if matches!(workload, Workload::TpcB) { SCALE } else { 1 }
}

const STORM_INSERT: &str = "INSERT INTO item SELECT nextval('item_id'), 0, repeat('y', 100) \
                            FROM generate_series(1, 2000);";
const STORM_UPDATE: &str = "\\set from random(1, 500000)
UPDATE item SET v = v + 1 WHERE id BETWEEN :from AND :from + 1000;";
/// Rows that are inserted in a cycle, for each of `--seconds`: three quarters of 32 transactions, of 2,000
/// rows each.
const STORM_ROWS: u32 = 48_000;

/// Reads rows that were written about a cycle ago. They depend on nothing but the seed: how fast readers
/// are compared with the writer would otherwise decide how many pages they reach in a cycle.
///
/// A checkpoint that is spread writes pages in the order of their blocks, so that each is written about as
/// late in its cycle as it was filled in the cycle before. Readers of rows that are a cycle old would
/// come to a page just when it is written, and chance would decide whether the hint costs an image. There
/// rows are older: between 1.2 and 1.8 cycles.
fn storm_read(regime: Regime, seconds: u32) -> String {
    let cycle = STORM_ROWS * seconds;
    let (newest, oldest) = match regime {
        Regime::Forced => (cycle / 32 * 25, cycle / 32 * 75),
        Regime::Timed => (cycle / 5 * 6, cycle / 5 * 9),
    };
    format!(
        "\\set back random({newest}, {oldest})
SELECT sum(v) FROM item WHERE id BETWEEN (SELECT id FROM progress) - :back \
    AND (SELECT id FROM progress) - :back + 1000;"
    )
}

const LOAD: &str = "\\set seed random(1, 1000000)
INSERT INTO load SELECT i, md5((i + :seed)::text), repeat('x', 60) FROM generate_series(1, 4000) i;";
const EVICTION_UPDATE: &str = "\\set id random(1, 800000)
UPDATE wide SET v = v + 1 WHERE id = :id;";
const EVICTION_READ: &str = "\\set from random(1, 800000)
SELECT sum(v) FROM wide WHERE id BETWEEN :from AND :from + 500;";
const APPEND: &str = "\\set kind random(0, 49)
INSERT INTO event (kind, payload) SELECT :kind, repeat('y', 200) FROM generate_series(1, 40);";
/// Reads some of the rows of the last two cycles.
fn append_read(seconds: u32) -> String {
    let oldest = 40_000 * seconds;
    format!(
        "\\set back random(1, {oldest})
SELECT count(payload) FROM event WHERE id BETWEEN (SELECT id FROM progress) - :back \
    AND (SELECT id FROM progress) - :back + 4000;"
    )
}

const SKEWED: &str = "\\set id random_zipfian(1, 600000, 1.05)
\\set a random(1, 600000)
\\set b random(1, 600000)
\\set c random_zipfian(1, 600000, 1.05)
UPDATE kv SET v = v + 1 WHERE id = :id;
INSERT INTO kv VALUES (nextval('kv_id'), md5(random()::text), 0, repeat('y', 50));
SELECT v FROM kv WHERE id = :a;
SELECT v FROM kv WHERE k = md5(:b::text);
SELECT v FROM kv WHERE id = :c;
";

/// A client's table has the name of its process.
const STAGING: &str = "DO $$ BEGIN \
EXECUTE format('CREATE TABLE stage_%s (id int, v text)', pg_backend_pid()); END $$;
DO $$ BEGIN EXECUTE format('INSERT INTO stage_%s SELECT i, md5(i::text) \
FROM generate_series(1, 1500) i', pg_backend_pid()); END $$;
DO $$ BEGIN EXECUTE format('INSERT INTO imported SELECT * FROM stage_%s WHERE id %% 100 = 0', \
pg_backend_pid()); EXECUTE format('DROP TABLE stage_%s', pg_backend_pid()); END $$;";
const PARTITIONS: &str = "DO $$ BEGIN \
EXECUTE format('CREATE TABLE IF NOT EXISTS series_%s PARTITION OF series FOR VALUES IN (%s)', \
pg_backend_pid(), pg_backend_pid()); \
INSERT INTO series SELECT pg_backend_pid(), now(), i FROM generate_series(1, 4000) i; END $$;
SELECT count(*) FROM series WHERE v < 100;
DO $$ BEGIN EXECUTE format('DROP TABLE series_%s', pg_backend_pid()); END $$;";
const QUEUE: &str = "INSERT INTO job (state, pad) SELECT 0, repeat('y', 100) FROM generate_series(1, 5);
BEGIN;
UPDATE job SET state = 1 WHERE id IN (SELECT id FROM job WHERE state = 0 ORDER BY id LIMIT 5 \
FOR UPDATE SKIP LOCKED);
COMMIT;
DELETE FROM job WHERE id IN (SELECT id FROM job WHERE state = 1 ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED);";
const DOCUMENTS: &str = "INSERT INTO document SELECT i, jsonb_build_object('id', i, 'tags', \
(SELECT jsonb_agg(md5((i * 7 + j)::text)) FROM generate_series(1, 120) j)) FROM generate_series(1, 5000) i";
const DOCUMENT_UPDATE: &str = "\\set id random(1, 5000)
UPDATE document SET body = body || jsonb_build_object('seen', :id::int) WHERE id = :id;";
const DOCUMENT_READ: &str = "\\set id random(1, 4900)
SELECT sum(length(body::text)) FROM document WHERE id BETWEEN :id AND :id + 50;";
