use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use pgtoll_datadir::TableName;
use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::{Fault, ForkNumber, Lsn, RelFileLocator};
use pgtoll_record::FindingKind as Kind;
use pgtoll_record::{FindingClass, Severity};

use super::*;
use crate::defect::{Defect, Evidence, LayoutDefect, StaleClaim, Unsettled};
use crate::directory::tests::{directory, page};
use crate::settings::VerifySettings;

fn provenance() -> Provenance {
    Provenance {
        version: "1.2.3".to_owned(),
        command: vec!["pgtoll".to_owned(), "verify".to_owned(), "/srv/pg".to_owned()],
        made: "2026-11-23T12:00:00Z".to_owned(),
    }
}

fn relation_files(number: u32) -> RelFileLocator {
    RelFileLocator { tablespace: 1663, database: 5, rel_number: number }
}

fn fork(number: u32) -> RelationFork {
    RelationFork { relation: relation_files(number), number: ForkNumber::MAIN }
}

fn name(kind: RelationKind, relation: &str) -> RelationName {
    let orders = TableName { schema: Some("public".into()), relation: "orders".into() };
    RelationName {
        oid: 16_390,
        database: Some("shop".into()),
        schema: Some("public".into()),
        relation: relation.into(),
        kind,
        persistence: Persistence::Permanent,
        of: (kind == RelationKind::Index).then_some(orders),
    }
}

fn wrong_checksum() -> Defect {
    let fault = Fault::Checksum { stored: 1, computed: 2, header_is_plausible: true };
    Defect::Invalid { fault, lsn: Lsn(0x0100_0028) }
}

/// An encrypted relation is one finding, and a damaged one is not called encrypted.
#[test]
fn a_relation_that_cannot_be_read_at_all_is_one_finding() {
    let garbage = |pages: usize| [0x5A_u8, 0x93, 0xE7].into_iter().cycle().take(pages * 8192);
    let record = |content: Vec<u8>| {
        let (_place, data) = directory(&[("16384", content)]);
        let jobs = NonZeroUsize::MIN;
        let settings = VerifySettings { jobs, rate: None, only_below: Vec::new(), rows: true };
        let go_on = &mut |_| ControlFlow::Continue(());
        let verified = crate::verify(&data, &settings, &|_| true, go_on);
        let names = Names::new([(relation_files(16_384), name(RelationKind::Table, "orders"))]);
        verified.record(&data, Some(&names), WalAtHand::NotAsked, provenance())
    };
    let encrypted = record(garbage(4).collect());
    assert_eq!((encrypted.outcome, encrypted.failures), (VerificationOutcome::Findings, 4));
    let [finding] = &encrypted.relations[0].findings[..] else { panic!("{encrypted:?}") };
    assert_eq!(finding.blocks, 4);
    assert!(finding.words.starts_with("all 4 pages are unreadable: the relation is encrypted"));
    assert!(encrypted.relations[0].advice[0].what.contains("an extension encrypts it"));
    let damaged = record([page(0), garbage(3).collect()].concat());
    assert_eq!(damaged.relations[0].findings.len(), 3);
}

