//! Where results go: to stdout, or into a file, whole or not at all.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

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

/// What the name of an output ends in, in small letters.
pub(crate) fn ending(path: Option<&PathBuf>) -> Option<String> {
    Some(path?.extension()?.to_str()?.to_ascii_lowercase())
}

/// All or nothing: whoever looks at the file sees the old one or the new one. What is no file, a
/// pipe or a device, is written to as it is.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => std::fs::write(path, text),
        // Behind a link lies the file that is meant.
        Ok(_) => std::fs::canonicalize(path).and_then(|path| replace(&path, text)),
        Err(_) => replace(path, text),
    };
    written.with_context(|| format!("write {}", path.display()))
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().filter(|of| !of.as_os_str().is_empty());
    let directory: PathBuf = directory.map_or_else(|| ".".into(), Path::to_owned);
    // Less what the umask takes away.
    let permissions = std::fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}
