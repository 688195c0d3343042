//! What verification found, as a table. Its other formats share its words.

mod gauges;
mod markdown;

pub(crate) use gauges::verification_openmetrics;
pub(crate) use markdown::verification_markdown;

use std::fmt::Write as _;

use pgtoll_format::ByteSize;
use pgtoll_record::{
    Advice, CommandKind, FindingClass, PageFinding, Severity, VerificationOutcome,
    VerificationRecord, VerifiedRelation,
};

use crate::printable::printable;
use crate::text::wrapped;

/// For a terminal of 80 columns: of each fork so many findings at most.
pub(crate) fn verification_text(of: &VerificationRecord, most: usize) -> String {
    let mut text = heading(of);
    for reason in &of.incomplete {
        text.push_str(&wrapped("", &printable(reason)));
    }
    text.push_str(&files(of, most));
    for relation in &of.relations {
        text.push_str(&relation_text(relation, most));
    }
    text.push_str(&list("could not be looked into", &of.unlisted, most));
    text.push_str(&list("not PostgreSQL's, and not read", &of.foreign, most));
    for note in &of.notes {
        let _ = write!(text, "\n{}", wrapped("", note));
    }
    text
}

fn heading(of: &VerificationRecord) -> String {
    let path = printable(&of.source.path);
    let mut text = wrapped("", &format!("{path}: {}", verdict(of)));
    if let Some(words) = coverage_beside_findings(of) {
        text.push_str(&wrapped("", &words));
    }
    let _ = write!(text, "\n{}", wrapped("", &source_words(of)));
    text.push_str(&wrapped("", &amount_words(of)));
    if let Some(words) = running_words(of) {
        text.push_str(&wrapped("", &words));
    }
    text
}

/// What was verified, without its path.
pub(crate) fn source_words(of: &VerificationRecord) -> String {
    let source = &of.source;
    let what = if source.backup { "a base backup" } else { source.state.as_str() };
    let form = source.form.as_ref().map_or(String::new(), |form| format!(" ({form})"));
    let version = match source.major {
        0 => "unknown version".to_owned(),
        major => format!("PostgreSQL {major}"),
    };
    let checksums = if source.checksums { "with checksums" } else { "without checksums" };
    format!("{version}, {what}{form}, {checksums}")
}

/// How much was read.
pub(crate) fn amount_words(of: &VerificationRecord) -> String {
    let read = &of.read;
    format!(
        "{} in {}, {} of them all zeros; {} read",
        counted(read.blocks, "block"),
        counted(read.files, "file"),
        read.new_blocks,
        ByteSize(read.bytes).rounded()
    )
}

/// What came out; where nothing wrong was found, also what was looked at.
pub(crate) fn verdict(of: &VerificationRecord) -> String {
    let sums = sums(of.failures, of.suspicions, of.unverified);
    let files = match of.wrong_files {
        0 => String::new(),
        count => format!(", {}", counted_as(count, "wrong file", "wrong files")),
    };
    let covered = of.covered.join(", ");
    let outcome = match of.outcome {
        // Records before coverage was kept.
        VerificationOutcome::Sound if covered.is_empty() => "sound".to_owned(),
        VerificationOutcome::Sound => format!("sound: {covered}"),
        VerificationOutcome::NoDamageSeen => {
            format!("no damage seen in {covered}; left out: {}", of.left_out.join("; "))
        }
        VerificationOutcome::Findings => format!("{sums}{files}"),
        VerificationOutcome::Unverified => format!("incomplete: {sums}{files}"),
    };
    let interrupted = if of.interrupted { "interrupted; so far " } else { "" };
    format!("{interrupted}{outcome}")
}

