//! Why there is no estimate.

/// The most resamples taken. Far fewer are needed; the limit keeps a slip of
/// the keyboard from running for ever.
pub const RESAMPLES_MAX: usize = 1_000_000;

/// Why there is no estimate. Rounds and pairs are counted from zero.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EstimateError {
    /// The slice of rounds is empty.
    #[error("there are no rounds")]
    NoRounds,
    /// An amount is negative, infinite or not a number.
    #[error(
        "pair {pair} of round {round} holds the amount {amount}, \
         which must be finite and not negative"
    )]
    Amount {
        /// Index of the round.
        round: usize,
        /// Index of the pair inside the round.
        pair: usize,
        /// The offending number.
        amount: f64,
    },
    /// Every pair of this round holds a zero, or there are none.
    #[error("round {round} has no pair whose four amounts are all positive")]
    NoUsablePair {
        /// Index of the round.
        round: usize,
    },
    /// The sums of the amounts exceed the largest float.
    #[error("the amounts are too large to be added up")]
    Overflow,
    /// Pairs with zeros are this many that all resamples consisted of them.
    #[error("no resample held a pair whose four amounts are all positive")]
    NoUsableResample,
    /// [`Options::resamples`](crate::Options::resamples) is out of range.
    #[error("the number of resamples is {0}, which must be from 2 to {RESAMPLES_MAX}")]
    Resamples(usize),
    /// [`Options::confidence`](crate::Options::confidence) is out of range.
    #[error("the confidence is {0}, which must lie between 0 and 1")]
    Confidence(f64),
    /// [`Options::widening`](crate::Options::widening) is out of range.
    #[error("the widening is {0}, which must be finite and at least 1")]
    Widening(f64),
}
