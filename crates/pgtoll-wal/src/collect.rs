//! Collectors of a scan's records.

use pgtoll_format::Lsn;
use pgtoll_format::wal::{Parts, Record};

use crate::WalStatistics;

/// Takes records in the order of the WAL, and what others took of later ones.
///
/// Segments are read by several threads at once: each segment gets a collector of its own, and
/// those are put together in the order of the WAL. So a collector sees the records of one segment,
/// and of the stretch before them only what [`Collect::append`] tells.
pub trait Collect: Send {
    /// Takes a record, its CRC checked, and its parts.
    fn add(&mut self, record: &Record<'_>, parts: &Parts);

    /// Takes what was collected from the segment that follows. This is called on one thread, in
    /// the order of the WAL, and never for what stands after its end.
    fn append(&mut self, later: Self)
    where
        Self: Sized;

    /// Notes an unread gap: the next segment's first record begins
    /// there, and does not follow the last one that was appended. Never called by
    /// [`scan_with`](crate::scan_with), which ends there.
    fn gap(&mut self, from: Lsn, to: Lsn) {
        let _ = from;
        let _ = to;
    }
}

impl Collect for WalStatistics {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        WalStatistics::add(self, record, parts);
    }

    fn append(&mut self, later: Self) {
        self.merge(&later);
    }
}

/// Two collectors in one pass.
impl<A: Collect, B: Collect> Collect for (A, B) {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        self.0.add(record, parts);
        self.1.add(record, parts);
    }

    fn append(&mut self, later: Self) {
        self.0.append(later.0);
        self.1.append(later.1);
    }

    fn gap(&mut self, from: Lsn, to: Lsn) {
        self.0.gap(from, to);
        self.1.gap(from, to);
    }
}
