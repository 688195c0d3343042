//! Is all there? What a backup in tars says of its own completeness.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use rustc_hash::FxHashMap;

use super::content::within;
use super::opener::spooled;
use super::source::{Meter, Metered, TarFile};
use super::{TarBackup, VerifiedTars};
use crate::complete::NO_RELATION;
use crate::manifest::{Checksum, Inventory, MANIFEST, compare_member};
use crate::manifest::{FileDefect, WrongFile};
use crate::settings::{PROGRESS, VerifyProgress, VerifySettings};
use pgtoll_wal::{TarMemberKind, TarMemberReader, TarStream};

impl VerifiedTars {
    /// Compares the files with those that the backup's manifest lists, where there is one, and with
    /// what every base backup has. With `checksums` the tars are read once more.
    ///
    /// Says nothing of tars that could not be read to their end.
    pub(super) fn check_complete(
        &mut self,
        backup: &TarBackup,
        checksums: bool,
        settings: &VerifySettings,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) {
        let is_whole = self.contents.iter().all(|content| content.is_whole);
        if self.verified.is_interrupted || !is_whole || self.contents.is_empty() {
            return;
        }
        if self.verified.files == 0 {
            self.verified.incomplete.push(NO_RELATION.to_owned());
        }
        if self.control.is_none() {
            self.verified.incomplete.extend(backup.without_control().map(str::to_owned));
        }
        let mut files = Inventory::default();
        self.contents
            .iter_mut()
            .for_each(|content| files.extend(std::mem::take(&mut content.files)));
        if !self.compare_with_manifest(backup, files, checksums, settings, progress) {
            self.check_tablespaces(backup);
        }
    }

    /// False: there is no manifest.
    fn compare_with_manifest(
        &mut self,
        backup: &TarBackup,
        files: Inventory,
        checksums: bool,
        settings: &VerifySettings,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) -> bool {
        let own = self.contents.iter_mut().find_map(|content| content.manifest.take());
        let Some(manifest) = own.or_else(|| backup.manifest()) else { return false };
        let is_meant = |path: &str| backup.is_meant(path);
        let identifier = self.control.as_ref().map(|control| control.system_identifier);
        let expected =
            self.verified.compare_files(manifest, files, identifier, checksums, &is_meant);
        if let Some(expected) = expected.filter(|expected| !expected.is_empty()) {
            self.compare_checksums(backup, &expected, settings, progress);
        }
        true
    }

    fn compare_checksums(
        &mut self,
        backup: &TarBackup,
        expected: &FxHashMap<Box<str>, Checksum>,
        settings: &VerifySettings,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) {
        let meter = Meter::new(settings.rate);
        let next = AtomicUsize::new(0);
        let all_bytes = backup.tars.iter().map(|tar| tar.bytes).sum();
        let one = || {
            let tar = backup.tars.get(next.fetch_add(1, Ordering::Relaxed))?;
            let item = self.contents.iter().find(|content| content.tar == tar.path);
            let root = item.map_or("", |content| &content.root);
            let compared = Compared::default().of_tar(tar, root, expected, &meter);
            Some((tar.path.clone(), compared))
        };
        let mut found = Vec::new();
        let mut is_interrupted = false;
        let mut go_on = || {
            let now = VerifyProgress { bytes: meter.bytes(), all_bytes };
            if !is_interrupted && progress(now).is_break() {
                is_interrupted = true;
                meter.stop();
            }
        };
        thread::scope(|scope| {
            let (sender, receiver) = sync_channel(1);
            let wanted = settings.jobs.get().min(backup.tars.len());
            let has_threads = pgtoll_system::threads::start(scope, wanted, || {
                let sender = sender.clone();
                let one = &one;
                move || while one().is_some_and(|item| sender.send(item).is_ok()) {}
            }) > 0;
            drop(sender);
            loop {
                if !has_threads {
                    break;
                }
                match receiver.recv_timeout(PROGRESS) {
                    Ok(recv_timeout) => found.push(recv_timeout),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                go_on();
            }
            while let Some(item) = one() {
                found.push(item);
                go_on();
            }
        });
        self.verified.is_interrupted |= is_interrupted;
        let mut bytes = 0;
        for (path, item) in found {
            bytes += item.bytes;
            self.verified.wrong_checksums(item.wrong);
            if let Err(error) = item.ended
                && !is_interrupted
            {
                self.verified.unlisted.push((path, error));
            }
        }
        let manifest = self.verified.manifest.get_or_insert_default();
        manifest.checksums = Some(bytes);
    }

    /// Without a manifest nothing else lists the tablespaces.
    fn check_tablespaces(&mut self, backup: &TarBackup) {
        if !backup.is_directory() {
            return;
        }
        let is_there = |oid: &u32| backup.tars.iter().any(|tar| tar.tablespace == Some(*oid));
        let listed = self.contents.iter().flat_map(|content| &content.tablespaces);
        let missing = listed.filter(|oid| !is_there(oid)).map(|oid| WrongFile {
            path: format!("pg_tblspc/{oid}"),
            defect: FileDefect::NoTablespace,
        });
        self.verified.wrong_files.extend(missing);
    }
}

impl TarBackup {
    /// A directory was named, and so all of its tars.
    fn is_directory(&self) -> bool {
        self.tars.first().is_some_and(|tar| tar.path != self.path)
    }

