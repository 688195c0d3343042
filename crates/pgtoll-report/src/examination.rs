//! Whether a machine is fit to measure on.

use pgtoll_record::{Calibration, Examination, FitnessCheck, NullRuns, PrintedRecord as _, State};

use crate::cells::title;
use crate::document::{Block, Document, Section, Table};
use crate::records::{ReportedRecord, TableOptions};
use crate::wal_numbers::counted;

impl ReportedRecord for Examination {
    /// The conclusion, the checks by group, and the runs of identical arms.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll doctor",
            question: "Is this machine fit to measure on?",
            answer: vec![answer(self)],
            findings: self.conclusion().sentences(),
            ..Document::default()
        };
        for checks in self.findings.chunk_by(|one, next| one.group == next.group) {
            let facts = Block::Facts(checks.iter().map(fact).collect());
            document.push(Section::detail(&checks[0].group, vec![facts]));
        }
        document.push(self.null.as_ref().map(|null| null_section(null, &self.calibration)));
        document
    }
}

fn answer(examination: &Examination) -> String {
    let warnings: Vec<&str> = examination.warnings().map(|check| check.name.as_str()).collect();
    if warnings.is_empty() {
        return "Nothing speaks against measuring here.".to_owned();
    }
    format!("Against measuring here: {}.", warnings.join(", "))
}

/// A check's state and name, and what was read, with what to do.
fn fact(check: &FitnessCheck) -> (String, String) {
    let state = match check.state {
        State::Ok => "ok",
        State::Note => "note",
        State::Warn => "WARN",
        State::NotTold => "-",
    };
    let advice = check.advice.iter().map(|advice| format!(" -> {advice}"));
    let reading = check.reading.clone() + &advice.collect::<String>();
    (format!("{state:<4}  {}", check.name), reading)
}

fn null_section(null: &NullRuns, calibration: &[Calibration]) -> Section {
    let NullRuns { records, interrupted, misses } = null;
    let early = if *interrupted { ", then a signal came" } else { "" };
    let runs = counted(records.len() as u64, "run", "runs");
    let row = |misses: &pgtoll_record::Misses| {
        let factor = calibration.iter().find(|factor| factor.metric == misses.metric);
        let widening = factor.map_or_else(
            || "not yet calibrated".to_owned(),
            |factor| format!("κ {:.2} ({} comparisons)", factor.widening, factor.comparisons),
        );
        let missed = format!("{} of {}", misses.missed, misses.comparisons);
        vec![title(misses.metric).to_owned(), missed, widening]
    };
    let rows = misses.iter().map(row).collect();
    let blocks = vec![
        Block::Paragraph(format!(
            "{runs} of identical arms{early}. An interval of 95 % should miss once in twenty."
        )),
        Block::Table(Table::new(&["metric", "intervals missed", "calibration"], rows)),
    ];
    Section::detail("Where nothing differs", blocks)
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{EXAMINATION_SCHEMA, Host, Metric, Misses};

    use super::*;

    #[test]
    fn the_answer_comes_first_and_checks_stand_in_groups() {
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
        let text = examination.text(&TableOptions::default());
        insta::assert_snapshot!(text);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        examination.findings.pop();
        let text = examination.text(&TableOptions::default());
        assert!(text.starts_with("Nothing speaks against measuring here.\n"), "{text}");
    }
}
