//! `pg_auto_failover`: a monitor that decides, and a daemon beside each server that starts it and makes
//! it what the monitor decided.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pgtoll_wire::{Config, Connection, UnixEndpoint};

use super::{EngineDaemon, PrivateNetwork};
use crate::cluster::{PORT, SUPERUSER, plain_path};
use crate::environment::find_program;
use crate::{Cluster, ClusterError, Guard, Installation, Origin};

/// The program, and the server that has its extension.
#[derive(Clone, Debug)]
pub struct AutoFailover {
    program: PathBuf,
    bin: PathBuf,
}

/// The settings that differ between nodes and topologies.
#[derive(Clone, Copy, Debug)]
pub struct AutoFailoverSettings {
    /// The number of the node's address.
    pub host: u8,
    /// The number of the monitor's address.
    pub monitor: u8,
    /// `replication-quorum`: commits wait for the standby.
    pub synchronous: bool,
}

impl AutoFailover {
    /// The monitor's database.
    const DATABASE: &str = "pg_auto_failover";
    /// The monitor's server listens on all addresses, so it has a port of its own.
    const MONITOR_PORT: u16 = 6000;

    /// The one in `PATH`, for this server, which must have its extension.
    pub fn from_installation(installation: &Installation) -> Result<Self, ClusterError> {
        let major = installation.version.major();
        // No wheel has the extension; 15 is what Debian 12 has.
        let is_embedded = installation.origin == Origin::Embedded;
        let packages = if is_embedded { 15 } else { major };
        let missing = |program, place| ClusterError::NoEngine {
            program,
            place,
            packages: Self::packages(packages).join(" "),
        };
        let program = find_program("pg_autoctl")
            .ok_or_else(|| missing("pg_autoctl", "in PATH".to_owned()))?;
        let directory = installation.bin.parent().unwrap_or(Path::new("/")).join("lib");
        if !directory.join("pgautofailover.so").is_file() {
            let place = format!("for PostgreSQL {major} in {}", directory.display());
            return Err(missing("pg_auto_failover", place));
        }
        Ok(Self { program, bin: installation.bin.clone() })
    }

    /// Debian's packages, for a server of this major version.
    pub fn packages(major: u32) -> [String; 2] {
        ["pg-auto-failover-cli".to_owned(), format!("postgresql-{major}-auto-failover")]
    }

    /// Returns its version, as it reports it.
    pub fn version(&self, guard: &mut Guard) -> Result<String, ClusterError> {
        let printed = guard.run(&self.program, &["version"])?.tail;
        Ok(version_words(&printed))
    }

    /// Makes a monitor in an empty cluster's directory, and what runs it.
    pub fn monitor(
        &self,
        guard: &mut Guard,
        network: &PrivateNetwork,
        cluster: &Cluster,
        host: u8,
    ) -> Result<EngineDaemon, ClusterError> {
        let address = network.address(host).to_string();
        let port = Self::MONITOR_PORT.to_string();
        let own = ["--hostname", &address, "--pgport", &port];
        let daemon = self.create(guard, network, host, cluster, "monitor", &own)?;
        let_network_in(guard, cluster)?;
        Ok(daemon)
    }

    /// A connection to a monitor's database as its superuser, who is named as the servers' user is.
    pub fn connect_to_monitor(
        &self,
        monitor: &Cluster,
        role: &str,
    ) -> Result<Connection, pgtoll_wire::Error> {
        let endpoint = UnixEndpoint::new(monitor.directory(), Self::MONITOR_PORT);
        let mut config = Config::new(endpoint, role, Self::DATABASE);
        config.connect_timeout = Some(Duration::from_secs(5));
        Connection::connect(&config)
    }

