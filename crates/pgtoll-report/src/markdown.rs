//! A result as Markdown, in GitHub's flavour: for a comment on a change.

use std::fmt::Write as _;

use pgtoll_format::ByteSize;
use pgtoll_record::{Expectation, Expected, Host, RunResult};

use crate::answer::{advice, arms, place};
use crate::cells::{blocks_of, columns, interval};
use crate::circumstances::{noise, servers, subject};
use crate::expectations::{bounds, claim, describe, explained, figure, found, link};
use crate::ladder::{TITLE, ladders};
use crate::printable::{printable, printable_lines};
use crate::terminal::legend;

/// The answers, the claims, a table for each workload, the notes and the command.
pub fn markdown(result: &RunResult) -> String {
    let mut text = markdown_section(result);
    let _ = writeln!(text, "\n{}", escaped(&legend(result)));
    let _ = writeln!(text, "\n{}", code(&result.header.command.join(" ")));
    text
}

/// The same without how to read it and how to make it again: one of many in a chapter.
pub fn markdown_section(result: &RunResult) -> String {
    let mut text = format!("### {}\n\n", escaped(&subject(result)));
    text.push_str(&answer(result));
    for note in &result.notes {
        let _ = writeln!(text, "- **note:** {}", escaped(note));
    }
    text.push_str(&claims(&result.expected));
    let titles: Vec<String> = columns(result).map(|(_, title)| title).collect();
    for workload in &result.header.workloads {
        for (title, rows) in blocks_of(result, workload) {
            let _ = writeln!(text, "\n**{}**\n", escaped(title.trim()));
            text.push_str(&if rows.is_empty() { String::new() } else { table(&titles, &rows) });
        }
    }
    for (index, item) in ladders(result, interval).iter().enumerate() {
        let title =
            if index == 0 { format!("{TITLE}; {}", item.title) } else { item.title.clone() };
        let _ = writeln!(text, "\n**{}**\n", escaped(&title));
        text.push_str(&table(&item.head, &item.rows));
    }
    let _ = writeln!(text, "\n{}", escaped(&machine(&result.header.host)));
    for line in [Some(servers(result)), noise(result)].into_iter().flatten() {
        let _ = writeln!(text, "\n{}", escaped(&line));
    }
    text
}

/// A line for each result: what it found, with a link to its [section](markdown_section), beside
/// what was published and whether that holds here.
pub fn markdown_costs(results: &[RunResult]) -> String {
    let mut text = "| experiment | cost here | published | the published figure here |\n\
                    |---|---|---|---|\n"
        .to_owned();
    for result in results {
        let headline =
            result.answer.as_ref().map_or("nothing was compared", |answer| &answer.headline);
        let (published, outcome) = published(&result.expected);
        let subject = subject(result);
        let _ = writeln!(
            text,
            "| [{}](#{}) | {} | {published} | {outcome} |",
            escaped(&subject),
            anchor(&subject),
            escaped(headline),
        );
    }
    text
}

/// The first claim that was published, with its source and how many more there are; and what came
/// of it.
fn published(claims: &[Expected]) -> (String, String) {
    let mut published = claims.iter().filter(|claim| claim.expectation.claim.is_some());
    let Some(first) = published.next() else { return ("–".to_owned(), "–".to_owned()) };
    let expectation = &first.expectation;
    let more = match published.count() {
        0 => String::new(),
        more => format!("; {more} more below"),
    };
    let found = found(first).map(|found| format!(": {}", escaped(&found))).unwrap_or_default();
    (
        format!("{} ({}){more}", escaped(&claim(expectation)), source(expectation)),
        format!("**{}**{found}", describe(first.outcome)),
    )
}

/// Returns the anchor of a heading in the book.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The sentence, a line for each arm and workload, what decides and what would make it surer.
fn answer(result: &RunResult) -> String {
    let Some(answer) = &result.answer else { return String::new() };
    let mut text = format!("**{}**", escaped(&answer.headline));
    if let Some(advice) = advice(answer) {
        let _ = write!(text, " **{}**", escaped(&advice));
    }
    text.push_str("\n\n");
    for (title, lines) in arms(result, answer) {
        let _ = writeln!(text, "- {}", escaped(&title));
        for line in lines {
            let output = format!("{}, {}", line.figure, place(answer, line));
            let _ = writeln!(text, "  - {}", escaped(&output));
        }
    }
    let reasons = [
        ("decides", answer.decides.as_ref()),
        ("rule", answer.advice.as_ref().map(|advice| &advice.rule)),
        ("surer", answer.surer.as_ref()),
    ];
    for (name, reason) in reasons {
        if let Some(reason) = reason {
            let _ = writeln!(text, "- **{name}:** {}", escaped(reason));
        }
    }
    text
}

fn machine(host: &Host) -> String {
    let memory = ByteSize(host.memory_bytes).rounded();
    // Its mount options are in the record.
    let disk = host.file_system.split(" (").next().unwrap_or_default();
    format!(
        "machine: {} with {} CPUs, {memory} of memory, {disk}, {}",
        host.cpu, host.cores, host.kernel
    )
}

/// A row for each claim; nothing where there is none.
fn claims(expecteds: &[Expected]) -> String {
    if expecteds.is_empty() {
        return String::new();
    }
    let mut text =
        "\n| claim | outcome | expected | found | source |\n|---|---|---|---|---|\n".to_owned();
    for claimed in expecteds {
        let expectation = &claimed.expectation;
        let about = expectation.claim.as_ref().map(|_| format!("({})", figure(expectation)));
        let explained = explained(claimed).map(|why| format!(". {why}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "| {}{} | **{}**{} | {} | {} | {} |",
            escaped(&claim(expectation)),
            about.map(|about| format!(" {}", escaped(&about))).unwrap_or_default(),
            describe(claimed.outcome),
            escaped(&explained),
            escaped(&bounds(expectation)),
            escaped(&found(claimed).unwrap_or_else(|| "–".to_owned())),
            source(expectation)
        );
    }
    text
}

/// A link where it is one.
fn source(expectation: &Expectation) -> String {
    let source = escaped(&expectation.source);
    match link(expectation) {
        Some(url) if !url.contains(['<', '>', '|', '\\']) && !url.contains(char::is_whitespace) => {
            format!("[{source}](<{url}>)")
        }
        _ => source,
    }
}

/// A table whose first column has no title, and whose others are numbers.
pub(crate) fn table(titles: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(
        std::iter::once(String::new()).chain(titles.iter().map(|title| escaped(title))).collect(),
    );
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

/// `text` in one line, with nothing in it that a terminal, Markdown or HTML would take for its own.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for c in printable(&one_line).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '>' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// A shell's command in a block.
pub(crate) fn code(text: &str) -> String {
    code_in("sh", &printable(text))
}

/// A block of code, between fences that are longer than any in it.
pub(crate) fn code_in(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    let text = printable_lines(text);
    format!("{fence}{language}\n{text}\n{fence}")
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
