//! A census of the dirty buffers: which pages of a sample have an LSN before the redo point.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use pgtoll_format::Lsn;
use pgtoll_record::{CensusRelation, DirtyCensus};
use pgtoll_wire::{Dsn, Error, Row};

use crate::carried::{BlockAddress, CarriedPages};
use crate::looks::Glimpse;
use crate::session::{APPLICATION, SessionCost, WatchSession};

/// How censuses are taken.
#[derive(Debug)]
pub(crate) struct CensusTaker {
    pub(crate) dsn: Dsn,
    /// The schema of `pg_buffercache` in the database of the session.
    buffercache: String,
    pub(crate) buffers: u64,
    /// The schema of `pageinspect` in each database by its oid; `None` where it is not there, or the
    /// database cannot be connected to.
    inspect: BTreeMap<u32, Option<String>>,
    /// The database of the session.
    own: u32,
    names: BTreeMap<u32, String>,
    /// Pages that the last census looked at, with the number of censuses in a row that did. Each look
    /// raises a page's usage count by one.
    looked_at: HashMap<BlockAddress, u16>,
    /// The cost of sessions with other databases.
    pub(crate) cost: SessionCost,
}

/// The plan of a census.
#[derive(Debug)]
pub(crate) struct CensusPlan<'a> {
    /// The redo point of the cycle's checkpoint.
    pub(crate) redo: Lsn,
    /// Pages to look at.
    pub(crate) most: u32,
    /// While that checkpoint runs: the pages that belong to the cycle before.
    pub(crate) carried: Option<&'a mut CarriedPages>,
}

/// Dirty pages that are listed when a checkpoint begins: this many that later samples are among them.
const LISTED: u32 = 8000;

/// A dirty buffer of the sample.
#[derive(Debug)]
pub(crate) struct SampledBuffer {
    pub(crate) database: u32,
    pub(crate) tablespace: u32,
    pub(crate) file: u32,
    pub(crate) fork: u8,
    pub(crate) block: u32,
    usage: u16,
}

/// The dirty blocks at the start of a checkpoint.
#[derive(Debug)]
pub(crate) struct DirtyList {
    pub(crate) carried: CarriedPages,
    /// The pages of the sample, in the order of their hashes.
    pub(crate) pages: Vec<SampledBuffer>,
    /// Dirty blocks, in the sample or not.
    pub(crate) dirty: u64,
}

impl CensusTaker {
    pub(crate) fn new(
        session: &mut WatchSession,
        dsn: &Dsn,
        buffercache: String,
        inspect: Option<String>,
    ) -> Result<Self, Error> {
        let row = session.query_one(
            "SELECT oid, (SELECT setting::bigint FROM pg_settings WHERE name = 'shared_buffers') \
             AS buffers FROM pg_database WHERE datname = current_database()",
        )?;
        let own = row.parse("oid")?;
        let buffers = row.parse("buffers")?;
        let rows = session.query("SELECT oid, datname FROM pg_database WHERE datallowconn")?;
        let names = rows
            .iter()
            .map(|row| Ok((row.parse("oid")?, row.text("datname")?.to_owned())))
            .collect::<Result<_, Error>>()?;
        let inspect = BTreeMap::from([(own, inspect)]);
        let cost = SessionCost::default();
        let looked_at = HashMap::new();
        Ok(Self { dsn: dsn.clone(), buffercache, buffers, inspect, own, names, looked_at, cost })
    }

