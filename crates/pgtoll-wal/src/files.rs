//! WAL segments as files: which there are, and in which order.

use std::collections::{BTreeMap, BTreeSet};

use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::WalReadError;
use crate::packing::Packing;
use crate::segment_file::SegmentFile;
use crate::tars;

/// The segments of these paths in the order of the WAL: files, tars, directories of an archive with
/// all that is below them, or data directories, whose `pg_wal` is meant. See [`Archive::find`].
pub fn segments(paths: &[PathBuf]) -> Result<Vec<SegmentFile>, WalReadError> {
    Ok(Archive::find(paths, None)?.segments)
}

/// Segments of one timeline and of those that lead to it.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    /// In the order of the WAL.
    pub segments: Vec<SegmentFile>,
    /// How many segments of older timelines, by timeline, stand where a newer one had branched off.
    pub left_out: BTreeMap<u32, usize>,
}

impl Archive {
    /// The segments of these paths. Where timelines branch, this one is followed back, or the newest:
    /// of each place the segment of the newest timeline is taken, and a whole one rather than one
    /// that is partial.
    pub fn find(paths: &[PathBuf], timeline: Option<u32>) -> Result<Self, WalReadError> {
        let mut found = Vec::new();
        for path in paths {
            found.extend(files(path)?);
            if found.is_empty() {
                return Err(WalReadError::NoSegments { path: path.clone() });
            }
        }
        Self::new(found, timeline)
    }

    /// The same of segments in any order, wherever they are.
    pub fn new(
        segments: impl IntoIterator<Item = SegmentFile>,
        timeline: Option<u32>,
    ) -> Result<Self, WalReadError> {
        let mut found: BTreeMap<(u32, u32), Vec<SegmentFile>> = BTreeMap::new();
        for file in segments {
            found.entry(file.name.place).or_default().push(file);
        }
        let timelines: BTreeSet<u32> =
            found.values().flatten().map(|file| file.name.timeline).collect();
        let newest = timeline.or(timelines.last().copied()).unwrap_or_default();
        if let Some(timeline) = timeline.filter(|timeline| !timelines.contains(timeline)) {
            let found = timelines.into_iter().collect();
            return Err(WalReadError::NoTimeline { timeline, found });
        }
        for files in found.values_mut() {
            files.retain(|file| file.name.timeline <= newest);
        }
        let is_newest =
            |files: &Vec<SegmentFile>| files.iter().any(|file| file.name.timeline == newest);
        // What an older timeline went on with after the newest one had left it is not of this WAL.
        let end = found.iter().rev().find(|(_, files)| is_newest(files)).map(|(place, _)| *place);
        let mut archive = Self::default();
        for (place, files) in found {
            let taken =
                if Some(place) <= end { files.iter().max_by_key(|file| rank(file)) } else { None };
            let others = files.iter().filter(|file| {
                !file.name.is_partial
                    && taken.is_none_or(|taken| taken.name.timeline != file.name.timeline)
            });
            let others: BTreeSet<u32> = others.map(|file| file.name.timeline).collect();
            for timeline in others {
                *archive.left_out.entry(timeline).or_default() += 1;
            }
            archive.segments.extend(taken.cloned());
        }
        Ok(archive)
    }

    /// Returns a sentence for each timeline that is left out.
    pub fn notes(&self) -> Vec<String> {
        let of_timeline = |(timeline, count): (&u32, &usize)| {
            let segments = if *count == 1 { "segment" } else { "segments" };
            format!(
                "Left out: {count} {segments} of timeline {timeline}, from where a newer timeline \
                 branched off; --timeline {timeline} reads them."
            )
        };
        self.left_out.iter().map(of_timeline).collect()
    }
}

/// Returns the rank of a file among those of one place.
fn rank(file: &SegmentFile) -> (u32, bool, std::cmp::Reverse<Packing>) {
    (file.name.timeline, !file.name.is_partial, std::cmp::Reverse(file.packing))
}

/// The tar that `pg_basebackup --format=tar` puts WAL into. Other tars are read if they are named.
fn is_backups_wal(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("pg_wal."))
}

/// The segments of one path of this machine, in no order.
pub fn files(path: &Path) -> Result<Vec<SegmentFile>, WalReadError> {
    let read = |source| WalReadError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(read)?.is_dir() {
        if let Some(packing) = Packing::of_tar(path) {
            return tars::members(path, packing).map_err(read);
        }
        let file = SegmentFile::from_path(path);
        return Ok(vec![file.ok_or_else(|| WalReadError::NoSegments { path: path.to_owned() })?]);
    }
    let below = path.join("pg_wal");
    let directory = if below.is_dir() { &below } else { path };
    let mut files = Vec::new();
    // A link is followed at the top (pg_wal may be one) and not below.
    for entry in WalkDir::new(directory.join("")) {
        let entry = entry.map_err(|error| read(error.into()))?;
        if entry.file_type().is_file() {
            match Packing::of_tar(entry.path()).filter(|_| is_backups_wal(entry.path())) {
                Some(packing) => {
                    let in_tar = tars::members(entry.path(), packing);
                    files.extend(in_tar.map_err(|source| WalReadError::Read {
                        path: entry.path().to_owned(),
                        source,
                    })?);
                }
                None => files.extend(SegmentFile::from_path(entry.path())),
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_timeline_is_followed_back() {
        let directory = tempfile::tempdir().unwrap();
        for name in [
            "000000010000000000000001",
            "000000010000000000000002",
            "000000010000000000000003.partial",
            "000000020000000000000003",
            "000000020000000000000004.partial",
            // The old primary went on.
            "000000010000000000000004",
            "000000010000000000000005",
            "00000002.history",
        ] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let found = segments(&[directory.path().to_owned()]).unwrap();
        let names: Vec<(u32, u32)> =
            found.iter().map(|file| (file.name.timeline, file.name.place.1)).collect();
        assert_eq!(names, [(1, 1), (1, 2), (2, 3), (2, 4)]);
        let paths = [directory.path().to_owned()];
        let newest = Archive::find(&paths, None).unwrap();
        assert_eq!(
            newest.notes(),
            ["Left out: 2 segments of timeline 1, from where a newer timeline branched off; \
              --timeline 1 reads them."]
        );
        let older = Archive::find(&paths, Some(1)).unwrap();
        let places: Vec<u32> = older.segments.iter().map(|file| file.name.place.1).collect();
        assert_eq!((places, older.notes()), (vec![1, 2, 3, 4, 5], vec![]));
        assert!(older.segments[2].name.is_partial);
        let error = Archive::find(&paths, Some(3)).unwrap_err();
        assert_eq!(error.to_string(), "no segment of timeline 3; there are timelines 1, 2");
    }
}
