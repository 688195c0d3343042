//! WAL segments as files: which there are, and in which order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::ScanError;

/// A file that holds one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// Where it is.
    pub path: PathBuf,
    /// What its name says.
    pub name: SegmentName,
    /// How it is compressed.
    pub packing: Packing,
}

/// What the first 24 characters of a segment's name say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The upper and the lower part of its place: how many segments make one of the upper part
    /// depends on their size.
    pub place: (u32, u32),
    /// The timeline.
    pub timeline: u32,
    /// Only its beginning was written when the server left its timeline.
    pub is_partial: bool,
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip.
    Gzip,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl SegmentName {
    /// Reads a file's name. Archives put a checksum (pgBackRest) and how it is compressed behind
    /// it: `000000010000000A000000FE-<sha1>.gz`.
    pub fn parse(name: &str) -> Option<(Self, Packing)> {
        let (digits, rest) = name.split_at_checked(24)?;
        let is_digit = |c: char| c.is_ascii_digit() || ('A'..='F').contains(&c);
        if !digits.chars().all(is_digit) {
            return None;
        }
        let number = |from: usize| u32::from_str_radix(&digits[from..from + 8], 16).ok();
        let place = (number(8)?, number(16)?);
        let (rest, is_partial) = match rest.strip_prefix(".partial") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let rest = match rest.strip_prefix('-') {
            Some(sum) if sum.len() >= 40 && sum.is_char_boundary(40) => {
                let (sum, rest) = sum.split_at(40);
                sum.chars().all(|c| c.is_ascii_hexdigit()).then_some(rest)?
            }
            Some(_) => return None,
            None => rest,
        };
        let packing = match rest {
            "" => Packing::Plain,
            ".gz" => Packing::Gzip,
            ".lz4" => Packing::Lz4,
            ".zst" => Packing::Zstd,
            _ => return None,
        };
        Some((Self { place, timeline: number(0)?, is_partial }, packing))
    }

    /// The segment after this one, where there are so many in one of the upper part.
    pub fn next_place(&self, segments_per_part: u32) -> (u32, u32) {
        let (high, low) = self.place;
        match low.checked_add(1).filter(|next| *next < segments_per_part) {
            Some(next) => (high, next),
            None => (high.wrapping_add(1), 0),
        }
    }
}

impl SegmentFile {
    /// The file at this path, if its name is a segment's.
    pub fn of(path: &Path) -> Option<Self> {
        let (name, packing) = SegmentName::parse(path.file_name()?.to_str()?)?;
        Some(Self { path: path.to_owned(), name, packing })
    }

    /// Its bytes, decompressed.
    pub fn open(&self) -> io::Result<Box<dyn Read>> {
        let file = File::open(&self.path)?;
        Ok(match self.packing {
            Packing::Plain => Box::new(file),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Packing::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(file)),
            Packing::Zstd => Box::new(zstd::Decoder::new(file)?),
        })
    }
}

/// The segments of these paths in the order of the WAL: files, directories of an archive with all
/// that is below them, or data directories, whose `pg_wal` is meant.
///
/// Where timelines branch, the newest one is followed back: of each place the segment of the
/// newest timeline is taken, and a whole one rather than one that is partial.
pub fn segments(paths: &[PathBuf]) -> Result<Vec<SegmentFile>, ScanError> {
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
            return Err(ScanError::NoSegments { path: path.clone() });
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

fn files(path: &Path) -> Result<Vec<SegmentFile>, ScanError> {
    let read = |source| ScanError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(read)?.is_dir() {
        let file = SegmentFile::of(path);
        return Ok(vec![file.ok_or_else(|| ScanError::NoSegments { path: path.to_owned() })?]);
    }
    let below = path.join("pg_wal");
    let directory = if below.is_dir() { &below } else { path };
    let mut files = Vec::new();
    // A link is followed at the top (pg_wal may be one) and not below.
    for entry in WalkDir::new(directory.join("")) {
        let entry = entry.map_err(|error| read(error.into()))?;
        if entry.file_type().is_file() {
            files.extend(SegmentFile::of(entry.path()));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(name: &str, expected: Option<(u32, (u32, u32), bool, Packing)>) {
        let parsed = SegmentName::parse(name);
        let parsed = parsed.map(|(of, packing)| (of.timeline, of.place, of.is_partial, packing));
        assert_eq!(parsed, expected, "{name}");
    }

    #[test]
    fn names_as_servers_and_archives_write_them() {
        let place = (0xA, 0xFE);
        check("000000010000000A000000FE", Some((1, place, false, Packing::Plain)));
        check("0000000C0000000A000000FE.partial", Some((12, place, true, Packing::Plain)));
        check("000000010000000A000000FE.lz4", Some((1, place, false, Packing::Lz4)));
        check("000000010000000A000000FE.partial.gz", Some((1, place, true, Packing::Gzip)));
        let sum = "0123456789abcdef0123456789abcdef01234567";
        check(
            &format!("000000010000000A000000FE-{sum}.zst"),
            Some((1, place, false, Packing::Zstd)),
        );
        for other in ["00000002.history", "000000010000000A000000FE.00000028.backup", ""] {
            check(other, None);
        }
    }

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

    proptest! {
        #[test]
        fn any_name_is_a_segments_or_not(name in ".*", tail in "[.-].{0,60}") {
            let _ = SegmentName::parse(&name);
            let _ = SegmentName::parse(&format!("000000010000000A000000FE{tail}"));
        }
    }
}
