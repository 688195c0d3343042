//! Several records side by side: what they say of the same arms under the same work.

use std::collections::BTreeMap;

use pgtoll_record::{
    Arm, Change, Comparison, Header, HeaderDifference, Interval, Metric, RecordColumn,
    SIDE_BY_SIDE_SCHEMA, ScriptText, SideBySide, Work,
};
use serde_json::Value;

use crate::NamedRun;

/// Why records cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{one} and {other} cannot be compared: {why}")]
pub struct NotComparable {
    one: String,
    other: String,
    why: String,
}

/// The records, at least one, side by side; or why that would compare what is not the same.
pub fn side_by_side(records: &[NamedRun<'_>]) -> Result<SideBySide, NotComparable> {
    for (index, one) in records.iter().enumerate() {
        for other in &records[index + 1..] {
            let why = obstacle(&one.result.header, &other.result.header);
            why.map_or(Ok(()), |why| {
                let one = one.name.to_owned();
                let other = other.name.to_owned();
                Err(NotComparable { one, other, why })
            })?;
        }
    }
    let records: Vec<RecordColumn> =
        records.iter().enumerate().map(|(index, record)| column(index, record)).collect();
    let differences = differences(&records);
    let changes = changes(&records);
    let notes = notes(&records, &differences, !changes.is_empty());
    let schema = SIDE_BY_SIDE_SCHEMA.to_owned();
    Ok(SideBySide { schema, records, differences, changes, notes })
}

fn column(index: usize, record: &NamedRun<'_>) -> RecordColumn {
    let letter = u8::try_from(index).ok().filter(|index| *index < 26).map(|item| b'A' + item);
    RecordColumn {
        label: letter
            .map_or_else(|| format!("R{}", index + 1), |letter| char::from(letter).to_string()),
        name: record.name.to_owned(),
        result: record.result.clone(),
    }
}

/// Returns the obstacle to a comparison of the two.
fn obstacle(one: &Header, other: &Header) -> Option<String> {
    if one.experiment != other.experiment {
        let one = &one.experiment;
        let other = &other.experiment;
        return Some(format!("one is of experiment \"{one}\", the other of \"{other}\""));
    }
    if one.baseline != other.baseline {
        let one = &one.baseline;
        let other = &other.baseline;
        return Some(format!("the baseline of one is arm \"{one}\", of the other \"{other}\""));
    }
    // What else it is compared with makes no other arm of it.
    let differs = |one: &Arm, other: &Arm| {
        Arm { against: None, ..one.clone() } != Arm { against: None, ..other.clone() }
    };
    let other_arm =
        |arm: &Arm| other.arms.iter().any(|item| item.name == arm.name && differs(item, arm));
    if let Some(arm) = one.arms.iter().find(|arm| other_arm(arm)) {
        return Some(format!("arm \"{}\" has other settings in one than in the other", arm.name));
    }
    let scaled = one.design.scale != other.design.scale;
    for workload in &one.workloads {
        let mut others = other.workloads.iter();
        if let Some(item) = others.find(|item| item.name == workload.name)
            && !is_same_work(&workload.work, &item.work, scaled)
        {
            return Some(format!("workload \"{}\" is other work in each", workload.name));
        }
    }
    let shared = |name: &str| other.workloads.iter().any(|workload| workload.name == name);
    let nothing = !one.workloads.iter().any(|workload| shared(&workload.name));
    nothing.then(|| "they have no workload in common".to_owned())
}

/// How many transactions were counted does not matter, and with another scale the numbers in an
/// operation's text may follow it.
fn is_same_work(one: &Work, other: &Work, scaled: bool) -> bool {
    type Scripts<'a> = (&'a [ScriptText], Option<f64>, u32);
    fn script(work: &Work) -> Option<Scripts<'_>> {
        match work {
            Work::Script { scripts, rate, clients, .. } => Some((scripts, *rate, *clients)),
            Work::Command { .. } | Work::Operation { .. } => None,
        }
    }
    match (one, other) {
        (
            Work::Operation { action: one, of: None, .. },
            Work::Operation { action: other, of: None, .. },
        ) if scaled => without_numbers(one) == without_numbers(other),
        // In turns or in one piece.
        (
            Work::Operation { action: one, of: of_one, .. },
            Work::Operation { action: other, of: of_other, .. },
        ) => one == other && of_one == of_other,
        _ if script(one).is_some() => script(one) == script(other),
        _ => one == other,
    }
}

fn without_numbers(text: &str) -> String {
    text.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect()
}

/// Everything that is not the same in all headers. The command says nothing that is not elsewhere.
fn differences(records: &[RecordColumn]) -> Vec<HeaderDifference> {
    let fields: Vec<BTreeMap<String, String>> =
        records.iter().map(|record| fields(&record.result.header)).collect();
    let mut names: Vec<&String> = fields.iter().flat_map(BTreeMap::keys).collect();
    names.sort_unstable();
    names.dedup();
    let differences = names.into_iter().map(|name| HeaderDifference {
        field: name.clone(),
        values: fields.iter().map(|field| field.get(name).cloned()).collect(),
    });
    differences
        .filter(|difference| {
            difference.field != "command"
                && difference.values.iter().any(|value| *value != difference.values[0])
        })
        .collect()
}

