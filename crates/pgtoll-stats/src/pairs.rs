//! Slices of two arms beside each other.

/// The treatment's and the baseline's slice of one block.
///
/// The quantity compared is numerator / denominator of a slice: CPU
/// nanoseconds per transaction, say, or transactions per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pair {
    /// The treatment's numerator.
    pub numerator_treatment: f64,
    /// The denominator.
    pub denominator_treatment: f64,
    /// The baseline's numerator.
    pub numerator_baseline: f64,
    /// The denominator.
    pub denominator_baseline: f64,
}

impl Pair {
    /// ln(rate of the treatment) − ln(rate of the baseline).
    ///
    /// `None` if one of the four amounts is not a positive, finite number.
    pub fn log_ratio(&self) -> Option<f64> {
        if !self.amounts().iter().all(|amount| amount.is_finite() && *amount > 0.0) {
            return None;
        }
        // Four logarithms, because a quotient can overflow where its
        // logarithm does not. Grouped by arm, so that swapping the arms
        // changes the sign and nothing else.
        let treatment = self.numerator_treatment.ln() - self.denominator_treatment.ln();
        let baseline = self.numerator_baseline.ln() - self.denominator_baseline.ln();
        Some(treatment - baseline)
    }

    pub(crate) fn amounts(&self) -> [f64; 4] {
        [
            self.numerator_treatment,
            self.denominator_treatment,
            self.numerator_baseline,
            self.denominator_baseline,
        ]
    }

    pub(crate) fn total<'a>(pairs: impl IntoIterator<Item = &'a Self>) -> Self {
        pairs.into_iter().fold(Self::default(), |sum, pair| Self {
            numerator_treatment: sum.numerator_treatment + pair.numerator_treatment,
            denominator_treatment: sum.denominator_treatment + pair.denominator_treatment,
            numerator_baseline: sum.numerator_baseline + pair.numerator_baseline,
            denominator_baseline: sum.denominator_baseline + pair.denominator_baseline,
        })
    }
}

/// The pairs between two fresh starts of the arms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// In the order of time.
    pub pairs: Vec<Pair>,
}
