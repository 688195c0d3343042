//! Data directories, whether a server runs on them or not, and plain base backups.

use std::num::NonZero;
use std::path::Path;

use pgtoll_datadir::{Attached, DataDirectory, DatadirError, Names};
use pgtoll_format::RelFileLocator;
use pgtoll_record::VerificationRecord;
use pgtoll_system::Interrupt;
use pgtoll_verify::{
    DirectFiles, Files, ManifestChecksums, MappedFiles, Patience, RealPauses, ResumeJournal,
    RunningServer, Storage, Verification, Verified,
};

use super::targets::{Directory, refuse_running};
use super::{cores, only, report_progress, settings, settle_time, size, wal_places};
use crate::again;
use crate::arguments::VerifyArguments;
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(super) fn verified(
    target: &mut Directory,
    arguments: &VerifyArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<VerificationRecord> {
    let Directory { data, below, running } = target;
    let places = wal_places(&arguments.wal, interrupt)?;
    let mut names = None;
    let chosen = match arguments.only.as_slice() {
        [] => None,
        patterns => {
            let known = names.insert(names_of(data, running.as_mut())?);
            Some(only(known, patterns)?)
        }
    };
    let is_wanted =
        |relation: RelFileLocator| chosen.as_ref().is_none_or(|chosen| chosen.contains(&relation));
    let is_chosen: Option<&dyn Fn(RelFileLocator) -> bool> =
        if chosen.is_some() { Some(&is_wanted) } else { None };
    let mut progress = |evidence: &str, now| {
        let name = if evidence.is_empty() { String::new() } else { format!("{evidence}: ") };
        report_progress(&name, now, interrupt, printer)
    };
    let access = Access::from_arguments(arguments);
    let verification = Verification::new(data, settings(arguments, below.clone()))
        .only(is_chosen)
        .names(names)
        .quick(arguments.quick)
        .manifest_checksums(manifest_checksums(arguments))
        .wal(places)
        .disk(access.disk());
    if let Some(attached) = running {
        refuse_when_running(arguments)?;
        let threads = arguments.jobs.map_or_else(cores, NonZero::from).get();
        let mut server = RunningServer::attached(attached, data, threads)?;
        let finished = verification.while_running(
            attached,
            &mut server,
            &RealPauses::default(),
            patience(arguments),
            &mut progress,
        );
        return Ok(finished.record_of_running(data, attached, again::provenance()));
    }
    let mut notes = Vec::new();
    let finished = match &arguments.resume {
        None => verification.at_rest(&mut progress),
        Some(path) => {
            let mut journal = ResumeJournal::open(path)?;
            notes.extend(went_on(&journal));
            let finished = verification.resumed(&mut journal, &mut progress)?;
            keep(journal, &finished.verified, path, printer)?;
            finished
        }
    };
    notes.extend(access.note().map(str::to_owned));
    // A server that was started meanwhile may have written any page.
    refuse_running(data)?;
    let mut record = finished.record(data, again::provenance());
    record.notes.extend(notes);
    Ok(record)
}

fn manifest_checksums(arguments: &VerifyArguments) -> ManifestChecksums {
    if arguments.manifest_checksums {
        ManifestChecksums::Required
    } else {
        ManifestChecksums::Skipped
    }
}

/// How long a running server is waited for. Who names a time wants all changes compared with WAL.
fn patience(arguments: &VerifyArguments) -> Patience {
    Patience { checkpoint: settle_time(arguments), awaits_checkpoint: arguments.settle.is_some() }
}

/// Refuses options that need files which do not change meanwhile.
fn refuse_when_running(arguments: &VerifyArguments) -> anyhow::Result<()> {
    let requested = [
        ("--mmap", arguments.mmap),
        ("--direct", arguments.direct),
        ("--resume", arguments.resume.is_some()),
        ("--manifest-checksums", arguments.manifest_checksums),
    ];
    match requested.into_iter().find(|(_, is_asked)| *is_asked) {
        None => Ok(()),
        Some((option, _)) => Err(Usage::error(
            format!("{option} is for stopped servers, and one runs here"),
            "leave it out, or stop the server first",
        )),
    }
}

/// Names of relations: a running server's catalogs, else those in its files.
fn names_of(data: &DataDirectory, running: Option<&mut Attached>) -> Result<Names, DatadirError> {
    match running {
        Some(attached) => attached.names(data),
        None => Names::of_data_directory(&data.path),
    }
}

fn went_on(journal: &ResumeJournal) -> Option<String> {
    let before = Some(journal.read_before()).filter(|bytes| *bytes > 0)?;
    Some(format!("{} of this were read by a run before, which was interrupted", size(before)))
}

/// Removes a finished journal; otherwise says how to resume.
fn keep(
    journal: ResumeJournal,
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
        None => printer.warn(&format!("hint: the same command continues from {path}")),
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
    fn from_arguments(arguments: &VerifyArguments) -> Self {
        match arguments {
            VerifyArguments { mmap: true, .. } => Self::Mapped(MappedFiles::default()),
            VerifyArguments { direct: true, .. } => Self::Direct(DirectFiles::default()),
            _ => Self::Read,
        }
    }

    fn disk(&self) -> &dyn Storage {
        match self {
            Self::Read => &Files,
            Self::Mapped(disk) => disk,
            Self::Direct(disk) => disk,
        }
    }

    /// Returns a note on a deviation from the request.
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
