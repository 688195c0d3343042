//! Questions to every database of a server.

use pgtoll_record::VisibilityCount;
use pgtoll_wire::{Dsn, Row};

use crate::session::{SessionCost, WatchSession};

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
        let mut other = WatchSession::open(&dsn.with_database(name)).ok()?;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCounts {
    /// Tables that were dropped, or got another file, since counters were reset, TOAST tables among them.
    pub(crate) gone: u64,
    /// Bytes of dead rows.
    pub(crate) dead_bytes: u64,
    /// Bytes of rows that died since counters were reset.
    pub(crate) died_bytes: u64,
}

impl TableCounts {
    fn plus(self, row: &Row) -> Option<Self> {
        let more = |column| row.parse::<u64>(column).ok();
        Some(Self {
            gone: self.gone.saturating_add(more("gone")?),
            dead_bytes: self.dead_bytes.saturating_add(more("dead_bytes")?),
            died_bytes: self.died_bytes.saturating_add(more("died_bytes")?),
        })
    }

    /// Bytes of rows that were dead at an earlier look and have been freed since, at most.
    pub(crate) fn pruned_since(&self, before: &Self) -> u64 {
        let died = self.died_bytes.saturating_sub(before.died_bytes);
        let freed = before.dead_bytes.saturating_add(died).saturating_sub(self.dead_bytes);
        freed.min(before.dead_bytes)
    }
}

/// `None` where a database cannot be asked.
pub(crate) fn table_counts(
    dsn: &Dsn,
    session: &mut WatchSession,
) -> (Option<TableCounts>, SessionCost) {
    let (answers, cost) = ask_databases(dsn, session, TABLE_COUNTS);
    let first = (!answers.is_empty()).then(TableCounts::default);
    (answers.iter().fold(first, |sum, row| sum?.plus(row.as_ref()?)), cost)
}

/// Rows of `pg_class` that go, without those of indexes. `CLUSTER` and `VACUUM FULL` drop a table that they
/// made; `TRUNCATE` updates the row, and so does, once for two rows, making a table with its TOAST table.
///
/// A row has the bytes that it takes in its table, with what is free there. Temporary tables have no WAL.
const TABLE_COUNTS: &str = "SELECT coalesce(greatest(c.n_tup_del - i.n_tup_del, 0) \
     + greatest(c.n_tup_upd - greatest(c.n_tup_ins - i.n_tup_ins, 0) / 2, 0), 0)::bigint AS gone, \
     d.dead_bytes, d.died_bytes \
     FROM pg_stat_sys_tables c, pg_stat_sys_tables i, \
     (SELECT coalesce(sum(s.n_dead_tup * b.bytes), 0)::bigint AS dead_bytes, \
     coalesce(sum((s.n_tup_upd + s.n_tup_del) * b.bytes), 0)::bigint AS died_bytes \
     FROM pg_stat_all_tables s JOIN pg_class r ON r.oid = s.relid AND r.relpersistence = 'p', \
     LATERAL (SELECT least(r.relpages / nullif(greatest(r.reltuples, 0), 0), 1) \
     * current_setting('block_size')::int AS bytes) b) d \
     WHERE c.relid = 'pg_class'::regclass AND i.relid = 'pg_index'::regclass";

/// Databases that are connected to.
const DATABASES: usize = 50;
