//! repmgr: registers servers, watches them with a daemon each, and promotes a standby.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::cluster::{PORT, SUPERUSER, plain_path};
use crate::{Cluster, ClusterError, Guard, Installation, Origin, Output};

/// An installation of repmgr, which belongs to one of PostgreSQL.
#[derive(Clone, Debug)]
pub struct Repmgr {
    client: PathBuf,
    daemon: PathBuf,
    bin: PathBuf,
}

/// The settings of `repmgr.conf` that differ between nodes and topologies.
#[derive(Clone, Debug)]
pub struct RepmgrSettings {
    /// The node's number, from 1.
    pub node_id: u32,
    /// The directory in which others find the server's socket: that of a link in between; `None`: its own.
    pub host: Option<PathBuf>,
    /// It may be promoted (`priority`).
    pub may_be_promoted: bool,
    /// `monitor_interval_secs`: seconds between two looks at the primary.
    pub monitor_interval_s: u32,
    /// `reconnect_attempts`: looks at a primary that did not answer.
    pub reconnect_attempts: u32,
    /// `reconnect_interval`: seconds between these.
    pub reconnect_interval_s: u32,
    /// `pg_ctl promote` promotes: repmgr's own way looks once a second whether it is done.
    pub promotes_by_pg_ctl: bool,
    /// A command line that promotes this node.
    pub promote_command: String,
    /// A command line that is notified of events; `%n`, `%e` and `%s` are node, event and success.
    pub event_notification_command: String,
}

impl Repmgr {
    /// The database with repmgr's tables, which a primary must have before it is registered.
    pub const DATABASE: &str = "repmgr";

    /// The one beside this server. Debian's programs in `/usr/bin` are wrappers, and not used.
    pub fn from_installation(installation: &Installation) -> Result<Self, ClusterError> {
        let client = installation.bin.join("repmgr");
        let daemon = installation.bin.join("repmgrd");
        if client.is_file() && daemon.is_file() {
            return Ok(Self { client, daemon, bin: installation.bin.clone() });
        }
        let major = installation.version.major();
        // No wheel has repmgr; 15 is what Debian 12 has.
        let is_embedded = installation.origin == Origin::Embedded;
        let debian = 15;
        let packages = if is_embedded { debian } else { major };
        let also = if is_embedded {
            " (embedded servers have no repmgr), and name that server with --postgres"
        } else {
            ""
        };
        Err(ClusterError::NoEngine {
            program: "repmgr",
            place: format!("for PostgreSQL {major} in {}", installation.bin.display()),
            packages: format!("repmgr postgresql-{packages}-repmgr pgbouncer{also}"),
        })
    }

    /// Returns its version, as it reports it.
    pub fn version(&self, guard: &mut Guard) -> Result<String, ClusterError> {
        super::version(guard, &self.client)
    }

    /// The place of the program.
    pub fn program(&self) -> &PathBuf {
        &self.client
    }

    /// Writes a node's `repmgr.conf`. The server needs repmgr in `shared_preload_libraries`.
    pub fn node(
        &self,
        guard: &mut Guard,
        cluster: &Cluster,
        settings: &RepmgrSettings,
    ) -> Result<RepmgrNode, ClusterError> {
        let configuration = guard.directory().join(format!("{}.conf", cluster.name()));
        let host = settings.host.as_deref().unwrap_or(cluster.directory());
        let data = cluster.data();
        let directory = plain_path(host)?;
        let lines = [
            ("node_id", settings.node_id.to_string()),
            ("node_name", cluster.name().to_owned()),
            ("data_directory", plain_path(&data)?.to_owned()),
            ("pg_bindir", plain_path(&self.bin)?.to_owned()),
            (
                "conninfo",
                format!(
                    "host={directory} port={PORT} user={SUPERUSER} dbname={} connect_timeout=2",
                    Self::DATABASE
                ),
            ),
            ("failover", "automatic".to_owned()),
            ("priority", if settings.may_be_promoted { "100" } else { "0" }.to_owned()),
            ("connection_check_type", "ping".to_owned()),
            ("monitor_interval_secs", settings.monitor_interval_s.to_string()),
            ("reconnect_attempts", settings.reconnect_attempts.to_string()),
            ("reconnect_interval", settings.reconnect_interval_s.to_string()),
            ("promote_command", settings.promote_command.clone()),
            // repmgrd requires one; with two servers nobody is left to follow.
            ("follow_command", "/bin/true".to_owned()),
            ("event_notification_command", settings.event_notification_command.clone()),
            ("log_level", "INFO".to_owned()),
        ];
        let mut text = String::new();
        for (name, value) in lines {
            let _ = writeln!(text, "{name}='{value}'");
        }
        if settings.promotes_by_pg_ctl {
            let bin = self.bin.display();
            let data = data.display();
            let _ = writeln!(text, "service_promote_command='{bin}/pg_ctl -D {data} -w promote'");
        }
        guard.write(&configuration, text)?;
        let daemon = format!("repmgrd-{}", cluster.name());
        Ok(RepmgrNode { repmgr: self.clone(), configuration, daemon })
    }
}

/// A server that repmgr knows by a `repmgr.conf`.
#[derive(Clone, Debug)]
pub struct RepmgrNode {
    repmgr: Repmgr,
    configuration: PathBuf,
    daemon: String,
}

impl RepmgrNode {
    /// Runs `repmgr -f CONFIGURATION` with these arguments.
    pub fn run(&self, guard: &mut Guard, arguments: &[&str]) -> Result<Output, ClusterError> {
        let configuration = self.configuration.to_string_lossy();
        guard.run(&self.repmgr.client, &[&["-f", &*configuration], arguments].concat())
    }

    /// Its `repmgr.conf`.
    pub fn configuration(&self) -> &PathBuf {
        &self.configuration
    }

    /// The name of its daemon with the guard.
    pub fn daemon(&self) -> &str {
        &self.daemon
    }

    /// Starts its daemon. It watches when its event `repmgrd_start` is in `repmgr.events`.
    pub fn start_daemon(&self, guard: &mut Guard) -> Result<i32, ClusterError> {
        let configuration = self.configuration.to_string_lossy();
        let arguments = ["-f", &*configuration, "--daemonize=false", "--no-pid-file"];
        guard.spawn(&self.daemon, &self.repmgr.daemon, &arguments, &BTreeMap::new())
    }
}
