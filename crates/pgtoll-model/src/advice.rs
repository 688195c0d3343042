//! Advice from outcomes: where longer distances of checkpoints stop to pay, what to recommend, and
//! which estimates are too weak for it.
//! which estimates are too weak for it.

use pgtoll_format::ByteSize;

use crate::judge::{EstimateClass, JudgedOutcome, SourceWal, float};
use crate::whatif::checkpoint_segments;

/// The part of the curve that is worth showing: beyond all the WAL that there is nothing happens any
/// more.
pub fn shown(curve: &mut Vec<JudgedOutcome>) {
    let with_checkpoints = curve.iter().take_while(|point| point.outcome.by_volume > 0).count();
    curve.truncate(with_checkpoints + 1);
}

/// The curve's first point from which on no distance saves a twentieth by being doubled; `None` where
/// the last that is known still does.
pub fn knee(curve: &[JudgedOutcome]) -> Option<usize> {
    let known = known(curve);
    let saves = |place: &usize| {
        let here = &curve[*place];
        let twice = here.candidate.max_wal_size().map_or(0, |size| size.0.saturating_mul(2));
        let there =
            curve.iter().find(|point| point.candidate.max_wal_size() >= Some(ByteSize(twice)));
        there.is_none_or(|there| is_worth_it(there, here))
    };
    let last = (0..known).rev().find(saves);
    last.map_or(Some(0), |last| Some(last + 1)).filter(|place| *place < known)
}

/// How many of the points are more than extrapolated.
fn known(curve: &[JudgedOutcome]) -> usize {
    curve.iter().take_while(|point| point.class != EstimateClass::Extrapolated).count()
}

/// It saves a twentieth of the WAL.
fn is_worth_it(settings: &JudgedOutcome, today: &JudgedOutcome) -> bool {
    float(settings.outcome.bytes) <= float(today.outcome.bytes) * 0.95
}

/// The recommendation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct SettingAdvice {
    /// The index of the point on the curve.
    pub place: usize,
    /// It is the knee; else the longest distance that is known, and longer ones would save more.
    pub is_knee: bool,
    /// That distance saves a twentieth.
    pub saves_by_distance: bool,
    /// `max_wal_size` there, or today's where that is larger.
    pub max_wal_size: ByteSize,
    /// `max_wal_size` should be set: that distance saves a twentieth, and today's is smaller.
    pub sets_max_wal_size: bool,
    /// `checkpoint_timeout` in minutes, where today's would begin checkpoints before that distance.
    pub checkpoint_timeout_min: Option<u64>,
    /// LZ4 saves a tenth besides.
    pub with_lz4: bool,
}

/// `max_wal_size` at the knee, else as large as the WAL can say; with LZ4 where that saves much
/// besides. `None`: nothing saves a twentieth, or the WAL is too little to say so.
pub fn advise(
    source: &SourceWal,
    today: &JudgedOutcome,
    curve: &[JudgedOutcome],
    compressed: &[JudgedOutcome],
) -> Option<SettingAdvice> {
    if !source.is_enough() {
        return None;
    }
    let knee = knee(curve);
    let place = knee.or_else(|| known(curve).checked_sub(1))?;
    let plain = curve.get(place)?;
    let saves_more =
        |lz4: &&JudgedOutcome| float(lz4.outcome.bytes) < float(plain.outcome.bytes) * 0.9;
    let lz4 = compressed.get(place).filter(|lz4| is_certain(lz4)).filter(saves_more);
    let chosen = lz4.unwrap_or(plain);
    if !is_worth_it(chosen, today) {
        return None;
    }
    // A larger distance that saves nothing costs the time of a recovery for nothing.
    let saves_by_distance = is_worth_it(plain, today);
    let max_wal_size = plain.candidate.max_wal_size()?;
    let advice = SettingAdvice {
        place,
        is_knee: knee.is_some(),
        saves_by_distance,
        max_wal_size: max_wal_size.max(source.max_wal_size),
        sets_max_wal_size: saves_by_distance && max_wal_size > source.max_wal_size,
        checkpoint_timeout_min: longer_timeout(source, chosen).filter(|_| saves_by_distance),
        with_lz4: lz4.is_some(),
    };
    let changes =
        advice.sets_max_wal_size || advice.checkpoint_timeout_min.is_some() || advice.with_lz4;
    changes.then_some(advice)
}

/// Minutes within which the WAL of the longest cycle is made, a fifth more and in steps of five, if
/// that is longer than today's: time should not begin checkpoints before volume does.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a day's minutes")]
fn longer_timeout(source: &SourceWal, chosen: &JudgedOutcome) -> Option<u64> {
    let rate = source.bytes_per_second(chosen.outcome.bytes).filter(|rate| *rate > 0.0)?;
    let seconds = float(chosen.outcome.longest_cycle) / rate * 1.2;
    let seconds = (seconds / 300.0).ceil() * 300.0;
    let is_longer = seconds > source.timeout.0.as_secs_f64();
    is_longer.then(|| (seconds.min(86_400.0) / 60.0) as u64)
}

