//! The keeper of volumes: a child of pgtoll that unmounts them when pgtoll has ended, or says so.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{mkdtemp, setsid};
use procfs::process::{MountInfo, Process};

use super::run_tool;
use crate::process::close_inherited_descriptors;

/// Keeps the volumes of the pgtoll at the other end of standard input. Called by `pgtoll __volumes`
/// and by nobody else.
pub fn keeper_main() -> io::Result<()> {
    close_inherited_descriptors();
    // The terminal's Ctrl-C is for pgtoll.
    let _ = setsid();
    let mut parent = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Only root changes what is in /run.
    let store = mkdtemp(Path::new("/run/pgtoll-volumes-XXXXXX"))?;
    let message = parent.write_all(format!("{}\n", store.display()).as_bytes());
    if message.is_ok() {
        // Nothing is ever sent: this returns when the other end is closed.
        let _ = parent.read(&mut [0]);
    }
    clear(&store);
    Ok(())
}

/// Thaws and unmounts all that is mounted from the store, wherever, and removes the store. Files that
/// are open stay usable.
pub(super) fn clear(store: &Path) {
    let mounts = mounts();
    let in_store: Vec<&MountInfo> =
        mounts.iter().filter(|mount| mount.mount_point.starts_with(store)).collect();
    for mount in in_store.iter().filter(|mount| mount.fs_type == "ext4") {
        // As a rule it is not frozen.
        let _ = run_tool("fsfreeze", &["-u", &mount.mount_point.to_string_lossy()]);
    }
    let devices: BTreeSet<&str> = in_store.iter().map(|mount| mount.majmin.as_str()).collect();
    // Later mounts are on earlier ones.
    for mount in mounts.iter().rev().filter(|mount| devices.contains(mount.majmin.as_str())) {
        let _ = umount2(&mount.mount_point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    }
    let _ = fs::remove_dir(store);
}

fn mounts() -> Vec<MountInfo> {
    let own = Process::myself().and_then(|own| own.mountinfo());
    own.map(|mounts| mounts.into_iter().collect()).unwrap_or_default()
}

/// Waits until nothing is mounted in a directory: what pgtoll mounts there its keeper takes away.
pub(crate) fn wait_for_unmount(directory: &Path) {
    let is_mounted = || mounts().iter().any(|mount| mount.mount_point.starts_with(directory));
    // The kernel reports a change of the mounts as an urgent event of this file.
    let Ok(changes) = File::open("/proc/self/mountinfo") else { return };
    let end = Instant::now() + PATIENCE;
    while is_mounted() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let mut fds = [PollFd::new(changes.as_fd(), PollFlags::POLLPRI)];
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut fds, timeout);
    }
}

/// How long the keeper may take.
const PATIENCE: Duration = Duration::from_secs(10);
