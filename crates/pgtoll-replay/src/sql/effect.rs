//! The effect of a query's text.

use std::fmt::Write as _;

use crate::sql::functions::is_harmless;
use crate::sql::keys::{KeyTerm, KeyValue, RowCondition, at_depth_0, condition, value_of};
use crate::sql::lexer::{SqlToken, tokens};

/// The effect of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Transaction control, in the order of the statements.
    pub(crate) control: Vec<Control>,
    /// Rows that are written or locked.
    pub(crate) touches: Vec<RowTouch>,
    /// It may do anything: DDL, functions of unknown effect, what is not understood.
    pub(crate) is_everything: bool,
    /// `COPY … FROM STDIN`, whose data no log has.
    pub(crate) is_copy_in: bool,
    /// The last statement of a two-phase commit.
    pub(crate) two_phase: Option<TwoPhase>,
}

/// A statement of a two-phase commit, with the name of the prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TwoPhase {
    /// `PREPARE TRANSACTION`: from here on no session holds its locks.
    Prepare(String),
    /// `COMMIT PREPARED` or `ROLLBACK PREPARED`, by whatever session.
    Finish(String),
}

/// Transaction control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Begin,
    /// `COMMIT`, `END`, `PREPARE TRANSACTION`.
    Commit,
    Rollback,
    /// `ROLLBACK TO SAVEPOINT`.
    RollbackTo,
}

impl Control {
    /// Whether no block is open behind it.
    pub(crate) fn ends_block(self) -> bool {
        matches!(self, Self::Commit | Self::Rollback)
    }
}

/// Rows of a table that a statement writes or locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowTouch {
    /// The table's name without its schema: two of the same name count as one.
    pub(crate) table: String,
    /// The kind of touch.
    pub(crate) kind: TouchKind,
    /// Columns by which the rows are named.
    pub(crate) terms: Vec<KeyTerm>,
    /// Whether a row is touched depends on other columns, too, or on whether it is there.
    pub(crate) is_conditional: bool,
    /// Columns that are set.
    pub(crate) assigned: Vec<String>,
}

/// How rows are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TouchKind {
    /// Rows that are there are changed or locked.
    Write,
    /// Rows come into being.
    Insert,
}

/// Returns the effect of all statements of a query.
pub(crate) fn effect(sql: &str) -> Effect {
    let tokens = tokens(sql);
    let mut effect = Effect::default();
    for statement in tokens.split(|token| token.is_symbol(";")) {
        add_statement(statement, &mut effect);
    }
    effect
}

/// The query without its values, for reports: two with the same text have the same shape.
pub(crate) fn shape(sql: &str) -> String {
    let mut shape = String::new();
    for token in tokens(sql) {
        if !shape.is_empty() {
            shape.push(' ');
        }
        // Writing to a string does not fail.
        let _ = match token {
            SqlToken::Word(word) => write!(shape, "{word}"),
            SqlToken::Name(name) => write!(shape, "\"{name}\""),
            SqlToken::Text(_)
            | SqlToken::Escaped(_)
            | SqlToken::Number(_)
            | SqlToken::Parameter(_) => write!(shape, "?"),
            SqlToken::Symbol(symbol) => write!(shape, "{symbol}"),
        };
        if shape.len() > SHAPE_BYTES_MAX {
            shape.push_str(" …");
            break;
        }
    }
    shape
}

const SHAPE_BYTES_MAX: usize = 300;

