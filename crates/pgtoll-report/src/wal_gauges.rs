//! What a stretch of WAL consists of, as gauges for Prometheus.

use std::collections::BTreeMap;

use pgtoll_record::{
    ImageCause, WalAmount, WalImages, WalOfRelation, WalRelationName, WalStatisticsRecord,
};

use crate::openmetrics::{Family, Gauge, families, float, one, seconds};

/// A gauge for each number of a stretch of WAL, labelled by the cluster's identifier: paths of segments
/// differ with each run. Resource managers, causes and compressions are few; of databases and relations there
/// is a number at most, the largest.
pub(crate) fn wal_statistics_openmetrics(of: &WalStatisticsRecord) -> String {
    let cluster = ("system_identifier", of.source.system_identifier.to_string());
    families(of, &cluster, &FAMILIES)
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
        gauges: |of| one(float(of.source.segments)),
    },
    Family {
        name: "pgtoll_wal_read_bytes",
        help: "Bytes of WAL that were read, with the headers of its pages.",
        unit: Some("bytes"),
        gauges: |of| one(float(of.source.bytes())),
    },
    Family {
        name: "pgtoll_wal_gap_bytes",
        help: "Bytes between the first and the last record that were not read.",
        unit: Some("bytes"),
        gauges: |of| {
            let gaps = of.source.gaps.iter();
            one(float(gaps.fold(0, |sum: u64, gap| sum.saturating_add(gap.bytes()))))
        },
    },
    Family {
        name: "pgtoll_wal_first_time_seconds",
        help: "When the first transaction in it ended.",
        unit: Some("seconds"),
        gauges: |of| time(of.source.first_time.as_deref()),
    },
    Family {
        name: "pgtoll_wal_last_time_seconds",
        help: "When the last transaction in it ended.",
        unit: Some("seconds"),
        gauges: |of| time(of.source.last_time.as_deref()),
    },
    Family {
        name: "pgtoll_wal_whole_cycles",
        help: "Stretches from one redo point of a checkpoint to the next.",
        unit: None,
        gauges: |of| one(float(of.cycles.iter().filter(|cycle| cycle.whole).count() as u64)),
    },
    Family {
        name: "pgtoll_wal_records",
        help: "Records.",
        unit: None,
        gauges: |of| one(float(of.total.records)),
    },
    Family {
        name: "pgtoll_wal_bytes",
        help: "Bytes of records without their images, and of full-page images as they are stored.",
        unit: Some("bytes"),
        gauges: |of| parts(&[], &of.total),
    },
    Family {
        name: "pgtoll_wal_manager_records",
        help: "Records of a resource manager.",
        unit: None,
        gauges: |of| {
            let managers = of.managers.iter().take(MANAGERS_MAX);
            managers
                .map(|of| (vec![("manager", of.name.clone())], float(of.amount.records)))
                .collect()
        },
    },
    Family {
        name: "pgtoll_wal_manager_bytes",
        help: "Bytes of a resource manager's records and images.",
        unit: Some("bytes"),
        gauges: |of| {
            let managers = of.managers.iter().take(MANAGERS_MAX);
            managers.flat_map(|of| parts(&[("manager", of.name.clone())], &of.amount)).collect()
        },
    },
    Family {
        name: "pgtoll_wal_images",
        help: "Full-page images by cause.",
        unit: None,
        gauges: |of| causes(of, |of| of.images),
    },
    Family {
        name: "pgtoll_wal_image_bytes",
        help: "Bytes of full-page images by cause, as they are stored.",
        unit: Some("bytes"),
        gauges: |of| causes(of, |of| of.bytes),
    },
    Family {
        name: "pgtoll_wal_image_uncompressed_bytes",
        help: "The same before they were compressed.",
        unit: Some("bytes"),
        gauges: |of| causes(of, |of| of.uncompressed_bytes),
    },
    Family {
        name: "pgtoll_wal_compression_image_bytes",
        help: "Bytes of full-page images by compression, as they are stored.",
        unit: Some("bytes"),
        gauges: |of| {
            let label = |name: &str| vec![("compression", name.to_owned())];
            let all = of.compressions.iter().take(COMPRESSIONS_MAX);
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
        gauges: |of| {
            let all = relations(of).into_iter();
            all.flat_map(|(labels, (amount, _))| parts(&labels, &amount)).collect()
        },
    },
    Family {
        name: "pgtoll_wal_relation_images",
        help: "Full-page images of a relation's fork; the largest by bytes.",
        unit: None,
        gauges: |of| {
            let all = relations(of).into_iter();
            all.map(|(labels, (_, images))| (labels, float(images))).collect()
        },
    },
    Family {
        name: "pgtoll_wal_time_seconds",
        help: "When it was read.",
        unit: Some("seconds"),
        gauges: |of| time(Some(&of.made)),
    },
];

