//! Parts that the forms of an answer share.

use pgtoll_estimate::{change_and_name, metric_name};
use pgtoll_record::{AdvisedAction, AnswerLine, Metric, RunAnswer, RunResult};

/// Returns advice in a sentence.
pub(crate) fn advice(answer: &RunAnswer) -> Option<String> {
    let words = match answer.advice.as_ref()?.action {
        AdvisedAction::TurnOn => "Turn on.",
        AdvisedAction::MeasureFirst => "Measure first with your own workload.",
        AdvisedAction::Leave => "Leave.",
    };
    Some(words.to_owned())
}

/// The lines of each arm, below what it changes.
pub(crate) fn arms<'a>(
    result: &RunResult,
    answer: &'a RunAnswer,
) -> Vec<(String, Vec<&'a AnswerLine>)> {
    let lines: Vec<&AnswerLine> = answer.lines.iter().collect();
    let arms = lines.chunk_by(|one, other| one.arm == other.arm).map(|lines| {
        let change = change_and_name(&lines[0].change, &lines[0].arm);
        let cpu = if is_of_cpu(answer) { "server CPU " } else { "" };
        (format!("{change}, {cpu}against {}:", result.header.baseline), lines.to_vec())
    });
    arms.collect()
}

/// Returns the place of a line: the metric if lines have several, the workload and the cause.
pub(crate) fn place(answer: &RunAnswer, line: &AnswerLine) -> String {
    let metric = line.metric.filter(|_| !is_of_cpu(answer));
    let metric = metric.map(|metric| format!("{}, ", metric_name(metric))).unwrap_or_default();
    let cause = line.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{metric}{}{cause}", line.title)
}

fn is_of_cpu(answer: &RunAnswer) -> bool {
    let mut metrics = answer.lines.iter().filter_map(|line| line.metric);
    metrics.all(|metric| matches!(metric, Metric::CpuPerTransaction | Metric::CpuPerOperation))
}
