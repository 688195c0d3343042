//! State of each block: one for all settings.

use crate::whatif::ImageLengths;

/// A block of a fork; forks have the numbers that the caller gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The fork's number, counted from 0 in the order in which forks come.
    pub fork: u32,
    /// The block's number.
    pub block: u32,
}

/// An epoch is what lies between two boundaries of any settings.
pub(crate) type Epoch = u32;

/// A block's state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockState {
    /// In which epoch its LSN was set last; 0: not since the beginning.
    pub(crate) touched: Epoch,
    /// The same where hints are not logged.
    pub(crate) changed: Epoch,
    /// Bytes of its image; 0: not known.
    pub(crate) image: ImageLengths,
    /// The last record was there for a hint.
    pub(crate) is_hinted: bool,
    /// A visit is in the queue.
    pub(crate) is_awaited: bool,
}

/// Blocks that lie side by side are kept so: 16 of them, or 20 bytes a block where they are near
/// each other.
const SIDE_BY_SIDE: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct Blocks {
    forks: Vec<Fork>,
    groups: Vec<[BlockState; SIDE_BY_SIDE as usize]>,
    touched: u64,
}

#[derive(Debug, Default)]
struct Fork {
    /// For each group of blocks its place, counted from 1.
    places: Vec<u32>,
    /// The same for groups that lie far beyond the others.
    far: std::collections::BTreeMap<u32, u32>,
    groups: usize,
}

/// Places are kept in a row for this many times the groups that there are, and this many more.
const SPARSE: usize = 64;
const FREE: usize = 1 << 12;

impl Blocks {
    #[inline]
    pub(crate) fn state(&mut self, key: BlockKey) -> &mut BlockState {
        let group = key.block / SIDE_BY_SIDE;
        let within = key.block % SIDE_BY_SIDE;
        let known = self.forks.get(key.fork as usize);
        let place = known.and_then(|fork| fork.places.get(group as usize)).copied().unwrap_or(0);
        let place = if place == 0 { self.place(key.fork, group) } else { place };
        &mut self.groups[place as usize - 1][within as usize]
    }

    /// Returns the state of a block, if one is kept.
    pub(crate) fn get(&self, key: BlockKey) -> Option<&BlockState> {
        let group = key.block / SIDE_BY_SIDE;
        let within = key.block % SIDE_BY_SIDE;
        let fork = self.forks.get(key.fork as usize)?;
        let near = fork.places.get(group as usize).copied().filter(|place| *place > 0);
        let place = near.or_else(|| fork.far.get(&group).copied())?;
        self.groups.get(place as usize - 1)?.get(within as usize)
    }

    #[cold]
    fn place(&mut self, fork: u32, group: u32) -> u32 {
        if self.forks.len() <= fork as usize {
            self.forks.resize_with(fork as usize + 1, Fork::default);
        }
        let fork = &mut self.forks[fork as usize];
        if let Some(place) = fork.far.get(&group) {
            return *place;
        }
        self.groups.push([BlockState::default(); SIDE_BY_SIDE as usize]);
        let place = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        fork.groups += 1;
        if group as usize >= fork.groups.saturating_mul(SPARSE) + FREE {
            fork.far.insert(group, place);
        } else {
            if fork.places.len() <= group as usize {
                fork.places.resize(group as usize + 1, 0);
            }
            fork.places[group as usize] = place;
        }
        place
    }

    /// The blocks of a fork that were named.
    pub(crate) fn in_fork(&self, fork: u32) -> Vec<BlockKey> {
        let Some(item) = self.forks.get(fork as usize) else { return Vec::new() };
        let near = (0..).zip(&item.places).map(|(group, place)| (group, *place));
        let places = near.chain(item.far.iter().map(|(group, place)| (*group, *place)));
        let states = places.filter(|(_, place)| *place > 0).flat_map(|(group, place)| {
            let states = (0..).zip(&self.groups[place as usize - 1]);
            states.map(move |(within, state)| (group * SIDE_BY_SIDE + within, state))
        });
        let named = states.filter(|(_, state)| state.touched > 0);
        named.map(|(block, _)| BlockKey { fork, block }).collect()
    }

    /// A block was named for the first time.
    pub(crate) fn count(&mut self) {
        self.touched += 1;
    }

    /// Blocks that were named.
    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        let groups = self.groups.capacity() * size_of::<[BlockState; SIDE_BY_SIDE as usize]>();
        let places: usize =
            self.forks.iter().map(|fork| fork.places.capacity() * 4 + fork.far.len() * 16).sum();
        (groups + places) as u64
    }
}
