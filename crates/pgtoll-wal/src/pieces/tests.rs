use proptest::prelude::*;

use super::*;

const SHORT: u64 = 1 << 8;

/// What a record says, apart from its bytes.
#[derive(Clone, Copy, Debug)]
enum Says {
    Nothing,
    RedoPoint,
    /// A checkpoint whose redo point is the record so far back.
    Online(usize),
    Shutdown,
    Commit(i64),
}

type Record = (Lsn, Says);

fn stretches() -> impl Strategy<Value = Vec<Record>> {
    let says = prop_oneof![
        20 => Just(Says::Nothing),
        1 => Just(Says::RedoPoint),
        2 => (0..60_usize).prop_map(Says::Online),
        1 => Just(Says::Shutdown),
        4 => (0..1000_i64).prop_map(Says::Commit),
    ];
    prop::collection::vec((1..200_u64, says), 1..400).prop_map(|records| {
        let mut at = 1 << 20;
        let place = |(length, says)| {
            at += length;
            (Lsn(at), says)
        };
        records.into_iter().map(place).collect()
    })
}

/// What a record counts: each something else.
fn own(at: Lsn) -> Sums {
    let record_bytes = at.0 * 3 + 1;
    Sums { amount: WalAmount { records: 1, record_bytes, image_bytes: 0 }, ..Sums::default() }
}

fn between(stretch: &[Record], from: Lsn, to: Lsn) -> Sums {
    let within = stretch.iter().filter(|(at, _)| (from..to).contains(at));
    within.fold(Sums::default(), |mut all, (at, _)| {
        all.add(&own(*at));
        all
    })
}

/// Pieces as the reader of a segment makes them.
fn pieces(stretch: &[Record], numbers: std::ops::Range<usize>) -> Pieces {
    let mut pieces = Pieces::new(SHORT);
    for number in numbers {
        let (at, says) = stretch[number];
        let begins = matches!(says, Says::RedoPoint | Says::Shutdown);
        if begins
            || pieces
                .of
                .last()
                .is_none_or(|last| last.from.align_down(SHORT) != at.align_down(SHORT))
        {
            let since_us = None;
            let until_us = None;
            pieces.of.push(Piece { from: at, sums: Sums::default(), since_us, until_us });
        }
        let piece = pieces.of.last_mut().unwrap();
        piece.sums.add(&own(at));
        if let Says::Commit(time) = says {
            (piece.since_us, piece.until_us) =
                (earlier(piece.since_us, Some(time)), piece.until_us.max(Some(time)));
        }
        let Some(redo) = redo(stretch, number) else { continue };
        let is_shutdown = matches!(says, Says::Shutdown);
        let event = match says {
            Says::RedoPoint => Event::RedoPoint,
            _ => Event::Checkpoint { redo, is_shutdown, time_s: 7 },
        };
        pieces.checkpoints.push((at, event));
    }
    pieces
}

fn redo(stretch: &[Record], number: usize) -> Option<Lsn> {
    match stretch[number].1 {
        Says::RedoPoint | Says::Shutdown => Some(stretch[number].0),
        // Also one from before the first record.
        Says::Online(back) => Some(number.checked_sub(back).map_or(Lsn(5), |redo| stretch[redo].0)),
        Says::Nothing | Says::Commit(_) => None,
    }
}

/// Redo points that begin a cycle, each behind the one before it.
fn begins(stretch: &[Record]) -> Vec<Lsn> {
    let mut begins = vec![stretch[0].0];
    for redo in (0..stretch.len()).filter_map(|number| redo(stretch, number)) {
        if redo > *begins.last().unwrap() {
            begins.push(redo);
        }
    }
    begins
}

fn taken(stretch: &[Record], segment: usize, can_read: bool) -> FinishedTimeline {
    let mut history = History::new(SHORT);
    for from in (0..stretch.len()).step_by(segment) {
        let next = pieces(stretch, from..stretch.len().min(from + segment));
        history.take(&next);
    }
    history.finish(|from, to| can_read.then(|| between(stretch, from, to)))
}

fn sum_of(cycles: &[Cycle]) -> Sums {
    cycles.iter().fold(Sums::default(), |mut all, cycle| {
        all.add(&cycle.sums);
        all
    })
}

const END: Lsn = Lsn::MAX;

