//! `pgtoll wal`: what WAL consists of, and how much it would be with other settings.

mod reading;
mod stats;
mod whatif;

use crate::arguments::{WalArguments, WalCommand};
use crate::printer::Printer;
use pgtoll_record::Status;

pub(crate) fn run(arguments: &WalArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match &arguments.command {
        WalCommand::Stats(arguments) => stats::run(arguments, printer),
        WalCommand::WhatIf(arguments) => whatif::run(arguments, printer),
    }
}
