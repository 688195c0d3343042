//! The disk that clusters would be made on.

use std::path::Path;
use std::time::Duration;

use pgtoll_format::ByteSize;
use pgtoll_observe as observe;
use pgtoll_observe::{Disk, FileSystem};
use pgtoll_record::FitnessCheck;

use super::group::{Group, with};
use super::watch::Watch;
use crate::BenchError;

/// The known facts about the disk that holds a directory.
pub(super) struct DiskFacts<'a> {
    directory: &'a Path,
    free_bytes: u64,
    file_system: Option<FileSystem>,
}

impl<'a> DiskFacts<'a> {
    pub(super) fn read(directory: &'a Path) -> Result<Self, BenchError> {
        let free_bytes = observe::free_bytes(directory)?;
        let file_system = observe::file_system_of(directory);
        Ok(Self { directory, free_bytes, file_system })
    }
}

/// `lack` is what of the default experiment does not fit here.
pub(super) fn findings(
    group: Group,
    facts: &DiskFacts<'_>,
    watch: &Watch,
    lack: Option<&BenchError>,
) -> Vec<FitnessCheck> {
    let mut found = vec![space(group, facts, lack)];
    let file_system = facts.file_system.as_ref();
    match file_system {
        None => found.push(group.not_told("file system")),
        Some(known) => found.extend([kind(group, known), mount_options(group, known)]),
    }
    let disk = file_system.and_then(|file_system| file_system.disk.as_ref());
    found.push(disk.map_or_else(|| group.not_told("device"), |disk| device(group, disk)));
    found.push(sync(group, watch, file_system));
    found
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a disk are far below 2^53")]
fn space(group: Group, facts: &DiskFacts<'_>, lack: Option<&BenchError>) -> FitnessCheck {
    let DiskFacts { directory, free_bytes, .. } = facts;
    let reading = format!("{} free in {}", ByteSize(*free_bytes).rounded(), directory.display());
    let space = match lack {
        Some(BenchError::DiskTooSmall { needed_bytes, .. }) => group.warn(
            "space",
            format!(
                "{reading}; the default measurement needs {}",
                ByteSize(*needed_bytes).rounded()
            ),
            "name another disk with --work-dir, or measure with a smaller --scale",
        ),
        _ => group.ok("space", reading),
    };
    with(space, "free_bytes", *free_bytes as f64)
}

fn kind(group: Group, file_system: &FileSystem) -> FitnessCheck {
    let kind = file_system.kind.as_str();
    let elsewhere = "name a directory of the disk that servers use with --work-dir";
    match kind {
        "tmpfs" | "ramfs" | "overlay" | "aufs" | "squashfs" => {
            group.warn("file system", format!("{kind}: not what a server runs on"), elsewhere)
        }
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "fuse" | "fuseblk" | "vboxsf" => {
            group.note(
                "file system",
                format!("{kind}: another machine's or another system's"),
                elsewhere,
            )
        }
        "btrfs" | "zfs" | "bcachefs" => group.note(
            "file system",
            format!("{kind}: it copies on write and has checksums of its own"),
            "compare with full_page_writes in mind: costs differ from ext4's and xfs's",
        ),
        _ => group.ok("file system", kind),
    }
}

fn mount_options(group: Group, file_system: &FileSystem) -> FitnessCheck {
    let has = |name: &str| file_system.options.iter().any(|option| option == name);
    let reading = file_system.options.join(", ");
    if has("nobarrier") || has("barrier=0") {
        return group.warn(
            "mount options",
            reading,
            "mount with barriers: synced data are not safe",
        );
    }
    if has("sync") {
        return group.note("mount options", reading, "mount without sync: every write waits");
    }
    if has("strictatime") {
        let advice = "mount with relatime or noatime: every read writes a time";
        return group.note("mount options", reading, advice);
    }
    group.ok("mount options", reading)
}

fn device(group: Group, disk: &Disk) -> FitnessCheck {
    let kind = match (disk.is_nvme, disk.is_rotational) {
        (true, _) => "NVMe",
        (false, Some(true)) => "with heads that move, or virtual",
        (false, Some(false)) => "without heads, or virtual",
        (false, None) => "of unknown kind",
    };
    let cache = match disk.write_cache.as_deref() {
        Some("write back") => "; it flushes its cache at each sync",
        Some("write through") => "; it says that it has no cache to empty",
        _ => "",
    };
    group.ok("device", format!("{}, {kind}{cache}", disk.name))
}

/// No disk behind a bus of old, and no network, is as fast as this; an `NVMe` device with a
/// protected cache is.
const TOO_FAST_US: f64 = 50.0;

fn sync(group: Group, watch: &Watch, file_system: Option<&FileSystem>) -> FitnessCheck {
    const NAME: &str = "sync time";
    let times = match &watch.syncs {
        Ok(times) if times.is_empty() => {
            let reading = "fewer than six syncs of 8 kB in 2 s";
            return group.warn(NAME, reading, "name another disk with --work-dir");
        }
        Ok(times) => times,
        Err(error) => {
            let reading = format!("not measured: {error}");
            return group.warn(NAME, reading, "name another directory with --work-dir");
        }
    };
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let median = us(times[times.len() / 2]);
    let p99 = us(times[(times.len() - 1) * 99 / 100]);
    let reading = format!(
        "{} median, {} 99 %, of {} syncs of 8 kB",
        rounded(median),
        rounded(p99),
        times.len()
    );
    let disk = file_system.and_then(|file_system| file_system.disk.as_ref());
    let in_memory = file_system
        .is_some_and(|file_system| ["tmpfs", "ramfs"].contains(&file_system.kind.as_str()));
    let finding = if median < TOO_FAST_US && !in_memory && !disk.is_some_and(|disk| disk.is_nvme) {
        group.warn(
            NAME,
            format!("{reading}: this disk may acknowledge before it is safe"),
            "ask who runs it whether its cache survives a loss of power",
        )
    } else if median > 10_000.0 {
        group.note(NAME, reading, "commits wait for this disk: compare CPU, not transactions/s")
    } else {
        group.ok(NAME, reading)
    };
    with(with(finding, "median_us", median), "p99_us", p99)
}

fn rounded(us: f64) -> String {
    if us < 1000.0 { format!("{us:.0} us") } else { format!("{:.1} ms", us / 1000.0) }
}

#[cfg(test)]
mod tests {
    use std::io;

    use pgtoll_record::State;

    use super::*;

    const GROUP: Group = Group("disk");

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
    fn file_systems_that_servers_do_not_run_on_are_reported() {
        let state = |name: &str| kind(GROUP, &mounted(name, "rw", None)).state;
        assert_eq!(state("ext4"), State::Ok);
        assert_eq!(state("nfs4"), State::Note);
        assert_eq!(state("overlay"), State::Warn);
        let state = |options: &str| mount_options(GROUP, &mounted("ext4", options, None)).state;
        assert_eq!(state("noatime,rw"), State::Ok);
        assert_eq!(state("rw,strictatime"), State::Note);
        assert_eq!(state("barrier=0,rw"), State::Warn);
    }

    #[test]
    fn a_sync_is_too_fast_only_where_that_is_not_plausible() {
        let judged = |syncs, file_system: Option<&FileSystem>| {
            sync(GROUP, &Watch::idle(syncs), file_system).state
        };
        let state = |us: u64, file_system: &FileSystem| {
            judged(Ok(vec![Duration::from_micros(us); 9]), Some(file_system))
        };
        let disk = |name: &str| mounted("ext4", "rw", Some(name));
        assert_eq!(state(20, &disk("vda")), State::Warn);
        assert_eq!(state(20, &mounted("ext4", "rw", None)), State::Warn);
        assert_eq!(state(20, &disk("nvme0n1")), State::Ok);
        assert_eq!(state(20, &mounted("tmpfs", "rw", None)), State::Ok);
        assert_eq!(state(2000, &disk("sda")), State::Ok);
        assert_eq!(state(20_000, &disk("sda")), State::Note);
        assert_eq!(judged(Ok(Vec::new()), None), State::Warn);
        assert_eq!(judged(Err(io::Error::other("full")), None), State::Warn);
    }

    #[test]
    fn a_file_system_that_is_unknown_is_not_guessed() {
        let facts =
            DiskFacts { directory: Path::new("/base"), free_bytes: 1 << 30, file_system: None };
        let watch = Watch::idle(Ok(vec![Duration::from_millis(1); 9]));
        let found = findings(GROUP, &facts, &watch, None);
        let names: Vec<(&str, State)> =
            found.iter().map(|finding| (finding.name.as_str(), finding.state)).collect();
        assert_eq!(
            names,
            [
                ("space", State::Ok),
                ("file system", State::NotTold),
                ("device", State::NotTold),
                ("sync time", State::Ok),
            ]
        );
        assert_eq!(found[0].reading, "1.00 GB free in /base");
        let lack = BenchError::DiskTooSmall {
            path: "/base".into(),
            free_bytes: 1 << 30,
            needed_bytes: 1 << 31,
        };
        let space = space(GROUP, &facts, Some(&lack));
        let expected = "1.00 GB free in /base; the default measurement needs 2.00 GB";
        assert_eq!((space.state, space.reading.as_str()), (State::Warn, expected));
    }
}
