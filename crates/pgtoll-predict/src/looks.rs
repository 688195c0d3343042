//! Looks at the server's counters, by version.

use pgtoll_format::{BlocksWritten, Lsn, MajorFacts};
use pgtoll_wire::{Error, Row};

use crate::databases::TableCounts;
use crate::session::WatchSession;

/// A cheap look, twice a second: has a checkpoint completed?
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Glimpse {
    /// The server's clock, in seconds since 1970.
    pub(crate) now_s: f64,
    pub(crate) now: String,
    /// The end of WAL.
    pub(crate) insert: Lsn,
    /// Redo point of the last completed checkpoint.
    pub(crate) redo: Lsn,
    /// When that checkpoint began; whole seconds.
    pub(crate) checkpoint_s: f64,
    /// The start of its record.
    pub(crate) checkpoint: Lsn,
    /// Checkpoints begun since statistics were reset. The one that runs is counted when it first
    /// pauses between writes: within moments, if it is spread over time.
    pub(crate) checkpoints: u64,
    pub(crate) started: String,
    pub(crate) is_standby: bool,
    pub(crate) pid: i32,
}

const GLIMPSE: &str = "SELECT extract(epoch FROM clock_timestamp())::float8 AS now_s, \
     clock_timestamp()::text AS now, \
     CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() \
     END AS insert, \
     c.redo_lsn, c.checkpoint_lsn, extract(epoch FROM c.checkpoint_time)::float8 AS checkpoint_s, \
     pg_postmaster_start_time()::text AS started, pg_is_in_recovery() AS standby, \
     pg_backend_pid() AS pid";
const CHECKPOINTER: &str = "v.num_timed + v.num_requested AS checkpoints \
     FROM pg_control_checkpoint() c, pg_stat_checkpointer v";
/// Until 16.
const BGWRITER_CHECKPOINTS: &str = "v.checkpoints_timed + v.checkpoints_req AS checkpoints \
     FROM pg_control_checkpoint() c, pg_stat_bgwriter v";

impl Glimpse {
    pub(crate) fn read(session: &mut WatchSession, facts: &MajorFacts) -> Result<Self, Error> {
        let checkpoints =
            if facts.has_pg_stat_checkpointer { CHECKPOINTER } else { BGWRITER_CHECKPOINTS };
        let row = session.query_repeated(&format!("{GLIMPSE}, {checkpoints}"))?;
        Ok(Self {
            now_s: row.parse("now_s")?,
            now: row.text("now")?.to_owned(),
            insert: row.parse("insert")?,
            redo: row.parse("redo_lsn")?,
            checkpoint_s: row.parse("checkpoint_s")?,
            checkpoint: row.parse("checkpoint_lsn")?,
            checkpoints: row.parse("checkpoints")?,
            started: row.text("started")?.to_owned(),
            is_standby: row.text("standby")? == "t",
            pid: row.parse("pid")?,
        })
    }
}

/// The record of a checkpoint, and what the background writer logs after it though nobody works.
const IDLE_BYTES: u64 = 512;

impl Glimpse {
    /// Whether a checkpoint that comes by time has nothing to do here: it is counted, but skipped, if
    /// nothing of importance was logged since the one before (`CreateCheckPoint` in `xlog.c`).
    pub(crate) fn skips_checkpoints(&self) -> bool {
        self.insert.bytes_since(self.checkpoint).is_some_and(|bytes| bytes <= IDLE_BYTES)
    }

    /// When the last completed checkpoint began, whose end was seen between `before_s` and this look:
    /// to the second, and better if it was quick.
    pub(crate) fn begun_s(&self, before_s: f64) -> f64 {
        let latest = (self.checkpoint_s + 1.0).min(self.now_s);
        if before_s >= latest {
            return self.checkpoint_s.midpoint(latest);
        }
        self.checkpoint_s.max(before_s).midpoint(latest)
    }
}

/// Blocks evicted since counters were reset; `None` where backends' come in only with the next
/// checkpoint, new blocks among them.
pub(crate) fn evicted_now(
    session: &mut WatchSession,
    facts: &MajorFacts,
) -> Result<Option<u64>, Error> {
    let io = match facts.blocks_written {
        BlocksWritten::StatIoBytes => io_sql("read_bytes", "write_bytes", "b.bytes"),
        BlocksWritten::StatIoWrites => io_sql("reads", "writes", "1"),
        BlocksWritten::StatBgwriter => return Ok(None),
    };
    session.query_one(&io)?.parse("evicted").map(Some)
}

