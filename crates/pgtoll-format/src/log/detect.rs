//! Detection of a log's format.

use crate::log::{LinePrefix, LogError, LogFormat, csv, stderr};

/// The format of a log by its first bytes, of which `sample` has some thousand: stderr with the prefix
/// that is given, or with one of those that are in use.
///
/// `outer` is what an [`Envelope`](crate::log::Envelope) puts before the server's prefix.
pub fn detect(
    sample: &[u8],
    outer: &str,
    prefix: Option<&LinePrefix>,
) -> Result<LogFormat, LogError> {
    if memchr::memchr(0, sample).is_some() {
        let before = sample.iter().take_while(|byte| **byte != 0);
        let line = 1 + before.filter(|byte| **byte == b'\n').count() as u64;
        return Err(LogError::Binary { line });
    }
    if let Some(prefix) = prefix {
        let prefix = prefix.behind(outer);
        let matches =
            sample.split(|byte| *byte == b'\n').any(|line| stderr::begins_entry(line, &prefix));
        return if !prefix.has_session() {
            Err(LogError::Sessions)
        } else if matches {
            Ok(LogFormat::Stderr(prefix))
        } else {
            Err(LogError::Unknown { line: 1 })
        };
    }
    if sample.trim_ascii_start().starts_with(b"{\"timestamp\":") {
        return Ok(LogFormat::Json);
    }
    let lines: Vec<&[u8]> =
        sample.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).take(LINES).collect();
    // A csv record has no severity where a prefix would end.
    let prefixes = PREFIXES.iter().chain(PREFIXES_WITHOUT_SESSION);
    let prefixes = prefixes.filter_map(|text| Some(LinePrefix::parse(text).ok()?.behind(outer)));
    let prefixes = prefixes.filter(LinePrefix::has_session);
    let fit = |prefix: &LinePrefix| {
        lines.iter().filter(|line| stderr::begins_entry(line, prefix)).count()
    };
    let best =
        prefixes.map(|prefix| (fit(&prefix), prefix)).fold(
            None,
            |best, (lines, prefix)| match best {
                Some((most, _)) if most >= lines => best,
                _ => Some((lines, prefix)),
            },
        );
    match best {
        Some((1.., prefix)) => Ok(LogFormat::Stderr(prefix)),
        _ if lines.iter().any(|line| csv::begins_record(line)) => Ok(LogFormat::Csv),
        _ => Err(LogError::Unknown { line: 1 }),
    }
}

const LINES: usize = 200;

/// In use, those that say most first: of this project, of Debian, Amazon RDS, pgBadger, pgreplay,
/// Crunchy, Azure, Google, and PostgreSQL's own.
const PREFIXES: [&str; 20] = [
    "%m|%u|%d|%c|%l|%i|%v|%x|%e|%Q|",
    "%m [%p] %l %q%u@%d/%a %v %x %e %i ",
    "%m|%u|%d|%c|%v|%x|%e|%i|",
    "%m|%u|%d|%c|",
    "%m [%p] %q%u@%d/%a ",
    "%m [%p] %q[user=%u,db=%d,app=%a] ",
    "%m [%p] %q%u@%d ",
    "%t:%r:%u@%d:[%p]:",
    "%t [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h ",
    "%t [%p]: user=%u,db=%d,app=%a,client=%h ",
    "%t [%p]: [%l-1] user=%u,db=%d ",
    "%m [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h ",
    "%m [%p]: [%l-1] db=%d,user=%u ",
    "%m [%p]: [%l-1] %u@%d ",
    "%t-%c-",
    "%m [%p] %c %v %x ",
    "%m [%p]: ",
    "%m [%p] ",
    "%t [%p]: ",
    "%t [%p] ",
];

/// In use with syslog, which has the process.
const PREFIXES_WITHOUT_SESSION: &[&str] = &[
    "user=%u,db=%d,app=%a,client=%h ",
    "user=%u,db=%d ",
    "%q%u@%d/%a ",
    "%q%u@%d ",
    "%m ",
    "%t ",
    "",
];
