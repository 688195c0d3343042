//! Ways to compress page images.

/// How a page image is compressed, or is to be (`wal_compression`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// PostgreSQL's own.
    Pglz,
    /// Compressed by LZ4.
    Lz4,
    /// Compressed by Zstandard.
    Zstd,
}

impl Compression {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pglz, Self::Lz4, Self::Zstd];

    /// As `wal_compression` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pglz => "pglz",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}
