//! Is all there? What a data directory, or a plain backup, says of its own completeness.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::found::Verified;
use crate::manifest::{Checksum, Inventory, MANIFEST, ManifestError, compare, compare_directory};
use crate::manifest::{FileDefect, ManifestCompared, WrongFile};
use crate::settings::{VerifyProgress, VerifySettings};
use pgtoll_datadir::DataDirectory;
use pgtoll_datadir::{Names, databases, has_version};

impl Verified {
    /// Compares a data directory, or a plain backup, with what every one has: relations, a
    /// directory for each database that `pg_database` lists, and `PG_VERSION`. The files of a backup
    /// are compared with those that its manifest lists, and with `checksums` are read once more.
    pub fn check_complete(
        &mut self,
        data: &DataDirectory,
        checksums: bool,
        settings: &VerifySettings,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) {
        if self.is_interrupted {
            return;
        }
        if self.files == 0 {
            self.incomplete.push(NO_RELATION.to_owned());
        }
        if !has_version(&data.path) {
            let path = "PG_VERSION".to_owned();
            self.wrong_files.push(WrongFile { path, defect: FileDefect::NoVersion });
        }
        self.check_databases(data);
        if let Some(manifest) = manifest(data) {
            self.compare_with_manifest(data, manifest, checksums, settings, progress);
        }
    }

    fn check_databases(&mut self, data: &DataDirectory) {
        // An unreadable catalog is reported by its pages; there is nothing to compare with.
        let Ok(databases) = databases(&data.path) else { return };
        for database in databases {
            // `DROP DATABASE` marks it before it removes the directory.
            if database.row.is_invalid || database.path.is_dir() {
                continue;
            }
            // One that cannot be looked at is listed with what could not be read.
            let is_gone = database.path.symlink_metadata();
            if is_gone.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                let path = database.path.strip_prefix(&data.path).unwrap_or(&database.path);
                let path = path.display().to_string();
                let defect = FileDefect::NoDatabase { name: database.row.name };
                self.wrong_files.push(WrongFile { path, defect });
            }
        }
    }

    fn compare_with_manifest(
        &mut self,
        data: &DataDirectory,
        manifest: io::Result<File>,
        checksums: bool,
        settings: &VerifySettings,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) {
        let (files, unlisted) = Inventory::of_directory(&data.path);
        let is_known = |path: &Path| self.unlisted.iter().any(|(known, _)| known == path);
        let unlisted: Vec<_> = unlisted.into_iter().filter(|(path, _)| !is_known(path)).collect();
        self.unlisted.extend(unlisted);
        let identifier = Some(data.control.system_identifier);
        let expected = self.compare_files(manifest, files, identifier, checksums, &|_| true);
        let Some(expected) = expected.filter(|expected| !expected.is_empty()) else { return };
        let all_bytes = expected.values().map(|expected| expected.bytes).sum();
        let found = compare_directory(&data.path, &expected, settings, &mut |bytes| {
            progress(VerifyProgress { bytes, all_bytes })
        });
        self.is_interrupted |= found.is_interrupted;
        self.unlisted.extend(found.unlisted);
        self.wrong_checksums(found.wrong);
        self.manifest.get_or_insert_default().checksums = Some(found.bytes);
    }

    /// The files of a backup, whose cluster it is, and whether checksums are asked for; what those
    /// have to be.
    pub(super) fn compare_files(
        &mut self,
        manifest: io::Result<File>,
        files: Inventory,
        identifier: Option<u64>,
        checksums: bool,
        is_meant: &dyn Fn(&str) -> bool,
    ) -> Option<FxHashMap<Box<str>, Checksum>> {
        if files.is_cut {
            let words = "too many files to be compared with backup_manifest";
            self.incomplete.push(words.to_owned());
            return None;
        }
        let compared = manifest.map_err(ManifestError::Read).and_then(|mut manifest| {
            io::Seek::rewind(&mut manifest).map_err(ManifestError::Read)?;
            compare(&mut manifest, files, identifier, checksums, is_meant)
        });
        match compared {
            Ok(difference) => {
                self.wrong_files.extend(difference.findings);
                self.more_wrong_files += difference.more;
                let none = checksums.then_some(0);
                self.manifest = Some(ManifestCompared { files: difference.files, checksums: none });
                Some(difference.expected)
            }
            Err(ManifestError::Read(error)) => {
                self.unlisted.push((MANIFEST.into(), error));
                None
            }
            Err(ManifestError::Version(version)) => {
                let words = format!("backup_manifest has the unknown version {version}");
                self.incomplete.push(words);
                None
            }
            Err(error) => {
                let defect = FileDefect::Manifest(error.to_string());
                self.wrong_files.push(WrongFile { path: MANIFEST.to_owned(), defect });
                None
            }
        }
    }

    /// Without all catalogs nothing is said of relations' files that are missing.
    pub fn require_names(&mut self, names: &Names, data: &DataDirectory) {
        let unread = names.unread();
        let has_catalogs = unread.catalogs + unread.maps == 0;
        let is_compared = data.is_consistent() && self.incremental == 0 && !self.is_interrupted;
        if !has_catalogs && is_compared {
            let words = format!("{unread}: whether relations' files are missing is unknown");
            self.incomplete.push(words);
        }
    }

    /// Says so where the manifest's checksums were asked for and not compared.
    pub fn require_manifest_checksums(&mut self) {
        let has_checksums = self.manifest.is_some_and(|manifest| manifest.checksums.is_some());
        if !has_checksums && !self.is_interrupted {
            let words = "--manifest-checksums: the files were not compared with a backup_manifest";
            self.incomplete.push(words.to_owned());
        }
    }

    pub(super) fn wrong_checksums(&mut self, paths: Vec<String>) {
        let new = paths.into_iter().map(|path| WrongFile { path, defect: FileDefect::Checksum });
        self.wrong_files.extend(new);
        self.wrong_files.sort_by(|one, other| one.path.cmp(&other.path));
    }
}

/// The manifest of a backup that no server has run on since: a server that was started on it has
/// changed the files, and left this one.
fn manifest(data: &DataDirectory) -> Option<io::Result<File>> {
    let has = |name: &str| data.path.join(name).symlink_metadata().is_ok();
    let has_run = ["backup_label.old", "postmaster.opts", "postmaster.pid"].into_iter().any(has);
    if data.backup_start.is_none() && has_run {
        return None;
    }
    match pgtoll_system::open(&data.path.join(MANIFEST)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        opened => Some(opened),
    }
}

pub(super) const NO_RELATION: &str =
    "no file of a relation was found: this is not a cluster's data, or not all of it";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_that_were_asked_for_and_not_compared_are_not_sound() {
        let check = |manifest: Option<ManifestCompared>, is_interrupted: bool, expected: usize| {
            let mut verified = Verified { is_interrupted, manifest, ..Verified::default() };
            verified.require_manifest_checksums();
            assert_eq!(verified.incomplete.len(), expected, "{manifest:?}");
        };
        check(None, false, 1);
        check(Some(ManifestCompared { files: 3, checksums: None }), false, 1);
        check(Some(ManifestCompared { files: 3, checksums: Some(4096) }), false, 0);
        // That it ended before is said already.
        check(None, true, 0);
    }
}
