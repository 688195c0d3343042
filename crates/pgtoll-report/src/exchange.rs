//! The exchange rate of durability as text: what commits cost, beside what is lost without.

use std::fmt::Write as _;

use pgtoll_record::{ExchangeCase, ExchangeRecord, Interval, SynchronousCommit};

use crate::text::{Block, aligned, wrapped};
use crate::wal_numbers::{count, counted};

/// The answer, a table for each delay, and how it was found.
pub fn exchange_text(of: &ExchangeRecord) -> String {
    let mut text = wrapped("", &subject_words(of));
    text.push('\n');
    for sentence in answer(of) {
        text.push_str(&wrapped("", &sentence));
    }
    let rows = rows(of);
    if !rows.is_empty() {
        let mut blocks: Vec<Block> = Vec::new();
        for row in &rows {
            let title = delay_words(row.delay_ms);
            match blocks.last_mut() {
                Some((last, cells)) if *last == title => cells.push(row.cells()),
                _ => blocks.push((title, vec![row.cells()])),
            }
        }
        text.push('\n');
        text.push_str(&aligned(vec![HEAD.map(str::to_owned).to_vec()], blocks));
    }
    text.push('\n');
    for finding in exchange_findings(of) {
        text.push_str(&wrapped("finding: ", &finding));
    }
    for note in &of.notes {
        text.push_str(&wrapped("note: ", note));
    }
    text
}

/// The table's columns.
pub(crate) const HEAD: [&str; 8] =
    ["synchronous_commit", "commits/s", "±", "p50 ms", "p99 ms", "lost", "expected", "outage"];

/// All repetitions of a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExchangeRow {
    pub(crate) commit: SynchronousCommit,
    pub(crate) delay_ms: f64,
    /// The mean of repetitions; from the lowest bound to the highest.
    pub(crate) commits_per_second: Interval,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// The most of a repetition, and the least.
    pub(crate) lost: Option<(u64, u64)>,
    /// What is under way: the rate of commits times the delay, and nothing where they wait for the
    /// standby. `None` where commits do not wait for the primary's disk either.
    expected: Option<f64>,
    /// The longest of a repetition.
    outage_s: Option<f64>,
}

impl ExchangeRow {
    fn of(cases: &[&ExchangeCase]) -> Option<Self> {
        let first = cases.first()?;
        let rates = || cases.iter().map(|case| case.transactions_per_second);
        let lost: Option<Vec<u64>> = cases.iter().map(|case| case.lost).collect();
        let most = |value: fn(&ExchangeCase) -> Option<f64>| {
            cases.iter().filter_map(|case| value(case)).reduce(f64::max)
        };
        let number = f64::from(u32::try_from(cases.len()).unwrap_or(u32::MAX));
        Some(Self {
            commit: first.commit,
            delay_ms: first.delay_ms,
            commits_per_second: Interval {
                estimate: rates().map(|rate| rate.estimate).sum::<f64>() / number,
                lower: rates().map(|rate| rate.lower).fold(f64::INFINITY, f64::min),
                upper: rates().map(|rate| rate.upper).fold(0.0, f64::max),
            },
            p50_ms: most(|case| case.p50_ms),
            p99_ms: most(|case| case.p99_ms),
            lost: lost.and_then(|lost| Some((*lost.iter().max()?, *lost.iter().min()?))),
            expected: match first.commit {
                SynchronousCommit::Off => None,
                SynchronousCommit::Local => {
                    let rate = cases.iter().map(|case| case.judged_rate).sum::<f64>() / number;
                    Some(rate * first.delay_ms / 1e3)
                }
                _ => Some(0.0),
            },
            outage_s: most(|case| case.outage_s),
        })
    }

    /// As in [`HEAD`].
    pub(crate) fn cells(&self) -> Vec<String> {
        let rate = self.commits_per_second;
        vec![
            self.commit.name().to_owned(),
            format!("{:.0}", rate.estimate),
            format!("{:.0} %", (rate.upper - rate.lower) / 2.0 / rate.estimate * 100.0),
            milliseconds(self.p50_ms),
            milliseconds(self.p99_ms),
            self.lost_words(),
            self.expected.map_or_else(|| "-".to_owned(), |expected| format!("{expected:.0}")),
            self.outage_s.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2} s")),
        ]
    }

    fn lost_words(&self) -> String {
        match self.lost {
            None => "unknown".to_owned(),
            Some((most, least)) if most == least => count(most),
            Some((most, least)) => format!("{} to {}", count(least), count(most)),
        }
    }
}

