//! Pages that a checkpoint cycle of the source changed, by records that it also has where hints are
//! not logged.
//! not logged.

use std::collections::HashSet;

use super::{BlockKey, Rule};

/// Pages that a checkpoint cycle changed. Each counts once, records for hints (`FPI_FOR_HINT`) do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CyclePages {
    /// Changed by records that need an image after a checkpoint, or initializes the page.
    pub changed: u64,
    /// First changed by a record that has its image in any case: it may have been written past shared
    /// buffers.
    pub forced: u64,
    /// Only marked all-visible, by `VACUUM`: logged whole where hints are logged.
    pub visible: u64,
    /// Bytes of dead rows that are freed with a page's image where hints are not logged. Where they are, the
    /// image comes before, with these rows.
    pub pruned_bytes: u64,
    /// The most bytes by which such images could be longer.
    pub pruned_bytes_most: u64,
}

/// Counts the pages of a cycle as its records come.
#[derive(Debug, Default)]
pub(super) struct CycleCounts {
    pages: CyclePages,
    visible: HashSet<BlockKey>,
}

impl CycleCounts {
    /// A reference to a block; `is_first`: no other record but hints' changed it in this cycle.
    #[inline]
    pub(super) fn refer(&mut self, block: BlockKey, rule: Rule, is_first: bool) {
        if !is_first {
            return;
        }
        match rule {
            Rule::Hint | Rule::MarkedByReader => return,
            Rule::WithHints => {
                self.visible.insert(block);
                return;
            }
            Rule::Regular | Rule::Init => self.pages.changed += 1,
            Rule::Always => self.pages.forced += 1,
        }
        if !self.visible.is_empty() {
            self.visible.remove(&block);
        }
    }

    /// Adds an image without the bytes of dead rows that were freed, and the bytes that are free on its page.
    pub(super) fn prune(&mut self, bytes: u16, most: u16) {
        self.pages.pruned_bytes += u64::from(bytes.min(most));
        self.pages.pruned_bytes_most += u64::from(most);
    }

    /// The pages of the cycle that ends; the next one begins.
    pub(super) fn take(&mut self) -> CyclePages {
        let visible = self.visible.len() as u64;
        self.visible.clear();
        CyclePages { visible, ..std::mem::take(&mut self.pages) }
    }

    /// Bytes of memory, about.
    pub(super) fn memory(&self) -> u64 {
        (self.visible.capacity() * size_of::<BlockKey>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_count_once_and_hints_do_not() {
        let block = |block| BlockKey { fork: 0, block };
        let mut counts = CycleCounts::default();
        counts.refer(block(0), Rule::Regular, true);
        counts.refer(block(0), Rule::Regular, false);
        counts.refer(block(1), Rule::Init, true);
        counts.refer(block(2), Rule::Hint, true);
        counts.refer(block(3), Rule::WithHints, true);
        counts.refer(block(3), Rule::WithHints, true);
        counts.refer(block(4), Rule::WithHints, true);
        // Its image is the later change's.
        counts.refer(block(4), Rule::Regular, true);
        counts.refer(block(5), Rule::Always, true);
        counts.refer(block(6), Rule::MarkedByReader, true);
        assert_eq!(
            counts.take(),
            CyclePages { changed: 3, forced: 1, visible: 1, ..CyclePages::default() }
        );
        assert_eq!(counts.take(), CyclePages::default());
    }
}
