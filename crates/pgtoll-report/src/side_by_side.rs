//! Records side by side as text: for a terminal, 80 columns wide with up to three of them, and as
//! Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pgtoll_estimate::{is_of, key, metrics, signed_percent, three_digits};
use pgtoll_record::{Arm, Interval, Metric, MetricValue, RecordColumn, SideBySide, Workload};

use crate::cells::{COUNTED, NOTHING_KNOWN, SHOWN, difference, title};
use crate::markdown;
use crate::printable::printable;
use crate::text::{Block, WIDTH, aligned, wrapped};

/// The table, what differs and what a reader has to know. Plain text.
pub(crate) fn side_by_side_text(together: &SideBySide) -> String {
    let heading = heading(together);
    let heading = printable(&heading);
    let mut text = format!("{heading}\n\n{}", aligned(titles(together), blocks(together)));
    let changes = change_blocks(together);
    if !changes.is_empty() {
        let titles = std::iter::once(String::new()).chain(labels(together).into_iter().skip(1));
        let _ = write!(
            text,
            "\n{}\n{}",
            changes_title(together),
            aligned(vec![titles.collect()], changes)
        );
    }
    text.push('\n');
    for record in &together.records {
        text.push_str(&wrapped(&format!("{}: ", record.label), &record.name));
    }
    for difference in difference_rows(together) {
        let values = together.records.iter().zip(&difference[1..]);
        let values = values.map(|(item, value)| format!("{} {value}", item.label));
        let values: Vec<String> = values.collect();
        let line = format!("{}: {}", difference[0], values.join("; "));
        text.push_str(&wrapped("differs: ", &line));
    }
    for note in &together.notes {
        text.push_str(&wrapped("note: ", note));
    }
    text + &wrapped("", LEGEND)
}

/// The same in GitHub's Markdown.
pub(crate) fn side_by_side_markdown(together: &SideBySide) -> String {
    let mut text = format!("### {}\n\n", markdown::escaped(&heading(together)));
    for record in &together.records {
        let label = &record.label;
        let name = markdown::escaped(&record.name);
        let _ = writeln!(text, "- **{label}:** {name}");
    }
    for note in &together.notes {
        let _ = writeln!(text, "- **note:** {}", markdown::escaped(note));
    }
    let labels = labels(together);
    let mut write = |titles: &[String], blocks: Vec<Block>| {
        for (title, rows) in blocks.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            let _ = writeln!(text, "\n**{}**\n", markdown::escaped(&title));
            text.push_str(&markdown::table(titles, &rows));
        }
    };
    write(&labels, vec![("what differs".to_owned(), difference_rows(together))]);
    write(&labels, blocks(together));
    let changes = change_blocks(together).into_iter();
    let changes =
        changes.map(|(title, rows)| (format!("{}: {title}", changes_title(together)), rows));
    write(&labels[1..], changes.collect());
    let _ = writeln!(text, "\n{}", markdown::escaped(LEGEND));
    text
}

pub(crate) fn labels(together: &SideBySide) -> Vec<String> {
    together.records.iter().map(|record| record.label.clone()).collect()
}

pub(crate) fn changes_title(together: &SideBySide) -> String {
    format!("change of the difference from the baseline, against {}", together.records[0].label)
}

/// Each field with its values.
pub(crate) fn difference_rows(together: &SideBySide) -> Vec<Vec<String>> {
    let rows = together.differences.iter().map(|difference| {
        let values = difference.values.iter();
        let values = values.map(|value| value.as_deref().unwrap_or(NOTHING_KNOWN).to_owned());
        std::iter::once(difference.field.clone()).chain(values).collect()
    });
    rows.collect()
}

pub(crate) fn heading(together: &SideBySide) -> String {
    let experiment = &together.records[0].result.header.experiment;
    format!("{experiment}: {} records, against {}", together.records.len(), together.baseline())
}

/// Returns the titles of the columns: their labels, and their differences in short.
fn titles(together: &SideBySide) -> Vec<Vec<String>> {
    let labels = together.records.iter().map(|record| record.label.clone());
    let mut rows = vec![std::iter::once(String::new()).chain(labels).collect()];
    let settings =
        together.differences.iter().filter(|difference| difference.field.contains("settings."));
    let named = IN_TITLES.iter().filter_map(|(field, _)| {
        together.differences.iter().find(|difference| difference.field == *field)
    });
    for difference in named.chain(settings.take(SETTINGS_IN_TITLES)) {
        let short = IN_TITLES.iter().find(|(field, _)| *field == difference.field);
        let title =
            short.map_or_else(|| of_setting(&difference.field), |(_, short)| (*short).into());
        let values = difference.values.iter().map(|value| {
            let value = value.as_deref().unwrap_or(NOTHING_KNOWN);
            clipped(&in_short(&difference.field, value), CELL)
        });
        rows.push(std::iter::once(label(together, 0, &title)).chain(values).collect());
    }
    rows
}

