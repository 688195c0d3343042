//! What stands on top: which WAL it is, and what is to be known of it first.

use std::time::Duration;

use maud::{Markup, html};
use pgtoll_format::ByteSize;
use pgtoll_record::{ImageCause, WalImages, WalOfDatabase, WalOfRelation, WalStatisticsRecord};

use super::numbers::{
    bytes, count, counted, duration, lasted, median, moment, of_cause, percent, rate, seconds,
    share, size, span, sum_of_images,
};
use super::{tables, title_of_end};

pub(super) fn title(of: &WalStatisticsRecord) -> String {
    format!("WAL of PostgreSQL {}", of.source.major)
}

/// Which WAL, and whether all of it could be read.
pub(super) fn heading(of: &WalStatisticsRecord) -> Markup {
    let source = &of.source;
    html! {
        p class="quiet small" { "pgtoll wal stats" }
        h1 { (title(of)) }
        p class="quiet" {
            @if let (Some(from), Some(to)) = (source.from, source.to) {
                "From " (from) " to " (to) ", " (size(to.bytes_since(from).unwrap_or(0))) " in "
            }
            (counted(source.segments, "segment", "segments")) " of " (ByteSize(source.segment_bytes))
            (timelines(&source.timelines)) "."
            @if let (Some(first), Some(last)) = (&source.first_time, &source.last_time) {
                " Commits from " (moment(first)) " to " (moment(last)) "."
            }
        }
        @if !of.end.kind.is_whole() {
            p class="warning" role="note" {
                strong { (title_of_end(of.end.kind)) }
                @if let Some(at) = of.end.at { " (at " (at) ")" }
                ": " (of.end.words.trim_end_matches('.')) ". This page shows what was read until there."
            }
        }
    }
}

fn timelines(timelines: &[u32]) -> String {
    let words = if timelines.len() == 1 { "timeline" } else { "timelines" };
    let numbers: Vec<String> = timelines.iter().map(u32::to_string).collect();
    if numbers.is_empty() { String::new() } else { format!(", {words} {}", numbers.join(", ")) }
}