    /// Looks at the dirty buffers now, and at the headers of a sample of them.
    pub(crate) fn take(
        &mut self,
        session: &mut WatchSession,
        now: &Glimpse,
        plan: CensusPlan<'_>,
    ) -> Result<DirtyCensus, Error> {
        let CensusPlan { redo, most, carried } = plan;
        let rows = session.query(&self.dirty_sql(most, carried.as_deref()))?;
        let mut dirty: BTreeMap<u32, u64> = BTreeMap::new();
        let mut sample: Vec<(SampledBuffer, i32)> = Vec::new();
        for row in &rows {
            match row.value("count")? {
                Some(_) => drop(dirty.insert(row.parse("database")?, row.parse("count")?)),
                None => sample.push((SampledBuffer::read(row)?, row.parse("hash")?)),
            }
        }
        let carried = carried.map(|carried| {
            let blocks = sample.iter().map(|(buffer, hash)| (buffer.address(), *hash));
            carried.meet(&blocks.collect::<Vec<_>>(), most as usize);
            &*carried
        });
        let looked_at = std::mem::take(&mut self.looked_at);
        for (buffer, _) in &mut sample {
            let looks = looked_at.get(&buffer.address()).copied().unwrap_or(0);
            buffer.forget_looks(looks);
        }
        let mut tally = Tally::default();
        let mut covered = 0;
        // A session each, those with most dirty pages first. Databases that are left out are in the upper
        // bound.
        let is_sampled =
            |database: &u32| sample.iter().any(|(sample, _)| sample.database == *database);
        let mut databases: Vec<(&u32, &u64)> =
            dirty.iter().filter(|(database, _)| is_sampled(database)).collect();
        databases.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (database, count) in databases.into_iter().take(DATABASES) {
            let own = sample.extract_if(.., |(buffer, _)| buffer.database == *database);
            let (old, pages): (Vec<SampledBuffer>, Vec<SampledBuffer>) =
                own.map(|(buffer, _)| buffer).partition(|buffer| {
                    carried.is_some_and(|carried| carried.contains(&buffer.address()))
                });
            for page in &pages {
                let address = page.address();
                let looks = looked_at.get(&address).copied().unwrap_or(0);
                self.looked_at.insert(address, looks.saturating_add(1));
            }
            if self.look(session, *database, &pages, redo, &mut tally)? {
                covered += count;
                tally.add_carried(&old);
            }
        }
        if let Some(carried) = carried {
            tally.low_unsure = carried.unsure(tally.low_carried);
        }
        let mut census = tally.census(now, self.buffers, dirty.values().sum(), covered);
        census.redo = redo;
        Ok(census)
    }

    /// Lists pages that are dirty when a checkpoint begins, and counts all.
    pub(crate) fn list_dirty(
        &mut self,
        session: &mut WatchSession,
        salt: i64,
    ) -> Result<DirtyList, Error> {
        let mut carried = CarriedPages::new(salt);
        let rows = session.query(&format!(
            "SELECT reldatabase AS database, reltablespace AS tablespace, relfilenode AS file, \
             relforknumber AS fork, relblocknumber AS block, usagecount AS usage, {hash} AS hash, \
             count(*) OVER () AS dirty FROM {}.pg_buffercache WHERE isdirty AND relforknumber IN (0, 1) \
             ORDER BY {hash} LIMIT {LISTED}",
            self.buffercache,
            hash = carried.hash_sql(),
        ))?;
        let mut pages = Vec::new();
        let mut hashes = Vec::new();
        for row in &rows {
            pages.push(SampledBuffer::read(row)?);
            hashes.push(row.parse::<i32>("hash")?);
        }
        let blocks = pages.iter().map(SampledBuffer::address).zip(hashes);
        carried.list(blocks, LISTED as usize);
        let dirty = rows.first().map(|row| row.parse("dirty")).transpose()?;
        Ok(DirtyList { carried, pages, dirty: dirty.unwrap_or(0) })
    }

    /// One pass over the buffers: how many are dirty by database, and a sample of all.
    fn dirty_sql(&self, most: u32, carried: Option<&CarriedPages>) -> String {
        let (hash, order, filter) = match carried {
            None => ("0".to_owned(), "random()".to_owned(), "true".to_owned()),
            Some(pages) => (pages.hash_sql(), pages.hash_sql(), pages.filter_sql()),
        };
        format!(
            "WITH dirty AS MATERIALIZED (SELECT reldatabase, reltablespace, relfilenode, \
             relforknumber, relblocknumber, usagecount FROM {}.pg_buffercache \
             WHERE isdirty AND relforknumber IN (0, 1)) \
             SELECT reldatabase AS database, count(*) AS count, NULL::oid AS tablespace, \
             NULL::oid AS file, NULL::int AS fork, NULL::bigint AS block, NULL::int AS usage, \
             NULL::int AS hash FROM dirty GROUP BY reldatabase \
             UNION ALL (SELECT reldatabase, NULL, reltablespace, relfilenode, relforknumber, \
             relblocknumber, usagecount, {hash} FROM dirty WHERE {filter} \
             ORDER BY {order} LIMIT {most})",
            self.buffercache
        )
    }

