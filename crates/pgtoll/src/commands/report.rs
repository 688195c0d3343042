//! `pgtoll report`: a record, shown again.

use crate::arguments::ReportArguments;
use crate::commands::{read_run, to_json};
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(arguments: &ReportArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let result = pgtoll_report::summarise(&read_run(&arguments.record)?);
    let text =
        if arguments.json { to_json(&result)? } else { pgtoll_report::terminal_table(&result) };
    printer.data(&text);
    Ok(Status::Done)
}
