//! What WAL consists of.

use pgtoll_format::PAGE_BYTES;
use pgtoll_format::wal::rmgr::{
    XLOG_FPI, XLOG_FPI_FOR_HINT, XLOG_GIN_SPLIT, XLOG_GIN_VACUUM_PAGE, XLOG_HASH_SPLIT_PAGE,
    XLOG_HASH_SQUEEZE_PAGE,
};
use pgtoll_format::wal::{Compression, Parts, Record, RecordType};

use crate::forks::{Forks, OfFork};
use pgtoll_format::wal::Fork;

/// Records and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Records.
    pub records: u64,
    /// Bytes of the records without their images.
    pub record_bytes: u64,
    /// Bytes of their full-page images, as they are stored.
    pub image_bytes: u64,
}

impl Amount {
    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.record_bytes + self.image_bytes
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.record_bytes += other.record_bytes;
        self.image_bytes += other.image_bytes;
    }

    pub(crate) fn subtract(&mut self, part: &Self) {
        self.records = self.records.saturating_sub(part.records);
        self.record_bytes = self.record_bytes.saturating_sub(part.record_bytes);
        self.image_bytes = self.image_bytes.saturating_sub(part.image_bytes);
    }
}

/// Why a full-page image is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageCause {
    /// The page was changed for the first time after a checkpoint.
    FirstTouch,
    /// A hint bit was set on it for the first time after a checkpoint (`XLOG/FPI_FOR_HINT`).
    Hint,
    /// Whatever the checkpoints: a new index, a rewritten table (`XLOG/FPI`), a page that its
    /// access method always logs whole. It may be the page's first in its cycle all the same.
    Forced,
    /// It is there to check replay (`wal_consistency_checking`).
    Check,
}

impl ImageCause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::FirstTouch, Self::Hint, Self::Forced, Self::Check];
}

/// Full-page images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// How many.
    pub images: u64,
    /// Bytes, as they are stored.
    pub bytes: u64,
    /// Bytes before they were compressed; holes are left out in both.
    pub uncompressed_bytes: u64,
}

impl Images {
    pub(crate) fn add(&mut self, other: &Self) {
        self.images += other.images;
        self.bytes += other.bytes;
        self.uncompressed_bytes += other.uncompressed_bytes;
    }

    pub(crate) fn subtract(&mut self, part: &Self) {
        self.images = self.images.saturating_sub(part.images);
        self.bytes = self.bytes.saturating_sub(part.bytes);
        self.uncompressed_bytes = self.uncompressed_bytes.saturating_sub(part.uncompressed_bytes);
    }
}

/// Sums over records.
#[derive(Clone, Debug)]
pub struct WalStatistics {
    /// By resource manager and info, at `manager * 16 + info / 16`.
    types: Vec<Amount>,
    /// Images by cause, in the order of [`ImageCause::ALL`].
    causes: [Images; 4],
    /// Images by compression: none, pglz, LZ4, Zstandard.
    compressions: [Images; 4],
    /// Of each fork that a block reference names. A record's own bytes are counted for the fork of
    /// its first block.
    forks: Forks,
    /// Of records that refer to no block.
    without_fork: Amount,
}

const TYPES: usize = 256 * 16;
/// The block of a `XLOG_HASH_SQUEEZE_PAGE` that is freed: it is made anew before it is logged, and so
/// has no LSN that could tell that it has its image already (`_hash_freeovflpage` in `hashovfl.c`).
const FREED_PAGE: u8 = 2;

impl Default for WalStatistics {
    fn default() -> Self {
        Self {
            types: vec![Amount::default(); TYPES],
            causes: <[Images; 4]>::default(),
            compressions: <[Images; 4]>::default(),
            forks: Forks::default(),
            without_fork: Amount::default(),
        }
    }
}

impl WalStatistics {
    /// Adds a record that was taken apart.
    pub fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        let kind = RecordType::of(&record.header);
        let image_bytes = parts.image_bytes();
        let record_bytes = u64::from(record.header.total_bytes).saturating_sub(image_bytes);
        self.types[index(kind)].add(&Amount { records: 1, record_bytes, image_bytes });
        let mut own = Amount { records: 1, record_bytes, image_bytes: 0 };
        if parts.blocks.is_empty() {
            return self.without_fork.add(&own);
        }
        if image_bytes > 0 {
            return self.add_images(kind, own, parts);
        }
        for block in &parts.blocks {
            let fork = Fork { relation: block.relation, fork: block.fork };
            let amount = &mut self.forks.of(fork).amount;
            let Amount { records, record_bytes, .. } = std::mem::take(&mut own);
            amount.records += records;
            amount.record_bytes += record_bytes;
        }
    }

    /// Adds blocks of which some have images; `own` is what the record has besides.
    fn add_images(&mut self, kind: RecordType, mut own: Amount, parts: &Parts) {
        for block in &parts.blocks {
            let fork = Fork { relation: block.relation, fork: block.fork };
            let mut of = OfFork { amount: std::mem::take(&mut own), ..OfFork::default() };
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
    pub fn total(&self) -> Amount {
        self.types.iter().fold(Amount::default(), |mut sum, amount| {
            sum.add(amount);
            sum
        })
    }

    /// The types of records that there are, in order, with their amounts.
    pub fn types(&self) -> impl Iterator<Item = (RecordType, Amount)> {
        let all = (0..=u8::MAX).flat_map(|manager| {
            (0..16_u8).map(move |info| RecordType { manager, info: info << 4 })
        });
        all.map(|kind| (kind, self.types[index(kind)])).filter(|(_, amount)| amount.records > 0)
    }

    /// The sum over a resource manager's records.
    pub fn of_manager(&self, manager: u8) -> Amount {
        let own = self.types().filter(|(kind, _)| kind.manager == manager);
        own.fold(Amount::default(), |mut sum, (_, amount)| {
            sum.add(&amount);
            sum
        })
    }

    /// Images by cause.
    pub fn causes(&self) -> impl Iterator<Item = (ImageCause, Images)> {
        ImageCause::ALL.into_iter().zip(self.causes)
    }

    /// Images by how they are compressed.
    pub fn compressions(&self) -> impl Iterator<Item = (Option<Compression>, Images)> {
        let kinds =
            [None, Some(Compression::Pglz), Some(Compression::Lz4), Some(Compression::Zstd)];
        kinds.into_iter().zip(self.compressions)
    }

    /// Forks with their amounts, the largest first.
    pub fn forks(&self) -> Vec<(Fork, OfFork)> {
        let mut forks: Vec<(Fork, OfFork)> = self.forks.iter().copied().collect();
        forks.sort_unstable_by_key(|(fork, of)| (std::cmp::Reverse(of.amount.bytes()), *fork));
        forks
    }

    /// Records that refer to no block: commits, checkpoints and the like.
    pub fn without_fork(&self) -> Amount {
        self.without_fork
    }
}

fn index(kind: RecordType) -> usize {
    usize::from(kind.manager) * 16 + usize::from(kind.info >> 4)
}

pub(crate) fn images_of(image: &pgtoll_format::wal::Image) -> Images {
    let bytes = image.stands.len() as u64;
    let uncompressed_bytes = match image.compression {
        None => bytes,
        Some(_) => PAGE_BYTES as u64 - u64::from(image.hole_bytes),
    };
    Images { images: 1, bytes, uncompressed_bytes }
}

/// Why the image of the block with this number is there, as far as its record tells.
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