    /// Makes a node of a stopped server, or in an empty cluster's directory, and what runs it. The
    /// monitor must run.
    pub fn node(
        &self,
        guard: &mut Guard,
        network: &PrivateNetwork,
        cluster: &Cluster,
        settings: AutoFailoverSettings,
    ) -> Result<EngineDaemon, ClusterError> {
        let_network_in(guard, cluster)?;
        let address = network.address(settings.host).to_string();
        let monitor = format!(
            "postgres://autoctl_node@{}:{}/{}",
            network.address(settings.monitor),
            Self::MONITOR_PORT,
            Self::DATABASE
        );
        let quorum = settings.synchronous.to_string();
        let port = PORT.to_string();
        let own = [
            ["--pgport", &port],
            ["--hostname", &address],
            ["--listen", &address],
            ["--pghost", plain_path(cluster.directory())?],
            ["--name", cluster.name()],
            ["--username", SUPERUSER],
            ["--dbname", "postgres"],
            ["--monitor", &monitor],
            ["--replication-quorum", &quorum],
        ];
        self.create(guard, network, settings.host, cluster, "postgres", own.as_flattened())
    }

    fn create(
        &self,
        guard: &mut Guard,
        network: &PrivateNetwork,
        host: u8,
        cluster: &Cluster,
        kind: &str,
        own: &[&str],
    ) -> Result<EngineDaemon, ClusterError> {
        let data = cluster.data();
        let control = self.bin.join("pg_ctl");
        let data = plain_path(&data)?;
        let control = plain_path(&control)?;
        let place = ["--pgctl", control, "--pgdata", data];
        // `let_network_in` lets everybody in who is in the network; editing that needs host names.
        let access = ["--skip-pg-hba", "--no-ssl"];
        let arguments = [&["create", kind], &place[..], &access, own].concat();
        let environment = environment(cluster)?;
        network.run(guard, host, &self.program, &arguments, &environment)?;
        Ok(EngineDaemon {
            network: network.clone(),
            host,
            name: format!("pg_autoctl-{}", cluster.name()),
            program: self.program.clone(),
            arguments: ["run", "--pgdata", data].map(str::to_owned).to_vec(),
            environment,
        })
    }

    /// Returns the program and arguments of a planned switchover, for a host of the network.
    pub fn switchover(
        &self,
        network: &PrivateNetwork,
        host: u8,
        cluster: &Cluster,
    ) -> Result<(PathBuf, Vec<String>), ClusterError> {
        let data = cluster.data();
        let program = self.program.to_string_lossy();
        let variables = environment(cluster)?;
        let variables: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let own = [&*program, "perform", "switchover", "--pgdata", plain_path(&data)?];
        let arguments: Vec<&str> = variables.iter().map(String::as_str).chain(own).collect();
        Ok(network.command(host, Path::new("/usr/bin/env"), &arguments))
    }
}

/// Lets everybody in who is in the server's network: it holds the run's own processes only. A standby that
/// is still to be made gets this from its primary.
fn let_network_in(guard: &mut Guard, cluster: &Cluster) -> Result<(), ClusterError> {
    let file = cluster.data().join("pg_hba.conf");
    let script = "if [ -f \"$1\" ]; then printf '%s\\n' 'host all all samenet trust' \
                  'host replication all samenet trust' >> \"$1\"; fi";
    guard.run(Path::new("/bin/sh"), &["-c", script, "sh", plain_path(&file)?])?;
    Ok(())
}

/// Its files and the server's socket are in the cluster's directory, and go with that.
fn environment(cluster: &Cluster) -> Result<BTreeMap<String, String>, ClusterError> {
    let directory = plain_path(cluster.directory())?;
    let variables = [
        ("XDG_CONFIG_HOME", format!("{directory}/config")),
        ("XDG_DATA_HOME", format!("{directory}/state")),
        ("XDG_RUNTIME_DIR", format!("{directory}/run")),
        // Where it lets the server make its socket.
        ("PG_REGRESS_SOCK_DIR", directory.to_owned()),
    ];
    Ok(variables.map(|(name, value)| (name.to_owned(), value)).into())
}

/// Returns the version from lines like `pg_autoctl version 2.0`.
fn version_words(printed: &str) -> String {
    let line = printed.lines().next().unwrap_or_default().trim();
    let version = line.rsplit(' ').next().unwrap_or(line);
    format!("pg_auto_failover {version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_last_word_of_the_first_line() {
        let printed = "pg_autoctl version 2.0\npg_autoctl extension version 2.0\n";
        assert_eq!(version_words(printed), "pg_auto_failover 2.0");
    }
}
