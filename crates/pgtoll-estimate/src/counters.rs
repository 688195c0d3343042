//! Counters over a fixed amount of work.

use pgtoll_record::{Counters, OperationOf, Run, Work, Workload};

/// Name, unit, value, and whether every repetition gave the same.
pub(crate) type NamedValue = (String, &'static str, f64, bool);

/// Its name without what it is divided by, its unit, where it stands.
type Counter<'a> = (&'static str, &'static str, &'a dyn Fn(&Counters) -> Option<u64>);

/// Returns the divisor of this work's counters, as the names of values end.
fn divisor(run: &Run, workload: &Workload) -> &'static str {
    let mut operations =
        run.operations.iter().filter(|operation| operation.workload == workload.name);
    if workload.work.is_of_transactions() {
        "transaction"
    } else if operations.any(|operation| operation.pages.is_some()) {
        "page"
    } else {
        "operation"
    }
}

/// Counters over a fixed amount of work, for each transaction, page or operation. Standby snapshots,
/// which a timer writes and not the work, are taken out of the WAL.
pub(crate) fn counted_values(run: &Run, workload: &Workload, arm: &str) -> Vec<NamedValue> {
    let passes = passes(run, workload, arm);
    let divisor = divisor(run, workload);
    let is_operation = matches!(workload.work, Work::Operation { .. });
    let is_recovery =
        matches!(workload.work, Work::Operation { of: Some(OperationOf::Recovery), .. });
    let repeats = repeats(&workload.work);
    let exact: [Counter<'_>; 5] = [
        ("wal", "bytes", &|counters| Some(wal_bytes(counters))),
        ("wal_images", "images", &|counters| counters.wal_images),
        ("hint_images", "images", &|counters| Some(counters.hint_images())),
        ("blocks_read", "blocks", &|counters| counters.blocks_read),
        ("blocks_written", "blocks", &|counters| counters.blocks_written),
    ];
    // What goes through the system's caches is never exact, however often it comes out the same.
    let of_files: [Counter<'_>; 2] = [
        // Under a limit of memory the rounds say what was read.
        ("disk_read", "bytes", &|counters| {
            let is_known = workload.memory_limit_bytes.is_none() || is_operation;
            Some(counters.io?.read).filter(|_| is_known)
        }),
        ("file_writes", "bytes", &|counters| Some(counters.io?.written)),
    ];
    // A server that was killed has lost what it had counted: known is the WAL that it replayed.
    let exact = exact.into_iter().take(if is_recovery { 1 } else { usize::MAX });
    exact
        .map(|counter| (counter, repeats))
        .chain(of_files.into_iter().map(|counter| (counter, false)))
        .filter_map(|((name, unit, amount), exact)| {
            let (value, same) = mean(&passes, amount)?;
            Some((format!("{name}_per_{divisor}"), unit, value, same && exact))
        })
        .collect()
}

/// Returns an arm's counts of each pass, with their divisors.
#[expect(clippy::cast_precision_loss, reason = "counters of a run are far below 2^53")]
fn passes<'a>(run: &'a Run, workload: &Workload, arm: &str) -> Vec<(&'a Counters, f64)> {
    let counted = run
        .counted
        .iter()
        .filter(|counted| counted.workload == workload.name && counted.arm == arm);
    let counted = counted.map(|counted| (&counted.counters, counted.transactions as f64));
    let operations = run
        .operations
        .iter()
        .filter(|operation| operation.workload == workload.name && operation.arm == arm);
    let per_transaction = workload.work.is_of_transactions();
    let operations = operations.map(|done| {
        let by = if per_transaction { done.transactions } else { done.pages };
        (&done.counters, by.unwrap_or(1) as f64)
    });
    counted.chain(operations).collect()
}

/// The mean, and whether every pass has the same; `None` where one of them does not have it.
#[expect(clippy::cast_precision_loss, reason = "counters of a run are far below 2^53")]
fn mean(
    passes: &[(&Counters, f64)],
    amount: &dyn Fn(&Counters) -> Option<u64>,
) -> Option<(f64, bool)> {
    let values = passes.iter().map(|(counters, by)| Some(amount(counters)? as f64 / by));
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    let same = values.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits());
    Some((values.iter().sum::<f64>() / values.len() as f64, same))
}

fn wal_bytes(counters: &Counters) -> u64 {
    let snapshots = counters.snapshots();
    let of_snapshots = snapshots.record_bytes.saturating_add(snapshots.image_bytes);
    counters.wal_bytes.saturating_sub(of_snapshots)
}

/// It is the same work each time: not what several clients do in an order of their own or in a time,
/// nor what a kill leaves of the WAL.
fn repeats(work: &Work) -> bool {
    let Work::Operation { of: Some(operation), .. } = work else { return true };
    match operation {
        OperationOf::Program => true,
        OperationOf::Recovery => false,
        OperationOf::Script { clients, time_ns, .. } => *clients == 1 && time_ns.is_none(),
    }
}
