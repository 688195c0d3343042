//! `pgtoll lab`: does the safety work when it is needed?

mod balance;
mod bridge;
mod corruption;
mod exchange;
mod failover;
mod ground;
mod judge;
mod record_file;
mod setup;
mod watch;

use crate::arguments::{LabArguments, LabCommand};
use crate::printer::Printer;
use pgtoll_record::Status;

pub(crate) fn run(arguments: &LabArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match &arguments.command {
        LabCommand::Judge(arguments) => judge::run(arguments, printer),
        LabCommand::Balance(arguments) => balance::run(arguments, printer),
        LabCommand::Bridge(arguments) => bridge::run(arguments, printer),
        LabCommand::Corruption(arguments) => corruption::run(arguments, printer),
        LabCommand::Exchange(arguments) => exchange::run(arguments, printer),
        LabCommand::Failover(arguments) => failover::run(arguments, printer),
        LabCommand::Setup(arguments) => setup::run(arguments, printer),
        LabCommand::Watch(arguments) => watch::run(arguments, printer),
    }
}