/// What was looked at, where the verdict does not say it.
pub(crate) fn coverage_beside_findings(of: &VerificationRecord) -> Option<String> {
    let is_in_verdict =
        matches!(of.outcome, VerificationOutcome::Sound | VerificationOutcome::NoDamageSeen);
    if is_in_verdict || of.covered.is_empty() {
        return None;
    }
    let left_out = match of.left_out.as_slice() {
        [] => String::new(),
        left_out => format!("; left out: {}", left_out.join("; ")),
    };
    Some(format!("looked at: {}{left_out}", of.covered.join(", ")))
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

/// Files that are missing or wrong; nothing where none is.
fn files(of: &VerificationRecord, most: usize) -> String {
    if of.wrong_files == 0 {
        return String::new();
    }
    let mut text = "\nfiles that are missing or wrong\n".to_owned();
    for file in of.files.iter().take(most) {
        let line = format!("{}: {}", printable(&file.path), printable(&file.words));
        text.push_str(&wrapped("  ", &line));
    }
    let shown = of.files.len().min(most) as u64;
    if let Some(more) = of.wrong_files.checked_sub(shown).filter(|more| *more > 0) {
        let _ = writeln!(text, "  ... {more} more");
    }
    text
}

/// What a server did meanwhile; `None` where it did nothing.
pub(crate) fn running_words(of: &VerificationRecord) -> Option<String> {
    let running = of.running.as_ref().filter(|of| of.suspects > 0 || of.dropped > 0)?;
    let parts = [
        (running.suspects, "looked damaged at first"),
        (running.healed, "sound when read again"),
        (running.in_flight, "in flight"),
        (running.dropped, "gone meanwhile"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    Some(format!("while the server ran: {}", parts.join(", ")))
}

fn relation_text(of: &VerifiedRelation, most: usize) -> String {
    let mut text = format!("\n{}", wrapped("", &title(of)));
    let _ = writeln!(text, "{:>12} {:<10} {:>6} {:>8}  ", "block", "class", "stored", "computed");
    text.truncate(text.trim_end().len());
    text.push('\n');
    for finding in of.findings.iter().take(most) {
        text.push_str(&row(finding));
    }
    if let Some(more) = more_findings(of, most) {
        let _ = writeln!(text, "{:>12} {more} more", "...");
    }
    text.push_str(&to_do(of));
    text
}

/// How many there are beyond the first `most`; `None`: none.
pub(crate) fn more_findings(of: &VerifiedRelation, most: usize) -> Option<u64> {
    let all = of.failures.saturating_add(of.suspicions).saturating_add(of.unverified);
    // A suspicion counts once, whatever blocks it is about.
    let blocks = |finding: &PageFinding| match finding.class {
        FindingClass::Unverified | FindingClass::Failure => u64::from(finding.blocks),
        FindingClass::Suspicion => 1,
    };
    let shown: u64 = of.findings.iter().take(most).map(blocks).sum();
    all.checked_sub(shown).filter(|more| *more > 0)
}

/// The steps with their commands, which are to be copied: they are not wrapped.
fn to_do(of: &VerifiedRelation) -> String {
    if of.advice.is_empty() {
        return wrapped("  to do: ", &of.remedy);
    }
    steps("to do:", &of.advice)
}

/// Steps with their commands, the first with this label.
pub(crate) fn steps(first: &str, advice: &[Advice]) -> String {
    let mut text = String::new();
    for (number, Advice { what, command, kind, database }) in (1..).zip(advice) {
        let label = if number == 1 { first } else { "" };
        let number = if advice.len() > 1 { format!("{number}. ") } else { String::new() };
        let prefix = format!("  {label:<6} {number}");
        let place = database.as_ref().filter(|_| *kind == Some(CommandKind::Sql));
        let place = place.map(|of| format!(" (in database {})", printable(of))).unwrap_or_default();
        let end = if command.is_some() { ":" } else { "" };
        text.push_str(&wrapped(&prefix, &format!("{what}{place}{end}")));
        for line in command.iter().flat_map(|command| command.lines()) {
            let _ = writeln!(text, "{:12}{}", "", printable(line));
        }
    }
    text
}

fn title(of: &VerifiedRelation) -> String {
    let severity = severity(of.severity);
    match qualified(of) {
        None => format!("{}: {severity}", place(of)),
        Some(name) => format!("{} ({}): {severity}", printable(&name), place(of)),
    }
}

/// The relation's name with schema and database; `None`: unknown.
pub(crate) fn qualified(of: &VerifiedRelation) -> Option<String> {
    of.name.as_ref().map(ToString::to_string)
}

/// What it is, in which file and fork.
pub(crate) fn place(of: &VerifiedRelation) -> String {
    let file = of.path.as_ref().map_or_else(
        || format!("files {}/{}/{}", of.tablespace, of.database, of.filenode),
        |path| format!("file {}", printable(path)),
    );
    let fork = if of.fork == "main" { String::new() } else { format!(", fork {}", of.fork) };
    let kind = of.name.as_ref().map_or(String::new(), |name| {
        let whose = name.of.as_ref();
        let whose = whose.map_or(String::new(), |table| format!(" of {}", printable(table)));
        format!("{}{whose}, ", name.kind)
    });
    format!("{kind}{file}{fork}")
}

pub(crate) fn severity(of: Severity) -> &'static str {
    match of {
        Severity::Data => "data",
        Severity::Catalog => "a catalog",
        Severity::Index => "an index, which can be made again",
        Severity::Map => "a map, which the server makes again",
        Severity::Unlogged => "not logged: a crash empties it",
        Severity::Leftover => "a leftover that no relation uses",
        Severity::Unknown => "owner unknown",
    }
}

pub(crate) fn class(of: FindingClass) -> &'static str {
    match of {
        FindingClass::Failure => "failure",
        FindingClass::Suspicion => "suspicion",
        FindingClass::Unverified => "unverified",
    }
}

/// The block, or the first and last of several.
pub(crate) fn blocks(of: &PageFinding) -> String {
    match of.blocks {
        0 | 1 => of.block.to_string(),
        blocks => format!("{}-{}", of.block, of.block.saturating_add(blocks - 1)),
    }
}

/// In decimal, as the server's log and `page show` have them.
pub(crate) fn checksum(of: Option<u16>) -> String {
    of.map_or("-".to_owned(), |of| of.to_string())
}

fn row(of: &PageFinding) -> String {
    let (block, class) = (blocks(of), class(of.class));
    let (stored, computed) = (checksum(of.stored_checksum), checksum(of.computed_checksum));
    wrapped(&format!("{block:>12} {class:<10} {stored:>6} {computed:>8}  "), &printable(&of.words))
}

fn list(title: &str, of: &[String], most: usize) -> String {
    if of.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}: {}\n", counted(of.len() as u64, "entry"));
    for entry in of.iter().take(most) {
        let _ = writeln!(text, "  {}", printable(entry));
    }
    if of.len() > most {
        let _ = writeln!(text, "  ... {} more", of.len() - most);
    }
    text
}

