//! The advice, with its reason in a sentence.

use pgtoll_estimate::{advised_action, percent_of_share as percent};
use pgtoll_model::{CHECKSUMS_RULE, CostDecision, CostLimits};
use pgtoll_record::{
    Interval, PredictedCpu, PredictedWal, PredictionAdvice, PredictionAnswer, PredictionBasis,
};

use crate::question::{AskedValue, SettingQuestion};

/// About data checksums that are off today.
pub(super) fn advice(
    question: &SettingQuestion,
    answer: &PredictionAnswer,
) -> Option<PredictionAdvice> {
    if question.value != AskedValue::Checksums(true) || answer.today == answer.value {
        return None;
    }
    let judged = [judged_cpu(answer.cpu.as_ref()), judged_wal(answer.wal.as_ref())];
    let (decision, decides) = judged.into_iter().max_by_key(|(decision, _)| *decision)?;
    let action = advised_action(decision);
    let rule = CHECKSUMS_RULE.sentence();
    Some(PredictionAdvice { action, decides, rule, sentence: None })
}

fn judged_cpu(cpu: Option<&PredictedCpu>) -> (CostDecision, String) {
    let unknown = (CostDecision::MeasureFirst, "server CPU is unknown".to_owned());
    let Some(cpu) = cpu else { return unknown };
    if let Some(share) = &cpu.share_of_busy {
        return (judge(CHECKSUMS_RULE.cpu, share), format!("server CPU: {}", bound_words(share)));
    }
    // A server that is busy with a core or more pays a smaller share than this; one that is not pays
    // little of a core.
    let share = Interval { lower: 0.0, ..cpu.cores };
    let words = format!("CPU: at most {:.1} % of one core", cpu.cores.upper * 100.0);
    (judge(CHECKSUMS_RULE.cpu, &share), words)
}

fn judged_wal(wal: Option<&PredictedWal>) -> (CostDecision, String) {
    let unknown = |words: &str| (CostDecision::MeasureFirst, words.to_owned());
    let Some(wal) = wal else { return unknown("WAL is unknown") };
    let share = wal.extra_share.filter(|_| wal.baseline_bytes_per_second >= IDLE_BYTES);
    let is_zero = wal.extra_bytes_per_second.upper <= 0.0;
    let Some(share) = &share.or(is_zero.then_some(NOTHING)) else {
        return unknown("the server made hardly any WAL to compare with: watch it at work");
    };
    (judge(CHECKSUMS_RULE.wal, share), format!("WAL: {}", wal_words(wal, share)))
}

/// WAL a second of a server that does nothing.
pub(super) const IDLE_BYTES: f64 = 10_000.0;
const NOTHING: Interval = Interval { estimate: 0.0, lower: 0.0, upper: 0.0 };

fn judge(limits: CostLimits, share: &Interval) -> CostDecision {
    limits.judge(share.lower, share.upper)
}

/// `8.1 % more, at most 12 %`.
fn bound_words(share: &Interval) -> String {
    if share.upper <= 0.0 && share.lower >= 0.0 {
        return "no more".to_owned();
    }
    format!("{} more, at most {}", percent(share.estimate), percent(share.upper))
}

/// As [`bound_words`], without the middle of bounds alone.
fn wal_words(wal: &PredictedWal, share: &Interval) -> String {
    if wal.basis == PredictionBasis::Counters && share.upper > 0.0 {
        return format!("at most {} more", percent(share.upper));
    }
    direction(share)
}

/// `8.1 % more, at most 12 %`, or less.
fn direction(share: &Interval) -> String {
    if share.lower >= 0.0 {
        bound_words(share)
    } else if share.upper <= 0.0 {
        format!("{} less, at most {}", percent(-share.estimate), percent(-share.lower))
    } else {
        format!("between {} less and {} more", percent(-share.lower), percent(share.upper))
    }
}

/// The answer in a sentence.
pub(super) fn headline(answer: &PredictionAnswer) -> String {
    let change = format!("{} = {}", answer.setting, answer.value);
    if answer.today == answer.value {
        return format!("{change}: so it is already.");
    }
    let cpu = match answer.cpu.as_ref() {
        Some(PredictedCpu { share_of_busy: Some(share), .. }) => direction(share),
        Some(cpu) => {
            let Interval { estimate, lower, upper } = cpu.cores;
            format!("{estimate:.3} cores [{lower:.3} to {upper:.3}]")
        }
        None => "not known".to_owned(),
    };
    let wal =
        match answer.wal.as_ref() {
            Some(wal) if wal.extra_bytes_per_second == NOTHING => "no more".to_owned(),
            Some(
                wal @ PredictedWal { extra_share: Some(share), baseline_bytes_per_second, .. },
            ) if *baseline_bytes_per_second >= IDLE_BYTES => wal_words(wal, share),
            Some(_) => "in the table: today's is hardly any".to_owned(),
            None => "not known".to_owned(),
        };
    format!("{change}: server CPU {cpu}; WAL {wal}.")
}
