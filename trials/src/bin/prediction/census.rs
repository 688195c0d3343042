//! A superuser's view of a running server: dirty pages by their LSN, blocks written, blocks that
//! statements dirtied.
//! statements dirtied.

use pgtoll_format::{BlocksWritten, MajorFacts};
use pgtoll_record::trials::PredictionTrialCensus;
use pgtoll_wire::Connection;

/// Dirty pages of this database; of some of them the header. An image of a page of a free space map has no hole
/// (`MarkBufferDirtyHint(buf, false)`).
const CENSUS: &str = "
WITH control AS MATERIALIZED (SELECT redo_lsn FROM pg_control_checkpoint()),
dirty AS MATERIALIZED (
  SELECT c.oid::regclass::text AS relation, relforknumber AS fork, relblocknumber AS block,
         usagecount
  FROM pg_buffercache b JOIN pg_class c ON pg_relation_filenode(c.oid) = b.relfilenode
  WHERE isdirty AND relforknumber IN (0, 1) AND relpersistence = 'p'
    AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())),
sampled AS MATERIALIZED (SELECT * FROM dirty ORDER BY random() LIMIT $SAMPLE),
header AS MATERIALIZED (
  SELECT fork, usagecount, page_header(get_raw_page(relation,
         CASE fork WHEN 0 THEN 'main' ELSE 'fsm' END, block)) AS h FROM sampled),
page AS (
  SELECT usagecount <= 1 AS low, (h).lsn < redo_lsn AS hint_only,
         CASE WHEN fork = 0 AND (h).upper > (h).lower
              THEN 8192 - ((h).upper - (h).lower) ELSE 8192 END AS image
  FROM header, control)
SELECT (SELECT count(*) FROM dirty) AS dirty, count(*) AS sampled,
       count(*) FILTER (WHERE hint_only) AS hint_only,
       coalesce(sum(image) FILTER (WHERE hint_only), 0) AS hint_only_bytes,
       count(*) FILTER (WHERE low) AS low,
       count(*) FILTER (WHERE low AND hint_only) AS low_hint_only
FROM page";

/// Looks at no more dirty pages than this: each one looked at stays in shared buffers for longer.
pub(crate) fn census(
    connection: &mut Connection,
    sample: u32,
) -> anyhow::Result<PredictionTrialCensus> {
    let row = connection.query_one(&CENSUS.replace("$SAMPLE", &sample.to_string()))?;
    Ok(PredictionTrialCensus {
        dirty: row.parse("dirty")?,
        sampled: row.parse("sampled")?,
        hint_only: row.parse("hint_only")?,
        hint_only_bytes: row.parse("hint_only_bytes")?,
        low: row.parse("low")?,
        low_hint_only: row.parse("low_hint_only")?,
    })
}

/// Blocks written since the server's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) all: u64,
    pub(crate) by_others_than_checkpoints: u64,
}

pub(crate) fn written(connection: &mut Connection, facts: &MajorFacts) -> anyhow::Result<Written> {
    let row = connection.query_one(match facts.blocks_written {
        BlocksWritten::StatIoBytes => {
            "SELECT coalesce(sum(write_bytes), 0)::bigint / 8192 AS written, \
             coalesce(sum(write_bytes) FILTER (WHERE backend_type <> 'checkpointer'), 0)::bigint \
             / 8192 AS evicted FROM pg_stat_io WHERE object = 'relation'"
        }
        BlocksWritten::StatIoWrites => {
            "SELECT coalesce(sum(writes), 0)::bigint AS written, \
             coalesce(sum(writes) FILTER (WHERE backend_type <> 'checkpointer'), 0)::bigint \
             AS evicted FROM pg_stat_io WHERE object = 'relation'"
        }
        // buffers_backend has extensions in it.
        BlocksWritten::StatBgwriter => {
            "SELECT buffers_checkpoint + buffers_clean + buffers_backend - blocks AS written, \
             buffers_clean + buffers_backend - blocks AS evicted FROM pg_stat_bgwriter, \
             (SELECT pg_database_size(current_database()) / 8192 AS blocks) AS size"
        }
    })?;
    let count = |column: &str| -> anyhow::Result<u64> {
        // Without the size at the beginning it may be negative; only differences count.
        Ok(row.parse::<i64>(column)?.cast_unsigned())
    };
    Ok(Written { all: count("written")?, by_others_than_checkpoints: count("evicted")? })
}

impl Written {
    /// Not less than 0: where extensions are subtracted, the difference is not exact.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let since = |now: u64, before: u64| {
            u64::try_from(now.wrapping_sub(before).cast_signed()).unwrap_or(0)
        };
        Self {
            all: since(self.all, earlier.all),
            by_others_than_checkpoints: since(
                self.by_others_than_checkpoints,
                earlier.by_others_than_checkpoints,
            ),
        }
    }
}

/// What statements dirtied beyond their own images, in blocks: of SELECTs, and of all.
pub(crate) fn statements_dirtied(connection: &mut Connection) -> anyhow::Result<(u64, u64)> {
    let row = connection.query_one(
        "SELECT coalesce(sum(excess) FILTER (WHERE query ~* '^\\s*select'), 0)::bigint AS selects, \
         coalesce(sum(excess), 0)::bigint AS statements FROM \
         (SELECT query, greatest(0, shared_blks_dirtied - wal_fpi) AS excess \
          FROM pg_stat_statements WHERE query !~ 'pg_buffercache') AS own",
    )?;
    Ok((row.parse("selects")?, row.parse("statements")?))
}
