//! Experiments and arms that a server cannot be measured with, found before anything is measured and
//! each with its reason. What only a server knows (its build's compressions, what the kernel lets it
//! do), a server is asked.

use std::collections::BTreeMap;

use pgtoll_cluster::{Cluster, ClusterError, StopMode};
use pgtoll_format::{ServerVersion, setting_since};
use pgtoll_record::{Line, SkippedArm};
use pgtoll_wire::Connection;

use crate::names::DATABASE;
use crate::run::Run;
use crate::{ArmSpec, BenchError, Experiment, Plan, Progress};

/// Why a server of this version skips the whole experiment; `None`: it does not.
pub fn reason_to_skip(experiment: &Experiment, version: &ServerVersion) -> Option<String> {
    let settings = experiment.arms.iter().flat_map(|arm| arm.settings.keys());
    let whole = needs(experiment.since, settings.chain(experiment.settings.keys()), version);
    let baseline = experiment.arms.iter().find(|arm| arm.name == experiment.baseline);
    whole.or_else(|| version_reason(baseline?, version))
}

/// Finds the arms that cannot be measured, writes them into the record, and returns the plan without
/// them. `origin` is a cluster as initdb made it, stopped.
///
/// An error when nothing is left to compare.
pub(crate) fn without_skipped(origin: &Cluster, run: &mut Run<'_>) -> Result<Plan, BenchError> {
    let plan = run.plan;
    let experiment = &run.plan.experiment;
    let mut skipped = Vec::new();
    // A server of its own is asked when the arm starts.
    let has_settings = |arm: &&ArmSpec| {
        arm.postgres.is_none() && (!arm.settings.is_empty() || arm.since.is_some())
    };
    if experiment.arms.iter().any(|arm| has_settings(&arm)) {
        run.stage("ask the server for its settings");
        let answers = Answers::ask(origin, experiment, run)?;
        let is_original = |arm: &&ArmSpec| arm.twin_of.is_none();
        for arm in experiment.arms.iter().filter(is_original).filter(has_settings) {
            let reason = match version_reason(arm, origin.version()) {
                None => answers.refusal(arm, origin, run)?,
                reason => reason,
            };
            skipped.extend(reason.map(|reason| SkippedArm { arm: arm.name.clone(), reason }));
        }
        origin.configure(run.guard, &BTreeMap::new())?;
    }
    skipped.extend(twins_of_skipped(experiment, &skipped));
    for skipped in &skipped {
        (run.progress)(Progress::Skipped { arm: &skipped.arm, reason: &skipped.reason });
        run.write(&Line::Skipped(skipped.clone()))?;
    }
    let rest = plan.without(&skipped);
    check_rest(&rest.experiment, &skipped)?;
    Ok(rest)
}

fn twins_of_skipped(experiment: &Experiment, skipped: &[SkippedArm]) -> Vec<SkippedArm> {
    let twins = experiment.arms.iter().filter_map(|twin| {
        let skipped = skipped.iter().find(|skipped| twin.twin_of.as_ref() == Some(&skipped.arm))?;
        let reason = format!("it is a twin of {}", skipped.arm);
        Some(SkippedArm { arm: twin.name.clone(), reason })
    });
    twins.collect()
}

/// The baseline and an arm that differs from it are left.
fn check_rest(rest: &Experiment, skipped: &[SkippedArm]) -> Result<(), BenchError> {
    let output = |arm: &SkippedArm| format!("arm {}: {}", arm.arm, arm.reason);
    if let Some(baseline) = skipped.iter().find(|skipped| skipped.arm == rest.baseline) {
        return Err(BenchError::Skipped { reason: output(baseline) });
    }
    let is_compared = |arm: &ArmSpec| arm.name != rest.baseline && arm.twin_of.is_none();
    if skipped.is_empty() || rest.arms.iter().any(is_compared) {
        return Ok(());
    }
    let all: Vec<String> = skipped.iter().map(output).collect();
    Err(BenchError::Skipped { reason: format!("no arm is left to compare ({})", all.join("; ")) })
}

