//! Records side by side as a page.

use maud::{Markup, html};
use pgtoll_estimate::{is_of, metrics};
use pgtoll_record::{Metric, SideBySide, Workload};

use super::comparison::{row, rows_of_table};
use super::{Section, bodies, contents, inert, page};
use crate::cells::title;
use crate::plot::{ForestGroup, ForestRow, Look, Words, figure, forest, legend};
use crate::side_by_side::{
    LEGEND, blocks, called, change_blocks, changes_title, difference_rows, heading, labels,
};
use crate::text::Block;

/// The records side by side as one HTML file, with all that it needs inside.
pub(crate) fn html_side_by_side(side: &SideBySide) -> String {
    let labels = labels(side);
    let changes = change_blocks(side);
    let mut sections: Vec<Section<'_>> = vec![
        ("differences", "What differs between the records", differences(side)),
        ("comparisons", "What each of them found", forests(side)),
        ("table", "The table", table("all figures", "figure", &labels, &blocks(side))),
    ];
    if !changes.is_empty() {
        sections.push((
            "changes",
            "How the costs changed",
            html! {
                p { (sentence(&changes_title(side))) "." }
                (table("changes", "figure", &labels[1..], &changes))
            },
        ));
    }
    sections.push((
        "reading",
        "How to read this",
        html! {
            p { (LEGEND) }
            @if !side.notes.is_empty() { ul { @for note in &side.notes { li { (note) } } } }
        },
    ));
    let question = &side.records[0].result.header.question;
    let top = html! {
        p class="quiet small" { "pgtoll report" }
        h1 { (question) }
        p class="quiet" { (heading(side)) }
    };
    let main = html! { (contents(&sections)) (bodies(&sections)) };
    let title = html! { (question) " – " (side.records.len()) " records, pgtoll" };
    let words = "Made by pgtoll from the records of runs.";
    page(&title, &top, &main, words, &inert(side))
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn differences(side: &SideBySide) -> Markup {
    let names = side.records.iter().map(|record| record.name.clone());
    let names = std::iter::once("record".to_owned()).chain(names).collect();
    let rows = std::iter::once(names).chain(difference_rows(side)).collect();
    table(
        "what differs",
        "field",
        &labels(side),
        &[("where and with what they were made".to_owned(), rows)],
    )
}

/// A figure for each workload, in it a group for each figure and arm, in that a row for each record.
fn forests(side: &SideBySide) -> Markup {
    let labels = labels(side);
    let looks =
        labels.iter().enumerate().map(|(index, label)| (label.as_str(), Look::from_index(index)));
    html! {
        p {
            "Each row is what one record found: an arm’s difference from " strong { (side.baseline()) }
            " with its 95 % interval. The tinted side is the worse one. Each workload has an axis of \
             its own."
        }
        (legend(looks))
        @for (index, workload) in side.workloads().into_iter().enumerate() {
            (of_workload(side, workload, index))
        }
    }
}

fn of_workload(side: &SideBySide, workload: &Workload, index: usize) -> Markup {
    let arms = side.arms();
    let arms = || arms.iter().filter(|arm| arm.name != side.baseline() && arm.twin_of.is_none());
    let groups = metrics(workload).into_iter().flat_map(|metric| {
        arms().map(move |arm| ForestGroup {
            title: format!("{}: {}", title(metric), called(arm)),
            less_is_worse: !metric.more_is_worse(),
            rows: rows(side, workload, metric, &arm.name),
        })
    });
    let groups: Vec<ForestGroup> = groups.filter(|group| !group.rows.is_empty()).collect();
    if groups.is_empty() {
        return html! {};
    }
    let output = groups.iter().flat_map(|group| {
        group.rows.iter().map(|row| format!("{}, {}: {}", group.title, row.name, row.value))
    });
    let words = Words {
        id: format!("forest-{index}"),
        title: &format!("Differences from {}: {}", side.baseline(), workload.title),
        description: output.collect::<Vec<_>>().join(". "),
        caption: html! { h3 { (workload.title) } },
    };
    figure(&words, |width| forest(&groups, width))
}

fn rows(side: &SideBySide, workload: &Workload, metric: Metric, arm: &str) -> Vec<ForestRow> {
    let found = side.records.iter().enumerate().filter_map(|(index, record)| {
        let mut all = record.result.comparisons.iter();
        let found = all.find(|comparison| is_of(comparison, &workload.name, metric, arm))?;
        let name = format!("{}: {}", record.label, record.result.header.server.version);
        Some(row(name, Look::from_index(index), found))
    });
    found.collect()
}

/// `name` tells the page's tables apart; `first` stands above the rows' titles.
fn table(name: &str, first: &str, labels: &[String], blocks: &[Block]) -> Markup {
    html! {
        div class="scroll" role="region" aria-label={ "Table: " (name) } tabindex="0" {
            table {
                thead { tr {
                    th scope="col" { (first) }
                    @for label in labels { th scope="col" { (label) } }
                } }
                (rows_of_table(blocks, labels.len()))
            }
        }
    }
}
