//! The judgement of each safety. Pure: a record's facts in, rows out.

mod copies;
mod flushes;
mod integrity;
mod recovery;
mod transactions;

use std::time::Duration;

use pgtoll_estimate::percent_of_share;
use pgtoll_format::{ByteSize, Provider, ProviderFacts, TimeSpan};
use pgtoll_record::{
    CheckedRecord, CheckedRecordKind, CheckupRecord, Interval, PredictionAnswer, Safety, SafetyRow,
    SafetyState, VerificationOutcome,
};

pub(crate) use recovery::forecast;

/// The rows of a record, the worst first. A safety that does not apply to the server has none.
pub(crate) fn rows(checkup: &CheckupRecord) -> Vec<SafetyRow> {
    let mut rows: Vec<SafetyRow> =
        Safety::ALL.into_iter().filter_map(|safety| row(safety, checkup)).collect();
    for row in &mut rows {
        beside_provider(row, checkup);
    }
    rows.sort_by_key(|row| (row.state, row.safety));
    rows
}

/// A copy that a provider may keep is not called missing, as long as views show none at all. What they show as
/// failing or damaged stays.
fn beside_provider(row: &mut SafetyRow, checkup: &CheckupRecord) {
    let Some(provider) = checkup.server.provider.as_deref().and_then(Provider::named) else {
        return;
    };
    let ProviderFacts { name, hidden_standby, backups, .. } = *provider.facts();
    let has_standby = checkup.loss.as_ref().is_some_and(|loss| !loss.standbys.is_empty());
    let wants_standby = !setting(checkup, "synchronous_standby_names").is_empty();
    let hidden = match row.safety {
        Safety::Standbys if !has_standby && !wants_standby => hidden_standby,
        // A backup that is damaged makes it missing, whatever is archived.
        Safety::Archive if checkup.server.archive.is_none() => {
            Some(backups).filter(|_| row.state == SafetyState::Partial)
        }
        _ => None,
    };
    let Some(hidden) = hidden else { return };
    row.state = SafetyState::Unknown;
    row.now = format!("{}; {name} may have what no view shows: {hidden}", row.now);
    row.advice = Some(format!("see the settings of the instance at {name}"));
}

fn row(safety: Safety, checkup: &CheckupRecord) -> Option<SafetyRow> {
    Some(match safety {
        Safety::Fsync => flushes::fsync(checkup),
        Safety::FullPageWrites => flushes::full_page_writes(checkup),
        Safety::SynchronousCommit => flushes::synchronous_commit(checkup),
        Safety::DataChecksums => integrity::data_checksums(checkup),
        Safety::ChecksumFailures => return integrity::checksum_failures(checkup),
        Safety::HintBits => return integrity::hint_bits(checkup),
        Safety::Standbys => copies::standbys(checkup),
        Safety::Slots => return copies::slots(checkup),
        Safety::Archive => copies::archive(checkup),
        Safety::Checkpoints => recovery::crash_recovery(checkup),
        Safety::Wraparound => transactions::wraparound(checkup),
        Safety::Autovacuum => transactions::autovacuum(checkup),
    })
}

/// A safety's parts in words; those that are empty do not apply.
#[derive(Debug, Default)]
struct Words {
    now: String,
    buys: String,
    costs: String,
    advice: Option<String>,
    basis: &'static str,
}

impl Words {
    fn row(self, safety: Safety, state: SafetyState) -> SafetyRow {
        let Self { now, buys, costs, advice, basis } = self;
        SafetyRow { safety, state, now, buys, costs, advice, basis: basis.to_owned() }
    }
}

fn setting<'a>(checkup: &'a CheckupRecord, name: &str) -> &'a str {
    checkup.server.settings.get(name).map_or("", String::as_str)
}

fn is_off(checkup: &CheckupRecord, name: &str) -> bool {
    setting(checkup, name) == "off"
}

/// The latest record of a kind that is of this cluster, or may be.
fn latest(checkup: &CheckupRecord, kind: CheckedRecordKind) -> Option<&CheckedRecord> {
    let own =
        checkup.records.iter().filter(|named| named.kind == kind && named.is_own != Some(false));
    own.min_by(|one, other| one.age_s.total_cmp(&other.age_s))
}

/// `2 days ago: sound`.
fn outcome_words(named: &CheckedRecord) -> String {
    let outcome = match named.outcome {
        VerificationOutcome::Sound => "sound",
        VerificationOutcome::NoDamageSeen => "no damage was seen",
        VerificationOutcome::Findings => "damaged",
        VerificationOutcome::Unverified => "not all was read",
    };
    format!("{} ago: {outcome}", span(named.age_s))
}

/// An answer of the prediction.
fn answer<'a>(checkup: &'a CheckupRecord, name: &str) -> Option<&'a PredictionAnswer> {
    let prediction = checkup.prediction.as_ref()?;
    prediction.answers.iter().find(|answer| answer.setting == name)
}

/// The price of turning a setting on, or of having it on, as ranges of CPU and WAL.
fn price(checkup: &CheckupRecord, name: &str) -> String {
    let Some(answer) = answer(checkup, name) else {
        return "unknown: the role may not watch for it".to_owned();
    };
    let is_paid = answer.value == "off";
    let sign = if is_paid { -1.0 } else { 1.0 };
    let cpu = answer.cpu.as_ref().map(|cpu| match cpu.share_of_busy {
        Some(share) => format!("CPU {}", percent_range(share, sign)),
        None => {
            format!("CPU at most {:.3} cores", (sign * cpu.cores.upper).max(sign * cpu.cores.lower))
        }
    });
    let share = answer.wal.as_ref().and_then(|wal| wal.extra_share);
    let wal = share.map_or_else(
        || "WAL unknown".to_owned(),
        |share| format!("WAL {}", percent_range(share, sign)),
    );
    let parts: Vec<String> = cpu.into_iter().chain([wal]).collect();
    let paid = if is_paid { "already paid: " } else { "" };
    format!("{paid}{}", parts.join(", "))
}

/// `+0.2 to +1.1 %`.
fn percent_range(share: Interval, sign: f64) -> String {
    let [one, other] = [sign * share.lower, sign * share.upper];
    let (lower, upper) = if one <= other { (one, other) } else { (other, one) };
    let signed = |share: f64| match percent_of_share(share) {
        text if share >= 0.0 => format!("+{text}"),
        text => text,
    };
    format!("{} to {}", signed(lower), signed(upper))
}

fn span(seconds: f64) -> String {
    if seconds >= 2.0 * 86_400.0 {
        return format!("{:.0} days", seconds / 86_400.0);
    }
    TimeSpan(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)).rounded()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn size(bytes: f64) -> String {
    ByteSize(bytes.max(0.0) as u64).rounded()
}

/// Commits as a whole number: a fraction of a commit counts as one.
fn commits(count: f64) -> String {
    let count = count.ceil();
    if (0.5..1.5).contains(&count) { "1 commit".to_owned() } else { format!("{count:.0} commits") }
}

#[cfg(test)]
mod tests;
