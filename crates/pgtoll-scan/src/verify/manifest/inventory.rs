//! The files that a backup has, by their paths in the data directory.

use std::io;
use std::path::Path;

use rustc_hash::FxHashMap;
use walkdir::WalkDir;

/// Paths and lengths.
#[derive(Debug, Default)]
pub(in crate::verify) struct Inventory {
    files: FxHashMap<Box<str>, u64>,
    /// Bytes of the paths.
    path_bytes: usize,
    /// There are more than are kept.
    pub(in crate::verify) is_cut: bool,
}

impl Inventory {
    pub(in crate::verify) fn add(&mut self, path: String, bytes: u64) {
        self.path_bytes += path.len() + ENTRY_BYTES;
        if self.path_bytes > BYTES_MAX {
            self.is_cut = true;
            return;
        }
        self.files.insert(path.into_boxed_str(), bytes);
    }

    pub(in crate::verify) fn extend(&mut self, other: Self) {
        self.is_cut |= other.is_cut;
        other.files.into_iter().for_each(|(path, bytes)| self.add(path.into_string(), bytes));
    }

    pub(in crate::verify) fn into_files(self) -> impl Iterator<Item = (String, u64)> {
        self.files.into_iter().map(|(path, bytes)| (path.into_string(), bytes))
    }

    /// Removes a file; its length.
    pub(in crate::verify) fn take(&mut self, path: &str) -> Option<u64> {
        self.files.remove(path)
    }

    pub(in crate::verify) fn left(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(|path| &**path)
    }

    /// The files of a plain backup, those of its tablespaces behind links too. What cannot be looked
    /// at is in the other list.
    pub(in crate::verify) fn of_directory(
        data: &Path,
    ) -> (Self, Vec<(std::path::PathBuf, io::Error)>) {
        let (mut inventory, mut unlisted) = (Self::default(), Vec::new());
        // WAL is not in the list, and its directory may be anywhere.
        let is_wal =
            |entry: &walkdir::DirEntry| entry.depth() == 1 && entry.file_name() == "pg_wal";
        for entry in
            WalkDir::new(data).follow_links(true).into_iter().filter_entry(|of| !is_wal(of))
        {
            let found = entry.and_then(|entry| entry.metadata().map(|found| (entry, found)));
            match found {
                Ok((_, found)) if found.is_dir() => {}
                Ok((entry, found)) => {
                    let path = entry.path().strip_prefix(data).unwrap_or(entry.path());
                    inventory.add(path.to_string_lossy().into_owned(), found.len());
                }
                Err(error) => {
                    let path = error.path().unwrap_or(data).to_owned();
                    unlisted.push((path, error.into()));
                }
            }
        }
        (inventory, unlisted)
    }
}

/// About what a path costs beside its bytes.
const ENTRY_BYTES: usize = 64;
/// Ten million files are less.
const BYTES_MAX: usize = 1 << 30;
