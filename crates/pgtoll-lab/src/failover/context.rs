//! The context that all runs share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pgtoll_cluster::{Cluster, Guard, Installation, VolumeMaker};
use pgtoll_record::Provenance;
use pgtoll_system::Interrupt;

use super::{EnginePrograms, FailoverPlan, VerifyPages};

/// The clients' database.
pub(super) const DATABASE: &str = "app";
/// Names of the servers, with engines and as standbys; the first begins as the primary.
pub(super) const NODES: [&str; 2] = ["node1", "node2"];

/// A standby that is never promoted.
pub(super) const THIRD: &str = "node3";
/// repmgr's witness: a server of its own, which has a vote.
pub(super) const WITNESS: &str = "witness";

/// The state that all runs share.
pub(super) struct RunContext<'a> {
    pub(super) plan: &'a FailoverPlan,
    pub(super) installation: &'a Installation,
    pub(super) template: &'a Cluster,
    /// The template of each run's witness; `None` without witnesses.
    pub(super) witness: Option<&'a Cluster>,
    pub(super) programs: &'a EnginePrograms,
    pub(super) guard: &'a Arc<Mutex<Guard>>,
    pub(super) interrupt: &'a Interrupt,
    pub(super) provenance: &'a Provenance,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) verify: VerifyPages,
    pub(super) volumes: Option<&'a VolumeMaker>,
}
