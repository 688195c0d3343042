//! Damage that is noticed: `data_checksums`, their failures, and `wal_log_hints`.

use pgtoll_estimate::thousands;
use pgtoll_record::{
    CheckedRecordKind, CheckupRecord, Safety, SafetyRow, SafetyState, VerificationOutcome,
};

use super::{Words, is_off, latest, outcome_words, price, setting, span};

const DAY_S: f64 = 86_400.0;

pub(super) fn data_checksums(checkup: &CheckupRecord) -> SafetyRow {
    let is_on = setting(checkup, "data_checksums") == "on";
    let ignores = setting(checkup, "ignore_checksum_failure") == "on";
    let (state, now) = match (is_on, ignores) {
        (true, false) => (SafetyState::Held, "on"),
        (true, true) => (SafetyState::Partial, "on, with ignore_checksum_failure = on"),
        (false, _) => (SafetyState::Missing, "off"),
    };
    let bill = checkup.prediction.as_ref().and_then(|prediction| prediction.one_time.as_ref());
    let route = bill.and_then(|bill| bill.routes.iter().find(|route| route.recommended.is_some()));
    let downtime =
        route.map(|route| format!("; downtime once: {}", route.away)).unwrap_or_default();
    let advice = match state {
        SafetyState::Missing => Some(route.map_or_else(
            || "pgtoll enable, with the server stopped or on a standby first".to_owned(),
            |route| route.name.clone(),
        )),
        SafetyState::Partial => Some("set ignore_checksum_failure = off".to_owned()),
        _ => None,
    };
    let words = Words {
        now: now.to_owned(),
        buys: format!(
            "{}{}",
            reads(checkup),
            if is_on { ", each verified" } else { ", none of them verified" }
        ),
        costs: price(checkup, "data_checksums") + if is_on { "" } else { &downtime },
        advice,
        basis: "pg_settings, pg_stat_database, pgtoll predict",
    };
    words.row(Safety::DataChecksums, state)
}

/// Pages that are read in a day, at today's rate.
fn reads(checkup: &CheckupRecord) -> String {
    let rate = checkup.prediction.as_ref().map(|prediction| prediction.today.reads_per_second);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let pages = |rate: f64| thousands((rate * DAY_S) as u64);
    match rate {
        Some(rate) => format!("{} pages a day are read", pages(rate)),
        None => "pages are read".to_owned(),
    }
}

/// Failures that the server has counted, and those that the last verification found. Without checksums the server
/// counts none.
pub(super) fn checksum_failures(checkup: &CheckupRecord) -> Option<SafetyRow> {
    let verified = latest(checkup, CheckedRecordKind::Pages);
    let counts = !is_off(checkup, "data_checksums");
    if !counts && verified.is_none() {
        return None;
    }
    let counted = checkup.server.databases.iter();
    let failed: Vec<String> = counted
        .filter(|database| database.checksum_failures.is_some_and(|count| count > 0))
        .map(|database| {
            let last = database.last_checksum_failure.as_deref().unwrap_or("unknown");
            let count = database.checksum_failures.unwrap_or(0);
            format!("{}: {count}, the last {last}", database.name)
        })
        .collect();
    let is_sound = failed.is_empty();
    let counted = if is_sound { "none counted".to_owned() } else { failed.join("; ") };
    let read = verified.map(|named| format!("pages were verified {}", outcome_words(named)));
    let is_damaged = verified.is_some_and(|named| named.outcome == VerificationOutcome::Findings);
    let (state, advice) = match (is_sound, is_damaged) {
        (_, true) => {
            (SafetyState::Missing, Some("pgtoll report of that verification lists the pages"))
        }
        (false, _) => (
            SafetyState::Missing,
            Some("pgtoll verify finds the pages, pgtoll repair compares copies"),
        ),
        (true, false) => (SafetyState::Held, None),
    };
    let words = Words {
        now: counts.then_some(counted).into_iter().chain(read).collect::<Vec<_>>().join("; "),
        buys:
            "a counted failure is a page that a query or a backup has met; a verification reads all"
                .to_owned(),
        costs: String::new(),
        advice: advice.map(str::to_owned),
        basis: "pg_stat_database, records of pgtoll verify that were named",
    };
    Some(words.row(Safety::ChecksumFailures, state))
}

/// Rates at which a new standby is copied, in bytes a second.
const COPY_RATES: (f64, f64) = (1e8, 1e9);

/// Judges servers without checksums that have standbys; others have no row.
pub(super) fn hint_bits(checkup: &CheckupRecord) -> Option<SafetyRow> {
    let has_standby = checkup.loss.as_ref().is_some_and(|loss| !loss.standbys.is_empty());
    if setting(checkup, "data_checksums") == "on" || !has_standby {
        return None;
    }
    let is_off = is_off(checkup, "wal_log_hints");
    let copy = checkup.server.data_bytes.map(|bytes| {
        let bytes = crate::commits::float(bytes);
        format!(": {} to {}", span(bytes / COPY_RATES.1), span(bytes / COPY_RATES.0))
    });
    let words = Words {
        now: if is_off { "off" } else { "on" }.to_owned(),
        buys: format!(
            "after a failover pg_rewind returns the old primary, instead of a new copy{}",
            copy.unwrap_or_default()
        ),
        costs: if is_off { price(checkup, "wal_log_hints") } else { String::new() },
        advice: is_off
            .then(|| "set wal_log_hints = on and restart, or turn data checksums on".to_owned()),
        basis: "pg_settings, pgtoll predict; copies at 0.1 to 1 GB/s",
    };
    let state = if is_off { SafetyState::Missing } else { SafetyState::Held };
    Some(words.row(Safety::HintBits, state))
}
