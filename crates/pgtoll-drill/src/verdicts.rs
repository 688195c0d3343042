//! The three verdicts, from the facts.

use pgtoll_record::{
    DrillCheck, DrillFinding, DrillVerdict, DrilledKind, DrilledTablespace, VerificationOutcome,
    VerificationRecord,
};
use pgtoll_wal::WalBound;

use crate::chain::CopiedWal;
use crate::choice::WalChoice;
use crate::reading::ReadDatabases;
use crate::startup::StartEnd;
use crate::target::DrillTarget;

/// A verdict, and why.
pub(crate) type Reasoned = (DrillVerdict, String);

fn failed(reason: impl Into<String>) -> Reasoned {
    (DrillVerdict::Failed, reason.into())
}

pub(crate) fn unknown(reason: impl Into<String>) -> Reasoned {
    (DrillVerdict::Unknown, reason.into())
}

/// Whether the WAL is there that recovery to the target needs.
pub(crate) fn of_wal(
    choice: &WalChoice,
    wal: &CopiedWal,
    kind: DrilledKind,
    target: DrillTarget,
) -> Reasoned {
    if kind == DrilledKind::WithoutLabel {
        return failed("backup_label is missing: it says where recovery begins");
    }
    if choice.start.0 == 0 {
        return failed("backup_label does not say where recovery begins");
    }
    let missing = choice.missing.as_ref().map(|name| format!("segment {name} is missing"));
    let unreadable = choice.unreadable.clone();
    let broken = wal.defect.clone().or_else(|| wal.ended.clone()).or(unreadable).or(missing);
    let why = |reason: &str| match &broken {
        Some(broken) => format!("{broken}; {reason}"),
        None => reason.to_owned(),
    };
    let start = choice.start;
    let (Some(from), Some(to)) = (wal.from, wal.to) else {
        let reason = if choice.sources.is_empty() && choice.unreadable.is_none() {
            "the backup has no WAL, and --wal names none".to_owned()
        } else {
            why(&format!("nothing could be read from {start} on"))
        };
        return failed(reason);
    };
    if from > start {
        return failed(why(&format!("it begins at {from}, and recovery at {start}")));
    }
    match choice.stop.or(wal.backup_end) {
        None => {
            return failed(why(&format!("it ends at {to} and does not say where the backup ends")));
        }
        Some(stop) if to < stop => {
            return failed(why(&format!("it is whole up to {to}, and the backup ends at {stop}")));
        }
        Some(_) => {}
    }
    match target {
        DrillTarget::Bound(WalBound::Lsn(lsn)) if to < lsn => {
            failed(why(&format!("it ends at {to}, before the target {lsn}")))
        }
        DrillTarget::Latest | DrillTarget::Bound(_) if broken.is_some() => {
            failed(why(&format!("what follows {to} cannot be replayed")))
        }
        _ => (DrillVerdict::Passed, format!("whole from {start} to {to}")),
    }
}

/// Whether the server started.
pub(crate) fn of_start(end: &StartEnd, stopped: Option<&str>) -> Reasoned {
    match (end, stopped) {
        (StartEnd::Serves, None) => {
            (DrillVerdict::Passed, "it recovered, served and stopped".into())
        }
        (StartEnd::Serves, Some(error)) => {
            failed(format!("it recovered, and did not stop: {error}"))
        }
        (StartEnd::Ended { status, last_words }, _) => {
            failed(format!("the server ended ({status}): {last_words}"))
        }
        (StartEnd::Stalled { last_words }, _) => {
            failed(format!("the server does not get on: {last_words}"))
        }
    }
}

/// Tablespaces that the backup should have.
pub(crate) fn missing_tablespaces(tablespaces: &[DrilledTablespace]) -> Vec<DrillFinding> {
    let missing = tablespaces.iter().filter(|tablespace| tablespace.path.is_none());
    let finding = |tablespace: &DrilledTablespace| DrillFinding {
        database: None,
        relation: None,
        check: DrillCheck::Tablespace,
        is_damage: true,
        words: format!("the files of tablespace {} are missing", tablespace.oid),
        sqlstate: None,
    };
    missing.map(finding).collect()
}

