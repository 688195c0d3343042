//! Notes for a reader of a record, beside the findings.

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::ClusterState;

use crate::backup::{VerifiedTars, WalAtHand};
use crate::defect::{BlockFinding, Defect, DefectCounts, Unsettled};
use crate::found::Verified;
use crate::manifest::ManifestCompared;

/// Makes the record of a data directory at rest, or a plain backup.
pub(super) fn of_directory(
    data: &DataDirectory,
    verified: &Verified,
    names: Option<&Names>,
    wal: WalAtHand,
) -> Vec<String> {
    let mut notes: Vec<String> = checksum_note(data.control.checksum_version).into_iter().collect();
    if data.backup_start.is_some() {
        notes.extend(backup_notes(verified, wal, maps_note(data)));
    } else if data.control.state != ClusterState::ShutDown {
        notes.push(NOT_IN_ORDER.to_owned());
    }
    notes.extend(threads_note(verified));
    notes.extend(names_note(verified, names));
    notes.extend(names.into_iter().flat_map(|names| verified.unmapped.notes(names)));
    notes.extend(verified.evidence.notes.iter().cloned());
    notes
}

/// Makes the record of a data directory on which a server runs.
pub(super) fn of_running(
    data: &DataDirectory,
    verified: &Verified,
    names: Option<&Names>,
) -> Vec<String> {
    let mut notes = unsettled_notes(verified);
    notes.extend(checksum_note(data.control.checksum_version));
    notes.extend(names_note(verified, names));
    notes.extend(names.into_iter().flat_map(|names| verified.unmapped.notes(names)));
    notes.extend(verified.evidence.notes.iter().cloned());
    notes
}

/// Makes the record of a backup in tars.
pub(super) fn of_tars(found: &VerifiedTars, names: Option<&Names>, wal: WalAtHand) -> Vec<String> {
    let mut notes = Vec::new();
    match &found.control {
        Some(control) => notes.extend(checksum_note(control.checksum_version)),
        None => notes.push(
            "no control file was found: blocks of 8 kB, files of 1 GB and checksums were assumed"
                .to_owned(),
        ),
    }
    if found.start.is_some() {
        notes.extend(backup_notes(&found.verified, wal, MAPS_NOT_COMPARED));
    } else if let Some(control) = &found.control {
        notes.push(
            "a tar without a backup_label: missing files, LSNs and visibility maps are not compared"
                .to_owned(),
        );
        if control.state != ClusterState::ShutDown {
            notes.push(NOT_IN_ORDER.to_owned());
        }
    }
    notes.extend(stored_files_note(&found.verified));
    notes.extend(threads_note(&found.verified));
    // Names are read only where there is damage or they were chosen by.
    if names.is_some() || !found.verified.counts.is_empty() {
        notes.extend(names_note(&found.verified, names));
    }
    notes
}

/// Returns a note on the origin of damage, by the checksums of stored files.
fn stored_files_note(verified: &Verified) -> Option<String> {
    let is_damaged = !verified.wrong_files.is_empty() || verified.total().failures > 0;
    (verified.compares_stored_files && is_damaged).then(|| {
        "files without the checksum that the manifest lists were damaged in the repository; pages \
         that fail in other files were damaged in the database before the backup"
            .to_owned()
    })
}

fn checksum_note(checksum_version: u32) -> Option<String> {
    let words = match checksum_version {
        0 => "the cluster has no checksums: only page headers were checked",
        1 => return None,
        _ => {
            "checksums are being turned on or off: they cannot be relied on, and only page \
             headers were checked"
        }
    };
    Some(words.to_owned())
}

/// Returns notes on base backups, and on this one.
fn backup_notes(verified: &Verified, wal: WalAtHand, maps: &str) -> Vec<String> {
    let mut notes = vec![compared_with_manifest(verified, maps)];
    if verified.healed_by_replay > 0 {
        notes.push(format!(
            "{} pages were written by the server while they were copied and are wrong here; the \
             backup's own WAL has their images, and recovery replaces them: they are not counted",
            verified.healed_by_replay
        ));
    }
    let DefectCounts { failures, unverified, .. } = verified.total();
    match wal {
        WalAtHand::Whole if failures > 0 => notes.push(
            "the backup's own WAL replaces none of the pages that fail here: recovery does not \
             heal them"
                .to_owned(),
        ),
        WalAtHand::Missing if failures + unverified > 0 => notes.push(
            "the backup's WAL is missing or incomplete: pages written during the copy cannot be distinguished from damage; name it with --wal, \
             or restore the backup, let it recover, and verify then"
                .to_owned(),
        ),
        _ => {}
    }
    if verified.incremental > 0 {
        notes.push(format!(
            "an incremental backup: {} of its files hold some blocks each, and those were \
             verified; the others are in the backups before it",
            verified.incremental
        ));
    }
    notes
}

fn names_note(verified: &Verified, names: Option<&Names>) -> Option<String> {
    let Some(names) = names else {
        let words = "relations have no names: the catalogs were not read";
        return (verified.pages.blocks > 0).then(|| words.to_owned());
    };
    let unread = Some(names.unread()).filter(|unread| !unread.is_empty())?;
    Some(format!("some names are missing: {unread}"))
}

const NOT_IN_ORDER: &str = "the server was not stopped in good order: its recovery may \
    replace pages that fail here, and visibility maps are compared only where nothing changed since \
    the last checkpoint; start it, stop it, and verify again";
const MAPS_NOT_COMPARED: &str = "and neither are visibility maps";
const MAPS_COMPARED: &str = "visibility maps where nothing changed since the backup began";

/// Returns a note on the comparison of visibility maps in a plain backup: a torn page of one without checksums says
/// anything.
fn maps_note(data: &DataDirectory) -> &'static str {
    if data.has_checksums() { MAPS_COMPARED } else { MAPS_NOT_COMPARED }
}

/// Returns advice about unsettled blocks.
fn unsettled_notes(verified: &Verified) -> Vec<String> {
    let mut notes = Vec::new();
    let mut hint = |is_it: fn(&Unsettled) -> bool, text: &str| {
        let is_it = |finding: &BlockFinding| match &finding.defect {
            Defect::Unsettled { why, .. } => is_it(why),
            _ => false,
        };
        if verified.findings.iter().any(is_it) {
            notes.push(text.to_owned());
        }
    };
    hint(
        |why| matches!(why, Unsettled::InFlight),
        "in flight: verify again after the next checkpoint, or wait for it with --settle",
    );
    hint(
        |why| matches!(why, Unsettled::Resident),
        "pages in the server's memory cannot be judged: from PostgreSQL 17 on the extension \
         pg_buffercache lets a superuser evict it; else verify again after a restart",
    );
    hint(
        |why| matches!(why, Unsettled::NoWay),
        "to have the server read any page, one of the extensions pageinspect and pg_prewarm has \
         to be in its database",
    );
    notes
}

/// Returns a note on the comparison of a base backup.
fn compared_with_manifest(verified: &Verified, maps: &str) -> String {
    let with = match verified.manifest {
        None => {
            return format!("a base backup: missing files and LSNs are not compared, {maps}");
        }
        Some(ManifestCompared { checksums: None, .. }) => "names and lengths",
        Some(_) => "names, lengths and checksums",
    };
    format!(
        "a base backup: its files were compared with backup_manifest by {with}; LSNs are \
         not compared, {maps}"
    )
}

fn threads_note(verified: &Verified) -> Option<String> {
    let (started, wanted) = verified.fewer_threads?;
    Some(format!(
        "the system allowed {started} of {wanted} threads (a limit of processes): it took longer"
    ))
}
