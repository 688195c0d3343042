//! The answer of a run: a sentence, a line for each arm and workload, the workload that decides,
//! and the time that would make it surer.
//! make it surer.

mod advice;
mod change;
mod headline;
mod words;

use pgtoll_model::CHECKSUMS_RULE;
use pgtoll_record::{
    AdvisedAction, AnswerLine, Arm, ArmAdvice, Comparison, Header, Interval, MetricValue, Profile,
    RunAnswer, Verdict, Work, Workload,
};
use pgtoll_stats::proportion_interval;

pub use advice::{DECIDED_WITHIN, advised_action};
pub use change::change_and_name;
pub use headline::overview_headline;

use crate::answers::is_near;
use crate::comparisons::target;
use crate::figures::{signed_percent, thousands, three_digits};
use crate::late_wal::{LATE_WAL, transactions_words};
use crate::metrics::{divisor_words, metrics, name};
use change::change;
use headline::{ArmFigures, headline};
use words::{figure, harm, is_too_noisy, precise};

/// The answer; `None` where nothing was compared, and nothing counted differs.
pub(crate) fn answer(
    header: &Header,
    comparisons: &[Comparison],
    values: &[MetricValue],
    profiles: &[Profile],
) -> Option<RunAnswer> {
    let run = Figures { header, comparisons, values, profiles };
    let arms: Vec<&Arm> = run.arms().collect();
    let figures: Vec<ArmFigures<'_>> = arms.iter().map(|arm| run.of_arm(arm)).collect();
    let mut lines: Vec<AnswerLine> = arms.iter().flat_map(|arm| run.lines(arm)).collect();
    let (headline, subject) = headline(header, &figures, &lines)?;
    // What the sentence is about stands first.
    lines.sort_by_key(|line| subject.is_some_and(|subject| subject.arm.name != line.arm));
    let advice = subject.and_then(|subject| run.advice(subject));
    let decides = subject.and_then(|subject| run.decides(subject, advice.as_ref()));
    Some(RunAnswer { headline, advice, lines, decides, surer: run.surer() })
}

/// Thousands of percent are no figure that one reads.
fn wal_ratio(ratio: f64) -> String {
    if ratio >= 10.0 {
        return format!("WAL {ratio:.0} times as much");
    }
    format!("WAL {} %", signed_percent(ratio, usize::from((ratio - 1.0).abs() < 0.0995)))
}

/// The figures that a run's answer is made from.
struct Figures<'a> {
    header: &'a Header,
    comparisons: &'a [Comparison],
    values: &'a [MetricValue],
    profiles: &'a [Profile],
}

