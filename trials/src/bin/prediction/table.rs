//! Predictions beside the truth, in Markdown: a section for each regime of checkpoints, so that
//! predictions are compared with truths of the same one.

use std::fmt::Write as _;

use pgtoll_record::trials::{
    PredictionTrialAnswer as Answer, PredictionTrialArm as Arm, PredictionTrialBlind as Blind,
    PredictionTrialRange as Range, PredictionTrialRegime as Regime,
};

use crate::cells::{percent, range, row, truth};
use crate::contents::Contents;
use crate::estimate::Estimator;
use crate::goals::{goals, mean_error, summary};
use crate::pooled;
use crate::score::{Scored, mean};
use crate::trial::{Trial, trials};

/// The tables, and whether the program reaches its goals; `None`: it was not asked.
pub(crate) fn markdown(contents: &Contents) -> anyhow::Result<(String, Option<bool>)> {
    let mut text = String::new();
    let mut reached = None;
    for regime in Regime::ALL {
        let trials = trials(contents, regime)?;
        if trials.is_empty() {
            continue;
        }
        let name = regime.name();
        for (source, to) in [(Arm::Off, "on"), (Arm::On, "off")] {
            let own: Vec<&Trial> = trials.iter().filter(|trial| trial.source == source).collect();
            let _ = writeln!(text, "**Checksums turned {to}**, {name}: change of WAL, %\n");
            direction_table(&mut text, &own, source);
        }
        let _ = writeln!(text, "**CPU time of the server**, {name}: change, %\n");
        cpu_table(&mut text, &trials);
        pooled::table(&mut text, &trials)?;
        summary(&mut text, &trials);
        if let Some(own) = goals(&mut text, &trials) {
            reached = Some(reached.unwrap_or(true) && own);
        }
    }
    if text.is_empty() {
        text.push_str("No workload ran both with checksums and without.\n");
    }
    Ok((text, reached))
}

/// Columns without any figure are left out.
fn direction_table(text: &mut String, trials: &[&Trial], source: Arm) {
    let all: &[Estimator] = if source == Arm::On { &Estimator::TO_OFF } else { &Estimator::TO_ON };
    let has_any =
        |estimator: &&Estimator| trials.iter().any(|trial| trial.estimate(**estimator).is_some());
    let columns: Vec<Estimator> = all.iter().filter(has_any).copied().collect();
    let is_asked = trials.iter().any(|trial| !trial.answers.is_empty());
    let is_monitored = trials.iter().any(|trial| !trial.monitor_answers.is_empty());
    let is_tested = trials.iter().any(|trial| trial.scored_blind().next().is_some());
    let mut names: Vec<&str> =
        vec!["server", "workload", "WAL, 10^6 B", "truth", "of each repetition"];
    names.extend(columns.iter().map(|estimator| estimator.name()));
    names.extend(is_asked.then_some("`pgtoll predict`"));
    names.extend(is_monitored.then_some("with `pg_monitor`"));
    names.extend(is_tested.then_some("its blind self-test"));
    row(text, &names);
    row(text, &vec!["---"; names.len()]);
    for trial in trials {
        let mut cells = vec![
            trial.server.clone(),
            trial.workload.name().to_owned(),
            format!("{:.0}", trial.megabytes),
            truth(&trial.wal),
            format!("{} to {}", percent(trial.spread.0), percent(trial.spread.1)),
        ];
        cells.extend(columns.iter().map(|estimator| estimate(trial, *estimator)));
        cells.extend(is_asked.then(|| answers(&trial.answers, trial.wal.change)));
        cells.extend(is_monitored.then(|| answers(&trial.monitor_answers, trial.wal.change)));
        cells.extend(is_tested.then(|| self_tests(trial)));
        row(text, &cells);
    }
    let error = |error: Option<f64>| {
        error.map_or_else(String::new, |error| format!("{:.1}", error * 100.0))
    };
    let mean_of = |scored: Vec<Scored>| error(mean(scored.iter().map(Scored::error)));
    let mut cells = ["", "mean absolute error, points", "", "", ""].map(str::to_owned).to_vec();
    cells.extend(columns.iter().map(|estimator| error(mean_error(trials, *estimator))));
    cells.extend(
        is_asked.then(|| mean_of(trials.iter().flat_map(|trial| trial.scored()).collect())),
    );
    let monitored = || trials.iter().flat_map(|trial| trial.scored_monitor()).collect();
    cells.extend(is_monitored.then(|| mean_of(monitored())));
    let tests = || trials.iter().flat_map(|trial| trial.scored_blind()).collect();
    cells.extend(is_tested.then(|| mean_of(tests())));
    row(text, &cells);
    text.push('\n');
}

