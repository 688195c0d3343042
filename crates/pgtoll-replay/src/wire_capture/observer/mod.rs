//! From a session's messages to its steps: which reply belongs to which statement.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::splitter::MessageSplitter;
use crate::fields::{Fields, Malformed};
use crate::sql::{self, Control};
use crate::values::ParameterValue;
use crate::workload::{CapturedStep, ExecutedStatement, IncompleteReason, StatementRequest};

/// When bytes passed: a number that grows over all sessions, and the time.
///
/// Of bytes for the server it is taken before they are sent, of the server's after they came. So what a
/// session did before another one could continue has the smaller number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    /// Microseconds since the capture began.
    pub(crate) at_us: u64,
}

/// Other observations of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedCounts {
    pub(crate) messages: u64,
    pub(crate) copy_in: u64,
    pub(crate) fetches: u64,
    pub(crate) fast_path: u64,
    pub(crate) not_utf8: u64,
    pub(crate) without_parameters: u64,
    pub(crate) errors_without_statement: u64,
}

impl ObservedCounts {
    pub(crate) fn add(&mut self, more: Self) {
        self.messages += more.messages;
        self.copy_in += more.copy_in;
        self.fetches += more.fetches;
        self.fast_path += more.fast_path;
        self.not_utf8 += more.not_utf8;
        self.without_parameters += more.without_parameters;
        self.errors_without_statement += more.errors_without_statement;
    }
}

/// Follows a session that has begun.
#[derive(Debug)]
pub(crate) struct SessionObserver {
    client: MessageSplitter,
    server: MessageSplitter,
    follower: Follower,
}

impl SessionObserver {
    /// `copy_data_max` is the most bytes of a `COPY`'s data that are kept; of larger ones none are.
    pub(crate) fn new(copy_data_max: usize) -> Self {
        let wanted = |tag| b"QPBEDC".contains(&tag);
        let wanted_with_data = |tag| b"QPBEDCd".contains(&tag);
        Self {
            client: MessageSplitter::new(if copy_data_max > 0 { wanted_with_data } else { wanted }),
            server: MessageSplitter::new(|tag| b"CEZt".contains(&tag)),
            follower: Follower { copy_data_max, ..Follower::default() },
        }
    }

    /// Bytes that went to the server.
    pub(crate) fn sent(&mut self, bytes: &[u8], mark: Mark) -> Result<(), Malformed> {
        let follower = &mut self.follower;
        self.client.push(bytes, |tag, body| follower.request(tag, body, mark))
    }

    /// Bytes that came from the server.
    pub(crate) fn received(&mut self, bytes: &[u8], mark: Mark) -> Result<(), Malformed> {
        let follower = &mut self.follower;
        self.server.push(bytes, |tag, body| follower.reply(tag, body, mark))
    }

    /// Whether the server has answered all that it was asked.
    pub(crate) fn is_idle(&self) -> bool {
        self.follower.awaited.is_empty() && self.follower.group.is_empty()
    }

    /// The steps that are over since the last call.
    pub(crate) fn take_steps(&mut self) -> Vec<CapturedStep> {
        std::mem::take(&mut self.follower.steps)
    }

    /// Returns the counts since the last call.
    pub(crate) fn take_counts(&mut self) -> ObservedCounts {
        std::mem::take(&mut self.follower.counts)
    }

    /// The session is over: what the server did not answer is a step without an end.
    pub(crate) fn end(&mut self) {
        self.follower.end();
    }
}

#[derive(Debug, Default)]
struct Follower {
    /// Requests without an answer, in order.
    awaited: VecDeque<Awaited>,
    statements: FxHashMap<Vec<u8>, Arc<KnownStatement>>,
    portals: FxHashMap<Vec<u8>, Portal>,
    /// Executions that are over, since the last Sync.
    group: Vec<Execution>,
    /// The server waits for `COPY` data.
    copies_in: bool,
    copy_data_max: usize,
    /// After an error the server reads nothing but a Sync.
    skips_to_sync: bool,
    /// A transaction block was open when the server was ready last.
    in_block: bool,
    /// When the last statement was over.
    last_end: Mark,
    steps: Vec<CapturedStep>,
    counts: ObservedCounts,
}

