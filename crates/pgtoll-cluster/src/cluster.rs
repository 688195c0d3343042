//! One cluster: a data directory and the server that runs on it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use pgtoll_format::{MajorFacts, ServerVersion};
use pgtoll_wire::{Config, Connection, UnixEndpoint};

use crate::difference;
use crate::error::{last_words, since_last_start};
use crate::leftover::live_postmaster;
use crate::process::tail;
use crate::{
    ClusterError, Difference, Guard, Installation, LaunchState, MemoryGroup, ServerProcesses,
    StopMode, Usage,
};

/// The longest path of a socket that Linux takes is 107 bytes.
pub(crate) const LONGEST_SOCKET_PATH: usize = 107;
/// Every cluster has a socket directory of its own, so all can have the same port.
pub(crate) const PORT: u16 = 5432;
pub(crate) const SUPERUSER: &str = "postgres";
/// The bytes of a log that are kept: a failed start writes less.
const LOG_TAIL: u64 = 8192;

/// A cluster in the guard's working directory. Its server listens on a Unix socket only, in a
/// directory that only the servers' user (and root) can enter.
#[derive(Clone, Debug)]
pub struct Cluster {
    name: String,
    installation: Installation,
    directory: PathBuf,
}

impl Cluster {
    /// Makes a cluster with `initdb`. `name` becomes a directory's name. It is not synced to disk, and
    /// no more are [copies](Self::copy): nobody misses it after a crash of the machine, and syncing a
    /// thousand files one by one takes a second and more.
    pub fn init(
        guard: &mut Guard,
        installation: &Installation,
        name: &str,
        checksums: bool,
    ) -> Result<Self, ClusterError> {
        Self::init_with(guard, installation, name, checksums, &[])
    }

    /// Makes a cluster as [`Cluster::init`] does, with more options of `initdb`
    /// (`--wal-segsize=64`).
    pub fn init_with(
        guard: &mut Guard,
        installation: &Installation,
        name: &str,
        checksums: bool,
        options: &[&str],
    ) -> Result<Self, ClusterError> {
        let facts = installation.version.facts()?;
        let cluster = Self::place(guard, installation, name)?;
        guard.check_executable(&installation.program("postgres")?)?;
        let data = cluster.data().to_string_lossy().into_owned();
        let mut arguments = vec!["-D", &data, "-U", SUPERUSER, "-A", "trust", "--no-sync"];
        arguments.extend(["--no-locale", "-E", "UTF8"]);
        arguments.extend(options);
        match (checksums, facts.checksums_by_default) {
            (true, _) => arguments.push("--data-checksums"),
            (false, true) => arguments.push("--no-data-checksums"),
            (false, false) => {}
        }
        guard.run(&installation.program("initdb")?, &arguments)?;
        cluster.include_settings(guard)?;
        Ok(cluster)
    }

    /// A cluster that the caller fills: [`data`](Self::data) is not there yet, the directory that it
    /// will be in is. `name` becomes a directory's name.
    pub fn empty(
        guard: &mut Guard,
        installation: &Installation,
        name: &str,
    ) -> Result<Self, ClusterError> {
        guard.check_executable(&installation.program("postgres")?)?;
        Self::place(guard, installation, name)
    }

    /// A copy of this cluster, which must be stopped: the same files, blocks shared where the file
    /// system can.
    pub fn copy(&self, guard: &mut Guard, name: &str) -> Result<Self, ClusterError> {
        self.copy_for(guard, name, &self.installation)
    }

    /// A copy of this cluster for another server, whose format of data is the same.
    pub fn copy_for(
        &self,
        guard: &mut Guard,
        name: &str,
        installation: &Installation,
    ) -> Result<Self, ClusterError> {
        guard.check_executable(&installation.program("postgres")?)?;
        let copy = Self::place(guard, installation, name)?;
        let from = self.data();
        let to = copy.data();
        let arguments = ["-a", "--reflink=auto", &from.to_string_lossy(), &to.to_string_lossy()];
        guard.run(Path::new("cp"), &arguments)?;
        Ok(copy)
    }

