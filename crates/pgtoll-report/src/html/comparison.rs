//! The comparisons: as forest plots, and as the table of the terminal.

use maud::{Markup, html};
use pgtoll_estimate::metrics;
use pgtoll_record::{Comparison, Metric, RunResult, Verdict, Workload};

use super::{Series, series};
use crate::cells::{NOTHING_KNOWN, blocks_of, cell, columns, heading_of, interval, title};
use crate::ladder::ladders;
use crate::plot::{ForestGroup, ForestRow, Look, Words, figure, forest, legend};
use crate::terminal::legend as legend_text;
use crate::text::Block;

/// A forest plot for each workload that has comparisons.
pub(crate) fn forests(result: &RunResult) -> Markup {
    let series = series(result);
    let baseline = &result.header.baseline;
    let figures: Vec<Markup> = result
        .header
        .workloads
        .iter()
        .enumerate()
        .filter_map(|(index, item)| {
            let groups = groups(result, item, &series);
            (!groups.is_empty()).then(|| of_workload(result, item, index, &groups))
        })
        .collect();
    if figures.is_empty() {
        return html! {
            p { "No comparison: at least two completed rounds or repetitions are needed." }
        };
    }
    html! {
        p {
            "Each row is an arm’s difference from " strong { (baseline) } " with its 95 % interval. "
            "The tinted side is the worse one. "
            @if series.iter().any(|series| series.null) {
                "The grey band is what a copy of " (baseline) " shows, where nothing differs, as far \
                to both sides as its farther bound: what does not leave it may be chance. "
            }
            "Each workload has an axis of its own."
        }
        (legend(series.iter().skip(1).map(|series| (series.title.as_str(), series.look))))
        @for figure in &figures { (figure) }
    }
}

fn of_workload(
    result: &RunResult,
    workload: &Workload,
    index: usize,
    groups: &[ForestGroup],
) -> Markup {
    let rows = groups.iter().flat_map(|group| {
        let of_group = group.rows.iter();
        of_group.map(|row| format!("{}, {}: {}", group.title, row.name, row.value))
    });
    let words = Words {
        id: format!("forest-{index}"),
        title: &format!("Differences from {}: {}", result.header.baseline, workload.title),
        description: rows.collect::<Vec<_>>().join(". "),
        caption: html! { h3 { (heading_of(result, workload)) } },
    };
    figure(&words, |width| forest(groups, width))
}

fn groups(result: &RunResult, workload: &Workload, series: &[Series<'_>]) -> Vec<ForestGroup> {
    let of_metric = |metric: Metric| {
        let rows: Vec<ForestRow> = series
            .iter()
            .filter_map(|series| {
                let found = comparison(result, workload, metric, series.arm)?;
                Some(row(series.title.clone(), series.look, found))
            })
            .collect();
        let absolute = cell(result, workload, metric, &result.header.baseline);
        let baseline = if absolute == NOTHING_KNOWN {
            String::new()
        } else {
            format!(" ({} {absolute})", result.header.baseline)
        };
        (!rows.is_empty()).then(|| ForestGroup {
            title: format!("{}{baseline}", title(metric)),
            less_is_worse: !metric.more_is_worse(),
            rows,
        })
    };
    // Between the median and the 99th percentile the table has more.
    let between = [Metric::LatencyP90, Metric::LatencyP95];
    let drawn = metrics(workload).into_iter().filter(|metric| !between.contains(metric));
    drawn.filter_map(of_metric).collect()
}

/// A comparison in a forest plot, under this name.
pub(crate) fn row(name: String, look: Look, comparison: &Comparison) -> ForestRow {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    ForestRow {
        name,
        look,
        estimate: percent(comparison.ratio.estimate),
        lower: percent(comparison.ratio.lower),
        upper: percent(comparison.ratio.upper),
        null: comparison.null,
        stands_out: matches!(comparison.verdict, Verdict::Costs | Verdict::Gains),
        value: interval(comparison),
    }
}

pub(crate) fn comparison<'a>(
    result: &'a RunResult,
    workload: &Workload,
    metric: Metric,
    arm: &str,
) -> Option<&'a Comparison> {
    let mut all =
        result.comparisons.iter().filter(|comparison| comparison.workload == workload.name);
    all.find(|comparison| comparison.metric == metric && comparison.arm == arm)
}

/// The same rows as in a terminal.
pub(crate) fn table(result: &RunResult) -> Markup {
    let columns: Vec<String> = columns(result).map(|(_, title)| title).collect();
    let workloads = result.header.workloads.iter();
    let groups: Vec<Block> = workloads.flat_map(|workload| blocks_of(result, workload)).collect();
    html! {
        div class="scroll" role="region" aria-label="Table of all figures" tabindex="0" {
            table {
                thead { tr {
                    th scope="col" { "figure" }
                    @for column in &columns { th scope="col" { (column) } }
                } }
                (rows_of_table(&groups, columns.len()))
            }
        }
        (rungs(result))
        p class="small quiet" { (legend_text(result)) }
    }
}

/// Each rung against the one below.
fn rungs(result: &RunResult) -> Markup {
    let ladders = ladders(result, interval);
    html! {
        @for (index, item) in ladders.iter().enumerate() {
            @if index == 0 { h3 { "Each against the one below" } }
            div class="scroll" role="region" aria-label={ "Each against the one below: " (item.title) }
                tabindex="0" {
                table {
                    thead { tr {
                        th scope="col" { "arms" }
                        @for title in &item.head { th scope="col" { (title) } }
                    } }
                    (rows_of_table(&[(item.title.clone(), item.rows.clone())], item.head.len()))
                }
            }
        }
    }
}

/// The rows of each group below its title; differences that are no chance stand out.
pub(crate) fn rows_of_table(groups: &[Block], columns: usize) -> Markup {
    html! {
        @for (title, rows) in groups {
            tbody {
                tr { th scope="rowgroup" class=[title.starts_with(' ').then_some("quiet")]
                    colspan=(columns + 1) { (title.trim_start()) } }
                @for row in rows { tr {
                    @for (index, cell) in row.iter().enumerate() {
                        @if index == 0 {
                            th scope="row" class=[cell.starts_with(' ').then_some("indented")] {
                                (cell.trim_start())
                            }
                        } @else if cell.starts_with(['+', '-']) && cell.contains('%') {
                            td class="strong" { (cell) }
                        } @else {
                            td { (cell) }
                        }
                    }
                } }
            }
        }
    }
}
