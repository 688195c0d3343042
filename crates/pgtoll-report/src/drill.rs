//! A backup that was drilled.

use pgtoll_format::{ByteSize, Lsn};
use pgtoll_record::{
    DrillCheck, DrillFinding, DrillRecord, DrillVerdict, DrilledDatabase, DrilledForm, DrilledKind,
    DrilledMember, DrilledTablespace, LoggedTablespace, PrintedRecord as _, VerificationOutcome,
    VerificationRecord,
};

use crate::document::{Block, Document, Section, Table};
use crate::plugin::{PluginFacts, PluginFigure};
use crate::records::{ReportedRecord, TableOptions};
use crate::verification;

impl ReportedRecord for DrillRecord {
    const IS_CHECK: bool = true;

    fn check(&self) -> Option<PluginFacts> {
        let bytes = PluginFigure::bytes("restored", self.backup.bytes);
        Some(PluginFacts { made: self.made.parse().ok(), figures: vec![bytes] })
    }

    /// The three verdicts, what was read and what is wrong.
    fn document(&self, options: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll verify --drill",
            question: "Can the backup be restored?",
            subject: subject(self),
            answer: vec![outcome_words(self.outcome).to_owned()],
            findings: self.conclusion().sentences(),
            sections: vec![Section::detail("The three verdicts", vec![stages(self)])],
            notes: self.wal.made_tablespaces.iter().map(made_words).collect(),
            again: self.command.clone(),
        };
        document.notes.extend(self.notes.iter().cloned());
        let databases = self.pages.databases.iter().map(|database| {
            let words = match &database.skipped {
                Some(why) => format!("not read, {why}"),
                None => amount_words(database),
            };
            (database.name.clone(), words)
        });
        document.push(facts("Databases", databases.collect()));
        document.sections.extend(findings(self, options.most));
        document.sections.extend(files(self, options));
        document.push(Section::evidence("What was restored, and how", restored(self)));
        document
    }
}

/// Names with their values; `None` where there are none.
fn facts(title: &str, facts: Vec<(String, String)>) -> Option<Section> {
    (!facts.is_empty()).then(|| Section::detail(title, vec![Block::Facts(facts)]))
}

/// The three verdicts, with the seconds that they took and their reasons.
fn stages(drill: &DrillRecord) -> Block {
    let stages = [
        ("pages", drill.pages.verdict, &drill.pages.reason, drill.pages.seconds),
        ("WAL chain", drill.wal.verdict, &drill.wal.reason, drill.wal.seconds),
        ("start", drill.start.verdict, &drill.start.reason, drill.start.seconds),
    ];
    let fact = |(name, verdict, reason, seconds): (&str, DrillVerdict, &String, f64)| {
        let name = format!("{name:<10} {:<8} {seconds:>7.1} s", verdict_word(verdict));
        (name, reason.clone())
    };
    Block::Facts(stages.map(fact).into())
}

fn made_words(tablespace: &LoggedTablespace) -> String {
    format!(
        "the WAL makes tablespace {} in {} at {}: the drill made it in its own directory",
        tablespace.oid, tablespace.path, tablespace.at
    )
}

/// Returns the drilled backup.
fn backup_words(drill: &DrillRecord) -> String {
    let kind = match drill.backup.kind {
        DrilledKind::BaseBackup => "a base backup",
        DrilledKind::ColdCopy => "the copy of a server that was shut down",
        DrilledKind::WithoutLabel => "a base backup without its label",
    };
    let checksums = match drill.backup.checksums {
        Some(true) => ", with checksums",
        Some(false) => ", without checksums",
        None => "",
    };
    let form = match (drill.backup.form, &drill.backup.packing) {
        (DrilledForm::Directory, _) => String::new(),
        (DrilledForm::Tars, None) => " in tars".to_owned(),
        (DrilledForm::Tars, Some(packing)) => format!(" in tars ({packing})"),
        (DrilledForm::Repository, None) => " in a repository of pgBackRest".to_owned(),
        (DrilledForm::Repository, Some(packing)) => {
            format!(" in a repository of pgBackRest ({packing})")
        }
        (DrilledForm::Chain, _) => chain_words(drill.backup.chain.len()),
    };
    let path = &drill.backup.path;
    let major = drill.backup.major;
    format!("{path}: PostgreSQL {major}, {kind}{form}{checksums}")
}

