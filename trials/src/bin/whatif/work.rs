//! Servers that do the same work with other settings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::Lsn;
use pgtoll_record::trials::{WhatIfTrialCompression, WhatIfTrialSetting, WhatIfTrialWorkload};
use pgtoll_trials::settings;
use serde::{Deserialize, Serialize};

/// WAL of a run: the segments, and from where to where the work went.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) setting: WhatIfTrialSetting,
    pub(crate) segments: PathBuf,
    pub(crate) from: Lsn,
    pub(crate) to: Lsn,
}

impl Run {
    pub(crate) fn bytes(&self) -> u64 {
        self.to.bytes_since(self.from).unwrap_or(0)
    }
}

const DATABASE: &str = "postgres";
const MIX_TABLES: [&str; 5] = [
    "CREATE TABLE kv (id int PRIMARY KEY, k text, v int, pad text)",
    "INSERT INTO kv SELECT i, md5(i::text), 0, repeat('x', 100) FROM generate_series(1, 600000) i",
    "CREATE INDEX ON kv (k)",
    "CREATE SEQUENCE s START 1000000",
    "VACUUM ANALYZE kv",
];
const MIX: &str = "\\set id random_zipfian(1, 600000, 1.05)
\\set a random(1, 600000)
\\set b random(1, 600000)
\\set c random(1, 600000)
\\set d random_zipfian(1, 600000, 1.05)
\\set e random_zipfian(1, 600000, 1.05)
UPDATE kv SET v = v + 1 WHERE id = :id;
INSERT INTO kv VALUES (nextval('s'), md5(random()::text), 0, repeat('y', 50));
SELECT v FROM kv WHERE id = :a;
SELECT v FROM kv WHERE id = :b;
SELECT v FROM kv WHERE k = md5(:c::text);
SELECT v FROM kv WHERE id = :d;
SELECT v FROM kv WHERE id = :e;
";

/// The workload's name in tables.
pub(crate) fn name(workload: WhatIfTrialWorkload) -> &'static str {
    match workload {
        WhatIfTrialWorkload::Pgbench => "pgbench",
        WhatIfTrialWorkload::Mix => "read mix",
        WhatIfTrialWorkload::LateHints => "late hints",
        WhatIfTrialWorkload::Load => "bulk load",
    }
}

fn prepare(
    workload: WhatIfTrialWorkload,
    cluster: &Cluster,
    guard: &mut Guard,
) -> anyhow::Result<()> {
    let mut connection = cluster.connect(DATABASE)?;
    match workload {
        WhatIfTrialWorkload::Pgbench => {
            let load = ["--initialize", "--quiet", "--scale", "10", DATABASE];
            cluster.run_client(guard, "pgbench", &load)?;
        }
        WhatIfTrialWorkload::Mix | WhatIfTrialWorkload::LateHints => {
            for statement in MIX_TABLES {
                connection.execute(statement)?;
            }
        }
        WhatIfTrialWorkload::Load => {
            connection.execute("CREATE TABLE item (id int, k text, pad text)")?;
        }
    }
    connection.close();
    Ok(())
}

fn run_transactions(
    workload: WhatIfTrialWorkload,
    cluster: &Cluster,
    guard: &mut Guard,
    transactions: u32,
) -> anyhow::Result<()> {
    let count = (transactions / 2).to_string();
    let pgbench =
        ["--no-vacuum", "--client=2", "--jobs=2", "--random-seed=42", "--transactions", &count];
    match workload {
        WhatIfTrialWorkload::Pgbench => {
            cluster.run_client(guard, "pgbench", &[&pgbench[..], &[DATABASE]].concat())?;
        }
        WhatIfTrialWorkload::Mix | WhatIfTrialWorkload::LateHints => {
            let script = guard.directory().join("mix.sql");
            fs::write(&script, MIX).context("write the script")?;
            let script = script.to_string_lossy().into_owned();
            let file = ["--file", &script, DATABASE];
            cluster.run_client(guard, "pgbench", &[&pgbench[..], &file].concat())?;
        }
        WhatIfTrialWorkload::Load => {
            let mut connection = cluster.connect(DATABASE)?;
            for round in 0..transactions / 1000 {
                for statement in load(round) {
                    connection.execute(&statement)?;
                }
            }
            connection.close();
        }
    }
    Ok(())
}