/// The rows of each workload, below its title.
pub(crate) fn blocks(together: &SideBySide) -> Vec<Block> {
    let blocks = together.workloads().into_iter().map(|workload| {
        let timed = metrics(workload)
            .into_iter()
            .flat_map(|metric| metric_rows(together, workload, metric));
        let counted = COUNTED.iter().flat_map(|counted| counted_rows(together, workload, counted));
        (workload.title.clone(), timed.chain(counted).collect::<Vec<_>>())
    });
    blocks.filter(|(_, rows)| !rows.is_empty()).collect()
}

/// The baseline's value, and the other arms' differences from it.
fn metric_rows(together: &SideBySide, workload: &Workload, metric: Metric) -> Vec<Vec<String>> {
    let (name, _, _) = key(metric);
    let baseline = |column: &RecordColumn| {
        let own = column.result.header.workloads.iter().find(|own| own.name == workload.name);
        let timed = own.is_some_and(|own| own.timed);
        let value = counted(column, &workload.name, together.baseline(), name).filter(|_| timed)?;
        Some(three_digits(value.value))
    };
    let of_arm = |arm: &Arm| {
        row(together, label(together, 2, &called(arm)), |item| {
            let mut all = item.result.comparisons.iter();
            all.find(|comparison| is_of(comparison, &workload.name, metric, &arm.name))
                .map(difference)
        })
    };
    let arms = together.arms().into_iter().filter(|arm| arm.name != together.baseline());
    let title = format!("{}: {}", title(metric), together.baseline());
    let first = row(together, label(together, 0, &title), baseline);
    first.into_iter().chain(arms.filter_map(of_arm)).collect()
}

/// A row for the arms that are alike in all records, and none where all would be zero.
fn counted_rows(
    together: &SideBySide,
    workload: &Workload,
    counter: &(&str, &str),
) -> Vec<Vec<String>> {
    let (metric, title) = counter;
    let value = |column: &RecordColumn, arm: &str| {
        counted(column, &workload.name, arm, metric).map(|value| value.value)
    };
    let shows = |arm: &&Arm| {
        let mut values = together.records.iter().filter_map(|record| value(record, &arm.name));
        values.any(|value| value >= SHOWN)
    };
    if !together.arms().iter().any(shows) {
        return Vec::new();
    }
    let mut alike: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
    for arm in together.arms() {
        let cells =
            |arm: &str| row(together, String::new(), |item| value(item, arm).map(three_digits));
        let Some(own) = cells(&arm.name) else { continue };
        // A twin that is one says nothing.
        if arm.twin_of.as_ref().is_some_and(|twin_of| cells(twin_of).as_ref() == Some(&own)) {
            continue;
        }
        match alike.iter_mut().find(|(alike, _)| *alike == own) {
            Some((_, arms)) => arms.push(&arm.name),
            None => alike.push((own, vec![&arm.name])),
        }
    }
    let all = alike.len() == 1;
    let rows = alike.into_iter().enumerate().map(|(index, (mut cells, arms))| {
        let arms = arms.join(", ");
        cells[0] = match (all, index) {
            (true, _) => label(together, 0, title),
            (false, 0) => label(together, 0, &format!("{title}: {arms}")),
            (false, _) => label(together, 2, &arms),
        };
        cells
    });
    rows.collect()
}

/// A row with a cell for each record; `None` where no record knows anything.
fn row(
    together: &SideBySide,
    label: String,
    cell: impl Fn(&RecordColumn) -> Option<String>,
) -> Option<Vec<String>> {
    let cells: Vec<Option<String>> = together.records.iter().map(cell).collect();
    cells.iter().any(Option::is_some).then(|| {
        let cells = cells.into_iter().map(|cell| cell.unwrap_or(NOTHING_KNOWN.to_owned()));
        std::iter::once(label).chain(cells).collect()
    })
}