/// Returns the drilled backup and its restore.
fn subject(drill: &DrillRecord) -> String {
    let verb = match drill.backup.form {
        DrilledForm::Directory => "copied",
        DrilledForm::Tars | DrilledForm::Repository => "unpacked",
        DrilledForm::Chain => "combined",
    };
    format!(
        "{}. Drilled with PostgreSQL {}, target {}: {} {verb} in {:.1} s.",
        backup_words(drill),
        drill.server,
        drill.until,
        ByteSize(drill.backup.bytes).rounded(),
        drill.start.copy_seconds
    )
}

fn chain_words(backups: usize) -> String {
    match backups.saturating_sub(1) {
        1 => ", incremental, with the one before it".to_owned(),
        before => format!(", incremental, with the {before} before it"),
    }
}

fn verdict_word(verdict: DrillVerdict) -> &'static str {
    match verdict {
        DrillVerdict::Passed => "passed",
        DrillVerdict::Failed => "FAILED",
        DrillVerdict::Unknown => "unknown",
    }
}

/// Returns the outcome of all three.
fn outcome_words(outcome: VerificationOutcome) -> &'static str {
    match outcome {
        VerificationOutcome::Sound => "Sound: the backup can be restored.",
        VerificationOutcome::NoDamageSeen => "No damage seen.",
        VerificationOutcome::Findings => "Not sound.",
        VerificationOutcome::Unverified => "Could not tell.",
    }
}

/// How much was read of a database.
fn amount_words(database: &DrilledDatabase) -> String {
    let checked = |count: Option<u64>, label| {
        count.map_or(String::new(), |count| format!(", {count} {label}"))
    };
    format!(
        "{} tables read{}{}, {:.1} s",
        database.tables,
        checked(database.indexes, "B-trees compared with their tables"),
        checked(database.structures, "tables' rows checked"),
        database.tables_seconds + database.checks_seconds
    )
}

/// Findings in the tars, in the repository and of the server, at most `most` of each.
fn findings(drill: &DrillRecord, most: usize) -> Vec<Section> {
    let of_check = |checks: &[DrillCheck]| {
        let own = drill.pages.findings.iter().filter(|finding| checks.contains(&finding.check));
        own.map(finding_line).collect::<Vec<String>>()
    };
    let server = [DrillCheck::Tablespace, DrillCheck::Connect, DrillCheck::Read, DrillCheck::Index];
    let server = [&server[..], &[DrillCheck::Structure]].concat();
    let lists = [
        ("The tars", of_check(&[DrillCheck::Tar]), 0),
        ("The repository", of_check(&[DrillCheck::Repository]), 0),
        ("The restored server", of_check(&server), drill.pages.more_findings),
    ];
    let section = |(title, mut lines, more): (&str, Vec<String>, u64)| {
        let hidden = lines.len().saturating_sub(most) as u64 + more;
        lines.truncate(most);
        lines.extend((hidden > 0).then(|| format!("... {hidden} more")));
        (!lines.is_empty()).then(|| Section::detail(title, vec![Block::List(lines)]))
    };
    lists.into_iter().filter_map(section).collect()
}

/// A finding, with where it was found.
fn finding_line(finding: &DrillFinding) -> String {
    let place = match (&finding.database, &finding.relation) {
        (Some(database), Some(relation)) => format!("{database}: {relation}: "),
        (Some(database), None) => format!("{database}: "),
        (None, _) => String::new(),
    };
    let check = match finding.check {
        DrillCheck::Tar | DrillCheck::Repository | DrillCheck::Tablespace | DrillCheck::Connect => {
            ""
        }
        DrillCheck::Read => "cannot be read: ",
        DrillCheck::Index => "amcheck: ",
        DrillCheck::Structure => "rows: ",
    };
    let unread = if finding.is_damage { "" } else { " (not the backup's fault: not checked)" };
    let sqlstate = finding
        .sqlstate
        .as_ref()
        .map_or_else(String::new, |sqlstate| format!(" (SQLSTATE {sqlstate})"));
    format!("{place}{check}{}{sqlstate}{unread}", finding.words)
}

