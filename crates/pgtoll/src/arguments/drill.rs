//! Arguments of `pgtoll verify --drill`.

use std::path::PathBuf;

use clap::Args;
use pgtoll_drill::DrillTarget;
use pgtoll_format::TimeSpan;

use super::WORK_DIR;
use super::values::second_to_week;

#[derive(Args, Debug)]
#[command(next_help_heading = "Drill")]
pub(crate) struct DrillArguments {
    /// Restore the backup into a server of pgtoll's own, recover it, read every page, index and table,
    /// and give three verdicts: pages, WAL chain, start. PATH is a base backup, plain or in tars, or the
    /// copy of a server that was shut down. It may be a repository of pgBackRest or barman on this machine, with
    /// --backup. Of incremental backups name all of the chain, the full one first. --wal names the archive of
    /// WAL that the backup lacks.
    #[arg(long, conflicts_with_all = [
        "dsn", "settle", "only", "rate", "mmap", "direct", "no_rows", "resume",
        "quick", "manifest_checksums",
    ])]
    pub(crate) drill: bool,
    /// How far it is recovered: "consistency" (the end of the backup), "latest" (the end of the WAL),
    /// an LSN, or a time like 2026-11-22T10:00:00Z.
    #[arg(long, value_name = "TARGET", default_value = "consistency", requires = "drill")]
    pub(crate) until: DrillTarget,
    /// Directory in which the backup is restored, and removed again.
    #[arg(long, value_name = "DIR", default_value = WORK_DIR, requires = "drill")]
    pub(crate) work_dir: PathBuf,
    /// The server that recovers it: a directory with bin/postgres, of the backup's major version.
    /// Default: one that is installed.
    #[arg(long, value_name = "DIR|MAJOR", requires = "drill")]
    pub(crate) postgres: Option<String>,
    /// How long the server may do nothing before it serves, until it is taken for stalled.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = second_to_week, requires = "drill")]
    pub(crate) patience: TimeSpan,
    /// Let the drill's server do what its user can, where this system cannot confine it. It runs code
    /// that is in the backup: only for backups that you trust.
    #[arg(long, requires = "drill")]
    pub(crate) unconfined: bool,
}
