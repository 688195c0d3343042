//! Results of reads and plans, beside the goals. Pure.

use std::fmt::Write as _;

use pgtoll_estimate::{fleet_object_time, fleet_packing_time};
use pgtoll_format::ByteSize;
use pgtoll_record::FleetCpuTime;
use pgtoll_record::trials::{
    BenchEstimate, BenchUsage, FleetBenchCase, FleetBenchHeader, FleetBenchPacking,
    FleetBenchPlace, FleetBenchPlan, FleetBenchRead,
};
use pgtoll_trials::bench::ratio;

use crate::packed::PACKINGS;

/// What a unit of a plan has at most, where it can be cut.
pub(crate) const UNIT_BYTES: u64 = 100 << 30;
/// The most that a store may cost: CPU time over that of fetching the same ranges to nowhere and of what verifying a
/// file takes outside the kernel, which copies the file.
const COST_RATIO: f64 = 1.15;
/// How much more memory than a file.
const MEMORY_KB: f64 = 100.0 * 1024.0;
/// Memory of the largest over that of the smallest.
const MEMORY_RATIO: f64 = 1.1;
const LISTING_S: f64 = 10.0;
const MAKESPAN: f64 = 1.02;
/// Beyond them one prefix of a store limits requests.
const NODES: u32 = 100;

/// What is to be shown, and what was.
pub(crate) struct FleetOutcomeLine {
    what: String,
    found: f64,
    /// Of a ratio of times; of a time the extremes.
    interval: Option<(f64, f64)>,
    goal: Goal,
}

enum Goal {
    AtMost(f64),
    /// It is reported.
    None,
}

impl FleetOutcomeLine {
    pub(crate) fn is_reached(&self) -> bool {
        match self.goal {
            Goal::AtMost(bound) => self.found <= bound,
            Goal::None => true,
        }
    }
}

/// Of the cases that were tried.
pub(crate) fn outcomes(
    reads: &[FleetBenchRead],
    plans: &[FleetBenchPlan],
) -> anyhow::Result<Vec<FleetOutcomeLine>> {
    let mut outcomes = cost(reads)?;
    outcomes.extend(memory(reads));
    outcomes.extend(packings(reads));
    outcomes.extend(objects(reads));
    outcomes.extend(plans.iter().flat_map(of_plan));
    Ok(outcomes)
}

fn of_case(
    reads: &[FleetBenchRead],
    case: FleetBenchCase,
    place: FleetBenchPlace,
) -> impl Iterator<Item = &FleetBenchRead> {
    reads.iter().filter(move |item| item.case == case && item.place == place)
}

fn cost(reads: &[FleetBenchRead]) -> anyhow::Result<Vec<FleetOutcomeLine>> {
    let of_place = |place| of_case(reads, FleetBenchCase::Cost, place).map(|read| &read.usage);
    let store: Vec<f64> = of_place(FleetBenchPlace::Store).map(BenchUsage::cpu_s).collect();
    if store.is_empty() {
        return Ok(Vec::new());
    }
    let verified = of_place(FleetBenchPlace::File).map(|usage| usage.user_s);
    let fetched = of_place(FleetBenchPlace::Download).map(BenchUsage::cpu_s);
    let parts: Vec<f64> =
        verified.zip(fetched).map(|(verified, fetched)| verified + fetched).collect();
    let file = of_place(FleetBenchPlace::File).map(BenchUsage::cpu_s);
    let line = |label: &str, estimate: BenchEstimate, goal| FleetOutcomeLine {
        what: label.to_owned(),
        found: estimate.ratio,
        interval: Some((estimate.lower, estimate.upper)),
        goal,
    };
    let against_file = ratio(store.iter().copied(), file)?;
    let mut lines = vec![line("CPU time, store / file", against_file, Goal::None)];
    // Older records have no downloads.
    if !parts.is_empty() {
        let against_parts = ratio(store.into_iter(), parts.into_iter())?;
        let label = "CPU time, store / (curl to nowhere + verifying from memory)";
        lines.push(line(label, against_parts, Goal::AtMost(COST_RATIO)));
    }
    Ok(lines)
}

fn memory(reads: &[FleetBenchRead]) -> Vec<FleetOutcomeLine> {
    let peaks = |place| of_case(reads, FleetBenchCase::Memory, place);
    let file = peaks(FleetBenchPlace::File).map(|peak| peak.peak_kb).max();
    let most = peaks(FleetBenchPlace::Store).map(|peak| peak.peak_kb).max();
    let by_size = |fleet_bench_read: &&FleetBenchRead| fleet_bench_read.bytes;
    let smallest = peaks(FleetBenchPlace::Store).min_by_key(by_size);
    let largest = peaks(FleetBenchPlace::Store).max_by_key(by_size);
    let (Some(file), Some(most), Some(smallest), Some(largest)) = (file, most, smallest, largest)
    else {
        return Vec::new();
    };
    let line = |label: String, found, bound| FleetOutcomeLine {
        what: label,
        found,
        interval: None,
        goal: Goal::AtMost(bound),
    };
    vec![
        line(
            "peak memory of a store above a file's, kB".into(),
            number(most) - number(file),
            MEMORY_KB,
        ),
        line(
            format!("peak memory, {} / {}", size(largest.bytes), size(smallest.bytes)),
            number(largest.peak_kb) / number(smallest.peak_kb),
            MEMORY_RATIO,
        ),
    ]
}

