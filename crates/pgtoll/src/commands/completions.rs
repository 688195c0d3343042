//! `pgtoll completions`: what a shell offers after the Tab key.

use clap::CommandFactory as _;
use pgtoll_record::Status;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::printer::Printer;

pub(crate) fn run(
    arguments: &CompletionsArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "pgtoll", &mut script);
    printer.data(&String::from_utf8(script)?);
    Ok(Status::Done)
}
