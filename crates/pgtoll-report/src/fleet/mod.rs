//! Backups of many clusters, as text. The other formats share its words.

mod gauges;
mod markdown;

pub(crate) use gauges::fleet_openmetrics;
pub(crate) use markdown::fleet_markdown;

use std::fmt::Write as _;

use pgtoll_estimate::three_digits;
use pgtoll_format::ByteSize;
use pgtoll_record::{
    FleetBackup, FleetCpuSource, FleetCpuTime, FleetCpuTimes, FleetLayout, FleetOutcome, FleetPlan,
    FleetRecord, FleetRefusal,
};

use crate::html::day;
use crate::printable::printable;
use crate::text::wrapped;

/// What was found, and what verifying it takes.
pub(crate) fn fleet_plan_text(of: &FleetPlan) -> String {
    let (backups, estimate) = (of.backups(), &of.estimate);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}, {} stored, in {}",
        counted(backups.len() as u64, "backup"),
        ByteSize(estimate.bytes).rounded(),
        counted(u64::from(of.shards), "shard"),
    );
    for layout in LAYOUTS {
        let of_layout = backups.iter().filter(|units| units[0].layout == layout);
        let (count, bytes) = of_layout.fold((0, 0_u64), |(count, bytes), units| {
            (count + 1, units.iter().fold(bytes, |sum, unit| sum.saturating_add(unit.bytes)))
        });
        if count > 0 {
            let (name, size) = (layout_name(layout), ByteSize(bytes).rounded());
            let _ = writeln!(text, "  {count:>6}  {name}, {size}");
        }
    }
    let cut = backups.iter().filter(|units| units.len() > 1);
    let (cut, parts) = cut.fold((0, 0), |(cut, parts), units| (cut + 1, parts + units.len()));
    if cut > 0 {
        let _ = writeln!(text, "  {cut:>6}  cut into {parts} parts, which are verified one by one");
    }
    let range = estimate.core_hours_range.map_or_else(String::new, |of| {
        format!(" ({} to {})", three_digits(of.lowest), three_digits(of.highest))
    });
    let _ = writeln!(
        text,
        "\nReading them takes, roughly:\n  {} of up to 8 MB\n  {} core-hours{range}; the longest \
         shard {:.2} h on one core\n  ${:.2} for cores at $0.04 an hour, ${:.2} for GETs",
        counted(estimate.gets, "GET"),
        three_digits(estimate.core_hours),
        estimate.longest_shard_seconds / 3600.0,
        estimate.core_dollars,
        estimate.get_dollars,
    );
    let _ = writeln!(
        text,
        "  ${:.0} more if the shards run in another region, ${:.0} over the internet",
        estimate.other_region_dollars, estimate.internet_dollars,
    );
    text.extend(of.cpu_times.as_ref().map(cpu_times_text));
    if !of.refused.is_empty() {
        let count = counted(of.refused.len() as u64, "backup");
        let _ = writeln!(text, "\n{count} cannot be read, and will not count as sound:");
        for FleetRefusal { url, reason } in of.refused.iter().take(SHOWN) {
            text.push_str(&wrapped("  - ", &printable(&format!("{url}: {reason}"))));
        }
        more(&mut text, of.refused.len());
    }
    text
}

/// What CPU times an estimate rests on, and how they are made again.
fn cpu_times_text(of: &FleetCpuTimes) -> String {
    let packings =
        [("plain", &of.plain), ("LZ4", &of.lz4), ("Zstandard", &of.zstd), ("gzip", &of.gzip)];
    let packings = packings.map(|(name, time)| format!("{name} {}", cpu_time(time, 1.0)));
    let readings = [&of.plain, &of.lz4, &of.zstd, &of.gzip, &of.object].map(|of| of.readings);
    let mut text = wrapped(
        "",
        &format!(
            "CPU seconds of a GB as it is stored, over TLS: {}. Milliseconds of an object beyond \
             its bytes: {}. Medians of at least {} readings of one backup, with the lowest and the \
             highest; other processors take other times, and so does data that is packed more or \
             less tightly. Measured by:",
            packings.join(", "),
            cpu_time(&of.object, 1e3),
            readings.into_iter().min().unwrap_or_default(),
        ),
    );
    for FleetCpuSource { record, command, cpu, cores } in &of.sources {
        let line = format!("{record} ({cpu}, {cores} CPUs): {command}");
        text.push_str(&wrapped("  - ", &line));
    }
    format!("\n{text}")
}