/// What `fleet plan` reckons with, of a real backup.
fn packings(reads: &[FleetBenchRead]) -> Vec<FleetOutcomeLine> {
    let mut lines = Vec::new();
    for packing in PACKINGS {
        let first = reads.iter().find(|item| item.packing == Some(packing));
        if let (Some(time), Some(first)) = (fleet_packing_time(reads, packing), first) {
            let unpacked = first.unpacked_bytes.unwrap_or(first.bytes);
            let factor = number(unpacked) / number(first.bytes);
            let label = format!("CPU s/GB stored, over TLS, {} ({factor:.2} : 1)", name(packing));
            lines.push(reported(label, &time, 1.0));
        }
    }
    lines
}

/// The same of an object beyond its bytes, where there are readings of both.
fn objects(reads: &[FleetBenchRead]) -> Option<FleetOutcomeLine> {
    let plain = fleet_packing_time(reads, FleetBenchPacking::Plain);
    let time = fleet_object_time(reads, plain.map_or(0.0, |plain| plain.seconds))?;
    let count = reads.iter().find_map(|item| item.objects).unwrap_or_default();
    let bytes = if plain.is_some() { "beyond its bytes" } else { "with its bytes" };
    let label = format!("CPU ms of an object, {bytes}, of {count}, over TLS");
    Some(reported(label, &time, 1e3))
}

fn reported(label: String, time: &FleetCpuTime, factor: f64) -> FleetOutcomeLine {
    let FleetCpuTime { seconds, range, .. } = time;
    FleetOutcomeLine {
        what: label,
        found: seconds * factor,
        interval: Some((range.lowest * factor, range.highest * factor)),
        goal: Goal::None,
    }
}

fn name(packing: FleetBenchPacking) -> &'static str {
    match packing {
        FleetBenchPacking::Plain => "plain",
        FleetBenchPacking::Gzip => "gzip",
        FleetBenchPacking::Lz4 => "LZ4",
        FleetBenchPacking::Zstd => "Zstandard",
    }
}

fn of_plan(plan: &FleetBenchPlan) -> Vec<FleetOutcomeLine> {
    let line =
        |label: String, found, goal| FleetOutcomeLine { what: label, found, interval: None, goal };
    match plan.case {
        FleetBenchCase::Listing => {
            let label =
                format!("{} objects planned, {} ms an answer, s", plan.objects, plan.delay_ms);
            vec![line(label, plan.wall_s, Goal::AtMost(LISTING_S))]
        }
        FleetBenchCase::Shares => {
            let is_meant = plan.unit_bytes == UNIT_BYTES && plan.shards <= NODES;
            let goal = |goal| if is_meant { goal } else { Goal::None };
            let units = if plan.unit_bytes == UNIT_BYTES { "cut" } else { "whole backups" };
            let name = format!("{} on {} nodes, {units}", size(plan.bytes), plan.shards);
            vec![
                line(
                    format!("{name}: longest / even"),
                    plan.makespan(),
                    goal(Goal::AtMost(MAKESPAN)),
                ),
                line(
                    format!("{name}: largest unit, GB"),
                    number(plan.largest_unit_bytes) / number(1 << 30),
                    goal(Goal::AtMost(number(UNIT_BYTES) / number(1 << 30))),
                ),
            ]
        }
        FleetBenchCase::Cost
        | FleetBenchCase::Memory
        | FleetBenchCase::Packing
        | FleetBenchCase::Objects => Vec::new(),
    }
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).rounded()
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn number(count: u64) -> f64 {
    count as f64
}

/// What is going to be done.
pub(crate) fn introduction(header: &FleetBenchHeader) -> String {
    format!(
        "backups that `pgtoll verify` reads from a store on this machine, and from a file\n\
         in the page cache; fleets that `pgtoll fleet plan` shares out\n\
         {} cores of {}\n\n",
        header.host.cores, header.host.cpu
    )
}

pub(crate) fn read_line(fleet_bench_read: &FleetBenchRead) -> String {
    let place = match fleet_bench_read.place {
        FleetBenchPlace::File => "file",
        FleetBenchPlace::Store => "store",
        FleetBenchPlace::Download => "curl",
    };
    let gigabytes = number(fleet_bench_read.bytes) / 1e9;
    let place = fleet_bench_read.packing.map_or(place, name);
    format!(
        "{place:<10}{:>9}: {:.2} s, {:.3} CPU s/GB, {:.0} MB/s, peak {} kB\n",
        size(fleet_bench_read.bytes),
        fleet_bench_read.usage.wall_s,
        fleet_bench_read.usage.cpu_s() / gigabytes,
        gigabytes * 1e3 / fleet_bench_read.usage.wall_s,
        fleet_bench_read.peak_kb
    )
}

