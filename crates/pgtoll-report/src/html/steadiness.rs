//! The paired difference over time: whether a comparison was the same from beginning to end.

use std::collections::BTreeMap;

use maud::{Markup, html};
use pgtoll_estimate::{metrics, samples};
use pgtoll_record::{Run, RunResult, Work, Workload};
use pgtoll_stats::Sample;

use super::comparison::comparison;
use super::{Series, figures, series};
use crate::cells::{interval, title};
use crate::plot::{Drawing, Frame, Scale, Unit, Width, Words, figure};

/// A figure for each timed workload.
pub(crate) fn section(run: &Run, result: &RunResult) -> Markup {
    let words = html! {
        p {
            "Each faint point is one pair: what an arm used in its turn against what "
            strong { (result.header.baseline) } " used in the same block. The larger marks \
            are the rounds’ medians, the line with its band is the estimate of the whole run \
            with its interval. A steady comparison scatters evenly around its line; a slope, \
            or a round that lies apart, says that the machine changed."
        }
    };
    let none = "Nothing was timed in two arms: no difference to show.";
    figures(run, &words, none, |item, index| {
        of_workload(run, result, item, index).filter(|_| item.timed)
    })
}

/// A pair: in which round, where in the round as a share, and the difference in per cent.
#[derive(Clone, Copy)]
struct Pair {
    round: u32,
    at: f64,
    percent: f64,
}

fn of_workload(run: &Run, result: &RunResult, workload: &Workload, index: usize) -> Option<Markup> {
    let metric = *metrics(workload).first()?;
    let samples = samples(run.into(), workload, metric);
    let all = series(result);
    let mut arms = Vec::new();
    for series in all.into_iter().skip(1) {
        let pairs = pairs(&samples, series.arm, &result.header.baseline);
        if !pairs.is_empty() {
            arms.push((series, pairs));
        }
    }
    let rounds = arms.iter().flat_map(|(_, pairs)| pairs).map(|pair| pair.round).max()?;
    let noun =
        if matches!(workload.work, Work::Operation { .. }) { "repetitions" } else { "rounds" };
    let count: usize = arms.iter().map(|(_, pairs)| pairs.len()).sum();
    let words = Words {
        id: format!("time-{index}"),
        title: &format!("Difference from {} over time: {}", result.header.baseline, workload.title),
        description: format!("{count} pairs in {rounds} {noun}, {}", title(metric)),
        caption: html! {
            h3 { (workload.title) }
            p { (title(metric)) ", difference from " (result.header.baseline) ", over the "
                (noun) " in the order of time" }
        },
    };
    let estimate = |arm: &str| comparison(result, workload, metric, arm);
    Some(figure(&words, |width| {
        let scale = Scale::linear(range(&arms, &estimate), Unit::SignedPercent).padded(0.06);
        panels(&arms, &estimate, &scale, rounds, noun, width)
    }))
}

