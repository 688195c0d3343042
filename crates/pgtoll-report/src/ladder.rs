//! Arms that are also compared with another arm than the baseline: of a ladder's rungs each against
//! the one below.

use pgtoll_estimate::metrics;
use pgtoll_record::{Comparison, Metric, RunResult, Workload};

use crate::cells::{heading_of, title};

/// The title of the tables.
pub(crate) const TITLE: &str = "each against the one below";

/// A workload's rungs.
pub(crate) struct Ladder {
    /// The workload's title.
    pub(crate) title: String,
    /// The figures' titles.
    pub(crate) head: Vec<String>,
    /// The rung's name, and for each figure the difference with its interval.
    pub(crate) rows: Vec<Vec<String>>,
}

/// How many figures are shown: all are in the result.
const SHOWN: usize = 2;

/// A ladder for each workload that has rungs; `cell` says how a difference is written.
pub(crate) fn ladders(result: &RunResult, cell: fn(&Comparison) -> String) -> Vec<Ladder> {
    let workloads = result.header.workloads.iter();
    workloads.filter_map(|workload| ladder(result, workload, cell)).collect()
}

fn ladder(
    result: &RunResult,
    workload: &Workload,
    cell: fn(&Comparison) -> String,
) -> Option<Ladder> {
    let metrics: Vec<Metric> = metrics(workload).into_iter().take(SHOWN).collect();
    let found = |metric: Metric, arm: &str, against: &str| {
        let mut all = result.against_others.iter().filter(|item| item.workload == workload.name);
        let item = all.find(|item| {
            item.metric == metric && item.arm == arm && item.against.as_deref() == Some(against)
        })?;
        Some(cell(item))
    };
    let rungs = result.header.arms.iter().filter_map(|arm| Some((arm, arm.against.as_deref()?)));
    let rows = rungs.filter_map(|(arm, against)| {
        let cells = metrics.iter().map(|metric| found(*metric, &arm.name, against));
        let cells: Vec<String> = cells.collect::<Option<_>>()?;
        Some([vec![format!("{} against {against}", arm.name)], cells].concat())
    });
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| Ladder {
        title: heading_of(result, workload),
        head: metrics.iter().map(|metric| title(*metric).to_owned()).collect(),
        rows,
    })
}
