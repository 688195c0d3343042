//! Several experiments of one call as a page: what each of them found, in short, and where the rest
//! stands.

use maud::{Markup, html};
use pgtoll_record::{Comparison, Overview, OverviewExperiment};

use super::comparison::row;
use super::{Section, bodies, claims, contents, inert, page};
use crate::cells::title;
use crate::overview::{COUNTED, counted, ended, heading, sentence, workloads};
use crate::plot::{ForestGroup, ForestRow, Look, Words, figure, forest_up_to, legend};

/// The overview as one HTML file, which lies beside the experiments' directories.
pub fn overview_html(overview: &Overview) -> String {
    let mut sections: Vec<Section<'_>> = vec![
        ("comparisons", "All differences", differences(overview)),
        ("claims", "Claims", all_claims(overview)),
        ("experiments", "Experiment by experiment", experiments(overview)),
        ("counted", COUNTED, exact(overview)),
    ];
    let failed: Vec<&OverviewExperiment> =
        overview.experiments.iter().filter(|experiment| ended(experiment).is_some()).collect();
    if !failed.is_empty() {
        sections.insert(0, ("failed", "What was not completed", not_completed(&failed)));
    }
    let headline = html! { "What does safety cost here?" };
    let top = html! {
        p class="quiet small" { "pgtoll measure" }
        h1 { (headline) }
        p class="quiet" { (heading(overview)) ". " (disk(overview)) ", " (overview.host.kernel) ", pgtoll " (overview.pgtoll) "." }
        @if let Some(headline) = &overview.headline { p class="lead" { strong { (headline) } } }
    };
    let main = html! { (contents(&sections)) (bodies(&sections)) };
    let words = "Made by pgtoll from the records of runs.";
    page(
        &html! { (headline) " – PostgreSQL " (overview.version) ", pgtoll" },
        &top,
        &main,
        words,
        &inert(overview),
    )
}

/// Its mount options are in the records.
fn disk(overview: &Overview) -> &str {
    overview.host.file_system.split(" (").next().unwrap_or_default()
}

/// A line for each experiment that failed or was interrupted.
fn not_completed(failed: &[&OverviewExperiment]) -> Markup {
    html! {
        ul { @for failed in failed {
            li { strong { (failed.name) } " " (ended(failed).unwrap_or_default()) }
        } }
    }
}

/// One picture of all: a group for each workload of each experiment, in it a row for each arm.
fn differences(overview: &Overview) -> Markup {
    let groups: Vec<ForestGroup> = overview.experiments.iter().flat_map(groups).collect();
    if groups.is_empty() {
        return html! {
            p { "No comparison: at least two completed rounds or repetitions are needed." }
        };
    }
    let output = groups.iter().flat_map(|group| {
        group.rows.iter().map(|row| format!("{}, {}: {}", group.title, row.name, row.value))
    });
    let words = Words {
        id: "forest".to_owned(),
        title: "Differences from each baseline",
        description: output.collect::<Vec<_>>().join(". "),
        caption: html! { h3 { "Server CPU, against each baseline" } },
    };
    html! {
        p {
            "Each row is an arm’s difference from its experiment’s baseline in server CPU, for a \
             transaction or an operation, with its 95 % interval. The tinted side is the worse one. \
             Grey rows and bands are copies of the baseline, where nothing differs: what does not \
             leave the band may be chance. What is beyond the axis ends in an arrow; the numbers \
             stand beside it."
        }
        (legend([("arm", Look::from_index(ARM)), ("copy of the baseline", Look::grey(TWIN))]))
        (figure(&words, |width| forest_up_to(&groups, width, MOST)))
    }
}

/// The largest end of the common axis, in per cent.
const MOST: f64 = 150.0;
/// Looks of the two kinds of rows.
const ARM: usize = 1;
const TWIN: usize = 4;

fn groups(experiment: &OverviewExperiment) -> Vec<ForestGroup> {
    let groups = workloads(experiment).into_iter().filter_map(|workload| {
        let own: Vec<&Comparison> = experiment
            .comparisons
            .iter()
            .filter(|comparison| comparison.workload == workload)
            .collect();
        let metric = own.first()?.metric;
        Some(ForestGroup {
            title: format!("{}, {workload}: {}", experiment.name, title(metric)),
            less_is_worse: !metric.more_is_worse(),
            rows: own.into_iter().map(named_row).collect(),
        })
    });
    groups.collect()
}

fn named_row(comparison: &Comparison) -> ForestRow {
    let (name, look) = if comparison.null {
        (format!("{} (null)", comparison.arm), Look::grey(TWIN))
    } else {
        (comparison.arm.clone(), Look::from_index(ARM))
    };
    row(name, look, comparison)
}

fn all_claims(overview: &Overview) -> Markup {
    let groups: Vec<_> = overview
        .experiments
        .iter()
        .map(|experiment| (experiment.name.clone(), experiment.claims.as_slice()))
        .collect();
    html! {
        @if groups.iter().all(|(_, claims)| claims.is_empty()) {
            p { "These experiments claim nothing." }
        } @else {
            p {
                "A claim holds where the whole interval lies within what was claimed, and does not \
                 hold where it lies outside. It is not resolved here where a bound lies in the \
                 interval."
            }
            (claims::table(&groups))
        }
    }
}

/// Each experiment's question and answers, with a link to its own page.
fn experiments(overview: &Overview) -> Markup {
    html! {
        @for experiment in &overview.experiments {
            h3 { (experiment.name) }
            p { strong { (experiment.question) } }
            @if let Some(ended) = ended(experiment) { p class="warning" role="note" { (ended) } }
            @if let Some(sentence) = sentence(experiment) {
                p { (sentence) }
                p { a href={ "./" (experiment.name) "/report.html" } { "The report of " (experiment.name) } }
            }
        }
    }
}

/// WAL of every experiment that counted some.
fn exact(overview: &Overview) -> Markup {
    let all =
        || overview.experiments.iter().map(|experiment| (&experiment.name, counted(experiment)));
    html! {
        @if all().all(|(_, rows)| rows.is_empty()) { p { "Nothing was counted." } } @else {
            div class="scroll" role="region" aria-label="Table of WAL" tabindex="0" {
                table class="words claims" {
                    thead { tr { th scope="col" { "work" } th scope="col" { "WAL" } } }
                    @for (name, rows) in all().filter(|(_, rows)| !rows.is_empty()) {
                        tbody {
                            tr { th scope="rowgroup" colspan="2" { (name) } }
                            @for (workload, words) in rows {
                                tr { th scope="row" { (workload) } td { (words) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
