//! A receiver of the primary's WAL beside the standby, as an archive has it, which is to hang.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pgtoll_cluster::{Cluster, Guard};

use super::context::RunContext;
use super::error::FailoverError;
use super::servers::until;

/// Its program, and so its `application_name`.
const PROGRAM: &str = "pg_receivewal";

/// `pg_receivewal`, running.
pub(super) struct WalReceiver {
    directory: PathBuf,
}

impl WalReceiver {
    /// Its name with the guard.
    pub(super) const NAME: &str = "receiver";

    /// Starts one, and waits until it streams.
    pub(super) fn start(
        context: &RunContext<'_>,
        primary: &Cluster,
    ) -> Result<Self, FailoverError> {
        let directory = {
            let mut guard = pgtoll_system::lock(context.guard);
            let directory = guard.directory().join("received");
            let path = directory.to_string_lossy().into_owned();
            guard.run(Path::new("mkdir"), &[&path])?;
            let socket = primary.directory().to_string_lossy();
            let arguments =
                ["-D", &path, "-h", &*socket, "-p", "5432", "-U", "postgres", "-w", "-n"];
            let program = context.installation.program(PROGRAM)?;
            guard.spawn(Self::NAME, &program, &arguments, &BTreeMap::new())?;
            directory
        };
        let mut connection = primary.connect("postgres")?;
        let sql = format!(
            "SELECT coalesce(string_agg(state, ', '), 'not connected') AS state \
             FROM pg_stat_replication WHERE application_name = '{PROGRAM}'"
        );
        until("pg_receivewal did not stream", context.interrupt, || {
            if let Some(ended) = pgtoll_system::lock(context.guard).has_ended(Self::NAME)? {
                return Ok(Some(ended.tail));
            }
            let state = connection.query_one(&sql)?.text("state")?.to_owned();
            Ok((state != "streaming").then_some(state))
        })?;
        connection.close();
        Ok(Self { directory })
    }

    /// Ends it and removes what it received.
    pub(super) fn remove(self, guard: &mut Guard) -> Result<(), FailoverError> {
        guard.reap(Self::NAME, Duration::ZERO)?;
        guard.run(Path::new("rm"), &["-rf", &self.directory.to_string_lossy()])?;
        Ok(())
    }
}
