//! Contents of a record, a whole one or one that grows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use pgtoll_record::trials::{
    PredictionTrialAnswer as Answer, PredictionTrialArm as Arm, PredictionTrialHeader,
    PredictionTrialLine, PredictionTrialRegime as Regime, PredictionTrialRights as Rights,
    PredictionTrialRun as Run, PredictionTrialWorkload as Workload,
};

/// The lines of one record, or of several.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) headers: Vec<PredictionTrialHeader>,
    pub(crate) runs: Vec<Run>,
    pub(crate) answers: Vec<Answer>,
}

/// What a run or an answer is of: there is one of each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) server: String,
    pub(crate) workload: Workload,
    pub(crate) regime: Regime,
    pub(crate) arm: Arm,
    pub(crate) repetition: u32,
    /// Of who watched; a run has none, which is as a superuser's.
    pub(crate) rights: Rights,
}

/// Runs and answers of a workload on a server, by repetition.
#[derive(Default)]
pub(crate) struct Group<'a> {
    pub(crate) runs: Vec<&'a Run>,
    pub(crate) answers: Vec<&'a Answer>,
}

impl Contents {
    /// Reads the lines of records; a file that does not exist has none. A last line that is not
    /// finished does not count.
    pub(crate) fn read<P: AsRef<Path>>(
        records: impl IntoIterator<Item = P>,
    ) -> anyhow::Result<Self> {
        let mut contents = Self::default();
        for path in records {
            let path = path.as_ref();
            if path.exists() {
                let text = fs::read_to_string(path);
                contents.add_lines(&text.context("read the record")?)?;
            }
        }
        Ok(contents)
    }

    fn add_lines(&mut self, text: &str) -> anyhow::Result<()> {
        for (number, line) in (1..).zip(finished(text).lines()) {
            let line = serde_json::from_str(line);
            self.add(line.with_context(|| format!("read the record, line {number}"))?);
        }
        Ok(())
    }

    /// A later run of the same subject replaces the one before: its other half was missing.
    pub(crate) fn add(&mut self, line: PredictionTrialLine) {
        match line {
            PredictionTrialLine::Header(header) => self.headers.push(*header),
            PredictionTrialLine::Run(run) => {
                self.runs.retain(|own| Subject::of_run(own) != Subject::of_run(&run));
                self.runs.push(*run);
            }
            PredictionTrialLine::Answer(answer) => {
                self.answers.retain(|own| Subject::of_answer(own) != Subject::of_answer(&answer));
                self.answers.push(*answer);
            }
        }
    }

    pub(crate) fn has_run(&self, subject: &Subject) -> bool {
        self.runs.iter().any(|run| Subject::of_run(run) == *subject)
    }

    pub(crate) fn has_answer(&self, subject: &Subject) -> bool {
        self.answers.iter().any(|answer| Subject::of_answer(answer) == *subject)
    }

    /// Of a regime, by server and workload.
    pub(crate) fn groups(&self, regime: Regime) -> BTreeMap<(&str, Workload), Group<'_>> {
        let mut groups: BTreeMap<(&str, Workload), Group<'_>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.regime == regime) {
            groups.entry((&run.server, run.workload)).or_default().runs.push(run);
        }
        for answer in self.answers.iter().filter(|answer| answer.regime == regime) {
            let group = groups.entry((&answer.server, answer.workload)).or_default();
            group.answers.push(answer);
        }
        groups
    }
}

impl Subject {
    fn of_run(run: &Run) -> Self {
        Self {
            server: run.server.clone(),
            workload: run.workload,
            regime: run.regime,
            arm: run.arm,
            repetition: run.repetition,
            rights: Rights::Superuser,
        }
    }

    fn of_answer(answer: &Answer) -> Self {
        Self {
            server: answer.server.clone(),
            workload: answer.workload,
            regime: answer.regime,
            arm: answer.arm,
            repetition: answer.repetition,
            rights: answer.rights,
        }
    }
}

/// Without a last line that is not finished.
fn finished(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}

/// Cuts off what a writer that was killed has left, so that the next line begins one.
pub(crate) fn cut_unfinished_line(record: &Path) -> anyhow::Result<()> {
    if !record.exists() {
        return Ok(());
    }
    let text = fs::read_to_string(record).context("read the record")?;
    let length = finished(&text).len();
    if length < text.len() {
        let file = fs::File::options().write(true).open(record);
        let cut = file.and_then(|file| file.set_len(length as u64));
        cut.context("cut the record's unfinished last line off")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(regime: &str, middle: f64) -> String {
        format!(
            "{{\"t\":\"answer\",\"server\":\"18.6\",\"workload\":\"tpc_b\",\"arm\":\"on\",{regime}\
             \"repetition\":1,\"wal\":{{\"middle\":{middle},\"lower\":0.0,\"upper\":1.0}},\
             \"basis\":null,\"cpu\":null}}\n"
        )
    }

    #[test]
    fn a_record_that_ends_within_a_line_is_resumed_at_that_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.jsonl");
        let whole = answer("", 0.1);
        fs::write(&path, format!("{whole}{}", &whole[..40])).unwrap();
        assert_eq!(Contents::read([&path]).unwrap().answers.len(), 1);
        cut_unfinished_line(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        cut_unfinished_line(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        cut_unfinished_line(&directory.path().join("none")).unwrap();
    }

    #[test]
    fn regimes_are_kept_apart_and_a_repeated_run_counts_once() {
        let mut contents = Contents::default();
        let timed = "\"regime\":\"timed\",";
        let lines = [answer("", 0.1), answer(timed, 0.2), answer(timed, 0.3)].concat();
        contents.add_lines(&lines).unwrap();
        let middles = |regime| {
            let groups = contents.groups(regime);
            let answers = groups.values().flat_map(|group| &group.answers);
            answers.map(|answer| answer.wal.unwrap().middle).collect::<Vec<_>>()
        };
        assert_eq!(middles(Regime::Forced), [0.1]);
        assert_eq!(middles(Regime::Timed), [0.3]);
        let mut subject = Subject::of_answer(&contents.answers[0]);
        assert!(contents.has_answer(&subject) && !contents.has_run(&subject));
        subject.repetition = 2;
        assert!(!contents.has_answer(&subject));
    }
}
