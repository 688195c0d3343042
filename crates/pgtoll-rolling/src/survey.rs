//! The state of the nodes. Nothing of it is remembered: it is read again before each step.

use std::net::ToSocketAddrs as _;
use std::time::Duration;

use pgtoll_format::Lsn;

use crate::site::{NodeConnection, NodeRow, NodeSite};
use crate::{NodeReport, RollingError};

/// The nodes, in the file's order.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    pub(crate) nodes: Vec<NodeState>,
}

/// A node's state.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    pub(crate) name: String,
    pub(crate) report: NodeReport,
    /// `None`: no server runs.
    pub(crate) server: Option<ServerState>,
}

/// The state of a node's server.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are a server's answers")]
pub(crate) struct ServerState {
    pub(crate) is_standby: bool,
    pub(crate) has_checksums: bool,
    pub(crate) major: u64,
    pub(crate) is_superuser: bool,
    pub(crate) wal_log_hints: bool,
    pub(crate) slot: String,
    pub(crate) restore_command: bool,
    pub(crate) apply_delay_ms: u64,
    /// `recovery_target_timeline` is `latest`.
    pub(crate) follows_timelines: bool,
    pub(crate) synchronous_standby_names: String,
    pub(crate) wal_keep_bytes: u64,
    pub(crate) wal_segment_bytes: u64,
    /// `None`: slots may keep any amount.
    pub(crate) slot_keep_bytes: Option<u64>,
    pub(crate) receiver: Option<ReceiverState>,
    pub(crate) logical_slots: Vec<String>,
    pub(crate) base_backups: u64,
    pub(crate) data_directory: String,
}

/// A standby's connection to its upstream.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverState {
    pub(crate) is_streaming: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// How long a server that is starting or stopping is waited for.
const READY_LIMIT: Duration = Duration::from_secs(60);

impl Survey {
    pub(crate) fn from_sites(sites: &[NodeSite]) -> Result<Self, RollingError> {
        let nodes = sites.iter().map(NodeState::from_site).collect::<Result<_, _>>()?;
        Ok(Self { nodes })
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Nodes whose server takes writes.
    pub(crate) fn primaries(&self) -> Vec<&NodeState> {
        self.nodes.iter().filter(|node| node.is_primary()).collect()
    }

    /// The only primary; `None`: there is none. An error where there are several.
    pub(crate) fn primary(&self) -> Result<Option<&NodeState>, RollingError> {
        match &self.primaries()[..] {
            [] => Ok(None),
            [primary] => Ok(Some(primary)),
            several => {
                let names: Vec<&str> = several.iter().map(|node| &*node.name).collect();
                Err(RollingError::State {
                    message: format!("several nodes take writes: {}", names.join(", ")),
                    hint: "stop all but one of them first; nothing was changed".to_owned(),
                })
            }
        }
    }
}

impl NodeState {
    fn from_site(site: &NodeSite) -> Result<Self, RollingError> {
        let name = site.name().to_owned();
        let report = site.report()?;
        let server = match report.server {
            None => None,
            Some(_) => match site.connect_within(READY_LIMIT) {
                Ok(mut connection) => Some(ServerState::from_connection(&mut connection)?),
                // It may have ended meanwhile.
                Err(error) => match site.report()? {
                    report if report.server.is_none() => {
                        return Ok(Self { name, report, server: None });
                    }
                    _ => return Err(error),
                },
            },
        };
        // The control file may have been read before the server's last change.
        let report = if server.is_some() { report } else { site.report()? };
        Ok(Self { name, report, server })
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.server.as_ref().is_some_and(|server| !server.is_standby)
    }

    pub(crate) fn is_standby(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.is_standby)
    }

    pub(crate) fn is_streaming(&self) -> bool {
        let receiver = self.server.as_ref().and_then(|server| server.receiver.as_ref());
        receiver.is_some_and(|receiver| receiver.is_streaming)
    }

    pub(crate) fn has_checksums(&self) -> bool {
        match &self.server {
            Some(server) => server.has_checksums,
            None => self.report.checksum_version == 1,
        }
    }
}

