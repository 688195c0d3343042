//! Settings, and what becomes of WAL under them.

use pgtoll_format::wal::Compression;

/// How full-page images are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageCompression {
    /// As they are in the source.
    AsStored,
    /// As this `wal_compression` says; `None`: not at all.
    Set(Option<Compression>),
}

impl ImageCompression {
    /// Not at all.
    pub const OFF: Self = Self::Set(None);
    /// How many there are.
    pub const COUNT: usize = 2 + Compression::ALL.len();

    /// Its place among all, in [`ImageLengths`].
    pub const fn index(self) -> usize {
        match self {
            Self::AsStored => 0,
            Self::Set(None) => 1,
            Self::Set(Some(Compression::Pglz)) => 2,
            Self::Set(Some(Compression::Lz4)) => 3,
            Self::Set(Some(Compression::Zstd)) => 4,
        }
    }

    /// The value of `wal_compression`, or `as stored`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AsStored => "as stored",
            Self::Set(None) => "off",
            Self::Set(Some(compression)) => compression.name(),
        }
    }

    /// Images are made smaller than pages are.
    pub fn compresses(self) -> bool {
        matches!(self, Self::Set(Some(_)))
    }
}

/// Bytes of an image with its header, by [`ImageCompression::index`]; 0: not known.
pub type ImageLengths = [u16; ImageCompression::COUNT];

/// When checkpoints begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Cycles begin where they began in the source.
    Source,
    /// As the server's settings say, and where the source's were forced.
    Rule {
        /// `max_wal_size` in bytes.
        max_wal_size: u64,
        /// `checkpoint_timeout` in microseconds.
        timeout_us: i64,
        /// `checkpoint_completion_target`.
        completion_target: f64,
    },
}

/// The settings under which WAL would be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// When checkpoints begin.
    pub schedule: Schedule,
    /// Hints are logged: data checksums or `wal_log_hints`.
    pub hints: bool,
    /// `full_page_writes`.
    pub full_page_writes: bool,
    /// `wal_compression`.
    pub compression: ImageCompression,
}

/// The outcome of WAL under settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WhatIfOutcome {
    /// Bytes of WAL, page headers and padding among them.
    pub bytes: u64,
    /// Full-page images.
    pub images: u64,
    /// Bytes of them, with their headers.
    pub image_bytes: u64,
    /// Checkpoints for `max_wal_size`.
    pub by_volume: u64,
    /// Checkpoints for `checkpoint_timeout`.
    pub by_time: u64,
    /// Checkpoints of the source that would have been all the same; of the source's own schedule
    /// all.
    pub forced: u64,
    /// Segments that were begun or finished.
    pub segments: u64,
    /// The longest way from one redo point to the next, the unfinished one at the end as well.
    pub longest_cycle: u64,
    /// The most that a recovery had to read: from the last redo point whose checkpoint was
    /// complete.
    pub replay_most: u64,
    /// Bytes that come on top if `VACUUM` had to freeze all rows that it froze right after a hint's
    /// image of their page: settings without that image are taken to freeze none of them.
    pub freeze_bytes: u64,
}
