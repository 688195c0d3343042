//! The timelines that lead to a server's last checkpoint, and the segments of WAL on them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pgtoll_datadir::DataDirectory;
use pgtoll_format::Lsn;

use crate::files::files;
use crate::{Packing, SegmentFile, WalReadError};

/// The timelines that lead to a cluster's own, the oldest one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Timeline, and where the server left it; [`Lsn::MAX`] of the last one.
    timelines: Vec<(u32, Lsn)>,
}

impl Lineage {
    /// Makes the lineage of a cluster's last checkpoint, by its history file in `pg_wal` or, where it
    /// is not there, in one of these directories. Without that file only the last timeline is known.
    pub fn new(data: &DataDirectory, more: &[PathBuf]) -> Self {
        let last = data.control.last_checkpoint.timeline;
        let name = format!("{last:08X}.history");
        let own = data.path.join("pg_wal");
        let mut places = std::iter::once(own.as_path()).chain(more.iter().map(PathBuf::as_path));
        let history = places.find_map(|place| fs::read_to_string(place.join(&name)).ok());
        Self::parse(&history.unwrap_or_default(), last)
    }

    /// By the text of the last timeline's history.
    fn parse(history: &str, last: u32) -> Self {
        let before = history.lines().filter_map(line);
        Self { timelines: before.chain([(last, Lsn::MAX)]).collect() }
    }

    /// Returns the end of this timeline; `None`: it does not lead here.
    pub fn end_of(&self, timeline: u32) -> Option<Lsn> {
        self.timelines.iter().find(|(item, _)| *item == timeline).map(|(_, end)| *end)
    }

    /// The timeline whose name the segment with this number has: the segment in which a server leaves
    /// a timeline is copied to the next one and continues there.
    fn timeline_of_segment(&self, number: u64, segment_bytes: u64) -> Option<u32> {
        let is_within = |end: Lsn| end == Lsn::MAX || number < end.segment_number(segment_bytes);
        self.timelines.iter().find(|(_, end)| is_within(*end)).map(|(timeline, _)| *timeline)
    }
}

/// A line of a history: timeline, where the server left it, why.
fn line(text: &str) -> Option<(u32, Lsn)> {
    let mut words = text.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The segments of a data directory's `pg_wal` that follow each other up to that of its last
/// checkpoint, on the timelines that lead there, in the order of the WAL. None where the segment of
/// the checkpoint is missing.
pub fn checkpoint_segments(data: &DataDirectory) -> Result<Vec<SegmentFile>, WalReadError> {
    checkpoint_segments_with(data, &Lineage::new(data, &[]), &[])
}

/// As [`checkpoint_segments`], with segments of other places too: archives, tars, files, compressed
/// or not.
pub fn checkpoint_segments_with(
    data: &DataDirectory,
    lineage: &Lineage,
    more: &[PathBuf],
) -> Result<Vec<SegmentFile>, WalReadError> {
    segments_up_to(data, lineage, more, data.control.checkpoint)
}

/// As [`checkpoint_segments_with`], up to the segment that has this place.
pub fn segments_up_to(
    data: &DataDirectory,
    lineage: &Lineage,
    more: &[PathBuf],
    end: Lsn,
) -> Result<Vec<SegmentFile>, WalReadError> {
    let last = end.0 / segment_bytes(data);
    let mut found = on_lineage(data, lineage, more)?;
    found.split_off(&last.saturating_add(1));
    let first = last.saturating_add(1).saturating_sub(count_before(&found, last));
    Ok(found.split_off(&first).into_values().collect())
}

/// The segments of a data directory's `pg_wal` that follow each other before and behind the one that
/// has this place, in the order of the WAL. The last ones may be renamed old ones, which a server keeps for
/// later use. None where the segment of the place is missing.
pub fn segments_around(data: &DataDirectory, place: Lsn) -> Result<Vec<SegmentFile>, WalReadError> {
    let middle = place.0 / segment_bytes(data);
    let mut found = on_lineage(data, &Lineage::new(data, &[]), &[])?;
    let first = middle.saturating_add(1).saturating_sub(count_before(&found, middle));
    let behind = found.split_off(&middle.saturating_add(1));
    let follows = (middle.saturating_add(1)..).zip(behind);
    let follows = follows.take_while(|(expected, (number, _))| number == expected);
    let before = found.split_off(&first).into_values();
    Ok(before.chain(follows.map(|(_, (_, file))| file)).collect())
}

fn segment_bytes(data: &DataDirectory) -> u64 {
    u64::from(data.control.wal_segment_bytes.max(1))
}

/// How many segments follow each other up to this one.
fn count_before(found: &BTreeMap<u64, SegmentFile>, last: u64) -> u64 {
    let follows = found.range(..=last).map(|(number, _)| *number).rev().zip((0..=last).rev());
    follows.take_while(|(number, expected)| number == expected).count() as u64
}

/// The segments on the timelines that lead to the cluster's own, by their number.
fn on_lineage(
    data: &DataDirectory,
    lineage: &Lineage,
    more: &[PathBuf],
) -> Result<BTreeMap<u64, SegmentFile>, WalReadError> {
    let segment_bytes = segment_bytes(data);
    let mut found = BTreeMap::new();
    let mut all = own_segments(&data.path.join("pg_wal"))?;
    for path in more {
        all.extend(files(path)?.into_iter().filter(|file| !file.name.is_partial));
    }
    for file in all {
        let (high, low) = file.name.place;
        let number = (u64::from(high) << 32) / segment_bytes + u64::from(low);
        if lineage.timeline_of_segment(number, segment_bytes) == Some(file.name.timeline) {
            // The server's own is the first one.
            found.entry(number).or_insert(file);
        }
    }
    Ok(found)
}

/// The segments that a server has in its own directory.
fn own_segments(directory: &Path) -> Result<Vec<SegmentFile>, WalReadError> {
    let read = |source| WalReadError::Read { path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(read)? {
        let file = SegmentFile::from_path(&entry.map_err(read)?.path());
        let is_own = |file: &SegmentFile| file.packing == Packing::Plain && !file.name.is_partial;
        found.extend(file.filter(is_own));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: &str = "# why\n1\t0/3000000\tno recovery target specified\n\n\
                           2\t0/5000158\tbefore 2026-01-01\n";

    #[test]
    fn timelines_are_followed_back() {
        let lineage = Lineage::parse(HISTORY, 3);
        let at = |number| lineage.timeline_of_segment(number, 1 << 24);
        assert_eq!((2..=6).map(at).collect::<Vec<_>>(), [1, 2, 2, 3, 3].map(Some));
        let alone = Lineage::parse("", 2);
        assert_eq!(alone.timeline_of_segment(0, 1 << 24), Some(2));
    }

    #[test]
    fn a_timeline_ends_where_the_server_left_it() {
        let lineage = Lineage::parse(HISTORY, 3);
        let check = |timeline, expected| assert_eq!(lineage.end_of(timeline), expected);
        check(1, Some(Lsn(0x0300_0000)));
        check(2, Some(Lsn(0x0500_0158)));
        check(3, Some(Lsn::MAX));
        check(4, None);
    }
}
