//! A script's text, cut into statements and meta commands.

use super::meta::{self, Meta};
use super::{Action, Statement};
use crate::syntax::{SyntaxError, is_name_byte, is_name_start};

/// All commands with where they begin.
pub(super) fn commands(text: &str) -> Result<Vec<(usize, Action)>, SyntaxError> {
    let mut scanner = Scanner { text, at: 0, commands: Vec::new(), open: Open::default() };
    while scanner.at < text.len() {
        scanner.step()?;
    }
    scanner.finish();
    Ok(scanner.commands)
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    commands: Vec<(usize, Action)>,
    open: Open,
}

/// The statement that is being read.
#[derive(Default)]
struct Open {
    begin: Option<usize>,
    sql: String,
    variables: Vec<String>,
    parentheses: usize,
    /// Its first word is one of a statement that reads.
    reads: Option<bool>,
    /// One of its words writes or locks rows.
    writes: bool,
}

impl Scanner<'_> {
    fn step(&mut self) -> Result<(), SyntaxError> {
        let rest = &self.text.as_bytes()[self.at..];
        match rest {
            [b'-', b'-', ..] => {
                let rest = &self.text[self.at..];
                self.at += rest.find('\n').unwrap_or(rest.len());
            }
            [b'/', b'*', ..] => self.comment()?,
            [b'\'', ..] => self.quoted('\'', false)?,
            [b'"', ..] => self.quoted('"', false)?,
            [b'$', ..] => self.dollar()?,
            [b':', ..] => self.colon(),
            [b'\\', b':', ..] => {
                self.at += 1;
                self.copy(1);
            }
            [b'\\', b';', ..] => {
                let why = "every statement is prepared, and that takes one alone";
                return Err(SyntaxError::new(self.at, format!("\\; is not supported: {why}")));
            }
            [b'\\', ..] => self.meta()?,
            [b';', ..] if self.open.parentheses == 0 => {
                self.at += 1;
                self.finish();
            }
            [b'(', ..] => {
                self.open.parentheses += 1;
                self.copy(1);
            }
            [b')', ..] => {
                self.open.parentheses = self.open.parentheses.saturating_sub(1);
                self.copy(1);
            }
            [first, ..] if is_name_start(*first) => self.word()?,
            // A number, with what cannot be told from its end: in `1::int` no variable begins.
            [first, ..] if first.is_ascii() => self.copy(1),
            _ => self.copy(rest.len()),
        }
        Ok(())
    }

    /// Takes this many bytes as they are.
    fn copy(&mut self, length: usize) {
        let taken = &self.text[self.at..self.at + length];
        if self.open.begin.is_none() {
            if taken.trim().is_empty() {
                self.at += length;
                return;
            }
            self.open.begin = Some(self.at);
        }
        self.open.sql.push_str(taken);
        self.at += length;
    }

    fn finish(&mut self) {
        let open = std::mem::take(&mut self.open);
        let Some(begin) = open.begin else { return };
        let sql = open.sql.trim_end().to_owned();
        let writes = open.writes || open.reads != Some(true);
        let statement = Statement { sql, variables: open.variables, capture: None, writes };
        self.commands.push((begin, Action::Execute(statement)));
    }

    fn meta(&mut self) -> Result<(), SyntaxError> {
        self.finish();
        let begin = self.at;
        self.at = meta::end(self.text, begin);
        let capture = match meta::parse(self.text, begin..self.at)? {
            Meta::Action(action) => {
                self.commands.push((begin, action));
                return Ok(());
            }
            Meta::Capture(capture) => capture,
        };
        match self.commands.last_mut() {
            Some((_, Action::Execute(statement))) if statement.capture.is_none() => {
                statement.capture = Some(capture);
                Ok(())
            }
            _ => Err(SyntaxError::new(begin, "no SQL statement precedes this")),
        }
    }

    /// Comments nest.
    fn comment(&mut self) -> Result<(), SyntaxError> {
        let bytes = self.text.as_bytes();
        let mut depth = 0_usize;
        let mut at = self.at;
        loop {
            match &bytes[at..] {
                [b'/', b'*', ..] => {
                    depth += 1;
                    at += 2;
                }
                [b'*', b'/', ..] => {
                    depth -= 1;
                    at += 2;
                    if depth == 0 {
                        break;
                    }
                }
                [_, ..] => at += 1,
                [] => return Err(SyntaxError::new(self.at, "the comment does not end")),
            }
        }
        self.copy(at - self.at);
        Ok(())
    }

    /// A doubled quote is copied as the end of one text and the beginning of the next one, which
    /// makes no difference here.
    fn quoted(&mut self, quote: char, escapes: bool) -> Result<(), SyntaxError> {
        let rest = &self.text[self.at..];
        let mut escaped = false;
        for (offset, character) in rest.char_indices().skip(1) {
            if escaped {
                escaped = false;
            } else if character == '\\' && escapes {
                escaped = true;
            } else if character == quote {
                self.copy(offset + 1);
                return Ok(());
            }
        }
        Err(SyntaxError::new(self.at, "the quotation does not end"))
    }

    fn dollar(&mut self) -> Result<(), SyntaxError> {
        let rest = &self.text[self.at..];
        let tag = rest[1..].bytes().position(|byte| !is_name_byte(byte)).map(|length| length + 1);
        match (rest.as_bytes().get(1), tag) {
            (Some(b'0'..=b'9'), _) => {
                Err(SyntaxError::new(self.at, "parameters are variables, and written :name"))
            }
            (_, Some(tag)) if rest.as_bytes()[tag] == b'$' => {
                let delimiter = &rest[..=tag];
                let Some(end) = rest[delimiter.len()..].find(delimiter) else {
                    return Err(SyntaxError::new(self.at, "the quotation does not end"));
                };
                self.copy(end + 2 * delimiter.len());
                Ok(())
            }
            _ => {
                self.copy(1);
                Ok(())
            }
        }
    }

    fn colon(&mut self) {
        let rest = &self.text[self.at + 1..];
        if rest.starts_with(':') {
            // A cast.
            let colons = rest.bytes().take_while(|byte| *byte == b':').count();
            return self.copy(1 + colons);
        }
        if !rest.bytes().next().is_some_and(is_name_start) {
            return self.copy(1);
        }
        let length = rest.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(rest.len());
        self.open.begin.get_or_insert(self.at);
        self.open.variables.push(rest[..length].to_owned());
        self.open.sql.push('$');
        self.open.sql.push_str(&self.open.variables.len().to_string());
        self.at += 1 + length;
    }

    /// Words are taken whole, as dollars belong to them.
    fn word(&mut self) -> Result<(), SyntaxError> {
        let rest = &self.text[self.at..];
        let length =
            rest.bytes().position(|byte| !is_name_byte(byte) && byte != b'$').unwrap_or(rest.len());
        let word = &rest[..length];
        let is = |keyword: &&str| word.eq_ignore_ascii_case(keyword);
        self.open.reads.get_or_insert_with(|| READING.iter().any(is));
        self.open.writes |= WRITING.iter().any(is);
        let escapes = word.eq_ignore_ascii_case("e") && rest[length..].starts_with('\'');
        self.copy(length);
        if escapes {
            self.quoted('\'', true)?;
        }
        Ok(())
    }
}

/// First words of statements that read, or that only begin or end something.
const READING: [&str; 20] = [
    "abort",
    "begin",
    "close",
    "commit",
    "deallocate",
    "declare",
    "end",
    "fetch",
    "move",
    "release",
    "reset",
    "rollback",
    "savepoint",
    "select",
    "set",
    "show",
    "start",
    "table",
    "values",
    "with",
];

/// Words that write or lock rows, wherever they stand in such a statement.
const WRITING: [&str; 7] = ["delete", "insert", "into", "merge", "prepared", "share", "update"];
