//! Whether the program's predictions are as good as they should be, over all trials of a regime.

use std::fmt::Write as _;

use crate::estimate::Estimator;
use crate::score::{LARGE, SKILL, Scored, covered_at_least, mean, skill};
use crate::trial::Trial;
use pgtoll_record::trials::PredictionTrialArm as Arm;

/// A goal, what was found, and whether that reaches it.
type Goal = (&'static str, String, String, bool);

/// How many trials there are that pay, and what the formula makes of the trial's own censuses.
pub(crate) fn summary(text: &mut String, trials: &[Trial]) {
    let to_on: Vec<&Trial> = trials.iter().filter(|trial| trial.source == Arm::Off).collect();
    let large = to_on.iter().filter(|trial| trial.wal.change >= LARGE).count();
    let _ = writeln!(
        text,
        "Checksums really cost 10 % of WAL or more in {large} of {} cases.\n",
        to_on.len()
    );
    let formula: Vec<Scored> = trials.iter().flat_map(Trial::scored_formula).collect();
    if !formula.is_empty() {
        let _ = writeln!(
            text,
            "Of {} intervals by the program's formula, {} hold the truth, and {} are narrow enough.\n",
            formula.len(),
            count(&formula, Scored::is_covered),
            count(&formula, Scored::is_narrow)
        );
    }
}

/// Lists the goals of the program; `None` where it was not asked. Truths of both directions count
/// together.
pub(crate) fn goals(text: &mut String, trials: &[Trial]) -> Option<bool> {
    let requested = trials.iter().map(|trial| trial.answers.len()).sum::<usize>();
    if requested == 0 {
        return None;
    }
    let mut goals = wal_goals(trials, requested);
    goals.extend(cpu_goal(trials));
    text.push_str("| `pgtoll predict` | goal | found | |\n|---|---|---|---|\n");
    for (name, goal, found, is_reached) in &goals {
        let verdict = if *is_reached { "reached" } else { "missed" };
        let _ = writeln!(text, "| {name} | {goal} | {found} | {verdict} |");
    }
    text.push('\n');
    let scored: Vec<Scored> = trials.iter().flat_map(Trial::scored).collect();
    if let Some(score) = mean(scored.iter().map(Scored::interval_score)) {
        let _ = writeln!(text, "Mean interval score: {:.1} points.\n", score * 100.0);
    }
    blind(text, trials);
    monitor(text, trials);
    Some(goals.iter().all(|(.., is_reached)| *is_reached))
}

fn wal_goals(trials: &[Trial], requested: usize) -> Vec<Goal> {
    let scored: Vec<Scored> = trials.iter().flat_map(Trial::scored).collect();
    let needed = covered_at_least(requested);
    let good = count(&scored, |item| item.is_covered() && item.is_narrow());
    let with_answer: Vec<&Trial> =
        trials.iter().filter(|trial| trial.scored().next().is_some()).collect();
    let naive =
        Estimator::NAIVE.iter().filter_map(|estimator| mean_error(&with_answer, *estimator));
    let naive: Vec<f64> = naive.collect();
    let skill = mean(scored.iter().map(Scored::error)).and_then(|error| skill(error, &naive));
    vec![
        (
            "changes of WAL predicted",
            requested.to_string(),
            scored.len().to_string(),
            scored.len() == requested,
        ),
        (
            "intervals that hold the truth and are narrow enough",
            format!("{needed} of {requested}"),
            format!(
                "{good} ({} hold it, {} are narrow enough)",
                count(&scored, Scored::is_covered),
                count(&scored, Scored::is_narrow)
            ),
            good >= needed,
        ),
        (
            "mean absolute error, as a share of the best naive predictor's",
            format!("{SKILL:.2}"),
            skill.map_or_else(|| "–".to_owned(), |skill| format!("{skill:.2}")),
            skill.is_some_and(|skill| skill <= SKILL),
        ),
    ]
}

fn cpu_goal(trials: &[Trial]) -> Option<Goal> {
    let scored: Vec<Scored> = trials.iter().flat_map(Trial::scored_cpu).collect();
    let error = mean(scored.iter().map(Scored::error))?;
    let near = count(&scored, Scored::is_near);
    Some((
        "CPU time within a point, or a quarter of the truth",
        scored.len().to_string(),
        format!("{near} (mean absolute error {:.1} points)", error * 100.0),
        near == scored.len(),
    ))
}

/// The self-tests of servers, without a trial: how well the program predicts what it finds.
fn blind(text: &mut String, trials: &[Trial]) {
    let scored: Vec<Scored> = trials.iter().flat_map(Trial::scored_blind).collect();
    if let Some(error) = mean(scored.iter().map(Scored::error)) {
        let _ = writeln!(
            text,
            "Blind self-tests: a mean absolute error of {:.1} points; {} of {} intervals hold what \
             the what-if finds.\n",
            error * 100.0,
            count(&scored, Scored::is_covered),
            scored.len()
        );
    }
}

/// What a role can say that reads neither buffers nor WAL.
fn monitor(text: &mut String, trials: &[Trial]) {
    let scored: Vec<Scored> = trials.iter().flat_map(Trial::scored_monitor).collect();
    if !scored.is_empty() {
        let _ = writeln!(
            text,
            "As a role with `pg_monitor`, without the server's WAL: {} of {} intervals hold the \
             truth, and {} are wider than 30 points.\n",
            count(&scored, Scored::is_covered),
            scored.len(),
            count(&scored, Scored::is_useless)
        );
    }
}

fn count(scored: &[Scored], is_so: impl Fn(&Scored) -> bool) -> usize {
    scored.iter().filter(|scored| is_so(scored)).count()
}

/// Over the trials that the estimator says something about.
pub(crate) fn mean_error(trials: &[&Trial], estimator: Estimator) -> Option<f64> {
    let errors = trials
        .iter()
        .filter_map(|trial| Some((trial.estimate(estimator)? - trial.wal.change).abs()));
    mean(errors.collect::<Vec<f64>>().into_iter())
}