/// Rows that save a twentieth and are not what is recommended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unadvised {
    /// Their figures are certain. Only where nothing is recommended.
    pub certain: Vec<usize>,
    /// Their figures are extrapolated.
    pub extrapolated: Vec<usize>,
    /// The one of these that is certain first, and the bytes of WAL like the source's that it takes.
    pub needs: Option<(usize, u64)>,
}

/// Returns rows that a reader may miss in the recommendation: they save a twentieth of today's WAL, or
/// of what is `advised`. Rows without hints or without full-page writes are none: pgtoll recommends
/// neither.
pub fn unadvised(
    source: &SourceWal,
    today: &JudgedOutcome,
    rows: &[JudgedOutcome],
    advised: Option<&JudgedOutcome>,
) -> Unadvised {
    let saves = |row: &JudgedOutcome| {
        let candidate = &row.candidate;
        let is_safe = candidate.full_page_writes && candidate.hints == today.candidate.hints;
        is_safe && is_worth_it(row, advised.unwrap_or(today))
    };
    let places = |certain: bool| {
        let found = rows.iter().enumerate();
        let found = found.filter(move |(_, row)| is_certain(row) == certain && saves(row));
        found.map(|(place, _)| place)
    };
    let extrapolated: Vec<usize> = places(false).collect();
    let needs = extrapolated.iter().filter_map(|place| {
        let bytes = needed_bytes(source, today, &rows[*place])?;
        Some((*place, bytes))
    });
    Unadvised {
        certain: if advised.is_none() { places(true).collect() } else { Vec::new() },
        needs: needs.min_by_key(|(_, bytes)| *bytes),
        extrapolated,
    }
}

/// The figure is more than extrapolated, and more than a bound.
fn is_certain(outcome: &JudgedOutcome) -> bool {
    !matches!(outcome.class, EstimateClass::Extrapolated | EstimateClass::LowerBound)
}

