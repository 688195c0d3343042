//! Whether a cost is small enough to turn data checksums on.

/// The decision about a cost. Later ones weigh more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostDecision {
    /// It is small enough.
    TurnOn,
    /// It is neither small nor large, or unknown.
    MeasureFirst,
    /// It is large.
    Leave,
}

/// Limits of a cost, as parts of the whole without checksums: 0.05 is 5 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostLimits {
    /// Turn on when the upper bound is at most this.
    pub turn_on_at_most: f64,
    /// Leave when the lower bound is above this.
    pub leave_above: f64,
}

/// The rule by which measurements and predictions advise about data checksums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecisionRule {
    /// Server CPU under transactions.
    pub cpu: CostLimits,
    /// WAL: it goes to disk, to standbys and to an archive. A tenth is within a day's own swings;
    /// twice as much takes other disks and networks.
    pub wal: CostLimits,
}

/// The rule for data checksums.
pub const CHECKSUMS_RULE: DecisionRule = DecisionRule {
    cpu: CostLimits { turn_on_at_most: 0.05, leave_above: 0.25 },
    wal: CostLimits { turn_on_at_most: 0.1, leave_above: 1.0 },
};

impl CostLimits {
    /// Judges a cost by its bounds. A cost that is too noisy has an upper bound that is too high.
    pub fn judge(&self, lower: f64, upper: f64) -> CostDecision {
        if lower > self.leave_above {
            CostDecision::Leave
        } else if upper <= self.turn_on_at_most {
            CostDecision::TurnOn
        } else {
            CostDecision::MeasureFirst
        }
    }
}

impl DecisionRule {
    /// The rule as a sentence.
    pub fn sentence(&self) -> String {
        format!(
            "turn on when the upper bounds are at most {:.0} % of server CPU and {:.0} % of WAL, \
             leave when a lower bound is above {:.0} % or {:.0} %, else measure first",
            self.cpu.turn_on_at_most * 100.0,
            self.wal.turn_on_at_most * 100.0,
            self.cpu.leave_above * 100.0,
            self.wal.leave_above * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_at_their_borders() {
        let check = |lower, upper, expected| {
            assert_eq!(CHECKSUMS_RULE.cpu.judge(lower, upper), expected, "{lower} to {upper}");
        };
        check(-0.03, 0.05, CostDecision::TurnOn);
        check(-0.03, 0.0501, CostDecision::MeasureFirst);
        check(0.25, 0.4, CostDecision::MeasureFirst);
        check(0.2501, 0.4, CostDecision::Leave);
        check(-0.4, 1.0, CostDecision::MeasureFirst);
        check(f64::NAN, f64::NAN, CostDecision::MeasureFirst);
    }

    #[test]
    fn the_sentence_has_both_costs() {
        let sentence = CHECKSUMS_RULE.sentence();
        assert!(sentence.contains("5 % of server CPU and 10 % of WAL"), "{sentence}");
    }
}
