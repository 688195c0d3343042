//! WAL of other arms as [`pgtoll_wal`]'s what-if has it from the baseline's: the same prediction
//! that a user of `pgtoll wal whatif` gets, beside what the arms then really write.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use pgtoll_cluster::Cluster;
use pgtoll_format::{Lsn, MajorFacts, conf};
use pgtoll_model::{CheckpointRule, Geometry, ImageCompression, KnownSettings, Schedule, Settings};
use pgtoll_record::Predicted;
use pgtoll_wal::{
    Compressing, Question, SegmentFile, WalReadError, WhatIfCollector, first_header, scan_with,
    segments,
};

use crate::prepare::settings;
use crate::{ArmSpec, Experiment, WorkloadSpec};

/// The settings that the model knows. Arms with other differences are not predicted.
const KNOWN: [&str; 5] = [
    "checkpoint_completion_target",
    "checkpoint_timeout",
    "full_page_writes",
    "max_wal_size",
    "wal_compression",
];

/// The WAL of the arms that can be predicted, from what the baseline has just written since `from`.
/// Empty when there is no such arm, or when the WAL has gone.
pub(crate) fn predictions(
    experiment: &Experiment,
    workload: &WorkloadSpec,
    facts: &MajorFacts,
    cluster: &Cluster,
    from: Lsn,
) -> Result<Vec<Predicted>, WalReadError> {
    let Some(baseline) = experiment.arms.iter().find(|arm| arm.name == experiment.baseline) else {
        return Ok(Vec::new());
    };
    let source = settings(experiment, workload, baseline);
    let hints = baseline.checksums || is_on(&source, "wal_log_hints", false);
    let requested: Vec<(&ArmSpec, Settings)> = experiment
        .arms
        .iter()
        .filter(|arm| is_predictable(baseline, arm, &source))
        .filter_map(|arm| {
            let setting = settings(experiment, workload, arm);
            Some((arm, model_settings(&setting, hints, facts)?))
        })
        .collect();
    let today = rule(&source, facts).map(|rule| rule.schedule());
    let (false, Some(today)) = (requested.is_empty(), today) else { return Ok(Vec::new()) };
    let files = segments(&[cluster.data()])?;
    let (header, wal_facts) = first_header(&files)?;
    let segment_bytes = u64::from(header.segment_bytes);
    let files = of_stretch(files, from)?;
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let own = Settings {
        schedule: Schedule::Source,
        hints,
        full_page_writes: true,
        compression: ImageCompression::AsStored,
    };
    let settings: Vec<Settings> =
        std::iter::once(own).chain(requested.iter().map(|spec| spec.1)).collect();
    let question = Arc::new(Question {
        geometry: Geometry { segment_bytes, page_bytes: u64::from(header.page_bytes) },
        facts: wal_facts,
        compressing: Compressing::for_settings(&settings, false),
        settings,
        today: Some(today),
    });
    let new = || WhatIfCollector::new(question.clone());
    let (summary, _) = scan_with(&files, 1, new, &mut |_| ControlFlow::Continue(()))?;
    let answer = summary.collected.finish();
    // What lies before the work is the same under all settings.
    let before = summary.from.and_then(|first| from.bytes_since(first)).unwrap_or(0);
    let outcomes = answer.outcomes.iter().skip(1);
    let predicted = requested.iter().zip(outcomes).map(|((arm, _), item)| Predicted {
        workload: workload.name.clone(),
        arm: arm.name.clone(),
        from: baseline.name.clone(),
        wal_bytes: item.bytes.saturating_sub(before),
    });
    Ok(predicted.collect())
}

/// It differs from the baseline in something that the model knows, and in nothing else.
fn is_predictable(baseline: &ArmSpec, arm: &ArmSpec, source: &BTreeMap<String, String>) -> bool {
    let is_plain = source
        .get("wal_compression")
        .is_none_or(|value| conf::wal_compression(value) == Some(None))
        && is_on(source, "full_page_writes", true);
    let differs = |name: &String| baseline.settings.get(name) != arm.settings.get(name);
    let mut names =
        baseline.settings.keys().chain(arm.settings.keys()).filter(|name| differs(name));
    let of_model = names.clone().all(|name| KNOWN.contains(&name.as_str()));
    is_plain
        && arm.twin_of.is_none()
        && arm.postgres == baseline.postgres
        && arm.checksums == baseline.checksums
        && arm.values == baseline.values
        && of_model
        && names.next().is_some()
}

