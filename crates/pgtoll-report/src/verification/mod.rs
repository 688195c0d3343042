//! Verifications: the verdict, and the findings by relation with advice.

mod gauges;

use pgtoll_format::ByteSize;
use pgtoll_record::{
    FindingClass, PageFinding, Severity, VerificationOutcome, VerificationRecord, VerifiedRelation,
};

use crate::document::{Block, Document, DocumentStep, Section, Table};
use crate::plugin::{PluginFacts, PluginFigure};
use crate::records::{ReportedRecord, TableOptions, one_or_several_json, read_one_or_several};

/// Several data directories have several records.
impl ReportedRecord for Vec<VerificationRecord> {
    const HAS_GAUGES: bool = true;
    const IS_CHECK: bool = true;

    fn check(&self) -> Option<PluginFacts> {
        let sum = |count: fn(&VerificationRecord) -> u64| self.iter().map(count).sum();
        Some(PluginFacts {
            made: self.iter().filter_map(|record| record.made.parse().ok()).min(),
            figures: vec![
                PluginFigure::count("failures", sum(|record| record.failures)),
                PluginFigure::count("suspicions", sum(|record| record.suspicions)),
                PluginFigure::count("unverified_blocks", sum(|record| record.unverified)),
                PluginFigure::count("wrong_files", sum(|record| record.wrong_files)),
                PluginFigure::bytes("read", sum(|record| record.read.bytes)),
            ],
        })
    }

    /// The verdict of each, then what is wrong by relation, with what to do.
    fn document(&self, options: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll verify",
            question: "Are the pages sound?",
            answer: self.iter().flat_map(answer).collect(),
            notes: self.iter().flat_map(|record| record.notes.clone()).collect(),
            again: self.first().map(|record| record.command.clone()).unwrap_or_default(),
            ..Document::default()
        };
        if let [only] = self.as_slice() {
            document.subject = subject_words(only);
        }
        for record in self {
            let suffix =
                if self.len() > 1 { format!(": {}", record.source.path) } else { String::new() };
            if self.len() > 1 {
                let words = Block::Paragraph(subject_words(record));
                document.push(Section::detail(&record.source.path, vec![words]));
            }
            document.sections.extend(damage_sections(record, &suffix, options));
            document.push(facts_section(record, &suffix));
        }
        document
    }

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        read_one_or_several(json)
    }

    fn gauges(&self) -> Option<String> {
        Some(gauges::verification_openmetrics(self))
    }

    fn json(&self) -> String {
        one_or_several_json(self)
    }
}

/// The verdict; where it does not say it, what was looked at; and what makes the answer incomplete.
pub(crate) fn answer(verification: &VerificationRecord) -> Vec<String> {
    let mut sentences = vec![format!("{}: {}", verification.source.path, verdict(verification))];
    sentences.extend(coverage_beside_findings(verification));
    sentences
        .extend(verification.incomplete.iter().map(|reason| format!("Not complete: {reason}")));
    sentences
}

