//! WAL statistics as text, 80 columns wide.

use std::fmt::Write as _;
use std::time::Duration;

use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{
    ImageCause, WalAmount, WalCycle, WalImages, WalOfKind, WalOfRelation, WalStatisticsRecord,
};

use crate::printable::printable;
use crate::text::wrapped;
use crate::wal_short::{in_short, left_out};

/// Returns the content of the WAL: in short; the `top` largest relations and databases; by resource manager or by
/// type of record; images by cause; the last checkpoint cycles; and which command says what other
/// settings would make of it. Plain text.
pub(crate) fn wal_statistics_text(
    statistics: &WalStatisticsRecord,
    by_type: bool,
    top: usize,
) -> String {
    let kinds = if by_type { &statistics.types } else { &statistics.managers };
    let mut text = heading(statistics);
    text.push_str(&short(statistics));
    text.push_str(&relations_table(statistics, top));
    text.push_str(&databases_table(statistics, top));
    text.push_str(&kinds_table(kinds, &statistics.total, by_type));
    text.push_str(&images_table(statistics));
    text.push_str(&cycles_table(statistics, top));
    for note in &statistics.notes {
        let _ = write!(text, "\n{}", wrapped("", note));
    }
    if let Some(command) =
        whatif_command(&statistics.command).filter(|_| statistics.total.records > 0)
    {
        let _ = write!(text, "\nHow much would it be with other settings?\n  {command}\n");
    }
    text
}

/// Topics with their sentences.
fn short(statistics: &WalStatisticsRecord) -> String {
    let mut text = "\n".to_owned();
    for (topic, sentences) in in_short(statistics) {
        text.push_str(&wrapped(&format!("{topic:<TOPIC$}"), &sentences.join(" ")));
    }
    text
}

/// Columns of a topic.
const TOPIC: usize = 18;

/// The command that answers what other settings would have made of the same WAL, of the one that made
/// this record. Its words are a shell's. `None` where it would be too long, or is another command.
fn whatif_command(texts: &[String]) -> Option<String> {
    let ["pgtoll", "wal", "stats", words @ ..] =
        &*texts.iter().map(String::as_str).collect::<Vec<_>>()
    else {
        return None;
    };
    let mut kept = Vec::new();
    let mut time = None;
    let mut is_file = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--names" => drop(words.next()),
            "--for" => time = words.next(),
            option if option.starts_with("--") => {
                kept.push(option);
                kept.extend(words.next());
            }
            path => {
                is_file = true;
                kept.push(path);
            }
        }
    }
    // Two checkpoints at least have to be in it.
    let is_long = |time: &&&str| {
        time.parse::<TimeSpan>().is_ok_and(|time| time.0 >= Duration::from_secs(1800))
    };
    if !is_file {
        kept.extend(["--for", time.filter(is_long).map_or("30min", |time| time)]);
    }
    let command = format!("pgtoll wal whatif {}", kept.join(" "));
    (command.len() <= COMMAND).then(|| printable(&command).into_owned())
}

/// Bytes of a command that is worth to be pasted.
const COMMAND: usize = 400;

fn heading(statistics: &WalStatisticsRecord) -> String {
    let source = &statistics.source;
    let (Some(from), Some(to)) = (source.from, source.to) else {
        return format!("WAL of PostgreSQL {}: no record\n", source.major);
    };
    let mut text = format!("WAL of PostgreSQL {} from {from} to {to}", source.major);
    let timelines: Vec<String> = source.timelines.iter().map(u32::to_string).collect();
    let plural = if timelines.len() == 1 { "" } else { "s" };
    let _ = write!(
        text,
        "\n{} segment{} of {}, timeline{plural} {}; {}\n",
        source.segments,
        if source.segments == 1 { "" } else { "s" },
        ByteSize(source.segment_bytes),
        timelines.join(", "),
        match source.gaps.len() {
            0 => statistics.end.words.clone(),
            1 => "read past a gap".to_owned(),
            gaps => format!("read past {gaps} gaps"),
        }
    );
    let mut text: String = text.lines().map(|line| wrapped("", line)).collect();
    for words in left_out(&source.gaps) {
        text.push_str(&wrapped("left out: ", &words));
    }
    text
}

fn kinds_table(kinds: &[WalOfKind], total: &WalAmount, by_type: bool) -> String {
    let title = if by_type { "type of record" } else { "resource manager" };
    let mut text = row(title, ["records", "record bytes", "image bytes", "of all"]);
    text.insert(0, '\n');
    for kind in kinds {
        text.push_str(&amounts(&kind.name, &kind.amount, total));
    }
    text.push_str(&amounts("all", total, total));
    text
}

