//! What would be measured, and which experiments are built in.

use std::time::Duration;

use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{ExperimentList, ListedExperiment, PlanRecord};

use crate::document::{Block, Document, Section, Table};
use crate::records::{ReportedRecord, TableOptions};

impl ReportedRecord for PlanRecord {
    /// The steps of each run, a line each.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll measure --dry-run",
            question: "What would be measured?",
            ..Document::default()
        };
        for run in &self.experiments {
            document.push(Section::detail("", vec![Block::Code(run.lines.clone())]));
        }
        let mut lines: Vec<String> =
            self.server.iter().map(|server| format!("server: {server}")).collect();
        if self.experiments.len() > 1 {
            lines.push(format!(
                "{} experiments, one after the other: about {} of time, at most {} of disk at once",
                self.experiments.len(),
                TimeSpan(Duration::from_secs(self.seconds)).rounded(),
                ByteSize(self.disk_bytes).rounded()
            ));
        }
        lines.extend(place(self));
        document.push(Section::detail("", vec![Block::Code(lines)]));
        document
    }
}

fn place(plan: &PlanRecord) -> Option<String> {
    let place = plan.work_dir.as_ref()?;
    let user = plan.user.as_ref()?;
    let because = if plan.instead_of_root { ", since PostgreSQL refuses root" } else { "" };
    Some(format!("clusters are made in {place}; servers run as user {user}{because}"))
}

impl ReportedRecord for ExperimentList {
    /// The built-in experiments, with the time that each takes.
    fn document(&self, _: &TableOptions) -> Document {
        let row = |ListedExperiment { name, question, seconds, .. }: &ListedExperiment| {
            let time = TimeSpan(Duration::from_secs(*seconds)).rounded();
            vec![name.clone(), time, question.clone()]
        };
        let rows = self.experiments.iter().map(row).collect();
        let table = Table::with_prose(&["experiment", "time", "question"], rows);
        Document {
            command: "pgtoll measure --list",
            question: "Which experiments are built in?",
            sections: vec![Section::detail("", vec![Block::Table(table)])],
            ..Document::default()
        }
    }
}
