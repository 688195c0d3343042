//! All that is counted, in tables.

use maud::{Markup, html};
use pgtoll_record::{
    CycleBegin, ImageCause, WalAmount, WalCycle, WalKind, WalOfDatabase, WalOfKind, WalOfRelation,
    WalStatisticsRecord,
};

use super::{colour, meaning, title_of_cause};
use crate::plot::n;
use crate::wal_numbers::{
    bytes, count, counted, lasted, moment, of_cause, percent, seconds, share, size, sum,
    sum_of_images,
};
use crate::wal_short::{database, describe_relation, qualified};

/// This many cycles are shown; of more, the first and the last.
const CYCLES: usize = 60;
/// This many relations and databases are shown, the largest.
const LARGEST: usize = 30;
/// Relations with a smaller share of the WAL have no row of their own.
const SMALL: f64 = 0.001;

pub(super) fn cycles(statistics: &WalStatisticsRecord) -> Markup {
    if statistics.cycles.is_empty() {
        return html! { p { "No record was read." } };
    }
    let all: Vec<(&WalCycle, Option<&WalCycle>)> = statistics
        .cycles
        .iter()
        .enumerate()
        .map(|(index, of_all)| (of_all, statistics.cycles.get(index + 1)))
        .collect();
    let without = all.len().saturating_sub(CYCLES);
    let (first, rest) = all.split_at(if without > 0 { CYCLES / 2 } else { all.len() });
    let last = &rest[without.min(rest.len())..];
    let causes: Vec<ImageCause> = CAUSES
        .into_iter()
        .filter(|cause| of_cause(&statistics.causes, *cause).images > 0)
        .collect();
    let mut head = vec!["from", "to", "began, UTC", "distance", "duration", "records"];
    let titles: Vec<String> =
        causes.iter().map(|cause| format!("images: {}", title_of_cause(*cause))).collect();
    head.extend(titles.iter().map(String::as_str));
    head.push("images’ share");
    html! {
        p {
            "A row is the WAL from one checkpoint’s redo point to the next. Its duration is from \
             the beginning of its checkpoint to that of the next. “Shutdown”: it begins with the \
             checkpoint of a shutdown or of the end of a recovery. “A part”: the WAL that was read \
             begins or ends within it."
        }
        (table("checkpoint cycles", "close", &head, &html! {
            @for (cycle, next) in first { (row_of_cycle(cycle, *next, &causes)) }
            @if without > 0 {
                tr { th scope="row" colspan=(head.len()) {
                    (counted(without as u64, "cycle is", "cycles are")) " left out here"
                } }
                @for (cycle, next) in last { (row_of_cycle(cycle, *next, &causes)) }
            }
        }))
    }
}

const CAUSES: [ImageCause; 4] =
    [ImageCause::FirstTouch, ImageCause::Hint, ImageCause::Forced, ImageCause::Check];

fn row_of_cycle(cycle: &WalCycle, next: Option<&WalCycle>, causes: &[ImageCause]) -> Markup {
    let began =
        cycle.began.as_deref().map(|began| moment(began).trim_end_matches(" UTC").to_owned());
    let mark = match (cycle.began_by, cycle.whole) {
        (CycleBegin::Shutdown, true) => "shutdown",
        (CycleBegin::Shutdown, false) => "shutdown, a part",
        (CycleBegin::Online | CycleBegin::Unknown, true) => "",
        (CycleBegin::Online | CycleBegin::Unknown, false) => "a part",
    };
    let lasted = lasted(cycle, next).map(seconds);
    html! {
        tr {
            th scope="row" {
                (cycle.from) @if !mark.is_empty() { br; span class="small quiet" { (mark) } }
            }
            td { (cycle.to) }
            td { (began.unwrap_or_else(unknown)) }
            td { (cycle.to.bytes_since(cycle.from).map_or_else(unknown, size)) }
            td { (lasted.unwrap_or_else(unknown)) }
            td { (count(cycle.amount.records)) }
            @for cause in causes { td { (count(of_cause(&cycle.causes, *cause).images)) } }
            td { (percent(cycle.amount.image_bytes, bytes(&cycle.amount))) }
        }
    }
}

fn unknown() -> String {
    "-".to_owned()
}

pub(super) fn relations_and_databases(statistics: &WalStatisticsRecord) -> Markup {
    html! {
        h3 { "Relations" }
        (relations(statistics))
        h3 { "Databases" }
        (databases(statistics))
    }
}

