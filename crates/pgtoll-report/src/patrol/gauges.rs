//! Progress and findings of a patrol, as gauges for Prometheus.

use jiff::Timestamp;
use pgtoll_record::{FindingClass, PatrolFinding, PatrolRecord};

use super::{left_out, oldest_seconds, seconds_between, share_of_round};
use crate::openmetrics::{Family, Gauge, families, float, one};
use crate::verification::class;

/// A gauge for each number of a patrol, labelled by the data directory, and of each damaged fork the
/// numbers of its findings. Times are for alerts: they grow old also where the patrol has stopped.
pub(crate) fn patrol_openmetrics(patrol: &PatrolRecord) -> String {
    let path = ("path", patrol.source.path.clone());
    families(patrol, &path, &FAMILIES)
}

const FAMILIES: [Family<PatrolRecord>; 18] = [
    Family { name: "pgtoll_patrol_info", help: "What is read.", unit: None, gauges: info },
    Family {
        name: "pgtoll_verify_failures",
        help: "Pages that a server refuses, when they were read last.",
        unit: None,
        gauges: |item| one(float(item.failures)),
    },
    Family {
        name: "pgtoll_verify_suspicions",
        help: "What no server would notice.",
        unit: None,
        gauges: |item| one(float(item.suspicions)),
    },
    Family {
        name: "pgtoll_verify_unverified_blocks",
        help: "Blocks that could not be read, or not be judged.",
        unit: None,
        gauges: |item| one(float(item.unverified)),
    },
    Family {
        name: "pgtoll_verify_more_blocks",
        help: "Blocks with something wrong beyond those that are listed.",
        unit: None,
        gauges: |item| one(float(left_out(item))),
    },
    Family {
        name: "pgtoll_verify_unlisted",
        help: "Directories and files that could not be listed.",
        unit: None,
        gauges: |item| one(float(item.unlisted.len() as u64)),
    },
    Family {
        name: "pgtoll_verify_relation_findings",
        help: "Blocks of a damaged relation by class.",
        unit: None,
        gauges: relations,
    },
    Family {
        name: "pgtoll_patrol_pages_read",
        help: "Pages that were read since the patrol began.",
        unit: None,
        gauges: |item| one(float(item.read.pages)),
    },
    Family {
        name: "pgtoll_patrol_read_bytes",
        help: "Bytes that were read since the patrol began.",
        unit: Some("bytes"),
        gauges: |item| one(float(item.read.bytes)),
    },
    Family {
        name: "pgtoll_patrol_rate_bytes",
        help: "Bytes a second at most.",
        unit: Some("bytes"),
        gauges: |item| one(float(item.budget.rate_bytes)),
    },
    Family {
        name: "pgtoll_patrol_round",
        help: "The round at hand, from 1.",
        unit: None,
        gauges: |item| one(float(item.round.number)),
    },
    Family {
        name: "pgtoll_patrol_round_ratio",
        help: "How much of the round at hand was read.",
        unit: Some("ratio"),
        gauges: |item| one(share_of_round(item)),
    },
    Family {
        name: "pgtoll_patrol_last_round_time_seconds",
        help: "When the last full round came to its end.",
        unit: Some("seconds"),
        gauges: |item| {
            let ended = item.last_round.as_ref().and_then(|round| round.ended);
            ended.map_or_else(Vec::new, |ended| one(unix(ended)))
        },
    },
    Family {
        name: "pgtoll_patrol_last_round_duration_seconds",
        help: "What the last full round took.",
        unit: Some("seconds"),
        gauges: |item| {
            let last = item.last_round.iter();
            let took = last.filter_map(|last| Some(seconds_between(last.began, last.ended?)));
            took.flat_map(|took| one(float(took))).collect()
        },
    },
    Family {
        name: "pgtoll_patrol_oldest_page_time_seconds",
        help: "When the page was read that waits longest; none before the patrol began.",
        unit: Some("seconds"),
        gauges: |item| one(unix(item.oldest_read)),
    },
    Family {
        name: "pgtoll_patrol_oldest_page_age_seconds",
        help: "How long that was ago when this was written.",
        unit: Some("seconds"),
        gauges: |item| one(float(oldest_seconds(item))),
    },
    Family {
        name: "pgtoll_patrol_within_seconds",
        help: "Each page is to be read within this time.",
        unit: Some("seconds"),
        gauges: |item| one(float(item.budget.within_seconds)),
    },
    Family {
        name: "pgtoll_patrol_time_seconds",
        help: "When this was written.",
        unit: Some("seconds"),
        gauges: |item| one(unix(item.made)),
    },
];

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
fn unix(time: Timestamp) -> f64 {
    time.as_second() as f64
}

fn info(patrol: &PatrolRecord) -> Vec<Gauge> {
    let yes_no = |is: bool| if is { "true" } else { "false" }.to_owned();
    let labels = vec![
        ("pgtoll", patrol.pgtoll.clone()),
        ("postgresql", patrol.source.major.to_string()),
        ("system_identifier", patrol.source.system_identifier.to_string()),
        ("checksums", yes_no(patrol.source.checksums)),
        ("running", yes_no(patrol.source.running)),
    ];
    vec![(labels, 1.0)]
}

/// Returns the blocks of each fork and class.
fn relations(patrol: &PatrolRecord) -> Vec<Gauge> {
    const CLASSES: [FindingClass; 3] =
        [FindingClass::Failure, FindingClass::Suspicion, FindingClass::Unverified];
    let is_same =
        |one: &PatrolFinding, next: &PatrolFinding| one.path == next.path && one.fork == next.fork;
    let gauges = |of_fork: &[PatrolFinding]| {
        let first = &of_fork[0];
        let gauge = |of_class: FindingClass| {
            let blocks = of_fork.iter().filter(|item| item.page.class == of_class);
            let blocks: u64 = blocks.map(|block| u64::from(block.page.blocks)).sum();
            let labels = vec![
                ("relation", first.name.as_ref().map(ToString::to_string).unwrap_or_default()),
                ("file", first.path.clone()),
                ("fork", first.fork.clone()),
                ("class", class(of_class).to_owned()),
            ];
            (labels, float(blocks))
        };
        CLASSES.map(gauge)
    };
    patrol.findings.chunk_by(is_same).flat_map(gauges).take(GAUGES_MAX).collect()
}

/// Each is a series of its own in Prometheus.
const GAUGES_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patrol::tests::record;

    #[test]
    fn a_patrol_is_gauges_with_its_path() {
        insta::assert_snapshot!(patrol_openmetrics(&record()));
    }
}
