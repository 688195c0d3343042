//! Latencies of transactions.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};

/// How long transactions took: an HDR histogram of nanoseconds, which keeps three significant
/// digits of every value up to an hour. What took longer counts as an hour.
///
/// ```
/// use std::time::Duration;
/// use pgtoll_record::Latencies;
///
/// let mut latencies = Latencies::new();
/// for us in 1..=100 {
///     latencies.record(Duration::from_micros(us));
/// }
/// let median = latencies.quantile(0.5).unwrap();
/// assert_eq!(median.as_nanos() / 100, 500);
/// assert_eq!(Latencies::from_base64(&latencies.to_base64()).unwrap(), latencies);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// None so far.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS);
        Self(histogram.expect("the bounds are constants, and allowed"))
    }

    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the bounds are the same");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The longest one, or up to a thousandth more.
    pub fn max(&self) -> Option<Duration> {
        (self.count() > 0).then(|| Duration::from_nanos(self.0.max()))
    }

    /// The least time that so large a share of the latencies does not exceed, or up to a
    /// thousandth more. `None` without latencies.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        (self.count() > 0).then(|| Duration::from_nanos(self.0.value_at_quantile(share)))
    }

    /// How many are not longer than this, or up to a thousandth longer.
    pub fn count_up_to(&self, longest: Duration) -> u64 {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        self.0.count_between(0, longest)
    }

    /// Their mean and their standard deviation, in ns, of what the histogram keeps of them. `None`
    /// without latencies.
    pub fn mean_and_stddev_ns(&self) -> Option<(f64, f64)> {
        (self.count() > 0).then(|| (self.0.mean(), self.0.stdev()))
    }

    /// As HDR histogram, format V2, in base64.
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.0, &mut bytes).expect("memory takes every byte");
        BASE64.encode(bytes)
    }

    /// Reads the text of [`to_base64`](Self::to_base64).
    pub fn from_base64(text: &str) -> Result<Self, LatenciesError> {
        let bytes = BASE64.decode(text).map_err(LatenciesError::Base64)?;
        // Before anything is allocated for it.
        let expected = V2Header::new(LOWEST_NS, HIGHEST_NS, DIGITS);
        if V2Header::read(&bytes) != Some(expected) {
            return Err(LatenciesError::Bounds);
        }
        let mut unread = &bytes[..];
        let histogram = Deserializer::new().deserialize(&mut unread);
        let histogram = histogram.map_err(|error| LatenciesError::Histogram(error.to_string()))?;
        match unread {
            [] => Ok(Self(histogram)),
            _ => Err(LatenciesError::Histogram("there are bytes behind it".to_owned())),
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// A text is not made of latencies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LatenciesError {
    /// It is not base64.
    #[error("latencies are not base64")]
    Base64(#[source] base64::DecodeError),
    /// It is no histogram with the bounds and the precision that latencies have.
    #[error("latencies are no HDR histogram of nanoseconds to an hour, three digits, format V2")]
    Bounds,
    /// It is a damaged histogram.
    #[error("latencies are a damaged histogram: {0}")]
    Histogram(String),
}

/// The fields that determine the memory of a histogram.
#[derive(PartialEq, Eq)]
struct V2Header {
    cookie: u32,
    digits: u32,
    lowest: u64,
    highest: u64,
}

impl V2Header {
    fn new(lowest: u64, highest: u64, digits: u8) -> Self {
        Self { cookie: 0x1c84_9313, digits: digits.into(), lowest, highest }
    }

    /// After the cookie: length, offset, digits, lowest, highest; all big-endian.
    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self { cookie: word(0)?, digits: word(12)?, lowest: long(16)?, highest: long(24)? })
    }
}

// From a nanosecond, because digits are lost at this end: with a microsecond as the lowest, 15 µs
// and 15.5 µs would be the same.
const LOWEST_NS: u64 = 1;
const HIGHEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn latencies(counts: &[u64]) -> Latencies {
        let mut latencies = Latencies::new();
        for ns in counts {
            latencies.record(Duration::from_nanos(*ns));
        }
        latencies
    }

    fn samples() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((1..42_u32).prop_flat_map(|bits| 0..1_u64 << bits), 1..200)
    }

    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "few samples")]
    #[expect(clippy::cast_sign_loss, reason = "shares are positive")]
    fn exact(sorted: &[u64], share: f64) -> u64 {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted[rank.clamp(1, sorted.len()) - 1].min(HIGHEST_NS)
    }

    proptest! {
        #[test]
        fn quantiles_have_three_digits(mut durations in samples(), share in 0.0..=1.0) {
            let found = latencies(&durations).quantile(share).unwrap().as_nanos();
            durations.sort_unstable();
            let expected = u128::from(exact(&durations, share));
            prop_assert!(found.abs_diff(expected) <= expected / 1000, "{found} is not {expected}");
        }

        #[test]
        fn merging_is_recording_together(first in samples(), second in samples()) {
            let mut merged = latencies(&first);
            merged.merge(&latencies(&second));
            prop_assert_eq!(merged.count(), (first.len() + second.len()) as u64);
            prop_assert_eq!(merged, latencies(&[first, second].concat()));
        }

        #[test]
        fn what_is_written_is_read_again(durations in samples()) {
            let written = latencies(&durations);
            prop_assert_eq!(Latencies::from_base64(&written.to_base64()).unwrap(), written);
        }

        #[test]
        fn any_text_is_latencies_or_an_error(text in ".*") {
            let _ = Latencies::from_base64(&text);
        }

        #[test]
        fn any_damage_is_found_or_harmless(
            durations in samples(),
            at: prop::sample::Index,
            byte: u8,
            cut: prop::sample::Index,
        ) {
            let whole = BASE64.decode(latencies(&durations).to_base64()).unwrap();
            let mut changed = whole.clone();
            changed[at.index(whole.len())] = byte;
            let _ = Latencies::from_base64(&BASE64.encode(&changed));
            // Not of the changed one: its length could be that of what is left.
            let rest = &whole[..cut.index(whole.len())];
            prop_assert!(Latencies::from_base64(&BASE64.encode(rest)).is_err());
        }
    }

    #[test]
    fn mean_and_standard_deviation_are_those_of_the_latencies() {
        let (mean, stddev) = latencies(&[2, 4, 4, 4, 5, 5, 7, 9]).mean_and_stddev_ns().unwrap();
        assert!((mean - 5.0).abs() < 1e-9 && (stddev - 2.0).abs() < 1e-9, "{mean} {stddev}");
        assert_eq!(Latencies::new().mean_and_stddev_ns(), None);
    }

    #[test]
    fn without_latencies_there_is_no_quantile() {
        let none = Latencies::new();
        assert_eq!((none.count(), none.max(), none.quantile(0.5)), (0, None, None));
        assert_eq!(Latencies::from_base64(&none.to_base64()), Ok(none));
    }

    #[test]
    fn what_is_too_long_counts_as_an_hour() {
        let found = latencies(&[u64::MAX]).max().unwrap();
        assert_eq!(found.as_secs() / 10, 360);
    }
}
