//! Sizes and times with units, as in postgresql.conf: `64MB`, `90s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of bytes, written with PostgreSQL's units (`B`, `kB`, `MB`, `GB`, `TB`; powers of
/// 1024). The unit may not be left out, except for 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize(pub u64);

pub(crate) const SIZE_UNITS: [(&str, u64); 5] =
    [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10), ("B", 1)];

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text, &SIZE_UNITS, "a size like 64MB (units: B, kB, MB, GB, TB)").map(Self)
    }
}

/// Exact: the largest unit that divides the number.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(self.0, &SIZE_UNITS, f)
    }
}

impl ByteSize {
    /// Rounded for people: three digits, `1.23 GB`.
    pub fn rounded(self) -> String {
        let (unit, factor) =
            SIZE_UNITS.into_iter().find(|(_, factor)| self.0 >= *factor).unwrap_or(("B", 1));
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let value = self.0 as f64 / factor as f64;
        let digits = match value {
            _ if factor == 1 => 0,
            value if value < 9.995 => 2,
            value if value < 99.95 => 1,
            _ => 0,
        };
        format!("{value:.digits$} {unit}")
    }
}

/// A span of time, written with PostgreSQL's units (`us`, `ms`, `s`, `min`, `h`, `d`) or `m` for
/// minutes. Exact to a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeSpan(pub Duration);

pub(crate) const TIME_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl FromStr for TimeSpan {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "a time like 90s (units: us, ms, s, min, h, d)";
        parse(text, &TIME_UNITS, expected).map(|us| Self(Duration::from_micros(us)))
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX), &TIME_UNITS, f)
    }
}

impl TimeSpan {
    /// Rounded for people: `45 s`, `2.5 min`, `3.2 h`.
    pub fn rounded(self) -> String {
        let seconds = self.0.as_secs_f64();
        match seconds {
            s if s < 1.0 => format!("{:.0} ms", s * 1e3),
            s if s < 100.0 => format!("{s:.0} s"),
            s if s < 6000.0 => format!("{:.1} min", s / 60.0),
            s => format!("{:.1} h", s / 3600.0),
        }
    }
}

/// A number (a fraction is allowed: `1.5GB`) and a unit, in the smallest unit.
fn parse(text: &str, units: &[(&str, u64)], expected: &'static str) -> Result<u64, UnitError> {
    let error = || UnitError { text: text.chars().take(40).collect(), expected };
    let trimmed = text.trim();
    if trimmed == "0" {
        return Ok(0);
    }
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
    let (number, unit) = trimmed.split_at(end);
    let unit = unit.trim_start();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor).ok_or_else(error);
    }
    let fraction: f64 = number.parse().map_err(|_| error())?;
    whole(fraction * float(*factor)).ok_or_else(error)
}

/// An amount as the server's settings have it (`parse_int`, `convert_to_base_unit`): a number without
/// unit counts base units, and what has a unit is rounded to whole base units. In the smallest unit.
pub(crate) fn in_base_units(
    text: &str,
    units: &[(&str, u64)],
    base: Option<u64>,
    expected: &'static str,
) -> Result<u64, UnitError> {
    let error = || UnitError { text: text.chars().take(40).collect(), expected };
    let (number, rest) = number(text.trim_start()).ok_or_else(error)?;
    let unit = rest.trim();
    let place = units.iter().position(|(name, _)| *name == unit);
    let (factor, smaller) = match (place, base) {
        (Some(place), _) => (units[place].1, units.get(place + 1).map_or(1, |unit| unit.1)),
        (None, Some(base)) if unit.is_empty() => (base, base),
        (None, None) if unit.is_empty() && number == 0.0 => (1, 1),
        _ => return Err(error()),
    };
    let in_units = |amount: f64, unit: u64| (amount / float(unit)).round_ties_even() * float(unit);
    // A fraction of a unit is first rounded to the next smaller one.
    let amount = in_units(in_units(number * float(factor), smaller), base.unwrap_or(1));
    whole(amount).ok_or_else(error)
}

/// The number that a text begins with, and what follows it: decimal, hexadecimal (`0x`) or octal (`0`)
/// as for C, or with a fraction or exponent. Not negative.
fn number(text: &str) -> Option<(f64, &str)> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = |text: &str, radix| text.find(|c: char| !c.is_digit(radix)).unwrap_or(text.len());
    let integer = |text: &str, radix| u64::from_str_radix(text, radix).ok().map(float);
    let end = digits(text, 10);
    if text[end..].starts_with(['.', 'e', 'E']) {
        return real(text);
    }
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    if let Some(hexadecimal) = hexadecimal.filter(|text| digits(text, 16) > 0) {
        let (number, rest) = hexadecimal.split_at(digits(hexadecimal, 16));
        return Some((integer(number, 16)?, rest));
    }
    if text.starts_with('0') {
        let (number, rest) = text.split_at(digits(text, 8));
        return Some((integer(number, 8)?, rest));
    }
    let (number, rest) = text.split_at(end);
    Some((integer(number, 10)?, rest))
}

/// The same with a fraction or exponent, or neither.
pub(crate) fn real(text: &str) -> Option<(f64, &str)> {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())
    };
    let sign = usize::from(text.starts_with('+'));
    let mut end = digits(sign);
    if text[end..].starts_with('.') {
        end = digits(end + 1);
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    let (number, rest) = text.split_at(end);
    Some((number.parse().ok()?, rest))
}

#[expect(clippy::cast_precision_loss, reason = "units are small powers, and amounts below 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

/// Up to 2^53 every whole number is exact, and no size or time that we take is larger.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn whole(amount: f64) -> Option<u64> {
    (0.0..9_007_199_254_740_992.0).contains(&amount).then(|| amount.round() as u64)
}

fn display(amount: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match units.iter().find(|(_, factor)| amount != 0 && amount.is_multiple_of(*factor)) {
        Some((unit, factor)) => write!(f, "{}{unit}", amount / factor),
        None => write!(f, "0"),
    }
}

/// The text is no size, or no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not {expected}")]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

macro_rules! through_strings {
    ($($unit:ty),*) => {$(
        impl TryFrom<String> for $unit {
            type Error = UnitError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$unit> for String {
            fn from(amount: $unit) -> Self {
                amount.to_string()
            }
        }
    )*};
}

through_strings!(ByteSize, TimeSpan);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_as_postgresql_writes_them() {
        let check = |text: &str, bytes| assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        check("0", 0);
        check("16MB", 16 << 20);
        check("1.5GB", 3 << 29);
        check("8 kB", 8192);
        for text in ["", "16", "16mb", "-1MB", "MB", "1.2.3MB", "99999999999TB", "1e3MB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_as_postgresql_writes_them() {
        let check = |text: &str, ms| {
            assert_eq!(text.parse(), Ok(TimeSpan(Duration::from_millis(ms))), "{text}");
        };
        check("50ms", 50);
        check("20s", 20_000);
        check("1.5min", 90_000);
        check("10m", 600_000);
        assert!("5 minutes".parse::<TimeSpan>().is_err());
    }

    #[test]
    fn rounding_is_for_people() {
        assert_eq!(ByteSize(0).rounded(), "0 B");
        assert_eq!(ByteSize(1_290_000_000).rounded(), "1.20 GB");
        assert_eq!(TimeSpan(Duration::from_secs(150)).rounded(), "2.5 min");
    }

    proptest! {
        #[test]
        fn printed_is_read_back(bytes: u64, us in 0u64..1 << 50) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
            let span = TimeSpan(Duration::from_micros(us));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn any_text_is_an_amount_or_an_error(text in ".*") {
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<TimeSpan>();
        }
    }
}