/// All counters that windows are made of, since they were reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterLook {
    pub(crate) blocks_read: u64,
    pub(crate) checkpointed: u64,
    pub(crate) evicted: u64,
    pub(crate) wal_records: Option<u64>,
    pub(crate) wal_images: Option<u64>,
    /// Bytes of all databases, where new blocks are among the evicted.
    pub(crate) data_bytes: Option<u64>,
    /// E1' since the statements' reset, and how often statements were forgotten.
    pub(crate) select_dirtied: Option<u64>,
    pub(crate) forgotten: u64,
    /// Counters of the tables of all databases.
    pub(crate) tables: Option<TableCounts>,
    /// When counters were reset.
    pub(crate) resets: String,
}

impl CounterLook {
    pub(crate) fn read(
        session: &mut WatchSession,
        facts: &MajorFacts,
        statements: Option<&str>,
    ) -> Result<Self, Error> {
        let row = session.query_one(&counters_sql(facts))?;
        let wal = |column| facts.has_pg_stat_wal.then(|| row.parse(column)).transpose();
        let mut look = Self {
            blocks_read: row.parse("blocks_read")?,
            checkpointed: row.parse("checkpointed")?,
            evicted: row.parse("evicted")?,
            wal_records: wal("wal_records")?,
            wal_images: wal("wal_fpi")?,
            data_bytes: number(&row, "data_bytes")?,
            resets: row.value("resets")?.unwrap_or_default().to_owned(),
            ..Self::default()
        };
        if let Some(schema) = statements {
            let row = session.query_one(&statements_sql(facts, schema))?;
            look.select_dirtied = number(&row, "dirtied")?;
            look.forgotten = number(&row, "forgotten")?.unwrap_or(0);
            look.resets.push_str(row.value("reset")?.unwrap_or_default());
        }
        Ok(look)
    }

    /// Whether some counter is smaller than before, or was reset meanwhile.
    pub(crate) fn was_reset_since(&self, before: &Self) -> bool {
        let shrank = self.blocks_read < before.blocks_read
            || self.checkpointed < before.checkpointed
            || self.evicted < before.evicted
            || self.wal_images < before.wal_images;
        shrank || self.resets != before.resets
    }
}

fn number(row: &Row, column: &str) -> Result<Option<u64>, Error> {
    row.value(column)?.map(|_| row.parse(column)).transpose()
}

/// Returns the query of the counters. New blocks are counted apart since 16, and cost no checksum.
fn counters_sql(facts: &MajorFacts) -> String {
    let io = match facts.blocks_written {
        BlocksWritten::StatIoBytes => io_sql("read_bytes", "write_bytes", "b.bytes"),
        BlocksWritten::StatIoWrites => io_sql("reads", "writes", "1"),
        BlocksWritten::StatBgwriter => BGWRITER.to_owned(),
    };
    let (wal, view, reset) = if facts.has_pg_stat_wal {
        ("w.wal_records, w.wal_fpi, ", ", pg_stat_wal w", "w.stats_reset::text")
    } else {
        ("", "", "NULL")
    };
    format!(
        "SELECT {wal}io.blocks_read, io.checkpointed, io.evicted, io.data_bytes, \
         concat_ws(' ', io.reset, {reset}) AS resets FROM ({io}) io{view}"
    )
}

/// Returns the query of `pg_stat_io`, in blocks: the counter over `unit`.
fn io_sql(reads: &str, writes: &str, unit: &str) -> String {
    format!(
        "SELECT coalesce(sum({reads} / {unit}), 0)::bigint AS blocks_read, \
         coalesce(sum({writes} / {unit}) FILTER (WHERE backend_type = 'checkpointer'), 0)::bigint \
         AS checkpointed, \
         coalesce(sum({writes} / {unit}) FILTER (WHERE backend_type <> 'checkpointer'), 0)::bigint \
         AS evicted, \
         NULL::bigint AS data_bytes, max(stats_reset)::text AS reset \
         FROM pg_stat_io, (SELECT current_setting('block_size')::bigint AS bytes) b \
         WHERE object IN ('relation', 'temp relation')"
    )
}

