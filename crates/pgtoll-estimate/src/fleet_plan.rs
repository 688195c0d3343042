//! Plans of fleets: whether a text is one, which shard verifies which unit, and what reading all of
//! them takes.

use pgtoll_format::hex;
use pgtoll_record::{
    FLEET_PLAN_SCHEMA, FleetEstimate, FleetPart, FleetPlan, FleetRange, FleetUnit,
    VERIFICATION_SCHEMA,
};
use sha2::{Digest as _, Sha256};

/// As many as an Indexed Job of Kubernetes has.
pub const FLEET_SHARDS_MAX: u32 = 100_000;
const GET_BYTES: u64 = 8 << 20;

/// Reads a plan; an error says why the text is none.
pub fn read_fleet_plan(text: &[u8]) -> Result<FleetPlan, String> {
    let plan: FleetPlan = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if plan.schema != FLEET_PLAN_SCHEMA {
        return Err(format!("its schema is {:?}", plan.schema));
    }
    if !(1..=FLEET_SHARDS_MAX).contains(&plan.shards) {
        return Err(format!("it has {} shards", plan.shards));
    }
    // The ids name results: one that is a path would lead elsewhere.
    if !plan.units.iter().all(|unit| unit.id == fleet_unit_id(unit)) {
        return Err("its units are not those that their ids are of".to_owned());
    }
    Ok(plan)
}

/// SHA-256 of all that makes the result another one: what is read, as what, and the form of the result.
pub fn fleet_unit_id(unit: &FleetUnit) -> String {
    let mut hash = Sha256::new();
    let mut word = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    word(VERIFICATION_SCHEMA);
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
    hex(&hash.finalize())
}

/// The shard of each unit, from 0: the largest first, each to the shard that has least. The same units
/// and number of shards give the same shards.
pub fn fleet_shards(units: &[FleetUnit], shards: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by(|&one, &other| {
        let by_cost = units[other].cpu_seconds.total_cmp(&units[one].cpu_seconds);
        by_cost.then_with(|| units[one].id.cmp(&units[other].id))
    });
    let mut loads = vec![0.0_f64; shards.max(1) as usize];
    let mut item = vec![0; units.len()];
    for unit in order {
        let least = (0..loads.len()).min_by(|&one, &other| loads[one].total_cmp(&loads[other]));
        let least = least.unwrap_or_default();
        loads[least] += units[unit].cpu_seconds;
        item[unit] = u32::try_from(least).unwrap_or_default();
    }
    item
}

/// Returns the estimate of reading these units in this number of shards.
pub fn fleet_estimate(units: &[FleetUnit], shards: u32) -> FleetEstimate {
    let objects = || units.iter().flat_map(|unit| unit.objects.iter().chain(&unit.manifest));
    let bytes = sum(units.iter().map(|unit| unit.bytes));
    let gets = sum(objects().map(|object| object.bytes.div_ceil(GET_BYTES).max(1)));
    let mut loads = vec![0.0_f64; shards.max(1) as usize];
    for (unit, shard) in units.iter().zip(fleet_shards(units, shards)) {
        loads[shard as usize] += unit.cpu_seconds;
    }
    let core_hours = loads.iter().sum::<f64>() / 3600.0;
    let ranges = || units.iter().filter_map(|unit| unit.cpu_seconds_range);
    // A sum of nothing would be -0.
    let hours = |range: fn(FleetRange) -> f64| {
        ranges().map(range).fold(0.0, |sum, item| sum + item) / 3600.0
    };
    let core_hours_range =
        FleetRange { lowest: hours(|item| item.lowest), highest: hours(|item| item.highest) };
    FleetEstimate {
        bytes,
        gets,
        core_hours,
        core_hours_range: Some(core_hours_range),
        longest_shard_seconds: loads.iter().copied().fold(0.0, f64::max),
        core_dollars: core_hours * 0.04,
        get_dollars: number(gets) / 1e6 * 0.4,
        other_region_dollars: number(bytes) / 1e9 * 0.02,
        internet_dollars: number(bytes) / 1e9 * 0.09,
    }
}