    /// Looks at the pages of a database; `false` where that is not possible.
    fn look(
        &mut self,
        session: &mut WatchSession,
        database: u32,
        pages: &[SampledBuffer],
        redo: Lsn,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        let name = match (database, self.names.get(&database)) {
            (0, _) => "(shared)".to_owned(),
            (_, Some(name)) => name.clone(),
            (_, None) => return Ok(false),
        };
        let rows = self.query_in(session, database, &|schema| pages_sql(schema, pages, redo))?;
        match rows {
            Some(rows) => tally.add(&name, &rows).map(|()| true),
            None => Ok(false),
        }
    }

    /// Asks in a database that has `pageinspect`, whose schema the statement is made with; `None`
    /// where it has not, or cannot be connected to.
    pub(crate) fn query_in(
        &mut self,
        session: &mut WatchSession,
        database: u32,
        sql: &dyn Fn(&str) -> String,
    ) -> Result<Option<Vec<Row>>, Error> {
        // Shared catalogs belong to all databases.
        let place = if database == 0 { self.own } else { database };
        if place == self.own {
            let Some(Some(schema)) = self.inspect.get(&place) else { return Ok(None) };
            return session.query(&sql(schema)).map(Some);
        }
        let Some(name) = self.names.get(&place).cloned() else { return Ok(None) };
        if self.inspect.get(&place) == Some(&None) {
            return Ok(None);
        }
        let Ok(mut other) = WatchSession::open(&self.dsn.with_database(&name), APPLICATION) else {
            self.inspect.insert(place, None);
            return Ok(None);
        };
        let schema = match self.inspect.entry(place) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => {
                unknown.insert(extension_schema(&mut other, "pageinspect")?).clone()
            }
        };
        let found = schema.map(|schema| other.query(&sql(&schema)));
        self.cost.add(other.close());
        found.transpose()
    }
}

impl SampledBuffer {
    fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            database: row.parse("database")?,
            tablespace: row.parse("tablespace")?,
            file: row.parse("file")?,
            fork: row.parse("fork")?,
            block: row.parse("block")?,
            usage: row.parse("usage")?,
        })
    }

    pub(crate) fn address(&self) -> BlockAddress {
        (self.database, self.file, self.fork, self.block)
    }

    /// Without this many looks of ours. At the highest count it is not known how many there were of others.
    fn forget_looks(&mut self, looks: u16) {
        if self.usage < MOST_USED {
            self.usage = self.usage.saturating_sub(looks);
        }
    }

    /// It is evicted soon.
    fn is_low(&self) -> bool {
        self.usage <= 1
    }
}

/// The schema of an extension in the session's database, as SQL quotes it.
pub(crate) fn extension_schema(
    session: &mut WatchSession,
    name: &str,
) -> Result<Option<String>, Error> {
    let rows = session.query(&format!(
        "SELECT quote_ident(n.nspname) AS schema FROM pg_extension e \
         JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = '{name}'"
    ))?;
    rows.first().map(|row| row.text("schema").map(str::to_owned)).transpose()
}

/// A row for each page whose relation is still there. Only permanent relations are logged; new pages
/// have no upper bound of their free space yet. Relations are named and measured once, not for each of
/// their pages: that was half of the time.
fn pages_sql(schema: &str, pages: &[SampledBuffer], redo: Lsn) -> String {
    let files: BTreeSet<(u32, u32)> =
        pages.iter().map(|page| (page.tablespace, page.file)).collect();
    let list = |value: &dyn Fn(&SampledBuffer) -> String| -> String {
        pages.iter().map(value).collect::<Vec<_>>().join(",")
    };
    let list_files = |value: &dyn Fn(&(u32, u32)) -> String| -> String {
        files.iter().map(value).collect::<Vec<_>>().join(",")
    };
    format!(
        "WITH files AS MATERIALIZED (SELECT d.tablespace, d.file, \
         format('%I.%I', n.nspname, c.relname) AS relation, c.relpersistence = 'p' AS logged, \
         pg_relation_size(c.oid, 'main') / b.bytes AS main, \
         pg_relation_size(c.oid, 'fsm') / b.bytes AS fsm, b.bytes \
         FROM (SELECT current_setting('block_size')::int AS bytes) b, \
         unnest(ARRAY[{}]::oid[], ARRAY[{}]::oid[]) AS d(tablespace, file) \
         CROSS JOIN LATERAL (SELECT pg_filenode_relation(d.tablespace, d.file) AS oid OFFSET 0) r \
         JOIN pg_class c ON c.oid = r.oid JOIN pg_namespace n ON n.oid = c.relnamespace) \
         SELECT f.relation, p.usage, \
         coalesce(h.lsn < '{redo}'::pg_lsn AND h.upper > 0, false) AS hint_only, \
         CASE WHEN p.fork = 0 AND h.lower >= 24 AND h.upper >= h.lower \
         THEN f.bytes - (h.upper - h.lower) ELSE f.bytes END AS image_bytes \
         FROM unnest(ARRAY[{}]::oid[], ARRAY[{}]::oid[], ARRAY[{}]::int[], ARRAY[{}]::bigint[], \
         ARRAY[{}]::int[]) AS p(tablespace, file, fork, block, usage) \
         JOIN files f ON f.tablespace = p.tablespace AND f.file = p.file \
         CROSS JOIN LATERAL (SELECT CASE WHEN f.logged AND p.block < \
         CASE p.fork WHEN 0 THEN f.main ELSE f.fsm END \
         THEN {schema}.get_raw_page(f.relation, \
         CASE p.fork WHEN 0 THEN 'main' ELSE 'fsm' END, p.block::int) END AS raw OFFSET 0) g \
         LEFT JOIN LATERAL {schema}.page_header(g.raw) h ON true",
        list_files(&|(tablespace, _)| tablespace.to_string()),
        list_files(&|(_, file)| file.to_string()),
        list(&|page| page.tablespace.to_string()),
        list(&|page| page.file.to_string()),
        list(&|page| page.fork.to_string()),
        list(&|page| page.block.to_string()),
        list(&|page| page.usage.to_string()),
    )
}

