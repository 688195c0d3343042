//! The document of foreign tables of other servers, a CSV file and Redis.

use std::fmt::Write as _;

use pgtoll_record::{
    BridgeCheck, BridgeRecord, BridgeStatement, BridgeStep, ForeignScan, PrintedRecord as _,
};

use crate::document::{Block, Document, Section, Table, settings};
use crate::records::{ReportedRecord, TableOptions};
use crate::text::end_words;
use crate::wal_numbers::counted;

impl ReportedRecord for BridgeRecord {
    /// The answer, the scans of the join, and each step with its checks and what follows from it.
    fn document(&self, _: &TableOptions) -> Document {
        let mut scans =
            vec![Block::Table(Table::new(&SCAN_HEAD, self.scans.iter().map(scan_row).collect()))];
        let source = |scan: &ForeignScan| format!("{}: {}: {}", scan.table, scan.kind, scan.source);
        scans.push(Block::List(self.scans.iter().map(source).collect()));
        let mut document = Document {
            command: "pgtoll lab bridge",
            question: "What does one query over PostgreSQL, a CSV file and Redis promise?",
            subject: subject_words(self),
            answer: vec![answer(self)],
            findings: self.conclusion().sentences(),
            sections: Vec::new(),
            notes: self.notes.clone(),
            again: self.command.clone(),
        };
        if !self.scans.is_empty() {
            document.push(Section::detail("One query over three sources", scans));
        }
        for step in &self.steps {
            document.push(step_section(step));
        }
        document.push(Section::evidence("Settings of the servers", vec![settings(&self.settings)]));
        document
    }
}

fn subject_words(bridge: &BridgeRecord) -> String {
    let mut words = format!("{}, {}", bridge.server, bridge.redis);
    for (name, version) in &bridge.extensions {
        let _ = write!(words, ", {name} {version}");
    }
    let seconds: f64 = bridge.steps.iter().map(|step| step.seconds).sum();
    let steps = counted(bridge.steps.len() as u64, "step", "steps");
    let _ = write!(words, ": {steps} in {seconds:.1} s.");
    words.push_str(&end_words(bridge.ended.as_deref(), bridge.complete, "all steps were"));
    words
}

fn answer(bridge: &BridgeRecord) -> String {
    let checks = || bridge.steps.iter().flat_map(|step| &step.checks);
    let all = checks().count() as u64;
    let failed = bridge.conclusion().findings.len();
    let checks = counted(all, "check", "checks");
    let begun = match bridge.steps.last() {
        Some(last) if !bridge.complete && !last.complete => {
            format!(" Step {} was not done to its end, nor those after it.", last.name)
        }
        _ if !bridge.complete => " Steps after these were not done.".to_owned(),
        _ => String::new(),
    };
    match failed {
        0 if bridge.complete => format!(
            "All {checks} hold: one query joins all three sources, and no commit holds servers \
             together."
        ),
        0 => format!("The {checks} that were made hold.{begun}"),
        failed => format!("{failed} of {checks} fail.{begun}"),
    }
}

/// Titles of [`scan_row`].
const SCAN_HEAD: [&str; 4] = ["scan of the join", "rows", "loops", "ms"];

/// A foreign scan, and what it took.
fn scan_row(scan: &ForeignScan) -> Vec<String> {
    vec![
        scan.table.clone(),
        format!("{:.0}", scan.rows),
        format!("{:.0}", scan.loops),
        format!("{:.2}", scan.milliseconds),
    ]
}

fn step_section(step: &BridgeStep) -> Section {
    let check = |check: &BridgeCheck| {
        let expected =
            if check.holds { String::new() } else { format!(" (expected: {})", check.expected) };
        let verdict = if check.holds { "holds" } else { "FAILS" };
        format!("{verdict}: {}: {}{expected}", check.subject, check.found)
    };
    let lesson = if step.complete { step.lesson.as_str() } else { "not done to its end" };
    let blocks = vec![
        Block::List(step.checks.iter().map(check).collect()),
        Block::Paragraph(lesson.to_owned()),
        Block::Folded {
            summary: "What was run, and what it gave".to_owned(),
            code: step.statements.iter().flat_map(statement_lines).collect(),
        },
    ];
    Section::detail(&format!("{}: {}", step.name, step.title), blocks)
}

/// The session, the statement, its result and its rows.
fn statement_lines(statement: &BridgeStatement) -> Vec<String> {
    let head =
        [format!("{}: {}", statement.session, statement.sql), format!("  {}", statement.result)];
    head.into_iter().chain(statement.rows.iter().map(|row| format!("    {row}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(record: &BridgeRecord) -> String {
        record.text(&TableOptions::default())
    }

    /// `pgtoll lab bridge --postgres 18`, as it was.
    fn record() -> BridgeRecord {
        serde_json::from_str(include_str!("../../../records/2026-11-26-bridge.json")).unwrap()
    }

    #[test]
    fn each_step_has_its_checks_and_its_lesson() {
        let text = text(&record());
        // A path or a statement may have a word that is wider.
        let wide = text.lines().filter(|line| line.chars().count() > 80);
        assert_eq!(wide.collect::<Vec<_>>(), Vec::<&str>::new());
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_page_has_every_step_and_no_markup_of_the_records() {
        let mut record = record();
        record.steps[0].checks[0].holds = false;
        record.steps[0].checks[0].found = "<script>alert(1)</script>".to_owned();
        let page = record.html();
        for step in &record.steps {
            assert!(
                page.contains(&format!(">{}: {}</h2>", step.name, step.title)),
                "{}",
                step.name
            );
        }
        assert!(page.contains("FAILS") && page.contains("&lt;script&gt;alert"), "{page}");
        assert!(!page.contains("<script>alert"), "{page}");
    }

    #[test]
    fn a_check_that_fails_is_a_finding_and_the_first_thing_that_is_said() {
        let mut record = record();
        assert!(record.conclusion().sentences().is_empty());
        let check = &mut record.steps[1].checks[0];
        check.holds = false;
        check.found = "no rows".to_owned();
        let findings = record.conclusion().sentences();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].ends_with("found no rows"), "{findings:?}");
        let text = text(&record);
        assert!(text.contains("1 of ") && text.contains(" fail.\n"), "{text}");
    }

    #[test]
    fn of_a_run_that_ended_early_only_what_was_done_is_said() {
        let mut record = record();
        record.steps.truncate(2);
        record.steps[1].complete = false;
        (record.complete, record.ended) = (false, Some("the program failed".to_owned()));
        let text = text(&record);
        assert!(text.contains("Ended early: the program failed"), "{text}");
        let words = format!("Step {} was not done to its end", record.steps[1].name);
        assert!(text.contains(&words) && !text.contains("All "), "{text}");
        assert!(!text.contains(&record.steps[1].lesson[..20]), "{text}");
    }
}
