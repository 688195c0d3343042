//! The files that a backup has, by their paths in the data directory.

use std::io;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use walkdir::WalkDir;

/// Paths and lengths.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    files: FxHashMap<Box<str>, u64>,
    /// Bytes of the paths.
    path_bytes: usize,
    /// There are more than are kept.
    pub(crate) is_cut: bool,
}

impl Inventory {
    pub(crate) fn add(&mut self, path: String, bytes: u64) {
        self.path_bytes += path.len() + ENTRY_BYTES;
        if self.path_bytes > BYTES_MAX {
            self.is_cut = true;
            return;
        }
        self.files.insert(path.into_boxed_str(), bytes);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.is_cut |= other.is_cut;
        other.files.into_iter().for_each(|(path, bytes)| self.add(path.into_string(), bytes));
    }

    pub(crate) fn into_files(self) -> impl Iterator<Item = (String, u64)> {
        self.files.into_iter().map(|(path, bytes)| (path.into_string(), bytes))
    }

    /// Removes a file; its length.
    pub(crate) fn take(&mut self, path: &str) -> Option<u64> {
        self.files.remove(path)
    }

    pub(crate) fn left(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(|path| &**path)
    }

    /// The files of a plain backup. What cannot be looked at is in the other list.
    ///
    /// Tablespaces are behind links. A link that anybody else made may lead anywhere, and is followed
    /// no deeper than PostgreSQL's own directories go.
    pub(crate) fn of_directory(data: &Path) -> (Self, Unlisted) {
        let mut inventory = Self::default();
        let mut unlisted = Unlisted::new();
        let links = inventory.walk(data, Path::new(""), usize::MAX, &mut unlisted);
        for path in links {
            inventory.walk(&data.join(&path), &path, LINKED_DEPTH, &mut unlisted);
        }
        (inventory, unlisted)
    }

    /// Takes the files below a directory, which has this path in the data directory; the links there
    /// that lead to directories.
    fn walk(
        &mut self,
        directory: &Path,
        path: &Path,
        depth: usize,
        unlisted: &mut Unlisted,
    ) -> Vec<PathBuf> {
        let mut links = Vec::new();
        // Behind a slash a link at the top is followed.
        let mut entries = WalkDir::new(directory.join("")).max_depth(depth).into_iter();
        while let Some(entry) = entries.next() {
            let found = entry.and_then(|entry| {
                let is_link = entry.path_is_symlink();
                let found = if is_link { None } else { Some(entry.metadata()?) };
                Ok((entry, found))
            });
            let (entry, found) = match found {
                Ok(found) => found,
                Err(error) => {
                    unlisted.push((error.path().unwrap_or(directory).to_owned(), error.into()));
                    continue;
                }
            };
            let below = entry.path().strip_prefix(directory).unwrap_or(entry.path());
            let path = path.join(below);
            // WAL is not in the list, and its directory may be anywhere.
            if path.as_os_str() == "pg_wal" {
                if entry.file_type().is_dir() {
                    entries.skip_current_dir();
                }
                continue;
            }
            match found.map_or_else(|| std::fs::metadata(entry.path()), Ok) {
                Ok(found) if !found.is_dir() => {
                    self.add(path.to_string_lossy().into_owned(), found.len());
                }
                Ok(_) if entry.path_is_symlink() && entry.depth() > 0 => links.push(path),
                Ok(_) => {}
                Err(error) => unlisted.push((entry.path().to_owned(), error)),
            }
        }
        links
    }
}

/// Notes an unreadable directory.
type Unlisted = Vec<(PathBuf, io::Error)>;

/// A tablespace has a directory for the version, one for each database, and files in it.
const LINKED_DEPTH: usize = 3;
/// About what a path costs beside its bytes.
const ENTRY_BYTES: usize = 64;
/// Ten million files are less.
const BYTES_MAX: usize = 1 << 30;
