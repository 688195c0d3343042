//! Recovery after a crash.

use pgtoll_format::conf;
use pgtoll_record::{
    CheckupRecord, Interval, RecoveryBasis, RecoveryForecast, Safety, SafetyRow, SafetyState,
    SeenRecovery, Spread,
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

/// A recovery that was seen once may take this much less or more time the next time.
const SEEN_FACTOR: f64 = 1.732;
/// The part of a recovery that does not depend on its WAL: start, and locks.
const SEEN_FIXED_S: f64 = 0.1;
/// The rest grows faster than the WAL, since pages that do not fit into shared buffers are written and read again:
/// with this exponent in the mean of `cargo xtask bench recoveries`, 0.9 to 1.3 by workload.
const SEEN_EXPONENT: f64 = 1.2;

/// The forecast from WAL since the redo point, by the last recovery, or the rate of a standby.
pub(crate) fn forecast(
    checkup: &CheckupRecord,
    since_redo: Spread,
    seen: Option<SeenRecovery>,
) -> RecoveryForecast {
    let basis = basis(checkup, seen);
    let most = since_redo.most.max(largest_distance(checkup));
    let wal_bytes = Spread { most, ..since_redo };
    let median_s = seconds(&basis, wal_bytes.median);
    RecoveryForecast {
        wal_bytes,
        bytes_per_second: (wal_bytes.median / median_s.upper, wal_bytes.median / median_s.lower),
        median_s,
        most_s: seconds(&basis, wal_bytes.most),
        basis,
    }
}

fn seconds(basis: &RecoveryBasis, bytes: f64) -> Interval {
    let about = |estimate: f64| Interval {
        estimate,
        lower: estimate / SEEN_FACTOR,
        upper: estimate * SEEN_FACTOR,
    };
    match basis {
        RecoveryBasis::Log(seen) => {
            let growth = (bytes / float(seen.wal_bytes)).powf(SEEN_EXPONENT);
            let variable = (seen.seconds - SEEN_FIXED_S).max(SEEN_FIXED_S / 2.0);
            about(SEEN_FIXED_S + variable * growth)
        }
        RecoveryBasis::Standby(rate) => about(SEEN_FIXED_S + bytes / rate),
        RecoveryBasis::Assumed => {
            let lower = FIXED_S.0 + bytes / ASSUMED_RATES.1;
            let upper = FIXED_S.1 + bytes / ASSUMED_RATES.0;
            Interval { estimate: (lower * upper).sqrt(), lower, upper }
        }
    }
}

fn basis(checkup: &CheckupRecord, seen: Option<SeenRecovery>) -> RecoveryBasis {
    let standbys = checkup.loss.iter().flat_map(|loss| &loss.standbys);
    let rate = standbys.filter_map(|standby| standby.replay_bytes_per_second).reduce(f64::max);
    match (seen, rate) {
        (Some(seen), _) => RecoveryBasis::Log(seen),
        (None, Some(rate)) => RecoveryBasis::Standby(rate),
        (None, None) => RecoveryBasis::Assumed,
    }
}

/// Words for the source of a rate.
fn rate_words(basis: &RecoveryBasis) -> String {
    match basis {
        RecoveryBasis::Log(seen) => format!(
            "as the recovery that ended {}: {} in {}",
            seen.ended.replacen('T', " ", 1),
            size(float(seen.wal_bytes)),
            span(seen.seconds)
        ),
        RecoveryBasis::Standby(rate) => {
            format!("a standby replayed {} a second while more was waiting", size(*rate))
        }
        RecoveryBasis::Assumed => {
            "20 to 500 MB/s replayed, an assumption: no recovery of this server was seen".to_owned()
        }
    }
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
    let basis = format!("WAL since the redo point at each look; {}", rate_words(&forecast.basis));
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
        ..Words::default()
    };
    SafetyRow { basis, ..words.row(Safety::Checkpoints, state) }
}
