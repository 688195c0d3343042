//! Connection strings: what a user says of a server, completed as libpq completes it.

mod environment;
mod error;
mod files;
mod keywords;
mod relayed;
mod text;
mod values;

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use crate::dial::{Keepalives, check_peer, dial_tcp, dial_unix, has_socket, resolve};
use crate::error::hung_up;
use crate::handshake::{Binding, Startup};
use crate::stream::Stream;
use crate::tls::{SslMode, TlsSettings, TlsStream};
use crate::waiting::{time_left, wait_readable};
use crate::{Connection, Error, Interruption, ReplicationConnection, Secret, UnixEndpoint};
pub use environment::Environment;
pub use error::DsnError;
use files::Looked;
use keywords::KEYWORDS;
use values::{Values, keepalives, tls, value_error};

/// A server's address, role and settings: a connection string, completed from a service,
/// the environment and the defaults, in this order, as libpq does it.
///
/// Neither `Debug` nor `Display` shows a secret: both are [`redacted`](Self::redacted).
#[derive(Clone)]
pub struct Dsn {
    hosts: Vec<Host>,
    user: String,
    database: String,
    application_name: String,
    options: String,
    /// Settings of [`Self::with_settings`].
    settings: Vec<(String, String)>,
    password: Option<Secret>,
    password_file: Option<PathBuf>,
    connect_timeout: Option<Duration>,
    keepalives: Keepalives,
    tls: TlsSettings,
    binding: Binding,
    target: Target,
    /// The system's number of the user whose process must listen at the socket.
    peer: Option<u32>,
    interruption: Option<Interruption>,
    redacted: String,
}

/// One server that may be the one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    /// A name, an address, or the directory of a Unix socket.
    name: String,
    /// `hostaddr`: saves asking for the name's address.
    address: Option<String>,
    port: u16,
}

/// `target_session_attrs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

impl Dsn {
    /// Reads a connection string: a URI (`postgresql://…`), `key=value` pairs, or the name of a
    /// database. An empty one leaves everything to the environment and the defaults.
    ///
    /// Reads the process's environment, and the service's file if a service is named.
    pub fn parse(text: &str) -> Result<Self, DsnError> {
        Self::parse_in(text, &Environment::of_process())
    }

