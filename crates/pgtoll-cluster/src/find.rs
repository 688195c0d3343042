//! Which PostgreSQL servers this machine has, and which of them to use.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use pgtoll_format::{MAJORS, ServerVersion};

use crate::process::command;
use crate::{ClusterError, WHEELS, Wheel};

/// A PostgreSQL installation: a directory with `postgres`, `initdb` and their companions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Where its programs are.
    pub bin: PathBuf,
    /// What `postgres --version` says.
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

/// Where packagers put servers. `*` is the version.
const PLACES: [&str; 4] =
    ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/pgsql/*/bin"];

impl Installation {
    /// The server to use: the one that was asked for (a directory or a major version), else the
    /// newest installed, else the newest embedded one; `None` when there is none
    /// and pgtoll would have to fetch one ([`Wheel::newest`]).
    pub fn find(asked: Option<&str>) -> Result<Option<Self>, ClusterError> {
        let Some(asked) = asked else {
            return Ok(installed().into_iter().find(|found| found.version.facts().is_ok()));
        };
        match asked.parse::<u32>() {
            Ok(major) => Self::of_major(major).map(Some),
            Err(_) => Self::in_directory(Path::new(asked)).map(Some),
        }
    }

    fn of_major(major: u32) -> Result<Self, ClusterError> {
        if let Some(found) = installed().into_iter().find(|found| found.version.major() == major) {
            return found.supported();
        }
        if MAJORS.iter().all(|facts| facts.major != major) {
            return Err(pgtoll_format::UnsupportedMajor { major }.into());
        }
        let installable = WHEELS.iter().any(|wheel| wheel.major == major);
        Err(ClusterError::MajorNotFound { major, installable })
    }

    fn in_directory(directory: &Path) -> Result<Self, ClusterError> {
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
        Self::at(bin, Origin::Named)?.supported()
    }

    /// Asks the server in `bin` for its version.
    pub(crate) fn at(bin: PathBuf, origin: Origin) -> Result<Self, ClusterError> {
        let program = bin.join("postgres");
        let output = command(&program)
            .arg("--version")
            .output()
            .map_err(ClusterError::io("run", &program))?;
        let version = String::from_utf8_lossy(&output.stdout)
            .parse()
            .map_err(|source| ClusterError::Version { program, source })?;
        Ok(Self { bin, version, origin })
    }

    fn supported(self) -> Result<Self, ClusterError> {
        self.version.facts()?;
        Ok(self)
    }

    /// The path of one of its programs.
    pub fn program(&self, name: &str) -> Result<PathBuf, ClusterError> {
        let path = self.bin.join(name);
        if path.is_file() {
            return Ok(path);
        }
        Err(ClusterError::NoProgram { directory: self.bin.clone(), program: name.to_owned() })
    }
}

/// All servers that can be found, those that others installed first, newest first; embedded ones
/// last.
pub fn installed() -> Vec<Installation> {
    let mut found = newest_first(places_of_others(), Origin::Installed);
    found.extend(newest_first(Wheel::fetched(), Origin::Embedded));
    found
}

fn newest_first(places: impl IntoIterator<Item = PathBuf>, origin: Origin) -> Vec<Installation> {
    let mut found: Vec<Installation> =
        places.into_iter().filter_map(|bin| Installation::at(bin, origin).ok()).collect();
    found.sort_by(|a, b| b.version.cmp(&a.version));
    found
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
