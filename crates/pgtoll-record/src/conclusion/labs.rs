//! Conclusions of labs: what speaks against the servers, or against pgtoll.

use std::collections::BTreeMap;

use super::{Conclusion, Finding, FindingCode, PrintedRecord, counted};
use crate::{
    BALANCE_PRIMARY, BALANCE_SCHEMA, BRIDGE_SCHEMA, BalanceRecord, BalanceRoute, BalanceSplit,
    BridgeCheck, BridgeRecord, CORRUPTION_SCHEMA, CorruptionRecord, EXCHANGE_SCHEMA,
    ExchangeRecord, FAILOVER_SCHEMA, FailoverEngine, FailoverRecord, FailoverRun, JUDGE_SCHEMA,
    JudgeRecord, RowState,
};

impl PrintedRecord for JudgeRecord {
    const SCHEMA: &'static str = JUDGE_SCHEMA;
    const TITLE: &'static str = "a record of lab judge";

    fn conclusion(&self) -> Conclusion {
        let finding = |sentence: &String| {
            Finding::new(FindingCode::LabJudged, &*self.server.dsn, sentence.as_str())
        };
        let is_complete = self.verdict.is_some() && self.ended.is_none();
        Conclusion::of_findings(self.findings.iter().map(finding).collect(), is_complete)
    }
}

fn lost(count: u64) -> String {
    counted(count, "acknowledged transaction", "acknowledged transactions") + " lost"
}

impl PrintedRecord for ExchangeRecord {
    const SCHEMA: &'static str = EXCHANGE_SCHEMA;
    const TITLE: &'static str = "a record of lab exchange";

    fn conclusion(&self) -> Conclusion {
        let mut findings = Vec::new();
        for case in &self.cases {
            let subject = format!("{}, WAL delayed by {} ms", case.commit.name(), case.delay_ms);
            let mut add = |code, words: String| {
                findings.push(Finding::new(code, &*subject, format!("{subject}: {words}")));
            };
            let is_lost = |count: &u64| *count > 0 && case.commit.is_remote();
            if let Some(count) = case.lost.filter(is_lost) {
                let words = format!("{} although it waits for the standby", lost(count));
                add(FindingCode::LabAcknowledgedLost, words);
            }
            if let Some(count) = case.impossible.filter(|count| *count > 0) {
                add(FindingCode::LabImpossible, format!("{count} rows that no client committed"));
            }
        }
        Conclusion::of_findings(findings, self.complete)
    }
}

impl PrintedRecord for CorruptionRecord {
    const SCHEMA: &'static str = CORRUPTION_SCHEMA;
    const TITLE: &'static str = "a record of lab corruption";

    fn conclusion(&self) -> Conclusion {
        let mut findings = Vec::new();
        if self.spread.iter().any(|row| row.checksums && row.standby_after != RowState::Right) {
            let sentence = "the damage reached the standby although pages have checksums";
            findings.push(Finding::new(FindingCode::LabDamageSpread, "standby", sentence));
        }
        for failover in &self.failovers {
            let subject = format!("failover {}", failover.run);
            let mut add = |code, words: String| {
                findings.push(Finding::new(code, &*subject, format!("{subject}: {words}")));
            };
            if let Some(count) = failover.lost.filter(|count| *count > 0) {
                add(FindingCode::LabAcknowledgedLost, lost(count));
            }
            if let Some(count) = failover.impossible.filter(|count| *count > 0) {
                add(FindingCode::LabImpossible, format!("{count} rows that no client committed"));
            }
        }
        Conclusion::of_findings(findings, self.complete)
    }
}

impl PrintedRecord for BridgeRecord {
    const SCHEMA: &'static str = BRIDGE_SCHEMA;
    const TITLE: &'static str = "a record of lab bridge";

    fn conclusion(&self) -> Conclusion {
        let failed = self.steps.iter().flat_map(|step| {
            let failed = step.checks.iter().filter(|check| !check.holds);
            failed.map(|check: &BridgeCheck| {
                let subject = format!("{}, {}", step.name, check.subject);
                let sentence =
                    format!("{subject}: expected {}, found {}", check.expected, check.found);
                Finding::new(FindingCode::LabCheckFailed, subject, sentence)
            })
        });
        Conclusion::of_findings(failed.collect(), self.complete)
    }
}

impl PrintedRecord for BalanceRecord {
    const SCHEMA: &'static str = BALANCE_SCHEMA;
    const TITLE: &'static str = "a record of lab balance";

    fn conclusion(&self) -> Conclusion {
        let misrouted = self.routes.iter().filter(|route| !route.holds()).map(|route| {
            let error = route.first_error.iter().map(|error| format!(": {error}"));
            let sentence =
                format!("{}: {}{}", route.kind, route.went_to(), error.collect::<String>());
            Finding::new(FindingCode::LabMisrouted, &*route.kind, sentence)
        });
        let stale = self.freshness.iter().filter(|rung| rung.is_broken()).map(|rung| {
            let stale = rung.stale;
            let reads = rung.standby_reads;
            let although = match &rung.wait {
                Some(_) => "readers waited".to_owned(),
                None => format!("commits waited until {}", rung.rung),
            };
            let sentence = format!("{stale} of {reads} reads were stale although {although}");
            Finding::new(FindingCode::LabStaleRead, &*rung.rung, sentence)
        });
        let split = self.split.as_ref().and_then(split_finding);
        let refused = self.queue.as_ref().filter(|queue| queue.refused > 0).map(|queue| {
            let error = queue.first_error.as_deref().unwrap_or_default();
            let sentence = format!(
                "{} of {} clients beyond its room were refused: {error}",
                queue.refused, queue.more
            );
            Finding::new(FindingCode::LabRefusedClients, "balancer", sentence)
        });
        let findings = misrouted.chain(stale).chain(split).chain(refused).collect();
        Conclusion::of_findings(findings, self.complete)
    }
}