/// The counts of the sample.
#[derive(Default)]
struct Tally {
    sampled: u64,
    hint_only: u64,
    low: u64,
    low_hint_only: u64,
    low_carried: u64,
    low_unsure: u64,
    image_bytes: f64,
    relations: BTreeMap<(String, String), u64>,
}

impl Tally {
    /// Pages that belong to the cycle before.
    fn add_carried(&mut self, pages: &[SampledBuffer]) {
        self.sampled += pages.len() as u64;
        let low = pages.iter().filter(|page| page.is_low()).count() as u64;
        self.low += low;
        self.low_carried += low;
    }

    fn add(&mut self, database: &str, rows: &[Row]) -> Result<(), Error> {
        for row in rows {
            let is_hint_only = row.text("hint_only")? == "t";
            let is_low = row.parse::<u16>("usage")? <= 1;
            self.sampled += 1;
            self.low += u64::from(is_low);
            if is_hint_only {
                self.hint_only += 1;
                self.low_hint_only += u64::from(is_low);
                self.image_bytes += row.parse::<f64>("image_bytes")?;
                let key = (database.to_owned(), row.text("relation")?.to_owned());
                *self.relations.entry(key).or_default() += 1;
            }
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "thousands of pages")]
    fn census(self, now: &Glimpse, buffers: u64, dirty: u64, covered: u64) -> DirtyCensus {
        let mut relations: Vec<CensusRelation> = self
            .relations
            .into_iter()
            .map(|((database, relation), pages)| CensusRelation { database, relation, pages })
            .collect();
        relations.sort_by_key(|relation| std::cmp::Reverse(relation.pages));
        relations.truncate(RELATIONS);
        DirtyCensus {
            at: now.now.clone(),
            redo: now.redo,
            age_s: now.now_s - now.checkpoint_s,
            cycle_s: None,
            evicted: None,
            buffers,
            dirty,
            covered,
            sampled: self.sampled,
            hint_only: self.hint_only,
            low: self.low,
            low_hint_only: self.low_hint_only,
            low_unsure: self.low_unsure,
            image_bytes: (self.hint_only > 0).then(|| self.image_bytes / self.hint_only as f64),
            relations,
        }
    }
}

/// `BM_MAX_USAGE_COUNT` of `buf_internals.h`.
const MOST_USED: u16 = 5;
/// Databases that a census looks at.
const DATABASES: usize = 50;
/// Relations that are kept of each census.
const RELATIONS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// In small shared buffers every census looks at the same pages, which would be in use by that alone.
    #[test]
    fn looks_of_earlier_censuses_are_no_use() {
        let check = |usage, looks, expected| {
            let mut buffer =
                SampledBuffer { database: 1, tablespace: 2, file: 3, fork: 0, block: 4, usage };
            buffer.forget_looks(looks);
            assert_eq!(buffer.is_low(), expected, "{usage} {looks}");
        };
        check(1, 0, true);
        check(2, 0, false);
        check(3, 2, true);
        check(4, 2, false);
        check(5, 4, false);
    }
}
