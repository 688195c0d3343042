//! Some of the settings that are replayed together.

/// A set of simulations, by their places. An empty one takes no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SettingSet {
    /// 64 of them each, the first in the lowest bit.
    words: Vec<u64>,
}

impl SettingSet {
    pub(super) fn insert(&mut self, place: usize) {
        let word = place / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (place % 64);
    }

    #[inline]
    pub(super) fn contains(&self, place: usize) -> bool {
        self.words.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_was_inserted(places in prop::collection::btree_set(0_usize..300, 0..20)) {
            let mut set = SettingSet::default();
            for place in &places {
                set.insert(*place);
            }
            let held: BTreeSet<usize> = (0..400).filter(|place| set.contains(*place)).collect();
            prop_assert_eq!(set.is_empty(), places.is_empty());
            prop_assert_eq!(held, places);
        }
    }
}
