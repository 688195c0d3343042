//! Statistics of WAL.

use std::collections::BTreeMap;

use pgtoll_format::wal::rmgr::{
    XLOG_FPI, XLOG_FPI_FOR_HINT, XLOG_GIN_SPLIT, XLOG_GIN_VACUUM_PAGE, XLOG_HASH_SPLIT_PAGE,
    XLOG_HASH_SQUEEZE_PAGE,
};
use pgtoll_format::wal::{Compression, Image, Parts, Record, RecordType};
use pgtoll_format::{ForkNumber, PAGE_BYTES, PageHeader, RelationFork};
use pgtoll_record::{ImageCause, WalAmount, WalImages};

use crate::forks::{ForkTotals, Forks};

/// Sums over records.
#[derive(Clone, Debug)]
pub struct WalStatistics {
    /// By resource manager and info, at `manager * 16 + info / 16`.
    types: Vec<WalAmount>,
    /// Images by cause, in the order of [`ImageCause::ALL`].
    causes: [WalImages; 4],
    /// Images by compression: none, pglz, LZ4, Zstandard.
    compressions: [WalImages; 4],
    /// Amounts of each fork that a block reference names. A record's own bytes are counted for the fork of
    /// its first block.
    forks: Forks,
    /// Records that refer to no block.
    without_fork: WalAmount,
    /// Forced images of visibility maps, by database.
    map_images: BTreeMap<u32, MapImages>,
}

/// Forced images of a database's visibility maps (`XLOG/FPI`): `CREATE DATABASE` with the strategy
/// `wal_log` makes one of each page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MapImages {
    /// All behind the header is a hole, which replay fills with zeros. `CREATE DATABASE` takes a map's
    /// page for one of the usual layout, whose bits then are free space.
    emptied: u64,
    /// All others.
    whole: u64,
}

const TYPES: usize = 256 * 16;
/// The block of a `XLOG_HASH_SQUEEZE_PAGE` that is freed: it is initialized again before it is logged, and so
/// has no LSN that could tell that it has its image already (`_hash_freeovflpage` in `hashovfl.c`).
const FREED_PAGE: u8 = 2;

impl Default for WalStatistics {
    fn default() -> Self {
        Self {
            types: vec![WalAmount::default(); TYPES],
            causes: <[WalImages; 4]>::default(),
            compressions: <[WalImages; 4]>::default(),
            forks: Forks::default(),
            without_fork: WalAmount::default(),
            map_images: BTreeMap::new(),
        }
    }
}

