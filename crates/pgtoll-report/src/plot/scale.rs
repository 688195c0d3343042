//! From values to places, and the ticks between.

use std::time::Duration;

use pgtoll_format::ByteSize;

use crate::plot::time;

/// The unit of values, which decides the format of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Just a number.
    Plain,
    /// Hundredths, with a sign.
    SignedPercent,
    /// Percentages of a ratio.
    Percent,
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    Nanoseconds,
    /// Microseconds since 1970, written as times of day or days, UTC.
    Time,
    /// `1 / (1 - q)` of a quantile `q`, written as a percentage.
    Quantile,
}

/// A scale along one axis: `from` and `to` are places, in the picture's units.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
    unit: Unit,
}

/// More than can be measured: beyond it sums and powers would leave what a number can hold.
const MOST: f64 = 1e18;

impl Scale {
    /// Linear, over all `values`.
    pub(crate) fn linear(values: impl IntoIterator<Item = f64>, unit: Unit) -> Self {
        let within = values.into_iter().map(|value| value.clamp(-MOST, MOST));
        let (low, high) = extent(within).unwrap_or((0.0, 1.0));
        let room = low.abs().max(1.0) / 2.0;
        let (low, high) = if high > low { (low, high) } else { (low - room, high + room) };
        Self { low, high, from: 0.0, to: 1.0, logarithmic: false, unit }
    }

    /// Logarithmic, over all `values` that are above zero.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>, unit: Unit) -> Self {
        let positive = values.into_iter().filter(|value| *value > 0.0);
        let positive = positive.map(|value| value.clamp(1.0 / MOST, MOST));
        let (low, high) = extent(positive).unwrap_or((1.0, 10.0));
        let (low, high) = if high > low { (low, high) } else { (low / 2.0, high * 2.0) };
        Self { low, high, from: 0.0, to: 1.0, logarithmic: true, unit }
    }

    /// With so much more room on both sides, as a share of the whole.
    pub(crate) fn padded(mut self, share: f64) -> Self {
        if self.logarithmic {
            let room = (self.high / self.low).powf(share);
            (self.low, self.high) = (self.low / room, self.high * room);
        } else {
            let room = (self.high - self.low) * share;
            (self.low, self.high) = (self.low - room, self.high + room);
        }
        self
    }

    /// Along the axis between these places.
    pub(crate) fn between(mut self, from: f64, to: f64) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// The place of a value; what lies beyond the scale is at its end.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        let share = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// Whether the value is on the scale.
    pub(crate) fn has(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    pub(crate) fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Round values with how they are written: about `wanted`, and not many more.
    pub(crate) fn ticks(&self, wanted: u32) -> Vec<(f64, String)> {
        if self.unit == Unit::Quantile {
            let quantiles = QUANTILES.iter().map(|(tail, label)| (*tail, (*label).to_owned()));
            return quantiles.filter(|(tail, _)| self.has(*tail)).collect();
        }
        if self.unit == Unit::Time {
            return time::ticks(self.low, self.high, wanted);
        }
        let values = if self.logarithmic { self.log_ticks(wanted) } else { self.steps(wanted) };
        let apart = values.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
        values.iter().map(|value| (*value, self.unit.written(*value, apart))).collect()
    }

    fn steps(&self, wanted: u32) -> Vec<f64> {
        let raw = (self.high - self.low) / f64::from(wanted.max(1));
        let step = self.unit.nice(raw);
        let first = (self.low / step).ceil();
        // A span of a few units in the last place of its ends has no ticks inside.
        let ticks = (0..wanted * 3).map(|index| (first + f64::from(index)) * step);
        ticks.take_while(|value| *value <= self.high + step * 1e-9).collect()
    }

    #[expect(clippy::cast_possible_truncation, reason = "exponents of f64 are small")]
    fn log_ticks(&self, wanted: u32) -> Vec<f64> {
        if self.unit == Unit::Bytes {
            return self.binary_ticks(wanted);
        }
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let pick = |digits: &[f64]| -> Vec<f64> {
            let decades = (first..=last).map(|exponent| 10_f64.powi(exponent));
            let all = decades.flat_map(|decade| digits.iter().map(move |digit| digit * decade));
            all.filter(|value| self.has(*value)).collect()
        };
        let candidates = [
            pick(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]),
            pick(&[1.0, 2.0, 3.0, 5.0]),
            pick(&[1.0, 2.0, 5.0]),
        ];
        let fits = candidates.into_iter().find(|ticks| ticks.len() <= wanted as usize);
        fits.unwrap_or_else(|| {
            let decades = pick(&[1.0]);
            let every = decades.len().div_ceil(wanted.max(1) as usize).max(1);
            decades.into_iter().step_by(every).collect()
        })
    }
}

impl Scale {
    /// Powers of two, as far apart as it takes.
    #[expect(clippy::cast_possible_truncation, reason = "exponents of f64 are small")]
    fn binary_ticks(&self, wanted: u32) -> Vec<f64> {
        let first = self.low.log2().ceil() as i32;
        let last = self.high.log2().floor() as i32;
        let count = usize::try_from(last - first + 1).unwrap_or(0);
        let every = count.div_ceil(wanted.max(1) as usize).max(1);
        (first..=last).step_by(every).map(|exponent| 2_f64.powi(exponent)).collect()
    }
}

