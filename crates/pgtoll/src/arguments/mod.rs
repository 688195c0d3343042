//! The command line: pgtoll's commands, and what all of them have in common. Each command's arguments
//! are in a file of their own, beside those of the commands below it.

mod checkup;
mod completions;
mod corrupt;
mod doctor;
mod drill;
mod enable;
mod fleet;
mod lab;
mod measure;
mod output;
mod page;
mod postgres;
mod predict;
mod repair;
mod replay;
mod report;
mod values;
mod verify;
mod wal;

use std::fmt::Write as _;

use clap::{Parser, Subcommand};
use output::formats_of;
use pgtoll_record::{
    ChecksumsRecord, CheckupRecord, CorruptRecord, Examination, PredictionRecord, RepairRecord,
    RunResult, VerificationRecord,
};
use pgtoll_report::RecordKind;

pub(crate) use checkup::CheckupArguments;
pub(crate) use completions::CompletionsArguments;
pub(crate) use corrupt::{CorruptArguments, DamageKind};
pub(crate) use doctor::DoctorArguments;
pub(crate) use enable::{DisableArguments, EnableArguments, RollingArguments};
pub(crate) use fleet::{
    FleetArguments, FleetCommand, FleetMergeArguments, FleetPlanArguments, FleetRunArguments,
};
pub(crate) use lab::{
    LabArguments, LabBalanceArguments, LabBridgeArguments, LabCommand, LabCorruptionArguments,
    LabEntry, LabExchangeArguments, LabFailoverArguments, LabJudgeArguments, LabSetupArguments,
    LabWatchArguments,
};
pub(crate) use measure::MeasureArguments;
pub(crate) use output::{FormatOptions, OutputOptions};
pub(crate) use page::{PageArguments, PageCommand};
pub(crate) use postgres::{PostgresArguments, PostgresCommand};
pub(crate) use predict::{PredictArguments, PredictWal};
pub(crate) use repair::{LAST_REPAIR, RepairArguments};
pub(crate) use replay::{
    LogOptions, ReplayArguments, ReplayCommand, ReplayCompareArguments, ReplayDoctorArguments,
    ReplayPlanArguments, ReplayRecordArguments, ReplayRunArguments,
};
pub(crate) use report::ReportArguments;
pub(crate) use verify::VerifyArguments;
pub(crate) use wal::{
    OnOff, WalArguments, WalBy, WalCommand, WalRangeArguments, WalStatsArguments,
    WalWhatIfArguments,
};

/// Measure what PostgreSQL's safety costs, check whether the data is sound, and test whether the safety works. (Linux
/// only.)
#[derive(Debug, Parser)]
#[command(name = "pgtoll", version, propagate_version = true, after_help = EXIT_STATUS, help_template = help_template())]
pub(crate) struct Arguments {
    /// Print only results, warnings and errors.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Print the evidence too, not the answer alone.
    #[arg(long, global = true)]
    pub(crate) full: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// On most machines a disk, unlike /tmp.
pub(crate) const WORK_DIR: &str = "/var/tmp";

/// The commands by the job that they do.
const GROUPS: [(&str, &[&str]); 5] = [
    ("What does it cost?", &["measure", "predict", "wal", "replay"]),
    ("Is the data sound?", &["verify", "repair", "fleet", "page", "corrupt"]),
    ("Does the safety work?", &["checkup", "lab"]),
    ("Turn checksums on or off", &["enable", "disable"]),
    ("Results and set-up", &["report", "doctor", "postgres", "completions"]),
];

/// clap lists all commands under one heading.
fn help_template() -> String {
    let all = Command::augment_subcommands(clap::Command::new("pgtoll"));
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in GROUPS {
        let _ = write!(text, "\n{title}\n");
        for name in names {
            let about = all.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<12} {about}");
        }
    }
    text + "\nOptions:\n{options}{after-help}\n"
}

const EXIT_STATUS: &str = "Exit status: 0 done; 1 a finding; 2 could not tell (bad usage, \
    unreadable input, interrupted).";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure what data checksums cost here, on servers of its own.
    #[command(after_help = measure::EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<RunResult>())), args_override_self = true)]
    Measure(Box<MeasureArguments>),
    /// Predict what checksums or other settings would cost a running server.
    #[command(after_help = predict::EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<PredictionRecord>())))]
    Predict(Box<PredictArguments>),
    /// Check what each safety of a running server buys, and what it costs.
    #[command(after_help = checkup::EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<CheckupRecord>())))]
    Checkup(Box<CheckupArguments>),
    /// Replay a logged workload on another server.
    Replay(ReplayArguments),
    /// Show what WAL consists of, and what other settings would write.
    Wal(WalArguments),
    /// Check the pages of a data directory, running server or backup.
    #[command(after_help = verify::EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<Vec<VerificationRecord>>())))]
    Verify(Box<VerifyArguments>),
    /// Turn data checksums on, for a stopped server or over a running replica set.
    #[command(after_help = enable::ENABLE_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<ChecksumsRecord>())))]
    Enable(Box<EnableArguments>),
    /// Turn data checksums off, for a stopped server or over a running replica set.
    #[command(after_help = enable::DISABLE_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<ChecksumsRecord>())))]
    Disable(Box<DisableArguments>),
    /// Show a page, its checksum, and its differences from another page.
    Page(PageArguments),
    /// Damage a page on purpose, in a copy or a stopped cluster.
    #[command(after_help = corrupt::EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<CorruptRecord>())))]
    Corrupt(Box<CorruptArguments>),
    /// Replace damaged pages with pages that WAL proves right.
    #[command(after_help = repair::EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<Vec<RepairRecord>>())))]
    Repair(Box<RepairArguments>),
    /// Test failovers, load balancers and damage as an application sees them.
    Lab(LabArguments),
    /// Verify the backups of many clusters: plan, run in shards, merge.
    Fleet(FleetArguments),
    /// Show a record again, or several side by side.
    #[command(after_help = report::EXAMPLES)]
    Report(ReportArguments),
    /// Check whether this machine is fit to be measured on.
    #[command(after_help = doctor::EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<Examination>())))]
    Doctor(DoctorArguments),
    /// List PostgreSQL servers to measure with, or fetch one.
    #[command(after_help = postgres::EXAMPLES)]
    Postgres(PostgresArguments),
    /// Print the completions of a shell.
    #[command(after_help = completions::EXAMPLES)]
    Completions(CompletionsArguments),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
        let grouped: BTreeSet<&str> =
            GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = Arguments::command();
        let all = command.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(grouped, all);
    }

    #[test]
    fn a_negative_time_is_no_option() {
        for words in ["measure --budget -5m", "measure --slice -1s", "doctor --null -1h"] {
            let words = ["pgtoll"].into_iter().chain(words.split(' '));
            let mistake = Arguments::try_parse_from(words).unwrap_err().to_string();
            assert!(mistake.contains("is not a time like 90s"), "{mistake}");
        }
    }
}
