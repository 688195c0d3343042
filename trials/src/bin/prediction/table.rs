//! Predictions beside the truth, in Markdown, and whether they are as good as they should be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use pgtoll_record::trials::{
    PredictionTrialAnswer as Answer, PredictionTrialArm as Arm, PredictionTrialHeader,
    PredictionTrialLine, PredictionTrialRange as Range, PredictionTrialRun as Run,
    PredictionTrialWorkload as Workload,
};
use pgtoll_trials::bench::ratio;

use crate::estimate::{Estimator, float};
use crate::product;
use crate::score::{LARGE, SKILL, Scored, covered_at_least, mean, skill};

/// What the record's lines hold.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) headers: Vec<PredictionTrialHeader>,
    pub(crate) runs: Vec<Run>,
    pub(crate) answers: Vec<Answer>,
}

impl Contents {
    /// Reads the lines of a record; a file that does not exist has none.
    pub(crate) fn read(record: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = record.filter(|path| path.exists()) else { return Ok(Self::default()) };
        let text = std::fs::read_to_string(path).context("read the record")?;
        let mut contents = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = serde_json::from_str(line);
            contents.add(line.with_context(|| format!("read the record, line {number}"))?);
        }
        Ok(contents)
    }

    pub(crate) fn add(&mut self, line: PredictionTrialLine) {
        match line {
            PredictionTrialLine::Header(header) => self.headers.push(*header),
            PredictionTrialLine::Run(run) => self.runs.push(*run),
            PredictionTrialLine::Answer(answer) => self.answers.push(*answer),
        }
    }

    /// All directions of all workloads on all servers that have a truth.
    fn trials(&self) -> anyhow::Result<Vec<Trial>> {
        let mut subjects: BTreeMap<(&str, Workload), Vec<&Run>> = BTreeMap::new();
        for run in &self.runs {
            subjects.entry((&run.server, run.workload)).or_default().push(run);
        }
        let mut trials = Vec::new();
        for ((server, workload), runs) in subjects {
            let is_own = |answer: &&Answer| answer.server == server && answer.workload == workload;
            let answers: Vec<&Answer> = self.answers.iter().filter(is_own).collect();
            for source in [Arm::Off, Arm::On] {
                trials.extend(Trial::new(source, &runs, &answers)?);
            }
        }
        Ok(trials)
    }
}

/// A workload on a server, and what it costs to change to the other setting.
struct Trial {
    server: String,
    workload: Workload,
    /// What the server pays for that is watched.
    source: Arm,
    megabytes: f64,
    wal: Range,
    cpu: Range,
    /// The smallest and largest change of WAL of a repetition.
    spread: (f64, f64),
    /// The mean over the repetitions.
    estimates: Vec<(Estimator, f64)>,
    /// What the program's formula makes of each repetition's censuses.
    formula: Vec<Range>,
    answers: Vec<Answer>,
}

