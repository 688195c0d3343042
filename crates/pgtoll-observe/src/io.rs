//! Reads and writes of a whole cluster.
//!
//! `/proc/PID/io` of a live process is its own; that of the postmaster includes every process that
//! it has reaped. PostgreSQL 18's I/O workers are children like any other.

use procfs::ProcError;
use procfs::process::{Io, Process};

use crate::ObserveError;
use crate::postmaster::PostmasterProcess;

/// The I/O of a postmaster and its children. Readable by the servers' own user and by root.
#[derive(Debug)]
pub struct ClusterIo {
    postmaster: PostmasterProcess,
}

/// Bytes that a cluster moved since its start, or ([`IoSample::since`]) between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoSample {
    /// Read from devices. What the page cache had is not in it.
    pub read_bytes: u64,
    /// Written to devices, counted when a folio of the page cache becomes dirty: rewriting a dirty
    /// one is free, and one that is dirtied after each of its writebacks counts each time, as a
    /// whole. Where the file system has large folios (ext4 since Linux 6.16), 8 kB of WAL may so
    /// count as hundreds.
    pub write_bytes: u64,
    /// The part of `write_bytes` that never came to a device since its file was truncated or removed
    /// before.
    pub cancelled_write_bytes: u64,
    /// Given to `read(2)` and its relatives, from the page cache too, and from pipes and sockets.
    pub read_call_bytes: u64,
    /// Given to `write(2)` and its relatives, to pipes and sockets too.
    pub write_call_bytes: u64,
}

impl ClusterIo {
    /// Looks up the cluster whose postmaster has this pid.
    pub fn attach(pid: i32) -> Result<Self, ObserveError> {
        Ok(Self { postmaster: PostmasterProcess::attach(pid)? })
    }

    /// The I/O until now; `None` where this user may not see it, or where processes come and go too fast for a sum.
    pub fn sample(&self) -> Result<Option<IoSample>, ObserveError> {
        for _ in 0..ATTEMPTS {
            let before = self.postmaster.children()?;
            // Children first, then the postmaster: a child that is reaped in between is in both,
            // and the list tells.
            let children = children_io(&before);
            let total = children.and_then(|sum| Ok(sum.plus(&self.postmasters_io()?)));
            let after = self.postmaster.children()?;
            match total {
                Ok(total) if after == before => return Ok(Some(total)),
                Err(ProcError::PermissionDenied(_)) => return Ok(None),
                Err(source) if after == before => return Err(self.postmaster.error(source)),
                // Children came or went meanwhile.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }

    fn postmasters_io(&self) -> Result<IoSample, ProcError> {
        Ok(IoSample::from(&self.postmaster.process.io()?))
    }
}

/// Sums that are tried: one takes well under a millisecond, between two connects.
const ATTEMPTS: u32 = 1000;

fn children_io(pids: &[i32]) -> Result<IoSample, ProcError> {
    pids.iter().try_fold(IoSample::default(), |sum, pid| {
        Ok(sum.plus(&IoSample::from(&Process::new(*pid)?.io()?)))
    })
}

impl IoSample {
    /// Returns the bytes moved since an earlier sample.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(&self, other: &Self, count: fn(u64, u64) -> u64) -> Self {
        Self {
            read_bytes: count(self.read_bytes, other.read_bytes),
            write_bytes: count(self.write_bytes, other.write_bytes),
            cancelled_write_bytes: count(self.cancelled_write_bytes, other.cancelled_write_bytes),
            read_call_bytes: count(self.read_call_bytes, other.read_call_bytes),
            write_call_bytes: count(self.write_call_bytes, other.write_call_bytes),
        }
    }
}

impl From<&Io> for IoSample {
    fn from(io: &Io) -> Self {
        Self {
            read_bytes: io.read_bytes,
            write_bytes: io.write_bytes,
            cancelled_write_bytes: io.cancelled_write_bytes,
            read_call_bytes: io.rchar,
            write_call_bytes: io.wchar,
        }
    }
}