/// The faults of the files of each part, of the backup and of the restored cluster.
fn files(drill: &DrillRecord, options: &TableOptions) -> Vec<Section> {
    let members = drill.pages.members.iter();
    let members = members.map(|record| (format!("Files of {}", record.source.path), record));
    let backup = drill.pages.backup.iter().map(|record| ("Files of the backup".to_owned(), record));
    let restored = drill.pages.restored.iter();
    let restored = restored.map(|record| ("Files of the restored cluster".to_owned(), record));
    let is_wrong = |record: &VerificationRecord| {
        !matches!(record.outcome, VerificationOutcome::Sound | VerificationOutcome::NoDamageSeen)
    };
    let sections = |(title, record): (String, &VerificationRecord)| {
        let verdict = Section::detail(&title, vec![Block::List(verification::answer(record))]);
        let damage = verification::damage_sections(record, &format!(" ({title})"), options);
        std::iter::once(verdict).chain(damage).collect::<Vec<_>>()
    };
    let all = members.chain(backup).chain(restored);
    all.filter(|(_, record)| is_wrong(record)).flat_map(sections).collect()
}

fn restored(drill: &DrillRecord) -> Vec<Block> {
    let bytes = |bytes| ByteSize(bytes).rounded();
    let needed = bytes(drill.disk.needed_bytes);
    let free = bytes(drill.disk.free_bytes);
    let mut known = vec![
        ("disk", format!("{needed} at most, of {free} free")),
        ("WAL from", drill.wal.sources.join(", ")),
        ("segments", drill.wal.segments.to_string()),
        ("recovery begins at", lsn_words(drill.wal.start)),
        ("the backup ends at", lsn_words(drill.wal.stop)),
        ("WAL is whole up to", lsn_words(drill.wal.read_to)),
    ];
    let identifier = drill.backup.system_identifier.iter();
    known.extend(identifier.map(|identifier| ("system identifier", identifier.clone())));
    let known = known.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut blocks = vec![Block::Facts(known)];
    let member = |member: &DrilledMember| {
        let from = member.incremental_from.map_or_else(|| "full".to_owned(), |lsn| lsn.to_string());
        vec![member.path.clone(), lsn_words(member.start), from]
    };
    let tablespace = |tablespace: &DrilledTablespace| {
        vec![
            tablespace.oid.to_string(),
            tablespace.path.clone().unwrap_or_else(|| "missing".to_owned()),
        ]
    };
    let tables = [
        Table::new(
            &["backup of the chain", "begins at", "taken from"],
            drill.backup.chain.iter().take(MOST).map(member).collect(),
        ),
        Table::new(
            &["tablespace", "files"],
            drill.backup.tablespaces.iter().take(MOST).map(tablespace).collect(),
        ),
    ];
    let tables = tables.into_iter().filter(|table| !table.rows.is_empty());
    blocks.extend(tables.map(Block::Table));
    if let Some(words) = &drill.start.last_words {
        blocks.push(Block::Paragraph("The server’s last words:".to_owned()));
        blocks.push(Block::Code(words.lines().map(str::to_owned).collect()));
    }
    blocks
}

fn lsn_words(lsn: Option<Lsn>) -> String {
    lsn.map_or_else(|| "unknown".to_owned(), |lsn| lsn.to_string())
}

/// Rows of each table; JSON has more.
const MOST: usize = 200;

#[cfg(test)]
pub(crate) mod tests {
    use pgtoll_format::Lsn;
    use pgtoll_record::{
        DRILL_SCHEMA, DrillDisk, DrillPages, DrillStart, DrillWal, DrilledBackup, LoggedTablespace,
    };

    use super::*;