fn subject_words(verification: &VerificationRecord) -> String {
    let words = [
        Some(source_words(verification)),
        Some(amount_words(verification)),
        running_words(verification),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Files and pages that are damaged; titles end in `suffix`.
pub(crate) fn damage_sections(
    verification: &VerificationRecord,
    suffix: &str,
    options: &TableOptions,
) -> Vec<Section> {
    let mut sections = Vec::new();
    sections.extend(file_section(verification, suffix, options.most));
    let relations = verification.relations.iter();
    sections.extend(relations.map(|relation| relation_section(relation, suffix, options)));
    for (title, entries) in [
        ("Could not be read", &verification.unlisted),
        ("Files of other programs, not read", &verification.foreign),
    ] {
        sections.extend(Section::list(&format!("{title}{suffix}"), entries, options.most));
    }
    sections
}

/// Returns the facts of what was read.
fn facts_section(verification: &VerificationRecord, suffix: &str) -> Section {
    let source = &verification.source;
    let mut facts = vec![
        ("system identifier", source.system_identifier.to_string()),
        ("block size", format!("{} bytes", source.block_bytes)),
        ("names of relations", verification.names.clone().unwrap_or_else(|| "unknown".to_owned())),
    ];
    facts.extend(source.wal_end.map(|end| ("end of WAL", end.to_string())));
    if verification.healed_by_replay > 0 {
        facts.push(("healed by replay", format!("{} pages", verification.healed_by_replay)));
    }
    if let Some(manifest) = &verification.manifest {
        facts.push(("compared with the manifest", format!("{} files", manifest.files)));
    }
    facts.push(("read", format!("{}, by pgtoll {}", verification.made, verification.pgtoll)));
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Section::evidence(&format!("What was read{suffix}"), vec![Block::Facts(facts)])
}

/// Returns the source without its path.
fn source_words(verification: &VerificationRecord) -> String {
    let source = &verification.source;
    let label = if source.backup { "a base backup" } else { source.state.as_str() };
    let form = source.form.as_ref().map_or(String::new(), |form| format!(" ({form})"));
    let version = match source.major {
        0 => "unknown version".to_owned(),
        major => format!("PostgreSQL {major}"),
    };
    let checksums = if source.checksums { "with checksums" } else { "without checksums" };
    format!("{version}, {label}{form}, {checksums}")
}

/// How much was read.
fn amount_words(verification: &VerificationRecord) -> String {
    let read = &verification.read;
    format!(
        "{} in {}, {} of them all zeros; {} read",
        counted(read.blocks, "block"),
        counted(read.files, "file"),
        read.new_blocks,
        ByteSize(read.bytes).rounded()
    )
}

/// Returns the verdict; without findings also the checks that were made.
fn verdict(verification: &VerificationRecord) -> String {
    let sums = sums(verification.failures, verification.suspicions, verification.unverified);
    let files = match verification.wrong_files {
        0 => String::new(),
        count => format!(", {}", counted_as(count, "wrong file", "wrong files")),
    };
    let covered = verification.covered.join(", ");
    let outcome = match verification.outcome {
        // Records before coverage was kept.
        VerificationOutcome::Sound if covered.is_empty() => "sound".to_owned(),
        VerificationOutcome::Sound => format!("sound: {covered}"),
        VerificationOutcome::NoDamageSeen => {
            format!("no damage seen in {covered}; left out: {}", verification.left_out.join("; "))
        }
        VerificationOutcome::Findings => format!("{sums}{files}"),
        VerificationOutcome::Unverified => format!("incomplete: {sums}{files}"),
    };
    let interrupted = if verification.interrupted { "interrupted; so far " } else { "" };
    format!("{interrupted}{outcome}")
}

/// Returns the checks that were made, unless the verdict names them.
fn coverage_beside_findings(verification: &VerificationRecord) -> Option<String> {
    let is_in_verdict = matches!(
        verification.outcome,
        VerificationOutcome::Sound | VerificationOutcome::NoDamageSeen
    );
    if is_in_verdict || verification.covered.is_empty() {
        return None;
    }
    let left_out = match verification.left_out.as_slice() {
        [] => String::new(),
        left_out => format!("; left out: {}", left_out.join("; ")),
    };
    Some(format!("looked at: {}{left_out}", verification.covered.join(", ")))
}

/// Numbers of findings by class.
pub(crate) fn sums(failures: u64, suspicions: u64, unverified: u64) -> String {
    format!(
        "{}, {}, {}",
        counted(failures, "failure"),
        counted(suspicions, "suspicion"),
        counted_as(unverified, "unverified block", "unverified blocks"),
    )
}

/// Files that are missing or wrong.
fn file_section(verification: &VerificationRecord, suffix: &str, most: usize) -> Option<Section> {
    let shown = verification.files.iter().take(most);
    let mut lines: Vec<String> =
        shown.map(|file| format!("{}: {}", file.path, file.words)).collect();
    let hidden = verification.wrong_files.saturating_sub(lines.len() as u64);
    lines.extend((hidden > 0).then(|| format!("... {hidden} more")));
    let title = format!("Files that are missing or wrong{suffix}");
    (verification.wrong_files > 0).then(|| Section::detail(&title, vec![Block::List(lines)]))
}

/// Returns the changes by a running server; `None`: no changes.
fn running_words(verification: &VerificationRecord) -> Option<String> {
    let running = verification
        .running
        .as_ref()
        .filter(|running| running.suspects > 0 || running.dropped > 0)?;
    let parts = [
        (running.suspects, "looked damaged at first"),
        (running.healed, "sound when read again"),
        (running.in_flight, "in flight"),
        (running.dropped, "gone meanwhile"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, label)| format!("{count} {label}"))
        .collect();
    Some(format!("while the server ran: {}", parts.join(", ")))
}

fn relation_section(relation: &VerifiedRelation, suffix: &str, options: &TableOptions) -> Section {
    let rows =
        relation.findings.iter().take(options.most).map(|finding| row(finding, options.full));
    let head = ["block", "class", "stored", "computed", "what is wrong"];
    let mut blocks = vec![Block::Table(Table::with_prose(&head, rows.collect()))];
    if let Some(more) = more_findings(relation, options.most) {
        blocks.push(Block::Paragraph(format!("... {more} more")));
    }
    let steps = match relation.advice.as_slice() {
        [] => vec![DocumentStep { what: relation.remedy.clone(), command: None, is_sql: false }],
        advice => DocumentStep::from_advice(advice),
    };
    blocks.push(Block::Steps(steps));
    Section::detail(&format!("{}{suffix}", title(relation)), blocks)
}

/// How many there are beyond the first `most`; `None`: none.
fn more_findings(relation: &VerifiedRelation, most: usize) -> Option<u64> {
    let all =
        relation.failures.saturating_add(relation.suspicions).saturating_add(relation.unverified);
    // A suspicion counts once, whatever blocks it is about.
    let blocks = |finding: &PageFinding| match finding.class {
        FindingClass::Unverified | FindingClass::Failure => u64::from(finding.blocks),
        FindingClass::Suspicion => 1,
    };
    let shown: u64 = relation.findings.iter().take(most).map(blocks).sum();
    all.checked_sub(shown).filter(|more| *more > 0)
}

fn title(relation: &VerifiedRelation) -> String {
    let severity = severity(relation.severity);
    match qualified(relation) {
        None => format!("{}: {severity}", place(relation)),
        Some(name) => format!("{} ({}): {severity}", name, place(relation)),
    }
}

/// The relation's name with schema and database; `None`: unknown.
fn qualified(relation: &VerifiedRelation) -> Option<String> {
    relation.name.as_ref().map(ToString::to_string)
}

/// Returns the kind, the file and the fork.
fn place(relation: &VerifiedRelation) -> String {
    let file = relation.path.as_ref().map_or_else(
        || format!("files {}/{}/{}", relation.tablespace, relation.database, relation.filenode),
        |path| format!("file {path}"),
    );
    let fork =
        if relation.fork == "main" { String::new() } else { format!(", fork {}", relation.fork) };
    let kind = relation.name.as_ref().map_or(String::new(), |name| {
        let whose = name.of.as_ref();
        let whose = whose.map_or(String::new(), |table| format!(" of {table}"));
        format!("{}{whose}, ", name.kind)
    });
    format!("{kind}{file}{fork}")
}

pub(crate) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Data => "data",
        Severity::Catalog => "a catalog",
        Severity::Index => "an index, which can be rebuilt",
        Severity::Map => "a map, which the server rebuilds",
        Severity::Unlogged => "not logged: a crash empties it",
        Severity::Leftover => "a leftover that no relation uses",
        Severity::Unknown => "owner unknown",
    }
}