pub(crate) fn plan_line(plan: &FleetBenchPlan) -> String {
    format!(
        "{} objects, {} backups, {}: {} units, the largest {}; {} shards, the longest {:.3} of \
         even; {:.2} s, peak {} kB\n",
        plan.objects,
        plan.backups,
        size(plan.bytes),
        plan.units,
        size(plan.largest_unit_bytes),
        plan.shards,
        plan.makespan(),
        plan.wall_s,
        plan.peak_kb
    )
}

/// Every goal, and whether it is reached.
pub(crate) fn table(outcomes: &[FleetOutcomeLine]) -> String {
    let mut text = String::from("\n");
    for outcome in outcomes {
        let goal = match outcome.goal {
            Goal::AtMost(bound) => format!("at most {bound}"),
            Goal::None => String::new(),
        };
        let state = match outcome.goal {
            Goal::None => "",
            _ if outcome.is_reached() => ": reached",
            Goal::AtMost(_) => ": MISSED",
        };
        let interval = outcome
            .interval
            .map_or_else(String::new, |(lower, upper)| format!(" [{lower:.3}, {upper:.3}]"));
        let _ =
            writeln!(text, "{:<52}{:>10.3}{interval}  {goal}{state}", outcome.what, outcome.found);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use pgtoll_record::trials::BenchUsage;

    use super::*;

    fn read(case: FleetBenchCase, place: FleetBenchPlace, bytes: u64, cpu: f64) -> FleetBenchRead {
        let usage = BenchUsage { user_s: cpu, system_s: 0.0, wall_s: 1.0 };
        FleetBenchRead {
            case,
            repetition: 1,
            place,
            packing: None,
            bytes,
            objects: None,
            unpacked_bytes: None,
            usage,
            peak_kb: bytes / 10,
        }
    }

    fn reached(reads: &[FleetBenchRead], plans: &[FleetBenchPlan]) -> Vec<bool> {
        outcomes(reads, plans).unwrap().iter().map(FleetOutcomeLine::is_reached).collect()
    }

    #[test]
    fn a_store_may_cost_a_little_more_than_fetching_and_verifying() {
        let reads = |store: f64| {
            let places = [
                (FleetBenchPlace::File, 0.4),
                (FleetBenchPlace::Download, 0.6),
                (FleetBenchPlace::Store, store),
            ];
            let reads = places.map(|(place, cpu)| read(FleetBenchCase::Cost, place, 1000, cpu));
            [reads.clone(), reads].concat()
        };
        assert_eq!(reached(&reads(1.14), &[]), [true, true]);
        assert_eq!(reached(&reads(1.16), &[]), [true, false]);
    }

    #[test]
    fn memory_is_flat_and_little() {
        let pick = |place, bytes| read(FleetBenchCase::Memory, place, bytes, 1.0);
        let reads = |largest| {
            let stores = [1_000_000, largest].map(|bytes| pick(FleetBenchPlace::Store, bytes));
            [&[pick(FleetBenchPlace::File, 500_000)][..], &stores].concat()
        };
        assert_eq!(reached(&reads(1_050_000), &[]), [true, true]);
        assert_eq!(reached(&reads(1_400_000), &[]), [true, false]);
        assert_eq!(reached(&reads(2_000_000), &[]), [false, false]);
    }

    fn plan(case: FleetBenchCase) -> FleetBenchPlan {
        FleetBenchPlan {
            case,
            delay_ms: 0,
            objects: 10_000,
            backups: 1,
            bytes: 1,
            unit_bytes: UNIT_BYTES,
            units: 1,
            largest_unit_bytes: UNIT_BYTES,
            shards: 100,
            longest_shard_s: 1.01,
            even_shard_s: 1.0,
            wall_s: 9.0,
            peak_kb: 1,
        }
    }

    #[test]
    fn plans_are_quick_and_even_and_those_for_comparison_have_no_goal() {
        let listing = plan(FleetBenchCase::Listing);
        assert_eq!(reached(&[], from_ref(&listing)), [true]);
        assert_eq!(reached(&[], &[FleetBenchPlan { wall_s: 10.1, ..listing }]), [false]);
        let shares = plan(FleetBenchCase::Shares);
        assert_eq!(reached(&[], from_ref(&shares)), [true, true]);
        let uneven = FleetBenchPlan { longest_shard_s: 1.03, ..shares };
        let large = FleetBenchPlan { largest_unit_bytes: UNIT_BYTES + 1, ..uneven };
        assert_eq!(reached(&[], from_ref(&large)), [false, false]);
        assert_eq!(reached(&[], &[FleetBenchPlan { unit_bytes: 1 << 50, ..large }]), [true, true]);
    }
}
