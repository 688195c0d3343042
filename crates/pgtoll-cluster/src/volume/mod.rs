//! Small file systems for directories of our own servers: one that fills up, one whose writes can be
//! frozen.
//!
//! They are mounted in a mount namespace of pgtoll's own, where the rest of the machine does not see
//! them, and lie in memory, so that the kernel removes them with the last process of the namespace.
//! What it does not do by itself is done by the keeper, a child that outlives pgtoll by as long as
//! that takes: it thaws, so that processes that wait for a frozen disk can be ended, and unmounts, so
//! that the guard can remove its directory.

mod keeper;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;
use pgtoll_system::{Interrupt, Registered};

pub use keeper::keeper_main;
pub(crate) use keeper::wait_for_unmount;

use crate::environment::find_daemon;
use crate::process::{command, tail_of};
use crate::{ClusterError, Guard};

/// The purpose of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// It holds this many bytes and no more: a file system in memory (tmpfs).
    Limited {
        /// Its size.
        bytes: u64,
    },
    /// Its writes can be frozen: ext4 on a loop device, whose file is in memory.
    Freezable {
        /// Its size.
        bytes: u64,
    },
}

/// The right to make volumes: this thread, those that it starts, and their children are in a mount
/// namespace of their own.
#[derive(Clone, Debug)]
pub struct VolumeMaker {
    executable: PathBuf,
}

impl VolumeMaker {
    /// Gives the calling thread a mount namespace, which must be before guards are started.
    /// `executable` calls [`keeper_main`] when its first argument is `__volumes`. Only root can do
    /// this.
    pub fn begin(executable: &Path) -> Result<Self, ClusterError> {
        if !geteuid().is_root() {
            return Err(failed("mount file systems")(io::Error::other("only root can do this")));
        }
        unshare(CloneFlags::CLONE_NEWNS)
            .map_err(|errno| failed("make a mount namespace")(errno.into()))?;
        // What the machine mounts and unmounts is seen here, and nothing the other way round.
        let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
        mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
            .map_err(|errno| failed("separate the mount namespace")(errno.into()))?;
        Ok(Self { executable: executable.to_owned() })
    }

    /// Why a volume of this kind cannot be made on this machine; `None` where it was made for a try.
    pub fn obstacle(&self, kind: VolumeKind, interrupt: &Interrupt) -> Option<String> {
        let tried = self.volumes(interrupt).and_then(|mut volumes| {
            let volume = volumes.make(kind, (0, 0))?;
            if matches!(kind, VolumeKind::Freezable { .. }) {
                volume.freeze()?;
                volume.thaw()?;
            }
            Ok(())
        });
        tried.err().map(|error| error.to_string())
    }

    /// Begins with no volume.
    pub fn volumes(&self, interrupt: &Interrupt) -> Result<Volumes, ClusterError> {
        let (ours, theirs) = UnixStream::pair().map_err(failed("start the volumes' keeper"))?;
        let keeper = command(&self.executable)
            .arg("__volumes")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed("start the volumes' keeper"))?;
        let socket = ours.try_clone().map_err(failed("start the volumes' keeper"))?;
        let on_signal = interrupt.on_signal(move || {
            // It may be closed by then.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        });
        let mut volumes = Volumes {
            socket: ours,
            keeper,
            store: PathBuf::new(),
            count: 0,
            _on_signal: on_signal,
        };
        volumes.open_store()?;
        Ok(volumes)
    }
}

/// Volumes that go together: unmounted when this is dropped, or its process ends by whatever cause.
/// Servers that use them must have ended before, or end soon.
#[derive(Debug)]
pub struct Volumes {
    socket: UnixStream,
    keeper: Child,
    /// A directory that only root enters, with a file system in memory that has everything.
    store: PathBuf,
    count: u32,
    _on_signal: Registered,
}

/// A volume, as long as its [`Volumes`] live.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its mount point in the store.
    mounted: PathBuf,
    /// The directory that replaces the server's.
    contents: PathBuf,
}

impl Volumes {
    /// Moves a directory of the guard's user to a new volume, and mounts this in its place.
    pub fn hold(
        &mut self,
        guard: &mut Guard,
        directory: &Path,
        kind: VolumeKind,
    ) -> Result<Volume, ClusterError> {
        let user = (guard.user().uid, guard.user().gid);
        let volume = self.make(kind, user)?;
        let path = directory.to_string_lossy().into_owned();
        let before = format!("{path}.before");
        guard.run(Path::new("mv"), &["-T", &path, &before])?;
        guard.run(Path::new("mkdir"), &["-m", "700", &path])?;
        bind(&volume.contents, directory, user.0)?;
        guard.run(Path::new("cp"), &["-a", "-T", &before, &path])?;
        guard.run(Path::new("rm"), &["-r", &before])?;
        Ok(volume)
    }

    fn open_store(&mut self) -> Result<(), ClusterError> {
        let mut line = String::new();
        let socket = self.socket.try_clone().map_err(failed("ask the volumes' keeper"))?;
        BufReader::new(socket).read_line(&mut line).map_err(failed("ask the volumes' keeper"))?;
        let Some(store) = line.strip_suffix('\n').filter(|store| !store.is_empty()) else {
            let message = "it could not make a directory in /run";
            return Err(failed("start the volumes' keeper")(io::Error::other(message)));
        };
        self.store = PathBuf::from(store);
        mount_memory(&self.store, "mode=0700")
    }

