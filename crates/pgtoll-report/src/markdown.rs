//! A result as Markdown, in GitHub's flavour: for a comment on a change.

use std::fmt::Write as _;

use pgtoll_record::RunResult;

use crate::expectations::sentence;
use crate::terminal::{columns, heading, heading_of, legend, rows_of};

/// The answers, a table for each workload, the notes and the command.
pub fn markdown(result: &RunResult) -> String {
    let heading = heading(result);
    let (title, noise) = heading.trim_end().split_once('\n').unwrap_or((heading.trim_end(), ""));
    let mut text = format!("### {}\n\n", escaped(title));
    for answer in &result.answers {
        let _ = writeln!(text, "- {}", escaped(answer));
    }
    for expected in &result.expected {
        let _ = writeln!(text, "- {}", escaped(&sentence(expected)));
    }
    for note in &result.notes {
        let _ = writeln!(text, "- **note:** {}", escaped(note));
    }
    let titles: Vec<String> = columns(result).map(|(_, title)| title).collect();
    for workload in &result.header.workloads {
        let rows = rows_of(result, workload);
        if !rows.is_empty() {
            let _ = writeln!(text, "\n**{}**\n", escaped(&heading_of(result, workload)));
            text.push_str(&table(&titles, &rows));
        }
    }
    let _ = writeln!(text, "\n{}", escaped(noise));
    let _ = writeln!(text, "\n{}", escaped(&legend(result)));
    let _ = writeln!(text, "\n{}", code(&result.header.command.join(" ")));
    text
}

/// A table whose first column has no title, and whose others are numbers.
pub(crate) fn table(titles: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text =
        line(std::iter::once(String::new()).chain(titles.iter().map(|of| escaped(of))).collect());
    text.push_str("|---|");
    text.push_str(&"--:|".repeat(titles.len()));
    text.push('\n');
    for row in rows {
        let indent = if row[0].starts_with("  ") { "&emsp;" } else { "" };
        let row = row.iter().map(|cell| escaped(cell)).collect();
        text.push_str(&line(row).replacen("| ", &format!("| {indent}"), 1));
    }
    text
}

/// `text` in one line, with nothing in it that Markdown or HTML would take for its own.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '>' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// A block of code, between fences that are longer than any in it.
pub(crate) fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    format!("{fence}sh\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_markdown_is_left_active() {
        assert_eq!(escaped("a|b\n<i>*x*</i> ~ ±1"), "a\\|b &lt;i\\>\\*x\\*&lt;/i\\> \\~ ±1");
        assert_eq!(code("echo ```"), "````sh\necho ```\n````");
    }
}
