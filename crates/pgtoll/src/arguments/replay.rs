//! Arguments of `pgtoll replay` and the commands below it.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use pgtoll_format::log::LinePrefix;
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{LogExamination, ReplayComparison, ReplayRecord};
use pgtoll_replay::{ComparedTable, OrderMode};
use pgtoll_report::RecordKind;
use pgtoll_wire::{Dsn, ListenAddress};

use super::WORK_DIR;
use super::output::{FormatOptions, OutputOptions, formats_of};
use super::values::{DsnParser, copy_data_size, second_to_week};

#[derive(Args, Debug)]
pub(crate) struct ReplayArguments {
    #[command(subcommand)]
    pub(crate) command: ReplayCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// Find the statements that are slower or faster. Replays a plan on copies of one data directory that differ, and
    /// on a twin of the baseline, round after round.
    #[command(after_help = REPLAY_COMPARE_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<ReplayComparison>())))]
    Compare(Box<ReplayCompareArguments>),
    /// Check what a log allows, and which setting would allow more.
    #[command(after_help = REPLAY_DOCTOR_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<LogExamination>())))]
    Doctor(ReplayDoctorArguments),
    /// Read logs once into a plan, which can be replayed often. It is as confidential as the logs.
    #[command(after_help = REPLAY_PLAN_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<LogExamination>())))]
    Plan(ReplayPlanArguments),
    /// Capture a running workload: pass connections on to a server, and write what they do into a plan,
    /// which is as confidential as the data.
    #[command(after_help = REPLAY_RECORD_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<LogExamination>())))]
    Record(Box<ReplayRecordArguments>),
    /// Replay a plan, or logs, to a server whose data may be lost.
    #[command(after_help = REPLAY_RUN_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<ReplayRecord>())))]
    Run(Box<ReplayRunArguments>),
}

const REPLAY_COMPARE_EXAMPLES: &str = "\
Examples:
  pgtoll replay compare shop.plan --data /backup/shop --arms off,checksums
                                            what do checksums cost which statement?
  pgtoll replay compare shop.plan --data /backup/shop --arms now,more --set more:work_mem=64MB \\
      --speed 1                             a setting, at the recorded speed
  pgtoll replay compare shop.plan --data /backup/shop --arms now,index --setup index:index.sql \\
      -o compared.html                      a script (CREATE INDEX ...) changes one arm
  pgtoll replay compare shop.plan --arms 15,18 --data 15:/backup/shop15 --data 18:/backup/shop18
                                            two versions, each with its data directory

The data directory is as it was when the capture began: a base backup, or a snapshot. No server runs on
it, and it is only read. Each arm needs as much disk as it, and one copy more.
Exit status: 0 nothing is slower; 1 a statement is, or ended otherwise than recorded; 2 could not tell.";

const REPLAY_DOCTOR_EXAMPLES: &str = "\
Examples:
  pgtoll replay doctor postgresql-*.csv     check what these logs allow
  pgtoll replay doctor --prefix '%m [%p] %q%u@%d ' postgresql.log
                                            stderr with the server's log_line_prefix";

const REPLAY_PLAN_EXAMPLES: &str = "\
Examples:
  pgtoll replay plan postgresql-*.csv --plan shop.plan
                                            the oldest log first; .gz, .zst and .lz4 too
  pgtoll replay plan shop.plan --redact --plan timing.plan
                                            timing, shapes and order, without values";

const REPLAY_RECORD_EXAMPLES: &str = "\
Examples:
  pgtoll replay record --listen /run/capture --to 'host=/var/run/postgresql' -o shop.plan
                                            clients connect with host=/run/capture
  pgtoll replay record --listen /run/capture --to 'host=/var/run/postgresql' -o shop.plan --copy-data 1MB
                                            with the data of small COPY FROM STDIN
  pgtoll replay record --listen :6432 --to 'host=db1 sslmode=verify-full' -o shop.plan
                                            clients connect with host=127.0.0.1 port=6432

Clients bring their own roles, databases and passwords. Ctrl-C ends the capture and their connections.
Exit status: 0 the plan is complete; 2 it is not, since it could not be written or a session was not understood.";

const REPLAY_RUN_EXAMPLES: &str = "\
Examples:
  psql -d shop_copy -c 'ALTER DATABASE shop_copy SET pgtoll.disposable = on'
                                            the copy may be changed and lost
  pgtoll replay run shop.plan --dsn 'host=test1' --map shop=shop_copy
                                            at the recorded speed
  pgtoll replay run shop.plan --dsn 'host=test1' --speed max --user bench
                                            as fast as possible, all sessions as one role
  pgtoll replay run postgresql.csv --dry-run
                                            what would be sent, without a server";

