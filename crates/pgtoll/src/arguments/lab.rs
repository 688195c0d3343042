//! Arguments of `pgtoll lab` and the commands below it.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use pgtoll_format::TimeSpan;
use pgtoll_record::{
    BalanceRecord, BridgeRecord, CorruptionRecord, ExchangeRecord, FailoverDetector,
    FailoverEngine, FailoverFault, FailoverRecord, JudgeRecord, SynchronousCommit,
};
use pgtoll_report::RecordKind;
use pgtoll_wire::Dsn;

use super::output::{OutputOptions, formats_of};
use super::values::{DsnParser, between};

#[derive(Args, Debug)]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Judge a server or a cluster during a fault: write to it, then count lost transactions and time the outage.
    #[command(after_help = LAB_JUDGE_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<JudgeRecord>())), args_override_self = true)]
    Judge(Box<LabJudgeArguments>),
    /// Measure a failover away from a damaged page, and what replication does with the page.
    #[command(after_help = LAB_CORRUPTION_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<CorruptionRecord>())))]
    Corruption(Box<LabCorruptionArguments>),
    /// Measure what waiting for a standby costs, and what it saves when the primary's host dies.
    #[command(after_help = LAB_EXCHANGE_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<ExchangeRecord>())))]
    Exchange(Box<LabExchangeArguments>),
    /// Measure outages and losses when a primary fails, run after run, with repmgr, Patroni,
    /// `pg_auto_failover` or no failover manager.
    #[command(after_help = LAB_FAILOVER_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<FailoverRecord>())))]
    Failover(Box<LabFailoverArguments>),
    /// Test Pgpool-II: where it sends statements, how stale standbys' answers are, what it costs, and what
    /// clients see when a standby dies.
    #[command(after_help = LAB_BALANCE_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<BalanceRecord>())))]
    Balance(Box<LabBalanceArguments>),
    /// One query over PostgreSQL, a CSV file and Redis; commits over several servers, and what becomes
    /// of them when one fails.
    #[command(after_help = LAB_BRIDGE_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<BridgeRecord>())))]
    Bridge(Box<LabBridgeArguments>),
    /// List the engines of the labs on this machine (repmgr, Patroni, `pg_auto_failover`, PgBouncer, Pgpool-II, Redis).
    /// Installs the missing ones with apt, as root, when you agree.
    #[command(after_help = LAB_SETUP_EXAMPLES)]
    Setup(LabSetupArguments),
    /// Watch a primary of yours for pages that it refuses to read, verify these pages of its standby,
    /// and say what can be done. It does nothing but what --run says.
    #[command(after_help = LAB_WATCH_EXAMPLES)]
    Watch(Box<LabWatchArguments>),
}

const LAB_WATCH_EXAMPLES: &str = "\
Examples:
  pgtoll lab watch --dsn service=shop --standby service=shop-replica --log /var/log/postgresql
                                            says which page it is, and whether the standby's is sound
  pgtoll lab watch --dsn service=shop --log /var/log/postgresql --for 1h --json
  pgtoll lab watch --dsn service=shop --standby service=shop-replica --log /var/log/postgresql \\
      --run 'patronictl switchover shop --force'
                                            your own action, once the standby's pages are verified