proptest! {
    #[test]
    fn cycles_are_what_lies_between_redo_points(
        stretch in stretches(),
        segment in 1..200_usize,
    ) {
        let FinishedTimeline { cycles, cycle_error_bytes, .. } = taken(&stretch, segment, true);
        prop_assert_eq!(cycle_error_bytes, 0);
        let begins = begins(&stretch);
        let found: Vec<Lsn> = cycles.iter().map(|cycle| cycle.from).collect();
        prop_assert_eq!(&found, &begins);
        for (cycle, to) in cycles.iter().zip(begins.iter().copied().skip(1).chain([END])) {
            prop_assert_eq!(cycle.sums, between(&stretch, cycle.from, to));
        }
    }

    #[test]
    fn what_cannot_be_read_again_is_told_and_nothing_is_lost(
        stretch in stretches(),
        segment in 1..200_usize,
    ) {
        let FinishedTimeline { cycles, cycle_error_bytes, .. } = taken(&stretch, segment, false);
        prop_assert_eq!(sum_of(&cycles), between(&stretch, Lsn(0), END));
        let ends = cycles.iter().skip(1).map(|cycle| cycle.from).chain([END]);
        for (cycle, to) in cycles.iter().zip(ends) {
            let found = cycle.sums.amount;
            let expected = between(&stretch, cycle.from, to).amount;
            // A piece at each end of a cycle may be on the wrong side of it.
            let error = found.bytes().abs_diff(expected.bytes());
            prop_assert!(error <= 2 * cycle_error_bytes, "{error} {cycle_error_bytes}");
        }
    }

    #[test]
    fn pieces_hold_what_begins_in_them(stretch in stretches(), segment in 1..200_usize) {
        let pieces = taken(&stretch, segment, true).pieces;
        let ends = pieces.iter().skip(1).map(|piece| piece.from).chain([END]);
        for (piece, to) in pieces.iter().zip(ends) {
            prop_assert_eq!(piece.sums, between(&stretch, piece.from, to));
            let times = stretch.iter().filter_map(|(at, says)| match says {
                Says::Commit(time) if (piece.from..to).contains(at) => Some(*time),
                _ => None,
            });
            let first = times.clone().min();
            let last = times.max();
            prop_assert_eq!((piece.since_us, piece.until_us), (first, last));
        }
    }
}

#[test]
fn a_gap_ends_a_cycle_and_begins_another() {
    let at = |place: u64| Lsn((1 << 20) + place * 100);
    let stretch: Vec<Record> = [
        (at(0), Says::Nothing),
        (at(1), Says::RedoPoint),
        (at(2), Says::Commit(500)),
        // From here on it is behind the gap; the first redo point lies in the gap or before.
        (at(90), Says::Commit(2000)),
        (at(91), Says::Online(10)),
        (at(92), Says::RedoPoint),
        (at(93), Says::Nothing),
    ]
    .into();
    let mut history = History::new(SHORT);
    history.take(&pieces(&stretch, 0..3));
    history.gap(at(3));
    history.take(&pieces(&stretch, 3..7));
    let finish = history.finish(|from, to| Some(between(&stretch, from, to)));
    let found: Vec<_> =
        finish.cycles.iter().map(|cycle| (cycle.from, cycle.begin, cycle.sums)).collect();
    let expected = [
        (at(0), CycleBegin::Unknown, between(&stretch, at(0), at(1))),
        (at(1), CycleBegin::Online, between(&stretch, at(1), at(3))),
        (at(90), CycleBegin::Unknown, between(&stretch, at(90), at(92))),
        (at(92), CycleBegin::Online, between(&stretch, at(92), END)),
    ];
    assert_eq!(found, expected);
    assert_eq!(finish.gaps_us, [Some(1500)]);
    let empty = finish.pieces.iter().find(|piece| piece.from == at(3)).unwrap();
    assert_eq!((empty.sums, empty.until_us), (Sums::default(), Some(2000)));
}

/// So much WAL that pieces become coarser, and the oldest cycles one.
#[test]
fn nothing_is_lost_where_there_is_too_much() {
    let last = 2 * CYCLES as u64 - 1;
    let long = |says: Says| -> Vec<Record> {
        (1..=last).map(|number| (Lsn(number * SHORT), says)).collect()
    };
    let mut one = long(Says::Nothing);
    one.last_mut().unwrap().1 = Says::Online(50_001);
    let FinishedTimeline { cycles, pieces, cycle_error_bytes, .. } = taken(&one, 1000, true);
    let redo = Lsn((last - 50_001) * SHORT);
    let expected = [between(&one, Lsn(0), redo), between(&one, redo, END)];
    assert_eq!(cycles.iter().map(|cycle| cycle.sums).collect::<Vec<_>>(), expected);
    assert!(cycle_error_bytes == 0 && pieces.len() <= SERIES);
    let many = long(Says::RedoPoint);
    let cycles = taken(&many, 1000, true).cycles;
    assert_eq!((cycles.len(), cycles[0].begin), (CYCLES, CycleBegin::Unknown));
    assert_eq!(sum_of(&cycles), between(&many, Lsn(0), END));
}