/// Until 15 what backends write includes new blocks, so the databases' growth is needed too.
const BGWRITER: &str = "SELECT (SELECT coalesce(sum(blks_read), 0)::bigint FROM pg_stat_database) \
     AS blocks_read, buffers_checkpoint AS checkpointed, \
     buffers_clean + buffers_backend AS evicted, \
     (SELECT sum(pg_database_size(oid))::bigint FROM pg_database) AS data_bytes, \
     stats_reset::text AS reset FROM pg_stat_bgwriter";

/// E1': what SELECTs dirtied beyond the images that they logged, of each statement.
fn statements_sql(facts: &MajorFacts, schema: &str) -> String {
    let info = if facts.has_pg_stat_wal {
        format!(
            "(SELECT dealloc FROM {schema}.pg_stat_statements_info) AS forgotten, \
                 (SELECT stats_reset::text FROM {schema}.pg_stat_statements_info) AS reset"
        )
    } else {
        "NULL AS forgotten, NULL AS reset".to_owned()
    };
    format!(
        "SELECT coalesce(sum(greatest(dirtied - images, 0)), 0)::bigint AS dirtied, {info} \
         FROM (SELECT sum(shared_blks_dirtied) AS dirtied, sum(wal_fpi) AS images \
         FROM {schema}.pg_stat_statements WHERE shared_blks_dirtied > 0 \
         AND query ~* '^[[:space:](]*select' GROUP BY queryid, dbid, userid) s"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(now_s: f64) -> Glimpse {
        Glimpse {
            now_s,
            checkpoint_s: 100.0,
            checkpoint: Lsn(0),
            now: String::new(),
            insert: Lsn(0),
            redo: Lsn(0),
            checkpoints: 0,
            started: String::new(),
            is_standby: false,
            pid: 0,
        }
    }

    #[test]
    fn checkpoints_begin_at_whole_seconds_or_better() {
        let check = |now_s: f64, before_s: f64, expected: f64| {
            let found = look(now_s).begun_s(before_s);
            assert!((found - expected).abs() < 1e-9, "{now_s} {before_s}: {found}");
        };
        check(130.0, 129.5, 100.5);
        check(130.0, 0.0, 100.5);
        check(100.25, 99.75, 100.125);
        check(100.75, 100.25, 100.5);
        check(101.25, 100.75, 100.875);
    }

    #[test]
    fn a_checkpoint_is_skipped_where_nothing_was_logged() {
        let check = |insert, expected| {
            let look = Glimpse { insert: Lsn(insert), checkpoint: Lsn(0x100), ..look(130.0) };
            assert_eq!(look.skips_checkpoints(), expected, "{insert}");
        };
        check(0x178, true);
        check(0x2000, false);
    }

    /// Of versions that no test has a server of, too.
    #[test]
    fn views_are_named_as_the_version_names_them() {
        let check = |major: u32, has: &[&str], has_not: &[&str]| {
            let facts = pgtoll_format::facts_of_major(major).unwrap();
            let sql = counters_sql(facts) + &statements_sql(facts, "public");
            for words in has {
                assert!(sql.contains(words), "{major}: {words}: {sql}");
            }
            for words in has_not {
                assert!(!sql.contains(words), "{major}: {words}: {sql}");
            }
        };
        let until_15 = ["pg_stat_bgwriter", "buffers_backend", "pg_database_size"];
        check(13, &until_15, &["pg_stat_wal", "pg_stat_io", "pg_stat_statements_info"]);
        check(14, &until_15, &["pg_stat_io"]);
        check(14, &["pg_stat_wal", "dealloc"], &[]);
        check(16, &["sum(reads / 1)", "pg_stat_wal"], &["pg_stat_bgwriter"]);
        check(18, &["sum(read_bytes / b.bytes)"], &["pg_stat_bgwriter"]);
    }

    #[test]
    fn a_reset_is_seen() {
        let before = CounterLook { blocks_read: 7, resets: "a".into(), ..CounterLook::default() };
        let check = |after: CounterLook, expected| {
            assert_eq!(after.was_reset_since(&before), expected, "{after:?}");
        };
        check(before.clone(), false);
        check(CounterLook { blocks_read: 9, ..before.clone() }, false);
        check(CounterLook { blocks_read: 6, ..before.clone() }, true);
        check(CounterLook { resets: "b".into(), ..before.clone() }, true);
    }
}