fn images_table(statistics: &WalStatisticsRecord) -> String {
    if statistics.causes.is_empty() {
        return "\nno full-page images\n".to_owned();
    }
    let mut text = row("full-page images", ["images", "", "bytes", "of all"]);
    text.insert(0, '\n');
    for (cause, images) in &statistics.causes {
        text.push_str(&image_row(cause_words(*cause), images, &statistics.total));
    }
    for (name, images) in statistics.compressions.iter().filter(|(name, _)| *name != "none") {
        let ratio = compression_ratio(images);
        let words = format!("of these {name}: {ratio:.1} to 1");
        text.push_str(&image_row(&words, images, &statistics.total));
    }
    text
}

fn image_row(name: &str, images: &WalImages, total: &WalAmount) -> String {
    let share = percent(images.bytes, total.bytes());
    row(&format!("  {name}"), [&images.images.to_string(), "", &images.bytes.to_string(), &share])
}

/// Bytes before for each byte after.
#[expect(clippy::cast_precision_loss, reason = "a ratio with one digit")]
fn compression_ratio(images: &WalImages) -> f64 {
    images.uncompressed_bytes as f64 / images.bytes.max(1) as f64
}

fn cause_words(cause: ImageCause) -> &'static str {
    match cause {
        ImageCause::FirstTouch => "first touch after checkpoint",
        ImageCause::Hint => "hint bits after checkpoint",
        ImageCause::Forced => "always logged whole",
        ImageCause::Check => "to check consistency",
    }
}

fn relations_table(statistics: &WalStatisticsRecord, top: usize) -> String {
    if statistics.relations.is_empty() || top == 0 {
        return String::new();
    }
    let title = counted("relation", top, statistics.relations.len());
    let mut text = row(&title, ["records", "record bytes", "image bytes", "of all"]);
    text.insert(0, '\n');
    for relation in statistics.relations.iter().take(top) {
        text.push_str(&amounts(&relation_words(relation), &relation.amount, &statistics.total));
    }
    if statistics.without_relation.records > 0 {
        text.push_str(&amounts("(no relation)", &statistics.without_relation, &statistics.total));
    }
    text
}

/// The name of a relation's fork; its numbers where the name is unknown.
fn relation_words(relation: &WalOfRelation) -> String {
    let fork =
        if relation.fork == "main" { String::new() } else { format!(" ({})", relation.fork) };
    let Some(name) = &relation.name else {
        return format!(
            "{}/{}/{}{fork}",
            relation.tablespace, relation.database, relation.filenode
        );
    };
    format!("{name}{fork}")
}

fn databases_table(statistics: &WalStatisticsRecord, top: usize) -> String {
    if statistics.databases.is_empty() || top == 0 {
        return String::new();
    }
    let title = counted("database", top, statistics.databases.len());
    let mut text = row(&title, ["records", "record bytes", "image bytes", "of all"]);
    text.insert(0, '\n');
    for database in statistics.databases.iter().take(top) {
        let name = database.name.clone().unwrap_or_else(|| match database.oid {
            0 => "(shared)".to_owned(),
            oid => oid.to_string(),
        });
        text.push_str(&amounts(&name, &database.amount, &statistics.total));
    }
    text
}

fn cycles_table(statistics: &WalStatisticsRecord, top: usize) -> String {
    let whole = statistics.cycles.iter().filter(|cycle| cycle.whole).count();
    if statistics.cycles.len() < 2 || top == 0 {
        return "\nno checkpoint began in it\n".to_owned();
    }
    let shown = &statistics.cycles[statistics.cycles.len().saturating_sub(top)..];
    let title = if shown.len() < statistics.cycles.len() {
        format!("checkpoint cycle (last {} of {})", shown.len(), statistics.cycles.len())
    } else {
        "checkpoint cycle".to_owned()
    };
    let mut text = format!(
        "\n{title:<40} {:>9} {:>9} {:>9} {:>9}\n",
        "distance", "records", "images", "bytes of"
    );
    let _ = writeln!(text, "{:<40} {:>9} {:>9} {:>9} {:>9}", "  from", "", "", "", "images");
    for cycle in shown {
        text.push_str(&cycle_row(cycle));
    }
    if whole < statistics.cycles.len() {
        text.push_str("  * not whole: the WAL begins or ends within it, or has a gap in it\n");
    }
    text
}

