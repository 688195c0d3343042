//! Reads through the balancer beside reads that go to the standbys without it.

use pgtoll_record::{BalanceRecord, BalanceThroughput, Interval, Latencies};
use pgtoll_stats::{mean, sample_sd, t_quantile};
use pgtoll_wire::Connection;
use pgtoll_workload::{Crowd, Mix, Script, Until};

use super::BalanceContext;
use super::error::BalanceError;

const SCRIPT: &str = "\\set id random(1, 10000)\nSELECT value FROM readings WHERE id = :id;\n";

/// The same clients' reads both ways in turn, the order turned round each time.
pub(super) fn throughput(
    context: &mut BalanceContext<'_>,
    record: &mut BalanceRecord,
) -> Result<(), BalanceError> {
    let standbys = context.set.standbys.iter().cycle();
    let clients = context.plan.clients as usize;
    let direct = standbys.take(clients).map(|standby| standby.connect("postgres"));
    let direct = direct.collect::<Result<Vec<Connection>, _>>()?;
    let balanced = (0..clients).map(|_| context.set.connect());
    let balanced = balanced.collect::<Result<Vec<Connection>, _>>()?;
    let mut crowds = [crowd(direct)?, crowd(balanced)?];
    for crowd in &mut crowds {
        // Caches, and each connection's way through the balancer.
        crowd.run(Until::TogetherTransactions(u64::from(context.plan.clients) * 20), None)?;
        crowd.take_latencies();
    }
    let mut rates: [Vec<f64>; 2] = Default::default();
    for slice in 0..context.plan.slices {
        context.interrupt.check()?;
        let order = if slice % 2 == 0 { [0, 1] } else { [1, 0] };
        for way in order {
            let tally = crowds[way].run(Until::Time(context.plan.slice), None)?;
            #[expect(clippy::cast_precision_loss, reason = "reads of some seconds")]
            let reads = tally.transactions as f64;
            rates[way].push(reads / tally.elapsed.as_secs_f64());
        }
    }
    let [direct_p50_ms, balanced_p50_ms] =
        crowds.each_mut().map(|crowd| median_ms(&crowd.take_latencies()));
    crowds.into_iter().for_each(Crowd::close);
    let [direct, balanced] = rates;
    record.throughput = ratio(&direct, &balanced).map(|ratio| BalanceThroughput {
        ratio,
        direct_per_second: direct,
        balanced_per_second: balanced,
        direct_p50_ms,
        balanced_p50_ms,
    });
    Ok(())
}

fn crowd(connections: Vec<Connection>) -> Result<Crowd, BalanceError> {
    Ok(Crowd::new(connections, &Mix::from(Script::parse("reads", SCRIPT)?), 1)?)
}

fn median_ms(latencies: &Latencies) -> Option<f64> {
    latencies.quantile(0.5).map(|time| time.as_secs_f64() * 1e3)
}

/// The geometric mean of the pairs' ratios, with its 95 % interval by Student's t. `None` of fewer than
/// two pairs, or where nothing was read.
fn ratio(direct: &[f64], balanced: &[f64]) -> Option<Interval> {
    let logs: Vec<f64> =
        direct.iter().zip(balanced).map(|(one, other)| (other / one).ln()).collect();
    let centre = mean(&logs)?;
    let sd = sample_sd(&logs)?;
    #[expect(clippy::cast_precision_loss, reason = "slices are few")]
    let number = logs.len() as f64;
    let half = t_quantile(0.95, number - 1.0) * sd / number.sqrt();
    let interval = Interval {
        estimate: centre.exp(),
        lower: (centre - half).exp(),
        upper: (centre + half).exp(),
    };
    [interval.estimate, interval.lower, interval.upper]
        .iter()
        .all(|item| item.is_finite())
        .then_some(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_pairs() {
        let found = ratio(&[100.0, 200.0, 50.0], &[50.0, 100.0, 25.0]).unwrap();
        assert!((found.estimate - 0.5).abs() < 1e-12 && found.upper - found.lower < 1e-9);
        let wide = ratio(&[100.0, 100.0], &[40.0, 60.0]).unwrap();
        assert!(wide.lower < 0.4 && wide.upper > 0.6, "{wide:?}");
        assert_eq!(ratio(&[100.0], &[50.0]), None);
        assert_eq!(ratio(&[100.0, 100.0], &[0.0, 0.0]), None);
    }
}
