//! The server's address, and the role to connect as.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The address, the role and the settings of a connection.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server's endpoint.
    pub endpoint: UnixEndpoint,
    /// The role to connect as.
    pub user: String,
    /// The database to connect to.
    pub database: String,
    /// The name of this connection in `pg_stat_activity` and the server's log.
    pub application_name: String,
    /// Sent only if the server asks for it.
    pub password: Option<Secret>,
    /// How long connecting may take, authentication included; forever if `None`.
    pub connect_timeout: Option<Duration>,
    /// Server settings for this connection, as names and values.
    pub options: Vec<(String, String)>,
}

impl Config {
    /// A configuration with neither password, nor time-out, nor settings.
    pub fn new(
        endpoint: UnixEndpoint,
        user: impl Into<String>,
        database: impl Into<String>,
    ) -> Self {
        Self {
            endpoint,
            user: user.into(),
            database: database.into(),
            application_name: "pgtoll".to_owned(),
            password: None,
            connect_timeout: None,
            options: Vec::new(),
        }
    }
}

/// The Unix socket that a server makes for its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixEndpoint {
    /// One of the server's `unix_socket_directories`.
    pub directory: PathBuf,
    /// The server's `port`, which names the socket file.
    pub port: u16,
}

impl UnixEndpoint {
    /// The endpoint of the server that has this socket directory and port.
    pub fn new(directory: impl Into<PathBuf>, port: u16) -> Self {
        Self { directory: directory.into(), port }
    }

    /// The socket file.
    pub fn socket_path(&self) -> PathBuf {
        self.directory.join(format!(".s.PGSQL.{}", self.port))
    }
}

/// A password, which `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a password.
    pub fn new(password: impl Into<String>) -> Self {
        Self(password.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_file_carries_the_port() {
        let endpoint = UnixEndpoint::new("/run/pg", 5433);
        assert_eq!(endpoint.socket_path(), PathBuf::from("/run/pg/.s.PGSQL.5433"));
    }

    #[test]
    fn debug_hides_the_password() {
        let mut config = Config::new(UnixEndpoint::new("/run/pg", 5432), "alice", "shop");
        config.password = Some(Secret::new("sesame"));
        let shown = format!("{config:?}");
        assert!(shown.contains("***") && !shown.contains("sesame"), "{shown}");
    }
}
