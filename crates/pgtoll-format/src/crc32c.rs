//! CRC-32C, as PostgreSQL's own files and manifests have it.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of these bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    sum_of(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// A CRC-32C of bytes that come piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    /// Begins again: costs less than making another one.
    pub(crate) fn reset(&mut self) {
        self.0.reset();
    }

    /// Adds what comes next.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of all so far.
    pub fn sum(&self) -> u32 {
        sum_of(self.0.finalize())
    }
}

/// The library has 64 bits for all kinds of sums; these have 32.
fn sum_of(sum: u64) -> u32 {
    u32::try_from(sum).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_have_the_sum_of_the_whole(pieces: Vec<Vec<u8>>) {
            let whole = pieces.concat();
            let mut crc = Crc32c::default();
            for piece in &pieces {
                crc.update(piece);
            }
            prop_assert_eq!(crc.sum(), ::crc32c::crc32c(&whole));
            prop_assert_eq!(crc32c(&whole), crc.sum());
        }
    }
}
