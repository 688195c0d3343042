//! Is a backup complete? Its manifest lists every file with its length and checksum.
//!
//! The rules are those of `pg_verifybackup`: WAL is not in the list of files, and what
//! `pg_basebackup` itself writes into a backup may differ.

mod checksums;
mod inventory;
mod parse;

use std::io::Read;
use std::path::Path;

use rustc_hash::FxHashMap;

pub(super) use checksums::{Checksum, compare_directory, compare_member};
pub(super) use inventory::Inventory;
pub(crate) use parse::read;
pub(super) use parse::{Algorithm, ManifestError, ManifestFile};

/// A file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongFile {
    /// The place in the data directory.
    pub path: String,
    /// The faults.
    pub defect: FileDefect,
}

/// The faults of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileDefect {
    /// The manifest lists it, and it is not there.
    Missing,
    /// It has another length.
    Length {
        /// Bytes that it has.
        bytes: u64,
        /// Bytes that the manifest lists.
        expected: u64,
    },
    /// It is there, and the manifest does not list it.
    Extra,
    /// Its checksum is not the one that the manifest lists.
    Checksum,
    /// The manifest itself is damaged, and nothing was compared with it.
    Manifest(String),
    /// The manifest is another cluster's, by its system identifier.
    OtherCluster,
    /// `pg_database` lists a database, and its directory is not there.
    NoDatabase {
        /// The database's name.
        name: String,
    },
    /// `PG_VERSION` is missing, or names no major version.
    NoVersion,
    /// `tablespace_map` lists a tablespace, and its tar is not there.
    NoTablespace,
}

/// The comparison with a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManifestCompared {
    /// Files that it lists.
    pub files: u64,
    /// Bytes whose checksums were compared; `None`: checksums were not asked for.
    pub checksums: Option<u64>,
}

/// A difference between a backup and its manifest.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) findings: Vec<WrongFile>,
    /// More than `findings` has.
    pub(super) more: u64,
    pub(super) files: u64,
    /// The checksums of those that have the right length.
    pub(super) expected: FxHashMap<Box<str>, Checksum>,
}

impl Difference {
    fn add(&mut self, path: &str, defect: FileDefect) {
        if self.findings.len() < FILES_MAX {
            self.findings.push(WrongFile { path: path.to_owned(), defect });
        } else {
            self.more += 1;
        }
    }
}

/// Compares the files of a backup with what its manifest lists; of what is not there, with what
/// `is_meant`.
pub(super) fn compare(
    manifest: &mut dyn Read,
    mut inventory: Inventory,
    system_identifier: Option<u64>,
    with_checksums: bool,
    is_meant: &dyn Fn(&str) -> bool,
) -> Result<Difference, ManifestError> {
    let mut difference = Difference::default();
    let found = read(manifest, &mut |file| {
        let bytes = inventory.take(&file.path);
        if bytes.is_none() && !is_meant(&file.path) {
            return;
        }
        difference.files += 1;
        match bytes {
            _ if is_ignored(&file.path) => {}
            None => difference.add(&file.path, FileDefect::Missing),
            Some(bytes) if bytes != file.bytes => {
                let expected = file.bytes;
                difference.add(&file.path, FileDefect::Length { bytes, expected });
            }
            Some(_) => {
                if let Some(checksum) = Checksum::from_file(&file).filter(|_| with_checksums) {
                    difference.expected.insert(file.path.into_boxed_str(), checksum);
                }
            }
        }
    })?;
    for path in inventory.left().filter(|path| !is_ignored(path)) {
        difference.add(path, FileDefect::Extra);
    }
    let is_other = |count: &u64| system_identifier.is_some_and(|own| own != *count);
    if found.system_identifier.as_ref().is_some_and(is_other) {
        difference.add(MANIFEST, FileDefect::OtherCluster);
    }
    difference.findings.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(difference)
}

/// Returns whether `pg_verifybackup` ignores the path.
fn is_ignored(path: &str) -> bool {
    let names = [MANIFEST, "pg_wal", "postgresql.auto.conf", "recovery.signal", "standby.signal"];
    path.starts_with("pg_wal/") || names.contains(&path)
}

/// Bytes of all files that a backup's manifest lists; `None`: it cannot be read.
pub fn bytes_in_manifest(manifest: &Path) -> Option<u64> {
    let mut bytes = 0_u64;
    let file = pgtoll_system::open(manifest).ok()?;
    let mut input = std::io::BufReader::new(file);
    read(&mut input, &mut |file| bytes = bytes.saturating_add(file.bytes)).ok()?;
    Some(bytes)
}

/// For fuzzing: files in the manifest that these bytes are, if they are one.
pub(crate) fn files_in(manifest: &[u8]) -> Option<u64> {
    let mut count = 0;
    read(&mut &*manifest, &mut |_| count += 1).ok().map(|_| count)
}

pub(super) const MANIFEST: &str = "backup_manifest";
/// The most findings that are kept; others are counted.
const FILES_MAX: usize = 10_000;

#[cfg(test)]
mod tests;