impl<'a> Figures<'a> {
    /// Arms that the answer is about.
    fn arms(&self) -> impl Iterator<Item = &'a Arm> {
        let header = self.header;
        header.arms.iter().filter(|arm| arm.name != header.baseline && arm.twin_of.is_none())
    }

    fn of_arm(&self, arm: &'a Arm) -> ArmFigures<'a> {
        let primary =
            self.header.workloads.iter().filter_map(|workload| self.primary(workload, &arm.name));
        let of_transactions = |comparison: &&Comparison| {
            let mut workloads = self.header.workloads.iter();
            workloads.any(|work| work.name == comparison.workload && work.work.is_of_transactions())
        };
        let (transactions, operations) = primary.partition(of_transactions);
        ArmFigures { arm, transactions, operations }
    }

    /// The arm's comparison in the metric that the workload's answer is about.
    fn primary(&self, workload: &Workload, arm: &str) -> Option<&'a Comparison> {
        let metric = metrics(workload)[0];
        let mut all =
            self.comparisons.iter().filter(|comparison| comparison.workload == workload.name);
        all.find(|comparison| comparison.metric == metric && comparison.arm == arm)
    }

    fn lines(&self, arm: &'a Arm) -> Vec<AnswerLine> {
        let lines = self.header.workloads.iter().flat_map(|workload| {
            let compared = self.primary(workload, &arm.name);
            let compared = compared.map(|compared| AnswerLine {
                metric: Some(compared.metric),
                ratio: Some(compared.ratio),
                verdict: Some(compared.verdict),
                too_noisy: is_too_noisy(compared),
                cause: self.cause(workload, compared),
                ..self.line(workload, arm, figure(compared))
            });
            let other = |(figure, cause): (String, String)| AnswerLine {
                cause: Some(cause),
                ..self.line(workload, arm, figure)
            };
            let wal = self.wal(workload, arm).into_iter().chain(self.late_wal(workload, arm));
            let wal = wal.map(other);
            let function = self.profiles.iter();
            let function = function
                .filter(|function| function.workload == workload.name && function.arm == arm.name)
                .filter_map(|function| Some(other(function_share(function)?)));
            compared.into_iter().chain(wal).chain(function).collect::<Vec<_>>()
        });
        lines.collect()
    }

    fn line(&self, workload: &Workload, arm: &Arm, figure: String) -> AnswerLine {
        AnswerLine {
            workload: workload.name.clone(),
            title: workload.title.clone(),
            arm: arm.name.clone(),
            change: change(self.header, &arm.name),
            metric: None,
            ratio: None,
            verdict: None,
            too_noisy: false,
            figure,
            cause: None,
        }
    }

    fn value(&self, workload: &str, arm: &str, metric: &str) -> Option<&'a MetricValue> {
        let mut all =
            self.values.iter().filter(|value| value.workload == workload && value.arm == arm);
        all.find(|value| value.metric == metric)
    }

    /// Images for hint bits that the arm wrote and the baseline did not.
    fn cause(&self, workload: &Workload, comparison: &Comparison) -> Option<String> {
        const NAME: &str = "hint_images_per_page";
        let images = |arm: &str| Some(self.value(&workload.name, arm, NAME)?.value);
        let more = images(&comparison.arm)? - images(&self.header.baseline)?;
        let costs = comparison.verdict == Verdict::Costs && more > 0.01;
        costs.then(|| {
            if (more - 1.0).abs() < 0.05 {
                "hint bits, an image of each page, once".to_owned()
            } else {
                format!("hint bits, images of {:.0} % of the pages", more * 100.0)
            }
        })
    }

    /// The arm's WAL and what it is of, when it differs from the baseline's.
    fn wal(&self, workload: &Workload, arm: &Arm) -> Option<(String, String)> {
        let mut all = self.values.iter().filter(|value| value.workload == workload.name);
        let own =
            all.find(|value| value.arm == arm.name && value.metric.starts_with("wal_per_"))?;
        let baseline = self.value(&workload.name, &self.header.baseline, &own.metric)?;
        if is_near(own.value, baseline.value) {
            return None;
        }
        let per = divisor_words(&own.metric);
        if baseline.value < 1.0 {
            let figure = format!("WAL {} bytes {per}", three_digits(own.value));
            return Some((figure, "from none".to_owned()));
        }
        let of_what = if let Work::Script { counted, .. } = &workload.work {
            format!("first {} transactions after a checkpoint", thousands(*counted))
        } else {
            let from = three_digits(baseline.value);
            let to = three_digits(own.value);
            format!("from {from} to {to} bytes {per}")
        };
        Some((wal_ratio(own.value / baseline.value), of_what))
    }

    /// The arm's WAL long after a checkpoint, where it differs from the baseline's there, or has
    /// differed right after the checkpoint.
    fn late_wal(&self, workload: &Workload, arm: &Arm) -> Option<(String, String)> {
        let own = self.value(&workload.name, &arm.name, LATE_WAL)?;
        let baseline = self.value(&workload.name, &self.header.baseline, LATE_WAL)?;
        if is_near(own.value, baseline.value) && self.wal(workload, arm).is_none() {
            return None;
        }
        let of_what = transactions_words(own.of_transactions?);
        Some((wal_ratio(own.value / baseline.value), of_what))
    }

    /// By the worst workload of transactions, in server CPU or in WAL.
    fn advice(&self, figures: &ArmFigures<'_>) -> Option<ArmAdvice> {
        let mut arms = self.header.arms.iter();
        let baseline = arms.find(|arm| arm.name == self.header.baseline)?;
        if !advice::turns_checksums_on(figures.arm, baseline) {
            return None;
        }
        let ratios: Vec<Interval> =
            figures.transactions.iter().map(|transaction| transaction.ratio).collect();
        let cpu = advice::judge_cpu(&ratios)?;
        let wal = self.most_wal(figures).map(|(_, ratio)| advice::judge_wal(ratio));
        let action = advised_action(wal.map_or(cpu, |wal| cpu.max(wal)));
        let not_judged = if wal.is_none() { "; these workloads write no WAL to judge" } else { "" };
        let rule = format!("{}{not_judged}", CHECKSUMS_RULE.sentence());
        Some(ArmAdvice { arm: figures.arm.name.clone(), action, rule })
    }

    /// The workload of transactions in which the arm writes most WAL for the baseline's, and how many
    /// times as much. Where the baseline writes none, there is no ratio.
    fn most_wal(&self, figures: &ArmFigures<'_>) -> Option<(&'a str, f64)> {
        let is_wal = |metric: &str| metric.starts_with("wal_per_") || metric == LATE_WAL;
        let is_timed = |value: &MetricValue| {
            figures.transactions.iter().any(|compared| compared.workload == value.workload)
        };
        let own = self.values.iter().filter(|value| {
            value.arm == figures.arm.name && is_wal(&value.metric) && is_timed(value)
        });
        let ratios = own.filter_map(|own| {
            let baseline = self.value(&own.workload, &self.header.baseline, &own.metric)?;
            let ratio = own.value / baseline.value;
            (baseline.value >= 1.0).then_some((own.workload.as_str(), ratio))
        });
        ratios.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The figure that the advice rests on, or that the sentence begins with.
    fn decides(&self, figures: &ArmFigures<'_>, advice: Option<&ArmAdvice>) -> Option<String> {
        let by = |bound: fn(&Interval) -> f64| {
            let all = figures.transactions.iter();
            all.max_by(|a, b| bound(&a.ratio).total_cmp(&bound(&b.ratio))).copied()
        };
        let figure = |comparison: &Comparison| {
            format!(
                "{} of {}",
                name(comparison.metric),
                short_title(self.title(&comparison.workload))
            )
        };
        let percent = |ratio: f64| signed_percent(ratio.min(1000.0), 1);
        let ratios: Vec<Interval> =
            figures.transactions.iter().map(|transaction| transaction.ratio).collect();
        let by_wal = self.most_wal(figures).filter(|(_, ratio)| {
            let cpu = advice::judge_cpu(&ratios);
            advice.is_some() && cpu.is_some_and(|cpu| advice::judge_wal(*ratio) > cpu)
        });
        if let Some((workload, ratio)) = by_wal {
            let title = short_title(self.title(workload));
            return Some(format!("{} of {title}", wal_ratio(ratio)));
        }
        match advice.map(|advice| advice.action) {
            Some(AdvisedAction::Leave) => {
                let by = by(|ratio| ratio.lower)?;
                Some(format!("{}: lower bound {} %", figure(by), percent(by.ratio.lower)))
            }
            Some(_) => {
                let by = by(|ratio| ratio.upper)?;
                Some(format!("{}: upper bound {} %", figure(by), percent(by.ratio.upper)))
            }
            None => {
                let all = figures.transactions.iter().chain(&figures.operations);
                all.max_by(|a, b| harm(a).total_cmp(&harm(b)))
                    .map(|transaction| figure(transaction))
            }
        }
    }

    fn title(&self, workload: &str) -> &'a str {
        let mut all = self.header.workloads.iter();
        all.find(|item| item.name == workload).map_or("", |workload| workload.title.as_str())
    }

    /// How much longer each workload would have to be measured, the shortest first.
    fn surer(&self) -> Option<String> {
        let precision = self.header.design.precision;
        let mut open: Vec<(f64, String)> = Vec::new();
        for workload in &self.header.workloads {
            let of_arms = self.arms().filter_map(|arm| self.primary(workload, &arm.name));
            let unresolved: Vec<&Comparison> =
                of_arms.filter(|item| item.verdict == Verdict::NotResolved).collect();
            let Some(first) = unresolved.first() else { continue };
            let seconds = unresolved
                .iter()
                .map(|unresolved| unresolved.more_seconds.unwrap_or(f64::INFINITY));
            let seconds = seconds.fold(0.0, f64::max);
            let target = precise(target(first.metric, precision));
            let title = short_title(&workload.title);
            open.push((seconds, format!("{title} to {target}")));
        }
        open.sort_by(|a, b| a.0.total_cmp(&b.0));
        let more = open.len().saturating_sub(OPEN_SHOWN);
        let shown = open.iter().take(OPEN_SHOWN).enumerate().map(|(index, (seconds, item))| {
            let would = if index == 0 { " would narrow" } else { "" };
            format!("{}{would} {item}", longer(*seconds))
        });
        let mut output: Vec<String> = shown.collect();
        let plural = if more == 1 { "workload takes" } else { "workloads take" };
        output.extend((more > 0).then(|| format!("{more} other {plural} longer")));
        (!output.is_empty()).then(|| output.join("; "))
    }
}