    /// [`parse`](Self::parse) in another environment than the process's.
    pub fn parse_in(text: &str, environment: &Environment) -> Result<Self, DsnError> {
        let values = Values::collect(text, environment)?;
        let hosts = hosts(&values)?;
        let user = match (values.given("user"), &environment.user) {
            (Some(user), _) => user.to_owned(),
            (None, Some(user)) => user.clone(),
            (None, None) => return Err(DsnError::NoUser),
        };
        let database = values.given("dbname").unwrap_or(&user).to_owned();
        let home = environment.home.as_ref();
        let password_file = match values.given("passfile") {
            Some(path) => Some(PathBuf::from(path)),
            None => home.map(|home| home.join(".pgpass")),
        };
        let application_name =
            values.given("application_name").or(values.given("fallback_application_name"));
        Ok(Self {
            redacted: redacted(&values, &hosts, &user, &database),
            hosts,
            user,
            database,
            application_name: application_name.unwrap_or("pgtoll").to_owned(),
            options: values.given("options").unwrap_or_default().to_owned(),
            settings: Vec::new(),
            password: values.given("password").map(Secret::new),
            password_file,
            connect_timeout: values
                .number::<i64>("connect_timeout")?
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|&seconds| seconds > 0)
                .map(Duration::from_secs),
            keepalives: keepalives(&values)?,
            tls: tls(&values, environment)?,
            binding: values.one_of("channel_binding", &BINDINGS)?.unwrap_or(Binding::Prefer),
            target: values.one_of("target_session_attrs", &TARGETS)?.unwrap_or(Target::Any),
            peer: None,
            interruption: None,
        })
    }

    /// A socket that a file names which is not the caller's: of a data directory's
    /// `postmaster.pid`. No password, service, variable of the environment, file of the home
    /// directory or certificate is used for it. Connecting fails with [`Error::Peer`], before
    /// anything is sent, unless the process that listens is of the user `owner`.
    pub fn of_socket(
        endpoint: &UnixEndpoint,
        user: &str,
        database: &str,
        owner: u32,
    ) -> Result<Self, DsnError> {
        let nothing = Environment { user: Some(user.to_owned()), ..Environment::default() };
        let mut dsn = Self::parse_in("", &nothing)?;
        // Not by a text: a directory with a comma in its name would be several hosts.
        let name = endpoint.directory.to_string_lossy().into_owned();
        dsn.hosts = vec![Host { name, address: None, port: endpoint.port }];
        database.clone_into(&mut dsn.database);
        dsn.redacted = redacted(&Values::default(), &dsn.hosts, user, database);
        dsn.connect_timeout = Some(FOUND_SOCKET_TIMEOUT);
        dsn.peer = Some(owner);
        Ok(dsn)
    }

    /// Its connections stop waiting, for good, when the interruption comes.
    #[must_use]
    pub fn with_interruption(&self, interruption: &Interruption) -> Self {
        Self { interruption: Some(interruption.clone()), ..self.clone() }
    }

    /// Connecting takes at most this long for each host, unless the connection string says how long.
    #[must_use]
    pub fn with_default_connect_timeout(&self, timeout: Duration) -> Self {
        Self { connect_timeout: self.connect_timeout.or(Some(timeout)), ..self.clone() }
    }

    /// The connection string in one line for records and logs: hosts, ports, database and user as
    /// they will be used, what else was set, and `***` for each secret. `options` count as secret,
    /// since they can set anything.
    pub fn redacted(&self) -> String {
        self.redacted.clone()
    }

    /// A connection string as `key=value` pairs, with these keys set (`Some`) or left out (`None`). Unlike
    /// what is [shown](Self::redacted) of one, it has its secrets.
    pub fn edited(text: &str, changes: &[(&str, Option<&str>)]) -> Result<String, DsnError> {
        let is_kept = |name: &str| changes.iter().all(|(changed, _)| *changed != name);
        let mut words: Vec<String> = text::read(text)?
            .into_iter()
            .filter(|(name, _)| is_kept(name))
            .map(|(name, value)| format!("{name}={}", text::quoted(&value)))
            .collect();
        let set = changes.iter().filter_map(|(name, value)| Some((name, (*value)?)));
        words.extend(set.map(|(name, value)| format!("{name}={}", text::quoted(value))));
        Ok(words.join(" "))
    }

    /// Hosts (names, addresses or directories of Unix sockets) with their ports, in the order in which
    /// they are tried.
    pub fn endpoints(&self) -> Vec<(String, u16)> {
        let host =
            |host: &Host| (host.address.clone().unwrap_or_else(|| host.name.clone()), host.port);
        self.hosts.iter().map(host).collect()
    }

    /// The role to connect as.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The database to connect to.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The same server and role, another database.
    #[must_use]
    pub fn with_database(&self, name: &str) -> Self {
        Self { database: name.to_owned(), ..self.clone() }
    }

    /// The same server and database, another role. The connection string's own password is that of its
    /// own role; another role's is looked for in the file of passwords.
    #[must_use]
    pub fn with_user(&self, name: &str) -> Self {
        let password = self.password.clone().filter(|_| name == self.user);
        Self { user: name.to_owned(), password, ..self.clone() }
    }

    /// The same, and each session begins with these settings. `options` are in place of the connection
    /// string's own.
    #[must_use]
    pub fn with_settings(&self, settings: impl IntoIterator<Item = (String, String)>) -> Self {
        let settings: Vec<_> = settings.into_iter().collect();
        let mut with = Self { settings, ..self.clone() };
        if with.settings.iter().any(|(name, _)| name == "options") {
            with.options.clear();
        }
        with
    }

    /// Connects to the first host that gives the session that is wanted.
    ///
    /// The next host is tried after one that cannot be reached, is not ready, or gives another kind
    /// of session, and not after one that refuses us. With one host its error is returned, with
    /// several [`Error::Hosts`].
    pub fn connect(&self) -> Result<Connection, Error> {
        self.open(Session::Sql)
    }

    /// Connects for physical replication. In `pg_hba.conf` and in the file of passwords that is
    /// the database `replication`.
    pub fn connect_replication(&self) -> Result<ReplicationConnection, Error> {
        self.open(Session::Replication).map(ReplicationConnection::new)
    }

    fn open(&self, session: Session) -> Result<Connection, Error> {
        let mut attempts = Vec::new();
        let targets: &[Target] = match self.target {
            Target::PreferStandby => &[Target::Standby, Target::Any],
            ref target => std::slice::from_ref(target),
        };
        for &target in targets {
            for host in &self.hosts {
                match self.open_at(host, session, target) {
                    Ok(connection) => return Ok(connection),
                    Err(error) if is_worth_another_host(&error) => {
                        attempts.push((host.shown(), Box::new(error)));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        match <[_; 1]>::try_from(attempts) {
            Ok([(_, error)]) => Err(*error),
            Err(attempts) => Err(Error::Hosts { attempts }),
        }
    }

    /// All addresses of a host in turn.
    fn open_at(&self, host: &Host, session: Session, target: Target) -> Result<Connection, Error> {
        let secret = self.secret(host, session);
        let password = match &secret {
            Some(Ok(password)) => Some(password),
            Some(Err(_)) | None => None,
        };
        let startup = self.startup(session, password);
        let connection = match self.place(host)? {
            Place::Unix(endpoint) => {
                let deadline = self.deadline();
                let stream = dial_unix(&endpoint, deadline, self.interruption.as_ref())?;
                if let Some(owner) = self.peer {
                    check_peer(&stream, &endpoint, owner)?;
                }
                let begun = Connection::begin(stream.into(), deadline, &startup);
                begun.map(|connection| connection.reached_at(endpoint))
            }
            Place::Tcp(addresses) => {
                let mut outcome = Err(Error::ConnectTimeout);
                for address in addresses {
                    outcome = self.open_tcp(host, address, &startup);
                    if !outcome.as_ref().is_err_and(is_worth_another_host) {
                        break;
                    }
                }
                outcome
            }
        };
        let mut connection = connection.map_err(|error| match (error, secret) {
            (Error::PasswordRequired, Some(Err(path))) => Error::PasswordFile { path },
            (error, _) => error,
        })?;
        if target.is_met_by(&mut connection)? {
            Ok(connection)
        } else {
            Err(Error::SessionKind { wanted: target.name() })
        }
    }

    fn place(&self, host: &Host) -> Result<Place, Error> {
        if self.peer.is_some() || host.is_unix() {
            return Ok(Place::Unix(UnixEndpoint::new(&host.name, host.port)));
        }
        let name = host.address.as_deref().unwrap_or(&host.name);
        resolve(name, host.port, self.interruption.as_ref()).map(Place::Tcp)
    }

    fn startup<'a>(&'a self, session: Session, password: Option<&'a Secret>) -> Startup<'a> {
        let mut options = Vec::new();
        if !self.options.is_empty() {
            options.push(("options", self.options.as_str()));
        }
        let settings = self.settings.iter();
        options.extend(settings.map(|(name, value)| (name.as_str(), value.as_str())));
        if session == Session::Replication {
            options.push(("replication", "true"));
        }
        Startup {
            user: &self.user,
            database: (session == Session::Sql).then_some(&self.database),
            application_name: &self.application_name,
            options,
            password,
            binding: self.binding,
            interruption: self.interruption.as_ref(),
        }
    }

    /// The password for a host, or the file that would have it and must not be used.
    fn secret(&self, host: &Host, session: Session) -> Option<Result<Secret, PathBuf>> {
        if let Some(password) = &self.password {
            return Some(Ok(password.clone()));
        }
        let path = self.password_file.as_ref()?;
        let database = match session {
            Session::Sql => &self.database,
            Session::Replication => "replication",
        };
        let port = host.port.to_string();
        match files::password(path, [host.name_for_password(), &port, database, &self.user]) {
            Looked::Found(password) => Some(Ok(Secret::new(password))),
            Looked::Exposed => Some(Err(path.clone())),
            Looked::Nothing => None,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.connect_timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// As `sslmode` has it, with TLS and without in the order of preference.
    fn open_tcp(
        &self,
        host: &Host,
        address: SocketAddr,
        startup: &Startup<'_>,
    ) -> Result<Connection, Error> {
        let attempt = |encrypt| self.attempt(host, address, startup, encrypt);
        let first = match self.tls.mode {
            SslMode::Disable | SslMode::Allow => attempt(Encrypt::No),
            SslMode::Prefer => attempt(Encrypt::IfOffered),
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => attempt(Encrypt::Yes),
        };
        let Err((error, encrypted)) = first else { return first.map_err(|(error, _)| error) };
        let second = match self.tls.mode {
            SslMode::Allow if is_rule(&error) => attempt(Encrypt::Yes),
            SslMode::Prefer if encrypted && (is_rule(&error) || is_tls(&error)) => {
                attempt(Encrypt::No)
            }
            _ => return Err(error),
        };
        // What the second attempt says counts, unless it is that there should be none.
        second.map_err(|(second, _)| {
            if is_rule(&second) || matches!(second, Error::NoTls) { error } else { second }
        })
    }

    /// One attempt. With an error comes whether TLS was in use.
    fn attempt(
        &self,
        host: &Host,
        address: SocketAddr,
        startup: &Startup<'_>,
        encrypt: Encrypt,
    ) -> Result<Connection, (Error, bool)> {
        let deadline = self.deadline();
        let plain = |error| (error, false);
        let interruption = self.interruption.as_ref();
        let mut socket =
            dial_tcp(address, &self.keepalives, deadline, interruption).map_err(plain)?;
        if encrypt != Encrypt::No {
            if offers_tls(&mut socket, deadline, interruption).map_err(plain)? {
                let secure = |error| (error, true);
                let config = self.tls.prepare(host.name()).map_err(secure)?;
                let name = host.name();
                let ip = address.ip();
                let stream = TlsStream::begin(socket, config, name, ip, deadline, interruption)
                    .map_err(secure)?;
                let stream = Stream::Tls(Box::new(stream));
                return Connection::begin(stream, deadline, startup).map_err(secure);
            }
            if encrypt == Encrypt::Yes {
                return Err(plain(Error::NoTls));
            }
        }
        Connection::begin(Stream::Tcp(socket), deadline, startup).map_err(plain)
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Dsn({})", self.redacted)
    }
}

impl fmt::Display for Dsn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.redacted)
    }
}

impl FromStr for Dsn {
    type Err = DsnError;

    fn from_str(text: &str) -> Result<Self, DsnError> {
        Self::parse(text)
    }
}

/// The kind of session of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    Sql,
    Replication,
}

/// Whether an attempt asks for TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encrypt {
    No,
    IfOffered,
    Yes,
}

