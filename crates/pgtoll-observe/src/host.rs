//! Facts about this machine, a function each.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::sys::utsname::uname;
use procfs::process::{MountInfo, Process};
use procfs::{CpuInfo, Current, Meminfo};

use crate::ObserveError;

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory of the machine, in bytes.
    pub total_bytes: u64,
    /// Memory that programs could get without swapping.
    pub available_bytes: u64,
}

/// System, release and architecture, as `uname -srm` prints them.
pub fn kernel() -> Result<String, ObserveError> {
    let name = uname().map_err(|source| ObserveError::System { what: "uname", source })?;
    let part = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
    Ok(format!("{} {} {}", part(name.sysname()), part(name.release()), part(name.machine())))
}

/// The CPU's model name; `unknown` where the kernel does not tell (some ARM machines).
pub fn cpu_model() -> String {
    let info = CpuInfo::current().ok();
    let name = info.as_ref().and_then(|info| info.model_name(0));
    name.unwrap_or("unknown").to_owned()
}

/// The CPU tells that it is a hypervisor's.
pub fn hypervisor() -> bool {
    let info = CpuInfo::current().ok();
    let flags = info.as_ref().and_then(|info| info.flags(0));
    flags.is_some_and(|flags| flags.contains(&"hypervisor"))
}

/// Logical CPUs that this process may use.
pub fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// The machine's memory.
pub fn memory() -> Result<Memory, ObserveError> {
    let memory = Meminfo::current()
        .map_err(|source| ObserveError::Proc { what: "/proc/meminfo", source })?;
    Ok(Memory {
        total_bytes: memory.mem_total,
        available_bytes: memory.mem_available.unwrap_or(memory.mem_free),
    })
}

/// Type, device and options of the mount that holds `path`.
pub fn file_system(path: &Path) -> Result<String, ObserveError> {
    Ok(mount_of(path)?.map_or_else(
        || "unknown".to_owned(),
        |mount| {
            let mut options: Vec<String> = mount
                .mount_options
                .into_iter()
                .chain(mount.super_options)
                .map(|(name, value)| value.map_or(name.clone(), |value| format!("{name}={value}")))
                .collect();
            options.sort();
            options.dedup();
            let source = mount.mount_source.unwrap_or_else(|| "none".to_owned());
            format!("{} on {source} ({})", mount.fs_type, options.join(","))
        },
    ))
}

/// The mount that holds `path`.
pub(crate) fn mount_of(path: &Path) -> Result<Option<MountInfo>, ObserveError> {
    let mounts = Process::myself()
        .and_then(|own| own.mountinfo())
        .map_err(|source| ObserveError::Proc { what: "/proc/self/mountinfo", source })?;
    let holding = mounts.into_iter().filter(|mount| path.starts_with(&mount.mount_point));
    // Of two mounts at one place the later hides the earlier.
    Ok(holding.max_by_key(|mount| mount.mount_point.components().count()))
}

/// Bytes that an ordinary user can still write to the file system of `path`.
pub fn free_bytes(path: &Path) -> Result<u64, ObserveError> {
    let space = statvfs(path)
        .map_err(|source| ObserveError::System { what: "ask for the free disk space", source })?;
    // A tmpfs without a limit says that it has no blocks at all.
    let unlimited = space.blocks() == 0;
    Ok(if unlimited { u64::MAX } else { space.blocks_available() * space.fragment_size() })
}

/// The chosen one of `always`, `madvise`, `never`.
pub fn transparent_huge_pages() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    let (_, tail) = text.split_once('[')?;
    tail.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

/// The frequency governor of the first CPU.
pub fn governor() -> Option<String> {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
