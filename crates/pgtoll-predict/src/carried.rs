//! Pages that a running checkpoint has still to write: dirty since before it began.

use std::collections::{HashMap, HashSet};

/// A block of a relation: database, file, fork, number.
pub(crate) type BlockAddress = (u32, u32, u8, u32);

/// Blocks that have been dirty since before a checkpoint began: a sample, by the hash of their
/// numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct CarriedPages {
    pages: HashMap<BlockAddress, i32>,
    /// Blocks with a hash up to this one are in the sample.
    threshold: i32,
    salt: i64,
    /// The share of them that was written, or evicted, between the last two censuses.
    left_share: f64,
}

impl CarriedPages {
    /// A sample that takes in other blocks than one with another salt.
    pub(crate) fn new(salt: i64) -> Self {
        Self { salt, threshold: i32::MAX, ..Self::default() }
    }

    /// Returns the order of blocks: an SQL expression over the columns of `pg_buffercache`.
    pub(crate) fn hash_sql(&self) -> String {
        format!("hashint8((relfilenode::bigint << 32) # relblocknumber # {}::bigint)", self.salt)
    }

    /// Returns the filter that keeps a later sample to the blocks of the first one.
    pub(crate) fn filter_sql(&self) -> String {
        format!("{} <= {}", self.hash_sql(), self.threshold)
    }

    /// Begins with these blocks, the first ones by their hash; at most `most` were asked for.
    pub(crate) fn list(&mut self, blocks: impl Iterator<Item = (BlockAddress, i32)>, most: usize) {
        self.pages = blocks.collect();
        if self.pages.len() >= most {
            self.threshold = self.pages.values().copied().max().unwrap_or(i32::MAX);
        }
    }

    /// Compares with the blocks that are dirty now, the first ones by their hash. Those that are
    /// missing were written: when they are dirty again, that is of the new cycle.
    pub(crate) fn meet(&mut self, dirty: &[(BlockAddress, i32)], most: usize) {
        let last = dirty.iter().map(|(_, hash)| *hash).max().filter(|_| dirty.len() >= most);
        let covered = last.unwrap_or(self.threshold);
        let dirty: HashSet<&BlockAddress> = dirty.iter().map(|(block, _)| block).collect();
        let mut before = 0_u32;
        let mut left = 0_u32;
        self.pages.retain(|block, hash| {
            let is_seen = *hash <= covered;
            let stays = !is_seen || dirty.contains(block);
            before += u32::from(is_seen);
            left += u32::from(!stays);
            stays
        });
        self.left_share = f64::from(left) / f64::from(before.max(1));
    }

    pub(crate) fn contains(&self, block: &BlockAddress) -> bool {
        self.pages.contains_key(block)
    }

    /// Returns the most of this number of carried pages that were written and dirtied again between two
    /// censuses: as many as left.
    #[expect(clippy::cast_precision_loss, reason = "hundreds of pages")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not more")]
    pub(crate) fn unsure(&self, carried: u64) -> u64 {
        (carried as f64 * self.left_share).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(numbers: &[u32]) -> Vec<(BlockAddress, i32)> {
        let hash = |number: u32| i32::try_from(number).unwrap() * 10;
        numbers.iter().map(|number| ((1, 1, 0, *number), hash(*number))).collect()
    }

    #[test]
    fn pages_that_were_written_meanwhile_are_not_carried_over() {
        let mut carried = CarriedPages::new(7);
        carried.list(blocks(&[1, 2, 3, 4]).into_iter(), 100);
        carried.meet(&blocks(&[1, 2, 9]), 100);
        assert_eq!((carried.unsure(10), carried.contains(&(1, 1, 0, 9))), (5, false));
        // Dirty again, of the new cycle.
        carried.meet(&blocks(&[1, 2, 3]), 100);
        assert!(carried.contains(&(1, 1, 0, 1)) && !carried.contains(&(1, 1, 0, 3)));
        assert_eq!(carried.unsure(10), 0);
    }

    #[test]
    fn blocks_beyond_a_sample_are_not_missed() {
        let mut carried = CarriedPages::new(7);
        carried.list(blocks(&[1, 2, 3, 4]).into_iter(), 4);
        assert!(carried.filter_sql().ends_with(" <= 40"), "{}", carried.filter_sql());
        // The sample ends at 2; of 3 and 4 nothing is known.
        carried.meet(&blocks(&[1, 2]), 2);
        assert!(carried.contains(&(1, 1, 0, 3)) && carried.unsure(10) == 0);
        carried.meet(&blocks(&[1, 2]), 3);
        assert!(!carried.contains(&(1, 1, 0, 3)) && carried.unsure(1) == 1);
    }
}
