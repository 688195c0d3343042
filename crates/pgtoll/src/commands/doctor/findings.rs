//! What the facts of a machine mean for measurements, group by group.

use std::time::Duration;

use pgtoll_bench::{BenchError, Choices, Experiment, Plan};
use pgtoll_cluster::{Found, GuardOptions, Installation, MemoryGroup, Profiler, leftovers};
use pgtoll_format::ByteSize;
use pgtoll_observe as observe;
use pgtoll_observe::{CpuSplit, Disk, FileSystem};
use pgtoll_record::{Calibration, Examination, Finding, Host, State};

use super::Seen;
use crate::calibration;

/// Everything that is looked at.
pub(super) fn all(
    guard: &GuardOptions,
    server: Option<&Installation>,
    found: &Found,
    host: &Host,
    seen: &Seen,
    calibration: &[Calibration],
) -> anyhow::Result<Vec<Finding>> {
    let room = room(guard)?;
    let groups = [
        ("CPU", cpu(host)),
        ("what else runs", noise(seen, host)),
        ("memory", memory(host, room.as_ref())),
        ("disk", disk(guard, seen, room.as_ref())?),
        ("kernel", kernel(host)),
        ("counters", counters(host)),
        ("servers", servers(guard, server, found)),
        (CALIBRATION, vec![calibrated(calibration, host)]),
    ];
    let named = groups.into_iter().flat_map(|(group, findings)| {
        findings.into_iter().map(move |finding| Finding { group: group.to_owned(), ..finding })
    });
    Ok(named.collect())
}

const CALIBRATION: &str = "calibration";

/// Tells the calibration again, after more of it came.
pub(super) fn recalibrate(examination: &mut Examination) {
    let now = calibrated(&examination.calibration, &examination.host);
    for old in &mut examination.findings {
        if old.group == CALIBRATION {
            *old = Finding { group: CALIBRATION.to_owned(), ..now.clone() };
        }
    }
}

fn ok(name: &str, reading: impl Into<String>) -> Finding {
    Finding {
        group: String::new(),
        name: name.to_owned(),
        state: State::Ok,
        reading: reading.into(),
        figures: [].into(),
        advice: None,
    }
}

fn note(name: &str, reading: impl Into<String>, advice: &str) -> Finding {
    Finding { state: State::Note, advice: Some(advice.to_owned()), ..ok(name, reading) }
}

fn warn(name: &str, reading: impl Into<String>, advice: &str) -> Finding {
    Finding { state: State::Warn, advice: Some(advice.to_owned()), ..ok(name, reading) }
}

fn not_told(name: &str) -> Finding {
    Finding { state: State::NotTold, ..ok(name, "not told") }
}

fn with(finding: Finding, figure: &str, value: f64) -> Finding {
    let figures = finding.figures.into_iter().chain([(figure.to_owned(), value)]).collect();
    Finding { figures, ..finding }
}

/// `ok` up to the first bound, then `note`, beyond the second bound `warn`.
fn graded(name: &str, value: f64, bounds: [f64; 2], reading: String, advice: &str) -> Finding {
    match value {
        _ if value > bounds[1] => warn(name, reading, advice),
        _ if value > bounds[0] => note(name, reading, advice),
        _ => ok(name, reading),
    }
}