fn relations(statistics: &WalStatisticsRecord) -> Markup {
    if statistics.relations.is_empty() {
        return html! { p { "No record names a relation." } };
    }
    let whole = bytes(&statistics.total);
    // They come in the order of their sizes: what is small stands at the end, in one row.
    let large = |relation: &&WalOfRelation| share(bytes(&relation.amount), whole) >= SMALL;
    let large = statistics.relations.iter().take_while(large).count().max(1);
    let shown = &statistics.relations[..large.min(LARGEST)];
    let rest = &statistics.relations[shown.len()..];
    let below = if large <= LARGEST { ", each less than 0.1 %" } else { "" };
    let most =
        statistics.relations.iter().map(|relation| bytes(&relation.amount)).max().unwrap_or(0);
    let head = [
        "relation",
        "share",
        "bytes",
        "records",
        "record bytes",
        "images",
        "image bytes",
        "of these for hints",
    ];
    html! {
        p {
            "A record that changes several relations is counted for the first that it names, each \
             image for its own. "
            (key_of_bars(statistics))
        }
        (table("relations", "names", &head, &html! {
            @for relation in shown {
                tr {
                    th scope="row" { (name_of(statistics, relation)) }
                    (cells(statistics, &relation.amount, relation.hint_bytes, Some(relation.images), most))
                }
            }
            @if !rest.is_empty() {
                @let hints = rest.iter().fold(0, |sum: u64, relation| sum.saturating_add(relation.hint_bytes));
                @let images = rest.iter().fold(0, |sum: u64, relation| sum.saturating_add(relation.images));
                @let amount = sum(rest.iter().map(|relation| &relation.amount));
                tr {
                    th scope="row" { (counted(rest.len() as u64, "other", "others")) (below) }
                    (cells(statistics, &amount, hints, Some(images), most))
                }
            }
            @if statistics.without_relation.records > 0 {
                tr {
                    th scope="row" { "without a relation" br;
                        span class="small quiet" { "commits, checkpoints and the like" } }
                    (cells(statistics, &statistics.without_relation, 0, None, most))
                }
            }
        }))
        @if statistics.names.is_none() {
            p class="small quiet" {
                "Relations’ names are unknown: file numbers are shown instead."
            }
        }
    }
}

/// The colours of a row's bar.
fn key_of_bars(statistics: &WalStatisticsRecord) -> Markup {
    let parts = PARTS.iter().filter(|(kind, ..)| {
        *kind != WalKind::Hint || of_cause(&statistics.causes, ImageCause::Hint).images > 0
    });
    html! {
        "Bars: "
        @for (index, (kind, hatched, words)) in parts.enumerate() {
            @if index > 0 { ", " }
            span class="keyed" { (crate::html::swatch(colour(*kind), *hatched)) (words) }
        }
        "."
    }
}

/// Parts of a row's bar, in the colours of the pictures.
const PARTS: [(WalKind, bool, &str); 3] = [
    (WalKind::FirstTouch, true, "images"),
    (WalKind::Hint, true, "images for hints"),
    (WalKind::Heap, false, "records"),
];

fn cells(
    statistics: &WalStatisticsRecord,
    amount: &WalAmount,
    hint_bytes: u64,
    images: Option<u64>,
    most: u64,
) -> Markup {
    let whole = bytes(&statistics.total);
    html! {
        td { div class="with-bar" {
            (bar(amount, hint_bytes, most)) span { (percent(bytes(amount), whole)) }
        } }
        td { (size(bytes(amount))) }
        td { (count(amount.records)) }
        td { (size(amount.record_bytes)) }
        td { (images.map_or_else(unknown, count)) }
        td { (size(amount.image_bytes)) }
        td { @if hint_bytes > 0 { (size(hint_bytes)) } @else { "-" } }
    }
}

/// As long as the amount is, the longest of all rows being the whole width.
fn bar(amount: &WalAmount, hint_bytes: u64, most: u64) -> Markup {
    let sizes = [amount.image_bytes.saturating_sub(hint_bytes), hint_bytes, amount.record_bytes];
    let mut from = 0.0;
    let parts = sizes.iter().zip(PARTS).map(|(size, (kind, hatched, _))| {
        let begin = from;
        from = (begin + share(*size, most) * BAR).min(BAR);
        (colour(kind), hatched, begin, from - begin)
    });
    let parts: Vec<_> = parts.filter(|(.., wide)| *wide >= 0.05).collect();
    html! {
        svg class="share" viewBox={ "0 0 " (n(BAR)) " 12" } aria-hidden="true" {
            @for (kind, hatched, from, wide) in parts {
                rect class={ "part p" (kind) } x=(n(from)) width=(n(wide)) height="12" {}
                @if hatched { rect class="hatch" x=(n(from)) width=(n(wide)) height="12" {} }
            }
        }
    }
}

const BAR: f64 = 120.0;

/// Its name on one line, what it is on the next.
fn name_of(statistics: &WalStatisticsRecord, relation: &WalOfRelation) -> Markup {
    let name = qualified(relation);
    let label = describe_relation(statistics, relation);
    html! {
        // A long name is broken between its parts rather than anywhere.
        @for part in name.split_inclusive(['.', '_']) { (part) wbr; }
        @if !label.is_empty() { br; span class="small quiet" { (label) } }
    }
}

