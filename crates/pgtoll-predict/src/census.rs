//! A census of the dirty buffers: which pages of a sample have an LSN before the redo point.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pgtoll_format::Lsn;
use pgtoll_record::{CensusRelation, DirtyCensus};
use pgtoll_wire::{Dsn, Error, Row};

use crate::looks::Glimpse;
use crate::session::{SessionCost, WatchSession};

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
    /// Of sessions with other databases.
    pub(crate) cost: SessionCost,
}

/// A dirty buffer of the sample.
struct SampledBuffer {
    tablespace: u32,
    file: u32,
    fork: u8,
    block: u32,
    usage: u16,
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
        Ok(Self { dsn: dsn.clone(), buffercache, buffers, inspect, own, names, cost })
    }

    /// Looks at the dirty buffers now, and at the headers of `most` of them at most.
    pub(crate) fn take(
        &mut self,
        session: &mut WatchSession,
        now: &Glimpse,
        most: u32,
    ) -> Result<DirtyCensus, Error> {
        let rows = session.query(&self.dirty_sql(most))?;
        let mut dirty: BTreeMap<u32, u64> = BTreeMap::new();
        let mut sample: BTreeMap<u32, Vec<SampledBuffer>> = BTreeMap::new();
        for row in &rows {
            let database = row.parse("database")?;
            match row.value("count")? {
                Some(_) => drop(dirty.insert(database, row.parse("count")?)),
                None => sample.entry(database).or_default().push(SampledBuffer::read(row)?),
            }
        }
        let (mut covered, mut tally) = (0, Tally::default());
        // A session each, those with most pages first. Databases that are left out are in the upper bound.
        let mut databases: Vec<(&u32, &u64)> =
            dirty.iter().filter(|(database, _)| sample.contains_key(database)).collect();
        databases.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (database, count) in databases.into_iter().take(DATABASES) {
            let pages = sample.remove(database).unwrap_or_default();
            if self.look(session, *database, &pages, now.redo, &mut tally)? {
                covered += count;
            }
        }
        Ok(tally.census(now, self.buffers, dirty.values().sum(), covered))
    }

    /// One pass over the buffers: how many are dirty by database, and a sample of all.
    fn dirty_sql(&self, most: u32) -> String {
        format!(
            "WITH dirty AS MATERIALIZED (SELECT reldatabase, reltablespace, relfilenode, \
             relforknumber, relblocknumber, usagecount FROM {}.pg_buffercache \
             WHERE isdirty AND relforknumber IN (0, 1)) \
             SELECT reldatabase AS database, count(*) AS count, NULL::oid AS tablespace, \
             NULL::oid AS file, NULL::int AS fork, NULL::bigint AS block, NULL::int AS usage \
             FROM dirty GROUP BY reldatabase \
             UNION ALL (SELECT reldatabase, NULL, reltablespace, relfilenode, relforknumber, \
             relblocknumber, usagecount FROM dirty ORDER BY random() LIMIT {most})",
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
        // Shared catalogs belong to all databases.
        let place = if database == 0 { self.own } else { database };
        let name = match (database, self.names.get(&database)) {
            (0, _) => "(shared)".to_owned(),
            (_, Some(name)) => name.clone(),
            (_, None) => return Ok(false),
        };
        if place == self.own {
            let Some(Some(schema)) = self.inspect.get(&place) else { return Ok(false) };
            tally.add(&name, &session.query(&pages_sql(schema, pages, redo))?)?;
            return Ok(true);
        }
        if self.inspect.get(&place) == Some(&None) {
            return Ok(false);
        }
        let Ok(mut other) = WatchSession::open(&self.dsn.with_database(&name)) else {
            self.inspect.insert(place, None);
            return Ok(false);
        };
        let schema = match self.inspect.entry(place) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => {
                unknown.insert(extension_schema(&mut other, "pageinspect")?).clone()
            }
        };
        let looked = schema.map(|schema| other.query(&pages_sql(&schema, pages, redo)));
        self.cost.add(other.close());
        match looked {
            Some(rows) => tally.add(&name, &rows?).map(|()| true),
            None => Ok(false),
        }
    }
}

impl SampledBuffer {
    fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            tablespace: row.parse("tablespace")?,
            file: row.parse("file")?,
            fork: row.parse("fork")?,
            block: row.parse("block")?,
            usage: row.parse("usage")?,
        })
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
/// have no upper bound of their free space yet.
fn pages_sql(schema: &str, pages: &[SampledBuffer], redo: Lsn) -> String {
    let list = |value: &dyn Fn(&SampledBuffer) -> String| -> String {
        pages.iter().map(value).collect::<Vec<_>>().join(",")
    };
    format!(
        "SELECT format('%I.%I', n.nspname, c.relname) AS relation, p.usage, \
         coalesce(h.lsn < '{redo}'::pg_lsn AND h.upper > 0, false) AS hint_only, \
         CASE WHEN p.fork = 0 AND h.lower >= 24 AND h.upper >= h.lower \
         THEN b.bytes - (h.upper - h.lower) ELSE b.bytes END AS image_bytes \
         FROM (SELECT current_setting('block_size')::int AS bytes) b, \
         unnest(ARRAY[{}]::oid[], ARRAY[{}]::oid[], ARRAY[{}]::int[], ARRAY[{}]::bigint[], \
         ARRAY[{}]::int[]) AS p(tablespace, file, fork, block, usage) \
         CROSS JOIN LATERAL (SELECT pg_filenode_relation(p.tablespace, p.file) AS oid OFFSET 0) r \
         JOIN pg_class c ON c.oid = r.oid JOIN pg_namespace n ON n.oid = c.relnamespace \
         CROSS JOIN LATERAL (SELECT CASE WHEN c.relpersistence = 'p' AND p.block < \
         pg_relation_size(c.oid, CASE p.fork WHEN 0 THEN 'main' ELSE 'fsm' END) / b.bytes \
         THEN {schema}.get_raw_page(format('%I.%I', n.nspname, c.relname), \
         CASE p.fork WHEN 0 THEN 'main' ELSE 'fsm' END, p.block::int) END AS raw OFFSET 0) g \
         LEFT JOIN LATERAL {schema}.page_header(g.raw) h ON true",
        list(&|page| page.tablespace.to_string()),
        list(&|page| page.file.to_string()),
        list(&|page| page.fork.to_string()),
        list(&|page| page.block.to_string()),
        list(&|page| page.usage.to_string()),
    )
}

/// What was seen of the sample.
#[derive(Default)]
struct Tally {
    sampled: u64,
    hint_only: u64,
    low: u64,
    low_hint_only: u64,
    image_bytes: f64,
    relations: BTreeMap<(String, String), u64>,
}

impl Tally {
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
        relations.sort_by_key(|of| std::cmp::Reverse(of.pages));
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
            image_bytes: (self.hint_only > 0).then(|| self.image_bytes / self.hint_only as f64),
            relations,
        }
    }
}

/// Databases that a census looks at.
const DATABASES: usize = 50;
/// Relations that are kept of each census.
const RELATIONS: usize = 20;
