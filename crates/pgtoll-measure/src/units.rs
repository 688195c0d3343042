//! Conversions to the record's units.

use std::time::Duration;

/// A time in ns; of more than 584 years, the most that fits.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
