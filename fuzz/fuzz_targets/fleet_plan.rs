//! Any bytes as a plan of a fleet, whole and in the middle of a real one: what is read can be shared out, and
//! no id leads out of the directory of results.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_estimate::{fleet_estimate, fleet_shards, read_fleet_plan};
use pgtoll_report::{ReportedRecord as _, TableOptions};

/// Of four backups, three of them cut, and one that is not read.
const PLAN: &[u8] = include_bytes!("../../crates/pgtoll-report/tests/fixtures/fleet-plan.json");

fuzz_target!(|input: (u16, u8, &[u8])| {
    let (at, length, bytes) = input;
    plan(bytes);
    let mut text = PLAN.to_vec();
    let at = usize::from(at) % (text.len() + 1);
    let end = (at + usize::from(length)).min(text.len());
    text.splice(at..end, bytes.iter().copied());
    plan(&text);
});

fn plan(text: &[u8]) {
    let Ok(plan) = read_fleet_plan(text) else { return };
    assert!(plan.units.iter().all(|unit| unit.id.bytes().all(|byte| byte.is_ascii_hexdigit())));
    let shards = fleet_shards(&plan.units, plan.shards);
    assert_eq!(shards.len(), plan.units.len());
    assert!(shards.iter().all(|&shard| shard < plan.shards));
    let estimate = fleet_estimate(&plan.units, plan.shards);
    assert!(estimate.gets >= plan.units.iter().filter(|unit| !unit.objects.is_empty()).count() as u64);
    let _ = plan.text(&TableOptions::default());
}
