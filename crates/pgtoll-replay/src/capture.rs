//! From a log's entries to a workload: a state for each open session.

use std::borrow::Cow;

use pgtoll_format::log::{
    LogEntry, LogMessage, LogSessionId, SqlState, TimedPhase, VirtualXid, parameters,
};
use pgtoll_record::LogCounts;
use rustc_hash::FxHashMap;

use crate::sql;
use crate::workload::{
    CapturedSession, CapturedStep, ExecutedStatement, IncompleteReason, StatementRequest,
};

/// Collects the entries of logs, in their order.
#[derive(Debug, Default)]
pub struct LogCapture {
    counts: LogCounts,
    sessions: Vec<SessionCapture>,
    open: FxHashMap<LogSessionId, usize>,
    steps: Vec<CapturedStep>,
    begin_us: Option<i64>,
    last_us: i64,
}

#[derive(Debug, Default)]
struct SessionCapture {
    session: CapturedSession,
    /// The step whose end is not logged yet.
    pending: Option<usize>,
    /// The transaction of the last extended step.
    last_vxid: Option<VirtualXid>,
    /// The session's last step.
    last: Option<usize>,
    /// Its last step began, belonged to, or ended a transaction block.
    touches_block: bool,
    /// A transaction block is open.
    in_block: bool,
}

