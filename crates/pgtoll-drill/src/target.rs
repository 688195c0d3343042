//! The recovery target of a backup.

use std::fmt;
use std::str::FromStr;

use pgtoll_wal::WalBound;

/// How far a backup is recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrillTarget {
    /// To where it is consistent: the end of the backup.
    Consistency,
    /// To the end of the WAL that is at hand.
    Latest,
    /// To a place in WAL, or a time.
    Bound(WalBound),
}

/// Neither a word nor a place in WAL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is neither consistency nor latest, nor an LSN like 16/B374D848, nor a time with an \
     offset like 2026-11-22T10:00:00Z"
)]
pub struct DrillTargetParseError(String);

impl FromStr for DrillTarget {
    type Err = DrillTargetParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "consistency" => Ok(Self::Consistency),
            "latest" => Ok(Self::Latest),
            other => {
                let error = |_| DrillTargetParseError(other.chars().take(80).collect());
                other.parse().map(Self::Bound).map_err(error)
            }
        }
    }
}

impl fmt::Display for DrillTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consistency => f.write_str("consistency"),
            Self::Latest => f.write_str("latest"),
            Self::Bound(bound) => bound.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_words_places_and_times() {
        for text in ["consistency", "latest", "16/B374D848", "2026-11-22T10:00:00Z"] {
            let target: DrillTarget = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
        }
        for other in ["", "now", "immediate", "2026-11-22"] {
            assert!(other.parse::<DrillTarget>().is_err(), "{other}");
        }
    }
}
