//! The programs that replay a log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pgtoll_cluster::{Cluster, Guard, Output, StopMode};
use pgtoll_record::ReplayRecord;
use pgtoll_record::trials::ReplayBenchRun;
use pgtoll_trials::beside;

use crate::capture::{Before, Captured, TableState, tables, transactions};

/// A program, and the log that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    PgtollCsv,
    PgreplayCsv,
    PgreplayStderr,
}

/// What a program did.
pub(crate) struct Replayed {
    output: Output,
    wall: Duration,
    limit: Duration,
    counts: Counts,
    tables: Vec<TableState>,
}

/// What a program says of its run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    statements: Option<u64>,
    errors: Option<u64>,
    order_breaks: Option<u64>,
}

const PGREPLAY: &str = "pgreplay";

/// What `pgreplay -v` prints; `None`: it is not installed.
pub(crate) fn pgreplay_version(guard: &mut Guard) -> Option<String> {
    let printed = guard.run(Path::new(PGREPLAY), &["-v"]).ok()?;
    Some(printed.tail.trim().to_owned())
}

impl Arm {
    pub(crate) const ALL: [Self; 3] = [Self::PgtollCsv, Self::PgreplayCsv, Self::PgreplayStderr];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PgtollCsv => "pgtoll, csvlog",
            Self::PgreplayCsv => "pgreplay, csvlog",
            Self::PgreplayStderr => "pgreplay, stderr",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::PgtollCsv => "pgtoll_csv",
            Self::PgreplayCsv => "pgreplay_csv",
            Self::PgreplayStderr => "pgreplay_stderr",
        }
    }

    pub(crate) fn is_pgreplay(self) -> bool {
        self != Self::PgtollCsv
    }

    /// Replays the log on a fresh copy, as fast as the program can; it is killed after `limit` seconds.
    pub(crate) fn replay(
        self,
        guard: &mut Guard,
        before: &Before,
        captured: &Captured,
        limit: u64,
    ) -> anyhow::Result<Replayed> {
        let limit = Duration::from_secs(limit);
        let copy = before.start_copy(guard, "copy")?;
        let began = Instant::now();
        let (output, counts) = match self {
            Self::PgtollCsv => pgtoll(guard, &copy, &captured.csv, limit)?,
            Self::PgreplayCsv => pgreplay(guard, &copy, &["-c"], &captured.csv, limit)?,
            Self::PgreplayStderr => pgreplay(guard, &copy, &[], &captured.stderr, limit)?,
        };
        let wall = began.elapsed();
        let tables = tables(&copy)?;
        copy.stop(guard, StopMode::Immediate)?;
        copy.remove(guard)?;
        Ok(Replayed { output, wall, limit, counts, tables })
    }
}

impl Replayed {
    pub(crate) fn line(
        self,
        arm: Arm,
        server: &str,
        protocol: &str,
        captured: &Captured,
    ) -> ReplayBenchRun {
        let ended = self.output.success || self.wall < self.limit;
        let both = self.tables.iter().zip(&captured.tables);
        let differing = both.filter(|(found, expected)| found != expected);
        ReplayBenchRun {
            server: server.to_owned(),
            protocol: protocol.to_owned(),
            arm: arm.key().to_owned(),
            ended,
            status: self.output.status,
            wall_s: self.wall.as_secs_f64(),
            cpu_s: ended.then(|| self.output.usage.cpu().as_secs_f64()),
            statements: self.counts.statements,
            errors: self.counts.errors,
            order_breaks: self.counts.order_breaks,
            transactions: transactions(&self.tables),
            differing_tables: differing.map(|(found, _)| found.name.to_owned()).collect(),
        }
    }
}

/// `replay plan`, then `replay run`. Its record is read where it wrote one.
fn pgtoll(
    guard: &mut Guard,
    copy: &Cluster,
    log: &Path,
    limit: Duration,
) -> anyhow::Result<(Output, Counts)> {
    let program = beside("pgtoll")?;
    let plan = copy.directory().join("work.plan");
    let record = copy.directory().join("record.json");
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    let log = log.to_string_lossy().into_owned();
    let plan_path = path(&plan);
    guard.run(&program, &["replay", "plan", &log, "--plan", &plan_path])?;
    let environment = copy.environment();
    let dsn = format!(
        "host={} port={} user={}",
        environment["PGHOST"], environment["PGPORT"], environment["PGUSER"]
    );
    let record_path = path(&record);
    let arguments = ["replay", "run", &plan_path, "--order", "key", "--speed", "max"];
    let arguments = [&arguments[..], &["--dsn", &dsn, "--record", &record_path]].concat();
    guard.spawn("replay", &program, &arguments, &BTreeMap::new())?;
    let output = guard.reap("replay", limit)?;
    let Ok(text) = std::fs::read_to_string(&record) else {
        // Killed, or it failed before it began: then the reason is what it printed.
        if output.tail.contains("hint:") {
            bail!("pgtoll replay run: {}: {}", output.status, output.tail);
        }
        return Ok((output, Counts::default()));
    };
    let record: ReplayRecord = serde_json::from_str(&text).context("read the replay's record")?;
    // A replay that is not complete has no count of errors that could be trusted.
    let complete = record.complete;
    let counts = record.done.map_or_else(Counts::default, |done| Counts {
        statements: Some(done.statements),
        errors: complete
            .then_some(done.unexpected_errors + done.missing_errors + done.broken_sessions),
        order_breaks: Some(done.order_breaks),
    });
    Ok((output, counts))
}

/// Speed 1000: it waits for nothing but its own order.
fn pgreplay(
    guard: &mut Guard,
    copy: &Cluster,
    format: &[&str],
    log: &Path,
    limit: Duration,
) -> anyhow::Result<(Output, Counts)> {
    let environment = copy.environment();
    let log = log.to_string_lossy().into_owned();
    let target =
        ["-h", &environment["PGHOST"], "-p", &environment["PGPORT"], "-s", "1000", "-j", &log];
    let arguments = [format, &target].concat();
    guard.spawn("replay", Path::new(PGREPLAY), &arguments, &BTreeMap::new())?;
    let output = guard.reap("replay", limit)?;
    let counts = pgreplay_counts(&output.tail);
    Ok((output, counts))
}

/// The statistics that pgreplay prints at its end.
fn pgreplay_counts(printed: &str) -> Counts {
    let number = |before: &str, behind: &str| {
        let values = printed.lines().filter(|line| line.contains(behind));
        let mut values = values.filter_map(|line| line.trim().split_once(before));
        values.next()?.1.split_whitespace().next()?.parse().ok()
    };
    Counts {
        statements: number("SQL statements executed: ", "SQL statements executed: "),
        errors: number("(", "of these completed with error)"),
        order_breaks: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_pgreplay_are_read_where_it_prints_them() {
        let printed = "Calls to the server: 12\n(3.000 calls per second)\n\
            SQL statements executed: 10\n(2 or 20.000% of these completed with error)\n";
        let counts = pgreplay_counts(printed);
        let expected = Counts { statements: Some(10), errors: Some(2), order_breaks: None };
        assert_eq!(counts, expected);
        assert_eq!(pgreplay_counts("Execution is 10 seconds behind schedule"), Counts::default());
    }
}
