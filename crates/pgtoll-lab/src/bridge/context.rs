//! The context of all steps.

use pgtoll_cluster::Guard;
use pgtoll_record::ForeignScan;
use pgtoll_system::Interrupt;

use super::servers::BridgeServers;

pub(super) struct BridgeContext<'a> {
    pub(super) guard: &'a mut Guard,
    pub(super) interrupt: &'a Interrupt,
    pub(super) servers: &'a BridgeServers,
    /// The scans of the join, after it was done.
    pub(super) scans: Vec<ForeignScan>,
}