#[test]
fn a_damaged_page_becomes_a_relation_with_advice() {
    let mut damaged = page(0);
    damaged[5000] ^= 1;
    let (_place, data) = directory(&[("16384", damaged)]);
    let jobs = NonZeroUsize::MIN;
    let settings = VerifySettings { jobs, rate: None, only_below: Vec::new(), rows: true };
    let verified = crate::verify(&data, &settings, &|_| true, &mut |_| ControlFlow::Continue(()));
    let names = Names::new([(relation_files(16_384), name(RelationKind::Table, "orders"))]);
    let record = verified.record(&data, Some(&names), WalAtHand::NotAsked, provenance());
    assert_eq!(
        (&*record.pgtoll, record.command.len(), &*record.made),
        ("1.2.3", 3, "2026-11-23T12:00:00Z")
    );
    assert_eq!(record.outcome, VerificationOutcome::Findings);
    assert_eq!((record.failures, record.suspicions, record.unverified), (1, 0, 0));
    assert_eq!((record.read.files, record.read.blocks, record.read.bytes), (1, 1, 8192));
    let [relation] = &record.relations[..] else { panic!("{record:?}") };
    assert_eq!((relation.severity, &*relation.fork), (Severity::Data, "main"));
    assert_eq!(relation.path.as_deref(), Some("base/5/16384"));
    let texts: Vec<&str> = relation.advice.iter().map(|step| &*step.what).collect();
    assert!(relation.remedy.starts_with(texts[0]), "{}", relation.remedy);
    assert!(!relation.remedy.contains('\n'), "{}", relation.remedy);
    let [finding] = &relation.findings[..] else { panic!("{relation:?}") };
    assert_eq!((finding.kind, finding.class), (Kind::Checksum, FindingClass::Failure));
    assert_eq!((finding.block, finding.blocks, &*finding.words), (0, 1, "wrong checksum"));
}

#[test]
fn a_damaged_table_comes_before_its_index_which_says_so() {
    let names = Names::new([
        (relation_files(1), name(RelationKind::Index, "orders_pkey")),
        (relation_files(2), name(RelationKind::Table, "orders")),
    ]);
    let mut verified = Verified::default();
    for number in [1, 2] {
        let defect = wrong_checksum();
        verified.add(BlockFinding { fork: fork(number), block: 0, defect });
    }
    let (_place, data) = directory(&[]);
    let record = verified.record(&data, Some(&names), WalAtHand::NotAsked, provenance());
    let severities: Vec<Severity> =
        record.relations.iter().map(|relation| relation.severity).collect();
    assert_eq!(severities, [Severity::Data, Severity::Index]);
    let of_index = &record.relations[1].remedy;
    assert!(of_index.contains("first the table public.orders"), "{of_index}");
}

#[test]
fn the_role_of_the_files_decides_the_advice() {
    let place = tempfile::tempdir().unwrap();
    let source = |backup: bool, form: Option<&str>, state: ClusterState| VerifiedSource {
        path: place.path().display().to_string(),
        backup,
        form: form.map(str::to_owned),
        major: 15,
        system_identifier: 7,
        state: state.to_string(),
        block_bytes: 8192,
        file_blocks: 131_072,
        checksums: true,
        wal_end: None,
    };
    let check = |source: &VerifiedSource, is_running, expected| {
        assert_eq!(advised_cluster(place.path(), source, is_running).role, expected, "{source:?}");
    };
    let stopped = source(false, None, ClusterState::ShutDown);
    check(&stopped, false, ClusterRole::Stopped { needs_recovery: false });
    check(&stopped, true, ClusterRole::Running);
    let crashed = source(false, None, ClusterState::InProduction);
    check(&crashed, false, ClusterRole::Stopped { needs_recovery: true });
    check(&source(true, None, ClusterState::InProduction), false, ClusterRole::Backup);
    check(&source(false, Some("tar"), ClusterState::ShutDown), false, ClusterRole::Backup);
    let standby = source(false, None, ClusterState::ShutDownInRecovery);
    check(&standby, false, ClusterRole::Standby);
    std::fs::write(place.path().join("standby.signal"), "").unwrap();
    check(&stopped, true, ClusterRole::Standby);
}

