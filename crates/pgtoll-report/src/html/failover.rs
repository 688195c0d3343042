//! Failovers as a page: the answer, the outage of each run, the tables, the steps of a run.

use maud::{Markup, html};
use pgtoll_record::{EngineTopology, FailoverRecord, PrintedRecord as _};

use super::timeline::timeline;
use super::{LabPage, Section, download, inert};
use crate::failover::partition::{PartitionSummary, SIDES_HEAD, SIDES_WORDS};
use crate::failover::{
    FailoverColumns, FailoverRow, REJOIN_HEAD, STEPS_HEAD, answer, first_run, rows, seconds,
    settings_words, skipped_words, subject_words, third_words,
};
use crate::plot::{Drawing, Frame, Look, Scale, Unit, Width, Words, figure, legend, text};

/// A record of `pgtoll lab failover` as one HTML file. Whatever stands in the record is text in it,
/// never markup.
pub(crate) fn failover_html(of: &FailoverRecord) -> String {
    let rows = rows(of);
    let columns = FailoverColumns::of(of);
    let saw = |row: &FailoverRow| row.outage_cells(columns);
    let cases =
        table("What clients saw, a row a case", columns, &columns.outage_head(), &rows, &saw);
    let mut sections: Vec<Section<'_>> = vec![
        ("outages", "Outage of each run", outages(&rows)),
        ("clients", "Clients over time, in each case’s first run", clients(of, &rows)),
        ("cases", "All cases", cases),
        ("way", "From the fault, medians over runs", way(columns, &rows)),
        ("steps", "Steps of each case’s first run", steps(of, &rows)),
        ("how", "How it was found", how(of)),
        ("again", "Again", again(of)),
    ];
    if rows.iter().any(|row| row.partition.is_some()) {
        sections.insert(3, ("sides", "Both sides of the partition", sides(columns, &rows)));
    }
    if !of.topologies.is_empty() {
        sections.insert(3, ("engines", "Engines and their settings", engines(&of.topologies)));
    }
    if rows.len() > 1 {
        sections.insert(0, ("side-by-side", "Outages side by side", side_by_side(&rows)));
    }
    LabPage {
        command: "pgtoll lab failover",
        title: "What clients see of a failover",
        question: "What do clients see of a failover?",
        subject: subject_words(of),
        sentences: answer(&rows),
        remarks: vec![
            ("Second standby", third_words(of)),
            ("Skipped", skipped_words(of)),
            ("Finding", of.conclusion().sentences()),
        ],
        sections,
        data: inert(of),
    }
    .html()
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

/// A line for each case, a mark for each of its runs.
fn side_by_side(rows: &[FailoverRow]) -> Markup {
    let described = rows.iter().map(|row| {
        let of_half = row.outage(row.median());
        format!("{}: {of_half}, median of {} runs", row.words(), row.outages.len())
    });
    let words = Words {
        id: "failover-side-by-side".to_owned(),
        title: "Outages side by side",
        description: described.collect::<Vec<_>>().join(". "),
        caption: html! { h3 { "Seconds without an acknowledgement to any client, a mark a run" } },
    };
    let has_bounds = rows.iter().any(|row| row.are_bounds);
    html! {
        (figure(&words, |width| strips(rows, width)))
        @if has_bounds {
            p { "Where nobody promotes the standby, the marks are where pgtoll ended the fault by hand: \
                without that the outage would go on." }
        }
    }
}

/// Between the lines of two cases.
const STRIP: f64 = 40.0;

