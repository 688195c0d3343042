//! Visibility maps beside their tables: what both say of a block.
//!
//! Two pages may be compared where both are known to be as they were at the same time: after a stop in
//! good order; else where neither was changed since the redo point of the last completed checkpoint, up
//! to which everything had been written. Setting a bit raises the map's LSN, and clearing the page's
//! flag raises the page's; bits are cleared without an LSN until 18.4, which only hides something.

use std::collections::BTreeMap;

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::{ClusterState, Lsn, PageHeader, RelFileLocator, RowVisibility, is_all_visible};
use serde::{Deserialize, Serialize};

use crate::defect::{Defect, StaleClaim};
use crate::severity::FIRST_NORMAL_OID;

/// When a page and its map may be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapRule {
    /// Always: the server was stopped in good order.
    Stopped,
    /// Neither was changed behind this redo point of the last completed checkpoint.
    Since(Lsn),
    /// Never: pages may be torn, which only a checksum would show.
    Never,
}

impl MapRule {
    /// Makes the rules of this data directory, at rest.
    pub(crate) fn from_data(data: &DataDirectory) -> Self {
        match data.backup_start {
            None if data.control.state == ClusterState::ShutDown => Self::Stopped,
            _ if !data.has_checksums() => Self::Never,
            Some(start) => Self::Since(start),
            None => Self::Since(data.control.last_checkpoint.redo),
        }
    }

    /// Makes the rules beside a running server: all findings are read again.
    pub(crate) fn of_running(data: &DataDirectory) -> Self {
        Self::Since(data.control.last_checkpoint.redo)
    }

    fn compares(self, page: Lsn, map: Lsn) -> bool {
        self.is_settled(page) && self.is_settled(map)
    }

    /// Whether a page with this LSN is as it was when all changes before the rule's place were
    /// written.
    pub(crate) fn is_settled(self, lsn: Lsn) -> bool {
        match self {
            Self::Stopped => true,
            Self::Since(redo) => lsn != Lsn(0) && lsn <= redo,
            Self::Never => false,
        }
    }

    /// The LSN up to which page and map are known to be of the same time.
    fn since(self) -> Option<Lsn> {
        match self {
            Self::Since(redo) => Some(redo),
            Self::Stopped | Self::Never => None,
        }
    }
}

/// The bits of a sound map page for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapBits {
    /// 1: all visible; 2: all frozen.
    pub(crate) bits: u8,
    /// The map page's LSN.
    pub(crate) lsn: Lsn,
    /// The page of the map has no bit of any block.
    pub(crate) is_empty: bool,
}

/// The comparison of a page with its map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    /// The faults.
    pub(crate) defect: Option<Defect>,
    /// The page is all visible, and the page of the map is empty: no harm here.
    pub(crate) is_unmapped: bool,
}

/// Compares a sound page of a table with its map. `rows`: its rows are looked at, too.
pub(crate) fn compare(rule: MapRule, page: &[u8], map: Option<MapBits>, rows: bool) -> Compared {
    let mut compared = Compared::default();
    let is_visible = is_all_visible(page);
    if !is_visible && map.is_none_or(|map| map.bits == 0) {
        return compared;
    }
    let lsn = PageHeader::read(page).map_or(Lsn(0), |header| header.lsn);
    let comparable = map.filter(|map| rule.compares(lsn, map.lsn));
    let bits = comparable.map_or(0, |map| map.bits);
    let rows = (rows && (is_visible || bits & FROZEN != 0)).then(|| RowVisibility::from_page(page));
    let rows = rows.flatten().unwrap_or_default();
    let is_stale = bits & VISIBLE != 0 && !is_visible;
    let claim = match (is_stale, bits & FROZEN != 0 && rows.some_unfrozen) {
        _ if map.is_some_and(|map| map.bits == FROZEN) => Some(StaleClaim::FrozenAlone),
        (true, true) => Some(StaleClaim::VisibleAndFrozen),
        (true, false) => Some(StaleClaim::Visible),
        (false, true) => Some(StaleClaim::Frozen),
        (false, false) => None,
    };
    compared.defect = match claim {
        Some(claim) => {
            let since = rule.since().filter(|_| claim != StaleClaim::FrozenAlone);
            Some(Defect::MapStale { blocks: 1, claim, since })
        }
        None if is_visible && rows.some_invisible && rule != MapRule::Never => {
            Some(Defect::PageVisible { blocks: 1 })
        }
        None => None,
    };
    compared.is_unmapped = is_visible && comparable.is_some_and(|map| map.is_empty);
    compared
}

