//! Places of a base backup's WAL.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use pgtoll_format::Lsn;
use pgtoll_wal::{SegmentFile, WalReadError, segments};

/// A place where WAL may be.
#[derive(Clone, Debug)]
pub enum WalPlace {
    /// Paths of this machine, as [`segments`] takes them.
    Paths(Vec<PathBuf>),
    /// No file of this machine.
    Elsewhere(Arc<dyn FindSegments>),
}

/// Finds WAL that is no file of this machine.
pub trait FindSegments: fmt::Debug + Send + Sync {
    /// The segments with a part in this stretch, in any order.
    fn segments(&self, stretch: &WalStretch) -> io::Result<Vec<SegmentFile>>;
}

/// WAL from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalStretch {
    /// Its start.
    pub from: Lsn,
    /// Its end.
    pub to: Lsn,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

impl WalStretch {
    /// Whether the segment has a part in it.
    pub fn has(&self, segment: &SegmentFile) -> bool {
        let begin = segment.name.begin(self.segment_bytes);
        begin <= self.to && begin.saturating_add(self.segment_bytes) > self.from
    }
}

impl WalPlace {
    /// These paths together; without any there is no place.
    pub fn of_paths(paths: &[PathBuf]) -> Option<Self> {
        (!paths.is_empty()).then(|| Self::Paths(paths.to_vec()))
    }

    /// The segments there in the order of the WAL, those elsewhere of this stretch.
    pub(super) fn segments(&self, stretch: &WalStretch) -> Option<Vec<SegmentFile>> {
        let found: Result<Vec<SegmentFile>, WalReadError> = match self {
            Self::Paths(paths) => segments(paths),
            Self::Elsewhere(place) => {
                let found = place.segments(stretch).ok()?;
                pgtoll_wal::Archive::new(found, None).map(|archive| archive.segments)
            }
        };
        found.ok().filter(|found| !found.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_stretch_has_the_segments_that_it_touches() {
        let from = Lsn(0x200_0028);
        let to = Lsn(0x300_0000);
        let stretch = WalStretch { from, to, segment_bytes: 16 << 20 };
        for (number, expected) in [(1, false), (2, true), (3, true), (4, false)] {
            let name = format!("0000000100000000{number:08X}");
            let segment = SegmentFile::from_path(Path::new(&name)).unwrap();
            assert_eq!(stretch.has(&segment), expected, "{name}");
        }
    }
}
