//! Data directories, whether a server runs on them or not, and plain base backups.

use std::ops::ControlFlow;
use std::path::Path;

use pgtoll_datadir::DatadirError;
use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::wal::RelationFiles;
use pgtoll_interrupt::Interrupt;
use pgtoll_record::VerificationRecord;
use pgtoll_verify::{
    BackupWal, DirectFiles, Disk, Files, Journal, MappedFiles, Progress, RunningSettings, Verified,
    verify_again, verify_on,
};

use super::meaning::chosen;
use super::online::Attached;
use super::targets::{Directory, refuse_running};
use super::{evidence, files, record, settings, shown, size};
use crate::arguments::VerifyArguments;
use crate::commands::Usage;
use crate::printer::Printer;

pub(super) fn verified(
    target: &mut Directory,
    arguments: &VerifyArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<VerificationRecord> {
    let Directory { data, below, running } = target;
    let mut names = None;
    let only = match arguments.only.as_slice() {
        [] => None,
        patterns => {
            let known = names.insert(names_of(data, running.as_mut())?);
            Some(chosen(known, patterns)?)
        }
    };
    let is_wanted =
        |relation: RelationFiles| only.as_ref().is_none_or(|only| only.contains(&relation));
    let settings = settings(arguments, below.clone());
    let mut progress = |now: Progress| {
        let what = format!("{} of {}", size(now.bytes), size(now.all_bytes));
        printer.progress(&what, now.bytes, now.all_bytes);
        match interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    };
    if let Some(attached) = running {
        refuse_when_running(arguments)?;
        let settings = RunningSettings { verify: settings, patience: arguments.settle.0 };
        let verified = attached.verify(data, &settings, &is_wanted, &mut progress)?;
        if names.is_none() && needs_names(&verified) {
            names = attached.names(data).ok();
        }
        return Ok(record::of_running(arguments, data, &verified, names.as_ref(), attached));
    }
    let access = Access::of(arguments);
    let disk = access.disk();
    let mut notes = Vec::new();
    let mut verified = match &arguments.resume {
        None => verify_on(disk, data, &settings, &is_wanted, &mut progress),
        Some(path) => {
            let mut journal = Journal::open(path)?;
            notes.extend(went_on(&journal));
            let verified =
                verify_again(disk, data, &settings, &is_wanted, &mut journal, &mut progress)?;
            keep(journal, &verified, path, printer)?;
            verified
        }
    };
    notes.extend(access.note().map(str::to_owned));
    if names.is_none() && needs_names(&verified) {
        // Without them findings have numbers instead.
        names = Names::of_data_directory(&data.path).ok();
    }
    if let Some(names) = names.as_ref().filter(|_| !verified.is_interrupted) {
        verified.compare_with(names, data, &is_wanted);
    }
    if below.is_empty() && only.is_none() {
        let checksums = arguments.manifest_checksums;
        let mut progress = shown("manifest", interrupt, printer);
        verified.check_complete(data, checksums, &settings, &mut progress);
        drop(progress);
        if let Some(names) = &names {
            files::check_names(&mut verified, names, data);
        }
    }
    files::require_checksums(&mut verified, arguments);
    let evidence = evidence::Asked { arguments, data, settings: &settings, is_wanted: &is_wanted };
    let compared = evidence.compare(&mut verified, &mut names, interrupt, printer);
    let wal = BackupWal::of_directory(data).filter(|_| !verified.is_interrupted);
    let wal = wal.map(|wal| verified.settle(&wal.or_at(&arguments.wal), settings.jobs.get()));
    // A server that was started meanwhile may have written any page.
    refuse_running(data)?;
    let mut record =
        record::of(arguments, data, &verified, names.as_ref(), wal.unwrap_or_default());
    record.notes.extend(notes);
    compared.tell(&mut record);
    Ok(record)
}

/// What needs files that nobody changes meanwhile.
fn refuse_when_running(arguments: &VerifyArguments) -> anyhow::Result<()> {
    let asked = [
        ("--mmap", arguments.mmap),
        ("--direct", arguments.direct),
        ("--resume", arguments.resume.is_some()),
        ("--lost-writes", arguments.lost_writes),
        ("--indexes", arguments.indexes),
        ("--manifest-checksums", arguments.manifest_checksums),
    ];
    match asked.into_iter().find(|(_, is_asked)| *is_asked) {
        None => Ok(()),
        Some((option, _)) => Err(Usage::error(
            format!("{option} is for stopped servers, and one runs here"),
            "leave it out, or stop the server first",
        )),
    }
}

/// A server knows them better than its files.
fn names_of(data: &DataDirectory, running: Option<&mut Attached>) -> Result<Names, DatadirError> {
    match running {
        Some(attached) => attached.names(data),
        None => Names::of_data_directory(&data.path),
    }
}

/// Names take memory for every relation. Where there are very many, only damage is worth it.
fn needs_names(verified: &Verified) -> bool {
    verified.files <= FILES_MANY || !verified.counts.is_empty()
}

fn went_on(journal: &Journal) -> Option<String> {
    let before = Some(journal.read_before()).filter(|bytes| *bytes > 0)?;
    Some(format!("{} of this were read by a run before, which was interrupted", size(before)))
}

/// What is done is forgotten; what is not is kept, and how is said.
fn keep(
    journal: Journal,
    verified: &Verified,
    path: &Path,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let path = path.display();
    if !verified.is_interrupted {
        return Ok(journal.remove()?);
    }
    match journal.error() {
        Some(error) => printer.warn(&format!("pgtoll: write {path}: {error}")),
        None => printer.warn(&format!("hint: the same command goes on from {path}")),
    }
    Ok(())
}

/// How files are read.
enum Access {
    Read,
    Mapped(MappedFiles),
    Direct(DirectFiles),
}

impl Access {
    fn of(arguments: &VerifyArguments) -> Self {
        match arguments {
            VerifyArguments { mmap: true, .. } => Self::Mapped(MappedFiles::default()),
            VerifyArguments { direct: true, .. } => Self::Direct(DirectFiles::default()),
            _ => Self::Read,
        }
    }

    fn disk(&self) -> &dyn Disk {
        match self {
            Self::Read => &Files,
            Self::Mapped(disk) => disk,
            Self::Direct(disk) => disk,
        }
    }

    /// What was not done as it was asked for.
    fn note(&self) -> Option<&'static str> {
        match self {
            Self::Mapped(disk) if disk.is_refused() => Some(
                "--mmap: some files could not be mapped, and were read (it needs Linux 5.14 and a \
                 file system with mmap)",
            ),
            Self::Direct(disk) if disk.is_refused() => Some(
                "--direct: the file system of some files refuses O_DIRECT; they were read through \
                 the system's cache",
            ),
            _ => None,
        }
    }
}

/// More would take much memory for their names.
const FILES_MANY: u64 = 200_000;
