//! Log sequence numbers.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A log sequence number: a byte position in the write-ahead log.
///
/// Printed and read as PostgreSQL does: two hexadecimal halves with a slash, `16/B374D848`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Lsn(pub u64);

/// Segments and pages are given by their size in bytes, which is not 0.
impl Lsn {
    /// No position (`InvalidXLogRecPtr`): before all WAL.
    pub const INVALID: Self = Self(0);
    /// Behind all WAL.
    pub const MAX: Self = Self(u64::MAX);

    /// The start of the segment with this number; [`Self::MAX`] where that is out of range.
    pub fn from_segment(number: u64, segment_bytes: u64) -> Self {
        Self(number.saturating_mul(segment_bytes))
    }

    /// Bytes of WAL from `earlier` to this position; `None` when `earlier` is in fact later.
    pub fn bytes_since(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// The number of the segment that this position is in (`XLByteToSeg`).
    pub fn segment_number(self, segment_bytes: u64) -> u64 {
        self.0 / segment_bytes
    }

    /// Bytes from its segment's begin to this position (`XLogSegmentOffset`).
    pub fn segment_offset(self, segment_bytes: u64) -> u64 {
        self.0 % segment_bytes
    }

    /// The last multiple of this many bytes that is not behind this position.
    #[must_use]
    pub fn align_down(self, bytes: u64) -> Self {
        Self(self.0 - self.0 % bytes)
    }

    /// The first multiple of this many bytes that is not before this position; [`Self::MAX`] where
    /// that is out of range.
    #[must_use]
    pub fn align_up(self, bytes: u64) -> Self {
        Self(self.0.checked_next_multiple_of(bytes).unwrap_or(u64::MAX))
    }

    /// Whether it is a multiple of this many bytes.
    pub fn is_aligned(self, bytes: u64) -> bool {
        self.0.is_multiple_of(bytes)
    }

    /// This many bytes behind this position, [`Self::MAX`] where that is out of range: for lengths
    /// that nothing has checked.
    #[must_use]
    pub fn saturating_add(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

/// Bytes behind a position. Panics where that is out of range; see [`Lsn::saturating_add`].
impl Add<u64> for Lsn {
    type Output = Self;

    fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl AddAssign<u64> for Lsn {
    fn add_assign(&mut self, bytes: u64) {
        *self = *self + bytes;
    }
}

/// Bytes from an earlier position. Panics where it is later; see [`Lsn::bytes_since`].
impl Sub for Lsn {
    type Output = u64;

    fn sub(self, earlier: Self) -> u64 {
        self.0 - earlier.0
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
        fn segment_and_offset_are_the_position(position: u64, bits in 20_u32..=30) {
            let lsn = Lsn(position);
            let segment_bytes = 1 << bits;
            let begin = Lsn::from_segment(lsn.segment_number(segment_bytes), segment_bytes);
            prop_assert_eq!(begin, lsn.align_down(segment_bytes));
            prop_assert_eq!(begin + lsn.segment_offset(segment_bytes), lsn);
            prop_assert_eq!(lsn - begin, lsn.segment_offset(segment_bytes));
            prop_assert!(lsn.segment_offset(segment_bytes) < segment_bytes);
        }

        #[test]
        fn alignment_is_the_nearest_multiple(position: u64, bytes in 1_u64..1 << 31) {
            let lsn = Lsn(position);
            let down = lsn.align_down(bytes);
            let up = lsn.align_up(bytes);
            prop_assert!(down.is_aligned(bytes) && down <= lsn && lsn - down < bytes);
            prop_assert!(lsn <= up && up - lsn < bytes && (up.is_aligned(bytes) || up == Lsn::MAX));
            prop_assert_eq!(lsn.is_aligned(bytes), down == up);
        }

        #[test]
        fn sums_and_differences_agree(position: u64, bytes: u64) {
            let lsn = Lsn(position);
            let sum = position.checked_add(bytes).map(Lsn);
            prop_assert_eq!(lsn.saturating_add(bytes), sum.unwrap_or(Lsn::MAX));
            if let Some(sum) = sum {
                prop_assert_eq!((lsn + bytes, sum - lsn), (sum, bytes));
                prop_assert_eq!(sum.bytes_since(lsn), Some(bytes));
                prop_assert_eq!(lsn.bytes_since(sum).is_none(), bytes > 0);
            }
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
