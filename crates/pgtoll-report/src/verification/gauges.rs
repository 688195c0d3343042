//! Results of a verification, as gauges for Prometheus.

use pgtoll_record::{FindingClass, VerificationOutcome, VerificationRecord, VerifiedRelation};

use super::{class, qualified};
use crate::openmetrics::{Gauge, family, float, seconds};

/// A gauge for each number of a verification, labelled by the path that was verified, and of each
/// damaged relation the numbers of its findings.
pub(crate) fn verification_openmetrics(records: &[VerificationRecord]) -> String {
    const FAMILIES: [(&str, &str, Option<&str>, Samples); 9] = [
        ("pgtoll_verification_info", "What was verified.", None, info),
        (
            "pgtoll_verification_outcome",
            "1 of the outcome: sound, findings, or unverified (not everything could be read).",
            None,
            outcome,
        ),
        ("pgtoll_verification_failures", "Pages that a server refuses.", None, |item| {
            vec![(Vec::new(), float(item.failures))]
        }),
        ("pgtoll_verification_suspicions", "What no server would notice.", None, |item| {
            vec![(Vec::new(), float(item.suspicions))]
        }),
        ("pgtoll_verification_unverified_blocks", "Blocks that are not verified.", None, |item| {
            vec![(Vec::new(), float(item.unverified))]
        }),
        ("pgtoll_verification_wrong_files", "Files missing or wrong.", None, |item| {
            vec![(Vec::new(), float(item.wrong_files))]
        }),
        ("pgtoll_verification_read_bytes", "Bytes that were read.", Some("bytes"), |item| {
            vec![(Vec::new(), float(item.read.bytes))]
        }),
        ("pgtoll_verification_time_seconds", "When it was verified.", Some("seconds"), time),
        (
            "pgtoll_verification_relation_findings",
            "Findings of a damaged relation by class.",
            None,
            relations,
        ),
    ];
    let mut text = String::new();
    for (name, help, unit, samples) in FAMILIES {
        let gauges = records.iter().flat_map(|record| {
            let path = ("path", record.source.path.clone());
            let own = samples(record).into_iter();
            own.map(move |(labels, value)| ([vec![path.clone()], labels].concat(), value))
        });
        text.push_str(&family(name, help, unit, gauges));
    }
    text + "# EOF\n"
}

type Samples = fn(&VerificationRecord) -> Vec<Gauge>;

fn info(verification: &VerificationRecord) -> Vec<Gauge> {
    let yes_no = |is: bool| if is { "true" } else { "false" }.to_owned();
    let labels = vec![
        ("pgtoll", verification.pgtoll.clone()),
        ("postgresql", verification.source.major.to_string()),
        ("backup", yes_no(verification.source.backup)),
        ("checksums", yes_no(verification.source.checksums)),
        ("interrupted", yes_no(verification.interrupted)),
    ];
    vec![(labels, 1.0)]
}

fn outcome(verification: &VerificationRecord) -> Vec<Gauge> {
    let states = [
        ("sound", VerificationOutcome::Sound),
        ("no_damage_seen", VerificationOutcome::NoDamageSeen),
        ("findings", VerificationOutcome::Findings),
        ("unverified", VerificationOutcome::Unverified),
    ];
    let gauge = |(name, state): (&str, _)| {
        (vec![("outcome", name.to_owned())], f64::from(u8::from(verification.outcome == state)))
    };
    states.map(gauge).into()
}

fn time(verification: &VerificationRecord) -> Vec<Gauge> {
    seconds(&verification.made).map(|time| (Vec::new(), time)).into_iter().collect()
}

fn relations(verification: &VerificationRecord) -> Vec<Gauge> {
    verification.relations.iter().flat_map(of_relation).collect()
}

fn of_relation(verified_relation: &VerifiedRelation) -> Vec<Gauge> {
    let file = verified_relation.path.clone();
    let file = file.unwrap_or_else(|| {
        format!(
            "{}/{}/{}",
            verified_relation.tablespace, verified_relation.database, verified_relation.filenode
        )
    });
    let relation = qualified(verified_relation).unwrap_or_default();
    let counts = [
        (FindingClass::Failure, verified_relation.failures),
        (FindingClass::Suspicion, verified_relation.suspicions),
        (FindingClass::Unverified, verified_relation.unverified),
    ];
    let gauge = |(of_class, count): (FindingClass, u64)| {
        let labels = vec![
            ("relation", relation.clone()),
            ("file", file.clone()),
            ("fork", verified_relation.fork.clone()),
            ("class", class(of_class).to_owned()),
        ];
        (labels, float(count))
    };
    counts.map(gauge).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verification::tests::record;

    #[test]
    fn a_verification_is_gauges_with_its_path() {
        insta::assert_snapshot!(verification_openmetrics(&[record()]));
    }
}
