//! An examination of a machine as text, 80 columns wide.

use std::fmt::Write as _;

use pgtoll_record::{Calibration, Examination, FitnessCheck, NullRuns, State};

use crate::cells::title;
use crate::printable::printable;
use crate::text::wrapped;

/// Findings by group, what the null runs showed, and what it comes to. Plain text.
pub(crate) fn examination_text(of: &Examination) -> String {
    let mut text = String::new();
    let mut group = "";
    for finding in &of.findings {
        if finding.group != group {
            let gap = if group.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{}", printable(&finding.group));
            group = &finding.group;
        }
        push(&mut text, finding);
    }
    if let Some(null) = &of.null {
        text.push_str(&null_text(null, &of.calibration));
    }
    let _ = write!(text, "\n{}", wrapped("", &conclusion(of)));
    text
}

fn push(text: &mut String, finding: &FitnessCheck) {
    let state = match finding.state {
        State::Ok => "ok",
        State::Note => "note",
        State::Warn => "WARN",
        State::NotTold => "-",
    };
    let name = printable(&finding.name);
    text.push_str(&wrapped(&format!("  {state:<4}  {name:<20}  "), &finding.reading));
    if let Some(advice) = &finding.advice {
        text.push_str(&wrapped(&format!("{:<30}", ""), &format!("-> {advice}")));
    }
}

fn conclusion(of: &Examination) -> String {
    let warnings: Vec<&str> = of.warnings().map(|of| of.name.as_str()).collect();
    if warnings.is_empty() {
        return "nothing speaks against measuring here".to_owned();
    }
    format!("against measuring here: {}", warnings.join(", "))
}

fn null_text(null: &NullRuns, calibration: &[Calibration]) -> String {
    let NullRuns { records, interrupted, misses } = null;
    let mut text = String::from("\nwhere nothing differs\n");
    let early = if *interrupted { ", then a signal came" } else { "" };
    let runs = if records.len() == 1 { "run" } else { "runs" };
    let _ = writeln!(text, "  {} {runs} of identical arms{early}", records.len());
    for of in misses {
        let factor = calibration.iter().find(|factor| factor.metric == of.metric);
        let widening = factor.map_or_else(
            || "not yet calibrated".to_owned(),
            |factor| format!("κ {:.2} ({} comparisons)", factor.widening, factor.comparisons),
        );
        let _ = writeln!(
            text,
            "  {:<18}  {:>3} of {:>3} intervals missed; {widening}",
            title(of.metric),
            of.missed,
            of.comparisons
        );
    }
    text.push_str(&wrapped("  ", "an interval of 95 % should miss once in twenty"));
    text
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{EXAMINATION_SCHEMA, Host, Metric, Misses};

    use super::*;

    #[test]
    fn findings_stand_in_groups_and_end_in_a_sentence() {
        let finding = |group: &str, name: &str, state, advice: Option<&str>| FitnessCheck {
            group: group.into(),
            name: name.into(),
            state,
            reading: "word ".repeat(14).trim().into(),
            figures: [].into(),
            advice: advice.map(Into::into),
        };
        let mut examination = Examination {
            schema: EXAMINATION_SCHEMA.into(),
            pgtoll: "0".into(),
            started: "2026-11-22T00:00:00Z".into(),
            work_dir: "/var/tmp".into(),
            host: Host {
                kernel: "Linux".into(),
                cpu: "unknown".into(),
                cores: 2,
                memory_bytes: 1,
                file_system: "ext4".into(),
                hypervisor: false,
                transparent_huge_pages: None,
                governor: None,
                cpu_split: "exact".into(),
            },
            findings: vec![
                finding("CPU", "cores", State::Ok, None),
                finding("CPU", "boost", State::NotTold, None),
                finding("disk", "sync time", State::Warn, Some("use another disk")),
            ],
            calibration: vec![Calibration {
                metric: Metric::CpuPerTransaction,
                widening: 1.5,
                comparisons: 12,
            }],
            null: Some(NullRuns {
                records: vec!["a".into(), "b".into()],
                interrupted: true,
                misses: vec![
                    Misses { metric: Metric::CpuPerTransaction, comparisons: 4, missed: 1 },
                    Misses { metric: Metric::OperationTime, comparisons: 4, missed: 0 },
                ],
            }),
        };
        let words = "word word word word word word word word word word";
        let expected = format!(
            "\
CPU
  ok    cores                 {words}
                              word word word word
  -     boost                 {words}
                              word word word word

disk
  WARN  sync time             {words}
                              word word word word
                              -> use another disk

where nothing differs
  2 runs of identical arms, then a signal came
  server CPU us/tx      1 of   4 intervals missed; κ 1.50 (12 comparisons)
  time ms               0 of   4 intervals missed; not yet calibrated
  an interval of 95 % should miss once in twenty

against measuring here: sync time
"
        );
        assert_eq!(examination_text(&examination), expected);
        assert!(expected.lines().all(|line| line.chars().count() <= 80));
        examination.findings.pop();
        let text = examination_text(&examination);
        assert!(text.ends_with("\nnothing speaks against measuring here\n"), "{text}");
    }
}
