use std::collections::BTreeMap;

use jiff::Timestamp;
use pgtoll_format::Lsn;
use pgtoll_record::{
    CycleBegin, WAL_STATISTICS_SCHEMA, WalAmount, WalCycle, WalEnd, WalImages, WalOfDatabase,
    WalOfKind, WalOfRelation, WalPiece, WalRelationName, WalSource,
};
use proptest::prelude::*;

use super::*;
use crate::html::tests::{assert_well_formed, text_of};

/// The page, which is whole, and whose pictures hold all that is drawn in them.
fn page_of(statistics: &WalStatisticsRecord) -> String {
    let page = wal_statistics_html(statistics);
    assert_well_formed(&page);
    assert_within(&page);
    page
}

#[test]
fn a_page_says_what_is_in_the_wal() {
    insta::assert_snapshot!("page", text_of(&page_of(&sample(90, 33))));
}

#[test]
fn a_hint_share_never_stands_without_what_it_does_not_say() {
    let page = page_of(&sample(240, 40));
    assert!(page.contains("That is not what WAL without them would save"));
    assert!(page.contains("is not what turning them off would save"));
    let mut without = sample(240, 40);
    let hint = without.causes.remove(&ImageCause::Hint).unwrap_or_default();
    without.total.image_bytes -= hint.bytes;
    without
        .pieces
        .iter_mut()
        .for_each(|piece| assert!(piece.bytes.remove(&WalKind::Hint).is_some()));
    without.relations.iter_mut().for_each(|relation| relation.hint_bytes = 0);
    without
        .cycles
        .iter_mut()
        .for_each(|cycle| assert!(cycle.causes.remove(&ImageCause::Hint).is_some()));
    let page = page_of(&without);
    assert!(!page.contains("would save") && !page.contains("images: hint"));
}

#[test]
fn wal_that_ends_too_early_is_a_warning() {
    let mut sample = sample(20, 3);
    assert!(!page_of(&sample).contains("class=\"warning\""));
    let end = |kind| WalEnd { kind, at: Some(Lsn(0x1_2345_6789)), words: "it is so.".to_owned() };
    for kind in [
        WalEndKind::Damaged,
        WalEndKind::Missing,
        WalEndKind::CutShort,
        WalEndKind::Unreadable,
        WalEndKind::Interrupted,
    ] {
        sample.end = end(kind);
        let page = page_of(&sample);
        let words = format!("{}</strong> (at 1/23456789): it is so. This page", title_of_end(kind));
        assert!(page.contains(&words), "{kind:?}");
    }
}

#[test]
fn without_times_the_picture_is_of_positions() {
    let mut sample = sample(100, 3);
    assert!(page_of(&sample).contains("rate-caption"));
    for time in [&mut sample.source.first_time, &mut sample.source.last_time] {
        *time = None;
    }
    sample.pieces.iter_mut().for_each(|piece| piece.until_us = None);
    sample.cycles.iter_mut().for_each(|cycle| cycle.began = None);
    let page = page_of(&sample);
    assert!(page.contains("composition-caption") && !page.contains("rate-caption"));
    assert!(page.contains("sawtooth-caption") && !page.contains("/s</text>"));
}

#[test]
fn absurd_times_are_drawn_all_the_same() {
    let times = [i64::MIN, i64::MAX, 0, -1, 1, -62_135_596_800_000_000, 253_402_300_799_999_999];
    let mut sample = sample(70, 3);
    for (piece, time) in sample.pieces.iter_mut().zip(times.into_iter().cycle()) {
        piece.until_us = Some(time);
    }
    sample.source.first_time = Some("yesterday".to_owned());
    sample
        .cycles
        .iter_mut()
        .for_each(|cycle| cycle.began = Some("-009999-01-02T01:59:59Z".to_owned()));
    page_of(&sample);
}

