//! Latency quantiles, from the histograms of all rounds.

use std::time::Duration;

use maud::{Markup, html};
use pgtoll_record::{Latencies, Run, RunResult, Workload};

use super::{Series, figures, series};
use crate::plot::{Drawing, Frame, Scale, Unit, Width, Words, figure, latency, legend};

/// A figure for each workload that has latencies.
pub(crate) fn section(run: &Run, result: &RunResult) -> Markup {
    let words = html! {
        p {
            "How long a transaction took: half of them were faster than the value at 50 %, \
            one in a hundred was slower than that at 99 %. All rounds together, of the slices \
            that count. Both axes are logarithmic. The right end hangs on few transactions."
        }
        (legend(series(result).iter().map(|series| (series.title.as_str(), series.look))))
    };
    let none = "No transaction’s latency was measured in a round that ended.";
    figures(run, &words, none, |item, index| of_workload(run, result, item, index))
}

/// Quantiles that are drawn: `1 / (1 - q)` and latency in ns.
type Curve = Vec<(f64, f64)>;

fn of_workload(run: &Run, result: &RunResult, workload: &Workload, index: usize) -> Option<Markup> {
    let arms = series(result).into_iter();
    let merged: Vec<(Series<'_>, Latencies)> = arms
        .filter_map(|series| Some((merged(run, workload, series.arm)?, series)))
        .map(|(latencies, series)| (series, latencies))
        .collect();
    if merged.is_empty() {
        return None;
    }
    let curves: Vec<(&Series<'_>, Curve)> =
        merged.iter().map(|(series, latencies)| (series, curve(latencies))).collect();
    let described = merged.iter().map(|(series, latencies)| {
        let [median, slow] = [0.5, 0.99].map(|share| shown(latencies.quantile(share)));
        format!("{}: median {median}, 99 % within {slow}", series.title)
    });
    let words = Words {
        id: format!("latency-{index}"),
        title: &format!("Latency quantiles: {}", workload.title),
        description: described.collect::<Vec<_>>().join(". "),
        caption: html! { h3 { (workload.title) } },
    };
    Some(html! {
        (figure(&words, |width| drawing(&curves, width)))
        (numbers(&merged, &workload.title))
    })
}

/// All rounds' latencies of an arm; what cannot be read is passed over.
fn merged(run: &Run, workload: &Workload, arm: &str) -> Option<Latencies> {
    let rounds = run.rounds.iter().filter(|round| round.workload == workload.name);
    let own = rounds.flat_map(|round| &round.latencies).filter(|item| item.arm == arm);
    let mut all = Latencies::new();
    for latencies in own.filter_map(|item| Latencies::from_base64(&item.histogram).ok()) {
        all.merge(&latencies);
    }
    (all.count() > 0).then_some(all)
}

/// Up to the quantile that ten transactions are beyond, evenly on the logarithmic axis.
#[expect(clippy::cast_precision_loss, reason = "latencies are far below 2^53 ns")]
fn curve(latencies: &Latencies) -> Curve {
    let most = (latencies.count() as f64 / 10.0).clamp(2.0, 1e5);
    let steps = 64;
    let even = (0..=steps).map(|step| most.powf(f64::from(step) / f64::from(steps)));
    let marked = MARKED.iter().map(|(tail, _)| *tail).filter(|tail| *tail <= most);
    let mut tails: Vec<f64> = even.chain(marked).collect();
    tails.sort_by(f64::total_cmp);
    let points = tails.into_iter().filter_map(|tail| {
        let latency = latencies.quantile(1.0 - 1.0 / tail)?;
        Some((tail, latency.as_nanos() as f64))
    });
    points.collect()
}

fn drawing(curves: &[(&Series<'_>, Curve)], width: Width) -> Drawing {
    let points = || curves.iter().flat_map(|(_, curve)| curve);
    let left = 62.0;
    let right = width.units() - 8.0;
    let top = 14.0;
    let bottom = if width.is_narrow() { 214.0 } else { 254.0 };
    let frame = Frame {
        x: Scale::log(points().map(|(tail, _)| *tail), Unit::Quantile).between(left, right),
        y: Scale::log(points().map(|(_, ns)| *ns), Unit::Nanoseconds)
            .padded(0.05)
            .between(bottom, top),
        title: "",
        margin: 0.0,
        x_title: "share of transactions that took no longer",
        x_ticks: 6,
        y_ticks: 7,
    };
    let marks = html! {
        (frame.axes())
        @for (series, curve) in curves {
            (frame.line(series.look, curve, &series.title))
            @for (tail, share) in MARKED {
                @if let Some((_, ns)) = curve.iter().find(|(curve, _)| curve.total_cmp(&tail).is_eq()) {
                    (series.look.marker(frame.x.at(tail), frame.y.at(*ns),
                        &format!("{}, {share}: {}", series.title, written(*ns))))
                }
            }
        }
    };
    Drawing { height: bottom + 42.0, marks }
}

/// The charts in which markers distinguish the arms.
const MARKED: [(f64, &str); 4] =
    [(2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1000.0, "99.9 %")];

/// The quantiles as a table, for those who want them exactly.
fn numbers(merged: &[(Series<'_>, Latencies)], title: &str) -> Markup {
    const SHARES: [(f64, &str); 6] = [
        (0.5, "50 %"),
        (0.9, "90 %"),
        (0.95, "95 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (1.0, "longest"),
    ];
    html! {
        details {
            summary { "In numbers" }
            div class="scroll" role="region" aria-label={ "Latencies in numbers: " (title) } tabindex="0" {
                table {
                    thead { tr {
                        th scope="col" { "arm" }
                        th scope="col" { "transactions" }
                        @for (_, title) in SHARES { th scope="col" { (title) } }
                    } }
                    tbody { @for (series, latencies) in merged { tr {
                        th scope="row" { (series.title) }
                        td { (latencies.count()) }
                        @for (share, _) in SHARES { td { (shown(latencies.quantile(share))) } }
                    } } }
                }
            }
        }
    }
}

fn shown(latency: Option<Duration>) -> String {
    latency.map_or_else(|| "-".to_owned(), self::latency)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most an hour")]
fn written(ns: f64) -> String {
    latency(Duration::from_nanos(ns as u64))
}
