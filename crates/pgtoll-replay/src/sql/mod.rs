//! What a statement does, as far as the order of statements depends on it, by its text alone.

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

/// Whether a statement says that its transaction has one snapshot for all statements.
pub(crate) fn is_level_of_one_snapshot(sql: &str) -> bool {
    const FIRST: [&str; 3] = ["begin", "start", "set"];
    may_begin_with(sql, &FIRST)
        && tokens(sql)
            .iter()
            .any(|token| token.is_word("repeatable") || token.is_word("serializable"))
}

/// Whether a query takes its transaction's snapshot, if that has one for all statements
/// (`PlannedStmtRequiresSnapshot`).
pub(crate) fn takes_snapshot(sql: &str) -> bool {
    const WITHOUT: [&str; 14] = [
        "begin",
        "start",
        "set",
        "show",
        "reset",
        "savepoint",
        "release",
        "lock",
        "listen",
        "unlisten",
        "notify",
        "checkpoint",
        "discard",
        "deallocate",
    ];
    let several = sql.trim_end_matches([';', ' ', '\n']).contains(';');
    let first = tokens(sql).into_iter().next();
    several || first.is_some_and(|token| !WITHOUT.iter().any(|word| token.is_word(word)))
}

/// Whether a query has `COPY … FROM STDIN`.
pub(crate) fn is_copy_in(sql: &str) -> bool {
    may_begin_with(sql, &["copy"]) && effect(sql).is_copy_in
}

/// Whether a statement mentions `$1` or so.
pub(crate) fn mentions_parameters(sql: &str) -> bool {
    sql.contains('$') && tokens(sql).iter().any(|token| matches!(token, SqlToken::Parameter(_)))
}

/// Without tokens: most statements are plain, and short of time.
fn may_begin_with(sql: &str, words: &[&str]) -> bool {
    let text = sql.trim_ascii_start();
    let several = text.trim_end_matches([';', ' ', '\n']).contains(';');
    let starts =
        |word: &&str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    several || text.starts_with(['-', '/']) || words.iter().any(starts)
}

/// Whether a text is one of the statements that do nothing but read and write rows, so that a transaction
/// without an id shows that it wrote none.
pub(crate) fn is_query(sql: &str) -> bool {
    const FIRST: [&str; 6] = ["select", "with", "update", "delete", "insert", "values"];
    let first = tokens(sql.get(..64).unwrap_or(sql)).into_iter().next();
    let several = sql.trim_end_matches([';', ' ', '\n']).contains(';');
    !several && first.is_some_and(|token| FIRST.iter().any(|word| token.is_word(word)))
}