It reads statistics, the log and pages of files (pg_read_binary_file: superuser, or a role with
pg_read_server_files and the function's EXECUTE privilege), and writes nothing.
Exit status: 0 no page was refused; 1 one was; 2 could not tell, or --run was not run or failed.";

#[derive(Args, Debug)]
pub(crate) struct LabWatchArguments {
    /// The primary: a libpq connection string.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) dsn: Dsn,
    /// Its standby.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) standby: Option<Dsn>,
    /// The primary's log, a file or the directory of its files, with messages in English. It says which
    /// page is refused; without it nothing can be verified.
    #[arg(long, value_name = "PATH")]
    pub(crate) log: Option<PathBuf>,
    /// Between two looks.
    #[arg(long, value_name = "TIME", value_parser = watch_interval, default_value = "1s", allow_hyphen_values = true)]
    pub(crate) every: TimeSpan,
    /// How long to watch. Default: until a page is refused, or Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = judge_time, allow_hyphen_values = true)]
    pub(crate) r#for: Option<TimeSpan>,
    /// A command line for /bin/sh, run once when every refused page is sound on the standby, and never
    /// else. It runs as you; `PGTOLL_PAGES` has the pages, `FILE:BLOCK`, with spaces between.
    #[arg(long, value_name = "COMMAND", requires_all = ["standby", "log"])]
    pub(crate) run: Option<String>,
    /// Print the record (JSON) at the end.
    #[arg(long)]
    pub(crate) json: bool,
}

const LAB_SETUP_EXAMPLES: &str = "\
Examples:
  pgtoll lab setup                          what is there; as root: asks before it installs
  sudo pgtoll lab setup --yes               installs what is missing, starts no service

Exit status: 0 all is there; 2 something is missing.";

#[derive(Args, Debug)]
pub(crate) struct LabSetupArguments {
    /// Do not ask before packages are installed.
    #[arg(long)]
    pub(crate) yes: bool,
}

const LAB_JUDGE_EXAMPLES: &str = "\
Examples:
  pgtoll lab judge --dsn 'host=db1,db2 user=app dbname=shop target_session_attrs=primary' --for 60s \\
      --fault 'ssh db1 sudo systemctl kill -s KILL postgresql@17-main'
                                            what an application sees of a failover
  pgtoll lab judge --dsn 'host=pooler dbname=shop' --for 2min
                                            pgtoll does nothing; do the fault by hand
  pgtoll lab judge --dsn service=shop --read-dsn service=shop-replica --for 60s -o judge.html
                                            also: do replicas show what was committed?
  pgtoll lab judge --dsn service=shop --fault 'kubectl delete pod db-1' --yes --journal run1 \\
      --history run1.edn                    keep the journals; a history for elle-cli
  pgtoll lab judge --dsn service=shop --from run1
                                            judge a run that died, from its journals

It writes to a schema of its own, which it makes when you agree, and removes at the end.
Exit status: 0 nothing found; 1 a finding (transactions lost, not served again); 2 could not tell.";

const LAB_CORRUPTION_EXAMPLES: &str = "\
Examples:
  pgtoll lab corruption --quick             three failovers, about a minute
  pgtoll lab corruption -o corruption.html  20 failovers, about 3 min, as a page

It makes servers of its own, and touches no other.";

const LAB_EXCHANGE_EXAMPLES: &str = "\
Examples:
  pgtoll lab exchange --quick               two delays, about 2 min
  pgtoll lab exchange -o exchange.html      five delays, about 8 min, as a page
  pgtoll lab exchange --delay 2ms,80ms --clients 32 --postgres 18
                                            the distance between your own sites

It makes servers of its own, and touches no other.";

const LAB_BALANCE_EXAMPLES: &str = "\
Examples:
  pgtoll lab balance --quick                where statements go, and what is stale there; half a minute
  pgtoll lab balance --record balance.json  the same with more sessions, writes and seconds
  pgtoll lab balance --postgres 18 --json

It needs Pgpool-II (Debian: apt install pgpool2), makes servers of its own, listens on no port, and
touches no other server. Exit status: 0 all is as it should be; 1 a statement went where it must not, or
clients were refused; 2 could not tell.";

const LAB_BRIDGE_EXAMPLES: &str = "\
Examples:
  pgtoll lab bridge                         what is there, and the price; well under a minute
  pgtoll lab bridge -o bridge.html          as a page, with all that was run
  pgtoll lab bridge --postgres 18 --json    with the SQL of each step and what it showed

It needs Redis 7 or later (Debian: apt install redis-server redis-tools) and the extensions
postgres_fdw and file_fdw, makes servers of its own, listens on no port, and touches no other server.
Exit status: 0 all is as the book says; 1 a check fails; 2 could not tell.";

const LAB_FAILOVER_EXAMPLES: &str = "\
Examples:
  pgtoll lab failover --quick --sync        one death of the primary's host, in seconds
  pgtoll lab failover -o failover.html      repmgr's defaults, its shortest times and the floor
  pgtoll lab failover --fault host-death,postmaster,freeze,link-cut,switchover --settings fast --runs 20
                                            each fault twenty times
  pgtoll lab failover --fault wal-full,io-freeze --settings fast
                                            faults of the primary's disk (as root)
  pgtoll lab failover --fault standby-death,walsender-hang --sync --engine patroni,repmgr --quick
                                            the last synchronous standby; a shutdown that is held
  pgtoll lab failover --settings fast --sync --runs 100
                                            how sure is it that nothing is lost?
  pgtoll lab failover --engine patroni,repmgr --fault partition --quick
                                            clients on both sides of a partition: two primaries?
  pgtoll lab failover --engine patroni,pg_auto_failover,repmgr,none --sync -o engines.html
                                            the same death with each engine, side by side

It needs the engines' programs (`pgtoll lab setup`), makes servers of its own, listens on no port of
the machine, and touches no other server.";

#[derive(Args, Debug)]
pub(crate) struct LabJudgeArguments {
    /// Connection for writes: a libpq connection string, as the application has it. Several hosts with
    /// `target_session_attrs=primary` follow a failover, as does a pooler or a virtual address.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) dsn: Dsn,
    /// Connection of the readers, such as a replica. Default: that of the writers.
    #[arg(long, value_name = "DSN", value_parser = DsnParser, conflicts_with = "from")]
    pub(crate) read_dsn: Option<Dsn>,
    /// How long transactions fall due.
    #[arg(long, value_name = "TIME", value_parser = judge_time, default_value = "60s", conflicts_with = "from", allow_hyphen_values = true)]
    pub(crate) r#for: TimeSpan,
    /// A command line for /bin/sh that does something to the servers. It runs as you, in your
    /// environment; what it starts stays.
    #[arg(long, value_name = "COMMAND", conflicts_with = "from")]
    pub(crate) fault: Option<String>,
    /// When the fault begins. Default: after a third of the time.
    #[arg(long, value_name = "TIME", value_parser = fault_time, requires = "fault", allow_hyphen_values = true)]
    pub(crate) fault_at: Option<TimeSpan>,
    /// Clients that write, a connection each.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256), conflicts_with = "from")]
    pub(crate) clients: u32,
    /// Transactions a second, of all clients together. After an outage clients catch up at twice
    /// this rate at most.
    #[arg(long, value_name = "N", default_value = "100", value_parser = judge_rate, conflicts_with = "from")]
    pub(crate) rate: f64,
    /// Clients that read, a connection each.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=64), conflicts_with = "from")]
    pub(crate) readers: u32,
    /// How long each client may take to be served again after load and fault; also how long reading
    /// the result is tried.
    #[arg(long, value_name = "TIME", value_parser = judge_time, default_value = "60s", allow_hyphen_values = true)]
    pub(crate) heal: TimeSpan,
    /// How long connecting may take for each host, unless the connection string says it.
    #[arg(long, value_name = "TIME", value_parser = judge_time, default_value = "2s", conflicts_with = "from", allow_hyphen_values = true)]
    pub(crate) connect_timeout: TimeSpan,
    /// How long a client waits for a reply before it gives the connection up. Default: as long as
    /// the run lasts, as most drivers do.
    #[arg(long, value_name = "TIME", value_parser = reply_time, conflicts_with = "from", allow_hyphen_values = true)]
    pub(crate) reply_timeout: Option<TimeSpan>,
    /// A transaction that takes longer than this has waited.
    #[arg(long, value_name = "TIME", value_parser = reply_time, default_value = "250ms", conflicts_with = "from", allow_hyphen_values = true)]
    pub(crate) wait_limit: TimeSpan,
    /// Make this directory for the clients' journals, and keep it.
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    pub(crate) journal: Option<PathBuf>,
    /// Judge a run that ended before it was judged, from its journals and what is there now.
    #[arg(long, value_name = "DIR", conflicts_with = "yes")]
    pub(crate) from: Option<PathBuf>,
    /// Write all that the clients did as a history of Jepsen's (EDN), for elle-cli's `set` model.
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Do not ask before writing to the database.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct LabCorruptionArguments {
    /// Three failovers: about a minute.
    #[arg(long, conflicts_with = "runs")]
    pub(crate) quick: bool,
    /// Number of failovers.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Clients that write, a connection each.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=150))]
    pub(crate) clients: u32,
    /// How clients reach whichever server is the primary.
    #[arg(long, value_name = "WAY", default_value = "pgbouncer")]
    pub(crate) entry: LabEntry,
    /// Transactions a second, of all clients together.
    #[arg(long, value_name = "N", default_value = "500", value_parser = judge_rate)]
    pub(crate) rate: f64,
    /// Write the record (JSON) after each failover; where FILE has a part of the same ones, do the rest.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// The server: a major version, or the directory of its programs.
    #[arg(long, value_name = "WHICH")]
    pub(crate) postgres: Option<String>,
    /// Directory in which the servers' data directories are made.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) work_dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// How clients reach whichever server is the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabEntry {
    /// A pooler, which holds clients back during the failover.
    Pgbouncer,
    /// Both servers, of which clients choose the primary (`target_session_attrs=primary`).
    Hosts,
}

#[derive(Args, Debug)]
pub(crate) struct LabBalanceArguments {
    /// Fewer sessions, writes and seconds: half a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rows that are written and then read, for each rung of what commits wait for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=1_000_000))]
    pub(crate) writes: Option<u32>,
    /// Clients that read at full speed, through the balancer and without it.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) clients: u32,
    /// Write the record (JSON) to this new file after each part.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// The server: a major version, or the directory of its programs.
    #[arg(long, value_name = "WHICH")]
    pub(crate) postgres: Option<String>,
    /// Directory in which the servers' data directories are made.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) work_dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct LabBridgeArguments {
    /// Write the record (JSON) to this new file after each step.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// The server: a major version, or the directory of its programs.
    #[arg(long, value_name = "WHICH")]
    pub(crate) postgres: Option<String>,
    /// Directory in which the servers' data directories are made.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) work_dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct LabExchangeArguments {
    /// Two delays, each case once: about two minutes.
    #[arg(long, conflicts_with = "repetitions")]
    pub(crate) quick: bool,
    /// Delay of WAL on its way to the standby. Default: 0, 5ms, 20ms, 50ms, 200ms.
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = link_delay, allow_hyphen_values = true)]
    pub(crate) delay: Vec<TimeSpan>,
    /// Waits of commits to compare. Default: all.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = synchronous_commits())]
    pub(crate) commit: Vec<SynchronousCommit>,
    /// Commits come in bursts when the primary dies: four fifths within a quarter of the time.
    #[arg(long)]
    pub(crate) bursts: bool,
    /// Clients that write, a connection each.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=150))]
    pub(crate) clients: u32,
    /// How often each case is run.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repetitions: u32,
    /// The server: a major version, or the directory of its programs.
    #[arg(long, value_name = "WHICH")]
    pub(crate) postgres: Option<String>,
    /// Directory in which the servers' data directories are made.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) work_dir: PathBuf,
    /// Seed of the order of cases.
    #[arg(long, value_name = "N", default_value_t = 20_261_123)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct LabFailoverArguments {
    /// One run of each case, with the shortest times: with repmgr well under a minute for a fault.
    #[arg(long, conflicts_with = "settings")]
    pub(crate) quick: bool,
    /// Failover managers of the servers: `patroni` (with etcd and `HAProxy`), `pg_auto_failover`, `repmgr` (with
    /// PgBouncer), `none` (nobody promotes the standby).
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "repmgr", value_parser = failover_engines())]
    pub(crate) engine: Vec<FailoverEngine>,
    /// The faults of the primary.
    #[arg(long, value_name = "FAULT", value_delimiter = ',', default_value = "host-death", value_parser = failover_faults())]
    pub(crate) fault: Vec<FailoverFault>,
    /// The engine's times: `default`, `fast` (the shortest), `none` (no repmgrd: the floor).
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "default,fast,none", value_parser = failover_detectors())]
    pub(crate) settings: Vec<FailoverDetector>,
    /// Commits wait for the standby (`synchronous_standby_names`).
    #[arg(long)]
    pub(crate) sync: bool,
    /// The same fault happens to the new primary, when the old one has returned: a failover back.
    #[arg(long)]
    pub(crate) fail_back: bool,
    /// Number of PgBouncer processes with repmgr: 1, which no fault touches, or 2, one on each server's
    /// host.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    pub(crate) bouncers: u32,
    /// repmgr's witness beside the primary: a standby that is cut off from both does not promote itself.
    #[arg(long)]
    pub(crate) witness: bool,
    /// With repmgr a second standby, never promoted, which has WAL sooner than the first: it may be past
    /// the fork.
    #[arg(long)]
    pub(crate) third_node: bool,
    /// Write the record (JSON) after each run; where FILE has a part of the same runs, do the rest.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Runs of each case. Default: 3; 1 with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: Option<u32>,
    /// Clients that write, a connection each.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) clients: u32,
    /// Transactions a second, of all clients together.
    #[arg(long, value_name = "N", default_value = "200", value_parser = judge_rate)]
    pub(crate) rate: f64,
    /// The server: a major version, or the directory of its programs. Default: the newest for which the
    /// engines are there.
    #[arg(long, value_name = "WHICH")]
    pub(crate) postgres: Option<String>,
    /// Directory in which the servers' data directories are made.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) work_dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

