//! The server that runs on a data directory: how it is found, and whether it is the right one.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pgtoll_wire::{Connection, Dsn, Environment, Error, Interruption, UnixEndpoint};

use crate::data_directory::DataDirectory;
use crate::error::DatadirError;
use crate::names::{Names, names_of_server};
use crate::postmaster::Postmaster;

/// A server that runs on a data directory.
#[derive(Debug)]
pub struct Attached {
    postmaster: Postmaster,
    /// A connection to it, until it is used.
    connection: Option<(Dsn, Connection)>,
    /// Why there is no connection.
    unasked: Option<String>,
    dsn: Option<Dsn>,
    notes: Vec<String>,
    standbys: Vec<String>,
}

/// Why there is no server to attach to, or not the one that was named. Errors of connections and
/// files are passed on as they are.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The role may not see the setting `data_directory`.
    #[error("the server does not report its data directory: {0}")]
    DataDirectoryHidden(String),
    /// The server's data directory is on another machine, or another user's.
    #[error("the server's data directory {} cannot be read: {error}", path.display())]
    DataDirectoryUnreadable {
        /// The directory, as the server calls it.
        path: PathBuf,
        /// The system's error.
        error: String,
    },
    /// A single-user server has no connections.
    #[error("a server for one user runs on {} (process {pid})", path.display())]
    SingleUser {
        /// The data directory.
        path: PathBuf,
        /// The server's process.
        pid: u32,
    },
    /// A connection was named, and nothing runs on the directory.
    #[error("no server runs on {}; {dsn} is a different server", path.display())]
    NoServer {
        /// The data directory.
        path: PathBuf,
        /// The connection, without secrets.
        dsn: String,
    },
    /// The process at the socket that `postmaster.pid` names is another user's.
    #[error("{error}, the owner of {}: nothing was sent", path.display())]
    NotTheOwners {
        /// The data directory.
        path: PathBuf,
        /// Whose process it is.
        error: String,
    },
    /// The named connection leads to a different server.
    #[error("the server that runs on {} is not {dsn}", path.display())]
    DifferentServer {
        /// The data directory.
        path: PathBuf,
        /// The connection, without secrets.
        dsn: String,
    },
    /// The directory's owner cannot be found out.
    #[error("read the data directory")]
    Owner(#[source] io::Error),
    /// `postmaster.pid` cannot be read.
    #[error(transparent)]
    Datadir(#[from] DatadirError),
    /// The server cannot be asked who it is.
    #[error(transparent)]
    Server(#[from] Error),
}

impl AttachError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::DataDirectoryHidden(_) => {
                "name it too: pgtoll verify PGDATA --dsn DSN; or connect as a member of \
                 pg_read_all_settings"
            }
            Self::DataDirectoryUnreadable { .. } => {
                "run pgtoll on the server's machine, as the files' owner"
            }
            Self::SingleUser { .. } => "end it first, or verify again when it has ended",
            Self::NoServer { .. } => {
                "name the data directory of that server, on its machine; a directory without a \
                 server needs no --dsn"
            }
            Self::NotTheOwners { .. } => {
                "if that is the server all the same, name the connection with --dsn"
            }
            Self::DifferentServer { .. } => {
                "name the data directory of that server, on its machine"
            }
            Self::Owner(_) => return None,
            Self::Datadir(error) => return error.hint(),
            Self::Server(error) => return error.hint(),
        };
        Some(hint.to_owned())
    }
}

/// The data directory of a server, which has to be on this machine.
pub fn data_directory_of(dsn: &Dsn) -> Result<PathBuf, AttachError> {
    let row = dsn.connect()?.query_one("SHOW data_directory");
    let path = row
        .and_then(|row| row.text("data_directory").map(PathBuf::from))
        .map_err(|error| AttachError::DataDirectoryHidden(error.to_string()))?;
    match std::fs::metadata(path.join("global/pg_control")) {
        Ok(_) => Ok(path),
        Err(error) => Err(AttachError::DataDirectoryUnreadable { path, error: error.to_string() }),
    }
}

