//! The site of both designs, and the load they both run under.

use std::path::PathBuf;

use pgtoll_cluster::{GuardOptions, Installation};
use pgtoll_measure::Experiment;
use pgtoll_system::Interrupt;

use crate::neighbours::Neighbours;

/// The database with pgbench's tables.
pub(crate) const DATABASE: &str = "postgres";

/// Where and with what the designs run.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) installation: Installation,
    pub(crate) guard: GuardOptions,
    pub(crate) interrupt: Interrupt,
    pub(crate) experiment: Experiment,
    /// How many neighbours there are.
    pub(crate) neighbours: u32,
    /// Where the raw records of the sliced runs go.
    pub(crate) records: PathBuf,
}

impl Site {
    /// The background load of a trial; both designs see its schedule from the beginning.
    pub(crate) fn neighbours(&self, trial_seed: u64) -> anyhow::Result<Neighbours> {
        Neighbours::begin(self.neighbours, trial_seed, &self.guard, &self.interrupt)
    }
}
