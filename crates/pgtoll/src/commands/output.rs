//! In which format results are shown, and where they go: to stdout, or into a file, whole or not at
//! all.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_record::Status;
use pgtoll_report::{
    FinishedRecord, Format, RecordKind, ReportedRecord, Style, TableOptions, format_names,
};

use crate::arguments::{FormatOptions, OutputOptions};
use crate::mistakes::Usage;
use crate::printer::Printer;

/// The format that was asked for. Before anything is done it is refused where a record of this kind
/// does not have it.
pub(crate) fn format(options: FormatOptions, kind: RecordKind) -> anyhow::Result<Format> {
    offered(options.chosen().unwrap_or(Format::Table), kind)
}

/// The format, if a record of this kind has it.
pub(crate) fn offered(format: Format, kind: RecordKind) -> anyhow::Result<Format> {
    if kind.formats().contains(&format) {
        return Ok(format);
    }
    let message = format!("{} has no format {}", kind.title(), format.name());
    Err(Usage::error(message, format!("its formats are {}", format_names(kind.formats()))))
}

/// The format that was asked for, else that of the output's name. A name whose ending belongs to
/// none of the formats is refused, and so is a file in a directory that does not exist: nothing was
/// done by then.
pub(crate) fn format_of_output(
    options: &OutputOptions,
    formats: &[Format],
) -> anyhow::Result<Format> {
    if options.format.chosen() == Some(Format::Nagios) && file(options.output.as_ref()).is_some() {
        let message = "--format nagios is for stdout, with an exit status of its own".to_owned();
        let hint = "write JSON, and show that with: pgtoll report --format nagios FILE";
        return Err(Usage::error(message, hint));
    }
    let by_name = match file(options.output.as_ref()) {
        Some(path) => of_name(path, formats, options.format.chosen())?,
        None => None,
    };
    Ok(options.format.chosen().or(by_name).unwrap_or(Format::Table))
}

fn of_name(
    path: &Path,
    formats: &[Format],
    requested: Option<Format>,
) -> anyhow::Result<Option<Format>> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        let message = format!("write {}: {} is not a directory", path.display(), parent.display());
        return Err(Usage::error(message, "name a file in a directory that exists"));
    }
    let Some(ending) = path.extension().filter(|_| requested.is_none()) else { return Ok(None) };
    let found = ending.to_str().and_then(Format::of_ending);
    found.filter(|format| formats.contains(format)).map(Some).ok_or_else(|| {
        let ending = ending.to_string_lossy();
        let message = format!("--output {}: unknown ending .{ending}", path.display());
        let known: Vec<String> = formats
            .iter()
            .filter_map(|format| {
                Some(format!(".{} ({})", format.endings().first()?, format.name()))
            })
            .collect();
        Usage::error(message, format!("end it in {}; or say --format", known.join(", ")))
    })
}

/// Prints a record in a format that its kind has, or writes it to a file.
pub(crate) fn show(
    record: &FinishedRecord,
    format: Format,
    table: &TableOptions,
    output: Option<&PathBuf>,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let format = offered(format, record.kind())?;
    if format == Format::Nagios {
        // Its status is known at the end of the command.
        printer.check = record.check().map(|(_, line)| line);
        return Ok(());
    }
    let table = TableOptions { style: style(output, printer), full: printer.is_full(), ..*table };
    let text = record.shown(format, &table).context("a format without a text")?;
    deliver(&text, output, printer)
}

/// The one way out of a command that made a record: prints it, or writes it to a file, whole or not at all. What
/// its facts come to is the exit status.
pub(crate) fn finish(
    record: impl ReportedRecord,
    format: Format,
    table: &TableOptions,
    output: Option<&PathBuf>,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let record = FinishedRecord::new(record);
    show(&record, format, table, output, printer)?;
    Ok(record.conclusion().status)
}

/// The same on stdout, in the format that was asked for.
pub(crate) fn finish_on_stdout<R: ReportedRecord>(
    record: R,
    options: FormatOptions,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = format(options, RecordKind::for_record::<R>())?;
    finish(record, format, &TableOptions::default(), None, printer)
}

/// Prints `text`, or writes it to `path` where that is no `-`.
pub(crate) fn deliver(
    text: &str,
    path: Option<&PathBuf>,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    match file(path) {
        Some(path) => write(path, text)?,
        None => printer.data(text),
    }
    Ok(())
}

fn file(path: Option<&PathBuf>) -> Option<&Path> {
    path.map(PathBuf::as_path).filter(|path| *path != Path::new("-"))
}

/// Whether what [`deliver`] takes to `path` may have colours: files have none.
pub(crate) fn style(path: Option<&PathBuf>, printer: &Printer) -> Style {
    if file(path).is_some() { Style::Plain } else { printer.style() }
}

/// Writes a result to a file, complete or not at all, or to a pipe or device.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = pgtoll_system::write_output(path, text.as_bytes());
    written.map_err(|error| {
        let message = format!("write {}: {error}", path.display());
        match error.kind() {
            ErrorKind::PermissionDenied => {
                Usage::error(message, "name a file in a directory that you own")
            }
            _ => anyhow::Error::new(error).context(format!("write {}", path.display())),
        }
    })
}
