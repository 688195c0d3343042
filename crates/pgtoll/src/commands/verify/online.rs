//! The server that runs on a data directory: how it is found, and whether it is the right one.

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use pgtoll_datadir::DatadirError;
use pgtoll_datadir::{DataDirectory, Names, Postmaster, names_of_server};
use pgtoll_format::wal::RelationFiles;
use pgtoll_verify::{
    Files, Progress, RealPauses, RunningServer, RunningSettings, Verified, verify_running,
};
use pgtoll_wire::{Connection, Dsn, Environment, Error, UnixEndpoint};

use crate::commands::Usage;
use crate::commands::server_waits::ServerWaits;

/// A server that runs on a data directory.
#[derive(Debug)]
pub(crate) struct Attached {
    postmaster: Postmaster,
    /// A connection to it, until it is used.
    connection: Option<(Dsn, Connection)>,
    /// Why there is no connection.
    unasked: Option<String>,
    dsn: Option<Dsn>,
    /// What a reader has to know.
    pub(super) notes: Vec<String>,
}

/// Where the server has its data.
pub(super) fn data_directory(dsn: &Dsn) -> anyhow::Result<PathBuf> {
    let told = dsn.connect()?.query_one("SHOW data_directory");
    let path = match told.and_then(|row| row.text("data_directory").map(PathBuf::from)) {
        Ok(path) => path,
        Err(error) => {
            return Err(Usage::error(
                format!("the server does not tell its data directory: {error}"),
                "name it too: pgtoll verify PGDATA --dsn DSN; or connect as a member of \
                 pg_read_all_settings",
            ));
        }
    };
    if let Err(error) = std::fs::metadata(path.join("global/pg_control")) {
        return Err(Usage::error(
            format!("the server's data directory {} cannot be read: {error}", path.display()),
            "run pgtoll on the server's machine, as the files' owner",
        ));
    }
    Ok(path)
}

/// The server that runs on this directory, if one does, and a connection to it, if there is a way.
pub(crate) fn attach(
    data: &DataDirectory,
    dsn: Option<&Dsn>,
    waits: &ServerWaits,
) -> anyhow::Result<Option<Attached>> {
    let seen = data.server()?;
    if seen.is_none() && dsn.is_none() {
        return Ok(None);
    }
    // Of a server in another container the process is not seen, and its file is.
    let told = Postmaster::read(&data.path);
    let Some(postmaster) = told.filter(|of| seen.is_none_or(|pid| of.pid == pid)) else {
        return Err(no_server(data, seen, dsn));
    };
    let mut attached = Attached {
        postmaster: postmaster.clone(),
        connection: None,
        unasked: None,
        dsn: dsn.cloned(),
        notes: Vec::new(),
    };
    let connected = match dsn {
        Some(dsn) => Ok(with(dsn)?),
        None => by_socket(data, &postmaster, waits)?,
    };
    match connected {
        Ok((dsn, mut connection)) => {
            check_same(&mut connection, data, &postmaster, &dsn)?;
            attached.dsn = Some(dsn.clone());
            attached.connection = Some((dsn, connection));
        }
        Err(why) => {
            attached.notes.push(format!(
                "the server could not be asked ({why}): what only it can tell is unverified; name \
                 a connection with --dsn"
            ));
            attached.unasked = Some(why);
        }
    }
    Ok(Some(attached))
}

fn no_server(data: &DataDirectory, seen: Option<u32>, dsn: Option<&Dsn>) -> anyhow::Error {
    let path = data.path.display();
    match (seen, dsn) {
        (Some(pid), _) => Usage::error(
            format!("a server for one user runs on {path} (process {pid})"),
            "end it first, or verify again when it has ended",
        ),
        (None, dsn) => Usage::error(
            format!(
                "no server runs on {path}: {} is another one",
                dsn.map_or_else(String::new, Dsn::redacted)
            ),
            "name the data directory of that server, on its machine; a directory without a \
             server needs no --dsn",
        ),
    }
}

fn with(dsn: &Dsn) -> Result<(Dsn, Connection), Error> {
    Ok((dsn.clone(), dsn.connect()?))
}