    /// Why it has no control file; `None`: that file may be in another tar beside.
    fn without_control(&self) -> Option<&'static str> {
        match self.tars.as_slice() {
            [TarFile { path, tablespace: Some(_), from, .. }] => {
                let has_base = from.is_file() && has_base(path.parent().unwrap_or(Path::new("")));
                (!has_base).then_some(TABLESPACE_ALONE)
            }
            _ => Some(NO_CONTROL),
        }
    }

    /// The manifest beside tars of PostgreSQL's own names. Another tar may have its own inside.
    fn manifest(&self) -> Option<io::Result<File>> {
        if let Some(manifest) = &self.manifest {
            return Some(spooled(&**manifest));
        }
        let first = self.tars.first().filter(|tar| tar.from.is_file())?;
        if first.tablespace.is_none() && !is_base(&first.path) {
            return None;
        }
        let path = first.path.parent().unwrap_or(Path::new("")).join(MANIFEST);
        match pgtoll_system::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened),
        }
    }

    /// Whether a file that the manifest lists has to be in these tars.
    fn is_meant(&self, path: &str) -> bool {
        if self.is_directory() {
            return true;
        }
        match self.tars.first().and_then(|tar| tar.tablespace) {
            Some(oid) => path.starts_with(&format!("pg_tblspc/{oid}/")),
            None => !path.starts_with("pg_tblspc/"),
        }
    }
}

pub(super) fn is_base(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("base.tar") || name == "base.tgz"
}

fn has_base(directory: &Path) -> bool {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| is_base(&path))
}

/// The outcome of a tar's files whose checksums were compared.
struct Compared {
    wrong: Vec<String>,
    bytes: u64,
    ended: io::Result<()>,
}

impl Default for Compared {
    fn default() -> Self {
        Self { wrong: Vec::new(), bytes: 0, ended: Ok(()) }
    }
}

impl Compared {
    fn of_tar(
        mut self,
        tar: &TarFile,
        root: &str,
        expected: &FxHashMap<Box<str>, Checksum>,
        meter: &Meter,
    ) -> Self {
        self.ended = self.members(tar, root, expected, meter);
        self
    }

    fn members(
        &mut self,
        tar: &TarFile,
        root: &str,
        expected: &FxHashMap<Box<str>, Checksum>,
        meter: &Meter,
    ) -> io::Result<()> {
        let file = Metered::tar(tar, meter)?;
        let mut stream = TarStream::new(tar.packing.open(Box::new(file))?);
        while let Some(member) = stream.next_member()? {
            let path = within(&member.path, root, tar.tablespace);
            let Some(path) = path.filter(|_| member.kind == TarMemberKind::File) else { continue };
            let mut reader = TarMemberReader { stream: &mut stream };
            if let Some(is_right) = compare_member(&path, expected, &mut reader)? {
                self.bytes += member.bytes;
                self.wrong.extend((!is_right).then_some(path));
            }
        }
        Ok(())
    }
}

const NO_CONTROL: &str =
    "global/pg_control is missing: this is not a base backup, or not all of it";
const TABLESPACE_ALONE: &str = "a tablespace's tar by itself: completeness cannot be checked without the data directory's tar; name the directory that has both";
