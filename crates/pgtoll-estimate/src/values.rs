//! Values of single arms, without comparison.

use pgtoll_record::{ArmRound, MetricValue, Run, Workload};

use crate::counters::{NamedValue, counted_values};
use crate::late_wal::late_wal;
use crate::metrics::{is_cut_off, key, metrics};
use crate::samples::samples;

/// Absolute values of each arm.
pub(crate) fn values(run: &Run, workload: &Workload) -> Vec<MetricValue> {
    let mut values = Vec::new();
    for arm in &run.header.arms {
        for metric in metrics(workload) {
            if is_cut_off(run, workload, metric) {
                continue;
            }
            let samples = samples(run.into(), workload, metric);
            let own = || samples.iter().filter(|sample| sample.arm == arm.name);
            let numerator: f64 = own().map(|sample| sample.numerator).sum();
            let denominator: f64 = own().map(|sample| sample.denominator).sum();
            let (name, unit, factor) = key(metric);
            let value = numerator / denominator * factor;
            values.push((arm, name.to_owned(), unit, value, false));
        }
        let single = [system_share, io_workers_share, disk_of_rounds, profiled_share, predicted];
        let single = single.map(|value| value(run, workload, &arm.name)).into_iter().flatten();
        let others = single.chain(counted_values(run, workload, &arm.name));
        values.extend(others.map(|(name, unit, value, exact)| (arm, name, unit, value, exact)));
    }
    let finite = values.into_iter().filter(|(_, _, _, value, _)| value.is_finite());
    finite
        .map(|(arm, metric, unit, value, exact)| MetricValue {
            workload: workload.name.clone(),
            arm: arm.name.clone(),
            metric,
            value,
            unit: unit.to_owned(),
            exact,
            of_transactions: None,
        })
        .chain(run.header.arms.iter().filter_map(|arm| late_wal(run, workload, &arm.name)))
        .collect()
}

/// The kernel looks now and then whose time it is: that makes a share of sums of seconds only.
const SAMPLED_NEEDS_NS: u64 = 10_000_000_000;

/// The share of the server's CPU time that was spent in the kernel, restarts and warm-ups
/// included.
#[expect(clippy::cast_precision_loss, reason = "a run's nanoseconds are far below 2^53")]
fn system_share(run: &Run, workload: &Workload, arm: &str) -> Option<NamedValue> {
    let rounds = run.rounds.iter().filter(|round| round.workload == workload.name);
    let arms = rounds.flat_map(|round| &round.arms);
    let own: Vec<&ArmRound> = arms.filter(|round| round.arm == arm).collect();
    let all = sum(own.iter().map(|round| round.cpu_reaped_ns));
    let system = sum(own.iter().map(|round| round.cpu_reaped_system_ns));
    let exact = run.header.host.cpu_split == "exact";
    let enough = all > 0 && (exact || all >= SAMPLED_NEEDS_NS);
    enough.then(|| ("cpu_system_share".to_owned(), "%", system as f64 / all as f64 * 100.0, false))
}

/// Returns the saturated sum of a record's numbers, which may be anything.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The share of the server's CPU time that its I/O workers used, in slices or in operations.
#[expect(clippy::cast_precision_loss, reason = "a run's nanoseconds are far below 2^53")]
fn io_workers_share(run: &Run, workload: &Workload, arm: &str) -> Option<NamedValue> {
    let own = |name: &str, text: &str| name == workload.name && text == arm;
    let slices = run.slices.iter().filter(|slice| own(&slice.workload, &slice.arm));
    let slices = slices.map(|slice| (slice.io_workers_cpu_ns, slice.server_cpu_ns));
    let operations = run.operations.iter().filter(|done| own(&done.workload, &done.arm));
    let operations = operations.map(|done| (done.io_workers_cpu_ns, done.server_cpu_ns));
    let with_workers = slices.chain(operations).filter_map(|(workers, all)| Some((workers?, all)));
    let (workers, all): (Vec<u64>, Vec<u64>) = with_workers.unzip();
    let workers = sum(workers.into_iter());
    let all = sum(all.into_iter());
    let share = workers as f64 / all as f64 * 100.0;
    (all > 0).then(|| ("io_workers_cpu_share".to_owned(), "%", share, false))
}

/// The share of the profiled function in the server's CPU time in user mode.
#[expect(clippy::cast_precision_loss, reason = "samples are far below 2^53")]
fn profiled_share(run: &Run, workload: &Workload, arm: &str) -> Option<NamedValue> {
    let mut profiles = run.profiles.iter();
    let profile =
        profiles.find(|profile| profile.workload == workload.name && profile.arm == arm)?;
    let share = profile.samples as f64 / profile.of as f64 * 100.0;
    Some(("profiled_share_of_user_cpu".to_owned(), "%", share, false))
}

/// WAL as it was predicted from that of another arm, for each transaction.
#[expect(clippy::cast_precision_loss, reason = "counters of a run are far below 2^53")]
fn predicted(run: &Run, workload: &Workload, arm: &str) -> Option<NamedValue> {
    let mut predicted = run.predicted.iter();
    let predicted =
        predicted.find(|predicted| predicted.workload == workload.name && predicted.arm == arm)?;
    let mut counted = run.counted.iter();
    let counted =
        counted.find(|counted| counted.workload == workload.name && counted.arm == arm)?;
    let value = predicted.wal_bytes as f64 / counted.transactions as f64;
    Some(("predicted_wal_per_transaction".to_owned(), "bytes", value, false))
}

/// Under a limit of memory the counted pass, which has none, says nothing of disks.
#[expect(clippy::cast_precision_loss, reason = "a run's bytes are far below 2^53")]
fn disk_of_rounds(run: &Run, workload: &Workload, arm: &str) -> Option<NamedValue> {
    workload.memory_limit_bytes?;
    let rounds = run.rounds.iter().filter(|round| round.workload == workload.name);
    let own = || rounds.clone().flat_map(|round| &round.arms).filter(|round| round.arm == arm);
    let reads: Vec<u64> = own().map(|round| round.io.map(|io| io.read)).collect::<Option<_>>()?;
    let transactions = sum(own().map(|round| round.transactions));
    let value = sum(reads.into_iter()) as f64 / transactions as f64;
    Some(("disk_read_per_transaction".to_owned(), "bytes", value, false))
}