/// A message of the client that the server answers.
#[derive(Debug)]
enum Awaited {
    Query(Execution),
    /// A statement's name has another meaning from here on, and this one before.
    Renamed(u8, Vec<u8>, Option<Arc<KnownStatement>>),
    Bind,
    DescribeStatement(Option<Arc<KnownStatement>>),
    DescribePortal,
    ClosePortal,
    Execute(Execution),
    FunctionCall,
    Sync,
    /// The end of `COPY` data, sent before the server asked for them. It has no answer.
    CopyEnd,
}

#[derive(Debug)]
struct KnownStatement {
    name: String,
    sql: String,
    is_utf8: bool,
    declared_types: Vec<u32>,
    described_types: OnceLock<Vec<u32>>,
}

#[derive(Debug)]
struct Portal {
    request: Requested,
    was_executed: bool,
}

/// The requested execution.
#[derive(Clone, Debug)]
enum Requested {
    Simple(String),
    Extended(ExecutedStatement),
    Incomplete(String, IncompleteReason),
    /// More rows of a portal.
    Fetch,
}

#[derive(Debug)]
struct Execution {
    requested: Requested,
    sent: Mark,
    /// It was sent before the statement before it was over.
    is_pipelined: bool,
    begin: Mark,
    end: Option<Mark>,
    rows: Option<u64>,
    failed: Option<String>,
    /// How many `COPY … FROM STDIN` it has had.
    copies: u32,
    /// The data that came for one; `None` if they are not kept, or too many.
    copied: Option<Vec<u8>>,
    /// The client has said that these are all.
    is_copied: bool,
}

impl Execution {
    fn new(requested: Requested, sent: Mark) -> Self {
        Self {
            requested,
            sent,
            is_pipelined: false,
            begin: sent,
            end: None,
            rows: None,
            failed: None,
            copies: 0,
            copied: None,
            is_copied: false,
        }
    }

    fn text(&self) -> &str {
        match &self.requested {
            Requested::Simple(sql) | Requested::Incomplete(sql, _) => sql,
            Requested::Extended(statement) => &statement.sql,
            Requested::Fetch => "",
        }
    }
}

impl Follower {
    fn request(&mut self, tag: u8, body: &[u8], mark: Mark) -> Result<(), Malformed> {
        self.counts.messages += 1;
        if self.skips_to_sync && tag != b'S' {
            return Ok(());
        }
        let mut fields = Fields(body);
        let awaited = match tag {
            b'Q' => {
                let sql = self.text(fields.text()?);
                Awaited::Query(self.execution(Self::simple(sql), mark))
            }
            b'P' => self.parse(fields)?,
            b'B' => self.bind(fields)?,
            b'D' => match fields.byte()? {
                b'S' => Awaited::DescribeStatement(self.statements.get(fields.text()?).cloned()),
                _ => Awaited::DescribePortal,
            },
            b'C' => self.close(fields)?,
            b'E' => {
                let requested = self.executed(fields.text()?);
                Awaited::Execute(self.execution(requested, mark))
            }
            b'F' => {
                self.counts.fast_path += 1;
                Awaited::FunctionCall
            }
            // While it reads data, the server passes over Sync.
            b'S' if self.copies_in => return Ok(()),
            b'S' => {
                self.skips_to_sync = false;
                Awaited::Sync
            }
            b'd' => {
                self.keep_copied(body);
                return Ok(());
            }
            b'c' | b'f' => {
                if let Some(execution) = self.copying() {
                    execution.is_copied = tag == b'c';
                }
                if std::mem::take(&mut self.copies_in) {
                    return Ok(());
                }
                Awaited::CopyEnd
            }
            _ => return Ok(()),
        };
        self.awaited.push_back(awaited);
        Ok(())
    }

    fn execution(&self, requested: Requested, sent: Mark) -> Execution {
        let is_copy = matches!(requested, Requested::Incomplete(_, IncompleteReason::CopyData));
        let keeps = is_copy && self.copy_data_max > 0;
        Execution { copied: keeps.then(Vec::new), ..Execution::new(requested, sent) }
    }

