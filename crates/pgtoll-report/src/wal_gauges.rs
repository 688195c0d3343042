//! Statistics of WAL, as gauges for Prometheus.

use std::collections::BTreeMap;

use pgtoll_record::{
    ImageCause, WalAmount, WalImages, WalOfRelation, WalRelationName, WalStatisticsRecord,
};

use crate::openmetrics::{Family, Gauge, families, float, one, seconds};

/// A gauge for each number of a stretch of WAL, labelled by the cluster's identifier: paths of segments
/// differ with each run. Resource managers, causes and compressions are few; of databases and relations there
/// is a number at most, the largest.
pub(crate) fn wal_statistics_openmetrics(statistics: &WalStatisticsRecord) -> String {
    let cluster = ("system_identifier", statistics.source.system_identifier.to_string());
    families(statistics, &cluster, &FAMILIES)
}

const FAMILIES: [Family<WalStatisticsRecord>; 20] = [
    Family { name: "pgtoll_wal_info", help: "Which WAL was read.", unit: None, gauges: info },
    Family {
        name: "pgtoll_wal_complete",
        help: "1: all that was named was read, without a gap.",
        unit: None,
        gauges: complete,
    },
    Family {
        name: "pgtoll_wal_segments",
        help: "Segments that were read.",
        unit: None,
        gauges: |item| one(float(item.source.segments)),
    },
    Family {
        name: "pgtoll_wal_read_bytes",
        help: "Bytes of WAL that were read, with the headers of its pages.",
        unit: Some("bytes"),
        gauges: |item| one(float(item.source.bytes())),
    },
    Family {
        name: "pgtoll_wal_gap_bytes",
        help: "Bytes between the first and the last record that were not read.",
        unit: Some("bytes"),
        gauges: |item| {
            let gaps = item.source.gaps.iter();
            one(float(gaps.fold(0, |sum: u64, gap| sum.saturating_add(gap.bytes()))))
        },
    },
    Family {
        name: "pgtoll_wal_first_time_seconds",
        help: "When the first transaction in it ended.",
        unit: Some("seconds"),
        gauges: |item| time(item.source.first_time.as_deref()),
    },
    Family {
        name: "pgtoll_wal_last_time_seconds",
        help: "When the last transaction in it ended.",
        unit: Some("seconds"),
        gauges: |item| time(item.source.last_time.as_deref()),
    },
    Family {
        name: "pgtoll_wal_whole_cycles",
        help: "Stretches from one redo point of a checkpoint to the next.",
        unit: None,
        gauges: |item| one(float(item.cycles.iter().filter(|cycle| cycle.whole).count() as u64)),
    },
    Family {
        name: "pgtoll_wal_records",
        help: "Records.",
        unit: None,
        gauges: |item| one(float(item.total.records)),
    },
    Family {
        name: "pgtoll_wal_bytes",
        help: "Bytes of records without their images, and of full-page images as they are stored.",
        unit: Some("bytes"),
        gauges: |item| parts(&[], &item.total),
    },
    Family {
        name: "pgtoll_wal_manager_records",
        help: "Records of a resource manager.",
        unit: None,
        gauges: |item| {
            let managers = item.managers.iter().take(MANAGERS_MAX);
            managers
                .map(|manager| {
                    (vec![("manager", manager.name.clone())], float(manager.amount.records))
                })
                .collect()
        },
    },
    Family {
        name: "pgtoll_wal_manager_bytes",
        help: "Bytes of a resource manager's records and images.",
        unit: Some("bytes"),
        gauges: |item| {
            let managers = item.managers.iter().take(MANAGERS_MAX);
            managers
                .flat_map(|manager| parts(&[("manager", manager.name.clone())], &manager.amount))
                .collect()
        },
    },
    Family {
        name: "pgtoll_wal_images",
        help: "Full-page images by cause.",
        unit: None,
        gauges: |entry| causes(entry, |item| item.images),
    },
    Family {
        name: "pgtoll_wal_image_bytes",
        help: "Bytes of full-page images by cause, as they are stored.",
        unit: Some("bytes"),
        gauges: |entry| causes(entry, |item| item.bytes),
    },
    Family {
        name: "pgtoll_wal_image_uncompressed_bytes",
        help: "The same before they were compressed.",
        unit: Some("bytes"),
        gauges: |entry| causes(entry, |item| item.uncompressed_bytes),
    },
    Family {
        name: "pgtoll_wal_compression_image_bytes",
        help: "Bytes of full-page images by compression, as they are stored.",
        unit: Some("bytes"),
        gauges: |item| {
            let label = |name: &str| vec![("compression", name.to_owned())];
            let all = item.compressions.iter().take(COMPRESSIONS_MAX);
            all.map(|(name, images)| (label(name), float(images.bytes))).collect()
        },
    },
    Family {
        name: "pgtoll_wal_database_bytes",
        help: "Bytes of records and images that name a relation of a database; the largest.",
        unit: Some("bytes"),
        gauges: databases,
    },
    Family {
        name: "pgtoll_wal_relation_bytes",
        help: "Bytes of records and images of a relation's fork; the largest.",
        unit: Some("bytes"),
        gauges: |item| {
            let all = relations(item).into_iter();
            all.flat_map(|(labels, (amount, _))| parts(&labels, &amount)).collect()
        },
    },
    Family {
        name: "pgtoll_wal_relation_images",
        help: "Full-page images of a relation's fork; the largest by bytes.",
        unit: None,
        gauges: |item| {
            let all = relations(item).into_iter();
            all.map(|(labels, (_, images))| (labels, float(images))).collect()
        },
    },
    Family {
        name: "pgtoll_wal_time_seconds",
        help: "When it was read.",
        unit: Some("seconds"),
        gauges: |item| time(Some(&item.made)),
    },
];

