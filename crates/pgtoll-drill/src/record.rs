//! From what was found to the record.

use std::path::Path;

use pgtoll_record::{
    DRILL_SCHEMA, DrillPages, DrillRecord, DrillStart, DrillVerdict, DrillWal, DrilledBackup,
    DrilledKind, DrilledMember, Provenance, VerificationRecord,
};

use crate::chain::CopiedWal;
use crate::drill::VerifiedBackup;
use crate::plan::DrillPlan;
use crate::restore::Restored;
use crate::source::DrillSource;
use crate::stage::Staged;
use crate::startup::{StartEnd, redo_end};
use crate::verdicts::{self, Reasoned};

impl DrillPlan {
    /// The record of what was found.
    pub(crate) fn record(
        &self,
        provenance: &Provenance,
        staged: Staged,
        backup: VerifiedBackup,
        restored: Option<Restored>,
    ) -> DrillRecord {
        let source = &self.source;
        let Provenance { version, command, made } = provenance.clone();
        let control = self.wal.as_ref().map(|(_, control)| control);
        let wal = self.wal_record(&staged, restored.as_ref());
        let start = start_record(restored.as_ref(), backup.files.as_ref().err());
        let mut notes = self.layout.notes.clone();
        let unreadable = self.wal.iter().filter_map(|(choice, _)| choice.unreadable.as_ref());
        notes.extend(unreadable.map(|error| format!("WAL of the backup was not read: {error}")));
        notes.extend(restored.iter().flat_map(Restored::notes));
        notes.extend(staged.notes.iter().cloned());
        notes.extend(self.confinement_note().filter(|_| restored.is_some()));
        let pages = pages_record(self, staged, backup, restored);
        DrillRecord {
            schema: DRILL_SCHEMA.to_owned(),
            pgtoll: version,
            command,
            made,
            backup: DrilledBackup {
                path: source.path.display().to_string(),
                kind: source.kind,
                form: source.form.recorded(),
                packing: source.form.packing().map(str::to_owned),
                chain: source.form.members().iter().map(member_record).collect(),
                major: source.major,
                system_identifier: control.map(|control| control.system_identifier.to_string()),
                checksums: control.map(|control| control.checksum_version == 1),
                bytes: self.layout.bytes,
                tablespaces: self.layout.tablespaces.clone(),
            },
            server: self.options.installation.version.to_string(),
            until: self.options.target.to_string(),
            outcome: verdicts::together([pages.verdict, wal.verdict, start.verdict]),
            disk: self.disk,
            pages,
            wal,
            start,
            notes,
        }
    }

    fn wal_record(&self, staged: &Staged, restored: Option<&Restored>) -> DrillWal {
        let Some((choice, _)) = &self.wal else {
            return DrillWal {
                verdict: DrillVerdict::Unknown,
                reason: "global/pg_control, which says how WAL is laid out, cannot be read".into(),
                seconds: 0.0,
                sources: Vec::new(),
                timeline: None,
                start: None,
                stop: None,
                read_to: None,
                segments: 0,
                made_tablespaces: Vec::new(),
            };
        };
        let not_copied = CopiedWal::default();
        let wal = restored.map_or(&not_copied, |restored| &restored.wal);
        let (verdict, reason) = match staged.failure {
            Some(_) => verdicts::unknown("not read: the backups cannot be combined"),
            None => verdicts::of_wal(choice, wal, self.source.kind, self.options.target),
        };
        let start = Some(choice.start)
            .filter(|start| start.0 > 0 && self.source.kind != DrilledKind::WithoutLabel);
        DrillWal {
            verdict,
            reason,
            seconds: restored.map_or(0.0, |restored| restored.wal_seconds),
            sources: choice.sources.clone(),
            timeline: Some(choice.timeline),
            start,
            stop: choice.stop.or(wal.backup_end),
            read_to: wal.to,
            segments: wal.copied,
            made_tablespaces: restored
                .map_or(Vec::new(), |restored| restored.made_tablespaces.clone()),
        }
    }
}

fn member_record(source: &DrillSource) -> DrilledMember {
    DrilledMember {
        path: source.path.display().to_string(),
        form: source.form.recorded(),
        packing: source.form.packing().map(str::to_owned),
        start: source.start(),
        incremental_from: source.incremental_from(),
    }
}

fn start_record(restored: Option<&Restored>, unread: Option<&String>) -> DrillStart {
    let without = |(verdict, reason): Reasoned| DrillStart {
        verdict,
        reason,
        seconds: 0.0,
        copy_seconds: 0.0,
        recovered_to: None,
        last_words: None,
    };
    let Some(restored) = restored else {
        return without(match unread {
            Some(error) => (DrillVerdict::Failed, format!("no server starts on it: {error}")),
            None => (DrillVerdict::Unknown, NOT_TRIED.to_owned()),
        });
    };
    DrillStart {
        seconds: restored.start_seconds,
        copy_seconds: restored.copy_seconds,
        recovered_to: redo_end(&restored.log),
        last_words: match &restored.end {
            StartEnd::Serves => None,
            StartEnd::Ended { last_words, .. } | StartEnd::Stalled { last_words } => {
                Some(last_words.clone())
            }
        },
        ..without(verdicts::of_start(&restored.end, restored.stop_error.as_deref()))
    }
}

/// Why a base backup without its label is not started.
const NOT_TRIED: &str =
    "not tried: a server that finds no backup_label begins recovery at the wrong place";

fn pages_record(
    plan: &DrillPlan,
    staged: Staged,
    backup: VerifiedBackup,
    restored: Option<Restored>,
) -> DrillPages {
    let Staged { members, members_seconds, findings: unpacked, .. } = staged;
    let mut findings = plan.source.form.findings();
    findings.extend(unpacked);
    findings.extend(verdicts::missing_tablespaces(&plan.layout.tablespaces));
    let VerifiedBackup { files: backup, seconds: backup_seconds } = backup;
    let (files, read) = restored
        .as_ref()
        .map_or((None, None), |restored| (restored.files.as_ref(), restored.read.as_ref()));
    let (verdict, reason) = verdicts::of_pages(&members, &backup, &findings, files, read);
    let seconds = members_seconds
        + backup_seconds
        + restored.as_ref().map_or(0.0, |restored| restored.pages_seconds);
    let (files, read) = restored.map_or((None, None), |restored| (restored.files, restored.read));
    let read = read.unwrap_or_default();
    findings.extend(read.findings);
    DrillPages {
        verdict,
        reason,
        seconds,
        members,
        backup: backup.ok(),
        restored: files.map(|record| in_words_of_backup(record, &plan.source.path)),
        databases: read.databases,
        findings,
        more_findings: read.more_findings,
    }
}

/// The restored cluster is gone by then: nothing is to be done there.
fn in_words_of_backup(mut record: VerificationRecord, backup: &Path) -> VerificationRecord {
    record.source.path = format!("restored from {}", backup.display());
    record.names = record.names.map(|_| "the restored catalogs".to_owned());
    for relation in &mut record.relations {
        relation.advice.clear();
        "the backup restores it so: take another one".clone_into(&mut relation.remedy);
    }
    record
}
