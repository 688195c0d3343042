//! A running standby as a source: pages as it has them in memory, by `get_raw_page`.
//!
//! A standby changes its pages by replay alone, so what it has of a block contains all WAL before its
//! replay position. That it replayed the WAL of this very cluster is shown by its last restartpoint,
//! whose checkpoint is in the cluster's WAL.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pgtoll_datadir::DataDirectory;
use pgtoll_format::{Lsn, PAGE_CHECKSUM, RelationFork, unhex};
use pgtoll_wal::Lineage;
use pgtoll_wire::{Connection, Dsn, Error, Row};

use super::DamagedBlock;
use super::fetched::FetchedPages;
use super::refusal::{BlockRefusal, SourceRefusal};

/// A standby that pages can be taken from.
#[derive(Debug)]
pub(super) struct Standby {
    dsn: Dsn,
    main: Connection,
    sessions: HashMap<u32, Result<Session, BlockRefusal>>,
    timeline: u32,
    block_bytes: usize,
}

/// A connection to one of its databases.
#[derive(Debug)]
struct Session {
    connection: Connection,
    /// The schema of `pageinspect`, quoted.
    pageinspect: String,
}

/// The checkpoint of its last restartpoint: where its record begins, its redo point, and when it was
/// made, in seconds since 1970.
pub(super) type RestartPoint = (Lsn, Lsn, i64);

impl Standby {
    /// Connects to it. The error within is why nothing may be taken from it.
    pub(super) fn open(
        dsn: &Dsn,
        target: &DataDirectory,
        lineage: &Lineage,
    ) -> Result<Result<Self, SourceRefusal>, Error> {
        let mut main = dsn.connect()?;
        main.execute(QUIETLY)?;
        let row = main.query_one(WHO)?;
        if let Some(reason) = foreign(&row, target)? {
            return Ok(Err(reason));
        }
        let timeline = row.parse("timeline")?;
        if lineage.end_of(timeline).is_none() {
            let own = target.control.last_checkpoint.timeline;
            return Ok(Err(SourceRefusal::OtherTimeline { timeline, own }));
        }
        let block_bytes = target.control.block_bytes as usize;
        let dsn = dsn.clone();
        let sessions = HashMap::new();
        Ok(Ok(Self { dsn, main, sessions, timeline, block_bytes }))
    }

    /// The timeline that it replays.
    pub(super) fn timeline(&self) -> u32 {
        self.timeline
    }

    /// Waits until it has replayed the WAL up to `end`, as long as it continues; how far it has come.
    #[expect(
        clippy::disallowed_methods,
        reason = "no released server reports that it has replayed up to a place"
    )]
    pub(super) fn catch_up(&mut self, end: Lsn) -> Result<Replayed, Error> {
        let begun = Instant::now();
        loop {
            let row = self.main.query_one(REPLAYED)?;
            let to: Lsn = row.parse("replayed")?;
            let is_paused = row.text("paused")? == "t";
            if to >= end || is_paused || begun.elapsed() > CATCH_UP {
                return Ok(Replayed { to, is_paused });
            }
            // No released server reports that it has replayed up to a place: it is asked again.
            sleep(CATCH_UP_STEP);
        }
    }

    /// Its last restartpoint; made now, where the checkpoint that begins at `wanted` was replayed and
    /// has none yet.
    pub(super) fn restart_point(&mut self, wanted: Lsn, to: Lsn) -> Result<RestartPoint, Error> {
        let last = self.last_restart_point()?;
        if last.0 >= wanted || to <= wanted {
            return Ok(last);
        }
        // Without the right to ask for one the last one counts.
        if self.main.execute("SET statement_timeout = 0; CHECKPOINT").is_err() {
            return Ok(last);
        }
        self.last_restart_point()
    }

    fn last_restart_point(&mut self) -> Result<RestartPoint, Error> {
        let row = self.main.query_one(RESTART_POINT)?;
        Ok((row.parse("at")?, row.parse("redo")?, row.parse("time")?))
    }

    /// Returns its present pages of these blocks.
    pub(super) fn fetch(&mut self, damaged: &[DamagedBlock]) -> FetchedPages {
        let page =
            |block: &DamagedBlock| ((block.fork, block.block), self.page(block.fork, block.block));
        damaged.iter().map(page).collect()
    }

    fn page(&mut self, fork: RelationFork, block: u32) -> Result<Vec<u8>, BlockRefusal> {
        let block_bytes = self.block_bytes;
        let session = self.session(fork.relation.database)?;
        let relation = fork.relation;
        let fork_name = fork.number.name().ok_or(BlockRefusal::UnknownFork)?;
        let sql = format!(
            "SELECT quote_literal(quote_ident(n.nspname) || '.' || quote_ident(c.relname)) AS name \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.oid = pg_filenode_relation({}, {})",
            relation.tablespace, relation.rel_number
        );
        let rows = session.connection.query(&sql)?;
        let row = rows.first().ok_or(BlockRefusal::UnknownRelation("standby"))?;
        let name = row.text("name")?;
        let schema = &session.pageinspect;
        let sql = format!(
            "SELECT encode({schema}.get_raw_page({name}, '{fork_name}', {block}), 'hex') AS page"
        );
        let row = session.connection.query_one(&sql)?;
        let page = unhex(row.text("page")?).unwrap_or_default();
        if page.len() != block_bytes {
            return Err(BlockRefusal::Length(page.len()));
        }
        Ok(as_written(page, block))
    }

    fn session(&mut self, database: u32) -> Result<&mut Session, BlockRefusal> {
        if !self.sessions.contains_key(&database) {
            let opened = self.open_session(database);
            self.sessions.insert(database, opened);
        }
        let session = self.sessions.get_mut(&database).ok_or(BlockRefusal::NoDatabase)?;
        session.as_mut().map_err(|why| why.clone())
    }

    fn open_session(&mut self, database: u32) -> Result<Session, BlockRefusal> {
        let which = if database == 0 {
            "datname = current_database()".to_owned()
        } else {
            format!("oid = {database} AND datallowconn")
        };
        let sql = format!("SELECT datname FROM pg_database WHERE {which}");
        let rows = self.main.query(&sql)?;
        let row = rows.first().ok_or(BlockRefusal::NoDatabase)?;
        let name = row.text("datname")?;
        let mut connection = self.dsn.with_database(name).connect()?;
        connection.execute(QUIETLY)?;
        // A standby that zeroes what it cannot read has no page to give.
        let strictly = "SET zero_damaged_pages = off; SET ignore_checksum_failure = off";
        connection.execute(strictly)?;
        let rows = connection.query(PAGEINSPECT)?;
        let Some(row) = rows.first() else {
            return Err(BlockRefusal::NoPageinspect(name.to_owned()));
        };
        let pageinspect = row.text("schema")?.to_owned();
        Ok(Session { connection, pageinspect })
    }
}

