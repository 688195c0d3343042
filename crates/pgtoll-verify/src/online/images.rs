//! Images of blocks in the WAL.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use pgtoll_format::wal::rmgr::XLOG_FPW_CHANGE;
use pgtoll_format::wal::{Parts, Record, RecordType};
use pgtoll_format::{Lsn, RelationFork};

use pgtoll_wal::{Collect, End, WalReadError, scan_with, segments};

use crate::defect::Unsettled;

/// The images of some blocks in the WAL.
#[derive(Clone, Debug)]
pub struct ImagesInWal {
    /// The end of the last record that restores a block, whatever it was: by its image, or
    /// because it initializes the page.
    pub last: HashMap<(RelationFork, u32), Lsn>,
    /// The LSN up to which the WAL was read.
    pub to: Lsn,
    /// All of it is from a time when `full_page_writes` was on.
    pub full_page_writes: bool,
}

/// Why it is not known which images the WAL has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalImagesError {
    /// Its files cannot be read, or end in the middle of a record.
    #[error("{0}")]
    Unread(String),
    /// The place from which on it is wanted is not in the files that are there.
    #[error("it does not reach back to {0}")]
    BeginsLater(Lsn),
    /// No server says where it is.
    #[error("{0}")]
    NoServer(Unsettled),
}

impl Default for ImagesInWal {
    fn default() -> Self {
        Self { last: HashMap::new(), to: Lsn(0), full_page_writes: true }
    }
}

/// Reads the WAL of a data directory from this place on.
pub(super) fn images_in_wal(
    data: &Path,
    forks: &HashSet<(RelationFork, u32)>,
    from: Lsn,
    segment_bytes: u32,
    threads: usize,
) -> Result<ImagesInWal, WalImagesError> {
    let read = || read_once(data, forks, from, segment_bytes, threads);
    // A running server renames and writes segments while they are read.
    (1..READS).fold(read(), |found, _| found.or_else(|_| read()))
}

fn read_once(
    data: &Path,
    forks: &HashSet<(RelationFork, u32)>,
    from: Lsn,
    segment_bytes: u32,
    threads: usize,
) -> Result<ImagesInWal, WalImagesError> {
    let unread = |error: WalReadError| WalImagesError::Unread(error.to_string());
    let mut files = segments(&[data.join("pg_wal")]).map_err(unread)?;
    let segment_bytes = u64::from(segment_bytes.max(1));
    let first = from.align_down(segment_bytes);
    files.retain(|file| file.name.begin(segment_bytes) >= first);
    let wanted = Arc::new(forks.clone());
    let new = || {
        let wanted = wanted.clone();
        let last = HashMap::new();
        Finder { wanted, from, last, was_off: false }
    };
    let (summary, end) =
        scan_with(&files, threads, new, &mut |_| ControlFlow::Continue(())).map_err(unread)?;
    match (summary.from, summary.to, &end) {
        (Some(begin), Some(to), End::Own(_) | End::Complete) if begin <= from => {
            let Finder { last, was_off, .. } = summary.collected;
            Ok(ImagesInWal { last, to, full_page_writes: !was_off })
        }
        (_, _, End::Own(_) | End::Complete) => Err(WalImagesError::BeginsLater(from)),
        _ => Err(WalImagesError::Unread(end.to_string())),
    }
}

/// Finds images of wanted blocks.
struct Finder {
    wanted: Arc<HashSet<(RelationFork, u32)>>,
    from: Lsn,
    last: HashMap<(RelationFork, u32), Lsn>,
    was_off: bool,
}

impl Collect for Finder {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        if record.at < self.from {
            return;
        }
        // After a change nothing is known of the time before.
        self.was_off |= RecordType::from_header(&record.header) == XLOG_FPW_CHANGE;
        for block in &parts.blocks {
            let is_whole =
                block.will_init || block.image.as_ref().is_some_and(|image| image.applies);
            let key = (RelationFork { relation: block.relation, number: block.fork }, block.block);
            if is_whole && self.wanted.contains(&key) {
                self.last.insert(key, record.end);
            }
        }
    }

    fn append(&mut self, later: Self) {
        self.last.extend(later.last);
        self.was_off |= later.was_off;
    }
}

const READS: u32 = 4;
