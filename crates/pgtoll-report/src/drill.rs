//! A backup that was drilled, as text.

use std::fmt::Write as _;

use pgtoll_format::ByteSize;
use pgtoll_record::{
    DrillCheck, DrillFinding, DrillRecord, DrillVerdict, DrilledDatabase, DrilledForm, DrilledKind,
    VerificationOutcome, VerificationRecord,
};

use crate::printable::printable;
use crate::text::wrapped;
use crate::verification::verification_text;

/// For a terminal of 80 columns: of each list so many entries at most.
pub(crate) fn drill_text(of: &DrillRecord, most: usize) -> String {
    let mut text = heading(of);
    text.push('\n');
    for (name, verdict, reason, seconds) in stages(of) {
        let prefix = format!("{name:<10} {:<8} {seconds:>7.1} s  ", verdict_word(verdict));
        text.push_str(&wrapped(&prefix, &printable(reason)));
    }
    text.push_str(&amounts(of));
    text.push_str(&findings(of, most));
    let [backup, restored] = [&of.pages.backup, &of.pages.restored];
    for record in of.pages.members.iter().chain(backup).chain(restored) {
        text.push_str(&files(record, most));
    }
    for tablespace in &of.wal.made_tablespaces {
        let line = format!(
            "the WAL makes tablespace {} in {} at {}: the drill made it in its own directory",
            tablespace.oid, tablespace.path, tablespace.at
        );
        let _ = write!(text, "\n{}", wrapped("", &printable(&line)));
    }
    for note in &of.notes {
        let _ = write!(text, "\n{}", wrapped("", &printable(note)));
    }
    let _ = writeln!(text, "\n{}", outcome_words(of.outcome));
    text
}

/// The three verdicts, with their reasons and the seconds that they took.
pub(crate) fn stages(of: &DrillRecord) -> [(&'static str, DrillVerdict, &String, f64); 3] {
    [
        ("pages", of.pages.verdict, &of.pages.reason, of.pages.seconds),
        ("WAL chain", of.wal.verdict, &of.wal.reason, of.wal.seconds),
        ("start", of.start.verdict, &of.start.reason, of.start.seconds),
    ]
}

/// What was drilled.
pub(crate) fn backup_words(of: &DrillRecord) -> String {
    let kind = match of.backup.kind {
        DrilledKind::BaseBackup => "a base backup",
        DrilledKind::ColdCopy => "the copy of a server that was shut down",
        DrilledKind::WithoutLabel => "a base backup without its label",
    };
    let checksums = match of.backup.checksums {
        Some(true) => ", with checksums",
        Some(false) => ", without checksums",
        None => "",
    };
    let form = match (of.backup.form, &of.backup.packing) {
        (DrilledForm::Directory, _) => String::new(),
        (DrilledForm::Tars, None) => " in tars".to_owned(),
        (DrilledForm::Tars, Some(packing)) => format!(" in tars ({packing})"),
        (DrilledForm::Repository, None) => " in a repository of pgBackRest".to_owned(),
        (DrilledForm::Repository, Some(packing)) => {
            format!(" in a repository of pgBackRest ({packing})")
        }
        (DrilledForm::Chain, _) => chain_words(of.backup.chain.len()),
    };
    let (path, major) = (&of.backup.path, of.backup.major);
    format!("{path}: PostgreSQL {major}, {kind}{form}{checksums}")
}

fn heading(of: &DrillRecord) -> String {
    let verb = match of.backup.form {
        DrilledForm::Directory => "copied",
        DrilledForm::Tars | DrilledForm::Repository => "unpacked",
        DrilledForm::Chain => "combined",
    };
    let mut text = wrapped("", &printable(&backup_words(of)));
    let server = printable(&of.server);
    let line = format!(
        "drilled with PostgreSQL {server}, target {}: {} {verb} in {:.1} s",
        printable(&of.until),
        ByteSize(of.backup.bytes).rounded(),
        of.start.copy_seconds
    );
    text.push_str(&wrapped("", &line));
    text
}

fn chain_words(backups: usize) -> String {
    match backups.saturating_sub(1) {
        1 => ", incremental, with the one before it".to_owned(),
        before => format!(", incremental, with the {before} before it"),
    }
}

fn verdict_word(of: DrillVerdict) -> &'static str {
    match of {
        DrillVerdict::Passed => "passed",
        DrillVerdict::Failed => "FAILED",
        DrillVerdict::Unknown => "unknown",
    }
}