/// The place of a host.
enum Place {
    Unix(UnixEndpoint),
    Tcp(Vec<SocketAddr>),
}

impl Host {
    fn is_unix(&self) -> bool {
        self.address.is_none() && self.name.starts_with(['/', '@'])
    }

    /// Returns the name that a certificate must have.
    fn name(&self) -> &str {
        match &self.address {
            Some(address) if self.name.is_empty() => address,
            _ => &self.name,
        }
    }

    /// In the file of passwords, the default sockets are at `localhost`.
    fn name_for_password(&self) -> &str {
        if SOCKET_DIRECTORIES.contains(&self.name.as_str()) { "localhost" } else { self.name() }
    }

    fn shown(&self) -> String {
        match self.name() {
            name if name.contains(':') => format!("[{name}]:{}", self.port),
            name => format!("{name}:{}", self.port),
        }
    }
}

/// A server on this machine answers sooner.
const FOUND_SOCKET_TIMEOUT: Duration = Duration::from_secs(10);

/// The default socket directories: of distributions' packages, and of builds from source.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

impl Target {
    fn name(self) -> &'static str {
        TARGETS.iter().find(|(_, target)| *target == self).map_or("any", |(name, _)| name)
    }

    fn is_met_by(self, connection: &mut Connection) -> Result<bool, Error> {
        if self == Self::Any {
            return Ok(true);
        }
        // Servers report both without being asked since version 14.
        let is_on = |value: &str| value == "on";
        let standby = if let Some(on) = connection.parameter("in_hot_standby").map(is_on) {
            on
        } else {
            let row = connection.query_one("SELECT pg_catalog.pg_is_in_recovery() AS standby")?;
            row.text("standby")? == "t"
        };
        let reported = connection.parameter("default_transaction_read_only").map(is_on);
        let read_only = if let Some(on) = reported {
            standby || on
        } else {
            let row = connection.query_one("SHOW transaction_read_only")?;
            row.text("transaction_read_only")? == "on"
        };
        Ok(match self {
            Self::Any | Self::PreferStandby => true,
            Self::ReadWrite => !read_only,
            Self::ReadOnly => read_only,
            Self::Primary => !standby,
            Self::Standby => standby,
        })
    }
}

