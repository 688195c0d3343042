//! The requested part of the WAL: from a place or time to another.

use std::fmt;
use std::str::FromStr;

use pgtoll_format::Lsn;

/// The end of a part of WAL begins or.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalBound {
    /// At the first record that begins here or later.
    Lsn(Lsn),
    /// At the first commit, rollback or checkpoint at this time or later, in microseconds since 1970.
    Time(i64),
}

/// Neither an LSN nor a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is neither an LSN like 16/B374D848 nor a time with an offset like 2026-11-22T10:00:00Z"
)]
pub struct WalBoundParseError(String);

impl FromStr for WalBound {
    type Err = WalBoundParseError;

    /// An LSN, or a time of RFC 3339, which has an offset: `2026-11-22T10:00:00+01:00`.
    fn from_str(text: &str) -> Result<Self, WalBoundParseError> {
        let error = || WalBoundParseError(text.chars().take(80).collect());
        if let Ok(lsn) = text.parse() {
            return Ok(Self::Lsn(lsn));
        }
        let time: jiff::Timestamp = text.parse().map_err(|_| error())?;
        Ok(Self::Time(time.as_microsecond()))
    }
}

impl fmt::Display for WalBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lsn(lsn) => lsn.fmt(f),
            Self::Time(us) => match jiff::Timestamp::from_microsecond(*us) {
                Ok(time) => time.fmt(f),
                Err(_) => write!(f, "{us} us"),
            },
        }
    }
}

/// A part of WAL; without bounds all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalRange {
    /// Its start.
    pub from: Option<WalBound>,
    /// Its end: what is there is not in it any more.
    pub to: Option<WalBound>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_are_places_and_times() {
        let check = |text: &str, expected: Option<WalBound>| {
            assert_eq!(text.parse().ok(), expected, "{text}");
        };
        check("16/B374D848", Some(WalBound::Lsn(Lsn(0x16_B374_D848))));
        let time = Some(WalBound::Time(1_795_341_600_000_000));
        check("2026-11-22T10:00:00Z", time);
        check("2026-11-22T11:00:00+01:00", time);
        check("2026-11-22 10:00:00Z", time);
        for other in ["", "yesterday", "2026-11-22", "2026-11-22T10:00:00", "1/", "16", "-5"] {
            check(other, None);
        }
    }

    proptest! {
        #[test]
        fn printed_is_read_back(place: u64, us in -377_705_023_201_000_000_i64..253_402_207_200_000_000) {
            for bound in [WalBound::Lsn(Lsn(place)), WalBound::Time(us)] {
                prop_assert_eq!(bound.to_string().parse(), Ok(bound));
            }
        }

        #[test]
        fn any_text_is_a_bound_or_an_error(text in ".*") {
            match text.parse::<WalBound>() {
                Ok(bound) => prop_assert_eq!(bound.to_string().parse(), Ok(bound)),
                Err(error) => prop_assert!(error.to_string().chars().count() < 200),
            }
        }

        #[test]
        fn what_looks_like_a_time_is_a_bound_or_an_error(
            text in "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})?",
        ) {
            let _ = text.parse::<WalBound>();
        }
    }
}
