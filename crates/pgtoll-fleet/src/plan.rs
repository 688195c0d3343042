//! The plan: which backups there are, what verifying them takes, and who verifies which.

use pgtoll_interrupt::Interrupt;
use pgtoll_record::{
    FLEET_PLAN_SCHEMA, FleetCpuTimes, FleetEstimate, FleetLayout, FleetObject, FleetPart,
    FleetPlan, FleetRange, FleetRefusal, FleetUnit, Provenance,
};
use pgtoll_store::{Store, StoreUrl, StoredObject};
use sha2::{Digest as _, Sha256};

use crate::cpu_times::{CpuSeconds, gigabytes};
use crate::error::FleetError;
use crate::find::backups_below;
use crate::layout::StoredBackup;

/// How backups are to be shared out.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetPlanning {
    /// How many shards there are.
    pub shards: u32,
    /// A backup of more bytes than this, as it is stored, is cut into units between its objects.
    pub unit_bytes: u64,
    /// What reading takes.
    pub cpu_times: FleetCpuTimes,
}

/// Lists the backups below these URLs and plans their verification. Reads no more than listings and the
/// small files that describe backups.
pub fn plan(
    urls: &[StoreUrl],
    planning: FleetPlanning,
    interrupt: &Interrupt,
    provenance: Provenance,
) -> Result<FleetPlan, FleetError> {
    let (mut units, mut refused, mut objects) = (Vec::new(), Vec::new(), 0);
    for url in urls {
        let found = backups_below(&Store::open(url, interrupt)?, url)?;
        objects += found.objects;
        units.extend(found.backups.iter().flat_map(|backup| units_of(backup, &planning)));
        refused.extend(
            found
                .unread
                .into_iter()
                .map(|of| FleetRefusal { url: of.url.to_string(), reason: of.reason }),
        );
    }
    // A prefix may be named twice, or one in another.
    let place = |unit: &FleetUnit| unit.part.map_or(0, |part| part.number);
    units.sort_by(|one, other| (&one.url, place(one)).cmp(&(&other.url, place(other))));
    units.dedup_by(|one, other| one.id == other.id);
    refused.sort_by(|one, other| one.url.cmp(&other.url));
    refused.dedup();
    let FleetPlanning { shards, cpu_times, .. } = planning;
    let estimate = estimate(&units, shards);
    let Provenance { version, command, made } = provenance;
    Ok(FleetPlan {
        schema: FLEET_PLAN_SCHEMA.to_owned(),
        pgtoll: version,
        command,
        made,
        urls: urls.iter().map(ToString::to_string).collect(),
        objects,
        shards,
        units,
        refused,
        estimate,
        cpu_times: Some(cpu_times),
    })
}

/// Writes a plan where there is none, or instead of another one. One that says the same is left as it is;
/// the plan that counts is returned.
pub fn write_plan(
    plan: FleetPlan,
    at: &StoreUrl,
    replace: bool,
    interrupt: &Interrupt,
) -> Result<FleetPlan, FleetError> {
    let store = Store::open(at, interrupt)?;
    let text = serde_json::to_vec_pretty(&plan)
        .map_err(|error| FleetError::Plan { url: at.clone(), reason: error.to_string() })?;
    if store.put_new(at, &text)? {
        return Ok(plan);
    }
    // Whatever else is there is not overwritten.
    let found = read_plan(at, interrupt)?;
    let ids = |plan: &FleetPlan| -> Vec<String> {
        plan.units.iter().map(|unit| unit.id.clone()).collect()
    };
    let is_same =
        ids(&found) == ids(&plan) && found.refused == plan.refused && found.shards == plan.shards;
    // Other CPU times share the same units out in another way.
    if is_same && (!replace || found.cpu_times == plan.cpu_times) {
        return Ok(found);
    }
    if !replace {
        return Err(FleetError::PlanExists { url: at.clone() });
    }
    store.put(at, &text)?;
    Ok(plan)
}

/// Reads a plan.
pub fn read_plan(at: &StoreUrl, interrupt: &Interrupt) -> Result<FleetPlan, FleetError> {
    let text = Store::open(at, interrupt)?.read(at, PLAN_BYTES_MAX)?;
    parsed(&text).map_err(|reason| FleetError::Plan { url: at.clone(), reason })
}

