//! `pgtoll repair` of a server that runs, with clients that meet the damage.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::{PageKind, SplitMix64};
use pgtoll_system::Interrupt;
use serde_json::Value;

use crate::repair::{
    are_masked_equal, backup, check_checksums, lsn, open, read_page, repair, repair_any, shown,
};
use crate::repair_redo::{KINDS, check_indexes};
use crate::repair_standby::{await_replay, await_replay_of_all, dsn, pair};
use crate::support::{Scratch, is_long, pgtoll, run, server, servers_in_turn};
use crate::verify::{PAGE, check_program, execute, overwrite, path_of};

/// Clients that do what pgbench does, go on after a refused page, and count what was acknowledged.
struct Load<'a> {
    cluster: &'a Cluster,
    is_over: AtomicBool,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

impl<'a> Load<'a> {
    fn from_cluster(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            is_over: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Waits until some transactions more were acknowledged, or many met a damaged page: one that is
    /// not repaired before the end may be in the way of all.
    fn await_progress(&self) {
        let pick = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let acknowledged = pick(&self.acknowledged);
        let refused = pick(&self.refused);
        let is_reached = || {
            pick(&self.acknowledged) >= acknowledged + 500 || pick(&self.refused) >= refused + 5000
        };
        while !is_reached() && !self.is_over.load(Ordering::Relaxed) {
            Interrupt::new().wait(LOOK).unwrap();
        }
    }

    /// One client, until the load is over.
    fn run(&self, seed: u64) {
        let _ending = Ending(&self.is_over);
        let mut random = SplitMix64(seed);
        let mut session = self.cluster.connect("postgres").unwrap();
        session.execute("SET enable_seqscan = off").unwrap();
        while !self.is_over.load(Ordering::Relaxed) {
            let account = random.below(ACCOUNTS) + 1;
            let delta = random.below(1000);
            let teller = random.below(10) + 1;
            let row = random.below(6000) + 1;
            let sql = format!(
                "BEGIN; UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {account}; \
                 SELECT abalance FROM pgbench_accounts WHERE aid = {account}; \
                 UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {teller}; \
                 UPDATE k SET b = 'u {delta}', c = ARRAY[{delta}, {teller}], p = point({delta}, 1), \
                 x = '10.7.0.{teller}' WHERE a = {row}; \
                 SELECT count(*) FROM k WHERE c @> ARRAY[{delta}]; SELECT nextval('s'); \
                 SELECT length(b) FROM long WHERE a = {teller}; \
                 INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
                 VALUES ({teller}, 1, {account}, {delta}, now()); COMMIT"
            );
            match session.execute(&sql) {
                Ok(()) => {
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    assert_eq!(error.sqlstate(), Some("XX001"), "{error}");
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    session.execute("ROLLBACK").unwrap();
                }
            }
        }
    }
}

const ACCOUNTS: u64 = 100_000;
/// Between looks at what clients have done, which a loop that never sleeps would keep from it.
const LOOK: Duration = Duration::from_millis(5);

/// Ends the load also where a test or a client fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Few buffers, so that blocks are read from the disk again and again.
fn small(guard: &mut Guard, server: &Installation, name: &str) -> (Cluster, Cluster) {
    let (cluster, standby) = pair(guard, server, name);
    cluster.run_client(guard, "pgbench", &["-i", "-q", "-s", "1", "postgres"]).unwrap();
    execute(&cluster, &["CREATE TABLE k (a int, b text, c int[], p point, x inet)"]);
    execute(&cluster, &KINDS[1..]);
    execute(&cluster, &["ALTER SYSTEM SET shared_buffers = '1MB'", "CREATE EXTENSION amcheck"]);
    cluster.stop(guard, StopMode::Fast).unwrap();
    cluster.start(guard).unwrap();
    (cluster, standby)
}

/// Damages some blocks on the disk while the server runs.
fn damage(data: &Path, files: &[PathBuf], random: &mut SplitMix64, count: usize) {
    for _ in 0..count {
        let path = data.join(&files[usize::try_from(random.below(files.len() as u64)).unwrap()]);
        let block = random.below(fs::metadata(&path).unwrap().len() / PAGE);
        if read_page(&path, block).iter().all(|byte| *byte == 0) {
            continue;
        }
        let kind = random.below(5);
        let bit = random.below(PAGE * 8);
        overwrite(&open(&path), block, |page| match kind {
            0 => page[usize::try_from(bit / 8).unwrap()] ^= 1 << (bit % 8),
            1 => page[512..1024].fill_with(|| random.draw().to_le_bytes()[0]),
            2 => page[..24].fill(0xA5),
            3 => page[4096..].fill(0x5A),
            _ => page.fill_with(|| random.draw().to_le_bytes()[0]),
        });
    }
}

fn installed(value: &Value) -> usize {
    value["blocks"].as_array().unwrap().iter().filter(|array| array["installed"] == true).count()
}

#[test]
fn a_running_server_is_repaired_while_its_clients_meet_the_damage() {
    for server in servers_in_turn(2) {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        check_running(&scratch, &mut guard, &server);
    }
}

fn check_running(scratch: &Scratch, guard: &mut Guard, server: &Installation) {
    let (cluster, standby) = small(guard, server, "busy");
    let data = cluster.data();
    let files = files(&cluster);
    let load = Load::from_cluster(&cluster);
    let mut random = SplitMix64(21);
    let from = dsn(&standby);
    let mut written = 0;
    std::thread::scope(|scope| {
        let _ending = Ending(&load.is_over);
        for seed in 0..3 {
            let load = &load;
            scope.spawn(move || load.run(seed));
        }
        for _ in 0..rounds() {
            damage(&data, &files, &mut random, 10);
            let output = repair_any(scratch, &data, &["--from-standby", &from, "--yes"]);
            assert_eq!(output["running"], true);
            for block in output["blocks"].as_array().unwrap() {
                let class = block["class"].as_str().unwrap();
                let is_written = block["installed"] == true;
                assert!(!is_written || ["exact", "proved"].contains(&class), "{block:#}");
            }
            written += installed(&output);
            load.await_progress();
        }
    });
    let acknowledged = load.acknowledged.into_inner();
    let refused = load.refused.into_inner();
    assert!(
        written >= 10 && acknowledged > 0,
        "{written} written, {acknowledged} acknowledged, {refused} refused"
    );
    // What surfaced meanwhile, since the server had it in memory when the disk was damaged.
    execute(&cluster, &["CHECKPOINT"]);
    repair_any(scratch, &data, &["--from-standby", &from, "--yes"]);
    // The rest while it is stopped, with a hash index, which is not repaired before, and would keep
    // clients from all rows until then.
    let hash = [path_of(&cluster, "k_hash")];
    cluster.stop(guard, StopMode::Fast).unwrap();
    damage(&data, &hash, &mut random, 5);
    let output = repair_any(scratch, &data, &["--from-standby", &from, "--yes"]);
    let left =
        output["blocks"].as_array().unwrap().iter().filter(|array| array["installed"] != true);
    // Indexes get pages ready that they do not use, and that no WAL has.
    let is_unlogged =
        |value: &Value| value["last_record"].is_null() && value["class"] == "derivable";
    assert!(left.clone().all(is_unlogged), "{output:#}");
    let is_left = left.count() > 0;
    cluster.start(guard).unwrap();
    if is_left {
        execute(&cluster, &["REINDEX TABLE k; REINDEX TABLE pgbench_accounts"]);
    }
    check_sums(&cluster, acknowledged);
    check_indexes(&cluster);
    let amcheck = ["--heapallindexed", "-d", "postgres"];
    cluster.run_client(guard, "pg_amcheck", &amcheck).unwrap();
    // It streams again, some seconds after the primary's start. Autovacuum may change pages until the end.
    await_replay(&cluster, &standby);
    cluster.stop(guard, StopMode::Fast).unwrap();
    await_replay_of_all(&standby);
    standby.stop(guard, StopMode::Fast).unwrap();
    check_checksums(guard, server, &cluster);
    check_program(&[], &data, 0);
    for file in &files {
        let other = standby.data().join(file);
        if other.exists() && data.join(file).exists() {
            check_same(&data.join(file), &other);
        }
    }
}

/// Tables, indexes of all kinds, long values and a sequence.
fn files(cluster: &Cluster) -> Vec<PathBuf> {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = "SELECT reltoastrelid::regclass::text AS toast FROM pg_class WHERE relname = 'long'";
    let toast = session.query_one(sql).unwrap().text("toast").unwrap().to_owned();
    let names = [
        "pgbench_accounts",
        "pgbench_accounts_pkey",
        "t",
        "t_pkey",
        "k",
        "k_btree",
        "k_gin",
        "k_gist",
        "k_spgist",
        "k_brin",
        "s",
    ];
    names.into_iter().chain([&*toast]).map(|name| path_of(cluster, name)).collect()
}

/// Ten damages each.
fn rounds() -> u32 {
    if is_long() { 40 } else { 4 }
}

/// Nothing that was acknowledged is lost, and nothing else is there.
fn check_sums(cluster: &Cluster, acknowledged: u64) {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) AS a,
        (SELECT sum(tbalance) FROM pgbench_tellers) AS t,
        (SELECT sum(delta) FROM pgbench_history) AS h, (SELECT count(*) FROM pgbench_history) AS n";
    let row = session.query_one(sql).unwrap();
    let [a, t, h, n] = ["a", "t", "h", "n"].map(|name| row.text(name).unwrap());
    assert_eq!((a, t, n), (h, h, &*acknowledged.to_string()));
}