    fn text(&mut self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        self.counts.not_utf8 += u64::from(matches!(text, std::borrow::Cow::Owned(_)));
        text.into_owned()
    }

    fn simple(sql: String) -> Requested {
        if sql::is_copy_in(&sql) {
            return Requested::Incomplete(sql, IncompleteReason::CopyData);
        }
        Requested::Simple(sql)
    }

    fn parse(&mut self, mut fields: Fields<'_>) -> Result<Awaited, Malformed> {
        let name = fields.text()?;
        let sql = String::from_utf8_lossy(fields.text()?);
        let mut declared_types = Vec::new();
        for _ in 0..fields.count()? {
            declared_types.push(fields.int32()?.cast_unsigned());
        }
        let statement = KnownStatement {
            name: String::from_utf8_lossy(name).into_owned(),
            is_utf8: matches!(sql, std::borrow::Cow::Borrowed(_)),
            sql: sql.into_owned(),
            declared_types,
            described_types: OnceLock::new(),
        };
        let before = self.statements.insert(name.to_vec(), Arc::new(statement));
        Ok(Awaited::Renamed(b'P', name.to_vec(), before))
    }

    fn close(&mut self, mut fields: Fields<'_>) -> Result<Awaited, Malformed> {
        let is_statement = fields.byte()? == b'S';
        let name = fields.text()?;
        if is_statement {
            return Ok(Awaited::Renamed(b'C', name.to_vec(), self.statements.remove(name)));
        }
        self.portals.remove(name);
        Ok(Awaited::ClosePortal)
    }

    fn bind(&mut self, mut fields: Fields<'_>) -> Result<Awaited, Malformed> {
        let portal = fields.text()?;
        let name = fields.text()?;
        let mut formats = Vec::new();
        for _ in 0..fields.count()? {
            formats.push(fields.int16()?);
        }
        let statement = self.statements.get(name).cloned();
        let mut parameters = Vec::new();
        for at in 0..fields.count()? {
            let Ok(length) = usize::try_from(fields.int32()?) else {
                parameters.push(None);
                continue;
            };
            let bytes = fields.bytes(length)?;
            // One format is that of all.
            let format =
                if formats.len() == 1 { formats[0] } else { *formats.get(at).unwrap_or(&0) };
            parameters.push(Some(if format == 0 {
                ParameterValue::Text(self.text(bytes))
            } else {
                let oid = statement.as_ref().map_or(0, |statement| statement.type_of(at));
                ParameterValue::Binary { oid, bytes: bytes.to_vec() }
            }));
        }
        let request = self.bound(statement.as_deref(), parameters);
        self.portals.insert(portal.to_vec(), Portal { request, was_executed: false });
        Ok(Awaited::Bind)
    }

    fn bound(
        &mut self,
        statement: Option<&KnownStatement>,
        parameters: Vec<Option<ParameterValue>>,
    ) -> Requested {
        let Some(statement) = statement else {
            return Requested::Incomplete(String::new(), IncompleteReason::Parameters);
        };
        self.counts.not_utf8 += u64::from(!statement.is_utf8);
        let sql = statement.sql.clone();
        if sql::is_copy_in(&sql) {
            return Requested::Incomplete(sql, IncompleteReason::CopyData);
        }
        let types = &statement.declared_types;
        let types = if types.iter().all(|oid| *oid == 0) { Vec::new() } else { types.clone() };
        let name = statement.name.clone();
        Requested::Extended(ExecutedStatement { name, sql, types, parameters })
    }

    fn executed(&mut self, portal: &[u8]) -> Requested {
        let requested = match self.portals.get_mut(portal) {
            Some(portal) if portal.was_executed => Requested::Fetch,
            Some(portal) => {
                portal.was_executed = true;
                // A portal's values are needed once.
                std::mem::replace(&mut portal.request, Requested::Fetch)
            }
            // A cursor that was declared in SQL.
            None => Requested::Incomplete(String::new(), IncompleteReason::Parameters),
        };
        match &requested {
            Requested::Fetch => self.counts.fetches += 1,
            Requested::Incomplete(_, IncompleteReason::Parameters) => {
                self.counts.without_parameters += 1;
            }
            Requested::Simple(_) | Requested::Extended(_) | Requested::Incomplete(..) => {}
        }
        requested
    }

