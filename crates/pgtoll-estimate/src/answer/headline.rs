//! The one-sentence summary of a run, or of several.

use pgtoll_record::{AnswerLine, Arm, Comparison, Header, OverviewExperiment, Verdict};

use super::words::{at_most, harm, interval, is_too_noisy};
use super::{change, short_title};
use crate::metrics::name;

/// The comparisons of an arm in the metrics that answers are about.
pub(crate) struct ArmFigures<'a> {
    pub(crate) arm: &'a Arm,
    /// Comparisons of workloads of transactions.
    pub(crate) transactions: Vec<&'a Comparison>,
    /// Comparisons of single operations.
    pub(crate) operations: Vec<&'a Comparison>,
}

impl ArmFigures<'_> {
    fn all(&self) -> impl Iterator<Item = &Comparison> {
        self.transactions.iter().chain(&self.operations).copied()
    }

    /// Returns its largest cost, on the log scale.
    fn harm(&self) -> f64 {
        self.all().filter(|item| item.verdict == Verdict::Costs).map(harm).fold(0.0, f64::max)
    }
}

/// The sentence, and the arm that it is about where figures were compared; `None` where there is
/// nothing to say.
pub(crate) fn headline<'a, 'b>(
    header: &Header,
    arms: &'b [ArmFigures<'a>],
    lines: &[AnswerLine],
) -> Option<(String, Option<&'b ArmFigures<'a>>)> {
    let compared = || arms.iter().filter(|arm| arm.all().next().is_some());
    let Some(subject) = subject(header, compared()) else {
        // Only counted.
        let first = lines.first()?;
        return Some((format!("{}: {} ({}).", first.change, first.figure, first.title), None));
    };
    let of_arm = |figures: &ArmFigures<'_>| {
        format!("{}: {}", change(header, &figures.arm.name), of_figures(header, figures, lines))
    };
    let others = compared().filter(|compared| compared.arm.name != subject.arm.name).count();
    let sentence = match others {
        0 => of_arm(subject),
        _ if is_of_checksums(header, subject.arm) => of_arm(subject),
        1 => compared().map(of_arm).collect::<Vec<_>>().join("; "),
        _ if subject.harm() > 0.0 => {
            format!("{}; the most of {} changes", of_arm(subject), others + 1)
        }
        _ => format!("{}; {others} other changes are below", of_arm(subject)),
    };
    Some((sentence_case(&sentence) + ".", Some(subject)))
}

/// The arm that changes checksums, where there is one alone; else the one that costs most.
fn subject<'a, 'b: 'a>(
    header: &Header,
    arms: impl Iterator<Item = &'a ArmFigures<'b>> + Clone,
) -> Option<&'a ArmFigures<'b>> {
    let mut of_checksums = arms.clone().filter(|arm| is_of_checksums(header, arm.arm));
    match (of_checksums.next(), of_checksums.next()) {
        (Some(only), None) => Some(only),
        // The first of equals.
        _ => arms.fold(None, |worst: Option<&ArmFigures<'_>>, arm| match worst {
            Some(worst) if worst.harm() >= arm.harm() => Some(worst),
            _ => Some(arm),
        }),
    }
}

fn is_of_checksums(header: &Header, arm: &Arm) -> bool {
    let mut arms = header.arms.iter();
    let baseline = arms.find(|arm| arm.name == header.baseline);
    baseline.is_some_and(|baseline| arm.checksums != baseline.checksums)
}

fn of_figures(header: &Header, figures: &ArmFigures<'_>, lines: &[AnswerLine]) -> String {
    let operations = of_group(header, &figures.operations).map(|words| {
        let both = !figures.transactions.is_empty();
        if both { format!("single operations: {words}") } else { words }
    });
    let wal = lines.iter().filter(|line| line.arm == figures.arm.name);
    let wal = wal.filter(|line| line.metric.is_none() && line.figure.starts_with("WAL "));
    let is_of_transactions = |line: &&AnswerLine| {
        let mut workloads = header.workloads.iter();
        workloads
            .any(|workload| workload.name == line.workload && workload.work.is_of_transactions())
    };
    let wal = wal.filter(is_of_transactions).map(wal_words).next();
    let clauses = of_group(header, &figures.transactions).into_iter().chain(wal).chain(operations);
    clauses.collect::<Vec<_>>().join("; ")
}

