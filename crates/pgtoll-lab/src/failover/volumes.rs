//! Disks of the primary's own, for faults that only such a disk can have.

use std::path::PathBuf;

use pgtoll_cluster::{Cluster, Guard, Volume, VolumeKind, VolumeMaker, Volumes};
use pgtoll_record::{FailoverFault, SkippedFault};
use pgtoll_system::Interrupt;

use super::FailoverPlan;
use super::context::RunContext;
use super::error::FailoverError;

/// The volume that a fault needs.
pub(super) fn volume_of(fault: FailoverFault) -> Option<VolumeKind> {
    match fault {
        FailoverFault::WalFull => Some(VolumeKind::Limited { bytes: WAL_BYTES }),
        FailoverFault::IoFreeze => Some(VolumeKind::Freezable { bytes: DATA_BYTES }),
        _ => None,
    }
}

/// Some segments more than a new server has.
pub(super) const WAL_BYTES: u64 = 128 << 20;
/// A new server's directory has some 40 MB; WAL comes to it.
const DATA_BYTES: u64 = 1 << 30;

/// Faults of the plan that cannot be made on this machine, and why.
pub(super) fn skipped_faults(
    plan: &FailoverPlan,
    volumes: &Result<VolumeMaker, String>,
    interrupt: &Interrupt,
) -> Vec<SkippedFault> {
    let skipped = plan.faults.iter().filter_map(|&fault| {
        let kind = volume_of(fault)?;
        let reason = match volumes {
            Ok(maker) => maker.obstacle(kind, interrupt)?,
            Err(reason) => reason.clone(),
        };
        Some(SkippedFault { fault, engine: None, by_nature: false, reason })
    });
    skipped.collect()
}

/// The volume of a primary, which must be stopped, and what keeps it.
pub(super) fn hold_volume(
    context: &RunContext<'_>,
    guard: &mut Guard,
    primary: &Cluster,
    fault: FailoverFault,
) -> Result<Option<(Volumes, Volume)>, FailoverError> {
    let (Some(kind), Some(maker)) = (volume_of(fault), context.volumes) else { return Ok(None) };
    let mut volumes = maker.volumes(context.interrupt)?;
    let directory: PathBuf = match kind {
        VolumeKind::Limited { .. } => primary.data().join("pg_wal"),
        VolumeKind::Freezable { .. } => primary.data(),
    };
    let volume = volumes.hold(guard, &directory, kind)?;
    Ok(Some((volumes, volume)))
}
