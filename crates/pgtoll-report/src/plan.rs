//! What would be measured, and what there is to measure, as text.

use std::fmt::Write as _;
use std::time::Duration;

use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{ExperimentList, ListedExperiment, PlanRecord};

use crate::printable::printable;

/// What is going to happen, a line each.
pub(crate) fn plan_text(of: &PlanRecord) -> String {
    let mut lines: Vec<String> = Vec::new();
    for run in &of.experiments {
        lines.extend(run.lines.iter().map(|line| printable(line).into_owned()));
        lines.extend((of.experiments.len() > 1).then(String::new));
    }
    if let Some(server) = &of.server {
        let place = if of.experiments.len() > 1 { lines.len() } else { 1.min(lines.len()) };
        lines.insert(place, format!("server: {}", printable(server)));
    }
    if of.experiments.len() > 1 {
        lines.push(format!(
            "{} experiments, one after the other: about {} of time, at most {} of disk at once",
            of.experiments.len(),
            TimeSpan(Duration::from_secs(of.seconds)).rounded(),
            ByteSize(of.disk_bytes).rounded()
        ));
    }
    lines.extend(place(of));
    lines.join("\n") + "\n"
}

fn place(of: &PlanRecord) -> Option<String> {
    let (place, user) = (of.work_dir.as_ref()?, of.user.as_ref()?);
    let because = if of.instead_of_root { ", since PostgreSQL refuses root" } else { "" };
    Some(format!(
        "clusters are made in {}; servers run as user {}{because}",
        printable(place),
        printable(user)
    ))
}

/// The built-in experiments, a line each, with the time that they take.
pub(crate) fn experiments_text(of: &ExperimentList) -> String {
    let width = of.experiments.iter().map(|of| of.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for ListedExperiment { name, question, seconds, .. } in &of.experiments {
        let time = TimeSpan(Duration::from_secs(*seconds)).rounded();
        let (name, question) = (printable(name), printable(question));
        let _ = writeln!(text, "{name:<width$} {question} ({time})");
    }
    text
}
