//! Arguments of `pgtoll verify`.

use std::num::NonZeroU8;
use std::path::PathBuf;

use clap::Args;
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_wire::Dsn;

use super::drill::DrillArguments;
use super::output::OutputOptions;
use super::values::{DsnParser, RefusedProfile, between, jobs, read_rate};

pub(super) const EXAMPLES: &str = "\
Examples:
  pgtoll verify /var/lib/postgresql/15/main all pages of a stopped server
  pgtoll verify backup/ --jobs 8 --rate 200MB/s
                                            a base backup, gently
  pgtoll verify backup/base.tar.zst         a backup in tars, packed or not
  pgtoll verify s3://backups/main --backup latest
                                            a backup in an object store
  gpg -d base.tar.gz.gpg | pgtoll verify -  a tar from standard input
  pgtoll verify PGDATA --only shop.public.orders
                                            a table with its indexes and long values
  pgtoll verify PGDATA/base/5 --json        a database, for programs
  pgtoll verify backup/ -o verified.html    as a page
  pgtoll verify --dsn 'host=/run/postgresql user=postgres' --rate 100MB/s
                                            a running server, on its own machine
  pgtoll verify PGDATA --quick              pages alone, without WAL and B-trees
  pgtoll verify PGDATA --resume /var/tmp/verified
                                            continues after an interruption
  pgtoll verify PGDATA --patrol /var/lib/pgtoll/main.json --rate 20MB/s -o main.prom
                                            round and round, each page once a week
  pgtoll verify --drill backup/ --wal archive/
                                            restores it, recovers it, and reads all of it
  pgtoll verify --drill full/ incremental/  the same of an incremental backup
  pgtoll verify --drill /var/lib/pgbackrest --stanza main --backup latest
                                            the same of pgBackRest's newest backup

Exit status: 0 sound, or no damage seen; 1 failures or suspicions; 2 could not tell.";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct VerifyArguments {
    /// Data directories, base backups (plain or tar, compressed or not), or directories and files in
    /// one: of a file the whole relation is read. Backups may be in an object store (s3://, gs://,
    /// az://), where a prefix or a tar is named; - is a tar on standard input.
    #[arg(required_unless_present = "dsn", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The running server of a data directory on this machine: a libpq connection string. Default for
    /// a directory that a server runs on: its socket.
    #[arg(long, value_name = "DSN", value_parser = DsnParser)]
    pub(crate) dsn: Option<Dsn>,
    /// Backup in a repository of pgBackRest or barman, or below a prefix of an object store:
    /// "latest", or its name. Default: the only one.
    #[arg(long, value_name = "ID", conflicts_with = "dsn")]
    pub(crate) backup: Option<String>,
    /// The cluster, if the repository has several: pgBackRest's stanza, or barman's server.
    #[arg(long, value_name = "NAME", conflicts_with = "dsn")]
    pub(crate) stanza: Option<String>,
    /// With a running server: wait up to this time for a checkpoint, so that all changes until now are
    /// compared with WAL. Default: wait, up to 30 s, only where a page cannot be judged without one.
    #[arg(long, value_name = "TIME", value_parser = settle_time)]
    pub(crate) settle: Option<TimeSpan>,
    /// Only this relation, with a table's indexes and TOAST table.
    #[arg(long, value_name = "DATABASE.SCHEMA.TABLE")]
    pub(crate) only: Vec<String>,
    /// The WAL that a base backup needs, where it contains none: with it pages that recovery replaces
    /// are recognised. An archive's directory or URL, a tar, or segments. The layouts of barman-cloud,
    /// pgBackRest and WAL-G say by themselves where in the store it is.
    #[arg(long, value_name = "PATH")]
    pub(crate) wal: Vec<PathBuf>,
    /// Files, and parts of files, that are read in parallel. Default: the number of cores; 1 with
    /// --patrol.
    #[arg(long, short, value_name = "N", value_parser = jobs)]
    pub(crate) jobs: Option<NonZeroU8>,
    /// Read no faster than this, all jobs together. Default: no limit.
    #[arg(long, value_name = "SIZE/s", value_parser = read_rate)]
    pub(crate) rate: Option<ByteSize>,
    /// Map files into memory instead of reading them: less CPU, for files that do not change
    /// meanwhile.
    #[arg(long, conflicts_with = "direct")]
    pub(crate) mmap: bool,
    /// Bypass the page cache: read from the disk (direct I/O).
    #[arg(long)]
    pub(crate) direct: bool,
    /// Do not look at rows: of visibility maps only what is compared with the pages' headers.
    #[arg(long)]
    pub(crate) no_rows: bool,
    /// Keep the progress in this file, and continue from it after an interruption. It is removed when
    /// all was read.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Read the data directory round and round, a piece at a time, until a signal comes. This file keeps
    /// the place and the findings. --output is written again all the time.
    #[arg(
        long,
        value_name = "STATE",
        requires = "rate",
        conflicts_with_all = [
            "backup", "stanza", "only", "wal", "mmap", "direct", "resume", "quick",
            "manifest_checksums",
        ]
    )]
    pub(crate) patrol: Option<PathBuf>,
    /// With --patrol: the time within which each page is to be read again. A rate that is too low for it
    /// is reported. Default: 7d.
    #[arg(long, value_name = "TIME", requires = "patrol", value_parser = patrol_time)]
    pub(crate) within: Option<TimeSpan>,
    /// With --patrol: end after this time, as a timer's job. Default: no end.
    #[arg(long = "for", value_name = "TIME", requires = "patrol", value_parser = patrol_time)]
    pub(crate) run_time: Option<TimeSpan>,
    /// Read pages alone: do not compare them with WAL, nor zeroed pages with the B-trees that lead to
    /// them.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Compare the files of a base backup with the checksums in its manifest too. Reads them again.
    /// Names and lengths are always compared.
    #[arg(long)]
    pub(crate) manifest_checksums: bool,
    /// Findings that are shown for each relation. JSON has more.
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) top: usize,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) drill: DrillArguments,
    #[command(flatten)]
    pub(crate) no_profile: RefusedProfile,
}

fn settle_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "0s", "7d")
}

fn patrol_time(text: &str) -> Result<TimeSpan, String> {
    between(text, "1s", "3650d")
}
