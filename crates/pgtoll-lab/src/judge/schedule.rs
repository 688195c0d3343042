//! Due times of transactions, whatever became of those before (an open loop): at even distances, or in bursts.

/// The due times of one client's transactions, in nanoseconds from the begin of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DueSchedule {
    interval_ns: f64,
    offset_ns: f64,
    bursts: bool,
}

/// The length of a period, and the share of its transactions that fall due within its first part.
const BURST_PERIOD_NS: f64 = 4.3e8;
const BURST_TIME: f64 = 0.25;
const BURST_SHARE: f64 = 0.8;

impl DueSchedule {
    /// Clients take turns, so that transactions of all together are due at even distances.
    pub(crate) fn of_client(client: u32, clients: u32, rate_per_second: f64, bursts: bool) -> Self {
        let interval_ns = f64::from(clients) / rate_per_second * 1e9;
        let share = f64::from(client) / f64::from(clients.max(1));
        Self { interval_ns, offset_ns: share * interval_ns, bursts }
    }

    pub(crate) fn due_ns(&self, arrival: u64) -> u64 {
        let even = float(arrival) * self.interval_ns + self.offset_ns;
        whole_ns(if self.bursts { bend(even, BURST_SHARE, BURST_TIME) } else { even })
    }

    /// How many are due before a time.
    pub(crate) fn due_before(&self, ns: u64) -> u64 {
        let ns_f = float(ns);
        let even = if self.bursts { bend(ns_f, BURST_TIME, BURST_SHARE) } else { ns_f };
        let mut count = whole_ns(((even - self.offset_ns) / self.interval_ns).ceil());
        // Due times are rounded to nanoseconds.
        while count > 0 && self.due_ns(count - 1) >= ns {
            count -= 1;
        }
        while self.due_ns(count) < ns {
            count += 1;
        }
        count
    }

    /// At least so far apart a client begins transactions while it catches up: twice its rate.
    pub(crate) fn least_distance_ns(&self) -> u64 {
        let rise = if self.bursts { BURST_SHARE / BURST_TIME } else { 1.0 };
        whole_ns(self.interval_ns / rise / 2.0)
    }
}

/// Moves a time within its period: the part `from` of the period becomes the part `to`.
fn bend(ns: f64, from: f64, to: f64) -> f64 {
    let periods = (ns / BURST_PERIOD_NS).floor();
    let part = ns / BURST_PERIOD_NS - periods;
    let bent =
        if part < from { part * to / from } else { to + (part - from) * (1.0 - to) / (1.0 - from) };
    (periods + bent) * BURST_PERIOD_NS
}

#[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^53 nanoseconds")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate"
)]
fn whole_ns(ns: f64) -> u64 {
    ns.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clients_take_turns() {
        let due = |client| DueSchedule::of_client(client, 4, 1000.0, false).due_ns(2);
        assert_eq!(
            [due(0), due(1), due(2), due(3)],
            [8_000_000, 9_000_000, 10_000_000, 11_000_000]
        );
    }

    #[test]
    fn four_of_five_fall_due_in_a_quarter_of_the_time() {
        let schedule = DueSchedule::of_client(0, 1, 1e4, true);
        assert_eq!(schedule.due_before(107_500_000), 3_440);
        assert_eq!(schedule.due_before(430_000_000), 4_300);
    }

    proptest! {
        #[test]
        fn those_due_before_a_time_are_counted(
            client in 0_u32..8, rate in 0.1_f64..20_000.0, ns in 0_u64..100_000_000_000, bursts: bool,
        ) {
            let schedule = DueSchedule::of_client(client, 8, rate, bursts);
            let count = schedule.due_before(ns);
            prop_assert!(schedule.due_ns(count) >= ns);
            prop_assert!(count == 0 || schedule.due_ns(count - 1) < ns);
        }
    }
}
