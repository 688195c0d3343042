//! Arguments of `pgtoll measure`.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, ValueEnum};
use pgtoll_format::TimeSpan;
use pgtoll_measure::BUILT_IN;
use pgtoll_wire::Dsn;

use super::WORK_DIR;
use super::output::FormatOptions;
use super::values::{DsnParser, between, setting};

pub(super) const EXAMPLES: &str = "\
Examples:
  pgtoll measure                            the cost of data checksums on this machine
  pgtoll measure --all --quick              every experiment, with one overview
  pgtoll measure --dry-run                  what would run, on which disk, for how long
  pgtoll measure --quick                    a first look in about a minute
  pgtoll measure --budget 20m               every workload timed
  pgtoll measure --postgres 18 --rounds 10  another server, narrower intervals
  pgtoll measure --postgres 17 --against 18 two servers on the same work
  pgtoll measure my.toml --check            check an experiment of your own
  pgtoll measure my.toml --output result    an experiment of your own
  pgtoll measure --workload my.sql@9 --workload rare.sql --setup schema.sql
                                            scripts in pgbench's language, 9 to 1
  pgtoll measure --workload 'pgbench -n -c 4 -T 99999'
                                            any program that makes load";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct MeasureArguments {
    /// Experiments: built-in ones' names, or paths of TOML files. Several are run one after the
    /// other, each in a directory of its own, and get an overview.
    #[arg(value_name = "EXPERIMENT", default_value = "checksums", value_parser = ExperimentParser, hide_possible_values = true)]
    pub(crate) experiments: Vec<String>,
    /// Every built-in experiment but null, which belongs to doctor.
    #[arg(long, conflicts_with = "experiments")]
    pub(crate) all: bool,
    /// The server: a directory with bin/postgres, or a major version. Default: the newest that is
    /// installed, else an embedded one that pip fetches.
    #[arg(long, value_name = "DIR|MAJOR")]
    pub(crate) postgres: Option<String>,
    /// Compare servers: the experiment's baseline arm on --postgres and on this server. Again for more.
    #[arg(long, value_name = "DIR|MAJOR", conflicts_with_all = ["all", "list"])]
    pub(crate) against: Vec<String>,
    /// Give all compared servers the settings that this one of them ships, as far as they know them: code
    /// is compared with code. Default: each has its own.
    #[arg(long, value_name = "DIR|MAJOR", requires = "against")]
    pub(crate) settings_of: Option<String>,
    /// The work, instead of the experiment's: a script in pgbench's language (a file, or select-only,
    /// simple-update or tpcb-like), or a shell's command that makes load. Give several scripts weights.
    #[arg(long, value_name = "SCRIPT[@WEIGHT]|COMMAND")]
    pub(crate) workload: Vec<String>,
    /// The run's name in its record, its reports and the labels of its metrics, so that several pipelines do
    /// not collide. 1 to 24 letters, digits, - and _.
    #[arg(long, value_name = "NAME", value_parser = run_name)]
    pub(crate) name: Option<String>,
    /// SQL for psql, run once on the loaded data that all arms are copies of.
    #[arg(long, value_name = "FILE")]
    pub(crate) setup: Option<PathBuf>,
    /// Transactions a second of --workload, at random times (open loop): latencies at a fixed load.
    #[arg(long, value_name = "N", requires = "workload", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Clients of --workload that work at the same time, each on a connection of its own; their sessions
    /// are free to work on several CPUs. Default: 1.
    #[arg(long, value_name = "N", requires = "workload", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) clients: Option<u32>,
    /// Your own server (a libpq connection string), which is only read. All arms get its settings that
    /// shape the answer, such as shared buffers and checkpoints. The run lists what it took and what it
    /// left out; --set overrides it.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) like: Option<Dsn>,
    /// A setting of all arms, as in postgresql.conf.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Add a twin of every arm, not of the baseline alone: each is compared with the arm that it copies.
    #[arg(long, value_name = "WHICH")]
    pub(crate) twins: Option<TwinnedArms>,
    /// pgbench's scale factor: 15 MB of data an arm for each unit. Default: the experiment's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) scale: Option<u32>,
    /// About how long each experiment may take. Workloads that do not fit are counted and not timed.
    /// Default: 5min.
    #[arg(long, value_name = "TIME", value_parser = budget, allow_hyphen_values = true)]
    pub(crate) budget: Option<TimeSpan>,
    /// Time a workload until its intervals of server CPU have this half-width (1%), or the budget is
    /// spent. Intervals within it count as resolved.
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "rounds")]
    pub(crate) precision: Option<f64>,
    /// A quick look, about a minute for each experiment: intervals are wide.
    #[arg(long, conflicts_with_all = ["budget", "precision", "rounds"])]
    pub(crate) quick: bool,
    /// Repetitions of single operations, each done twice. Default: 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) repetitions: Option<u32>,
    /// Rounds, each with restarts of all servers. Intervals need at least 2, better 6. Default: 6,
    /// or more where the budget has room.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// A round's length, without restarts and warm-up. Default: what the budget allows, at most
    /// 20s.
    #[arg(long, value_name = "TIME", value_parser = round_time, allow_hyphen_values = true)]
    pub(crate) round_time: Option<TimeSpan>,
    /// A slice's length. Default: the workload's, else 50ms; 10ms for one client that writes, 2s with --rate, 200ms for a command.
    #[arg(long, value_name = "TIME", value_parser = slice_time, allow_hyphen_values = true)]
    pub(crate) slice: Option<TimeSpan>,
    /// The seed of all random choices. Default: a new one for each run.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Directory of the record; for several experiments, the directory that theirs are made in. Default:
    /// a new directory in pgtoll-results.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Directory in which clusters are made: on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = WORK_DIR)]
    pub(crate) work_dir: PathBuf,
    /// Keep the clusters, however the run ends.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print what would run, and end.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Check the experiment, print what it would do, and end. Needs no server.
    #[arg(long)]
    pub(crate) check: bool,
    /// List the built-in experiments with the time that each takes, and end.
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
    /// End with status 1 if this holds for the whole interval, with 2 if for a part of it. The form is
    /// [WORKLOAD/]ARM.METRIC, then >, <, >= or <=, then a percentage.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) fail_if: Vec<String>,
}

/// The arms that get a twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TwinnedArms {
    /// Every arm that has none.
    Each,
}

/// Takes any text; shells complete the names of built-in experiments.
#[derive(Clone)]
struct ExperimentParser;

impl TypedValueParser for ExperimentParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(BUILT_IN.iter().map(|(name, _)| PossibleValue::new(*name))))
    }
}

fn run_name(text: &str) -> Result<String, String> {
    let fits = pgtoll_measure::is_name(text);
    fits.then(|| text.to_owned())
        .ok_or_else(|| format!("\"{text}\" is not 1 to 24 letters, digits, - and _"))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=1e6).contains(rate));
    rate.ok_or_else(|| format!("\"{text}\" is not a number of transactions a second"))
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