pub(crate) fn change_blocks(together: &SideBySide) -> Vec<Block> {
    let blocks = together.workloads().into_iter().map(|workload| {
        let mut rows = Vec::new();
        for metric in metrics(workload) {
            for arm in together.arms().into_iter().filter(|arm| arm.twin_of.is_none()) {
                let label = label(together, 0, &format!("{}: {}", title(metric), arm.name));
                rows.extend(change_row(together, label, &workload.name, metric, &arm.name));
            }
        }
        (workload.title.clone(), rows)
    });
    blocks.filter(|(_, rows)| !rows.is_empty()).collect()
}

fn change_row(
    together: &SideBySide,
    label: String,
    workload: &str,
    metric: Metric,
    arm: &str,
) -> Option<Vec<String>> {
    let of_row = together.changes.iter();
    let of_row =
        of_row.filter(|item| item.workload == workload && item.metric == metric && item.arm == arm);
    let of_row: BTreeMap<&str, String> =
        of_row.map(|item| (item.record.as_str(), changed(&item.ratio))).collect();
    (!of_row.is_empty()).then(|| {
        let cells = together.records.iter().skip(1).map(|record| {
            let cell = of_row.get(record.label.as_str());
            cell.cloned().unwrap_or(NOTHING_KNOWN.to_owned())
        });
        std::iter::once(label).chain(cells).collect()
    })
}

/// Indented, and no wider than leaves room for the columns.
fn label(together: &SideBySide, indent: usize, text: &str) -> String {
    let columns = together.records.len() * (CELL + 2);
    let room = WIDTH.saturating_sub(columns).max(LABEL_AT_LEAST);
    clipped(&format!("{:indent$}{text}", ""), room)
}

const LABEL_AT_LEAST: usize = 24;
/// As wide as `+12.3 % ±10.5`.
const CELL: usize = 13;
const SETTINGS_IN_TITLES: usize = 3;

/// Fields of the header whose differences stand above the columns, and what they are called there.
const IN_TITLES: [(&str, &str); 6] = [
    ("server.version", "PostgreSQL"),
    ("host.cpu", "CPU"),
    ("host.cores", "cores"),
    ("design.scale", "scale"),
    ("pgtoll", "pgtoll"),
    ("started", "began (UTC)"),
];

pub(crate) const LEGEND: &str = "The first row of a figure is the baseline's value, the others are differences \
    from it: ± is half of a 95 % interval; ~ means that the interval covers zero; - means that the \
    record does not say. Rows without ± are counted over equal work, and stand for all arms where they \
    name none; CPU in the kernel, disk reads and file writes are not exact.";

pub(crate) fn called(arm: &Arm) -> String {
    format!("{}{}", arm.name, if arm.twin_of.is_some() { " (null)" } else { "" })
}

/// `workloads.reads.settings.work_mem` as `work_mem, reads`.
fn of_setting(field: &str) -> String {
    let (item, name) = field.split_once(".settings.").unwrap_or(("", field));
    item.strip_prefix("workloads.")
        .map_or(name.to_owned(), |workload| format!("{name}, {workload}"))
}

/// A header's value in the few characters of a column.
fn in_short(field: &str, value: &str) -> String {
    match field {
        // 2026-11-22T04:10:33.2Z
        "started" => {
            let date = value.get(5..16).unwrap_or(value);
            date.replace('T', " ")
        }
        "host.cpu" => value.replace("(R)", "").replace("(TM)", "").replace(" Processor", ""),
        _ => value.to_owned(),
    }
}

fn clipped(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

fn changed(ratio: &Interval) -> String {
    let half = (ratio.upper - ratio.lower) / 2.0 * 100.0;
    let digits = usize::from(half < 9.95);
    match ratio {
        _ if !half.is_finite() || half > 999.0 => "~ ±>999 %".to_owned(),
        Interval { lower, upper, .. } if *lower <= 1.0 && *upper >= 1.0 => {
            format!("~ ±{half:.digits$} %")
        }
        _ => format!("{} % ±{half:.digits$}", signed_percent(ratio.estimate, digits)),
    }
}

/// Returns the counted value of a metric in a record.
fn counted<'a>(
    record: &'a RecordColumn,
    workload: &str,
    arm: &str,
    metric: &str,
) -> Option<&'a MetricValue> {
    let mut values = record.result.values.iter();
    values.find(|value| value.workload == workload && value.arm == arm && value.metric == metric)
}