pub(crate) fn class(class: FindingClass) -> &'static str {
    match class {
        FindingClass::Failure => "failure",
        FindingClass::Suspicion => "suspicion",
        FindingClass::Unverified => "unverified",
    }
}

/// The block, or the first and last of several.
pub(crate) fn blocks(finding: &PageFinding) -> String {
    match finding.blocks {
        0 | 1 => finding.block.to_string(),
        blocks => format!("{}-{}", finding.block, finding.block.saturating_add(blocks - 1)),
    }
}

/// In decimal, as the server's log and `page show` have them.
fn checksum(value: Option<u16>) -> String {
    value.map_or("-".to_owned(), |number| number.to_string())
}

/// The page's LSN is evidence that terminals have no room for.
fn row(finding: &PageFinding, has_lsn: bool) -> Vec<String> {
    let lsn = finding.lsn.filter(|_| has_lsn);
    let lsn = lsn.map(|lsn| format!(" (LSN {lsn})")).unwrap_or_default();
    vec![
        blocks(finding),
        class(finding.class).to_owned(),
        checksum(finding.stored_checksum),
        checksum(finding.computed_checksum),
        format!("{}{lsn}", finding.words),
    ]
}

fn counted(count: u64, label: &str) -> String {
    let plural =
        label.strip_suffix('y').map_or_else(|| format!("{label}s"), |item| format!("{item}ies"));
    counted_as(count, label, &plural)
}

