//! Search for the PostgreSQL servers of this machine, and the choice of one.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use pgtoll_format::{MAJORS, ServerVersion};
use pgtoll_system::Interrupt;

use crate::environment::find_program;
use crate::trust::require_trusted;
use crate::{ClusterError, Guard, SERVER_PACKAGES, ServerPackage, ServerUser};

/// A PostgreSQL installation: a directory with `postgres`, `initdb` and their companions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The place of its programs.
    pub bin: PathBuf,
    /// The version that `postgres --version` prints.
    pub version: ServerVersion,
    /// How pgtoll came to it.
    pub origin: Origin,
}

/// How pgtoll came to an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user named its directory.
    Named,
    /// Installed on this machine by others.
    Installed,
    /// Fetched by pgtoll, or by pip together with pgtoll.
    Embedded,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named => "named",
            Self::Installed => "installed",
            Self::Embedded => "embedded",
        })
    }
}

/// The directories of packaged servers. `*` is the version.
const PLACES: [&str; 4] =
    ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/pgsql/*/bin"];

impl Installation {
    /// [`Finder::find`] of this program.
    pub fn find(requested: Option<&str>) -> Result<Option<Self>, ClusterError> {
        Finder::of_this_program(&Interrupt::new()).find(requested)
    }

    fn supported(self) -> Result<Self, ClusterError> {
        match self.version.facts() {
            Ok(_) => Ok(self),
            Err(major) => Err(ClusterError::UnsupportedInstallation { bin: self.bin, major }),
        }
    }

    /// The path of one of its programs.
    pub fn program(&self, name: &str) -> Result<PathBuf, ClusterError> {
        let path = self.bin.join(name);
        if path.is_file() {
            return Ok(path);
        }
        Err(ClusterError::NoProgram { directory: self.bin.clone(), program: name.to_owned() })
    }

    /// The same server with a copy of `postgres` of its own, in the guard's directory. Beside the copy, in
    /// each directory on the way to it, are links to what the original has there: a server finds its
    /// libraries and files by their places relative to its own.
    pub fn with_own_program(&self, guard: &mut Guard, name: &str) -> Result<Self, ClusterError> {
        const MIRROR: &str = include_str!("own_program.sh");
        let bin = fs::canonicalize(&self.bin).map_err(ClusterError::io("find", &self.bin))?;
        let root = guard.directory().join(".programs").join(name);
        let (to, from) = (root.to_string_lossy().into_owned(), bin.to_string_lossy().into_owned());
        guard.run(Path::new("/bin/sh"), &["-c", MIRROR, "mirror", &to, &from])?;
        let bin = PathBuf::from(format!("{to}{from}"));
        Ok(Self { bin, ..self.clone() })
    }

    /// The directories that its programs need to read.
    pub fn directories(&self) -> Vec<PathBuf> {
        let beside = |name: &&str| Some(self.bin.parent()?.join(name));
        let others = ["lib", "lib64", "share"].iter().filter_map(beside);
        std::iter::once(self.bin.clone()).chain(others).collect()
    }

    /// The path of `psql`: one that works with any server serves where this one came without.
    pub fn psql(&self) -> Result<PathBuf, ClusterError> {
        self.program("psql").or_else(|missing| find_program("psql").ok_or(missing))
    }
}

/// Looks for installations. Each server is asked for its version as the
/// [servers' user](ServerUser), by a guard: root executes none of them.
#[derive(Debug)]
pub struct Finder {
    /// As [`GuardOptions::executable`](crate::GuardOptions::executable).
    executable: PathBuf,
    interrupt: Interrupt,
}

/// The installations of this machine.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that others installed first, newest first; embedded ones last.
    pub installations: Vec<Installation>,
    /// Servers that are not used.
    pub skipped: Vec<Skipped>,
}

/// A server that is not used. Its text names the program, and why.
#[derive(Debug)]
pub struct Skipped {
    /// The reason, in a sentence.
    pub reason: ClusterError,
}

impl Found {
    /// The one to use if none was asked for: the newest installed, else the newest embedded one.
    pub fn default_installation(&self) -> Option<&Installation> {
        self.installations.iter().find(|found| found.version.facts().is_ok())
    }

    /// The one to use if none was asked for; `None` when pgtoll would have to fetch one. An error
    /// if there is only one that the servers' user cannot reach.
    pub fn into_default_installation(self) -> Result<Option<Installation>, ClusterError> {
        if let Some(found) = self.default_installation() {
            return Ok(Some(found.clone()));
        }
        let mut reasons = self.skipped.into_iter().map(|skipped| skipped.reason);
        let unreachable = reasons.find(|reason| matches!(reason, ClusterError::Unreachable { .. }));
        unreachable.map_or(Ok(None), Err)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        self.reason.source().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

/// A directory that seems to hold a server.
struct Candidate {
    bin: PathBuf,
    origin: Origin,
    /// Nothing that the caller chose led to it.
    is_guessed: bool,
}

impl Finder {
    /// The guard is this very program.
    pub fn of_this_program(interrupt: &Interrupt) -> Self {
        Self::with_guard("/proc/self/exe".into(), interrupt)
    }

    /// The guard is another program than this one, which calls [`guard_main`](crate::guard_main)
    /// when its first argument is `__guard`.
    pub fn with_guard(executable: PathBuf, interrupt: &Interrupt) -> Self {
        Self { executable, interrupt: interrupt.clone() }
    }

    /// All servers that can be found. When root asks, those that other users cannot change.
    pub fn installed(&self) -> Result<Found, ClusterError> {
        let mut found = Found::default();
        let mut candidates = Vec::new();
        for candidate in candidates_of_this_machine() {
            match candidate.check() {
                Ok(()) => candidates.push(candidate),
                Err(reason) => found.skipped.push(Skipped { reason }),
            }
        }
        let versions = self.versions_of(candidates.iter().map(|candidate| &*candidate.bin))?;
        for (Candidate { bin, origin, .. }, version) in candidates.into_iter().zip(versions) {
            match version {
                Ok(version) => found.installations.push(Installation { bin, version, origin }),
                Err(reason) => found.skipped.push(Skipped { reason }),
            }
        }
        found.installations.sort_by(|a, b| {
            let embedded = |installation: &Installation| installation.origin == Origin::Embedded;
            embedded(a).cmp(&embedded(b)).then(b.version.cmp(&a.version))
        });
        Ok(found)
    }

    /// The server to use: the one that was asked for (a directory or a major version), else the
    /// newest installed, else the newest embedded one; `None` when there is none
    /// and pgtoll would have to fetch one ([`ServerPackage::newest`]).
    pub fn find(&self, wanted: Option<&str>) -> Result<Option<Installation>, ClusterError> {
        let Some(requested) = wanted else {
            return self.installed()?.into_default_installation();
        };
        match requested.parse::<u32>() {
            Ok(major) => self.of_major(major).map(Some),
            Err(_) => self.in_directory(Path::new(requested)).map(Some),
        }
    }

    fn of_major(&self, major: u32) -> Result<Installation, ClusterError> {
        let mut found = self.installed()?.installations.into_iter();
        if let Some(found) = found.find(|found| found.version.major() == major) {
            return found.supported();
        }
        if MAJORS.iter().all(|facts| facts.major != major) {
            return Err(pgtoll_format::UnsupportedMajor { major }.into());
        }
        let installable = SERVER_PACKAGES.iter().any(|package| package.major == major);
        Err(ClusterError::MajorNotFound { major, installable })
    }

    fn in_directory(&self, directory: &Path) -> Result<Installation, ClusterError> {
        let bin = [directory.join("bin"), directory.to_owned()]
            .into_iter()
            .find(|bin| bin.join("postgres").is_file())
            .ok_or_else(|| ClusterError::NotAServer {
                directory: directory.to_owned(),
                missing: "postgres".into(),
            })?;
        let bin = fs::canonicalize(&bin).map_err(ClusterError::io("resolve", &bin))?;
        if !bin.join("initdb").is_file() {
            return Err(ClusterError::NotAServer { directory: bin, missing: "initdb".into() });
        }
        self.at(bin, Origin::Named)?.supported()
    }

    /// Asks the server in `bin` for its version.
    pub(crate) fn at(&self, bin: PathBuf, origin: Origin) -> Result<Installation, ClusterError> {
        let mut versions = self.versions_of(std::iter::once(&*bin))?;
        let version = versions.pop().expect("there are as many answers as questions")?;
        Ok(Installation { bin, version, origin })
    }

    /// Returns the versions of the servers in these directories.
    fn versions_of<'a>(
        &self,
        bins: impl Iterator<Item = &'a Path>,
    ) -> Result<Vec<Result<ServerVersion, ClusterError>>, ClusterError> {
        let programs: Vec<PathBuf> = bins.map(|bin| bin.join("postgres")).collect();
        if programs.is_empty() {
            return Ok(Vec::new());
        }
        let mut guard = self.guard(&ServerUser::choose()?)?;
        let answers = guard.ask_versions(&programs)?;
        guard.finish()?;
        let versions = programs.into_iter().zip(answers).map(|(program, answer)| {
            answer?.parse().map_err(|source| ClusterError::Version { program, source })
        });
        Ok(versions.collect())
    }

    /// A guard without a working directory.
    pub(crate) fn guard(&self, user: &ServerUser) -> Result<Guard, ClusterError> {
        Guard::begin_without_directory(&self.executable, user, &self.interrupt)
    }

    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }
}

impl Candidate {
    /// Whether it may be used: what the caller did not choose, and what root finds, only if other
    /// users cannot change it.
    fn check(&self) -> Result<(), ClusterError> {
        if !self.is_guessed && !geteuid().is_root() {
            return Ok(());
        }
        let programs = ["postgres", "initdb"].map(|name| self.bin.join(name));
        programs
            .iter()
            .filter(|program| program.exists())
            .try_for_each(|program| require_trusted(program))
    }
}

fn candidates_of_this_machine() -> impl Iterator<Item = Candidate> {
    let candidates = |bins: Vec<PathBuf>, origin, is_guessed| {
        bins.into_iter().map(move |bin| Candidate { bin, origin, is_guessed })
    };
    candidates(places_of_others().into_iter().collect(), Origin::Installed, false)
        .chain(candidates(ServerPackage::in_stores(), Origin::Embedded, false))
        .chain(candidates(ServerPackage::beside_this_program(), Origin::Embedded, true))
}

/// Directories with both `postgres` and `initdb`: the known places and those of `PATH`, each once.
fn places_of_others() -> BTreeSet<PathBuf> {
    let known = PLACES.iter().flat_map(|pattern| expand(pattern));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).collect::<Vec<_>>();
    known
        .chain(on_path)
        // A link in /usr/local/bin leads to the place where the companions are.
        .filter_map(|bin| fs::canonicalize(bin.join("postgres")).ok())
        .filter_map(|program| program.parent().map(Path::to_owned))
        .filter(|bin| bin.join("postgres").is_file() && bin.join("initdb").is_file())
        .collect()
}

/// The directories that match a pattern with at most one `*`.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else { return vec![pattern.into()] };
    let (parent, prefix) = before.rsplit_once('/').expect("a place is an absolute path");
    fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .map(|name| PathBuf::from(format!("{parent}/{name}{after}")))
        .collect()
}
