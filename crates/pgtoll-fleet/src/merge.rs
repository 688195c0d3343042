//! The units' results put together. Only here is judged.

use std::collections::BTreeMap;

use pgtoll_record::{
    FLEET_SCHEMA, FleetBackup, FleetOutcome, FleetPart, FleetPlan, FleetRecord, FleetRefusal,
    FleetUnit, Provenance, VERIFICATION_SCHEMA, VerificationOutcome, VerificationRecord,
};
use pgtoll_store::StoreUrl;
use pgtoll_system::Interrupt;

use crate::error::FleetError;
use crate::shard::Results;

/// Puts the results of a plan together, the worst backups first. A unit without a result is unverified.
pub fn merge(
    plan: &FleetPlan,
    at: &StoreUrl,
    interrupt: &Interrupt,
    provenance: Provenance,
) -> Result<FleetRecord, FleetError> {
    let results = Results::beside(at, interrupt)?;
    // Parts of a backup together.
    let mut parts: BTreeMap<&str, Vec<BackupPart>> = BTreeMap::new();
    for unit in &plan.units {
        parts.entry(&unit.url).or_default().push(match results.read(&unit.id)? {
            Ok(record) if is_of(&record, unit) => verified(unit, &record),
            Ok(_) => missing(unit, Some(OTHER_RESULT.to_owned())),
            Err(reason) => missing(unit, reason),
        });
    }
    let mut backups: Vec<FleetBackup> = parts.into_values().filter_map(together).collect();
    backups.extend(plan.refused.iter().map(refused));
    backups.sort_by(|one, other| (one.outcome, &one.url).cmp(&(other.outcome, &other.url)));
    let count = |outcomes: &[FleetOutcome]| {
        backups.iter().filter(|backup| outcomes.contains(&backup.outcome)).count() as u64
    };
    let Provenance { version, command, made } = provenance;
    Ok(FleetRecord {
        schema: FLEET_SCHEMA.to_owned(),
        pgtoll: version,
        command,
        made,
        plan: at.to_string(),
        sound: count(&[FleetOutcome::Sound]),
        findings: count(&[FleetOutcome::Findings]),
        unverified: count(&[FleetOutcome::Unverified, FleetOutcome::Missing]),
        refused: count(&[FleetOutcome::Refused]),
        bytes: backups.iter().fold(0, |sum, backup| sum.saturating_add(backup.bytes)),
        backups,
    })
}

fn is_of(record: &VerificationRecord, unit: &FleetUnit) -> bool {
    record.schema == VERIFICATION_SCHEMA && record.source.path == unit.url && !record.interrupted
}

/// The result of a unit.
struct BackupPart {
    of: FleetBackup,
    part: Option<FleetPart>,
    /// A control file was read: whose cluster it is, is known.
    has_control: bool,
}

/// One answer about a backup: the worst of its parts, and the sum of their counts. Of parts that are all
/// sound one has the control file, or the backup is not complete.
fn together(parts: Vec<BackupPart>) -> Option<FleetBackup> {
    let all = parts.first()?.part.map_or(1, |part| part.count);
    let has_control = all == 1 || parts.iter().any(|part| part.has_control);
    let found = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let is_missing = |part: &&BackupPart| part.of.outcome == FleetOutcome::Missing;
    let missing = u32::try_from(parts.iter().filter(is_missing).count()).unwrap_or(u32::MAX);
    let mut backup = parts.into_iter().map(named).reduce(added)?;
    let mut about_all = Vec::new();
    if all > 1 && missing > 0 {
        about_all.push(format!("{missing} of {all} parts have no result"));
    }
    if found < all {
        about_all.push(format!("{} of {all} parts are not in the plan", all - found));
    }
    if backup.outcome == FleetOutcome::Sound && (found < all || !has_control) {
        backup.outcome = FleetOutcome::Unverified;
        about_all.extend((!has_control).then(|| NO_CONTROL.to_owned()));
    }
    backup.reasons.splice(0..0, about_all);
    if let Some(more) = backup.reasons.len().checked_sub(REASONS_MAX).filter(|more| *more > 0) {
        backup.reasons.truncate(REASONS_MAX);
        let words = format!("{more} more: its result beside the plan, in units/, has them all");
        backup.reasons.push(words);
    }
    Some(backup)
}

/// With the part's number in front of what was found there.
fn named(part: BackupPart) -> FleetBackup {
    let BackupPart { of: mut item, part, .. } = part;
    if let Some(FleetPart { number, count }) = part {
        for reason in &mut item.reasons {
            *reason = format!("part {number} of {count}: {reason}");
        }
    }
    item
}

fn added(sum: FleetBackup, backup: FleetBackup) -> FleetBackup {
    FleetBackup {
        outcome: sum.outcome.min(backup.outcome),
        // The part that was verified first: all others are younger.
        verified: match (sum.verified, backup.verified) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        },
        bytes: sum.bytes.saturating_add(backup.bytes),
        failures: sum.failures.saturating_add(backup.failures),
        suspicions: sum.suspicions.saturating_add(backup.suspicions),
        unverified: sum.unverified.saturating_add(backup.unverified),
        wrong_files: sum.wrong_files.saturating_add(backup.wrong_files),
        reasons: [sum.reasons, backup.reasons].concat(),
        ..sum
    }
}