#[expect(clippy::cast_precision_loss, reason = "cores are few")]
fn cpu(host: &Host) -> Vec<Finding> {
    let online = observe::online_cores().unwrap_or(host.cores);
    let of = if online > host.cores { format!(" of {online}") } else { String::new() };
    let reading = format!("{}{of}, {}", host.cores, host.cpu);
    let cores = match host.cores {
        1 => warn("cores", reading, "use at least 2: the load takes CPU from the server"),
        _ => ok("cores", reading),
    };
    let quota = match observe::cpu_quota() {
        Some(quota) => warn(
            "quota",
            format!("a control group allows {quota:.1} CPUs' worth of time"),
            "run without it (no --cpus, no CPUQuota=): throttling stops servers in mid-slice",
        ),
        None => ok("quota", "none"),
    };
    let governor = match host.governor.as_deref() {
        None => not_told("governor"),
        Some("performance") => ok("governor", "performance"),
        Some(other) => note(
            "governor",
            other,
            "cpupower frequency-set -g performance: CPU time is of one frequency then",
        ),
    };
    let boost = match observe::boost() {
        None => not_told("boost"),
        Some(false) => ok("boost", "off"),
        Some(true) => note(
            "boost",
            "on: frequencies depend on heat and on neighbours",
            "echo 0 > /sys/devices/system/cpu/cpufreq/boost (intel_pstate: 1 > no_turbo)",
        ),
    };
    let threads = match observe::multithreading() {
        None => not_told("SMT"),
        Some(false) => ok("SMT", "off, or not there"),
        Some(true) => note(
            "SMT",
            "on: two CPUs may be one core, which slows both down",
            "echo off > /sys/devices/system/cpu/smt/control, or keep others off the machine",
        ),
    };
    let machine = if host.hypervisor {
        let advice = "neighbours are not seen: look at steal, and repeat at another hour";
        note("machine", "virtual", advice)
    } else {
        ok("machine", "says nothing of a hypervisor")
    };
    let cores = with(cores, "cores", host.cores as f64);
    vec![cores, quota, governor, boost, threads, machine].into_iter().chain(clocks()).collect()
}

fn clocks() -> Vec<Finding> {
    let source = observe::clock_source();
    let source = match source.as_deref() {
        None => not_told("clock source"),
        Some(
            source @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page"),
        ) => ok("clock source", source),
        Some(other) => note("clock source", other, "tsc is cheaper, where the kernel trusts it"),
    };
    let cost = observe::clock_cost_ns();
    let reading = format!("{cost:.0} ns to ask for the time");
    let advice = "each transaction asks several times: see the clock source";
    let cost = with(graded("clock", cost, [150.0, 1000.0], reading, advice), "cost_ns", cost);
    vec![source, cost]
}

#[expect(clippy::cast_precision_loss, reason = "cores are few")]
fn noise(seen: &Seen, host: &Host) -> Vec<Finding> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let share = |name: &str, share: Option<f64>, bounds: [f64; 2], what: &str, advice: &str| {
        share.map_or_else(
            || not_told(name),
            |share| {
                let reading = format!("{} {what}", percent(share));
                with(graded(name, share, bounds, reading, advice), "share", share)
            },
        )
    };
    let quieter = "stop it, or take more rounds: intervals get wider, not wrong";
    let load = observe::load_average().map_or_else(
        || not_told("load average"),
        |load| {
            let load = f64::from(load);
            let bounds = [host.cores as f64 * 0.5, host.cores as f64];
            let reading = format!("{load:.2} in the last minute");
            with(graded("load average", load, bounds, reading, quieter), "load", load)
        },
    );
    let waited = &seen.pressure;
    vec![
        share(
            "others' CPU",
            Some(seen.machine.busy),
            [0.05, 0.25],
            "of all CPUs' time was used by other programs",
            quieter,
        ),
        share(
            "steal",
            Some(seen.machine.steal),
            [0.01, 0.05],
            "of all CPUs' time was taken by the hypervisor",
            "another host, or another hour: more rounds make up for some of it",
        ),
        share("CPU pressure", waited.cpu, [0.10, 0.50], "of the time some task waited", quieter),
        share("disk pressure", waited.io, [0.10, 0.50], "of the time some task waited", quieter),
        share(
            "memory pressure",
            waited.memory,
            [0.01, 0.10],
            "of the time some task waited",
            "free some memory: pages that are read again are somebody's noise",
        ),
        load,
    ]
}

/// What of the default experiment does not fit here.
fn room(guard: &GuardOptions) -> anyhow::Result<Option<BenchError>> {
    let Some(experiment) = Experiment::built_in("checksums") else { return Ok(None) };
    let plan = Plan::new(experiment?, &Choices::default());
    Ok(plan.check_room(&guard.base).err())
}

