//! Arguments of `pgtoll wal` and the commands below it.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use pgtoll_format::wal::Compression;
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{WalStatisticsRecord, WalWhatIfRecord};
use pgtoll_report::RecordKind;
use pgtoll_wal::WalBound;
use pgtoll_wire::Dsn;

use super::output::{OutputOptions, formats_of};
use super::values::{DsnParser, RefusedProfile, between, second_to_week, setting};

#[derive(Args, Debug)]
pub(crate) struct WalArguments {
    #[command(subcommand)]
    pub(crate) command: WalCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WalCommand {
    /// Count WAL: by kind of record, by cause of its page images, by relation and database, from
    /// checkpoint to checkpoint, over time.
    #[command(after_help = WAL_STATS_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<WalStatisticsRecord>())))]
    Stats(Box<WalStatsArguments>),
    /// Predict how much WAL the same work would have made with other settings.
    #[command(name = "whatif", after_help = WAL_WHATIF_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<WalWhatIfRecord>())))]
    WhatIf(Box<WalWhatIfArguments>),
}

const WAL_STATS_EXAMPLES: &str = "\
Examples:
  pgtoll wal stats /var/lib/postgresql/15/main
                                            a data directory's WAL, relations by name
  pgtoll wal stats archive/ -o week.html    an archive, compressed or not, as a page
  pgtoll wal stats s3://backups/db1/wals    an archive in an object store
  pgtoll wal stats archive/ --from 2026-11-22T08:00:00Z -o /var/lib/node_exporter/wal.prom
                                            gauges for Prometheus
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

#[derive(Args, Debug)]
pub(crate) struct WalStatsArguments {
    /// Data directories, directories of an archive, or segments; compressed ones too, and in an object store
    /// (s3://, gs://, az://, file://).
    #[arg(required_unless_present = "dsn", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// A running server: a libpq connection string, URI or key=value pairs. Without PATH its WAL is
    /// streamed, from its last checkpoint on; with PATH it is asked for the relations' names.
    #[arg(long, value_name = "DSN", value_parser = DsnParser, conflicts_with = "names")]
    pub(crate) dsn: Option<Dsn>,
    /// Stream for this long. Default: what is there now.
    #[arg(long, value_name = "TIME", value_parser = second_to_week, requires = "dsn", conflicts_with = "paths", allow_hyphen_values = true)]
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
    #[command(flatten)]
    pub(crate) no_profile: RefusedProfile,
}

/// The units of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WalBy {
    /// Heap, Btree and the like.
    Manager,
    /// Heap/INSERT and the like.
    Type,
}

#[derive(Args, Debug)]
pub(crate) struct WalWhatIfArguments {
    /// Data directories, directories of an archive, or segments; compressed ones too, and in an object store
    /// (s3://, gs://, az://, file://).
    #[arg(required_unless_present = "dsn", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// A running server (a libpq connection string), for its settings. Without PATH its WAL is
    /// streamed, from its last checkpoint on.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) dsn: Option<Dsn>,
    /// Stream for this long. Default: what is there now.
    #[arg(long, value_name = "TIME", value_parser = second_to_week, requires = "dsn", conflicts_with = "paths", allow_hyphen_values = true)]
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
    #[command(flatten)]
    pub(crate) no_profile: RefusedProfile,
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

/// The part of the WAL in files that is read.
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

fn completion_target(text: &str) -> Result<f64, String> {
    let target = text.parse::<f64>().ok().filter(|target| (0.0..=1.0).contains(target));
    target.ok_or_else(|| format!("\"{text}\" is not between 0 and 1"))
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