fn load(round: u32) -> [String; 6] {
    [
        format!("CREATE TABLE t{round} (id int, k text, pad text)"),
        format!(
            "INSERT INTO t{round} SELECT i, md5((i + {round})::text), repeat('x', 60) \
             FROM generate_series(1, 20000) i"
        ),
        format!("CREATE INDEX ON t{round} (k)"),
        format!("UPDATE t{round} SET pad = 'y' WHERE id % 10 = 0"),
        format!("INSERT INTO item SELECT id, k, pad FROM t{round} WHERE id % 4 = 0"),
        "VACUUM item".to_owned(),
    ]
}

/// Clusters with the same data, without and with checksums.
pub(crate) fn loaded(
    workload: WhatIfTrialWorkload,
    installation: &Installation,
    guard: &mut Guard,
) -> anyhow::Result<[Cluster; 2]> {
    let off = Cluster::init(guard, installation, "off", false)?;
    let setting = WhatIfTrialSetting {
        max_wal_size_mb: 4096,
        hints: false,
        compression: WhatIfTrialCompression::Off,
    };
    off.configure(guard, &all_settings(&setting, workload))?;
    off.start(guard)?;
    prepare(workload, &off, guard)?;
    off.stop(guard, StopMode::Fast)?;
    let on = off.copy(guard, "on")?;
    on.enable_checksums(guard)?;
    Ok([off, on])
}

fn all_settings(
    setting: &WhatIfTrialSetting,
    workload: WhatIfTrialWorkload,
) -> BTreeMap<String, String> {
    let (shared_buffers, synchronous_commit) = match workload {
        WhatIfTrialWorkload::LateHints => ("64MB", "off"),
        _ => ("256MB", "on"),
    };
    let max_wal_size = format!("{}MB", setting.max_wal_size_mb);
    settings([
        ("max_wal_size", max_wal_size.as_str()),
        ("min_wal_size", "32MB"),
        ("checkpoint_timeout", "1h"),
        ("wal_compression", setting.compression.name()),
        ("shared_buffers", shared_buffers),
        ("synchronous_commit", synchronous_commit),
        // So that nothing happens at times of its own.
        ("autovacuum", "off"),
        ("fsync", "off"),
        ("wal_keep_size", "100GB"),
    ])
}

/// Does the work on a copy.
pub(crate) fn run(
    workload: WhatIfTrialWorkload,
    setting: WhatIfTrialSetting,
    transactions: u32,
    loaded: &[Cluster; 2],
    guard: &mut Guard,
    into: &Path,
) -> anyhow::Result<Run> {
    let cluster = loaded[usize::from(setting.hints)].copy(guard, "run")?;
    cluster.configure(guard, &all_settings(&setting, workload))?;
    cluster.start(guard)?;
    let mut connection = cluster.connect(DATABASE)?;
    connection.execute("SELECT pg_switch_wal()")?;
    connection.execute("CHECKPOINT")?;
    let row = connection.query_one("SELECT pg_current_wal_insert_lsn() AS at")?;
    let at: Lsn = row.parse("at")?;
    run_transactions(workload, &cluster, guard, transactions)?;
    // Its commit brings all before it to disk.
    connection.execute("SELECT pg_logical_emit_message(true, 'pgtoll', 'end')")?;
    let row = connection.query_one("SELECT pg_current_wal_flush_lsn() AS at")?;
    let to = row.parse("at")?;
    connection.close();
    cluster.stop(guard, StopMode::Immediate)?;
    // It began with a segment of its own.
    let from = Lsn(at.0 & !0xFF_FFFF);
    let segments = keep(&cluster, from, to, into)?;
    cluster.remove(guard)?;
    Ok(Run { setting, segments, from, to })
}

/// Copies the segments between two places.
fn keep(cluster: &Cluster, from: Lsn, to: Lsn, into: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(into).context("make a directory for WAL")?;
    for entry in fs::read_dir(cluster.data().join("pg_wal")).context("list the WAL")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = |at: usize| u64::from_str_radix(name.get(at..at + 8)?, 16).ok();
        let Some(begin) = number(8).zip(number(16)).map(|(high, low)| high << 32 | low << 24)
        else {
            continue;
        };
        if name.len() == 24 && (from.0..=to.0).contains(&begin) {
            fs::copy(entry.path(), into.join(&name)).context("copy a segment")?;
        }
    }
    Ok(into.to_owned())
}
