//! Pages that `VACUUM` marks all-visible, or all-frozen, while a running checkpoint has still to
//! write them.
//! write.
//!
//! Such a mark is a hint on a page that is dirty anyway: with hints logged it has an image, as the
//! page's LSN is before the redo point. Without, the checkpoint writes the page, and it is clean when
//! a census comes. So a sample of the pages that were dirty when the checkpoint began is followed by
//! its bits in the visibility map: those that were set when it has completed, and not before.

use std::collections::HashMap;

use pgtoll_format::Lsn;
use pgtoll_record::CarriedMarks;
use pgtoll_wire::{Error, Row};

use crate::carried::BlockAddress;
use crate::census::{CensusTaker, SampledBuffer};
use crate::session::WatchSession;

/// Pages that are followed. Each may need a page of a visibility map, of 20 to 50 µs.
const FOLLOWED: usize = 2000;

/// The sample, and what the visibility map said of it when the checkpoint began.
#[derive(Debug)]
pub(crate) struct FollowedPages {
    pages: Vec<SampledBuffer>,
    bits: HashMap<BlockAddress, u8>,
    /// Pages of which the visibility map cannot be read, or may have been set since the checkpoint
    /// began and before it was looked at.
    unknown: u64,
}

impl CensusTaker {
    /// Begins to follow the first of these pages, which were dirty at a checkpoint's begin, in the
    /// order of a hash. Its redo point is not before `redo`.
    pub(crate) fn follow_marks(
        &mut self,
        session: &mut WatchSession,
        mut pages: Vec<SampledBuffer>,
        redo: Lsn,
    ) -> Result<FollowedPages, Error> {
        pages.truncate(FOLLOWED);
        let mut followed = FollowedPages { pages: Vec::new(), bits: HashMap::new(), unknown: 0 };
        for (database, own) in by_database(pages) {
            let sql = |schema: &str| bits_sql(schema, &own, redo, None);
            let Some(rows) = self.query_in(session, database, &sql)? else {
                followed.unknown += own.len() as u64;
                followed.pages.extend(own);
                continue;
            };
            for row in rows {
                let bits: u8 = row.parse("bits")?;
                if bits != 0 && row.text("is_new")? == "t" {
                    followed.unknown += 1;
                }
                followed.bits.insert(address(database, &row)?, bits);
            }
            followed.pages.extend(own);
        }
        Ok(followed)
    }

    /// Counts those that were marked since then, and that nothing but hints has changed since `redo`,
    /// the redo point of the checkpoint, which has completed.
    pub(crate) fn count_marks(
        &mut self,
        session: &mut WatchSession,
        followed: FollowedPages,
        redo: Lsn,
    ) -> Result<CarriedMarks, Error> {
        let FollowedPages { pages, bits, unknown } = followed;
        let mut marks = CarriedMarks { sampled: pages.len() as u64, marked: 0, unknown };
        for (database, own) in by_database(pages) {
            let is_known = |page: &SampledBuffer| bits.contains_key(&page.address());
            let known: Vec<SampledBuffer> = own.into_iter().filter(is_known).collect();
            if known.is_empty() {
                continue;
            }
            let sql = |schema: &str| bits_sql(schema, &known, redo, Some(&bits));
            match self.query_in(session, database, &sql)? {
                Some(rows) => {
                    for row in rows {
                        marks.marked += u64::from(row.text("is_marked")? == "t");
                    }
                }
                None => marks.unknown += known.len() as u64,
            }
        }
        Ok(marks)
    }
}

fn by_database(pages: Vec<SampledBuffer>) -> HashMap<u32, Vec<SampledBuffer>> {
    let mut databases: HashMap<u32, Vec<SampledBuffer>> = HashMap::new();
    for page in pages {
        databases.entry(page.database).or_default().push(page);
    }
    databases
}

fn address(database: u32, row: &Row) -> Result<BlockAddress, Error> {
    Ok((database, row.parse("file")?, row.parse("fork")?, row.parse("block")?))
}

/// A row for each page: its two bits (`visibilitymapdefs.h`), whether its page of the visibility map
/// has set bits since `redo` (clearing them leaves its LSN), and with the bits `before` whether there
/// are more of them now on a page that no record has changed since `redo`. A page of the map is read
/// once. Pages of other forks, and of relations without a map, have no bits.
fn bits_sql(
    schema: &str,
    pages: &[SampledBuffer],
    redo: Lsn,
    before: Option<&HashMap<BlockAddress, u8>>,
) -> String {
    let list = |value: &dyn Fn(&SampledBuffer) -> u32| -> String {
        pages.iter().map(|page| value(page).to_string()).collect::<Vec<_>>().join(",")
    };
    let bits = |page: &SampledBuffer| {
        // Without them none is set that was not.
        before.map_or(3, |before| u32::from(before.get(&page.address()).copied().unwrap_or(3)))
    };
    format!(
        "WITH p AS MATERIALIZED (SELECT * FROM \
         unnest(ARRAY[{tablespaces}]::oid[], ARRAY[{files}]::oid[], ARRAY[{forks}]::int[], \
         ARRAY[{blocks}]::bigint[], ARRAY[{bits}]::int[]) AS p(tablespace, file, fork, block, was)), \
         b AS (SELECT current_setting('block_size')::int AS bytes, \
         current_setting('block_size')::int - 24 AS map), \
         v AS MATERIALIZED (SELECT d.file, d.part, r.oid, c.relpersistence = 'p' AS logged, \
         format('%I.%I', n.nspname, c.relname) AS name, \
         CASE WHEN d.part < pg_relation_size(c.oid, 'vm') / b.bytes \
         THEN {schema}.get_raw_page(format('%I.%I', n.nspname, c.relname), 'vm', d.part::int) END AS raw \
         FROM (SELECT DISTINCT tablespace, file, block / (b.map * 4) AS part FROM p, b \
         WHERE fork = 0) d CROSS JOIN b \
         CROSS JOIN LATERAL (SELECT pg_filenode_relation(d.tablespace, d.file) AS oid OFFSET 0) r \
         JOIN pg_class c ON c.oid = r.oid JOIN pg_namespace n ON n.oid = c.relnamespace), \
         m AS MATERIALIZED (SELECT p.file, p.fork, p.block, p.was, v.oid, v.name, v.logged, \
         CASE WHEN p.fork = 0 AND v.raw IS NOT NULL THEN (get_byte(v.raw, 24 + \
         (p.block / 4 % b.map)::int) >> (p.block % 4 * 2)::int) & 3 ELSE 0 END AS bits, \
         CASE WHEN v.raw IS NOT NULL THEN ({schema}.page_header(v.raw)).lsn >= '{redo}'::pg_lsn \
         ELSE false END AS is_new FROM p CROSS JOIN b \
         LEFT JOIN v ON v.file = p.file AND v.part = p.block / (b.map * 4)) \
         SELECT file, fork, block, bits, is_new, CASE WHEN logged AND bits & ~was <> 0 \
         AND block < pg_relation_size(oid, 'main') / b.bytes \
         THEN ({schema}.page_header({schema}.get_raw_page(name, 'main', block::int))).lsn \
         < '{redo}'::pg_lsn ELSE false END AS is_marked FROM m CROSS JOIN b",
        tablespaces = list(&|page| page.tablespace),
        files = list(&|page| page.file),
        forks = list(&|page| u32::from(page.fork)),
        blocks = list(&|page| page.block),
        bits = list(&bits),
    )
}