impl WalStatistics {
    /// Adds a record that was taken apart.
    pub fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        let kind = RecordType::from_header(&record.header);
        let image_bytes = parts.image_bytes();
        let record_bytes = u64::from(record.header.total_bytes).saturating_sub(image_bytes);
        self.types[index(kind)].add(&WalAmount { records: 1, record_bytes, image_bytes });
        let mut own = WalAmount { records: 1, record_bytes, image_bytes: 0 };
        if parts.blocks.is_empty() {
            return self.without_fork.add(&own);
        }
        if image_bytes > 0 {
            return self.add_images(kind, own, parts);
        }
        for block in &parts.blocks {
            let fork = RelationFork { relation: block.relation, number: block.fork };
            let amount = &mut self.forks.totals_mut(fork).amount;
            let WalAmount { records, record_bytes, .. } = std::mem::take(&mut own);
            amount.records += records;
            amount.record_bytes += record_bytes;
        }
    }

    /// Adds blocks of which some have images; `own` is what the record has besides.
    fn add_images(&mut self, kind: RecordType, mut own: WalAmount, parts: &Parts) {
        for block in &parts.blocks {
            let fork = RelationFork { relation: block.relation, number: block.fork };
            let mut totals =
                ForkTotals { amount: std::mem::take(&mut own), ..ForkTotals::default() };
            if let Some(image) = &block.image {
                let cause = cause_of(kind, block.id, image.applies);
                let images = images_of(image);
                (totals.amount.image_bytes, totals.images) = (images.bytes, 1);
                totals.hint_bytes = if cause == ImageCause::Hint { images.bytes } else { 0 };
                self.causes[cause as usize].add(&images);
                self.compressions[compression(image.compression)].add(&images);
                if kind == XLOG_FPI && block.fork == ForkNumber::VM {
                    self.add_map(block.relation.database, image);
                }
            }
            self.forks.totals_mut(fork).add(&totals);
        }
    }

    fn add_map(&mut self, database: u32, image: &Image) {
        let or_default = self.map_images.entry(database).or_default();
        let is_emptied = usize::from(image.hole_offset) == PageHeader::BYTES
            && usize::from(image.hole_bytes) == PAGE_BYTES - PageHeader::BYTES;
        if is_emptied {
            or_default.emptied += 1;
        } else {
            or_default.whole += 1;
        }
    }

    /// Databases whose visibility maps replay of this WAL leaves empty, though the server that wrote it
    /// has their bits, with the pages. A server that was mended leaves out what is empty anyway, and has
    /// images of other pages.
    pub fn emptied_maps(&self) -> impl Iterator<Item = (u32, u64)> {
        let emptied = self
            .map_images
            .iter()
            .filter(|(_, map_image)| map_image.emptied > 0 && map_image.whole == 0);
        emptied.map(|(database, emptied)| (*database, emptied.emptied))
    }

    /// Adds what other statistics hold.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.types.iter_mut().zip(&other.types) {
            own.add(other);
        }
        for (own, other) in self.causes.iter_mut().zip(&other.causes) {
            own.add(other);
        }
        for (own, other) in self.compressions.iter_mut().zip(&other.compressions) {
            own.add(other);
        }
        for (fork, amount) in other.forks.iter() {
            self.forks.totals_mut(*fork).add(amount);
        }
        self.without_fork.add(&other.without_fork);
        for (database, other) in &other.map_images {
            let own = self.map_images.entry(*database).or_default();
            own.emptied += other.emptied;
            own.whole += other.whole;
        }
    }

    /// All records.
    pub fn total(&self) -> WalAmount {
        self.types.iter().fold(WalAmount::default(), |mut sum, amount| {
            sum.add(amount);
            sum
        })
    }

    /// The types of records that there are, in order, with their amounts.
    pub fn types(&self) -> impl Iterator<Item = (RecordType, WalAmount)> {
        let all = (0..=u8::MAX).flat_map(|manager| {
            (0..16_u8).map(move |info| RecordType { manager, info: info << 4 })
        });
        all.map(|kind| (kind, self.types[index(kind)])).filter(|(_, amount)| amount.records > 0)
    }

    /// The sum over a resource manager's records.
    pub fn of_manager(&self, manager: u8) -> WalAmount {
        let own = self.types().filter(|(kind, _)| kind.manager == manager);
        own.fold(WalAmount::default(), |mut sum, (_, amount)| {
            sum.add(&amount);
            sum
        })
    }

    /// Images by cause.
    pub fn causes(&self) -> impl Iterator<Item = (ImageCause, WalImages)> {
        ImageCause::ALL.into_iter().zip(self.causes)
    }

    /// Images by how they are compressed.
    pub fn compressions(&self) -> impl Iterator<Item = (Option<Compression>, WalImages)> {
        let kinds =
            [None, Some(Compression::Pglz), Some(Compression::Lz4), Some(Compression::Zstd)];
        kinds.into_iter().zip(self.compressions)
    }

    /// Forks with their amounts, the largest first.
    pub fn forks(&self) -> Vec<(RelationFork, ForkTotals)> {
        let mut forks: Vec<(RelationFork, ForkTotals)> = self.forks.iter().copied().collect();
        forks.sort_unstable_by_key(|(fork, item)| (std::cmp::Reverse(item.amount.bytes()), *fork));
        forks
    }

    /// Records that refer to no block: commits, checkpoints and the like.
    pub fn without_fork(&self) -> WalAmount {
        self.without_fork
    }
}

fn index(kind: RecordType) -> usize {
    usize::from(kind.manager) * 16 + usize::from(kind.info >> 4)
}