fn parsed(text: &[u8]) -> Result<FleetPlan, String> {
    let plan: FleetPlan = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if plan.schema != FLEET_PLAN_SCHEMA {
        return Err(format!("its schema is {:?}", plan.schema));
    }
    if !(1..=SHARDS_MAX).contains(&plan.shards) {
        return Err(format!("it has {} shards", plan.shards));
    }
    // The ids name results: one that is a path would lead elsewhere.
    let is_id = |id: &str| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !plan.units.iter().all(|unit| is_id(&unit.id) && unit.id == id_of(unit)) {
        return Err("its units are not those that their ids are of".to_owned());
    }
    Ok(plan)
}

/// The shard of each unit, from 0: the largest first, each to the shard that has least. The same units
/// and number of shards give the same shards.
pub(crate) fn shards_of(units: &[FleetUnit], shards: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by(|&one, &other| {
        let by_cost = units[other].cpu_seconds.total_cmp(&units[one].cpu_seconds);
        by_cost.then_with(|| units[one].id.cmp(&units[other].id))
    });
    let mut loads = vec![0.0_f64; shards.max(1) as usize];
    let mut of = vec![0; units.len()];
    for unit in order {
        let least = (0..loads.len()).min_by(|&one, &other| loads[one].total_cmp(&loads[other]));
        let least = least.unwrap_or_default();
        loads[least] += units[unit].cpu_seconds;
        of[unit] = u32::try_from(least).unwrap_or_default();
    }
    of
}

/// A backup as one unit, or in parts of at most so many bytes. An object is in one part, however long it
/// is. Tars of `pg_basebackup` are not cut: a manifest lists the files of all of them.
fn units_of(backup: &StoredBackup, planning: &FleetPlanning) -> Vec<FleetUnit> {
    let (unit_bytes, times) = (planning.unit_bytes, &planning.cpu_times);
    let mut parts: Vec<(u64, Vec<StoredObject>)> = Vec::new();
    for object in &backup.objects {
        match parts.last_mut() {
            Some((bytes, part))
                if backup.layout == FleetLayout::Tars
                    || bytes.saturating_add(object.bytes) <= unit_bytes =>
            {
                *bytes = bytes.saturating_add(object.bytes);
                part.push(object.clone());
            }
            _ => parts.push((object.bytes, vec![object.clone()])),
        }
    }
    if parts.len() <= 1 {
        return vec![unit(&StoredBackup { beside: Vec::new(), ..backup.clone() }, times)];
    }
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let part = |(number, (_, objects)): (u32, (u64, Vec<StoredObject>))| {
        let beside = backup.beside.iter().filter(|of| !objects.contains(of));
        let part = StoredBackup {
            part: Some(FleetPart { number, count }),
            beside: beside.cloned().collect(),
            objects,
            ..backup.clone()
        };
        unit(&part, times)
    };
    (1..).zip(parts).map(part).collect()
}

fn unit(backup: &StoredBackup, times: &FleetCpuTimes) -> FleetUnit {
    let stored: Vec<FleetObject> = backup.objects.iter().map(object).collect();
    let cpu_seconds =
        |of: &StoredObject| CpuSeconds::of_object(times, of.url.name(), of.bytes, backup.packing);
    let cpu = backup.objects.iter().map(cpu_seconds).fold(CpuSeconds::NONE, CpuSeconds::and);
    let mut unit = FleetUnit {
        id: String::new(),
        url: backup.url.to_string(),
        cluster: backup.cluster.clone(),
        backup: backup.id.clone(),
        layout: backup.layout,
        bytes: sum(stored.iter().map(|of| of.bytes)),
        cpu_seconds: cpu.seconds,
        cpu_seconds_range: Some(cpu.range),
        part: backup.part,
        objects: stored,
        beside: backup.beside.iter().map(object).collect(),
        manifest: backup.manifest.as_ref().map(object),
    };
    unit.id = id_of(&unit);
    unit
}

fn object(of: &StoredObject) -> FleetObject {
    let StoredObject { url, bytes, etag, modified } = of;
    FleetObject { url: url.to_string(), bytes: *bytes, etag: etag.clone(), modified: *modified }
}