    pub(crate) fn record() -> DrillRecord {
        let database = |name: &str, skipped: Option<&str>| DrilledDatabase {
            name: name.to_owned(),
            tables: 71,
            indexes: Some(104),
            structures: Some(90),
            skipped: skipped.map(str::to_owned),
            tables_seconds: 1.25,
            checks_seconds: 2.0,
        };
        DrillRecord {
            schema: DRILL_SCHEMA.to_owned(),
            pgtoll: "0".to_owned(),
            command: vec!["pgtoll".to_owned()],
            made: "2026-11-26T05:00:00Z".to_owned(),
            backup: DrilledBackup {
                path: "/srv/backup".to_owned(),
                kind: DrilledKind::BaseBackup,
                form: DrilledForm::Directory,
                packing: None,
                chain: Vec::new(),
                major: 18,
                system_identifier: Some("7".to_owned()),
                checksums: Some(true),
                bytes: 32 << 20,
                tablespaces: Vec::new(),
            },
            server: "18.6".to_owned(),
            until: "consistency".to_owned(),
            outcome: VerificationOutcome::Findings,
            disk: DrillDisk { needed_bytes: 1 << 28, free_bytes: 1 << 30 },
            pages: DrillPages {
                verdict: DrillVerdict::Failed,
                reason: "1 finding of the restored server".to_owned(),
                seconds: 4.04,
                members: Vec::new(),
                backup: None,
                restored: None,
                databases: vec![
                    database("postgres", None),
                    database("template0", Some("it takes no connections")),
                ],
                findings: vec![DrillFinding {
                    database: Some("postgres".to_owned()),
                    relation: Some("public.orders".to_owned()),
                    check: DrillCheck::Read,
                    is_damage: true,
                    words: "invalid page in block 3 of relation base/5/16384".to_owned(),
                    sqlstate: Some("XX001".to_owned()),
                }],
                more_findings: 2,
            },
            wal: DrillWal {
                verdict: DrillVerdict::Passed,
                reason: "whole from 0/2000028 to 0/2000138".to_owned(),
                seconds: 0.02,
                sources: vec!["/srv/backup/pg_wal".to_owned()],
                timeline: Some(1),
                start: Some(Lsn(0x0200_0028)),
                stop: Some(Lsn(0x0200_0138)),
                read_to: Some(Lsn(0x0200_0138)),
                segments: 1,
                made_tablespaces: vec![LoggedTablespace {
                    at: Lsn(0x0200_0100),
                    oid: 16_500,
                    path: "/srv/fast".to_owned(),
                }],
            },
            start: DrillStart {
                verdict: DrillVerdict::Passed,
                reason: "it recovered, served and stopped".to_owned(),
                seconds: 0.61,
                copy_seconds: 0.2,
                recovered_to: Some(Lsn(0x0200_0138)),
                last_words: None,
            },
            notes: Vec::new(),
        }
    }

    fn text(drill: &DrillRecord) -> String {
        drill.text(&TableOptions { most: 10, ..TableOptions::default() })
    }

    #[test]
    fn three_verdicts_then_what_is_wrong() {
        insta::assert_snapshot!(text(&record()));
    }

    #[test]
    fn a_sound_one_is_short() {
        let mut sound = record();
        sound.outcome = VerificationOutcome::Sound;
        sound.pages.verdict = DrillVerdict::Passed;
        "every page is sound".clone_into(&mut sound.pages.reason);
        sound.pages.findings.clear();
        sound.pages.more_findings = 0;
        let text = text(&sound);
        assert!(text.starts_with("Sound: the backup can be restored.\n"), "{text}");
        assert!(!text.contains("The restored server"), "{text}");
    }

    #[test]
    fn what_is_wrong_with_tars_stands_apart() {
        let mut damaged = record();
        damaged.backup.form = DrilledForm::Tars;
        damaged.backup.packing = Some("gzip".to_owned());
        damaged.pages.findings.insert(
            0,
            DrillFinding {
                database: None,
                relation: None,
                check: DrillCheck::Tar,
                is_damage: true,
                words: "base.tar.gz: ../x leads out of the backup: not unpacked".to_owned(),
                sqlstate: None,
            },
        );
        let text = text(&damaged);
        assert!(text.contains(", a base backup in tars (gzip), with"), "{text}");
        let tars = text.split("\nThe tars\n").nth(1).unwrap();
        assert!(tars.starts_with("  - base.tar.gz: ../x leads out of the backup"), "{text}");
        assert!(tars.contains("\nThe restored server\n  - postgres: public.orders"), "{text}");
    }

    #[test]
    fn files_that_are_damaged_are_named() {
        let mut damaged = record();
        damaged.pages.backup = Some(verification::tests::record());
        damaged.backup.path = "<script>".to_owned();
        damaged.start.last_words = Some("<b>".to_owned());
        let page = damaged.html();
        crate::html::tests::assert_well_formed(&page);
        assert!(page.contains("Files of the backup"), "{page}");
        assert!(!page.contains("<script>:") && !page.contains("<b>"), "a path is text");
    }
}