fn cycle_row(cycle: &WalCycle) -> String {
    let mark = if cycle.whole { ' ' } else { '*' };
    let began = printable(cycle.began.as_deref().unwrap_or(""));
    let images = cycle.causes.values().fold(0, |sum: u64, cause| sum.saturating_add(cause.images));
    let from = format!("{mark} {} {began}", cycle.from);
    let distance = size(cycle.to.bytes_since(cycle.from).unwrap_or(0));
    let share = percent(cycle.amount.image_bytes, cycle.amount.bytes());
    let records = cycle.amount.records;
    format!("{from:<40} {distance:>9} {records:>9} {images:>9} {share:>9}\n")
}

fn counted(label: &str, top: usize, all: usize) -> String {
    if top < all { format!("{label} ({top} of {all})") } else { label.to_owned() }
}

fn amounts(name: &str, amount: &WalAmount, total: &WalAmount) -> String {
    let share = percent(amount.bytes(), total.bytes());
    let WalAmount { records, record_bytes, image_bytes } = amount;
    row(name, [&records.to_string(), &record_bytes.to_string(), &image_bytes.to_string(), &share])
}

/// A long name has a line of its own.
fn row(name: &str, [records, record_bytes, image_bytes, share]: [&str; 4]) -> String {
    let figures = format!("{records:>11} {record_bytes:>13} {image_bytes:>14} {share:>8}");
    let name = printable(name);
    if name.chars().count() > NAME {
        return format!("{name}\n{:NAME$} {figures}\n", "");
    }
    format!("{name:<NAME$} {figures}\n")
}

const NAME: usize = 30;

