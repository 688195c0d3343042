//! What is counted equals what the server and the kernel say.

use std::fs;

use pgtoll_cluster::{Cluster, StopMode};
use pgtoll_observe::{ClusterCpu, ServerCounters};

use crate::support::{Scratch, all_servers, children, running, server, servers};

#[test]
fn counters_are_the_servers_own() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in all_servers() {
        let facts = server.version.facts().unwrap();
        let name = format!("pg{}", server.version.major());
        let (cluster, _) = running(&mut guard, &server, &name);
        let mut monitor = cluster.connect("postgres").unwrap();
        let mut worker = cluster.connect("postgres").unwrap();
        worker.execute("CREATE TABLE t AS SELECT generate_series(1, 100000) AS i").unwrap();
        worker.execute("CHECKPOINT").unwrap();
        ServerCounters::publish(&mut worker, facts).unwrap();
        let before = ServerCounters::read(&mut monitor, facts, "postgres").unwrap();
        worker.execute("DELETE FROM t").unwrap();
        ServerCounters::publish(&mut worker, facts).unwrap();
        let after = ServerCounters::read(&mut monitor, facts, "postgres").unwrap();
        // A record a row, and an image of each of the table's 443 pages, since a checkpoint came
        // before.
        let grown =
            |value: fn(&ServerCounters) -> Option<u64>| Some(value(&after)? - value(&before)?);
        let records = grown(|item| item.wal_records);
        let images = grown(|item| item.wal_full_page_images);
        let is_told = server.version.major() >= 15;
        assert_eq!((records.is_some(), images.is_some()), (is_told, is_told), "{name}");
        let images = images.unwrap_or(443);
        assert!((100_000..110_000).contains(&records.unwrap_or(100_000)), "{name}: {records:?}");
        assert!((443..500).contains(&images), "{name}: {images}");
        let wal = after.wal_insert.bytes_since(before.wal_insert).unwrap();
        let sql = format!(
            "SELECT pg_wal_lsn_diff('{}', '{}')::bigint AS bytes",
            after.wal_insert, before.wal_insert
        );
        assert_eq!(wal, monitor.query_one(&sql).unwrap().parse::<u64>("bytes").unwrap(), "{name}");
        assert!(wal > images * 4096, "{name}: {wal}");
        monitor.execute("CHECKPOINT").unwrap();
        // The checkpointer publishes its counters when it is done with the next one.
        monitor.execute("CHECKPOINT").unwrap();
        let written = ServerCounters::read(&mut monitor, facts, "postgres").unwrap().blocks_written;
        let written = written.map(|written| written - before.blocks_written.unwrap());
        assert_eq!(written.map(|item| item >= 443), is_told.then_some(true), "{name}: {written:?}");
        let read = read_after_restart(&cluster, &mut guard, facts);
        assert_eq!(
            read.map(|after_restart| after_restart >= 443),
            is_told.then_some(true),
            "{name}: {read:?}"
        );
    }
}

/// Blocks read by one scan of the table, whose 443 pages nobody has cleaned.
fn read_after_restart(
    cluster: &Cluster,
    guard: &mut pgtoll_cluster::Guard,
    facts: &pgtoll_format::MajorFacts,
) -> Option<u64> {
    cluster.stop(guard, StopMode::Fast).unwrap();
    cluster.start(guard).unwrap();
    let mut monitor = cluster.connect("postgres").unwrap();
    let before = ServerCounters::read(&mut monitor, facts, "postgres").unwrap();
    let mut worker = cluster.connect("postgres").unwrap();
    worker.execute("SET max_parallel_workers_per_gather = 0; SELECT count(*) FROM t").unwrap();
    ServerCounters::publish(&mut worker, facts).unwrap();
    let after = ServerCounters::read(&mut monitor, facts, "postgres").unwrap();
    Some(after.blocks_read? - before.blocks_read?)
}

const WORK: &str = "SELECT count(*) FROM generate_series(1, 2000000)";

#[test]
fn cpu_clocks_agree_with_the_schedulers_statistics() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, postmaster) = running(&mut guard, &server(), "one");
    let mut connection = cluster.connect("postgres").unwrap();
    connection.execute(WORK).unwrap();
    let mut cpu = ClusterCpu::attach(postmaster).unwrap();
    // What other processes of the cluster use between the two readings: nothing much.
    let scheduled = || -> u64 {
        let pids = children(postmaster).into_iter().chain([postmaster]);
        pids.map(|pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
            text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        })
        .sum()
    };
    let before = scheduled();
    let sampled = cpu.sample().unwrap();
    let after = scheduled();
    let ended = fs::read_to_string(format!("/proc/{postmaster}/stat")).unwrap();
    let ended: Vec<&str> = ended.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = ended[13].parse::<u64>().unwrap() + ended[14].parse::<u64>().unwrap();
    let ended = ticks * 1_000_000_000 / procfs::ticks_per_second();
    assert!(before > 10_000_000, "the work took {before} ns");
    let live = sampled.total_ns() - ended;
    assert!((before..=after + 5_000_000).contains(&live), "{before} {live} {after}");
}

#[test]
fn cpu_of_ended_sessions_is_kept_and_the_guards_total_is_not_smaller() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, postmaster) = running(&mut guard, &server, &name);
        let mut cpu = ClusterCpu::attach(postmaster).unwrap();
        let mut connection = cluster.connect("postgres").unwrap();
        let idle = cpu.sample().unwrap();
        connection.execute(WORK).unwrap();
        let busy = cpu.sample().unwrap();
        let used = busy.since(&idle);
        assert!(used.nanoseconds > 10_000_000 && !used.processes_changed, "{name}: {used:?}");
        connection.close();
        let mut monitor = cluster.connect("postgres").unwrap();
        let others = "SELECT 1 FROM pg_stat_activity \
                      WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        while !monitor.query(others).unwrap().is_empty() {}
        let ended = cpu.sample().unwrap();
        assert!(ended.since(&busy).processes_changed, "{name}");
        // Ticks of 10 ms cut a little off.
        assert!(ended.total_ns() + 20_000_000 > busy.total_ns(), "{name}");
        monitor.close();
        let usage = cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let reaped = u64::try_from(usage.cpu().as_nanos()).unwrap();
        assert!(reaped + 20_000_000 > ended.total_ns(), "{name}: {reaped} {ended:?}");
    }
}