#[test]
fn little_is_shown_as_well() {
    let whole = sample(1, 1);
    page_of(&whole);
    let empty = WalStatisticsRecord {
        total: WalAmount::default(),
        managers: Vec::new(),
        types: Vec::new(),
        causes: BTreeMap::new(),
        compressions: BTreeMap::new(),
        relations: Vec::new(),
        without_relation: WalAmount::default(),
        databases: Vec::new(),
        cycles: Vec::new(),
        pieces: Vec::new(),
        names: None,
        ..whole
    };
    let source = WalSource {
        from: None,
        to: None,
        first_time: None,
        last_time: None,
        ..empty.source.clone()
    };
    assert!(page_of(&empty).contains("No record was read."));
    assert!(page_of(&WalStatisticsRecord { source, ..empty }).contains("No record was read."));
}

#[test]
fn the_page_of_much_wal_is_small() {
    let mut item = sample(2000, 10_000);
    let paths = (0..20_000).map(|index| format!("/srv/archive/0000000100000000{index:08X}.gz"));
    item.source.names = paths.collect();
    item.command.extend(item.source.names.iter().cloned());
    let page = page_of(&item);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert!(page.contains("9,970 others"));
    let (_, json) = page.split_once("id=\"result\">").unwrap();
    let json = json.split_once("</script>").unwrap().0;
    let kept: WalStatisticsRecord = serde_json::from_str(json).unwrap();
    let bytes =
        |pieces: &[WalPiece]| -> u64 { pieces.iter().flat_map(|piece| piece.bytes.values()).sum() };
    assert_eq!(bytes(&kept.pieces), bytes(&sample(2000, 10_000).pieces));
    assert_eq!(kept.notes.len(), 5, "{:?}", kept.notes);
    assert!(page.contains("… (19,906 more)") && page.contains("… (19,900 more)"));
    assert!(page.contains("40 cycles are left out here"));
}

