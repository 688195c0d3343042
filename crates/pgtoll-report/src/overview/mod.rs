//! Several experiments of one call: what each of them found, in short.

use std::fmt::Write as _;

use pgtoll_estimate::{divisor_words, is_near, three_digits};
use pgtoll_record::{EndStatus, MetricValue, Overview, OverviewExperiment};

use crate::answer::advice;
use crate::cells::{SHOWN, interval, title};
use crate::expectations::claims_text;
use crate::html::day;
use crate::printable::printable;
use crate::style::Style;
use crate::terminal::tone;
use crate::text::{Block, headline, painted, wrapped};

/// The overview for a terminal, 80 columns wide. `directory` is where the results are.
pub fn overview_text(overview: &Overview, directory: &str, style: Style) -> String {
    let mut text = wrapped("", &heading(overview));
    if let Some(sentence) = &overview.headline {
        let _ = write!(text, "\n{}", headline("", sentence, style));
    }
    for experiment in &overview.experiments {
        let _ = write!(text, "\n{}", about(experiment, directory, style));
    }
    let differences: Vec<Block> = overview.experiments.iter().flat_map(differences).collect();
    if !differences.is_empty() {
        let paint = |_: &str, cell: &str| style.paint(tone("", cell), cell);
        let _ = write!(text, "\n{DIFFERENCES}\n{}", painted(Vec::new(), differences, &paint));
    }
    let counted = overview.experiments.iter().flat_map(|experiment| {
        counted(experiment)
            .into_iter()
            .map(|(workload, words)| format!("{}, {workload}: {words}", experiment.name))
    });
    let counted: Vec<String> = counted.collect();
    if !counted.is_empty() {
        let _ = writeln!(text, "\n{COUNTED}");
        text.extend(counted.iter().map(|line| wrapped("", line)));
    }
    let claims = overview.experiments.iter().flat_map(|experiment| {
        experiment.claims.iter().map(|claim| (Some(experiment.name.as_str()), claim))
    });
    if claims.clone().next().is_some() {
        let _ = write!(text, "\n{}", claims_text(claims));
    }
    text
}

/// The title of the differences.
pub(crate) const DIFFERENCES: &str =
    "differences from each baseline in server CPU, 95 % intervals (~ covers zero)";
/// The title of counted figures.
pub(crate) const COUNTED: &str = "WAL, counted over equal work";

/// How many experiments, of what server, on which machine.
pub(crate) fn heading(overview: &Overview) -> String {
    let count = overview.experiments.len();
    let complete = overview
        .experiments
        .iter()
        .filter(|experiment| experiment.status == EndStatus::Complete)
        .count();
    let skipped = overview.experiments.iter().filter(|experiment| experiment.skipped).count();
    let all =
        if complete + skipped == count { None } else { Some(format!(", {complete} complete")) };
    let skipped = (skipped > 0).then(|| format!(", {skipped} skipped"));
    let all = all.into_iter().chain(skipped).collect::<String>();
    let name = overview.name.as_ref().map_or(String::new(), |name| format!("{name}, "));
    format!(
        "{name}{count} experiments{all}: PostgreSQL {}, {} with {} CPUs, {}",
        overview.version,
        overview.host.cpu,
        overview.host.cores,
        day(&overview.started)
    )
}

/// The experiment's answer in a sentence, or why there is none.
fn about(experiment: &OverviewExperiment, directory: &str, style: Style) -> String {
    let mut text = wrapped("", &format!("{}: {}", experiment.name, experiment.question));
    if let Some(ended) = ended(experiment) {
        text.push_str(&wrapped("  ", &ended));
    }
    if let Some(sentence) = sentence(experiment) {
        text.push_str(&headline("  ", &sentence, style));
    }
    if experiment.answers.len() > 1 {
        let name = format!("more: pgtoll report {directory}/{}", experiment.name);
        let _ = writeln!(text, "  {}", printable(&name));
    }
    text
}

/// The experiment's answer, and what to do.
pub(crate) fn sentence(experiment: &OverviewExperiment) -> Option<String> {
    let answer = experiment.answer.as_ref()?;
    let sentence = [Some(answer.headline.clone()), advice(answer)];
    Some(sentence.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// How an experiment ended that was not completed.
pub(crate) fn ended(experiment: &OverviewExperiment) -> Option<String> {
    if experiment.skipped {
        return experiment.reason.clone();
    }
    let how = match experiment.status {
        EndStatus::Complete => return None,
        EndStatus::Interrupted => "interrupted",
        EndStatus::Failed => "failed",
    };
    let reason = experiment.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    Some(format!("{how}{reason}"))
}

/// For each workload of an experiment a row for each arm.
fn differences(experiment: &OverviewExperiment) -> Vec<Block> {
    let blocks = workloads(experiment).into_iter().map(|workload| {
        let own =
            experiment.comparisons.iter().filter(|comparison| comparison.workload == workload);
        let rows = own.map(|comparison| {
            let null = if comparison.null { " (null)" } else { "" };
            vec![
                format!("{}{null}", comparison.arm),
                title(comparison.metric).to_owned(),
                interval(comparison),
            ]
        });
        (
            format!("{}, {workload}, against {}", experiment.name, experiment.baseline),
            rows.collect(),
        )
    });
    blocks.collect()
}

/// The workloads that are compared, in their order.
pub(crate) fn workloads(experiment: &OverviewExperiment) -> Vec<&str> {
    let mut names: Vec<&str> =
        experiment.comparisons.iter().map(|comparison| comparison.workload.as_str()).collect();
    names.dedup();
    names
}

/// For each workload what its arms wrote, in words; where they wrote something.
pub(crate) fn counted(experiment: &OverviewExperiment) -> Vec<(&str, String)> {
    let mut workloads: Vec<&str> =
        experiment.counted.iter().map(|counted| counted.workload.as_str()).collect();
    workloads.dedup();
    workloads
        .into_iter()
        .filter_map(|workload| Some((workload, wal(experiment, workload)?)))
        .collect()
}

fn wal(experiment: &OverviewExperiment, workload: &str) -> Option<String> {
    let arms: Vec<&MetricValue> =
        experiment.counted.iter().filter(|counted| counted.workload == workload).collect();
    let baseline = arms.iter().find(|value| value.arm == experiment.baseline)?;
    if arms.iter().all(|arm| arm.value < SHOWN) {
        return None;
    }
    let per = divisor_words(&baseline.metric);
    let shown = |value: &MetricValue| format!("{} {}", value.arm, three_digits(value.value));
    let words = if arms.iter().all(|arm| is_near(arm.value, baseline.value)) {
        let others = if arms.len() > 1 { " (others within 1 %)" } else { "" };
        format!("{}{others}", shown(baseline))
    } else {
        arms.into_iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    Some(format!("{words} bytes {per}, exact"))
}

#[cfg(test)]
mod tests;
