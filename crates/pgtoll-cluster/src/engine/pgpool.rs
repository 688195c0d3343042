//! Pgpool-II: the clients' way to a primary and its standbys, which sends reads to the latter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pgtoll_wire::{Config, Connection, UnixEndpoint};

use crate::cluster::{LONGEST_SOCKET_PATH, PORT, SUPERUSER, plain_path};
use crate::environment::find_daemon;
use crate::{Cluster, ClusterError, Guard, Output};

/// The program.
#[derive(Clone, Debug)]
pub struct Pgpool {
    program: PathBuf,
}

/// A server behind Pgpool-II.
#[derive(Clone, Copy, Debug)]
pub struct PgpoolNode<'a> {
    /// The server. Of a standby, its name is the `application_name` that it streams under.
    pub server: &'a Cluster,
    /// Its share of the reads, relative to the others'.
    pub weight: u32,
}

impl Pgpool {
    /// Debian's package with it.
    pub const PACKAGE: &str = "pgpool2";

    /// Each has a socket directory of its own, so all have the same port.
    pub const PORT: u16 = 9999;

    /// The one in `PATH`, or where daemons are.
    pub fn find() -> Result<Self, ClusterError> {
        find_daemon("pgpool").map(|program| Self { program }).ok_or_else(|| {
            ClusterError::NoEngine {
                program: "pgpool",
                place: "in PATH and /usr/sbin".to_owned(),
                packages: Self::PACKAGE.to_owned(),
            }
        })
    }

    /// Returns its version, such as `Pgpool-II 4.3.5`.
    pub fn version(&self, guard: &mut Guard) -> Result<String, ClusterError> {
        Ok(version_words(&super::version(guard, &self.program)?))
    }

    /// Starts one with room for `clients` connections, whose writes go to the first server. It takes
    /// them once [`RunningPgpool::connect`] succeeds.
    pub fn start(
        &self,
        guard: &mut Guard,
        name: &str,
        nodes: &[PgpoolNode<'_>],
        clients: u32,
    ) -> Result<RunningPgpool, ClusterError> {
        let directory = guard.directory().join(name);
        let pool = RunningPgpool { name: name.to_owned(), directory: directory.clone() };
        if pool.endpoint().socket_path().as_os_str().len() > LONGEST_SOCKET_PATH {
            return Err(ClusterError::PathTooLong { path: directory });
        }
        let place = plain_path(&directory)?;
        guard.run(Path::new("mkdir"), &[place])?;
        // From 4.4 on the socket's directory is another setting.
        let sockets = if is_before_4_4(&self.version(guard)?) {
            "socket_dir"
        } else {
            "unix_socket_directories"
        };
        let mut text = format!("{sockets} = '{place}'\n");
        for (setting, value) in settings(clients) {
            let _ = writeln!(text, "{setting} = {value}");
        }
        for setting in ["pcp_socket_dir", "wd_ipc_socket_dir", "logdir"] {
            let _ = writeln!(text, "{setting} = '{place}'");
        }
        let _ = writeln!(text, "pid_file_name = '{place}/pgpool.pid'");
        for (at, node) in nodes.iter().enumerate() {
            let host = plain_path(node.server.directory())?;
            let name = node.server.name();
            let weight = node.weight;
            let _ = write!(
                text,
                "backend_hostname{at} = '{host}'\nbackend_port{at} = {PORT}\n\
                 backend_weight{at} = {weight}\nbackend_application_name{at} = '{name}'\n\
                 backend_flag{at} = 'ALLOW_TO_FAILOVER'\n"
            );
        }
        let configuration = directory.join("pgpool.conf");
        guard.write(&configuration, text)?;
        // Both are read whatever the settings say.
        let others = ["pcp.conf", "pool_hba.conf"].map(|file| directory.join(file));
        for file in &others {
            guard.write(file, String::new())?;
        }
        let [pcp, hba] = others.map(|file| file.to_string_lossy().into_owned());
        let configuration = configuration.to_string_lossy();
        let arguments = ["-n", "-D", "-f", &configuration, "-F", &pcp, "-a", &hba];
        guard.spawn(name, &self.program, &arguments, &BTreeMap::new())?;
        Ok(pool)
    }

    /// Its settings that are not defaults, but for its servers and directories.
    pub fn settings(clients: u32) -> BTreeMap<String, String> {
        let own = settings(clients).into_iter();
        own.map(|(name, value)| (name.to_owned(), value.trim_matches('\'').to_owned())).collect()
    }
}

/// Sessions stay with one standby, as by default. A standby that dies is left out after a second, and taken
/// again when it streams.
fn settings(clients: u32) -> Vec<(&'static str, String)> {
    let quoted = |value: &str| format!("'{value}'");
    vec![
        ("auto_failback", "on".to_owned()),
        ("auto_failback_interval", "1".to_owned()),
        ("backend_clustering_mode", quoted("streaming_replication")),
        ("failover_command", quoted("")),
        ("failover_on_backend_error", "off".to_owned()),
        ("health_check_max_retries", "0".to_owned()),
        ("health_check_period", "1".to_owned()),
        ("health_check_timeout", "2".to_owned()),
        ("health_check_user", quoted(SUPERUSER)),
        ("listen_addresses", quoted("")),
        ("load_balance_mode", "on".to_owned()),
        ("max_pool", "1".to_owned()),
        ("num_init_children", clients.to_string()),
        ("pcp_listen_addresses", quoted("")),
        ("pool_passwd", quoted("")),
        ("port", Pgpool::PORT.to_string()),
        ("sr_check_database", quoted("postgres")),
        ("sr_check_period", "1".to_owned()),
        ("sr_check_user", quoted(SUPERUSER)),
    ]
}

/// Returns the version from a line like `pgpool-II version 4.3.5 (tamahomeboshi)`.
fn version_words(printed: &str) -> String {
    match version_numbers(printed) {
        Some(version) => format!("Pgpool-II {version}"),
        None => printed.to_owned(),
    }
}

fn version_numbers(words: &str) -> Option<&str> {
    words.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))
}

