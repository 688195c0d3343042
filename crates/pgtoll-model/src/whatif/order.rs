//! In which order a checkpoint writes dirty pages: by tablespace, relation, fork and block
//! (`BufferSync`), all tablespaces at once.
//!
//! How far a checkpoint has to be until a page is written follows from how many dirty pages come
//! before it. A sample of the blocks tells.

use crate::whatif::BlockKey;
use crate::whatif::blocks::{Blocks, Epoch};

/// The place of a fork: its tablespace, its relation's file, and the fork's number.
pub type ForkPlace = [u32; 3];

/// The place of a block in the order.
type OrderSlot = (ForkPlace, u32);

/// The blocks that are in the sample, and where.
#[derive(Debug)]
pub(super) struct WriteOrder {
    /// By fork.
    forks: Vec<ForkPlace>,
    sample: Vec<(OrderSlot, BlockKey)>,
    is_sorted: bool,
    /// Blocks whose hash is larger are not in it.
    most: u32,
}

/// Over how much of the way to the next a checkpoint is spread, as most are.
const SPREAD: f64 = 0.9;
/// Blocks of the sample, at most.
const SAMPLE: usize = 1 << 11;

/// The sample's dirty blocks when a checkpoint began, in the order in which they are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty(Vec<OrderSlot>);

impl Default for WriteOrder {
    fn default() -> Self {
        Self { forks: Vec::new(), sample: Vec::new(), is_sorted: true, most: u32::MAX }
    }
}

impl WriteOrder {
    /// Forks are told in the order of their numbers.
    pub(super) fn fork(&mut self, place: ForkPlace) {
        self.forks.push(place);
    }

    /// A block was named for the first time.
    #[inline]
    pub(super) fn add(&mut self, block: BlockKey) {
        if hash(block) > self.most {
            return;
        }
        self.sample.push((self.place(block), block));
        self.is_sorted = false;
        if self.sample.len() > SAMPLE {
            self.most /= 2;
            let most = self.most;
            self.sample.retain(|(_, block)| hash(*block) <= most);
        }
    }

    /// Those that were changed since.
    pub(super) fn dirty(&mut self, blocks: &Blocks, since: Epoch) -> Dirty {
        if !self.is_sorted {
            self.sample.sort_unstable();
            self.is_sorted = true;
        }
        let is_dirty = |block| blocks.get(block).is_some_and(|state| state.touched >= since);
        let changed = self.sample.iter().filter(|(_, block)| is_dirty(*block));
        Dirty(changed.map(|(place, _)| *place).collect())
    }

    fn place(&self, block: BlockKey) -> OrderSlot {
        (self.forks.get(block.fork as usize).copied().unwrap_or_default(), block.block)
    }

    /// How far the writes of a checkpoint are when they reach this page. What was changed before the
    /// checkpoint before came to it was written then: of these chance says which.
    pub(super) fn written_at(&self, block: BlockKey, dirty: &Dirty, most: f64) -> f64 {
        let rank = self.rank(block, dirty);
        let even = f64::from(hash(block) >> 16) / f64::from(1_u32 << 16);
        if even < rank * SPREAD { 0.0 } else { rank.min(most) }
    }

    /// Returns the share of its tablespace's dirty pages that is written before this one; the middle, where the
    /// sample does not tell.
    #[expect(clippy::cast_precision_loss, reason = "blocks of a sample")]
    pub(super) fn rank(&self, block: BlockKey, dirty: &Dirty) -> f64 {
        let place = self.place(block);
        let at = |slot: OrderSlot| dirty.0.partition_point(|other| *other < slot);
        let tablespace = place.0[0];
        let first = at(([tablespace, 0, 0], 0));
        let last = at(([tablespace, u32::MAX, u32::MAX], u32::MAX));
        if first == last {
            return 0.5;
        }
        (at(place) - first) as f64 / (last - first) as f64
    }
}

/// Even, and the same for a block whenever it is asked.
pub(super) fn hash(key: BlockKey) -> u32 {
    let mixed = (key.block ^ key.fork.rotate_left(24)).wrapping_mul(0x9E37_79B1);
    (mixed ^ mixed >> 15).wrapping_mul(0x85EB_CA77)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_written_by_relation_and_block() {
        let mut order = WriteOrder::default();
        let mut blocks = Blocks::default();
        // The fork that is named first has the larger file's number.
        order.fork([1663, 20, 0]);
        order.fork([1663, 10, 0]);
        order.fork([9999, 5, 0]);
        for fork in 0..3 {
            for block in 0..100 {
                let key = BlockKey { fork, block };
                order.add(key);
                blocks.state(key).touched = if block < 50 { 7 } else { 3 };
            }
        }
        let dirty = order.dirty(&blocks, 5);
        let rank = |fork, block| order.rank(BlockKey { fork, block }, &dirty);
        assert_eq!((rank(1, 0), rank(1, 25), rank(0, 0)), (0.0, 0.25, 0.5));
        assert_eq!((rank(0, 50), rank(2, 25)), (1.0, 0.5), "each tablespace by itself");
        let middle = order.rank(BlockKey { fork: 0, block: 0 }, &Dirty::default());
        assert!((0.49..0.51).contains(&middle), "{middle}");
    }

    #[test]
    fn a_sample_stays_small_and_even() {
        let mut order = WriteOrder::default();
        order.fork([1663, 20, 0]);
        (0..200_000).for_each(|block| order.add(BlockKey { fork: 0, block }));
        assert!((SAMPLE / 4..=SAMPLE).contains(&order.sample.len()), "{}", order.sample.len());
        let blocks = Blocks::default();
        let dirty = order.dirty(&blocks, 0);
        let middle = order.rank(BlockKey { fork: 0, block: 100_000 }, &dirty);
        assert!((0.4..0.6).contains(&middle), "{middle}");
    }
}