/// A statement as it begins.
struct Begun<'a> {
    sql: &'a [u8],
    /// Of the extended protocol.
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
                let session = self.session(id, time_us, entry);
                let session = &mut self.sessions[session].session;
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
                let pending =
                    self.open.get(&id).and_then(|session| self.sessions[*session].pending);
                if let Some(step) = pending {
                    self.steps[step].before_commit = Some(number);
                }
            }
            LogMessage::FastPathCall => self.counts.fast_path += 1,
            LogMessage::LockWait => self.counts.lock_waits += 1,
            LogMessage::Other if entry.is_error() => self.error(id, time_us, entry),
            LogMessage::Other => {}
        }
    }

    /// What was counted until now.
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

    /// The sessions and steps, and the counts of all.
    pub fn finish(mut self) -> (Vec<CapturedSession>, Vec<CapturedStep>, LogCounts) {
        for step in &self.steps {
            count(&mut self.counts, step);
        }
        let mut has_steps = vec![false; self.sessions.len()];
        for step in &self.steps {
            has_steps[step.session as usize] = true;
        }
        self.counts.sessions = has_steps.iter().filter(|has| **has).count() as u64;
        let sessions = self.sessions.into_iter().map(|of| of.session).collect();
        (sessions, self.steps, self.counts)
    }

    fn offset(&self, time_us: i64) -> u64 {
        u64::try_from(time_us - self.begin_us.unwrap_or(time_us)).unwrap_or_default()
    }

    /// A pid whose session is over, or was never seen to end, is used again.
    fn connected(&mut self, id: LogSessionId, time_us: i64) {
        self.open.remove(&id);
        self.open_session(id, time_us);
    }

    fn open_session(&mut self, id: LogSessionId, time_us: i64) -> usize {
        let begin_us = self.offset(time_us);
        let begin = self.counts.entries;
        let session = CapturedSession { begin_us, begin, end: begin, ..CapturedSession::default() };
        self.sessions.push(SessionCapture { session, ..SessionCapture::default() });
        self.open.insert(id, self.sessions.len() - 1);
        self.sessions.len() - 1
    }

    /// The entry's session, which began before the log if it is new.
    fn session(&mut self, id: LogSessionId, time_us: i64, entry: &LogEntry<'_>) -> usize {
        let index = match self.open.get(&id) {
            Some(index) => *index,
            None => self.open_session(id, time_us),
        };
        let session = &mut self.sessions[index].session;
        session.end = self.counts.entries;
        for (into, from) in
            [(&mut session.user, &entry.user), (&mut session.database, &entry.database)]
        {
            if let Some(name) = from.as_ref().filter(|name| into.is_empty() && ***name != *UNKNOWN)
            {
                *into = text(name).into_owned();
            }
        }
        index
    }

    fn disconnected(&mut self, id: LogSessionId, time_us: i64) {
        let Some(index) = self.open.remove(&id) else { return };
        let end_us = self.offset(time_us);
        let session = &mut self.sessions[index];
        session.session.end_us = Some(end_us);
        session.session.end = self.counts.entries;
        self.counts.sessions_ended += 1;
    }

    fn begin(&mut self, id: LogSessionId, time_us: i64, entry: &LogEntry<'_>, begun: &Begun<'_>) {
        let index = self.session(id, time_us, entry);
        self.counts.begins += u64::from(begun.duration_us.is_none());
        let request = self.request(begun, entry);
        if self.extends_pipeline(index, entry, begun.name.is_some())
            && let StatementRequest::Extended(executions) = request
        {
            self.add_to_pipeline(index, executions, begun.duration_us);
            return;
        }
        let duration_us = begun.duration_us;
        let start_us = self.offset(time_us).saturating_sub(duration_us.unwrap_or_default());
        let tag = entry.command_tag.as_deref().filter(|_| begun.name.is_none());
        let in_block = tag.map(|tag| tag.starts_with(b"idle in transaction"));
        self.steps.push(CapturedStep {
            session: u32::try_from(index).unwrap_or(u32::MAX),
            start_us,
            duration_us,
            begin: self.counts.entries,
            end: self.counts.entries,
            before_commit: None,
            request,
            failed: None,
            has_written: None,
            in_block: in_block.filter(|_| duration_us.is_none()),
            rows: None,
            ends_late: false,
        });
        let step = self.steps.len() - 1;
        let is_extended = begun.name.is_some();
        let controls = self.steps[step].request.texts().flat_map(sql::controls);
        let after = controls.fold(None, |_, control| Some(control));
        let session = &mut self.sessions[index];
        session.touches_block = session.in_block || after.is_some();
        session.in_block = match after {
            Some(sql::Control::Begin) => true,
            Some(sql::Control::Commit | sql::Control::Rollback) => false,
            Some(sql::Control::RollbackTo) | None => session.in_block,
        };
        session.pending = duration_us.is_none().then_some(step);
        session.last = Some(step);
        session.last_vxid = entry.vxid.filter(|vxid| is_extended && vxid.local != 0);
        if duration_us.is_some() {
            self.ended(step, entry, is_extended);
        }
    }

    /// Several executions of one virtual transaction outside of a block have one Sync.
    fn extends_pipeline(&self, index: usize, entry: &LogEntry<'_>, is_extended: bool) -> bool {
        let session = &self.sessions[index];
        let same = session.last_vxid.is_some() && session.last_vxid == entry.vxid;
        let Some(last) = session.last.filter(|_| is_extended && same) else { return false };
        let last = &self.steps[last];
        // Within a block all have the same transaction.
        last.failed.is_none()
            && matches!(last.request, StatementRequest::Extended(_))
            && !session.touches_block
    }

    fn add_to_pipeline(
        &mut self,
        index: usize,
        more: Vec<ExecutedStatement>,
        duration_us: Option<u64>,
    ) {
        let session = &mut self.sessions[index];
        let Some(last) = session.last else { return };
        session.pending = duration_us.is_none().then_some(last);
        let step = &mut self.steps[last];
        step.end = self.counts.entries;
        if let StatementRequest::Extended(executions) = &mut step.request {
            executions.extend(more);
        }
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
        let value = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        let parameters = list.values.into_iter().map(|of| of.map(value)).collect();
        let name = if name == b"<unnamed>" { String::new() } else { text(name).into_owned() };
        StatementRequest::Extended(vec![ExecutedStatement { name, sql, parameters }])
    }

    fn duration(
        &mut self,
        id: LogSessionId,
        time_us: i64,
        entry: &LogEntry<'_>,
        duration_us: u64,
        phase: Option<TimedPhase<'_>>,
    ) {
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
                let index = self.session(id, time_us, entry);
                let Some(step) = self.sessions[index].pending.take() else { return };
                self.steps[step].end = self.counts.entries;
                let before = self.steps[step].duration_us.unwrap_or_default();
                self.steps[step].duration_us = Some(before + duration_us);
                let is_extended = !matches!(self.steps[step].request, StatementRequest::Simple(_));
                self.ended(step, entry, is_extended);
            }
        }
    }

    /// What the entry at a step's end says of its transaction.
    fn ended(&mut self, step: usize, entry: &LogEntry<'_>, is_extended: bool) {
        let step = &mut self.steps[step];
        // A simple statement outside of a block has no transaction any more at its end.
        let is_open = is_extended || entry.vxid.is_some_and(|vxid| vxid.local != 0);
        step.has_written = entry.xid.filter(|_| is_open).map(|xid| xid != 0);
    }

    fn error(&mut self, id: LogSessionId, time_us: i64, entry: &LogEntry<'_>) {
        let code = entry.sqlstate.filter(|code| *code != SqlState::SUCCESS);
        let code =
            code.map_or_else(|| code_of(&entry.message).to_owned(), |of| of.text().to_owned());
        let Some(index) = self.open.get(&id).copied() else {
            self.counts.errors_without_statement += 1;
            return;
        };
        self.sessions[index].session.end = self.counts.entries;
        if let Some(step) = self.sessions[index].pending.take() {
            self.steps[step].end = self.counts.entries;
            self.steps[step].failed = Some(code);
            return;
        }
        let Some(statement) = entry.statement.as_deref() else {
            self.counts.errors_without_statement += 1;
            return;
        };
        // Neither its begin nor its parameters are logged.
        let begun = Begun { sql: statement, name: None, duration_us: Some(0) };
        self.begin(id, time_us, entry, &begun);
        if let Some(step) = self.sessions[index].last {
            let step = &mut self.steps[step];
            step.failed = Some(code);
            step.duration_us = None;
            if let StatementRequest::Simple(sql) = &step.request
                && sql::mentions_parameters(sql)
            {
                let (sql, reason) = (sql.clone(), IncompleteReason::Parameters);
                step.request = StatementRequest::Incomplete { sql, reason };
                self.counts.without_parameters += 1;
            }
        }
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
        StatementRequest::Simple(_) => {
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
