//! The cost of verifying stored backups, from records of the bench of fleets.

use pgtoll_record::trials::{
    BENCH_FLEET_SCHEMA, FleetBenchCase, FleetBenchLine, FleetBenchPacking, FleetBenchRead,
};
use pgtoll_record::{FleetCpuSource, FleetCpuTime, FleetCpuTimes, FleetRange};
use pgtoll_stats::median;

/// Records have no CPU times that a plan could rest on.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the messages name")]
pub enum FleetCpuError {
    /// A line is none of the bench's.
    #[error("{record}, line {line}: {reason}")]
    Line { record: String, line: usize, reason: String },
    /// The first line is not this bench's.
    #[error("{record} is not a record of the bench of fleets")]
    NoHeader { record: String },
    /// A case was not run.
    #[error("{record} has no readings of {what}")]
    Missing { record: String, what: &'static str },
}

impl FleetCpuError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let make = "make one with: cargo xtask bench fleet --case packing,objects --record FILE";
        Some(make.to_owned())
    }
}

/// The CPU times of records, each a name and a text; readings of all of them count.
pub fn fleet_cpu_times(records: &[(&str, &str)]) -> Result<FleetCpuTimes, FleetCpuError> {
    let mut reads = Vec::new();
    let mut sources = Vec::new();
    for (name, text) in records {
        let (source, of_record) = read(name, text)?;
        sources.push(source);
        reads.extend(of_record);
    }
    let names: Vec<&str> = records.iter().map(|(name, _)| *name).collect();
    let missing = |label| FleetCpuError::Missing { record: names.join(", "), what: label };
    let packed = |packing, label| fleet_packing_time(&reads, packing).ok_or_else(|| missing(label));
    let plain = packed(FleetBenchPacking::Plain, "backups that are not packed")?;
    Ok(FleetCpuTimes {
        plain,
        gzip: packed(FleetBenchPacking::Gzip, "gzip")?,
        lz4: packed(FleetBenchPacking::Lz4, "LZ4")?,
        zstd: packed(FleetBenchPacking::Zstd, "Zstandard")?,
        object: fleet_object_time(&reads, plain.seconds).ok_or_else(|| missing("many objects"))?,
        sources,
    })
}

/// CPU seconds of a gigabyte in this packing, as it is stored, over TLS; `None`: there are no readings.
pub fn fleet_packing_time(
    reads: &[FleetBenchRead],
    packing: FleetBenchPacking,
) -> Option<FleetCpuTime> {
    let own = reads
        .iter()
        .filter(|item| item.case == FleetBenchCase::Packing && item.packing == Some(packing));
    time(own.map(|item| item.usage.cpu_s() / gigabytes(item.bytes)))
}

/// CPU seconds of an object beyond its bytes, of which a gigabyte takes `plain_seconds`; `None`: there are
/// no readings.
pub fn fleet_object_time(reads: &[FleetBenchRead], plain_seconds: f64) -> Option<FleetCpuTime> {
    let own = reads.iter().filter(|item| item.case == FleetBenchCase::Objects);
    time(own.map(|item| {
        let beyond = item.usage.cpu_s() - gigabytes(item.bytes) * plain_seconds;
        beyond.max(0.0) / number(item.objects.unwrap_or_default())
    }))
}

fn read(record: &str, text: &str) -> Result<(FleetCpuSource, Vec<FleetBenchRead>), FleetCpuError> {
    let mut source = None;
    let mut reads = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let error = serde_json::from_str(text).map_err(|error| FleetCpuError::Line {
            record: record.to_owned(),
            line,
            reason: error.to_string(),
        })?;
        match error {
            FleetBenchLine::Header(header) if header.schema == BENCH_FLEET_SCHEMA && line == 1 => {
                source = Some(FleetCpuSource {
                    record: record.to_owned(),
                    command: header.command,
                    cpu: header.host.cpu,
                    cores: header.host.cores,
                });
            }
            FleetBenchLine::Read(read) => reads.push(*read),
            FleetBenchLine::Header(_) | FleetBenchLine::Plan(_) => {}
        }
    }
    let source = source.ok_or_else(|| FleetCpuError::NoHeader { record: record.to_owned() })?;
    Ok((source, reads))
}

/// `None` also where a value is not finite, as of a backup without a byte.
fn time(seconds: impl Iterator<Item = f64>) -> Option<FleetCpuTime> {
    let seconds: Vec<f64> = seconds.collect();
    Some(FleetCpuTime {
        seconds: median(&seconds)?,
        range: FleetRange {
            lowest: seconds.iter().copied().fold(f64::INFINITY, f64::min),
            highest: seconds.iter().copied().fold(0.0, f64::max),
        },
        readings: seconds.len() as u64,
    })
}

fn gigabytes(bytes: u64) -> f64 {
    number(bytes) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "counts and bytes of a bench")]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"t":"header","schema":"pgtoll.bench-fleet/1","pgtoll":"0.1.0","command":"again","started":"2026-11-26T10:56:51Z","host":{"kernel":"Linux","cpu":"A CPU","cores":2,"memory_bytes":1,"file_system":"ext4","hypervisor":true,"transparent_huge_pages":null,"governor":null}}"#;

    fn line(case: &str, more: &str, cpu_s: f64) -> String {
        format!(
            r#"{{"t":"read","case":"{case}","repetition":1,"place":"store",{more},"user_s":{cpu_s},"system_s":0.0,"wall_s":1.0,"peak_kb":1}}"#
        )
    }

    fn packed(packing: &str, cpu_s: f64) -> String {
        line("packing", &format!(r#""packing":"{packing}","bytes":2000000000"#), cpu_s)
    }

    #[test]
    fn times_are_medians_of_all_records_with_their_extremes() {
        let packings = ["gzip", "lz4", "zstd"].map(|packing| packed(packing, 6.0)).join("\n");
        let plain = [1.0, 1.2, 0.8].map(|cpu_s| packed("plain", cpu_s)).join("\n");
        // A gigabyte, which takes half a second, in a thousand objects.
        let objects = line("objects", r#""bytes":1000000000,"objects":1000"#, 2.5);
        let other_case = line("cost", r#""bytes":1000000000"#, 70.0);
        let first = format!("{HEADER}\n{plain}\n{packings}\n{other_case}\n");
        let second = format!("{HEADER}\n{objects}\n");
        let times = fleet_cpu_times(&[("one", &first), ("two", &second)]).unwrap();
        let range = FleetRange { lowest: 0.4, highest: 0.6 };
        assert_eq!(times.plain, FleetCpuTime { seconds: 0.5, range, readings: 3 });
        assert!((times.gzip.seconds - 3.0).abs() < 1e-9, "{times:?}");
        assert!((times.object.seconds - 0.002).abs() < 1e-9, "{times:?}");
        let sources: Vec<&str> = times.sources.iter().map(|source| &*source.record).collect();
        assert_eq!(sources, ["one", "two"]);

        let error = |text: &str| fleet_cpu_times(&[("one", text)]).unwrap_err().to_string();
        assert_eq!(error(&first), "one has no readings of many objects");
        assert_eq!(error(&plain), "one is not a record of the bench of fleets");
        assert!(error(&format!("{HEADER}\n{{}}")).starts_with("one, line 2: "));
        let without_bytes = packed("plain", 1.0).replace("2000000000", "0");
        let nothing = error(&format!("{HEADER}\n{without_bytes}"));
        assert_eq!(nothing, "one has no readings of backups that are not packed");
    }
}
