//! Room for what is built and tested, on disk and in memory.

use std::fs;
use std::path::Path;

use anyhow::bail;

use crate::{command, output, root};

/// A file system in memory.
pub(crate) const MEMORY: &str = "/dev/shm";
/// What tests may need there, and memory that is left beside, in kB.
const MEMORY_KB: u64 = 12 << 20;
/// What all builds take together, in kB, in a new clone without incremental caches: 5.2 GB of tests and lints, 2 GB
/// of fuzz targets, documentation and tools.
const BUILDS_KB: u64 = 8 << 20;

/// Whether tests can work in memory: there is enough of it, and programs may be started from there.
pub(crate) fn in_memory() -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let is_usable = read("/proc/mounts").lines().any(|line| {
        let arguments: Vec<&str> = line.split(' ').collect();
        matches!(arguments[..], [_, MEMORY, "tmpfs", options, ..] if !options.split(',').any(|part| part == "noexec"))
    });
    let memory = read("/proc/meminfo");
    let available = memory.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    let free = free_kb(Path::new(MEMORY));
    is_usable && free.zip(available).is_some_and(|(free, item)| free.min(item) >= MEMORY_KB)
}

/// An error where what is still to be built does not fit, instead of the compiler's after minutes.
pub(crate) fn require_on_disk() -> anyhow::Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let target = root().join(target);
    fs::create_dir_all(&target)?;
    // Where it cannot be told, the builds find out.
    let Some((used, free)) = used_kb(&target).zip(free_kb(&target)) else { return Ok(()) };
    match lacking(used, free) {
        0 => Ok(()),
        lacking => bail!(
            "{} has {} GB free; builds and tests need {} GB more: free some, or say another place \
             with CARGO_TARGET_DIR",
            target.display(),
            free >> 20,
            (lacking >> 20) + 1
        ),
    }
}

/// How many kB are missing: what `used` has been built is not built again.
fn lacking(used: u64, free: u64) -> u64 {
    BUILDS_KB.saturating_sub(used).saturating_sub(free)
}

fn used_kb(path: &Path) -> Option<u64> {
    let used = output(command("du").args(["--summarize", "--block-size=1K"]).arg(path)).ok()?;
    used.split_whitespace().next()?.parse().ok()
}

fn free_kb(path: &Path) -> Option<u64> {
    let free = output(command("df").arg("--output=avail").arg(path)).ok()?;
    free.lines().nth(1)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_needs_no_room_again() {
        assert_eq!(lacking(0, BUILDS_KB), 0);
        assert_eq!(lacking(0, BUILDS_KB - 1), 1);
        assert_eq!(lacking(BUILDS_KB - 10, 9), 1);
        assert_eq!(lacking(2 * BUILDS_KB, 0), 0);
    }

    #[test]
    fn a_file_system_says_what_is_free_and_used() {
        assert!(free_kb(Path::new("/")).is_some());
        assert!(free_kb(Path::new("/nowhere/at/all")).is_none());
        assert!(used_kb(&root().join("xtask")).is_some_and(|kb| kb > 0));
    }
}
