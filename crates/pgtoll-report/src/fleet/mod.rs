//! Backups of many clusters: what verifying them takes, and what was found.

mod gauges;

pub(crate) use gauges::fleet_openmetrics;

use pgtoll_estimate::three_digits;
use pgtoll_format::ByteSize;
use pgtoll_record::{
    FleetBackup, FleetCpuSource, FleetCpuTime, FleetCpuTimes, FleetLayout, FleetOutcome, FleetPlan,
    FleetRecord, FleetRefusal,
};

use crate::document::{Block, Document, Section, Table};
use crate::html::day;
use crate::plugin::{PluginFacts, PluginFigure};
use crate::records::{ReportedRecord, TableOptions};

impl ReportedRecord for FleetPlan {
    /// The backups that were found, and the cost of verifying them.
    fn document(&self, _: &TableOptions) -> Document {
        let backups = self.backups();
        let estimate = &self.estimate;
        let mut document = Document {
            command: "pgtoll fleet plan",
            question: "What is to be verified?",
            answer: vec![format!(
                "{}, {} stored, in {}.",
                counted(backups.len() as u64, "backup"),
                ByteSize(estimate.bytes).rounded(),
                counted(u64::from(self.shards), "shard"),
            )],
            again: self.command.clone(),
            ..Document::default()
        };
        document.push(Section::detail("Backups", vec![Block::List(layouts(self))]));
        let takes = Block::List(what_it_takes(self));
        document.push(Section::detail("Reading them takes, roughly", vec![takes]));
        document.push(self.cpu_times.as_ref().map(cpu_times_section));
        let refused = |refusal: &FleetRefusal| format!("{}: {}", refusal.url, refusal.reason);
        let refused = shown(self.refused.iter().map(refused).collect());
        if !refused.is_empty() {
            let count = counted(self.refused.len() as u64, "backup");
            let title = format!("{count} cannot be read, and will not count as sound");
            document.push(Section::detail(&title, vec![Block::List(refused)]));
        }
        document
    }
}

/// Backups of each layout, and those that are cut into parts.
fn layouts(plan: &FleetPlan) -> Vec<String> {
    let backups = plan.backups();
    let of_layout = |layout: &FleetLayout| {
        let own = backups.iter().filter(|units| units[0].layout == *layout);
        let (count, bytes) = own.fold((0, 0_u64), |(count, bytes), units| {
            (count + 1, units.iter().fold(bytes, |sum, unit| sum.saturating_add(unit.bytes)))
        });
        let size = ByteSize(bytes).rounded();
        (count > 0).then(|| format!("{count} of {}, {size}", layout_name(*layout)))
    };
    let mut lines: Vec<String> = LAYOUTS.iter().filter_map(of_layout).collect();
    let cut = backups.iter().filter(|units| units.len() > 1);
    let (cut, parts) = cut.fold((0, 0), |(cut, parts), units| (cut + 1, parts + units.len()));
    if cut > 0 {
        lines.push(format!("{cut} cut into {parts} parts, which are verified one by one"));
    }
    lines
}

fn what_it_takes(plan: &FleetPlan) -> Vec<String> {
    let estimate = &plan.estimate;
    let range = estimate.core_hours_range.map_or_else(String::new, |core_hours_range| {
        format!(
            " ({} to {})",
            three_digits(core_hours_range.lowest),
            three_digits(core_hours_range.highest)
        )
    });
    vec![
        format!("{} of up to 8 MB", counted(estimate.gets, "GET")),
        format!(
            "{} core-hours{range}; the longest shard {:.2} h on one core",
            three_digits(estimate.core_hours),
            estimate.longest_shard_seconds / 3600.0
        ),
        format!(
            "${:.2} for cores at $0.04 an hour, ${:.2} for GETs",
            estimate.core_dollars, estimate.get_dollars
        ),
        format!(
            "${:.0} more if the shards run in another region, ${:.0} over the internet",
            estimate.other_region_dollars, estimate.internet_dollars
        ),
    ]
}

/// Returns the CPU times behind an estimate, and the command that measures them.
fn cpu_times_section(times: &FleetCpuTimes) -> Section {
    let packings = [
        ("plain", &times.plain),
        ("LZ4", &times.lz4),
        ("Zstandard", &times.zstd),
        ("gzip", &times.gzip),
    ];
    let packings = packings.map(|(name, time)| format!("{name} {}", cpu_time(time, 1.0)));
    let readings = [&times.plain, &times.lz4, &times.zstd, &times.gzip, &times.object]
        .map(|item| item.readings);
    let words = format!(
        "CPU seconds of a GB as it is stored, over TLS: {}. Milliseconds of an object beyond its \
         bytes: {}. Medians of at least {} readings of one backup, with the lowest and the highest; \
         other processors take other times, and so does data that is packed more or less tightly. \
         Measured by:",
        packings.join(", "),
        cpu_time(&times.object, 1e3),
        readings.into_iter().min().unwrap_or_default(),
    );
    let source = |FleetCpuSource { record, command, cpu, cores }: &FleetCpuSource| {
        format!("{record} ({cpu}, {cores} CPUs): {command}")
    };
    let sources = Block::List(times.sources.iter().map(source).collect());
    Section::detail("What the core-hours rest on", vec![Block::Paragraph(words), sources])
}