#[test]
fn a_record_that_fits_is_in_its_page_whole() {
    let sample = sample(240, 40);
    let page = page_of(&sample);
    let (_, json) = page.split_once("id=\"result\">").unwrap();
    assert_eq!(
        serde_json::from_str::<WalStatisticsRecord>(json.split_once("</script>").unwrap().0)
            .unwrap(),
        sample
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_numbers_are_drawn(
        numbers in prop::collection::vec(prop_oneof![
            any::<u64>(), 0_u64..3, Just(u64::MAX), 0_u64..1_000_000,
        ], 1..60),
        times in prop::collection::vec(prop_oneof![
            any::<Option<i64>>(),
            (1_700_000_000_000_000_i64..1_700_000_100_000_000).prop_map(Some),
        ], 1..40),
    ) {
        let mut sample = sample(60, 12);
        let mut next = numbers.into_iter().cycle();
        let mut next = || next.next().unwrap_or(0);
        scramble(&mut sample, &mut next);
        for (piece, time) in sample.pieces.iter_mut().zip(times.into_iter().cycle()) {
            piece.until_us = time;
        }
        page_of(&sample);
    }

    #[test]
    fn whatever_the_record_says_is_text(
        words in prop::collection::vec(
            prop_oneof![
                ".*",
                Just("</script><script>alert(1)</script>".to_owned()),
                Just("<!--".to_owned()),
                Just("\"' onload=x <b>&amp;]]>".to_owned()),
            ],
            5,
        ),
    ) {
        let mut sample = sample(30, 4);
        let [one, two, three, four, five] = words.as_slice() else { unreachable!() };
        sample.command.push(one.clone());
        sample.made.clone_from(two);
        sample.source.names = words.clone();
        sample.source.first_time = Some(three.clone());
        sample.end = WalEnd { kind: WalEndKind::Damaged, at: None, words: four.clone() };
        sample.names = Some(five.clone());
        sample.notes = words.clone();
        sample.compressions.insert(one.clone(), WalImages { images: 1, bytes: 1, uncompressed_bytes: 1 });
        sample.managers[0].name.clone_from(two);
        sample.relations[0].fork.clone_from(three);
        sample.relations[1].name = Some(WalRelationName {
            database: one.clone(),
            schema: two.clone(),
            relation: three.clone(),
            kind: four.clone(),
            of: Some(five.clone()),
        });
        sample.databases[0].name = Some(four.clone());
        sample.cycles[0].began = Some(five.clone());
        page_of(&sample);
    }
}

/// Every number of the record becomes another.
fn scramble(statistics: &mut WalStatisticsRecord, next: &mut dyn FnMut() -> u64) {
    fn amount(amount: &mut WalAmount, next: &mut dyn FnMut() -> u64) {
        *amount = WalAmount { records: next(), record_bytes: next(), image_bytes: next() };
    }
    fn images<K>(by_name: &mut BTreeMap<K, WalImages>, next: &mut dyn FnMut() -> u64) {
        for map in by_name.values_mut() {
            *map = WalImages { images: next(), bytes: next(), uncompressed_bytes: next() };
        }
    }
    amount(&mut statistics.total, next);
    amount(&mut statistics.without_relation, next);
    images(&mut statistics.causes, next);
    images(&mut statistics.compressions, next);
    statistics.managers.iter_mut().for_each(|manager| amount(&mut manager.amount, next));
    for relation in &mut statistics.relations {
        amount(&mut relation.amount, next);
        (relation.images, relation.hint_bytes) = (next(), next());
    }
    for database in &mut statistics.databases {
        amount(&mut database.amount, next);
        database.images = next();
    }
    for cycle in &mut statistics.cycles {
        amount(&mut cycle.amount, next);
        images(&mut cycle.causes, next);
        (cycle.from, cycle.to) = (Lsn(next()), Lsn(next()));
    }
    for piece in &mut statistics.pieces {
        piece.from = Lsn(next());
        piece.bytes.values_mut().for_each(|bytes| *bytes = next());
    }
    (statistics.source.from, statistics.source.to) = (Some(Lsn(next())), Some(Lsn(next())));
    (statistics.source.segments, statistics.source.segment_bytes) = (next(), next());
}

/// A record as of a server whose checkpoints come every so often: images are many after each, and
/// become fewer.
fn sample(pieces: usize, relations: usize) -> WalStatisticsRecord {
    let pieces: Vec<WalPiece> = (0..pieces as u64).map(piece).collect();
    let of_kind = |kind: WalKind, pieces: &[WalPiece]| {
        pieces.iter().map(|item| item.bytes[&kind]).sum::<u64>()
    };
    let images = |pieces: &[WalPiece]| -> BTreeMap<ImageCause, WalImages> {
        let causes = [
            (ImageCause::FirstTouch, WalKind::FirstTouch),
            (ImageCause::Hint, WalKind::Hint),
            (ImageCause::Forced, WalKind::OtherImages),
        ];
        let of_cause =
            |bytes| WalImages { images: bytes / 4000, bytes, uncompressed_bytes: bytes * 2 };
        causes.map(|(cause, kind)| (cause, of_cause(of_kind(kind, pieces)))).into()
    };
    let amount = |pieces: &[WalPiece]| {
        let all: u64 = WalKind::ALL.iter().map(|kind| of_kind(*kind, pieces)).sum();
        let image_bytes = images(pieces).values().map(|image| image.bytes).sum();
        WalAmount { records: all / 150, record_bytes: all - image_bytes, image_bytes }
    };
    let total = amount(&pieces);
    let part = |amount: WalAmount, share: u64| WalAmount {
        records: amount.records / share,
        record_bytes: amount.record_bytes / share,
        image_bytes: amount.image_bytes / share,
    };
    let to = Lsn(ORIGIN + PIECE * pieces.len() as u64);
    let last = pieces.last().and_then(|piece| piece.until_us).unwrap_or(BEGAN);
    WalStatisticsRecord {
        schema: WAL_STATISTICS_SCHEMA.to_owned(),
        pgtoll: "0.1.0".to_owned(),
        command: ["pgtoll", "wal", "stats", "pg_wal", "--output", "wal.html"]
            .map(str::to_owned)
            .to_vec(),
        made: "2026-11-22T10:00:00Z".to_owned(),
        source: WalSource {
            names: vec!["pg_wal".to_owned()],
            major: 17,
            system_identifier: 7_500_000_000_000_000_000,
            segments: (pieces.len() as u64).div_ceil(16),
            segment_bytes: 16 << 20,
            timelines: vec![1],
            from: Some(Lsn(ORIGIN)),
            to: Some(to),
            first_time: Some(moment_of(BEGAN)),
            last_time: Some(moment_of(last)),
            streamed_ms: None,
            gaps: Vec::new(),
        },
        end: WalEnd {
            kind: WalEndKind::Own,
            at: Some(to),
            words: "nothing follows the last record".to_owned(),
        },
        total,
        managers: [("XLOG", 9), ("Transaction", 7), ("Heap", 2), ("Btree", 3)]
            .map(|(name, share)| WalOfKind { name: name.to_owned(), amount: part(total, share) })
            .to_vec(),
        types: [("XLOG/FPI_FOR_HINT", 9), ("Transaction/COMMIT", 7), ("Heap/HOT_UPDATE", 2)]
            .map(|(name, share)| WalOfKind { name: name.to_owned(), amount: part(total, share) })
            .to_vec(),
        causes: images(&pieces),
        compressions: [
            (
                "none".to_owned(),
                WalImages { images: 10, bytes: 60_000, uncompressed_bytes: 60_000 },
            ),
            (
                "lz4".to_owned(),
                WalImages { images: 1000, bytes: 1_200_000, uncompressed_bytes: 6_000_000 },
            ),
        ]
        .into(),
        relations: (0..relations as u64)
            .map(|index| relation(index, part(total, (index + 2) * 2)))
            .collect(),
        without_relation: part(total, 50),
        names: Some("PGDATA".to_owned()),
        databases: [(5, Some("bench"), 2), (0, None, 60), (16_999, None, 400)]
            .map(|(oid, name, share)| WalOfDatabase {
                oid,
                name: name.map(str::to_owned),
                amount: part(total, share),
                images: 1000 / share,
            })
            .to_vec(),
        cycles: cycles(&pieces, &amount, &images),
        pieces,
        notes: vec!["a file of an older timeline was passed over".to_owned()],
    }
}

const ORIGIN: u64 = 0x1_2000_0028;
const PIECE: u64 = 1 << 20;
const BEGAN: i64 = 1_795_334_400_000_000;
const CYCLE: u64 = 20;

fn moment_of(microsecond: i64) -> String {
    Timestamp::from_microsecond(microsecond).unwrap().to_string()
}

fn piece(index: u64) -> WalPiece {
    // Images decay over the cycle, and a night comes in the middle.
    let images = PIECE * 8 / 10 / (1 + index % CYCLE);
    let rest = PIECE - images;
    let bytes = [
        (WalKind::FirstTouch, images / 3 * 2),
        (WalKind::Hint, images / 4),
        (WalKind::OtherImages, images / 12),
        (WalKind::Heap, rest / 2),
        (WalKind::Index, rest / 4),
        (WalKind::Transaction, rest / 8),
        (WalKind::Other, rest / 8),
    ];
    let index = i64::try_from(index).unwrap();
    let until_us = Some(BEGAN + index * 700_000 + (index / 60) * 20_000_000);
    WalPiece { from: Lsn(ORIGIN + PIECE * index.unsigned_abs()), until_us, bytes: bytes.into() }
}

fn relation(index: u64, amount: WalAmount) -> WalOfRelation {
    let number = u32::try_from(index).unwrap();
    let name = WalRelationName {
        database: "bench".to_owned(),
        schema: "public".to_owned(),
        relation: format!("pgbench_accounts_{index}"),
        kind: if index.is_multiple_of(2) { "table" } else { "index" }.to_owned(),
        of: (index % 2 == 1).then(|| "pgbench_accounts".to_owned()),
    };
    WalOfRelation {
        tablespace: 1663,
        database: 5,
        filenode: 16_384 + number,
        fork: if index % 5 == 4 { "vm" } else { "main" }.to_owned(),
        name: (index % 7 != 6).then_some(name),
        amount,
        images: amount.image_bytes / 4000,
        hint_bytes: amount.image_bytes / 4,
    }
}

fn cycles(
    pieces: &[WalPiece],
    amount: &dyn Fn(&[WalPiece]) -> WalAmount,
    images: &dyn Fn(&[WalPiece]) -> BTreeMap<ImageCause, WalImages>,
) -> Vec<WalCycle> {
    let all = pieces.chunks(usize::try_from(CYCLE).unwrap()).enumerate();
    let cycles = all.map(|(index, item)| WalCycle {
        from: item[0].from,
        to: Lsn(item[0].from.0 + PIECE * item.len() as u64),
        whole: index > 0 && item.len() as u64 == CYCLE,
        began_by: match index {
            0 => CycleBegin::Unknown,
            3 => CycleBegin::Shutdown,
            _ => CycleBegin::Online,
        },
        began: item[0].until_us.filter(|_| index > 0).map(moment_of),
        amount: amount(item),
        causes: images(item),
    });
    cycles.collect()
}

/// All that is drawn in a picture lies in its view box.
fn assert_within(page: &str) {
    for svg in page.split("<svg ").skip(1) {
        let (tag, svg) = svg.split_once('>').unwrap();
        let Some((_, view)) = tag.split_once("viewBox=\"0 0 ") else { continue };
        let view = view.split('"').next().unwrap();
        let (wide, high) = view.split_once(' ').unwrap();
        let (wide, high): (f64, f64) = (wide.parse().unwrap(), high.parse().unwrap());
        let (svg, _) = svg.split_once("</svg>").unwrap();
        for element in svg.split('<').skip(1) {
            let value = |name: &str| -> Option<f64> {
                let (_, value) = element.split_once(&format!(" {name}=\""))?;
                value.split('"').next()?.parse().ok()
            };
            let x = value("x").unwrap_or(0.0);
            let y = value("y").unwrap_or(0.0);
            let width = value("width").unwrap_or(0.0);
            let height = value("height").unwrap_or(0.0);
            let mut points = vec![(x, y), (x + width, y + height)];
            if let Some((_, path)) = element.split_once(" d=\"") {
                points.extend(points_of(path.split('"').next().unwrap()));
            }
            for (x, y) in points {
                let within = (-0.1..=wide + 0.1).contains(&x) && (-0.1..=high + 0.1).contains(&y);
                assert!(within, "{x} {y} in <{element:.300}");
            }
        }
    }
}

/// Points of a path of `M`, `L`, `H`, `V`, `h`, `v` and `Z`.
fn points_of(path: &str) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let begins =
        path.match_indices(|character: char| character.is_ascii_alphabetic()).map(|(at, _)| at);
    let begins: Vec<usize> = begins.chain([path.len()]).collect();
    for piece in begins.windows(2).map(|ends| &path[ends[0]..ends[1]]) {
        let (letter, numbers) = piece.split_at(1);
        let numbers: Vec<f64> =
            numbers.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let (x, y) = points.last().copied().unwrap_or((0.0, 0.0));
        match (letter, numbers.as_slice()) {
            ("M" | "L", [x, y]) => points.push((*x, *y)),
            ("H", [x]) => points.push((*x, y)),
            ("V", [y]) => points.push((x, *y)),
            ("h", [wide]) => points.push((x + wide, y)),
            ("v", [high]) => points.push((x, y + high)),
            ("Z", []) => {}
            _ => panic!("{piece} in {path}"),
        }
    }
    points
}
