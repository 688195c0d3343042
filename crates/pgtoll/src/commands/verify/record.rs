//! From findings to the record.

use std::collections::BTreeMap;

use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::{ClusterState, Fault};
use pgtoll_record as form;
use pgtoll_record::{Severity, VerificationOutcome, VerificationRecord};
use pgtoll_scan::{
    Class, DataDirectory, Finding, Fork, Layout, Names, RelationName, Verified, WhatIsWrong,
};

use crate::arguments::VerifyArguments;
use crate::commands::measure::quoted;
use crate::commands::wal::relation_name;

pub(super) fn of(
    arguments: &VerifyArguments,
    data: &DataDirectory,
    verified: &Verified,
    names: Option<&Names>,
) -> VerificationRecord {
    let total = verified.total();
    let shown = |path: &std::path::Path| {
        path.strip_prefix(&data.path).unwrap_or(path).display().to_string()
    };
    VerificationRecord {
        schema: form::VERIFICATION_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(arguments),
        made: jiff::Timestamp::now().to_string(),
        source: source(data),
        outcome: outcome(verified),
        interrupted: verified.is_interrupted,
        read: form::VerifiedAmount {
            files: verified.files,
            blocks: verified.pages.blocks,
            new_blocks: verified.pages.new,
            bytes: verified.pages.bytes,
            temporary_files: verified.temporary,
        },
        failures: total.failures,
        suspicions: total.suspicions,
        unverified: total.unverified,
        relations: relations(verified, names),
        names: names.map(|_| format!("the catalogs in {}", data.path.display())),
        foreign: verified.foreign.iter().map(|path| shown(path)).collect(),
        unlisted: verified
            .unlisted
            .iter()
            .map(|(path, error)| format!("{}: {error}", shown(path)))
            .collect(),
        notes: notes(data, verified, names),
    }
}

/// What is wrong weighs more than what could not be read.
fn outcome(verified: &Verified) -> VerificationOutcome {
    let total = verified.total();
    if total.failures + total.suspicions > 0 {
        return VerificationOutcome::Findings;
    }
    if verified.is_whole() { VerificationOutcome::Sound } else { VerificationOutcome::Unverified }
}

fn command(arguments: &VerifyArguments) -> Vec<String> {
    let mut command = vec!["pgtoll".to_owned(), "verify".to_owned()];
    command.extend(arguments.paths.iter().map(|path| quoted(&path.to_string_lossy())));
    for only in &arguments.only {
        command.extend(["--only".to_owned(), quoted(only)]);
    }
    command
}

fn source(data: &DataDirectory) -> form::VerifiedSource {
    form::VerifiedSource {
        path: data.path.display().to_string(),
        backup: data.backup_start.is_some(),
        major: data.major,
        system_identifier: data.control.system_identifier,
        state: data.control.state.to_string(),
        block_bytes: data.control.block_bytes,
        file_blocks: data.control.file_blocks,
        checksums: data.has_checksums(),
        wal_end: data.wal_end(),
    }
}

fn relations(verified: &Verified, names: Option<&Names>) -> Vec<form::VerifiedRelation> {
    let mut findings: BTreeMap<Fork, Vec<&Finding>> = BTreeMap::new();
    for finding in &verified.findings {
        findings.entry(finding.fork).or_default().push(finding);
    }
    let counts = verified.counts.iter();
    counts
        .map(|(fork, counts)| {
            let name = names.and_then(|names| names.relation(fork.relation));
            let of_fork = findings.remove(fork).unwrap_or_default();
            let severity = severity(*fork, name, names);
            form::VerifiedRelation {
                tablespace: fork.relation.tablespace,
                database: fork.relation.database,
                filenode: fork.relation.number,
                fork: fork_name(fork.fork).to_owned(),
                name: name.map(relation_name),
                severity,
                remedy: remedy(severity, name, &of_fork),
                failures: counts.failures,
                suspicions: counts.suspicions,
                unverified: counts.unverified,
                findings: of_fork.into_iter().map(finding).collect(),
            }
        })
        .collect()
}

fn fork_name(fork: u8) -> &'static str {
    match fork {
        0 => "main",
        1 => "fsm",
        2 => "vm",
        _ => "init",
    }
}

