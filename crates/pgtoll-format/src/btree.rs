//! Pages of B-trees: to which other pages they lead, and to which rows.

use crate::bytes::{u16_at, u32_at};
use crate::page::{LinePointerState, PageHeader, line_pointers};

/// A page that is in its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BtreePage<'a> {
    /// The first page of the index.
    Meta(Meta),
    /// A page of leaves or of pointers to other pages.
    Node(Node<'a>),
}

/// The content of the first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The root's block; 0: there is none yet.
    pub root: u32,
    /// The start of searches.
    pub fast_root: u32,
}

/// A page of a tree that is neither deleted nor about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// The block to the left; `None`: it is the first one.
    pub left: Option<u32>,
    /// The block to the right; `None`: it is the last one.
    pub right: Option<u32>,
    /// Levels below it.
    pub level: u32,
    is_leaf: bool,
    page: &'a [u8],
}

impl<'a> BtreePage<'a> {
    /// Reads a page; `None` where it is none of a B-tree, or is not in the tree (any more).
    pub fn read(page: &'a [u8]) -> Option<Self> {
        let header = PageHeader::read(page).filter(|header| header.is_plausible(page.len()))?;
        let special = usize::from(header.special);
        if header.is_new() || page.len() - special != SPECIAL_BYTES {
            return None;
        }
        let flags = u16_at(page, special + 12)?;
        let cycle = u16_at(page, special + 14)?;
        if cycle > CYCLE_MAX || flags & !KNOWN_FLAGS != 0 || flags & (DELETED | HALF_DEAD) != 0 {
            return None;
        }
        if flags & META != 0 {
            let is_meta = u32_at(page, PageHeader::BYTES)? == MAGIC;
            let number = |at| u32_at(page, PageHeader::BYTES + at);
            return is_meta
                .then_some(Self::Meta(Meta { root: number(8)?, fast_root: number(16)? }));
        }
        let neighbour =
            |at| u32_at(page, special + at).map(|block| Some(block).filter(|block| *block != 0));
        let left = neighbour(0)?;
        let right = neighbour(4)?;
        let level = u32_at(page, special + 8)?;
        let is_leaf = flags & LEAF != 0;
        ((level == 0) == is_leaf).then_some(Self::Node(Node { left, right, level, is_leaf, page }))
    }
}

impl<'a> Node<'a> {
    /// The blocks one level below; none of a leaf.
    pub fn children(&self) -> impl Iterator<Item = u32> + use<'a> {
        let items = (!self.is_leaf).then(|| self.items());
        items.into_iter().flatten().filter_map(|item| Some(Tid::read(item, 0)?.block))
    }

    /// The rows that its leaves lead to, but for those that are known to be dead; none of another
    /// page.
    pub fn rows(&self) -> impl Iterator<Item = Tid> + use<'a> {
        let items = self.is_leaf.then(|| self.items());
        items.into_iter().flatten().flat_map(rows)
    }

    /// All items but the one that says where the page ends, and the dead.
    fn items(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let page = self.page;
        let high_key = usize::from(self.right.is_some());
        let pointers = line_pointers(page).skip(high_key);
        let live = pointers.filter(|pointer| pointer.state == LinePointerState::Normal);
        live.filter_map(|pointer| {
            let from = usize::from(pointer.offset);
            page.get(from..from + usize::from(pointer.bytes))
        })
    }
}

/// The place of a row: its block, and its line pointer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tid {
    /// The block of the table.
    pub block: u32,
    /// The line pointer, from 1.
    pub number: u16,
}

impl Tid {
    const BYTES: usize = 6;

    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        // The halves are two numbers, the higher one first.
        let high = u16_at(bytes, at)?;
        let low = u16_at(bytes, at + 2)?;
        let block = u32::from(high) << 16 | u32::from(low);
        Some(Self { block, number: u16_at(bytes, at + 4)? })
    }
}

/// The rows of a leaf: one, or those of a list (13 and later). What only divides pages from each
/// other leads to none.
fn rows(item: &[u8]) -> impl Iterator<Item = Tid> + use<'_> {
    let own = Tid::read(item, 0);
    let is_other = u16_at(item, Tid::BYTES).is_some_and(|info| info & ALTERNATIVE != 0);
    let (from, count) = match own {
        Some(_) if !is_other => (0, 1),
        Some(Tid { block, number }) if number & IS_LIST != 0 => {
            (usize::try_from(block).unwrap_or(usize::MAX), usize::from(number & COUNT))
        }
        _ => (0, 0),
    };
    let places = (0..count).map_while(move |place| from.checked_add(place * Tid::BYTES));
    places.map_while(|at| item.get(at..).and_then(|rest| Tid::read(rest, 0)))
}

