//! One module a subcommand.

pub(crate) mod checkup;
pub(crate) mod completions;
pub(crate) mod corrupt;
pub(crate) mod doctor;
pub(crate) mod enable;
pub(crate) mod fleet;
pub(crate) mod front;
pub(crate) mod lab;
pub(crate) mod measure;
mod output;
pub(crate) mod package;
pub(crate) mod page;
pub(crate) mod postgres;
pub(crate) mod predict;
pub(crate) mod repair;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod rolling;
pub(crate) mod server_waits;
mod thresholds;
pub(crate) mod verify;
pub(crate) mod wal;

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_format::ByteSize;
use pgtoll_record::Run;
use pgtoll_store::StoreUrl;
use pgtoll_wal::Packing;

use crate::mistakes::Usage;

/// The URL that an argument is; `None`: it is a path of this machine.
fn url(path: &Path) -> Option<anyhow::Result<StoreUrl>> {
    let text = path.to_str().filter(|text| StoreUrl::is_url(text))?;
    Some(text.parse().map_err(anyhow::Error::new))
}

/// The place of a command's argument: a URL, or a path of this machine.
fn location(text: &str) -> anyhow::Result<StoreUrl> {
    if StoreUrl::is_url(text) {
        return Ok(text.parse::<StoreUrl>()?);
    }
    let path = std::path::absolute(text).context("find the current directory")?;
    // Without `.` and `..`, which no key has.
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    StoreUrl::of_path(&plain)
        .ok_or_else(|| Usage::error(format!("{text:?} is not a path in UTF-8"), "name another one"))
}

/// Reads a run's record: a result directory, or the file itself.
fn read_run(path: &Path) -> anyhow::Result<Run> {
    let file = if path.is_dir() { in_directory(path)? } else { path.to_owned() };
    parse_run(&file, &record_text(&file)?)
}

fn parse_run(file: &Path, text: &str) -> anyhow::Result<Run> {
    Run::parse(text).with_context(|| format!("read {}", file.display()))
}

/// The text of a record: of a file or of a pipe that a shell opened, which may be compressed.
fn record_text(file: &Path) -> anyhow::Result<String> {
    let read = || {
        let mut reader = BufReader::new(Packing::Plain.open(Box::new(File::open(file)?))?);
        let mut bytes = Vec::new();
        loop {
            let piece = reader.fill_buf()?;
            let length = piece.len();
            if length == 0 {
                return Ok(bytes);
            }
            // Text has none, and devices have no end.
            if piece.contains(&0) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no record: not a text"));
            }
            if (bytes.len() + length) as u64 > RECORD_BYTES_MAX {
                let size = ByteSize(RECORD_BYTES_MAX);
                let message = format!("no record: longer than {size}");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
            }
            bytes.extend_from_slice(piece);
            reader.consume(length);
        }
    };
    let bytes: Vec<u8> = read().with_context(|| format!("read {}", file.display()))?;
    // A record that broke off may end within a character.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A day of slices of 10 ms has 2 GB.
const RECORD_BYTES_MAX: u64 = 4 << 30;

/// The record of a result directory.
fn in_directory(directory: &Path) -> anyhow::Result<PathBuf> {
    // Whatever else is wrong with it is told by who reads it.
    if let Some(file) = record_files(directory).find(|file| file.try_exists().unwrap_or(true)) {
        return Ok(file);
    }
    let below = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let results = below.map(|entry| entry.path());
    let newest = results.filter(|path| record_files(path).any(|file| file.exists())).max();
    let hint = newest.map_or_else(
        || "name a result directory of pgtoll measure, or a record itself".to_owned(),
        |path| format!("it holds result directories: name one, like {}", path.display()),
    );
    let directory = directory.display();
    let name = pgtoll_measure::RECORD_FILE;
    Err(Usage::error(format!("{directory} holds no record: {name} is missing"), hint))
}

/// Returns the possible record files of a result directory: as written, or compressed.
fn record_files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    ["", ".zst"]
        .map(|ending| directory.join(format!("{}{ending}", pgtoll_measure::RECORD_FILE)))
        .into_iter()
}

/// The directory `path` as it can be given to servers that run elsewhere: absolute, links resolved.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    const HINT: &str = "name a directory that exists with --work-dir";
    let found = std::fs::canonicalize(path)
        .map_err(|error| Usage::error(format!("find {}: {error}", path.display()), HINT))?;
    if !found.is_dir() {
        return Err(Usage::error(format!("{} is not a directory", path.display()), HINT));
    }
    Ok(found)
}
