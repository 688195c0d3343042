//! Claims of visibility maps: a block whose rows are all visible is there, and is not zero.

use pgtoll_format::{Lsn, PageHeader, Verdict};

use crate::maps::MapBits;
use crate::page::page_verdict;
use crate::storage::{ReadAt, read_all};

/// A page of a visibility map.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapPage<'a> {
    page: &'a [u8],
    /// Its number in the map.
    number: u32,
}

impl<'a> MapPage<'a> {
    pub(super) fn new(page: &'a [u8], number: u32) -> Self {
        Self { page, number }
    }

    /// Blocks of a table for which a page of its map has bits.
    fn blocks(page_bytes: usize) -> u64 {
        (page_bytes.saturating_sub(PageHeader::BYTES) * BLOCKS_PER_BYTE) as u64
    }

    /// The first block from this one on that has bits.
    pub(super) fn first_from(&self, block: u64) -> Option<u64> {
        let begin = self.begin();
        let from = block.saturating_sub(begin);
        let bits = self.page.get(PageHeader::BYTES..).unwrap_or_default();
        let skipped = usize::try_from(from).ok()? / BLOCKS_PER_BYTE;
        for (at, byte) in bits.iter().enumerate().skip(skipped).filter(|(_, byte)| **byte != 0) {
            let of_byte = (0..BLOCKS_PER_BYTE).filter(|place| byte >> (place * 2) & 3 != 0);
            let set = of_byte.map(|place| (at * BLOCKS_PER_BYTE + place) as u64);
            if let Some(found) = set.into_iter().find(|place| *place >= from) {
                return Some(begin + found);
            }
        }
        None
    }

    /// The last block that has bits.
    pub(super) fn last(&self) -> Option<u64> {
        let bits = self.page.get(PageHeader::BYTES..).unwrap_or_default();
        let at = bits.iter().rposition(|byte| *byte != 0)?;
        let place = (0..BLOCKS_PER_BYTE).rfind(|place| bits[at] >> (place * 2) & 3 != 0)?;
        Some(self.begin() + (at * BLOCKS_PER_BYTE + place) as u64)
    }

    /// The first block for which the page has bits, set or not.
    pub(super) fn begin(&self) -> u64 {
        u64::from(self.number) * Self::blocks(self.page.len())
    }

    /// The two bits of a block; 0 where the page has none of it.
    fn bits(&self, block: u64) -> u8 {
        let bits = self.page.get(PageHeader::BYTES..).unwrap_or_default();
        let place = block.checked_sub(self.begin()).and_then(|place| usize::try_from(place).ok());
        let Some(place) = place else { return 0 };
        let byte = bits.get(place / BLOCKS_PER_BYTE).copied().unwrap_or_default();
        byte >> (place % BLOCKS_PER_BYTE * 2) & 3
    }
}

/// A sound page of a map.
#[derive(Clone, Copy, Debug)]
struct Taken {
    lsn: Lsn,
    is_empty: bool,
}

/// A table's visibility map, read page by page as it is asked for.
pub(super) struct VisibilityMap<'a> {
    file: Box<dyn ReadAt + 'a>,
    page: Vec<u8>,
    /// The number of the page, and its state if a server would accept it.
    taken: Option<(u32, Option<Taken>)>,
    has_checksums: bool,
}

impl<'a> VisibilityMap<'a> {
    /// The map in this file, of which only the first segment is asked.
    pub(super) fn new(file: Box<dyn ReadAt + 'a>, block_bytes: usize, has_checksums: bool) -> Self {
        Self { file, page: vec![0; block_bytes], taken: None, has_checksums }
    }

    /// Whether all rows of the block are visible, as a sound page of the map says.
    pub(super) fn has(&mut self, block: u32) -> bool {
        self.bits(block).is_some_and(|map| map.bits != 0)
    }

    /// Returns the bits of a sound map page for a block; `None`: no sound page.
    pub(super) fn bits(&mut self, block: u32) -> Option<MapBits> {
        let blocks = MapPage::blocks(self.page.len()).max(1);
        let number = u32::try_from(u64::from(block) / blocks).ok()?;
        if self.taken.is_none_or(|(taken, _)| taken != number) {
            self.taken = Some((number, self.take(number)));
        }
        let (_, taken) = self.taken?;
        let Taken { lsn, is_empty } = taken?;
        let bits = MapPage::new(&self.page, number).bits(block.into());
        Some(MapBits { bits, lsn, is_empty })
    }

    fn take(&mut self, number: u32) -> Option<Taken> {
        let at = u64::from(number) * self.page.len() as u64;
        let read = read_all(&*self.file, &mut self.page, at).ok()?;
        let is_sound = read == self.page.len()
            && page_verdict(&self.page, number, self.has_checksums) == Verdict::Valid;
        let lsn = PageHeader::read(&self.page).filter(|_| is_sound)?.lsn;
        Some(Taken { lsn, is_empty: MapPage::new(&self.page, number).last().is_none() })
    }
}

/// Two bits a block: all rows visible, all rows frozen.
const BLOCKS_PER_BYTE: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_are_found_where_they_are(
            number in 0_u32..5,
            set in prop::collection::btree_set(0_u64..32_672, 0..20),
            from in 0_u64..200_000,
        ) {
            let mut page = vec![0_u8; 8192];
            for place in &set {
                page[24 + usize::try_from(place / 4).unwrap()] |= 1 << (place % 4 * 2);
            }
            let begin = u64::from(number) * 32_672;
            let expected = set.iter().map(|place| begin + place).find(|block| *block >= from);
            let map = MapPage::new(&page, number);
            prop_assert_eq!(map.first_from(from), expected);
            prop_assert_eq!(map.last(), set.last().map(|place| begin + place));
            prop_assert_eq!(map.bits(from) != 0, expected == Some(from));
        }

        #[test]
        fn any_page_says_something(page in prop::collection::vec(any::<u8>(), 0..2000), from: u64) {
            let map = MapPage::new(&page, u32::MAX);
            let _ = (map.first_from(from), map.last(), map.bits(from));
        }
    }
}
