//! A program of an engine beside a server, which starts and ends the server by itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::PrivateNetwork;
use crate::{Cluster, ClusterError, Guard, Output, ProgramSignal};

/// A daemon that can be started again, in a network of its topology's own.
#[derive(Clone, Debug)]
pub struct EngineDaemon {
    pub(super) network: PrivateNetwork,
    /// The number of its host's address.
    pub(super) host: u8,
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
}

/// A shutdown takes a checkpoint.
const STOP_LIMIT: Duration = Duration::from_secs(60);

impl EngineDaemon {
    /// Its name with the guard.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts it.
    pub fn start(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let Self { network, host, name, program, environment, .. } = self;
        network.spawn(guard, *host, name, program, &arguments, environment)?;
        Ok(())
    }

    /// Starts it where it does not run. Whether it did.
    pub fn start_ended(&self, guard: &mut Guard) -> Result<bool, ClusterError> {
        match guard.has_ended(&self.name) {
            Ok(None) => return Ok(false),
            Ok(Some(_)) => {
                guard.reap(&self.name, Duration::ZERO)?;
            }
            // It was reaped.
            Err(ClusterError::Guard { .. }) => {}
            Err(error) => return Err(error),
        }
        self.start(guard)?;
        Ok(true)
    }

    /// An error with its words where it has ended.
    pub fn check(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        match guard.has_ended(&self.name)? {
            None => Ok(()),
            Some(Output { status, tail, .. }) => {
                let program = self.name.clone();
                Err(ClusterError::Program { program, status, output: tail })
            }
        }
    }

    /// Ends it; it shuts its server down before.
    pub fn stop(&self, guard: &mut Guard) -> Result<Output, ClusterError> {
        guard.signal(&self.name, ProgramSignal::Terminate)?;
        guard.reap(&self.name, STOP_LIMIT)
    }

    /// Kills it and the server that it looks after. What has ended before is no error.
    pub fn kill_with(&self, guard: &mut Guard, server: &Cluster) {
        // Frozen, it starts no other server.
        let _ = guard.signal(&self.name, ProgramSignal::Stop);
        let _ = server.kill_managed(guard);
        let _ = guard.reap(&self.name, Duration::ZERO);
    }
}
