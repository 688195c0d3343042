//! Plans of measurements, and the list of built-in experiments.

use std::time::Duration;

use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{ExperimentList, ListedExperiment, PlanRecord};

use crate::document::{Block, Document, Section};
use crate::records::{ReportedRecord, TableOptions};

impl ReportedRecord for PlanRecord {
    /// The steps of each run, a line each.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll measure --dry-run",
            question: "What would be measured?",
            ..Document::default()
        };
        let are_several = self.experiments.len() > 1;
        let mut lines: Vec<String> = Vec::new();
        for run in &self.experiments {
            lines.extend(run.lines.iter().cloned());
            lines.extend(are_several.then(String::new));
        }
        if let Some(server) = &self.server {
            let place = if are_several { lines.len() } else { 1.min(lines.len()) };
            lines.insert(place, format!("server: {server}"));
        }
        if are_several {
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
        let width = self.experiments.iter().map(|listed| listed.name.len()).max().unwrap_or(0);
        let line = |ListedExperiment { name, question, seconds, .. }: &ListedExperiment| {
            let time = TimeSpan(Duration::from_secs(*seconds)).rounded();
            format!("{name:<width$} {question} ({time})")
        };
        let lines = self.experiments.iter().map(line).collect();
        Document {
            command: "pgtoll measure --list",
            question: "Which experiments are built in?",
            sections: vec![Section::detail("", vec![Block::Code(lines)])],
            ..Document::default()
        }
    }
}
