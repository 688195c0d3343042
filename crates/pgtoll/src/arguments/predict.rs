//! Arguments of `pgtoll predict`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pgtoll_format::TimeSpan;
use pgtoll_wire::Dsn;

use super::output::OutputOptions;
use super::values::{DsnParser, second_to_week};

pub(super) const EXAMPLES: &str = "\
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

#[derive(Args, Debug)]
pub(crate) struct PredictArguments {
    /// The running server: a libpq connection string. It is only read.
    #[arg(long, value_name = "DSN", value_parser = DsnParser, required_unless_present = "from")]
    pub(crate) dsn: Option<Dsn>,
    /// Watch for at most this long. Default: until the cycles were seen; without --cycles two cycles
    /// or 30min.
    #[arg(long, value_name = "TIME", value_parser = second_to_week, conflicts_with = "from", allow_hyphen_values = true)]
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
    /// End with status 1 if this holds for the whole range, with 2 if for a part of it. The form is
    /// [SETTING.]FIGURE, then >, <, >= or <=, then a number. Figures: cpu in % or cores, wal in % or
    /// bytes a second (MB), copies of the WAL in bytes a second.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) fail_if: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// The source of the WAL that `predict` reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PredictWal {
    /// None is read.
    #[default]
    None,
    /// The server sends it, from its last checkpoint on: takes a role with REPLICATION.
    Stream,
}
