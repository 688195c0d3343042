//! Mistakes in how pgtoll was called, and in what it was given.

use pgtoll_measure::{ExperimentError, Mistake};
use pgtoll_report::{is_unprintable, printable};

/// An error of how pgtoll was called.
#[derive(Debug)]
pub(crate) struct Usage {
    message: String,
    hint: Option<String>,
}

impl Usage {
    pub(crate) fn error(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        Self { message: message.into(), hint: Some(hint.into()) }.into()
    }

    pub(crate) fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Usage {}

/// An experiment's file that cannot be used: its mistakes are reported one after the other.
#[derive(Debug)]
pub(crate) struct BadExperiment {
    file: String,
    mistakes: Vec<Mistake>,
}

impl std::fmt::Display for BadExperiment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} mistakes", self.file, self.mistakes.len())
    }
}

impl std::error::Error for BadExperiment {}

impl BadExperiment {
    /// As anyhow's, with context where it is not about mistakes in the text.
    pub(crate) fn error(file: &str, error: ExperimentError) -> anyhow::Error {
        match error {
            ExperimentError::Mistakes(mistakes) => Self { file: file.to_owned(), mistakes }.into(),
            other => anyhow::Error::new(other).context(format!("read {file}")),
        }
    }

    /// For each mistake a line that says it, the line of the file with a mark below, and a hint.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.mistakes.iter().flat_map(|mistake| self.lines_of(mistake)).collect()
    }

    fn lines_of(&self, mistake: &Mistake) -> Vec<String> {
        let Mistake { line, column: column_number, width, text, message, hint } = mistake;
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        // A long line is cut to what is around the mistake.
        let skipped = if *column_number > MARGIN { column_number - MARGIN } else { 0 };
        // One column for each character, so that the mark is below the mistake.
        let column = |c: char| if is_unprintable(c) { ' ' } else { c };
        let shown: String = text.chars().skip(skipped).take(SHOWN).map(column).collect();
        let before = column_number - 1 - skipped;
        let mark = "^".repeat((*width).min(SHOWN.saturating_sub(before)).max(1));
        let number = line.to_string();
        let mut lines = vec![
            printable(&format!("pgtoll: {}:{line}:{column_number}: {message}", self.file))
                .into_owned(),
            format!("  {number} | {}", shown.trim_end()),
            format!("  {} | {}{mark}", " ".repeat(number.len()), " ".repeat(before)),
        ];
        lines.extend(hint.as_ref().map(|hint| printable(&format!("hint: {hint}")).into_owned()));
        lines
    }
}

/// Characters of a line that are shown before a mistake, when it stands far to the right.
const MARGIN: usize = 50;
/// Characters of a line that are shown.
const SHOWN: usize = 70;