/// A row for each delay and value, in this order.
pub(crate) fn rows(of: &ExchangeRecord) -> Vec<ExchangeRow> {
    let mut delays: Vec<f64> = of.cases.iter().map(|case| case.delay_ms).collect();
    delays.sort_by(f64::total_cmp);
    delays.dedup();
    let row = |delay: f64, commit: SynchronousCommit| {
        let is_own =
            |case: &&ExchangeCase| case.commit == commit && case.delay_ms.total_cmp(&delay).is_eq();
        ExchangeRow::of(&of.cases.iter().filter(is_own).collect::<Vec<_>>())
    };
    let all = delays.iter().flat_map(|delay| SynchronousCommit::ALL.map(|commit| (*delay, commit)));
    all.filter_map(|(delay, commit)| row(delay, commit)).collect()
}

/// What a manager reads: at each delay, what waiting for the standby costs and saves.
pub(crate) fn answer(of: &ExchangeRecord) -> Vec<String> {
    let rows = rows(of);
    let mut delays: Vec<f64> = rows.iter().map(|row| row.delay_ms).collect();
    delays.dedup();
    let sentence = |delay: &f64| {
        let find = |commit: SynchronousCommit| {
            rows.iter().find(|row| row.commit == commit && row.delay_ms.total_cmp(delay).is_eq())
        };
        let (without, with) = (find(SynchronousCommit::Local)?, find(SynchronousCommit::On)?);
        let (lost, _) = without.lost?;
        let (lost_with, _) = with.lost?;
        let change = with.commits_per_second.estimate / without.commits_per_second.estimate - 1.0;
        Some(format!(
            "{}: waiting for the standby (on instead of local) changes the rate of \
             {} by {:+.0} %; when the primary's host died {} lost without and {} with it.",
            delay_words(*delay),
            counted(u64::from(of.design.clients), "client", "clients"),
            change * 100.0,
            was(lost),
            count(lost_with),
        ))
    };
    delays.iter().filter_map(sentence).collect()
}

fn was(lost: u64) -> String {
    if lost == 1 {
        "1 acknowledged commit was".to_owned()
    } else {
        format!("{} acknowledged commits were", count(lost))
    }
}

pub(crate) fn subject_words(of: &ExchangeRecord) -> String {
    let cases = counted(of.cases.len() as u64, "case", "cases");
    let mut words = format!(
        "{}, a primary and a standby, {}: {cases}.",
        of.server,
        counted(u64::from(of.design.clients), "client", "clients"),
    );
    if let Some(ended) = &of.ended {
        let _ = write!(words, " Ended early: {ended}.");
    }
    words
}

/// What is against servers, or against pgtoll.
pub fn exchange_findings(of: &ExchangeRecord) -> Vec<String> {
    let mut findings = Vec::new();
    for case in &of.cases {
        let place = format!("{}, {}", case.commit.name(), delay_words(case.delay_ms));
        if case.commit.is_remote() && case.lost.is_some_and(|lost| lost > 0) {
            let lost = case.lost.unwrap_or_default();
            findings.push(format!("{place}: {} lost although it waits for the standby", was(lost)));
        }
        if let Some(impossible) = case.impossible.filter(|impossible| *impossible > 0) {
            findings.push(format!("{place}: {impossible} rows that no client committed"));
        }
    }
    findings
}

pub(crate) fn delay_words(delay_ms: f64) -> String {
    if delay_ms == 0.0 {
        "WAL without delay".to_owned()
    } else {
        format!("WAL {delay_ms} ms under way to the standby")
    }
}

fn milliseconds(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pgtoll lab exchange --quick --postgres 18`, as it was.
    fn record() -> ExchangeRecord {
        serde_json::from_str(include_str!("../../../records/2026-11-23-exchange.json")).unwrap()
    }

    #[test]
    fn cost_and_loss_stand_side_by_side_in_80_columns() {
        let text = exchange_text(&record());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_loss_of_what_was_waited_for_is_a_finding() {
        let mut record = record();
        assert!(exchange_findings(&record).is_empty());
        let case = record.cases.iter_mut().find(|case| case.commit == SynchronousCommit::On);
        case.unwrap().lost = Some(2);
        record.cases[0].impossible = Some(1);
        let findings = exchange_findings(&record);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
}
