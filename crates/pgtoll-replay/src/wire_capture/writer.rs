//! Writes the plan while the capture continues, in a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use pgtoll_record::LogCounts;
use rustc_hash::FxHashMap;

use super::observer::{Mark, ObservedCounts};
use super::startup::SessionStart;
use crate::capture::count;
use crate::plan_file::{PlanLine, PlanWriter};
use crate::sql;
use crate::user_types::user_type_oids;
use crate::workload::{CapturedSession, CapturedStep, PlanHeader, StatementRequest};

/// An event from a session to the writer.
#[derive(Debug)]
pub(crate) enum CaptureEvent {
    Begun { id: u64, start: SessionStart, mark: Mark },
    Steps { id: u64, steps: Vec<CapturedStep>, counts: ObservedCounts, bytes: usize },
    Ended { id: u64, mark: Mark, counts: ObservedCounts },
}

/// The state that all threads of a capture share.
#[derive(Debug, Default)]
pub(crate) struct CaptureState {
    /// The number of what passed last.
    pub(crate) number: AtomicU64,
    /// Bytes of statements that the writer has not written yet.
    waiting_bytes: AtomicUsize,
    is_lost: AtomicBool,
    reason: OnceLock<String>,
    pub(crate) steps: AtomicU64,
}

impl CaptureState {
    /// From now on nothing is captured; connections continue.
    fn lose(&self, reason: String) {
        // The first reason counts.
        let _ = self.reason.set(reason);
        self.is_lost.store(true, Ordering::Release);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Why nothing is captured any more.
    pub(crate) fn lost_reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Hands an event to the writer, which nobody waits for.
    pub(crate) fn tell(&self, writer: &Sender<CaptureEvent>, event: CaptureEvent) {
        if self.is_lost() {
            return;
        }
        if let CaptureEvent::Steps { bytes, .. } = &event {
            let waiting = self.waiting_bytes.fetch_add(*bytes, Ordering::Relaxed);
            if waiting > WAITING_BYTES_MAX {
                let limit = WAITING_BYTES_MAX >> 20;
                self.lose(format!("the plan is written too slowly: {limit} MB wait for it"));
                return;
            }
        }
        // The writer lives as long as anybody writes.
        let _ = writer.send(event);
    }
}

/// Statements that wait to be written, at most.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The written part.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) counts: LogCounts,
    /// By database: types that users made, of which there are parameters.
    pub(crate) types: BTreeMap<String, BTreeSet<u32>>,
}

/// Writes events until the last sender is gone, then the plan's end. Returns the header that `finish` makes
/// of what was counted.
pub(crate) fn write_plan(
    into: impl Write,
    header: &PlanHeader,
    events: &Receiver<CaptureEvent>,
    state: &CaptureState,
    finish: impl Fn(&Written) -> PlanHeader,
) -> PlanHeader {
    let mut written = Written::default();
    let outcome = write_events(into, header, events, state, &mut written, &finish);
    let header = match outcome {
        Ok(header) => header,
        Err(error) => {
            state.lose(error.to_string());
            None
        }
    };
    // Sessions that had not heard of it.
    while events.recv().is_ok() {}
    header.unwrap_or_else(|| finish(&written))
}

/// No header where the capture was lost.
fn write_events(
    into: impl Write,
    header: &PlanHeader,
    events: &Receiver<CaptureEvent>,
    state: &CaptureState,
    written: &mut Written,
    finish: impl Fn(&Written) -> PlanHeader,
) -> std::io::Result<Option<PlanHeader>> {
    let mut plan = PlanWriter::new(into, false)?;
    plan.line(&PlanLine::Header(Box::new(header.clone())))?;
    let mut sessions: FxHashMap<u64, u32> = FxHashMap::default();
    let mut with_steps = Vec::new();
    let mut databases = Vec::new();
    let mut unsynced = 0;
    while let Ok(event) = events.recv() {
        if state.is_lost() {
            break;
        }
        match event {
            CaptureEvent::Begun { id, start, mark } => {
                let index = u32::try_from(with_steps.len()).unwrap_or(u32::MAX);
                sessions.insert(id, index);
                with_steps.push(false);
                databases.push(start.database.clone());
                written.counts.sessions_begun += 1;
                plan.line(&PlanLine::Session(session(start, mark)))?;
            }
            CaptureEvent::Steps { id, steps, counts, bytes } => {
                state.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                add(&mut written.counts, &counts);
                let Some(session) = sessions.get(&id).copied() else { continue };
                for mut step in steps {
                    step.session = session;
                    with_steps[session as usize] = true;
                    count_step(&mut written.counts, &step);
                    let oids = step.request.executions().iter().flat_map(user_type_oids);
                    for oid in oids {
                        let database = &databases[session as usize];
                        written.types.entry(database.clone()).or_default().insert(oid);
                    }
                    unsynced += 1;
                    state.steps.fetch_add(1, Ordering::Relaxed);
                    plan.line(&PlanLine::Step(step))?;
                }
                // What a killed process leaves can be read up to here.
                if unsynced >= FLUSH_STEPS {
                    unsynced = 0;
                    plan.flush()?;
                }
            }
            CaptureEvent::Ended { id, mark, counts } => {
                add(&mut written.counts, &counts);
                let Some(session) = sessions.remove(&id) else { continue };
                written.counts.sessions_ended += 1;
                plan.line(&PlanLine::SessionEnd { session, end_us: mark.at_us, end: mark.number })?;
            }
        }
    }
    if state.is_lost() {
        return Ok(None);
    }
    written.counts.sessions = with_steps.iter().filter(|has| **has).count() as u64;
    let header = finish(written);
    plan.line(&PlanLine::Header(Box::new(header.clone())))?;
    plan.end()?;
    Ok(Some(header))
}

/// Steps after which what was packed until then is handed to the system.
const FLUSH_STEPS: u32 = 1000;

fn session(start: SessionStart, mark: Mark) -> CapturedSession {
    CapturedSession {
        user: start.user,
        database: start.database,
        application_name: start.application_name,
        settings: start.settings,
        begin_us: mark.at_us,
        end_us: None,
        begin: mark.number,
        end: mark.number,
    }
}

fn add(counts: &mut LogCounts, more: &ObservedCounts) {
    counts.entries += more.messages;
    counts.copy_in += more.copy_in;
    counts.fetches += more.fetches;
    counts.fast_path += more.fast_path;
    counts.not_utf8 += more.not_utf8;
    counts.without_parameters += more.without_parameters;
    counts.errors_without_statement += more.errors_without_statement;
}

fn count_step(counts: &mut LogCounts, step: &CapturedStep) {
    count(counts, step);
    counts.begins += 1;
    counts.with_milliseconds += 1;
    let is_whole = !matches!(step.request, StatementRequest::Incomplete { .. });
    if step.ends_late && step.in_block == Some(false) && is_whole {
        let mut effects = step.request.texts().map(sql::effect);
        counts.autocommit_simple += u64::from(effects.any(|effect| !effect.touches.is_empty()));
    }
}
