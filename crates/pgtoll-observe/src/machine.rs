//! Whether a machine is fit to be measured on, a fact a function. `None` is what the system does
//! not tell: in a container or a virtual machine that is often so.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use procfs::process::{MountInfo, Process};
use procfs::{CpuPressure, Current, IoPressure, LoadAverage, Meminfo, MemoryPressure};

use crate::host::mount_of;

/// The source of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// `ext4` and the like.
    pub kind: String,
    /// Its mount options, sorted: `noatime`, `barrier=0` and the like.
    pub options: Vec<String>,
    /// The disk below; `None` for one that has none, or more than one.
    pub disk: Option<Disk>,
}

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// `nvme0n1` and the like.
    pub name: String,
    /// It is an `NVMe` device, or lies on such ones only.
    pub is_nvme: bool,
    /// It has heads that move, as far as it tells.
    pub is_rotational: Option<bool>,
    /// `write back`: the kernel tells it to empty its cache when a file is synced; `write through`:
    /// the kernel takes what it acknowledged for safe.
    pub write_cache: Option<String>,
}

/// The file system that holds `path`.
pub fn file_system_of(path: &Path) -> Option<FileSystem> {
    let mount = mount_of(path).ok()??;
    let mut options: Vec<String> = mount
        .mount_options
        .iter()
        .chain(&mount.super_options)
        .map(|(name, value)| value.as_ref().map_or(name.clone(), |value| format!("{name}={value}")))
        .collect();
    options.sort();
    options.dedup();
    Some(FileSystem { kind: mount.fs_type.clone(), options, disk: disk_of(&mount) })
}

