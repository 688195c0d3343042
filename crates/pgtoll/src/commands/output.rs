//! Where results go: to stdout, or into a file, whole or not at all.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use pgtoll_report::Style;
use serde::Serialize;

use crate::commands::Usage;
use crate::printer::Printer;

/// Prints `text`, or writes it to `path` where that is no `-`.
pub(crate) fn deliver(
    text: &str,
    path: Option<&PathBuf>,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    match path {
        Some(path) if path != Path::new("-") => write(path, text)?,
        _ => printer.data(text),
    }
    Ok(())
}

/// Whether what [`deliver`] takes to `path` may have colours: files have none.
pub(crate) fn style(path: Option<&PathBuf>, printer: &Printer) -> Style {
    match path {
        Some(path) if path != Path::new("-") => Style::Plain,
        _ => printer.style(),
    }
}

/// A record as JSON that a terminal can be shown: characters that it would obey are JSON's escapes.
pub(crate) fn json(record: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(record)? + "\n";
    Ok(pgtoll_report::printable_json(&text).into_owned())
}

/// What the name of an output ends in, in small letters.
pub(crate) fn ending(path: Option<&PathBuf>) -> Option<String> {
    Some(path?.extension()?.to_str()?.to_ascii_lowercase())
}

/// Writes a result to a file, complete or not at all, or to a pipe or device.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = pgtoll_files::write_output(path, text.as_bytes());
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