fn cpu_time(fleet_cpu_time: &FleetCpuTime, factor: f64) -> String {
    let [time, lowest, highest] =
        [fleet_cpu_time.seconds, fleet_cpu_time.range.lowest, fleet_cpu_time.range.highest]
            .map(|seconds| three_digits(seconds * factor));
    format!("{time} ({lowest} to {highest})")
}

impl ReportedRecord for FleetRecord {
    const HAS_GAUGES: bool = true;
    const IS_CHECK: bool = true;

    fn check(&self) -> Option<PluginFacts> {
        let count = |label, outcome| {
            let all = self.backups.iter().filter(|backup| backup.outcome == outcome);
            PluginFigure::count(label, all.count() as u64)
        };
        Some(PluginFacts {
            made: self.made.parse().ok(),
            figures: vec![
                count("sound", FleetOutcome::Sound),
                count("findings", FleetOutcome::Findings),
                count("unverified", FleetOutcome::Unverified),
                count("missing", FleetOutcome::Missing),
                count("refused", FleetOutcome::Refused),
            ],
        })
    }

    /// How many are sound, then the others, the worst first.
    fn document(&self, _: &TableOptions) -> Document {
        let mut answer = vec![format!("{}.", heading(self))];
        answer.extend(oldest(self).map(|oldest| format!("Oldest verification: {}.", day(oldest))));
        let mut document = Document {
            command: "pgtoll fleet merge",
            question: "Are the backups sound?",
            answer,
            again: self.command.clone(),
            ..Document::default()
        };
        let words = |backup: &FleetBackup| {
            let outcome = outcome_words(backup);
            let all = [outcome].into_iter().chain(backup.reasons.iter().cloned());
            format!("{}: {}", backup.url, all.collect::<Vec<_>>().join("; "))
        };
        let bad = self.backups.iter().filter(|backup| backup.outcome != FleetOutcome::Sound);
        let bad = shown(bad.map(words).collect());
        if !bad.is_empty() {
            let title = format!("Not sound: {}", counts(self));
            document.push(Section::detail(&title, vec![Block::List(bad)]));
        }
        let all = Table::new(&HEAD, self.backups.iter().map(row).collect());
        document.push(Section::evidence("All backups", vec![Block::Table(all)]));
        document
    }

    fn gauges(&self) -> Option<String> {
        Some(fleet_openmetrics(self))
    }
}

/// How many of all are sound.
fn heading(fleet: &FleetRecord) -> String {
    let all = counted(fleet.backups.len() as u64, "backup");
    format!("{} of {all} sound, {} of pages verified", fleet.sound, ByteSize(fleet.bytes).rounded())
}

/// How many are not sound, by reason.
fn counts(fleet: &FleetRecord) -> String {
    let counts = [
        (fleet.findings, "with findings"),
        (fleet.unverified, "unverified"),
        (fleet.refused, "not read"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, label)| format!("{count} {label}")).collect::<Vec<_>>().join(", ")
}

/// When what was verified first was verified.
fn oldest(fleet: &FleetRecord) -> Option<&str> {
    fleet.backups.iter().filter_map(|backup| backup.verified.as_deref()).min()
}

/// Titles of [`row`].
const HEAD: [&str; 4] = ["backup", "outcome", "verified", "what was found"];

fn row(backup: &FleetBackup) -> Vec<String> {
    let verified = backup.verified.as_deref().map_or_else(|| "never".to_owned(), day);
    vec![backup.url.clone(), outcome_words(backup), verified, backup.reasons.join("; ")]
}

fn outcome_words(backup: &FleetBackup) -> String {
    let FleetBackup { failures, suspicions, unverified, wrong_files, .. } = backup;
    match backup.outcome {
        FleetOutcome::Findings => {
            let counts =
                [(*failures, "failure"), (*suspicions, "suspicion"), (*wrong_files, "wrong file")];
            let words: Vec<String> = counts
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, word)| counted(count, word))
                .collect();
            if words.is_empty() { "findings".to_owned() } else { words.join(", ") }
        }
        FleetOutcome::Unverified if *unverified > 0 => {
            format!("{} unverified", counted(*unverified, "block"))
        }
        FleetOutcome::Unverified => "unverified".to_owned(),
        FleetOutcome::Missing => "no result yet".to_owned(),
        FleetOutcome::Refused => "not read".to_owned(),
        FleetOutcome::Sound => "sound".to_owned(),
    }
}

fn layout_name(layout: FleetLayout) -> &'static str {
    match layout {
        FleetLayout::BarmanCloud => "barman-cloud or CloudNativePG",
        FleetLayout::PgBackRest => "pgBackRest",
        FleetLayout::WalG => "WAL-G, full",
        FleetLayout::Tars => "tars of pg_basebackup",
        FleetLayout::Files => "plain files",
    }
}

