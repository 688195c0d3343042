//! The plan: which backups there are, what verifying them takes, and who verifies which.

use pgtoll_estimate::{fleet_estimate, fleet_unit_id, read_fleet_plan};
use pgtoll_record::{
    FLEET_PLAN_SCHEMA, FleetCpuTimes, FleetLayout, FleetObject, FleetPart, FleetPlan, FleetRefusal,
    FleetUnit, Provenance,
};
use pgtoll_store::{Store, StoreUrl, StoredObject};
use pgtoll_system::Interrupt;

use crate::cpu_times::CpuSeconds;
use crate::error::FleetError;
use crate::find::backups_below;
use crate::layout::{Layout, StoredBackup, UnreadBackup};

/// How backups are to be shared out.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetPlanning {
    /// How many shards there are.
    pub shards: u32,
    /// A backup of more bytes than this, as it is stored, is cut into units between its objects.
    pub unit_bytes: u64,
    /// The CPU times of reading.
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
    let mut units = Vec::new();
    let mut refused = Vec::new();
    let mut objects = 0;
    for url in urls {
        let found = backups_below(&Store::open(url, interrupt)?, url)?;
        objects += found.objects;
        units.extend(found.backups.iter().flat_map(|backup| units_of(backup, &planning)));
        refused.extend(refusals(url, found));
    }
    let is_nothing = |refusal: &FleetRefusal| refusal.reason == NO_BACKUP;
    if let Some(url) = urls.first().filter(|_| units.is_empty() && refused.iter().all(is_nothing)) {
        return Err(FleetError::NoBackup { url: url.clone() });
    }
    // A prefix may be named twice, or one in another.
    let place = |unit: &FleetUnit| unit.part.map_or(0, |part| part.number);
    units.sort_by(|one, other| (&one.url, place(one)).cmp(&(&other.url, place(other))));
    units.dedup_by(|one, other| one.id == other.id);
    refused.sort_by(|one, other| one.url.cmp(&other.url));
    refused.dedup();
    let FleetPlanning { shards, cpu_times, .. } = planning;
    let estimate = fleet_estimate(&units, shards);
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

/// Returns the refusals below this URL. One without a backup is a cluster that is not backed up, or a wrong name:
/// other URLs' backups do not answer for it.
fn refusals(url: &StoreUrl, found: Layout) -> Vec<FleetRefusal> {
    if found.backups.is_empty() && found.unread.is_empty() {
        return vec![FleetRefusal { url: url.to_string(), reason: NO_BACKUP.to_owned() }];
    }
    let refusal =
        |backup: UnreadBackup| FleetRefusal { url: backup.url.to_string(), reason: backup.reason };
    found.unread.into_iter().map(refusal).collect()
}

const NO_BACKUP: &str = "no backup here";

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
    read_fleet_plan(&text).map_err(|reason| FleetError::Plan { url: at.clone(), reason })
}

/// A backup as one unit, or in parts of at most this many bytes. An object is in one part, however long it
/// is. Tars of `pg_basebackup` are not cut: a manifest lists the files of all of them.
fn units_of(backup: &StoredBackup, planning: &FleetPlanning) -> Vec<FleetUnit> {
    let unit_bytes = planning.unit_bytes;
    let times = &planning.cpu_times;
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
        let beside = backup.beside.iter().filter(|beside| !objects.contains(beside));
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
    let cpu_seconds = |object: &StoredObject| {
        CpuSeconds::of_object(times, object.url.name(), object.bytes, backup.packing)
    };
    let cpu = backup.objects.iter().map(cpu_seconds).fold(CpuSeconds::NONE, CpuSeconds::and);
    let mut unit = FleetUnit {
        id: String::new(),
        url: backup.url.to_string(),
        cluster: backup.cluster.clone(),
        backup: backup.id.clone(),
        layout: backup.layout,
        // A store may list any lengths.
        bytes: stored.iter().fold(0, |sum, stored| sum.saturating_add(stored.bytes)),
        cpu_seconds: cpu.seconds,
        cpu_seconds_range: Some(cpu.range),
        part: backup.part,
        objects: stored,
        beside: backup.beside.iter().map(object).collect(),
        manifest: backup.manifest.as_ref().map(object),
    };
    unit.id = fleet_unit_id(&unit);
    unit
}

fn object(object: &StoredObject) -> FleetObject {
    let StoredObject { url, bytes, etag, modified } = object;
    FleetObject { url: url.to_string(), bytes: *bytes, etag: etag.clone(), modified: *modified }
}

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
    fn lengths_that_no_store_has_make_a_plan_like_others() {
        let backup = backup(0, FleetLayout::WalG, &[u64::MAX, u64::MAX, 7]);
        let units = units_of(&backup, &planning(u64::MAX));
        assert_eq!((units.len(), units[0].bytes), (1, u64::MAX));
        assert!(fleet_estimate(&units, 3).longest_shard_seconds > 1e9);
    }
}
