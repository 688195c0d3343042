//! Arguments of `pgtoll enable` and `pgtoll disable`.

use std::path::PathBuf;

use clap::Args;

use super::output::FormatOptions;

pub(super) const ENABLE_EXAMPLES: &str = "\
Examples:
  pgtoll enable /var/lib/postgresql/15/main
  pgtoll enable --dry-run /var/lib/postgresql/15/main
                                            how much, and for how long; the server may run
  pgtoll enable --verify-after /srv/pg      read all again from the disk before it counts
  pgtoll enable --rolling nodes.toml --dry-run
                                            a primary and its standbys, one by one: the plan
  pgtoll enable --rolling nodes.toml --after-switch 'psql -p 6432 pgbouncer -c RELOAD'
  pgtoll enable --rolling nodes.toml --resume continues after an interruption

nodes.toml:
  [defaults]
  stop = \"pg_ctl -D {pgdata} -m fast -w stop\"
  start = \"pg_ctl -D {pgdata} -l {pgdata}/server.log -w start\"
  run = \"ssh {name} {command}\"             left out: the nodes are on this machine

  [[node]]
  name = \"db1\"
  dsn = \"host=db1 user=postgres dbname=postgres\"
  pgdata = \"/srv/pg\"

  [[node]]
  # the next one, likewise";

pub(super) const DISABLE_EXAMPLES: &str = "\
Examples:
  pgtoll disable /var/lib/postgresql/15/main
  pgtoll disable --rolling nodes.toml       a primary and its standbys, one by one";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct EnableArguments {
    /// The data directory. Its server was stopped in good order.
    #[arg(value_name = "PGDATA", required_unless_present = "rolling")]
    pub(crate) data: Option<PathBuf>,
    /// Threads that read and write. Default: the number of cores.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: Option<u16>,
    /// Estimate the work and its duration from a sample of the pages, and end. Writes nothing; the
    /// server may run.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// After syncing read everything again from the disk before checksums count as on.
    #[arg(long, conflicts_with = "rolling")]
    pub(crate) verify_after: bool,
    /// Rewrite all checksums of a cluster that says that it has them already: `pg_rewind` can leave one
    /// whose pages have none.
    #[arg(long, conflicts_with = "rolling")]
    pub(crate) rewrite: bool,
    /// Do not sync: for tests. A power cut may leave pages that the server refuses.
    #[arg(long, conflicts_with_all = ["verify_after", "rolling"])]
    pub(crate) no_sync: bool,
    #[command(flatten)]
    pub(crate) set: RollingArguments,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

#[derive(Args, Debug)]
pub(crate) struct DisableArguments {
    /// The data directory. Its server was stopped in good order.
    #[arg(value_name = "PGDATA", required_unless_present = "rolling")]
    pub(crate) data: Option<PathBuf>,
    /// Show the plan of a run over a replica set, and end. Changes nothing.
    #[arg(long, requires = "rolling")]
    pub(crate) dry_run: bool,
    /// Do not sync: for tests.
    #[arg(long, conflicts_with = "rolling")]
    pub(crate) no_sync: bool,
    #[command(flatten)]
    pub(crate) set: RollingArguments,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

/// A run over a replica set.
#[derive(Args, Debug)]
#[command(next_help_heading = "Over a replica set")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct RollingArguments {
    /// Convert the nodes that this file lists one by one, while the others serve: standbys first, then
    /// a switchover, then the old primary.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) rolling: Option<PathBuf>,
    /// Go on with a run that ended before everything was done.
    #[arg(long, requires = "rolling", conflicts_with_all = ["abort", "dry_run", "only", "to"])]
    pub(crate) resume: bool,
    /// End such a run in good order: a node takes writes, the others stream. Converted nodes stay so.
    #[arg(long, requires = "rolling", conflicts_with_all = ["dry_run", "only", "to"])]
    pub(crate) abort: bool,
    /// Convert this node alone. The primary is handed over first.
    #[arg(long, value_name = "NODE", requires = "rolling")]
    pub(crate) only: Option<String>,
    /// The standby that takes over. Default: the first one of the file that streams from the primary.
    #[arg(long, value_name = "NODE", requires = "rolling")]
    pub(crate) to: Option<String>,
    /// In the end hand over to the first primary again.
    #[arg(long, requires = "rolling")]
    pub(crate) switch_back: bool,
    /// Do not verify nodes after their conversion.
    #[arg(long, requires = "rolling")]
    pub(crate) skip_verify: bool,
    /// Take `synchronous_standby_names` out for the run, and put it back. Commits do not wait for a
    /// standby meanwhile.
    #[arg(long, requires = "rolling")]
    pub(crate) suspend_sync: bool,
    /// Patroni, repmgrd and their like are paused.
    #[arg(long, requires = "rolling")]
    pub(crate) managers_paused: bool,
    /// A command to run on this machine before a switchover; {primary} in it is the primary's name.
    #[arg(long, value_name = "COMMAND", requires = "rolling")]
    pub(crate) before_switch: Option<String>,
    /// A command to run on this machine after a switchover, or after one that was taken back.
    #[arg(long, value_name = "COMMAND", requires = "rolling")]
    pub(crate) after_switch: Option<String>,
    /// Confirm: begin, and hand over, without asking.
    #[arg(long, requires = "rolling")]
    pub(crate) yes: bool,
}