    fn reply(&mut self, tag: u8, body: &[u8], mark: Mark) -> Result<(), Malformed> {
        self.counts.messages += 1;
        while matches!(self.awaited.front(), Some(Awaited::CopyEnd)) {
            self.awaited.pop_front();
        }
        match (tag, self.awaited.front_mut()) {
            (b'1', Some(Awaited::Renamed(b'P', ..)))
            | (b'3', Some(Awaited::Renamed(b'C', ..) | Awaited::ClosePortal))
            | (b'2', Some(Awaited::Bind))
            | (b'T' | b'n', Some(Awaited::DescribePortal | Awaited::DescribeStatement(_))) => {
                self.awaited.pop_front();
            }
            (b't', Some(Awaited::DescribeStatement(Some(statement)))) => {
                let mut fields = Fields(body);
                let mut types = Vec::new();
                for _ in 0..fields.count()? {
                    types.push(fields.int32()?.cast_unsigned());
                }
                // They do not change.
                let _ = statement.described_types.set(types);
            }
            (b'C', Some(Awaited::Query(query))) => {
                let rows = rows_of(body);
                query.rows = query.rows.map_or(rows, |sum| Some(sum + rows.unwrap_or(0)));
                self.forget_deallocated(body);
            }
            (b'C', Some(Awaited::Execute(execution))) => {
                execution.rows = rows_of(body);
                self.execution_ends(mark);
                self.forget_deallocated(body);
            }
            (b's' | b'I', Some(Awaited::Execute(_))) => self.execution_ends(mark),
            (b'G', _) => self.copy_in_begins(),
            (b'E', _) => self.error(body, mark)?,
            (b'Z', _) => self.ready(body, mark)?,
            // Replies of the extended protocol that nothing was asked for.
            (b'1' | b'2' | b'3', _) => return Err(Malformed),
            _ => {}
        }
        Ok(())
    }

    fn forget_deallocated(&mut self, tag: &[u8]) {
        let is_all = matches!(tag, b"DEALLOCATE ALL\0" | b"DISCARD ALL\0");
        // What was parsed behind it is known.
        if is_all && !self.awaited.iter().any(|awaited| matches!(awaited, Awaited::Renamed(..))) {
            self.statements.clear();
        }
    }

    fn execution_ends(&mut self, mark: Mark) {
        if let Some(Awaited::Execute(mut execution)) = self.awaited.pop_front() {
            self.end_of(&mut execution, mark);
            self.group.push(execution);
        }
    }

    fn end_of(&mut self, execution: &mut Execution, mark: Mark) {
        execution.is_pipelined = self.last_end > execution.sent;
        execution.begin = self.last_end.max(execution.sent);
        execution.end = Some(mark);
        self.last_end = mark;
    }

    /// Skips all that came with the statement, up to the end of the data.
    fn copy_in_begins(&mut self) {
        let is_end = |awaited: &Awaited| matches!(awaited, Awaited::CopyEnd);
        let end = self.awaited.iter().position(is_end);
        self.copies_in = end.is_none();
        if let Some(Awaited::Query(execution) | Awaited::Execute(execution)) =
            self.awaited.front_mut()
        {
            execution.copies += 1;
        }
        let data = end.unwrap_or(self.awaited.len());
        let mut at = 0;
        self.awaited.retain(|awaited| {
            let is_of_data = at <= data && matches!(awaited, Awaited::Sync | Awaited::CopyEnd);
            at += 1;
            !is_of_data
        });
    }

    /// The execution whose data come: the one that the server answers, or, where the client did not wait for
    /// the server to ask for them, the one that was sent last.
    fn copying(&mut self) -> Option<&mut Execution> {
        let waits = self.copies_in;
        let mut executions = self.awaited.iter_mut().filter_map(|awaited| match awaited {
            Awaited::Query(execution) | Awaited::Execute(execution) => Some(execution),
            _ => None,
        });
        if waits { executions.next() } else { executions.next_back() }
    }

