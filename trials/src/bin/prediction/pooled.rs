//! CPU time over all servers that sum pages alike: a pair of runs says less about it than the goal
//! allows, since even two servers of the same work and settings differ by a few points.

use std::fmt::Write as _;

use pgtoll_format::facts_of_major;
use pgtoll_record::trials::{
    PredictionTrialArm as Arm, PredictionTrialRange as Range, PredictionTrialWorkload as Workload,
};

use crate::cells::{range, row, truth};
use crate::score::{Scored, mean};
use crate::trial::{Trial, Truth};

/// A direction of a workload on all servers that sum pages alike.
struct Pooled<'a> {
    trials: Vec<&'a Trial>,
}

/// A table of the workloads that were predicted; nothing without answers about CPU.
pub(crate) fn table(text: &mut String, trials: &[Trial]) -> anyhow::Result<()> {
    let requested = trials.iter().filter(|trial| trial.scored_cpu().next().is_some());
    let mut pools: Vec<Pooled<'_>> = Vec::new();
    for trial in requested {
        match pools.iter_mut().find(|pool| pool.takes(trial)) {
            Some(pool) => pool.trials.push(trial),
            None => pools.push(Pooled { trials: vec![trial] }),
        }
    }
    if pools.is_empty() {
        return Ok(());
    }
    text.push_str("**CPU time over all servers that sum pages alike**: change, %\n\n");
    let names =
        ["servers", "workload", "", "pairs of runs", "truth", "mean of `pgtoll predict`", ""];
    row(text, &names);
    row(text, &["---"; 7]);
    let mut near = 0;
    for pool in &pools {
        near += usize::from(pool.add_row(text)?);
    }
    let _ = writeln!(
        text,
        "\nNear, by the goal for CPU: {near} of {}. *Unsure*: half of the truth's interval is wider than the \
         goal.\n",
        pools.len()
    );
    Ok(())
}

impl Pooled<'_> {
    fn key(trial: &Trial) -> (Workload, Arm, Option<&'static [&'static str]>) {
        let digits = trial.server.split(|character: char| !character.is_ascii_digit()).next();
        let facts = digits.and_then(|major| facts_of_major(major.parse().ok()?));
        (trial.workload, trial.source, facts.map(|facts| facts.summing.kernels))
    }

    fn takes(&self, trial: &Trial) -> bool {
        self.trials.iter().any(|own| Self::key(own) == Self::key(trial))
    }

    /// Whether the mean prediction is near the truth.
    fn add_row(&self, text: &mut String) -> anyhow::Result<bool> {
        let pairs: Vec<(f64, f64)> =
            self.trials.iter().flat_map(|trial| trial.cpu_pairs.clone()).collect();
        let Some(found) = Truth::of_figures(&pairs)? else { return Ok(false) };
        let scored: Vec<Scored> = self.trials.iter().flat_map(|trial| trial.scored_cpu()).collect();
        let pick = |figure: fn(&Range) -> f64| {
            mean(scored.iter().map(|scored| figure(&scored.prediction))).unwrap_or(f64::NAN)
        };
        let middle = pick(|item| item.middle);
        let lower = pick(|item| item.lower);
        let upper = pick(|item| item.upper);
        let scored = Scored { prediction: Range { middle, lower, upper }, truth: found.change };
        let is_unsure =
            found.interval.is_none_or(|(lower, upper)| (upper - lower) / 2.0 > scored.tolerance());
        let verdict = match (scored.is_near(), is_unsure) {
            (true, false) => "near",
            (true, true) => "near, unsure",
            (false, false) => "**not near**",
            (false, true) => "**not near**, unsure",
        };
        let to = if self.trials[0].source == Arm::On { "off" } else { "on" };
        let servers: Vec<&str> = self.trials.iter().map(|trial| trial.server.as_str()).collect();
        row(
            text,
            &[
                servers.join(", "),
                self.trials[0].workload.name().to_owned(),
                to.to_owned(),
                pairs.len().to_string(),
                truth(&found),
                range(&scored.prediction),
                verdict.to_owned(),
            ],
        );
        Ok(scored.is_near())
    }
}
