//! The exchange rate of durability as a page: the answer, both curves, the table.

use maud::{Markup, html};
use pgtoll_record::{ExchangeRecord, SynchronousCommit};

use super::{LabPage, Section, download, inert};
use crate::exchange::{ExchangeRow, HEAD, answer, exchange_findings, rows, subject_words};
use crate::plot::{Drawing, Frame, Look, Scale, Unit, Width, Words, figure, legend};

/// A record of `pgtoll lab exchange` as one HTML file. Whatever stands in the record is text in it,
/// never markup.
pub fn exchange_html(of: &ExchangeRecord) -> String {
    let rows = rows(of);
    let sections: Vec<Section<'_>> = vec![
        ("curves", "Cost and loss by delay", curves(&rows)),
        ("cases", "All cases", table(&rows)),
        ("how", "How it was found", how(of)),
        ("again", "Again", again(of)),
    ];
    LabPage {
        command: "pgtoll lab exchange",
        title: "What waiting for a standby costs and saves",
        question: "What does waiting for a standby cost, and what does it save?",
        subject: subject_words(of),
        sentences: answer(of),
        remarks: vec![("Finding", exchange_findings(of))],
        sections,
        data: inert(of),
    }
    .html()
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
    SynchronousCommit::ALL.into_iter().enumerate().map(|(at, of)| (of, Look::of(at))).collect()
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
    let points: Vec<(f64, f64)> = looks.iter().flat_map(|(of, _)| series(*of)).collect();
    let (left, right) = (62.0, width.units() - 8.0);
    let (top, bottom) = (14.0, 214.0);
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

fn table(rows: &[ExchangeRow]) -> Markup {
    html! {
        div class="scroll" role="region" tabindex="0" aria-label="All cases" {
            table class="names close" {
                thead { tr {
                    th scope="col" { "delay" }
                    @for title in HEAD { th scope="col" { (title) } }
                } }
                tbody { @for row in rows { tr {
                    th scope="row" { (row.delay_ms) " ms" }
                    @for cell in row.cells() { td { (cell) } }
                } } }
            }
        }
    }
}

fn how(of: &ExchangeRecord) -> Markup {
    html! {
        p {
            "In each case clients commit as fast as they can for " (of.design.load_s) " s; then \
            transactions fall due at half that rate for " (of.design.judged_s) " s, in the middle of \
            which the primary's host dies and the standby is promoted. Lost is what was acknowledged \
            and is not there in the end."
        }
        ul { @for note in &of.notes { li { (note) } } }
        p { "Settings of the servers:" }
        pre { code {
            @for (name, value) in &of.settings { (name) " = " (value) "\n" }
        } }
    }
}

fn again(of: &ExchangeRecord) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        p { "The command that does it again:" }
        pre { code { (of.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All figures of this page", "exchange.json", &json))
    }
}

#[expect(clippy::cast_precision_loss, reason = "lost transactions, far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}
