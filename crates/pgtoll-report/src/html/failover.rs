//! Failovers as a page: the answer, the outage of each run, the tables, the steps of a run.

use maud::{Markup, html};
use pgtoll_record::FailoverRecord;

use super::timeline::timeline;
use super::{Section, bodies, contents, download, inert, page};
use crate::failover::{
    FailoverRow, HEAD, REJOIN_HEAD, STEPS_HEAD, answer, failover_findings, first_run, rows,
    seconds, skipped_words, subject_words, third_words,
};
use crate::plot::{Drawing, Frame, Look, Scale, Unit, Width, Words, figure, legend};

/// A record of `pgtoll lab failover` as one HTML file. Whatever stands in the record is text in it,
/// never markup.
pub fn failover_html(of: &FailoverRecord) -> String {
    let rows = rows(of);
    let sections: Vec<Section<'_>> = vec![
        ("outages", "Outage of each run", outages(&rows)),
        ("clients", "Clients over time, in each case’s first run", clients(of, &rows)),
        (
            "cases",
            "All cases",
            table("What clients saw, a row a case", &HEAD, &rows, FailoverRow::cells),
        ),
        ("way", "From the fault, medians over runs", way(&rows)),
        ("steps", "Steps of each case’s first run", steps(of, &rows)),
        ("how", "How it was found", how(of)),
        ("again", "Again", again(of)),
    ];
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            @for sentence in answer(&rows) { p class="lead" { (sentence) } }
            @for third in third_words(of) { p { strong { "Second standby: " } (third) } }
            @for skipped in skipped_words(of) { p { strong { "Skipped: " } (skipped) } }
            @for finding in failover_findings(of) { p { strong { "Finding: " } (finding) } }
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! { "What clients see of a failover, pgtoll" };
    let heading = html! {
        p class="quiet small" { "pgtoll lab failover" }
        h1 { "What do clients see of a failover?" }
        p class="quiet" { (subject_words(of)) }
    };
    page(&title, &heading, &main, "Made by pgtoll on servers of its own.", &inert(of))
}

fn outages(rows: &[FailoverRow]) -> Markup {
    let looks: Vec<(String, Look)> =
        rows.iter().enumerate().map(|(at, row)| (row.words(), Look::of(at))).collect();
    let described = rows.iter().zip(&looks).map(|(row, (name, _))| {
        let values: Vec<String> =
            row.outages.iter().map(|outage| format!("{outage:.2} s")).collect();
        format!("{name}: {}", values.join(", "))
    });
    let words = Words {
        id: "failover-outages".to_owned(),
        title: "Outage of each run",
        description: described.collect::<Vec<_>>().join(". "),
        caption: html! { h3 { "Seconds without an acknowledgement to any client" } },
    };
    html! {
        (legend(looks.iter().map(|(name, look)| (name.as_str(), *look))))
        (figure(&words, |width| drawing(rows, &looks, width)))
    }
}

fn drawing(rows: &[FailoverRow], looks: &[(String, Look)], width: Width) -> Drawing {
    let (left, right) = (62.0, width.units() - 8.0);
    let (top, bottom) = (14.0, 214.0);
    let most = rows.iter().map(|row| row.outages.len()).max().unwrap_or(1);
    let values = rows.iter().flat_map(|row| row.outages.iter().copied());
    let frame = Frame {
        x: Scale::linear([1.0, float(most.max(2))], Unit::Plain).between(left, right),
        y: Scale::linear(values.chain(std::iter::once(0.0)), Unit::Plain).between(bottom, top),
        title: "",
        margin: 0.0,
        x_title: "run",
        x_ticks: 6,
        y_ticks: 5,
    };
    let marks = html! {
        (frame.axes())
        @for (row, (name, look)) in rows.iter().zip(looks) {
            @for (at, outage) in row.outages.iter().enumerate() {
                (look.marker(frame.x.at(float(at + 1)), frame.y.at(*outage),
                    &format!("{name}, run {}: {outage:.2} s", at + 1)))
            }
        }
    };
    Drawing { height: bottom + 42.0, marks }
}

fn table(
    label: &str,
    head: &[&str],
    rows: &[FailoverRow],
    cells: fn(&FailoverRow) -> Vec<String>,
) -> Markup {
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(label) {
            table class="names close" {
                thead { tr { @for title in head { th scope="col" { (title) } } } }
                tbody { @for row in rows {
                    @let row = cells(row);
                    tr {
                        th scope="row" { (row[0]) }
                        @for cell in &row[1..] { td { (cell) } }
                    }
                } }
            }
        }
    }
}

fn way(rows: &[FailoverRow]) -> Markup {
    html! {
        p {
            "When repmgrd of the standby noticed, when the standby was promoted, when PgBouncer led \
            to it; then how long the old primary took to return as a standby by pg_rewind, and \
            how many of its pages were unsound."
        }
        (table("From the fault", &STEPS_HEAD, rows, FailoverRow::step_cells))
        @if rows.iter().any(FailoverRow::has_rejoin_steps) {
            p { "The old primary’s return, step by step, medians of the time since its begin:" }
            (table("Return of the old primary", &REJOIN_HEAD, rows, FailoverRow::rejoin_cells))
        }
    }
}

fn clients(of: &FailoverRecord, rows: &[FailoverRow]) -> Markup {
    html! {
        @for (number, row) in rows.iter().enumerate() {
            @if let Some(shown) = first_run(of, row).and_then(|run| run.timeline.as_ref()) {
                h3 { (row.words()) }
                (timeline(&format!("clients-{number}"), shown))
            }
        }
        @if of.runs.iter().all(|run| run.timeline.is_none()) {
            p { "The record has none: it is of a version that did not keep them." }
        }
    }
}

fn steps(of: &FailoverRecord, rows: &[FailoverRow]) -> Markup {
    html! {
        @for row in rows {
            @if let Some(run) = first_run(of, row) {
                h3 { (row.words()) }
                ul { @for step in run.steps.iter().take(STEPS_SHOWN) {
                    li { (seconds(Some(step.at_s))) ": " (step.what) }
                } }
            }
        }
    }
}

/// A run has about ten.
const STEPS_SHOWN: usize = 40;

fn how(of: &FailoverRecord) -> Markup {
    html! {
        p {
            "Each run has servers of its own. Transactions of clients fall due at even distances, \
            through PgBouncer, before and after the fault; every id is journalled before it is sent \
            and after it is answered. Lost is what was acknowledged and is not there in the end."
        }
        ul { @for note in &of.notes { li { (note) } } }
        p { "Settings of the servers:" }
        pre { code {
            @for (name, value) in &of.settings { (name) " = " (value) "\n" }
        } }
    }
}

fn again(of: &FailoverRecord) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        p { "The command that does it again:" }
        pre { code { (of.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All figures of this page", "failover.json", &json))
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of runs, far below 2^53")]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_page_has_every_case() {
        let page = super::failover_html(&crate::failover::tests::record(3));
        assert!(page.starts_with("<!DOCTYPE html>"));
        for words in
            ["the floor", "repmgr’s defaults", "host-death", "process faults on one kernel"]
        {
            assert!(page.contains(words) || page.contains(&words.replace('’', "'")), "{words}");
        }
    }
}
