//! A plan without the values of its log: timing, shapes and order alone.
//!
//! Each literal and parameter is replaced by a pseudonym: a keyed hash, whose key is random and thrown away.
//! The same value has the same pseudonym within a plan, since the order of statements is that of the rows that
//! they name; so a reader learns which statements named the same values, and how often.

use std::fmt::Write as _;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::capture::CapturedPart;
use crate::order::normal;
use crate::sql::{SqlToken, tokens};
use crate::values::ParameterValue;
use crate::workload::{CapturedStep, ExecutedStatement, IncompleteReason, StatementRequest};

/// Replaces the values of a plan.
#[derive(Debug, Default)]
pub struct Redactor {
    /// `SipHash` with random keys.
    key: RandomState,
}

impl Redactor {
    /// One with a new key: pseudonyms of two plans have nothing in common.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces all values of the steps, and removes sessions' settings. Names stay: of roles, databases, tables and columns.
    pub fn redact(&self, part: &mut CapturedPart) {
        for step in &mut part.steps {
            self.redact_step(step);
        }
        for (_, session) in &mut part.sessions {
            session.settings.clear();
        }
    }

    fn redact_step(&self, step: &mut CapturedStep) {
        // What is no SQL may be anything, such as a password at the wrong prompt.
        let is_syntax_error = step.failed.as_deref() == Some(SYNTAX_ERROR);
        let removed =
            StatementRequest::Incomplete { sql: String::new(), reason: IncompleteReason::Redacted };
        if is_syntax_error || !step.request.texts().all(is_certain) {
            step.request = removed;
            return;
        }
        match &mut step.request {
            StatementRequest::Copy { sql, .. } => {
                let sql = self.text(sql);
                let reason = IncompleteReason::CopyData;
                step.request = StatementRequest::Incomplete { sql, reason };
            }
            StatementRequest::Simple(sql) | StatementRequest::Incomplete { sql, .. } => {
                *sql = self.text(sql);
            }
            StatementRequest::Extended(executions) => {
                for execution in executions {
                    self.redact_execution(execution);
                }
            }
        }
    }

    fn redact_execution(&self, execution: &mut ExecutedStatement) {
        execution.sql = self.text(&execution.sql);
        if !execution.name.is_empty() {
            execution.name = format!("s{}", self.digits(&execution.name));
        }
        for value in execution.parameters.iter_mut().flatten() {
            let pseudonym = match (value.text(), &*value) {
                (Some(text), _) => self.pseudonym(&text),
                (None, value) => self.digits(value),
            };
            *value = ParameterValue::Text(pseudonym);
        }
    }

    /// The statement with pseudonyms, without comments.
    fn text(&self, sql: &str) -> String {
        let mut text = String::with_capacity(sql.len());
        for token in tokens(sql) {
            if !text.is_empty() {
                text.push(' ');
            }
            // Writing to a string does not fail.
            let _ = match token {
                SqlToken::Word(word) => write!(text, "{word}"),
                SqlToken::Name(name) => write!(text, "\"{}\"", name.replace('"', "\"\"")),
                SqlToken::Text(value) => write!(text, "'{}'", self.pseudonym(&value)),
                SqlToken::Escaped(value) => write!(text, "'{}'", self.pseudonym(value)),
                SqlToken::Number(value) => write!(text, "{}", self.pseudonym(value)),
                SqlToken::Parameter(number) => write!(text, "${number}"),
                SqlToken::Symbol(symbol) => write!(text, "{symbol}"),
            };
        }
        text
    }

    /// `1`, `'1'` and a parameter 1 name the same row, and `-1` is a sign and a number.
    fn pseudonym(&self, value: &str) -> String {
        let value = normal(value);
        match value.strip_prefix('-').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            Some(positive) => format!("-{}", self.digits(positive)),
            None => self.digits(&value),
        }
    }

    /// As many as a `bigint` has at least.
    fn digits(&self, value: impl Hash) -> String {
        (self.key.hash_one(value) % 1_000_000_000_000_000).to_string()
    }
}

/// Whether values can be told from words whatever `standard_conforming_strings` is: a backslash before a quote
/// may end the string or not.
fn is_certain(sql: &str) -> bool {
    !sql.contains('\\')
}

const SYNTAX_ERROR: &str = "42601";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::TableFacts;
    use crate::order::{OrderMode, order};
    use crate::transactions::{ReplayTransactions, Treatment};
    use crate::workload::CapturedWorkload;
    use crate::{LogInput, LogReading, read_logs};

    fn read(log: &str) -> CapturedWorkload {
        let input = LogInput { name: "log".to_owned(), content: Box::new(log.as_bytes()) };
        read_logs([input], &LogReading::default(), |_| {}).unwrap()
    }

    fn redacted(workload: &CapturedWorkload) -> CapturedWorkload {
        let mut part = CapturedPart { sessions: Vec::new(), steps: workload.steps.clone() };
        Redactor::new().redact(&mut part);
        let mut redacted = CapturedWorkload { steps: part.steps, ..workload.clone() };
        redacted.header.redacted = true;
        redacted
    }

    #[test]
    fn no_value_is_left() {
        let redactor = Redactor::new();
        let sql = "UPDATE \"a\"\"b\" SET c = 'secret''s' /* secret */, d = E'secret', e = $q$secret$q$ \
                   WHERE id = 12345678 AND f = $1 -- secret";
        let text = redactor.text(sql);
        assert!(!text.contains("secret") && !text.contains("12345678"), "{text}");
        let before = "update \"a\"\"b\" set c = '";
        let after = "and f = $1";
        assert!(text.starts_with(before) && text.ends_with(after), "{text}");
        for (sql, failed) in [("select 'a\\' || secret || 'b'", None), ("secret", Some("42601"))] {
            let log = format!("2026-11-21 19:46:17.000 UTC [7] LOG:  statement: {sql}\n");
            let mut workload = read(&log);
            workload.steps[0].failed = failed.map(str::to_owned);
            let text = format!("{:?}", redacted(&workload).steps);
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn the_same_row_is_the_same_row() {
        let redactor = Redactor::new();
        let same = |one: &str, other: &str| {
            let keys = |value: &str| normal(&redactor.pseudonym(value));
            keys(one) == keys(other)
        };
        assert!(same("7", "07") && same("a ", "A") && same("-7", "-7"));
        assert!(!same("7", "8") && !same("7", "-7") && !same("a", "b"));
        assert_eq!(redactor.text("-7"), redactor.pseudonym("-7").replace('-', "- "));
        assert_ne!(Redactor::new().pseudonym("7"), redactor.pseudonym("7"));
    }

    #[test]
    fn the_order_is_that_of_the_log() {
        for log in [
            include_str!("../tests/server-logs/zoo15.csv"),
            include_str!("../tests/server-logs/zoo18.json"),
        ] {
            let workload = read(log);
            let redacted = redacted(&workload);
            let ordered = |workload: &CapturedWorkload| {
                let transactions = ReplayTransactions::from_workload(workload);
                let facts = TableFacts::default();
                let order = order(workload, &transactions, &facts, OrderMode::Key);
                (order.predecessors, order.edges, transactions.of_step)
            };
            assert_eq!(ordered(&redacted), ordered(&workload));
            let treatment = ReplayTransactions::from_workload(&redacted).treatment;
            for (step, treatment) in redacted.steps.iter().zip(treatment) {
                let is_executed = treatment == Treatment::Execute;
                assert!(!is_executed || !step.request.has_values(), "{step:?}");
            }
        }
    }
}