impl BalanceRoute {
    /// The servers that answered, with their counts, and errors.
    pub fn went_to(&self) -> String {
        let errors = (self.errors > 0).then(|| counted(self.errors, "error", "errors"));
        shares(&self.answers).into_iter().chain(errors).collect::<Vec<_>>().join(", ")
    }
}

fn shares(counts: &BTreeMap<String, u64>) -> Vec<String> {
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect()
}

/// An interval misses the truth once in twenty times; twice its width hardly ever.
fn split_finding(split: &BalanceSplit) -> Option<Finding> {
    let width = split.share.upper - split.share.lower;
    let is_far = (split.share.estimate - split.expected).abs() > width;
    let primary = split.sessions.get(BALANCE_PRIMARY).copied().unwrap_or_default();
    (is_far || primary > 0).then(|| {
        let sentence = format!(
            "sessions are not distributed by the weights: {}, expected {:.0} % each",
            shares(&split.sessions).join(", "),
            split.expected * 100.0
        );
        Finding::new(FindingCode::LabShares, "sessions", sentence)
    })
}

impl PrintedRecord for FailoverRecord {
    const SCHEMA: &'static str = FAILOVER_SCHEMA;
    const TITLE: &'static str = "a record of lab failover";

    /// One finding for the same in several runs of a case. Losses of commits that wait for no standby are what is
    /// measured, and no finding.
    fn conclusion(&self) -> Conclusion {
        let mut repeated: Vec<RepeatedFinding> = Vec::new();
        let mut runs_of = BTreeMap::new();
        let backs =
            self.runs.iter().filter_map(|run| run.back.as_deref().map(|back| (back, ", back")));
        for (run, back) in self.runs.iter().map(|run| (run, "")).chain(backs) {
            let case = format!("{}{back}, {}", run.fault.name(), setting_words(self, run));
            *runs_of.entry(case.clone()).or_insert(0_usize) += 1;
            for words in findings_of_run(run, self.design.synchronous) {
                match repeated.iter_mut().find(|found| found.case == case && found.words == words) {
                    Some(found) => found.runs.push(run.number),
                    None => repeated.push(RepeatedFinding {
                        case: case.clone(),
                        words,
                        runs: vec![run.number],
                    }),
                }
            }
        }
        let finding = |RepeatedFinding { case, words, runs }: RepeatedFinding| {
            let sentence = match &runs[..] {
                [number] => format!("{case}, run {number}: {words}"),
                _ => format!("{case}, {} of {} runs: {words}", runs.len(), runs_of[&case]),
            };
            Finding::new(FindingCode::LabFailover, case, sentence)
        };
        Conclusion::of_findings(repeated.into_iter().map(finding).collect(), self.is_whole())
    }
}

impl FailoverRecord {
    /// Whether every case was run to its end, and all losses are known.
    fn is_whole(&self) -> bool {
        self.complete
            && !self.runs.is_empty()
            && self.skipped.iter().all(|skipped| skipped.by_nature)
            && self.runs.iter().all(|run| run.lost.is_some())
    }

    /// Whether engines other than repmgr took part.
    pub fn has_engines(&self) -> bool {
        self.design.engines != [FailoverEngine::Repmgr]
    }
}

/// The engine of a run, where there are others than repmgr, and its settings.
fn setting_words(record: &FailoverRecord, run: &FailoverRun) -> String {
    match (run.engine, record.has_engines()) {
        (_, false) => run.detector.name().to_owned(),
        (FailoverEngine::None, _) => "no engine".to_owned(),
        (engine, true) => format!("{} {}", engine.name(), run.detector.name()),
    }
}

/// The same finding in some runs of a case.
struct RepeatedFinding {
    case: String,
    words: String,
    runs: Vec<u32>,
}

fn findings_of_run(run: &FailoverRun, synchronous: bool) -> Vec<String> {
    let is_expected =
        |finding: &str| !synchronous && run.after_successor == 0 && finding.ends_with("lost");
    let mut findings = run.findings.clone();
    findings.retain(|finding| !is_expected(finding));
    let third = run.third.as_ref().and_then(|third| third.rejoin.as_ref());
    if let Some(error) = third.and_then(|rejoin| rejoin.error.as_ref()) {
        findings.push(format!("return of the second standby: {error}"));
    }
    let Some(rejoin) = &run.rejoin else { return findings };
    if let Some(error) = &rejoin.error {
        findings.push(format!("rejoin: {error}"));
    }
    if let Some(unsound) = rejoin.unsound.filter(|unsound| *unsound > 0) {
        let pages = counted(unsound, "page", "pages");
        findings.push(format!("{pages} of the old primary unsound after pg_rewind"));
    }
    findings
}
