//! Readings of the watched servers, and the pages in their files.

use std::time::{Duration, Instant};

use pgtoll_format::{Verdict, unhex};
use pgtoll_record::PageCondition;
use pgtoll_wire::{Connection, Dsn, Error};

use super::page::RefusedPage;
use super::{JudgePage, WatchError};
use pgtoll_system::error_chain;

/// The primary's system identifier, when it is one that can be watched.
pub(super) fn primary_identifier(connection: &mut Connection) -> Result<String, WatchError> {
    let state = ServerState::from_connection(connection)?;
    if state.is_standby {
        return Err(WatchError::NotPrimary);
    }
    if !state.has_checksums {
        return Err(WatchError::NoChecksums);
    }
    Ok(state.identifier)
}

struct ServerState {
    identifier: String,
    is_standby: bool,
    has_checksums: bool,
}

impl ServerState {
    fn from_connection(connection: &mut Connection) -> Result<Self, Error> {
        let row = connection.query_one(
            "SELECT (SELECT system_identifier::text FROM pg_catalog.pg_control_system()) AS identifier, \
             pg_catalog.pg_is_in_recovery() AS standby, \
             pg_catalog.current_setting('data_checksums') AS checksums",
        )?;
        Ok(Self {
            identifier: row.text("identifier")?.to_owned(),
            is_standby: row.text("standby")? == "t",
            has_checksums: row.text("checksums")? == "on",
        })
    }
}

/// A standby of the primary.
pub(super) struct Standby {
    dsn: Dsn,
    identifier: String,
}

/// How long the standby may take to replay what the primary had flushed.
const REPLAY_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(50);

impl Standby {
    pub(super) fn new(dsn: &Dsn, identifier: &str) -> Result<Self, WatchError> {
        let standby = Self { dsn: dsn.clone(), identifier: identifier.to_owned() };
        let mut connection = dsn.connect()?;
        let fault = standby.fault(&ServerState::from_connection(&mut connection)?);
        connection.close();
        fault.map_or(Ok(standby), |fault| Err(WatchError::WrongStandby(fault.to_owned())))
    }

    /// Why it cannot take the primary's place.
    fn fault(&self, state: &ServerState) -> Option<&'static str> {
        if state.identifier != self.identifier {
            Some("the server that --standby names is of another cluster")
        } else if !state.is_standby {
            Some("--standby: the server is not a standby")
        } else if !state.has_checksums {
            Some("the server that --standby names has no data checksums")
        } else {
            None
        }
    }

    /// The page in its file, after it has replayed what the primary has flushed.
    pub(super) fn page(
        &self,
        primary: &Dsn,
        page: &RefusedPage,
        judge: JudgePage,
    ) -> PageCondition {
        let looked = self.connected(primary).and_then(|outcome| match outcome {
            Ok(mut connection) => in_file(&mut connection, page, judge),
            Err(reason) => Ok(PageCondition::Unknown { reason }),
        });
        looked.unwrap_or_else(|error| PageCondition::Unknown { reason: error_chain(&error) })
    }

    /// A session with a standby that is still one, and has caught up; or why there is none.
    fn connected(&self, primary: &Dsn) -> Result<Result<Connection, String>, Error> {
        let mut connection = primary.connect()?;
        let row = connection.query_one("SELECT pg_catalog.pg_current_wal_flush_lsn() AS lsn")?;
        let flushed = row.text("lsn")?.to_owned();
        connection.close();
        let mut connection = self.dsn.connect()?;
        connection.wait_until(Instant::now().checked_add(2 * REPLAY_LIMIT));
        if let Some(fault) = self.fault(&ServerState::from_connection(&mut connection)?) {
            return Ok(Err(fault.to_owned()));
        }
        let seconds = REPLAY_LIMIT.as_secs();
        let sql = format!(
            "SELECT pg_catalog.pg_last_wal_replay_lsn() >= '{flushed}'::pg_catalog.pg_lsn AS done, \
             pg_catalog.pg_sleep({})",
            LOOK.as_secs_f64()
        );
        let end = Instant::now() + REPLAY_LIMIT;
        while connection.query_one(&sql)?.text("done")? != "t" {
            if Instant::now() > end {
                return Ok(Err(format!("it did not replay {flushed} within {seconds} s")));
            }
        }
        Ok(Ok(connection))
    }
}

