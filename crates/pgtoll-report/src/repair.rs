//! Damaged pages, and what they are replaced by, as text.

use std::fmt::Write as _;

use pgtoll_format::shell_quoted;
use pgtoll_record::{
    EvidenceClass, RepairBlock, RepairOutcome, RepairRecord, RepairSource, RepairSourceKind,
};

use crate::printable::printable;
use crate::text::wrapped;
use crate::verification::steps;

/// Attempts one after the other: a line for each block, or with `full` all that is known of it.
pub(crate) fn repairs_text(records: &[RepairRecord], full: bool) -> String {
    records.iter().map(|record| repair_text(record, full)).collect::<Vec<_>>().join("\n")
}

fn repair_text(record: &RepairRecord, full: bool) -> String {
    let data = printable(&record.data);
    let running = if record.running { ", running" } else { "" };
    let title = format!("{data}: PostgreSQL {}{running}", record.major);
    let mut text = wrapped("", &title);
    let _ = writeln!(text, "{} ({})", outcome(record.outcome), printable(&record.made));
    if let Some(wal) = &record.wal {
        let line = format!("WAL from {} to {}, timeline {}", wal.from, wal.to, wal.timeline);
        text.push_str(&wrapped("", &line));
    }
    for source in &record.sources {
        text.push_str(&wrapped("", &source_text(source)));
    }
    if full {
        for block in &record.blocks {
            text.push_str(&block_text(block, &record.sources));
        }
    } else if !record.blocks.is_empty() {
        text.push('\n');
        for block in &record.blocks {
            text.push_str(&wrapped("", &printable(&block_line(block, &record.sources))));
        }
    }
    for note in &record.notes {
        let _ = write!(text, "\n{}", wrapped("", &printable(note)));
    }
    let _ = write!(text, "\n{}", summary(record));
    text.push_str(&next_steps(record, full));
    text
}

/// `shop.public.orders:7  proved, from backup /srv/backup, LSN 0/1A2B: …`.
fn block_line(block: &RepairBlock, sources: &[RepairSource]) -> String {
    let name = block.name.as_ref().map_or_else(
        || block.path.clone().unwrap_or_else(|| block.filenode.to_string()),
        ToString::to_string,
    );
    let fork = if block.fork == "main" { String::new() } else { format!(" ({})", block.fork) };
    let chosen = block.chosen.and_then(|chosen| sources.get(chosen));
    let from = chosen.map_or(String::new(), |source| {
        format!(", from {} {}", kind_name(source.kind), source.path)
    });
    let written = if block.installed { ", written" } else { "" };
    let class = class_name(block.class);
    format!("{name}{fork}:{}  {class}{from}{written}: {}", block.block, block.reason)
}

/// The command that writes the plan, and what to run afterwards.
fn next_steps(record: &RepairRecord, full: bool) -> String {
    let has_class = |class| record.blocks.iter().any(|block| block.class == class);
    let mut text = String::new();
    let is_open = !full && record.remaining > 0;
    match record.outcome {
        RepairOutcome::Planned
            if has_class(EvidenceClass::Proved) || has_class(EvidenceClass::Exact) =>
        {
            let _ = write!(text, "\nto write this plan:\n  {} --yes\n", command(record));
        }
        RepairOutcome::Finished if record.blocks.iter().any(|block| block.installed) => {
            let data = shell_quoted(&record.data);
            let _ = write!(text, "\nto check the result:\n  pgtoll verify {data}\n");
        }
        _ => {}
    }
    if is_open {
        let line = "what else can be done, and what was tried, block by block: --full";
        let _ = write!(text, "\n{}", wrapped("", line));
    }
    text
}

fn command(record: &RepairRecord) -> String {
    printable(&record.command.join(" ")).into_owned()
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
    let (path, what) = (printable(&of.path), kind_name(of.kind));
    if let (RepairSourceKind::Wal, Some(from)) = (of.kind, of.contains) {
        return format!("{what} {path}, from {from} on");
    }
    match (&of.refused, of.contains) {
        (Some(reason), _) => format!("{what} {path}: refused, {}", printable(reason)),
        (None, Some(contains)) => format!("{what} {path}: has all changes before {contains}"),
        (None, None) => format!("{what} {path}"),
    }
}

fn kind_name(kind: RepairSourceKind) -> &'static str {
    match kind {
        RepairSourceKind::Backup => "backup",
        RepairSourceKind::Stopped => "stopped copy",
        RepairSourceKind::Standby => "standby",
        RepairSourceKind::Wal => "WAL alone, replayed by",
    }
}

fn block_text(of: &RepairBlock, sources: &[RepairSource]) -> String {
    let place = of.path.as_deref().map_or_else(|| of.filenode.to_string(), str::to_owned);
    let name = of
        .name
        .as_ref()
        .map_or_else(|| "unnamed relation".to_owned(), |name| format!("{} {}", name.kind, name));
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