impl Trial {
    /// `None` without two repetitions with both settings.
    fn new(source: Arm, runs: &[&Run], answers: &[&Answer]) -> anyhow::Result<Option<Self>> {
        let by_repetition = |arm: Arm| -> BTreeMap<u32, &Run> {
            let own = runs.iter().filter(|run| run.arm == arm);
            own.map(|run| (run.repetition, *run)).collect()
        };
        let (off, on) = (by_repetition(Arm::Off), by_repetition(Arm::On));
        let watched = by_repetition(Arm::Watched);
        let pairs: Vec<(&Run, &Run)> =
            off.iter().filter_map(|(number, off)| Some((*off, *on.get(number)?))).collect();
        let [(first, _), _, ..] = pairs.as_slice() else { return Ok(None) };
        let (to, from): (Vec<&Run>, Vec<&Run>) = match source {
            Arm::On => pairs.iter().copied().unzip(),
            _ => pairs.iter().map(|(off, on)| (*on, *off)).unzip(),
        };
        let change = |figure: fn(&Run) -> u64| -> anyhow::Result<Range> {
            let figures =
                |runs: &[&Run]| runs.iter().map(|run| float(figure(run))).collect::<Vec<_>>();
            let found = ratio(figures(&to).into_iter(), figures(&from).into_iter())?;
            Ok(Range {
                middle: found.ratio - 1.0,
                lower: found.lower - 1.0,
                upper: found.upper - 1.0,
            })
        };
        let wal = |run: &Run| run.wal_bytes;
        let changes =
            to.iter().zip(&from).map(|(to, from)| float(wal(to)) / float(wal(from)) - 1.0);
        let changes: Vec<f64> = changes.collect();
        let estimates = match source {
            Arm::On => estimates(&Estimator::TO_OFF, &on, Estimator::to_off),
            _ => estimates(&Estimator::TO_ON, &watched, |estimator, run| {
                estimator.to_on(run, on.get(&run.repetition)?)
            }),
        };
        Ok(Some(Self {
            server: first.server.clone(),
            workload: first.workload,
            source,
            megabytes: mean(from.iter().map(|run| float(wal(run)) / 1e6)).unwrap_or(0.0),
            wal: change(wal)?,
            cpu: change(|run| run.cpu_ns)?,
            spread: (
                changes.iter().copied().fold(f64::INFINITY, f64::min),
                changes.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ),
            estimates,
            formula: match source {
                Arm::On => Vec::new(),
                _ => watched.values().filter_map(|run| product::change(run)).collect(),
            },
            answers: answers
                .iter()
                .filter(|answer| answer.arm == source)
                .map(|answer| (*answer).clone())
                .collect(),
        }))
    }

    fn estimate(&self, estimator: Estimator) -> Option<f64> {
        self.estimates.iter().find(|(own, _)| *own == estimator).map(|(_, value)| *value)
    }

    /// The estimate, of the program's formula with the widest of its intervals.
    fn cell(&self, estimator: Estimator) -> Option<String> {
        let estimate = self.estimate(estimator)?;
        if estimator != Estimator::Censuses {
            return Some(percent(estimate));
        }
        let bound = |value: fn(&Range) -> f64| self.formula.iter().map(value);
        Some(range(&Range {
            middle: estimate,
            lower: bound(|of| of.lower).fold(f64::INFINITY, f64::min),
            upper: bound(|of| of.upper).fold(f64::NEG_INFINITY, f64::max),
        }))
    }

    /// The program's formula on the trial's censuses.
    fn scored_formula(&self) -> impl Iterator<Item = Scored> {
        let truth = self.wal.middle;
        self.formula.iter().map(move |prediction| Scored { prediction: *prediction, truth })
    }

    /// The program's answers about WAL.
    fn scored(&self) -> impl Iterator<Item = Scored> {
        let truth = self.wal.middle;
        self.answers
            .iter()
            .filter_map(move |answer| Some(Scored { prediction: answer.wal?, truth }))
    }

    /// The program's answers about CPU time.
    fn scored_cpu(&self) -> impl Iterator<Item = Scored> {
        let truth = self.cpu.middle;
        self.answers
            .iter()
            .filter_map(move |answer| Some(Scored { prediction: answer.cpu?, truth }))
    }
}

/// Each estimator's mean over the runs that it says something about.
fn estimates(
    estimators: &[Estimator],
    runs: &BTreeMap<u32, &Run>,
    predict: impl Fn(Estimator, &Run) -> Option<f64>,
) -> Vec<(Estimator, f64)> {
    let of = |estimator: Estimator| {
        let values: Vec<f64> = runs.values().filter_map(|run| predict(estimator, run)).collect();
        Some((estimator, mean(values.into_iter())?))
    };
    estimators.iter().filter_map(|estimator| of(*estimator)).collect()
}