fn disk_of(mount: &MountInfo) -> Option<Disk> {
    let device = fs::canonicalize(Path::new("/sys/dev/block").join(&mount.majmin)).ok()?;
    // A partition lies in its disk.
    let whole = if device.join("partition").exists() { device.parent()? } else { &device };
    let name = whole.file_name()?.to_string_lossy().into_owned();
    let below: Vec<String> = fs::read_dir(whole.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let all_nvme =
        |names: &[String]| !names.is_empty() && names.iter().all(|name| name.starts_with("nvme"));
    Some(Disk {
        is_nvme: all_nvme(&below) || all_nvme(std::slice::from_ref(&name)),
        is_rotational: word(whole.join("queue/rotational")).map(|word| word == "1"),
        write_cache: word(whole.join("queue/write_cache")),
        name,
    })
}

/// CPUs that the machine has running; a process may be allowed fewer.
pub fn online_cores() -> Option<u64> {
    let list = word("/sys/devices/system/cpu/online")?;
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.split(',').map(count).sum()
}

/// The CPUs' worth of time that control groups allow this process; `None` without a quota.
pub fn cpu_quota() -> Option<f64> {
    let quota = |group: &Group| -> Option<f64> {
        let text = match group.version {
            1 => [group.read("cpu.cfs_quota_us")?, group.read("cpu.cfs_period_us")?].join(" "),
            _ => group.read("cpu.max")?,
        };
        let (quota, period) = text.split_once(' ')?;
        // `max` and -1 are none.
        let quota = quota.parse::<f64>().ok().filter(|quota| *quota > 0.0)?;
        Some(quota / period.parse::<f64>().ok()?)
    };
    groups("cpu").iter().filter_map(quota).min_by(f64::total_cmp)
}

/// The memory that control groups allow this process, in bytes; `None` without a limit.
pub fn memory_limit_bytes() -> Option<u64> {
    /// The value of version 1 for no limit: more than any machine has.
    const NO_LIMIT: u64 = 1 << 60;
    let limit = |group: &Group| {
        let file = if group.version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
        group.read(file)?.parse::<u64>().ok().filter(|limit| *limit < NO_LIMIT)
    };
    groups("memory").iter().filter_map(limit).min()
}

/// A control group that this process is in.
struct Group {
    version: u8,
    directory: PathBuf,
}

impl Group {
    fn read(&self, file: &str) -> Option<String> {
        word(self.directory.join(file))
    }
}

/// This process's group and those around it, in the hierarchies that can have the controller.
fn groups(controller: &str) -> Vec<Group> {
    let own = Process::myself();
    let Ok((mounts, own)) = own.and_then(|own| Ok((own.mountinfo()?, own.cgroups()?))) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for mount in mounts {
        let version = match mount.fs_type.as_str() {
            "cgroup" if mount.super_options.contains_key(controller) => 1,
            "cgroup2" => 2,
            _ => continue,
        };
        let ours = own.0.iter().find(|group| match version {
            1 => group.controllers.iter().any(|item| item == controller),
            _ => group.hierarchy == 0,
        });
        let Some(ours) = ours else { continue };
        // In a container the group may be named from a root that is not mounted there.
        let below = Path::new(&ours.pathname).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let directory = mount.mount_point.join(below);
        let around =
            directory.ancestors().take_while(|ancestor| ancestor.starts_with(&mount.mount_point));
        found.extend(around.map(|around| Group { version, directory: around.to_owned() }));
    }
    found
}

/// Bytes of memory that are in swap.
pub fn swap_used_bytes() -> Option<u64> {
    let memory = Meminfo::current().ok()?;
    Some(memory.swap_total.saturating_sub(memory.swap_free))
}

/// Tasks that ran or waited for a disk in the last minute, on average.
pub fn load_average() -> Option<f32> {
    LoadAverage::current().ok().map(|current| current.one)
}

/// A kernel setting by its dotted name.
pub fn sysctl(name: &str) -> Option<String> {
    word(Path::new("/proc/sys").join(name.replace('.', "/")))
}

/// The kernel settings whose names begin so, with their values.
pub fn sysctls(directory: &str, prefix: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(Path::new("/proc/sys").join(directory));
    let names = entries.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<(String, String)> = names
        .filter(|name| name.starts_with(prefix))
        .filter_map(|name| {
            let name = format!("{directory}.{name}");
            let value = sysctl(&name)?;
            Some((name, value))
        })
        .collect();
    found.sort();
    found
}

/// Returns the kernel's clock source.
pub fn clock_source() -> Option<String> {
    word("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Returns the cost of reading the clock, in ns.
pub fn clock_cost_ns() -> f64 {
    const CALLS: u32 = 1000;
    let of_many = || {
        let began = Instant::now();
        for _ in 0..CALLS {
            black_box(Instant::now());
        }
        began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    // In the others something else ran in between.
    std::iter::repeat_with(of_many).take(100).fold(f64::INFINITY, f64::min)
}

/// A CPU may run faster than its nominal frequency while it is cool.
pub fn boost() -> Option<bool> {
    let any = word("/sys/devices/system/cpu/cpufreq/boost").map(|word| word == "1");
    any.or_else(|| word("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|word| word == "0"))
}

/// Two logical CPUs may be one core.
pub fn multithreading() -> Option<bool> {
    word("/sys/devices/system/cpu/smt/active").map(|word| word == "1")
}

/// Parts of the memory that are nearer to some CPUs than to others.
pub fn memory_nodes() -> Option<usize> {
    let entries = fs::read_dir("/sys/devices/system/node").ok()?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_node = |name: &String| {
        name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    Some(names.filter(is_node).count())
}

/// How late the kernel may wake this process, in ns.
pub fn timer_slack_ns() -> Option<u64> {
    word("/proc/self/timerslack_ns")?.parse().ok()
}

/// The kernel counts what each process reads and writes.
pub fn has_io_counters() -> bool {
    Process::myself().and_then(|own| own.io()).is_ok()
}

/// Time in which some task waited, in µs since the machine's start; `None` without
/// `/proc/pressure`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// For a disk.
    pub io_us: Option<u64>,
    /// For memory.
    pub memory_us: Option<u64>,
    /// For a CPU.
    pub cpu_us: Option<u64>,
}

/// Returns the pressure so far.
pub fn pressure() -> Pressure {
    Pressure {
        io_us: IoPressure::current().ok().map(|current| current.some.total),
        memory_us: MemoryPressure::current().ok().map(|current| current.some.total),
        cpu_us: CpuPressure::current().ok().map(|current| current.some.total),
    }
}

fn word(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().replace('\t', " "))
}
