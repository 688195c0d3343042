//! Patroni: a daemon beside each server, which starts it, makes it a primary or a standby, and holds
//! the leader's lock in etcd.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;

use super::{EngineDaemon, Etcd, PrivateNetwork};
use crate::cluster::{PORT, SUPERUSER, plain_path};
use crate::environment::find_program;
use crate::{Cluster, ClusterError, Guard};

/// The programs.
#[derive(Clone, Debug)]
pub struct Patroni {
    daemon: PathBuf,
    client: PathBuf,
}

/// The settings that differ between nodes and topologies.
#[derive(Clone, Debug)]
pub struct PatroniSettings {
    /// The number of the node's address.
    pub host: u8,
    /// The number of etcd's address.
    pub etcd: u8,
    /// `ttl`: seconds for which the leader's lock holds.
    pub ttl_s: u32,
    /// `loop_wait`: seconds between two looks.
    pub loop_wait_s: u32,
    /// `retry_timeout`: seconds for which etcd or the server may not answer.
    pub retry_timeout_s: u32,
    /// `primary_start_timeout`: seconds for which a primary that failed may recover.
    pub primary_start_timeout_s: u32,
    /// `synchronous_mode`.
    pub synchronous: bool,
    /// Settings of the servers.
    pub parameters: BTreeMap<String, String>,
}

impl Patroni {
    /// Debian's packages with all that is used beside it.
    pub const PACKAGES: [&str; 4] = ["patroni", "python3-etcd", "etcd-server", "haproxy"];
    /// The port of the interface for proxies, on each node's address.
    pub const REST_PORT: u16 = 8008;

    /// The one in `PATH`.
    pub fn find() -> Result<Self, ClusterError> {
        let find = |program: &'static str| {
            find_program(program).ok_or_else(|| ClusterError::NoEngine {
                program,
                place: "in PATH".to_owned(),
                packages: Self::PACKAGES.join(" "),
            })
        };
        Ok(Self { daemon: find("patroni")?, client: find("patronictl")? })
    }

    /// Returns its version, as it reports it.
    pub fn version(&self, guard: &mut Guard) -> Result<String, ClusterError> {
        Ok(super::version(guard, &self.daemon)?.replace("patroni ", "Patroni "))
    }

    /// Makes the node of a stopped server, or of one to be made.
    pub fn node(
        &self,
        guard: &mut Guard,
        network: &PrivateNetwork,
        cluster: &Cluster,
        settings: &PatroniSettings,
    ) -> Result<EngineDaemon, ClusterError> {
        let configuration = configuration_file(cluster);
        // JSON is YAML.
        let text = configuration_of(network, cluster, settings)?.to_string();
        guard.write(&configuration, text)?;
        Ok(EngineDaemon {
            network: network.clone(),
            host: settings.host,
            name: format!("patroni-{}", cluster.name()),
            program: self.daemon.clone(),
            arguments: vec![configuration.to_string_lossy().into_owned()],
            environment: BTreeMap::new(),
        })
    }

    /// Returns the log of the daemon beside this server.
    pub fn log(cluster: &Cluster) -> PathBuf {
        cluster.directory().join("patroni.log")
    }

    /// Returns the command of a planned switchover between nodes, run on a host of the network: a program, and
    /// its arguments.
    pub fn switchover(
        &self,
        network: &PrivateNetwork,
        host: u8,
        from: &Cluster,
        to: &Cluster,
    ) -> (PathBuf, Vec<String>) {
        let configuration = configuration_file(from);
        let configuration = configuration.to_string_lossy();
        let names = ["--leader", from.name(), "--candidate", to.name()];
        let arguments = [&["-c", &*configuration, "switchover"], &names[..], &["--force"]];
        network.command(host, &self.client, &arguments.concat())
    }
}

/// It goes with the cluster.
fn configuration_file(cluster: &Cluster) -> PathBuf {
    cluster.directory().join("patroni.yml")
}

/// Connections are trusted: the network namespace holds the run's own processes only.
const HBA: [&str; 4] = [
    "local all all trust",
    "host all all samenet trust",
    "local replication all trust",
    "host replication all samenet trust",
];

fn configuration_of(
    network: &PrivateNetwork,
    cluster: &Cluster,
    settings: &PatroniSettings,
) -> Result<serde_json::Value, ClusterError> {
    let address = network.address(settings.host);
    let rest = format!("{address}:{}", Patroni::REST_PORT);
    let server = format!("{address}:{PORT}");
    let data = cluster.data();
    let directory = plain_path(cluster.directory())?;
    let user = json!({ "username": SUPERUSER });
    Ok(json!({
        "scope": "pgtoll",
        "namespace": "/pgtoll/",
        "name": cluster.name(),
        // Times since 1970, which are read again.
        "log": {
            "level": "INFO",
            "format": "%(created).6f %(levelname)s: %(message)s",
            "dir": directory,
        },
        "restapi": { "listen": rest, "connect_address": rest },
        "etcd3": { "hosts": format!("{}:{}", network.address(settings.etcd), Etcd::PORT) },
        "bootstrap": { "dcs": {
            "ttl": settings.ttl_s,
            "loop_wait": settings.loop_wait_s,
            "retry_timeout": settings.retry_timeout_s,
            "primary_start_timeout": settings.primary_start_timeout_s,
            "synchronous_mode": settings.synchronous,
            "postgresql": {
                "use_pg_rewind": true,
                "use_slots": true,
                "parameters": settings.parameters,
            },
        } },
        "postgresql": {
            "listen": server,
            "connect_address": server,
            "data_dir": plain_path(&data)?,
            "bin_dir": plain_path(cluster.bin())?,
            "pgpass": format!("{directory}/pgpass"),
            "use_unix_socket": true,
            "basebackup": { "checkpoint": "fast" },
            "authentication": { "superuser": user, "replication": user, "rewind": user },
            "parameters": { "unix_socket_directories": directory },
            "pg_hba": HBA,
        },
    }))
}
