//! The conclusion about a server's safeties.

use super::{Conclusion, Finding, FindingCode, PrintedRecord};
use crate::{
    CHECKUP_CHANGE_SCHEMA, CHECKUP_SCHEMA, CheckupChange, CheckupRecord, Safety, SafetyRow,
    SafetyState,
};

impl PrintedRecord for CheckupRecord {
    const SCHEMA: &'static str = CHECKUP_SCHEMA;
    const TITLE: &'static str = "a record of checkup";

    /// A missing safety is a finding; an unknown one, or a watch that ended early, leaves the rest open.
    fn conclusion(&self) -> Conclusion {
        let missing = self.rows.iter().filter(|row| row.state == SafetyState::Missing);
        let findings = missing.map(finding).collect();
        let is_known = self.rows.iter().all(|row| row.state != SafetyState::Unknown);
        let is_complete = self.watch.looks > 0 && self.watch.ended.is_none();
        Conclusion::of_findings(findings, is_known && is_complete)
    }
}

impl PrintedRecord for CheckupChange {
    const SCHEMA: &'static str = CHECKUP_CHANGE_SCHEMA;
    const TITLE: &'static str = "two records of checkup";

    /// That of the second: it is the server as it is.
    fn conclusion(&self) -> Conclusion {
        self.after.conclusion()
    }
}

fn finding(row: &SafetyRow) -> Finding {
    let title = row.safety.title();
    let sentence = format!("{title}: {}", row.now);
    Finding { advice: row.advice.clone(), ..Finding::new(code(row.safety), title, sentence) }
}

const fn code(safety: Safety) -> FindingCode {
    match safety {
        Safety::Fsync => FindingCode::DurabilityFsync,
        Safety::FullPageWrites => FindingCode::DurabilityTornPages,
        Safety::DataChecksums => FindingCode::IntegrityChecksumsOff,
        Safety::ChecksumFailures => FindingCode::IntegrityChecksumFailures,
        Safety::SynchronousCommit => FindingCode::DurabilitySynchronousCommit,
        Safety::Standbys => FindingCode::DurabilityLossWindow,
        Safety::HintBits => FindingCode::FailoverRewind,
        Safety::Slots => FindingCode::SpaceSlots,
        Safety::Archive => FindingCode::BackupArchive,
        Safety::Checkpoints => FindingCode::RecoveryTime,
        Safety::Wraparound => FindingCode::WritesWraparound,
        Safety::Autovacuum => FindingCode::WritesAutovacuum,
    }
}
