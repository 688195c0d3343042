//! Base backups in tars.

use std::collections::HashSet;
use std::path::Path;

use pgtoll_format::RelFileLocator;
use pgtoll_record::VerificationRecord;
use pgtoll_system::Interrupt;
use pgtoll_verify::{TarBackup, TarChecks, verify_tars};

use super::{only, report_progress, settings, wal_places};
use crate::again;
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
    let places = wal_places(&arguments.wal, interrupt)?;
    let mut names = None;
    let chosen: Option<HashSet<RelFileLocator>> = match arguments.only.as_slice() {
        [] => None,
        patterns => Some(only(names.insert(backup.names()?), patterns)?),
    };
    let is_wanted =
        |relation: RelFileLocator| chosen.as_ref().is_none_or(|chosen| chosen.contains(&relation));
    let settings = settings(arguments, Vec::new());
    let mut progress = |now| report_progress("", now, interrupt, printer);
    let mut found = verify_tars(backup, &settings, &is_wanted, &mut progress)?;
    let checks = TarChecks {
        is_whole: chosen.is_none(),
        manifest_checksums: arguments.manifest_checksums,
        wal: &places,
    };
    let mut progress = |now| report_progress("manifest: ", now, interrupt, printer);
    let wal = found.check(backup, checks, &settings, &mut progress);
    if names.is_none() && found.is_damaged() {
        names = backup.names().ok();
    }
    Ok(found.record(backup, names.as_ref(), wal, again::provenance()))
}