fn counted(count: u64, what: &str) -> String {
    let plural = what.strip_suffix('y').map_or_else(|| format!("{what}s"), |of| format!("{of}ies"));
    counted_as(count, what, &plural)
}

fn counted_as(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

#[cfg(test)]
pub(crate) mod tests {
    use pgtoll_format::Lsn;
    use pgtoll_record::{
        FileFinding, FileFindingKind, FindingKind, VERIFICATION_SCHEMA, VerifiedAmount,
        VerifiedSource,
    };

    use pgtoll_record::WalRelationName;

    use super::*;

    fn finding(block: u32, class: FindingClass, words: &str) -> PageFinding {
        let checksum = (class == FindingClass::Failure).then_some(0x1A2B);
        PageFinding {
            block,
            blocks: if class == FindingClass::Unverified { 16 } else { 1 },
            class,
            kind: FindingKind::Checksum,
            words: words.into(),
            stored_checksum: checksum,
            computed_checksum: checksum.map(|of| of + 1),
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

    #[test]
    fn findings_are_shown_in_80_columns() {
        let text = verification_text(&record(), 3);
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
        let text = verification_text(&backup, 1);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("0 unverified blocks, 605 wrong files"), "{text}");
        let expected = "\nglobal/pg_control is missing\n\n\
            files that are missing or wrong\n  base/5/\\u{1b}1: missing\n  ... 604 more\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_backups_form_is_said() {
        let mut backup = record();
        (backup.source.backup, backup.source.major) = (true, 0);
        backup.source.form = Some("tar, zstd".into());
        let text = verification_text(&backup, 3);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("unknown version, a base backup (tar, zstd),"), "{text}");
    }

    #[test]
    fn what_is_sound_is_said_in_three_lines() {
        let mut sound = record();
        sound.outcome = VerificationOutcome::Sound;
        (sound.relations, sound.foreign, sound.notes) = (Vec::new(), Vec::new(), Vec::new());
        let text = verification_text(&sound, 10);
        assert!(text.starts_with("/var/lib/postgresql/15/main: sound\n\n"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
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
