//! Arguments of `pgtoll enable` and `pgtoll disable`.

use std::path::PathBuf;

use clap::Args;

use super::output::FormatOptions;

pub(super) const ENABLE_EXAMPLES: &str = "\
Examples:
  pgtoll enable /var/lib/postgresql/15/main
  pgtoll enable --dry-run /var/lib/postgresql/15/main
                                            how much, and for how long; the server may run
  pgtoll enable --verify-after /srv/pg      read all again from the disk before it counts";

pub(super) const DISABLE_EXAMPLES: &str = "\
Examples:
  pgtoll disable /var/lib/postgresql/15/main";

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
