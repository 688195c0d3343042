//! Log sequence numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A log sequence number: a byte position in the write-ahead log.
///
/// Printed and read as PostgreSQL does: two hexadecimal halves with a slash, `16/B374D848`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Lsn(pub u64);

impl Lsn {
    /// Bytes of WAL from `earlier` to this position; `None` when `earlier` is in fact later.
    pub fn bytes_since(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl FromStr for Lsn {
    type Err = LsnParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || LsnParseError(text.to_owned());
        let (high, low) = text.split_once('/').ok_or_else(error)?;
        let half = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten().ok_or_else(error)
        };
        Ok(Self(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
    }
}

impl TryFrom<String> for Lsn {
    type Error = LsnParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Lsn> for String {
    fn from(lsn: Lsn) -> Self {
        lsn.to_string()
    }
}

/// The text is not a log sequence number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a log sequence number like 16/B374D848")]
pub struct LsnParseError(String);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn printed_is_read_back(position: u64) {
            prop_assert_eq!(Lsn(position).to_string().parse(), Ok(Lsn(position)));
        }

        #[test]
        fn any_text_is_an_lsn_or_an_error(text in ".*") {
            let _ = text.parse::<Lsn>();
        }
    }

    #[test]
    fn signs_and_overlong_halves_are_refused() {
        for text in ["", "/", "1/", "+1/2", "1/+2", "1/2/3", "100000000/0", "0x1/2"] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }
}
