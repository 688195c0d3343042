//! Metrics that arms are compared by.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A metric: a ratio of two amounts of a slice.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// CPU time of the server for a transaction, in ns.
    CpuPerTransaction,
    /// Transactions per second.
    TransactionsPerSecond,
    /// The latency that half of the transactions do not exceed, in ns.
    LatencyMedian,
    /// The latency that 90 % of the transactions do not exceed, in ns.
    LatencyP90,
    /// The latency that 95 % of the transactions do not exceed, in ns.
    LatencyP95,
    /// The latency that 99 % of the transactions do not exceed, in ns.
    LatencyP99,
    /// The standard deviation of the transactions' latencies, in ns.
    LatencyStddev,
    /// CPU time of the server for one operation, in ns.
    CpuPerOperation,
    /// Duration of one operation, in s.
    OperationTime,
    /// CPU time of one operation's program, in ns.
    ClientCpuPerOperation,
}

impl Metric {
    /// The metrics of slices, in the order in which they are shown.
    pub const OF_SLICES: [Self; 2] = [Self::CpuPerTransaction, Self::TransactionsPerSecond];
    /// The metrics of rounds, in the order in which they are shown.
    pub const OF_ROUNDS: [Self; 4] =
        [Self::LatencyMedian, Self::LatencyP90, Self::LatencyP95, Self::LatencyP99];
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::CpuPerTransaction,
        Self::TransactionsPerSecond,
        Self::LatencyMedian,
        Self::LatencyP90,
        Self::LatencyP95,
        Self::LatencyP99,
        Self::LatencyStddev,
        Self::CpuPerOperation,
        Self::OperationTime,
        Self::ClientCpuPerOperation,
    ];
    /// The metrics of operations, in the order in which they are shown.
    pub const OF_OPERATIONS: [Self; 2] = [Self::CpuPerOperation, Self::OperationTime];

    /// A larger value is a cost (or else a gain).
    pub fn more_is_worse(self) -> bool {
        self != Self::TransactionsPerSecond
    }
}
