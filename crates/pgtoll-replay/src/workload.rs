//! The work that a log has: sessions, and what each asked for, one thing after the other.

use std::collections::BTreeMap;

use pgtoll_record::{LogCounts, LogSource};
use serde::{Deserialize, Serialize};

use crate::sql::{SqlToken, tokens};
use crate::values::{ParameterValue, UserType, base64_text};

/// A captured workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapturedWorkload {
    /// The sources of the plan, and the parts that were left out.
    pub header: PlanHeader,
    /// In the order of their first entries.
    pub sessions: Vec<CapturedSession>,
    /// In the order in which they began; of a session, one after the other.
    pub steps: Vec<CapturedStep>,
}

impl CapturedWorkload {
    /// The most sessions with a statement that are open at a time.
    pub(crate) fn sessions_open_max(&self) -> u64 {
        let ends = self
            .sessions
            .iter()
            .flat_map(|session| [(session.begin, 1_i64), (session.end + 1, -1)]);
        let mut ends: Vec<(u64, i64)> = ends.collect();
        ends.sort_unstable();
        let open = ends.iter().scan(0_i64, |open, (_, change)| {
            *open += change;
            Some(*open)
        });
        u64::try_from(open.max().unwrap_or_default()).unwrap_or_default()
    }

    /// Puts sessions and steps into their order. `None` where sessions do not have the numbers from 0 on, or
    /// a step has no session.
    pub(crate) fn of_parts(
        header: PlanHeader,
        mut sessions: Vec<(u32, CapturedSession)>,
        mut steps: Vec<CapturedStep>,
    ) -> Option<Self> {
        sessions.sort_by_key(|(number, _)| *number);
        let mut numbers = sessions.iter().zip(0_u32..);
        let is_whole = numbers.all(|((number, _), expected)| *number == expected)
            && steps.iter().all(|step| (step.session as usize) < sessions.len());
        steps.sort_by_key(|step| step.begin);
        let sessions = sessions.into_iter().map(|(_, session)| session).collect();
        is_whole.then_some(Self { header, sessions, steps })
    }
}

/// The sources of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanHeader {
    /// The program's version.
    pub version: String,
    /// When the plan was made.
    pub made: String,
    /// The logs, in the order in which they were read.
    pub sources: Vec<LogSource>,
    /// The first entry's time in microseconds since 1970, by the log's own clock.
    pub begin_us: i64,
    /// From the first entry to the last one, in microseconds.
    pub length_us: u64,
    /// The counts of the logs.
    pub counts: LogCounts,
    /// Values were replaced: the plan has timing, shapes and order alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// By database: the types that users made of which there are parameters, where they could be looked up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<String, Vec<UserType>>,
    /// Other counts of a capture from the protocol; `None` for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireCounts>,
}

/// Other counts of a capture from the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WireCounts {
    /// Sessions that were passed on without being captured: of the replication protocol, or of one that is
    /// not known.
    pub sessions_not_captured: u64,
    /// Sessions that were captured up to a message that the protocol does not have there.
    pub sessions_untracked: u64,
    /// Clients that were let in by no password, and that were not of the capture's own user.
    pub refused: u64,
    /// Clients for whom the server was not reached.
    pub unreached: u64,
    /// Cancel requests that were passed on.
    pub cancel_requests: u64,
    /// Databases in which types that users made could not be looked up: parameters have their numbers alone.
    pub databases_without_types: u64,
}

/// A session of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedSession {
    /// Its role.
    pub user: String,
    /// Its database.
    pub database: String,
    /// `application_name` as the client named itself; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub application_name: String,
    /// Settings with which the client began it, and `options`; empty where that is not known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Microseconds from the first entry to its first.
    pub begin_us: u64,
    /// Microseconds from the first entry to its last, if its end is logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_us: Option<u64>,
    /// The number of its first entry among all.
    pub begin: u64,
    /// The number of its last entry among all.
    pub end: u64,
}

/// The requests of a session at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedStep {
    /// The session's index.
    pub session: u32,
    /// Microseconds from the first entry to its begin.
    pub start_us: u64,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// The number of the entry of its begin among all.
    pub begin: u64,
    /// The number of the entry of its end among all; that of its begin where it is not logged.
    pub end: u64,
    /// The number of the entry that comes between its work and its commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_commit: Option<u64>,
    /// The requested statements.
    pub request: StatementRequest,
    /// The error code that it failed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Whether the transaction had written by its end; `None` where the log does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_written: Option<bool>,
    /// Whether it began in a transaction block; `None` where the log does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_block: Option<bool>,
    /// How many rows it returned or changed; `None` where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Its end was seen behind its commit, so that of two such steps on the same row at the same time it is
    /// not known which came first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_late: bool,
}

/// The requested statements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatementRequest {
    /// A query of the simple protocol, of one or more statements.
    Simple(String),
    /// `COPY … FROM STDIN` with its data.
    Copy {
        /// The query.
        sql: String,
        /// The data, in the format that the query says.
        #[serde(with = "base64_text")]
        data: Vec<u8>,
    },
    /// Executions of the extended protocol with one Sync.
    Extended(Vec<ExecutedStatement>),
    /// The log is incomplete.
    Incomplete {
        /// The statement.
        sql: String,
        /// The missing part.
        reason: IncompleteReason,
    },
}

impl StatementRequest {
    /// Executions of the extended protocol.
    pub(crate) fn executions(&self) -> &[ExecutedStatement] {
        match self {
            Self::Extended(executions) => executions,
            Self::Simple(_) | Self::Copy { .. } | Self::Incomplete { .. } => &[],
        }
    }

    /// The statements' texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self {
            Self::Simple(sql) | Self::Copy { sql, .. } | Self::Incomplete { sql, .. } => {
                (Some(sql.as_str()), &[][..])
            }
            Self::Extended(executions) => (None, executions.as_slice()),
        };
        one.into_iter().chain(several.iter().map(|several| several.sql.as_str()))
    }

    /// Whether it has values, or had some that were redacted.
    pub(crate) fn has_values(&self) -> bool {
        let has_literal = |sql: &str| {
            tokens(sql).iter().any(|token| {
                matches!(token, SqlToken::Text(_) | SqlToken::Escaped(_) | SqlToken::Number(_))
            })
        };
        match self {
            Self::Incomplete { reason, .. } => *reason == IncompleteReason::Redacted,
            Self::Simple(sql) => has_literal(sql),
            Self::Copy { .. } => true,
            Self::Extended(executions) => executions
                .iter()
                .any(|execution| !execution.parameters.is_empty() || has_literal(&execution.sql)),
        }
    }
}

/// Why a statement cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncompleteReason {
    /// `COPY … FROM STDIN`, without its data.
    CopyData,
    /// The parameters are not logged, or cut.
    Parameters,
    /// The statement was removed, since its values could not be told from its words.
    Redacted,
}

/// An execution of the extended protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutedStatement {
    /// The prepared statement's name; empty for the unnamed one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The statement.
    pub sql: String,
    /// The OIDs of the first parameters' types, as the client declared them, 0 of those that it left to the
    /// server. Empty where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<u32>,
    /// The parameters, `None` for NULL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Option<ParameterValue>>,
}