/// What follows from all three.
pub(crate) fn outcome_words(of: VerificationOutcome) -> &'static str {
    match of {
        VerificationOutcome::Sound => "sound: the backup can be restored",
        VerificationOutcome::NoDamageSeen => "no damage seen",
        VerificationOutcome::Findings => "not sound",
        VerificationOutcome::Unverified => "could not tell",
    }
}

/// What was read of each database.
fn amounts(of: &DrillRecord) -> String {
    if of.pages.databases.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n");
    for database in &of.pages.databases {
        let name = printable(&database.name);
        let line = match &database.skipped {
            Some(why) => format!("database {name}: not read, {}", printable(why)),
            None => format!("database {name}: {}", amount_words(database)),
        };
        text.push_str(&wrapped("", &line));
    }
    text
}

/// How much was read of a database.
pub(crate) fn amount_words(of: &DrilledDatabase) -> String {
    let checked =
        |count: Option<u64>, what| count.map_or(String::new(), |count| format!(", {count} {what}"));
    format!(
        "{} tables read{}{}, {:.1} s",
        of.tables,
        checked(of.indexes, "B-trees compared with their tables"),
        checked(of.structures, "tables' rows checked"),
        of.tables_seconds + of.checks_seconds
    )
}

fn findings(of: &DrillRecord, most: usize) -> String {
    let all = &of.pages.findings;
    let (tars, others): (Vec<&DrillFinding>, Vec<&DrillFinding>) =
        all.iter().partition(|finding| finding.check == DrillCheck::Tar);
    let (files, server): (Vec<&DrillFinding>, Vec<&DrillFinding>) =
        others.into_iter().partition(|finding| finding.check == DrillCheck::Repository);
    let lists = [
        ("the tars", tars, 0),
        ("the repository", files, 0),
        ("the restored server", server, of.pages.more_findings),
    ];
    let mut text = String::new();
    for (title, findings, more) in lists.iter().filter(|(_, findings, _)| !findings.is_empty()) {
        let _ = writeln!(text, "\n{title}");
        for finding in findings.iter().take(most) {
            text.push_str(&wrapped("  ", &printable(&finding_line(finding))));
        }
        let hidden = findings.len().saturating_sub(most) as u64 + more;
        if hidden > 0 {
            let _ = writeln!(text, "  ... {hidden} more");
        }
    }
    text
}

/// A finding, with where it was found.
pub(crate) fn finding_line(of: &DrillFinding) -> String {
    let place = match (&of.database, &of.relation) {
        (Some(database), Some(relation)) => format!("{database}: {relation}: "),
        (Some(database), None) => format!("{database}: "),
        (None, _) => String::new(),
    };
    let check = match of.check {
        DrillCheck::Tar | DrillCheck::Repository | DrillCheck::Tablespace | DrillCheck::Connect => {
            ""
        }
        DrillCheck::Read => "cannot be read: ",
        DrillCheck::Index => "amcheck: ",
        DrillCheck::Structure => "rows: ",
    };
    let unread = if of.is_damage { "" } else { " (not the backup's fault: not checked)" };
    format!("{place}{check}{}{unread}", of.words)
}

/// Only what is wrong with them.
fn files(of: &VerificationRecord, most: usize) -> String {
    match of.outcome {
        VerificationOutcome::Sound | VerificationOutcome::NoDamageSeen => String::new(),
        VerificationOutcome::Findings | VerificationOutcome::Unverified => {
            format!("\n{}", verification_text(of, most))
        }
    }
}

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

    #[test]
    fn three_verdicts_then_what_is_wrong() {
        insta::assert_snapshot!(drill_text(&record(), 10));
    }

    #[test]
    fn a_sound_one_is_short() {
        let mut sound = record();
        sound.outcome = VerificationOutcome::Sound;
        sound.pages.verdict = DrillVerdict::Passed;
        "every page is sound".clone_into(&mut sound.pages.reason);
        sound.pages.findings.clear();
        sound.wal.made_tablespaces.clear();
        let text = drill_text(&sound, 10);
        assert!(text.ends_with("\nsound: the backup can be restored\n"), "{text}");
        assert!(!text.contains("the restored server"), "{text}");
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
        let text = drill_text(&damaged, 10);
        assert!(text.contains(", a base backup in tars (gzip), with"), "{text}");
        assert!(text.contains("32.0 MB unpacked in"), "{text}");
        let tars = text.split("\nthe tars\n").nth(1).unwrap();
        assert!(tars.starts_with("  base.tar.gz: ../x leads out of the backup"), "{text}");
        assert!(tars.contains("\nthe restored server\n  postgres: public.orders"), "{text}");
    }
}
