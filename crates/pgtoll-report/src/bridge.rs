//! What foreign tables of other servers, a CSV file and Redis showed, as text.

use std::fmt::Write as _;

use pgtoll_record::{BridgeRecord, BridgeStep, ForeignScan};

use crate::text::{aligned, end_words, wrapped};
use crate::wal_numbers::counted;

/// The answer, the scans of the join, and each step with its checks and what follows from it.
pub fn bridge_text(of: &BridgeRecord) -> String {
    let mut text = wrapped("", &subject_words(of));
    text.push('\n');
    text.push_str(&wrapped("", &answer(of)));
    if !of.scans.is_empty() {
        text.push('\n');
        push_scans(&mut text, &of.scans);
    }
    for step in &of.steps {
        text.push('\n');
        push_step(&mut text, step);
    }
    text.push('\n');
    for finding in bridge_findings(of) {
        text.push_str(&wrapped("finding: ", &finding));
    }
    for note in &of.notes {
        text.push_str(&wrapped("note: ", note));
    }
    text
}

pub(crate) fn subject_words(of: &BridgeRecord) -> String {
    let mut words = format!("{}, {}", of.server, of.redis);
    for (name, version) in &of.extensions {
        let _ = write!(words, ", {name} {version}");
    }
    let seconds: f64 = of.steps.iter().map(|step| step.seconds).sum();
    let steps = counted(of.steps.len() as u64, "step", "steps");
    let _ = write!(words, ": {steps} in {seconds:.1} s.");
    words.push_str(&end_words(of.ended.as_deref(), of.complete, "all steps were"));
    words
}

pub(crate) fn answer(of: &BridgeRecord) -> String {
    let checks = || of.steps.iter().flat_map(|step| &step.checks);
    let (all, failed) = (checks().count() as u64, bridge_findings(of).len());
    let checks = counted(all, "check", "checks");
    let begun = match of.steps.last() {
        Some(last) if !of.complete && !last.complete => {
            format!(" Step {} was not done to its end, nor those after it.", last.name)
        }
        _ if !of.complete => " Steps after these were not done.".to_owned(),
        _ => String::new(),
    };
    match failed {
        0 if of.complete => format!(
            "All {checks} hold: one query joins all three sources, and no commit holds servers \
             together."
        ),
        0 => format!("The {checks} that were made hold.{begun}"),
        failed => format!("{failed} of {checks} fail.{begun}"),
    }
}

/// Titles of [`scan_row`].
pub(crate) const SCAN_HEAD: [&str; 4] = ["scan of the join", "rows", "loops", "ms"];

/// A foreign scan, and what it took.
pub(crate) fn scan_row(scan: &ForeignScan) -> Vec<String> {
    vec![
        scan.table.clone(),
        format!("{:.0}", scan.rows),
        format!("{:.0}", scan.loops),
        format!("{:.2}", scan.milliseconds),
    ]
}

fn push_scans(text: &mut String, scans: &[ForeignScan]) {
    let head = SCAN_HEAD.map(str::to_owned).to_vec();
    let rows = scans.iter().map(scan_row).collect();
    text.push_str(&aligned([vec![head], rows].concat(), Vec::new()));
    for scan in scans {
        let words = format!("{}: {}", scan.kind, scan.source);
        text.push_str(&wrapped(&format!(" {}: ", crate::printable(&scan.table)), &words));
    }
}

fn push_step(text: &mut String, step: &BridgeStep) {
    text.push_str(&wrapped("", &format!("{}: {}", step.name, step.title)));
    for check in &step.checks {
        let prefix = if check.holds { "  holds  " } else { "  FAILS  " };
        text.push_str(&wrapped(prefix, &format!("{}: {}", check.subject, check.found)));
    }
    if step.complete {
        text.push_str(&wrapped("  ", &step.lesson));
    } else {
        text.push_str("  not done to its end\n");
    }
}

/// Checks that fail.
pub fn bridge_findings(of: &BridgeRecord) -> Vec<String> {
    let of_step = |step: &BridgeStep| {
        let failed = step.checks.iter().filter(|check| !check.holds);
        let words = failed.map(|check| {
            let (name, subject) = (&step.name, &check.subject);
            format!("{name}, {subject}: expected {}, found {}", check.expected, check.found)
        });
        words.collect::<Vec<_>>()
    };
    of.steps.iter().flat_map(of_step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pgtoll lab bridge --postgres 18`, as it was.
    fn record() -> BridgeRecord {
        serde_json::from_str(include_str!("../../../records/2026-11-26-bridge.json")).unwrap()
    }

    #[test]
    fn each_step_has_its_checks_and_its_lesson() {
        let text = bridge_text(&record());
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
        let page = crate::bridge_html(&record);
        for step in &record.steps {
            assert!(page.contains(&format!("<h3>{}: ", step.name)), "{}", step.name);
        }
        assert!(page.contains("FAILS") && page.contains("&lt;script&gt;alert"), "{page}");
        assert!(!page.contains("<script>alert"), "{page}");
    }

    #[test]
    fn a_check_that_fails_is_a_finding_and_the_first_thing_that_is_said() {
        let mut record = record();
        assert!(bridge_findings(&record).is_empty());
        let check = &mut record.steps[1].checks[0];
        check.holds = false;
        check.found = "no rows".to_owned();
        let findings = bridge_findings(&record);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].ends_with("found no rows"), "{findings:?}");
        let text = bridge_text(&record);
        assert!(text.contains("1 of ") && text.contains(" fail.\n"), "{text}");
    }

    #[test]
    fn of_a_run_that_ended_early_only_what_was_done_is_said() {
        let mut record = record();
        record.steps.truncate(2);
        record.steps[1].complete = false;
        (record.complete, record.ended) = (false, Some("the program failed".to_owned()));
        let text = bridge_text(&record);
        assert!(text.contains("Ended early: the program failed"), "{text}");
        let words = format!("Step {} was not done to its end", record.steps[1].name);
        assert!(text.contains(&words) && !text.contains("All "), "{text}");
        assert!(!text.contains(&record.steps[1].lesson[..20]), "{text}");
    }
}
