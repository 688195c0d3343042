//! `jsonlog`.

use std::borrow::Cow;

use serde::Deserialize;

use crate::log::language::{foreign_message, is_foreign_severity};
use crate::log::time::zoned_timestamp;
use crate::log::{LogEntry, LogError, LogSessionId, LogSeverity, SqlState, VirtualXid};

/// The keys that are read, as `write_jsonlog` writes them; a missing one is empty.
#[derive(Deserialize)]
#[serde(default)]
struct JsonEntry<'a> {
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow)]
    user: Cow<'a, str>,
    #[serde(borrow)]
    dbname: Cow<'a, str>,
    pid: u32,
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow)]
    ps: Cow<'a, str>,
    #[serde(borrow)]
    vxid: Cow<'a, str>,
    txid: Option<u64>,
    #[serde(borrow)]
    error_severity: Cow<'a, str>,
    #[serde(borrow)]
    state_code: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    detail: Cow<'a, str>,
    #[serde(borrow)]
    context: Cow<'a, str>,
    #[serde(borrow)]
    statement: Cow<'a, str>,
    #[serde(borrow)]
    application_name: Cow<'a, str>,
}

impl Default for JsonEntry<'_> {
    fn default() -> Self {
        const NOTHING: Cow<'_, str> = Cow::Borrowed("");
        Self {
            timestamp: NOTHING,
            user: NOTHING,
            dbname: NOTHING,
            pid: 0,
            session_id: NOTHING,
            ps: NOTHING,
            vxid: NOTHING,
            txid: None,
            error_severity: NOTHING,
            state_code: NOTHING,
            message: NOTHING,
            detail: NOTHING,
            context: NOTHING,
            statement: NOTHING,
            application_name: NOTHING,
        }
    }
}

pub(crate) fn parse(record: &[u8], line: u64) -> Result<LogEntry<'_>, LogError> {
    let damaged = |reason| LogError::Damaged { line, reason };
    let text = str::from_utf8(record).map_err(|_| damaged("not UTF-8"))?;
    let entry: JsonEntry<'_> =
        serde_json::from_str(text).map_err(|_| damaged("no entry of jsonlog"))?;
    let (time_us, _) =
        zoned_timestamp(entry.timestamp.as_bytes()).ok_or(damaged("no time in timestamp"))?;
    let severity = LogSeverity::of_label(entry.error_severity.as_bytes()).ok_or_else(|| {
        if is_foreign_severity(entry.error_severity.as_bytes()) {
            return LogError::Language { line, word: entry.error_severity.to_string() };
        }
        damaged("unknown severity")
    })?;
    if let Some(word) = foreign_message(entry.message.as_bytes()) {
        return Err(LogError::Language { line, word: word.trim_end().to_owned() });
    }
    let session = LogSessionId::parse(entry.session_id.as_bytes());
    Ok(LogEntry {
        line,
        time_us: Some(time_us),
        session: session
            .or((entry.pid != 0).then_some(LogSessionId { start_s: 0, pid: entry.pid })),
        user: present(entry.user),
        database: present(entry.dbname),
        application: present(entry.application_name),
        command_tag: present(entry.ps),
        vxid: VirtualXid::parse(entry.vxid.as_bytes()),
        xid: entry.txid,
        severity,
        sqlstate: Some(SqlState::parse(entry.state_code.as_bytes()).unwrap_or(SqlState::SUCCESS)),
        message: bytes(entry.message),
        detail: present(entry.detail),
        context: present(entry.context),
        statement: present(entry.statement),
    })
}

fn present(text: Cow<'_, str>) -> Option<Cow<'_, [u8]>> {
    (!text.is_empty()).then(|| bytes(text))
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
