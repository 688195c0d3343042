//! Conclusions about WAL, settings, machines and measurements.

use super::{Conclusion, Finding, FindingCode, PrintedRecord, Status, counted};
use crate::{
    CHECKSUMS_SCHEMA, CORRUPT_SCHEMA, ChecksumsRecord, CorruptRecord, EXAMINATION_SCHEMA,
    EXPERIMENTS_SCHEMA, EndStatus, Examination, ExperimentList, OVERVIEW_SCHEMA, Overview,
    OverviewExperiment, PLAN_SCHEMA, PREDICTION_SCHEMA, PlanRecord, PredictionRecord,
    RESULT_SCHEMA, ROLLING_SCHEMA, RollingNode, RollingOutcome, RollingRecord, RunResult,
    SIDE_BY_SIDE_SCHEMA, SideBySide, WAL_STATISTICS_SCHEMA, WAL_WHATIF_SCHEMA, WATCH_SCHEMA,
    WalStatisticsRecord, WalWhatIfRecord, WatchRecord,
};

impl PrintedRecord for WalStatisticsRecord {
    const SCHEMA: &'static str = WAL_STATISTICS_SCHEMA;
    const TITLE: &'static str = "a record of wal stats";

    fn conclusion(&self) -> Conclusion {
        Conclusion::without_findings(self.end.kind.is_whole() && self.source.gaps.is_empty())
    }
}

impl PrintedRecord for WalWhatIfRecord {
    const SCHEMA: &'static str = WAL_WHATIF_SCHEMA;
    const TITLE: &'static str = "a record of wal whatif";

    fn conclusion(&self) -> Conclusion {
        Conclusion::without_findings(self.end.kind.is_whole() && self.source.gaps.is_empty())
    }
}

impl PrintedRecord for ChecksumsRecord {
    const SCHEMA: &'static str = CHECKSUMS_SCHEMA;
    const TITLE: &'static str = "a record of enable or disable";

    fn conclusion(&self) -> Conclusion {
        let mut findings = Vec::new();
        if let Some(pages) = &self.pages {
            if pages.refused > 0 {
                let pages = counted(pages.refused, "page is damaged", "pages are damaged");
                findings.push(Finding::new(FindingCode::PageRefused, &*self.data, pages));
            }
            findings.extend(pages.cut_short.iter().map(|file| {
                let sentence = format!("{file}: the last page is incomplete");
                Finding::new(FindingCode::FileEndsInBlock, file.as_str(), sentence)
            }));
        }
        Conclusion::of_findings(findings, true)
    }
}

impl PrintedRecord for RollingRecord {
    const SCHEMA: &'static str = ROLLING_SCHEMA;
    const TITLE: &'static str = "a record of enable or disable over a replica set";

    fn conclusion(&self) -> Conclusion {
        let is_damaged =
            |node: &&RollingNode| node.verified == Some(false) || node.refused_pages > 0;
        let findings = self.nodes.iter().filter(is_damaged).map(|node| {
            let sentence = format!("{}: damaged pages", node.name);
            Finding::new(FindingCode::RollingDamaged, &*node.name, sentence)
        });
        let is_refused = self.objections.iter().any(|objection| objection.refuses);
        match self.outcome {
            RollingOutcome::Refused => Conclusion::without_findings(false),
            RollingOutcome::DryRun if is_refused => Conclusion::without_findings(false),
            _ => Conclusion::of_findings(findings.collect(), true),
        }
    }
}

impl PrintedRecord for CorruptRecord {
    const SCHEMA: &'static str = CORRUPT_SCHEMA;
    const TITLE: &'static str = "a record of corrupt";
}

impl PrintedRecord for Examination {
    const SCHEMA: &'static str = EXAMINATION_SCHEMA;
    const TITLE: &'static str = "a record of doctor";

    fn conclusion(&self) -> Conclusion {
        let findings = self.warnings().map(|check| {
            let sentence = format!("{}: {}", check.name, check.reading);
            let advice = check.advice.clone();
            Finding { advice, ..Finding::new(FindingCode::DoctorWarning, &*check.name, sentence) }
        });
        Conclusion::of_findings(findings.collect(), true)
    }
}

impl PrintedRecord for PredictionRecord {
    const SCHEMA: &'static str = PREDICTION_SCHEMA;
    const TITLE: &'static str = "a record of predict";

    fn conclusion(&self) -> Conclusion {
        Conclusion::without_findings(self.watch.complete && !self.watch.windows.is_empty())
    }
}

impl PrintedRecord for WatchRecord {
    const SCHEMA: &'static str = WATCH_SCHEMA;
    const TITLE: &'static str = "a record of lab watch";

    fn conclusion(&self) -> Conclusion {
        let mut findings = Vec::new();
        if self.failures > 0 || !self.pages.is_empty() {
            let failures = counted(self.failures, "checksum failure", "checksum failures");
            let pages = counted(self.pages.len() as u64, "page", "pages");
            let sentence = format!("the server counted {failures}; {pages} found");
            findings.push(Finding::new(FindingCode::WatchFailures, "", sentence));
        }
        let conclusion = Conclusion::of_findings(findings, self.looks > 0);
        // A command that was to act on them, and failed, is no answer.
        let has_acted = self.action.as_ref().is_some_and(|action| action.success);
        if self.action_requested && !has_acted && conclusion.status == Status::Finding {
            return Conclusion { status: Status::CouldNotTell, ..conclusion };
        }
        conclusion
    }
}

impl PrintedRecord for ExperimentList {
    const SCHEMA: &'static str = EXPERIMENTS_SCHEMA;
    const TITLE: &'static str = "the list of experiments";
}

impl PrintedRecord for PlanRecord {
    const SCHEMA: &'static str = PLAN_SCHEMA;
    const TITLE: &'static str = "a plan";
}

/// Thresholds of `--fail-if` are judged apart: they are the caller's.
impl PrintedRecord for RunResult {
    const SCHEMA: &'static str = RESULT_SCHEMA;
    const TITLE: &'static str = "a result";

    fn conclusion(&self) -> Conclusion {
        Conclusion::without_findings(self.complete)
    }
}

impl PrintedRecord for SideBySide {
    const SCHEMA: &'static str = SIDE_BY_SIDE_SCHEMA;
    const TITLE: &'static str = "a record of results side by side";
}

impl PrintedRecord for Overview {
    const SCHEMA: &'static str = OVERVIEW_SCHEMA;
    const TITLE: &'static str = "an overview";

    fn conclusion(&self) -> Conclusion {
        let is_done = |experiment: &OverviewExperiment| {
            experiment.skipped || experiment.status == EndStatus::Complete
        };
        Conclusion::without_findings(self.experiments.iter().all(is_done))
    }
}
