//! Times as logs have them.

/// `2026-11-21 19:46:17.606` with or without milliseconds: microseconds since 1970 as if in UTC, and
/// the bytes that it takes.
pub(crate) fn timestamp(text: &[u8]) -> Option<(i64, usize)> {
    let fixed = text.get(..19)?;
    let separators = [(4, b'-'), (7, b'-'), (10, b' '), (13, b':'), (16, b':')];
    if separators.iter().any(|&(at, separator)| fixed[at] != separator) {
        return None;
    }
    let two = |at: usize| number(&fixed[at..at + 2]);
    let year = number(&fixed[..4])?;
    let month = two(5)?;
    let day = two(8)?;
    let hour = two(11)?;
    let minute = two(14)?;
    let second = two(17)?;
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 24
        || minute > 59
        || second > 60
    {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    let mut milliseconds = 0;
    let mut length = 19;
    if let Some([b'.', a, b, c]) = text.get(19..23)
        && let Some(found) = number(&[*a, *b, *c])
    {
        (milliseconds, length) = (found, 23);
    }
    Some((seconds * 1_000_000 + milliseconds * 1000, length))
}

/// `2026-11-21 19:46:17.606 UTC`: as [`timestamp`], with the zone's name.
pub(crate) fn zoned_timestamp(text: &[u8]) -> Option<(i64, usize)> {
    let (time_us, length) = timestamp(text)?;
    let rest = text[length..].strip_prefix(b" ")?;
    let is_zone = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-');
    let zone = rest.iter().take_while(|byte| is_zone(byte)).count();
    (zone > 0).then_some((time_us, length + 1 + zone))
}

/// `1763754377.606`: seconds since 1970.
pub(crate) fn epoch(text: &[u8]) -> Option<(i64, usize)> {
    let whole = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=12).contains(&whole) {
        return None;
    }
    let seconds = number(&text[..whole])?;
    let fraction = text.get(whole..whole + 4)?;
    let milliseconds = number(fraction.strip_prefix(b".")?)?;
    Some((seconds * 1_000_000 + milliseconds * 1000, whole + 4))
}

/// Appends `2026-11-21 19:46:17.606` of milliseconds since 1970.
pub(crate) fn write_timestamp(time_ms: i64, text: &mut Vec<u8>) {
    let day = time_ms.div_euclid(86_400_000);
    let ms = time_ms.rem_euclid(86_400_000);
    // Days since a first of March at the begin of 400 years.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1000 % 60, ms % 1000);
    let time = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03}");
    text.extend_from_slice(time.as_bytes());
}

fn number(digits: &[u8]) -> Option<i64> {
    let digit =
        |value: i64, byte: &u8| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0'));
    digits.iter().try_fold(0, digit)
}

/// Days since 1970-01-01 in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_times_are_read_as_they_were() {
        // Years 1 to 9999.
        for day in -719_162_i64..2_932_896 {
            let time_ms = day * 86_400_000 + day.rem_euclid(86_399_999);
            let mut text = Vec::new();
            write_timestamp(time_ms, &mut text);
            assert_eq!(timestamp(&text), Some((time_ms * 1000, 23)), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn times_are_microseconds_since_1970() {
        let at = 1_763_754_377_606_000;
        assert_eq!(timestamp(b"2025-11-21 19:46:17.606 UTC"), Some((at, 23)));
        assert_eq!(zoned_timestamp(b"2025-11-21 19:46:17.606 UTC|"), Some((at, 27)));
        assert_eq!(zoned_timestamp(b"2025-11-21 19:46:17 +0330:"), Some((at - 606_000, 25)));
        assert_eq!(epoch(b"1763754377.606 x"), Some((at, 14)));
        assert_eq!(timestamp(b"1970-01-01 00:00:00"), Some((0, 19)));
        assert_eq!(timestamp(b"2000-02-29 00:00:00").unwrap().0, 951_782_400_000_000);
        for text in [&b"2025-13-21 19:46:17"[..], b"2025-11-21T19:46:17", b"", b"2025-11-21 19:46"]
        {
            assert_eq!(timestamp(text), None);
        }
    }
}
