//! The answer about a fleet's backups, as gauges for Prometheus.

use pgtoll_record::{FleetBackup, FleetOutcome, FleetRecord};

use crate::openmetrics::{Gauge, family, float, seconds};

/// How many backups are sound, and of each backup its outcome, its counts, and when it was verified.
pub(crate) fn fleet_openmetrics(fleet: &FleetRecord) -> String {
    let mut text = family(
        "pgtoll_fleet_backups",
        "Backups of the plan by outcome.",
        None,
        OUTCOMES.into_iter().map(|(name, outcome)| {
            let count = fleet.backups.iter().filter(|backup| backup.outcome == outcome).count();
            (vec![("outcome", name.to_owned())], float(count as u64))
        }),
    );
    text.push_str(&family(
        "pgtoll_fleet_merge_time_seconds",
        "When the results were put together.",
        Some("seconds"),
        seconds(&fleet.made).map(|time| (Vec::new(), time)).into_iter(),
    ));
    for (name, help, unit, samples) in FAMILIES {
        let gauges = fleet.backups.iter().flat_map(|backup| {
            let FleetBackup { url, cluster, backup: id, .. } = backup;
            let common =
                vec![("url", url.clone()), ("cluster", cluster.clone()), ("backup", id.clone())];
            let own = samples(backup).into_iter();
            own.map(move |(labels, value)| ([common.clone(), labels].concat(), value))
        });
        text.push_str(&family(name, help, unit, gauges));
    }
    text + "# EOF\n"
}

const OUTCOMES: [(&str, FleetOutcome); 5] = [
    ("findings", FleetOutcome::Findings),
    ("unverified", FleetOutcome::Unverified),
    ("missing", FleetOutcome::Missing),
    ("refused", FleetOutcome::Refused),
    ("sound", FleetOutcome::Sound),
];

type Family = (&'static str, &'static str, Option<&'static str>, fn(&FleetBackup) -> Vec<Gauge>);

const FAMILIES: [Family; 7] = [
    ("pgtoll_fleet_backup_outcome", "1 of the backup's outcome.", None, |item| {
        let gauge = |(name, outcome): (&str, _)| {
            (vec![("outcome", name.to_owned())], f64::from(u8::from(item.outcome == outcome)))
        };
        OUTCOMES.map(gauge).into()
    }),
    ("pgtoll_fleet_backup_failures", "Pages that a server refuses.", None, |item| {
        counted(item, item.failures)
    }),
    ("pgtoll_fleet_backup_suspicions", "What no server would notice.", None, |item| {
        counted(item, item.suspicions)
    }),
    ("pgtoll_fleet_backup_unverified_blocks", "Blocks that are not verified.", None, |item| {
        counted(item, item.unverified)
    }),
    ("pgtoll_fleet_backup_wrong_files", "Files missing or wrong.", None, |item| {
        counted(item, item.wrong_files)
    }),
    ("pgtoll_fleet_backup_read_bytes", "Bytes of pages that were read.", Some("bytes"), |item| {
        counted(item, item.bytes)
    }),
    (
        "pgtoll_fleet_backup_verified_time_seconds",
        "When it was verified.",
        Some("seconds"),
        |item| {
            let time = item.verified.as_deref().and_then(seconds);
            time.map(|time| (Vec::new(), time)).into_iter().collect()
        },
    ),
];

/// A backup without a result has no counts: zero would be a claim.
fn counted(backup: &FleetBackup, count: u64) -> Vec<Gauge> {
    backup.verified.iter().map(|_| (Vec::new(), float(count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::record;

    #[test]
    fn backups_are_gauges_and_what_is_not_known_is_none() {
        insta::assert_snapshot!(fleet_openmetrics(&record()));
    }
}