    fn keep_copied(&mut self, data: &[u8]) {
        let most = self.copy_data_max;
        if let Some(copied) = self.copying().map(|execution| &mut execution.copied) {
            match copied {
                Some(copied) if copied.len() + data.len() <= most => copied.extend_from_slice(data),
                copied => *copied = None,
            }
        }
    }

    fn error(&mut self, body: &[u8], mark: Mark) -> Result<(), Malformed> {
        let code = sqlstate(body)?;
        self.copies_in = false;
        if let Some(Awaited::Query(query)) = self.awaited.front_mut() {
            query.failed.get_or_insert(code);
            return Ok(());
        }
        if matches!(self.awaited.front(), None | Some(Awaited::FunctionCall)) {
            self.counts.errors_without_statement += 1;
            return Ok(());
        }
        if matches!(self.awaited.front(), Some(Awaited::Sync)) {
            // The commit failed.
            match self.group.last_mut() {
                Some(last) => last.failed = Some(code),
                None => self.counts.errors_without_statement += 1,
            }
            return Ok(());
        }
        let mut failed = None;
        let mut before = Vec::new();
        while !matches!(self.awaited.front(), None | Some(Awaited::Sync)) {
            match self.awaited.pop_front() {
                Some(Awaited::Execute(execution)) => failed = failed.or(Some(execution)),
                Some(Awaited::Renamed(_, name, statement)) => before.push((name, statement)),
                _ => {}
            }
        }
        self.skips_to_sync = self.awaited.is_empty();
        if failed.is_none() {
            failed = self.failed_parse(&before, mark);
        }
        match failed {
            Some(mut execution) => {
                execution.failed = Some(code);
                self.end_of(&mut execution, mark);
                self.group.push(execution);
            }
            None => self.counts.errors_without_statement += 1,
        }
        for (name, statement) in before.into_iter().rev() {
            match statement {
                Some(statement) => self.statements.insert(name, statement),
                None => self.statements.remove(&name),
            };
        }
        Ok(())
    }

    /// A statement that failed before it was executed, as the server logs it: without parameters.
    fn failed_parse(
        &mut self,
        renamed: &[(Vec<u8>, Option<Arc<KnownStatement>>)],
        mark: Mark,
    ) -> Option<Execution> {
        let (name, _) = renamed.first()?;
        let sql = self.statements.get(name)?.sql.clone();
        let requested = if sql::mentions_parameters(&sql) {
            self.counts.without_parameters += 1;
            Requested::Incomplete(sql, IncompleteReason::Parameters)
        } else {
            Requested::Simple(sql)
        };
        Some(Execution::new(requested, mark))
    }

    /// The server is ready: what it was asked up to a Sync, or by a query, is over.
    fn ready(&mut self, body: &[u8], mark: Mark) -> Result<(), Malformed> {
        let mut query = None;
        loop {
            match self.awaited.pop_front() {
                Some(Awaited::Query(execution)) => query = Some(execution),
                Some(Awaited::Sync | Awaited::FunctionCall) | None => {}
                Some(_) => continue,
            }
            break;
        }
        if query.is_none()
            && let Some(last) = self.group.last_mut()
        {
            last.end = Some(mark);
        }
        self.end_group();
        if let Some(mut query) = query {
            self.end_of(&mut query, mark);
            self.push_step(vec![query]);
        }
        self.last_end = mark;
        self.in_block = *body.first().ok_or(Malformed)? != b'I';
        if !self.in_block {
            self.portals.clear();
        }
        Ok(())
    }

    /// Executions with one Sync: one step outside of a transaction block, where they are one transaction;
    /// in a block a step each, as the server logs them.
    fn end_group(&mut self) {
        let group = std::mem::take(&mut self.group);
        let group: Vec<Execution> = group
            .into_iter()
            .filter(|group| !matches!(group.requested, Requested::Fetch))
            .collect();
        let Some(first) = group.first() else { return };
        let begins_block = sql::controls(first.text()).first() == Some(&Control::Begin);
        let is_extended =
            |execution: &Execution| matches!(execution.requested, Requested::Extended(_));
        if !self.in_block && !begins_block && group.iter().all(is_extended) {
            self.push_step(group);
            return;
        }
        for execution in group {
            let controls = sql::controls(execution.text());
            let failed = execution.failed.is_some();
            self.push_step(vec![execution]);
            match controls.last() {
                Some(Control::Begin) if !failed => self.in_block = true,
                Some(Control::Commit | Control::Rollback) if !failed => self.in_block = false,
                _ => {}
            }
        }
    }