/// A store may list any lengths.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{FleetLayout, FleetObject};
    use proptest::prelude::*;

    use super::*;

    fn units(sizes: &[u64]) -> Vec<FleetUnit> {
        let unit = |(number, &bytes): (usize, &u64)| {
            let url = format!("s3://b/{number}");
            let cpu_seconds = super::number(bytes) / 1e9;
            let range = FleetRange { lowest: cpu_seconds * 0.9, highest: cpu_seconds * 1.1 };
            let object =
                FleetObject { url: format!("{url}/base.tar"), bytes, etag: None, modified: 1 };
            let mut unit = FleetUnit {
                id: String::new(),
                url,
                cluster: String::new(),
                backup: number.to_string(),
                layout: FleetLayout::Tars,
                bytes,
                cpu_seconds,
                cpu_seconds_range: Some(range),
                part: None,
                objects: vec![object],
                beside: Vec::new(),
                manifest: None,
            };
            unit.id = fleet_unit_id(&unit);
            unit
        };
        sizes.iter().enumerate().map(unit).collect()
    }

    proptest! {
        #[test]
        fn every_unit_has_one_shard_and_no_shard_much_more_than_another(
            sizes in prop::collection::vec(0..100_000_000_000_u64, 0..200), shards in 1..40_u32
        ) {
            let units = units(&sizes);
            let fleet_shard = fleet_shards(&units, shards);
            prop_assert_eq!(fleet_shard.len(), units.len());
            prop_assert!(fleet_shard.iter().all(|&shard| shard < shards));
            let mut loads = vec![0.0; shards as usize];
            for (unit, shard) in units.iter().zip(&fleet_shard) {
                loads[*shard as usize] += unit.cpu_seconds;
            }
            let largest = units.iter().map(|unit| unit.cpu_seconds).fold(0.0, f64::max);
            let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
            let most = loads.iter().copied().fold(0.0, f64::max);
            prop_assert!(most <= least + largest + 1e-6, "{} {} {}", most, least, largest);
        }
    }

    #[test]
    fn half_a_petabyte_is_shared_out_evenly_at_a_hundred_nodes() {
        // Log-normal without random numbers: quantiles of sizes from 1 MB to 100 GB.
        let sizes: Vec<u64> = (0..20_000_u64).map(|at| 1 << (20 + at % 17)).collect();
        let estimate = fleet_estimate(&units(&sizes), 100);
        let even = estimate.core_hours * 3600.0 / 100.0;
        assert!(estimate.longest_shard_seconds < even * 1.02, "{estimate:?}");
        let range = estimate.core_hours_range.unwrap();
        assert!(range.lowest < estimate.core_hours, "{estimate:?}");
        assert!(estimate.core_hours < range.highest, "{estimate:?}");
    }

    #[test]
    fn an_estimate_of_nothing_is_zero() {
        let estimate = fleet_estimate(&[], 1);
        let range = estimate.core_hours_range.unwrap();
        for item in [range.lowest, range.highest, estimate.core_hours] {
            assert_eq!(format!("{item:.2}"), "0.00");
        }
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
            estimate: fleet_estimate(&units, 1),
            units,
            refused: Vec::new(),
            cpu_times: None,
        };
        serde_json::to_vec(&plan).unwrap()
    }

    #[test]
    fn a_plan_has_as_many_shards_as_an_engine_runs() {
        let shards = |item| read_fleet_plan(&plan_text(item)).map(|plan| plan.shards);
        assert_eq!(shards(FLEET_SHARDS_MAX), Ok(FLEET_SHARDS_MAX));
        for wrong in [0, FLEET_SHARDS_MAX + 1, u32::MAX] {
            assert_eq!(shards(wrong), Err(format!("it has {wrong} shards")));
        }
    }

    #[test]
    fn ids_are_those_of_earlier_versions_plans() {
        let text = include_bytes!("../../pgtoll-report/tests/fixtures/fleet-plan.json");
        assert_eq!(read_fleet_plan(text).unwrap().backups().len(), 4);
    }

    #[test]
    fn an_id_that_is_a_path_is_of_no_unit() {
        let text = String::from_utf8(plan_text(1)).unwrap();
        let plan = read_fleet_plan(text.as_bytes()).unwrap();
        let text = text.replace(&plan.units[0].id, "../../elsewhere");
        let why = "its units are not those that their ids are of";
        assert_eq!(read_fleet_plan(text.as_bytes()), Err(why.to_owned()));
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
            if let Ok(plan) = read_fleet_plan(&text) {
                let fleet_shard = fleet_shards(&plan.units, plan.shards);
                prop_assert!(fleet_shard.iter().all(|&shard| shard < plan.shards));
            }
        }
    }

    #[test]
    fn another_version_of_an_object_is_another_unit() {
        let mut unit = units(&[5, 5]);
        assert_ne!(unit[0].id, unit[1].id);
        let before = unit[0].id.clone();
        unit[0].objects[0].etag = Some("\"2\"".to_owned());
        assert_ne!(fleet_unit_id(&unit[0]), before);
        unit[0].objects[0].etag = None;
        assert_eq!(fleet_unit_id(&unit[0]), before);
    }
}
