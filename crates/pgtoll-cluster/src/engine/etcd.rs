//! etcd: where Patroni keeps who is the leader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::PrivateNetwork;
use crate::cluster::plain_path;
use crate::environment::find_program;
use crate::process::tail;
use crate::{ClusterError, Guard};

/// The program.
#[derive(Clone, Debug)]
pub struct Etcd {
    program: PathBuf,
}

/// A member that was started, the only one of its cluster.
#[derive(Clone, Debug)]
pub struct RunningEtcd {
    name: String,
    directory: PathBuf,
}

impl Etcd {
    /// Its port, on an address of its own.
    pub const PORT: u16 = 2379;
    const PEER_PORT: u16 = 2380;

    /// The one in `PATH`. `packages`: Debian's packages with it, and with what is used beside it.
    pub fn find(packages: &str) -> Result<Self, ClusterError> {
        find_program("etcd").map(|program| Self { program }).ok_or_else(|| ClusterError::NoEngine {
            program: "etcd",
            place: "in PATH".to_owned(),
            packages: packages.to_owned(),
        })
    }

    /// Returns its version, as it reports it.
    pub fn version(&self, guard: &mut Guard) -> Result<String, ClusterError> {
        // `etcd Version: 3.4.23`
        Ok(super::version(guard, &self.program)?.replace(" Version:", ""))
    }

    /// Starts one at the network's address of this number. It takes requests once
    /// [`RunningEtcd::is_ready`].
    pub fn start(
        &self,
        guard: &mut Guard,
        network: &PrivateNetwork,
        number: u8,
    ) -> Result<RunningEtcd, ClusterError> {
        let directory = guard.directory().join("etcd");
        let place = plain_path(&directory)?;
        let address = network.address(number);
        let clients = format!("http://{address}:{}", Self::PORT);
        let peers = format!("http://{address}:{}", Self::PEER_PORT);
        let members = format!("dcs={peers}");
        let arguments = [
            ["--name", "dcs"],
            ["--data-dir", place],
            ["--listen-client-urls", &clients],
            ["--advertise-client-urls", &clients],
            ["--listen-peer-urls", &peers],
            ["--initial-advertise-peer-urls", &peers],
            ["--initial-cluster", &members],
        ];
        let etcd = RunningEtcd { name: "etcd".to_owned(), directory: directory.clone() };
        let arguments = arguments.as_flattened();
        network.spawn(guard, number, &etcd.name, &self.program, arguments, &BTreeMap::new())?;
        Ok(etcd)
    }
}

/// The bytes of its log that are read: its start logs less.
const LOG_BYTES: u64 = 1 << 16;

impl RunningEtcd {
    /// Whether it takes requests.
    pub fn is_ready(&self, guard: &mut Guard) -> Result<bool, ClusterError> {
        if let Some(ended) = guard.has_ended(&self.name)? {
            return Err(ClusterError::Program {
                program: self.name.clone(),
                status: ended.status,
                output: ended.tail,
            });
        }
        let log = tail(&guard.program_log(&self.name), LOG_BYTES);
        Ok(log.contains("serving") && log.contains("client requests"))
    }

    /// Ends it, and removes its directory.
    pub fn remove(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        guard.reap(&self.name, Duration::ZERO)?;
        guard.run(Path::new("rm"), &["-rf", &self.directory.to_string_lossy()])?;
        Ok(())
    }
}
