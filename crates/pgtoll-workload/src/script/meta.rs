//! Meta commands: what the client does itself.

use std::ops::Range;

use super::{Action, Amount, Capture};
use crate::expression;
use crate::syntax::{SyntaxError, is_name, is_name_byte, space};

/// The kind of a meta command.
pub(super) enum Meta {
    Action(Action),
    /// Captures the result of the statement before.
    Capture(Capture),
}

/// Returns the end of the command at `at`: the end of its line, unless that is continued.
pub(super) fn end(text: &str, at: usize) -> usize {
    let mut from = at;
    while let Some(newline) = text[from..].find('\n').map(|found| from + found) {
        let line = &text[from..newline];
        if !line.strip_suffix('\r').unwrap_or(line).ends_with('\\') {
            return newline;
        }
        from = newline + 1;
    }
    text.len()
}

/// Parses the command of `text[range]`, which begins with the backslash.
pub(super) fn parse(text: &str, range: Range<usize>) -> Result<Meta, SyntaxError> {
    let at = range.start;
    let mut words = Words { text: &text[..range.end], at: at + 1 };
    let name = words.next_here().map_or("", |(_, word)| word);
    let action = match name.to_ascii_lowercase().as_str() {
        "set" => set(text, &mut words)?,
        "if" => Action::If(expression::parse(text, words.at..range.end)?),
        "elif" => Action::ElseIf(expression::parse(text, words.at..range.end)?),
        "else" => Action::Else,
        "endif" => Action::EndIf,
        "sleep" => sleep(&mut words)?,
        "gset" => return capture(words, true),
        "aset" => return capture(words, false),
        unknown => return Err(SyntaxError::new(at, refusal(unknown))),
    };
    match action {
        Action::Else | Action::EndIf | Action::Sleep { .. } => words.end()?,
        _ => {}
    }
    Ok(Meta::Action(action))
}

fn refusal(name: &str) -> String {
    let why = match name {
        "shell" | "setshell" => "what a program costs would be taken for the server's cost",
        "startpipeline" | "syncpipeline" | "endpipeline" => "statements are sent one by one",
        "" => return "a command must follow the backslash".to_owned(),
        _ => return format!("unknown command \\{name}"),
    };
    format!("\\{name} is not supported: {why}")
}

fn set(text: &str, words: &mut Words<'_>) -> Result<Action, SyntaxError> {
    let Some((at, variable)) = words.next() else { return Err(words.missing("variable")) };
    if !is_name(variable) {
        return Err(SyntaxError::new(at, format!("{variable:?} is not a valid variable name")));
    }
    let expression = expression::parse(text, words.at..words.text.len())?;
    Ok(Action::Set { variable: variable.to_owned(), expression })
}

fn sleep(words: &mut Words<'_>) -> Result<Action, SyntaxError> {
    let Some((at, word)) = words.next() else { return Err(words.missing("time")) };
    if let Some(name) = word.strip_prefix(':') {
        if !is_name(name) {
            return Err(SyntaxError::new(at, format!("{name:?} is not a valid variable name")));
        }
        let unit_us = words.next().map_or(Ok(SECOND_US), |(at, word)| unit_us(at, word))?;
        return Ok(Action::Sleep { amount: Amount::Variable(name.to_owned()), unit_us });
    }
    let number = word.strip_prefix('+').unwrap_or(word);
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    let Ok(amount) = number[..digits].parse() else {
        return Err(SyntaxError::new(at, format!("{word:?} is not a time: it must be an integer")));
    };
    // The unit may follow without a space.
    let unit = match &number[digits..] {
        "" => words.next(),
        attached => Some((at + word.len() - attached.len(), attached)),
    };
    let unit_us = unit.map_or(Ok(SECOND_US), |(at, word)| unit_us(at, word))?;
    Ok(Action::Sleep { amount: Amount::Constant(amount), unit_us })
}

fn unit_us(at: usize, word: &str) -> Result<u64, SyntaxError> {
    match word.to_ascii_lowercase().as_str() {
        "us" => Ok(1),
        "ms" => Ok(1000),
        "s" => Ok(SECOND_US),
        _ => Err(SyntaxError::new(at, format!("unit {word:?} is not us, ms or s"))),
    }
}

const SECOND_US: u64 = 1_000_000;

fn capture(mut words: Words<'_>, exactly_one: bool) -> Result<Meta, SyntaxError> {
    let (at, prefix) = words.next().unwrap_or((words.at, ""));
    if !prefix.bytes().all(is_name_byte) {
        return Err(SyntaxError::new(at, format!("no variable's name can begin with {prefix:?}")));
    }
    words.end()?;
    Ok(Meta::Capture(Capture { prefix: prefix.to_owned(), exactly_one }))
}

/// The words of a command, between white space.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<(usize, &'a str)> {
        self.at += space(&self.text[self.at..]);
        self.next_here()
    }

    /// The word that begins right here.
    fn next_here(&mut self) -> Option<(usize, &'a str)> {
        let at = self.at;
        let rest = &self.text[at..];
        let length = rest
            .char_indices()
            .map(|(offset, _)| offset)
            .find(|offset| space(&rest[*offset..]) > 0)
            .unwrap_or(rest.len());
        self.at += length;
        (length > 0).then(|| (at, &rest[..length]))
    }

    fn end(&mut self) -> Result<(), SyntaxError> {
        match self.next() {
            Some((at, word)) => Err(SyntaxError::new(at, format!("unexpected {word:?}"))),
            None => Ok(()),
        }
    }

    fn missing(&self, label: &str) -> SyntaxError {
        SyntaxError::new(self.text.len(), format!("a {label} is missing"))
    }
}
