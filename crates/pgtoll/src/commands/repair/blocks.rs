//! The blocks to repair: those that a verification finds, or that were named.

use std::collections::BTreeSet;
use std::num::{NonZero, NonZeroUsize};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_alter::{DamagedBlock, REPAIR_BLOCKS_MAX};
use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::{ForkNumber, RelFileLocator, RelationFork};
use pgtoll_record::{FindingClass, FindingKind, VerificationOutcome, VerificationRecord};
use pgtoll_report::FinishedRecord;
use pgtoll_system::Interrupt;
use pgtoll_verify::{Patience, RealPauses, Verification, VerifySettings};

use super::{Running, Target};
use crate::again;
use crate::arguments::RepairArguments;
use crate::commands::record_text;
use crate::mistakes::Usage;
use crate::printer::Printer;

/// The damage that a verification found.
pub(super) struct FoundDamage {
    pub(super) blocks: Vec<DamagedBlock>,
    /// Something is wrong that is no block.
    pub(super) has_other_findings: bool,
    /// All was read that was to be.
    pub(super) is_whole: bool,
    pub(super) notes: Vec<String>,
}

impl FoundDamage {
    pub(super) fn new(
        target: &mut Target,
        arguments: &RepairArguments,
        interrupt: &Interrupt,
        printer: &mut Printer,
    ) -> anyhow::Result<Self> {
        if let Some(path) = &arguments.findings {
            return Ok(Self::of_record(&read_findings(path, &target.data)?));
        }
        let named = arguments
            .block
            .iter()
            .map(|text| named_block(text, &target.names))
            .collect::<anyhow::Result<BTreeSet<_>>>()?;
        let is_wanted = |relation: RelFileLocator| {
            named.is_empty() || named.iter().any(|(fork, _)| fork.relation == relation)
        };
        let settings = VerifySettings {
            jobs: jobs(arguments),
            rate: None,
            only_below: Vec::new(),
            rows: true,
        };
        let mut progress = |_: &str, now: pgtoll_verify::VerifyProgress| {
            printer.progress("verify", now.bytes, now.all_bytes);
            match interrupt.signal() {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        };
        let is_named: Option<&dyn Fn(RelFileLocator) -> bool> =
            if named.is_empty() { None } else { Some(&is_wanted) };
        let data = &target.data;
        let verification =
            Verification::new(data, settings).only(is_named).names(Some(target.names.clone()));
        let (finished, record) = match &mut target.running {
            None => {
                let finished = verification.at_rest(&mut progress);
                let record = finished.record(data, again::provenance());
                (finished, record)
            }
            Some(Running { attached, server, .. }) => {
                let patience = Patience { checkpoint: PATIENCE, awaits_checkpoint: false };
                let pauses = RealPauses::default();
                let finished =
                    verification.while_running(attached, server, &pauses, patience, &mut progress);
                let record = finished.record_of_running(data, attached, again::provenance());
                (finished, record)
            }
        };
        if finished.verified.is_interrupted {
            return Err(pgtoll_alter::RepairError::Interrupted.into());
        }
        let mut found = Self::of_record(&record);
        if !named.is_empty() {
            found.blocks.retain(|block| named.contains(&(block.fork, block.block)));
            let is_found: BTreeSet<_> =
                found.blocks.iter().map(|block| (block.fork, block.block)).collect();
            let others = named.difference(&is_found).map(|(fork, block)| DamagedBlock {
                fork: *fork,
                block: *block,
                suspicion: None,
                is_lost_write: false,
                advice: Vec::new(),
            });
            found.blocks.extend(others);
            found.has_other_findings = false;
        }
        found.blocks.sort_by_key(|block| (block.fork, block.block));
        Ok(found)
    }

    fn of_record(record: &VerificationRecord) -> Self {
        let mut blocks = Vec::new();
        let mut listed = 0;
        let mut contradictions = 0;
        for relation in &record.relations {
            let fork = RelationFork {
                relation: RelFileLocator {
                    tablespace: relation.tablespace,
                    database: relation.database,
                    rel_number: relation.filenode,
                },
                number: ForkNumber::from_name(&relation.fork).unwrap_or_default(),
            };
            for finding in &relation.findings {
                // Servers accept these pages, and no other page would be righter.
                if matches!(finding.kind, FindingKind::MapStale | FindingKind::PageVisible) {
                    contradictions += u64::from(finding.blocks);
                    continue;
                }
                let is_refused = finding.class == FindingClass::Failure;
                listed += u64::from(finding.class != FindingClass::Unverified);
                blocks.push(DamagedBlock {
                    fork,
                    block: finding.block,
                    suspicion: (!is_refused).then(|| finding.words.clone()),
                    is_lost_write: finding.kind == FindingKind::LostWrite,
                    advice: relation.advice.clone(),
                });
            }
        }
        // Of one block a server's refusal first.
        blocks.sort_by_key(|block: &DamagedBlock| {
            (block.fork, block.block, block.suspicion.is_some())
        });
        blocks.dedup_by_key(|block| (block.fork, block.block));
        let all = record.failures.saturating_add(record.suspicions);
        let all = all.saturating_sub(contradictions);
        let mut notes = record.incomplete.clone();
        if let Some(more) = all.checked_sub(listed).filter(|more| *more > 0) {
            notes
                .push(format!("{more} more blocks are damaged: run again when these are repaired"));
        }
        if contradictions > 0 {
            notes.push(format!(
                "{contradictions} blocks contradict their visibility maps: see pgtoll verify"
            ));
        }
        if record.wrong_files > 0 {
            notes.push(format!(
                "{} files are missing or wrong: see pgtoll verify",
                record.wrong_files
            ));
        }
        let is_cut = blocks.len() > REPAIR_BLOCKS_MAX;
        if is_cut {
            notes
                .push(format!("these are the first {REPAIR_BLOCKS_MAX} damaged blocks: run again"));
            blocks.truncate(REPAIR_BLOCKS_MAX);
        }
        Self {
            blocks,
            has_other_findings: record.wrong_files > 0
                || contradictions > 0
                || all > listed
                || is_cut,
            is_whole: record.outcome != VerificationOutcome::Unverified,
            notes,
        }
    }
}

/// How long a checkpoint is waited for where a running server's page needs one to be judged.
const PATIENCE: Duration = Duration::from_secs(30);

/// Threads that read.
pub(super) fn jobs(arguments: &RepairArguments) -> NonZeroUsize {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    arguments.jobs.map_or_else(cores, NonZero::from)
}

/// The record of a verification of this cluster.
fn read_findings(path: &Path, data: &DataDirectory) -> anyhow::Result<VerificationRecord> {
    let text = record_text(path)?;
    let read = || format!("read {}", path.display());
    let parsed = FinishedRecord::parse(&text).with_context(read)?;
    let Some(records) = parsed.and_then(FinishedRecord::downcast::<Vec<VerificationRecord>>) else {
        let message = format!("{} is not a record of verify", path.display());
        return Err(Usage::error(message, "name what pgtoll verify printed with --json"));
    };
    let is_own = |verification: &VerificationRecord| {
        !verification.source.backup
            && verification.source.system_identifier == data.control.system_identifier
    };
    let own = records.into_iter().find(is_own);
    own.ok_or_else(|| {
        let message = format!("{} has no findings of {}", path.display(), data.path.display());
        Usage::error(message, "verify this cluster, or leave out --findings")
    })
}

/// The block that `database.schema.name:N` means.
fn named_block(text: &str, names: &Names) -> anyhow::Result<(RelationFork, u32)> {
    let parsed =
        text.rsplit_once(':').and_then(|(name, number)| Some((name, number.parse().ok()?)));
    let Some((wanted, block)) = parsed else {
        let hint = "name it as database.schema.name:N, N from 0";
        return Err(Usage::error(format!("--block {text} names no block"), hint));
    };
    let mut found = names.iter().filter(|(_, name)| name.to_string() == wanted);
    match (found.next(), found.next()) {
        (Some((relation, _)), None) => {
            Ok((RelationFork { relation, number: ForkNumber::MAIN }, block))
        }
        (None, _) => {
            let hint = "name it as database.schema.name, as pgtoll verify shows it";
            Err(Usage::error(format!("no relation \"{wanted}\""), hint))
        }
        (Some(_), Some(_)) => {
            let hint = "leave out --block, or use --findings";
            Err(Usage::error(format!("several relations \"{wanted}\""), hint))
        }
    }
}
