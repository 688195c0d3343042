//! CPU times that plans rest on: those of committed records, unless others are given.

use pgtoll_estimate::{FleetCpuError, fleet_cpu_times};
use pgtoll_record::{FleetCpuTime, FleetCpuTimes, FleetRange};
use pgtoll_wal::Packing;

/// The CPU times of pgtoll's own records.
pub fn built_in_cpu_times() -> Result<FleetCpuTimes, FleetCpuError> {
    fleet_cpu_times(&RECORDS)
}

/// CPU seconds, and the same by the lowest and by the highest measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CpuSeconds {
    pub(crate) seconds: f64,
    pub(crate) range: FleetRange,
}

impl CpuSeconds {
    pub(crate) const NONE: Self =
        Self { seconds: 0.0, range: FleetRange { lowest: 0.0, highest: 0.0 } };

    /// Returns the packing of an object, by its backup or its name.
    pub(crate) fn of_object(
        times: &FleetCpuTimes,
        name: &str,
        bytes: u64,
        packing: Option<Packing>,
    ) -> Self {
        let by_name = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
        let of_gigabyte = match packing.or(by_name.map(|(_, packing)| *packing)) {
            Some(Packing::Gzip) => &times.gzip,
            Some(Packing::Zstd) => &times.zstd,
            Some(Packing::Lz4) => &times.lz4,
            Some(Packing::Plain | Packing::Unread) | None => &times.plain,
        };
        Self::NONE.plus(of_gigabyte, gigabytes(bytes)).plus(&times.object, 1.0)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            range: FleetRange {
                lowest: self.range.lowest + other.range.lowest,
                highest: self.range.highest + other.range.highest,
            },
        }
    }

    fn plus(self, time: &FleetCpuTime, count: f64) -> Self {
        self.and(Self {
            seconds: time.seconds * count,
            range: FleetRange {
                lowest: time.range.lowest * count,
                highest: time.range.highest * count,
            },
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

const ENDINGS: [(&str, Packing); 4] = [
    (".gz", Packing::Gzip),
    (".tgz", Packing::Gzip),
    (".zst", Packing::Zstd),
    (".lz4", Packing::Lz4),
];

/// By their names in the repository.
const RECORDS: [(&str, &str); 2] = [
    (
        "records/2026-11-26-bench-fleet.jsonl",
        include_str!("../../../records/2026-11-26-bench-fleet.jsonl"),
    ),
    (
        "records/2026-11-26-bench-fleet-objects.jsonl",
        include_str!("../../../records/2026-11-26-bench-fleet-objects.jsonl"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_times_are_those_of_the_records() {
        let times = built_in_cpu_times().unwrap();
        let records: Vec<&str> = times.sources.iter().map(|source| &*source.record).collect();
        assert_eq!(records, RECORDS.map(|(name, _)| name));
        for item in [times.plain, times.gzip, times.lz4, times.zstd, times.object] {
            assert!(item.readings >= 10, "{item:?}");
            assert!(0.0 < item.range.lowest && item.range.lowest <= item.seconds, "{item:?}");
            assert!(item.seconds <= item.range.highest, "{item:?}");
        }
        assert!(times.plain.seconds < times.lz4.seconds, "{times:?}");
        assert!(times.zstd.seconds < times.gzip.seconds, "{times:?}");
    }

    #[test]
    fn an_object_is_packed_as_its_backup_or_its_name_says() {
        let times = built_in_cpu_times().unwrap();
        let pick = |name, packing| CpuSeconds::of_object(&times, name, 3_000_000_000, packing);
        let expected = |time: &FleetCpuTime| 3.0 * time.range.highest + times.object.range.highest;
        let check = |found: CpuSeconds, time: &FleetCpuTime| {
            assert!((found.range.highest - expected(time)).abs() < 1e-9, "{found:?}");
        };
        check(pick("data.tar", None), &times.plain);
        check(pick("data.tar.gz", None), &times.gzip);
        check(pick("base.tgz", None), &times.gzip);
        check(pick("part_001.tar.lz4", None), &times.lz4);
        check(pick("bundle/1", Some(Packing::Zstd)), &times.zstd);
        check(pick("data.tar.gz", Some(Packing::Plain)), &times.plain);
    }
}