#[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^53")]
fn memory(host: &Host, room: Option<&BenchError>) -> Vec<Finding> {
    let size = |bytes: u64| ByteSize(bytes).rounded();
    let available = observe::memory().map_or(0, |of| of.available_bytes);
    let reading = format!("{}, {} available", size(host.memory_bytes), size(available));
    let memory = match room {
        Some(BenchError::MemoryTooSmall { needed_bytes, .. }) => warn(
            "memory",
            format!("{reading}; the default measurement needs {}", size(*needed_bytes)),
            "measure with a smaller --scale, or free some memory",
        ),
        _ => ok("memory", reading),
    };
    let limit = observe::memory_limit_bytes().filter(|limit| *limit < host.memory_bytes);
    let limit = match limit {
        Some(limit) => note(
            "limit",
            format!("a control group allows {}", size(limit)),
            "all servers and their page cache share it: choose --scale by it",
        ),
        None => ok("limit", "none"),
    };
    let swap = match observe::swap_used_bytes() {
        None => not_told("swap"),
        Some(0) => ok("swap", "not in use"),
        Some(used) => note(
            "swap",
            format!("{} in use", size(used)),
            "swapoff -a && swapon -a, when there is memory for it",
        ),
    };
    let memory = with(memory, "total_bytes", host.memory_bytes as f64);
    vec![with(memory, "available_bytes", available as f64), limit, swap]
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a disk are far below 2^53")]
fn disk(
    guard: &GuardOptions,
    seen: &Seen,
    room: Option<&BenchError>,
) -> anyhow::Result<Vec<Finding>> {
    let free = observe::free_bytes(&guard.base)?;
    let place = guard.base.display();
    let space = match room {
        Some(BenchError::DiskTooSmall { needed_bytes, .. }) => warn(
            "space",
            format!(
                "{} free in {place}; the default measurement needs {}",
                ByteSize(free).rounded(),
                ByteSize(*needed_bytes).rounded()
            ),
            "name another disk with --work-dir, or measure with a smaller --scale",
        ),
        _ => ok("space", format!("{} free in {place}", ByteSize(free).rounded())),
    };
    let file_system = observe::file_system_of(&guard.base);
    let disk = file_system.as_ref().and_then(|of| of.disk.as_ref());
    let mut found = vec![with(space, "free_bytes", free as f64)];
    found.extend(match &file_system {
        None => vec![not_told("file system")],
        Some(of) => vec![kind(of), mount_options(of)],
    });
    found.push(disk.map_or_else(|| not_told("device"), device));
    found.push(sync(seen, file_system.as_ref()));
    Ok(found)
}

fn kind(of: &FileSystem) -> Finding {
    let kind = of.kind.as_str();
    let elsewhere = "name a directory of the disk that servers use with --work-dir";
    match kind {
        "tmpfs" | "ramfs" | "overlay" | "aufs" | "squashfs" => {
            warn("file system", format!("{kind}: not what a server runs on"), elsewhere)
        }
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "fuse" | "fuseblk" | "vboxsf" => {
            note("file system", format!("{kind}: another machine's or another system's"), elsewhere)
        }
        "btrfs" | "zfs" | "bcachefs" => note(
            "file system",
            format!("{kind}: it copies what is written, and has checksums of its own"),
            "compare with full_page_writes in mind: costs differ from ext4's and xfs's",
        ),
        _ => ok("file system", kind),
    }
}

fn mount_options(of: &FileSystem) -> Finding {
    let has = |name: &str| of.options.iter().any(|option| option == name);
    let reading = of.options.join(", ");
    if has("nobarrier") || has("barrier=0") {
        return warn("mount options", reading, "mount with barriers: what is synced is not safe");
    }
    if has("sync") {
        return note("mount options", reading, "mount without sync: every write waits");
    }
    if has("strictatime") {
        let advice = "mount with relatime or noatime: every read writes a time";
        return note("mount options", reading, advice);
    }
    ok("mount options", reading)
}

fn device(of: &Disk) -> Finding {
    let kind = match (of.is_nvme, of.is_rotational) {
        (true, _) => "NVMe",
        (false, Some(true)) => "with heads that move, or virtual",
        (false, Some(false)) => "without heads, or virtual",
        (false, None) => "of a kind that is not told",
    };
    let cache = match of.write_cache.as_deref() {
        Some("write back") => "; it is told to empty its cache at each sync",
        Some("write through") => "; it says that it has no cache to empty",
        _ => "",
    };
    ok("device", format!("{}, {kind}{cache}", of.name))
}

/// No disk behind a bus of old, and no network, is as fast as this; a `NVMe` device with a
/// protected cache is.
const TOO_FAST_US: f64 = 50.0;

fn sync(seen: &Seen, file_system: Option<&FileSystem>) -> Finding {
    const NAME: &str = "sync time";
    let times = match &seen.syncs {
        Ok(times) if times.is_empty() => {
            let reading = "fewer than six syncs of 8 kB in 2 s";
            return warn(NAME, reading, "name another disk with --work-dir");
        }
        Ok(times) => times,
        Err(error) => {
            let reading = format!("not measured: {error}");
            return warn(NAME, reading, "name another directory with --work-dir");
        }
    };
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let (median, p99) = (us(times[times.len() / 2]), us(times[(times.len() - 1) * 99 / 100]));
    let reading = format!(
        "{} median, {} 99 %, of {} syncs of 8 kB",
        rounded(median),
        rounded(p99),
        times.len()
    );
    let disk = file_system.and_then(|of| of.disk.as_ref());
    let in_memory = file_system.is_some_and(|of| ["tmpfs", "ramfs"].contains(&of.kind.as_str()));
    let finding = if median < TOO_FAST_US && !in_memory && !disk.is_some_and(|of| of.is_nvme) {
        warn(
            NAME,
            format!("{reading}: this disk may acknowledge before it is safe"),
            "ask who runs it whether its cache survives a loss of power",
        )
    } else if median > 10_000.0 {
        note(NAME, reading, "commits wait for this disk: CPU tells more than transactions/s")
    } else {
        ok(NAME, reading)
    };
    with(with(finding, "median_us", median), "p99_us", p99)
}

fn rounded(us: f64) -> String {
    if us < 1000.0 { format!("{us:.0} us") } else { format!("{:.1} ms", us / 1000.0) }
}

fn kernel(host: &Host) -> Vec<Finding> {
    let pages = match host.transparent_huge_pages.as_deref() {
        None => not_told("huge pages"),
        Some("always") => note(
            "huge pages",
            "transparent ones always: the kernel may join pages in the middle of a slice",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(other) => ok("huge pages", format!("transparent ones: {other}")),
    };
    let mut found = vec![pages, dirty_pages()];
    for (name, is_fine, advice) in SETTINGS {
        let short = name.rsplit('.').next().unwrap_or(name);
        found.push(match observe::sysctl(name) {
            None => not_told(short),
            Some(value) if is_fine(&value) => ok(short, value),
            Some(value) => note(short, value, advice),
        });
    }
    let nodes = observe::memory_nodes();
    found.push(match (nodes, observe::sysctl("kernel.numa_balancing").as_deref()) {
        (None | Some(0), _) => not_told("memory nodes"),
        (Some(1), _) => ok("memory nodes", "1"),
        (Some(nodes), Some("1")) => note(
            "memory nodes",
            format!("{nodes}, and the kernel moves pages between them"),
            "sysctl kernel.numa_balancing=0, and numactl --cpunodebind=0 --membind=0 pgtoll",
        ),
        (Some(nodes), _) => note(
            "memory nodes",
            nodes.to_string(),
            "numactl --cpunodebind=0 --membind=0 pgtoll keeps to one",
        ),
    });
    let scheduler = together("kernel", "sched_");
    found.push(scheduler.map_or_else(|| not_told("scheduler"), |all| ok("scheduler", all)));
    found
}

/// `name=value` of all settings whose names begin so; `None` when there is none.
fn together(directory: &str, prefix: &str) -> Option<String> {
    let begin = format!("{directory}.{prefix}");
    let settings = observe::sysctls(directory, prefix).into_iter();
    let named = settings
        .map(|(name, value)| format!("{}={value}", name.strip_prefix(&begin).unwrap_or(&name)));
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// The kernel writes dirty pages in the background from here on, and makes who writes wait beyond.
fn dirty_pages() -> Finding {
    const NAME: &str = "dirty pages";
    let Some(all) = together("vm", "dirty_") else { return not_told(NAME) };
    let background = observe::sysctl("vm.dirty_background_ratio");
    let background = background.and_then(|of| of.parse::<u32>().ok()).unwrap_or(0);
    if background > 10 {
        let advice = "sysctl vm.dirty_background_bytes=268435456: the kernel writes in smaller \
                      bursts";
        return note(NAME, all, advice);
    }
    ok(NAME, all)
}

/// A kernel setting, whether a value is fine, and what to do when it is not.
type Setting = (&'static str, fn(&str) -> bool, &'static str);

const SETTINGS: [Setting; 4] = [
    (
        "vm.swappiness",
        |value| value.parse().is_ok_and(|value: u32| value <= 60),
        "sysctl vm.swappiness=10: the page cache gives way before servers do",
    ),
    (
        "vm.overcommit_memory",
        |value| value != "1",
        "sysctl vm.overcommit_memory=2, as PostgreSQL's documentation advises for servers",
    ),
    (
        "vm.zone_reclaim_mode",
        |value| value == "0",
        "sysctl vm.zone_reclaim_mode=0: the page cache of other nodes is better than a disk",
    ),
    (
        "kernel.perf_event_paranoid",
        |value| value.parse().is_ok_and(|value: i32| value <= 2),
        "sysctl kernel.perf_event_paranoid=2: then perf can sample servers",
    ),
];

fn counters(host: &Host) -> Vec<Finding> {
    let split = match observe::cpu_split() {
        CpuSplit::Exact => ok("CPU split", "exact"),
        CpuSplit::Sampled { hz } => ok(
            "CPU split",
            format!(
                "user and kernel time are told apart {} times a second: shares need 10 s; sums \
                 are exact",
                hz.map_or_else(|| "some hundred".to_owned(), |hz| hz.to_string())
            ),
        ),
    };
    let io = if observe::has_io_counters() {
        ok("I/O of processes", "counted")
    } else {
        note(
            "I/O of processes",
            "not counted: no disk reads and writes in results",
            "use a kernel with CONFIG_TASK_IO_ACCOUNTING",
        )
    };
    let groups = MemoryGroup::create("doctor", (64 << 20).min(host.memory_bytes));
    let groups = match groups.and_then(MemoryGroup::remove) {
        Ok(()) => ok("memory limits", "can be set"),
        Err(error) => note(
            "memory limits",
            format!("cannot be set ({error}): no checksums-disk"),
            "root, or systemd-run --user --scope -p Delegate=yes pgtoll ...",
        ),
    };
    let perf = match Profiler::program() {
        Some(program) => ok("perf", program.display().to_string()),
        None => note(
            "perf",
            "not installed: no function's share of CPU time",
            "Debian: apt-get install linux-perf",
        ),
    };
    let slack = observe::timer_slack_ns().map_or_else(
        || not_told("timer slack"),
        |slack| {
            #[expect(clippy::cast_precision_loss, reason = "a slack is far below 2^53 ns")]
            let us = slack as f64 / 1000.0;
            let advice = "open loops (--rate) begin transactions later than they should";
            let reading = format!("{us:.0} us");
            with(graded("timer slack", us, [50.0, 1e9], reading, advice), "slack_us", us)
        },
    );
    vec![split, io, groups, perf, slack]
}

fn servers(guard: &GuardOptions, server: Option<&Installation>, installed: &Found) -> Vec<Finding> {
    let name = |of: &Installation| format!("{} ({})", of.version, of.origin);
    let all: Vec<String> = installed.installations.iter().map(name).collect();
    let server = match server {
        Some(of) => ok("server", format!("PostgreSQL {} in {}", name(of), of.bin.display())),
        None => note("server", "none", "pgtoll postgres install fetches one"),
    };
    let because = if guard.user.changed { ", since PostgreSQL refuses root" } else { "" };
    let user = format!("{}{because}; it can work in {}", guard.user.name, guard.base.display());
    let mut found = vec![server];
    found.extend((all.len() > 1).then(|| ok("all servers", all.join(", "))));
    found.extend(
        installed
            .skipped
            .iter()
            .map(|of| note("not used", of.to_string(), &of.reason.hint().unwrap_or_default())),
    );
    found.push(ok("user", user));
    found.extend(leftovers(&guard.base, &guard.user).iter().map(|of| {
        let reading = format!("{}: its guard was killed", of.directory.display());
        note("left behind", reading, &of.removal())
    }));
    found
}

fn calibrated(calibration: &[Calibration], host: &Host) -> Finding {
    const NAME: &str = "intervals";
    if calibration.is_empty() {
        return note(
            NAME,
            format!(
                "not calibrated: {} comparisons of what does not differ, and {} are needed",
                calibration::on_file(host),
                calibration::COMPARISONS_NEEDED
            ),
            "pgtoll doctor --null 10m",
        );
    }
    let factors = calibration.iter().map(|of| {
        let metric = pgtoll_report::metric_title(of.metric);
        format!("{metric} x {:.2} ({} comparisons)", of.kappa, of.comparisons)
    });
    let factors: Vec<String> = factors.collect();
    ok(NAME, format!("calibrated: {}", factors.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::commands::doctor::Waited;

    fn mounted(kind: &str, options: &str, disk: Option<&str>) -> FileSystem {
        FileSystem {
            kind: kind.into(),
            options: options.split(',').map(Into::into).collect(),
            disk: disk.map(|name| Disk {
                name: name.into(),
                is_nvme: name.starts_with("nvme"),
                is_rotational: None,
                write_cache: None,
            }),
        }
    }

    #[test]
    fn file_systems_that_servers_do_not_run_on_are_told() {
        let state = |kind_of: &str| kind(&mounted(kind_of, "rw", None)).state;
        assert_eq!(state("ext4"), State::Ok);
        assert_eq!(state("nfs4"), State::Note);
        assert_eq!(state("overlay"), State::Warn);
        let state = |options: &str| mount_options(&mounted("ext4", options, None)).state;
        assert_eq!(state("noatime,rw"), State::Ok);
        assert_eq!(state("rw,strictatime"), State::Note);
        assert_eq!(state("barrier=0,rw"), State::Warn);
    }

    fn seen(syncs: io::Result<Vec<Duration>>) -> Seen {
        Seen {
            machine: observe::MachineUse {
                busy: 0.0,
                steal: 0.0,
                cpu_seconds: 6.0,
                pressure_us: None,
            },
            pressure: Waited { cpu: None, io: None, memory: None },
            syncs,
        }
    }

    #[test]
    fn a_sync_is_too_fast_only_where_that_is_not_plausible() {
        let state = |us: u64, of: &FileSystem| {
            sync(&seen(Ok(vec![Duration::from_micros(us); 9])), Some(of)).state
        };
        let disk = |name: &str| mounted("ext4", "rw", Some(name));
        assert_eq!(state(20, &disk("vda")), State::Warn);
        assert_eq!(state(20, &mounted("ext4", "rw", None)), State::Warn);
        assert_eq!(state(20, &disk("nvme0n1")), State::Ok);
        assert_eq!(state(20, &mounted("tmpfs", "rw", None)), State::Ok);
        assert_eq!(state(2000, &disk("sda")), State::Ok);
        assert_eq!(state(20_000, &disk("sda")), State::Note);
        assert_eq!(sync(&seen(Ok(Vec::new())), None).state, State::Warn);
        assert_eq!(sync(&seen(Err(io::Error::other("full"))), None).state, State::Warn);
    }

    #[test]
    fn what_is_not_told_is_not_guessed() {
        let host = Host {
            kernel: String::new(),
            cpu: "unknown".into(),
            cores: 4,
            memory_bytes: 1 << 30,
            file_system: String::new(),
            hypervisor: false,
            transparent_huge_pages: None,
            governor: None,
            cpu_split: String::new(),
        };
        let found = noise(&seen(Ok(Vec::new())), &host);
        let pressure = found.iter().find(|of| of.name == "disk pressure").unwrap();
        assert_eq!((pressure.state, pressure.reading.as_str()), (State::NotTold, "not told"));
        assert_eq!(cpu(&host)[2].state, State::NotTold);
        let busy = Seen {
            pressure: Waited { cpu: Some(0.6), ..seen(Ok(Vec::new())).pressure },
            ..seen(Ok(Vec::new()))
        };
        let cpu = noise(&busy, &host);
        assert_eq!(cpu.iter().find(|of| of.name == "CPU pressure").unwrap().state, State::Warn);
    }
}
