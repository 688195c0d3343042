//! Server logs: `stderr` with any `log_line_prefix`, `csvlog` and `jsonlog`, as entries.
//!
//! ```
//! use pgtoll_format::log::{LinePrefix, LogFormat, LogMessage, LogReader};
//!
//! let prefix = LinePrefix::parse("%m [%p] ")?;
//! let mut reader = LogReader::new(LogFormat::Stderr(prefix));
//! reader.push(b"2026-11-21 19:46:17.796 UTC [4711] LOG:  statement: select 1\n");
//! reader.finish();
//! let entry = reader.next_entry().expect("an entry")?;
//! assert_eq!(entry.line, 1);
//! assert!(matches!(entry.kind(), LogMessage::Statement { sql: b"select 1" }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Sources: `src/backend/utils/error/{elog,csvlog,jsonlog}.c` of PostgreSQL 15.18 and 18.6. The reader
//! holds one entry at a time, so its memory is bounded by the longest one.

mod csv;
mod detect;
mod entry;
mod envelope;
mod error;
mod json;
mod language;
mod message;
mod parameters;
mod prefix;
mod reader;
mod stderr;
mod time;

pub use detect::detect;
pub use entry::{LogEntry, LogFields, LogSessionId, LogSeverity, SqlState, VirtualXid};
pub use envelope::{Envelope, EnvelopeCounts, EnvelopeReader, LogContent, detect_envelope};
pub use error::LogError;
pub use message::{LogMessage, TimedPhase};
pub use parameters::{ParameterList, parameters};
pub use prefix::{LinePrefix, PrefixError};
pub use reader::{LogFormat, LogReader};
