//! Latencies as records have them.

use std::time::Duration;

use pgtoll_record::{Latencies, ReplayLatencyCount, ReplayQuantiles};

/// Their quantiles in milliseconds; `None` without any.
pub(crate) fn quantiles(latencies: &Latencies) -> Option<ReplayQuantiles> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (mean_ns, _) = latencies.mean_and_stddev_ns()?;
    Some(ReplayQuantiles {
        count: latencies.count(),
        mean: mean_ns / 1e6,
        median: ms(latencies.quantile(0.5)?),
        p95: ms(latencies.quantile(0.95)?),
        p99: ms(latencies.quantile(0.99)?),
        max: ms(latencies.max()?),
    })
}

/// Counts by classes that grow by a factor of about three; empty without any.
pub(crate) fn histogram(latencies: &Latencies) -> Vec<ReplayLatencyCount> {
    if latencies.count() == 0 {
        return Vec::new();
    }
    let mut before = 0;
    let mut counts = Vec::new();
    for up_to_ms in CLASSES_MS {
        let until = latencies.count_up_to(Duration::from_secs_f64(up_to_ms / 1e3));
        let statements = until.saturating_sub(before);
        counts.push(ReplayLatencyCount { up_to_ms: Some(up_to_ms), statements });
        before = before.max(until);
    }
    let statements = latencies.count().saturating_sub(before);
    counts.push(ReplayLatencyCount { up_to_ms: None, statements });
    counts
}

const CLASSES_MS: [f64; 10] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_every_statement_once() {
        let mut latencies = Latencies::new();
        for micros in [50, 90, 250, 2_000, 2_500, 20_000_000] {
            latencies.record(Duration::from_micros(micros));
        }
        let counts: Vec<(Option<f64>, u64)> = histogram(&latencies)
            .iter()
            .filter(|histogram| histogram.statements > 0)
            .map(|histogram| (histogram.up_to_ms, histogram.statements))
            .collect();
        assert_eq!(counts, [(Some(0.1), 2), (Some(0.3), 1), (Some(3.0), 2), (None, 1)]);
        assert!(histogram(&Latencies::new()).is_empty());
    }
}
