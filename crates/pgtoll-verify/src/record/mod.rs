//! From findings to the record.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use pgtoll_datadir::{DataDirectory, Names, RelationName, control_file};
use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::wal::Fork;
use pgtoll_format::{ClusterState, Fault};
use pgtoll_record as form;
use pgtoll_record::{Severity, VerificationOutcome, VerificationRecord};
use pgtoll_verify::{
    Class, Counts, Evidence, Finding, Layout, Unsettled, Verified, WalAtHand, WhatIsWrong,
};

use super::online::Attached;
use crate::arguments::VerifyArguments;
use crate::commands::wal::relation_name;
use pgtoll_format::shell_quoted;

use super::advice::{self, Cluster, Damage, FIRST_OWN_OID, Place};
use super::{evidence, files};

pub(super) fn of(
    arguments: &VerifyArguments,
    data: &DataDirectory,
    verified: &Verified,
    names: Option<&Names>,
    wal: WalAtHand,
) -> VerificationRecord {
    let notes = notes(data, verified, names, wal);
    assembled(arguments, &data.path, source(data), verified, names, None, notes)
}

/// Of a data directory on which a server runs.
pub(super) fn of_running(
    arguments: &VerifyArguments,
    data: &DataDirectory,
    verified: &Verified,
    names: Option<&Names>,
    attached: &Attached,
) -> VerificationRecord {
    let notes = running_notes(data, verified, names, attached);
    let running = Some(during(verified, attached));
    let mut record =
        assembled(arguments, &data.path, source(data), verified, names, running, notes);
    if let Some(server) = attached.server().filter(|_| names.is_some()) {
        record.names = Some(format!("the server {server}"));
    }
    record
}

/// Of whatever has pages.
pub(super) fn assembled(
    arguments: &VerifyArguments,
    path: &Path,
    source: form::VerifiedSource,
    verified: &Verified,
    names: Option<&Names>,
    running: Option<form::VerifiedRunning>,
    notes: Vec<String>,
) -> VerificationRecord {
    let total = verified.total();
    let cluster = cluster(path, &source, running.is_some());
    let relations = relations(verified, names, running.is_some(), &cluster);
    let shown = |of: &Path| {
        let within = of.strip_prefix(path).ok().filter(|within| !within.as_os_str().is_empty());
        within.unwrap_or(of).display().to_string()
    };
    VerificationRecord {
        schema: form::VERIFICATION_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(arguments),
        made: jiff::Timestamp::now().to_string(),
        source,
        outcome: outcome(verified),
        interrupted: verified.is_interrupted,
        read: form::VerifiedAmount {
            files: verified.files,
            incremental_files: verified.incremental,
            blocks: verified.pages.blocks,
            new_blocks: verified.pages.new,
            bytes: verified.pages.bytes,
            temporary_files: verified.temporary,
        },
        failures: total.failures,
        suspicions: total.suspicions,
        unverified: total.unverified,
        healed_by_replay: verified.healed_by_replay,
        files: verified.wrong_files.iter().map(files::finding).collect(),
        wrong_files: verified.wrong_files.len() as u64 + verified.more_wrong_files,
        incomplete: verified.incomplete.clone(),
        manifest: verified.manifest.map(files::comparison),
        relations,
        running,
        names: names.map(|_| format!("the catalogs in {}", path.display())),
        foreign: verified.foreign.iter().map(|path| shown(path)).collect(),
        unlisted: verified
            .unlisted
            .iter()
            .map(|(path, error)| format!("{}: {error}", shown(path)))
            .collect(),
        notes,
    }
}

fn during(verified: &Verified, attached: &Attached) -> form::VerifiedRunning {
    let counts = verified.running;
    form::VerifiedRunning {
        server: attached.server().map(ToString::to_string),
        suspects: counts.suspects,
        healed: counts.healed,
        in_flight: counts.in_flight,
        dropped: counts.dropped,
        asked: counts.asked,
    }
}

/// What is wrong weighs more than what could not be read.
fn outcome(verified: &Verified) -> VerificationOutcome {
    if verified.is_wrong() {
        return VerificationOutcome::Findings;
    }
    if verified.is_whole() { VerificationOutcome::Sound } else { VerificationOutcome::Unverified }
}

