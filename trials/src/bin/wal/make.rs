//! WAL of two kinds, made by a server.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::ByteSize;
use pgtoll_record::trials::BenchWalKind;
use pgtoll_trials::settings;

/// Segments, whole and at rest.
#[derive(Debug)]
pub(crate) struct Wal {
    /// In their order.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) bytes: u64,
}

const DATABASE: &str = "postgres";
/// Sessions that write at once.
const SESSIONS: usize = 2;
/// Accounts are pages for the images: far more than change between two checkpoints.
const SCALE: &str = "20";
/// pgbench's transactions, in the server, where they do not wait for a client.
const WORK: &str = "
CREATE PROCEDURE work(transactions int) LANGUAGE plpgsql AS $$
DECLARE
    account int;
    teller int;
    amount int;
BEGIN
    FOR i IN 1..transactions LOOP
        account := 1 + floor(random() * 2000000);
        teller := 1 + floor(random() * 200);
        amount := floor(random() * 10000) - 5000;
        UPDATE pgbench_accounts SET abalance = abalance + amount WHERE aid = account;
        UPDATE pgbench_tellers SET tbalance = tbalance + amount WHERE tid = teller;
        UPDATE pgbench_branches SET bbalance = bbalance + amount WHERE bid = 1 + teller % 20;
        INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
            VALUES (teller, 1 + teller % 20, account, amount, current_timestamp);
        COMMIT;
    END LOOP;
END $$";
/// Every page is changed once, and has room for the next version of a row.
const TOUCH: [&str; 4] =
    ["CHECKPOINT", "UPDATE pgbench_accounts SET abalance = 0", "VACUUM", "CALL work(20000)"];

/// The kind's name in tables.
pub(crate) fn name(kind: BenchWalKind) -> &'static str {
    match kind {
        BenchWalKind::Images => "images",
        BenchWalKind::Dense => "dense",
    }
}

fn max_wal_size(kind: BenchWalKind) -> &'static str {
    match kind {
        BenchWalKind::Images => "64MB",
        BenchWalKind::Dense => "1TB",
    }
}

/// Makes WAL of this kind and about this size. It goes with the guard.
pub(crate) fn wal(
    kind: BenchWalKind,
    size: ByteSize,
    installation: &Installation,
    guard: &mut Guard,
) -> anyhow::Result<Wal> {
    let cluster = Cluster::init(guard, installation, name(kind), true)?;
    let settings = settings([
        ("fsync", "off"),
        ("synchronous_commit", "off"),
        ("autovacuum", "off"),
        ("shared_buffers", "512MB"),
        ("checkpoint_timeout", "1d"),
        ("max_wal_size", max_wal_size(kind)),
        // All of it stays where it is.
        ("wal_keep_size", "1TB"),
    ]);
    cluster.configure(guard, &settings)?;
    cluster.start(guard)?;
    let load = ["--initialize", "--quiet", "--scale", SCALE, DATABASE];
    cluster.run_client(guard, "pgbench", &load)?;
    let mut connection = cluster.connect(DATABASE)?;
    connection.execute(WORK)?;
    if kind == BenchWalKind::Dense {
        for statement in TOUCH {
            connection.execute(statement).with_context(|| format!("run {statement}"))?;
        }
    }
    let before = switch(&mut connection)?;
    write(&cluster, size)?;
    let last = switch(&mut connection)?;
    connection.close();
    cluster.stop(guard, StopMode::Fast)?;
    files(&cluster, &before, &last)
}

/// Goes on to the next segment, and returns the name of the one before.
fn switch(connection: &mut pgtoll_wire::Connection) -> anyhow::Result<String> {
    let row = connection.query_one("SELECT pg_walfile_name(pg_current_wal_lsn()) AS name")?;
    connection.execute("SELECT pg_switch_wal()")?;
    Ok(row.text("name")?.to_owned())
}

/// Sessions that work until there is this much WAL.
fn write(cluster: &Cluster, size: ByteSize) -> anyhow::Result<()> {
    let session = || -> anyhow::Result<()> {
        let mut connection = cluster.connect(DATABASE)?;
        let begin = position(&mut connection)?;
        while position(&mut connection)? - begin < size.0 {
            connection.execute("CALL work(5000)")?;
        }
        connection.close();
        Ok(())
    };
    std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS).map(|_| scope.spawn(session)).collect();
        let ended =
            sessions.into_iter().map(|session| session.join().expect("a session does not panic"));
        ended.collect()
    })
}

fn position(connection: &mut pgtoll_wire::Connection) -> anyhow::Result<u64> {
    let row = connection.query_one("SELECT pg_current_wal_insert_lsn() - '0/0' AS bytes")?;
    Ok(row.parse("bytes")?)
}

/// The segments after one, up to another.
fn files(cluster: &Cluster, before: &str, last: &str) -> anyhow::Result<Wal> {
    let directory = cluster.data().join("pg_wal");
    let entries = fs::read_dir(&directory).context("list the WAL")?;
    let mut files = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.len() == before.len() && name.as_str() > before && name.as_str() <= last {
            files.push(directory.join(name));
        }
    }
    files.sort();
    let mut bytes = 0;
    for file in &files {
        bytes += fs::metadata(file).context("look at the WAL")?.len();
    }
    Ok(Wal { files, bytes })
}