/// Of all that makes the result another one: what is read, as what, and the form of the result.
fn id_of(unit: &FleetUnit) -> String {
    let mut hash = Sha256::new();
    let mut word = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    word(pgtoll_record::VERIFICATION_SCHEMA);
    word(&format!("{:?}", unit.layout));
    word(&unit.url);
    if let Some(FleetPart { number, count }) = unit.part {
        word(&format!("{number}/{count}"));
    }
    for object in unit.objects.iter().chain(&unit.beside).chain(&unit.manifest) {
        word(&object.url);
        let modified = object.modified.to_string();
        word(object.etag.as_deref().unwrap_or(&modified));
        word(&object.bytes.to_string());
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn estimate(units: &[FleetUnit], shards: u32) -> FleetEstimate {
    let bytes = sum(units.iter().map(|unit| unit.bytes));
    let objects = units.iter().flat_map(|unit| unit.objects.iter().chain(&unit.manifest));
    let gets = sum(objects.map(|object| object.bytes.div_ceil(GET_BYTES).max(1)));
    let mut loads = vec![0.0_f64; shards.max(1) as usize];
    for (unit, shard) in units.iter().zip(shards_of(units, shards)) {
        loads[shard as usize] += unit.cpu_seconds;
    }
    let core_hours = loads.iter().sum::<f64>() / 3600.0;
    let hours = |of: fn(FleetRange) -> f64| {
        units.iter().filter_map(|unit| unit.cpu_seconds_range).map(of).sum::<f64>() / 3600.0
    };
    let core_hours_range =
        FleetRange { lowest: hours(|of| of.lowest), highest: hours(|of| of.highest) };
    FleetEstimate {
        bytes,
        gets,
        core_hours,
        core_hours_range: Some(core_hours_range),
        longest_shard_seconds: loads.iter().copied().fold(0.0, f64::max),
        core_dollars: core_hours * 0.04,
        get_dollars: millions(gets) * 0.4,
        other_region_dollars: gigabytes(bytes) * 0.02,
        internet_dollars: gigabytes(bytes) * 0.09,
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn millions(count: u64) -> f64 {
    count as f64 / 1e6
}

/// A store may list any lengths.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// As many as an Indexed Job of Kubernetes has.
pub const SHARDS_MAX: u32 = 100_000;
const GET_BYTES: u64 = 8 << 20;
/// Some ten million objects.
const PLAN_BYTES_MAX: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use pgtoll_record::FleetLayout;
    use proptest::prelude::*;

    use super::*;

    fn planning(unit_bytes: u64) -> FleetPlanning {
        let cpu_times = crate::built_in_cpu_times().unwrap();
        FleetPlanning { shards: 1, unit_bytes, cpu_times }
    }

    fn backup(number: usize, layout: FleetLayout, sizes: &[u64]) -> StoredBackup {
        let url: StoreUrl = format!("s3://b/{number}").parse().unwrap();
        let object = |(part, &bytes): (usize, &u64)| StoredObject {
            url: url.join(&format!("part_{part:04}.tar")),
            bytes,
            etag: None,
            modified: 1,
        };
        let objects: Vec<StoredObject> = sizes.iter().enumerate().map(object).collect();
        StoredBackup {
            url: url.clone(),
            cluster: String::new(),
            id: number.to_string(),
            layout,
            beside: objects.last().cloned().into_iter().collect(),
            objects,
            part: None,
            manifest: None,
            info: None,
            packing: None,
        }
    }

    fn units(sizes: &[u64]) -> Vec<FleetUnit> {
        let planning = planning(u64::MAX);
        let of = |(number, &bytes): (usize, &u64)| {
            units_of(&backup(number, FleetLayout::Tars, &[bytes]), &planning)
        };
        sizes.iter().enumerate().flat_map(of).collect()
    }

    proptest! {
        #[test]
        fn every_unit_has_one_shard_and_no_shard_much_more_than_another(
            sizes in prop::collection::vec(0..100_000_000_000_u64, 0..200), shards in 1..40_u32
        ) {
            let units = units(&sizes);
            let of = shards_of(&units, shards);
            prop_assert_eq!(of.len(), units.len());
            prop_assert!(of.iter().all(|&shard| shard < shards));
            let mut loads = vec![0.0; shards as usize];
            for (unit, shard) in units.iter().zip(&of) {
                loads[*shard as usize] += unit.cpu_seconds;
            }
            let largest = units.iter().map(|unit| unit.cpu_seconds).fold(0.0, f64::max);
            let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
            let most = loads.iter().copied().fold(0.0, f64::max);
            prop_assert!(most <= least + largest + 1e-6, "{} {} {}", most, least, largest);
        }
    }

    proptest! {
        #[test]
        fn parts_have_each_object_once_and_are_no_longer_than_they_may_be(
            sizes in prop::collection::vec(0..1000_u64, 1..50), unit_bytes in 0..3000_u64
        ) {
            let backup = backup(0, FleetLayout::WalG, &sizes);
            let parts = units_of(&backup, &planning(unit_bytes));
            let objects: Vec<&FleetObject> = parts.iter().flat_map(|part| &part.objects).collect();
            let expected: Vec<FleetObject> = backup.objects.iter().map(object).collect();
            prop_assert_eq!(objects, expected.iter().collect::<Vec<_>>());
            let is_short = |part: &FleetUnit| part.bytes <= unit_bytes || part.objects.len() == 1;
            prop_assert!(parts.iter().all(is_short));
            if parts.len() == 1 {
                prop_assert_eq!((parts[0].part, parts[0].beside.len()), (None, 0));
            }
            for (part, number) in parts.iter().zip(1..).filter(|_| parts.len() > 1) {
                let count = u32::try_from(parts.len()).unwrap();
                prop_assert_eq!(part.part, Some(FleetPart { number, count }));
                // The last object is what all need, and is in the last part.
                prop_assert_eq!(part.beside.len(), usize::from(number < count));
            }
        }
    }

    #[test]
    fn tars_that_a_manifest_lists_together_are_not_cut() {
        let parts = units_of(&backup(0, FleetLayout::Tars, &[5, 5, 5]), &planning(6));
        assert_eq!((parts.len(), parts[0].bytes, parts[0].part), (1, 15, None));
    }

    #[test]
    fn half_a_petabyte_is_shared_out_evenly_at_a_hundred_nodes() {
        // Log-normal without random numbers: quantiles of sizes from 1 MB to 100 GB.
        let sizes: Vec<u64> = (0..20_000_u64).map(|at| 1 << (20 + at % 17)).collect();
        let estimate = estimate(&units(&sizes), 100);
        let even = estimate.core_hours * 3600.0 / 100.0;
        assert!(estimate.longest_shard_seconds < even * 1.02, "{estimate:?}");
        let range = estimate.core_hours_range.unwrap();
        assert!(range.lowest < estimate.core_hours, "{estimate:?}");
        assert!(estimate.core_hours < range.highest, "{estimate:?}");
    }

    #[test]
    fn lengths_that_no_store_has_make_a_plan_like_others() {
        let backup = backup(0, FleetLayout::WalG, &[u64::MAX, u64::MAX, 7]);
        let units = units_of(&backup, &planning(u64::MAX));
        assert_eq!((units.len(), units[0].bytes), (1, u64::MAX));
        assert!(estimate(&units, 3).longest_shard_seconds > 1e9);
    }

    fn plan_text(shards: u32) -> Vec<u8> {
        let units = units(&[5, 0, 7_000_000]);
        let plan = FleetPlan {
            schema: FLEET_PLAN_SCHEMA.to_owned(),
            pgtoll: "0.1.0".to_owned(),
            command: Vec::new(),
            made: "2026-11-26T00:00:00Z".to_owned(),
            urls: vec!["s3://b".to_owned()],
            objects: 3,
            shards,
            estimate: estimate(&units, 1),
            units,
            refused: Vec::new(),
            cpu_times: None,
        };
        serde_json::to_vec(&plan).unwrap()
    }

    #[test]
    fn a_plan_has_as_many_shards_as_an_engine_runs() {
        assert_eq!(parsed(&plan_text(SHARDS_MAX)).unwrap().shards, SHARDS_MAX);
        for shards in [0, SHARDS_MAX + 1, u32::MAX] {
            assert_eq!(parsed(&plan_text(shards)).unwrap_err(), format!("it has {shards} shards"));
        }
    }

    proptest! {
        #[test]
        fn a_plan_with_other_bytes_in_it_is_none_or_can_be_shared_out(
            at in any::<prop::sample::Index>(), end in 0..20_usize, bytes in "[0-9eE.+\\-\",:{}a-z]{0,20}"
        ) {
            let mut text = plan_text(3);
            let at = at.index(text.len());
            let end = (at + end).min(text.len());
            text.splice(at..end, bytes.into_bytes());
            if let Ok(plan) = parsed(&text) {
                let of = shards_of(&plan.units, plan.shards);
                prop_assert!(of.iter().all(|&shard| shard < plan.shards));
            }
        }
    }

    #[test]
    fn another_version_of_an_object_is_another_unit() {
        let mut of = units(&[5, 5]);
        assert_ne!(of[0].id, of[1].id);
        let before = of[0].id.clone();
        of[0].objects[0].etag = Some("\"2\"".to_owned());
        assert_ne!(id_of(&of[0]), before);
        of[0].objects[0].etag = None;
        assert_eq!(id_of(&of[0]), before);
    }
}
