//! The course of a step that has a time: what the server has used and moved while its clients work.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pgtoll_cluster::Cluster;
use pgtoll_format::Lsn;
use pgtoll_observe::{CpuSample, IoSample};
use pgtoll_record::StepReading;

use crate::BenchError;
use crate::readings::{io_bytes, wal_insert};
use crate::sessions::Sessions;
use crate::units::nanoseconds;

/// Looking costs the server a statement without a table, and shows bursts of a second.
const EVERY: Duration = Duration::from_millis(200);

/// Looks at a server until the work that began at `began` has dropped the sender, and once more then.
pub(crate) fn follow(
    cluster: &Cluster,
    sessions: &mut Sessions,
    began: Instant,
    ended: &Receiver<()>,
) -> Result<Vec<StepReading>, BenchError> {
    let first = Look::at(cluster, sessions)?;
    let mut course = Vec::new();
    loop {
        let goes_on = ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout);
        let now = Look::at(cluster, sessions)?;
        course.push(now.since(&first, began.elapsed()));
        if !goes_on {
            return Ok(course);
        }
    }
}

struct Look {
    cpu: CpuSample,
    io: Option<IoSample>,
    wal: Lsn,
}

impl Look {
    fn at(cluster: &Cluster, sessions: &mut Sessions) -> Result<Self, BenchError> {
        let wal = wal_insert(cluster, &mut sessions.monitor)?;
        Ok(Self { cpu: sessions.cpu.sample()?, io: sessions.io.sample()?, wal })
    }

    fn since(&self, first: &Self, after: Duration) -> StepReading {
        StepReading {
            after_ns: nanoseconds(after),
            server_cpu_ns: self.cpu.since(&first.cpu).nanoseconds,
            wal_bytes: self.wal.bytes_since(first.wal).unwrap_or(0),
            io: io_bytes(first.io, self.io),
        }
    }
}
