//! WAL of transactions long after a checkpoint, from the readings within rounds.

use pgtoll_record::{CounterReading, MetricValue, Run, TransactionRange, Work, Workload};

use crate::figures::thousands;

/// The name of its figure.
pub const LATE_WAL: &str = "late_wal_per_transaction";

/// Less comes from checkpoints and snapshots of the server's own.
const LEAST_BYTES: f64 = 1.0;

/// An arm's WAL per transaction over the last quarter of its rounds, each of which begins with a
/// checkpoint. `None` where nothing writes, in crossovers, whose arms write the same WAL, and where
/// rounds are so short that the counted pass went further: it is later only beyond that one's middle.
#[expect(clippy::cast_precision_loss, reason = "a run's bytes are far below 2^53")]
pub(crate) fn late_wal(run: &Run, workload: &Workload, arm: &str) -> Option<MetricValue> {
    let Work::Script { counted, .. } = workload.work else { return None };
    if run.header.design.crossover {
        return None;
    }
    let rounds = run.rounds.iter().filter(|round| round.workload == workload.name);
    let quarters: Vec<LastQuarter> = rounds
        .filter_map(|round| {
            let readings = run.samples.iter().filter(|sample| {
                sample.workload == workload.name && sample.round == round.round && sample.arm == arm
            });
            LastQuarter::from_readings(&readings.collect::<Vec<_>>())
        })
        .collect();
    let sum = |quarter: fn(&LastQuarter) -> u64| {
        quarters.iter().map(quarter).fold(0, u64::saturating_add)
    };
    let transactions = sum(|quarter| quarter.range.to.saturating_sub(quarter.range.from));
    let value = sum(|quarter| quarter.wal_bytes) as f64 / transactions as f64;
    let range = TransactionRange {
        from: quarters.iter().map(|quarter| quarter.range.from).min()?,
        to: quarters.iter().map(|quarter| quarter.range.to).max()?,
    };
    let is_later = range.from >= counted / 2;
    (is_later && value.is_finite() && value >= LEAST_BYTES).then(|| MetricValue {
        workload: workload.name.clone(),
        arm: arm.to_owned(),
        metric: LATE_WAL.to_owned(),
        value,
        unit: "bytes".to_owned(),
        exact: false,
        of_transactions: Some(range),
    })
}

/// Returns the transactions of each round, in two digits.
pub fn transactions_words(range: TransactionRange) -> String {
    let rounded = |number: u64| {
        let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(1));
        thousands((number / unit).saturating_mul(unit))
    };
    let from = rounded(range.from);
    let to = rounded(range.to);
    format!("transactions {from} to {to} after a round's checkpoint")
}

/// The last quarter of a round's transactions, as nearly as there are readings.
struct LastQuarter {
    range: TransactionRange,
    wal_bytes: u64,
}

impl LastQuarter {
    /// `None` where no reading lies between three quarters and the end.
    fn from_readings(readings: &[&CounterReading]) -> Option<Self> {
        let last = readings.last()?;
        let three_quarters = last.transactions - last.transactions / 4;
        let first = readings.iter().find(|reading| reading.transactions >= three_quarters)?;
        (first.transactions < last.transactions).then(|| Self {
            range: TransactionRange { from: first.transactions, to: last.transactions },
            wal_bytes: last.wal_bytes.saturating_sub(first.wal_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(readings: &[(u64, u64)], expected: Option<(u64, u64, u64)>) {
        let reading = |&(transactions, wal_bytes): &(u64, u64)| CounterReading {
            transactions,
            wal_bytes,
            ..reading()
        };
        let all: Vec<CounterReading> = readings.iter().map(reading).collect();
        let quarter = LastQuarter::from_readings(&all.iter().collect::<Vec<_>>());
        let found =
            quarter.map(|quarter| (quarter.range.from, quarter.range.to, quarter.wal_bytes));
        assert_eq!(found, expected);
    }

    #[test]
    fn ranges_have_two_digits() {
        let words = |from, to| transactions_words(TransactionRange { from, to });
        let at = "after a round's checkpoint";
        assert_eq!(words(14_391, 19_999), format!("transactions 14,000 to 19,000 {at}"));
        assert_eq!(words(0, 7), format!("transactions 0 to 7 {at}"));
        assert_eq!(words(0, 1_000_000), format!("transactions 0 to 1,000,000 {at}"));
    }

    #[test]
    fn rounds_with_readings_make_a_figure_and_others_none() {
        let text = include_str!("../../../records/2026-11-23-pg15/run.jsonl");
        let mut run = Run::parse(text).unwrap();
        let mut workload = run.header.workloads[0].clone();
        assert_eq!(late_wal(&run, &workload, "off"), None, "it reads");
        let Work::Script { counted, .. } = &mut workload.work else { panic!("{workload:?}") };
        *counted = 6000;
        run.samples = run
            .rounds
            .iter()
            .filter(|round| round.workload == workload.name)
            .flat_map(|round| {
                [(1000, 9_000_000), (3000, 12_000_000), (4000, 12_500_000)]
                    .map(|item| (round.round, item))
            })
            .map(|(round, (transactions, wal_bytes))| CounterReading {
                workload: workload.name.clone(),
                round,
                transactions: transactions + u64::from(round),
                wal_bytes,
                ..reading()
            })
            .collect();
        let rounds = u64::try_from(run.samples.len() / 3).unwrap();
        let value = late_wal(&run, &workload, "off").unwrap();
        assert!((value.value - 500.0).abs() < 1e-9 && !value.exact, "{value:?}");
        let range = TransactionRange { from: 3001, to: 4000 + rounds };
        assert_eq!(value.of_transactions, Some(range));
        assert_eq!(late_wal(&run, &workload, "hints"), None);
        let mut longer = workload.clone();
        let Work::Script { counted, .. } = &mut longer.work else { panic!("{longer:?}") };
        *counted = 6004;
        assert_eq!(late_wal(&run, &longer, "off"), None, "that is no later");
        run.header.design.crossover = true;
        assert_eq!(late_wal(&run, &workload, "off"), None, "all arms write the same WAL");
    }

    fn reading() -> CounterReading {
        CounterReading {
            workload: "w".into(),
            round: 1,
            arm: "off".into(),
            at_ns: 0,
            worked_ns: 0,
            transactions: 0,
            wal_bytes: 0,
            io: None,
        }
    }

    #[test]
    fn the_last_quarter_begins_at_the_first_reading_within_it() {
        check(&[(10, 5000), (70, 9000), (80, 9400), (100, 9900)], Some((80, 100, 500)));
        check(&[(10, 5000), (75, 9000), (100, 9900)], Some((75, 100, 900)));
        // With nothing in between it would be the whole round, or none.
        check(&[(10, 5000), (100, 9900)], None);
        check(&[(100, 9900)], None);
        check(&[], None);
        check(&[(0, 0), (0, 0)], None);
    }
}
