//! `pgtoll page`: a page in all its parts, checksums, and in what two pages differ. Only reads.

use std::path::Path;

use pgtoll_verify::{page_checksums_record, page_difference_record, page_record};
use serde::Serialize;

use crate::arguments::{PageArguments, PageCommand};
use crate::commands::output;
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(arguments: &PageArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match &arguments.command {
        PageCommand::Show { file, block, json } => show(file, *block, *json, printer),
        PageCommand::Checksum { file, block, json } => checksum(file, *block, *json, printer),
        PageCommand::Diff { a, b, block, json } => diff(a, b, *block, *json, printer),
    }
}

fn show(path: &Path, block: u64, json: bool, printer: &mut Printer) -> anyhow::Result<Status> {
    let record = page_record(path, block)?;
    deliver(&record, json, pgtoll_report::page_text, printer);
    Ok(if record.accepted { Status::Done } else { Status::Finding })
}

fn checksum(
    path: &Path,
    block: Option<u64>,
    json: bool,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let record = page_checksums_record(path, block)?;
    deliver(&record, json, pgtoll_report::page_checksums_text, printer);
    let is_sound = record.pages.iter().all(|page| page.accepted) && record.bytes_left == 0;
    Ok(if is_sound { Status::Done } else { Status::Finding })
}

fn diff(
    a: &Path,
    b: &Path,
    block: u64,
    json: bool,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let record = page_difference_record(a, b, block)?;
    deliver(&record, json, pgtoll_report::page_difference_text, printer);
    Ok(if record.bytes == 0 { Status::Done } else { Status::Finding })
}

fn deliver<T: Serialize>(
    record: &T,
    json: bool,
    text: impl FnOnce(&T) -> String,
    printer: &mut Printer,
) {
    // It is made of strings and numbers.
    let json = json.then(|| output::json(record).unwrap_or_default());
    printer.data(&json.unwrap_or_else(|| text(record)));
}