/// The estimate, of the program's formula with the widest of its intervals.
fn estimate(trial: &Trial, estimator: Estimator) -> String {
    let Some(estimate) = trial.estimate(estimator) else { return "–".to_owned() };
    if estimator != Estimator::Censuses {
        return percent(estimate);
    }
    let bound = |value: fn(&Range) -> f64| trial.formula.iter().map(value);
    range(&Range {
        middle: estimate,
        lower: bound(|item| item.lower).fold(f64::INFINITY, f64::min),
        upper: bound(|item| item.upper).fold(f64::NEG_INFINITY, f64::max),
    })
}

/// The program's answers, and what is wrong with them.
fn answers(answers: &[Answer], truth: f64) -> String {
    let answers = answers.iter().map(|answer| match (answer.wal, &answer.failure) {
        (None, Some(_)) => Err("**failed**"),
        (None, None) => Err("**none**"),
        (Some(prediction), _) => {
            let scored = Scored { prediction, truth };
            let verdict = match (scored.is_covered(), scored.is_narrow()) {
                (true, true) => "",
                (true, false) => " **too wide**",
                (false, _) => " **missed**",
            };
            Ok((prediction, verdict))
        }
    });
    joined_ranges(answers)
}

/// More than three of them without the bounds of each: their estimates, and the lowest and highest
/// bound of all.
fn joined_ranges<'a>(ranges: impl Iterator<Item = Result<(Range, &'a str), &'a str>>) -> String {
    let ranges: Vec<_> = ranges.collect();
    if ranges.len() <= 3 {
        return joined(ranges.into_iter().map(|entry| match entry {
            Ok((item, verdict)) => range(&item) + verdict,
            Err(word) => word.to_owned(),
        }));
    }
    let bounds = |bound: fn(&Range) -> f64| {
        let pick = move |result: &Result<(Range, _), _>| Some(bound(&result.as_ref().ok()?.0));
        ranges.iter().filter_map(pick).collect::<Vec<f64>>()
    };
    let lowest = bounds(|item| item.lower).into_iter().fold(f64::INFINITY, f64::min);
    let highest = bounds(|item| item.upper).into_iter().fold(f64::NEG_INFINITY, f64::max);
    let all = joined(ranges.iter().map(|range| match range {
        Ok((bound, verdict)) => percent(bound.middle) + verdict,
        Err(word) => (*word).to_owned(),
    }));
    if lowest > highest {
        all
    } else {
        format!("{all} [{}, {}]", percent(lowest), percent(highest))
    }
}

/// Predicted, and found in the same WAL.
fn self_tests(trial: &Trial) -> String {
    let tests: Vec<_> = trial.answers.iter().filter_map(|answer| answer.blind).collect();
    if tests.len() > 3 {
        let predicted = joined_ranges(tests.iter().map(|test| Ok((test.predicted, ""))));
        let found = joined(tests.iter().map(|test| percent(test.found)));
        return format!("{predicted}, found {found}");
    }
    let words = |test: &Blind| format!("{}, found {}", range(&test.predicted), percent(test.found));
    joined(tests.iter().map(words))
}

fn joined(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    if cells.is_empty() { "–".to_owned() } else { cells.join("; ") }
}

