//! Readers that leave no trace: where a page was changed after the last checkpoint of the source, the
//! hints that readers set on it are not logged. Under settings with checkpoints nearer to each other
//! they would be.
//!
//! How often readers come who find a row without a hint is told by the hints that are logged: this many,
//! by the pages where one would have been logged, and the work done meanwhile. At that rate, which is
//! the relation's own, they are taken to come to its other pages too, at random. Visits of those who
//! change the page right after are no readers', and leave a trace in any case. Times are counted in
//! bytes of work.

use pgtoll_format::SplitMix64;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::whatif::BlockKey;
use crate::whatif::blocks::BlockState;

/// The known facts about all forks, and visits to come.
#[derive(Debug, Default)]
pub(super) struct Visits {
    forks: Vec<ForkVisits>,
    /// When a visit comes, and where.
    queue: BinaryHeap<Reverse<(u64, BlockKey)>>,
    /// Blocks that got a hint a short while ago, and when.
    recent: BTreeMap<BlockKey, u64>,
    recent_in_order: VecDeque<BlockKey>,
    /// Forks whose rate has come to be known.
    starting: Vec<u32>,
    random: SplitMix64,
}

/// The known facts about a fork's readers.
#[derive(Clone, Copy, Debug, Default)]
struct ForkVisits {
    /// Its blocks: one more than the largest number.
    blocks: u32,
    /// Those that were named.
    named: u32,
    /// Those of the named ones where the source would log a hint.
    visible: u32,
    /// Blocks where it would by work, those that were not named among them.
    exposure: f64,
    /// Visits of readers.
    visits: f64,
    /// Until when the exposure is added up.
    until: u64,
    /// Its blocks wait for visits.
    is_started: bool,
}

/// The state of a block before a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// No record has changed the block before.
    pub(super) is_new: bool,
    /// The source would have logged a hint.
    pub(super) was_visible: bool,
}

/// So soon after a hint comes the change of the one who set it.
const NEAR: u64 = 1 << 14;
/// Fewer visits say nothing of a rate.
const VISITS: f64 = 16.0;
/// Hints that are remembered.
const RECENT: usize = 1 << 10;
/// Nobody waits for so much work.
const FAR: f64 = 1e15;

impl ForkVisits {
    #[expect(clippy::cast_precision_loss, reason = "a sum of many, of which a rate is made")]
    fn advance(&mut self, now: u64) {
        let blocks = u64::from(self.visible) + u64::from(self.blocks.saturating_sub(self.named));
        self.exposure += blocks as f64 * now.saturating_sub(self.until) as f64;
        self.until = now;
    }

    /// Visits of a block for each byte of work.
    fn rate(&self) -> Option<f64> {
        (self.visits >= VISITS && self.exposure > 0.0).then(|| self.visits / self.exposure)
    }

    /// Halves observations from before the last checkpoint: rows that were read have their hints,
    /// and so readers find fewer and fewer.
    fn forget(&mut self) {
        if self.visits >= 2.0 * VISITS {
            self.visits /= 2.0;
            self.exposure /= 2.0;
        }
    }
}

impl Visits {
    fn fork(&mut self, number: u32) -> &mut ForkVisits {
        let number = number as usize;
        if self.forks.len() <= number {
            self.forks.resize(number + 1, ForkVisits::default());
        }
        &mut self.forks[number]
    }

    /// A checkpoint of the source began: any hint is logged until its page's next change.
    pub(super) fn boundary(&mut self, now: u64) {
        for fork in &mut self.forks {
            fork.advance(now);
            fork.visible = fork.named;
            fork.forget();
        }
    }

    /// A record names the block: it changes it, or is there for a hint.
    pub(super) fn named(
        &mut self,
        block: BlockKey,
        state: &mut BlockState,
        past: Past,
        is_hint: bool,
        now: u64,
    ) {
        let fork = self.fork(block.fork);
        if past.is_new || past.was_visible {
            fork.advance(now);
        }
        if past.is_new {
            fork.named += 1;
            fork.blocks = fork.blocks.max(block.block.saturating_add(1));
        } else if past.was_visible {
            fork.visible = fork.visible.saturating_sub(1);
        }
        if is_hint {
            self.hint(block, state, now);
        } else if std::mem::take(&mut state.is_hinted)
            && self.recent.get(&block).is_some_and(|then| now - then < NEAR)
        {
            let fork = self.fork(block.fork);
            fork.visits = (fork.visits - 1.0).max(0.0);
        }
        self.schedule(block, state, now);
    }

    fn hint(&mut self, block: BlockKey, state: &mut BlockState, now: u64) {
        state.is_hinted = true;
        let fork = self.fork(block.fork);
        fork.visits += 1.0;
        if fork.visits >= VISITS && !std::mem::replace(&mut fork.is_started, true) {
            self.starting.push(block.fork);
        }
        self.recent.insert(block, now);
        self.recent_in_order.push_back(block);
        if self.recent_in_order.len() > RECENT
            && let Some(oldest) = self.recent_in_order.pop_front()
        {
            self.recent.remove(&oldest);
        }
    }

    /// When the next reader comes.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub(super) fn schedule(&mut self, block: BlockKey, state: &mut BlockState, now: u64) {
        if state.is_awaited {
            return;
        }
        let Some(rate) = self.fork(block.fork).rate() else { return };
        let wait = -self.chance().ln() / rate;
        if wait < FAR {
            state.is_awaited = true;
            self.queue.push(Reverse((now.saturating_add(wait as u64), block)));
        }
    }

    /// A fork whose rate has come to be known: its blocks are to be told to [`Self::schedule`].
    pub(super) fn starting(&mut self) -> Option<u32> {
        self.starting.pop()
    }

    /// When something is to be done.
    pub(super) fn next(&self) -> u64 {
        if !self.starting.is_empty() {
            return 0;
        }
        self.queue.peek().map_or(u64::MAX, |Reverse((at, _))| *at)
    }

    /// The next block to be visited.
    pub(super) fn pop(&mut self) -> Option<BlockKey> {
        self.queue.pop().map(|Reverse((_, block))| block)
    }

    /// Even in (0, 1], and the same in each replay.
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    fn chance(&mut self) -> f64 {
        (self.random.draw() >> 11) as f64 / (1_u64 << 53) as f64 + f64::EPSILON
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        let forks = self.forks.capacity() * size_of::<ForkVisits>();
        (forks + self.queue.capacity() * size_of::<(u64, BlockKey)>()) as u64
    }
}
