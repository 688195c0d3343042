//! Damaged pages, and what replaces them.

use pgtoll_format::shell_quoted;
use pgtoll_record::{
    EvidenceClass, RepairBlock, RepairOutcome, RepairRecord, RepairSource, RepairSourceKind,
};

use crate::document::{Block, Document, DocumentStep, Section};
use crate::records::{ReportedRecord, TableOptions, one_or_several_json, read_repairs};

/// A ledger has several records.
impl ReportedRecord for Vec<RepairRecord> {
    /// Attempts one after the other: the outcome, a line for each block, and all that is known of it.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll repair",
            question: "Which pages are damaged, and what replaces them?",
            answer: self.iter().map(summary).collect(),
            notes: self.iter().flat_map(|record| record.notes.clone()).collect(),
            again: self.first().map(|record| record.command.clone()).unwrap_or_default(),
            ..Document::default()
        };
        for record in self {
            document.sections.extend(sections(record));
        }
        document
    }

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        read_repairs(json)
    }

    fn json(&self) -> String {
        one_or_several_json(self)
    }
}

/// Numbers of blocks by class, behind the outcome.
fn summary(record: &RepairRecord) -> String {
    let count = |class| record.blocks.iter().filter(|block| block.class == class).count();
    let counts: Vec<String> = CLASSES
        .into_iter()
        .map(|class| (count(class), class))
        .filter(|(count, _)| *count > 0)
        .map(|(count, class)| format!("{count} {}", class_name(class)))
        .collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    let written = record.blocks.iter().filter(|block| block.installed).count();
    format!(
        "{}: {}; blocks: {counts}; {written} written, {} still damaged",
        record.data,
        outcome(record.outcome),
        record.remaining
    )
}

const CLASSES: [EvidenceClass; 6] = [
    EvidenceClass::Exact,
    EvidenceClass::Proved,
    EvidenceClass::Plausible,
    EvidenceClass::Derivable,
    EvidenceClass::Refused,
    EvidenceClass::Sound,
];

fn sections(record: &RepairRecord) -> Vec<Section> {
    let running = if record.running { ", running" } else { "" };
    let title = format!("{}, {}", record.data, record.made);
    let mut lines = vec![format!("PostgreSQL {}{running}", record.major)];
    let wal = record.wal.iter();
    lines.extend(
        wal.map(|wal| format!("WAL from {} to {}, timeline {}", wal.from, wal.to, wal.timeline)),
    );
    lines.extend(record.sources.iter().map(source_text));
    lines.extend(record.undo_file.iter().map(|file| format!("undo file: {file}")));
    lines.extend(record.ledger.iter().map(|file| format!("ledger: {file}")));
    let mut sections = vec![Section::detail(&title, vec![Block::List(lines)])];
    let blocks: Vec<String> =
        record.blocks.iter().map(|block| block_line(block, &record.sources)).collect();
    sections.extend(Section::list("Blocks", &blocks, usize::MAX));
    sections.extend(record.blocks.iter().map(|block| block_section(block, &record.sources)));
    sections.extend(next_step(record));
    sections
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

/// The command that writes the plan, or what to run afterwards.
fn next_step(record: &RepairRecord) -> Option<Section> {
    let is_written_by_default =
        |block: &RepairBlock| matches!(block.class, EvidenceClass::Proved | EvidenceClass::Exact);
    let (title, command) = match record.outcome {
        RepairOutcome::Planned if record.blocks.iter().any(is_written_by_default) => {
            ("To write this plan", format!("{} --yes", record.command.join(" ")))
        }
        RepairOutcome::Finished if record.blocks.iter().any(|block| block.installed) => {
            ("To check the result", format!("pgtoll verify {}", shell_quoted(&record.data)))
        }
        _ => return None,
    };
    Some(Section::detail(title, vec![Block::Code(vec![format!("  {command}")])]))
}

fn outcome(outcome: RepairOutcome) -> &'static str {
    match outcome {
        RepairOutcome::Planned => "plan of a repair; nothing was written",
        RepairOutcome::Begun => "repair begun",
        RepairOutcome::Finished => "repair finished",
        RepairOutcome::Failed => "repair ended with an error",
        RepairOutcome::Undone => "repair undone",
    }
}

fn source_text(source: &RepairSource) -> String {
    let path = &source.path;
    let label = kind_name(source.kind);
    if let (RepairSourceKind::Wal, Some(from)) = (source.kind, source.contains) {
        return format!("{label} {path}, from {from} on");
    }
    match (&source.refused, source.contains) {
        (Some(reason), _) => format!("{label} {path}: refused, {reason}"),
        (None, Some(contains)) => format!("{label} {path}: has all changes before {contains}"),
        (None, None) => format!("{label} {path}"),
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

/// All that is known of a block.
fn block_section(block: &RepairBlock, sources: &[RepairSource]) -> Section {
    let place = block.path.as_deref().map_or_else(|| block.filenode.to_string(), str::to_owned);
    let name = block.name.as_ref();
    let name =
        name.map_or_else(|| "unnamed relation".to_owned(), |name| format!("{} {name}", name.kind));
    let title = format!("{name}, block {} ({place}, {})", block.block, block.fork);
    let written = if block.installed { ", written" } else { "" };
    let mut facts =
        vec![("class", format!("{}{written}: {}", class_name(block.class), block.reason))];
    if !block.damage.is_empty() {
        facts.push(("damage", block.damage.clone()));
    }
    facts.extend(block.lsn.map(|lsn| ("LSN", format!("{lsn} on the damaged page"))));
    if let Some(last) = &block.last_record {
        let words =
            format!("{} from {} to {}, the last that names it", last.kind, last.at, last.end);
        facts.push(("WAL", words));
    }
    for candidate in &block.candidates {
        let source = sources.get(candidate.source).map_or("?", |source| source.path.as_str());
        let lsn = candidate.lsn.map_or(String::new(), |lsn| format!(" LSN {lsn},"));
        let class = class_name(candidate.class);
        facts.push(("tried", format!("{source}:{lsn} {class}: {}", candidate.reason)));
    }
    if block.changed_bytes > 0 {
        let stretches: Vec<String> = block
            .changed
            .iter()
            .map(|(from, to)| format!("{from}-{}", to.saturating_sub(1)))
            .collect();
        let bytes = block.changed_bytes;
        let stretches = stretches.join(", ");
        facts.push(("change", format!("{bytes} of the page's bytes, within {stretches}")));
    }
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut blocks = vec![Block::Facts(facts)];
    let is_open = matches!(block.class, EvidenceClass::Refused | EvidenceClass::Derivable);
    if is_open && !block.installed && !block.advice.is_empty() {
        blocks.push(Block::Steps(DocumentStep::from_advice(&block.advice)));
    }
    Section::evidence(&title, blocks)
}

fn class_name(class: EvidenceClass) -> &'static str {
    match class {
        EvidenceClass::Refused => "refused",
        EvidenceClass::Derivable => "derivable",
        EvidenceClass::Plausible => "plausible",
        EvidenceClass::Proved => "proved",
        EvidenceClass::Exact => "exact",
        EvidenceClass::Sound => "sound",
    }
}
