//! A limit to a server's memory, its part of the page cache included, so that data that are smaller
//! than the machine's memory behave as if they were larger.
//!
//! It is a control group of the kernel's: version 1 where that holds the memory controller, else
//! version 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use procfs::ProcessCGroup;
use procfs::process::{MountInfo, Process};

use crate::{ClusterError, Guard};

/// A memory limit for the processes that are started in it
/// ([`Cluster::start_within`](crate::Cluster::start_within)). Only root can make one, or a user to
/// whom the system's groups are delegated.
///
/// Counted are the processes' memory, shared buffers included, and every page of the page cache
/// that they are the first to read or write ([`Cluster::evict`](crate::Cluster::evict) makes them
/// the first). Swap does not take what is over the limit (at most 1 MB of it). Where nothing can be dropped
/// from the page cache any more the kernel kills a process: see [`MemoryUse::kills`].
///
/// The group goes when this is dropped, which must be after the server's stop; what a killed
/// pgtoll leaves goes when the next group is made.
#[derive(Debug)]
pub struct MemoryGroup {
    hierarchy: Hierarchy,
    directory: PathBuf,
}

/// The memory that a group's processes used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// The limit, in bytes.
    pub limit_bytes: u64,
    /// Used now, the page cache included.
    pub current_bytes: u64,
    /// The most that was ever used; `None` where the kernel does not tell (version 2 before Linux
    /// 5.19).
    pub peak_bytes: Option<u64>,
    /// How often the limit was met, so that something had to be dropped from the cache first.
    pub limit_hits: u64,
    /// Processes that the kernel killed because nothing could be dropped any more.
    pub kills: u64,
    /// Page cache used now. Shared memory counts as page cache.
    pub cache_bytes: u64,
}

impl MemoryGroup {
    /// Makes a group with this limit, in bytes; the kernel cuts it to whole pages. `name` becomes a
    /// part of a directory's name.
    pub fn create(name: &str, limit_bytes: u64) -> Result<Self, ClusterError> {
        let (hierarchy, parent) = place()?;
        remove_leftovers(&parent);
        let directory = parent.join(format!("{PREFIX}{}-{name}", std::process::id()));
        fs::create_dir(&directory).map_err(failed("make", &directory))?;
        // From here on dropping it removes the directory.
        let group = Self { hierarchy, directory };
        let files = group.hierarchy.files();
        group.write(files.limit, &limit_bytes.to_string())?;
        let swap_bytes = if files.swap_adds { limit_bytes + SWAP_BYTES } else { 0 };
        match group.write(files.swap, &swap_bytes.to_string()) {
            // A kernel that does not count swap. Where there is none, that is as good.
            Err(ClusterError::MemoryGroup { source, .. })
                if source.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        Ok(group)
    }

    /// Returns the used memory.
    pub fn usage(&self) -> Result<MemoryUse, ClusterError> {
        let files = self.hierarchy.files();
        let statistics = self.read("memory.stat")?;
        let hits = self.read(files.hits)?;
        Ok(MemoryUse {
            limit_bytes: self.number(files.limit)?,
            current_bytes: self.number(files.current)?,
            peak_bytes: self.number(files.peak).ok(),
            limit_hits: hits.trim().parse().ok().or_else(|| value(&hits, "max")).unwrap_or(0),
            kills: value(&self.read(files.kills)?, "oom_kill").unwrap_or(0),
            cache_bytes: value(&statistics, files.cache).unwrap_or(0),
        })
    }

    /// Removes every group that this process made and in which nothing runs any more: those that
    /// were dropped before their servers had stopped.
    pub fn remove_all() {
        let Ok((_, parent)) = place() else { return };
        remove_groups(&parent, |maker| maker == std::process::id());
    }

    /// Removes the group, in which nothing may run any more.
    pub fn remove(self) -> Result<(), ClusterError> {
        fs::remove_dir(&self.directory).map_err(failed("remove", &self.directory))
    }

    fn number(&self, file: &str) -> Result<u64, ClusterError> {
        let text = self.read(file)?;
        text.trim().parse().map_err(|_| {
            failed("read", &self.directory.join(file))(io::Error::other(text.trim().to_owned()))
        })
    }

    fn read(&self, file: &str) -> Result<String, ClusterError> {
        let path = self.directory.join(file);
        fs::read_to_string(&path).map_err(failed("read", &path))
    }

    fn write(&self, file: &str, value: &str) -> Result<(), ClusterError> {
        let path = self.directory.join(file);
        fs::write(&path, value).map_err(failed("write", &path))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Whatever still runs in it keeps it; the next group's maker will find it.
        let _ = fs::remove_dir(&self.directory);
    }
}

impl Guard {
    /// Does `work` with the guard in the group, so that what it starts is born there: a process that
    /// is moved later leaves behind, in the group that it came from, what it used until then. Only
    /// pgtoll can move the guard, which is another user's.
    pub(crate) fn within<T>(
        &mut self,
        group: &MemoryGroup,
        work: impl FnOnce(&mut Self) -> Result<T, ClusterError>,
    ) -> Result<T, ClusterError> {
        let guard = self.pid();
        let home = group.hierarchy.group_of(guard)?;
        put(guard, &group.directory)?;
        let done = work(self);
        // Also when the work failed; what it says is more important then.
        let returned = put(guard, &home);
        let done = done?;
        returned?;
        Ok(done)
    }
}

fn put(pid: i32, group: &Path) -> Result<(), ClusterError> {
    let processes = group.join("cgroup.procs");
    fs::write(&processes, pid.to_string()).map_err(failed("move the guard to", group))
}

const PREFIX: &str = "pgtoll-";
/// The swap limit of version 1. Were it nothing, the limit of the sum would be met before that of
/// the memory, and meeting it is not counted by every kernel (Linux 6.18). More than the 64 pages
/// that the kernel charges at once.
const SWAP_BYTES: u64 = 1 << 20;

/// The files of a version of control groups.
struct Files {
    limit: &'static str,
    swap: &'static str,
    /// `swap` limits the sum of memory and swap.
    swap_adds: bool,
    current: &'static str,
    peak: &'static str,
    /// A number, or a table with a line `max`.
    hits: &'static str,
    /// A table with a line `oom_kill`.
    kills: &'static str,
    /// The line of `memory.stat`.
    cache: &'static str,
}

const FILES_1: Files = Files {
    limit: "memory.limit_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
    swap_adds: true,
    current: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    hits: "memory.failcnt",
    kills: "memory.oom_control",
    cache: "cache",
};

const FILES_2: Files = Files {
    limit: "memory.max",
    swap: "memory.swap.max",
    swap_adds: false,
    current: "memory.current",
    peak: "memory.peak",
    hits: "memory.events",
    kills: "memory.events",
    cache: "file",
};

/// The mounted hierarchy of groups that has the memory controller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    version: u8,
    mount_point: PathBuf,
    /// The group that is mounted there.
    root: PathBuf,
}

