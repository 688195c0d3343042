//! Conclusions of replays.

use super::{Conclusion, Finding, FindingCode, PrintedRecord, counted};
use crate::{
    ArmReplay, LOG_EXAMINATION_SCHEMA, LogExamination, REPLAY_COMPARISON_SCHEMA, REPLAY_SCHEMA,
    ReplayComparison, ReplayDone, ReplayRecord, ShapeVerdict,
};

impl PrintedRecord for LogExamination {
    const SCHEMA: &'static str = LOG_EXAMINATION_SCHEMA;
    const TITLE: &'static str = "a record of replay doctor";

    fn conclusion(&self) -> Conclusion {
        Conclusion::without_findings(!self.is_partial)
    }
}

impl PrintedRecord for ReplayRecord {
    const SCHEMA: &'static str = REPLAY_SCHEMA;
    const TITLE: &'static str = "a record of replay run";

    fn conclusion(&self) -> Conclusion {
        // Nothing was to be replayed: a plan.
        let Some(done) = &self.done else { return Conclusion::default() };
        Conclusion::of_findings(replay_findings(self, done), self.complete)
    }
}

fn replay_findings(record: &ReplayRecord, done: &ReplayDone) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |code, subject: &str, count: u64, one: &str, many: &str| {
        if count > 0 {
            findings.push(Finding::new(code, subject, counted(count, one, many)));
        }
    };
    add(
        FindingCode::ReplayDiverged,
        "",
        done.unexpected_errors.saturating_add(done.missing_errors),
        "statement ended differently than recorded",
        "statements ended differently than recorded",
    );
    add(
        FindingCode::ReplayOrder,
        "",
        done.order_breaks,
        "statement ran in another order than recorded",
        "statements ran in another order than recorded",
    );
    let missing = if record.complete { done.missing() } else { 0 };
    add(
        FindingCode::ReplayMissing,
        "",
        missing,
        "statement of the log was not replayed",
        "statements of the log were not replayed",
    );
    for table in done.tables.iter().filter(|table| table.same == Some(false)) {
        let sentence = format!("table {} differs from what it should be", table.name);
        findings.push(Finding::new(FindingCode::ReplayTables, &*table.name, sentence));
    }
    findings
}

impl PrintedRecord for ReplayComparison {
    const SCHEMA: &'static str = REPLAY_COMPARISON_SCHEMA;
    const TITLE: &'static str = "a record of replay compare";

    fn conclusion(&self) -> Conclusion {
        let mut findings = Vec::new();
        for (shape, difference) in self.by_verdict(ShapeVerdict::Slower) {
            let change =
                difference.range.map_or_else(String::new, |range| format!(", {}", range.change()));
            let sentence = format!("slower on {}{change}: {}", difference.arm, shape.statement);
            findings.push(Finding::new(FindingCode::ReplaySlower, &*difference.arm, sentence));
        }
        for arm in &self.arms {
            let sum = |value: fn(&ArmReplay) -> u64| {
                arm.runs.iter().map(value).fold(0, u64::saturating_add)
            };
            let diverged = sum(|run| run.unexpected_errors.saturating_add(run.missing_errors));
            let breaks = sum(|run| run.order_breaks);
            if diverged > 0 {
                let statements = counted(diverged, "statement", "statements");
                let sentence =
                    format!("{statements} ended differently than recorded on {}", arm.name);
                findings.push(Finding::new(FindingCode::ReplayDiverged, &*arm.name, sentence));
            }
            if breaks > 0 {
                let times = counted(breaks, "time", "times");
                let sentence = format!("the order was broken {times} on {}", arm.name);
                findings.push(Finding::new(FindingCode::ReplayOrder, &*arm.name, sentence));
            }
        }
        Conclusion::of_findings(findings, self.complete)
    }
}
