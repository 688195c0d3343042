//! Questions to every database of a server.

use std::collections::BTreeMap;

use pgtoll_record::VisibilityCount;
use pgtoll_wire::{Dsn, Row};

use crate::session::{APPLICATION, SessionCost, WatchSession};

/// The answer of each database that takes connections; `None` of one that cannot be asked, and of those beyond
/// [`DATABASES`].
fn ask_databases(
    dsn: &Dsn,
    session: &mut WatchSession,
    sql: &str,
) -> (Vec<Option<Row>>, SessionCost) {
    let mut cost = SessionCost::default();
    let names = "SELECT datname FROM pg_database WHERE datallowconn AND datname <> 'template0' \
                 ORDER BY datname";
    let names = session.query(names).unwrap_or_default();
    let mut ask = |(at, name): (usize, &Row)| {
        let name = name.text("datname").ok().filter(|_| at < DATABASES)?;
        let mut other = WatchSession::open(&dsn.with_database(name), APPLICATION).ok()?;
        let answer = other.query_one(sql).ok();
        cost.add(other.close());
        answer
    };
    let answers = names.iter().enumerate().map(&mut ask).collect();
    (answers, cost)
}

/// Pages that are not all-visible, in the databases that can be connected to.
pub(crate) fn visibility(dsn: &Dsn, session: &mut WatchSession) -> (VisibilityCount, SessionCost) {
    let mut count = VisibilityCount::default();
    let (answers, cost) = ask_databases(
        dsn,
        session,
        // Of tables that were never analysed relpages is 0.
        "SELECT coalesce(sum(pages), 0)::bigint AS pages, \
         coalesce(sum(greatest(pages - relallvisible, 0)), 0)::bigint AS hidden \
         FROM (SELECT relallvisible, CASE WHEN relpages > 0 THEN relpages ELSE \
         pg_relation_size(oid) / current_setting('block_size')::int END AS pages \
         FROM pg_class WHERE relkind IN ('r', 'm', 't') AND relpersistence = 'p') c",
    );
    for row in answers.iter().flatten() {
        count.databases += 1;
        count.pages += row.parse::<u64>("pages").unwrap_or(0);
        count.not_all_visible += row.parse::<u64>("hidden").unwrap_or(0);
    }
    count.databases_left_out = answers.len() as u64 - count.databases;
    (count, cost)
}

/// Counters of tables, of all databases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCounts {
    /// Tables that were dropped, or got another file, since counters were reset, TOAST tables among them.
    pub(crate) gone: u64,
    /// Bytes of dead rows.
    pub(crate) dead_bytes: u64,
    /// Bytes of rows that died since counters were reset.
    pub(crate) died_bytes: u64,
    /// How often tables were vacuumed since counters were reset.
    vacuums: u64,
    /// Tables that are being vacuumed now.
    vacuuming: u64,
    /// Tables with the most dead rows, by their database's place among the answers and their OID.
    deadest: BTreeMap<(usize, u32), DeadRows>,
    /// Relations with the newest files, by their database's place and their file's number.
    newest: BTreeMap<(usize, u32), NewestFile>,
    /// GIN indexes.
    gins: u64,
}

/// The first segment of a relation, and what it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NewestFile {
    pages: u64,
    is_index: bool,
}

/// Dead rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeadRows {
    bytes: u64,
    /// How often it was vacuumed since counters were reset.
    vacuums: u64,
}

impl TableCounts {
    fn plus(mut self, database: usize, row: &Row) -> Option<Self> {
        let more = |column| row.parse::<u64>(column).ok();
        self.gone = self.gone.saturating_add(more("gone")?);
        self.dead_bytes = self.dead_bytes.saturating_add(more("dead_bytes")?);
        self.died_bytes = self.died_bytes.saturating_add(more("died_bytes")?);
        self.vacuums = self.vacuums.saturating_add(more("vacuums")?);
        self.vacuuming = self.vacuuming.saturating_add(more("vacuuming")?);
        for table in row.text("deadest").ok()?.split_ascii_whitespace() {
            let mut numbers = table.split(':').map(str::parse::<u64>);
            let mut next = || numbers.next()?.ok();
            let table = u32::try_from(next()?).ok()?;
            let rows = DeadRows { bytes: next()?, vacuums: next()? };
            self.deadest.insert((database, table), rows);
        }
        self.gins = self.gins.saturating_add(more("gins")?);
        for file in row.text("newest").ok()?.split_ascii_whitespace() {
            let mut numbers = file.split(':').map(str::parse::<u64>);
            let mut next = || numbers.next()?.ok();
            let node = u32::try_from(next()?).ok()?;
            let file = NewestFile { pages: next()?, is_index: next()? == 1 };
            self.newest.insert((database, node), file);
        }
        Some(self)
    }

    /// Bytes of rows that were dead at an earlier look and have been freed since, at most.
    pub(crate) fn pruned_since(&self, before: &Self) -> u64 {
        let died = self.died_bytes.saturating_sub(before.died_bytes);
        let freed = before.dead_bytes.saturating_add(died).saturating_sub(self.dead_bytes);
        freed.min(before.dead_bytes)
    }

    /// `VACUUM`s that ended since an earlier look, or are still under way.
    pub(crate) fn vacuums_since(&self, before: &Self) -> u64 {
        self.vacuums.saturating_sub(before.vacuums).saturating_add(self.vacuuming)
    }