impl Attached {
    /// The server that runs on this directory, and a connection to it, if there is a way; `None`:
    /// no server runs there, and no connection was named. `interruption` ends all waiting for the
    /// server.
    pub fn to(
        data: &DataDirectory,
        dsn: Option<&Dsn>,
        interruption: &Interruption,
    ) -> Result<Option<Self>, AttachError> {
        let process = data.server()?;
        if process.is_none() && dsn.is_none() {
            return Ok(None);
        }
        // Of a server in another container the process is not seen, and its file is.
        let postmaster = Postmaster::read(&data.path)
            .filter(|postmaster| process.is_none_or(|pid| postmaster.pid == pid))
            .ok_or_else(|| no_server(data, process, dsn))?;
        let connected = match dsn {
            Some(dsn) => Ok((dsn.clone(), dsn.connect()?)),
            None => connect_by_socket(data, &postmaster, interruption)?,
        };
        let (dsn, mut connection) = match connected {
            Ok(connected) => connected,
            Err(why) => return Ok(Some(Self::without_connection(postmaster, why))),
        };
        check_same(&mut connection, data, &postmaster, &dsn)?;
        let standbys = standbys_of(&mut connection);
        Ok(Some(Self {
            postmaster,
            connection: Some((dsn.clone(), connection)),
            unasked: None,
            dsn: Some(dsn),
            notes: Vec::new(),
            standbys,
        }))
    }

    fn without_connection(postmaster: Postmaster, why: String) -> Self {
        let note = format!(
            "the server could not be queried ({why}): pages that only it can judge are unverified; name a connection with --dsn"
        );
        let notes = vec![note];
        let standbys = Vec::new();
        Self { postmaster, connection: None, unasked: Some(why), dsn: None, notes, standbys }
    }

    /// Returns the addresses of its streaming standbys, as far as the role may see them.
    pub fn standbys(&self) -> &[String] {
        &self.standbys
    }

    /// Why the server cannot be asked; `None`: it can.
    pub fn unasked(&self) -> Option<&str> {
        self.unasked.as_deref()
    }

    /// The connection, without secrets.
    pub fn server(&self) -> Option<&Dsn> {
        self.dsn.as_ref()
    }

    /// The server's process, as its `postmaster.pid` names it.
    pub fn postmaster(&self) -> &Postmaster {
        &self.postmaster
    }

    /// Warnings for the reader of the results.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The connection, for one who keeps it; `None`: there is none, or it was taken.
    pub fn take_connection(&mut self) -> Option<(Dsn, Connection)> {
        self.connection.take()
    }

    /// Returns the server's names of relations, and of databases that take no connections what the
    /// files say.
    pub fn names(&mut self, data: &DataDirectory) -> Result<Names, DatadirError> {
        let from_files = Names::of_data_directory(&data.path);
        let Some(dsn) = &self.dsn else { return from_files };
        match names_of_server(dsn) {
            Ok(found) => {
                let mut names = from_files.unwrap_or_default();
                names.extend(found.names);
                self.notes.extend(found.missing);
                Ok(names)
            }
            Err(_) => from_files,
        }
    }
}

fn no_server(data: &DataDirectory, process: Option<u32>, dsn: Option<&Dsn>) -> AttachError {
    let path = data.path.clone();
    match process {
        Some(pid) => AttachError::SingleUser { path, pid },
        None => AttachError::NoServer { path, dsn: dsn.map_or_else(String::new, Dsn::redacted) },
    }
}

/// The server at the socket that `postmaster.pid` names, or why it cannot be asked. The file is the
/// directory owner's: it gets no secret of who runs pgtoll, and nothing at all is said to a process
/// of another user.
fn connect_by_socket(
    data: &DataDirectory,
    postmaster: &Postmaster,
    interruption: &Interruption,
) -> Result<Result<(Dsn, Connection), String>, AttachError> {
    let Some(socket) = &postmaster.socket else { return Ok(Err("it has no socket".to_owned())) };
    let endpoint = UnixEndpoint::new(socket_directory(&data.path, socket), postmaster.port);
    let owner = std::fs::metadata(&data.path).map_err(AttachError::Owner)?.uid();
    let mut failures = Vec::new();
    for role in roles(Environment::of_process().user) {
        let dsn = match Dsn::of_socket(&endpoint, &role, "postgres", owner) {
            Ok(dsn) => dsn.with_interruption(interruption),
            Err(error) => return Ok(Err(error.to_string())),
        };
        match dsn.connect() {
            Ok(connection) => return Ok(Ok((dsn, connection))),
            Err(error @ Error::Interrupted) => return Err(error.into()),
            Err(error @ Error::Peer { .. }) => {
                let path = data.path.clone();
                let error = error.to_string();
                return Err(AttachError::NotTheOwners { path, error });
            }
            Err(error) => failures.push(error),
        }
    }
    let wants_password = |error: &&Error| matches!(error, Error::PasswordRequired);
    if let Some(error) = failures.iter().find(wants_password) {
        return Ok(Err(format!("{error}, and a socket that postmaster.pid names gets none")));
    }
    Ok(Err(failures.first().map_or_else(String::new, ToString::to_string)))
}

