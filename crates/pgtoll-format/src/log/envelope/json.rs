//! Events as JSON objects: of CloudWatch, Cloud Logging, Azure, Docker, CloudNativePG and collectors.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Event, rfc3339_ns};

/// Finds the objects that are events, whatever is around them: nothing, an array, or the documents of
/// CloudWatch, whose events are below a key.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonScanner {
    at: usize,
    depth: usize,
    /// Objects at this depth are events.
    base: usize,
    /// The start of the object that is open.
    start: Option<usize>,
    /// The start of the string that is open.
    string: Option<usize>,
    /// The last string, of a key if a colon follows.
    last_string: Range<usize>,
    damaged: u64,
}

/// Keys of documents below which their events are.
const WRAPPERS: [&[u8]; 2] = [b"events", b"logEvents"];
/// A longer object is not an event.
const OBJECT_BYTES_MAX: usize = 64 << 20;

impl JsonScanner {
    /// The range of the next event in the bytes since [`forget`](Self::forget) that is complete.
    pub(super) fn next_object(&mut self, bytes: &[u8]) -> Option<Range<usize>> {
        while self.at < bytes.len() {
            if let Some(string) = self.string {
                let rest = &bytes[self.at..];
                let Some(found) = memchr::memchr3(b'"', b'\\', b'\n', rest) else {
                    self.at = bytes.len();
                    break;
                };
                match rest[found] {
                    b'\\' if found + 1 >= rest.len() => {
                        self.at += found;
                        return None;
                    }
                    b'\\' => self.at += found + 2,
                    b'"' => {
                        self.last_string = string + 1..self.at + found;
                        self.string = None;
                        self.at += found + 1;
                    }
                    // No string has a line's end: the event was cut.
                    _ => {
                        self.at += found;
                        self.give_up();
                    }
                }
                continue;
            }
            let at = self.at;
            self.at += 1;
            match bytes[at] {
                b'"' => self.string = Some(at),
                b'{' => {
                    let begins_line = at == 0 || bytes[at - 1] == b'\n';
                    if begins_line && self.depth > 0 && self.start.is_some() {
                        self.give_up();
                    }
                    if self.depth == self.base {
                        self.start = Some(at);
                    }
                    self.depth += 1;
                }
                b'[' => {
                    self.depth += 1;
                    let is_array = self.start.is_none() && self.depth == self.base + 1;
                    if is_array || self.is_wrapper(bytes, at) {
                        self.start = None;
                        self.base = self.depth;
                    }
                }
                b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    let start = if self.depth == self.base { self.start.take() } else { None };
                    self.base = self.base.min(self.depth);
                    if let Some(start) = start {
                        return Some(start..self.at);
                    }
                }
                b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.base = self.base.min(self.depth);
                }
                _ => {}
            }
        }
        if self.start.is_some_and(|start| bytes.len() - start > OBJECT_BYTES_MAX) {
            self.give_up();
        }
        None
    }

    /// Whether this bracket opens the events of a document: `{"events": [`.
    fn is_wrapper(&self, bytes: &[u8], bracket: usize) -> bool {
        let is_at_top = self.base == 0 && self.depth == 2 && self.start.is_some();
        let Some(between) = bytes.get(self.last_string.end + 1..bracket) else { return false };
        let key = bytes.get(self.last_string.clone()).unwrap_or_default();
        is_at_top && between.trim_ascii() == b":" && WRAPPERS.contains(&key)
    }

    /// The open object is damaged.
    fn give_up(&mut self) {
        self.damaged += 1;
        (self.depth, self.base, self.start, self.string) = (0, 0, None, None);
    }

    /// Objects that were given up; at the end, one that is open is one of them.
    pub(super) fn take_damaged(&mut self, finished: bool) -> u64 {
        if finished && self.start.take().is_some() {
            self.damaged += 1;
        }
        std::mem::take(&mut self.damaged)
    }

    /// How many bytes are not needed any more. Places count from there on.
    pub(super) fn forget(&mut self) -> usize {
        let open = [self.start, self.string].into_iter().flatten().min();
        // A key may be followed by its bracket in the next piece.
        let key = if self.depth == 1 { self.last_string.start.saturating_sub(1) } else { self.at };
        let keep = open.unwrap_or(self.at).min(key).min(self.at);
        self.at -= keep;
        self.start = self.start.map(|start| start - keep);
        self.string = self.string.map(|start| start - keep);
        self.last_string = if self.last_string.start >= keep {
            self.last_string.start - keep..self.last_string.end - keep
        } else {
            0..0
        };
        keep
    }
}

