//! The rows that a condition names.

use crate::sql::lexer::SqlToken;

/// A column that is compared with values, of which a row has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyTerm {
    pub(crate) column: String,
    pub(crate) values: Vec<KeyValue>,
}

/// A value in a statement's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyValue {
    /// As text: `1` and `'1'` are the same.
    Literal(String),
    /// A parameter's number, from 1.
    Parameter(usize),
}

/// A `WHERE` as far as it names rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowCondition {
    /// Terms of the form `column = value` or `column IN (value, …)`, all of which hold.
    pub(crate) terms: Vec<KeyTerm>,
    /// There are other terms.
    pub(crate) has_more: bool,
}

/// Reads the tokens behind `WHERE`.
pub(crate) fn condition(tokens: &[SqlToken<'_>]) -> RowCondition {
    if at_depth_0(tokens).any(|(_, token)| token.is_word("or")) {
        return RowCondition { terms: Vec::new(), has_more: true };
    }
    let mut condition = RowCondition::default();
    let mut start = 0;
    let ands: Vec<usize> =
        at_depth_0(tokens).filter(|(_, token)| token.is_word("and")).map(|(at, _)| at).collect();
    for end in ands.into_iter().chain([tokens.len()]) {
        match term(&tokens[start..end]) {
            Some(term) => condition.terms.push(term),
            None => condition.has_more = true,
        }
        start = end + 1;
    }
    condition
}

/// The tokens that no parenthesis encloses, with their places.
pub(crate) fn at_depth_0<'a, 'b>(
    tokens: &'a [SqlToken<'b>],
) -> impl Iterator<Item = (usize, &'a SqlToken<'b>)> {
    let mut depth = 0_i32;
    tokens.iter().enumerate().filter(move |(_, token)| {
        if token.is_symbol("(") || token.is_symbol("[") {
            depth += 1;
            return depth == 1;
        }
        if token.is_symbol(")") || token.is_symbol("]") {
            depth -= 1;
        }
        depth == 0
    })
}

fn term(tokens: &[SqlToken<'_>]) -> Option<KeyTerm> {
    if let [inner @ .., last] = tokens
        && let [first, inner @ ..] = inner
        && first.is_symbol("(")
        && last.is_symbol(")")
        && !inner.iter().any(|token| token.is_symbol("(") || token.is_symbol(")"))
        && !inner.iter().any(|token| token.is_word("or") || token.is_word("and"))
    {
        return term(inner);
    }
    if let Some((column, [equal, value @ ..])) = column(tokens) {
        if equal.is_symbol("=") {
            return Some(KeyTerm { column, values: vec![value_of(value)?] });
        }
        if equal.is_word("in") {
            return Some(KeyTerm { column, values: list(value)? });
        }
    }
    let equal = tokens.iter().position(|token| token.is_symbol("="))?;
    let (column, []) = column(&tokens[equal + 1..])? else { return None };
    Some(KeyTerm { column, values: vec![value_of(&tokens[..equal])?] })
}

/// A column, with or without its table, and what follows it.
fn column<'a, 'b>(tokens: &'a [SqlToken<'b>]) -> Option<(String, &'a [SqlToken<'b>])> {
    let mut name = tokens.first()?.name()?;
    let mut rest = &tokens[1..];
    while let [dot, next, after @ ..] = rest
        && dot.is_symbol(".")
    {
        (name, rest) = (next.name()?, after);
    }
    Some((name.to_owned(), rest))
}

/// `(1, 2, $3)`.
fn list(tokens: &[SqlToken<'_>]) -> Option<Vec<KeyValue>> {
    let [first, inner @ .., last] = tokens else { return None };
    if !first.is_symbol("(") || !last.is_symbol(")") {
        return None;
    }
    inner.split(|token| token.is_symbol(",")).map(value_of).collect()
}

/// A literal or parameter, with or without a cast.
pub(crate) fn value_of(tokens: &[SqlToken<'_>]) -> Option<KeyValue> {
    let (value, rest) = match tokens {
        [sign, SqlToken::Number(number), rest @ ..] if sign.is_symbol("-") => {
            (KeyValue::Literal(format!("-{number}")), rest)
        }
        [SqlToken::Number(number), rest @ ..] => (KeyValue::Literal((*number).to_owned()), rest),
        [SqlToken::Text(text), rest @ ..] => (KeyValue::Literal(text.to_string()), rest),
        [SqlToken::Parameter(number), rest @ ..] => (KeyValue::Parameter(*number), rest),
        [SqlToken::Word(word), rest @ ..] if word == "true" || word == "false" => {
            (KeyValue::Literal(word.to_string()), rest)
        }
        _ => return None,
    };
    let is_cast = match rest {
        [] => true,
        [cast, types @ ..] if cast.is_symbol("::") => {
            !types.is_empty() && types.iter().all(|token| token.name().is_some())
        }
        _ => false,
    };
    is_cast.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::lexer::tokens;

    #[test]
    fn conditions_name_rows_where_they_do() {
        let check = |text: &str, expected: &[(&str, &str)], has_more| {
            let found = condition(&tokens(text));
            let value = |value: &KeyValue| match value {
                KeyValue::Literal(text) => text.clone(),
                KeyValue::Parameter(number) => format!("${number}"),
            };
            let term = |term: &KeyTerm| {
                (term.column.clone(), term.values.iter().map(value).collect::<Vec<_>>().join(","))
            };
            let terms: Vec<_> = found.terms.iter().map(term).collect();
            let expected: Vec<_> =
                expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            assert_eq!((terms, found.has_more), (expected, has_more), "{text}");
        };
        check("id = 1", &[("id", "1")], false);
        check("t.id = $1::bigint AND (b = 'x')", &[("id", "$1"), ("b", "x")], false);
        check("-5 = id and v > 5", &[("id", "-5")], true);
        check("id in (1, $2)", &[("id", "1,$2")], false);
        check("id = 1 or id = 2", &[], true);
        check("id = (select 1)", &[], true);
        check("id = b", &[], true);
        check("id = 1 + 1", &[], true);
        check("", &[], true);
    }
}