fn fields(header: &Header) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    // A header is made of what JSON has.
    flatten("", &serde_json::to_value(header).unwrap_or_default(), &mut fields);
    fields
}

/// Lists of named items are compared by their names, other lists as a whole.
fn flatten(path: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    let below =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let named = |list: &[Value]| list.iter().all(|item| name_of(item).is_some());
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                flatten(&below(name), value, fields);
            }
        }
        Value::Array(list) if !list.is_empty() && path != "command" && named(list) => {
            for value in list {
                flatten(&below(name_of(value).unwrap_or_default()), value, fields);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(fields.insert(path.to_owned(), text.clone())),
        other => drop(fields.insert(path.to_owned(), other.to_string())),
    }
}

fn name_of(value: &Value) -> Option<&str> {
    value["name"].as_str().or(value["metric"].as_str())
}

fn changes(records: &[RecordColumn]) -> Vec<Change> {
    let Some((first, rest)) = records.split_first() else { return Vec::new() };
    let of_record = |record: &RecordColumn| -> Vec<Change> {
        let comparisons = first.result.comparisons.iter();
        comparisons
            .filter_map(|then| {
                let mut all = record.result.comparisons.iter();
                let now = all
                    .find(|comparison| is_of(comparison, &then.workload, then.metric, &then.arm))?;
                Some(Change {
                    record: record.label.clone(),
                    against: first.label.clone(),
                    workload: then.workload.clone(),
                    metric: then.metric,
                    arm: then.arm.clone(),
                    ratio: ratio_of_ratios(then, now),
                })
            })
            .collect()
    };
    rest.iter().flat_map(of_record).collect()
}

/// Whether the comparison is of this workload, metric and arm.
pub fn is_of(comparison: &Comparison, workload: &str, metric: Metric, arm: &str) -> bool {
    comparison.workload == workload && comparison.metric == metric && comparison.arm == arm
}

fn ratio_of_ratios(then: &Comparison, now: &Comparison) -> Interval {
    let log_ratio = now.ratio.estimate.ln() - then.ratio.estimate.ln();
    let half_width = now.half_width.hypot(then.half_width);
    Interval {
        estimate: log_ratio.exp(),
        lower: (log_ratio - half_width).exp(),
        upper: (log_ratio + half_width).exp(),
    }
}

fn notes(records: &[RecordColumn], differences: &[HeaderDifference], changes: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let differs =
        |prefix: &str| differences.iter().any(|difference| difference.field.starts_with(prefix));
    let setting = |difference: &&HeaderDifference| {
        let field = &difference.field;
        field.starts_with("server.settings.")
            || field.starts_with("workloads.")
                && (field.contains(".settings.") || field.ends_with(".memory_limit_bytes"))
    };
    let settings: Vec<&str> =
        differences.iter().filter(setting).map(|difference| difference.field.as_str()).collect();
    let mut other_work: Vec<String> = Vec::new();
    other_work.extend(differs("design.scale").then(|| "the scale".to_owned()));
    other_work.extend((!settings.is_empty()).then(|| settings.join(", ")));
    if !other_work.is_empty() {
        notes.push(format!(
            "{} differ: absolute values are not comparable, and the ratios are of different work",
            other_work.join(" and ")
        ));
    }
    if ["host.cpu", "host.cores", "host.memory_bytes", "host.file_system"].into_iter().any(differs)
    {
        notes.push("the machines differ: absolute values are not comparable".to_owned());
    }
    if differences.iter().any(|difference| difference.field.ends_with(".work.script.counted")) {
        notes.push(
            "the counted passes differ in length: so do what they count a transaction, where \
             checkpoints matter"
                .to_owned(),
        );
    }
    if differs("pgtoll") {
        notes.push("the versions of pgtoll differ: see its changelog".to_owned());
    }
    notes.extend(same_runs(records));
    for record in records {
        let own = record.result.notes.iter();
        notes.extend(own.map(|note| format!("{}: {note}", record.label)));
    }
    if changes {
        notes.push(format!(
            "a change is the ratio that a record found over the ratio that {} found. Its interval \
             combines the half-widths of both on the log scale (root of the sum of squares), which \
             takes the runs as independent; what differs between machines or days is not in it, \
             and nothing is corrected for the number of rows",
            records[0].label
        ));
    }
    notes
}

fn same_runs(records: &[RecordColumn]) -> Vec<String> {
    let mut notes = Vec::new();
    for (index, one) in records.iter().enumerate() {
        for other in &records[index + 1..] {
            if one.result.header == other.result.header {
                notes.push(format!("{} and {} are the same run", one.label, other.label));
            }
        }
    }
    notes
}