fn command(arguments: &VerifyArguments) -> Vec<String> {
    let mut command = vec!["pgtoll".to_owned(), "verify".to_owned()];
    command.extend(arguments.paths.iter().map(|path| shell_quoted(&path.to_string_lossy())));
    if let Some(dsn) = &arguments.dsn {
        command.extend(["--dsn".to_owned(), shell_quoted(&dsn.redacted())]);
    }
    for only in &arguments.only {
        command.extend(["--only".to_owned(), shell_quoted(only)]);
    }
    let flags = [
        ("--mmap", arguments.mmap),
        ("--direct", arguments.direct),
        ("--lost-writes", arguments.lost_writes),
        ("--indexes", arguments.indexes),
        ("--manifest-checksums", arguments.manifest_checksums),
    ];
    command
        .extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_owned()));
    if let Some(path) = &arguments.resume {
        command.extend(["--resume".to_owned(), shell_quoted(&path.to_string_lossy())]);
    }
    for wal in &arguments.wal {
        command.extend(["--wal".to_owned(), shell_quoted(&wal.to_string_lossy())]);
    }
    command
}

fn source(data: &DataDirectory) -> form::VerifiedSource {
    form::VerifiedSource {
        path: data.path.display().to_string(),
        backup: data.backup_start.is_some(),
        form: None,
        major: data.major,
        system_identifier: data.control.system_identifier,
        state: data.control.state.to_string(),
        block_bytes: data.control.block_bytes,
        file_blocks: data.control.file_blocks,
        checksums: data.has_checksums(),
        wal_end: data.wal_end(),
    }
}

/// What advice depends on.
fn cluster(path: &Path, source: &form::VerifiedSource, is_running: bool) -> Cluster {
    let standby_states = [ClusterState::ShutDownInRecovery, ClusterState::InArchiveRecovery];
    let is_standby = path.join("standby.signal").exists()
        || standby_states.iter().any(|state| state.to_string() == source.state);
    let place = if source.backup || source.form.is_some() {
        Place::Backup
    } else if is_standby {
        Place::Standby
    } else if is_running {
        Place::Running
    } else {
        let needs_recovery = source.state != ClusterState::ShutDown.to_string();
        Place::Stopped { needs_recovery }
    };
    let data = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Cluster {
        place,
        // A slash at the end would make another name of the copy.
        data: data.components().collect::<PathBuf>().to_string_lossy().into_owned(),
        major: source.major,
        block_bytes: source.block_bytes,
        file_blocks: source.file_blocks,
        catalog_version: control_file(path).ok().map(|control| control.catalog_version),
    }
}

/// Tables before their indexes: what is made again from a table hides what it has lost.
fn relations(
    verified: &Verified,
    names: Option<&Names>,
    is_running: bool,
    cluster: &Cluster,
) -> Vec<form::VerifiedRelation> {
    let mut findings: BTreeMap<Fork, Vec<&Finding>> = BTreeMap::new();
    for finding in &verified.findings {
        findings.entry(finding.fork).or_default().push(finding);
    }
    let name = |fork: Fork| names.and_then(|names| names.relation(fork.relation));
    let damaged_tables: HashSet<_> = verified
        .counts
        .keys()
        .filter(|fork| fork.fork == 0)
        .filter_map(|fork| name(*fork))
        .map(|name| (&name.database, &name.schema, &name.relation))
        .collect();
    let relation = |(fork, counts): (&Fork, &Counts)| {
        let name = name(*fork);
        let of_fork = findings.remove(fork).unwrap_or_default();
        // A running server has files of which no catalog says anything yet.
        let severity = severity(*fork, name, names.filter(|_| !is_running));
        let listed: u64 = of_fork.iter().map(|of| u64::from(blocks_counted(of))).sum();
        let is_table_damaged = name.is_some_and(|name| {
            let table = name.of.as_ref().map(|of| (&name.database, &of.schema, &of.relation));
            table.is_some_and(|table| damaged_tables.contains(&table))
        });
        let advice = cluster.advise(&Damage {
            fork: *fork,
            name,
            severity,
            findings: &of_fork,
            has_more: listed < counts.failures + counts.suspicions + counts.unverified,
            is_table_damaged,
        });
        form::VerifiedRelation {
            tablespace: fork.relation.tablespace,
            database: fork.relation.database,
            filenode: fork.relation.number,
            fork: fork_name(fork.fork).to_owned(),
            path: Some(cluster.file(*fork, 0)),
            name: name.map(relation_name),
            severity,
            remedy: remedy(&advice),
            advice,
            failures: counts.failures,
            suspicions: counts.suspicions,
            unverified: counts.unverified,
            findings: of_fork.into_iter().map(|of| finding(of, names)).collect(),
        }
    };
    let mut relations: Vec<form::VerifiedRelation> = verified.counts.iter().map(relation).collect();
    relations.sort_by_key(|of| match of.severity {
        Severity::Catalog => 0,
        Severity::Data => 1,
        Severity::Unknown => 2,
        Severity::Unlogged => 3,
        Severity::Index => 4,
        Severity::Map => 5,
        Severity::Leftover => 6,
    });
    relations
}

