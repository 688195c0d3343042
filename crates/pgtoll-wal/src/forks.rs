//! Amounts by fork.

use pgtoll_format::RelationFork;
use pgtoll_record::WalAmount;
use rustc_hash::FxHashMap;

/// The counts of a fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkTotals {
    /// The amount of its records.
    pub amount: WalAmount,
    /// Its images.
    pub images: u64,
    /// Bytes of its images for hints.
    pub hint_bytes: u64,
}

impl ForkTotals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.amount.add(&other.amount);
        self.images += other.images;
        self.hint_bytes += other.hint_bytes;
    }
}

/// Forks, each with its amount. WAL names the same few again and again, so those that were named
/// last are looked for where they were found, and only others in the hash table.
#[derive(Clone, Debug)]
pub(crate) struct Forks {
    amounts: Vec<(RelationFork, ForkTotals)>,
    places: FxHashMap<RelationFork, usize>,
    /// The last place in `amounts` of a fork with this hash; it may belong to another fork.
    recent: [usize; RECENT],
}

const RECENT: usize = 64;

impl Default for Forks {
    fn default() -> Self {
        Self { amounts: Vec::new(), places: FxHashMap::default(), recent: [0; RECENT] }
    }
}

impl Forks {
    #[inline]
    pub(crate) fn totals_mut(&mut self, fork: RelationFork) -> &mut ForkTotals {
        let recent =
            fork.relation.rel_number.wrapping_add(u32::from(fork.number.0)) as usize % RECENT;
        let mut place = self.recent[recent];
        if self.amounts.get(place).is_none_or(|(found, _)| *found != fork) {
            place = self.place(fork);
            self.recent[recent] = place;
        }
        &mut self.amounts[place].1
    }

    #[cold]
    fn place(&mut self, fork: RelationFork) -> usize {
        let new = self.amounts.len();
        let place = *self.places.entry(fork).or_insert(new);
        if place == new {
            self.amounts.push((fork, ForkTotals::default()));
        }
        place
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(RelationFork, ForkTotals)> {
        self.amounts.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pgtoll_format::{ForkNumber, RelFileLocator};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Numbers that share their last bits take each other's place and lose nothing.
        #[test]
        fn amounts_are_those_of_a_plain_map(
            named in proptest::collection::vec((0_u32..300, 0_u32..2, 0_u8..4), 0..500),
        ) {
            let mut forks = Forks::default();
            let mut expected = BTreeMap::new();
            for (number, database, fork) in named {
                let relation = RelFileLocator { tablespace: 1663, database, rel_number: number };
                let fork = RelationFork { relation, number: ForkNumber(fork) };
                forks.totals_mut(fork).amount.records += 1;
                *expected.entry(fork).or_insert(0) += 1;
            }
            let found: BTreeMap<RelationFork, u64> =
                forks.iter().map(|(fork, item)| (*fork, item.amount.records)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