fn cpu_time(of: &FleetCpuTime, factor: f64) -> String {
    let [time, lowest, highest] = [of.seconds, of.range.lowest, of.range.highest]
        .map(|seconds| three_digits(seconds * factor));
    format!("{time} ({lowest} to {highest})")
}

/// The worst backups first, and a line for all that are sound.
pub(crate) fn fleet_text(of: &FleetRecord) -> String {
    let mut text = format!("{}\n", heading(of));
    for (count, what) in counts(of) {
        let _ = writeln!(text, "  {count:>6}  {what}");
    }
    let bad: Vec<&FleetBackup> = of.backups.iter().filter(|backup| NOT_SOUND(backup)).collect();
    for backup in bad.iter().take(SHOWN) {
        let _ = writeln!(text, "\n{}: {}", printable(&backup.url), outcome_words(backup));
        for reason in &backup.reasons {
            text.push_str(&wrapped("  - ", &printable(reason)));
        }
    }
    more(&mut text, bad.len());
    if let Some(oldest) = oldest(of) {
        let _ = writeln!(text, "\nOldest verification: {}", printable(&day(oldest)));
    }
    text
}

/// How many of all are sound.
pub(crate) fn heading(of: &FleetRecord) -> String {
    let all = counted(of.backups.len() as u64, "backup");
    format!("{} of {all} sound, {} of pages verified", of.sound, ByteSize(of.bytes).rounded())
}

/// How many are not sound, by reason.
pub(crate) fn counts(of: &FleetRecord) -> Vec<(u64, &'static str)> {
    let counts =
        [(of.findings, "with findings"), (of.unverified, "unverified"), (of.refused, "not read")];
    counts.into_iter().filter(|(count, _)| *count > 0).collect()
}

/// When what was verified first was verified.
pub(crate) fn oldest(of: &FleetRecord) -> Option<&str> {
    of.backups.iter().filter_map(|backup| backup.verified.as_deref()).min()
}

pub(crate) const NOT_SOUND: fn(&FleetBackup) -> bool = |of| of.outcome != FleetOutcome::Sound;
pub(crate) const ALL: fn(&FleetBackup) -> bool = |_| true;

pub(crate) const HEAD: [&str; 4] = ["backup", "outcome", "verified", "what was found"];

/// A row for each of these backups, as in [`HEAD`], the worst first.
pub(crate) fn rows(of: &FleetRecord, wanted: fn(&FleetBackup) -> bool) -> Vec<Vec<String>> {
    let row = |backup: &FleetBackup| {
        let verified = backup.verified.as_deref().map_or_else(|| "never".to_owned(), day);
        vec![backup.url.clone(), outcome_words(backup), verified, backup.reasons.join("; ")]
    };
    of.backups.iter().filter(|backup| wanted(backup)).map(row).collect()
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

fn more(text: &mut String, all: usize) {
    if all > SHOWN {
        let _ = writeln!(text, "  and {} more: --json has all", all - SHOWN);
    }
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
            reasons: reasons.iter().map(|&of| of.to_owned()).collect(),
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
        insta::assert_snapshot!(fleet_plan_text(&plan(Some(times))));
        // One that an earlier version wrote.
        let earlier = fleet_plan_text(&plan(None));
        assert!(earlier.contains("\n  4.17 core-hours; the longest shard"), "{earlier}");
        assert!(!earlier.contains("Measured by"), "{earlier}");
    }

    #[test]
    fn the_worst_backups_are_named_and_sound_ones_counted() {
        let expected = "1 of 3 backups sound, 24.0 kB of pages verified\n\
            \x20      1  with findings\n       1  unverified\n\n\
            s3://b/a: 1 failure\n  - shop.public.orders, block 7\n\n\
            s3://b/b: no result yet\n\nOldest verification: 2026-11-23 03:00 UTC\n";
        assert_eq!(fleet_text(&record()), expected);
    }
}