#[test]
fn defects_have_kinds_and_words() {
    let check = |defect: Defect, kind: Kind, blocks: u32, words: &str| {
        let finding = page_finding(&BlockFinding { fork: fork(1), block: 4, defect }, None);
        assert_eq!((finding.kind, finding.blocks, &*finding.words), (kind, blocks, words));
    };
    check(
        Defect::ZeroFirst,
        Kind::ZeroFirst,
        1,
        "all zeros; the first page of an index or sequence never is",
    );
    check(
        Defect::Layout(LayoutDefect::Empty),
        Kind::EmptyFile,
        1,
        "empty file; this relation always has at least one block",
    );
    check(
        Defect::Layout(LayoutDefect::Missing { segment: 2, count: 3 }),
        Kind::MissingFile,
        1,
        "3 files from 2 on are missing",
    );
    check(
        Defect::Layout(LayoutDefect::VisibleBeyondEnd { last: 9 }),
        Kind::VisibleBeyondEnd,
        6,
        "6 blocks missing; the visibility map has rows up to block 9",
    );
    check(
        Defect::Layout(LayoutDefect::StaleBeyondEnd { last: 9, counted: 4 }),
        Kind::MapStale,
        1,
        "the visibility map has bits up to block 9; the file is whole by the catalogs, which counted 4 \
         blocks",
    );
    let since = Some(Lsn(0x0100_0028));
    check(
        Defect::MapStale { blocks: 3, claim: StaleClaim::VisibleAndFrozen, since },
        Kind::MapStale,
        3,
        "the visibility map says all visible and frozen; the page is neither; both unchanged since \
         0/1000028",
    );
    check(
        Defect::PageVisible { blocks: 2 },
        Kind::PageVisible,
        2,
        "marked all-visible, with rows that are dead, rolled back or deleted",
    );
    check(
        Defect::Unreadable { blocks: 3, error: "I/O error".to_owned() },
        Kind::Unreadable,
        3,
        "I/O error",
    );
    let evidence = Evidence::Stale { lsn: Lsn(0x0100_0028), wal: Lsn(0x0200_0028) };
    check(
        Defect::Evidence(evidence),
        Kind::LostWrite,
        1,
        "old: changed last at 0/1000028, and by WAL at 0/2000028; that write is lost",
    );
    let index = relation_files(7);
    check(
        Defect::Evidence(Evidence::MissingButIndexed { index, last: 4 }),
        Kind::MissingButIndexed,
        1,
        "missing; 7 leads to rows up to block 4",
    );
    let fault = Fault::Header;
    let why = Unsettled::Refused("permission denied".to_owned());
    check(
        Defect::Unsettled { fault, lsn: Lsn(1), why },
        Kind::Unsettled,
        1,
        "bad on the disk; the server: permission denied",
    );
}

#[test]
fn what_is_wrong_weighs_more_than_what_could_not_be_read() {
    let mut verified = Verified::default();
    assert_eq!(verified.outcome(&[]), VerificationOutcome::Sound);
    assert_eq!(verified.outcome(&["WAL".to_owned()]), VerificationOutcome::NoDamageSeen);
    verified.add(BlockFinding { fork: fork(1), block: 0, defect: Defect::Changed });
    assert_eq!(verified.outcome(&[]), VerificationOutcome::Unverified);
    verified.add(BlockFinding { fork: fork(1), block: 1, defect: wrong_checksum() });
    assert_eq!(verified.outcome(&[]), VerificationOutcome::Findings);
}

#[test]
fn a_backups_wal_decides_what_is_noted() {
    let (_place, mut data) = directory(&[]);
    data.backup_start = Some(Lsn(1));
    let notes = |verified: &Verified, wal| verified.record(&data, None, wal, provenance()).notes;
    let mut verified = Verified::default();
    let has = |notes: &[String], text: &str| notes.iter().any(|note| note.contains(text));
    assert!(!has(&notes(&verified, WalAtHand::Missing), "name it with --wal"));
    verified.add(BlockFinding { fork: fork(1), block: 1, defect: wrong_checksum() });
    assert!(has(&notes(&verified, WalAtHand::Missing), "name it with --wal"));
    assert!(has(&notes(&verified, WalAtHand::Whole), "recovery does not heal them"));
    assert!(!has(&notes(&verified, WalAtHand::NotAsked), "heal"));
}
