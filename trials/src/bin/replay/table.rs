//! The bench's output.

use pgtoll_record::trials::{ReplayBenchCapture, ReplayBenchHeader, ReplayBenchRun};

use crate::replays::Arm;

/// What is going to be compared.
pub(crate) fn introduction(header: &ReplayBenchHeader) -> String {
    let peer = match &header.pgreplay {
        Some(version) => version.lines().next().unwrap_or_default().to_owned(),
        None => "pgreplay: skipped, it is not installed (apt-get install pgreplay)".to_owned(),
    };
    format!(
        "replay of pgbench's log, {} clients with {} transactions each, on a copy of the data\n\
         {} cores of {}; a replay is killed after {} s\n{peer}\n",
        header.clients, header.transactions, header.host.cores, header.host.cpu, header.limit_s
    )
}

/// The log, and the heads of the replays' columns.
pub(crate) fn capture(capture: &ReplayBenchCapture) -> String {
    let ReplayBenchCapture { server, protocol, transactions, wall_s, .. } = capture;
    format!(
        "\n{server}, {protocol}: {transactions} transactions in {wall_s:.1} s\n\
         {:<20}{:>22}{:>9}{:>12}{:>8}{:>14}  tables\n",
        "", "end", "seconds", "statements", "errors", "transactions"
    )
}

/// A replay.
pub(crate) fn run(arm: Arm, run: &ReplayBenchRun, limit_s: u64) -> String {
    let count =
        |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let end = if run.ended { run.status.clone() } else { format!("not within {limit_s} s") };
    let tables = match run.differing_tables.as_slice() {
        [] => "equal".to_owned(),
        some => format!("differ: {}", some.join(", ")),
    };
    let breaks = match run.order_breaks {
        None | Some(0) => String::new(),
        Some(breaks) => format!("; {breaks} order breaks"),
    };
    format!(
        "{:<20}{end:>22}{:>9.1}{:>12}{:>8}{:>14}  {tables}{breaks}\n",
        arm.name(),
        run.wall_s,
        count(run.statements),
        count(run.errors),
        run.transactions
    )
}
