//! Answers of a run, in a sentence for each workload.

use pgtoll_record::{AnswerLine, Header, RunAnswer, Workload};

use crate::metrics::name;

/// A sentence for each workload of which there is something to say.
pub(crate) fn answers(header: &Header, answer: Option<&RunAnswer>) -> Vec<String> {
    let lines = answer.map_or(&[][..], |answer| &answer.lines);
    let sentences = header.workloads.iter().filter_map(|workload| {
        let own: Vec<&AnswerLine> =
            lines.iter().filter(|line| line.workload == workload.name).collect();
        (!own.is_empty()).then(|| sentence(header, workload, &own))
    });
    sentences.collect()
}

fn sentence(header: &Header, workload: &Workload, lines: &[&AnswerLine]) -> String {
    let output = |line: &&&AnswerLine| {
        let cause = line.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
        format!("{}: {}{cause}", line.change, line.figure)
    };
    let compared = lines.iter().filter(|line| line.metric.is_some());
    let words = compared.clone().map(|compared| output(&compared)).collect::<Vec<_>>().join("; ");
    let metric = compared.clone().find_map(|compared| compared.metric);
    let compared =
        metric.map(|metric| format!("in {}, against {}, {words}", name(metric), header.baseline));
    let others = lines.iter().filter(|line| line.metric.is_none()).map(|line| output(&line));
    let all: Vec<String> = compared.into_iter().chain(others).collect();
    format!("{}: {}.", workload.title, all.join(". "))
}

/// Whether WAL differs by nothing to speak of: a byte is less than anybody asks for; a hundredth is
/// less than what one run's standby snapshots and catalog pages make.
pub fn is_near(value: f64, baseline: f64) -> bool {
    (value - baseline).abs() <= (baseline / 100.0).max(1.0)
}