/// WAL like the source's, in bytes, in which two checkpoint cycles lie under these settings.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes, not negative")]
fn needed_bytes(source: &SourceWal, today: &JudgedOutcome, row: &JudgedOutcome) -> Option<u64> {
    let rule = row.candidate.rule?;
    let segment_bytes = source.segment_bytes;
    let segments = checkpoint_segments(rule.max_wal_size.0, segment_bytes, rule.completion_target);
    let by_volume = float(segments.saturating_mul(segment_bytes));
    let by_time = rule.timeout.zip(source.bytes_per_second(row.outcome.bytes));
    let by_time = by_time.map(|(timeout, rate)| timeout.0.as_secs_f64() * rate);
    let cycle = by_time.map_or(by_volume, |by_time| by_volume.min(by_time));
    let as_today = float(today.outcome.bytes) / float(row.outcome.bytes.max(1));
    Some((2.0 * cycle * as_today) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Candidate;
    use crate::judge::tests::{MB, SOURCE, candidate, curve, outcome};

    #[test]
    fn the_knee_is_where_twice_the_distance_saves_no_twentieth() {
        let points = [(50, 1000), (100, 800), (200, 600), (400, 590), (800, 585), (1600, 584)];
        assert_eq!(knee(&curve(&points)), Some(2));
        let flat = [(500, 1000), (1000, 990), (2000, 985)];
        assert_eq!(knee(&curve(&flat)), Some(0));
        let falling = [(50, 1000), (100, 800), (200, 600), (400, 400)];
        assert_eq!(knee(&curve(&falling)), None, "the last may still fall");
        assert_eq!(knee(&[]), None);
        // What is extrapolated is not known, but shows what twice the distance saves.
        let beyond = [(400, 600), (800, 590), (1600, 585), (3200, 100)];
        assert_eq!(knee(&curve(&beyond)), Some(0));
    }

    #[test]
    fn what_is_beyond_the_wal_is_not_shown() {
        let mut points = curve(&[(50, 1000), (100, 800), (200, 600), (400, 590)]);
        points[2].outcome.by_volume = 0;
        points[3].outcome.by_volume = 0;
        shown(&mut points);
        assert_eq!(points.len(), 3);
    }

    #[test]
    fn the_knee_is_recommended_where_it_saves_a_twentieth() {
        let points = [(50, 1000), (100, 800), (200, 600), (400, 590), (800, 585), (1600, 584)];
        let points = curve(&points);
        let today = SOURCE.estimate(&Candidate { rule: None, ..candidate(1) }, &outcome(1000, 60));
        let lz4 = |factor: u64| -> Vec<JudgedOutcome> {
            let mut lz4 = points.clone();
            for point in &mut lz4 {
                point.outcome.bytes = point.outcome.bytes * factor / 100;
            }
            lz4
        };
        let plain = advise(&SOURCE, &today, &points, &lz4(95)).unwrap();
        let expected = SettingAdvice {
            place: 2,
            is_knee: true,
            saves_by_distance: true,
            max_wal_size: ByteSize(200 * MB),
            sets_max_wal_size: true,
            // 100 MB at 0.6 MB/s take 167 s, a fifth more is 200: today's five minutes are enough.
            checkpoint_timeout_min: None,
            with_lz4: false,
        };
        assert_eq!(plain, expected);
        let slow = SourceWal { seconds: Some(10_000.0), ..SOURCE };
        let advice = advise(&slow, &today, &points, &lz4(50)).unwrap();
        // 100 MB at 0.03 MB/s take 3334 s with LZ4.
        assert_eq!((advice.checkpoint_timeout_min, advice.with_lz4), (Some(70), true));
        // No distance saves anything, LZ4 does.
        let small = SOURCE.estimate(&today.candidate, &outcome(600, 60));
        let advice = advise(&SOURCE, &small, &points, &lz4(50)).unwrap();
        assert!(!advice.sets_max_wal_size && advice.with_lz4);
        assert_eq!(advise(&SOURCE, &small, &points, &lz4(100)), None);
        assert_eq!(advise(&SOURCE, &today, &[], &[]), None);
        // Without a knee: the longest distance that is known.
        let falling = curve(&[(50, 1000), (100, 800), (200, 600), (400, 400), (4000, 100)]);
        let advice = advise(&SOURCE, &today, &falling, &[]).unwrap();
        assert_eq!((advice.place, advice.is_knee), (3, false));
    }
    fn today(bytes_mb: u64) -> JudgedOutcome {
        SOURCE.estimate(&Candidate { rule: None, ..candidate(1) }, &outcome(bytes_mb, 60))
    }

    #[test]
    fn nothing_is_recommended_without_two_redo_points() {
        let points = curve(&[(50, 1000), (100, 800), (200, 600), (400, 590), (800, 585)]);
        let check = |redo_points, cycles, expected| {
            let source = SourceWal { redo_points, cycles, ..SOURCE };
            assert_eq!(source.is_enough(), expected, "{redo_points} {cycles:?}");
            let advice = advise(&source, &today(1000), &points, &points);
            assert_eq!(advice.is_some(), expected, "{redo_points} {cycles:?}");
        };
        check(0, None, false);
        check(1, None, false);
        check(2, None, false);
        check(2, Some((50 * MB, 50 * MB)), true);
    }

    #[test]
    fn what_is_extrapolated_is_not_recommended() {
        let points = curve(&[(50, 1000), (100, 990), (200, 985), (400, 984)]);
        let mut lz4 = points.clone();
        for point in &mut lz4 {
            point.outcome.bytes /= 3;
        }
        let with = |class| {
            let mut lz4 = lz4.clone();
            for point in &mut lz4 {
                point.class = class;
            }
            advise(&SOURCE, &today(1000), &points, &lz4).map(|advice| advice.with_lz4)
        };
        assert_eq!(with(EstimateClass::Longer), Some(true));
        assert_eq!(with(EstimateClass::Extrapolated), None);
        assert_eq!(with(EstimateClass::LowerBound), None);
    }

    #[test]
    fn max_wal_size_is_never_recommended_below_todays() {
        let points =
            curve(&[(50, 1000), (100, 800), (200, 600), (400, 590), (800, 585), (1600, 584)]);
        let slow = SourceWal { max_wal_size: ByteSize(1 << 30), seconds: Some(10_000.0), ..SOURCE };
        let advice = advise(&slow, &today(1000), &points, &[]).unwrap();
        assert!(advice.saves_by_distance && !advice.sets_max_wal_size);
        assert_eq!(advice.max_wal_size, ByteSize(1 << 30));
        assert_eq!(advice.checkpoint_timeout_min, Some(35), "time began today's checkpoints");
        let fast = SourceWal { seconds: Some(10.0), ..slow };
        assert_eq!(advise(&fast, &today(1000), &points, &[]), None, "nothing would change");
    }

    #[test]
    fn rows_that_save_without_being_recommended_are_named() {
        let row = |size, bytes, cycle| SOURCE.estimate(&candidate(size), &outcome(bytes, cycle));
        let mut rows = vec![
            row(100, 980, 55),
            row(200, 700, 100),
            // Both beyond what 1000 MB can say.
            row(4000, 400, 501),
            row(2000, 500, 501),
            row(8000, 990, 900),
        ];
        let mut unsafe_rows = [row(4000, 100, 501); 2];
        unsafe_rows[0].candidate.hints = false;
        unsafe_rows[1].candidate.full_page_writes = false;
        rows.extend(unsafe_rows);
        let entry = unadvised(&SOURCE, &today(1000), &rows, None);
        assert_eq!((entry.certain, entry.extrapolated), (vec![1], vec![2, 3]));
        // 2000 MB at 0.9 are 1052 segments of 1 MB; twice that, and twice as much of today's WAL.
        assert_eq!(entry.needs, Some((3, 2 * 2 * 1052 * MB)));
        let item = unadvised(&SOURCE, &today(1000), &rows, Some(&rows[1]));
        assert_eq!((item.certain, item.extrapolated), (vec![], vec![2, 3]));
        let unadvised = unadvised(&SOURCE, &today(1000), &rows, Some(&rows[2]));
        assert_eq!(unadvised, Unadvised::default());
    }
}
