//! The precision with which this kernel tells user time from system time.

use std::collections::HashMap;
use std::fs;

use procfs::ConfigSetting;
use procfs::process::Process;

/// How a process's CPU time is divided into user and system time. The sum is exact either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuSplit {
    /// Taken at every change between user mode and kernel.
    Exact,
    /// The exact sum is divided as the timer's ticks found it, so a part is only known to about
    /// the root of the number of ticks; and work that is in step with the timer is not seen.
    Sampled {
        /// Ticks a second; `None` where the kernel's configuration cannot be read.
        hz: Option<u32>,
    },
}

/// Returns how this kernel splits CPU time, on the CPUs that this process may use.
pub fn cpu_split() -> CpuSplit {
    let config = procfs::kernel_config().unwrap_or_default();
    let tracked = fs::read_to_string("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    let usable = Process::myself().and_then(|own| own.status()).ok();
    let usable = usable.and_then(|status| status.cpus_allowed_list).unwrap_or_default();
    split(&config, &cpu_list(&tracked), &usable)
}

/// `tracked` are the CPUs with full dynamic ticks, `usable` those where the work runs, as ranges.
fn split(
    config: &HashMap<String, ConfigSetting>,
    tracked: &[(u32, u32)],
    usable: &[(u32, u32)],
) -> CpuSplit {
    let on = |name| matches!(config.get(name), Some(ConfigSetting::Yes));
    let is_tracked = |cpu: u32| tracked.iter().any(|(first, last)| (*first..=*last).contains(&cpu));
    let all_tracked =
        !usable.is_empty() && usable.iter().all(|&(first, last)| (first..=last).all(is_tracked));
    // The first name is that of Linux 6.1 and later.
    let forced = on("CONFIG_CONTEXT_TRACKING_USER_FORCE") || on("CONFIG_CONTEXT_TRACKING_FORCE");
    let generic = on("CONFIG_VIRT_CPU_ACCOUNTING_GEN") && (forced || all_tracked);
    if generic || on("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE") {
        return CpuSplit::Exact;
    }
    let hz = match config.get("CONFIG_HZ") {
        Some(ConfigSetting::Value(hz)) => hz.parse().ok(),
        _ => None,
    };
    CpuSplit::Sampled { hz }
}

/// A list like `1-3,7`. What is no number (`(null)` where none is) is left out.
fn cpu_list(text: &str) -> Vec<(u32, u32)> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    text.trim().split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &str, tracked: &str, expected: CpuSplit) {
        let config: HashMap<_, _> = config
            .split_whitespace()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| {
                let value = match value {
                    "y" => ConfigSetting::Yes,
                    other => ConfigSetting::Value(other.to_owned()),
                };
                (format!("CONFIG_{name}"), value)
            })
            .collect();
        assert_eq!(split(&config, &cpu_list(tracked), &[(0, 1), (3, 3)]), expected);
    }

    #[test]
    fn the_split_is_exact_where_the_kernel_looks_at_every_change() {
        let sampled = |hz| CpuSplit::Sampled { hz };
        check("", "", sampled(None));
        check("TICK_CPU_ACCOUNTING=y HZ=250", "", sampled(Some(250)));
        check("VIRT_CPU_ACCOUNTING_NATIVE=y HZ=100", "", CpuSplit::Exact);
        let generic = "VIRT_CPU_ACCOUNTING_GEN=y HZ=1000";
        check(generic, " (null)\n", sampled(Some(1000)));
        check(generic, "1-3\n", sampled(Some(1000)));
        check(generic, "0-1,3\n", CpuSplit::Exact);
        check(&format!("{generic} CONTEXT_TRACKING_USER_FORCE=y"), "", CpuSplit::Exact);
        check("TICK_CPU_ACCOUNTING=y HZ=250", "0-3", sampled(Some(250)));
    }
}