    fn make(&mut self, kind: VolumeKind, user: (u32, u32)) -> Result<Volume, ClusterError> {
        self.count += 1;
        let mounted = self.store.join(self.count.to_string());
        fs::create_dir(&mounted).map_err(failed("make a volume"))?;
        let (uid, gid) = user;
        match kind {
            VolumeKind::Limited { bytes } => {
                let options = format!("size={bytes},mode=0700,uid={uid},gid={gid}");
                mount_memory(&mounted, &options)?;
                Ok(Volume { contents: mounted.clone(), mounted })
            }
            VolumeKind::Freezable { bytes } => {
                self.mount_on_loop_device(&mounted, bytes)?;
                // Beside `lost+found`, which is root's: base backups would stumble over it.
                let contents = mounted.join("data");
                fs::create_dir(&contents).map_err(failed("make a volume"))?;
                std::os::unix::fs::chown(&contents, Some(uid), Some(gid))
                    .and_then(|()| fs::set_permissions(&contents, private()))
                    .map_err(failed("make a volume"))?;
                Ok(Volume { mounted, contents })
            }
        }
    }

    fn mount_on_loop_device(&self, mounted: &Path, bytes: u64) -> Result<(), ClusterError> {
        let image = self.store.join(format!("{}.ext4", self.count));
        let file = File::create_new(&image).map_err(failed("make a volume"))?;
        file.set_len(bytes).map_err(failed("make a volume"))?;
        run_tool("mkfs.ext4", &["-q", "-F", "-m", "0", &image.to_string_lossy()])?;
        // The device is freed with its last user.
        let image = image.to_string_lossy();
        let mounted = mounted.to_string_lossy();
        run_tool("mount", &["-t", "ext4", "-o", "loop,noatime", &image, &mounted])
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let is_kept = self.keeper.wait().is_ok_and(|status| status.success());
        if !is_kept && !self.store.as_os_str().is_empty() {
            // Somebody ended the keeper.
            keeper::clear(&self.store);
        }
    }
}

impl Volume {
    /// Lets a [limited](VolumeKind::Limited) one hold more.
    pub fn enlarge(&self, bytes: u64) -> Result<(), ClusterError> {
        let options = format!("size={bytes}");
        let flags = MsFlags::MS_REMOUNT;
        mount(None::<&str>, &self.mounted, None::<&str>, flags, Some(options.as_str()))
            .map_err(|errno| failed("enlarge a volume")(errno.into()))
    }

    /// From now on each write waits, and the processes that wait cannot be killed. A
    /// [freezable](VolumeKind::Freezable) one is thawed when its [`Volumes`] end.
    pub fn freeze(&self) -> Result<(), ClusterError> {
        run_tool("fsfreeze", &["-f", &self.mounted.to_string_lossy()])
    }

    /// Lets writes continue.
    pub fn thaw(&self) -> Result<(), ClusterError> {
        run_tool("fsfreeze", &["-u", &self.mounted.to_string_lossy()])
    }
}

/// Mounts `contents` in the place of a directory of this user, who may have put a link there.
fn bind(contents: &Path, directory: &Path, uid: u32) -> Result<(), ClusterError> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let opened = File::options().read(true).custom_flags(flags.bits()).open(directory);
    let opened = opened.map_err(ClusterError::io("open", directory))?;
    let owner = opened.metadata().map_err(ClusterError::io("look at", directory))?.uid();
    if owner != uid {
        let message = format!("{} has another owner", directory.display());
        return Err(failed("mount a volume")(io::Error::other(message)));
    }
    let target = format!("/proc/self/fd/{}", opened.as_raw_fd());
    mount(Some(contents), target.as_str(), None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|errno| failed("mount a volume")(errno.into()))
}

fn mount_memory(place: &Path, options: &str) -> Result<(), ClusterError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("pgtoll"), place, Some("tmpfs"), flags, Some(options))
        .map_err(|errno| failed("mount a file system in memory")(errno.into()))
}

fn private() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o700)
}

/// Runs one of the system's programs as root, on files that only root can reach.
fn run_tool(name: &'static str, arguments: &[&str]) -> Result<(), ClusterError> {
    let missing = || {
        let packages = if name == "mkfs.ext4" { "e2fsprogs" } else { "mount util-linux" };
        ClusterError::NoEngine {
            program: name,
            place: "in PATH and /usr/sbin".to_owned(),
            packages: packages.to_owned(),
        }
    };
    let program = find_daemon(name).ok_or_else(missing)?;
    let started = failed("run a program for a volume");
    let output = nix::sys::memfd::memfd_create("output", nix::sys::memfd::MFdFlags::MFD_CLOEXEC);
    let mut output = File::from(output.map_err(|errno| failed("make a file")(errno.into()))?);
    let run = || {
        let out = output.try_clone()?;
        let errors = output.try_clone()?;
        command(&program).args(arguments).stdout(out).stderr(errors).status()
    };
    let status = run().map_err(started)?;
    if status.success() {
        return Ok(());
    }
    let output = tail_of(&mut output, TAIL_BYTES).unwrap_or_default();
    Err(ClusterError::Program { program: name.to_owned(), status: status.to_string(), output })
}

/// Bytes of a program's output that are kept.
const TAIL_BYTES: u64 = 4096;

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> ClusterError {
    move |source| ClusterError::Volume { action, source }
}