fn add_statement(tokens: &[SqlToken<'_>], effect: &mut Effect) {
    let Some(SqlToken::Word(first)) = tokens.first() else {
        effect.is_everything |= tokens.first().is_some_and(|token| !token.is_symbol("("));
        return;
    };
    let second = |word: &str| tokens.get(1).is_some_and(|token| token.is_word(word));
    match &**first {
        "begin" | "start" => effect.control.push(Control::Begin),
        "commit" | "rollback" if second("prepared") => {
            effect.two_phase = transaction_name(tokens).map(TwoPhase::Finish);
        }
        "commit" | "end" => effect.control.push(Control::Commit),
        "prepare" if second("transaction") => {
            effect.control.push(Control::Commit);
            effect.two_phase = transaction_name(tokens).map(TwoPhase::Prepare);
        }
        "rollback" | "abort" => effect.control.push(rollback(tokens)),
        "savepoint" | "release" | "set" | "show" | "reset" | "discard" | "deallocate"
        | "prepare" | "analyze" | "vacuum" | "checkpoint" | "listen" | "unlisten" | "notify"
        | "fetch" | "move" | "close" | "load" => {}
        "explain" => effect.is_everything |= tokens.iter().any(|token| token.is_word("analyze")),
        "copy" => copy(tokens, effect),
        "select" | "with" | "values" | "table" | "declare" => select(tokens, effect),
        "update" => add(update(tokens), effect),
        "delete" => add(delete(tokens), effect),
        "insert" => add(insert(tokens), effect),
        "create" if second("temp") || second("temporary") => {
            effect.is_everything |= tokens.iter().any(|token| token.is_word("select"));
        }
        _ => effect.is_everything = true,
    }
}

/// The name of a prepared transaction.
fn transaction_name(tokens: &[SqlToken<'_>]) -> Option<String> {
    match tokens.get(2)? {
        SqlToken::Text(name) => Some(name.to_string()),
        SqlToken::Escaped(name) => Some((*name).to_owned()),
        _ => None,
    }
}

/// A touch that is not understood may be anything.
fn add(touch: Option<RowTouch>, effect: &mut Effect) {
    match touch {
        Some(touch) => effect.touches.push(touch),
        None => effect.is_everything = true,
    }
}

fn rollback(tokens: &[SqlToken<'_>]) -> Control {
    let goes_back = tokens.iter().any(|token| token.is_word("to"));
    if goes_back { Control::RollbackTo } else { Control::Rollback }
}

fn copy(tokens: &[SqlToken<'_>], effect: &mut Effect) {
    let direction = at_depth_0(tokens).map(|(_, token)| token);
    let direction =
        direction.filter_map(SqlToken::name).find(|name| *name == "from" || *name == "to");
    let is_stdin = tokens.iter().any(|token| token.is_word("stdin"));
    match direction {
        Some("from") if is_stdin => {
            effect.is_copy_in = true;
            add(copied_rows(tokens), effect);
        }
        Some("to") => effect.is_everything |= !has_only_harmless_calls(tokens),
        _ => effect.is_everything = true,
    }
}

/// The rows that `COPY table …` inserts.
fn copied_rows(tokens: &[SqlToken<'_>]) -> Option<RowTouch> {
    let (table, _) = table(tokens.get(1..)?)?;
    Some(RowTouch {
        table,
        kind: TouchKind::Insert,
        terms: Vec::new(),
        is_conditional: false,
        assigned: Vec::new(),
    })
}

fn select(tokens: &[SqlToken<'_>], effect: &mut Effect) {
    let has = |word: &str| tokens.iter().any(|token| token.is_word(word));
    let writes = ["insert", "delete", "merge", "into"].into_iter().any(has);
    if writes || !has_only_harmless_calls(tokens) {
        effect.is_everything = true;
        return;
    }
    effect.touches.extend(advisory_locks(tokens));
    let locks = tokens.windows(2).any(|pair| {
        let lock = ["update", "share", "no", "key"].into_iter().any(|word| pair[1].is_word(word));
        pair[0].is_word("for") && lock
    });
    if locks {
        add(locked_rows(tokens), effect);
    } else {
        effect.is_everything |= has("update");
    }
}

/// Advisory locks are taken like rows by their keys: the one who wants one waits at the server for the one who has
/// it, be that until a commit or until it is given back.
fn advisory_locks(tokens: &[SqlToken<'_>]) -> impl Iterator<Item = RowTouch> {
    let is_lock = |token: &SqlToken<'_>| ADVISORY_LOCKS.iter().any(|name| token.is_word(name));
    let calls = tokens.iter().enumerate().filter(move |(_, token)| is_lock(token));
    calls.filter_map(|(at, _)| {
        let (arguments, _) = parenthesized(&tokens[at + 1..])?;
        let values: Option<Vec<KeyValue>> =
            arguments.split(|token| token.is_symbol(",")).map(value_of).collect();
        let value = match values.as_deref() {
            Some([value]) => Some(value.clone()),
            Some([KeyValue::Literal(class), KeyValue::Literal(object)]) => {
                Some(KeyValue::Literal(format!("{class},{object}")))
            }
            _ => None,
        };
        let term = |value| KeyTerm { column: "key".to_owned(), values: vec![value] };
        Some(RowTouch {
            // No table is called so.
            table: "advisory locks".to_owned(),
            kind: TouchKind::Write,
            terms: value.map(term).into_iter().collect(),
            is_conditional: false,
            assigned: Vec::new(),
        })
    })
}

const ADVISORY_LOCKS: [&str; 4] = [
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
];
/// Functions that release advisory locks, or do not wait for them.
const ADVISORY_OTHERS: [&str; 7] = [
    "pg_advisory_unlock",
    "pg_advisory_unlock_all",
    "pg_advisory_unlock_shared",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
];

/// `SELECT … FROM table WHERE … FOR UPDATE` of one table.
fn locked_rows(tokens: &[SqlToken<'_>]) -> Option<RowTouch> {
    let has = |word: &str| tokens.iter().any(|token| token.is_word(word));
    let selects = tokens.iter().filter(|token| token.is_word("select")).count();
    if selects != 1 || ["join", "nowait", "skip", "union", "limit", "offset"].into_iter().any(has) {
        return None;
    }
    let from = place(tokens, "from")?;
    let (table, alias_end) = table(&tokens[from + 1..])?;
    let rest = &tokens[from + 1 + alias_end..];
    let end = place(rest, "for")?;
    let end =
        ["order", "group"].into_iter().filter_map(|word| place(rest, word)).fold(end, usize::min);
    let (before, found) = where_of(&rest[..end])?;
    (before == 0).then(|| touch(table, TouchKind::Write, found, Vec::new()))
}

fn update(tokens: &[SqlToken<'_>]) -> Option<RowTouch> {
    let (table, alias_end) = table(&tokens[1..])?;
    let rest = &tokens[1 + alias_end..];
    let body = rest.strip_prefix_word("set")?;
    let body = &body[..place(body, "returning").unwrap_or(body.len())];
    if !is_plain(tokens) || place(body, "from").is_some() {
        return None;
    }
    let (assignments, found) = where_of(body)?;
    let assigned = assigned(&body[..assignments])?;
    Some(touch(table, TouchKind::Write, found, assigned))
}

fn delete(tokens: &[SqlToken<'_>]) -> Option<RowTouch> {
    let body = tokens[1..].strip_prefix_word("from")?;
    let (table, alias_end) = table(body)?;
    let rest = &body[alias_end..];
    let rest = &rest[..place(rest, "returning").unwrap_or(rest.len())];
    let (before, found) = where_of(rest)?;
    (is_plain(tokens) && before == 0).then(|| touch(table, TouchKind::Write, found, Vec::new()))
}

fn insert(tokens: &[SqlToken<'_>]) -> Option<RowTouch> {
    let body = tokens[1..].strip_prefix_word("into")?;
    let (table, alias_end) = table(body)?;
    if !is_plain(tokens) {
        return None;
    }
    let rest = &body[alias_end..];
    let (columns, rest) = parenthesized(rest).map_or((&[][..], rest), |(list, rest)| (list, rest));
    let may_conflict = place(rest, "on").is_some();
    let rows = rows(rest);
    let terms = columns.split(|token| token.is_symbol(",")).enumerate().filter_map(|(at, name)| {
        let values: Option<Vec<_>> =
            rows.iter().map(|row| value_of(row.split(|row| row.is_symbol(",")).nth(at)?)).collect();
        let column = name.first()?.name()?.to_owned();
        values.filter(|values| !values.is_empty()).map(|values| KeyTerm { column, values })
    });
    let has_calls = rows.iter().any(|row| row.iter().any(|token| token.is_symbol("(")));
    let terms = if has_calls { Vec::new() } else { terms.collect() };
    let kind = if may_conflict { TouchKind::Write } else { TouchKind::Insert };
    Some(RowTouch { table, kind, terms, is_conditional: may_conflict, assigned: Vec::new() })
}

/// The rows of `VALUES (…), (…)`.
fn rows<'a, 'b>(tokens: &'a [SqlToken<'b>]) -> Vec<&'a [SqlToken<'b>]> {
    let mut rows = Vec::new();
    let Some(values) = place(tokens, "values") else { return rows };
    let mut rest = &tokens[values + 1..];
    while let Some((row, after)) = parenthesized(rest) {
        rows.push(row);
        match after.first() {
            Some(comma) if comma.is_symbol(",") => rest = &after[1..],
            _ => break,
        }
    }
    rows
}

/// Returns the tokens inside of parentheses, and those behind.
fn parenthesized<'a, 'b>(
    tokens: &'a [SqlToken<'b>],
) -> Option<(&'a [SqlToken<'b>], &'a [SqlToken<'b>])> {
    tokens.first().filter(|token| token.is_symbol("("))?;
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        if token.is_symbol("(") {
            depth += 1;
        } else if token.is_symbol(")") {
            depth -= 1;
            if depth == 0 {
                return Some((&tokens[1..at], &tokens[at + 1..]));
            }
        }
    }
    None
}

fn touch(
    table: String,
    kind: TouchKind,
    found: Option<RowCondition>,
    assigned: Vec<String>,
) -> RowTouch {
    let RowCondition { terms, has_more } =
        found.unwrap_or(RowCondition { terms: Vec::new(), has_more: true });
    RowTouch { table, kind, terms, is_conditional: has_more, assigned }
}

/// How many tokens precede a `WHERE`, and its condition. `None` where it is `CURRENT OF`.
fn where_of(tokens: &[SqlToken<'_>]) -> Option<(usize, Option<RowCondition>)> {
    match place(tokens, "where") {
        None => Some((tokens.len(), None)),
        Some(at) if tokens.get(at + 1).is_some_and(|token| token.is_word("current")) => None,
        Some(at) => Some((at, Some(condition(&tokens[at + 1..])))),
    }
}

/// The columns before the equality signs of a `SET`.
fn assigned(tokens: &[SqlToken<'_>]) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut start = 0;
    let commas = at_depth_0(tokens).filter(|(_, token)| token.is_symbol(",")).map(|(at, _)| at);
    for end in commas.chain([tokens.len()]) {
        match &tokens[start..end] {
            [column, equal, ..] if equal.is_symbol("=") => columns.push(column.name()?.to_owned()),
            _ => return None,
        }
        start = end + 1;
    }
    Some(columns)
}

/// A table's name and alias, and how many tokens they are.
fn table(tokens: &[SqlToken<'_>]) -> Option<(String, usize)> {
    let mut at = usize::from(tokens.first().is_some_and(|token| token.is_word("only")));
    let mut name = tokens.get(at)?.name()?;
    at += 1;
    while tokens.get(at).is_some_and(|token| token.is_symbol(".")) {
        name = tokens.get(at + 1)?.name()?;
        at += 2;
    }
    at += usize::from(tokens.get(at).is_some_and(|token| token.is_symbol("*")));
    if tokens.get(at).is_some_and(|token| token.is_word("as")) {
        at += 2;
    } else if let Some(alias) = tokens.get(at).and_then(SqlToken::name)
        && !NO_ALIASES.contains(&alias)
    {
        at += 1;
    }
    (at <= tokens.len()).then(|| (name.to_owned(), at))
}

const NO_ALIASES: [&str; 13] = [
    "set",
    "where",
    "values",
    "for",
    "order",
    "group",
    "using",
    "default",
    "select",
    "on",
    "returning",
    "overriding",
    "with",
];

/// One statement that reads no other table, and calls nothing of unknown effect.
fn is_plain(tokens: &[SqlToken<'_>]) -> bool {
    let reads = tokens.iter().any(|token| token.is_word("select") || token.is_word("using"));
    !reads && has_only_harmless_calls(tokens)
}

fn has_only_harmless_calls(tokens: &[SqlToken<'_>]) -> bool {
    let begins = |word: &str| tokens.first().is_some_and(|token| token.is_word(word));
    let is_insert = begins("insert");
    let is_select = begins("select");
    let is_advisory = |word: &str| {
        is_select
            && ADVISORY_LOCKS
                .iter()
                .chain(&ADVISORY_OTHERS)
                .any(|advisory_lock| *advisory_lock == word)
    };
    tokens.windows(2).enumerate().all(|(at, pair)| match &pair[0] {
        _ if !pair[1].is_symbol("(") => true,
        // `INSERT INTO table (`, with a schema or without.
        SqlToken::Word(_) | SqlToken::Name(_) if is_insert && at <= 4 => {
            tokens[..=at].iter().any(|token| token.is_word("into"))
                && !tokens[..=at].iter().any(|token| token.is_word("values"))
                || pair[0].is_word("values")
        }
        SqlToken::Word(word) => is_harmless(word) || is_advisory(word),
        SqlToken::Name(_) => false,
        _ => true,
    })
}

/// Returns the place of a key word outside of parentheses.
fn place(tokens: &[SqlToken<'_>], word: &str) -> Option<usize> {
    at_depth_0(tokens).find(|(_, token)| token.is_word(word)).map(|(at, _)| at)
}

trait WordPrefix: Sized {
    fn strip_prefix_word(self, word: &str) -> Option<Self>;
}

impl WordPrefix for &[SqlToken<'_>] {
    fn strip_prefix_word(self, word: &str) -> Option<Self> {
        let (first, rest) = self.split_first()?;
        first.is_word(word).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `table column=value … [conditional]`, or what else the effect is.
    fn check(sql: &str, expected: &str) {
        let Effect { control, touches, is_everything, is_copy_in, two_phase } = effect(sql);
        let touch = |touch: &RowTouch| {
            let terms: Vec<String> = touch
                .terms
                .iter()
                .map(|term| format!(" {}={}", term.column, term.values.len()))
                .collect();
            let kind = if touch.kind == TouchKind::Insert { "insert " } else { "" };
            let conditional = if touch.is_conditional { " if" } else { "" };
            format!("{kind}{}{}{conditional}", touch.table, terms.concat())
        };
        let mut parts: Vec<String> = control.iter().map(|control| format!("{control:?}")).collect();
        parts.extend(touches.iter().map(touch));
        parts.extend(is_everything.then(|| "everything".to_owned()));
        parts.extend(is_copy_in.then(|| "copy".to_owned()));
        parts.extend(two_phase.map(|two_phase| format!("{two_phase:?}")));
        assert_eq!(parts.join("; "), expected, "{sql}");
    }

    #[test]
    fn writes_name_their_rows() {
        check(
            "UPDATE pgbench_accounts SET abalance = abalance + -5 WHERE aid = 7;",
            "pgbench_accounts aid=1",
        );
        check(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 2, 3, 4, CURRENT_TIMESTAMP)",
            "insert pgbench_history tid=1 bid=1 aid=1 delta=1",
        );
        check(
            "update only public.t as x set a = 1, b = lower($2) where x.id = $1 returning a",
            "t id=1",
        );
        check("update t set a = 1 where id = 1 and b > 2", "t id=1 if");
        check("update t set a = 1", "t if");
        check("delete from t where id in (1, 2)", "t id=2");
        check("insert into t values (1)", "insert t");
        check("copy s.t (id) from stdin", "insert t; copy");
        check("insert into s.t (id) values (1), (2)", "insert t id=2");
        check("insert into t (id) values ($1) on conflict do nothing", "t id=1 if");
        check("select * from t where id = 5 for update", "t id=1");
        check("begin; update t set a=1 where id=1; commit", "Begin; Commit; t id=1");
    }

    #[test]
    fn advisory_locks_are_taken_by_their_keys() {
        check("select pg_advisory_lock(1)", "advisory locks key=1");
        check("select pg_advisory_xact_lock($1), 2", "advisory locks key=1");
        check("select pg_advisory_lock_shared(1, 2)", "advisory locks key=1");
        check("select pg_advisory_lock(id) from t", "advisory locks");
        check("select pg_advisory_lock(100 + 1)", "advisory locks");
        check("select pg_advisory_unlock(1)", "");
        check("select pg_try_advisory_lock(1)", "");
        check("select pg_advisory_lock(f(1))", "everything");
    }

    #[test]
    fn prepared_transactions_have_names() {
        check("prepare transaction 'a'", r#"Commit; Prepare("a")"#);
        check("COMMIT PREPARED 'A b'", r#"Finish("A b")"#);
        check("rollback prepared E'a'", r#"Finish("a")"#);
        check("prepare a as select 1", "");
    }

    #[test]
    fn reads_and_control_touch_nothing() {
        for sql in [
            "select count(*) from t",
            "",
            ";",
            "set x = 1",
            "vacuum t",
            "savepoint s",
            "copy t to stdout",
            "with a as (select 1) select * from a",
            "show all",
        ] {
            check(sql, "");
        }
        check("rollback to savepoint s", "RollbackTo");
        check("abort", "Rollback");
        check("end", "Commit");
    }

    #[test]
    fn what_is_unsure_is_everything() {
        for sql in [
            "create table t (id int)",
            "select f(1)",
            "with a as (select pg_advisory_lock(1)) select * from a",
            "update t set a = (select 1) where id = 1",
            "update t set a = f(1) where id = 1",
            "update t set a = u.a from u where t.id = u.id",
            "delete from t using u where t.id = 1",
            "insert into t select * from u",
            "do $$begin end$$",
            "truncate t",
            "lock table t",
            "merge into t using u on true",
            "with a as (delete from t returning 1) select * from a",
            "select * from t join u using (id) for update",
            "execute p(1)",
            "call f()",
            "select * from t where id = 1 for update skip locked",
            "select 1 into x",
            "update t set (a, b) = (1, 2) where id = 1",
            "insert into t (a) values (f(1))",
            "with a as (select 1) update t set a = 1 where id = 1",
        ] {
            check(sql, "everything");
        }
    }

    #[test]
    fn shapes_have_no_values() {
        assert_eq!(
            shape("UPDATE t SET a = 'secret' WHERE id=42"),
            "update t set a = ? where id = ?"
        );
        assert!(!shape("select E'se\\'cret'").contains("cret"));
    }

    proptest! {
        #[test]
        fn no_text_panics(words in prop::collection::vec(prop::sample::select(&[
            "update", "insert", "into", "t", "set", "where", "=", "(", ")", ",", "1", "$1", "values",
            "select", "for", "from", "delete", "and", ".", "as", ";", "in", "::", "copy", "on",
        ][..]), 0..14)) {
            effect(&words.join(" "));
            shape(&words.join(" "));
        }
    }
}