fn cpu_table(text: &mut String, trials: &[Trial]) {
    let is_asked = trials.iter().any(|trial| trial.scored_cpu().next().is_some());
    let program = is_asked.then_some("`pgtoll predict`");
    let names = ["server", "workload", "", "truth"].into_iter().chain(program);
    let names: Vec<&str> = names.collect();
    row(text, &names);
    row(text, &vec!["---"; names.len()]);
    for trial in trials {
        let to = if trial.source == Arm::On { "off" } else { "on" };
        let mut cells = vec![
            trial.server.clone(),
            trial.workload.name().to_owned(),
            to.to_owned(),
            truth(&trial.cpu),
        ];
        let answer = |scored: Scored| {
            Ok((scored.prediction, if scored.is_near() { "" } else { " **not near**" }))
        };
        cells.extend(is_asked.then(|| joined_ranges(trial.scored_cpu().map(answer))));
        row(text, &cells);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use pgtoll_record::trials::{
        PredictionTrialCycle as Cycle, PredictionTrialRights as Rights, PredictionTrialRun as Run,
        PredictionTrialWorkload as Workload,
    };

    use super::*;

    /// The block between `<!-- prediction-trial RECORD… -->` and `<!-- /prediction-trial -->` is of
    /// those records. `cargo xtask generate` writes it.
    #[test]
    fn generated_prediction_trial() {
        const END: &str = "<!-- /prediction-trial -->";
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let path = root.join("docs/src/prediction-trial.md");
        let chapter = fs::read_to_string(&path).unwrap();
        let (before, rest) = chapter.split_once("<!-- prediction-trial ").unwrap();
        let (records, rest) = rest.split_once(" -->").unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        let paths = records.split_whitespace().map(|record| root.join(record));
        let paths: Vec<_> = paths.collect();
        assert!(paths.iter().all(|path| path.is_file()), "{records}");
        let contents = Contents::read(&paths).unwrap();
        let (tables, _) = markdown(&contents).unwrap();
        let expected = format!(
            "{before}<!-- prediction-trial {records} -->\n{}\n{tables}{END}{after}",
            origins(&contents)
        );
        if std::env::var_os("PGTOLL_UPDATE").is_some() {
            fs::write(&path, &expected).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap();
        assert!(found == expected, "{} is not up to date: cargo xtask generate", path.display());
    }

    /// Where the records come from, in lines: commands, day and machine, each once.
    fn origins(contents: &Contents) -> String {
        let mut lines = Vec::new();
        for header in &contents.headers {
            let day = header.started.get(..10).unwrap_or_default();
            let host = &header.host;
            let line =
                format!("* `{}`, {day}, {} cores of {}\n", header.command, host.cores, host.cpu);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines.concat()
    }

    fn run(arm: Arm, wal_bytes: u64, cpu_ns: u64) -> Run {
        Run {
            server: "18.6".to_owned(),
            workload: Workload::HintStorm,
            arm,
            regime: Regime::Timed,
            repetition: 1,
            transactions: 1,
            elapsed_s: 1.0,
            wal_bytes,
            images: 0,
            hint_images: 0,
            hint_image_bytes: 0,
            blocks_read: 0,
            blocks_written: 100,
            cpu_ns,
            select_dirtied: 0,
            statement_dirtied: 0,
            without_hints_bytes: None,
            // Without censuses: the program takes them.
            cycles: vec![Cycle { wal_bytes, written: 100, evicted: 0, censuses: Vec::new() }],
        }
    }

    fn answer(arm: Arm, wal: Option<[f64; 3]>) -> Answer {
        let range = |[lower, middle, upper]: [f64; 3]| Range { middle, lower, upper };
        let is_on = arm == Arm::On;
        let predicted = range([0.3, 0.45, 0.6]);
        Answer {
            server: "18.6".to_owned(),
            workload: Workload::HintStorm,
            arm,
            regime: Regime::Timed,
            repetition: 1,
            rights: Rights::Superuser,
            wal: wal.map(range),
            basis: None,
            cpu: wal.map(|_| range([0.0, 0.1, 0.2])),
            blind: is_on.then_some(Blind { predicted, found: 0.4 }),
            failure: wal.is_none().then(|| "connection refused".to_owned()),
        }
    }

    /// One repetition, both directions.
    fn contents(answers: [Answer; 2]) -> Contents {
        let runs = vec![run(Arm::Off, 1_000_000, 100), run(Arm::On, 1_500_000, 110)];
        Contents { headers: Vec::new(), runs, answers: answers.into() }
    }

    #[test]
    fn one_repetition_has_a_truth_without_an_interval() {
        let good = contents([
            answer(Arm::Off, Some([0.3, 0.48, 0.7])),
            answer(Arm::On, Some([-0.5, -0.33, -0.2])),
        ]);
        let (text, _) = markdown(&good).unwrap();
        let on =
            "| +50.0 | +50.0 to +50.0 | 0.0 | 0.0 | 0.0 | 0.0 | +82.7 | +48.0 [+30.0, +70.0] |";
        assert!(text.contains(on), "{text}");
        assert!(text.contains("| -33.0 [-50.0, -20.0] | +45.0 [+30.0, +60.0], found +40.0 |"));
        assert!(
            text.contains("| intervals that hold the truth and are narrow enough | 2 of 2 | 2 (")
        );
        assert!(text.contains("Blind self-tests: a mean absolute error of 5.0 points; 1 of 1"));
        assert!(!text.contains("forced checkpoints"), "{text}");
    }

    #[test]
    fn many_answers_have_their_bounds_together() {
        let pick = |middle: f64| Range { middle, lower: middle - 0.02, upper: middle + 0.01 };
        let three = [0.1, 0.2, 0.3].map(|middle| Ok((pick(middle), "")));
        let text = "+10.0 [+8.0, +11.0]; +20.0 [+18.0, +21.0]; +30.0 [+28.0, +31.0]";
        assert_eq!(joined_ranges(three.into_iter()), text);
        let four = three.into_iter().chain([Err("**failed**")]);
        assert_eq!(joined_ranges(four), "+10.0; +20.0; +30.0; **failed** [+8.0, +31.0]");
        assert_eq!(joined_ranges([Err("**none**"); 4].into_iter()), ["**none**"; 4].join("; "));
    }

    #[test]
    fn bad_answers_are_shown_and_miss_the_goals() {
        let bad = contents([answer(Arm::Off, None), answer(Arm::On, Some([-0.9, -0.5, 0.0]))]);
        let (text, reached) = markdown(&bad).unwrap();
        assert!(text.contains("| **failed** |"), "{text}");
        assert!(text.contains("**too wide**"), "{text}");
        assert!(text.contains("| changes of WAL predicted | 2 | 1 | missed |"), "{text}");
        assert_eq!(reached, Some(false));
        let none = markdown(&Contents::default()).unwrap();
        assert!(none.0.starts_with("No workload ran") && none.1.is_none());
    }
}