fn severity(fork: Fork, name: Option<&RelationName>, names: Option<&Names>) -> Severity {
    let Some(name) = name else {
        // A catalog that could not be read may name it.
        let is_known = names.is_some_and(|names| names.unread().is_empty());
        return if is_known { Severity::Leftover } else { Severity::Unknown };
    };
    match (fork.fork, name.kind) {
        (1 | 2, _) => Severity::Map,
        (_, RelationKind::Index) => Severity::Index,
        _ if name.persistence == Persistence::Unlogged => Severity::Unlogged,
        _ if name.oid < FIRST_OWN_OID => Severity::Catalog,
        _ => Severity::Data,
    }
}

fn remedy(severity: Severity, name: Option<&RelationName>, findings: &[&Finding]) -> String {
    let sql = name.map_or_else(String::new, sql_name);
    let table = name
        .and_then(|name| name.of.as_ref())
        .map_or_else(|| sql.clone(), |table| sql_names(table.schema.as_deref(), &table.relation));
    match severity {
        Severity::Index if name.is_some_and(|name| name.oid < FIRST_OWN_OID) => format!(
            "REINDEX INDEX {sql}; if the server cannot use it, start it with \
             ignore_system_indexes = on"
        ),
        Severity::Index => format!("REINDEX INDEX {sql}"),
        Severity::Map => format!(
            "nothing is lost: the server takes a damaged page of it for an empty one; \
             VACUUM {table} fills it again"
        ),
        Severity::Catalog => {
            "keep a copy of the files; restore from a backup, or bring the pages back from a \
             standby"
                .to_owned()
        }
        Severity::Unlogged => format!("fill {sql} again after TRUNCATE {sql}"),
        Severity::Leftover => {
            "no relation has this file: a leftover of a crash; keep a copy, then it may be removed"
                .to_owned()
        }
        Severity::Unknown => {
            "keep a copy of the file; repair the catalogs first, which say whose it is".to_owned()
        }
        Severity::Data => rows(name, &sql, &table, findings),
    }
}

/// How to find the rows that were hit, and to save the others.
fn rows(name: Option<&RelationName>, sql: &str, table: &str, findings: &[&Finding]) -> String {
    match name.map(|name| name.kind) {
        Some(RelationKind::Sequence) => {
            format!("make the sequence {sql} again, beyond the highest number in use")
        }
        Some(RelationKind::MaterializedView) => format!("REFRESH MATERIALIZED VIEW {sql}"),
        Some(RelationKind::Toast) => format!(
            "restore from a backup or a standby; long values of {table} are hit: they cannot be \
             read, or are missing"
        ),
        _ => {
            let blocks = findings.iter().map(|finding| finding.block);
            let (first, last) = (blocks.clone().min().unwrap_or(0), blocks.max().unwrap_or(0));
            let behind = u64::from(last) + 1;
            format!(
                "restore from a backup or a standby; else save what is beside the blocks: SELECT \
                 * FROM {sql} WHERE ctid < '({first},0)' OR ctid >= '({behind},0)'"
            )
        }
    }
}

fn sql_name(name: &RelationName) -> String {
    sql_names(name.schema.as_deref(), &name.relation)
}

fn sql_names(schema: Option<&str>, name: &str) -> String {
    match schema {
        Some(schema) => format!("{}.{}", identifier(schema), identifier(name)),
        None => identifier(name),
    }
}

