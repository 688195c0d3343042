//! Lines of container runtimes (CRI): `2026-11-29T10:00:00.123456789Z stderr F the line`.

use std::borrow::Cow;

use super::{Event, rfc3339_ns};

pub(super) fn parse(line: &[u8]) -> Option<Event<'_>> {
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let time_ns = rfc3339_ns(words.next()?)?;
    if !matches!(words.next()?, b"stdout" | b"stderr") {
        return None;
    }
    // Tags are separated by colons; the first is P or F.
    let is_part = match words.next()?.first()? {
        b'P' => true,
        b'F' => false,
        _ => return None,
    };
    let text = Cow::Borrowed(words.next().unwrap_or_default());
    Some(Event { time_ns: Some(time_ns), server: None, id: None, text, is_part })
}
