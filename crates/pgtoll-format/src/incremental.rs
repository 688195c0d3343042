//! Files of incremental backups (17 and later), `INCREMENTAL.` before their names: which blocks of
//! a relation's file they hold.

use serde::{Deserialize, Serialize};

use crate::bytes::u32_at;

/// The header of an incremental file.
///
/// ```
/// use pgtoll_format::IncrementalHeader;
///
/// let mut file = Vec::new();
/// for word in [0xd3ae_1f0d_u32, 2, 8, 7, 9] {
///     file.extend(word.to_le_bytes());
/// }
/// let header = IncrementalHeader::read(&file, 131_072)?;
/// assert_eq!(header.numbers(&file[12..], 131_072)?, [7, 9]);
/// assert_eq!(header.file_bytes(8192), 3 * 8192);
/// assert_eq!(header.combined_blocks(&[7, 9]), 10);
/// # Ok::<(), pgtoll_format::IncrementalError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncrementalHeader {
    /// How many blocks it holds, not more than a file has.
    pub blocks: u32,
    /// How many blocks of the earlier backup's file are still there.
    pub truncation_block_length: u32,
}

/// Why a server's `pg_combinebackup` refuses an incremental file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum IncrementalError {
    /// It ends within its header.
    #[error("the file ends within its header")]
    TooShort,
    /// Its first word is another one.
    #[error("the file begins with {found:08x}, which no incremental file does")]
    Magic {
        /// Its kind.
        found: u32,
    },
    /// It says that it holds more blocks than a file has.
    #[error("the header says {blocks} blocks, more than a file has")]
    Blocks {
        /// How many.
        blocks: u32,
    },
    /// The file is said to have kept more blocks than a file has.
    #[error("the header says a length of {blocks} blocks, more than a file has")]
    Truncation {
        /// How many.
        blocks: u32,
    },
    /// Its blocks' numbers do not rise, or are not of its file.
    #[error("the header's block number {number} is not of the file, or out of order")]
    Number {
        /// The first one that is wrong.
        number: u32,
    },
    /// It is not as long as its header says.
    #[error("the file has {bytes} bytes, and its header says {expected}")]
    Length {
        /// How long it is.
        bytes: u64,
        /// How long it should be.
        expected: u64,
    },
}

impl IncrementalHeader {
    /// Bytes before the blocks' numbers.
    pub const BYTES: usize = 12;

    /// Reads the first words of a file whose relation has files of this many blocks.
    pub fn read(begin: &[u8], file_blocks: u32) -> Result<Self, IncrementalError> {
        let word = |number: usize| u32_at(begin, number * 4).ok_or(IncrementalError::TooShort);
        let found = word(0)?;
        let blocks = word(1)?;
        let length = word(2)?;
        if found != MAGIC {
            return Err(IncrementalError::Magic { found });
        }
        if blocks > file_blocks {
            return Err(IncrementalError::Blocks { blocks });
        }
        if length > file_blocks {
            return Err(IncrementalError::Truncation { blocks: length });
        }
        Ok(Self { blocks, truncation_block_length: length })
    }

    /// Bytes of the blocks' numbers.
    pub fn number_bytes(&self) -> usize {
        self.blocks as usize * 4
    }

    /// Bytes before the first block: the header is filled up to whole blocks where one follows.
    pub fn header_bytes(&self, block_bytes: u32) -> u64 {
        let bytes = (Self::BYTES + self.number_bytes()) as u64;
        if self.blocks == 0 { bytes } else { bytes.next_multiple_of(block_bytes.max(1).into()) }
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self, block_bytes: u32) -> u64 {
        self.header_bytes(block_bytes) + u64::from(self.blocks) * u64::from(block_bytes)
    }

    /// Blocks of the file that `pg_combinebackup` makes of it and of those before it: `numbers` are those of
    /// the blocks that it holds.
    pub fn combined_blocks(&self, numbers: &[u32]) -> u32 {
        let behind_last = numbers.last().map_or(0, |last| last.saturating_add(1));
        self.truncation_block_length.max(behind_last)
    }

    /// The blocks' numbers in their file, of the bytes behind the first words.
    pub fn numbers(&self, bytes: &[u8], file_blocks: u32) -> Result<Vec<u32>, IncrementalError> {
        let bytes = bytes.get(..self.number_bytes()).ok_or(IncrementalError::TooShort)?;
        let mut numbers: Vec<u32> = Vec::with_capacity(self.blocks as usize);
        for number in bytes.chunks_exact(4).filter_map(|bytes| u32_at(bytes, 0)) {
            if number >= file_blocks || numbers.last().is_some_and(|last| *last >= number) {
                return Err(IncrementalError::Number { number });
            }
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// `INCREMENTAL_MAGIC` of `basebackup_incremental.h`.
const MAGIC: u32 = 0xd3ae_1f0d;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(words: &[u32], expected: Result<&[u32], IncrementalError>) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let read = IncrementalHeader::read(&bytes, 100);
        let numbers = read.and_then(|item| item.numbers(&bytes[IncrementalHeader::BYTES..], 100));
        assert_eq!(numbers, expected.map(<[u32]>::to_vec));
    }

    #[test]
    fn headers_are_checked() {
        check(&[MAGIC, 0, 0], Ok(&[]));
        check(&[MAGIC, 3, 100, 0, 5, 99], Ok(&[0, 5, 99]));
        check(&[MAGIC, 0], Err(IncrementalError::TooShort));
        check(&[MAGIC, 2, 0, 1], Err(IncrementalError::TooShort));
        check(&[7, 0, 0], Err(IncrementalError::Magic { found: 7 }));
        check(&[MAGIC, 101, 0], Err(IncrementalError::Blocks { blocks: 101 }));
        check(&[MAGIC, 0, 101], Err(IncrementalError::Truncation { blocks: 101 }));
        check(&[MAGIC, 1, 0, 100], Err(IncrementalError::Number { number: 100 }));
        check(&[MAGIC, 2, 0, 5, 5], Err(IncrementalError::Number { number: 5 }));
    }

    #[test]
    fn blocks_begin_at_a_blocks_edge() {
        let header = |blocks| IncrementalHeader { blocks, truncation_block_length: 0 };
        assert_eq!(header(0).file_bytes(8192), 12);
        assert_eq!(header(2045).header_bytes(8192), 8192);
        assert_eq!(header(2046).header_bytes(8192), 16384);
        assert_eq!(header(1).file_bytes(8192), 16384);
    }

    proptest! {
        /// No bytes panic, and what is read out has no more numbers than bytes for them.
        #[test]
        fn any_bytes_are_a_header_or_not(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            has_magic: bool, file_blocks: u32,
        ) {
            if has_magic && bytes.len() >= 8 {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[5..8].fill(0);
            }
            if let Ok(header) = IncrementalHeader::read(&bytes, file_blocks) {
                let numbers = header.numbers(&bytes[IncrementalHeader::BYTES..], file_blocks);
                prop_assert!(numbers.map_or(0, |number| number.len()) * 4 <= bytes.len());
            }
        }
    }
}
