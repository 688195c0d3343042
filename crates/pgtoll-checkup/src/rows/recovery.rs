//! Recovery after a crash.

use pgtoll_format::conf;
use pgtoll_record::{
    CheckupRecord, Interval, RecoveryForecast, Safety, SafetyRow, SafetyState, Spread,
};

use super::{Words, setting, size, span};
use crate::commits::float;

/// WAL that servers replay a second where nothing is known of this one: from scattered blocks on a slow disk to
/// blocks in memory.
const ASSUMED_RATES: (f64, f64) = (2e7, 5e8);
/// Start, and the checkpoint at the end of recovery, at least and at most.
const FIXED_S: (f64, f64) = (0.1, 3.0);
/// Recovery that takes longer is a finding.
const LIMIT_S: f64 = 600.0;

/// The forecast from WAL since the redo point.
pub(crate) fn forecast(checkup: &CheckupRecord, since_redo: Spread) -> RecoveryForecast {
    let most = since_redo.most.max(largest_distance(checkup));
    let wal_bytes = Spread { most, ..since_redo };
    RecoveryForecast {
        wal_bytes,
        bytes_per_second: ASSUMED_RATES,
        basis: "assumed: no recovery of this server was seen".to_owned(),
        median_s: seconds(wal_bytes.median),
        most_s: seconds(wal_bytes.most),
    }
}

fn seconds(bytes: f64) -> Interval {
    let (slow, fast) = ASSUMED_RATES;
    let lower = FIXED_S.0 + bytes / fast;
    let upper = FIXED_S.1 + bytes / slow;
    Interval { estimate: (lower * upper).sqrt(), lower, upper }
}

/// WAL between two redo points, and until the second checkpoint is complete, at this rate and with these
/// settings; 0 where they cannot be read.
fn largest_distance(checkup: &CheckupRecord) -> f64 {
    let timeout = conf::time("checkpoint_timeout", setting(checkup, "checkpoint_timeout"));
    let limit = conf::size("max_wal_size", setting(checkup, "max_wal_size"));
    let target: f64 = setting(checkup, "checkpoint_completion_target").parse().unwrap_or(0.9);
    let (Ok(timeout), Ok(limit)) = (timeout, limit) else { return 0.0 };
    let by_time = checkup.watch.wal_bytes_per_second * timeout.0.as_secs_f64() * (1.0 + target);
    by_time.min(float(limit.0))
}

pub(super) fn crash_recovery(checkup: &CheckupRecord) -> SafetyRow {
    let settings = ["max_wal_size", "checkpoint_timeout"]
        .map(|name| format!("{name} = {}", setting(checkup, name)))
        .join(", ");
    let Some(forecast) = &checkup.recovery else {
        let words = Words {
            now: settings,
            buys: "time to recover from a crash: the role may not read the redo point".to_owned(),
            basis: "pg_settings",
            ..Words::default()
        };
        return words.row(Safety::Checkpoints, SafetyState::Unknown);
    };
    let most = forecast.most_s;
    let (state, advice) = if most.estimate > LIMIT_S {
        (SafetyState::Missing, Some("set a smaller max_wal_size or checkpoint_timeout"))
    } else if most.upper > LIMIT_S {
        (SafetyState::Partial, Some("time a recovery of a copy: pgtoll verify --drill"))
    } else {
        (SafetyState::Held, None)
    };
    let words = Words {
        now: settings,
        buys: format!(
            "a crash now takes {} to {} to recover from {} of WAL; {} to {} at the worst moment",
            span(forecast.median_s.lower),
            span(forecast.median_s.upper),
            size(forecast.wal_bytes.median),
            span(most.lower),
            span(most.upper)
        ),
        costs: "other distances: pgtoll predict --setting max_wal_size=…".to_owned(),
        advice: advice.map(str::to_owned),
        basis: "WAL since the redo point at each look; 20 to 500 MB/s replayed, an assumption",
    };
    words.row(Safety::Checkpoints, state)
}