pub(crate) fn images_of(image: &Image) -> WalImages {
    let bytes = image.range.len() as u64;
    let uncompressed_bytes = match image.compression {
        None => bytes,
        Some(_) => PAGE_BYTES as u64 - u64::from(image.hole_bytes),
    };
    WalImages { images: 1, bytes, uncompressed_bytes }
}

/// Why the image of the block with this number is there, as far as its record says. One that is forced
/// may be the page's first in its cycle all the same.
pub(crate) fn cause_of(kind: RecordType, block: u8, applies: bool) -> ImageCause {
    match kind {
        _ if !applies => ImageCause::Check,
        XLOG_FPI_FOR_HINT => ImageCause::Hint,
        // Pages of those of indexes are registered with `REGBUF_FORCE_IMAGE` (`ginbtree.c`,
        // `ginvacuum.c`, `hashpage.c`).
        XLOG_FPI | XLOG_GIN_SPLIT | XLOG_GIN_VACUUM_PAGE | XLOG_HASH_SPLIT_PAGE => {
            ImageCause::Forced
        }
        XLOG_HASH_SQUEEZE_PAGE if block == FREED_PAGE => ImageCause::Forced,
        _ => ImageCause::FirstTouch,
    }
}

fn compression(compression: Option<Compression>) -> usize {
    match compression {
        None => 0,
        Some(Compression::Pglz) => 1,
        Some(Compression::Lz4) => 2,
        Some(Compression::Zstd) => 3,
    }
}

#[cfg(test)]
mod tests {
    use pgtoll_format::wal::{BlockReference, RecordHeader};
    use pgtoll_format::{Lsn, MAJORS, RelFileLocator};

    use super::*;

    /// An image of a page of this fork in this database, with this many bytes and the rest a hole.
    fn add(to: &mut WalStatistics, kind: RecordType, database: u32, fork: ForkNumber, bytes: u16) {
        let page = u16::try_from(PAGE_BYTES).unwrap();
        let (hole_offset, hole_bytes) = if bytes < page { (24, page - bytes) } else { (0, 0) };
        let range = 0..usize::from(bytes);
        let image = Image { hole_offset, hole_bytes, applies: true, compression: None, range };
        let header = RecordHeader {
            total_bytes: 50 + u32::from(bytes),
            xid: 0,
            previous: Lsn(0),
            info: kind.info,
            manager: kind.manager,
            crc: 0,
        };
        let facts = &MAJORS[0].wal;
        let record = Record { at: Lsn(8), end: Lsn(16), header, bytes: &[], facts };
        let relation = RelFileLocator { tablespace: 1663, database, rel_number: 2601 };
        let mut statistics = WalStatistics::default();
        let mut parts = Parts::default();
        parts.blocks.push(BlockReference {
            id: 0,
            relation,
            fork,
            block: 0,
            will_init: false,
            image: Some(image),
            data: 0..0,
        });
        let own = WalAmount { records: 1, record_bytes: 50, image_bytes: 0 };
        statistics.add_images(RecordType::from_header(&record.header), own, &parts);
        to.merge(&statistics);
    }

    #[test]
    fn databases_whose_maps_replay_empties_are_named() {
        let vm = ForkNumber::VM;
        let fsm = ForkNumber::FSM;
        let mut all = WalStatistics::default();
        add(&mut all, XLOG_FPI, 16400, vm, 24);
        add(&mut all, XLOG_FPI, 16400, vm, 24);
        add(&mut all, XLOG_FPI, 16400, fsm, 24);
        add(&mut all, XLOG_FPI, 16400, fsm, 8192);
        // By a server that was mended: an empty page, and one with bits.
        add(&mut all, XLOG_FPI, 16500, vm, 24);
        add(&mut all, XLOG_FPI, 16500, vm, 8192);
        // No map, and the image of a map for a change of it.
        add(&mut all, XLOG_FPI, 16600, ForkNumber::MAIN, 24);
        add(&mut all, XLOG_FPI_FOR_HINT, 16700, vm, 24);
        assert_eq!(all.emptied_maps().collect::<Vec<_>>(), [(16400, 2)]);
    }
}