/// Why a server of this version skips the arm.
fn version_reason(arm: &ArmSpec, version: &ServerVersion) -> Option<String> {
    let removed = || {
        let facts = version.facts().ok()?;
        let gone = arm.settings.keys().find(|name| !facts.has_setting(name))?;
        Some(format!("PostgreSQL {version} has no {gone}"))
    };
    let newest = arm.settings.keys().filter_map(|name| setting_since(name)).max();
    needs(arm.since.max(newest), arm.settings.keys(), version).or_else(removed)
}

/// Says which later version is needed, and by which of these settings, as far as that is known.
fn needs<'s>(
    since: Option<u32>,
    mut settings: impl Iterator<Item = &'s String>,
    version: &ServerVersion,
) -> Option<String> {
    let since = since.filter(|since| version.is_before(*since))?;
    let setting = settings.find(|name| setting_since(name) == Some(since));
    let subject = setting.map_or("it", String::as_str);
    Some(format!("{subject} needs PostgreSQL {since}, and this is {version}"))
}

/// A server's answers about the settings in which arms differ.
struct Answers {
    by_setting: BTreeMap<String, Answer>,
}

/// A server's answer about a setting.
struct Answer {
    /// The words that it takes; `None`: it takes numbers, truth values or any text.
    words: Option<Vec<String>>,
    /// It takes effect at a start, which may fail.
    at_start: bool,
}

impl Answers {
    fn ask(
        origin: &Cluster,
        experiment: &Experiment,
        run: &mut Run<'_>,
    ) -> Result<Self, BenchError> {
        origin.configure(run.guard, &BTreeMap::new())?;
        origin.start(run.guard)?;
        let mut connection = origin.connect(DATABASE)?;
        let names = experiment.arms.iter().flat_map(|arm| arm.settings.keys());
        let by_setting = names.map(|name| Ok((name.clone(), Answer::ask(name, &mut connection)?)));
        let by_setting: Result<_, pgtoll_wire::Error> = by_setting.collect();
        connection.close();
        origin.stop(run.guard, StopMode::Fast)?;
        Ok(Self { by_setting: by_setting.map_err(|source| BenchError::query(origin, source))? })
    }

    /// Why the server cannot have the arm's settings; `None` where it can, and where it is a mistake
    /// of the experiment, which ends the run when the arm starts.
    fn refusal(
        &self,
        arm: &ArmSpec,
        origin: &Cluster,
        run: &mut Run<'_>,
    ) -> Result<Option<String>, BenchError> {
        let lacks = |name: &String, value: &String| {
            let words = self.by_setting.get(name)?.words.as_ref()?;
            let has = words.iter().any(|word| word.eq_ignore_ascii_case(value));
            (!has)
                .then(|| format!("this server has no {name} = {value}, only {}", words.join(", ")))
        };
        let lacking = arm.settings.iter().find_map(|(name, value)| lacks(name, value));
        let at_start = |name: &String| {
            self.by_setting.get(name).is_some_and(|item| item.at_start && item.words.is_some())
        };
        if lacking.is_none() && !arm.settings.keys().any(at_start) {
            return Ok(None);
        }
        let experiment = &run.plan.experiment;
        let Some(log) = start_failure(&experiment.settings, &arm.settings, origin, run)? else {
            return Ok(None);
        };
        // What fails in any arm is no reason to skip one.
        let baseline = experiment.arms.iter().find(|arm| arm.name == experiment.baseline);
        let baseline = baseline
            .filter(|baseline| baseline.name != arm.name)
            .map(|baseline| &baseline.settings);
        let fails_too = match baseline {
            Some(own) => start_failure(&experiment.settings, own, origin, run)?.is_some(),
            None => start_failure(&experiment.settings, &BTreeMap::new(), origin, run)?.is_some(),
        };
        Ok((!fails_too).then(|| lacking.unwrap_or(log)))
    }
}

impl Answer {
    fn ask(name: &str, connection: &mut Connection) -> Result<Self, pgtoll_wire::Error> {
        let sql = format!(
            "SELECT array_to_string(enumvals, ','), context FROM pg_settings WHERE name = '{}'",
            name.replace('\'', "''")
        );
        let rows = connection.query(&sql)?;
        let Some([words, context]) = rows.first().map(pgtoll_wire::Row::values) else {
            return Ok(Self { words: None, at_start: false });
        };
        let words = words.as_ref().map(|words| words.split(',').map(str::to_owned).collect());
        Ok(Self { words, at_start: context.as_deref() == Some("postmaster") })
    }
}

