//! A workload on a server: what changing checksums really cost it, and what was predicted.

use std::collections::BTreeMap;

use pgtoll_record::trials::{
    PredictionTrialAnswer as Answer, PredictionTrialArm as Arm, PredictionTrialRange as Range,
    PredictionTrialRegime as Regime, PredictionTrialRights as Rights, PredictionTrialRun as Run,
    PredictionTrialWorkload as Workload,
};
use pgtoll_trials::bench::ratio;

use crate::contents::{Contents, Group};
use crate::estimate::Estimator;
use crate::score::{Scored, mean};
use crate::{float, product};

/// A change that a server really made: the ratio of both runs, less 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Truth {
    pub(crate) change: f64,
    /// 95 % over the repetitions; `None` of one.
    pub(crate) interval: Option<(f64, f64)>,
}

/// A direction of a workload on a server.
pub(crate) struct Trial {
    pub(crate) server: String,
    pub(crate) workload: Workload,
    /// What the server pays for that is watched.
    pub(crate) source: Arm,
    pub(crate) megabytes: f64,
    pub(crate) wal: Truth,
    pub(crate) cpu: Truth,
    /// CPU time of each repetition, with the other setting and with the one that is watched.
    pub(crate) cpu_pairs: Vec<(f64, f64)>,
    /// The smallest and largest change of WAL of a repetition.
    pub(crate) spread: (f64, f64),
    /// The mean over the repetitions.
    estimates: Vec<(Estimator, f64)>,
    /// What the program's formula makes of each repetition's censuses.
    pub(crate) formula: Vec<Range>,
    pub(crate) answers: Vec<Answer>,
    /// Those to a role that reads views alone.
    pub(crate) monitor_answers: Vec<Answer>,
}

/// All directions of all workloads on all servers that ran with checksums and without.
pub(crate) fn trials(contents: &Contents, regime: Regime) -> anyhow::Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for group in contents.groups(regime).values() {
        for source in [Arm::Off, Arm::On] {
            trials.extend(Trial::new(source, group)?);
        }
    }
    Ok(trials)
}

impl Truth {
    /// Of pairs of a figure: with the other setting, and with the one that is watched.
    pub(crate) fn of_figures(pairs: &[(f64, f64)]) -> anyhow::Result<Option<Self>> {
        match pairs {
            [] => Ok(None),
            [(to, from)] => Ok(Some(Self { change: to / from - 1.0, interval: None })),
            _ => {
                let found =
                    ratio(pairs.iter().map(|(to, _)| *to), pairs.iter().map(|(_, from)| *from))?;
                let interval = Some((found.lower - 1.0, found.upper - 1.0));
                Ok(Some(Self { change: found.ratio - 1.0, interval }))
            }
        }
    }
}

