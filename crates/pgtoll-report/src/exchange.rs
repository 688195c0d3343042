//! The exchange rate of durability: what commits cost, beside what is lost without.

use std::fmt::Write as _;

use maud::{Markup, html};
use pgtoll_record::{
    AddedLatency, ExchangeCase, ExchangeRecord, Interval, PrintedRecord as _, SynchronousCommit,
};

use crate::document::{Block, Document, Section, Table, settings};
use crate::plot::{Drawing, Frame, Look, Scale, Unit, Width, Words, figure, legend};
use crate::records::{ReportedRecord, TableOptions};
use crate::wal_numbers::{count, counted};

impl ReportedRecord for ExchangeRecord {
    /// The answer, a row for each delay and setting, and how it was found.
    fn document(&self, _: &TableOptions) -> Document {
        let rows = rows(self);
        let of_delay = |rows: &[ExchangeRow]| {
            let title = Block::Paragraph(delay_words(rows[0].delay_ms));
            let cells = rows.iter().map(ExchangeRow::cells).collect();
            [title, Block::Table(Table::new(&HEAD, cells))]
        };
        let is_same = |a: &ExchangeRow, b: &ExchangeRow| a.delay_ms.total_cmp(&b.delay_ms).is_eq();
        let cases: Vec<Block> = rows.chunk_by(is_same).flat_map(of_delay).collect();
        let how = vec![
            Block::Paragraph(format!(
                "In each case clients commit as fast as they can for {} s; then transactions fall due at half \
                 that rate for {} s, in the middle of which the primary's host dies and the standby is \
                 promoted. Lost is what was acknowledged and is not there in the end.",
                self.design.load_s, self.design.judged_s
            )),
            Block::Paragraph("Settings of the servers:".to_owned()),
            settings(&self.settings),
        ];
        let curves = vec![Block::Picture(curves(&rows))];
        let sections = [
            Some(Section::evidence("Cost and loss by delay", curves)),
            (!rows.is_empty()).then(|| Section::detail("All cases", cases)),
            forecasts(self),
            Some(Section::evidence("How it was found", how)),
        ];
        Document {
            command: "pgtoll lab exchange",
            question: "What does waiting for a standby cost, and what does it save?",
            subject: subject_words(self),
            answer: answer(self),
            findings: self.conclusion().sentences(),
            sections: sections.into_iter().flatten().collect(),
            notes: self.notes.clone(),
            again: self.command.clone(),
        }
    }
}

/// How many losses lie in the range that a checkup had forecast.
fn forecasts(exchange: &ExchangeRecord) -> Option<Section> {
    let judged: Vec<bool> = exchange.cases.iter().filter_map(ExchangeCase::is_in_range).collect();
    let hits = judged.iter().filter(|is_hit| **is_hit).count();
    let text = format!(
        "A checkup watched each primary before it died: of {} whose commits did not wait for the standby, {} \
         lost as many as its range of 95 % says.",
        judged.len(),
        hits
    );
    let mut blocks = Vec::from_iter((!judged.is_empty()).then_some(Block::Paragraph(text)));
    let added = exchange.added_latencies();
    if !added.is_empty() {
        let near = added.iter().filter(|added| added.is_near()).count();
        blocks.push(Block::Paragraph(format!(
            "The time that a level adds to a commit, forecast from the standby's lags while commits did not wait \
             for it: {near} of {} are within 25 % or 0.3 ms of what the level then added.",
            added.len()
        )));
        let cells = |added: &AddedLatency| {
            let AddedLatency { delay_ms, commit, forecast, measured } = *added;
            let numbers = [delay_ms, forecast, measured].map(|ms| format!("{ms:.1}"));
            let [delay, forecast, measured] = numbers;
            vec![delay, commit.name().to_owned(), forecast, measured]
        };
        let head = ["delay ms", "synchronous_commit", "forecast ms", "added ms"];
        blocks.push(Block::Table(Table::new(&head, added.iter().map(cells).collect())));
    }
    (!blocks.is_empty()).then(|| Section::detail("Forecasts", blocks))
}

/// The table's columns.
const HEAD: [&str; 8] =
    ["synchronous_commit", "commits/s", "±", "p50 ms", "p99 ms", "lost", "expected", "outage"];

/// All repetitions of a case.
#[derive(Clone, Debug, PartialEq)]
struct ExchangeRow {
    commit: SynchronousCommit,
    delay_ms: f64,
    /// The mean of repetitions; from the lowest bound to the highest.
    commits_per_second: Interval,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// The most of a repetition, and the least.
    lost: Option<(u64, u64)>,
    /// Commits under way: the rate of commits times the delay, and nothing where they wait for the
    /// standby. `None` where commits do not wait for the primary's disk either.
    expected: Option<f64>,
    /// The longest of a repetition.
    outage_s: Option<f64>,
}

