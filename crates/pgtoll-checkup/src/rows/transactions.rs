//! Transaction IDs that are left, and autovacuum.

use pgtoll_estimate::thousands;
use pgtoll_record::{CheckedDatabase, CheckupRecord, Safety, SafetyRow, SafetyState};

use super::{Words, is_off, setting, span};
use crate::commits::float;

/// IDs from the oldest to where the server refuses commands that need one (`SetTransactionIdLimit`: three
/// million before the wraparound).
const IDS: u64 = (1 << 31) - 3_000_000;
/// The age at which vacuum leaves all else undone (`vacuum_failsafe_age`, 14 and later).
const FAILSAFE_AGE: u64 = 1_600_000_000;

pub(super) fn wraparound(checkup: &CheckupRecord) -> SafetyRow {
    let age = |database: &CheckedDatabase| database.transaction_age.max(database.multixact_age);
    let oldest = checkup.server.databases.iter().max_by_key(|database| age(database));
    let Some(oldest) = oldest else {
        return Words::default().row(Safety::Wraparound, SafetyState::Unknown);
    };
    let used = age(oldest);
    let begins: u64 = setting(checkup, "autovacuum_freeze_max_age").parse().unwrap_or(200_000_000);
    let (state, advice) = if used > FAILSAFE_AGE {
        (
            SafetyState::Missing,
            Some("VACUUM (FREEZE) the oldest tables now; end old transactions and slots"),
        )
    } else if used > begins.saturating_mul(2) {
        (
            SafetyState::Partial,
            Some("find what keeps autovacuum from freezing: old transactions, slots, locks"),
        )
    } else {
        (SafetyState::Held, None)
    };
    let ages = checkup.server.databases.iter().map(|database| database.transaction_age);
    let left = IDS.saturating_sub(ages.max().unwrap_or(0));
    let rate = checkup.watch.writes_per_second;
    let time = if rate > 0.0 {
        format!(
            "writes are refused in {} at this rate unless rows are frozen",
            span(float(left) / rate)
        )
    } else {
        format!("{} transaction IDs are left", thousands(left))
    };
    let words = Words {
        now: format!(
            "database {}: {} transactions old, {} multixacts",
            oldest.name,
            thousands(oldest.transaction_age),
            thousands(oldest.multixact_age)
        ),
        buys: time,
        costs: String::new(),
        advice: advice.map(str::to_owned),
        basis: "pg_database, transaction IDs of each look",
    };
    words.row(Safety::Wraparound, state)
}

pub(super) fn autovacuum(checkup: &CheckupRecord) -> SafetyRow {
    let off: Vec<&str> =
        ["autovacuum", "track_counts"].into_iter().filter(|name| is_off(checkup, name)).collect();
    let is_on = off.is_empty();
    let words = Words {
        now: if is_on { "on".to_owned() } else { format!("{} = off", off.join(" and ")) },
        buys: "freezes rows in time, removes dead ones, keeps statistics".to_owned(),
        costs: String::new(),
        advice: (!is_on).then(|| format!("set {} = on and reload", off.join(" and "))),
        basis: "pg_settings",
    };
    words.row(Safety::Autovacuum, if is_on { SafetyState::Held } else { SafetyState::Missing })
}
