//! A shard: some units of a plan, verified one after the other, each with a result of its own.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::str::FromStr;

use pgtoll_estimate::{FLEET_SHARDS_MAX, fleet_shards};
use pgtoll_record::{FleetObject, FleetPart, FleetPlan, FleetUnit, Provenance, VerificationRecord};
use pgtoll_store::{Store, StoreError, StoreUrl, StoreUrlError, StoredObject};
use pgtoll_system::Interrupt;
use pgtoll_verify::{TarChecks, VerifyProgress, VerifySettings, verify_tars};

use crate::error::FleetError;
use crate::failure::StoreFailure;
use crate::input::tars_of;
use crate::layout::StoredBackup;

/// A shard, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetShard {
    /// From 0.
    pub index: u32,
    /// All shards.
    pub count: u32,
}

impl FromStr for FleetShard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/').and_then(|(index, count)| {
            Some(Self { index: index.parse().ok()?, count: count.parse().ok()? })
        });
        let shard = numbers
            .filter(|number| number.index < number.count && number.count <= FLEET_SHARDS_MAX);
        shard.ok_or_else(|| format!("\"{text}\" is not a shard like 0/20, numbered from 0"))
    }
}

/// The shard that an engine gave this process in the environment: the first of these variables that is
/// set. `None`: none is.
pub fn shard_of_engine(
    variable: &dyn Fn(&str) -> Option<String>,
    plan: &FleetPlan,
) -> Result<Option<FleetShard>, FleetError> {
    let set = |name: &'static str| variable(name).filter(|text| !text.is_empty());
    let found = INDEX_VARIABLES.into_iter().find_map(|name| Some((name, set(name)?)));
    let Some((variable, text)) = found else { return Ok(None) };
    let Ok(index) = text.trim().parse() else {
        return Err(FleetError::ShardVariable { variable, text });
    };
    if index >= plan.shards {
        return Err(FleetError::Shard { index, shards: plan.shards });
    }
    Ok(Some(FleetShard { index, count: plan.shards }))
}

/// Kubernetes' Indexed Jobs, Slurm's job arrays, AWS Batch's array jobs, Cloud Run's jobs.
const INDEX_VARIABLES: [&str; 4] = [
    "JOB_COMPLETION_INDEX",
    "SLURM_ARRAY_TASK_ID",
    "AWS_BATCH_JOB_ARRAY_INDEX",
    "CLOUD_RUN_TASK_INDEX",
];

/// The task of a shard.
#[derive(Debug)]
pub struct ShardTask<'a> {
    /// The plan.
    pub plan: &'a FleetPlan,
    /// Its place: results are beside it.
    pub at: &'a StoreUrl,
    /// The units of a shard; `None`: all.
    pub shard: Option<FleetShard>,
    /// How pages are read.
    pub settings: VerifySettings,
    /// Results that were written before this time, in seconds since 1970, are made again.
    pub made_before: Option<u64>,
    /// pgtoll's version.
    pub version: String,
    /// Ends it.
    pub interrupt: Interrupt,
}

/// An event of a shard.
#[derive(Clone, Debug)]
pub enum ShardEvent<'a> {
    /// It reads a unit.
    Reading {
        /// The backup.
        unit: &'a FleetUnit,
        /// How far.
        progress: VerifyProgress,
    },
    /// A unit has a result.
    Verified(&'a FleetUnit, &'a VerificationRecord),
    /// A unit could not be read, through no fault of the backup's: it has no result.
    Failed(&'a FleetUnit, &'a str),
}

/// The outcome of a shard's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardSummary {
    /// They have a result now.
    pub verified: u64,
    /// They had one.
    pub skipped: u64,
    /// They have none.
    pub failed: u64,
    /// It was ended before all were read.
    pub is_interrupted: bool,
}