/// The keys that are read; those of a kind of event are there together.
#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonEvent<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    time: Option<&'a RawValue>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    date: Option<&'a RawValue>,
    #[serde(borrow, rename = "@timestamp")]
    at_timestamp: Option<&'a RawValue>,
    /// Loki's key.
    #[serde(borrow)]
    line: Option<&'a RawValue>,
    /// Added by Fluent Bit and Fluentd.
    #[serde(borrow)]
    kubernetes: Option<&'a RawValue>,
    #[serde(borrow)]
    log: Option<&'a RawValue>,
    #[serde(borrow, rename = "logStreamName")]
    log_stream: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "eventId")]
    event_id: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "insertId")]
    insert_id: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "textPayload")]
    text_payload: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "jsonPayload")]
    json_payload: Option<Payload<'a>>,
    #[serde(borrow)]
    properties: Option<Payload<'a>>,
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(borrow, rename = "resourceId")]
    resource_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    logger: Option<Cow<'a, str>>,
    #[serde(borrow)]
    logging_pod: Option<Cow<'a, str>>,
    #[serde(borrow)]
    record: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
}

/// The resource of an event of Cloud Logging.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Resource<'a> {
    #[serde(borrow)]
    labels: Labels<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labels<'a> {
    #[serde(borrow)]
    database_id: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kubernetes<'a> {
    #[serde(borrow)]
    pod_name: Option<Cow<'a, str>>,
}

/// Whether the first object is an event; of `jsonlog`, which needs no envelope, it is none.
pub(super) fn has_events(sample: &[u8]) -> bool {
    let mut scanner = JsonScanner::default();
    while let Some(object) = scanner.next_object(sample) {
        let object = &sample[object];
        if serde_json::from_slice::<JsonlogEntry<'_>>(object).is_ok() {
            return false;
        }
        match parse(object, None) {
            Ok(Some(_)) => return true,
            Ok(None) => {}
            Err(()) => return false,
        }
    }
    false
}

/// Keys that all entries of `jsonlog` have.
#[derive(Deserialize)]
struct JsonlogEntry<'a> {
    #[serde(rename = "timestamp", borrow)]
    _timestamp: Cow<'a, str>,
    #[serde(rename = "pid")]
    _pid: u32,
    #[serde(rename = "error_severity", borrow)]
    _severity: Cow<'a, str>,
}

/// The event in an object; `None`: it has no message of a server.
pub(super) fn parse<'a>(object: &'a [u8], field: Option<&str>) -> Result<Option<Event<'a>>, ()> {
    let mut event: JsonEvent<'_> = serde_json::from_slice(object).map_err(|_| ())?;
    let time = event.timestamp.or(event.time).or(event.ts).or(event.date).or(event.at_timestamp);
    let id = event.event_id.take().or(event.insert_id.take());
    let server = server(&mut event);
    let message = match field {
        Some(field) => message_at(object, field),
        None => message(event)?,
    };
    let Some(Message { text, is_part }) = message else { return Ok(None) };
    Ok(Some(Event { time_ns: time.and_then(time_ns), server, id, text, is_part }))
}

fn server<'a>(event: &mut JsonEvent<'a>) -> Option<Cow<'a, str>> {
    let labels = |raw: &'a RawValue| serde_json::from_str::<Resource<'a>>(raw.get()).ok();
    let named = event.log_stream.take().or(event.logging_pod.take());
    let pod = |raw: &'a RawValue| serde_json::from_str::<Kubernetes<'a>>(raw.get()).ok()?.pod_name;
    named
        .or_else(|| event.resource.and_then(labels)?.labels.database_id)
        .or_else(|| event.kubernetes.and_then(pod))
        .or(event.resource_id.take())
}

/// A server's text.
struct Message<'a> {
    text: Cow<'a, [u8]>,
    /// The next event continues it.
    is_part: bool,
}

