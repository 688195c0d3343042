//! Scripts: what a transaction does.

mod meta;
mod sql;

use std::sync::Arc;

use crate::built_in::BUILT_IN;
use crate::expression::Expression;
use crate::syntax::SyntaxError;

/// A script of pgbench's language: what a transaction does. Cheap to clone.
///
/// The language is that of `pgbench -M prepared`, PostgreSQL 18, with these differences:
///
/// * `\shell`, `\setshell`, the pipeline commands and `\;` are refused, and so is `$1`: parameters
///   are variables.
/// * A variable that nothing has set is an error where pgbench sends a null, and `NULL` is sent as
///   a null where pgbench sends the word.
/// * `:name` within quotes and comments is not a variable. pgbench takes it for one, and then the
///   server refuses the statement.
/// * Every statement ends at its semicolon, also in a function's body in SQL-standard form.
/// * `\sleep` takes no negative constant, and a null that `\gset` gets is a null, no empty text.
#[derive(Clone, Debug)]
pub struct Script(Arc<Parsed>);

#[derive(Debug)]
struct Parsed {
    name: String,
    text: String,
    commands: Vec<Command>,
    built_in: bool,
}

/// A command of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Command {
    /// Its start, from 1.
    pub(crate) line: usize,
    pub(crate) action: Action,
}

/// The action of a command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Execute(Statement),
    Set { variable: String, expression: Expression<String> },
    Sleep { amount: Amount, unit_us: u64 },
    If(Expression<String>),
    ElseIf(Expression<String>),
    Else,
    EndIf,
}

/// A statement of SQL.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statement {
    /// With `$1` for the first variable, and so on.
    pub(crate) sql: String,
    /// One for each use, as a variable can stand for values of different types.
    pub(crate) variables: Vec<String>,
    pub(crate) capture: Option<Capture>,
    pub(crate) writes: bool,
}

/// That a statement's result goes to variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capture {
    /// The prefix of the columns' names.
    pub(crate) prefix: String,
    /// `\gset`: there must be one row. `\aset` takes the last one, if any.
    pub(crate) exactly_one: bool,
}

/// How long to sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    Constant(u64),
    Variable(String),
}

impl Script {
    /// Reads a script. `name` stands for it in messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScriptError> {
        Self::read(name, text, false)
    }

    /// The built-in script of this name, see [`BUILT_IN`].
    pub fn built_in(name: &str) -> Option<Self> {
        let (name, text) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name)?;
        // A test reads all of them.
        Self::read(name, text, true).ok()
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The summary of the WAL that was read.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// It works on pgbench's tables, and says so when it finds others.
    pub fn is_built_in(&self) -> bool {
        self.0.built_in
    }

    /// Whether it may change data: `false` only if every statement is of a kind that reads, or
    /// begins or ends a transaction, and has no word in it that writes or locks rows (`INSERT`,
    /// `UPDATE`, `SHARE`, `INTO`, …).
    ///
    /// That looks at words alone: a function that writes deceives it.
    pub fn writes(&self) -> bool {
        self.statements().any(|statement| statement.writes)
    }

    /// The statements in the order of the text, with `$1` for the first variable of each.
    pub fn sql(&self) -> impl Iterator<Item = &str> {
        self.statements().map(|statement| statement.sql.as_str())
    }

    pub(crate) fn commands(&self) -> &[Command] {
        &self.0.commands
    }

    fn statements(&self) -> impl Iterator<Item = &Statement> {
        self.0.commands.iter().filter_map(|command| match &command.action {
            Action::Execute(statement) => Some(statement),
            _ => None,
        })
    }

    fn read(name: &str, text: &str, built_in: bool) -> Result<Self, ScriptError> {
        let commands = sql::commands(text).and_then(|found| {
            check_conditions(&found)?;
            if found.is_empty() {
                return Err(SyntaxError::new(0, "unknown command"));
            }
            Ok(found)
        });
        let commands = commands.map_err(|error| script_error(error, name, text))?;
        let commands = commands
            .into_iter()
            .map(|(at, action)| Command { line: position(text, at).0, action })
            .collect();
        Ok(Self(Arc::new(Parsed {
            name: name.to_owned(),
            text: text.to_owned(),
            commands,
            built_in,
        })))
    }
}

/// A text is not a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{script}, line {line}, column {column}: {message}")]
#[non_exhaustive]
pub struct ScriptError {
    /// The script.
    pub script: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The message about the mistake.
    pub message: String,
}

fn script_error(SyntaxError { at, message }: SyntaxError, script: &str, text: &str) -> ScriptError {
    let (line, column) = position(text, at);
    ScriptError { script: script.to_owned(), line, column, message }
}

/// Line and column of a byte.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// `\if` and the like belong together.
fn check_conditions(commands: &[(usize, Action)]) -> Result<(), SyntaxError> {
    // Where the open ones began, and whether they had an `\else`.
    let mut open: Vec<(usize, bool)> = Vec::new();
    for (at, action) in commands {
        let wrong = |message: &str| Err(SyntaxError::new(*at, message));
        match action {
            Action::If(_) => open.push((*at, false)),
            Action::ElseIf(_) => match open.last() {
                None => return wrong("\\elif without \\if"),
                Some((_, true)) => return wrong("\\elif after \\else"),
                Some((_, false)) => {}
            },
            Action::Else => match open.last_mut() {
                None => return wrong("\\else without \\if"),
                Some((_, true)) => return wrong("\\else after \\else"),
                Some((_, seen)) => *seen = true,
            },
            Action::EndIf if open.pop().is_none() => return wrong("\\endif without \\if"),
            _ => {}
        }
    }
    match open.pop() {
        Some((at, _)) => Err(SyntaxError::new(at, "\\if without \\endif")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
