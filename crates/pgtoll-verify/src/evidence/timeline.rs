//! Which segments of `pg_wal` lead to the last checkpoint.

use std::fs;
use std::path::Path;

use pgtoll_format::Lsn;

use super::{NotCompared, WalEnds};
use pgtoll_datadir::DataDirectory;
use pgtoll_wal::{Packing, SegmentFile, WalReadError};

/// The segments that follow each other up to that of the checkpoint, on the timelines that lead
/// there, in the order of the WAL.
pub(super) fn segments(data: &DataDirectory) -> Result<Vec<SegmentFile>, NotCompared> {
    let directory = data.path.join("pg_wal");
    let segment_bytes = u64::from(data.control.wal_segment_bytes.max(1));
    let timelines = timelines(&directory, data.control.last_checkpoint.timeline, segment_bytes);
    let last = data.control.checkpoint.0 / segment_bytes;
    let read = |source| WalReadError::Read { path: directory.clone(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let Some(file) = SegmentFile::of(&path) else { continue };
        if file.packing != Packing::Plain || file.name.is_partial {
            continue;
        }
        let (high, low) = file.name.place;
        let number = (u64::from(high) << 32) / segment_bytes + u64::from(low);
        if number <= last && timeline_at(&timelines, number) == Some(file.name.timeline) {
            found.push((number, file));
        }
    }
    found.sort_unstable_by_key(|(number, _)| *number);
    // One after the other, from the last one back.
    let follows = found.iter().rev().zip((0..=last).rev());
    let whole = follows.take_while(|((number, _), expected)| number == expected).count();
    if whole == 0 {
        return Err(NotCompared::Ends(WalEnds::Missing));
    }
    Ok(found.split_off(found.len() - whole).into_iter().map(|(_, file)| file).collect())
}

/// The timelines that lead to this one and the number of the first segment that has each one's
/// name, the oldest one first.
fn timelines(directory: &Path, last: u32, segment_bytes: u64) -> Vec<(u32, u64)> {
    let history = fs::read_to_string(directory.join(format!("{last:08X}.history")));
    let Ok(history) = history else {
        // The first one has none. Of another one what was before is not known.
        return vec![(last, 0)];
    };
    let mut found = Vec::new();
    let mut begin = 0;
    for (timeline, end) in history.lines().filter_map(ended) {
        found.push((timeline, begin));
        begin = end.segment_number(segment_bytes);
    }
    found.push((last, begin));
    found
}

/// A line of a history: timeline, where the server left it, why.
fn ended(line: &str) -> Option<(u32, Lsn)> {
    let mut words = line.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The segment in which the server left a timeline is copied to the next one and goes on there.
fn timeline_at(timelines: &[(u32, u64)], number: u64) -> Option<u32> {
    let of = timelines.iter().rev().find(|(_, first)| *first <= number);
    of.map(|(timeline, _)| *timeline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timelines_are_followed_back() {
        let place = tempfile::tempdir().unwrap();
        let history = "# why\n1\t0/3000000\tno recovery target specified\n\n\
                       2\t0/5000158\tbefore 2026-01-01\n";
        fs::write(place.path().join("00000003.history"), history).unwrap();
        let found = timelines(place.path(), 3, 1 << 24);
        assert_eq!(found, [(1, 0), (2, 3), (3, 5)]);
        let at: Vec<_> = (2..=6).map(|number| timeline_at(&found, number)).collect();
        assert_eq!(at, [1, 2, 2, 3, 3].map(Some));
        assert_eq!(timelines(place.path(), 2, 1 << 24), [(2, 0)]);
    }
}
