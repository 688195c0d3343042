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
pub fn overview_text(of: &Overview, directory: &str, style: Style) -> String {
    let mut text = wrapped("", &heading(of));
    if let Some(sentence) = &of.headline {
        let _ = write!(text, "\n{}", headline("", sentence, style));
    }
    for experiment in &of.experiments {
        let _ = write!(text, "\n{}", about(experiment, directory, style));
    }
    let differences: Vec<Block> = of.experiments.iter().flat_map(differences).collect();
    if !differences.is_empty() {
        let paint = |_: &str, cell: &str| style.paint(tone("", cell), cell);
        let _ = write!(text, "\n{DIFFERENCES}\n{}", painted(Vec::new(), differences, &paint));
    }
    let counted = of.experiments.iter().flat_map(|of| {
        counted(of).into_iter().map(|(workload, words)| format!("{}, {workload}: {words}", of.name))
    });
    let counted: Vec<String> = counted.collect();
    if !counted.is_empty() {
        let _ = writeln!(text, "\n{COUNTED}");
        text.extend(counted.iter().map(|line| wrapped("", line)));
    }
    let claims = of
        .experiments
        .iter()
        .flat_map(|of| of.claims.iter().map(|claim| (Some(of.name.as_str()), claim)));
    if claims.clone().next().is_some() {
        let _ = write!(text, "\n{}", claims_text(claims));
    }
    text
}

/// What stands above the differences.
pub(crate) const DIFFERENCES: &str =
    "differences from each baseline in server CPU, 95 % intervals (~ covers zero)";
/// What stands above what was counted.
pub(crate) const COUNTED: &str = "WAL, counted over equal work";

/// How many experiments, of what server, on which machine.
pub(crate) fn heading(of: &Overview) -> String {
    let count = of.experiments.len();
    let complete = of.experiments.iter().filter(|of| of.status == EndStatus::Complete).count();
    let skipped = of.experiments.iter().filter(|of| of.skipped).count();
    let all =
        if complete + skipped == count { None } else { Some(format!(", {complete} complete")) };
    let skipped = (skipped > 0).then(|| format!(", {skipped} skipped"));
    let all = all.into_iter().chain(skipped).collect::<String>();
    let name = of.name.as_ref().map_or(String::new(), |name| format!("{name}, "));
    format!(
        "{name}{count} experiments{all}: PostgreSQL {}, {} with {} CPUs, {}",
        of.version,
        of.host.cpu,
        of.host.cores,
        day(&of.started)
    )
}

/// The experiment's answer in a sentence, or why there is none.
fn about(of: &OverviewExperiment, directory: &str, style: Style) -> String {
    let mut text = wrapped("", &format!("{}: {}", of.name, of.question));
    if let Some(ended) = ended(of) {
        text.push_str(&wrapped("  ", &ended));
    }
    if let Some(sentence) = sentence(of) {
        text.push_str(&headline("  ", &sentence, style));
    }
    if of.answers.len() > 1 {
        let of = format!("more: pgtoll report {directory}/{}", of.name);
        let _ = writeln!(text, "  {}", printable(&of));
    }
    text
}

/// The experiment's answer, and what to do.
pub(crate) fn sentence(of: &OverviewExperiment) -> Option<String> {
    let answer = of.answer.as_ref()?;
    let sentence = [Some(answer.headline.clone()), advice(answer)];
    Some(sentence.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// How an experiment ended that was not completed.
pub(crate) fn ended(of: &OverviewExperiment) -> Option<String> {
    if of.skipped {
        return of.reason.clone();
    }
    let how = match of.status {
        EndStatus::Complete => return None,
        EndStatus::Interrupted => "interrupted",
        EndStatus::Failed => "failed",
    };
    let reason = of.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    Some(format!("{how}{reason}"))
}

/// For each workload of an experiment a row for each arm.
fn differences(of: &OverviewExperiment) -> Vec<Block> {
    let blocks = workloads(of).into_iter().map(|workload| {
        let own = of.comparisons.iter().filter(|of| of.workload == workload);
        let rows = own.map(|of| {
            let null = if of.null { " (null)" } else { "" };
            vec![format!("{}{null}", of.arm), title(of.metric).to_owned(), interval(of)]
        });
        (format!("{}, {workload}, against {}", of.name, of.baseline), rows.collect())
    });
    blocks.collect()
}

/// The workloads that are compared, in their order.
pub(crate) fn workloads(of: &OverviewExperiment) -> Vec<&str> {
    let mut names: Vec<&str> = of.comparisons.iter().map(|of| of.workload.as_str()).collect();
    names.dedup();
    names
}

/// For each workload what its arms wrote, in words; where they wrote something.
pub(crate) fn counted(of: &OverviewExperiment) -> Vec<(&str, String)> {
    let mut workloads: Vec<&str> = of.counted.iter().map(|of| of.workload.as_str()).collect();
    workloads.dedup();
    workloads.into_iter().filter_map(|workload| Some((workload, wal(of, workload)?))).collect()
}

fn wal(of: &OverviewExperiment, workload: &str) -> Option<String> {
    let arms: Vec<&MetricValue> = of.counted.iter().filter(|of| of.workload == workload).collect();
    let baseline = arms.iter().find(|value| value.arm == of.baseline)?;
    if arms.iter().all(|of| of.value < SHOWN) {
        return None;
    }
    let per = divisor_words(&baseline.metric);
    let shown = |of: &MetricValue| format!("{} {}", of.arm, three_digits(of.value));
    let words = if arms.iter().all(|of| is_near(of.value, baseline.value)) {
        let others = if arms.len() > 1 { " (others within 1 %)" } else { "" };
        format!("{}{others}", shown(baseline))
    } else {
        arms.into_iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    Some(format!("{words} bytes {per}, exact"))
}

#[cfg(test)]
mod tests;
