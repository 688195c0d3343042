//! SQL as tokens. What is not closed ends with the text.

use std::borrow::Cow;

/// A token; comments and white space are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SqlToken<'a> {
    /// A key word or a name without quotes, folded to lower case as the server does.
    Word(Cow<'a, str>),
    /// A name in double quotes.
    Name(Cow<'a, str>),
    /// A string's value.
    Text(Cow<'a, str>),
    /// The text of a string with escapes.
    Escaped(&'a str),
    /// A number.
    Number(&'a str),
    /// `$1` is 1.
    Parameter(usize),
    /// A sequence of operator characters, or a single other one.
    Symbol(&'a str),
}

impl SqlToken<'_> {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found == word)
    }

    pub(crate) fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self, Self::Symbol(found) if *found == symbol)
    }

    /// A name as the server knows it.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Word(name) | Self::Name(name) => Some(name),
            _ => None,
        }
    }
}

/// The text's tokens.
pub(crate) fn tokens(sql: &str) -> Vec<SqlToken<'_>> {
    let mut lexer = Lexer { sql, at: 0 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next_token() {
        tokens.push(token);
    }
    tokens
}

struct Lexer<'a> {
    sql: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.sql[self.at..]
    }

    /// The text up to where `is_part` ends.
    fn take(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn skip_blank(&mut self) {
        loop {
            self.take(char::is_whitespace);
            if self.rest().starts_with("--") {
                self.take(|c| c != '\n');
            } else if self.rest().starts_with("/*") {
                self.skip_comment();
            } else {
                return;
            }
        }
    }

    /// Comments nest.
    fn skip_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            if self.rest().starts_with("/*") {
                depth += 1;
                self.at += 2;
            } else if self.rest().starts_with("*/") {
                depth -= 1;
                self.at += 2;
            } else if let Some(c) = self.rest().chars().next() {
                self.at += c.len_utf8();
            } else {
                return;
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn next_token(&mut self) -> Option<SqlToken<'a>> {
        self.skip_blank();
        let rest = self.rest();
        let first = rest.chars().next()?;
        let second = rest[first.len_utf8()..].chars().next();
        Some(match (first, second) {
            ('\'', _) => SqlToken::Text(self.quoted('\'')),
            ('"', _) => SqlToken::Name(self.quoted('"')),
            ('e' | 'E', Some('\'')) => self.escaped(),
            ('b' | 'B' | 'x' | 'X' | 'n' | 'N', Some('\'')) => {
                self.at += 1;
                SqlToken::Text(self.quoted('\''))
            }
            ('$', Some('0'..='9')) => {
                self.at += 1;
                let digits = self.take(|c| c.is_ascii_digit());
                SqlToken::Parameter(digits.parse().unwrap_or(usize::MAX))
            }
            ('$', _) => self.dollar_quoted(),
            (c, _) if c.is_alphabetic() || c == '_' || !c.is_ascii() => self.word(),
            ('0'..='9', _) | ('.', Some('0'..='9')) => {
                SqlToken::Number(self.take(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_'))
            }
            (c, _) if is_operator(c) => SqlToken::Symbol(self.operator()),
            (c, _) => {
                self.at += c.len_utf8();
                SqlToken::Symbol(&rest[..c.len_utf8()])
            }
        })
    }

    fn word(&mut self) -> SqlToken<'a> {
        let word = self.take(|c| c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii());
        if word.bytes().any(|byte| byte.is_ascii_uppercase()) {
            SqlToken::Word(Cow::Owned(word.to_ascii_lowercase()))
        } else {
            SqlToken::Word(Cow::Borrowed(word))
        }
    }

    /// A comment begins in the middle of operators, too.
    fn operator(&mut self) -> &'a str {
        let rest = self.rest();
        let mut length = rest.find(|c| !is_operator(c)).unwrap_or(rest.len());
        for comment in ["--", "/*"] {
            length = rest[..length].find(comment).filter(|at| *at > 0).unwrap_or(length);
        }
        self.at += length;
        &rest[..length]
    }

    /// The value between quotes, in which a quote is doubled.
    fn quoted(&mut self, quote: char) -> Cow<'a, str> {
        self.at += 1;
        let start = self.at;
        let mut value = Cow::Borrowed("");
        loop {
            let part = self.take(|c| c != quote);
            if value.is_empty() && self.at - part.len() == start {
                value = Cow::Borrowed(part);
            } else {
                value.to_mut().push_str(part);
            }
            if self.rest().is_empty() {
                return value;
            }
            self.at += 1;
            if !self.rest().starts_with(quote) {
                return value;
            }
            self.at += 1;
            value.to_mut().push(quote);
        }
    }

    /// `E'…'`, with backslashes.
    fn escaped(&mut self) -> SqlToken<'a> {
        self.at += 2;
        let start = self.at;
        let mut backslash = false;
        let rest = self.rest();
        for (offset, c) in rest.char_indices() {
            if c == '\'' && !backslash {
                if rest[offset + 1..].starts_with('\'') {
                    backslash = true;
                    continue;
                }
                self.at = start + offset + 1;
                return SqlToken::Escaped(&rest[..offset]);
            }
            backslash = c == '\\' && !backslash;
        }
        self.at = self.sql.len();
        SqlToken::Escaped(rest)
    }

    /// `$tag$ … $tag$`, or a single dollar.
    fn dollar_quoted(&mut self) -> SqlToken<'a> {
        let rest = self.rest();
        let is_tag = |c: char| c.is_alphanumeric() || c == '_' || !c.is_ascii();
        let tag = rest[1..].find(|c| !is_tag(c)).map(|end| &rest[..=end + 1]);
        let Some(tag) = tag.filter(|tag| tag.ends_with('$')) else {
            self.at += 1;
            return SqlToken::Symbol(&rest[..1]);
        };
        let body = &rest[tag.len()..];
        let length = body.find(tag);
        self.at += tag.len() + length.map_or(body.len(), |length| length + tag.len());
        SqlToken::Text(Cow::Borrowed(&body[..length.unwrap_or(body.len())]))
    }
}

fn is_operator(c: char) -> bool {
    "+-*/<>=~!@#%^&|`?:".contains(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotes_comments_and_parameters() {
        let sql =
            "UPDATE \"My\"\"T\" SET a=$1+1.5 -- c\n/* x /* y */ */ WHERE b='it''s'::text;$q$z$q$";
        let expected = [
            SqlToken::Word("update".into()),
            SqlToken::Name("My\"T".into()),
            SqlToken::Word("set".into()),
            SqlToken::Word("a".into()),
            SqlToken::Symbol("="),
            SqlToken::Parameter(1),
            SqlToken::Symbol("+"),
            SqlToken::Number("1.5"),
            SqlToken::Word("where".into()),
            SqlToken::Word("b".into()),
            SqlToken::Symbol("="),
            SqlToken::Text("it's".into()),
            SqlToken::Symbol("::"),
            SqlToken::Word("text".into()),
            SqlToken::Symbol(";"),
            SqlToken::Text("z".into()),
        ];
        assert_eq!(tokens(sql), expected);
        assert_eq!(tokens(r"E'a\'b''c' x").len(), 2);
        assert_eq!(tokens("''"), [SqlToken::Text("".into())]);
    }

    proptest! {
        #[test]
        fn no_text_panics(sql in "[ -~é$\n'\"]{0,60}") {
            for token in tokens(&sql) {
                if let SqlToken::Text(text) = token {
                    prop_assert!(text.len() <= sql.len());
                }
            }
        }
    }
}