/// Whether the pages are sound and all could be read. `members` are the backups of a chain, and the error of
/// `backup` is why its files were not verified; `before` was found before a server recovered it; `restored` and `read` are `None` where none
/// did.
pub(crate) fn of_pages(
    members: &[VerificationRecord],
    backup: &Result<VerificationRecord, String>,
    before: &[DrillFinding],
    restored: Option<&VerificationRecord>,
    read: Option<&ReadDatabases>,
) -> Reasoned {
    let has = |record: Option<&VerificationRecord>, outcome| {
        record.is_some_and(|record| record.outcome == outcome)
    };
    let findings = read.map_or(&[][..], |read| &read.findings);
    let of_tars = |finding: &&DrillFinding| finding.check == DrillCheck::Tar;
    let of_files = |finding: &&DrillFinding| finding.check == DrillCheck::Repository;
    let damage = |finding: &&DrillFinding| finding.is_damage;
    let in_tars = before.iter().filter(of_tars).filter(damage).count();
    let in_files = before.iter().filter(of_files).filter(damage).count();
    let missing = before.iter().filter(|before| !of_tars(before) && !of_files(before)).count();
    let damage = findings.iter().filter(damage).count() + missing;
    let more = read.map_or(0, |read| read.more_findings);
    let mut wrong = Vec::new();
    if in_tars > 0 {
        wrong.push("the tars are damaged, or hold what no server's backup has".to_owned());
    }
    match in_files {
        0 => {}
        1 => wrong.push("1 finding in the repository".to_owned()),
        count => wrong.push(format!("{count} findings in the repository")),
    }
    if members.iter().any(|member| has(Some(member), VerificationOutcome::Findings)) {
        wrong.push("files of a backup in the chain are damaged".to_owned());
    }
    if has(backup.as_ref().ok(), VerificationOutcome::Findings) {
        wrong.push("files of the backup are damaged".to_owned());
    }
    if has(restored, VerificationOutcome::Findings) {
        wrong.push("files of the restored cluster are damaged".to_owned());
    }
    if damage > 0 {
        let more = if more > 0 { " and more" } else { "" };
        wrong.push(match damage {
            1 => format!("1 finding{more} of the restored server"),
            damage => format!("{damage} findings{more} of the restored server"),
        });
    }
    if !wrong.is_empty() {
        return failed(wrong.join("; "));
    }
    match (backup, restored, read) {
        (Err(error), ..) => unknown(format!("the files of the backup were not verified: {error}")),
        (_, None, _) | (.., None) => {
            unknown("no server recovered the backup: only its files were verified")
        }
        (Ok(_), Some(_), Some(read))
            if has(backup.as_ref().ok(), VerificationOutcome::Unverified)
                || members
                    .iter()
                    .any(|member| has(Some(member), VerificationOutcome::Unverified))
                || has(restored, VerificationOutcome::Unverified)
                || !read.findings.is_empty()
                || !before.is_empty() =>
        {
            unknown("not all could be read")
        }
        (Ok(_), Some(_), Some(_)) => {
            (DrillVerdict::Passed, "every page is sound, and every table was read".to_owned())
        }
    }
}

/// Returns the verdict of all three: failures weigh more than unknowns.
pub(crate) fn together(verdicts: [DrillVerdict; 3]) -> VerificationOutcome {
    if verdicts.contains(&DrillVerdict::Failed) {
        VerificationOutcome::Findings
    } else if verdicts.contains(&DrillVerdict::Unknown) {
        VerificationOutcome::Unverified
    } else {
        VerificationOutcome::Sound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_weighs_most() {
        use DrillVerdict::{Failed, Passed, Unknown};
        assert_eq!(together([Passed, Unknown, Failed]), VerificationOutcome::Findings);
        assert_eq!(together([Passed, Unknown, Passed]), VerificationOutcome::Unverified);
        assert_eq!(together([Passed; 3]), VerificationOutcome::Sound);
    }
}