/// In quotes where SQL needs them.
fn identifier(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_plain = name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit());
    if is_plain && !name.is_empty() {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn finding(of: &Finding) -> form::PageFinding {
    let (stored, computed) = match of.what {
        WhatIsWrong::Invalid { fault: Fault::Checksum { stored, computed, .. }, .. } => {
            (Some(stored), Some(computed))
        }
        _ => (None, None),
    };
    let lsn = match of.what {
        WhatIsWrong::Invalid { lsn, .. } | WhatIsWrong::AheadOfWal { lsn } => Some(lsn),
        _ => None,
    };
    let (kind, words) = words(&of.what);
    form::PageFinding {
        block: of.block,
        blocks: match of.what {
            WhatIsWrong::Unreadable { blocks, .. } => blocks,
            _ => 1,
        },
        class: match of.what.class() {
            Class::Failure => form::FindingClass::Failure,
            Class::Suspicion => form::FindingClass::Suspicion,
            Class::Unverified => form::FindingClass::Unverified,
        },
        kind,
        words,
        stored_checksum: stored,
        computed_checksum: computed,
        lsn,
    }
}

fn words(of: &WhatIsWrong) -> (form::FindingKind, String) {
    use form::FindingKind as Kind;
    let (kind, words) = match of {
        WhatIsWrong::Invalid {
            fault: Fault::Checksum { header_is_plausible: true, .. }, ..
        } => (Kind::Checksum, "wrong checksum"),
        WhatIsWrong::Invalid { fault: Fault::Checksum { .. }, .. } => {
            (Kind::Checksum, "wrong checksum, impossible header")
        }
        WhatIsWrong::Invalid { fault: Fault::Header, .. } => (Kind::Header, "impossible header"),
        WhatIsWrong::Invalid { fault: Fault::NotZero, .. } => {
            (Kind::NotZero, "never used by its header, yet not zero")
        }
        WhatIsWrong::AheadOfWal { lsn } => {
            return (Kind::AheadOfWal, format!("LSN {lsn} is beyond the end of WAL"));
        }
        WhatIsWrong::ZeroButVisible => {
            (Kind::ZeroButVisible, "zero, though the visibility map knows rows on it")
        }
        WhatIsWrong::ZeroFirst => (Kind::ZeroFirst, "zero, though never the first page is"),
        WhatIsWrong::Layout(layout) => return layout_words(*layout),
        WhatIsWrong::Unreadable { error, .. } => return (Kind::Unreadable, error.clone()),
        WhatIsWrong::Changed => (Kind::Changed, "the file became shorter while it was read"),
    };
    (kind, words.to_owned())
}

fn layout_words(of: Layout) -> (form::FindingKind, String) {
    use form::FindingKind as Kind;
    match of {
        Layout::EndsInBlock { bytes } => {
            (Kind::EndsInBlock, format!("the file ends within the block, after {bytes} bytes"))
        }
        Layout::Short { segment } => {
            (Kind::ShortFile, format!("file {segment} is not full, and another one follows"))
        }
        Layout::TooLong { segment } => {
            (Kind::LongFile, format!("file {segment} is longer than files are"))
        }
        Layout::Missing { segment, count: 1 } => {
            (Kind::MissingFile, format!("file {segment} is missing, and another one follows"))
        }
        Layout::Missing { segment, count } => {
            (Kind::MissingFile, format!("{count} files from {segment} on are missing"))
        }
        Layout::VisibleBeyondEnd => (
            Kind::VisibleBeyondEnd,
            "missing, though the visibility map knows rows on it".to_owned(),
        ),
        Layout::NoFile => (Kind::NoFile, "the relation has no file".to_owned()),
        Layout::Empty => (Kind::EmptyFile, "the file is empty, as none of its kind is".to_owned()),
    }
}

fn notes(data: &DataDirectory, verified: &Verified, names: Option<&Names>) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: &str| notes.push(text.to_owned());
    match data.control.checksum_version {
        0 => note("the cluster has no checksums: only page headers were checked"),
        1 => {}
        _ => note(
            "checksums are being turned on or off: they cannot be relied on, and only page \
             headers were checked",
        ),
    }
    if data.backup_start.is_some() {
        note(
            "a base backup: pages that the server wrote while they were copied may fail here, and \
             recovery replaces them; restore it and let it recover to be sure. Missing files, \
             LSNs and visibility maps are not compared",
        );
    } else if data.control.state != ClusterState::ShutDown {
        note(
            "the server was not stopped in good order: its recovery may replace pages that fail \
             here, and visibility maps are not compared; start it, stop it, and verify again",
        );
    }
    if verified.incremental > 0 {
        notes.push(format!(
            "an incremental backup: {} of its files hold only changed blocks and were not read; \
             combine it with pg_combinebackup first",
            verified.incremental
        ));
    }
    if verified.pages.blocks > 0 && names.is_none() {
        notes.push("relations have no names: the catalogs were not read".to_owned());
    }
    if let Some(unread) = names.map(Names::unread).filter(|unread| !unread.is_empty()) {
        notes.push(format!("some names are missing: {unread}"));
    }
    notes
}

/// OIDs below are of what `initdb` makes (`FirstNormalObjectId`).
const FIRST_OWN_OID: u32 = 16384;
