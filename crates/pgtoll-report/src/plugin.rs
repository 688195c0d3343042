//! Records as lines for Nagios, Icinga and their relatives.
//!
//! Source: Monitoring Plugins Development Guidelines, "Plugin Output for Nagios" and "Performance data".

use std::fmt::Write as _;

use jiff::Timestamp;
use pgtoll_record::{Conclusion, Status};

use crate::printable::printable;

/// A plugin's status, the one that weighs least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginStatus {
    /// Nothing is wrong.
    #[default]
    Ok,
    /// Not everything could be checked.
    Unknown,
    /// Nothing is damaged yet.
    Warning,
    /// A finding.
    Critical,
}

impl PluginStatus {
    /// The exit status.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => 3,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }

    fn from_conclusion(conclusion: &Conclusion) -> Self {
        match conclusion.status {
            Status::Done => Self::Ok,
            Status::CouldNotTell => Self::Unknown,
            Status::Finding => {
                let is_warning =
                    conclusion.findings.iter().all(|finding| finding.code.is_warning());
                if is_warning { Self::Warning } else { Self::Critical }
            }
        }
    }
}

/// A record's facts in a line for Nagios.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginFacts {
    /// When the record was made.
    pub made: Option<Timestamp>,
    /// Performance data.
    pub figures: Vec<PluginFigure>,
}

/// A number in the performance data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PluginFigure {
    /// Its name: letters and underscores.
    pub label: &'static str,
    /// The number.
    pub value: f64,
    /// `s`, `B`, `%`, or nothing for counts.
    pub unit: &'static str,
}

impl PluginFigure {
    #[expect(clippy::cast_precision_loss, reason = "performance data are decimal numbers")]
    pub(crate) fn count(label: &'static str, count: u64) -> Self {
        Self { label, value: count as f64, unit: "" }
    }

    pub(crate) fn bytes(label: &'static str, bytes: u64) -> Self {
        Self { unit: "B", ..Self::count(label, bytes) }
    }

    pub(crate) fn seconds(label: &'static str, seconds: u64) -> Self {
        Self { unit: "s", ..Self::count(label, seconds) }
    }
}

/// A plugin's one line.
///
/// ```
/// use pgtoll_report::{PluginLine, PluginStatus};
///
/// let mut line = PluginLine::default();
/// line.raise(PluginStatus::Unknown, "no server at a|b");
/// assert_eq!(line.text(), "PGTOLL UNKNOWN: no server at a\u{a6}b\n");
/// assert_eq!(line.status().code(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginLine {
    status: PluginStatus,
    sentences: Vec<String>,
    figures: Vec<PluginFigure>,
}

impl PluginLine {
    /// The findings, else the answer.
    pub(crate) fn new(conclusion: &Conclusion, answer: &[String], check: &PluginFacts) -> Self {
        let findings = conclusion.sentences();
        Self {
            status: PluginStatus::from_conclusion(conclusion),
            sentences: if findings.is_empty() { answer.to_vec() } else { findings },
            figures: check.figures.clone(),
        }
    }

    /// Adds something that makes it at least this status, and names it first.
    pub fn raise(&mut self, status: PluginStatus, sentence: impl Into<String>) {
        self.status = self.status.max(status);
        self.sentences.insert(0, sentence.into());
    }

    /// Gives it the status of the command, where that weighs more than what the line says.
    pub fn settle(&mut self, status: Status) {
        self.status = self.status.max(match status {
            Status::Done => PluginStatus::Ok,
            Status::CouldNotTell => PluginStatus::Unknown,
            Status::Finding => PluginStatus::Warning,
        });
    }

    /// Its status.
    pub fn status(&self) -> PluginStatus {
        self.status
    }

    /// The line.
    pub fn text(&self) -> String {
        let shown: Vec<String> =
            self.sentences.iter().take(SENTENCES).map(|sentence| plain(sentence)).collect();
        let more = match self.sentences.len().saturating_sub(SENTENCES) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let mut text = format!("PGTOLL {}: {}{more}", self.status.word(), shown.join("; "));
        for (number, PluginFigure { label, value, unit }) in self.figures.iter().enumerate() {
            let _ = write!(text, "{}{label}={value}{unit}", if number == 0 { " | " } else { " " });
        }
        text + "\n"
    }
}

/// On one line, without the bar that performance data begin with.
fn plain(sentence: &str) -> String {
    let words: Vec<&str> = sentence.split_whitespace().collect();
    let one_line = words.join(" ").replace('|', "\u{a6}");
    printable(&one_line).chars().take(SENTENCE_CHARACTERS).collect()
}

/// An alert is short.
const SENTENCES: usize = 3;
/// A server of Nagios takes 8 KB.
const SENTENCE_CHARACTERS: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_few_and_short() {
        let mut line = PluginLine::default();
        for number in 0..5 {
            line.raise(PluginStatus::Warning, format!("{number}\n{}", "x".repeat(10_000)));
        }
        let text = line.text();
        assert!(text.starts_with("PGTOLL WARNING: 4 xxx"), "{text}");
        assert!(text.ends_with("x; and 2 more\n") && text.len() < 2000, "{text}");
    }

    #[test]
    fn the_commands_status_counts() {
        let settled = |status| {
            let mut line = PluginLine::default();
            line.settle(status);
            line.status().code()
        };
        let codes = [Status::Done, Status::Finding, Status::CouldNotTell].map(settled);
        assert_eq!(codes, [0, 1, 3]);
    }
}
