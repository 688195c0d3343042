//! The units' results put together. Only here is judged.

use pgtoll_interrupt::Interrupt;
use pgtoll_record::{
    FLEET_SCHEMA, FleetBackup, FleetOutcome, FleetPlan, FleetRecord, FleetRefusal, FleetUnit,
    Provenance, VERIFICATION_SCHEMA, VerificationOutcome, VerificationRecord,
};
use pgtoll_store::StoreUrl;

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
    let mut backups = Vec::with_capacity(plan.units.len() + plan.refused.len());
    for unit in &plan.units {
        backups.push(match results.read(&unit.id)? {
            Ok(record) if is_of(&record, unit) => verified(unit, &record),
            Ok(_) => missing(unit, Some(OTHER_RESULT.to_owned())),
            Err(reason) => missing(unit, reason),
        });
    }
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
        bytes: backups.iter().map(|backup| backup.bytes).sum(),
        backups,
    })
}

/// What is said of all backups together: what is surely found weighs more than what is not known, and
/// sound is only what all are. Of no backup nothing is said.
pub fn fleet_outcome(record: &FleetRecord) -> VerificationOutcome {
    if record.findings > 0 {
        VerificationOutcome::Findings
    } else if record.sound > 0 && record.sound == record.backups.len() as u64 {
        VerificationOutcome::Sound
    } else {
        VerificationOutcome::Unverified
    }
}

fn is_of(record: &VerificationRecord, unit: &FleetUnit) -> bool {
    record.schema == VERIFICATION_SCHEMA && record.source.path == unit.url && !record.interrupted
}

fn verified(unit: &FleetUnit, of: &VerificationRecord) -> FleetBackup {
    let outcome = match of.outcome {
        VerificationOutcome::Findings => FleetOutcome::Findings,
        VerificationOutcome::Unverified => FleetOutcome::Unverified,
        VerificationOutcome::Sound => FleetOutcome::Sound,
    };
    let mut reasons: Vec<String> = of.incomplete.clone();
    reasons.extend(of.unlisted.iter().cloned());
    reasons.extend(of.relations.iter().map(|relation| {
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
    if let Some(more) = reasons.len().checked_sub(REASONS_MAX).filter(|more| *more > 0) {
        reasons.truncate(REASONS_MAX);
        reasons.push(format!("{more} more: its result beside the plan, in units/, has them all"));
    }
    FleetBackup {
        verified: Some(of.made.clone()),
        bytes: of.read.bytes,
        failures: of.failures,
        suspicions: of.suspicions,
        unverified: of.unverified,
        wrong_files: of.wrong_files,
        reasons,
        ..backup(unit, outcome)
    }
}

fn missing(unit: &FleetUnit, reason: Option<String>) -> FleetBackup {
    FleetBackup { reasons: reason.into_iter().collect(), ..backup(unit, FleetOutcome::Missing) }
}

fn refused(of: &FleetRefusal) -> FleetBackup {
    FleetBackup {
        url: of.url.clone(),
        cluster: String::new(),
        backup: String::new(),
        outcome: FleetOutcome::Refused,
        verified: None,
        bytes: 0,
        failures: 0,
        suspicions: 0,
        unverified: 0,
        wrong_files: 0,
        reasons: vec![of.reason.clone()],
    }
}

fn backup(unit: &FleetUnit, outcome: FleetOutcome) -> FleetBackup {
    let FleetUnit { url, cluster, backup, .. } = unit.clone();
    let refusal = FleetRefusal { url, reason: String::new() };
    FleetBackup { cluster, backup, outcome, reasons: Vec::new(), ..refused(&refusal) }
}

const REASONS_MAX: usize = 10;
const OTHER_RESULT: &str =
    "its result is of another backup, of another version of pgtoll, or of a part";
