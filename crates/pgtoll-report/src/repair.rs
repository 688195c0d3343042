//! Damaged pages, and what they are replaced by, as text.

use std::fmt::Write as _;

use pgtoll_record::{
    EvidenceClass, RepairBlock, RepairOutcome, RepairRecord, RepairSource, RepairSourceKind,
};

use crate::printable::printable;
use crate::text::wrapped;
use crate::verification::steps;

/// Attempts one after the other.
pub fn repairs_text(records: &[RepairRecord]) -> String {
    records.iter().map(repair_text).collect::<Vec<_>>().join("\n")
}

fn repair_text(of: &RepairRecord) -> String {
    let data = printable(&of.data);
    let running = if of.running { ", running" } else { "" };
    let mut text = wrapped("", &format!("{data}: PostgreSQL {}{running}", of.major));
    let _ = writeln!(text, "{} ({})", outcome(of.outcome), printable(&of.made));
    if let Some(wal) = &of.wal {
        let line = format!("WAL from {} to {}, timeline {}", wal.from, wal.to, wal.timeline);
        text.push_str(&wrapped("", &line));
    }
    for source in &of.sources {
        text.push_str(&wrapped("", &source_text(source)));
    }
    for block in &of.blocks {
        text.push_str(&block_text(block, &of.sources));
    }
    for note in &of.notes {
        let _ = write!(text, "\n{}", wrapped("", &printable(note)));
    }
    let _ = write!(text, "\n{}", summary(of));
    text
}

fn outcome(of: RepairOutcome) -> &'static str {
    match of {
        RepairOutcome::Planned => "plan of a repair; nothing was written",
        RepairOutcome::Begun => "repair begun",
        RepairOutcome::Finished => "repair finished",
        RepairOutcome::Failed => "repair ended with an error",
        RepairOutcome::Undone => "repair undone",
    }
}

fn source_text(of: &RepairSource) -> String {
    let path = printable(&of.path);
    let what = match of.kind {
        RepairSourceKind::Backup => "backup",
        RepairSourceKind::Stopped => "stopped copy",
        RepairSourceKind::Standby => "standby",
        RepairSourceKind::Wal => "WAL alone, replayed by",
    };
    if let (RepairSourceKind::Wal, Some(from)) = (of.kind, of.contains) {
        return format!("{what} {path}, from {from} on");
    }
    match (&of.refused, of.contains) {
        (Some(reason), _) => format!("{what} {path}: refused, {}", printable(reason)),
        (None, Some(contains)) => format!("{what} {path}: has all changes before {contains}"),
        (None, None) => format!("{what} {path}"),
    }
}

fn block_text(of: &RepairBlock, sources: &[RepairSource]) -> String {
    let place = of.path.as_deref().map_or_else(|| of.filenode.to_string(), str::to_owned);
    let name = of.name.as_ref().map_or_else(
        || "unnamed relation".to_owned(),
        |name| {
            let parts = [&name.database, &name.schema, &name.relation];
            let parts: Vec<&str> =
                parts.into_iter().filter(|of| !of.is_empty()).map(|of| &**of).collect();
            format!("{} {}", name.kind, parts.join("."))
        },
    );
    let title = format!("{name}, block {} ({place}, {})", of.block, of.fork);
    let mut text = format!("\n{}", wrapped("", &printable(&title)));
    let written = if of.installed { ", written" } else { "" };
    let class = format!("{}{written}: {}", class_name(of.class), printable(&of.reason));
    text.push_str(&wrapped("  class:  ", &class));
    if !of.damage.is_empty() {
        text.push_str(&wrapped("  damage: ", &printable(&of.damage)));
    }
    if let Some(lsn) = of.lsn {
        let _ = writeln!(text, "  LSN:    {lsn} on the damaged page");
    }
    if let Some(last) = &of.last_record {
        let line =
            format!("{} from {} to {}, the last that names it", last.kind, last.at, last.end);
        text.push_str(&wrapped("  WAL:    ", &printable(&line)));
    }
    for candidate in &of.candidates {
        let source = sources.get(candidate.source).map_or("?", |of| of.path.as_str());
        let lsn = candidate.lsn.map_or(String::new(), |lsn| format!(" LSN {lsn},"));
        let class = class_name(candidate.class);
        let line = format!("{source}:{lsn} {class}: {}", candidate.reason);
        text.push_str(&wrapped("  tried:  ", &printable(&line)));
    }
    if of.changed_bytes > 0 {
        let stretches: Vec<String> = of
            .changed
            .iter()
            .map(|(from, to)| format!("{from}-{}", to.saturating_sub(1)))
            .collect();
        let line =
            format!("{} of the page's bytes, within {}", of.changed_bytes, stretches.join(", "));
        text.push_str(&wrapped("  change: ", &line));
    }
    if !of.installed && matches!(of.class, EvidenceClass::Refused | EvidenceClass::Derivable) {
        text.push_str(&steps("else:", &of.advice));
    }
    text
}

fn class_name(of: EvidenceClass) -> &'static str {
    match of {
        EvidenceClass::Refused => "refused",
        EvidenceClass::Derivable => "derivable",
        EvidenceClass::Plausible => "plausible",
        EvidenceClass::Proved => "proved",
        EvidenceClass::Exact => "exact",
        EvidenceClass::Sound => "sound",
    }
}

fn summary(of: &RepairRecord) -> String {
    let count = |is: &dyn Fn(&RepairBlock) -> bool| of.blocks.iter().filter(|of| is(of)).count();
    let written = count(&|of| of.installed);
    let mut text = String::new();
    let classes = [
        EvidenceClass::Exact,
        EvidenceClass::Proved,
        EvidenceClass::Plausible,
        EvidenceClass::Derivable,
        EvidenceClass::Refused,
        EvidenceClass::Sound,
    ];
    let counts: Vec<String> = classes
        .into_iter()
        .map(|class| (count(&|of| of.class == class), class))
        .filter(|(count, _)| *count > 0)
        .map(|(count, class)| format!("{count} {}", class_name(class)))
        .collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    let line = format!("blocks: {counts}; {written} written, {} damaged still", of.remaining);
    text.push_str(&wrapped("", &line));
    if let Some(undo) = &of.undo_file {
        text.push_str(&wrapped("", &format!("undo file: {}", printable(undo))));
    }
    if let Some(ledger) = &of.ledger {
        text.push_str(&wrapped("", &format!("ledger: {}", printable(ledger))));
    }
    text
}