/// `BTPageOpaqueData`.
const SPECIAL_BYTES: usize = 16;
/// `MAX_BT_CYCLE_ID`.
const CYCLE_MAX: u16 = 0xFF7F;
/// `BTREE_MAGIC`.
const MAGIC: u32 = 0x0005_3162;
/// `BTP_…`.
const LEAF: u16 = 1;
const DELETED: u16 = 1 << 2;
const META: u16 = 1 << 3;
const HALF_DEAD: u16 = 1 << 4;
const KNOWN_FLAGS: u16 = 0x01FF;
/// `INDEX_ALT_TID_MASK`: where its row is stands elsewhere, if it has one.
const ALTERNATIVE: u16 = 0x2000;
/// `BT_IS_POSTING`.
const IS_LIST: u16 = 0x2000;
/// `BT_OFFSET_MASK`.
const COUNT: u16 = 0x0FFF;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PAGE_BYTES;

    fn tid(block: u32, number: u16) -> Vec<u8> {
        let block = block.to_le_bytes();
        [&block[2..], &block[..2], &number.to_le_bytes()].concat()
    }

    fn item(block: u32, number: u16, info: u16, rest: &[Vec<u8>]) -> Vec<u8> {
        let mut item = [tid(block, number), info.to_le_bytes().to_vec(), rest.concat()].concat();
        item.resize(item.len().next_multiple_of(8), 0);
        item
    }

    /// A page with these links and items; the second of each says whether it is dead.
    fn page(links: [u32; 3], flags: u16, items: &[(Vec<u8>, bool)]) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        let special = PAGE_BYTES - SPECIAL_BYTES;
        let mut upper = special;
        let mut lower = PageHeader::BYTES;
        for (item, is_dead) in items {
            upper -= item.len();
            page[upper..upper + item.len()].copy_from_slice(item);
            let state = if *is_dead { 3 << 15 } else { 1 << 15 };
            let pointer = u32::try_from(upper | state | item.len() << 17).unwrap();
            page[lower..lower + 4].copy_from_slice(&pointer.to_le_bytes());
            lower += 4;
        }
        for (at, value) in [(12, lower), (14, upper), (16, special), (18, PAGE_BYTES | 4)] {
            page[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap().to_le_bytes());
        }
        for (place, link) in links.into_iter().enumerate() {
            let at = special + place * 4;
            page[at..at + 4].copy_from_slice(&link.to_le_bytes());
        }
        page[special + 12..special + 14].copy_from_slice(&flags.to_le_bytes());
        page
    }

    fn node(page: &[u8]) -> Node<'_> {
        match BtreePage::read(page) {
            Some(BtreePage::Node(node)) => node,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_leaf_leads_to_rows() {
        let list = [tid(70_000, 1), tid(70_001, 2)];
        let items = [
            // The key that ends the page.
            (item(1, 1, ALTERNATIVE + 8, &[]), false),
            (item(5, 3, 8, &[]), false),
            (item(6, 4, 8, &[]), true),
            (item(8, IS_LIST + 2, ALTERNATIVE + 20, &list), false),
            // A list that ends behind its item.
            (item(8, IS_LIST + 900, ALTERNATIVE + 20, &list[..1]), false),
        ];
        let page = page([0, 9, 0], LEAF, &items);
        let leaf = node(&page);
        assert_eq!((leaf.left, leaf.right, leaf.level), (None, Some(9), 0));
        assert_eq!(leaf.children().count(), 0);
        let rows: Vec<Tid> = leaf.rows().collect();
        let expected = [(5, 3), (70_000, 1), (70_001, 2), (70_000, 1)];
        let expected = expected.map(|(block, number)| Tid { block, number });
        assert_eq!(rows, expected);
    }

    #[test]
    fn an_inner_page_leads_to_pages() {
        let items = [
            (item(7, 0, ALTERNATIVE + 8, &[]), false),
            (item(100_000, 1, ALTERNATIVE + 8, &[]), false),
        ];
        let page = page([0, 0, 1], 2, &items);
        let inner = node(&page);
        assert_eq!(inner.children().collect::<Vec<_>>(), [7, 100_000]);
        assert_eq!(inner.rows().count(), 0);
    }

    #[test]
    fn what_is_not_in_the_tree_leads_nowhere() {
        assert_eq!(BtreePage::read(&page([1, 2, 0], LEAF | DELETED, &[])), None);
        assert_eq!(BtreePage::read(&page([1, 2, 0], LEAF | HALF_DEAD, &[])), None);
        assert_eq!(BtreePage::read(&page([1, 2, 3], LEAF, &[])), None);
        assert_eq!(BtreePage::read(&vec![0; PAGE_BYTES]), None);
        let mut meta = page([0, 0, 0], META, &[]);
        assert_eq!(BtreePage::read(&meta), None);
        for (at, value) in [(0, MAGIC), (4, 4), (8, 3), (12, 1), (16, 2)] {
            meta[24 + at..28 + at].copy_from_slice(&value.to_le_bytes());
        }
        let expected = Meta { root: 3, fast_root: 2 };
        assert_eq!(BtreePage::read(&meta), Some(BtreePage::Meta(expected)));
    }

    proptest! {
        #[test]
        fn any_page_is_read_or_not(
            mut bytes in prop::collection::vec(any::<u8>(), 0..PAGE_BYTES + 1),
            items in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..100), any::<bool>()), 0..20,
            ),
            links: [u32; 2],
            level in 0_u32..2,
        ) {
            let made = page([links[0], links[1], level], u16::from(level == 0), &items);
            let read = node(&made);
            prop_assert!(read.rows().count() <= PAGE_BYTES / 6 * items.len());
            prop_assert!(read.children().count() <= items.len());
            if let Some(BtreePage::Node(node)) = BtreePage::read(&bytes) {
                let _ = (node.rows().count(), node.children().count());
            }
            let kept = bytes.len().min(PAGE_BYTES - 100);
            bytes.truncate(kept);
            bytes.extend_from_slice(&made[kept..]);
            bytes[..24].copy_from_slice(&made[..24]);
            let read = node(&bytes);
            let _ = (read.rows().count(), read.children().count());
        }
    }
}