const QUANTILES: [(f64, &str); 7] = [
    (1.0, "0 %"),
    (2.0, "50 %"),
    (10.0, "90 %"),
    (100.0, "99 %"),
    (1e3, "99.9 %"),
    (1e4, "99.99 %"),
    (1e5, "99.999 %"),
];

impl Unit {
    /// The smallest round step that is not smaller than `raw`.
    fn nice(self, raw: f64) -> f64 {
        let base: f64 = match self {
            Self::Bytes | Self::BytesPerSecond if raw >= 1.0 => {
                1024_f64.powf(raw.log(1024.0).floor())
            }
            _ => 1.0,
        };
        let raw = if raw.is_finite() && raw > 0.0 { raw / base } else { 1.0 };
        let decade = 10_f64.powf(raw.log10().floor());
        let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * decade >= raw * 0.999);
        let step = digit.unwrap_or(10.0) * decade;
        let is_bytes = matches!(self, Self::Bytes | Self::BytesPerSecond);
        // Above 50 kB come 128 kB, not 100 kB: their multiples are whole in MB too.
        let binary = [(100.0, 128.0), (200.0, 256.0), (500.0, 512.0), (1000.0, 1024.0)];
        let binary = binary.iter().find(|(decimal, _)| is_bytes && (step - decimal).abs() < 0.5);
        binary.map_or(step, |(_, binary)| *binary) * base
    }

    /// With as many digits as tell ticks apart that lie so far from each other.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    fn written(self, value: f64, apart: f64) -> String {
        let digits = if apart.is_finite() { (-apart.log10()).ceil().clamp(0.0, 6.0) } else { 0.0 };
        let digits = digits as usize;
        let whole = value.round().clamp(0.0, 1e18) as u64;
        match self {
            Self::SignedPercent if value.abs() < 1e-9 => "0".to_owned(),
            Self::SignedPercent => format!("{value:+.digits$} %"),
            Self::Percent => format!("{value:.digits$} %"),
            Self::Bytes => without_zeros(&ByteSize(whole).rounded()),
            Self::BytesPerSecond => format!("{}/s", without_zeros(&ByteSize(whole).rounded())),
            Self::Nanoseconds => without_zeros(&latency(Duration::from_nanos(whole))),
            Self::Plain | Self::Quantile | Self::Time => format!("{value:.digits$}"),
        }
    }
}

/// A latency in three digits.
pub(crate) fn latency(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let (unit, value) = match seconds {
        s if s >= 1.0 => ("s", s),
        s if s >= 1e-3 => ("ms", s * 1e3),
        s => ("us", s * 1e6),
    };
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// `50.0 MB` as `50 MB`.
fn without_zeros(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |extent, value| {
        let (low, high) = extent.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plot::n;

    fn labels(scale: &Scale, wanted: u32) -> Vec<String> {
        scale.ticks(wanted).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round() {
        let percent = Scale::linear([-2.3, 6.9], Unit::SignedPercent);
        assert_eq!(labels(&percent, 5), ["-2 %", "0", "+2 %", "+4 %", "+6 %"]);
        let fine = Scale::linear([-0.2, 0.3], Unit::SignedPercent);
        assert_eq!(labels(&fine, 5), ["-0.2 %", "-0.1 %", "0", "+0.1 %", "+0.2 %", "+0.3 %"]);
        let bytes = Scale::linear([0.0, 2.2 * 1024.0 * 1024.0], Unit::Bytes);
        assert_eq!(labels(&bytes, 3), ["0 B", "1 MB", "2 MB"]);
        let more_bytes = Scale::linear([0.0, 1.6 * 1024.0 * 1024.0], Unit::Bytes);
        assert_eq!(labels(&more_bytes, 4), ["0 B", "512 kB", "1 MB", "1.5 MB"]);
        let latency = Scale::log([40_000.0, 1_500_000.0], Unit::Nanoseconds);
        assert_eq!(labels(&latency, 6), ["50 us", "100 us", "200 us", "300 us", "500 us", "1 ms"]);
        let sizes = Scale::log([1_500_000.0, 40_000_000.0], Unit::Bytes);
        assert_eq!(labels(&sizes, 5), ["2 MB", "4 MB", "8 MB", "16 MB", "32 MB"]);
        let quantiles = Scale::log([1.0, 2000.0], Unit::Quantile);
        assert_eq!(labels(&quantiles, 6), ["0 %", "50 %", "90 %", "99 %", "99.9 %"]);
    }

    #[test]
    fn what_lies_beyond_is_at_the_end() {
        let scale = Scale::linear([0.0, 10.0], Unit::Plain).between(100.0, 200.0);
        let places = [5.0, -7.0, 99.0, f64::NAN].map(|value| n(scale.at(value)));
        assert_eq!(places, ["150", "100", "200", "100"]);
    }

    proptest! {
        #[test]
        fn any_values_have_finite_places_and_few_ticks(values: Vec<f64>, at: f64) {
            for scale in [
                Scale::linear(values.clone(), Unit::SignedPercent),
                Scale::linear(values.clone(), Unit::Bytes),
                Scale::linear(values.clone(), Unit::Time),
                Scale::log(values.clone(), Unit::Nanoseconds),
            ] {
                let scale = scale.padded(0.05).between(0.0, 100.0);
                prop_assert!((0.0..=100.0).contains(&scale.at(at)));
                prop_assert!(scale.ticks(5).len() <= 16);
            }
        }
    }
}