/// How far a standby has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replayed {
    /// All WAL before this is in its pages.
    pub(super) to: Lsn,
    /// Its replay is paused.
    pub(super) is_paused: bool,
}

/// A page of memory has the checksum with which it was read, if any: it gets the one with which it
/// would be written.
fn as_written(mut page: Vec<u8>, block: u32) -> Vec<u8> {
    if pgtoll_checksum::is_page(page.len()) && page.iter().any(|byte| *byte != 0) {
        let checksum = pgtoll_checksum::page_checksum(&page, block);
        page[PAGE_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
    page
}

/// Why its pages are not comparable with the cluster's.
fn foreign(row: &Row, target: &DataDirectory) -> Result<Option<SourceRefusal>, Error> {
    let own = &target.control;
    let cluster = row.parse::<i64>("system_identifier")?.cast_unsigned();
    if cluster != own.system_identifier {
        let found = cluster;
        let own = own.system_identifier;
        return Ok(Some(SourceRefusal::OtherCluster { found, own }));
    }
    if row.text("standby")? != "t" {
        return Ok(Some(SourceRefusal::NoStandby));
    }
    let layout = (row.parse::<u32>("catalogs")?, row.parse::<u32>("block_bytes")?);
    if layout != (own.catalog_version, own.block_bytes) {
        return Ok(Some(SourceRefusal::OtherLayout));
    }
    Ok((row.text("checksums")? != "on").then_some(SourceRefusal::NoChecksums))
}

/// How long a standby that continues is waited for.
const CATCH_UP: Duration = Duration::from_secs(10);
const CATCH_UP_STEP: Duration = Duration::from_millis(20);

const QUIETLY: &str = "\
    SET search_path = pg_catalog; SET statement_timeout = '60s'; SET lock_timeout = '2s'";
const WHO: &str = "\
    SELECT s.system_identifier, s.catalog_version_no AS catalogs, pg_is_in_recovery() AS standby,
        current_setting('block_size') AS block_bytes,
        current_setting('data_checksums') AS checksums,
        greatest(c.timeline_id, r.min_recovery_end_timeline,
            (SELECT max(received_tli) FROM pg_stat_wal_receiver)) AS timeline
    FROM pg_control_system() s, pg_control_checkpoint() c, pg_control_recovery() r";
const REPLAYED: &str = "\
    SELECT coalesce(pg_last_wal_replay_lsn(), '0/0') AS replayed,
        pg_is_wal_replay_paused() AS paused";
const RESTART_POINT: &str = "\
    SELECT checkpoint_lsn AS at, redo_lsn AS redo,
        extract(epoch FROM checkpoint_time)::bigint AS time FROM pg_control_checkpoint()";
const PAGEINSPECT: &str = "\
    SELECT quote_ident(n.nspname) AS schema
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = 'pageinspect'";

#[cfg(test)]
mod tests {
    use pgtoll_format::{PAGE_BYTES, Verdict};

    use super::super::proof::page_verdict;
    use super::*;

    #[test]
    fn a_page_of_memory_gets_the_checksum_with_which_it_would_be_written() {
        let mut page = vec![7; PAGE_BYTES];
        for (at, value) in [(10, 0_u16), (12, 24), (14, 8000), (16, 8192), (18, 0x2004)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        assert_ne!(page_verdict(&page, 3), Verdict::Valid);
        assert_eq!(page_verdict(&as_written(page, 3), 3), Verdict::Valid);
        let zeros = vec![0; PAGE_BYTES];
        assert_eq!(as_written(zeros.clone(), 3), zeros);
    }
}
