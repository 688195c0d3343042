//! Numbers of a prediction as people read them.

use std::time::Duration;

use pgtoll_format::TimeSpan;

use crate::wal_numbers::size_of;

/// Bytes a second; negative: less.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    let sign = if bytes_per_second < 0.0 { "-" } else { "" };
    format!("{sign}{}/s", size_of(bytes_per_second.abs()))
}

pub(crate) fn per_second(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") }
}

pub(crate) fn cores(cores: f64) -> String {
    if cores.abs() < 0.1 { format!("{cores:.5}") } else { format!("{cores:.3}") }
}

pub(crate) fn span(seconds: f64) -> String {
    TimeSpan(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()).rounded()
}
