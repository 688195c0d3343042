//! Arguments of `pgtoll doctor`.

use std::path::PathBuf;

use clap::Args;
use pgtoll_format::TimeSpan;

use super::WORK_DIR;
use super::output::FormatOptions;
use super::values::between;

pub(super) const EXAMPLES: &str = "\
Examples:
  pgtoll doctor                             what speaks against measuring here
  pgtoll doctor --work-dir /srv/pg --json   another disk, for programs
  pgtoll doctor --null 10m                  calibrate the intervals of later runs";

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
    /// Name of the records of --null, with -1, -2, ... Default: in pgtoll-results.
    #[arg(long, short, value_name = "DIR", requires = "null")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

fn null_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "30s", "7d")
}