/// The tables, and whether the program reaches its goals; `None`: it was not asked.
pub(crate) fn markdown(contents: &Contents) -> anyhow::Result<(String, Option<bool>)> {
    let trials = contents.trials()?;
    let mut text = String::new();
    for (source, title) in [(Arm::Off, "Checksums turned on"), (Arm::On, "Checksums turned off")] {
        let own: Vec<&Trial> = trials.iter().filter(|trial| trial.source == source).collect();
        let columns: &[Estimator] =
            if source == Arm::On { &Estimator::TO_OFF } else { &Estimator::TO_ON };
        let _ = writeln!(text, "**{title}**: change of WAL, %\n");
        direction_table(&mut text, &own, columns);
    }
    cpu_table(&mut text, &trials);
    let goals = goals(&mut text, &trials);
    Ok((text, goals))
}

fn direction_table(text: &mut String, trials: &[&Trial], columns: &[Estimator]) {
    let names: Vec<&str> = columns.iter().map(|estimator| estimator.name()).collect();
    let _ = writeln!(
        text,
        "| server | workload | WAL, 10^6 B | truth | of each repetition | {} | `pgtoll predict` |",
        names.join(" | ")
    );
    let _ = writeln!(text, "|---|---|---|---|---|{}---|", "---|".repeat(columns.len()));
    for trial in trials {
        let cells: Vec<String> = columns
            .iter()
            .map(|estimator| trial.cell(*estimator).unwrap_or_else(|| "–".to_owned()))
            .collect();
        let program: Vec<String> = trial
            .answers
            .iter()
            .map(|answer| answer.wal.as_ref().map_or_else(|| "–".to_owned(), range))
            .collect();
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {} | {} to {} | {} | {} |",
            trial.server,
            trial.workload.name(),
            trial.megabytes,
            range(&trial.wal),
            percent(trial.spread.0),
            percent(trial.spread.1),
            cells.join(" | "),
            program.join("; ")
        );
    }
    let errors: Vec<String> = columns
        .iter()
        .map(|estimator| {
            mean_error(trials, *estimator)
                .map_or_else(String::new, |error| format!("{:.1}", error * 100.0))
        })
        .collect();
    let _ = writeln!(
        text,
        "| | mean absolute error, points | | | | {} | {} |\n",
        errors.join(" | "),
        program_error(trials).map_or_else(String::new, |error| format!("{:.1}", error * 100.0))
    );
}

fn cpu_table(text: &mut String, trials: &[Trial]) {
    text.push_str(
        "**CPU time of the server**: change, %\n\n\
         | server | workload | | truth | `pgtoll predict` |\n|---|---|---|---|---|\n",
    );
    for trial in trials {
        let to = if trial.source == Arm::On { "off" } else { "on" };
        let program = trial.answers.iter().filter_map(|answer| answer.cpu.as_ref().map(range));
        let program: Vec<String> = program.collect();
        let _ = writeln!(
            text,
            "| {} | {} | {to} | {} | {} |",
            trial.server,
            trial.workload.name(),
            range(&trial.cpu),
            program.join("; ")
        );
    }
    text.push('\n');
}

/// Over the trials that the estimator says something about.
fn mean_error(trials: &[&Trial], estimator: Estimator) -> Option<f64> {
    let errors = trials
        .iter()
        .filter_map(|trial| Some((trial.estimate(estimator)? - trial.wal.middle).abs()));
    mean(errors.collect::<Vec<f64>>().into_iter())
}

fn program_error(trials: &[&Trial]) -> Option<f64> {
    let errors = trials.iter().flat_map(|trial| trial.scored()).map(|scored| scored.error());
    mean(errors.collect::<Vec<f64>>().into_iter())
}