/// `None` where a value is none that the model knows.
fn model_settings(
    settings: &BTreeMap<String, String>,
    hints: bool,
    facts: &MajorFacts,
) -> Option<Settings> {
    let compression = settings.get("wal_compression").map_or("off", |value| value.as_str());
    Some(Settings {
        schedule: rule(settings, facts)?.schedule(),
        hints,
        full_page_writes: is_on(settings, "full_page_writes", true),
        compression: match conf::wal_compression(compression)? {
            None => ImageCompression::AsStored,
            compression => ImageCompression::Set(compression),
        },
    })
}

fn rule(settings: &BTreeMap<String, String>, facts: &MajorFacts) -> Option<CheckpointRule> {
    let mut known = KnownSettings::default();
    let mut set = KnownSettings::NAMES.iter().filter_map(|name| settings.get_key_value(*name));
    let are_readable = set.all(|(name, value)| known.set(name, value));
    are_readable.then(|| known.rule(facts.wal.checkpoint_completion_target))
}

/// A setting is on; the default where it is not set, or has no value that the server takes.
fn is_on(settings: &BTreeMap<String, String>, name: &str, default: bool) -> bool {
    settings.get(name).and_then(|value| conf::boolean(value)).unwrap_or(default)
}

/// The files from that of `from` on; none where its own is not there any more.
pub(crate) fn of_stretch(
    files: Vec<SegmentFile>,
    from: Lsn,
) -> Result<Vec<SegmentFile>, WalReadError> {
    let (header, _) = first_header(&files)?;
    let segment_bytes = u64::from(header.segment_bytes);
    let begin = |file: &SegmentFile| file.name.begin(segment_bytes);
    let first = from.align_down(segment_bytes);
    let has_first = files.iter().any(|file| begin(file) == first);
    Ok(files.into_iter().filter(|file| has_first && begin(file) >= first).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pgtoll_format::ServerVersion;

    use super::*;

    /// Arms of a built-in experiment that can be predicted.
    fn predictable(name: &str) -> Vec<String> {
        let experiment = Experiment::built_in(name).unwrap().unwrap();
        let arms = &experiment.arms;
        let baseline = arms.iter().find(|arm| arm.name == experiment.baseline).unwrap();
        let source = settings(&experiment, &experiment.workloads[0], baseline);
        let all = arms.iter().filter(|arm| is_predictable(baseline, arm, &source));
        all.map(|arm| arm.name.clone()).collect()
    }

    #[test]
    fn only_arms_that_differ_in_what_the_model_knows() {
        assert_eq!(predictable("checkpoint-distance"), ["32MB", "256MB", "1GB"]);
        assert_eq!(predictable("checksums"), Vec::<String>::new());
        assert_eq!(predictable("null"), Vec::<String>::new());
    }

    #[test]
    fn settings_are_read_as_postgresql_writes_them() {
        let pick = |text: &str| {
            let text = format!(
                "name = \"n\"\nquestion = \"q\"\nbaseline = \"a\"\n[[arms]]\nname = \"a\"\n\
                 [[arms]]\nname = \"b\"\nsettings = {text}\n[[workloads]]\nname = \"w\"\n\
                 title = \"w\"\nscript = \"tpcb-like\"\n"
            );
            let experiment = Experiment::parse(&text, Path::new("")).unwrap();
            let all = settings(&experiment, &experiment.workloads[0], &experiment.arms[1]);
            model_settings(&all, false, "13.0".parse::<ServerVersion>().unwrap().facts().unwrap())
        };
        let rule = |max_wal_size, timeout_us, completion_target| Schedule::Rule {
            max_wal_size,
            timeout_us,
            completion_target,
        };
        let plain = pick("{}").unwrap();
        assert_eq!(plain.schedule, rule(1 << 30, 300_000_000, 0.5));
        assert!(plain.full_page_writes);
        let all = pick(
            "{ max_wal_size = \"32MB\", checkpoint_timeout = \"30s\", full_page_writes = \"off\", \
             checkpoint_completion_target = \"0.9\", wal_compression = \"lz4\" }",
        );
        let all = all.unwrap();
        assert_eq!(all.schedule, rule(32 << 20, 30_000_000, 0.9));
        assert_eq!((all.full_page_writes, all.compression.name()), (false, "lz4"));
        // Plain numbers have the setting's unit.
        let plain = pick("{ max_wal_size = \"2048\", checkpoint_timeout = \"60\" }").unwrap();
        assert_eq!(plain.schedule, rule(2 << 30, 60_000_000, 0.5));
        assert_eq!(pick("{ max_wal_size = \"much\" }"), None);
        assert_eq!(pick("{ wal_compression = \"brotli\" }"), None);
    }
}
