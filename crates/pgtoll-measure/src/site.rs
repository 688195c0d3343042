//! The site of a plan: server, directories, guard.

use std::collections::BTreeMap;
use std::path::Path;

use pgtoll_cluster::{GuardOptions, Installation};
use pgtoll_record::Calibration;
use pgtoll_system::Interrupt;

use crate::{ArmSpec, Experiment};

/// The site of a run.
#[derive(Debug)]
pub struct Site<'a> {
    /// The servers' programs, for arms without a server of their own.
    pub installation: &'a Installation,
    /// The servers that arms name, by that name.
    pub servers: &'a BTreeMap<String, Installation>,
    /// How to begin the guard.
    pub guard: &'a GuardOptions,
    /// Whether a signal came.
    pub interrupt: &'a Interrupt,
    /// The directory of the record; it exists.
    pub output: &'a Path,
    /// The run's own name (`--name`).
    pub name: Option<String>,
    /// Calibrations from earlier runs on this machine.
    pub calibration: Vec<Calibration>,
    /// pgtoll's version.
    pub pgtoll: &'a str,
    /// The command that makes this run again.
    pub command: Vec<String>,
}

impl<'a> Site<'a> {
    /// The arm's server.
    pub fn server(&self, arm: &ArmSpec) -> &'a Installation {
        let own = arm.postgres.as_ref().and_then(|name| self.servers.get(name));
        own.unwrap_or(self.installation)
    }

    /// The baseline's server.
    pub fn baseline(&self, experiment: &Experiment) -> &'a Installation {
        let arm = experiment.arms.iter().find(|arm| arm.name == experiment.baseline);
        arm.map_or(self.installation, |arm| self.server(arm))
    }
}