impl Trial {
    /// `None` without a repetition with both settings.
    fn new(source: Arm, group: &Group<'_>) -> anyhow::Result<Option<Self>> {
        let by_repetition = |arm: Arm| -> BTreeMap<u32, &Run> {
            let own = group.runs.iter().filter(|run| run.arm == arm);
            own.map(|run| (run.repetition, *run)).collect()
        };
        let off = by_repetition(Arm::Off);
        let on = by_repetition(Arm::On);
        let watched = by_repetition(Arm::Watched);
        let pairs: Vec<(&Run, &Run)> = off
            .iter()
            .filter_map(|(repetition, off)| {
                let on = *on.get(repetition)?;
                Some(if source == Arm::On { (*off, on) } else { (on, *off) })
            })
            .collect();
        let figures = |figure: fn(&Run) -> u64| -> Vec<(f64, f64)> {
            pairs.iter().map(|(to, from)| (float(figure(to)), float(figure(from)))).collect()
        };
        let cpu_pairs = figures(|run| run.cpu_ns);
        let (Some(wal), Some(cpu)) =
            (Truth::of_figures(&figures(|run| run.wal_bytes))?, Truth::of_figures(&cpu_pairs)?)
        else {
            return Ok(None);
        };
        let change = |(to, from): &(&Run, &Run)| float(to.wal_bytes) / float(from.wal_bytes) - 1.0;
        let changes: Vec<f64> = pairs.iter().map(change).collect();
        let (estimates, formula) = if source == Arm::On {
            (mean_estimates(&Estimator::TO_OFF, &on, Estimator::to_off), Vec::new())
        } else {
            // Runs with censuses of their own, or those that the program watches.
            let runs = if watched.is_empty() { &off } else { &watched };
            let predict =
                |estimator: Estimator, run: &Run| estimator.to_on(run, on.get(&run.repetition)?);
            let formula = watched.values().filter_map(|run| product::change(run)).collect();
            (mean_estimates(&Estimator::TO_ON, runs, predict), formula)
        };
        let from = pairs[0].1;
        let answers = |rights| {
            let is_own = move |answer: &&&Answer| (answer.arm, answer.rights) == (source, rights);
            group.answers.iter().filter(is_own).map(|answer| (*answer).clone()).collect()
        };
        Ok(Some(Self {
            server: from.server.clone(),
            workload: from.workload,
            source,
            megabytes: mean(pairs.iter().map(|(_, from)| float(from.wal_bytes) / 1e6))
                .unwrap_or(0.0),
            wal,
            cpu,
            cpu_pairs,
            spread: (
                changes.iter().copied().fold(f64::INFINITY, f64::min),
                changes.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ),
            estimates,
            formula,
            answers: answers(Rights::Superuser),
            monitor_answers: answers(Rights::Monitor),
        }))
    }

    pub(crate) fn estimate(&self, estimator: Estimator) -> Option<f64> {
        self.estimates.iter().find(|(own, _)| *own == estimator).map(|(_, value)| *value)
    }

    /// The program's formula on the trial's censuses.
    pub(crate) fn scored_formula(&self) -> impl Iterator<Item = Scored> {
        let truth = self.wal.change;
        self.formula.iter().map(move |prediction| Scored { prediction: *prediction, truth })
    }

    /// The program's answers about WAL.
    pub(crate) fn scored(&self) -> impl Iterator<Item = Scored> {
        let truth = self.wal.change;
        let answers = self.answers.iter().filter_map(|answer| answer.wal);
        answers.map(move |prediction| Scored { prediction, truth })
    }

    /// The program's answers about WAL to a role that reads views alone.
    pub(crate) fn scored_monitor(&self) -> impl Iterator<Item = Scored> {
        let truth = self.wal.change;
        let answers = self.monitor_answers.iter().filter_map(|answer| answer.wal);
        answers.map(move |prediction| Scored { prediction, truth })
    }

    /// The program's answers about CPU time.
    pub(crate) fn scored_cpu(&self) -> impl Iterator<Item = Scored> {
        let truth = self.cpu.change;
        let answers = self.answers.iter().filter_map(|answer| answer.cpu);
        answers.map(move |prediction| Scored { prediction, truth })
    }

    /// The program's tests of itself, against what it found in the same WAL.
    pub(crate) fn scored_blind(&self) -> impl Iterator<Item = Scored> {
        let tests = self.answers.iter().filter_map(|answer| answer.blind);
        tests.map(|test| Scored { prediction: test.predicted, truth: test.found })
    }
}

/// Each estimator's mean over the runs that it says something about.
fn mean_estimates(
    estimators: &[Estimator],
    runs: &BTreeMap<u32, &Run>,
    predict: impl Fn(Estimator, &Run) -> Option<f64>,
) -> Vec<(Estimator, f64)> {
    let pick = |estimator: Estimator| {
        let values: Vec<f64> = runs.values().filter_map(|run| predict(estimator, run)).collect();
        Some((estimator, mean(values.into_iter())?))
    };
    estimators.iter().filter_map(|estimator| pick(*estimator)).collect()
}