/// Returns the log of a server that does not start with these settings; `None`: it starts.
fn start_failure(
    common: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
    origin: &Cluster,
    run: &mut Run<'_>,
) -> Result<Option<String>, BenchError> {
    let settings = common.iter().chain(own).map(|(name, value)| (name.clone(), value.clone()));
    origin.configure(run.guard, &settings.collect())?;
    let log_bytes = origin.log_bytes();
    match origin.start(run.guard) {
        Ok(_) => {
            origin.stop(run.guard, StopMode::Fast)?;
            Ok(None)
        }
        Err(ClusterError::StartFailed { .. }) => Ok(Some(origin.last_message_since(log_bytes))),
        Err(error) => Err(error.into()),
    }
}

impl Plan {
    /// The plan without these arms and their twins.
    fn without(&self, skipped: &[SkippedArm]) -> Self {
        let is_skipped = |name: &str| skipped.iter().any(|skipped| skipped.arm == name);
        let mut plan = self.clone();
        plan.experiment.arms.retain(|arm| !is_skipped(&arm.name));
        for arm in &mut plan.experiment.arms {
            arm.against.take_if(|other| is_skipped(other));
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn experiment(head: &str, arm: &str) -> Experiment {
        let text = format!(
            "name = \"n\"\nquestion = \"q\"\nbaseline = \"one\"\n{head}\n[[arms]]\nname = \"one\"\n\
             [[arms]]\nname = \"two\"\n{arm}\n[[workloads]]\nname = \"w\"\ntitle = \"w\"\n\
             script = \"select-only\"\n"
        );
        Experiment::parse(&text, Path::new("")).unwrap()
    }

    fn version(text: &str) -> ServerVersion {
        text.parse().unwrap()
    }

    #[test]
    fn an_experiment_says_which_setting_needs_a_later_version() {
        let check = |head: &str, arm: &str, server: &str, expected: Option<&str>| {
            let reason = reason_to_skip(&experiment(head, arm), &version(server));
            assert_eq!(reason.as_deref(), expected, "{head} {arm} {server}");
        };
        let io_method = "settings = { io_method = \"sync\" }";
        let expected = Some("io_method needs PostgreSQL 18, and this is 17.10");
        check("since = 18", io_method, "17.10", expected);
        check("since = 18", io_method, "18.6", None);
        check("since = 19", io_method, "19rc1", None);
        check("since = 17", "", "15.18", Some("it needs PostgreSQL 17, and this is 15.18"));
        // Of an arm alone it is the arm that is skipped.
        check("", io_method, "15.18", None);
    }

    #[test]
    fn an_arm_says_why_a_version_cannot_have_it() {
        let check = |arm: &str, server: &str, expected: Option<&str>| {
            let experiment = experiment("", arm);
            let reason = version_reason(&experiment.arms[1], &version(server));
            assert_eq!(reason.as_deref(), expected, "{arm} {server}");
        };
        let needs = "io_method needs PostgreSQL 18, and this is 15.18";
        check("settings = { io_method = \"sync\" }", "15.18", Some(needs));
        check("since = 15", "14.1", Some("it needs PostgreSQL 15, and this is 14.1"));
        check("since = 15", "15.18", None);
        let gone = Some("PostgreSQL 19.0 has no io_workers");
        check("settings = { io_workers = \"3\" }", "19.0", gone);
    }

    #[test]
    fn without_its_arms_an_experiment_has_nothing_to_compare() {
        let experiment = experiment("", "");
        let plan = Plan::new(experiment, &crate::Choices::default());
        let skipped =
            |arm: &str| SkippedArm { arm: arm.to_owned(), reason: "it cannot".to_owned() };
        let rest = |arm: &str| {
            let skipped = [skipped(arm)];
            let error = check_rest(&plan.without(&skipped).experiment, &skipped).unwrap_err();
            error.to_string()
        };
        assert_eq!(rest("two"), "skipped: no arm is left to compare (arm two: it cannot)");
        assert_eq!(rest("one"), "skipped: arm one: it cannot");
        assert!(check_rest(&plan.experiment, &[]).is_ok());
    }
}
