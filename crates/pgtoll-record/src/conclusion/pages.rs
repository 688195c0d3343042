//! Conclusions about pages and files: verifications, patrols, drills, repairs, fleets, single pages.

use super::{Conclusion, Finding, FindingCode, PrintedRecord, counted};
use crate::{
    DRILL_SCHEMA, DrillRecord, DrillVerdict, FLEET_PLAN_SCHEMA, FLEET_SCHEMA, FindingClass,
    FindingKind, FleetOutcome, FleetPlan, FleetRecord, PAGE_CHECKSUMS_SCHEMA,
    PAGE_DIFFERENCE_SCHEMA, PAGE_SCHEMA, PATROL_SCHEMA, PageChecksumsRecord, PageDifferenceRecord,
    PageFinding, PageRecord, PatrolRecord, REPAIR_SCHEMA, RepairOutcome, RepairRecord,
    VERIFICATION_SCHEMA, VerificationOutcome, VerificationRecord, VerifiedRelation,
    WalRelationName,
};

impl From<FindingKind> for FindingCode {
    fn from(kind: FindingKind) -> Self {
        match kind {
            FindingKind::Checksum => Self::PageChecksum,
            FindingKind::Header => Self::PageHeader,
            FindingKind::NotZero => Self::PageNotZero,
            FindingKind::MayBeTorn => Self::PageMayBeTorn,
            FindingKind::DamagedIncremental => Self::IncrementalDamaged,
            FindingKind::AheadOfWal => Self::PageAheadOfWal,
            FindingKind::ZeroButVisible => Self::PageZeroButVisible,
            FindingKind::MapStale => Self::MapStale,
            FindingKind::PageVisible => Self::PageVisible,
            FindingKind::ZeroFirst => Self::PageZeroFirst,
            FindingKind::EndsInBlock => Self::FileEndsInBlock,
            FindingKind::ShortFile => Self::FileShort,
            FindingKind::LongFile => Self::FileLong,
            FindingKind::MissingFile => Self::FileMissing,
            FindingKind::VisibleBeyondEnd => Self::FileVisibleBeyondEnd,
            FindingKind::NoFile => Self::RelationNoFile,
            FindingKind::EmptyFile => Self::FileEmpty,
            FindingKind::Unreadable => Self::PageUnreadable,
            FindingKind::Changed => Self::FileChanged,
            FindingKind::LostWrite => Self::PageLostWrite,
            FindingKind::ZeroButLogged => Self::PageZeroButLogged,
            FindingKind::MissingButLogged => Self::FileMissingButLogged,
            FindingKind::ZeroButLinked => Self::PageZeroButLinked,
            FindingKind::MissingButLinked => Self::FileMissingButLinked,
            FindingKind::ZeroButIndexed => Self::PageZeroButIndexed,
            FindingKind::MissingButIndexed => Self::FileMissingButIndexed,
            FindingKind::Unsettled => Self::PageUnsettled,
        }
    }
}

/// A relation's findings, one for each kind. Blocks that could not be told are no findings.
fn page_findings<'a>(
    relation: &str,
    pages: impl Iterator<Item = &'a PageFinding>,
    advice: Option<&String>,
) -> Vec<Finding> {
    let mut counts: Vec<(&PageFinding, u64)> = Vec::new();
    for page in pages.filter(|page| page.class != FindingClass::Unverified) {
        match counts.iter_mut().find(|(first, _)| first.kind == page.kind) {
            Some((_, blocks)) => *blocks = blocks.saturating_add(page.blocks.into()),
            None => counts.push((page, page.blocks.into())),
        }
    }
    let finding = |(first, blocks): (&PageFinding, u64)| {
        let blocks = counted(blocks, "block", "blocks");
        let sentence = format!("{relation}: {blocks}, the first {}: {}", first.block, first.words);
        let advice = advice.cloned();
        Finding { advice, ..Finding::new(first.kind.into(), relation, sentence) }
    };
    counts.into_iter().map(finding).collect()
}

