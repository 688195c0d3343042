//! The record in the page, for programs. A record of a long stretch has thousands of relations and
//! pieces, and a page that is sent by mail has to stay small.
//! relations and pieces, and a page that is sent by mail has to stay small.

use pgtoll_record::{WalPiece, WalStatisticsRecord};

use crate::wal_numbers::{bytes, count, size, sum};

/// Said beside it.
pub(super) const WORDS: &str = "Where relations, cycles, pieces or paths are many, the page holds fewer of \
    them, and its notes say so; the sums are the same. The same command with --format json gives them all.";

/// With the largest relations and databases, the first and last cycles, and pieces that are joined
/// to fewer; what was left out is in its notes.
pub(super) fn reduced(statistics: &WalStatisticsRecord) -> WalStatisticsRecord {
    let mut kept = statistics.clone();
    let every = statistics.pieces.len().div_ceil(PIECES).max(1);
    kept.pieces = statistics.pieces.chunks(every).filter_map(joined).collect();
    let relations = cut(&mut kept.relations, RELATIONS);
    let databases = cut(&mut kept.databases, DATABASES);
    let paths = cut(&mut kept.source.names, PATHS);
    let words = cut(&mut kept.command, PATHS);
    let cycles = kept.cycles.len().saturating_sub(CYCLES);
    if cycles > 0 {
        kept.cycles.drain(CYCLES / 2..CYCLES / 2 + cycles);
    }
    let small = sum(relations.iter().map(|relation| &relation.amount));
    for (without, label) in [
        (relations.len(), format!("the smallest relations, with {} together", size(bytes(&small)))),
        (databases.len(), "the smallest databases".to_owned()),
        (cycles, "cycles in the middle".to_owned()),
        (paths.len(), "paths that were named".to_owned()),
        (words.len(), "words of the command".to_owned()),
    ] {
        if without > 0 {
            let without = count(without as u64);
            kept.notes.push(format!("left out of this page's data, {without} of them: {label}"));
        }
    }
    if every > 1 {
        kept.notes.push(format!("each piece of this page's data is {every} of the record's"));
    }
    kept
}

/// Takes away what is beyond the first this many.
fn cut<T>(list: &mut Vec<T>, most: usize) -> Vec<T> {
    list.split_off(most.min(list.len()))
}

const RELATIONS: usize = 250;
const DATABASES: usize = 100;
const CYCLES: usize = 200;
const PIECES: usize = 400;

/// A shell may have made thousands of paths of `archive/*`.
const PATHS: usize = 100;

/// Words behind each other; of very many the first, and how many more there are.
pub(super) fn listed(words: &[String], between: &str) -> String {
    let shown = words[..words.len().min(PATHS)].join(between);
    match words.len().saturating_sub(PATHS) {
        0 => shown,
        more => format!("{shown} … ({} more)", count(more as u64)),
    }
}

fn joined(pieces: &[WalPiece]) -> Option<WalPiece> {
    let mut all = pieces.first()?.clone();
    for piece in &pieces[1..] {
        all.until_us = piece.until_us.or(all.until_us);
        for (kind, bytes) in &piece.bytes {
            let sum = all.bytes.entry(*kind).or_default();
            *sum = sum.saturating_add(*bytes);
        }
    }
    Some(all)
}
