//! `pgtoll page`: a page in all its parts, checksums, and in what two pages differ. Only reads.

use pgtoll_report::FinishedRecord;
use pgtoll_verify::{page_checksums_record, page_difference_record, page_record};

use crate::arguments::{PageArguments, PageCommand};
use crate::commands::output;
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(arguments: &PageArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let (record, options, is_good) = match &arguments.command {
        PageCommand::Show { file, block, format } => {
            let record = page_record(file, *block)?;
            let is_good = record.accepted;
            (FinishedRecord::Page(Box::new(record)), format, is_good)
        }
        PageCommand::Checksum { file, block, format } => {
            let record = page_checksums_record(file, *block)?;
            let is_good = record.pages.iter().all(|page| page.accepted) && record.bytes_left == 0;
            (FinishedRecord::PageChecksums(Box::new(record)), format, is_good)
        }
        PageCommand::Diff { a, b, block, format } => {
            let record = page_difference_record(a, b, *block)?;
            let is_good = record.bytes == 0;
            (FinishedRecord::PageDifference(Box::new(record)), format, is_good)
        }
    };
    output::print(&record, output::format(*options, record.kind())?, printer)?;
    Ok(if is_good { Status::Done } else { Status::Finding })
}
