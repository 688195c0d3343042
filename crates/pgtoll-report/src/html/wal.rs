//! WAL by kind of record.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use pgtoll_format::ByteSize;
use pgtoll_record::{Counters, Run, RunResult, WalAmount, Work, Workload};

use super::{Series, figures, series, swatch};
use crate::plot::{Bar, Part, Unit, Words, bars, figure};

/// A figure for each workload that writes WAL.
pub(crate) fn section(run: &Run, result: &RunResult) -> Markup {
    let words = html! {
        p {
            "Exact, as the server’s own WAL says. Hatched: images of whole pages, which follow \
            the first change of a page after a checkpoint; plain: the records themselves."
        }
    };
    let none = "No arm wrote WAL in what was counted.";
    figures(run, &words, none, |item, index| of_workload(run, result, item, index))
}

/// A record's type, and whether it is its images that are meant.
type Kind<'a> = (&'a str, bool);
/// WAL of an arm by record type.
type ByType<'a> = BTreeMap<&'a str, WalAmount>;

fn of_workload(run: &Run, result: &RunResult, workload: &Workload, index: usize) -> Option<Markup> {
    let arms: Vec<(Series<'_>, ByType<'_>, f64)> = series(result)
        .into_iter()
        .filter_map(|series| {
            let (by_type, times) = by_type(run, workload, series.arm)?;
            Some((series, by_type, times))
        })
        .collect();
    let kinds = kinds(&arms);
    if kinds.is_empty() {
        return None;
    }
    let all: Vec<Bar> =
        arms.iter().map(|(series, arm, by)| bar(series, arm, *by, &kinds)).collect();
    let per = if matches!(workload.work, Work::Operation { .. }) {
        "an operation"
    } else {
        "a transaction"
    };
    let totals = all.iter().map(|bar| format!("{}: {}", bar.name, bar.total));
    let words = Words {
        id: format!("wal-{index}"),
        title: &format!("WAL by kind of record: {}", workload.title),
        description: format!("Bytes {per}. {}", totals.collect::<Vec<_>>().join(". ")),
        caption: html! { h3 { (workload.title) } p { "bytes of WAL " (per) } },
    };
    let has_others = all.iter().flat_map(|bar| &bar.parts).any(|part| part.kind == OTHERS);
    Some(html! {
        (figure(&words, |width| bars(&all, Unit::Bytes, width)))
        ul class="legend" {
            @for (place, kind) in kinds.iter().enumerate() { li { (swatch(place, kind.1)) (name(*kind)) } }
            @if has_others { li { (swatch(OTHERS, false)) "other" } }
        }
        (numbers(&arms, per, &workload.title))
    })
}

/// Sums of what was counted, and of how many transactions or operations. `None`: nothing was.
#[expect(clippy::cast_precision_loss, reason = "transactions are far below 2^53")]
fn by_type<'a>(run: &'a Run, workload: &Workload, arm: &str) -> Option<(ByType<'a>, f64)> {
    let counted = run
        .counted
        .iter()
        .filter(|counted| counted.workload == workload.name && counted.arm == arm);
    let counted = counted.map(|counted| (&counted.counters, counted.transactions as f64));
    let operations = run.operations.iter();
    let operations =
        operations.filter(|operation| operation.workload == workload.name && operation.arm == arm);
    let all: Vec<(&Counters, f64)> =
        counted.chain(operations.map(|operation| (&operation.counters, 1.0))).collect();
    let mut sums = ByType::new();
    for (name, item) in all.iter().flat_map(|(counters, _)| &counters.wal_by_type) {
        let sum = sums.entry(name).or_default();
        sum.records = sum.records.saturating_add(item.records);
        sum.record_bytes = sum.record_bytes.saturating_add(item.record_bytes);
        sum.image_bytes = sum.image_bytes.saturating_add(item.image_bytes);
    }
    let times: f64 = all.iter().map(|(_, times)| times).sum();
    (times > 0.0).then_some((sums, times))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
fn bytes(by_type: &ByType<'_>, (name, images): Kind<'_>) -> f64 {
    let item = by_type.get(name).copied().unwrap_or_default();
    (if images { item.image_bytes } else { item.record_bytes }) as f64
}

/// Colours for kinds of their own.
const OTHERS: usize = 6;
/// A kind that is less than this of the largest bar is not shown by itself.
const SHOWN: f64 = 0.01;

/// The largest kinds, of all arms together.
fn kinds<'a>(arms: &[(Series<'_>, ByType<'a>, f64)]) -> Vec<Kind<'a>> {
    let names: BTreeSet<&str> = arms.iter().flat_map(|(_, arm, _)| arm.keys().copied()).collect();
    let all = names.iter().flat_map(|name| [(*name, false), (*name, true)]);
    let most = |kind: Kind<'_>| {
        arms.iter().map(|(_, arm, times)| bytes(arm, kind) / times).fold(0.0, f64::max)
    };
    let mut sized: Vec<(f64, Kind<'a>)> = all.map(|kind| (most(kind), kind)).collect();
    sized.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let sum: f64 = sized.iter().map(|(size, _)| size).sum();
    let large = sized.into_iter().take(OTHERS).filter(|(size, _)| *size > sum * SHOWN);
    large.map(|(_, kind)| kind).collect()
}

fn bar(series: &Series<'_>, by_type: &ByType<'_>, times: f64, kinds: &[Kind<'_>]) -> Bar {
    let sum: f64 = by_type
        .keys()
        .map(|name| bytes(by_type, (name, false)) + bytes(by_type, (name, true)))
        .sum();
    let mut parts: Vec<Part> = Vec::new();
    let mut rest = sum;
    for (place, kind) in kinds.iter().enumerate() {
        let value = bytes(by_type, *kind) / times;
        rest -= bytes(by_type, *kind);
        let tooltip = format!("{}, {}: {}", series.title, name(*kind), size(value));
        parts.push(Part { kind: place, hatched: kind.1, value, tooltip });
    }
    if rest > 0.0 {
        let value = rest / times;
        let tooltip = format!("{}, other: {}", series.title, size(value));
        parts.push(Part { kind: OTHERS, hatched: false, value, tooltip });
    }
    parts.retain(|part| part.value > 0.0);
    Bar { name: series.title.clone(), look: series.look, parts, total: size(sum / times) }
}

fn name((name, images): Kind<'_>) -> String {
    if images { format!("{name}, images") } else { name.to_owned() }
}

/// All record types, the small ones too.
fn numbers(arms: &[(Series<'_>, ByType<'_>, f64)], per: &str, title: &str) -> Markup {
    let names: BTreeSet<&str> = arms.iter().flat_map(|(_, arm, _)| arm.keys().copied()).collect();
    html! {
        details {
            summary { "In numbers" }
            div class="scroll" role="region" aria-label={ "WAL in numbers: " (title) } tabindex="0" {
                table {
                    thead { tr {
                        th scope="col" { "bytes " (per) ": records + images" }
                        @for (series, ..) in arms { th scope="col" { (series.title) } }
                    } }
                    tbody { @for name in names { tr {
                        th scope="row" { (name) }
                        @for (_, arm, times) in arms {
                            @let records = bytes(arm, (name, false));
                            @let images = bytes(arm, (name, true));
                            td {
                                (size(records / times))
                                @if images > 0.0 { " + " (size(images / times)) }
                            }
                        }
                    } } }
                }
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn size(bytes: f64) -> String {
    ByteSize(bytes.round().clamp(0.0, 1e18) as u64).rounded()
}