fn relation_name(name: Option<&WalRelationName>, path: Option<&str>, fork: &str) -> String {
    let path = || path.unwrap_or("unknown file").to_owned();
    let named = name.map_or_else(path, ToString::to_string);
    if fork == "main" { named } else { format!("{named} ({fork})") }
}

impl PrintedRecord for VerificationRecord {
    const SCHEMA: &'static str = VERIFICATION_SCHEMA;
    const TITLE: &'static str = "a record of verify";

    fn conclusion(&self) -> Conclusion {
        let of_relation = |relation: &VerifiedRelation| {
            let name =
                relation_name(relation.name.as_ref(), relation.path.as_deref(), &relation.fork);
            let advice = relation.advice.iter().find_map(|advice| advice.command.as_ref());
            page_findings(&name, relation.findings.iter(), advice)
        };
        let mut findings: Vec<Finding> = self.relations.iter().flat_map(of_relation).collect();
        findings.extend(self.files.iter().map(|file| {
            let sentence = format!("{}: {}", file.path, file.words);
            Finding::new(FindingCode::FilesWrong, &*file.path, sentence)
        }));
        match self.outcome {
            VerificationOutcome::Findings => {
                Conclusion { status: super::Status::Finding, findings }
            }
            VerificationOutcome::Unverified => Conclusion::without_findings(false),
            VerificationOutcome::Sound | VerificationOutcome::NoDamageSeen => {
                // An interrupted run has read a part.
                Conclusion::without_findings(!self.interrupted)
            }
        }
    }
}

/// Several data directories or backups of one call.
impl PrintedRecord for Vec<VerificationRecord> {
    const SCHEMA: &'static str = VERIFICATION_SCHEMA;
    const TITLE: &'static str = VerificationRecord::TITLE;

    fn conclusion(&self) -> Conclusion {
        Conclusion::together(self.iter().map(PrintedRecord::conclusion))
    }
}

impl PrintedRecord for PatrolRecord {
    const SCHEMA: &'static str = PATROL_SCHEMA;
    const TITLE: &'static str = "the state of a patrol";

    fn conclusion(&self) -> Conclusion {
        let of_finding = |finding: &crate::PatrolFinding| {
            let name = relation_name(finding.name.as_ref(), Some(&finding.path), &finding.fork);
            page_findings(&name, std::iter::once(&finding.page), None)
        };
        let findings = self.findings.iter().flat_map(of_finding).collect();
        if self.failures > 0 || self.suspicions > 0 {
            return Conclusion { status: super::Status::Finding, findings };
        }
        Conclusion::without_findings(self.unverified == 0 && self.unlisted.is_empty())
    }
}

impl PrintedRecord for DrillRecord {
    const SCHEMA: &'static str = DRILL_SCHEMA;
    const TITLE: &'static str = "a record of verify --drill";

    fn conclusion(&self) -> Conclusion {
        let verdicts = [
            (FindingCode::DrillPages, self.pages.verdict, &self.pages.reason),
            (FindingCode::DrillWal, self.wal.verdict, &self.wal.reason),
            (FindingCode::DrillStart, self.start.verdict, &self.start.reason),
        ];
        let failed =
            verdicts.into_iter().filter(|(_, verdict, _)| *verdict == DrillVerdict::Failed);
        let findings =
            failed.map(|(code, _, reason)| Finding::new(code, &*self.backup.path, reason.as_str()));
        match self.outcome {
            VerificationOutcome::Findings => {
                Conclusion { status: super::Status::Finding, findings: findings.collect() }
            }
            outcome => Conclusion::without_findings(outcome != VerificationOutcome::Unverified),
        }
    }
}

impl PrintedRecord for RepairRecord {
    const SCHEMA: &'static str = REPAIR_SCHEMA;
    const TITLE: &'static str = "a record of repair";