/// As [`Counts`] counts it.
fn blocks_counted(of: &Finding) -> u32 {
    match of.what {
        WhatIsWrong::Unreadable { blocks, .. } => blocks,
        _ => 1,
    }
}

/// The steps in one line.
fn remedy(advice: &[form::Advice]) -> String {
    let steps = advice.iter().map(|of| match &of.command {
        Some(command) => {
            let lines = command.lines().map(str::trim_start).collect::<Vec<_>>();
            format!("{}: {}", of.what, lines.join(" ").trim_end_matches(';'))
        }
        None => of.what.clone(),
    });
    steps.collect::<Vec<_>>().join("; ")
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

fn finding(of: &Finding, names: Option<&Names>) -> form::PageFinding {
    let (stored, computed) = match of.what {
        WhatIsWrong::Invalid { fault: Fault::Checksum { stored, computed, .. }, .. }
        | WhatIsWrong::MayBeTorn { fault: Fault::Checksum { stored, computed, .. }, .. }
        | WhatIsWrong::Unsettled { fault: Fault::Checksum { stored, computed, .. }, .. } => {
            (Some(stored), Some(computed))
        }
        _ => (None, None),
    };
    let lsn = match of.what {
        WhatIsWrong::Invalid { lsn, .. }
        | WhatIsWrong::MayBeTorn { lsn, .. }
        | WhatIsWrong::Unsettled { lsn, .. }
        | WhatIsWrong::AheadOfWal { lsn }
        | WhatIsWrong::Evidence(Evidence::Stale { lsn, .. }) => Some(lsn),
        _ => None,
    };
    let index = evidence::index(&of.what, names);
    let (kind, words) = words(&of.what, index.as_deref());
    let missing = advice::missing(&of.what, of.block);
    let missing = missing.map(|last| (last - of.block).saturating_add(1));
    let words = match missing {
        Some(blocks) if blocks > 1 => format!("{blocks} blocks {words}"),
        _ => words,
    };
    form::PageFinding {
        block: of.block,
        blocks: match of.what {
            WhatIsWrong::Unreadable { blocks, .. } => blocks,
            _ => missing.unwrap_or(1),
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
        wal: evidence::wal(&of.what),
        index,
    }
}

fn words(of: &WhatIsWrong, index: Option<&str>) -> (form::FindingKind, String) {
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
        WhatIsWrong::MayBeTorn { .. } => (
            Kind::MayBeTorn,
            "wrong checksum; it may be torn, which only the backup's WAL can decide",
        ),
        WhatIsWrong::Incremental(error) => return (Kind::DamagedIncremental, error.to_string()),
        WhatIsWrong::AheadOfWal { lsn } => {
            return (Kind::AheadOfWal, format!("LSN {lsn} is beyond the end of WAL"));
        }
        WhatIsWrong::ZeroButVisible => {
            (Kind::ZeroButVisible, "all zeros, though the visibility map has rows on it")
        }
        WhatIsWrong::ZeroFirst => {
            (Kind::ZeroFirst, "all zeros; the first page of an index or sequence never is")
        }
        WhatIsWrong::Layout(layout) => return layout_words(*layout),
        WhatIsWrong::Evidence(evidence) => return evidence::words(*evidence, index),
        WhatIsWrong::Unreadable { error, .. } => return (Kind::Unreadable, error.clone()),
        WhatIsWrong::Unsettled { why, .. } => return (Kind::Unsettled, unsettled(why)),
        WhatIsWrong::Changed => (Kind::Changed, "the file became shorter while it was read"),
    };
    (kind, words.to_owned())
}

fn unsettled(why: &Unsettled) -> String {
    let words = match why {
        Unsettled::InFlight => "bad on the disk; the WAL has its image",
        Unsettled::Resident => "bad on the disk; the server has it in memory",
        Unsettled::Changing => "bad on the disk, and never twice the same",
        Unsettled::NoServer => "bad on the disk; only the server can tell, and it was not asked",
        Unsettled::Unnamed => "bad on the disk; the server knows no relation with this file",
        Unsettled::NoWay => "bad on the disk; the server cannot be made to read it",
        Unsettled::Refused(error) => return format!("bad on the disk; the server: {error}"),
        Unsettled::NoWal(error) => return format!("bad on the disk; the WAL: {error}"),
        Unsettled::NotReady(error) => return format!("bad on the disk; {error}"),
        Unsettled::TooMany => "bad on the disk; there are too many to ask for each",
        Unsettled::Interrupted => "bad on the disk; interrupted before it was settled",
    };
    words.to_owned()
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
        Layout::VisibleBeyondEnd { last } => (
            Kind::VisibleBeyondEnd,
            format!("missing; the visibility map has rows up to block {last}"),
        ),
        Layout::NoFile => (Kind::NoFile, "the relation has no file".to_owned()),
        Layout::Empty => {
            (Kind::EmptyFile, "empty file; this relation always has at least one block".to_owned())
        }
    }
}

