//! Results as `OpenMetrics` text, which Prometheus and its relatives read.
//!
//! Every family is a gauge, also `pgtoll_run_info`: older readers of Prometheus's own format, which
//! this text is valid in too, know no other type for it.

use std::fmt::Write as _;

use pgtoll_estimate::{NamedRun, key};
use pgtoll_record::Interval;

use crate::printable::printable;

/// Values and ratios as gauges. Only of several records each has a label `record`: a path that
/// changes with every run would make a new series of every run.
pub fn openmetrics(records: &[NamedRun<'_>]) -> String {
    let mut text = String::new();
    let families: [RunFamily; 5] = [
        ("pgtoll_run_info", "What was run, where, with what.", None, info),
        ("pgtoll_run_complete", "1: all that was planned was done.", None, complete),
        ("pgtoll_run_start_time_seconds", "When the run began.", Some("seconds"), started),
        ("pgtoll_value", "An arm's value of a metric.", None, values),
        (
            "pgtoll_ratio",
            "An arm's metric over that of the baseline: the estimate and its 95 % interval.",
            Some("ratio"),
            ratios,
        ),
    ];
    for (name, help, unit, samples) in families {
        let gauges = records.iter().flat_map(|record| {
            let name_of_record = (records.len() > 1).then(|| ("record", record.name.to_owned()));
            let header = &record.result.header;
            let experiment = [("experiment", header.experiment.clone())];
            let name_of_run = header.name.clone().map(|name| ("name", name));
            let common: Vec<_> =
                name_of_record.into_iter().chain(experiment).chain(name_of_run).collect();
            let own = samples(record).into_iter();
            own.map(move |(labels, value)| ([common.clone(), labels].concat(), value))
        });
        text.push_str(&family(name, help, unit, gauges));
    }
    text + "# EOF\n"
}

/// A metric with all its samples.
pub(crate) fn family(
    name: &str,
    help: &str,
    unit: Option<&str>,
    gauges: impl Iterator<Item = Gauge>,
) -> String {
    let mut text = format!("# TYPE {name} gauge\n");
    if let Some(unit) = unit {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
    for (labels, value) in gauges {
        let labels: Vec<String> = labels.iter().map(|(name, value)| label(name, value)).collect();
        let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
    }
    text
}

/// A metric of records of this kind.
pub(crate) struct Family<R> {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) unit: Option<&'static str>,
    pub(crate) gauges: fn(&R) -> Vec<Gauge>,
}

/// All metrics of a record, each sample with this label first.
pub(crate) fn families<R>(
    item: &R,
    label: &(&'static str, String),
    families: &[Family<R>],
) -> String {
    let mut text = String::new();
    for Family { name, help, unit, gauges } in families {
        let own = gauges(item).into_iter();
        let all = own.map(|(labels, value)| ([vec![label.clone()], labels].concat(), value));
        text.push_str(&family(name, help, *unit, all));
    }
    text + "# EOF\n"
}

/// The one sample of a metric without labels of its own.
pub(crate) fn one(value: f64) -> Vec<Gauge> {
    vec![(Vec::new(), value)]
}

/// Labels and value.
pub(crate) type Gauge = (Vec<(&'static str, String)>, f64);
/// Name, help, unit and gauges.
type RunFamily =
    (&'static str, &'static str, Option<&'static str>, fn(&NamedRun<'_>) -> Vec<Gauge>);

fn label(name: &str, value: &str) -> String {
    // The format has an escape for a line feed only: of others the value has pgtoll's own.
    let value = value.split('\n').map(printable).collect::<Vec<_>>().join("\n");
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

fn info(record: &NamedRun<'_>) -> Vec<Gauge> {
    let header = &record.result.header;
    let labels = vec![
        ("pgtoll", header.pgtoll.clone()),
        ("postgresql", header.server.version.to_string()),
        ("baseline", header.baseline.clone()),
        ("scale", header.design.scale.to_string()),
        ("seed", header.seed.to_string()),
        ("cpu", header.host.cpu.clone()),
        ("cores", header.host.cores.to_string()),
        ("kernel", header.host.kernel.clone()),
    ];
    vec![(labels, 1.0)]
}

fn complete(record: &NamedRun<'_>) -> Vec<Gauge> {
    vec![(Vec::new(), f64::from(u8::from(record.result.complete)))]
}

fn started(record: &NamedRun<'_>) -> Vec<Gauge> {
    let started = seconds(&record.result.header.started);
    started.map(|time| (Vec::new(), time)).into_iter().collect()
}

/// A time as seconds since 1970; `None`: it is none.
#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^53")]
pub(crate) fn seconds(rfc3339: &str) -> Option<f64> {
    let time: jiff::Timestamp = rfc3339.parse().ok()?;
    Some(time.as_millisecond() as f64 / 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

fn values(record: &NamedRun<'_>) -> Vec<Gauge> {
    let values = record.result.values.iter();
    values
        .map(|value| {
            let mut labels = labels(&value.workload, &value.arm, &value.metric);
            labels.push(("unit", value.unit.clone()));
            (labels, value.value)
        })
        .collect()
}

fn ratios(record: &NamedRun<'_>) -> Vec<Gauge> {
    let of_bounds = |interval: &Interval| {
        [("estimate", interval.estimate), ("lower", interval.lower), ("upper", interval.upper)]
    };
    let comparisons = record.result.comparisons.iter();
    comparisons
        .flat_map(|comparison| {
            of_bounds(&comparison.ratio).map(|(bound, value)| {
                let mut labels =
                    labels(&comparison.workload, &comparison.arm, key(comparison.metric).0);
                labels.push(("bound", bound.to_owned()));
                (labels, value)
            })
        })
        .collect()
}

fn labels(workload: &str, arm: &str, metric: &str) -> Vec<(&'static str, String)> {
    vec![("workload", workload.to_owned()), ("arm", arm.to_owned()), ("metric", metric.to_owned())]
}
