//! A server that replays WAL for blocks that no source has.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pgtoll_alter::{RebuiltPages, RedoPlan, RedoRefusal};
use pgtoll_cluster::{Confinement, Finder, Guard, GuardOptions, ServerUser};
use pgtoll_system::Interrupt;

use crate::commands::absolute;
use crate::test_hooks::show_if_told;

/// The site and the server of redo.
pub(super) struct Redo<'a> {
    pub(super) work_dir: PathBuf,
    /// The installation that was asked for.
    pub(super) postgres: Option<&'a str>,
    pub(super) interrupt: &'a Interrupt,
}

impl Redo<'_> {
    /// The pages, or why there are none.
    pub(super) fn rebuild(&self, plan: &RedoPlan) -> Result<RebuiltPages, RedoRefusal> {
        self.replay(plan).map_err(|error| RedoRefusal::NoServer(format!("{error:#}")))
    }

    fn replay(&self, plan: &RedoPlan) -> anyhow::Result<RebuiltPages> {
        let major = plan.major().to_string();
        let found = Finder::of_this_program(self.interrupt)
            .find(Some(self.postgres.unwrap_or(&major)))?
            .ok_or_else(|| anyhow::anyhow!("no PostgreSQL {major} is installed here"))?;
        if found.version.major() != plan.major() {
            let version = &found.version;
            anyhow::bail!("PostgreSQL {version} does not replay the WAL of {major}");
        }
        let user = ServerUser::choose()?;
        let (uid, gid) = user.ids();
        let options = GuardOptions::of_this_program(absolute(&self.work_dir)?, user);
        let mut guard = Guard::begin(&options, self.interrupt)?;
        let directory = guard.directory().join("redo");
        plan.write(&directory, uid, gid)?;
        // It runs no code of the cluster, but WAL may be damaged, or made to harm: where it can be, it is
        // confined.
        if Confinement::of_this_kernel().is_ok() {
            guard.confine(found.directories())?;
        }
        let arguments = RedoPlan::arguments(&directory);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let postgres = found.program("postgres")?;
        guard.spawn(NAME, &postgres, &arguments, &BTreeMap::new())?;
        guard.reap(NAME, REPLAY_MAX)?;
        let log = guard.program_log(NAME);
        show_if_told(&log);
        let log = pgtoll_system::read_to_string(&log, LOG_BYTES_MAX)?;
        let pages = plan.pages(&directory, &format!("PostgreSQL {}", found.version), &log);
        guard.finish()?;
        Ok(pages)
    }
}

const NAME: &str = "redo";
/// It logs a few lines.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// How long the server may take.
const REPLAY_MAX: Duration = Duration::from_secs(3600);
