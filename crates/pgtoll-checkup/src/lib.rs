//! Checks what each safety of a running server buys and costs, by one read-only watch.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use pgtoll_checkup::{CheckupPlan, checkup};
//! use pgtoll_record::Provenance;
//! use pgtoll_system::Interrupt;
//! use pgtoll_wire::Dsn;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dsn = Dsn::parse("host=db1 user=monitor dbname=shop")?;
//! let plan = CheckupPlan { time: Duration::from_secs(900), ..CheckupPlan::default() };
//! let provenance = Provenance { version: String::new(), command: Vec::new(), made: String::new() };
//! let record = checkup(provenance, &dsn, plan, &Interrupt::new(), &mut |_| {})?;
//! for row in &record.rows {
//!     println!("{}: {}", row.safety.title(), row.now);
//! }
//! # Ok(())
//! # }
//! ```

mod commits;
mod look;
mod recoveries;
mod rows;
mod server;
mod watch;

use std::io::{BufRead as _, BufReader, Read};
use std::time::Duration;

use pgtoll_format::log::{EnvelopeReader, LogContent, detect_envelope};
use pgtoll_predict::{
    PredictError, SettingQuestion, WatchPlan, WatchSession, Watched, prediction_record,
};
use pgtoll_record::{
    CHECKUP_SCHEMA, CheckedRecord, CheckupRecord, LossWindow, PredictionRecord, Provenance,
    SeenRecovery,
};
use pgtoll_system::Interrupt;
use pgtoll_wire::Dsn;

use crate::recoveries::RecoveryScan;
use crate::server::{Rights, ServerFacts};
use crate::watch::{LookPlan, Seen};

/// How long a server is watched, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckupPlan {
    /// For this long.
    pub time: Duration,
    /// Fewer looks.
    pub gentle: bool,
    /// A recovery of this server, instead of the last in the log that the server lets read.
    pub recovery: Option<SeenRecovery>,
    /// Records of verifications and drills.
    pub records: Vec<CheckedRecord>,
}

/// Finds the last recovery from a crash in a server's log. `None`: there is none of 16 MB of WAL or more whose
/// lines have a time. The log may be in an envelope.
pub fn last_recovery(log: impl Read) -> std::io::Result<Option<SeenRecovery>> {
    let read_us = jiff::Timestamp::now().as_microsecond();
    let envelope =
        |sample: &[u8]| Some(EnvelopeReader::new(detect_envelope(sample)?).read_at(read_us));
    let mut log = BufReader::new(LogContent::open(log, envelope)?);
    let mut scan = RecoveryScan::default();
    let mut line = Vec::new();
    while log.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? > 0 {
        scan.take(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(scan.finish())
}

/// Longer lines are cut.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Watches a primary, read-only, and judges its safeties. `on_progress` gets the time since the begin at each
/// look. A signal, or the loss of the session, ends the watch early: the record says why.
///
/// Fails where the server cannot be reached or is a standby.
pub fn checkup(
    provenance: Provenance,
    dsn: &Dsn,
    plan: CheckupPlan,
    interrupt: &Interrupt,
    on_progress: &mut dyn FnMut(Duration),
) -> Result<CheckupRecord, PredictError> {
    let began = jiff::Timestamp::now().to_string();
    let mut session = WatchSession::open(dsn, "pgtoll checkup")?;
    let ServerFacts { server, rights, sources, recovery, system_identifier } =
        server::read(&mut session, host(dsn))?;
    let CheckupPlan { time, gentle, recovery: given, records } = plan;
    let plan = LookPlan { time, gentle };
    // The prediction ends with the looks, whatever ends them.
    let stop = Interrupt::new();
    let on_signal = stop.clone();
    let _registered = interrupt.on_signal(move || on_signal.trigger());
    let stop = &stop;
    let (seen, prediction) = std::thread::scope(|scope| {
        let settings = server.settings.clone();
        let answer = provenance.clone();
        let predict = move || predict(answer, dsn, plan, &settings, stop);
        let predicting = rights.monitors.then(|| scope.spawn(predict));
        let seen = watch::watch(session, plan, rights, interrupt, on_progress);
        if seen.watch.ended.is_some() {
            stop.trigger();
        }
        // A panic of that thread was printed; the record has no prediction then.
        (seen, predicting.and_then(|thread| thread.join().ok().flatten()))
    });
    let Seen { watch, loss, since_redo, .. } = seen;
    let watch = pgtoll_record::CheckupWatch { began, ..watch };
    let mut record = CheckupRecord {
        schema: CHECKUP_SCHEMA.to_owned(),
        pgtoll: provenance.version,
        command: provenance.command,
        made: provenance.made,
        server,
        watch,
        loss,
        sources,
        records: records
            .into_iter()
            .map(|named| aged(named, system_identifier.as_deref()))
            .collect(),
        prediction: prediction.map(Box::new),
        ..CheckupRecord::default()
    };
    let recovery = given.or(recovery);
    record.recovery = since_redo.map(|since_redo| rows::forecast(&record, since_redo, recovery));
    record.rows = rows::rows(&record);
    Ok(record)
}

/// A record with its age, and whether it is of this cluster.
fn aged(record: CheckedRecord, system_identifier: Option<&str>) -> CheckedRecord {
    let made: Option<jiff::Timestamp> = record.made.parse().ok();
    let age_s =
        made.map_or(f64::MAX, |made| made.duration_until(jiff::Timestamp::now()).as_secs_f64());
    let is_own =
        record.system_identifier.as_deref().zip(system_identifier).map(|(one, other)| one == other);
    CheckedRecord { age_s: age_s.max(0.0), is_own, ..record }
}

/// Watches a primary only for the commits that would be lost, for `time` or until `interrupt` comes; `None`
/// where no look succeeded.
pub fn watch_loss(
    dsn: &Dsn,
    time: Duration,
    interrupt: &Interrupt,
) -> Result<Option<LossWindow>, PredictError> {
    let session = WatchSession::open(dsn, "pgtoll checkup")?;
    let plan = LookPlan { time, gentle: false };
    let rights = Rights { monitors: false, reads_redo: false };
    Ok(watch::watch(session, plan, rights, interrupt, &mut |_| {}).loss)
}

/// Watches for the costs of checksums and of hints, for the same time; `None` where the server refuses.
fn predict(
    provenance: Provenance,
    dsn: &Dsn,
    plan: LookPlan,
    settings: &std::collections::BTreeMap<String, String>,
    interrupt: &Interrupt,
) -> Option<PredictionRecord> {
    let watch =
        WatchPlan { time: plan.time, cycles: None, gentle: plan.gentle, with_queries: false };
    let (server, watch) = pgtoll_predict::watch(dsn, &watch, interrupt, &mut |_| {}).ok()?;
    let is_off = |name: &str| settings.get(name).is_some_and(|value| value == "off");
    let hints = (is_off("data_checksums") && is_off("wal_log_hints"))
        .then(|| SettingQuestion::parse("wal_log_hints=on").ok())
        .flatten();
    let questions: Vec<SettingQuestion> =
        std::iter::once(SettingQuestion::default_for(settings)).chain(hints).collect();
    Some(prediction_record(provenance, Watched::now(server, watch), &questions))
}

/// The server's name in sentences.
fn host(dsn: &Dsn) -> String {
    let endpoint = dsn.endpoints().into_iter().next().map(|(host, _)| host);
    endpoint.filter(|host| !host.starts_with('/')).unwrap_or_else(|| "this server".to_owned())
}