fn strips(rows: &[FailoverRow], width: Width) -> Drawing {
    let (left, right) = (8.0, width.units() - 12.0);
    let bottom = 10.0 + STRIP * float(rows.len());
    let values = rows.iter().flat_map(|row| row.outages.iter().copied());
    let frame = Frame {
        x: Scale::linear(values.chain(std::iter::once(0.0)), Unit::Plain).between(left, right),
        y: Scale::linear([0.0, float(rows.len())], Unit::Plain).between(bottom, 10.0),
        title: "",
        margin: 0.0,
        x_title: "seconds",
        x_ticks: 6,
        y_ticks: 0,
    };
    let marks = html! {
        (frame.axes())
        @for (at, row) in rows.iter().enumerate() {
            @let y = 10.0 + STRIP * (float(at) + 0.7);
            @let look = Look::of(at);
            (text(left + 4.0, y - 12.0, "tick", &crate::plot::fitting(&row.words(), right - left)))
            @for outage in &row.outages {
                (look.marker(frame.x.at(*outage), y, &format!("{}: {}", row.words(), row.outage(Some(*outage)))))
            }
        }
    };
    Drawing { height: bottom + 42.0, marks }
}

fn engines(topologies: &[EngineTopology]) -> Markup {
    html! {
        @for of in topologies {
            h3 { (of.engine.title()) }
            p {
                @if !of.versions.is_empty() { (of.versions.join(", ")) ". " }
                "Clients enter by " (of.entry) "."
            }
            @if !of.settings.is_empty() {
                ul { @for settings in &of.settings { li { (settings_words(settings)) } } }
            }
        }
    }
}

fn table(
    label: &str,
    columns: FailoverColumns,
    head: &[&str],
    rows: &[FailoverRow],
    cells: &dyn Fn(&FailoverRow) -> Vec<String>,
) -> Markup {
    let own = columns.labels();
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(label) {
            table class="names close" {
                thead { tr { @for title in own.iter().chain(head) { th scope="col" { (title) } } } }
                tbody { @for row in rows {
                    @let row = [row.labels(columns), cells(row)].concat();
                    tr {
                        th scope="row" { (row[0]) }
                        @for cell in &row[1..] { td { (cell) } }
                    }
                } }
            }
        }
    }
}

/// A row for each side of each case's partitions.
fn sides(columns: FailoverColumns, rows: &[FailoverRow]) -> Markup {
    let own = columns.labels();
    html! {
        p { (SIDES_WORDS) "." }
        div class="scroll" role="region" tabindex="0" aria-label="Both sides of the partition" {
            table class="names close" {
                thead { tr { @for title in own.iter().chain(&SIDES_HEAD) { th scope="col" { (title) } } } }
                tbody { @for row in rows {
                    @for side in row.partition.iter().flat_map(PartitionSummary::cells) {
                        @let cells = [row.labels(columns), side].concat();
                        tr {
                            th scope="row" { (cells[0]) }
                            @for cell in &cells[1..] { td { (cell) } }
                        }
                    }
                } }
            }
        }
    }
}

fn way(columns: FailoverColumns, rows: &[FailoverRow]) -> Markup {
    let steps = |row: &FailoverRow| row.step_cells(columns);
    let rejoin = |row: &FailoverRow| row.rejoin_cells(columns);
    html! {
        p {
            "When the engine noticed beside the standby, when the standby was promoted, when the pooler \
            or proxy led to it; then how long the server that was gone took to return as a standby, and how many of \
            the old primary’s pages were unsound."
        }
        (table("From the fault", columns, &STEPS_HEAD, rows, &steps))
        @if rows.iter().any(FailoverRow::has_rejoin_steps) {
            p { "Step by step, medians of the time since its begin:" }
            (table("The return", columns, &REJOIN_HEAD, rows, &rejoin))
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
            before and after the fault; every id is journalled before it is sent \
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
    fn a_page_has_every_engine() {
        let page = super::failover_html(&crate::failover::tests::record_of_engines(3));
        for words in
            ["Outages side by side", "pg_auto_failover", "ttl = 20", "ended the fault by hand"]
        {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn a_page_has_both_sides_of_a_partition() {
        let page = super::failover_html(&crate::failover::tests::record_of_partitions());
        assert!(page.contains("Both sides of the partition"), "{page}");
        assert!(page.contains("<td>standby's</td>") || page.contains("standby&#39;s"), "{page}");
    }

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
