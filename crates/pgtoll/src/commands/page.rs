//! `pgtoll page`: a page in all its parts, checksums, and in what two pages differ. Only reads.

use pgtoll_record::Status;
use pgtoll_verify::{page_checksums_record, page_difference_record, page_record};

use crate::arguments::{PageArguments, PageCommand};
use crate::commands::output;
use crate::printer::Printer;

pub(crate) fn run(arguments: &PageArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match &arguments.command {
        PageCommand::Show { file, block, format } => {
            output::finish_on_stdout(page_record(file, *block)?, *format, printer)
        }
        PageCommand::Checksum { file, block, format } => {
            output::finish_on_stdout(page_checksums_record(file, *block)?, *format, printer)
        }
        PageCommand::Diff { a, b, block, format } => {
            output::finish_on_stdout(page_difference_record(a, b, *block)?, *format, printer)
        }
    }
}