    fn push_step(&mut self, executions: Vec<Execution>) {
        let (Some(first), Some(last)) = (executions.first(), executions.last()) else { return };
        let sent = first.sent;
        let begin = first.begin;
        let since = sent.at_us.max(begin.at_us);
        let failed = executions.iter().find_map(|execution| execution.failed.clone());
        let counts: Vec<u64> = executions.iter().filter_map(|execution| execution.rows).collect();
        let step = CapturedStep {
            // The writer numbers sessions.
            session: 0,
            start_us: sent.at_us,
            duration_us: last
                .end
                .filter(|_| failed.is_none())
                .map(|end| end.at_us.saturating_sub(since)),
            begin: begin.number,
            end: last.end.unwrap_or(begin).number,
            before_commit: None,
            request: StatementRequest::Simple(String::new()),
            failed,
            has_written: None,
            in_block: Some(self.in_block),
            rows: (!counts.is_empty()).then(|| counts.iter().sum()),
            ends_late: !self.in_block || first.is_pipelined,
        };
        let request = match <[Execution; 1]>::try_from(executions) {
            Ok([one]) => match one.requested {
                Requested::Simple(sql) => StatementRequest::Simple(sql),
                Requested::Extended(statement) => StatementRequest::Extended(vec![statement]),
                Requested::Incomplete(sql, reason) => {
                    // Data of several in one query are not distinguished.
                    let is_whole = one.is_copied && one.copies == 1;
                    if let Some(data) = one.copied.filter(|_| is_whole) {
                        StatementRequest::Copy { sql, data }
                    } else {
                        let is_copy = reason == IncompleteReason::CopyData;
                        self.counts.copy_in += u64::from(is_copy);
                        StatementRequest::Incomplete { sql, reason }
                    }
                }
                Requested::Fetch => return,
            },
            Err(executions) => StatementRequest::Extended(
                executions
                    .into_iter()
                    .filter_map(|execution| match execution.requested {
                        Requested::Extended(statement) => Some(statement),
                        _ => None,
                    })
                    .collect(),
            ),
        };
        self.steps.push(CapturedStep { request, ..step });
    }

    fn end(&mut self) {
        let mut query = None;
        for awaited in std::mem::take(&mut self.awaited) {
            match awaited {
                Awaited::Execute(mut execution) => {
                    execution.begin = self.last_end.max(execution.sent);
                    self.group.push(execution);
                }
                Awaited::Query(execution) => query = query.or(Some(execution)),
                _ => {}
            }
        }
        self.end_group();
        if let Some(query) = query {
            self.push_step(vec![query]);
        }
    }
}

impl KnownStatement {
    /// The type of a parameter, 0 if it is not known.
    fn type_of(&self, at: usize) -> u32 {
        let declared = self.declared_types.get(at).copied().filter(|oid| *oid != 0);
        let described = || self.described_types.get().and_then(|types| types.get(at)).copied();
        declared.or_else(described).unwrap_or_default()
    }
}

/// The count in a command tag such as `INSERT 0 5`.
fn rows_of(tag: &[u8]) -> Option<u64> {
    let tag = str::from_utf8(tag.strip_suffix(&[0])?).ok()?;
    tag.rsplit_once(' ')?.1.parse().ok()
}

fn sqlstate(body: &[u8]) -> Result<String, Malformed> {
    let mut fields = Fields(body);
    loop {
        match fields.byte()? {
            0 => return Ok(String::new()),
            b'C' => return Ok(String::from_utf8_lossy(fields.text()?).into_owned()),
            _ => fields.text()?,
        };
    }
}

#[cfg(test)]
mod tests;