fn time(rfc3339: Option<&str>) -> Vec<Gauge> {
    rfc3339.and_then(seconds).into_iter().flat_map(one).collect()
}

fn info(of: &WalStatisticsRecord) -> Vec<Gauge> {
    let timeline = of.source.timelines.last().map_or_else(String::new, u32::to_string);
    let labels = vec![
        ("pgtoll", of.pgtoll.clone()),
        ("postgresql", of.source.major.to_string()),
        ("timeline", timeline),
    ];
    vec![(labels, 1.0)]
}

fn complete(of: &WalStatisticsRecord) -> Vec<Gauge> {
    let is_complete = of.end.kind.is_whole() && of.source.gaps.is_empty();
    one(f64::from(u8::from(is_complete)))
}

/// Its records and its images.
fn parts(labels: &[(&'static str, String)], of: &WalAmount) -> Vec<Gauge> {
    let part = |name: &str, bytes| {
        let part = vec![("part", name.to_owned())];
        ([labels, part.as_slice()].concat(), float(bytes))
    };
    vec![part("records", of.record_bytes), part("images", of.image_bytes)]
}

/// Of every cause, so that none comes and goes.
fn causes(of: &WalStatisticsRecord, count: fn(&WalImages) -> u64) -> Vec<Gauge> {
    let gauge = |cause: ImageCause| {
        let name = match cause {
            ImageCause::FirstTouch => "first_touch",
            ImageCause::Hint => "hint",
            ImageCause::Forced => "forced",
            ImageCause::Check => "check",
        };
        let images = of.causes.get(&cause).map_or(0, count);
        (vec![("cause", name.to_owned())], float(images))
    };
    ImageCause::ALL.map(gauge).into()
}

fn databases(of: &WalStatisticsRecord) -> Vec<Gauge> {
    let gauges = of.databases.iter().take(DATABASES_MAX).flat_map(|of| {
        let name = match &of.name {
            Some(name) => name.clone(),
            None if of.oid == 0 => SHARED.to_owned(),
            None => of.oid.to_string(),
        };
        parts(&[("database", name)], &of.amount)
    });
    gauges.collect()
}

/// Forks by their labels, in the order of these. Two of the same name are one: a table that was rewritten has
/// new files.
fn relations(of: &WalStatisticsRecord) -> BTreeMap<Vec<(&'static str, String)>, (WalAmount, u64)> {
    let mut found = BTreeMap::<_, (WalAmount, u64)>::new();
    for of in of.relations.iter().take(RELATIONS_MAX) {
        let (amount, images) = found.entry(relation_labels(of)).or_default();
        amount.records = amount.records.saturating_add(of.amount.records);
        amount.record_bytes = amount.record_bytes.saturating_add(of.amount.record_bytes);
        amount.image_bytes = amount.image_bytes.saturating_add(of.amount.image_bytes);
        *images = images.saturating_add(of.images);
    }
    found
}

fn relation_labels(of: &WalOfRelation) -> Vec<(&'static str, String)> {
    let (database, relation) = match &of.name {
        Some(WalRelationName { database, schema, relation, .. }) if database.is_empty() => {
            (SHARED.to_owned(), format!("{schema}.{relation}"))
        }
        Some(WalRelationName { database, schema, relation, .. }) => {
            (database.clone(), format!("{schema}.{relation}"))
        }
        None => {
            let WalOfRelation { tablespace, database, filenode, .. } = *of;
            let files = format!("{tablespace}/{database}/{filenode}");
            let database = if database == 0 { SHARED.to_owned() } else { database.to_string() };
            (database, files)
        }
    };
    vec![("database", database), ("relation", relation), ("fork", of.fork.clone())]
}

/// What relations belong to that all databases share.
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
        for (number, of) in (0..).zip(&mut many.relations) {
            of.name = Some(WalRelationName {
                relation: format!("t{number}"),
                ..relation.name.clone().unwrap()
            });
        }
        let text = wal_statistics_openmetrics(&many);
        assert_eq!(text.matches("\npgtoll_wal_relation_images{").count(), RELATIONS_MAX);
    }
}