fn message(event: JsonEvent<'_>) -> Result<Option<Message<'_>>, ()> {
    if let Some(logger) = event.logger {
        return match event.record.filter(|_| logger == "postgres") {
            Some(record) => {
                Ok(Some(Message { text: Cow::Owned(jsonlog(record.get())?), is_part: false }))
            }
            None => Ok(None),
        };
    }
    if let Some(text) = event.log.and_then(string) {
        // Docker cuts lines of more than 16 kB.
        let is_part = !text.ends_with('\n') && text.len() >= DOCKER_LINE_BYTES;
        return Ok(Some(Message { text: into_bytes(text), is_part }));
    }
    let payload = event.json_payload.or(event.properties).and_then(|payload| payload.message);
    let message = event.message.or(event.line);
    let text = event.text_payload.or(payload).or_else(|| message.and_then(string));
    Ok(text.map(|text| Message { text: into_bytes(text), is_part: false }))
}

/// The text at a path of an object: a line, or an object, which is one of `jsonlog`.
fn message_at<'a>(object: &'a [u8], path: &str) -> Option<Message<'a>> {
    let (path, separator) = match path.strip_prefix('/') {
        Some(path) => (path, '/'),
        None => (path, '.'),
    };
    let mut value: &RawValue = serde_json::from_slice(object).ok()?;
    for key in path.split(separator) {
        let mut keys: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(value.get()).ok()?;
        value = keys.remove(key)?;
    }
    let text = match string(value) {
        Some(text) => into_bytes(text),
        None => Cow::Borrowed(value.get().as_bytes()),
    };
    let is_text = !matches!(value.get(), "null" | "true" | "false");
    is_text.then_some(Message { text, is_part: false })
}

const DOCKER_LINE_BYTES: usize = 16 << 10;

fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str(raw.get()).ok()
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Milliseconds since 1970, seconds with a fraction, or RFC 3339.
fn time_ns(raw: &RawValue) -> Option<i64> {
    let text = raw.get();
    if let Some(quoted) = text.strip_prefix('"') {
        return rfc3339_ns(quoted.strip_suffix('"')?.as_bytes());
    }
    if let Ok(milliseconds) = text.parse::<i64>() {
        return milliseconds.checked_mul(1_000_000);
    }
    let (seconds, fraction) = text.split_once('.')?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(digits.parse().ok()?)
}

/// The record of CloudNativePG: the columns of `csvlog`, all of them strings.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NestedRecord<'a> {
    #[serde(borrow)]
    log_time: Cow<'a, str>,
    #[serde(borrow)]
    user_name: Cow<'a, str>,
    #[serde(borrow)]
    database_name: Cow<'a, str>,
    #[serde(borrow)]
    process_id: Cow<'a, str>,
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow)]
    command_tag: Cow<'a, str>,
    #[serde(borrow)]
    virtual_transaction_id: Cow<'a, str>,
    #[serde(borrow)]
    transaction_id: Cow<'a, str>,
    #[serde(borrow)]
    error_severity: Cow<'a, str>,
    #[serde(borrow)]
    sql_state_code: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    detail: Cow<'a, str>,
    #[serde(borrow)]
    context: Cow<'a, str>,
    #[serde(borrow)]
    query: Cow<'a, str>,
    #[serde(borrow)]
    application_name: Cow<'a, str>,
}

/// The keys of `jsonlog`.
#[derive(Serialize)]
struct JsonlogRecord<'a> {
    timestamp: &'a str,
    user: &'a str,
    dbname: &'a str,
    pid: u32,
    session_id: &'a str,
    ps: &'a str,
    vxid: &'a str,
    txid: Option<u64>,
    error_severity: &'a str,
    state_code: &'a str,
    message: &'a str,
    detail: &'a str,
    context: &'a str,
    statement: &'a str,
    application_name: &'a str,
}

fn jsonlog(record: &str) -> Result<Vec<u8>, ()> {
    let record: NestedRecord<'_> = serde_json::from_str(record).map_err(|_| ())?;
    let line = JsonlogRecord {
        timestamp: &record.log_time,
        user: &record.user_name,
        dbname: &record.database_name,
        pid: record.process_id.parse().unwrap_or(0),
        session_id: &record.session_id,
        ps: &record.command_tag,
        vxid: &record.virtual_transaction_id,
        txid: record.transaction_id.parse().ok(),
        error_severity: &record.error_severity,
        state_code: &record.sql_state_code,
        message: &record.message,
        detail: &record.detail,
        context: &record.context,
        statement: &record.query,
        application_name: &record.application_name,
    };
    serde_json::to_vec(&line).map_err(|_| ())
}