    /// A standby of this server, which runs: a base backup of it, with its settings. It streams from
    /// the server whose Unix socket is in `upstream`: this one's [directory](Self::directory), or that
    /// of a link in between. Its `application_name` is its name.
    pub fn standby(
        &self,
        guard: &mut Guard,
        name: &str,
        upstream: &Path,
    ) -> Result<Self, ClusterError> {
        let standby = Self::place(guard, &self.installation, name)?;
        let data = standby.data();
        let target = data.to_string_lossy().into_owned();
        // Thousands of files one by one take seconds: their file system is synced at once.
        let arguments = ["-D", &target, "--checkpoint=fast", "--wal-method=stream", "--no-sync"];
        self.run_client(guard, "pg_basebackup", &arguments)?;
        guard.write(&data.join("standby.signal"), String::new())?;
        standby.follow(guard, upstream)?;
        standby.sync(guard)?;
        Ok(standby)
    }

    /// Syncs the file system that the cluster is on, with all that is dirty there.
    pub fn sync(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        guard.run(Path::new("sync"), &["-f", &self.data().to_string_lossy()])?;
        Ok(())
    }

    /// Lets the server do a checkpoint, and waits for it.
    pub fn checkpoint(&self) -> Result<(), ClusterError> {
        let failed = |source| ClusterError::Connect { name: self.name.clone(), source };
        let mut connection = self.connect("postgres")?;
        connection.execute("CHECKPOINT").map_err(failed)?;
        connection.close();
        Ok(())
    }

    /// Lets a standby stream from the server whose Unix socket is in `upstream`, from its next start or
    /// reload on.
    pub fn follow(&self, guard: &mut Guard, upstream: &Path) -> Result<(), ClusterError> {
        let directory = upstream.to_string_lossy();
        if directory.contains(['\'', '\\', '\n']) {
            let name = "primary_conninfo".to_owned();
            let value = directory.into_owned();
            return Err(ClusterError::Setting { name, value });
        }
        let name = &self.name;
        let conninfo = format!(
            "host={directory} port={PORT} user={SUPERUSER} application_name={name} connect_timeout=5"
        );
        // The last line of the file that ALTER SYSTEM writes is in force.
        let line = pgtoll_format::conf::line("primary_conninfo", &conninfo);
        guard.append(&self.data().join("postgresql.auto.conf"), format!("{line}\n"))
    }

    /// Makes a primary of a standby, and waits until it is one.
    pub fn promote(&self) -> Result<(), ClusterError> {
        let failed = |source| ClusterError::Connect { name: self.name.clone(), source };
        let mut connection = self.connect("postgres")?;
        let row =
            connection.query_one("SELECT pg_promote(true, 60) AS promoted").map_err(failed)?;
        let is_primary = row.text("promoted").map_err(failed)? == "t";
        connection.close();
        if is_primary { Ok(()) } else { Err(ClusterError::Promotion { name: self.name.clone() }) }
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of its server.
    pub fn version(&self) -> &ServerVersion {
        &self.installation.version
    }

    /// Returns the facts of its server's version.
    pub fn facts(&self) -> Result<&'static MajorFacts, ClusterError> {
        Ok(self.installation.version.facts()?)
    }