/// The server at the socket that `postmaster.pid` names, or why it cannot be asked. The file is the
/// directory owner's: it gets no secret of who runs pgtoll, and nothing at all is said to a process
/// of another user.
fn by_socket(
    data: &DataDirectory,
    postmaster: &Postmaster,
    waits: &ServerWaits,
) -> anyhow::Result<Result<(Dsn, Connection), String>> {
    let Some(socket) = &postmaster.socket else { return Ok(Err("it has no socket".to_owned())) };
    let is_abstract = socket.to_string_lossy().starts_with('@');
    // The server may name it from where it is itself.
    let socket = if is_abstract { socket.clone() } else { data.path.join(socket) };
    let endpoint = UnixEndpoint::new(socket, postmaster.port);
    let owner = std::fs::metadata(&data.path).context("read the data directory")?.uid();
    // As who runs pgtoll; else as the role that nearly all servers have.
    let own = Environment::of_process().user;
    let roles = own.into_iter().filter(|own| own != ROLE).chain([ROLE.to_owned()]);
    let mut failures = Vec::new();
    for role in roles {
        let dsn = match Dsn::of_socket(&endpoint, &role, "postgres", owner) {
            Ok(dsn) => waits.of(&dsn),
            Err(error) => return Ok(Err(error.to_string())),
        };
        match with(&dsn) {
            Ok(connected) => return Ok(Ok(connected)),
            Err(error @ Error::Interrupted) => return Err(error.into()),
            Err(error @ Error::Peer { .. }) => return Err(not_the_owners(data, &error)),
            Err(error) => failures.push(error),
        }
    }
    let wants_password = |error: &&Error| matches!(error, Error::PasswordRequired);
    if let Some(error) = failures.iter().find(wants_password) {
        return Ok(Err(format!("{error}, and a socket that postmaster.pid names gets none")));
    }
    Ok(Err(failures.first().map_or_else(String::new, ToString::to_string)))
}

const ROLE: &str = "postgres";

fn not_the_owners(data: &DataDirectory, error: &Error) -> anyhow::Error {
    Usage::error(
        format!("{error}, the owner of {}: nothing was sent", data.path.display()),
        "if that is the server all the same, name the connection with --dsn",
    )
}

/// A copy of the cluster has the same identifier, and a standby may have the same path on another
/// machine.
fn check_same(
    connection: &mut Connection,
    data: &DataDirectory,
    postmaster: &Postmaster,
    dsn: &Dsn,
) -> anyhow::Result<()> {
    let row = connection.query_one(WHO)?;
    let cluster = row.parse::<i64>("system_identifier")?.cast_unsigned();
    let started = row.parse::<i64>("started")?;
    let is_same = cluster == data.control.system_identifier
        && started.abs_diff(postmaster.started) <= START_SECONDS;
    if is_same {
        return Ok(());
    }
    Err(Usage::error(
        format!("the server that runs on {} is not {dsn}", data.path.display()),
        "name the data directory of that server, on its machine",
    ))
}

impl Attached {
    /// Why the server cannot be asked; `None`: it can.
    pub(crate) fn unasked(&self) -> Option<&str> {
        self.unasked.as_deref()
    }

    /// The connection, without secrets.
    pub(super) fn server(&self) -> Option<&Dsn> {
        self.dsn.as_ref()
    }

    /// The server itself, with the connection, if there is one.
    pub(crate) fn server_of(
        &mut self,
        data: &DataDirectory,
        threads: usize,
    ) -> Result<RunningServer, Error> {
        RunningServer::new(data, self.postmaster.clone(), threads, self.connection.take())
    }

    pub(super) fn verify(
        &mut self,
        data: &DataDirectory,
        settings: &RunningSettings,
        wanted: &dyn Fn(RelationFiles) -> bool,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Verified, Error> {
        let threads = settings.verify.jobs.get();
        let mut server = self.server_of(data, threads)?;
        let pauses = RealPauses::default();
        Ok(verify_running(&Files, data, settings, &mut server, &pauses, wanted, progress))
    }

    /// What the server calls its relations, and of databases that take no connections what the
    /// files say.
    pub(crate) fn names(&mut self, data: &DataDirectory) -> Result<Names, DatadirError> {
        let of_files = Names::of_data_directory(&data.path);
        let Some(dsn) = &self.dsn else { return of_files };
        match names_of_server(dsn) {
            Ok(found) => {
                let mut names = of_files.unwrap_or_default();
                names.extend(found.names);
                self.notes.extend(found.missing);
                Ok(names)
            }
            Err(_) => of_files,
        }
    }
}

const WHO: &str = "\
    SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
        extract(epoch FROM pg_postmaster_start_time())::bigint AS started";
/// The two places where a server says when it was started differ by the time that it takes.
const START_SECONDS: u64 = 60;