/// Lists the goals of the program; `None` where it was not asked.
fn goals(text: &mut String, trials: &[Trial]) -> Option<bool> {
    let to_on: Vec<&Trial> = trials.iter().filter(|trial| trial.source == Arm::Off).collect();
    let large = to_on.iter().filter(|trial| trial.wal.middle >= LARGE).count();
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
            formula.iter().filter(|scored| scored.is_covered()).count(),
            formula.iter().filter(|scored| scored.is_narrow()).count()
        );
    }
    let scored: Vec<Scored> = trials.iter().flat_map(Trial::scored).collect();
    let error = mean(scored.iter().map(Scored::error))?;
    let score = mean(scored.iter().map(Scored::interval_score))?;
    let all: Vec<&Trial> = trials.iter().filter(|trial| trial.scored().next().is_some()).collect();
    let naive: Vec<f64> =
        Estimator::NAIVE.iter().filter_map(|estimator| mean_error(&all, *estimator)).collect();
    let skill = skill(error, &naive);
    let covered = scored.iter().filter(|scored| scored.is_covered()).count();
    let narrow = scored.iter().filter(|scored| scored.is_narrow()).count();
    let cpu: Vec<Scored> = trials.iter().flat_map(Trial::scored_cpu).collect();
    let near = cpu.iter().filter(|scored| scored.is_near()).count();
    let needed = covered_at_least(scored.len());
    text.push_str("| `pgtoll predict` | goal | found | |\n|---|---|---|---|\n");
    let asked: usize = trials.iter().map(|trial| trial.answers.len()).sum();
    let goals = [
        (
            "changes of WAL predicted",
            asked.to_string(),
            scored.len().to_string(),
            scored.len() == asked,
        ),
        (
            "intervals that hold the truth",
            format!("{needed} of {}", scored.len()),
            covered.to_string(),
            covered >= needed,
        ),
        (
            "intervals narrow enough",
            scored.len().to_string(),
            narrow.to_string(),
            narrow == scored.len(),
        ),
        (
            "mean absolute error, as a share of the best naive predictor's",
            format!("{SKILL:.2}"),
            skill.map_or_else(|| "–".to_owned(), |skill| format!("{skill:.2}")),
            skill.is_some_and(|skill| skill <= SKILL),
        ),
        ("CPU time near the truth", cpu.len().to_string(), near.to_string(), near == cpu.len()),
    ];
    for (name, goal, found, is_reached) in &goals {
        let verdict = if *is_reached { "reached" } else { "missed" };
        let _ = writeln!(text, "| {name} | {goal} | {found} | {verdict} |");
    }
    let _ = writeln!(text, "\nMean interval score: {:.1} points.", score * 100.0);
    Some(goals.iter().all(|(.., is_reached)| *is_reached))
}

fn percent(value: f64) -> String {
    let text = format!("{:+.1}", value * 100.0);
    // There is no less than none.
    if text == "-0.0" { "0.0".to_owned() } else { text.replace("+0.0", "0.0") }
}

fn range(range: &Range) -> String {
    format!("{} [{}, {}]", percent(range.middle), percent(range.lower), percent(range.upper))
}

const BEGIN: &str = "<!-- prediction-trial -->\n";
const END: &str = "<!-- /prediction-trial -->";

/// Replaces the tables between the marks of a chapter by those of the record.
pub(crate) fn into_book(contents: &Contents, book: &Path) -> anyhow::Result<()> {
    let header = contents.headers.first().context("the record has no header")?;
    let mut commands: Vec<String> =
        contents.headers.iter().map(|header| format!("`{}`", header.command)).collect();
    commands.dedup();
    let chapter = std::fs::read_to_string(book).context("read the chapter")?;
    let (before, rest) = chapter.split_once(BEGIN).context("the chapter has no place for it")?;
    let (_, after) = rest.split_once(END).context("the chapter has no place for it")?;
    let made = format!(
        "{BEGIN}{}, {}, {} cores of {}.\n\n{}{END}",
        commands.join(", "),
        header.started.get(..10).unwrap_or_default(),
        header.host.cores,
        header.host.cpu,
        markdown(contents)?.0
    );
    std::fs::write(book, format!("{before}{made}{after}")).context("write the chapter")
}