#[expect(clippy::cast_precision_loss, reason = "a percentage with one digit")]
fn percent(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 / all as f64 * 100.0) }
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).rounded()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use pgtoll_format::Lsn;
    use pgtoll_record::{
        CycleBegin, WAL_STATISTICS_SCHEMA, WalEnd, WalEndKind, WalGap, WalOfDatabase,
        WalRelationName, WalSource,
    };

    use super::*;

    fn amount(records: u64, record_bytes: u64, image_bytes: u64) -> WalAmount {
        WalAmount { records, record_bytes, image_bytes }
    }

    fn images(images: u64, bytes: u64, uncompressed_bytes: u64) -> WalImages {
        WalImages { images, bytes, uncompressed_bytes }
    }

    fn relation(name: Option<&str>, wal_amount: WalAmount) -> WalOfRelation {
        WalOfRelation {
            tablespace: 1663,
            database: 5,
            filenode: 16384,
            fork: if name.is_some() { "main" } else { "vm" }.into(),
            name: name.map(|name| WalRelationName {
                database: "shop".into(),
                schema: "public".into(),
                relation: name.into(),
                kind: "table".into(),
                of: None,
            }),
            amount: wal_amount,
            images: 7,
            hint_bytes: 0,
        }
    }

    fn cycle(from: u64, to: u64, whole: bool) -> WalCycle {
        WalCycle {
            from: Lsn(from),
            to: Lsn(to),
            whole,
            began_by: CycleBegin::Online,
            began: whole.then(|| "2026-11-22T08:00:00Z".into()),
            amount: amount(100, 1000, 9000),
            causes: BTreeMap::from([(ImageCause::FirstTouch, images(5, 9000, 9000))]),
        }
    }

    pub(crate) fn record() -> WalStatisticsRecord {
        let total = amount(1_234_567, 98_765_432, 1_303_073_508);
        WalStatisticsRecord {
            schema: WAL_STATISTICS_SCHEMA.into(),
            pgtoll: "0".into(),
            command: ["pgtoll", "wal", "stats", "archive"].map(str::to_owned).into(),
            made: "2026-11-22T09:00:00Z".into(),
            source: WalSource {
                names: vec!["archive".into()],
                major: 15,
                system_identifier: 1,
                segments: 84,
                segment_bytes: 16 << 20,
                timelines: vec![1, 2],
                from: Some(Lsn(0x0100_0028)),
                to: Some(Lsn(0x5500_0000)),
                first_time: Some("2026-11-22T07:30:00Z".into()),
                last_time: Some("2026-11-22T08:30:00.5Z".into()),
                streamed_ms: None,
                gaps: Vec::new(),
            },
            end: WalEnd {
                kind: WalEndKind::Own,
                at: Some(Lsn(0x5500_0000)),
                words: "the WAL ends at 0/55000000: no record (length 0)".into(),
            },
            total,
            managers: vec![WalOfKind { name: "Heap".into(), amount: total }],
            types: vec![WalOfKind { name: "Heap/INSERT+INIT".into(), amount: total }],
            causes: BTreeMap::from([
                (ImageCause::FirstTouch, images(100_000, 1_000_000_000, 3_000_000_000)),
                (ImageCause::Hint, images(30_000, 303_073_508, 900_000_000)),
            ]),
            compressions: BTreeMap::from([(
                "lz4".into(),
                images(130_000, 1_303_073_508, 3_900_000_000),
            )]),
            relations: vec![
                relation(Some("orders_of_the_last_three_years_by_customer"), total),
                relation(None, amount(3, 300, 0)),
            ],
            without_relation: amount(100, 4000, 0),
            names: None,
            databases: vec![WalOfDatabase {
                oid: 5,
                name: Some("shop".into()),
                amount: total,
                images: 7,
            }],
            cycles: vec![
                cycle(0x0100_0028, 0x0200_0000, false),
                cycle(0x0200_0000, 0x5000_0000, true),
                cycle(0x5000_0000, 0x5500_0000, false),
            ],
            pieces: Vec::new(),
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn the_table_has_every_view_in_80_columns() {
        let text = wal_statistics_text(&record(), false, 10);
        insta::assert_snapshot!(text);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn few_rows_say_how_many_there_are() {
        let text = wal_statistics_text(&record(), true, 1);
        assert!(text.contains("Heap/INSERT+INIT"), "{text}");
        assert!(text.contains("relation (1 of 2)"), "{text}");
        assert!(text.contains("checkpoint cycle (last 1 of 3)"), "{text}");
    }

    #[test]
    fn wal_without_records_is_said_to_be_so() {
        let mut empty = record();
        (empty.source.from, empty.source.to) = (None, None);
        (empty.total, empty.managers) = (WalAmount::default(), Vec::new());
        (empty.relations, empty.databases) = (Vec::new(), Vec::new());
        (empty.cycles, empty.causes) = (Vec::new(), BTreeMap::new());
        let text = wal_statistics_text(&empty, false, 10);
        assert!(text.starts_with("WAL of PostgreSQL 15: no record\n"), "{text}");
    }

    #[test]
    fn gaps_are_named_and_left_out() {
        let mut record = record();
        let gap = |from: u64, to: u64| WalGap {
            from: Lsn(from),
            to: Lsn(to),
            kind: WalEndKind::Missing,
            words: "segment 000000010000000000000030 is missing, from 0/30000000 on".into(),
            lasted_ms: Some(1_800_250),
        };
        record.source.gaps = vec![gap(0x3000_0000, 0x3200_0028); 12];
        let text = wal_statistics_text(&record, false, 10);
        assert_eq!(
            text.matches("left out: 0/30000000 to 0/32000028, 32.0 MB: segment").count(),
            10
        );
        assert!(text.contains("left out: 2 more\n"), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("12 gaps are left out of all figures: 384 MB."), "{text}");
        record.source.gaps.truncate(1);
        // An hour and half a second, of which the gap is half an hour and a quarter of a second.
        let text = wal_statistics_text(&record, false, 10);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("30.0 min from its first commit to its last"), "{words}");
        let page = crate::html::wal_statistics_html(&record);
        assert!(page.contains("0/30000000 to 0/32000028, 32.0 MB: segment"), "{page}");
    }

    #[test]
    fn the_command_that_is_to_be_pasted_reads_the_same_wal() {
        let check = |text: &str, expected: Option<&str>| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let expected = expected.map(|words| format!("pgtoll wal whatif {words}"));
            assert_eq!(whatif_command(&words), expected, "{text}");
        };
        check("pgtoll wal stats archive/", Some("archive/"));
        check("pgtoll wal stats a b --names /pg --from 0/1", Some("a b --from 0/1"));
        check("pgtoll wal stats a --dsn host=a", Some("a --dsn host=a"));
        check("pgtoll wal stats --dsn host=a", Some("--dsn host=a --for 30min"));
        check("pgtoll wal stats --dsn host=a --for 1min", Some("--dsn host=a --for 30min"));
        check("pgtoll wal stats --dsn host=a --for 2h", Some("--dsn host=a --for 2h"));
        check("pgtoll measure checksums", None);
        check("", None);
        check(&format!("pgtoll wal stats {}", "a ".repeat(500)), None);
    }
}
