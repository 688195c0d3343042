//! Samples in, intervals out: the ratio of a cost between two arms of an
//! experiment whose arms took turns in short slices.
//!
//! ```
//! use pgtoll_stats::{Options, Pair, Round, paired_ratio};
//!
//! // Two rounds of four blocks: CPU nanoseconds over operations, once for the
//! // treatment and once for the baseline. The treatment costs 10 % more.
//! let rounds: Vec<Round> = [100.0, 120.0]
//!     .iter()
//!     .map(|&cost| Round {
//!         pairs: [50.0, 40.0, 60.0, 55.0]
//!             .iter()
//!             .map(|&operations| Pair {
//!                 numerator_treatment: 1.1 * cost * operations,
//!                 denominator_treatment: operations,
//!                 numerator_baseline: cost * operations,
//!                 denominator_baseline: operations,
//!             })
//!             .collect(),
//!     })
//!     .collect();
//!
//! let estimate = paired_ratio(&rounds, &Options { seed: 42, ..Options::default() })?;
//! assert!((estimate.ratio - 1.1).abs() < 1e-12);
//! assert!(estimate.lower <= estimate.ratio && estimate.ratio <= estimate.upper);
//! # Ok::<(), pgtoll_stats::EstimateError>(())
//! ```
//!
//! A *block* holds one slice of every arm, in random order ([`BalancedOrders`]
//! draws it). A [`Pair`] is the treatment's and the baseline's slice of one
//! block: whatever disturbs the machine for longer than a block hits both and
//! cancels in their ratio. A [`Round`] is everything between two fresh starts
//! of the arms. A start has luck of its own (memory layout, placement), so
//! pairs of one round resemble each other, and only more rounds, not more
//! pairs, shrink that part of the error.
//!
//! The crate knows nothing of what was measured and does no I/O. No function
//! panics on any number it is given: what cannot be estimated is `None`, NaN
//! or an [`EstimateError`], as each function says.

mod bootstrap;
mod calibration;
mod common;
mod correlation;
mod discovery;
mod error;
mod location;
mod moments;
mod orders;
mod paired;
mod pairs;
mod proportion;
mod quantiles;
mod samples;
#[cfg(test)]
mod simulation;
mod steadiness;
mod twin;

pub use calibration::{NullComparison, widening};
pub use common::{OTHERS_MIN, beside_others};
pub use correlation::spearman;
pub use discovery::adjusted_p_values;
pub use error::{EstimateError, RESAMPLES_MAX};
pub use location::hodges_lehmann;
pub use moments::{mean, sample_sd};
pub use orders::BalancedOrders;
pub use paired::{Estimate, Options, WITHIN_SHARE, minimum_block_length_for, paired_ratio};
pub use pairs::{Pair, Round};
pub use proportion::proportion_interval;
pub use quantiles::{median, quantile, t_p_value, t_quantile};
pub use samples::{Sample, pair_up};
pub use steadiness::{Drift, Halves, OutlierShares, Trend, outlier_shares, trend};
pub use twin::{Trio, TwinComparison, ratio_beside_twin};