fn verified(unit: &FleetUnit, verification: &VerificationRecord) -> BackupPart {
    let outcome = match verification.outcome {
        VerificationOutcome::Findings => FleetOutcome::Findings,
        VerificationOutcome::Unverified => FleetOutcome::Unverified,
        VerificationOutcome::Sound | VerificationOutcome::NoDamageSeen => FleetOutcome::Sound,
    };
    let mut reasons: Vec<String> = verification.incomplete.clone();
    reasons.extend(verification.unlisted.iter().cloned());
    reasons.extend(verification.relations.iter().map(|relation| {
        let name = relation.name.as_ref().map_or_else(
            || relation.path.clone().unwrap_or_else(|| relation.filenode.to_string()),
            |name| {
                let parts = [&*name.database, &*name.schema, &*name.relation];
                let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                parts.join(".")
            },
        );
        let blocks: Vec<String> =
            relation.findings.iter().take(3).map(|finding| finding.block.to_string()).collect();
        let more = if relation.findings.len() > 3 { " …" } else { "" };
        format!("{name}, blocks {}{more}: {}", blocks.join(", "), relation.remedy)
    }));
    let backup = FleetBackup {
        verified: Some(verification.made.clone()),
        bytes: verification.read.bytes,
        failures: verification.failures,
        suspicions: verification.suspicions,
        unverified: verification.unverified,
        wrong_files: verification.wrong_files,
        reasons,
        ..backup(unit, outcome)
    };
    BackupPart { of: backup, part: unit.part, has_control: verification.source.state != NO_STATE }
}

fn missing(unit: &FleetUnit, reason: Option<String>) -> BackupPart {
    let backup = FleetBackup {
        reasons: reason.into_iter().collect(),
        ..backup(unit, FleetOutcome::Missing)
    };
    BackupPart { of: backup, part: unit.part, has_control: false }
}

fn refused(refusal: &FleetRefusal) -> FleetBackup {
    FleetBackup {
        url: refusal.url.clone(),
        cluster: String::new(),
        backup: String::new(),
        outcome: FleetOutcome::Refused,
        verified: None,
        bytes: 0,
        failures: 0,
        suspicions: 0,
        unverified: 0,
        wrong_files: 0,
        reasons: vec![refusal.reason.clone()],
    }
}

fn backup(unit: &FleetUnit, outcome: FleetOutcome) -> FleetBackup {
    let FleetUnit { url, cluster, backup, .. } = unit.clone();
    let refusal = FleetRefusal { url, reason: String::new() };
    FleetBackup { cluster, backup, outcome, reasons: Vec::new(), ..refused(&refusal) }
}

const REASONS_MAX: usize = 10;
/// The state of a cluster whose control file was not read.
const NO_STATE: &str = "unknown";
const NO_CONTROL: &str =
    "no part has global/pg_control: this is not a base backup, or not all of it";
const OTHER_RESULT: &str =
    "its result is of another backup, of another version of pgtoll, or of a part";

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u32, outcome: FleetOutcome, has_control: bool) -> BackupPart {
        let refusal = FleetRefusal { url: "s3://b/1".to_owned(), reason: "why".to_owned() };
        let verified = (outcome != FleetOutcome::Missing).then(|| format!("2026-11-2{number}"));
        let backup = FleetBackup { outcome, verified, bytes: 10, failures: 1, ..refused(&refusal) };
        BackupPart { of: backup, part: Some(FleetPart { number, count: 3 }), has_control }
    }

    fn check(parts: [(FleetOutcome, bool); 3], outcome: FleetOutcome, first: &str) {
        let parts = (1..).zip(parts).map(|(number, (item, control))| part(number, item, control));
        let backup = together(parts.collect()).unwrap();
        assert_eq!((backup.outcome, backup.bytes, backup.failures), (outcome, 30, 3));
        assert_eq!(backup.reasons[0], first);
    }

    #[test]
    fn a_backup_is_what_its_worst_part_is() {
        use FleetOutcome::{Findings, Missing, Sound, Unverified};
        let item = "part 1 of 3: why";
        check([(Sound, false), (Sound, false), (Sound, true)], Sound, item);
        check(
            [(Sound, false), (Findings, false), (Missing, false)],
            Findings,
            "1 of 3 parts have no result",
        );
        check([(Sound, false), (Unverified, false), (Sound, true)], Unverified, item);
        check(
            [(Missing, false), (Sound, false), (Missing, true)],
            Missing,
            "2 of 3 parts have no result",
        );
        check([(Sound, false), (Sound, false), (Sound, false)], Unverified, NO_CONTROL);
    }

    #[test]
    fn the_oldest_verification_counts_and_a_part_that_is_not_planned_is_missed() {
        use FleetOutcome::Sound;
        let backup = together(vec![part(2, Sound, true), part(1, Sound, false)]).unwrap();
        assert_eq!(backup.verified.as_deref(), Some("2026-11-21"));
        assert_eq!(backup.outcome, FleetOutcome::Unverified);
        assert_eq!(backup.reasons[0], "1 of 3 parts are not in the plan");
        let mut whole = part(1, Sound, false);
        whole.part = None;
        assert_eq!(together(vec![whole]).unwrap().outcome, Sound);
    }
}