    /// Returns the directory of data, socket and log, which is removed with the cluster.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The place of the server's programs.
    pub fn bin(&self) -> &Path {
        &self.installation.bin
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The server's log.
    pub fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// Sets the cluster's settings, instead of those that an earlier call set. They take effect at
    /// the next start.
    pub fn configure(
        &self,
        guard: &mut Guard,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), ClusterError> {
        guard.write(&self.data().join("pgtoll-settings.conf"), lines(settings)?)
    }

    /// Appends settings to `postgresql.conf`: they stay when others are [configured](Self::configure), and
    /// have the last word.
    pub fn append_settings(
        &self,
        guard: &mut Guard,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), ClusterError> {
        guard.append(&self.data().join("postgresql.conf"), lines(settings)?)
    }

    /// Whether the server's program takes this value of a setting; the server need not run.
    pub fn is_accepted(
        &self,
        guard: &mut Guard,
        name: &str,
        value: &str,
    ) -> Result<bool, ClusterError> {
        let data = self.data();
        let setting = format!("{name}={value}");
        let arguments = ["-D", &*data.to_string_lossy(), "-C", name, "-c", &*setting];
        match guard.run(&self.client("postgres")?, &arguments) {
            Ok(_) => Ok(true),
            Err(ClusterError::Program { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Turns data checksums on; the server must be stopped. Not synced, as copies are not.
    pub fn enable_checksums(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        self.change_checksums(guard, "enable")
    }

    /// Turns data checksums off; the server must be stopped.
    pub fn disable_checksums(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        self.change_checksums(guard, "disable")
    }

    /// With `pg_checksums`; where the server came without it, with pgtoll's own command of the same name.
    fn change_checksums(&self, guard: &mut Guard, change: &str) -> Result<(), ClusterError> {
        let data = self.data();
        let data = data.to_string_lossy();
        match self.installation.program("pg_checksums") {
            Ok(program) => {
                guard.run(&program, &[&format!("--{change}"), "--no-sync", "-D", &data])?
            }
            Err(_) => guard.run_own(&[change, "--no-sync", &data])?,
        };
        Ok(())
    }

    /// Starts the server and waits until it takes connections. Returns the postmaster's pid.
    pub fn start(&self, guard: &mut Guard) -> Result<i32, ClusterError> {
        let postgres = self.installation.program("postgres")?;
        guard.start(&self.name, &postgres, &self.data(), &self.log())
    }

    /// Starts the server without waiting for it. Returns the postmaster's pid.
    pub fn launch(&self, guard: &mut Guard) -> Result<i32, ClusterError> {
        let postgres = self.installation.program("postgres")?;
        guard.launch_server(&self.name, &postgres, &self.data(), &self.log())
    }

    /// How far the server is that was [launched](Self::launch). Its end is reported once.
    pub fn launch_state(&self, guard: &mut Guard) -> Result<LaunchState, ClusterError> {
        guard.launch_state(&self.name)
    }

    /// [Starts](Self::start) the server with a limit to its memory.
    pub fn start_within(
        &self,
        guard: &mut Guard,
        group: &MemoryGroup,
    ) -> Result<i32, ClusterError> {
        guard.within(group, |guard| self.start(guard))
    }

    /// Stops the server. Returns what it used since its start, its descendants included.
    pub fn stop(&self, guard: &mut Guard, mode: StopMode) -> Result<Usage, ClusterError> {
        guard.stop(&self.name, mode)
    }

    /// Kills every process of the server at once, as a power cut would.
    pub fn kill(&self, guard: &mut Guard) -> Result<Usage, ClusterError> {
        guard.kill(&self.name)
    }

    /// Kills the server that runs in the data directory, if one does: one that an engine started.
    pub fn kill_managed(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        if let Some(pid) = live_postmaster(&self.data()) {
            let processes = ServerProcesses::from_postmaster(pid)?;
            processes.suspend()?;
            guard.remove_files(&processes.kill()?)?;
        }
        Ok(())
    }

    /// Kills the postmaster alone, and waits until the server's other processes have ended. Until then
    /// some of them continue serving clients.
    pub fn kill_postmaster(&self, guard: &mut Guard) -> Result<Usage, ClusterError> {
        guard.kill_postmaster(&self.name)
    }

    /// Makes a standby of a server that was the primary and has ended: `pg_rewind` undoes what `source`,
    /// the primary now, does not have. Its settings become those of `source`, and its file system is
    /// synced.
    pub fn rewind(&self, guard: &mut Guard, source: &Self) -> Result<(), ClusterError> {
        // pg_rewind before 16 reads the source's timeline in pg_control, which a promotion writes late.
        source.checkpoint()?;
        let data = self.data();
        let target = data.to_string_lossy().into_owned();
        let from = format!(
            "host={} port={PORT} user={SUPERUSER} dbname=postgres",
            plain_path(&source.directory)?
        );
        let program = self.installation.program("pg_rewind")?;
        // It would sync every file by itself, also those that did not change: seconds on a busy disk.
        let arguments = ["--no-sync", "--target-pgdata", &target, "--source-server", &from];
        guard.run(&program, &arguments)?;
        guard.write(&data.join("standby.signal"), String::new())?;
        self.follow(guard, &source.directory)?;
        self.sync(guard)
    }

    /// The place of one of PostgreSQL's client programs of this server's version.
    pub fn client(&self, program: &str) -> Result<PathBuf, ClusterError> {
        self.installation.program(program)
    }

    /// Runs one of PostgreSQL's client programs (`pgbench`, `vacuumdb`) against the server.
    pub fn run_client(
        &self,
        guard: &mut Guard,
        program: &str,
        arguments: &[&str],
    ) -> Result<String, ClusterError> {
        self.run_against(guard, &self.client(program)?, arguments)
    }

    fn run_against(
        &self,
        guard: &mut Guard,
        program: &Path,
        arguments: &[&str],
    ) -> Result<String, ClusterError> {
        let sockets = self.directory.to_string_lossy();
        let port = PORT.to_string();
        let mut all = vec!["-h", &*sockets, "-p", &port, "-U", SUPERUSER];
        all.extend(arguments);
        Ok(guard.run(program, &all)?.tail)
    }

    /// Variables that tell a client program (`psql`, `pgbench`, a load generator of others) where the server
    /// is: `PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE`.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let sockets = self.directory.to_string_lossy().into_owned();
        let port = PORT.to_string();
        [
            ("PGHOST", &*sockets),
            ("PGPORT", &port),
            ("PGUSER", SUPERUSER),
            ("PGDATABASE", "postgres"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// Lets `psql` run a script, all of it or up to the first error.
    pub fn run_psql(
        &self,
        guard: &mut Guard,
        database: &str,
        script: &str,
    ) -> Result<(), ClusterError> {
        let file = self.directory.join("script.sql");
        guard.write(&file, script.to_owned())?;
        let file = file.to_string_lossy();
        let arguments = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database, "-f", &file];
        self.run_against(guard, &self.installation.psql()?, &arguments)?;
        Ok(())
    }

    /// A connection to the server as its superuser.
    pub fn connect(&self, database: &str) -> Result<Connection, ClusterError> {
        self.connect_as(SUPERUSER, database, &[])
            .map_err(|source| ClusterError::Connect { name: self.name.clone(), source })
    }

    /// A connection to the server as this role, with settings of the session.
    pub fn connect_as(
        &self,
        role: &str,
        database: &str,
        settings: &[(&str, &str)],
    ) -> Result<Connection, pgtoll_wire::Error> {
        let endpoint = UnixEndpoint::new(&self.directory, PORT);
        let mut config = Config::new(endpoint, role, database);
        config.connect_timeout = Some(Duration::from_secs(30));
        let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        config.options = settings.collect();
        Connection::connect(&config)
    }

    /// Removes the cluster, which must be stopped.
    pub fn remove(self, guard: &mut Guard) -> Result<(), ClusterError> {
        guard.run(Path::new("rm"), &["-r", &self.directory.to_string_lossy()])?;
        Ok(())
    }

    /// The line of the server's log that says most since its last start: its last error, else its last
    /// line.
    pub fn last_words(&self) -> String {
        last_words(since_last_start(&tail(&self.log(), LOG_TAIL))).to_owned()
    }

    /// Bytes of the server's log, which all starts of the cluster share.
    pub fn log_bytes(&self) -> u64 {
        fs::metadata(self.log()).map_or(0, |log| log.len())
    }

    /// The message that says most of those that were logged since the log was so long, without its time
    /// and severity.
    pub fn last_message_since(&self, log_bytes: u64) -> String {
        let new = self.log_bytes().saturating_sub(log_bytes).min(LOG_TAIL);
        let text = tail(&self.log(), new);
        let line = last_words(&text);
        // Two spaces stand behind the severity alone.
        line.split_once(":  ").map_or(line, |(_, message)| message).to_owned()
    }

    /// Bytes of the files in the data directory.
    pub fn bytes(&self) -> Result<u64, ClusterError> {
        bytes_below(&self.data())
    }

    /// Drops every file of the data directory from the page cache, after syncing it. Pages that a
    /// running server writes meanwhile may stay.
    pub fn evict(&self) -> Result<(), ClusterError> {
        evict_below(&self.data())
    }

    /// Drops the server's program from the page cache and reads it again, from its begin to its end. Pages
    /// that a running server of it has mapped stay.
    pub fn read_program_again(&self) -> Result<(), ClusterError> {
        let program = self.installation.program("postgres")?;
        let read = evict(&program)
            .and_then(|()| io::copy(&mut pgtoll_system::open(&program)?, &mut io::sink()));
        read.map_err(ClusterError::io("read", &program))?;
        Ok(())
    }

    /// The first file in which the data of this cluster and another differ; `None` when they are the
    /// same. Both must be stopped.
    ///
    /// Compared are `base`, `global`, `pg_multixact`, `pg_xact` and the links in `pg_tblspc` (not
    /// what they lead to), byte by byte. With `ignore_page_checksums` the checksum of each page is
    /// left out, which is all that `pg_checksums` changes in them. Not compared are `pg_control`,
    /// which says whether there are checksums, and `pg_internal.init`, a cache of each session's
    /// start.
    pub fn differing_file(
        &self,
        other: &Self,
        ignore_page_checksums: bool,
    ) -> Result<Option<Difference>, ClusterError> {
        for cluster in [self, other] {
            let data = cluster.data();
            let data = fs::canonicalize(&data).map_err(ClusterError::io("find", &data))?;
            if live_postmaster(&data).is_some() {
                return Err(ClusterError::Running { name: cluster.name.clone() });
            }
        }
        difference::between(&self.data(), &other.data(), ignore_page_checksums)
    }

    /// Files of the relations: everything in `base`, to be read into the page cache.
    pub fn relation_files(&self) -> Result<Vec<PathBuf>, ClusterError> {
        let base = self.data().join("base");
        let mut files = Vec::new();
        for database in read_directory(&base)? {
            files.extend(read_directory(&database)?.into_iter().filter(|path| path.is_file()));
        }
        Ok(files)
    }

    pub(crate) fn place(
        guard: &mut Guard,
        installation: &Installation,
        name: &str,
    ) -> Result<Self, ClusterError> {
        let directory = guard.directory().join(name);
        let socket = directory.join(format!(".s.PGSQL.{PORT}"));
        if socket.as_os_str().len() > LONGEST_SOCKET_PATH {
            return Err(ClusterError::PathTooLong { path: directory });
        }
        guard.run(Path::new("mkdir"), &[&directory.to_string_lossy()])?;
        Ok(Self { name: name.to_owned(), installation: installation.clone(), directory })
    }

    /// Lets the configuration include our file. What pgtoll depends on is told relative to the
    /// data directory, so that it holds for a copy too.
    pub(crate) fn include_settings(&self, guard: &mut Guard) -> Result<(), ClusterError> {
        let path = self.data().join("postgresql.conf");
        // As its user, not as ours: a link in that user's directory must not lead root elsewhere.
        let lines = format!(
            "\n# pgtoll\n\
             listen_addresses = ''\n\
             unix_socket_directories = '..'\n\
             port = {PORT}\n\
             include = 'pgtoll-settings.conf'\n"
        );
        guard.append(&path, lines)?;
        self.configure(guard, &BTreeMap::new())
    }
}

/// Lines of a configuration file.
fn lines(settings: &BTreeMap<String, String>) -> Result<String, ClusterError> {
    let mut file = String::new();
    for (name, value) in settings {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if name.is_empty() || !name.chars().all(plain) || value.contains(['\n', '\r', '\0']) {
            return Err(ClusterError::Setting { name: name.clone(), value: value.clone() });
        }
        let _ = writeln!(file, "{}", pgtoll_format::conf::line(name, value));
    }
    Ok(file)
}

/// A path that means itself in a connection string, in a configuration file and to a shell.
pub(crate) fn plain_path(path: &Path) -> Result<&str, ClusterError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let plain = path.to_str().filter(|text| text.chars().all(is_plain));
    plain.ok_or_else(|| ClusterError::PathNotPlain { path: path.to_owned() })
}

fn bytes_below(directory: &Path) -> Result<u64, ClusterError> {
    let mut bytes = 0;
    for path in read_directory(directory)? {
        let metadata = fs::symlink_metadata(&path).map_err(ClusterError::io("read", &path))?;
        bytes += if metadata.is_dir() { bytes_below(&path)? } else { metadata.len() };
    }
    Ok(bytes)
}

fn evict_below(directory: &Path) -> Result<(), ClusterError> {
    for path in read_directory(directory)? {
        // A running server may have removed it since.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            evict_below(&path)?;
        } else if metadata.is_file() {
            match evict(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                evicted => evicted.map_err(ClusterError::io("evict", &path))?,
            }
        }
    }
    Ok(())
}

fn evict(path: &Path) -> io::Result<()> {
    // Neither follow a link nor wait for a pipe that came into the file's place.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    // A page that is not on disk cannot be dropped.
    file.sync_data()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(())
}

fn read_directory(path: &Path) -> Result<Vec<PathBuf>, ClusterError> {
    let entries = fs::read_dir(path).map_err(ClusterError::io("read", path))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(ClusterError::io("read", path))?.path());
    }
    paths.sort();
    Ok(paths)
}
