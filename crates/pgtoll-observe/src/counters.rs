//! Counters that a server keeps.

use pgtoll_format::{BlocksWritten, Lsn, MajorFacts};
use pgtoll_wire::Connection;

use crate::ObserveError;

/// A server's counters since they were reset.
///
/// A session that worked publishes its own counters when it ends, or with
/// [`ServerCounters::publish`]; they are not complete before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCounters {
    /// The exact insert position of WAL, page headers included.
    pub wal_insert: Lsn,
    /// `pg_stat_wal.wal_records` (15 and later, as those below: sessions of older servers send what they
    /// counted when they like, so that a difference is of other work).
    pub wal_records: Option<u64>,
    /// `pg_stat_wal.wal_fpi`.
    pub wal_full_page_images: Option<u64>,
    /// Blocks read into shared buffers, in one database.
    pub blocks_read: Option<u64>,
    /// Data blocks written, by all of the cluster.
    pub blocks_written: Option<u64>,
}

impl ServerCounters {
    /// Publishes what the session of `connection` has counted, where the version can.
    pub fn publish(connection: &mut Connection, facts: &MajorFacts) -> Result<(), ObserveError> {
        if facts.has_force_next_flush {
            // It works at the end of the statement that follows.
            connection.execute("SELECT pg_stat_force_next_flush()")?;
            connection.execute("SELECT 1")?;
        }
        Ok(())
    }

    /// Reads the counters; `blocks_read` is that of this database.
    pub fn read(
        connection: &mut Connection,
        facts: &MajorFacts,
        database: &str,
    ) -> Result<Self, ObserveError> {
        let row = connection.query_one(&statement(facts, database))?;
        let counter = |column| facts.has_force_next_flush.then(|| row.parse(column)).transpose();
        Ok(Self {
            wal_insert: row.parse("wal_insert")?,
            wal_records: counter("wal_records")?,
            wal_full_page_images: counter("wal_full_page_images")?,
            blocks_read: counter("blocks_read")?,
            blocks_written: counter("blocks_written")?,
        })
    }
}

fn statement(facts: &MajorFacts, database: &str) -> String {
    let (wal_columns, wal_view) = if facts.has_pg_stat_wal {
        ("w.wal_records, w.wal_fpi AS wal_full_page_images,", ", pg_stat_wal w")
    } else {
        ("", "")
    };
    let written = match facts.blocks_written {
        BlocksWritten::StatIoBytes => {
            "(SELECT coalesce(sum(write_bytes), 0)::bigint / \
             current_setting('block_size')::bigint FROM pg_stat_io WHERE object = 'relation')"
        }
        BlocksWritten::StatIoWrites => {
            "(SELECT coalesce(sum(writes), 0)::bigint FROM pg_stat_io WHERE object = 'relation')"
        }
        BlocksWritten::StatBgwriter => {
            "(SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter)"
        }
    };
    format!(
        "SELECT pg_current_wal_insert_lsn() AS wal_insert, {wal_columns} \
         d.blks_read AS blocks_read, {written} AS blocks_written \
         FROM pg_stat_database d{wal_view} WHERE d.datname = '{database}'"
    )
}