/// Without the outermost points: they would press all others together.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks of few pairs"
)]
fn range<'a>(
    arms: &[(Series<'_>, Vec<Pair>)],
    estimate: &dyn Fn(&str) -> Option<&'a pgtoll_record::Comparison>,
) -> Vec<f64> {
    let mut percents: Vec<f64> =
        arms.iter().flat_map(|(_, pairs)| pairs).map(|pair| pair.percent).collect();
    percents.sort_by(f64::total_cmp);
    let last = percents.len().saturating_sub(1);
    let rank = |share: f64| percents.get((last as f64 * share).round() as usize).copied();
    let estimates = arms.iter().filter_map(|(series, _)| estimate(series.arm));
    let estimates = estimates.flat_map(|estimate| [estimate.ratio.lower, estimate.ratio.upper]);
    let estimates = estimates.map(|ratio| (ratio.min(11.0) - 1.0) * 100.0);
    rank(0.04).into_iter().chain(rank(0.96)).chain([0.0]).chain(estimates).collect()
}

fn panels<'a>(
    arms: &[(Series<'_>, Vec<Pair>)],
    estimate: &dyn Fn(&str) -> Option<&'a pgtoll_record::Comparison>,
    scale: &Scale,
    rounds: u32,
    noun: &str,
    width: Width,
) -> Drawing {
    let left = 58.0;
    let right = width.units() - 6.0;
    let (height, between) = if width.is_narrow() { (96.0, 36.0) } else { (110.0, 36.0) };
    let mut top = 28.0;
    let mut marks = Vec::new();
    for (index, (series, pairs)) in arms.iter().enumerate() {
        let is_last = index + 1 == arms.len();
        let item = estimate(series.arm);
        let value = item.map(interval).map_or(String::new(), |value| format!(": {value}"));
        let x = Scale::linear([0.0, f64::from(rounds)], Unit::Plain).between(left, right);
        let frame = Frame {
            x,
            y: scale.clone().between(top + height, top),
            title: &format!("{}{value}", series.title),
            margin: 0.0,
            x_title: if is_last { noun } else { "" },
            x_ticks: 0,
            y_ticks: 6,
        };
        let out = pairs.iter().filter(|pair| !frame.y.has(pair.percent)).count();
        marks.push(html! {
            (frame.axes())
            (frame.boundaries(rounds))
            @if is_last { (frame.columns(rounds)) }
            (frame.level("zero", 0.0))
            (frame.dust(series.look, &binned(pairs)))
            @if let Some(estimate) = item {
                (frame.ribbon(series.look, percent(estimate.ratio.lower), percent(estimate.ratio.upper),
                    &interval(estimate)))
                (frame.level(&format!("estimate {}", series.look.class()),
                    percent(estimate.ratio.estimate)))
            }
            @for (round, median, count) in medians(pairs) {
                (series.look.marker(frame.x.at(f64::from(round) - 0.5), frame.y.at(median),
                    &format!("{} of {noun}, {round}: median {median:+.1} % of {count} pairs{}",
                        series.title, beyond(out))))
            }
        });
        top += height + between;
    }
    Drawing { height: top - between + 40.0, marks: html! { @for mark in &marks { (mark) } } }
}

fn beyond(out: usize) -> String {
    match out {
        0 => String::new(),
        out => format!(" ({out} points of this arm lie beyond the picture, on its edge)"),
    }
}

fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

/// Pairs in the order of time. Blocks of a round follow each other at equal distances.
fn pairs(samples: &[Sample<'_>], arm: &str, baseline: &str) -> Vec<Pair> {
    let mut by_block: BTreeMap<(u32, u32), (Option<f64>, Option<f64>)> = BTreeMap::new();
    let mut blocks: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for sample in samples {
        let value = Some(sample.numerator / sample.denominator);
        let pair = by_block.entry((sample.round, sample.block)).or_default();
        if sample.arm == arm {
            pair.0 = value;
        } else if sample.arm == baseline {
            pair.1 = value;
        }
        let (first, last) = blocks.entry(sample.round).or_insert((sample.block, sample.block));
        (*first, *last) = ((*first).min(sample.block), (*last).max(sample.block));
    }
    let pairs = by_block.into_iter().filter_map(|((round, block), (own, other))| {
        let (first, last) = *blocks.get(&round)?;
        let count = f64::from(last - first) + 1.0;
        let percent = percent(own? / other?);
        let at = (f64::from(block - first) + 0.5) / count;
        percent.is_finite().then_some(Pair { round, at, percent })
    });
    pairs.collect()
}

/// At most this many points a panel: a point a pixel says no more.
const POINTS: usize = 300;

/// Places of the points, neighbours of one round taken together where there are too many.
#[expect(clippy::cast_precision_loss, reason = "pairs are few")]
fn binned(pairs: &[Pair]) -> Vec<(f64, f64)> {
    let size = pairs.len().div_ceil(POINTS).max(1);
    let of_rounds = pairs.chunk_by(|one, other| one.round == other.round);
    let bins = of_rounds.flat_map(|of_round| of_round.chunks(size));
    let mean =
        |bin: &[Pair], pair: fn(&Pair) -> f64| bin.iter().map(pair).sum::<f64>() / bin.len() as f64;
    bins.map(|bin| {
        (mean(bin, |pair| f64::from(pair.round) - 1.0 + pair.at), mean(bin, |pair| pair.percent))
    })
    .collect()
}

/// Each round's median, with how many pairs it is of.
fn medians(pairs: &[Pair]) -> Vec<(u32, f64, usize)> {
    let of_rounds = pairs.chunk_by(|one, other| one.round == other.round);
    let medians = of_rounds.map(|of_round| {
        let mut sorted: Vec<f64> = of_round.iter().map(|pair| pair.percent).collect();
        sorted.sort_by(f64::total_cmp);
        let low = sorted[(sorted.len() - 1) / 2];
        let high = sorted[sorted.len() / 2];
        (of_round[0].round, f64::midpoint(low, high), sorted.len())
    });
    medians.collect()
}
