//! The servers of a trial, and the place where they run.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, GuardOptions, Installation, ServerUser};
use pgtoll_record::Host;
use pgtoll_system::Interrupt;

/// The place where a trial's servers run, and the signals that end it.
#[derive(Debug)]
pub struct TrialSite {
    /// Signals that this process received.
    pub interrupt: Interrupt,
    /// The work directory, and the user that the servers run as.
    pub guard: GuardOptions,
}

impl TrialSite {
    /// Catches signals, finds the work directory and chooses the servers' user.
    pub fn prepare(work_dir: &Path) -> anyhow::Result<Self> {
        let interrupt = Interrupt::new();
        interrupt.catch_signals().context("catch signals")?;
        let base = std::fs::canonicalize(work_dir);
        let base = base.with_context(|| format!("find {}", work_dir.display()))?;
        Ok(Self { interrupt, guard: GuardOptions::of_this_program(base, ServerUser::choose()?) })
    }

    /// Starts a guard, which starts servers and removes them.
    pub fn begin_guard(&self) -> anyhow::Result<Guard> {
        Ok(Guard::begin(&self.guard, &self.interrupt)?)
    }

    /// The machine, with the file system of the work directory.
    pub fn host(&self) -> anyhow::Result<Host> {
        Ok(pgtoll_measure::host(&self.guard.base)?)
    }
}

/// Finds a server by its directory or its major version.
pub fn installation(which: &str) -> anyhow::Result<Installation> {
    let found = Installation::find(Some(which))?;
    found.with_context(|| format!("no PostgreSQL server {which} found"))
}

/// A server's version and origin, as records have them.
pub fn server_name(installation: &Installation) -> String {
    format!("PostgreSQL {} ({})", installation.version, installation.origin)
}

/// The connection string of a running cluster's database.
pub fn dsn(cluster: &Cluster, database: &str) -> String {
    let environment = cluster.environment();
    let [host, port, user] = ["PGHOST", "PGPORT", "PGUSER"].map(|name| &environment[name]);
    format!("host='{host}' port={port} user={user} dbname={database}")
}

/// A server's settings by name.
pub fn settings<const N: usize>(settings: [(&str, &str); N]) -> BTreeMap<String, String> {
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}
