//! Readings of a running server, as the record has them.

use pgtoll_cluster::{Cluster, MemoryGroup};
use pgtoll_format::Lsn;
use pgtoll_observe::IoSample;
use pgtoll_record::{IoBytes, MemoryUse};
use pgtoll_wire::Connection;

use crate::BenchError;

/// Returns the bytes moved between two samples; `None` if the kernel does not report them.
pub(crate) fn io_bytes(before: Option<IoSample>, after: Option<IoSample>) -> Option<IoBytes> {
    let used = after?.since(&before?);
    Some(IoBytes {
        read: used.read_bytes,
        written: used.write_call_bytes,
        read_calls: Some(used.read_call_bytes),
    })
}

/// Returns the insert position of WAL.
pub(crate) fn wal_insert(cluster: &Cluster, monitor: &mut Connection) -> Result<Lsn, BenchError> {
    let row = monitor.query_one("SELECT pg_current_wal_insert_lsn() AS lsn");
    row.and_then(|row| row.parse("lsn")).map_err(|source| BenchError::query(cluster, source))
}

/// Returns the memory that a server used of its limit; `None` without a limit.
pub(crate) fn memory_use(group: Option<&MemoryGroup>) -> Result<Option<MemoryUse>, BenchError> {
    let usage = group.map(MemoryGroup::usage).transpose()?;
    Ok(usage.map(|usage| MemoryUse { peak_bytes: usage.peak_bytes, limit_hits: usage.limit_hits }))
}