/// A topic, and sentences of it.
type Answer = (&'static str, Vec<String>);

pub(super) fn in_short(of: &WalStatisticsRecord) -> Markup {
    if of.total.records == 0 {
        return html! { p class="lead" { "No record was read." } };
    }
    let answers = [
        Some(amount(of)),
        Some(images(of)),
        hints(of),
        compression(of),
        largest(of),
        Some(cycles(of)),
    ];
    html! {
        dl class="answers" {
            @for (topic, sentences) in answers.into_iter().flatten() {
                dt { (topic) }
                dd { ul { @for sentence in sentences { li { (sentence) } } } }
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate of which three digits are shown")]
fn amount(of: &WalStatisticsRecord) -> Answer {
    // Headers of pages and what fills them up are WAL too, though of no record.
    let written = of.source.from.zip(of.source.to);
    let written = written.and_then(|(from, to)| to.bytes_since(from));
    let written = written.unwrap_or_else(|| bytes(&of.total));
    let records = counted(of.total.records, "record", "records");
    let mut sentence = format!("{} with {records}", size(written));
    if let Some(duration) = duration(of) {
        let rate = rate(written as f64 / duration.as_secs_f64());
        sentence = format!("{sentence}, within {}: on average {rate}", span(duration));
    }
    ("WAL", vec![format!("{sentence}.")])
}

fn images(of: &WalStatisticsRecord) -> Answer {
    let (whole, images) = (bytes(&of.total), sum_of_images(of.causes.values()));
    if images.images == 0 {
        return ("Full-page images", vec!["There are none.".to_owned()]);
    }
    let first = format!(
        "{} of all records’ bytes: {}, {}.",
        percent(of.total.image_bytes, whole),
        counted(images.images, "image", "images"),
        size(of.total.image_bytes)
    );
    let parts = CAUSES.iter().map(|(cause, words)| (of_cause(&of.causes, *cause), words));
    let parts = parts.filter(|(of, _)| of.images > 0);
    let parts = parts.map(|(of, words)| format!("{} {words}", percent(of.bytes, whole)));
    let split = format!("Of all bytes, {}.", parts.collect::<Vec<_>>().join("; "));
    ("Full-page images", vec![first, split])
}

const CAUSES: [(ImageCause, &str); 4] = [
    (ImageCause::FirstTouch, "are pages changed for the first time after a checkpoint"),
    (ImageCause::Hint, "are pages on which only a hint was set"),
    (ImageCause::Forced, "are pages that are always logged whole"),
    (ImageCause::Check, "are there to check replay"),
];

/// A share of hints says little of what they cost.
fn hints(of: &WalStatisticsRecord) -> Option<Answer> {
    let hint = of_cause(&of.causes, ImageCause::Hint);
    (hint.images > 0).then(|| {
        let share = percent(hint.bytes, bytes(&of.total));
        let first = format!(
            "Images for hints are {share} of all bytes. That is not what WAL without them would \
             save."
        );
        let second = "A page that has its image for a hint needs none for the next change, and \
                      would have it then; and less WAL can also mean fewer checkpoints. What is \
                      saved may be far less, or more.";
        ("Hints", vec![first, second.to_owned()])
    })
}

fn compression(of: &WalStatisticsRecord) -> Option<Answer> {
    let all = sum_of_images(of.compressions.values());
    let compressed = || of.compressions.iter().filter(|(name, _)| *name != "none");
    let done: WalImages = sum_of_images(compressed().map(|(_, of)| of));
    if all.images == 0 {
        return None;
    }
    if done.images == 0 {
        return Some(("Compression", vec!["No image is compressed.".to_owned()]));
    }
    let names: Vec<&str> =
        compressed().filter(|(_, of)| of.images > 0).map(|(name, _)| name.as_str()).collect();
    let sentence = format!(
        "{} of {} are compressed ({}): {} became {}, {:.1} to 1.",
        count(done.images),
        counted(all.images, "image", "images"),
        names.join(", "),
        size(done.uncompressed_bytes),
        size(done.bytes),
        share(done.uncompressed_bytes, done.bytes)
    );
    Some(("Compression", vec![sentence]))
}

fn largest(of: &WalStatisticsRecord) -> Option<Answer> {
    let whole = bytes(&of.total);
    let mut sentences = Vec::new();
    let relation = of.relations.iter().max_by_key(|relation| bytes(&relation.amount));
    if let Some(WalOfRelation { amount, .. }) = relation {
        let own = bytes(amount);
        sentences.extend(relation.map(|relation| {
            format!(
                "The largest relation is {} with {}, {} of all bytes; {} of its own are images.",
                tables::described(of, relation),
                size(own),
                percent(own, whole),
                percent(amount.image_bytes, own)
            )
        }));
    }
    let database = of.databases.iter().max_by_key(|database| bytes(&database.amount));
    sentences.extend(database.map(|database: &WalOfDatabase| {
        let own = bytes(&database.amount);
        let who = match database.oid {
            0 => "Relations that all databases share have most".to_owned(),
            oid => format!("Of all databases, {} has most", tables::database(of, oid)),
        };
        format!("{who}: {}, {} of all bytes.", size(own), percent(own, whole))
    }));
    (!sentences.is_empty()).then_some(("Largest", sentences))
}

fn cycles(of: &WalStatisticsRecord) -> Answer {
    let whole = || of.cycles.iter().filter(|cycle| cycle.whole);
    let number = whole().count() as u64;
    let distances = whole().filter_map(|cycle| cycle.to.bytes_since(cycle.from)).collect();
    let Some(distance) = median(distances) else {
        let none = "No whole cycle, from one checkpoint’s redo point to the next, is in this WAL.";
        return ("Checkpoints", vec![none.to_owned()]);
    };
    let times = of.cycles.windows(2).filter(|pair| pair[0].whole);
    let times = times.filter_map(|pair| lasted(&pair[0], pair.get(1)));
    let time = median(times.map(|of| u64::try_from(of.as_micros()).unwrap_or(u64::MAX)).collect());
    let median = if number == 1 { "" } else { "median " };
    let time = time.map(|of| format!(", {median}time {}", seconds(Duration::from_micros(of))));
    let sentence = format!(
        "{} from redo point to redo point: {median}distance {}{}.",
        counted(number, "whole cycle", "whole cycles"),
        size(distance),
        time.unwrap_or_default()
    );
    ("Checkpoints", vec![sentence])
}