/// Workloads that would take longer are only counted.
const OPEN_SHOWN: usize = 3;

/// Minutes and hours, rounded up.
fn longer(seconds: f64) -> String {
    const HOURS_MAX: f64 = 24.0;
    let minutes = (seconds / 60.0).ceil();
    if minutes <= 1.0 {
        "1 more minute".to_owned()
    } else if minutes <= 120.0 {
        format!("{minutes:.0} more minutes")
    } else if minutes <= HOURS_MAX * 60.0 {
        format!("{:.0} more hours", (minutes / 60.0).ceil())
    } else {
        format!("more than {HOURS_MAX:.0} hours")
    }
}

/// The share of a function in an arm's CPU time, and the function, where it was found at all.
fn function_share(profile: &Profile) -> Option<(String, String)> {
    let (lower, upper) = proportion_interval(profile.samples, profile.of)?;
    #[expect(clippy::cast_precision_loss, reason = "samples are far below 2^53")]
    let share = profile.samples as f64 / profile.of as f64;
    (profile.samples > 0).then(|| {
        let [share, lower, upper] = [share, lower, upper].map(|item| item * 100.0);
        let figure = format!("{share:.1} % [{lower:.1}, {upper:.1}] of user CPU");
        (figure, format!("function {}*", profile.function))
    })
}

/// The title without what stands in parentheses at its end.
fn short_title(title: &str) -> &str {
    let short =
        title.strip_suffix(')').and_then(|item| item.split_once(" (")).map(|(item, _)| item);
    short.filter(|short| !short.is_empty()).unwrap_or(title)
}

#[cfg(test)]
mod tests;