/// The pages of both differ in nothing but hints.
fn check_same(primary: &Path, standby: &Path) {
    // One of them may be longer by pages that were never used.
    let blocks = [primary, standby].map(|item| fs::metadata(item).unwrap().len() / PAGE);
    for block in 0..blocks[0].min(blocks[1]) {
        let one = read_page(primary, block);
        let other = read_page(standby, block);
        if PageKind::from_page(&one) == PageKind::Heap {
            // Clients that set hints at the same time may leave the LSN of the first of their records.
            let lsns = [&one, &other].map(|page| lsn(page));
            let other = [&one[..8], &other[8..]].concat();
            assert!(
                are_masked_equal(&one, &other),
                "{} {block}: LSNs {lsns:?}, differs at {:?}",
                primary.display(),
                differences(&one, &other)
            );
        }
    }
}

/// Where the bytes differ, and what they are.
fn differences(one: &[u8], other: &[u8]) -> Vec<(usize, u8, u8)> {
    let pairs = one.iter().zip(other).enumerate();
    pairs.filter(|(_, (one, other))| one != other).map(|(at, (a, b))| (at, *a, *b)).collect()
}

#[test]
fn a_running_server_is_repaired_from_a_backup_and_refused_what_may_be_wrong() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let (cluster, standby) = small(&mut guard, &server, "calm");
    let backup = backup(&mut guard, &cluster);
    execute(
        &cluster,
        &[
            "CREATE TABLE h (a int); CREATE INDEX h_hash ON h USING hash (a)",
            "INSERT INTO h SELECT generate_series(1, 2000)",
            "UPDATE t SET b = 'hot' WHERE a = 1",
            "CHECKPOINT",
        ],
    );
    let data = cluster.data();
    let files = ["t", "h_hash", "pg_description"].map(|name| data.join(path_of(&cluster, name)));
    forget(&cluster);
    let [table, hash, catalog] = &files;
    let cold = read_page(table, 7);
    let wrong = [(table, 0), (table, 7), (hash, 2), (catalog, 2)];
    for (path, block) in wrong {
        overwrite(&open(path), block, |page| page[4096..].fill(0x5A));
    }
    let before = wrong.map(|(path, block)| read_page(path, block));
    let from = ["--from-backup", shown(&backup), "--yes", "--no-redo"];
    let output = repair(&scratch, &data, &from, 1);
    let reason = |name: &str, block: u64| {
        let blocks = output["blocks"].as_array().unwrap();
        let is_it = |value: &&Value| value["name"]["relation"] == name && value["block"] == block;
        let found = blocks.iter().find(is_it).unwrap_or_else(|| panic!("{name}: {output:#}"));
        (found["installed"] == true, found["reason"].as_str().unwrap().to_owned())
    };
    assert!(reason("t", 7).0, "{output:#}");
    for (name, block, words) in [
        ("t", 0, "older than the last record"),
        ("h_hash", 2, "hash indexes"),
        ("pg_description", 2, "catalogs"),
    ] {
        let (is_written, why) = reason(name, block);
        assert!(!is_written && why.contains(words), "{name}: {why}");
    }
    let after = wrong.map(|(path, block)| read_page(path, block));
    assert!(after[1] == cold && after[0] == before[0] && after[2..] == before[2..]);
    assert_eq!(lsn(&after[1]), lsn(&cold));
    check_conditions(&cluster, &data);
    // The undo file is for a stopped server.
    let undo = scratch.path("calm.undo");
    let hot = ["--from-standby", &dsn(&standby), "--block", "postgres.public.t:0"];
    let hot = [&hot[..], &["--yes", "--undo-file", shown(&undo)]].concat();
    let ran = run(pgtoll().arg("repair").arg(&data).args(&hot).current_dir(scratch.path("")));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let ran = run(pgtoll().arg("repair").arg(&data).arg("--undo").arg(&undo));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    standby.stop(&mut guard, StopMode::Fast).unwrap();
}

/// The server reads what it needs from the disk again.
fn forget(cluster: &Cluster) {
    // An index scan of another table passes through all 128 buffers; a sequential one would not.
    let scan = "SET enable_seqscan = off; SET enable_bitmapscan = off; \
                SELECT sum(abalance) FROM pgbench_accounts WHERE aid > 0";
    execute(cluster, &["CHECKPOINT", scan]);
}

/// Settings with which damaged pages are written, by whomever.
fn check_conditions(cluster: &Cluster, data: &Path) {
    let lax = [
        "ALTER DATABASE template1 SET zero_damaged_pages = on",
        "ALTER ROLE postgres SET ignore_checksum_failure = true",
    ];
    for sql in lax {
        execute(cluster, &[sql]);
        let ran = run(pgtoll().arg("repair").arg(data));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("is on somewhere"), "{ran:?}");
        assert!(ran.stderr.contains("hint:"), "{ran:?}");
        let reset = &sql[..sql.find(" = ").unwrap()].replace(" SET ", " RESET ");
        execute(cluster, &[reset]);
    }
}