fn wal_words(line: &AnswerLine) -> String {
    let of_what = line.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
    format!("{}{of_what}", line.figure)
}

/// The worst of them that is sure; else what all of them promise.
fn of_group(header: &Header, all: &[&Comparison]) -> Option<String> {
    let metric = all.first()?.metric;
    let of_verdict =
        |verdict: Verdict| all.iter().filter(move |comparison| comparison.verdict == verdict);
    let worst = of_verdict(Verdict::Costs).max_by(|a, b| harm(a).total_cmp(&harm(b)));
    let best = of_verdict(Verdict::Gains).min_by(|a, b| harm(a).total_cmp(&harm(b)));
    let noisy = all.iter().filter(|comparison| is_too_noisy(comparison)).count();
    let up_to = if all.len() > 1 { "up to " } else { "" };
    let sure = |comparison: &Comparison| {
        format!(
            "{up_to}{} {} ({})",
            interval(comparison),
            name(comparison.metric),
            title(header, comparison)
        )
    };
    let quiet = all.iter().filter(|comparison| !is_too_noisy(comparison));
    let farthest = quiet.max_by(|a, b| bound(a).total_cmp(&bound(b)));
    let words = match (worst.or(best), farthest) {
        (Some(item), _) => sure(item),
        (None, Some(item)) => format!("no difference seen, {} {}", at_most(item), name(metric)),
        (None, None) => return Some("too noisy to decide".to_owned()),
    };
    let too_noisy = (noisy > 0).then(|| format!(", too noisy in {noisy} of {}", all.len()));
    Some(words + &too_noisy.unwrap_or_default())
}

/// The bound on the side of a cost.
fn bound(comparison: &Comparison) -> f64 {
    if comparison.metric.more_is_worse() {
        comparison.ratio.upper
    } else {
        2.0 - comparison.ratio.lower
    }
}

fn title<'a>(header: &'a Header, comparison: &Comparison) -> &'a str {
    let mut workloads = header.workloads.iter();
    let found = workloads.find(|work| work.name == comparison.workload);
    found.map_or("", |work| short_title(&work.title))
}

/// Settings keep their letters.
fn sentence_case(sentence: &str) -> String {
    let known = ["data checksums", "no data checksums"];
    if !known.iter().any(|item| sentence.starts_with(item)) {
        return sentence.to_owned();
    }
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns the common answer of several experiments: which change costs most, and how many differences are
/// what; `None` where nothing was compared.
pub fn overview_headline(experiments: &[OverviewExperiment]) -> Option<String> {
    let all = || {
        experiments.iter().flat_map(|experiment| {
            experiment
                .comparisons
                .iter()
                .filter(|found| !found.null)
                .map(move |found| (experiment, found))
        })
    };
    let count = |verdict: Verdict| all().filter(|(_, item)| item.verdict == verdict).count();
    let noisy = all().filter(|(_, item)| is_too_noisy(item)).count();
    let costs = count(Verdict::Costs);
    let gains = count(Verdict::Gains);
    let compared = all().count();
    let quiet = compared - costs - gains - noisy;
    let costly = all().filter(|(_, item)| item.verdict == Verdict::Costs);
    let worst = costly.max_by(|(_, a), (_, b)| harm(a).total_cmp(&harm(b)));
    let worst = worst.map(|(experiment, worst)| {
        let lines = experiment.answer.iter().flat_map(|answer| &answer.lines);
        let mut own = lines.filter(|line| line.arm == worst.arm && line.workload == worst.workload);
        let (change, title) =
            own.next().map_or((worst.arm.as_str(), worst.workload.as_str()), |line| {
                (&line.change, &line.title)
            });
        format!(
            "Costs most: {change}, {} {} ({}, {title}). ",
            interval(worst),
            name(worst.metric),
            experiment.name
        )
    });
    (compared > 0).then(|| {
        format!(
            "{}Of {compared} comparisons {costs} show a cost, {gains} a gain and {quiet} no \
             difference; too noisy to decide: {noisy}.",
            worst.unwrap_or_default()
        )
    })
}
