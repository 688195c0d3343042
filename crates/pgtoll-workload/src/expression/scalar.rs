//! The values of expressions.

use std::fmt;

/// A value of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
}

impl Scalar {
    /// pgbench's name of the type.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "boolean",
            Self::Integer(_) => "int",
            Self::Double(_) => "double",
        }
    }

    /// Whether `\if` and `CASE` take it for true: numbers unless they are zero.
    pub(crate) fn is_true(self) -> bool {
        match self {
            Self::Null => false,
            Self::Boolean(value) => value,
            Self::Integer(number) => number != 0,
            Self::Double(number) => number != 0.0,
        }
    }

    /// Parses a query's value as pgbench does in expressions. `None`: it has no value.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let is = |word: &str| text.eq_ignore_ascii_case(word);
        let begins = |word: &str| word.get(..text.len()).is_some_and(is);
        if text.is_empty() {
            return None;
        }
        if is("null") {
            return Some(Self::Null);
        }
        if begins("true") || begins("yes") || is("on") {
            return Some(Self::Boolean(true));
        }
        if begins("false") || begins("no") || is("off") || is("of") {
            return Some(Self::Boolean(false));
        }
        let number = text.trim_start();
        let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return number.parse().ok().map(Self::Integer);
        }
        number.parse().ok().map(Self::Double)
    }
}

/// As pgbench sends it to the server; doubles have 15 significant digits.
impl fmt::Display for Scalar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Boolean(value) => write!(formatter, "{value}"),
            Self::Integer(number) => write!(formatter, "{number}"),
            Self::Double(number) => formatter.write_str(&general(*number)),
        }
    }
}

/// C's `%.15g`, with PostgreSQL's names of what is no number.
fn general(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:.*e}", DIGITS - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| {
        if !text.contains('.') {
            return text.to_owned();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    // From a double's exponent below 15 follow decimals between 0 and 18.
    match usize::try_from(14 - exponent) {
        Ok(decimals) if exponent >= -4 => trimmed(&format!("{number:.decimals$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
        }
    }
}

const DIGITS: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_by_c() {
        let check = |number: f64, expected: &str| assert_eq!(general(number), expected);
        check(0.0, "0");
        check(-0.0, "-0");
        check(1.0, "1");
        check(-0.125, "-0.125");
        check(0.1 + 0.2, "0.3");
        check(123_456_789_012_345.0, "123456789012345");
        check(1_234_567_890_123_456.0, "1.23456789012346e+15");
        check(1e15, "1e+15");
        check(999_999_999_999_999.9, "1e+15");
        check(0.0001, "0.0001");
        check(0.000_012_345, "1.2345e-05");
        check(1e-300, "1e-300");
        check(f64::INFINITY, "Infinity");
        check(f64::NEG_INFINITY, "-Infinity");
        check(f64::NAN, "NaN");
    }

    #[test]
    fn texts_are_numbers_booleans_or_nothing() {
        let check = |text: &str, expected| assert_eq!(Scalar::from_text(text), expected, "{text}");
        check("", None);
        check("NULL", Some(Scalar::Null));
        check("T", Some(Scalar::Boolean(true)));
        check("yE", Some(Scalar::Boolean(true)));
        check("o", None);
        check("of", Some(Scalar::Boolean(false)));
        check("n", Some(Scalar::Boolean(false)));
        check("0042", Some(Scalar::Integer(42)));
        check("+3", Some(Scalar::Integer(3)));
        check("-3", Some(Scalar::Integer(-3)));
        check("9223372036854775808", None);
        check("1.5e3", Some(Scalar::Double(1500.0)));
        check("2026-01-01", None);
    }
}
