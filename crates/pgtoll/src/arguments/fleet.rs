//! Arguments of `pgtoll fleet` and the commands below it.

use std::num::{NonZeroU8, NonZeroU32};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use pgtoll_estimate::FLEET_SHARDS_MAX;
use pgtoll_fleet::FleetShard;
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{FleetPlan, FleetRecord};
use pgtoll_report::RecordKind;

use super::output::{FormatOptions, OutputOptions, formats_of};
use super::values::{RefusedProfile, between, jobs, read_rate};

#[derive(Args, Debug)]
pub(crate) struct FleetArguments {
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Find the backups below prefixes, and plan their verification: what it takes, and in which
    /// shards. Reads listings and small files only.
    #[command(after_help = PLAN_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<FleetPlan>())))]
    Plan(FleetPlanArguments),
    /// Verify the backups of a shard that have no result yet. Findings are in the results: the exit
    /// status is 0 when all have one.
    #[command(after_help = RUN_EXAMPLES)]
    Run(FleetRunArguments),
    /// Merge the results: the backups that are sound, and those that are not.
    #[command(after_help = MERGE_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<FleetRecord>())))]
    Merge(FleetMergeArguments),
}

#[derive(Args, Debug)]
pub(crate) struct FleetPlanArguments {
    /// Prefixes in object stores (s3://, gs://, az://, file://), or directories.
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Shards that an engine is to run.
    #[arg(long, value_name = "N", default_value = "1", value_parser = shards)]
    pub(crate) shards: NonZeroU32,
    /// Cut larger backups, as they are stored, into parts of at most this size that are verified each by
    /// itself. An object is never cut, nor are the tars of `pg_basebackup`.
    #[arg(long, value_name = "SIZE", default_value = "100GB")]
    pub(crate) unit_size: ByteSize,
    /// Take CPU times from this record instead of pgtoll's own. `cargo xtask bench fleet --case
    /// packing,objects --record FILE` makes one on the machines that are to verify.
    #[arg(long, value_name = "FILE")]
    pub(crate) cpu_record: Option<PathBuf>,
    /// Write the plan here; results will be beside it. A prefix with a slash at its end stands for its
    /// plan.json.
    #[arg(long, short, value_name = "URL|FILE")]
    pub(crate) output: Option<String>,
    /// Replace another plan with this one. Results stay.
    #[arg(long, requires = "output")]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
    #[command(flatten)]
    pub(crate) no_profile: RefusedProfile,
}

#[derive(Args, Debug)]
pub(crate) struct FleetRunArguments {
    /// The plan.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: String,
    /// The shard, and how many there are; numbered from 0. Default: the index that Kubernetes, Slurm,
    /// AWS Batch or Cloud Run put into the environment, of the plan's shards.
    #[arg(long, value_name = "INDEX/COUNT", conflicts_with = "all")]
    pub(crate) shard: Option<FleetShard>,
    /// All backups of the plan.
    #[arg(long)]
    pub(crate) all: bool,
    /// Verify again what was verified longer ago than this. Default: never, while its objects are the
    /// same.
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub(crate) reverify_after: Option<TimeSpan>,
    /// Tars of a backup that are read in parallel. Default: the number of cores.
    #[arg(long, short, value_name = "N", value_parser = jobs)]
    pub(crate) jobs: Option<NonZeroU8>,
    /// Read no faster than this. Default: no limit.
    #[arg(long, value_name = "SIZE/s", value_parser = read_rate)]
    pub(crate) rate: Option<ByteSize>,
    #[command(flatten)]
    pub(crate) no_profile: RefusedProfile,
}

#[derive(Args, Debug)]
pub(crate) struct FleetMergeArguments {
    /// The plan.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: String,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) no_profile: RefusedProfile,
}

fn shards(text: &str) -> Result<NonZeroU32, String> {
    let number: Option<NonZeroU32> = text.parse().ok();
    let number = number.filter(|number| number.get() <= FLEET_SHARDS_MAX);
    number.ok_or_else(|| format!("\"{text}\" is not a number from 1 to {FLEET_SHARDS_MAX}"))
}

fn age(text: &str) -> Result<TimeSpan, String> {
    between(text, "0s", "3650d")
}

const PLAN_EXAMPLES: &str = "\
Examples:
  pgtoll fleet plan s3://backups/           how much is there, and what would it cost?
  pgtoll fleet plan s3://backups/ --shards 20 -o s3://ops/pgtoll/week48.json";

const RUN_EXAMPLES: &str = "\
Examples:
  pgtoll fleet run week48.json --all        all of it, on this machine
  pgtoll fleet run s3://ops/pgtoll/week48.json --shard 0/20
                                            the first of twenty shards

Exit status: 0 all backups of the shard have a result; 2 some have none.";

const MERGE_EXAMPLES: &str = "\
Examples:
  pgtoll fleet merge s3://ops/pgtoll/week48.json
  pgtoll fleet merge s3://ops/pgtoll/week48.json -o fleet.html
  pgtoll fleet merge week48.json --json     for programs

Exit status: 0 all backups are sound; 1 findings; 2 some are not verified.";