impl Hierarchy {
    fn files(&self) -> &'static Files {
        if self.version == 1 { &FILES_1 } else { &FILES_2 }
    }

    /// Version 1 has a hierarchy for each controller, or some; version 2 has one for all.
    fn from_mount(mount: MountInfo) -> Option<Self> {
        let version = match mount.fs_type.as_str() {
            "cgroup" if mount.super_options.contains_key("memory") => 1,
            "cgroup2" => 2,
            _ => return None,
        };
        Some(Self { version, mount_point: mount.mount_point, root: mount.root.into() })
    }

    /// The directory of a process's group.
    fn group_of(&self, pid: i32) -> Result<PathBuf, ClusterError> {
        let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
        let groups = Process::new(pid).and_then(|process| process.cgroups());
        let groups = groups.map_err(|error| failed("read", &path)(io::Error::other(error)))?;
        let ours = |group: &&ProcessCGroup| match self.version {
            1 => group.controllers.iter().any(|controller| controller == "memory"),
            _ => group.hierarchy == 0,
        };
        let group = groups.0.iter().find(ours).ok_or(ClusterError::NoMemoryController)?;
        // In a container the group may be named from a root that is not mounted there.
        let below = Path::new(&group.pathname).strip_prefix(&self.root).unwrap_or(Path::new(""));
        Ok(self.mount_point.join(below))
    }
}

/// Returns the place for new groups: below pgtoll's own group, so that its limits hold for the new one too;
/// in version 2 below the nearest group around it that hands the controller down, since one with
/// processes of its own cannot.
fn place() -> Result<(Hierarchy, PathBuf), ClusterError> {
    let mounts = Process::myself().and_then(|own| own.mountinfo());
    let mounts = mounts.map_err(|_| ClusterError::NoMemoryController)?;
    let mut hierarchies: Vec<Hierarchy> =
        mounts.into_iter().filter_map(Hierarchy::from_mount).collect();
    hierarchies.sort_by_key(|hierarchy| hierarchy.version);
    let own = i32::try_from(std::process::id()).expect("a pid fits in pid_t");
    for hierarchy in hierarchies {
        let group = hierarchy.group_of(own)?;
        if hierarchy.version == 1 {
            return Ok((hierarchy, group));
        }
        let around =
            group.ancestors().take_while(|group| group.starts_with(&hierarchy.mount_point));
        if let Some(parent) = around.into_iter().find(|group| hands_memory_down(group)) {
            let parent = parent.to_owned();
            return Ok((hierarchy, parent));
        }
    }
    Err(ClusterError::NoMemoryController)
}

fn hands_memory_down(group: &Path) -> bool {
    let controllers = fs::read_to_string(group.join("cgroup.subtree_control"));
    controllers.unwrap_or_default().split_whitespace().any(|controller| controller == "memory")
}

/// Removes the groups of pgtolls that are gone. One that is in use cannot be removed.
fn remove_leftovers(parent: &Path) {
    remove_groups(parent, |maker| !Path::new("/proc").join(maker.to_string()).exists());
}

fn remove_groups(parent: &Path, number: impl Fn(u32) -> bool) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(maker_of).is_some_and(&number) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The pid of the pgtoll that made the group of this name.
fn maker_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// The number in the line `key number` of a table.
fn value(table: &str, key: &str) -> Option<u64> {
    let mut fields = table.lines().filter_map(|line| line.split_once(' '));
    fields.find(|(name, _)| *name == key)?.1.trim().parse().ok()
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ClusterError {
    let path = path.to_owned();
    move |source| ClusterError::MemoryGroup { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_names_are_read() {
        let events = "low 0\nhigh 0\nmax 17\noom 1\noom_kill 2\n";
        assert_eq!(value(events, "max"), Some(17));
        assert_eq!(value(events, "oom_kill"), Some(2));
        assert_eq!(value(events, "none"), None);
        assert_eq!(maker_of("pgtoll-17-off"), Some(17));
        assert_eq!(maker_of("pgtoll-abcdef"), None);
        assert_eq!(maker_of("other-17-off"), None);
    }
}
