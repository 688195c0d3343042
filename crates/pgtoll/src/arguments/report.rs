//! Arguments of `pgtoll report`.

use std::path::PathBuf;

use clap::Args;
use pgtoll_format::TimeSpan;

use super::output::OutputOptions;

pub(super) const EXAMPLES: &str = "\
Examples:
  pgtoll report pgtoll-results/2026-11-21T21-30-00Z-checksums
  pgtoll report --format md -o comment.md run.jsonl
  pgtoll report pg17 pg18                   side by side
  pgtoll report result --fail-if 'checksums.cpu_per_tx > 5%'
                                            exit status 1 if it is surely more
  pgtoll report --format nagios --max-age 26h verify.json
                                            for Nagios, of last night's verify --json";

#[derive(Args, Debug)]
pub(crate) struct ReportArguments {
    /// Result directories, or files like run.jsonl; several are shown side by side. A directory of
    /// several experiments is shown as their overview.
    #[arg(required = true, value_name = "RECORD")]
    pub(crate) records: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// End with status 1 if this holds for the whole interval, with 2 if for a part of it. The form is
    /// [WORKLOAD/]ARM.METRIC, then >, <, >= or <=, then a percentage.
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) fail_if: Vec<String>,
    /// With --format nagios: a record that was made longer ago is critical.
    #[arg(long, value_name = "TIME")]
    pub(crate) max_age: Option<TimeSpan>,
}