const TARGETS: [(&str, Target); 6] = [
    ("any", Target::Any),
    ("read-write", Target::ReadWrite),
    ("read-only", Target::ReadOnly),
    ("primary", Target::Primary),
    ("standby", Target::Standby),
    ("prefer-standby", Target::PreferStandby),
];

const BINDINGS: [(&str, Binding); 3] =
    [("disable", Binding::Disable), ("prefer", Binding::Prefer), ("require", Binding::Require)];

/// Whether a server refused us by a rule of `pg_hba.conf`, which may be about TLS. A wrong password
/// is another thing: what failed over TLS must not be sent without.
fn is_rule(error: &Error) -> bool {
    matches!(error, Error::Server(error) if error.sqlstate == "28000")
}

fn is_tls(error: &Error) -> bool {
    matches!(error, Error::Tls { .. })
}

/// Whether another host may do better. One that refused us will do so everywhere.
fn is_worth_another_host(error: &Error) -> bool {
    match error {
        Error::Connect { .. }
        | Error::Resolve { .. }
        | Error::ConnectTimeout
        | Error::Closed { .. }
        | Error::SessionKind { .. } => true,
        // Starting up, recovering or shutting down.
        Error::Server(error) => error.sqlstate == "57P03",
        _ => false,
    }
}