impl ServerState {
    fn from_connection(connection: &mut NodeConnection) -> Result<Self, RollingError> {
        let row = connection.row(SETTINGS)?;
        let receiver = connection.rows(RECEIVER)?.into_iter().next();
        let slots = connection.rows(LOGICAL_SLOTS)?;
        Ok(Self {
            is_standby: row.is_true("recovery")?,
            has_checksums: row.text_of_column("checksums")? == "on",
            major: row.number("version")? / 10_000,
            is_superuser: row.is_true("superuser")?,
            wal_log_hints: row.text_of_column("hints")? == "on",
            slot: row.text_of_column("slot")?,
            restore_command: row.is_true("restore")?,
            apply_delay_ms: row.number("delay_ms")?,
            follows_timelines: row.is_true("latest")?,
            synchronous_standby_names: row.text_of_column("sync_names")?,
            wal_keep_bytes: row.number("keep_mb")? << 20,
            wal_segment_bytes: row.number("segment_bytes")?,
            slot_keep_bytes: Some(row.number("slot_keep_mb")? << 20)
                .filter(|_| row.text_of_column("slot_keep_mb").is_ok_and(|text| text != "-1")),
            receiver: receiver.as_ref().map(ReceiverState::from_row).transpose()?,
            logical_slots: slots
                .iter()
                .map(|row| row.text_of_column("name"))
                .collect::<Result<_, _>>()?,
            base_backups: row.number("backups")?,
            data_directory: row.text_of_column("data")?,
        })
    }
}

impl ReceiverState {
    fn from_row(row: &NodeRow) -> Result<Self, RollingError> {
        Ok(Self {
            is_streaming: row.text_of_column("status")? == "streaming",
            host: row.text_of_column("host")?,
            port: u16::try_from(row.number("port")?).unwrap_or(0),
        })
    }

    /// Whether this is the server that the node's connection string names.
    pub(crate) fn is_from(&self, site: &NodeSite) -> bool {
        let endpoints = site.config.dsn.endpoints();
        let addresses = |host: &str, port: u16| {
            let found = (host, port).to_socket_addrs();
            found.map(Iterator::collect::<Vec<_>>).unwrap_or_default()
        };
        endpoints.iter().any(|(host, port)| {
            *port == self.port
                && (*host == self.host || {
                    let own = addresses(&self.host, self.port);
                    !host.starts_with('/')
                        && addresses(host, *port).iter().any(|address| own.contains(address))
                })
        })
    }
}

const SETTINGS: &str = "\
SELECT pg_is_in_recovery() AS recovery, current_setting('data_checksums') AS checksums, \
  current_setting('server_version_num') AS version, \
  (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser, \
  current_setting('wal_log_hints') AS hints, \
  coalesce(current_setting('primary_slot_name', true), '') AS slot, \
  coalesce(current_setting('restore_command', true), '') <> '' AS restore, \
  (SELECT setting FROM pg_settings WHERE name = 'recovery_min_apply_delay') AS delay_ms, \
  current_setting('recovery_target_timeline') = 'latest' AS latest, \
  current_setting('synchronous_standby_names') AS sync_names, \
  (SELECT setting FROM pg_settings WHERE name = 'wal_keep_size') AS keep_mb, \
  (SELECT setting FROM pg_settings WHERE name = 'wal_segment_size') AS segment_bytes, \
  (SELECT setting FROM pg_settings WHERE name = 'max_slot_wal_keep_size') AS slot_keep_mb, \
  (SELECT count(*) FROM pg_stat_progress_basebackup) AS backups, \
  current_setting('data_directory', true) AS data";

const RECEIVER: &str = "\
SELECT status, sender_host AS host, sender_port AS port FROM pg_stat_wal_receiver";

const LOGICAL_SLOTS: &str = "\
SELECT slot_name AS name FROM pg_replication_slots WHERE slot_type = 'logical' ORDER BY 1";

/// The position up to which a primary has flushed its WAL.
pub(crate) fn flush_position(connection: &mut NodeConnection) -> Result<Lsn, RollingError> {
    let row = connection.row("SELECT pg_current_wal_flush_lsn() AS lsn")?;
    Ok(row.text_of_column("lsn")?.parse().unwrap_or(Lsn(0)))
}