fn counted_as(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

#[cfg(test)]
pub(crate) mod tests {
    use pgtoll_format::Lsn;
    use pgtoll_record::{
        Advice, CommandKind, FileFinding, FileFindingKind, FindingKind, VERIFICATION_SCHEMA,
        VerifiedAmount, VerifiedSource,
    };

    use pgtoll_record::WalRelationName;

    use super::*;
    use crate::html::tests::{assert_well_formed, text_of};

    fn finding(block: u32, class: FindingClass, words: &str) -> PageFinding {
        let checksum = (class == FindingClass::Failure).then_some(0x1A2B);
        PageFinding {
            block,
            blocks: if class == FindingClass::Unverified { 16 } else { 1 },
            class,
            kind: FindingKind::Checksum,
            words: words.into(),
            stored_checksum: checksum,
            computed_checksum: checksum.map(|checksum| checksum + 1),
            lsn: Some(Lsn(1)),
            wal: None,
            index: None,
        }
    }

    pub(crate) fn record() -> VerificationRecord {
        VerificationRecord {
            schema: VERIFICATION_SCHEMA.into(),
            pgtoll: "0".into(),
            command: vec!["pgtoll".into()],
            made: "2026-11-22T09:00:00Z".into(),
            source: VerifiedSource {
                path: "/var/lib/postgresql/15/main".into(),
                backup: false,
                form: None,
                major: 15,
                system_identifier: 1,
                state: "shut down".into(),
                block_bytes: 8192,
                file_blocks: 131_072,
                checksums: true,
                wal_end: Some(Lsn(0x0100_0000)),
            },
            outcome: VerificationOutcome::Findings,
            covered: Vec::new(),
            left_out: Vec::new(),
            interrupted: false,
            read: VerifiedAmount {
                files: 985,
                incremental_files: 0,
                blocks: 123_456,
                new_blocks: 12,
                bytes: 123_456 * 8192,
                temporary_files: 0,
            },
            failures: 3,
            suspicions: 1,
            unverified: 16,
            healed_by_replay: 0,
            files: Vec::new(),
            wrong_files: 0,
            incomplete: Vec::new(),
            manifest: None,
            running: None,
            relations: vec![VerifiedRelation {
                tablespace: 1663,
                database: 5,
                filenode: 16384,
                fork: "main".into(),
                path: Some("base/5/16384".into()),
                name: Some(WalRelationName {
                    database: "shop".into(),
                    schema: "public".into(),
                    relation: "orders_of_the_last_three_years_by_customer".into(),
                    kind: "table".into(),
                    of: None,
                }),
                severity: Severity::Data,
                remedy: String::new(),
                advice: vec![
                    Advice {
                        what: "restore it from a backup, or save what can be read; and more words"
                            .into(),
                        command: None,
                        kind: None,
                        database: None,
                    },
                    Advice {
                        what: "save the rows".into(),
                        command: Some("CREATE TABLE saved AS\nSELECT * FROM orders;".into()),
                        kind: Some(CommandKind::Sql),
                        database: Some("shop".into()),
                    },
                ],
                failures: 3,
                suspicions: 1,
                unverified: 16,
                findings: vec![
                    finding(7, FindingClass::Failure, "wrong checksum"),
                    finding(
                        4_294_967_294,
                        FindingClass::Suspicion,
                        "all zeros, though the visibility map has rows on it",
                    ),
                    finding(100, FindingClass::Unverified, "Input/output error (os error 5)"),
                    finding(101, FindingClass::Failure, "not shown"),
                ],
            }],
            names: Some("the catalogs".into()),
            foreign: vec!["base/5/readme".into()],
            unlisted: Vec::new(),
            notes: vec!["a note".into()],
        }
    }

    fn text(record: VerificationRecord, most: usize) -> String {
        vec![record].text(&TableOptions { most, ..TableOptions::default() })
    }

    #[test]
    fn every_form_has_the_verdict_first_and_commands_that_can_be_copied() {
        insta::assert_snapshot!(vec![record()].markdown());
        let page = vec![record()].html();
        assert_well_formed(&page);
        insta::assert_snapshot!("page", text_of(&page));
        let mut other = record();
        (other.outcome, other.source.path) = (VerificationOutcome::Sound, "<script>".to_owned());
        let page = vec![record(), other].html();
        assert_well_formed(&page);
        assert!(!page.contains("<script>:"), "a path is text");
    }

    #[test]
    fn findings_are_shown_in_80_columns() {
        let text = text(record(), 3);
        insta::assert_snapshot!(text);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn missing_files_are_listed() {
        let mut backup = record();
        (backup.relations, backup.notes, backup.foreign) = (Vec::new(), Vec::new(), Vec::new());
        (backup.failures, backup.suspicions, backup.unverified) = (0, 0, 0);
        let file = |path: &str| FileFinding {
            path: path.into(),
            kind: FileFindingKind::Missing,
            words: "missing".into(),
        };
        (backup.files, backup.wrong_files) = (vec![file("base/5/\u{1b}1"), file("base/5/2")], 605);
        backup.incomplete = vec!["global/pg_control is missing".into()];
        let text = text(backup, 1);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("0 unverified blocks, 605 wrong files"), "{text}");
        assert!(text.contains("\nNot complete: global/pg_control is missing\n\n"), "{text}");
        let expected =
            "\nFiles that are missing or wrong\n  - base/5/\\u{1b}1: missing\n  - ... 604 more\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_backups_form_is_said() {
        let mut backup = record();
        (backup.source.backup, backup.source.major) = (true, 0);
        backup.source.form = Some("tar, zstd".into());
        let text = text(backup, 3);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("unknown version, a base backup (tar, zstd),"), "{text}");
    }

    #[test]
    fn what_is_sound_is_said_in_six_lines() {
        let mut sound = record();
        sound.outcome = VerificationOutcome::Sound;
        (sound.relations, sound.foreign, sound.notes) = (Vec::new(), Vec::new(), Vec::new());
        let text = text(sound, 10);
        assert!(text.starts_with("/var/lib/postgresql/15/main: sound\n\n"), "{text}");
        assert_eq!(text.lines().count(), 6, "{text}");
    }

    #[test]
    fn a_verdict_says_what_was_looked_at_and_what_was_left_out() {
        let mut record = record();
        record.covered = vec!["checksums".into(), "WAL from 0/1000000 to 0/2000000".into()];
        record.outcome = VerificationOutcome::Sound;
        assert_eq!(verdict(&record), "sound: checksums, WAL from 0/1000000 to 0/2000000");
        assert_eq!(coverage_beside_findings(&record), None);
        record.left_out = vec!["rows: not asked for".into()];
        record.outcome = VerificationOutcome::NoDamageSeen;
        let expected = "no damage seen in checksums, WAL from 0/1000000 to 0/2000000; left out: \
                        rows: not asked for";
        assert_eq!(verdict(&record), expected);
        record.outcome = VerificationOutcome::Findings;
        let expected = "looked at: checksums, WAL from 0/1000000 to 0/2000000; left out: rows: not \
                        asked for";
        assert_eq!(coverage_beside_findings(&record).as_deref(), Some(expected));
    }
}
