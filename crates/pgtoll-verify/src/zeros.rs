//! Pages of zeros, and how far B-trees lead: both are noted while pages are read, so that only the
//! indexes that can decide whether a page of zeros was used are read again.

use std::collections::BTreeMap;
use std::ops::Range;

use pgtoll_format::btree::BtreePage;
use pgtoll_format::{ForkNumber, RelFileLocator, RelationFork};
use serde::{Deserialize, Serialize};

/// Consecutive blocks of a main fork that are all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ZeroRun {
    pub(crate) relation: RelFileLocator,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl ZeroRun {
    pub(crate) fn blocks(&self) -> Range<u32> {
        self.first..self.first.saturating_add(self.count)
    }
}

/// The highest blocks that the pages of a B-tree lead to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// The highest block of the table; `None`: no row.
    pub(crate) row: Option<u32>,
    /// The highest block of the index, and the block that leads there.
    pub(crate) page: Option<(u32, u32)>,
}

impl Reach {
    fn extend(&mut self, other: Self) {
        self.row = self.row.max(other.row);
        self.page = self.page.max(other.page);
    }

    /// Takes in what a page of a B-tree leads to; nothing of another page.
    fn add_page(&mut self, block: u32, page: &[u8]) {
        match BtreePage::read(page) {
            Some(BtreePage::Meta(meta)) => {
                self.page = self.page.max(Some((meta.root.max(meta.fast_root), block)));
            }
            Some(BtreePage::Node(node)) => {
                let children = node.children().chain(node.left).chain(node.right).max();
                self.page = self.page.max(children.map(|child| (child, block)));
                self.row = self.row.max(node.rows().map(|row| row.block).max());
            }
            None => {}
        }
    }
}

/// Zero pages of main forks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ZeroPages {
    /// In the order of relations and blocks, once all portions are put together.
    runs: Vec<ZeroRun>,
    /// As a list, since keys of JSON are texts.
    reaches: Vec<(RelFileLocator, Reach)>,
    /// More runs than are kept.
    pub(crate) is_cut: bool,
}

impl ZeroPages {
    /// Notes a page of zeros. Pages come in the order of their blocks.
    pub(crate) fn add_zeros(&mut self, fork: RelationFork, block: u32) {
        if fork.number == ForkNumber::MAIN {
            self.add_run(ZeroRun { relation: fork.relation, first: block, count: 1 });
        }
    }

    /// Notes where a page leads, if it is a B-tree's.
    pub(crate) fn add_used(&mut self, fork: RelationFork, block: u32, page: &[u8]) {
        let mut reach = Reach::default();
        reach.add_page(block, page);
        if reach != Reach::default() {
            self.add_reach(fork.relation, reach);
        }
    }

    /// Takes in what a later portion has.
    pub(crate) fn extend(&mut self, later: Self) {
        self.is_cut |= later.is_cut;
        later.runs.into_iter().for_each(|run| self.add_run(run));
        later.reaches.into_iter().for_each(|(relation, reach)| self.add_reach(relation, reach));
    }

    fn add_run(&mut self, run: ZeroRun) {
        let follows =
            |last: &&mut ZeroRun| last.relation == run.relation && last.blocks().end == run.first;
        if let Some(last) = self.runs.last_mut().filter(follows) {
            last.count = last.count.saturating_add(run.count);
        } else if self.runs.len() < RUNS_MAX {
            self.runs.push(run);
        } else {
            self.is_cut = true;
        }
    }

    fn add_reach(&mut self, relation: RelFileLocator, reach: Reach) {
        match self.reaches.last_mut() {
            Some((last, known)) if *last == relation => known.extend(reach),
            _ => self.reaches.push((relation, reach)),
        }
    }

    /// The runs of all relations, in their order.
    pub(crate) fn runs(&self) -> &[ZeroRun] {
        &self.runs
    }

    /// The runs of each relation that has some.
    pub(crate) fn by_relation(&self) -> BTreeMap<RelFileLocator, Vec<ZeroRun>> {
        let mut relations: BTreeMap<RelFileLocator, Vec<ZeroRun>> = BTreeMap::new();
        for run in &self.runs {
            relations.entry(run.relation).or_default().push(*run);
        }
        relations
    }

    /// How far each B-tree leads.
    pub(crate) fn reaches(&self) -> BTreeMap<RelFileLocator, Reach> {
        let mut reaches: BTreeMap<RelFileLocator, Reach> = BTreeMap::new();
        for (relation, reach) in &self.reaches {
            reaches.entry(*relation).or_default().extend(*reach);
        }
        reaches
    }
}

/// Some 20 bytes each.
const RUNS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(number: u32) -> RelationFork {
        let relation = RelFileLocator { tablespace: 1663, database: 5, rel_number: number };
        RelationFork { relation, number: ForkNumber::MAIN }
    }

    #[test]
    fn runs_grow_over_portions_and_end_with_the_relation() {
        let mut first = ZeroPages::default();
        let mut second = ZeroPages::default();
        for block in [3, 4, 7] {
            first.add_zeros(fork(1), block);
        }
        for (relation, block) in [(1, 8), (1, 9), (2, 10)] {
            second.add_zeros(fork(relation), block);
        }
        second.add_zeros(RelationFork { number: ForkNumber::FSM, ..fork(2) }, 0);
        first.extend(second);
        let runs: Vec<(u32, Range<u32>)> =
            first.runs().iter().map(|run| (run.relation.rel_number, run.blocks())).collect();
        assert_eq!(runs, [(1, 3..5), (1, 7..10), (2, 10..11)]);
    }

    #[test]
    fn a_reach_is_the_highest_of_all_pages() {
        let mut zeros = ZeroPages::default();
        zeros.add_reach(fork(1).relation, Reach { row: Some(7), page: Some((2, 1)) });
        zeros.add_reach(fork(2).relation, Reach { row: Some(1), page: None });
        zeros.add_reach(fork(1).relation, Reach { row: Some(5), page: Some((9, 3)) });
        let reach = zeros.reaches()[&fork(1).relation];
        assert_eq!(reach, Reach { row: Some(7), page: Some((9, 3)) });
        let mut none = ZeroPages::default();
        none.add_used(fork(3), 0, &[0; 8192]);
        assert!(none.reaches().is_empty());
    }
}