/// Verifies the units of a shard that have no result yet. What is wrong with a backup is in its result
/// and no error: only a merge judges.
pub fn run_shard(
    task: &ShardTask<'_>,
    now: &dyn Fn() -> String,
    report: &mut dyn FnMut(ShardEvent<'_>),
) -> Result<ShardSummary, FleetError> {
    let results = Results::beside(task.at, &task.interrupt)?;
    let count = task.shard.map_or(1, |shard| shard.count);
    let index = task.shard.map_or(0, |shard| shard.index);
    let shards = fleet_shards(&task.plan.units, count);
    let mut summary = ShardSummary::default();
    let own = task.plan.units.iter().zip(shards).filter(|(_, shard)| *shard == index);
    for (unit, _) in own {
        if task.interrupt.signal().is_some() {
            summary.is_interrupted = true;
            break;
        }
        let before = results.written.get(&unit.id);
        let is_old = before.zip(task.made_before).is_some_and(|(written, from)| *written < from);
        if before.is_some() && !is_old {
            summary.skipped += 1;
            continue;
        }
        let made = |record: VerificationRecord| VerificationRecord { made: now(), ..record };
        match verified(task, unit, report) {
            Ok(record) if !record.interrupted => {
                let record = made(record);
                results.write(&unit.id, &record, is_old)?;
                summary.verified += 1;
                report(ShardEvent::Verified(unit, &record));
            }
            Err(reason) if task.interrupt.signal().is_none() => {
                results.write_failure(&unit.id, &reason)?;
                summary.failed += 1;
                report(ShardEvent::Failed(unit, &reason));
            }
            // Interrupted.
            Ok(_) | Err(_) => {}
        }
    }
    summary.is_interrupted |= task.interrupt.signal().is_some();
    Ok(summary)
}

/// The result of a unit; an error is the store's: nothing is known of the backup then.
fn verified(
    task: &ShardTask<'_>,
    unit: &FleetUnit,
    report: &mut dyn FnMut(ShardEvent<'_>),
) -> Result<VerificationRecord, String> {
    let backup = backup_of(unit).map_err(|error| error.to_string())?;
    let store = Store::open(&backup.url, &task.interrupt).map_err(|error| error.to_string())?;
    let failure = StoreFailure::default();
    let tars = tars_of(&backup, &store, &failure).map_err(|error| error.to_string())?;
    let interrupt = task.interrupt.clone();
    let mut progress = |progress| {
        report(ShardEvent::Reading { unit, progress });
        if interrupt.signal().is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let read = verify_tars(&tars, &task.settings, &|_| true, &mut progress);
    let mut found = read.map_err(|error| failure.reason().unwrap_or_else(|| error.to_string()))?;
    let checks = TarChecks { is_whole: unit.part.is_none(), manifest_checksums: false, wal: &[] };
    let wal = found.check(&tars, checks, &task.settings, &mut progress);
    let names = if found.is_damaged() { tars.names().ok() } else { None };
    if let Some(reason) = failure.reason() {
        return Err(reason);
    }
    let provenance = Provenance {
        version: task.version.clone(),
        command: ["pgtoll", "verify", unit.url.as_str()].map(str::to_owned).to_vec(),
        made: String::new(),
    };
    let mut record = found.record(&tars, names.as_ref(), wal, provenance);
    if let Some(FleetPart { number, count }) = unit.part {
        record.notes.push(format!("part {number} of {count} of the backup"));
    }
    Ok(record)
}

fn backup_of(unit: &FleetUnit) -> Result<StoredBackup, StoreUrlError> {
    let objects = unit.objects.iter().map(stored).collect::<Result<_, _>>()?;
    let beside = unit.beside.iter().map(stored).collect::<Result<_, _>>()?;
    Ok(StoredBackup {
        url: unit.url.parse()?,
        cluster: unit.cluster.clone(),
        id: unit.backup.clone(),
        layout: unit.layout,
        objects,
        part: unit.part,
        beside,
        manifest: unit.manifest.as_ref().map(stored).transpose()?,
        info: None,
        packing: None,
    })
}

fn stored(object: &FleetObject) -> Result<StoredObject, StoreUrlError> {
    let FleetObject { url, bytes, etag, modified } = object;
    Ok(StoredObject { url: url.parse()?, bytes: *bytes, etag: etag.clone(), modified: *modified })
}

/// Results beside a plan: `units/ID.json`, and `units/ID.failed` where the store failed.
pub(crate) struct Results {
    store: Store,
    directory: StoreUrl,
    /// When each was written, in seconds since 1970.
    pub(crate) written: BTreeMap<String, u64>,
    failed: BTreeMap<String, StoreUrl>,
}

impl Results {
    pub(crate) fn beside(plan: &StoreUrl, interrupt: &Interrupt) -> Result<Self, FleetError> {
        let directory = plan.parent().unwrap_or_else(|| plan.clone()).join("units");
        let store = Store::open(plan, interrupt)?;
        let mut written = BTreeMap::new();
        let mut failed = BTreeMap::new();
        for object in store.list(&directory)? {
            match object.url.name().rsplit_once('.') {
                Some((id, "json")) => {
                    written.insert(id.to_owned(), object.modified);
                }
                Some((id, "failed")) => {
                    failed.insert(id.to_owned(), object.url.clone());
                }
                _ => {}
            }
        }
        Ok(Self { store, directory, written, failed })
    }

    /// Writes a result; of two for the same unit the first one counts.
    fn write(&self, id: &str, record: &VerificationRecord, again: bool) -> Result<(), FleetError> {
        let url = self.directory.join(&format!("{id}.json"));
        let text = serde_json::to_vec_pretty(record)
            .map_err(|error| FleetError::Plan { url: url.clone(), reason: error.to_string() })?;
        if again {
            self.store.put(&url, &text)?;
        } else {
            self.store.put_new(&url, &text)?;
        }
        Ok(())
    }

    fn write_failure(&self, id: &str, reason: &str) -> Result<(), FleetError> {
        Ok(self.store.put(&self.directory.join(&format!("{id}.failed")), reason.as_bytes())?)
    }

    /// The result of a unit, or why there is none; an error is the store's.
    pub(crate) fn read(
        &self,
        id: &str,
    ) -> Result<Result<VerificationRecord, Option<String>>, StoreError> {
        if !self.written.contains_key(id) {
            return Ok(Err(self.failure(id)));
        }
        let url = self.directory.join(&format!("{id}.json"));
        let text = self.store.read(&url, RESULT_BYTES_MAX)?;
        let read = serde_json::from_slice(&text);
        Ok(read.map_err(|error| Some(format!("{url} is not a result of pgtoll: {error}"))))
    }

    /// Why a unit has no result, where that is known.
    fn failure(&self, id: &str) -> Option<String> {
        let text = self.store.read(self.failed.get(id)?, REASON_BYTES_MAX).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

const RESULT_BYTES_MAX: u64 = 1 << 30;
const REASON_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_numbered_from_0() {
        assert_eq!("0/20".parse(), Ok(FleetShard { index: 0, count: 20 }));
        for wrong in ["20/20", "1", "a/b", "-1/2", "0/0"] {
            assert!(wrong.parse::<FleetShard>().is_err(), "{wrong}");
        }
    }
}