fn databases(statistics: &WalStatisticsRecord) -> Markup {
    if statistics.databases.is_empty() {
        return html! { p { "No record names a relation." } };
    }
    let whole = bytes(&statistics.total);
    let shown = &statistics.databases[..statistics.databases.len().min(LARGEST)];
    let rest = &statistics.databases[shown.len()..];
    let row = |name: String, amount: &WalAmount, images: u64| {
        html! {
            tr {
                th scope="row" { (name) }
                td { (percent(bytes(amount), whole)) }
                td { (size(bytes(amount))) }
                td { (count(amount.records)) }
                td { (size(amount.record_bytes)) }
                td { (count(images)) }
                td { (size(amount.image_bytes)) }
            }
        }
    };
    let head = ["database", "share", "bytes", "records", "record bytes", "images", "image bytes"];
    html! {
        (table("databases", "names", &head, &html! {
            @for WalOfDatabase { oid, amount, images, .. } in shown {
                (row(database(statistics, *oid), amount, *images))
            }
            @if !rest.is_empty() {
                @let images = rest.iter().fold(0, |sum: u64, database| sum.saturating_add(database.images));
                (row(counted(rest.len() as u64, "other", "others"),
                    &sum(rest.iter().map(|database| &database.amount)), images))
            }
        }))
    }
}

/// By resource manager, and by type.
pub(super) fn kinds(statistics: &WalStatisticsRecord) -> Markup {
    if statistics.managers.is_empty() {
        return html! { p { "No record was read." } };
    }
    html! {
        p { "Resource managers and types are called as pg_waldump calls them." }
        (table_of_kinds(statistics, "resource manager", &statistics.managers))
        details {
            summary { "By type of record" }
            (table_of_kinds(statistics, "type of record", &statistics.types))
        }
    }
}

fn table_of_kinds(statistics: &WalStatisticsRecord, first: &str, kinds: &[WalOfKind]) -> Markup {
    let head =
        [first, "share", "bytes", "records", "of all records", "record bytes", "image bytes"];
    let row = |name: &str, amount: &WalAmount| {
        html! {
            tr {
                th scope="row" { (name) }
                td { (percent(bytes(amount), bytes(&statistics.total))) }
                td { (size(bytes(amount))) }
                td { (count(amount.records)) }
                td { (percent(amount.records, statistics.total.records)) }
                td { (size(amount.record_bytes)) }
                td { (size(amount.image_bytes)) }
            }
        }
    };
    table(
        first,
        "",
        &head,
        &html! {
            @for kind in kinds { (row(&kind.name, &kind.amount)) }
            (row("all", &statistics.total))
        },
    )
}

/// By cause and by compression.
pub(super) fn images(statistics: &WalStatisticsRecord) -> Markup {
    if sum_of_images(statistics.causes.values()).images == 0 {
        return html! { p { "None." } };
    }
    let whole = bytes(&statistics.total);
    let causes = CAUSES.into_iter().map(|cause| (cause, of_cause(&statistics.causes, cause)));
    let hints = of_cause(&statistics.causes, ImageCause::Hint).images > 0;
    let causes_head = ["why they are there", "images", "bytes", "share of all WAL"];
    let head = ["compression", "images", "before", "stored", "ratio"];
    html! {
        (table("causes of images", "names", &causes_head, &html! {
            @for (cause, its) in causes.filter(|(_, its)| its.images > 0) {
                tr {
                    th scope="row" { (title_of_cause(cause)) br;
                        span class="small quiet" { (meaning(cause)) } }
                    td { (count(its.images)) }
                    td { (size(its.bytes)) }
                    td { (percent(its.bytes, whole)) }
                }
            }
        }))
        @if hints {
            p {
                "The share of hints is not what turning them off would save: many of these pages \
                 would get an image at their next change instead, and less WAL can mean fewer \
                 checkpoints."
            }
        }
        (table("compression of images", "", &head, &html! {
            @for (name, its) in &statistics.compressions {
                tr {
                    th scope="row" { (name) }
                    td { (count(its.images)) }
                    td { (size(its.uncompressed_bytes)) }
                    td { (size(its.bytes)) }
                    td {
                        @if its.bytes > 0 {
                            (format!("{:.1} to 1", share(its.uncompressed_bytes, its.bytes)))
                        } @else { "-" }
                    }
                }
            }
        }))
        p class="small quiet" { "Holes in pages are left out of both, before and after." }
    }
}

/// In a region of its own, which scrolls where the window is narrow.
fn table(name: &str, class: &str, head: &[&str], rows: &Markup) -> Markup {
    html! {
        div class="scroll" role="region" aria-label={ "Table: " (name) } tabindex="0" {
            table class=[(!class.is_empty()).then_some(class)] {
                thead { tr {
                    @for title in head {
                        th scope="col" { (title) }
                    }
                } }
                tbody { (rows) }
            }
        }
    }
}