/// Pages that are all visible, and whose maps are empty, of each relation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unmapped(#[serde(with = "as_list")] pub(crate) BTreeMap<RelFileLocator, u64>);

impl Unmapped {
    pub(crate) fn add(&mut self, relation: RelFileLocator, pages: u64) {
        *self.0.entry(relation).or_default() += pages;
    }

    pub(crate) fn extend(&mut self, other: Self) {
        other.0.into_iter().for_each(|(relation, pages)| self.add(relation, pages));
    }

    /// A note of each database whose catalogs have empty maps: who empties a table's map otherwise
    /// does it on purpose.
    pub(crate) fn notes(&self, names: &Names) -> Vec<String> {
        let mut databases: BTreeMap<u32, (u64, u64, bool)> = BTreeMap::new();
        for (relation, pages) in &self.0 {
            let name = names.relation(*relation).filter(|_| names.heap_blocks(*relation).is_some());
            let Some(name) = name else { continue };
            let (all, tables, has_catalog) = databases.entry(relation.database).or_default();
            *all += pages;
            *tables += 1;
            *has_catalog |= name.oid < FIRST_NORMAL_OID;
        }
        let emptied = databases.into_iter().filter(|(_, (_, _, has_catalog))| *has_catalog);
        emptied
            .map(|(database, (pages, tables, _))| {
                let name = names.database(database);
                let name = name.map_or_else(|| database.to_string(), |name| format!("\"{name}\""));
                format!("database {name}: {pages} visible pages of {tables} tables without a bit in {EMPTIED}")
            })
            .collect()
    }
}

mod as_list {
    use std::collections::BTreeMap;

    use pgtoll_format::RelFileLocator;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Keys of JSON are texts.
    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<RelFileLocator, u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        map.iter().collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<RelFileLocator, u64>, D::Error> {
        Ok(Vec::<(RelFileLocator, u64)>::deserialize(from)?.into_iter().collect())
    }
}

const VISIBLE: u8 = 1;
const FROZEN: u8 = 2;
const EMPTIED: &str = "their visibility maps, which were emptied, probably by replay of CREATE DATABASE. \
    Nothing is wrong here, but other servers may differ: before a switchover, run in it (locks every table \
    until it ends) SELECT count(pg_truncate_visibility_map(oid)) FROM pg_class WHERE relkind IN \
    ('r','m','t') AND relpersistence = 'p', then VACUUM";

#[cfg(test)]
mod tests {
    use pgtoll_format::PAGE_BYTES;

    use super::*;

    const REDO: Lsn = Lsn(0x0300_0000);

    /// A page of a table with one row, frozen unless it has this `xmax`.
    fn page(lsn: u32, is_visible: bool, xmax: u32) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[4..8].copy_from_slice(&lsn.to_le_bytes());
        page[10] = if is_visible { 4 } else { 0 };
        for (at, value) in [(12, 28_u16), (14, 8128), (16, 8192), (18, 0x2004)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        page[24..28].copy_from_slice(&(0x1FC0_u32 | 1 << 15 | 64 << 17).to_le_bytes());
        page[8128..8132].copy_from_slice(&700_u32.to_le_bytes());
        page[8132..8136].copy_from_slice(&xmax.to_le_bytes());
        let infomask: u16 = if xmax == 0 { 0x0B00 } else { 0x0700 };
        page[8148..8150].copy_from_slice(&infomask.to_le_bytes());
        page
    }

    fn bits(bits: u8, lsn: u64) -> MapBits {
        MapBits { bits, lsn: Lsn(lsn), is_empty: bits == 0 }
    }

    const OLD: u32 = 0x0200_0000;
    const NEW: u32 = 0x0400_0000;

    #[track_caller]
    fn check(rule: MapRule, page: &[u8], map: Option<MapBits>, expected: Option<StaleClaim>) {
        let claim = match compare(rule, page, map, true).defect {
            Some(Defect::MapStale { claim, .. }) => Some(claim),
            Some(other) => panic!("{other:?}"),
            None => None,
        };
        assert_eq!(claim, expected);
    }