fn time(rfc3339: Option<&str>) -> Vec<Gauge> {
    rfc3339.and_then(seconds).into_iter().flat_map(one).collect()
}

fn info(statistics: &WalStatisticsRecord) -> Vec<Gauge> {
    let timeline = statistics.source.timelines.last().map_or_else(String::new, u32::to_string);
    let labels = vec![
        ("pgtoll", statistics.pgtoll.clone()),
        ("postgresql", statistics.source.major.to_string()),
        ("timeline", timeline),
    ];
    vec![(labels, 1.0)]
}

fn complete(statistics: &WalStatisticsRecord) -> Vec<Gauge> {
    let is_complete = statistics.end.kind.is_whole() && statistics.source.gaps.is_empty();
    one(f64::from(u8::from(is_complete)))
}

/// Its records and its images.
fn parts(labels: &[(&'static str, String)], amount: &WalAmount) -> Vec<Gauge> {
    let part = |name: &str, bytes| {
        let part = vec![("part", name.to_owned())];
        ([labels, part.as_slice()].concat(), float(bytes))
    };
    vec![part("records", amount.record_bytes), part("images", amount.image_bytes)]
}

/// Returns a gauge for every cause, so that no series comes and goes.
fn causes(statistics: &WalStatisticsRecord, count: fn(&WalImages) -> u64) -> Vec<Gauge> {
    let gauge = |cause: ImageCause| {
        let name = match cause {
            ImageCause::FirstTouch => "first_touch",
            ImageCause::Hint => "hint",
            ImageCause::Forced => "forced",
            ImageCause::Check => "check",
        };
        let images = statistics.causes.get(&cause).map_or(0, count);
        (vec![("cause", name.to_owned())], float(images))
    };
    ImageCause::ALL.map(gauge).into()
}

fn databases(statistics: &WalStatisticsRecord) -> Vec<Gauge> {
    let gauges = statistics.databases.iter().take(DATABASES_MAX).flat_map(|database| {
        let name = match &database.name {
            Some(name) => name.clone(),
            None if database.oid == 0 => SHARED.to_owned(),
            None => database.oid.to_string(),
        };
        parts(&[("database", name)], &database.amount)
    });
    gauges.collect()
}

/// Forks by their labels, in the order of these. Two of the same name are one: a table that was rewritten has
/// new files.
fn relations(
    statistics: &WalStatisticsRecord,
) -> BTreeMap<Vec<(&'static str, String)>, (WalAmount, u64)> {
    let mut found = BTreeMap::<_, (WalAmount, u64)>::new();
    for relation in statistics.relations.iter().take(RELATIONS_MAX) {
        let (amount, images) = found.entry(relation_labels(relation)).or_default();
        amount.records = amount.records.saturating_add(relation.amount.records);
        amount.record_bytes = amount.record_bytes.saturating_add(relation.amount.record_bytes);
        amount.image_bytes = amount.image_bytes.saturating_add(relation.amount.image_bytes);
        *images = images.saturating_add(relation.images);
    }
    found
}

fn relation_labels(wal_of_relation: &WalOfRelation) -> Vec<(&'static str, String)> {
    let (database, relation) = match &wal_of_relation.name {
        Some(WalRelationName { database, schema, relation, .. }) if database.is_empty() => {
            (SHARED.to_owned(), format!("{schema}.{relation}"))
        }
        Some(WalRelationName { database, schema, relation, .. }) => {
            (database.clone(), format!("{schema}.{relation}"))
        }
        None => {
            let WalOfRelation { tablespace, database, filenode, .. } = *wal_of_relation;
            let files = format!("{tablespace}/{database}/{filenode}");
            let database = if database == 0 { SHARED.to_owned() } else { database.to_string() };
            (database, files)
        }
    };
    vec![("database", database), ("relation", relation), ("fork", wal_of_relation.fork.clone())]
}

/// The name for relations that all databases share.
const SHARED: &str = "shared";
/// Each is a series of its own in Prometheus. A byte names a resource manager.
const MANAGERS_MAX: usize = 256;
const COMPRESSIONS_MAX: usize = 16;
const DATABASES_MAX: usize = 50;
const RELATIONS_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal_statistics::tests::record;

    #[test]
    fn a_stretch_of_wal_is_gauges_with_its_cluster() {
        insta::assert_snapshot!(wal_statistics_openmetrics(&record()));
    }

    #[test]
    fn relations_are_few_and_none_comes_twice() {
        let mut many = record();
        let relation = many.relations[0].clone();
        many.relations = (0..1000)
            .map(|number| WalOfRelation { filenode: 16_384 + number, ..relation.clone() })
            .collect();
        let once = wal_statistics_openmetrics(&many);
        assert_eq!(once.matches("\npgtoll_wal_relation_images{").count(), 1, "{once}");
        for (number, item) in (0..).zip(&mut many.relations) {
            item.name = Some(WalRelationName {
                relation: format!("t{number}"),
                ..relation.name.clone().unwrap()
            });
        }
        let text = wal_statistics_openmetrics(&many);
        assert_eq!(text.matches("\npgtoll_wal_relation_images{").count(), RELATIONS_MAX);
    }
}