    /// Full-page images since an earlier look, at most, of pages that were not written by anybody who is
    /// counted, or that had an image already: those of indexes that were built and of tables that were
    /// rewritten, and pages of relations that were dropped. `None`: not known. Relations that came and went may
    /// have had any number, and so may `VACUUM` of a GIN index (`REGBUF_FORCE_IMAGE` in `ginvacuum.c`).
    pub(crate) fn forced_images_since(&self, before: &Self) -> Option<u64> {
        let made = self.files_missing_in(before);
        let dropped = before.files_missing_in(self);
        let tables = dropped.iter().filter(|file| !file.is_index).count() as u64;
        let came_and_went = self.gone.saturating_sub(before.gone) > tables;
        let is_vacuumed = self.gins > 0 && self.vacuums_since(before) > 0;
        let is_known = !came_and_went && !is_vacuumed && made.len() < NEWEST;
        let pages = made.iter().chain(&dropped).map(|file| file.pages);
        is_known.then(|| pages.fold(0, u64::saturating_add))
    }

    /// Its newest files that the other look would have returned if they had been there.
    fn files_missing_in(&self, other: &Self) -> Vec<NewestFile> {
        let is_missing = |(database, node): &(usize, u32)| {
            let of_database = other.newest.range((*database, 0)..=(*database, u32::MAX));
            let is_full = of_database.clone().count() >= NEWEST;
            let oldest = of_database.map(|((_, node), _)| *node).next().filter(|_| is_full);
            oldest.is_none_or(|oldest| *node > oldest)
                && !other.newest.contains_key(&(*database, *node))
        };
        self.newest.iter().filter(|(file, _)| is_missing(file)).map(|(_, file)| *file).collect()
    }

    /// Bytes of such rows, at most, that `VACUUM` freed.
    pub(crate) fn vacuumed_since(&self, before: &Self) -> u64 {
        let is_vacuumed = |table, rows: &DeadRows| {
            self.deadest.get(table).is_some_and(|now| now.vacuums > rows.vacuums)
        };
        let vacuumed = before.deadest.iter().filter(|(table, rows)| is_vacuumed(table, rows));
        let bytes = vacuumed.map(|(_, rows)| rows.bytes).fold(0, u64::saturating_add);
        bytes.min(self.pruned_since(before))
    }
}

/// As many of a database's newest files are returned.
const NEWEST: usize = 1000;

/// `None` where a database cannot be asked.
pub(crate) fn table_counts(
    dsn: &Dsn,
    session: &mut WatchSession,
) -> (Option<TableCounts>, SessionCost) {
    let (answers, cost) = ask_databases(dsn, session, TABLE_COUNTS);
    let first = (!answers.is_empty()).then(TableCounts::default);
    let sum = answers.iter().enumerate();
    (sum.fold(first, |sum, (place, row)| sum?.plus(place, row.as_ref()?)), cost)
}

/// Rows of `pg_class` that go, without those of indexes. `CLUSTER` and `VACUUM FULL` drop a table that they
/// made; `TRUNCATE` updates the row, and so does, once for two rows, making a table with its TOAST table.
///
/// A row has the bytes that it takes in its table, with what is free there. Temporary tables have no WAL. Tables
/// without dead rows are returned if they were ever vacuumed, so that a reading finds those that had some at the
/// reading before.
const TABLE_COUNTS: &str = include_str!("table_counts.sql");

/// Databases that are connected to.
const DATABASES: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    /// Files by their number, with their pages; odd ones are of indexes.
    fn look(gone: u64, files: &[(u32, u64)]) -> TableCounts {
        let file = |(node, pages): &(u32, u64)| {
            ((0, *node), NewestFile { pages: *pages, is_index: node % 2 == 1 })
        };
        TableCounts { gone, newest: files.iter().map(file).collect(), ..TableCounts::default() }
    }

    #[test]
    fn images_of_what_was_built_and_of_what_was_dropped_are_no_pages_that_were_written() {
        let before = look(5, &[(100, 40), (101, 7)]);
        let same = before.clone();
        assert_eq!(same.forced_images_since(&before), Some(0));
        let index_built = look(5, &[(100, 40), (101, 7), (103, 11)]);
        assert_eq!(index_built.forced_images_since(&before), Some(11));
        let table_dropped = look(6, &[(101, 7)]);
        assert_eq!(table_dropped.forced_images_since(&before), Some(40));
        // Another one was made and dropped meanwhile.
        let came_and_went = look(7, &[(101, 7)]);
        assert_eq!(came_and_went.forced_images_since(&before), None);
    }

    #[test]
    fn vacuum_of_a_gin_index_logs_any_number_of_images() {
        let before = TableCounts { gins: 1, vacuums: 3, ..TableCounts::default() };
        assert_eq!(before.forced_images_since(&before), Some(0));
        let after = TableCounts { vacuums: 4, ..before.clone() };
        assert_eq!(after.forced_images_since(&before), None);
        let without = TableCounts { gins: 0, ..after };
        assert_eq!(without.forced_images_since(&before), Some(0));
    }

    #[test]
    fn files_that_are_pushed_out_of_a_full_list_were_not_dropped() {
        let all: Vec<(u32, u64)> = (0..1000).map(|at| (2 * at, 1)).collect();
        let before = look(0, &all);
        let mut newer = all[1..].to_vec();
        newer.push((2001, 5));
        assert_eq!(look(0, &newer).forced_images_since(&before), Some(5));
        // One in the middle was.
        newer.remove(500);
        newer.insert(0, all[0]);
        assert_eq!(look(1, &newer).forced_images_since(&before), Some(6));
    }
}
