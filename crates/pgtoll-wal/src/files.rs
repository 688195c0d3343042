//! WAL segments as files: which there are, and in which order.

use std::collections::BTreeMap;

use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::WalReadError;
use crate::packing::Packing;
use crate::segment_file::SegmentFile;
use crate::tars;

/// The segments of these paths in the order of the WAL: files, tars, directories of an archive with
/// all that is below them, or data directories, whose `pg_wal` is meant.
///
/// Where timelines branch, the newest one is followed back: of each place the segment of the
/// newest timeline is taken, and a whole one rather than one that is partial.
pub fn segments(paths: &[PathBuf]) -> Result<Vec<SegmentFile>, WalReadError> {
    let mut found: BTreeMap<(u32, u32), SegmentFile> = BTreeMap::new();
    for path in paths {
        let before = found.len();
        for file in files(path)? {
            let place = found.entry(file.name.place).or_insert_with(|| file.clone());
            if rank(&file) > rank(place) {
                *place = file;
            }
        }
        if found.len() == before && before == 0 {
            return Err(WalReadError::NoSegments { path: path.clone() });
        }
    }
    let newest = found.values().map(|file| file.name.timeline).max();
    let mut segments: Vec<SegmentFile> = found.into_values().collect();
    // What an older timeline went on with after the newest one had left it is not of this WAL.
    let end = segments.iter().rposition(|file| Some(file.name.timeline) == newest);
    segments.truncate(end.map_or(0, |end| end + 1));
    Ok(segments)
}

/// Which of two files of one place is taken.
fn rank(file: &SegmentFile) -> (u32, bool, std::cmp::Reverse<Packing>) {
    (file.name.timeline, !file.name.is_partial, std::cmp::Reverse(file.packing))
}

/// The tar that `pg_basebackup --format=tar` puts WAL into. Other tars are read if they are named.
fn is_backups_wal(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("pg_wal."))
}

fn files(path: &Path) -> Result<Vec<SegmentFile>, WalReadError> {
    let read = |source| WalReadError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(read)?.is_dir() {
        if let Some(packing) = Packing::of_tar(path) {
            return tars::members(path, packing).map_err(read);
        }
        let file = SegmentFile::of(path);
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
                None => files.extend(SegmentFile::of(entry.path())),
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
    }
}