fn is_before_4_4(words: &str) -> bool {
    let mut numbers =
        version_numbers(words).into_iter().flat_map(|version_number| version_number.split('.'));
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    (next(), next()) < (Some(4), Some(4))
}

/// A Pgpool-II that was started.
#[derive(Clone, Debug)]
pub struct RunningPgpool {
    name: String,
    directory: PathBuf,
}

impl RunningPgpool {
    /// Returns the endpoint of its clients.
    pub fn endpoint(&self) -> UnixEndpoint {
        UnixEndpoint::new(&self.directory, Pgpool::PORT)
    }

    /// A connection through it, as the servers' superuser. Where it has no room for one more client it
    /// lets the client wait.
    pub fn connect(&self, at_most: Duration) -> Result<Connection, pgtoll_wire::Error> {
        let mut config = Config::new(self.endpoint(), SUPERUSER, "postgres");
        config.connect_timeout = Some(at_most);
        Connection::connect(&config)
    }

    /// Returns arguments with which PostgreSQL's client programs connect through it.
    pub fn client_arguments(&self) -> Vec<String> {
        let directory = self.directory.to_string_lossy();
        let port = Pgpool::PORT.to_string();
        ["-h", &*directory, "-p", &port, "-U", SUPERUSER].map(str::to_owned).to_vec()
    }

    /// How it ended; `None` while it runs.
    pub fn has_ended(&self, guard: &mut Guard) -> Result<Option<Output>, ClusterError> {
        guard.has_ended(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_and_compared() {
        let line = "pgpool-II version 4.3.5 (tamahomeboshi)";
        assert_eq!(version_words(line), "Pgpool-II 4.3.5");
        assert_eq!(version_words("nothing"), "nothing");
        let before = |version: &str| is_before_4_4(&format!("Pgpool-II {version}"));
        assert!(before("4.3.5") && before("3.7.1"));
        assert!(!before("4.4.0") && !before("4.10.1") && !before("5.0"));
    }
}
