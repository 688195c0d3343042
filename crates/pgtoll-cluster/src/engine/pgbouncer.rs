//! PgBouncer: the clients' way to whichever server is the primary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pgtoll_wire::{Config, Connection, UnixEndpoint};

use crate::cluster::{PORT, SUPERUSER, plain_path};
use crate::environment::find_daemon;
use crate::{ClusterError, Guard};

/// The program.
#[derive(Clone, Debug)]
pub struct Pgbouncer {
    program: PathBuf,
}

impl Pgbouncer {
    /// Each has a socket directory of its own, so all have the same port.
    pub const PORT: u16 = 6432;

    /// The one in `PATH`, or where daemons are. `packages`: Debian's packages with it, and with what is
    /// used beside it.
    pub fn find(packages: &str) -> Result<Self, ClusterError> {
        find_daemon("pgbouncer").map(|program| Self { program }).ok_or_else(|| {
            ClusterError::NoEngine {
                program: "pgbouncer",
                place: "in PATH and /usr/sbin".to_owned(),
                packages: packages.to_owned(),
            }
        })
    }

    /// Returns its version, as it reports it.
    pub fn version(&self, guard: &mut Guard) -> Result<String, ClusterError> {
        super::version(guard, &self.program)
    }

    /// Starts one that leads a database's clients to the server with its socket in this directory, by
    /// transaction. It takes them once [`RunningPgbouncer::console`] can connect.
    pub fn start(
        &self,
        guard: &mut Guard,
        name: &str,
        database: &str,
        server: &Path,
    ) -> Result<RunningPgbouncer, ClusterError> {
        let directory = guard.directory().join(name);
        let place = plain_path(&directory)?;
        guard.run(Path::new("mkdir"), &[place])?;
        let pooler = RunningPgbouncer {
            name: name.to_owned(),
            database: database.to_owned(),
            directory: directory.clone(),
        };
        guard.write(&pooler.databases_file(), pooler.databases(server)?)?;
        guard.write(&directory.join("users.txt"), format!("\"{SUPERUSER}\" \"\"\n"))?;
        let configuration = directory.join("pgbouncer.ini");
        let text = format!(
            "%include {place}/databases.ini\n\
             [pgbouncer]\n\
             listen_addr =\n\
             listen_port = {}\n\
             unix_socket_dir = {place}\n\
             auth_type = trust\n\
             auth_file = {place}/users.txt\n\
             admin_users = {SUPERUSER}\n\
             pool_mode = transaction\n\
             default_pool_size = 100\n\
             server_connect_timeout = 2\n\
             server_login_retry = 0.2\n\
             server_fast_close = 1\n\
             server_check_delay = 0\n\
             server_check_query = select 1\n\
             query_wait_timeout = 120\n",
            Self::PORT
        );
        guard.write(&configuration, text)?;
        self.spawn(guard, &pooler)?;
        Ok(pooler)
    }

    /// Starts one again if it has ended, as it was configured.
    pub fn restart_ended(
        &self,
        guard: &mut Guard,
        pooler: &RunningPgbouncer,
    ) -> Result<(), ClusterError> {
        if guard.has_ended(&pooler.name)?.is_some() {
            guard.reap(&pooler.name, Duration::ZERO)?;
            self.spawn(guard, pooler)?;
        }
        Ok(())
    }

    fn spawn(&self, guard: &mut Guard, pooler: &RunningPgbouncer) -> Result<(), ClusterError> {
        let configuration = pooler.directory.join("pgbouncer.ini");
        let arguments = ["-q", &*configuration.to_string_lossy()];
        guard.spawn(&pooler.name, &self.program, &arguments, &BTreeMap::new())?;
        Ok(())
    }
}

/// A PgBouncer that was started.
#[derive(Clone, Debug)]
pub struct RunningPgbouncer {
    name: String,
    database: String,
    directory: PathBuf,
}

impl RunningPgbouncer {
    /// Its name with the guard.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the directory of its socket and configuration.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file that says where its database is. To be replaced as a whole, then `RELOAD`.
    pub fn databases_file(&self) -> PathBuf {
        self.directory.join("databases.ini")
    }

    /// Returns the text of that file for clients of the server with its socket in this directory.
    pub fn databases(&self, server: &Path) -> Result<String, ClusterError> {
        let database = &self.database;
        let host = plain_path(server)?;
        Ok(format!(
            "[databases]\n{database} = host={host} port={PORT} dbname={database} user={SUPERUSER}\n"
        ))
    }

    /// A connection to its console, which takes `PAUSE`, `RELOAD` and the like.
    pub fn console(&self) -> Result<Connection, ClusterError> {
        let endpoint = UnixEndpoint::new(&self.directory, Pgbouncer::PORT);
        let mut config = Config::new(endpoint, SUPERUSER, "pgbouncer");
        config.connect_timeout = Some(Duration::from_secs(5));
        Connection::connect(&config)
            .map_err(|source| ClusterError::Connect { name: self.name.clone(), source })
    }

    /// Ends it, and removes its directory.
    pub fn remove(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        guard.reap(&self.name, Duration::ZERO)?;
        guard.run(Path::new("rm"), &["-r", &self.directory.to_string_lossy()])?;
        Ok(())
    }
}