const LAYOUTS: [FleetLayout; 5] = [
    FleetLayout::BarmanCloud,
    FleetLayout::PgBackRest,
    FleetLayout::WalG,
    FleetLayout::Tars,
    FleetLayout::Files,
];

fn counted(count: u64, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

/// The first of them, and how many there are more.
fn shown(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    lines.extend((more > 0).then(|| format!("and {more} more: --json has all")));
    lines
}

/// Backups that are shown each.
const SHOWN: usize = 50;

#[cfg(test)]
pub(crate) mod tests {
    use pgtoll_record::{FLEET_PLAN_SCHEMA, FLEET_SCHEMA, FleetEstimate, FleetRange, FleetUnit};

    use super::*;

    pub(crate) fn record() -> FleetRecord {
        let backup = |name: &str, outcome, failures, reasons: &[&str]| FleetBackup {
            url: format!("s3://b/{name}"),
            cluster: name.to_owned(),
            backup: "20261123T020000".to_owned(),
            outcome,
            verified: (outcome != FleetOutcome::Missing).then(|| "2026-11-23T03:00:00Z".to_owned()),
            bytes: 8192,
            failures,
            suspicions: 0,
            unverified: 0,
            wrong_files: 0,
            reasons: reasons.iter().map(|&reason| reason.to_owned()).collect(),
        };
        FleetRecord {
            schema: FLEET_SCHEMA.to_owned(),
            pgtoll: "0.1.0".to_owned(),
            command: vec!["pgtoll".to_owned(), "fleet".to_owned(), "merge".to_owned()],
            made: "2026-11-24T00:00:00Z".to_owned(),
            plan: "file:///srv/plan.json".to_owned(),
            backups: vec![
                backup("a", FleetOutcome::Findings, 1, &["shop.public.orders, block 7"]),
                backup("b", FleetOutcome::Missing, 0, &[]),
                backup("c", FleetOutcome::Sound, 0, &[]),
            ],
            sound: 1,
            findings: 1,
            unverified: 1,
            refused: 0,
            bytes: 24576,
        }
    }

    fn plan(cpu_times: Option<FleetCpuTimes>) -> FleetPlan {
        let range = FleetRange { lowest: 3.9, highest: 4.4 };
        FleetPlan {
            schema: FLEET_PLAN_SCHEMA.to_owned(),
            pgtoll: "0.1.0".to_owned(),
            command: vec!["pgtoll".to_owned(), "fleet".to_owned(), "plan".to_owned()],
            made: "2026-11-24T00:00:00Z".to_owned(),
            urls: vec!["s3://b".to_owned()],
            objects: 1,
            shards: 2,
            units: vec![FleetUnit {
                id: "0".repeat(64),
                url: "s3://b/a".to_owned(),
                cluster: "b".to_owned(),
                backup: "a".to_owned(),
                layout: FleetLayout::Tars,
                bytes: 30 << 40,
                cpu_seconds: 15000.0,
                cpu_seconds_range: None,
                part: None,
                objects: Vec::new(),
                beside: Vec::new(),
                manifest: None,
            }],
            refused: Vec::new(),
            estimate: FleetEstimate {
                bytes: 30 << 40,
                gets: 4_000_000,
                core_hours: 4.1666,
                core_hours_range: cpu_times.is_some().then_some(range),
                longest_shard_seconds: 15000.0,
                core_dollars: 0.17,
                get_dollars: 1.6,
                other_region_dollars: 660.0,
                internet_dollars: 2970.0,
            },
            cpu_times,
        }
    }

    #[test]
    fn a_plan_says_what_its_core_hours_rest_on() {
        let time = |seconds| FleetCpuTime {
            seconds,
            range: FleetRange { lowest: seconds * 0.9, highest: seconds * 1.1 },
            readings: 10,
        };
        let source = FleetCpuSource {
            record: "records/own\u{1b}[0m.jsonl".to_owned(),
            command: "cargo xtask bench fleet".to_owned(),
            cpu: "A CPU".to_owned(),
            cores: 2,
        };
        let times = FleetCpuTimes {
            plain: time(0.5),
            gzip: time(7.0),
            lz4: time(1.0),
            zstd: time(3.0),
            object: time(0.0001),
            sources: vec![source],
        };
        let text = |plan: FleetPlan| plan.text(&TableOptions::default());
        insta::assert_snapshot!(text(plan(Some(times))));
        // One that an earlier version wrote.
        let earlier = text(plan(None));
        assert!(earlier.contains("\n  - 4.17 core-hours; the longest shard"), "{earlier}");
        assert!(!earlier.contains("Measured by"), "{earlier}");
    }

    #[test]
    fn the_worst_backups_are_named_and_sound_ones_counted() {
        let expected = "1 of 3 backups sound, 24.0 kB of pages verified.\n\
            Oldest verification: 2026-11-23 03:00 UTC.\n\n\
            Not sound: 1 with findings, 1 unverified\n\
            \x20 - s3://b/a: 1 failure; shop.public.orders, block 7\n\
            \x20 - s3://b/b: no result yet\n\nMore with --full: All backups\n";
        assert_eq!(record().text(&TableOptions::default()), expected);
    }
}
