//! Ticks of a time axis. Times are microseconds since 1970, and are written in UTC.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Round times between two others with how they are written: about `wanted`, and not many more.
pub(crate) fn ticks(low: f64, high: f64, wanted: u32) -> Vec<(f64, String)> {
    let step = step((high - low) / f64::from(wanted.max(1)));
    let first = (low / step).ceil();
    let all = (0..wanted * 3).map(|index| (first + f64::from(index)) * step);
    let within = all.take_while(|value| *value <= high);
    within.filter_map(|value| Some((value, written(value, step)?))).collect()
}

/// The smallest step of a clock or a calendar that is not smaller than `raw`.
fn step(raw: f64) -> f64 {
    let of_clock =
        CLOCK.iter().flat_map(|(unit, counts)| counts.iter().map(move |count| unit * count));
    let fits = of_clock.into_iter().find(|step| *step >= raw * 0.999);
    fits.unwrap_or_else(|| DAY * decimal(raw / DAY)).max(1.0)
}

fn decimal(raw: f64) -> f64 {
    if !raw.is_finite() {
        return 1.0;
    }
    let decade = 10_f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0].into_iter().find(|item| item * decade >= raw * 0.999).unwrap_or(10.0) * decade
}

const SECOND: f64 = 1e6;
const MINUTE: f64 = 60.0 * SECOND;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;

/// Units, and how many of each are a step.
const CLOCK: [(f64, &[f64]); 6] = [
    (1.0, &[1.0, 10.0, 100.0]),
    (1e3, &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]),
    (SECOND, &[1.0, 2.0, 5.0, 10.0, 15.0, 30.0]),
    (MINUTE, &[1.0, 2.0, 5.0, 10.0, 15.0, 30.0]),
    (HOUR, &[1.0, 2.0, 3.0, 6.0, 12.0]),
    (DAY, &[1.0]),
];

/// With as much of it as tells ticks apart that lie so far from each other. `None` beyond the
/// calendar.
#[expect(clippy::cast_possible_truncation, reason = "what is beyond the calendar is refused")]
fn written(value: f64, step: f64) -> Option<String> {
    let time = Timestamp::from_microsecond(value.round() as i64).ok()?.to_zoned(TimeZone::UTC);
    let is_midnight = (value / DAY).fract().abs() < 1e-12;
    let form = match step {
        step if step >= DAY => "%Y-%m-%d",
        _ if is_midnight => "%b %-d",
        step if step >= MINUTE => "%H:%M",
        step if step >= SECOND => "%H:%M:%S",
        step if step >= 1e3 => "%H:%M:%S%.3f",
        _ => "%H:%M:%S%.6f",
    };
    Some(time.strftime(form).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(from: &str, to: &str, wanted: u32) -> Vec<String> {
        let [from, to] = [from, to].map(|text| {
            let time: Timestamp = text.parse().unwrap();
            #[expect(clippy::cast_precision_loss, reason = "a test's time")]
            let microseconds = time.as_microsecond() as f64;
            microseconds
        });
        ticks(from, to, wanted).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_times() {
        let minutes = labels("2026-11-22T08:03:11Z", "2026-11-22T09:10:00Z", 5);
        assert_eq!(minutes, ["08:15", "08:30", "08:45", "09:00"]);
        let night = labels("2026-11-22T22:50:00Z", "2026-11-23T01:10:00Z", 5);
        assert_eq!(night, ["23:00", "23:30", "Nov 23", "00:30", "01:00"]);
        let seconds = labels("2026-11-22T08:03:11.2Z", "2026-11-22T08:03:13Z", 4);
        assert_eq!(seconds, ["08:03:11.500", "08:03:12.000", "08:03:12.500", "08:03:13.000"]);
        let days = labels("2026-11-01T08:00:00Z", "2026-11-20T08:00:00Z", 5);
        assert_eq!(days, ["2026-11-03", "2026-11-08", "2026-11-13", "2026-11-18"]);
    }

    proptest! {
        #[test]
        fn any_two_times_have_few_ticks(low: f64, high: f64, wanted in 0_u32..12) {
            let low = low.clamp(-1e18, 1e18);
            let high = high.clamp(-1e18, 1e18);
            let ticks = ticks(low, high, wanted);
            prop_assert!(ticks.len() <= wanted as usize * 3);
            prop_assert!(ticks.iter().all(|(at, _)| *at <= high));
        }

        #[test]
        fn times_of_this_age_always_have_ticks(low in 0_i64..4_000_000_000_000_000, long in 100_i64..4_000_000_000_000_000) {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let (low, high) = (low as f64, (low + long) as f64);
            let count = ticks(low, high, 6).len();
            prop_assert!((1..=8).contains(&count), "{count}");
        }
    }
}