/// The page in the primary's file.
pub(super) fn primary_page(primary: &Dsn, page: &RefusedPage, judge: JudgePage) -> PageCondition {
    let looked = primary.connect().and_then(|mut connection| in_file(&mut connection, page, judge));
    looked.unwrap_or_else(|error| PageCondition::Unknown { reason: error_chain(&error) })
}

/// A page that is written just now may be read half old and half new.
const READS: u32 = 3;

fn in_file(
    connection: &mut Connection,
    page: &RefusedPage,
    judge: JudgePage,
) -> Result<PageCondition, Error> {
    let mut condition = PageCondition::Unsound;
    for _ in 0..READS {
        let bytes = page_bytes(connection, page)?;
        condition = match bytes.map(|bytes| judge(&bytes, page.block, true)) {
            Some(Verdict::Valid) => return Ok(PageCondition::Sound),
            Some(Verdict::Invalid(_)) => PageCondition::Unsound,
            Some(Verdict::New) => unknown("all bytes of the page are zero"),
            None => unknown("the file has no such page"),
        };
    }
    Ok(condition)
}

fn unknown(reason: &str) -> PageCondition {
    PageCondition::Unknown { reason: reason.to_owned() }
}

/// The bytes of a page in a server's file; `None` where the file is not there or shorter.
fn page_bytes(connection: &mut Connection, page: &RefusedPage) -> Result<Option<Vec<u8>>, Error> {
    let row = connection.query_one(
        "SELECT pg_catalog.current_setting('block_size') AS block_bytes, \
         (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'segment_size') AS segment_blocks",
    )?;
    let block_bytes: u32 = row.parse("block_bytes")?;
    let segment_blocks: u32 = row.parse::<u32>("segment_blocks")?.max(1);
    let segment = page.block / segment_blocks;
    let block = page.block % segment_blocks;
    let suffix = if segment == 0 { String::new() } else { format!(".{segment}") };
    // The path has letters, digits, _ and / alone.
    let sql = format!(
        "SELECT pg_catalog.encode(pg_catalog.pg_read_binary_file('{}{suffix}', {}, {block_bytes}, true), \
         'hex') AS page",
        page.file,
        u64::from(block) * u64::from(block_bytes)
    );
    let row = connection.query_one(&sql)?;
    let bytes = row.value("page")?.and_then(unhex);
    Ok(bytes.filter(|bytes| bytes.len() == block_bytes as usize))
}

/// Database and relation of a page, as far as the primary says.
pub(super) fn relation_of(
    primary: &Dsn,
    page: &RefusedPage,
) -> Result<(Option<String>, Option<String>), Error> {
    let mut connection = primary.connect()?;
    let database = match page.database() {
        None => None,
        Some(oid) => {
            let sql = format!("SELECT datname FROM pg_catalog.pg_database WHERE oid = {oid}");
            let rows = connection.query(&sql)?;
            rows.first().map(|row| row.text("datname").map(str::to_owned)).transpose()?
        }
    };
    if let Some(name) = &database {
        connection = primary.with_database(name).connect()?;
    }
    let sql = format!(
        "SELECT n.nspname || '.' || c.relname AS relation FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.oid = pg_catalog.pg_filenode_relation({}, {})",
        if page.database().is_none() { SHARED_SPACE } else { page.tablespace() },
        page.filenode()
    );
    let rows = connection.query(&sql)?;
    let relation = rows.first().map(|row| row.text("relation").map(str::to_owned)).transpose()?;
    connection.close();
    Ok((database, relation))
}

/// `pg_global`.
const SHARED_SPACE: &str = "1664";