/// Logs, and how to read them.
#[derive(Args, Debug)]
pub(crate) struct LogOptions {
    /// Log files of one server, the oldest first: stderr, csvlog or jsonlog, compressed or not. Exports of
    /// CloudWatch, Cloud Logging, Azure, container runtimes and CloudNativePG are recognised, and syslog.
    #[arg(required = true, value_name = "LOG")]
    pub(crate) logs: Vec<PathBuf>,
    /// The server's `log_line_prefix`, of stderr. Default: one of those that are in use.
    #[arg(long, value_name = "PREFIX", value_parser = line_prefix)]
    pub(crate) prefix: Option<LinePrefix>,
    /// The server, where an export has events of several: its log stream, instance, pod or host.
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// The key of the server's text in other JSON: `record.log`, or `/a.b/c` where keys have points.
    #[arg(long, value_name = "PATH")]
    pub(crate) field: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayDoctorArguments {
    #[command(flatten)]
    pub(crate) logs: LogOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayPlanArguments {
    #[command(flatten)]
    pub(crate) logs: LogOptions,
    /// The file to write, which only its owner can read.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: PathBuf,
    /// Replace all values: literals, parameters, names of prepared statements, comments. Timing, shapes and
    /// order stay; only statements without values can be executed.
    #[arg(long)]
    pub(crate) redact: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayRecordArguments {
    /// Address for the clients instead of the server's: the directory of a Unix socket, with or without
    /// :PORT (5432); HOST:PORT; or :PORT on loopback. Clients are not offered TLS.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: ListenAddress,
    /// The server: a libpq connection string. Its hosts, ports and TLS settings count; roles, databases
    /// and passwords are the clients'.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) to: Dsn,
    /// The plan to write: a new file, which only its owner can read.
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) plan: PathBuf,
    /// Keep the data of each COPY FROM STDIN that has at most this size, up to 16MB. Others are left out.
    #[arg(long, value_name = "SIZE", value_parser = copy_data_size)]
    pub(crate) copy_data: Option<ByteSize>,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayRunArguments {
    /// A plan, or log files of one server, the oldest first.
    #[command(flatten)]
    pub(crate) logs: LogOptions,
    /// The server: a libpq connection string. Sessions connect to the databases and as the roles of the
    /// log. Each database has to be confirmed as disposable: ALTER DATABASE name SET pgtoll.disposable = on.
    #[arg(long, value_name = "DSN", value_parser = DsnParser, required_unless_present = "dry_run")]
    pub(crate) dsn: Option<Dsn>,
    /// The order of statements of different sessions: by the rows that they touch (`key`), by tables
    /// (`table`), or none. `key` ends in the recorded data where the log allows it.
    #[arg(long, value_name = "ORDER", default_value = "key", value_parser = order_mode())]
    pub(crate) order: OrderMode,
    /// The recorded speed's multiple, such as 0.5 or 10; max is as fast as possible.
    #[arg(long, value_name = "SPEED", default_value = "1", value_parser = replay_speed)]
    pub(crate) speed: ReplaySpeed,
    /// Send the work of a database to another one.
    #[arg(long, value_name = "NAME=OTHER", value_parser = name_pair)]
    pub(crate) map: Vec<(String, String)>,
    /// Let all sessions connect as this role. Default: each as its own.
    #[arg(long, value_name = "ROLE")]
    pub(crate) user: Option<String>,
    /// Look at these tables when all is replayed: hashes of their rows. Columns whose values cannot be the
    /// same are left out: accounts,history(-mtime).
    #[arg(long, value_name = "TABLES", value_parser = compared_tables)]
    pub(crate) compare_tables: Option<ComparedTables>,
    /// The database that has these tables as they should be then: a libpq connection string. Default: none,
    /// hashes are reported.
    #[arg(long, value_name = "DSN", value_parser = DsnParser, requires = "compare_tables")]
    pub(crate) compare_with: Option<Dsn>,
    /// Longest time that all sessions may wait for each other, and for locks, until one of them is let go.
    /// That is counted, and the exit status is 1.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = second_to_week)]
    pub(crate) patience: TimeSpan,
    /// Say what would be sent, and end.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep the record in this file. It has statements without their values.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayCompareArguments {
    /// A plan, or log files of one server, the oldest first.
    #[command(flatten)]
    pub(crate) logs: LogOptions,
    /// The data directory as it was when the capture began. It is copied, and only read. With ARM: that
    /// arm's own, such as one of another major version; all have to hold the same rows.
    #[arg(long, value_name = "[ARM:]DIR", required = true, value_parser = arm_data)]
    pub(crate) data: Vec<(Option<String>, PathBuf)>,
    /// The arms, the baseline first; a twin of it is added. `off` and `checksums` are the data directory
    /// without and with checksums. Any other name is the data directory as it is, but for --set and --setup.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true, value_parser = arm_name)]
    pub(crate) arms: Vec<String>,
    /// A setting of an arm.
    #[arg(long, value_name = "ARM:NAME=VALUE", value_parser = arm_setting)]
    pub(crate) set: Vec<(String, String, String)>,
    /// A script that psql runs on an arm's copy before the first round, in the database of most
    /// statements.
    #[arg(long, value_name = "ARM:FILE", value_parser = arm_file)]
    pub(crate) setup: Vec<(String, PathBuf)>,
    /// The order of statements of different sessions: by the rows that they touch (`key`), by tables
    /// (`table`), or none.
    #[arg(long, value_name = "ORDER", default_value = "key", value_parser = order_mode())]
    pub(crate) order: OrderMode,
    /// The recorded speed's multiple, such as 0.5 or 10; max is as fast as possible.
    #[arg(long, value_name = "SPEED", default_value = "max", value_parser = replay_speed)]
    pub(crate) speed: ReplaySpeed,
    /// In each round every arm replays the work once, in random order.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) rounds: u32,
    /// Differences up to this many percent count as none.
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    pub(crate) margin: f64,
    /// Send the work of a database to another one.
    #[arg(long, value_name = "NAME=OTHER", value_parser = name_pair)]
    pub(crate) map: Vec<(String, String)>,
    /// Let all sessions connect as this role. Default: each as its own.
    #[arg(long, value_name = "ROLE")]
    pub(crate) user: Option<String>,
    /// The server: a major version, or the directory of its programs; with ARM: that arm's. For a later
    /// major version a copy of the data is upgraded with `pg_upgrade`. Default: one of the data directory's
    /// version.
    #[arg(long, value_name = "[ARM:]WHICH", value_parser = arm_server)]
    pub(crate) postgres: Vec<(Option<String>, String)>,
    /// Directory in which the copies are made.
    #[arg(long, value_name = "DIR", default_value = WORK_DIR)]
    pub(crate) work_dir: PathBuf,
    /// Seed of the order of arms.
    #[arg(long, value_name = "N", default_value_t = 20_261_125)]
    pub(crate) seed: u64,
    /// Keep the record in this file. It has statements without their values.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// The recorded speed's multiple; `None` is as fast as possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplaySpeed(pub(crate) Option<f64>);

/// Tables with the columns that are left out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComparedTables(pub(crate) Vec<ComparedTable>);

fn compared_tables(text: &str) -> Result<ComparedTables, String> {
    let tables = ComparedTable::parse_list(text).map(ComparedTables);
    tables.ok_or_else(|| "expected TABLE or TABLE(-COLUMN,…), several with commas".to_owned())
}

fn replay_speed(text: &str) -> Result<ReplaySpeed, String> {
    if text == "max" {
        return Ok(ReplaySpeed(None));
    }
    match text.parse::<f64>() {
        Ok(speed) if (0.001..=1000.0).contains(&speed) => Ok(ReplaySpeed(Some(speed))),
        _ => Err("a number from 0.001 to 1000, or max".to_owned()),
    }
}

fn order_mode() -> impl TypedValueParser<Value = OrderMode> {
    let names = OrderMode::ALL.map(OrderMode::name);
    PossibleValuesParser::new(names).try_map(|name| {
        let mode = OrderMode::ALL.into_iter().find(|mode| mode.name() == name);
        mode.ok_or("no such order")
    })
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').parse::<f64>().ok();
    value
        .filter(|value| (0.0..=50.0).contains(value))
        .ok_or_else(|| "a number from 0 to 50".to_owned())
}

fn arm_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
    if !text.is_empty() && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err("a name is letters, digits, _, - and .".to_owned())
}

fn arm_setting(text: &str) -> Result<(String, String, String), String> {
    let found = text.split_once(':').and_then(|(arm, setting)| {
        let (name, value) = setting.split_once('=')?;
        let whole = !arm.is_empty() && !name.is_empty();
        whole.then(|| (arm.to_owned(), name.to_owned(), value.to_owned()))
    });
    found.ok_or_else(|| "expected ARM:NAME=VALUE".to_owned())
}

fn arm_data(text: &str) -> Result<(Option<String>, PathBuf), String> {
    match text.split_once(':') {
        Some((arm, directory)) if arm_name(arm).is_ok() && !directory.is_empty() => {
            Ok((Some(arm.to_owned()), directory.into()))
        }
        _ if text.is_empty() => Err("expected a directory, or ARM:DIR".to_owned()),
        _ => Ok((None, text.into())),
    }
}

fn arm_server(text: &str) -> Result<(Option<String>, String), String> {
    let (arm, server) =
        arm_data(text).map_err(|_| "expected a server, or ARM:SERVER".to_owned())?;
    Ok((arm, server.to_string_lossy().into_owned()))
}

fn arm_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once(':') {
        Some((arm, file)) if !arm.is_empty() && !file.is_empty() => {
            Ok((arm.to_owned(), file.into()))
        }
        _ => Err("expected ARM:FILE".to_owned()),
    }
}

fn line_prefix(text: &str) -> Result<LinePrefix, String> {
    LinePrefix::parse(text).map_err(|error| error.to_string())
}

fn name_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, other)) if !name.is_empty() && !other.is_empty() => {
            Ok((name.to_owned(), other.to_owned()))
        }
        _ => Err("expected NAME=OTHER".to_owned()),
    }
}