/// The server may name its socket's directory from where it is itself.
fn socket_directory(data: &Path, socket: &Path) -> PathBuf {
    let is_abstract = socket.to_string_lossy().starts_with('@');
    if is_abstract { socket.to_owned() } else { data.join(socket) }
}

/// As who runs pgtoll; else as the role that nearly all servers have.
fn roles(own: Option<String>) -> impl Iterator<Item = String> {
    own.into_iter().filter(|own| own != ROLE).chain([ROLE.to_owned()])
}

const ROLE: &str = "postgres";

/// The addresses of standbys. None of it matters to a verification, so what cannot be told is left out.
fn standbys_of(connection: &mut Connection) -> Vec<String> {
    let rows = connection.query(STANDBYS).unwrap_or_default();
    rows.iter().filter_map(|row| row.values().first()?.clone()).collect()
}

/// Not subscribers, and not programs that store what they get.
const STANDBYS: &str = "SELECT DISTINCT host(client_addr) FROM pg_stat_replication r \
     WHERE client_addr IS NOT NULL AND state IN ('streaming', 'catchup') \
     AND application_name NOT IN ('pg_receivewal', 'pg_basebackup') \
     AND NOT EXISTS (SELECT FROM pg_replication_slots s \
         WHERE s.active_pid = r.pid AND s.slot_type = 'logical') ORDER BY 1";

/// A copy of the cluster has the same identifier, and a standby may have the same path on another
/// machine.
fn check_same(
    connection: &mut Connection,
    data: &DataDirectory,
    postmaster: &Postmaster,
    dsn: &Dsn,
) -> Result<(), AttachError> {
    let row = connection.query_one(WHO)?;
    let cluster = row.parse::<i64>("system_identifier")?.cast_unsigned();
    let started = row.parse::<i64>("started")?;
    if is_same(data.control.system_identifier, postmaster.started, cluster, started) {
        return Ok(());
    }
    Err(AttachError::DifferentServer { path: data.path.clone(), dsn: dsn.to_string() })
}

/// Whether a server with this cluster and start (seconds since 1970) is the one of the files.
fn is_same(system_identifier: u64, started: i64, cluster: u64, since: i64) -> bool {
    cluster == system_identifier && since.abs_diff(started) <= START_SECONDS
}

const WHO: &str = "\
    SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
        extract(epoch FROM pg_postmaster_start_time())::bigint AS started";
/// The two places where a server says when it was started differ by the time that it takes.
const START_SECONDS: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_the_same_by_cluster_and_start() {
        assert!(is_same(7, 1_763_800_000, 7, 1_763_800_060));
        assert!(is_same(7, 1_763_800_000, 7, 1_763_799_940));
        assert!(!is_same(7, 1_763_800_000, 7, 1_763_800_061), "restarted, or a standby");
        assert!(!is_same(7, 1_763_800_000, 8, 1_763_800_000), "another cluster");
    }

    #[test]
    fn the_socket_is_found_from_the_data_directory() {
        let check = |socket: &str, expected: &str| {
            assert_eq!(
                socket_directory(Path::new("/data"), Path::new(socket)),
                Path::new(expected)
            );
        };
        check("/run/postgresql", "/run/postgresql");
        check("sockets", "/data/sockets");
        check("@abstract", "@abstract");
    }

    #[test]
    fn each_role_is_tried_once() {
        let check = |own: Option<&str>, expected: &[&str]| {
            assert_eq!(roles(own.map(str::to_owned)).collect::<Vec<_>>(), expected);
        };
        check(Some("ada"), &["ada", "postgres"]);
        check(Some("postgres"), &["postgres"]);
        check(None, &["postgres"]);
    }

    #[test]
    fn no_server_where_one_was_named_says_which() {
        let error = AttachError::NoServer { path: "/data".into(), dsn: "host=db".into() };
        assert_eq!(error.to_string(), "no server runs on /data; host=db is a different server");
    }
}
