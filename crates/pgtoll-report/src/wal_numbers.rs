//! Numbers of WAL as people read them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{ImageCause, WalAmount, WalCycle, WalImages, WalStatisticsRecord};

/// `12,345,678`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One of them, or how many.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).rounded()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub(crate) fn size_of(bytes: f64) -> String {
    size(bytes.round().clamp(0.0, 1e18) as u64)
}

pub(crate) fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", size_of(bytes_per_second))
}

/// A part of a whole, to a tenth of a per cent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    match share(part, whole) * 100.0 {
        _ if part == 0 => "0 %".to_owned(),
        percent if percent < 0.05 => "<0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// A part of a whole; 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "a share of which few digits are shown")]
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// All bytes; a record from elsewhere may say more than there can be.
pub(crate) fn bytes(amount: &WalAmount) -> u64 {
    amount.record_bytes.saturating_add(amount.image_bytes)
}

/// Returns the sum of all amounts.
pub(crate) fn sum<'a>(amounts: impl Iterator<Item = &'a WalAmount>) -> WalAmount {
    amounts.fold(WalAmount::default(), |sum, amount| WalAmount {
        records: sum.records.saturating_add(amount.records),
        record_bytes: sum.record_bytes.saturating_add(amount.record_bytes),
        image_bytes: sum.image_bytes.saturating_add(amount.image_bytes),
    })
}

/// Returns the sum of all images.
pub(crate) fn sum_of_images<'a>(all: impl Iterator<Item = &'a WalImages>) -> WalImages {
    all.fold(WalImages::default(), |sum, image| WalImages {
        images: sum.images.saturating_add(image.images),
        bytes: sum.bytes.saturating_add(image.bytes),
        uncompressed_bytes: sum.uncompressed_bytes.saturating_add(image.uncompressed_bytes),
    })
}

pub(crate) fn of_cause(causes: &BTreeMap<ImageCause, WalImages>, cause: ImageCause) -> WalImages {
    causes.get(&cause).copied().unwrap_or_default()
}

/// A time of a record (RFC 3339), to the second; as it is where it is none.
pub(crate) fn moment(rfc3339: &str) -> String {
    let parsed: Option<Timestamp> = rfc3339.parse().ok();
    parsed.map_or_else(|| rfc3339.to_owned(), |time| formatted(time, "%Y-%m-%d %H:%M:%S UTC"))
}

pub(crate) fn formatted(time: Timestamp, form: &str) -> String {
    time.to_zoned(TimeZone::UTC).strftime(form).to_string()
}

/// From one time to another that is not before it.
fn elapsed(from: Option<&str>, to: Option<&str>) -> Option<Duration> {
    let [from, to] = [from?, to?].map(|text| text.parse::<Timestamp>().ok());
    let microseconds = to?.as_microsecond().checked_sub(from?.as_microsecond())?;
    u64::try_from(microseconds).ok().map(Duration::from_micros)
}

/// How long a cycle lasted, when the next one follows it.
pub(crate) fn lasted(cycle: &WalCycle, next: Option<&WalCycle>) -> Option<Duration> {
    let next = next.filter(|next| next.from == cycle.to)?;
    elapsed(cycle.began.as_deref(), next.began.as_deref())
}

/// Between moments that are known to the second.
pub(crate) fn seconds(duration: Duration) -> String {
    if duration.as_secs() > 0 { span(duration) } else { "<1 s".to_owned() }
}

pub(crate) fn span(duration: Duration) -> String {
    TimeSpan(duration).rounded()
}

/// From the first commit to the last, without gaps; `None` where that is no time.
pub(crate) fn duration(statistics: &WalStatisticsRecord) -> Option<Duration> {
    let elapsed =
        elapsed(statistics.source.first_time.as_deref(), statistics.source.last_time.as_deref())?;
    let gaps =
        statistics.source.gaps.iter().filter_map(|gap| gap.lasted_ms).map(Duration::from_millis);
    let gaps = gaps.fold(Duration::ZERO, Duration::saturating_add);
    Some(elapsed.saturating_sub(gaps)).filter(|span| !span.is_zero())
}

/// The middle one, of the sorted; of two the mean.
pub(crate) fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    Some(values.get(last / 2)?.midpoint(*values.get(values.len() / 2)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let percents = [(0, 7), (1, 1_000_000), (1, 3), (7, 7), (1, 0)];
        let percents = percents.map(|(part, whole)| percent(part, whole));
        assert_eq!(percents, ["0 %", "<0.1 %", "33.3 %", "100.0 %", "-"]);
    }

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9]), Some(9));
        assert_eq!(median(vec![5, 1, 9]), Some(5));
        assert_eq!(median(vec![u64::MAX, u64::MAX]), Some(u64::MAX));
    }
}
