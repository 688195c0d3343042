//! From a log's entries to a workload: a state for each open session.

use std::borrow::Cow;

use pgtoll_format::log::{
    LogEntry, LogMessage, LogSessionId, SqlState, TimedPhase, VirtualXid, parameters,
};
use pgtoll_record::LogCounts;
use rustc_hash::FxHashMap;

use crate::sql;
use crate::transactions::AutocommitCounter;
use crate::workload::{
    CapturedSession, CapturedStep, ExecutedStatement, IncompleteReason, StatementRequest,
};

/// Collects the entries of logs, in their order: entries are added, what is complete is taken.
///
/// It holds the last step of each open session, and nothing of what was taken. A session is open until its
/// disconnection is logged, or another one has its process id. So its memory is bounded by the sessions that
/// are open at a time (without `log_disconnections`, by the process ids), and not by the length of the log.
#[derive(Debug, Default)]
pub struct LogCapture {
    counts: LogCounts,
    /// By process id.
    open: FxHashMap<u32, SessionCapture>,
    sessions: u32,
    complete: CapturedPart,
    begin_us: Option<i64>,
    last_us: i64,
}

/// A part of a workload, in no order but that of each session's steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapturedPart {
    /// Sessions that are over, each with its number from 0 in the order of their first entries.
    pub sessions: Vec<(u32, CapturedSession)>,
    /// Steps of which no entry follows.
    pub steps: Vec<CapturedStep>,
}

#[derive(Debug)]
struct SessionCapture {
    id: LogSessionId,
    number: u32,
    session: CapturedSession,
    /// The end of the last step is not logged yet.
    is_pending: bool,
    /// The transaction of the last extended step.
    last_vxid: Option<VirtualXid>,
    /// The session's last step.
    last: Option<CapturedStep>,
    autocommits: AutocommitCounter,
    /// Its last step began, belonged to, or ended a transaction block.
    touches_block: bool,
    /// A transaction block is open.
    in_block: bool,
}

/// A statement as it begins.
struct Begun<'a> {
    sql: &'a [u8],
    /// The name of a prepared statement in the extended protocol.
    name: Option<&'a [u8]>,
    duration_us: Option<u64>,
}

impl LogCapture {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next entry.
    pub fn add(&mut self, entry: &LogEntry<'_>) {
        self.counts.entries += 1;
        let time_us = entry.time_us.unwrap_or(self.last_us);
        self.begin_us.get_or_insert(time_us);
        self.last_us = self.last_us.max(time_us);
        self.counts.with_vxid += u64::from(entry.vxid.is_some());
        self.counts.with_xid += u64::from(entry.xid.is_some());
        self.counts.with_milliseconds += u64::from(time_us % 1_000_000 != 0);
        let Some(id) = entry.session else { return };
        match entry.kind() {
            LogMessage::ConnectionReceived => self.connected(id, time_us),
            LogMessage::ConnectionAuthorized { user, database } => {
                let session = &mut self.session(id, time_us, entry).session;
                session.user = text(user).into_owned();
                session.database = text(database).into_owned();
                self.counts.sessions_begun += 1;
            }
            LogMessage::Disconnection => self.disconnected(id, time_us),
            LogMessage::Statement { sql } => {
                self.begin(id, time_us, entry, &Begun { sql, name: None, duration_us: None });
            }
            LogMessage::Execute { is_fetch: true, .. } => self.counts.fetches += 1,
            LogMessage::Execute { name, sql, .. } => {
                self.begin(id, time_us, entry, &Begun { sql, name: Some(name), duration_us: None });
            }
            LogMessage::Duration { duration_us, phase } => {
                self.duration(id, time_us, entry, duration_us, phase);
            }
            LogMessage::ExecutorStatistics => {
                let number = self.counts.entries;
                let open = self.open.get_mut(&id.pid).filter(|open| open.id == id);
                if let Some(step) = open.and_then(SessionCapture::pending) {
                    step.before_commit = Some(number);
                }
            }
            LogMessage::FastPathCall => self.counts.fast_path += 1,
            LogMessage::Audit => self.counts.audits += 1,
            LogMessage::Plan => self.counts.plans += 1,
            LogMessage::SettingChanged { name, value } => self.setting_changed(name, value),
            LogMessage::LockWait => self.counts.lock_waits += 1,
            LogMessage::Other if entry.is_error() => self.error(id, time_us, entry),
            LogMessage::Other => {}
        }
    }

