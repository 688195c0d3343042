//! Recoveries in a server's log.

use jiff::civil::DateTime;
use pgtoll_format::Lsn;
use pgtoll_record::SeenRecovery;

/// Finds the last recovery from a crash in lines of a log, whatever their prefix or form: plain, CSV or JSON.
#[derive(Debug, Default)]
pub(crate) struct RecoveryScan {
    began: Option<DateTime>,
    redo_from: Option<Lsn>,
    redo_to: Option<Lsn>,
    redo_seconds: Option<f64>,
    last: Option<SeenRecovery>,
}

/// Lines that the scan needs, as a regular expression.
pub(crate) const LINES: &str = "database system was |archive recovery|standby mode|redo starts at|redo done at|is ready to accept connections";

/// A recovery of less WAL is mostly the start itself.
const LEAST_BYTES: u64 = 16 << 20;

impl RecoveryScan {
    pub(crate) fn take(&mut self, line: &str) {
        // A backup's recovery reads an archive, at its speed.
        if line.contains("archive recovery") || line.contains("standby mode") {
            self.forget();
        } else if let Some((prefix, _)) = line.split_once("database system was ") {
            // A crash has two such lines.
            self.began = self.began.or_else(|| time(prefix));
        } else if let Some((_, rest)) = line.split_once("redo starts at ") {
            self.redo_from = first_word(rest);
        } else if let Some((_, rest)) = line.split_once("redo done at ") {
            self.redo_to = first_word(rest);
            self.redo_seconds = rest.split_once("elapsed: ").and_then(|(_, rest)| first_word(rest));
        } else if let Some((prefix, _)) =
            line.split_once("database system is ready to accept connections")
        {
            self.last = self.seen(prefix).or_else(|| self.last.take());
            self.forget();
        }
    }

    /// The last that was found.
    pub(crate) fn finish(self) -> Option<SeenRecovery> {
        self.last
    }

    fn forget(&mut self) {
        *self = Self { last: self.last.take(), ..Self::default() };
    }

    /// The recovery that ended with this line's prefix.
    fn seen(&self, prefix: &str) -> Option<SeenRecovery> {
        let wal_bytes = self.redo_to?.bytes_since(self.redo_from?)?;
        let (began, ended) = (self.began?, time(prefix)?);
        let seconds = began.until(ended).ok()?.total(jiff::Unit::Second).ok()?;
        let is_used = wal_bytes >= LEAST_BYTES && seconds > 0.0;
        let ended = ended.to_string();
        is_used.then_some(SeenRecovery {
            ended,
            wal_bytes,
            seconds,
            redo_seconds: self.redo_seconds,
        })
    }
}

fn first_word<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.split([' ', '"', ',']).next()?.parse().ok()
}

/// The first time of day in a line's prefix, to the millisecond if it has any.
fn time(prefix: &str) -> Option<DateTime> {
    const FORM: &[u8] = b"dddd-dd-dd dd:dd:dd";
    let is_time = |window: &[u8]| {
        window.iter().zip(FORM).all(|(byte, form)| match form {
            b'd' => byte.is_ascii_digit(),
            form => byte == form,
        })
    };
    let at = prefix.as_bytes().windows(FORM.len()).position(is_time)?;
    let rest = &prefix[at + FORM.len()..];
    let is_fraction = |character: char| character == '.' || character.is_ascii_digit();
    let fraction = rest.find(|character| !is_fraction(character)).unwrap_or(rest.len());
    prefix[at..at + FORM.len() + fraction].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(log: &str) -> Option<SeenRecovery> {
        let mut scan = RecoveryScan::default();
        log.lines().for_each(|line| scan.take(line));
        scan.finish()
    }

    const CRASH: &str = "\
2026-11-29 10:00:00.500 UTC [7] LOG:  database system was interrupted; last known up at 2026-11-29 09:00:00 UTC
2026-11-29 10:00:00.600 UTC [7] LOG:  database system was not properly shut down; automatic recovery in progress
2026-11-29 10:00:00.700 UTC [7] LOG:  redo starts at 0/10000000
2026-11-29 10:00:02.700 UTC [7] LOG:  redo done at 0/14000000 system usage: CPU: user: 1.50 s, system: 0.50 s, elapsed: 2.00 s
2026-11-29 10:00:03.500 UTC [1] LOG:  database system is ready to accept connections
";

    #[test]
    fn a_crash_is_timed_from_its_first_line_to_the_last() {
        let seen = last(CRASH).unwrap();
        assert_eq!(seen.ended, "2026-11-29T10:00:03.5");
        assert_eq!((seen.wal_bytes, seen.seconds, seen.redo_seconds), (64 << 20, 3.0, Some(2.0)));
        let json = CRASH.lines().map(|line| {
            let (time, rest) = line.split_at(27);
            format!("{{\"timestamp\":\"{time}\",\"message\":\"{}\"}}\n", rest.trim())
        });
        assert_eq!(last(&json.collect::<String>()), Some(seen));
    }

    #[test]
    fn exports_have_the_recoveries_of_the_log() {
        let cloudwatch = CRASH.lines().enumerate().map(|(ms, line)| {
            let event = serde_json::json!({"timestamp": ms, "message": line});
            format!("{event}\n")
        });
        let cloudwatch: String = cloudwatch.collect();
        let seen = crate::last_recovery(cloudwatch.as_bytes()).unwrap();
        assert_eq!(seen, last(CRASH));
        let syslog = CRASH.lines().map(|line| {
            let (time, rest) = line.split_at(28);
            let (time, pid) = (time[..23].replace(' ', "T"), &rest[1..2]);
            format!("{time}Z db1 postgres[{pid}]: [1-1] {}\n", &rest[4..])
        });
        let syslog: String = syslog.collect();
        assert_eq!(crate::last_recovery(syslog.as_bytes()).unwrap(), last(CRASH), "{syslog}");
    }

    #[test]
    fn the_last_of_several_counts_and_a_clean_start_is_none() {
        let later = CRASH.replace("2026-11-29", "2026-11-30").replace("0/14000000", "0/12000000");
        let clean = "2026-12-01 10:00:00.500 UTC [7] LOG:  database system was shut down at 2026-12-01\n\
                     2026-12-01 10:00:00.700 UTC [1] LOG:  database system is ready to accept connections\n";
        let seen = last(&format!("{CRASH}{later}{clean}")).unwrap();
        assert_eq!((seen.wal_bytes, &*seen.ended), (32 << 20, "2026-11-30T10:00:03.5"));
    }

    #[test]
    fn backups_short_recoveries_and_lines_without_a_time_are_left_out() {
        let backup = CRASH.replace(
            "database system was not properly shut down; automatic recovery in progress",
            "starting archive recovery",
        );
        let tiny = CRASH.replace("0/14000000", "0/10000100");
        let timeless = CRASH.replace("2026-11-29 10:00:0", "");
        for log in [backup, tiny, timeless] {
            assert_eq!(last(&log), None, "{log}");
        }
    }
}
