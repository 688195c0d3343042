//! Data directories, whether a server runs on them or not, and plain base backups.

use std::ops::ControlFlow;
use std::path::Path;

use pgtoll_datadir::{Attached, DataDirectory, DatadirError, Names};
use pgtoll_format::RelFileLocator;
use pgtoll_interrupt::Interrupt;
use pgtoll_record::VerificationRecord;
use pgtoll_verify::{
    BackupWal, DirectFiles, EvidenceSources, Files, MappedFiles, RealPauses, ResumeJournal,
    RunningServer, RunningSettings, Storage, Verified, VerifyProgress, compare_with_evidence,
    verify_again, verify_on, verify_running,
};

use super::command::provenance;
use super::targets::{Directory, refuse_running};
use super::{only, report_progress, settings, size, wal_places};
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
    let settings = settings(arguments, below.clone());
    let mut progress = |now| report_progress("", now, interrupt, printer);
    if let Some(attached) = running {
        refuse_when_running(arguments)?;
        let settings = RunningSettings { verify: settings, patience: arguments.settle.0 };
        let mut verified = verified_running(attached, data, &settings, &is_wanted, &mut progress)?;
        if names.is_none() && needs_names(&verified) {
            names = attached.names(data).ok();
        }
        verified.settle_maps(names.as_ref());
        let provenance = provenance(arguments);
        return Ok(verified.record_of_running(data, names.as_ref(), attached, provenance));
    }
    let access = Access::of(arguments);
    let disk = access.disk();
    let mut notes = Vec::new();
    let mut verified = match &arguments.resume {
        None => verify_on(disk, data, &settings, &is_wanted, &mut progress),
        Some(path) => {
            let mut journal = ResumeJournal::open(path)?;
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
    verified.settle_maps(names.as_ref());
    if below.is_empty() && chosen.is_none() {
        let checksums = arguments.manifest_checksums;
        let mut progress = |now| report_progress("manifest: ", now, interrupt, printer);
        verified.check_complete(data, checksums, &settings, &mut progress);
        if let Some(names) = &names {
            verified.require_names(names, data);
        }
    }
    if arguments.manifest_checksums {
        verified.require_manifest_checksums();
    }
    let sources = EvidenceSources { wal: arguments.lost_writes, indexes: arguments.indexes };
    let mut progress =
        |source: &str, now| report_progress(&format!("{source}: "), now, interrupt, printer);
    let known = (&*data, &mut names);
    let compared =
        compare_with_evidence(&mut verified, known, sources, &settings, &is_wanted, &mut progress);
    let wal = BackupWal::of_directory(data).filter(|_| !verified.is_interrupted);
    let wal = wal.map(|wal| verified.settle(&wal.or_at(&places), settings.jobs.get()));
    // A server that was started meanwhile may have written any page.
    refuse_running(data)?;
    let wal = wal.unwrap_or_default();
    let mut record = verified.record(data, names.as_ref(), wal, provenance(arguments));
    record.notes.extend(notes);
    compared.add_to(&mut record);
    Ok(record)
}

fn verified_running(
    attached: &mut Attached,
    data: &DataDirectory,
    settings: &RunningSettings,
    is_wanted: &dyn Fn(RelFileLocator) -> bool,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<Verified, pgtoll_wire::Error> {
    let threads = settings.verify.jobs.get();
    let mut server = RunningServer::attached(attached, data, threads)?;
    let pauses = RealPauses::default();
    Ok(verify_running(&Files, data, settings, &mut server, &pauses, is_wanted, progress))
}

/// Refuses options that need files which do not change meanwhile.
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

/// Names of relations: a running server's catalogs, else those in its files.
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

fn went_on(journal: &ResumeJournal) -> Option<String> {
    let before = Some(journal.read_before()).filter(|bytes| *bytes > 0)?;
    Some(format!("{} of this were read by a run before, which was interrupted", size(before)))
}

/// What is done is forgotten; what is not is kept, and how is said.
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

    fn disk(&self) -> &dyn Storage {
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
