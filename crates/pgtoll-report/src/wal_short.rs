//! WAL statistics in short: what is to be known first. Terminal and page say the same.

use std::time::Duration;

use pgtoll_record::{
    ImageCause, WalGap, WalImages, WalOfDatabase, WalOfRelation, WalStatisticsRecord,
};

use crate::wal_numbers::{
    bytes, count, counted, duration, lasted, median, of_cause, percent, rate, seconds, share, size,
    span, sum_of_images,
};

/// A topic, and sentences of it.
pub(crate) type ShortAnswer = (&'static str, Vec<String>);

/// Returns the summary of WAL; empty if no record was read.
pub(crate) fn in_short(statistics: &WalStatisticsRecord) -> Vec<ShortAnswer> {
    if statistics.total.records == 0 {
        return Vec::new();
    }
    let answers = [
        Some(amount(statistics)),
        largest(statistics),
        Some(images(statistics)),
        hints(statistics),
        compression(statistics),
        Some(cycles(statistics)),
    ];
    answers.into_iter().flatten().collect()
}

#[expect(clippy::cast_precision_loss, reason = "a rate of which three digits are shown")]
fn amount(statistics: &WalStatisticsRecord) -> ShortAnswer {
    // Headers of pages and what fills them up are WAL too, though of no record.
    let written = statistics.source.bytes().max(bytes(&statistics.total));
    let records = counted(statistics.total.records, "record", "records");
    let mut sentences = vec![format!("{} with {records}.", size(written))];
    if let Some(duration) = duration(statistics) {
        let rate = rate(written as f64 / duration.as_secs_f64());
        let span = span(duration);
        sentences.push(format!("{span} from its first commit to its last: on average {rate}."));
    }
    if let Some(streamed) = statistics.source.streamed_ms {
        let streamed = span(Duration::from_millis(streamed));
        sentences.push(format!(
            "Streamed for {streamed}, beginning with what the server had written since its last \
             checkpoint."
        ));
    }
    let gaps = &statistics.source.gaps;
    if !gaps.is_empty() {
        let left_out = gaps.iter().fold(0, |sum: u64, gap| sum.saturating_add(gap.bytes()));
        sentences.push(format!(
            "{} left out of all figures: {}.",
            counted(gaps.len() as u64, "gap is", "gaps are"),
            size(left_out)
        ));
    }
    ("WAL", sentences)
}

fn images(statistics: &WalStatisticsRecord) -> ShortAnswer {
    let whole = bytes(&statistics.total);
    let images = sum_of_images(statistics.causes.values());
    if images.images == 0 {
        return ("Full-page images", vec!["None.".to_owned()]);
    }
    let first = format!(
        "{} of the bytes of all records: {}, {}.",
        percent(statistics.total.image_bytes, whole),
        counted(images.images, "image", "images"),
        size(statistics.total.image_bytes)
    );
    let parts = CAUSES.iter().map(|(cause, words)| (of_cause(&statistics.causes, *cause), words));
    let parts = parts.filter(|(part, _)| part.images > 0);
    let parts = parts.map(|(part, words)| format!("{} {words}", percent(part.bytes, whole)));
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
fn hints(statistics: &WalStatisticsRecord) -> Option<ShortAnswer> {
    let hint = of_cause(&statistics.causes, ImageCause::Hint);
    (hint.images > 0).then(|| {
        let share = percent(hint.bytes, bytes(&statistics.total));
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

fn compression(statistics: &WalStatisticsRecord) -> Option<ShortAnswer> {
    let all = sum_of_images(statistics.compressions.values());
    let compressed = || statistics.compressions.iter().filter(|(name, _)| *name != "none");
    let done: WalImages = sum_of_images(compressed().map(|(_, compressed)| compressed));
    if all.images == 0 {
        return None;
    }
    if done.images == 0 {
        return Some(("Compression", vec!["No image is compressed.".to_owned()]));
    }
    let names: Vec<&str> = compressed()
        .filter(|(_, compressed)| compressed.images > 0)
        .map(|(name, _)| name.as_str())
        .collect();
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

fn largest(statistics: &WalStatisticsRecord) -> Option<ShortAnswer> {
    let whole = bytes(&statistics.total);
    let mut sentences = Vec::new();
    let relation = statistics.relations.iter().max_by_key(|relation| bytes(&relation.amount));
    if let Some(WalOfRelation { amount, .. }) = relation {
        let own = bytes(amount);
        sentences.extend(relation.map(|relation| {
            format!(
                "The largest relation is {} with {}, {} of all bytes; {} of its own are images.",
                described(statistics, relation),
                size(own),
                percent(own, whole),
                percent(amount.image_bytes, own)
            )
        }));
    }
    let largest = statistics.databases.iter().max_by_key(|database| bytes(&database.amount));
    sentences.extend(largest.map(|largest: &WalOfDatabase| {
        let own = bytes(&largest.amount);
        let who = match largest.oid {
            0 => "Relations that all databases share have most".to_owned(),
            oid => format!("Of all databases, {} has most", database(statistics, oid)),
        };
        format!("{who}: {}, {} of all bytes.", size(own), percent(own, whole))
    }));
    (!sentences.is_empty()).then_some(("Largest", sentences))
}

fn cycles(statistics: &WalStatisticsRecord) -> ShortAnswer {
    let whole = || statistics.cycles.iter().filter(|cycle| cycle.whole);
    let number = whole().count() as u64;
    let distances = whole().filter_map(|cycle| cycle.to.bytes_since(cycle.from)).collect();
    let Some(distance) = median(distances) else {
        let none =
            "No whole cycle, from the redo point of one checkpoint to the next, is in this WAL.";
        return ("Checkpoints", vec![none.to_owned()]);
    };
    let times = statistics.cycles.windows(2).filter(|pair| pair[0].whole);
    let times = times.filter_map(|pair| lasted(&pair[0], pair.get(1)));
    let time =
        median(times.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)).collect());
    let median = if number == 1 { "" } else { "median " };
    let time = time.map(|time| format!(", {median}time {}", seconds(Duration::from_micros(time))));
    let sentence = format!(
        "{} from redo point to redo point: {median}distance {}{}.",
        counted(number, "whole cycle", "whole cycles"),
        size(distance),
        time.unwrap_or_default()
    );
    ("Checkpoints", vec![sentence])
}

/// The first gaps in a sentence each, and how many more there are.
pub(crate) fn left_out(gaps: &[WalGap]) -> Vec<String> {
    let words =
        |gap: &WalGap| format!("{} to {}, {}: {}", gap.from, gap.to, size(gap.bytes()), gap.words);
    let mut all: Vec<String> = gaps.iter().take(GAPS).map(words).collect();
    if gaps.len() > GAPS {
        all.push(format!("{} more", count((gaps.len() - GAPS) as u64)));
    }
    all
}

/// Gaps that are named.
const GAPS: usize = 10;

/// Its name, or its file's number.
pub(crate) fn qualified(relation: &WalOfRelation) -> String {
    match &relation.name {
        Some(name) => name.to_string(),
        None => format!("filenode {}", relation.filenode),
    }
}

/// Its kind, what it belongs to, and which fork.
pub(crate) fn describe_relation(
    statistics: &WalStatisticsRecord,
    relation: &WalOfRelation,
) -> String {
    let mut words = vec![match &relation.name {
        Some(name) => {
            let table = name.of.as_ref().map(|table| format!(" of {table}"));
            format!("{}{}", name.kind, table.unwrap_or_default())
        }
        None if relation.database == 0 => SHARED.to_owned(),
        None => format!("in {}", database(statistics, relation.database)),
    }];
    if relation.name.is_none() && !USUAL_TABLESPACES.contains(&relation.tablespace) {
        words.push(format!("tablespace {}", relation.tablespace));
    }
    words.extend(match relation.fork.as_str() {
        "main" => None,
        "fsm" => Some("free space map".to_owned()),
        "vm" => Some("visibility map".to_owned()),
        other => Some(format!("fork {other}")),
    });
    words.join(", ")
}

/// `pg_default` and `pg_global`.
const USUAL_TABLESPACES: [u32; 2] = [1663, 1664];

/// In a sentence.
pub(crate) fn described(statistics: &WalStatisticsRecord, relation: &WalOfRelation) -> String {
    format!("{} ({})", qualified(relation), describe_relation(statistics, relation))
}

/// A database's name; its OID where the name is unknown.
pub(crate) fn database(statistics: &WalStatisticsRecord, oid: u32) -> String {
    let known = statistics
        .databases
        .iter()
        .find(|database| database.oid == oid)
        .and_then(|database| database.name.clone());
    match known {
        Some(name) => name,
        None if oid == 0 => SHARED.to_owned(),
        None => format!("database {oid}"),
    }
}

const SHARED: &str = "shared by all databases";
