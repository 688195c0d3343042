//! What WAL consists of.

use pgtoll_format::wal::rmgr::{
    XLOG_FPI, XLOG_FPI_FOR_HINT, XLOG_GIN_SPLIT, XLOG_GIN_VACUUM_PAGE, XLOG_HASH_SPLIT_PAGE,
    XLOG_HASH_SQUEEZE_PAGE,
};
use pgtoll_format::wal::{Compression, Parts, Record, RecordType};
use pgtoll_format::{PAGE_BYTES, RelationFork};
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
    /// Of each fork that a block reference names. A record's own bytes are counted for the fork of
    /// its first block.
    forks: Forks,
    /// Of records that refer to no block.
    without_fork: WalAmount,
}

const TYPES: usize = 256 * 16;
/// The block of a `XLOG_HASH_SQUEEZE_PAGE` that is freed: it is made anew before it is logged, and so
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
        }
    }
}

impl WalStatistics {
    /// Adds a record that was taken apart.
    pub fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        let kind = RecordType::of(&record.header);
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
            let amount = &mut self.forks.of(fork).amount;
            let WalAmount { records, record_bytes, .. } = std::mem::take(&mut own);
            amount.records += records;
            amount.record_bytes += record_bytes;
        }
    }

    /// Adds blocks of which some have images; `own` is what the record has besides.
    fn add_images(&mut self, kind: RecordType, mut own: WalAmount, parts: &Parts) {
        for block in &parts.blocks {
            let fork = RelationFork { relation: block.relation, number: block.fork };
            let mut of = ForkTotals { amount: std::mem::take(&mut own), ..ForkTotals::default() };
            if let Some(image) = &block.image {
                let (cause, images) = (cause_of(kind, block.id, image.applies), images_of(image));
                (of.amount.image_bytes, of.images) = (images.bytes, 1);
                of.hint_bytes = if cause == ImageCause::Hint { images.bytes } else { 0 };
                self.causes[cause as usize].add(&images);
                self.compressions[compression(image.compression)].add(&images);
            }
            self.forks.of(fork).add(&of);
        }
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
            self.forks.of(*fork).add(amount);
        }
        self.without_fork.add(&other.without_fork);
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
        forks.sort_unstable_by_key(|(fork, of)| (std::cmp::Reverse(of.amount.bytes()), *fork));
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

pub(crate) fn images_of(image: &pgtoll_format::wal::Image) -> WalImages {
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

fn compression(of: Option<Compression>) -> usize {
    match of {
        None => 0,
        Some(Compression::Pglz) => 1,
        Some(Compression::Lz4) => 2,
        Some(Compression::Zstd) => 3,
    }
}