    #[test]
    fn bits_that_the_page_contradicts_are_stale() {
        use StaleClaim::{Frozen, FrozenAlone, Visible, VisibleAndFrozen};
        let old = u64::from(OLD);
        for rule in [MapRule::Stopped, MapRule::Since(REDO)] {
            let check = |page: &[u8], map, expected| check(rule, page, map, expected);
            check(&page(OLD, true, 0), Some(bits(3, old)), None);
            check(&page(OLD, true, 0), Some(bits(1, old)), None);
            check(&page(OLD, true, 0), Some(bits(0, old)), None);
            check(&page(OLD, false, 0), Some(bits(0, old)), None);
            check(&page(OLD, false, 0), None, None);
            check(&page(OLD, false, 0), Some(bits(1, old)), Some(Visible));
            check(&page(OLD, false, 0), Some(bits(3, old)), Some(Visible));
            check(&page(OLD, false, 900), Some(bits(1, old)), Some(Visible));
            check(&page(OLD, false, 900), Some(bits(3, old)), Some(VisibleAndFrozen));
            check(&page(OLD, true, 900), Some(bits(3, old)), Some(Frozen));
            check(&page(OLD, true, 0), Some(bits(2, old)), Some(FrozenAlone));
        }
        // The page alone.
        let compared = compare(MapRule::Stopped, &page(OLD, true, 900), Some(bits(1, old)), true);
        assert_eq!(compared.defect, Some(Defect::PageVisible { blocks: 1 }));
        let compared = compare(MapRule::Since(REDO), &page(NEW, true, 900), None, true);
        assert_eq!(compared.defect, Some(Defect::PageVisible { blocks: 1 }));
    }

    #[test]
    fn pages_of_other_times_are_not_compared() {
        let old = u64::from(OLD);
        let new = u64::from(NEW);
        let since = MapRule::Since(REDO);
        for (page_lsn, map_lsn) in [(NEW, old), (OLD, new), (NEW, new), (0, old), (OLD, 0)] {
            check(since, &page(page_lsn, false, 900), Some(bits(3, map_lsn)), None);
        }
        check(since, &page(OLD, false, 0), Some(bits(1, REDO.0)), Some(StaleClaim::Visible));
        // LSNs mean nothing after a stop in good order: unlogged tables have none.
        check(MapRule::Stopped, &page(0, false, 0), Some(bits(1, 0)), Some(StaleClaim::Visible));
        check(MapRule::Never, &page(OLD, false, 900), Some(bits(3, old)), None);
        check(MapRule::Never, &page(OLD, true, 900), Some(bits(3, old)), None);
    }

    #[test]
    fn rows_are_not_looked_at_unless_asked_for() {
        let old = u64::from(OLD);
        let pick = |page: &[u8], map| compare(MapRule::Stopped, page, map, false).defect;
        assert_eq!(pick(&page(OLD, true, 900), Some(bits(3, old))), None);
        let claim = StaleClaim::Visible;
        let expected = Defect::MapStale { blocks: 1, claim, since: None };
        assert_eq!(pick(&page(OLD, false, 900), Some(bits(3, old))), Some(expected));
    }

    #[test]
    fn an_empty_map_is_no_defect() {
        let old = u64::from(OLD);
        let is_unmapped =
            |page: &[u8], map| compare(MapRule::Since(REDO), page, map, true).is_unmapped;
        assert!(is_unmapped(&page(OLD, true, 0), Some(bits(0, old))));
        assert!(!is_unmapped(&page(OLD, false, 0), Some(bits(0, old))));
        assert!(!is_unmapped(&page(NEW, true, 0), Some(bits(0, old))));
        assert!(!is_unmapped(&page(OLD, true, 0), None));
        let other_bits = Some(MapBits { bits: 0, lsn: Lsn(old), is_empty: false });
        assert!(!is_unmapped(&page(OLD, true, 0), other_bits));
    }

    #[test]
    fn ranges_grow_by_the_same_defect_alone() {
        let stale = |claim| Defect::MapStale { blocks: 1, claim, since: Some(REDO) };
        let mut item = stale(StaleClaim::Visible);
        assert!(item.extend(&stale(StaleClaim::Visible)));
        assert!(!item.extend(&stale(StaleClaim::Frozen)) && !item.extend(&Defect::ZeroButVisible));
        assert!(!item.extend(&Defect::PageVisible { blocks: 1 }));
        assert_eq!(item.blocks(), 2);
    }
}
