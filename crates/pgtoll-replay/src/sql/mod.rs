//! Effects of a statement on the order of statements, from its text alone.

mod effect;
mod functions;
mod keys;
mod lexer;

pub(crate) use effect::{Control, Effect, RowTouch, TouchKind, TwoPhase, effect, shape};
pub(crate) use functions::volatile_calls;
pub(crate) use keys::{KeyTerm, KeyValue};
pub(crate) use lexer::{SqlToken, tokens};

/// Transaction control in a query.
pub(crate) fn controls(sql: &str) -> Vec<Control> {
    const FIRST: [&str; 7] = ["begin", "start", "commit", "end", "prepare", "rollback", "abort"];
    if may_begin_with(sql, &FIRST) { effect(sql).control } else { Vec::new() }
}

/// An isolation level, by how many snapshots a transaction has and what it is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IsolationLevel {
    /// One for all statements of a transaction (`REPEATABLE READ`, `SERIALIZABLE`).
    pub(crate) has_one_snapshot: bool,
    /// It holds for the session's later transactions too.
    pub(crate) is_of_session: bool,
}

/// The isolation level that a statement sets, if it does.
pub(crate) fn isolation_level(sql: &str) -> Option<IsolationLevel> {
    if !may_begin_with(sql, &["begin", "start", "set"]) {
        return None;
    }
    let tokens = tokens(sql);
    let has = |word: &str| {
        tokens.iter().any(|token| match token {
            // SET default_transaction_isolation = 'repeatable read'
            SqlToken::Text(text) => text.to_ascii_lowercase().contains(word),
            token => token.is_word(word),
        })
    };
    let has_one_snapshot = has("repeatable") || has("serializable");
    let is_of_session = has("characteristics") || has("default_transaction_isolation");
    let says_level = has_one_snapshot || has("committed") || has("uncommitted");
    says_level.then_some(IsolationLevel { has_one_snapshot, is_of_session })
}

/// Whether a setting with which a session begins gives its transactions one snapshot each.
pub(crate) fn sets_one_snapshot(name: &str, value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let is_level = value.contains("repeatable") || value.contains("serializable");
    // `options` is `-c name=value`.
    is_level
        && (name == "default_transaction_isolation"
            || value.contains("default_transaction_isolation"))
}

/// Whether a query takes its transaction's snapshot, if that has one for all statements
/// (`PlannedStmtRequiresSnapshot`).
pub(crate) fn takes_snapshot(sql: &str) -> bool {
    const WITHOUT: [&str; 18] = [
        "begin",
        "start",
        "commit",
        "end",
        "rollback",
        "abort",
        "savepoint",
        "release",
        "set",
        "show",
        "reset",
        "lock",
        "listen",
        "unlisten",
        "notify",
        "checkpoint",
        "discard",
        "deallocate",
    ];
    let first = tokens(sql).into_iter().next();
    has_several(sql) || first.is_some_and(|token| !WITHOUT.iter().any(|word| token.is_word(word)))
}

/// Whether a query has `COPY … FROM STDIN`.
pub(crate) fn is_copy_in(sql: &str) -> bool {
    may_begin_with(sql, &["copy"]) && effect(sql).is_copy_in
}

/// Whether a statement mentions `$1` or so.
pub(crate) fn mentions_parameters(sql: &str) -> bool {
    sql.contains('$') && tokens(sql).iter().any(|token| matches!(token, SqlToken::Parameter(_)))
}

/// Whether a query may have several statements: a semicolon in a string counts too.
fn has_several(sql: &str) -> bool {
    sql.trim_end_matches([';', ' ', '\n']).contains(';')
}

/// Without tokens: most statements are plain, and short of time.
fn may_begin_with(sql: &str, words: &[&str]) -> bool {
    let text = sql.trim_ascii_start();
    let starts =
        |word: &&str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    has_several(text) || text.starts_with(['-', '/']) || words.iter().any(starts)
}

/// Whether a text is one of the statements that do nothing but read and write rows, so that a transaction
/// without an id shows that it wrote none.
pub(crate) fn is_query(sql: &str) -> bool {
    const FIRST: [&str; 6] = ["select", "with", "update", "delete", "insert", "values"];
    let first = tokens(sql.get(..64).unwrap_or(sql)).into_iter().next();
    !has_several(sql) && first.is_some_and(|token| FIRST.iter().any(|word| token.is_word(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolation_levels_are_of_a_transaction_or_of_a_session() {
        let check = |sql: &str, expected: Option<(bool, bool)>| {
            let found = isolation_level(sql).map(|isolation_level| {
                (isolation_level.has_one_snapshot, isolation_level.is_of_session)
            });
            assert_eq!(found, expected, "{sql}");
        };
        check("BEGIN", None);
        check("select 'serializable'", None);
        check("begin isolation level serializable", Some((true, false)));
        check("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", Some((false, false)));
        check("SET default_transaction_isolation = 'repeatable read'", Some((true, true)));
        check(
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            Some((false, true)),
        );
        assert!(sets_one_snapshot("options", "-c default_transaction_isolation=serializable"));
        assert!(sets_one_snapshot("default_transaction_isolation", "repeatable read"));
        assert!(!sets_one_snapshot("application_name", "serializable"));
    }

    #[test]
    fn control_and_settings_take_no_snapshot() {
        for sql in ["BEGIN", "set local x = 1;", "SAVEPOINT a", "LOCK TABLE t", "COMMIT"] {
            assert!(!takes_snapshot(sql), "{sql}");
        }
        for sql in ["select 1", "update t set a = 1", "begin; select 1", "call p()"] {
            assert!(takes_snapshot(sql), "{sql}");
        }
    }
}
