//! Arguments of `pgtoll corrupt`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pgtoll_wire::Dsn;

use super::output::FormatOptions;
use super::values::DsnParser;

pub(super) const EXAMPLES: &str = "\
Examples:
  cp -a /srv/pg /srv/copy                   damage a copy
  pgtoll corrupt /srv/copy --relation app.public.orders --block 3 --kind bit --yes
  pgtoll corrupt /srv/copy --file base/5/16384 --kind garbage --seed 7 --yes
                                            a block by chance, the same one each time
  pgtoll corrupt /srv/copy --file base/5/16384 --block 3 --kind stale
      --older /srv/yesterday/base/5/16384 --yes
                                            a write that was lost
  pgtoll corrupt /srv/copy --undo pgtoll-undo.json
                                            as it was";

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["file", "relation", "undo"]))]
pub(crate) struct CorruptArguments {
    /// The data directory. No server may run on it, except with --online; none can start meanwhile.
    #[arg(value_name = "PGDATA")]
    pub(crate) data: PathBuf,
    /// The file, relative to PGDATA.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The relation: database.schema.name, or schema.name where all databases have it in common.
    #[arg(long, value_name = "NAME")]
    pub(crate) relation: Option<String>,
    /// The relation's fork.
    #[arg(long, value_enum, default_value = "main")]
    pub(crate) fork: ForkName,
    /// The block, from 0: of the file, or of the relation. Default: a random one.
    #[arg(long, value_name = "N")]
    pub(crate) block: Option<u64>,
    /// The kind of damage.
    #[arg(long, value_enum, required_unless_present = "undo")]
    pub(crate) kind: Option<DamageKind>,
    /// The block of the same file that it is swapped with.
    #[arg(long, value_name = "N", required_if_eq("kind", "transposed"))]
    pub(crate) with: Option<u64>,
    /// An older copy of the file, for the older bytes.
    #[arg(long, value_name = "FILE", required_if_eq_any([("kind", "torn"), ("kind", "stale")]))]
    pub(crate) older: Option<PathBuf>,
    /// The seed of random choices. The same seed makes the same damage.
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) seed: u64,
    /// The server runs: damage only a block that is not in its shared buffers.
    #[arg(long)]
    pub(crate) online: bool,
    /// The running server: a libpq connection string. Default: its socket.
    #[arg(long, value_name = "DSN", value_parser = DsnParser, requires = "online")]
    pub(crate) dsn: Option<Dsn>,
    /// The server crashed, and none runs on these data anywhere: not in another container, not on
    /// another host. Removes the postmaster.pid that it left.
    #[arg(long, conflicts_with = "online")]
    pub(crate) crashed: bool,
    /// Confirm: damage these data.
    #[arg(long)]
    pub(crate) yes: bool,
    /// The new file to write the undo information to.
    #[arg(long, value_name = "FILE", default_value = "pgtoll-undo.json")]
    pub(crate) undo_file: PathBuf,
    /// Undo the damage described in this file, unless the block was written since.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "block"])]
    pub(crate) undo: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
}

/// A fork of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ForkName {
    /// The data.
    Main,
    /// The free space map.
    Fsm,
    /// The visibility map.
    Vm,
    /// The fork that an unlogged relation is reset to after a crash.
    Init,
}

/// The kind of damage to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DamageKind {
    /// One bit flipped.
    Bit,
    /// Random bytes.
    Garbage,
    /// Swapped with another block: --with.
    Transposed,
    /// Its first half is older, as after a torn write: --older.
    Torn,
    /// All zeros.
    Zero,
    /// Its first half is zeros, as after a lost sector.
    ZeroHalf,
    /// All of it is older, as after a lost write: --older.
    Stale,
    /// The file ends in the middle of it.
    Cut,
    /// The file ends before it.
    CutAtBlock,
    /// The file that it is in is gone.
    MissingSegment,
}
