//! Arguments of `pgtoll repair`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pgtoll_wire::Dsn;

use super::output::FormatOptions;
use super::values::DsnParser;

pub(super) const EXAMPLES: &str = "\
Examples:
  pgtoll repair /srv/pg                     what is damaged, and what else can be done
  pgtoll repair /srv/pg --from-backup /srv/backup --wal /srv/archive
                                            the plan: nothing is written
  pgtoll repair /srv/pg --from-backup /srv/backup --wal /srv/archive --yes
                                            writes the pages that are proved
  pgtoll repair /srv/pg --from-stopped /srv/standby --block shop.public.orders:7
  pgtoll repair /srv/pg --from-standby 'host=db2 user=postgres' --yes
                                            the server may run, too
  pgtoll repair /srv/pg --undo              the pages as they were before the last repair

Exit status: 0 all pages are sound; 1 some are damaged still; 2 could not tell.";

#[derive(Args, Debug)]
pub(crate) struct RepairArguments {
    /// The data directory of a primary that runs, or was stopped in good order.
    #[arg(value_name = "PGDATA")]
    pub(crate) data: PathBuf,
    /// The server that runs on PGDATA: a libpq connection string. Default: its socket.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) dsn: Option<Dsn>,
    /// A running standby of this cluster that has the extension pageinspect: a libpq connection
    /// string; the database in it does not matter.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) from_standby: Vec<Dsn>,
    /// A base backup of this cluster that no server was started on: plain, or in tars, compressed or
    /// not.
    #[arg(long, value_name = "PATH")]
    pub(crate) from_backup: Vec<PathBuf>,
    /// The data directory of a standby that was stopped in good order, or a copy of this cluster that
    /// was made while it was stopped.
    #[arg(long, value_name = "DIR")]
    pub(crate) from_stopped: Vec<PathBuf>,
    /// More WAL than there is in PGDATA and in the sources: an archive, a directory, segments,
    /// compressed or not.
    #[arg(long, value_name = "PATH")]
    pub(crate) wal: Vec<PathBuf>,
    /// Only this block of a relation (database.schema.name:N, from 0). Default: all damaged blocks.
    #[arg(long, value_name = "REL:N", conflicts_with = "findings")]
    pub(crate) block: Vec<String>,
    /// The findings of pgtoll verify --json. Default: verify first.
    #[arg(long, value_name = "FILE")]
    pub(crate) findings: Option<PathBuf>,
    /// Write pages of this class too.
    #[arg(long, value_enum, value_name = "CLASS")]
    pub(crate) accept: Option<AcceptedClass>,
    /// Do not replay WAL for blocks that no source has.
    #[arg(long)]
    pub(crate) no_redo: bool,
    /// The server that replays WAL: a directory with bin/postgres of PGDATA's major version. Default:
    /// one that is installed.
    #[arg(long, value_name = "DIR", conflicts_with = "no_redo")]
    pub(crate) postgres: Option<String>,
    /// Directory in which that server is made, as large as the WAL since the blocks' images.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) work_dir: PathBuf,
    /// Threads. Default: all cores.
    #[arg(long, short, value_name = "N")]
    pub(crate) jobs: Option<NonZeroU16>,
    /// Confirm: write the pages of the plan.
    #[arg(long)]
    pub(crate) yes: bool,
    /// The new file to write the undo information to. Default: a name with the time in it, in
    /// PGDATA.pgtoll/ beside the data directory.
    #[arg(long, value_name = "FILE", requires = "yes")]
    pub(crate) undo_file: Option<PathBuf>,
    /// Put the pages back that were there before a repair, unless they were written since. Default, and
    /// "last": the last repair in PGDATA.pgtoll/.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = LAST_REPAIR,
        conflicts_with_all = ["from_backup", "from_stopped", "from_standby", "dsn", "wal", "block", "findings", "accept", "yes"]
    )]
    pub(crate) undo: Option<PathBuf>,
    /// The file that each attempt to write is added to. Default: PGDATA.pgtoll/ledger.jsonl beside the
    /// data directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

/// The undo file of the last repair.
pub(crate) const LAST_REPAIR: &str = "last";

/// A class of evidence that is written only where a user accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AcceptedClass {
    /// Nothing contradicts the page, but WAL has a gap in which it may have changed.
    Plausible,
}
