//! `--fail-if`: from expressions to an exit status.

use pgtoll_estimate::{
    CheckupThreshold, Decision, PredictionThreshold, Threshold, ThresholdError, ThresholdOutcome,
    decide,
};
use pgtoll_measure::Plan;
use pgtoll_predict::SettingQuestion;
use pgtoll_record::{CheckupRecord, Header, PredictionRecord, RunResult, Status};
use pgtoll_report::PluginStatus;

use crate::mistakes::Usage;
use crate::printer::Printer;

/// The thresholds of each plan, before anything starts: a run of some of the plans can decide each.
pub(super) fn of_plans<'a>(
    expressions: &[String],
    plans: impl Iterator<Item = &'a Plan>,
) -> anyhow::Result<Vec<Vec<Threshold>>> {
    let plans: Vec<&Plan> = plans.collect();
    let mut of_each: Vec<Vec<Threshold>> = plans.iter().map(|_| Vec::new()).collect();
    for expression in expressions.chunks(1) {
        let mut first_error = None;
        let mut decided = false;
        for (thresholds, plan) in of_each.iter_mut().zip(&plans) {
            match of_plan(expression, plan) {
                Ok(fitting) => {
                    thresholds.extend(fitting);
                    decided = true;
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.filter(|_| !decided).map_or(Ok(()), Err)?;
    }
    Ok(of_each)
}

/// The thresholds: a run of this plan can decide each.
fn of_plan(expressions: &[String], plan: &Plan) -> anyhow::Result<Vec<Threshold>> {
    let experiment = &plan.experiment;
    let arms: Vec<&str> = experiment.arms.iter().map(|arm| arm.name.as_str()).collect();
    let workloads = pgtoll_measure::recorded_workloads(plan);
    read(expressions, |item| item.check(&experiment.baseline, &arms, &workloads))
}

/// The thresholds; a record of this kind can decide each.
pub(super) fn of_record(expressions: &[String], header: &Header) -> anyhow::Result<Vec<Threshold>> {
    let arms: Vec<&str> = header.arms.iter().map(|arm| arm.name.as_str()).collect();
    read(expressions, |item| item.check(&header.baseline, &arms, &header.workloads))
}

fn read(
    expressions: &[String],
    check: impl Fn(&Threshold) -> Result<(), ThresholdError>,
) -> anyhow::Result<Vec<Threshold>> {
    let thresholds = expressions.iter().map(|text| {
        let threshold = text.parse::<Threshold>().and_then(|item| check(&item).map(|()| item));
        threshold.map_err(|error| Usage::error(format!("--fail-if: {error}"), error.hint()))
    });
    thresholds.collect()
}

/// A line for each decision, and the worst of them. What is surely broken is a finding, whatever
/// else was not resolved.
pub(super) fn judge(
    thresholds: &[Threshold],
    result: &RunResult,
    record: Option<&str>,
    printer: &mut Printer,
) -> Status {
    judge_decisions(
        thresholds.iter().flat_map(|threshold| decide(threshold, result)),
        record,
        printer,
    )
}

/// The thresholds of a prediction, before anything is watched; without a question its answer is
/// about checksums.
pub(super) fn of_prediction(
    expressions: &[String],
    questions: &[SettingQuestion],
) -> anyhow::Result<Vec<PredictionThreshold>> {
    let names: Vec<&str> = match questions {
        [] => vec!["data_checksums"],
        requested => requested.iter().map(|item| item.name).collect(),
    };
    let thresholds = expressions.iter().map(|text| {
        let threshold = text.parse().and_then(|threshold: PredictionThreshold| {
            threshold.check(&names)?;
            Ok(threshold)
        });
        threshold.map_err(|error| Usage::error(format!("--fail-if: {error}"), error.hint()))
    });
    thresholds.collect()
}

/// As [`judge`].
pub(super) fn judge_prediction(
    thresholds: &[PredictionThreshold],
    record: &PredictionRecord,
    printer: &mut Printer,
) -> Status {
    judge_decisions(thresholds.iter().flat_map(|threshold| threshold.decide(record)), None, printer)
}

/// The thresholds of a checkup, before anything is watched.
pub(super) fn of_checkup(expressions: &[String]) -> anyhow::Result<Vec<CheckupThreshold>> {
    let thresholds = expressions.iter().map(|text| {
        let threshold = text.parse::<CheckupThreshold>();
        threshold.map_err(|error| Usage::error(format!("--fail-if: {error}"), error.hint()))
    });
    thresholds.collect()
}

/// As [`judge`].
pub(super) fn judge_checkup(
    thresholds: &[CheckupThreshold],
    record: &CheckupRecord,
    printer: &mut Printer,
) -> Status {
    judge_decisions(thresholds.iter().map(|threshold| threshold.decide(record)), None, printer)
}

fn judge_decisions(
    decisions: impl Iterator<Item = Decision>,
    record: Option<&str>,
    printer: &mut Printer,
) -> Status {
    let mut worst = ThresholdOutcome::Kept;
    for decision in decisions {
        let record = record.map(|name| format!("{name}: ")).unwrap_or_default();
        let line = format!("fail-if: {record}{}", decision.line);
        let raised = match decision.outcome {
            ThresholdOutcome::Kept => PluginStatus::Ok,
            ThresholdOutcome::NotResolved => PluginStatus::Unknown,
            ThresholdOutcome::Broken => PluginStatus::Critical,
        };
        if raised == PluginStatus::Ok {
            printer.say(&line);
        } else {
            printer.warn(&line);
            if let Some(check) = &mut printer.check {
                check.raise(raised, line);
            }
        }
        worst = worst.max(decision.outcome);
    }
    match worst {
        ThresholdOutcome::Kept => Status::Done,
        ThresholdOutcome::NotResolved => Status::CouldNotTell,
        ThresholdOutcome::Broken => Status::Finding,
    }
}