fn judge_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "1s", "1d")
}

fn watch_interval(text: &str) -> Result<TimeSpan, String> {
    between(text, "100ms", "1h")
}

fn fault_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "0s", "1d")
}

fn reply_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "1ms", "1d")
}

fn judge_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.1..=10_000.0).contains(rate));
    rate.ok_or_else(|| format!("\"{text}\" is not between 0.1 and 10000 transactions a second"))
}

/// How long a link may hold bytes back.
fn link_delay(text: &str) -> Result<TimeSpan, String> {
    between(text, "0ms", "10s")
}

/// The values of `synchronous_commit`.
fn synchronous_commits() -> impl TypedValueParser<Value = SynchronousCommit> {
    PossibleValuesParser::new(SynchronousCommit::ALL.map(SynchronousCommit::name)).try_map(
        |value| {
            let found = SynchronousCommit::ALL.into_iter().find(|commit| commit.name() == value);
            found.ok_or("no such value")
        },
    )
}

fn failover_faults() -> impl TypedValueParser<Value = FailoverFault> {
    PossibleValuesParser::new(FailoverFault::ALL.map(FailoverFault::name)).try_map(|value| {
        let found = FailoverFault::ALL.into_iter().find(|fault| fault.name() == value);
        found.ok_or("no such fault")
    })
}

fn failover_engines() -> impl TypedValueParser<Value = FailoverEngine> {
    PossibleValuesParser::new(FailoverEngine::ALL.map(FailoverEngine::name)).try_map(|value| {
        let found = FailoverEngine::ALL.into_iter().find(|engine| engine.name() == value);
        found.ok_or("no such engine")
    })
}

fn failover_detectors() -> impl TypedValueParser<Value = FailoverDetector> {
    PossibleValuesParser::new(FailoverDetector::ALL.map(FailoverDetector::name)).try_map(|value| {
        let found = FailoverDetector::ALL.into_iter().find(|detector| detector.name() == value);
        found.ok_or("no such settings")
    })
}