fn notes(
    data: &DataDirectory,
    verified: &Verified,
    names: Option<&Names>,
    wal: WalAtHand,
) -> Vec<String> {
    let mut notes: Vec<String> = checksum_note(data.control.checksum_version).into_iter().collect();
    if data.backup_start.is_some() {
        notes.extend(backup_notes(verified, wal));
    } else if data.control.state != ClusterState::ShutDown {
        notes.push(NOT_IN_ORDER.to_owned());
    }
    notes.extend(files::threads_note(verified));
    notes.extend(names_note(verified, names));
    notes
}

fn running_notes(
    data: &DataDirectory,
    verified: &Verified,
    names: Option<&Names>,
    attached: &Attached,
) -> Vec<String> {
    let mut notes = attached.notes.clone();
    notes.extend(unsettled_notes(verified));
    notes.extend(checksum_note(data.control.checksum_version));
    notes.push("server running: zeroed pages and cut files were not checked".to_owned());
    notes.extend(names_note(verified, names));
    notes
}

pub(super) fn checksum_note(checksum_version: u32) -> Option<String> {
    let words = match checksum_version {
        0 => "the cluster has no checksums: only page headers were checked",
        1 => return None,
        _ => {
            "checksums are being turned on or off: they cannot be relied on, and only page \
             headers were checked"
        }
    };
    Some(words.to_owned())
}

/// What has to be known of base backups, and of this one.
pub(super) fn backup_notes(verified: &Verified, wal: WalAtHand) -> Vec<String> {
    let mut notes = vec![files::backup_note(verified)];
    if verified.healed_by_replay > 0 {
        notes.push(format!(
            "{} pages were written by the server while they were copied and are wrong here; the \
             backup's own WAL has their images, and recovery replaces them: they are not counted",
            verified.healed_by_replay
        ));
    }
    let Counts { failures, unverified, .. } = verified.total();
    match wal {
        WalAtHand::Whole if failures > 0 => notes.push(
            "the backup's own WAL replaces none of the pages that fail here: recovery does not \
             heal them"
                .to_owned(),
        ),
        WalAtHand::Missing if failures + unverified > 0 => notes.push(
            "the WAL that the backup needs is not at hand, or not all of it: pages that the \
             server wrote while they were copied cannot be told from damage; name it with --wal, \
             or restore the backup, let it recover, and verify then"
                .to_owned(),
        ),
        _ => {}
    }
    if verified.incremental > 0 {
        notes.push(format!(
            "an incremental backup: {} of its files hold some blocks each, and those were \
             verified; the others are in the backups before it",
            verified.incremental
        ));
    }
    notes
}

pub(super) fn names_note(verified: &Verified, names: Option<&Names>) -> Option<String> {
    let Some(names) = names else {
        let words = "relations have no names: the catalogs were not read";
        return (verified.pages.blocks > 0).then(|| words.to_owned());
    };
    let unread = Some(names.unread()).filter(|unread| !unread.is_empty())?;
    Some(format!("some names are missing: {unread}"))
}

pub(super) const NOT_IN_ORDER: &str = "the server was not stopped in good order: its recovery may \
    replace pages that fail here, and visibility maps are not compared; start it, stop it, and \
    verify again";

/// What to do about what could not be told.
fn unsettled_notes(verified: &Verified) -> Vec<String> {
    let mut notes = Vec::new();
    let mut hint = |is_it: fn(&Unsettled) -> bool, text: &str| {
        let is_it = |of: &Finding| match &of.what {
            WhatIsWrong::Unsettled { why, .. } => is_it(why),
            _ => false,
        };
        if verified.findings.iter().any(is_it) {
            notes.push(text.to_owned());
        }
    };
    hint(
        |why| matches!(why, Unsettled::InFlight),
        "in flight: verify again after the next checkpoint, or wait for it with --settle",
    );
    hint(
        |why| matches!(why, Unsettled::Resident),
        "what is in the server's memory cannot be judged: from PostgreSQL 17 on the extension \
         pg_buffercache lets a superuser evict it; else verify again after a restart",
    );
    hint(
        |why| matches!(why, Unsettled::NoWay),
        "to have the server read any page, one of the extensions pageinspect and pg_prewarm has \
         to be in its database",
    );
    notes
}