    fn conclusion(&self) -> Conclusion {
        // Its pages are damaged as they were before.
        if self.outcome == RepairOutcome::Undone {
            return Conclusion::default();
        }
        let mut findings = Vec::new();
        if self.remaining > 0 {
            let blocks = counted(self.remaining, "damaged block remains", "damaged blocks remain");
            findings.push(Finding::new(FindingCode::RepairRemaining, &*self.data, blocks));
        }
        if self.has_other_damage {
            let sentence = "damage outside of blocks remains: see pgtoll verify";
            findings.push(Finding::new(FindingCode::FilesWrong, &*self.data, sentence));
        }
        Conclusion::of_findings(findings, !self.is_partial)
    }
}

/// The repairs of a ledger: the last one tells how the cluster is.
impl PrintedRecord for Vec<RepairRecord> {
    const SCHEMA: &'static str = REPAIR_SCHEMA;
    const TITLE: &'static str = RepairRecord::TITLE;

    fn conclusion(&self) -> Conclusion {
        self.last().map(PrintedRecord::conclusion).unwrap_or_default()
    }
}

impl PrintedRecord for FleetPlan {
    const SCHEMA: &'static str = FLEET_PLAN_SCHEMA;
    const TITLE: &'static str = "a plan of a fleet";
}

impl PrintedRecord for FleetRecord {
    const SCHEMA: &'static str = FLEET_SCHEMA;
    const TITLE: &'static str = "a record of fleet merge";

    fn conclusion(&self) -> Conclusion {
        let bad = self.backups.iter().filter(|backup| backup.outcome == FleetOutcome::Findings);
        let findings = bad.map(|backup| {
            let sentence = format!("{}: {}", backup.url, backup.reasons.join("; "));
            Finding::new(FindingCode::FleetBackup, &*backup.url, sentence)
        });
        let is_all_sound = self.sound > 0 && self.sound == self.backups.len() as u64;
        Conclusion::of_findings(findings.collect(), is_all_sound)
    }
}

impl PrintedRecord for PageRecord {
    const SCHEMA: &'static str = PAGE_SCHEMA;
    const TITLE: &'static str = "a record of page show";

    fn conclusion(&self) -> Conclusion {
        let sentence = format!("{} block {}: a server refuses the page", self.file, self.block);
        let finding = Finding::new(FindingCode::PageRefused, &*self.file, sentence);
        Conclusion::of_findings(if self.accepted { vec![] } else { vec![finding] }, true)
    }
}

impl PrintedRecord for PageChecksumsRecord {
    const SCHEMA: &'static str = PAGE_CHECKSUMS_SCHEMA;
    const TITLE: &'static str = "a record of page checksum";

    fn conclusion(&self) -> Conclusion {
        let refused = self.pages.iter().filter(|page| !page.accepted).count() as u64;
        let mut findings = Vec::new();
        if refused > 0 {
            let pages = counted(refused, "page is refused", "pages are refused");
            let sentence = format!("{}: {pages} by a server", self.file);
            findings.push(Finding::new(FindingCode::PageRefused, &*self.file, sentence));
        }
        if self.bytes_left > 0 {
            let bytes = counted(self.bytes_left, "byte", "bytes");
            let sentence = format!("{}: ends with {bytes} of a block", self.file);
            findings.push(Finding::new(FindingCode::FileEndsInBlock, &*self.file, sentence));
        }
        Conclusion::of_findings(findings, true)
    }
}

impl PrintedRecord for PageDifferenceRecord {
    const SCHEMA: &'static str = PAGE_DIFFERENCE_SCHEMA;
    const TITLE: &'static str = "a record of page diff";

    fn conclusion(&self) -> Conclusion {
        let bytes = counted(self.bytes as u64, "byte differs", "bytes differ");
        let finding = Finding::new(FindingCode::PageDiffers, &*self.files[1], bytes);
        Conclusion::of_findings(if self.bytes == 0 { vec![] } else { vec![finding] }, true)
    }
}
