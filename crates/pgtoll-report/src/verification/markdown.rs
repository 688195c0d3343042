//! What verification found, as Markdown in GitHub's flavour.

use std::fmt::Write as _;

use pgtoll_record::{Advice, CommandKind, VerificationRecord, VerifiedRelation};

use super::{
    amount_words, blocks, checksum, class, coverage_beside_findings, more_findings, place,
    qualified, running_words, severity, source_words, verdict,
};
use crate::markdown::{code, code_in, escaped};

/// The verdict of each, then what is wrong by relation, with what to do.
pub(crate) fn verification_markdown(records: &[VerificationRecord]) -> String {
    records.iter().map(section).collect::<Vec<_>>().join("\n")
}

/// Findings of a relation, relations and files that are shown; JSON has more.
const MOST: usize = 50;

fn section(of: &VerificationRecord) -> String {
    let mut text = format!("### {}\n\n", escaped(&of.source.path));
    let _ = writeln!(text, "**{}**\n", escaped(&verdict(of)));
    for reason in &of.incomplete {
        let _ = writeln!(text, "- {}", escaped(reason));
    }
    if let Some(words) = coverage_beside_findings(of) {
        let _ = writeln!(text, "- {}", escaped(&words));
    }
    let _ = writeln!(text, "- {}", escaped(&source_words(of)));
    let _ = writeln!(text, "- {}", escaped(&amount_words(of)));
    if let Some(words) = running_words(of) {
        let _ = writeln!(text, "- {}", escaped(&words));
    }
    text.push_str(&files(of));
    for relation in of.relations.iter().take(MOST) {
        text.push_str(&of_relation(relation));
    }
    if of.relations.len() > MOST {
        let _ = writeln!(text, "\n{} more relations", of.relations.len() - MOST);
    }
    text.push_str(&list("Could not be looked into", &of.unlisted));
    text.push_str(&list("Not PostgreSQL’s, and not read", &of.foreign));
    text.push_str(&list("Notes", &of.notes));
    let _ = writeln!(text, "\n{}", code(&of.command.join(" ")));
    text
}

fn files(of: &VerificationRecord) -> String {
    if of.wrong_files == 0 {
        return String::new();
    }
    let mut text = "\n| file | what is wrong |\n|---|---|\n".to_owned();
    for file in of.files.iter().take(MOST) {
        let _ = writeln!(text, "| {} | {} |", escaped(&file.path), escaped(&file.words));
    }
    let shown = of.files.len().min(MOST) as u64;
    if let Some(more) = of.wrong_files.checked_sub(shown).filter(|more| *more > 0) {
        let _ = writeln!(text, "\n{more} more");
    }
    text
}

fn of_relation(of: &VerifiedRelation) -> String {
    let title = qualified(of).map_or_else(
        || format!("**{}**", escaped(&place(of))),
        |name| format!("**{}** ({})", escaped(&name), escaped(&place(of))),
    );
    let mut text = format!("\n{title}: {}\n\n", severity(of.severity));
    text.push_str(
        "| blocks | class | what is wrong | stored | computed |\n|--:|---|---|--:|--:|\n",
    );
    for finding in of.findings.iter().take(MOST) {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            blocks(finding),
            class(finding.class),
            escaped(&finding.words),
            checksum(finding.stored_checksum),
            checksum(finding.computed_checksum)
        );
    }
    if let Some(more) = more_findings(of, MOST) {
        let _ = writeln!(text, "\n{more} more");
    }
    text.push('\n');
    if of.advice.is_empty() {
        let _ = writeln!(text, "To do: {}", escaped(&of.remedy));
    }
    for (number, advice) in (1..).zip(&of.advice) {
        text.push_str(&step(number, advice));
    }
    text
}

/// A step of a list; its command in a block within.
fn step(number: usize, Advice { what, command, kind, database }: &Advice) -> String {
    let place = database.as_ref().filter(|_| *kind == Some(CommandKind::Sql));
    let place = place.map(|of| format!(" (in database {})", escaped(of))).unwrap_or_default();
    let mut text = format!("{number}. {}{place}\n", escaped(what));
    if let Some(command) = command {
        let language = if *kind == Some(CommandKind::Sql) { "sql" } else { "sh" };
        text.push('\n');
        for line in code_in(language, command).lines() {
            let _ = writeln!(text, "   {line}");
        }
        text.push('\n');
    }
    text
}

fn list(title: &str, of: &[String]) -> String {
    if of.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}:\n\n");
    for entry in of.iter().take(MOST) {
        let _ = writeln!(text, "- {}", escaped(entry));
    }
    if of.len() > MOST {
        let _ = writeln!(text, "- {} more", of.len() - MOST);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verification::tests::record;

    #[test]
    fn findings_are_tables_and_commands_are_code() {
        insta::assert_snapshot!(verification_markdown(&[record()]));
    }
}