    /// Notes settings which leave statements out of the log.
    fn setting_changed(&mut self, name: &[u8], value: &[u8]) {
        const SAMPLING: [&[u8]; 4] = [
            b"log_min_duration_sample",
            b"log_min_duration_statement",
            b"log_statement_sample_rate",
            b"log_transaction_sample_rate",
        ];
        if SAMPLING.contains(&name) {
            let (name, value) = (text(name).into_owned(), text(value).into_owned());
            self.counts.settings_changed.insert(name, value);
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> &LogCounts {
        &self.counts
    }

    /// Microseconds since 1970 of the first entry.
    pub fn begin_us(&self) -> i64 {
        self.begin_us.unwrap_or_default()
    }

    /// Microseconds from the first entry to the last.
    pub fn length_us(&self) -> u64 {
        self.offset(self.last_us)
    }

    /// Returns the parts that became complete since the last call.
    pub fn take_complete(&mut self) -> CapturedPart {
        std::mem::take(&mut self.complete)
    }

    /// The logs have ended: the rest, and the counts of all.
    pub fn finish(mut self) -> (CapturedPart, LogCounts) {
        for (_, session) in std::mem::take(&mut self.open) {
            self.close(session);
        }
        (self.complete, self.counts)
    }

    /// No entry of the session follows.
    fn close(&mut self, mut session: SessionCapture) {
        if let Some(step) = session.last.take() {
            self.counts.sessions += 1;
            self.add_complete(&mut session.autocommits, step);
        }
        session.autocommits.finish(&mut self.counts);
        self.complete.sessions.push((session.number, session.session));
    }

    fn add_complete(&mut self, autocommits: &mut AutocommitCounter, step: CapturedStep) {
        count(&mut self.counts, &step);
        autocommits.add(&step, &mut self.counts);
        self.complete.steps.push(step);
    }

    fn offset(&self, time_us: i64) -> u64 {
        u64::try_from(time_us - self.begin_us.unwrap_or(time_us)).unwrap_or_default()
    }

    /// A process id whose session is over, or was never seen to end, is used again.
    fn connected(&mut self, id: LogSessionId, time_us: i64) {
        self.close_of(id.pid);
        self.opened(id, time_us);
    }

    fn close_of(&mut self, pid: u32) {
        if let Some(session) = self.open.remove(&pid) {
            self.close(session);
        }
    }

    /// The entry's session, which began before the log if it is new.
    fn session(
        &mut self,
        id: LogSessionId,
        time_us: i64,
        entry: &LogEntry<'_>,
    ) -> &mut SessionCapture {
        let capture = self.opened(id, time_us);
        for (into, from) in [
            (&mut capture.session.user, &entry.user),
            (&mut capture.session.database, &entry.database),
        ] {
            if let Some(name) = from.as_ref().filter(|name| into.is_empty() && ***name != *UNKNOWN)
            {
                *into = text(name).into_owned();
            }
        }
        capture
    }

    fn opened(&mut self, id: LogSessionId, time_us: i64) -> &mut SessionCapture {
        if self.open.get(&id.pid).is_some_and(|open| open.id != id) {
            self.close_of(id.pid);
        }
        let begin = self.counts.entries;
        let begin_us = self.offset(time_us);
        let number = &mut self.sessions;
        let capture = self.open.entry(id.pid).or_insert_with(|| {
            *number += 1;
            SessionCapture {
                id,
                number: *number - 1,
                session: CapturedSession { begin_us, begin, ..CapturedSession::default() },
                is_pending: false,
                last_vxid: None,
                last: None,
                autocommits: AutocommitCounter::default(),
                touches_block: false,
                in_block: false,
            }
        });
        capture.session.end = begin;
        capture
    }

    fn disconnected(&mut self, id: LogSessionId, time_us: i64) {
        if self.open.get(&id.pid).is_none_or(|open| open.id != id) {
            return;
        }
        let Some(mut session) = self.open.remove(&id.pid) else { return };
        session.session.end_us = Some(self.offset(time_us));
        session.session.end = self.counts.entries;
        self.counts.sessions_ended += 1;
        self.close(session);
    }

    fn begin(&mut self, id: LogSessionId, time_us: i64, entry: &LogEntry<'_>, begun: &Begun<'_>) {
        self.counts.begins += u64::from(begun.duration_us.is_none());
        let request = self.request(begun, entry);
        let duration_us = begun.duration_us;
        let start_us = self.offset(time_us).saturating_sub(duration_us.unwrap_or_default());
        let number = self.counts.entries;
        let is_extended = begun.name.is_some();
        let session = self.session(id, time_us, entry);
        let request = match request {
            StatementRequest::Extended(executions) if session.extends_pipeline(entry) => {
                session.add_to_pipeline(executions, duration_us, number);
                return;
            }
            request => request,
        };
        let tag = entry.command_tag.as_deref().filter(|_| !is_extended);
        let in_block = tag.map(|tag| tag.starts_with(b"idle in transaction"));
        let mut step = CapturedStep {
            session: session.number,
            start_us,
            duration_us,
            begin: number,
            end: number,
            before_commit: None,
            request,
            failed: None,
            has_written: None,
            in_block: in_block.filter(|_| duration_us.is_none()),
            rows: None,
            ends_late: false,
        };
        let controls = step.request.texts().flat_map(sql::controls);
        let after = controls.fold(None, |_, control| Some(control));
        session.touches_block = session.in_block || after.is_some();
        let half = match after {
            Some(sql::Control::Begin) => session.in_block,
            Some(sql::Control::Commit) => !session.in_block && session.last.is_some(),
            _ => false,
        };
        session.in_block = match after {
            Some(sql::Control::Begin) => true,
            Some(sql::Control::Commit | sql::Control::Rollback) => false,
            Some(sql::Control::RollbackTo) | None => session.in_block,
        };
        session.is_pending = duration_us.is_none();
        session.last_vxid = entry.vxid.filter(|vxid| is_extended && vxid.local != 0);
        if duration_us.is_some() {
            step.ended(entry, is_extended);
        }
        let before = session.last.replace(step);
        if let Some(before) = before {
            let mut autocommits = std::mem::take(&mut session.autocommits);
            self.add_complete(&mut autocommits, before);
            if let Some(session) = self.open.get_mut(&id.pid) {
                session.autocommits = autocommits;
            }
        }
        self.counts.half_blocks += u64::from(half);
        self.counts.blocks += u64::from(after == Some(sql::Control::Begin));
    }

    fn request(&mut self, begun: &Begun<'_>, entry: &LogEntry<'_>) -> StatementRequest {
        let sql = text(begun.sql);
        if matches!(sql, Cow::Owned(_)) {
            self.counts.not_utf8 += 1;
        }
        let sql = sql.into_owned();
        let incomplete = |sql, reason| StatementRequest::Incomplete { sql, reason };
        if sql::is_copy_in(&sql) {
            self.counts.copy_in += 1;
            return incomplete(sql, IncompleteReason::CopyData);
        }
        let Some(name) = begun.name else { return StatementRequest::Simple(sql) };
        let list = entry.detail.as_deref().and_then(parameters).unwrap_or_default();
        if list.is_cut {
            self.counts.cut_parameters += 1;
            return incomplete(sql, IncompleteReason::Parameters);
        }
        if list.values.is_empty() && sql::mentions_parameters(&sql) {
            self.counts.without_parameters += 1;
            return incomplete(sql, IncompleteReason::Parameters);
        }
        let value = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned().into();
        let parameters = list.values.into_iter().map(|item| item.map(value)).collect();
        let name = if name == b"<unnamed>" { String::new() } else { text(name).into_owned() };
        let types = Vec::new();
        StatementRequest::Extended(vec![ExecutedStatement { name, sql, types, parameters }])
    }

    fn duration(
        &mut self,
        id: LogSessionId,
        time_us: i64,
        entry: &LogEntry<'_>,
        duration_us: u64,
        phase: Option<TimedPhase<'_>>,
    ) {
        let shortest_us = &mut self.counts.shortest_us;
        *shortest_us = Some(shortest_us.map_or(duration_us, |shortest| shortest.min(duration_us)));
        let duration = Some(duration_us);
        match phase {
            Some(TimedPhase::Parse | TimedPhase::Bind) => {}
            Some(TimedPhase::Execute { is_fetch: true, .. }) => self.counts.fetches += 1,
            Some(TimedPhase::Statement { sql }) => {
                self.begin(id, time_us, entry, &Begun { sql, name: None, duration_us: duration });
            }
            Some(TimedPhase::Execute { name, sql, .. }) => {
                let begun = Begun { sql, name: Some(name), duration_us: duration };
                self.begin(id, time_us, entry, &begun);
            }
            None => {
                let number = self.counts.entries;
                let session = self.session(id, time_us, entry);
                let Some(step) = session.pending() else { return };
                step.end = number;
                step.duration_us = Some(step.duration_us.unwrap_or_default() + duration_us);
                let is_extended = !matches!(step.request, StatementRequest::Simple(_));
                step.ended(entry, is_extended);
                session.is_pending = false;
            }
        }
    }

    fn error(&mut self, id: LogSessionId, time_us: i64, entry: &LogEntry<'_>) {
        let code = entry.sqlstate.filter(|code| *code != SqlState::SUCCESS);
        let code =
            code.map_or_else(|| code_of(&entry.message).to_owned(), |code| code.text().to_owned());
        let number = self.counts.entries;
        let Some(session) = self.open.get_mut(&id.pid).filter(|open| open.id == id) else {
            self.counts.errors_without_statement += 1;
            return;
        };
        session.session.end = number;
        if let Some(step) = session.pending() {
            step.end = number;
            step.failed = Some(code);
            session.is_pending = false;
            return;
        }
        let Some(statement) = entry.statement.as_deref() else {
            self.counts.errors_without_statement += 1;
            return;
        };
        // Neither its begin nor its parameters are logged.
        let begun = Begun { sql: statement, name: None, duration_us: Some(0) };
        self.begin(id, time_us, entry, &begun);
        let last = self.open.get_mut(&id.pid).and_then(|session| session.last.as_mut());
        if let Some(step) = last {
            step.failed = Some(code);
            step.duration_us = None;
            if let StatementRequest::Simple(sql) = &step.request
                && sql::mentions_parameters(sql)
            {
                let sql = sql.clone();
                let reason = IncompleteReason::Parameters;
                step.request = StatementRequest::Incomplete { sql, reason };
                self.counts.without_parameters += 1;
            }
        }
    }
}

impl SessionCapture {
    /// The last step, if its end is not logged yet.
    fn pending(&mut self) -> Option<&mut CapturedStep> {
        self.last.as_mut().filter(|_| self.is_pending)
    }

    /// Several executions of one virtual transaction outside of a block have one Sync.
    fn extends_pipeline(&self, entry: &LogEntry<'_>) -> bool {
        let same = self.last_vxid.is_some() && self.last_vxid == entry.vxid;
        let Some(last) = self.last.as_ref().filter(|_| same) else { return false };
        // Within a block all have the same transaction.
        last.failed.is_none()
            && matches!(last.request, StatementRequest::Extended(_))
            && !self.touches_block
    }

    fn add_to_pipeline(
        &mut self,
        more: Vec<ExecutedStatement>,
        duration_us: Option<u64>,
        number: u64,
    ) {
        let Some(step) = &mut self.last else { return };
        self.is_pending = duration_us.is_none();
        step.end = number;
        if let StatementRequest::Extended(executions) = &mut step.request {
            executions.extend(more);
        }
    }
}

impl CapturedStep {
    /// Applies the entry at the step's end to its transaction.
    fn ended(&mut self, entry: &LogEntry<'_>, is_extended: bool) {
        // A simple statement outside of a block has no transaction any more at its end.
        let is_open = is_extended || entry.vxid.is_some_and(|vxid| vxid.local != 0);
        self.has_written = entry.xid.filter(|_| is_open).map(|xid| xid != 0);
    }
}

/// The user before authentication.
const UNKNOWN: &[u8] = b"[unknown]";

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The codes that a replay treats in their own way, where the prefix has none.
fn code_of(message: &[u8]) -> &'static str {
    let starts = |text: &str| message.starts_with(text.as_bytes());
    if starts("deadlock detected") {
        "40P01"
    } else if starts("could not serialize access") {
        "40001"
    } else if starts("canceling statement due to lock timeout") {
        "55P03"
    } else if starts("canceling statement") {
        "57014"
    } else if starts("current transaction is aborted") {
        "25P02"
    } else {
        ""
    }
}

/// Counts a step that is over.
pub(crate) fn count(counts: &mut LogCounts, step: &CapturedStep) {
    counts.durations += u64::from(step.duration_us.is_some());
    counts.failed += u64::from(step.failed.is_some());
    counts.cancelled += u64::from(step.failed.as_deref() == Some("57014"));
    match &step.request {
        StatementRequest::Simple(_) | StatementRequest::Copy { .. } => {
            counts.statements += 1;
            counts.simple += 1;
        }
        StatementRequest::Extended(executions) => {
            counts.statements += executions.len() as u64;
            counts.extended += executions.len() as u64;
        }
        StatementRequest::Incomplete { .. } => {}
    }
    for name in step.request.texts().flat_map(sql::volatile_calls) {
        *counts.volatile_calls.entry(name.to_owned()).or_default() += 1;
    }
}