impl ExchangeRow {
    fn from_cases(cases: &[&ExchangeCase]) -> Option<Self> {
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
    fn cells(&self) -> Vec<String> {
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
fn rows(exchange: &ExchangeRecord) -> Vec<ExchangeRow> {
    let mut delays: Vec<f64> = exchange.cases.iter().map(|case| case.delay_ms).collect();
    delays.sort_by(f64::total_cmp);
    delays.dedup();
    let row = |delay: f64, commit: SynchronousCommit| {
        let is_own =
            |case: &&ExchangeCase| case.commit == commit && case.delay_ms.total_cmp(&delay).is_eq();
        ExchangeRow::from_cases(&exchange.cases.iter().filter(is_own).collect::<Vec<_>>())
    };
    let all = delays.iter().flat_map(|delay| SynchronousCommit::ALL.map(|commit| (*delay, commit)));
    all.filter_map(|(delay, commit)| row(delay, commit)).collect()
}

/// Returns the answer: at each delay, the cost and the gain of waiting for the standby.
fn answer(exchange: &ExchangeRecord) -> Vec<String> {
    let rows = rows(exchange);
    let mut delays: Vec<f64> = rows.iter().map(|row| row.delay_ms).collect();
    delays.dedup();
    let sentence = |delay: &f64| {
        let find = |commit: SynchronousCommit| {
            rows.iter().find(|row| row.commit == commit && row.delay_ms.total_cmp(delay).is_eq())
        };
        let without = find(SynchronousCommit::Local)?;
        let with = find(SynchronousCommit::On)?;
        let (lost, _) = without.lost?;
        let (lost_with, _) = with.lost?;
        let change = with.commits_per_second.estimate / without.commits_per_second.estimate - 1.0;
        Some(format!(
            "{}: waiting for the standby (on instead of local) changes the rate of \
             {} by {:+.0} %; when the primary's host died {} lost without and {} with it.",
            delay_words(*delay),
            counted(u64::from(exchange.design.clients), "client", "clients"),
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

fn subject_words(exchange: &ExchangeRecord) -> String {
    let cases = counted(exchange.cases.len() as u64, "case", "cases");
    let mut words = format!(
        "{}, a primary and a standby, {}: {cases}.",
        exchange.server,
        counted(u64::from(exchange.design.clients), "client", "clients"),
    );
    if let Some(ended) = &exchange.ended {
        let _ = write!(words, " Ended early: {ended}.");
    }
    words
}

/// Two figures over the delay: the rate of commits, and what was lost.
fn curves(rows: &[ExchangeRow]) -> Markup {
    let rate = |row: &ExchangeRow| Some(row.commits_per_second.estimate);
    let lost = |row: &ExchangeRow| row.lost.map(|(most, _)| float(most));
    html! {
        p { "Left what it costs, right what it saves: the same delays in both pictures." }
        (legend(looks().into_iter().map(|(commit, look)| (commit.name(), look))))
        (curve(rows, "rate", "Commits a second", &rate))
        (curve(rows, "lost", "Acknowledged commits lost when the primary's host died", &lost))
    }
}

fn looks() -> Vec<(SynchronousCommit, Look)> {
    SynchronousCommit::ALL
        .into_iter()
        .enumerate()
        .map(|(at, item)| (item, Look::from_index(at)))
        .collect()
}

fn curve(
    rows: &[ExchangeRow],
    id: &str,
    title: &str,
    value: &dyn Fn(&ExchangeRow) -> Option<f64>,
) -> Markup {
    let series = |commit: SynchronousCommit| {
        let own = rows.iter().filter(move |row| row.commit == commit);
        own.filter_map(|row| Some((row.delay_ms, value(row)?))).collect::<Vec<(f64, f64)>>()
    };
    let described = SynchronousCommit::ALL.map(|commit| {
        let values = series(commit).into_iter();
        let values: Vec<String> =
            values.map(|(delay, value)| format!("{value:.0} at {delay} ms")).collect();
        format!("{}: {}", commit.name(), values.join(", "))
    });
    let words = Words {
        id: format!("exchange-{id}"),
        title,
        description: described.join(". "),
        caption: html! { h3 { (title) } },
    };
    figure(&words, |width| drawing(&looks(), &series, width))
}

fn drawing(
    looks: &[(SynchronousCommit, Look)],
    series: &dyn Fn(SynchronousCommit) -> Vec<(f64, f64)>,
    width: Width,
) -> Drawing {
    let points: Vec<(f64, f64)> = looks.iter().flat_map(|(look, _)| series(*look)).collect();
    let left = 62.0;
    let right = width.units() - 8.0;
    let top = 14.0;
    let bottom = 214.0;
    let zero = std::iter::once(0.0);
    let frame = Frame {
        x: Scale::linear(points.iter().map(|(delay, _)| *delay), Unit::Plain).between(left, right),
        y: Scale::linear(points.iter().map(|(_, value)| *value).chain(zero), Unit::Plain)
            .between(bottom, top),
        title: "",
        margin: 0.0,
        x_title: "delay of WAL to the standby, ms",
        x_ticks: 6,
        y_ticks: 5,
    };
    let marks = html! {
        (frame.axes())
        @for (commit, look) in looks {
            @let own = series(*commit);
            (frame.line(*look, &own, commit.name()))
            @for (delay, value) in &own {
                (look.marker(frame.x.at(*delay), frame.y.at(*value),
                    &format!("{}, {delay} ms: {value:.0}", commit.name())))
            }
        }
    };
    Drawing { height: bottom + 42.0, marks }
}

#[expect(clippy::cast_precision_loss, reason = "lost transactions, far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

fn delay_words(delay_ms: f64) -> String {
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

    fn text(record: &ExchangeRecord) -> String {
        record.text(&TableOptions::default())
    }

    /// `pgtoll lab exchange --quick --postgres 18`, as it was.
    fn record() -> ExchangeRecord {
        serde_json::from_str(include_str!("../../../records/2026-11-23-exchange.json")).unwrap()
    }

    #[test]
    fn cost_and_loss_stand_side_by_side_in_80_columns() {
        let text = text(&record());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_loss_of_what_was_waited_for_is_a_finding() {
        let mut record = record();
        assert!(record.conclusion().sentences().is_empty());
        let case = record.cases.iter_mut().find(|case| case.commit == SynchronousCommit::On);
        case.unwrap().lost = Some(2);
        record.cases[0].impossible = Some(1);
        let findings = record.conclusion().sentences();
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
}