/// Asks whether the server speaks TLS. No more than the one byte of the answer is read, so that
/// nothing that came in plain text can be taken for a part of the secured session.
fn offers_tls(
    socket: &mut TcpStream,
    deadline: Option<Instant>,
    interruption: Option<&Interruption>,
) -> Result<bool, Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::WouldBlock => Error::ConnectTimeout,
        _ if hung_up(&source) => Error::Closed { source: Some(source) },
        _ => Error::Io { action: "ask the server for TLS", source },
    };
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    socket.write_all(&request).map_err(failed)?;
    while !wait_readable(socket.as_fd(), time_left(deadline)?, interruption)? {}
    let mut answer = [0];
    match socket.read(&mut answer).map_err(failed)? {
        0 => Err(Error::Closed { source: None }),
        _ => match answer[0] {
            b'S' => Ok(true),
            b'N' => Ok(false),
            _ => Err(Error::protocol("neither yes nor no to TLS")),
        },
    }
}

/// The hosts with their ports: lists of the same length, or one port for all.
fn hosts(values: &Values) -> Result<Vec<Host>, DsnError> {
    let list = |name| values.given(name).map(|text| text.split(',').collect::<Vec<&str>>());
    let names = list("host");
    let addresses = list("hostaddr");
    let count = addresses.as_ref().or(names.as_ref()).map_or(1, Vec::len);
    let ports = list("port").unwrap_or_else(|| vec![""]);
    let fits = |actual: usize| actual == count;
    if names.as_ref().is_some_and(|names| !fits(names.len())) {
        return Err(DsnError::Counts { of: "host", hosts: count });
    }
    if ports.len() != 1 && !fits(ports.len()) {
        return Err(DsnError::Counts { of: "port", hosts: count });
    }
    (0..count)
        .map(|index| {
            let pick = |list: &Option<Vec<&str>>| {
                list.as_ref().map_or("", |list| list[index]).trim().to_owned()
            };
            let port = port(ports[if ports.len() == 1 { 0 } else { index }])?;
            let address = Some(pick(&addresses)).filter(|address| !address.is_empty());
            let name = match pick(&names) {
                name if name.is_empty() && address.is_none() => default_directory(port),
                name => name,
            };
            Ok(Host { name, address, port })
        })
        .collect()
}

fn port(text: &str) -> Result<u16, DsnError> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ if text.is_empty() => Ok(DEFAULT_PORT),
        _ => Err(value_error("port", "a number from 1 to 65535")),
    }
}

const DEFAULT_PORT: u16 = 5432;

/// Returns the socket directory of the server of this port: libpq knows only one directory, but
/// which one depends on who built it.
fn default_directory(port: u16) -> String {
    let has = |directory: &&&str| has_socket(&UnixEndpoint::new(**directory, port));
    let found = SOCKET_DIRECTORIES.iter().find(has);
    (*found.unwrap_or(&SOCKET_DIRECTORIES[0])).to_owned()
}

/// See [`Dsn::redacted`].
fn redacted(values: &Values, hosts: &[Host], user: &str, database: &str) -> String {
    let list =
        |each: &dyn Fn(&Host) -> String| hosts.iter().map(each).collect::<Vec<_>>().join(",");
    let words = KEYWORDS.iter().filter_map(|keyword| {
        let value = match keyword.name {
            "host" => list(&|host| host.name.clone()),
            "port" => list(&|host| host.port.to_string()),
            "dbname" => database.to_owned(),
            "user" => user.to_owned(),
            name if keyword.secret => values.given(name).map(|_| "***".to_owned())?,
            name => values.given(name)?.to_owned(),
        };
        (!value.is_empty()).then(|| format!("{}={}", keyword.name, text::quoted(&value)))
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
