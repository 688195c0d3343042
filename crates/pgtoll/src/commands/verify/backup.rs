//! Base backups in tars.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;

use pgtoll_datadir::Names;
use pgtoll_format::ClusterState;
use pgtoll_format::wal::RelationFiles;
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{VerificationRecord, VerifiedSource};
use pgtoll_verify::{BackupWal, TarBackup, VerifiedTars, WalAtHand, verify_tars};

use super::meaning::chosen;
use super::{files, record, settings, shown, size};
use crate::arguments::VerifyArguments;
use crate::printer::Printer;

/// The tars that this path means; `None`: it means something else.
pub(super) fn tars(path: &Path) -> anyhow::Result<Option<TarBackup>> {
    // What cannot be looked at is told by who looks for a data directory.
    let is_data = path.join("PG_VERSION").exists() && path.join("global").is_dir();
    if is_data
        || std::fs::metadata(path).is_err()
        || std::fs::read_dir(path).is_err_and(|error| is_denied(&error))
    {
        return Ok(None);
    }
    Ok(TarBackup::at(path)?)
}

fn is_denied(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}

pub(super) fn verified(
    backup: &TarBackup,
    arguments: &VerifyArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<VerificationRecord> {
    let mut names = None;
    let only: Option<HashSet<RelationFiles>> = match arguments.only.as_slice() {
        [] => None,
        patterns => Some(chosen(names.insert(backup.names()?), patterns)?),
    };
    let is_wanted =
        |relation: RelationFiles| only.as_ref().is_none_or(|only| only.contains(&relation));
    let settings = settings(arguments, Vec::new());
    let mut found = verify_tars(backup, &settings, &is_wanted, &mut |now| {
        let what = format!("{} of {}", size(now.bytes), size(now.all_bytes));
        printer.progress(&what, now.bytes, now.all_bytes);
        match interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })?;
    if only.is_none() {
        let checksums = arguments.manifest_checksums;
        let mut progress = shown("manifest", interrupt, printer);
        found.check_complete(backup, checksums, &settings, &mut progress);
    }
    files::require_checksums(&mut found.verified, arguments);
    let wal = BackupWal::of_tars(backup, &found).filter(|_| !found.verified.is_interrupted);
    let wal = wal.map(|wal| found.verified.settle(&wal.or_at(&arguments.wal), settings.jobs.get()));
    if names.is_none() && !found.verified.counts.is_empty() && !found.verified.is_interrupted {
        // To find them the tars are read once more: only damage is worth it.
        names = backup.names().ok();
    }
    let notes = notes(&found, names.as_ref(), wal.unwrap_or_default());
    let source = source(backup, &found);
    let VerifiedTars { verified, .. } = &found;
    Ok(record::assembled(arguments, &backup.path, source, verified, names.as_ref(), None, notes))
}

fn source(backup: &TarBackup, found: &VerifiedTars) -> VerifiedSource {
    let control = found.control.as_ref();
    let packing = backup.packing().map_or(String::new(), |packing| format!(", {packing}"));
    VerifiedSource {
        path: backup.path.display().to_string(),
        backup: found.start.is_some() || control.is_none(),
        form: Some(format!("tar{packing}")),
        major: found.major.unwrap_or_default(),
        system_identifier: control.map_or(0, |control| control.system_identifier),
        state: control.map_or_else(|| "unknown".to_owned(), |control| control.state.to_string()),
        block_bytes: control.map_or(8192, |control| control.block_bytes),
        file_blocks: control.map_or(131_072, |control| control.file_blocks),
        checksums: control.is_none_or(|control| control.checksum_version == 1),
        wal_end: None,
    }
}

fn notes(found: &VerifiedTars, names: Option<&Names>, wal: WalAtHand) -> Vec<String> {
    let mut notes = Vec::new();
    match &found.control {
        Some(control) => notes.extend(record::checksum_note(control.checksum_version)),
        None => notes.push(
            "no control file was found: blocks of 8 kB, files of 1 GB and checksums were assumed"
                .to_owned(),
        ),
    }
    if found.start.is_some() {
        notes.extend(record::backup_notes(&found.verified, wal));
    } else if let Some(control) = &found.control {
        notes.push(
            "a tar without a backup_label: missing files, LSNs and visibility maps are not compared"
                .to_owned(),
        );
        if control.state != ClusterState::ShutDown {
            notes.push(record::NOT_IN_ORDER.to_owned());
        }
    }
    notes.extend(files::threads_note(&found.verified));
    // Without damage nobody asked for names.
    if names.is_some() || !found.verified.counts.is_empty() {
        notes.extend(record::names_note(&found.verified, names));
    }
    notes
}
