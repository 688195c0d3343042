//! Arguments of `pgtoll checkup`.

use std::path::PathBuf;

use clap::Args;
use pgtoll_format::TimeSpan;
use pgtoll_wire::Dsn;

use super::output::OutputOptions;
use super::values::{DsnParser, second_to_week};

pub(super) const EXAMPLES: &str = "\
Examples:
  pgtoll checkup --dsn 'host=db1 user=monitor dbname=shop'
                                            watch for 15 minutes
  pgtoll checkup --dsn service=shop --for 1h -o checkup.html
                                            an hour, as a page
  pgtoll checkup --dsn service=shop --fail-if 'loss_window.p95 > 100'
                                            for a scheduled job

Watching is read-only. It takes a role with pg_monitor; any other role gets what it may see.";

#[derive(Args, Debug)]
pub(crate) struct CheckupArguments {
    /// The primary: a libpq connection string. It is only read.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) dsn: Dsn,
    /// Watch for this long. Costs of settings take a whole checkpoint cycle.
    #[arg(long, value_name = "TIME", default_value = "15min", value_parser = second_to_week, allow_hyphen_values = true)]
    pub(crate) r#for: TimeSpan,
    /// Look less often.
    #[arg(long)]
    pub(crate) gentle: bool,
    /// The server's log, for the rate of its last recovery, if the server lets this role not read it.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// A record (JSON) of pgtoll verify or verify --drill, of this cluster or of a backup: how long ago,
    /// and how it ended. More than one may be named.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Vec<PathBuf>,
    /// End with status 1 if this holds for the whole range, with 2 if for a part of it. The form is
    /// FIGURE, then >, <, >= or <=, then a number. Figures: `loss_window.p95` and `crash_loss.most` in
    /// commits, `recovery.most` in seconds, and others.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) fail_if: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
