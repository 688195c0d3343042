#![doc = include_str!("../README.md")]
//!
//! A *block* holds one slice of every arm, in random order ([`BalancedOrders`]
//! draws it). A [`Pair`] is the treatment's and the baseline's slice of one
//! block: whatever disturbs the machine for longer than a block hits both and
//! cancels in their ratio. A [`Round`] is everything between two fresh starts
//! of the arms. A start has luck of its own (memory layout, placement), so
//! pairs of one round resemble each other, and only more rounds, not more
//! pairs, shrink that part of the error.

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
