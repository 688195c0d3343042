//! The document of two checkups.

use pgtoll_record::{CheckupChange, CheckupRecord, Safety, SafetyRow, SafetyState, Spread};

use crate::document::{Block, Document, Section, Table};
use crate::prediction_numbers::span;
use crate::records::{ReportedRecord, TableOptions};
use crate::wal_numbers::size_of;

impl ReportedRecord for CheckupChange {
    /// The safeties that changed, then the figures.
    fn document(&self, _: &TableOptions) -> Document {
        let changed: Vec<Change<'_>> = self.changes().filter(Change::is_one).collect();
        let mut document = Document {
            command: "pgtoll report",
            question: "What changed between two checkups?",
            subject: format!("{} and {}", subject(&self.before), subject(&self.after)),
            answer: vec![answer(&changed)],
            ..Document::default()
        };
        let head = ["safety", "state before", "after", "before", "after"];
        let rows: Vec<Vec<String>> = changed.iter().map(Change::cells).collect();
        if !rows.is_empty() {
            let table = Table::with_prose(&head, rows);
            document.push(Section::detail("Safeties that changed", vec![Block::Table(table)]));
        }
        let table = Table::new(&["figure", "before", "after"], figures(self));
        document.push(Section::detail("Figures", vec![Block::Table(table)]));
        document
    }
}

/// A safety's row in both; `None` where it did not apply.
struct Change<'a> {
    safety: Safety,
    before: Option<&'a SafetyRow>,
    after: Option<&'a SafetyRow>,
}

trait Changes {
    fn changes(&self) -> impl Iterator<Item = Change<'_>>;
}

impl Changes for CheckupChange {
    fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        Safety::ALL.into_iter().map(|safety| Change {
            safety,
            before: self.before.row(safety),
            after: self.after.row(safety),
        })
    }
}

impl Change<'_> {
    /// Another state, or another advice: ages and sizes differ at every look.
    fn is_one(&self) -> bool {
        let compared = |row: Option<&SafetyRow>| row.map(|row| (row.state, row.advice.clone()));
        compared(self.before) != compared(self.after)
    }

    /// Held or not there: nothing to do.
    fn is_open(row: Option<&SafetyRow>) -> bool {
        row.is_some_and(|row| row.state != SafetyState::Held)
    }

    fn cells(&self) -> Vec<String> {
        let state = |row: Option<&SafetyRow>| row.map_or("-", |row| row.state.word()).to_owned();
        let now = |row: Option<&SafetyRow>| row.map_or("", |row| &row.now).to_owned();
        let title = self.safety.title().to_owned();
        vec![title, state(self.before), state(self.after), now(self.before), now(self.after)]
    }
}

fn answer(changed: &[Change<'_>]) -> String {
    let titles = |is: fn(&Change<'_>) -> bool| {
        let found = changed.iter().filter(|change| is(change));
        found.map(|change| change.safety.title()).collect::<Vec<_>>().join(", ")
    };
    let closed = titles(|change| Change::is_open(change.before) && !Change::is_open(change.after));
    let opened = titles(|change| !Change::is_open(change.before) && Change::is_open(change.after));
    match (closed.is_empty(), opened.is_empty()) {
        (true, true) if changed.is_empty() => "No safety changed its state.".to_owned(),
        (true, true) => "Safeties changed; none was closed or lost.".to_owned(),
        (false, true) => format!("Now held: {closed}."),
        (true, false) => format!("No longer held: {opened}."),
        (false, false) => format!("Now held: {closed}. No longer held: {opened}."),
    }
}

fn subject(checkup: &CheckupRecord) -> String {
    let began = checkup.watch.began.get(..16).unwrap_or_default().replace('T', " ");
    format!("{} at {began}, watched for {}", checkup.server.host, span(checkup.watch.seconds))
}

fn figures(change: &CheckupChange) -> Vec<Vec<String>> {
    let both = |title: &str, figure: &dyn Fn(&CheckupRecord) -> Option<String>| {
        let [before, after] = [&change.before, &change.after]
            .map(|checkup| figure(checkup).unwrap_or_else(|| "-".to_owned()));
        vec![title.to_owned(), before, after]
    };
    let spread = |spread: Spread| format!("{:.0} (95 %: {:.0})", spread.median, spread.p95);
    let host = |checkup: &CheckupRecord| Some(spread(checkup.loss.as_ref()?.host?.confirmed));
    let crash = |checkup: &CheckupRecord| Some(spread(checkup.loss.as_ref()?.crash));
    let recovery = |checkup: &CheckupRecord| {
        let range = checkup.recovery.as_ref()?.median_s;
        Some(format!("{} to {}", span(range.lower), span(range.upper)))
    };
    let worst = |checkup: &CheckupRecord| Some(span(checkup.recovery.as_ref()?.most_s.upper));
    let writes = |checkup: &CheckupRecord| Some(format!("{:.0}", checkup.watch.writes_per_second));
    let wal = |checkup: &CheckupRecord| Some(size_of(checkup.watch.wal_bytes_per_second));
    vec![
        both("commits lost with the host, median", &host),
        both("commits not flushed, median", &crash),
        both("recovery from a crash", &recovery),
        both("at the worst moment, at most", &worst),
        both("writing transactions a second", &writes),
        both("WAL a second", &wal),
    ]
}

#[cfg(test)]
mod tests {
    use pgtoll_record::CheckupWatch;

    use super::*;
    use crate::FinishedRecord;
    use crate::Format;

    fn checkup(state: SafetyState, now: &str) -> CheckupRecord {
        let row = |safety, state, now: &str| SafetyRow {
            safety,
            state,
            now: now.to_owned(),
            buys: String::new(),
            costs: String::new(),
            advice: None,
            basis: String::new(),
        };
        CheckupRecord {
            rows: vec![
                row(Safety::Fsync, SafetyState::Held, "on"),
                row(Safety::DataChecksums, state, now),
            ],
            watch: CheckupWatch { writes_per_second: 12.0, ..CheckupWatch::default() },
            ..CheckupRecord::default()
        }
    }

    #[test]
    fn only_what_changed_is_shown() {
        let off = checkup(SafetyState::Missing, "off");
        let on = checkup(SafetyState::Held, "on");
        let shown = |before: &CheckupRecord, after: &CheckupRecord| {
            let change = CheckupChange::new(before.clone(), after.clone());
            FinishedRecord::new(change).shown(Format::Table, &TableOptions::default()).unwrap()
        };
        let text = shown(&off, &on);
        assert!(text.contains("Now held: data_checksums.") && !text.contains("fsync"), "{text}");
        assert!(shown(&on, &off).contains("No longer held: data_checksums."));
        assert!(shown(&on, &on).contains("No safety changed its state."));
    }
}
