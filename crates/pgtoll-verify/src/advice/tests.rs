use std::fmt::Write as _;

use pgtoll_datadir::TableName;
use pgtoll_format::catalog::Persistence;
use pgtoll_format::{Fault, ForkNumber, Lsn, RelFileLocator};

use super::*;

const FORK: RelationFork = RelationFork {
    relation: RelFileLocator { tablespace: 1663, database: 5, rel_number: 16390 },
    number: ForkNumber::MAIN,
};

fn cluster(role: ClusterRole) -> AdvisedCluster {
    AdvisedCluster {
        role,
        data: "/srv/pg".into(),
        major: 15,
        block_bytes: 8192,
        file_blocks: 131_072,
        has_checksums: true,
        archive: WalArchive::Unknown,
        standbys: Vec::new(),
        catalog_version: Some(202_209_061),
    }
}

const STOPPED: ClusterRole = ClusterRole::Stopped { needs_recovery: false };

fn name(kind: RelationKind, relation: &str) -> RelationName {
    let name = TableName { schema: Some("public".into()), relation: "orders".into() };
    RelationName {
        oid: 16390,
        database: Some("shop".into()),
        schema: Some("public".into()),
        relation: relation.into(),
        kind,
        persistence: Persistence::Permanent,
        of: matches!(kind, RelationKind::Index | RelationKind::Toast).then_some(name),
    }
}

fn finding(block: u32, defect: Defect) -> BlockFinding {
    BlockFinding { fork: FORK, block, defect }
}

fn refused(block: u32) -> BlockFinding {
    finding(block, Defect::Invalid { fault: Fault::Header, lsn: Lsn(1) })
}

/// The steps, as they can be read.
fn steps(
    cluster: &AdvisedCluster,
    severity: Severity,
    name: &RelationName,
    block_findings: &[BlockFinding],
) -> String {
    steps_of(
        cluster,
        &DamagedFork {
            fork: FORK,
            name: Some(name),
            severity,
            findings: &block_findings.iter().collect::<Vec<_>>(),
            has_more: false,
            is_table_damaged: false,
        },
    )
}

fn steps_of(cluster: &AdvisedCluster, damage: &DamagedFork<'_>) -> String {
    cluster.advise(damage).into_iter().fold(String::new(), |mut text, step| {
        let _ = writeln!(text, "- {}", step.what);
        for line in step.command.iter().flat_map(|command| command.lines()) {
            let _ = writeln!(text, "    {line}");
        }
        text
    })
}

fn table() -> RelationName {
    name(RelationKind::Table, "orders")
}

#[test]
fn rows_beside_damaged_blocks_are_saved() {
    let item = [refused(100), refused(101), refused(7), refused(131_072)];
    let text = steps(&cluster(STOPPED), Severity::Data, &table(), &item);
    insta::assert_snapshot!(text);
}

#[test]
fn without_tid_ranges_or_with_many_blocks_rows_are_saved_block_by_block() {
    let old = AdvisedCluster { major: 13, ..cluster(ClusterRole::Running) };
    let text = steps(&old, Severity::Data, &table(), &[refused(7)]);
    insta::assert_snapshot!(text);
    let many: Vec<BlockFinding> = (0..20).map(|block| refused(block * 2)).collect();
    let text = steps(&cluster(ClusterRole::Running), Severity::Data, &table(), &many);
    assert!(text.contains("generate_series(0,") && !text.contains("UNION"), "{text}");
    let findings = [refused(7)];
    let text = steps_of(
        &cluster(ClusterRole::Running),
        &DamagedFork {
            fork: FORK,
            name: Some(&table()),
            severity: Severity::Data,
            findings: &findings.iter().collect::<Vec<_>>(),
            has_more: true,
            is_table_damaged: false,
        },
    );
    assert!(text.contains("generate_series(0,"), "not all damaged blocks are listed: {text}");
}

#[test]
fn lost_rows_are_said_to_be_lost() {
    let missing = finding(9000, Defect::Layout(LayoutDefect::VisibleBeyondEnd { last: 9554 }));
    let item = [finding(3, Defect::ZeroButVisible), missing];
    let text = steps(&cluster(STOPPED), Severity::Data, &table(), &item);
    insta::assert_snapshot!(text);
}

#[test]
fn a_missing_file_is_filled_with_zeros() {
    let item = [finding(131_072, Defect::Layout(LayoutDefect::Missing { segment: 1, count: 2 }))];
    let text = steps(&cluster(STOPPED), Severity::Data, &table(), &item);
    insta::assert_snapshot!(text);
}

#[test]
fn the_table_comes_before_its_index() {
    let index = name(RelationKind::Index, "orders_pkey");
    let findings = [refused(1)];
    let damage = DamagedFork {
        fork: FORK,
        name: Some(&index),
        severity: Severity::Index,
        findings: &findings.iter().collect::<Vec<_>>(),
        has_more: false,
        is_table_damaged: true,
    };
    let text = steps_of(&cluster(STOPPED), &damage);
    let table = text.find("- first the table public.orders").unwrap();
    assert!(table < text.find("REINDEX INDEX public.orders_pkey;").unwrap(), "{text}");
    let text = steps_of(&cluster(STOPPED), &DamagedFork { is_table_damaged: false, ..damage });
    assert!(!text.contains("first the table"), "{text}");
}

#[test]
fn backups_and_standbys_have_no_commands() {
    let index = name(RelationKind::Index, "orders_pkey");
    for role in [ClusterRole::Backup, ClusterRole::Standby] {
        for (severity, name) in [
            (Severity::Data, &table()),
            (Severity::Index, &index),
            (Severity::Map, &table()),
            (Severity::Unlogged, &table()),
            (Severity::Catalog, &table()),
        ] {
            let findings = [refused(1)];
            let steps = cluster(role).advise(&DamagedFork {
                fork: FORK,
                name: Some(name),
                severity,
                findings: &findings.iter().collect::<Vec<_>>(),
                has_more: false,
                is_table_damaged: true,
            });
            assert!(steps.iter().all(|step| step.command.is_none()), "{steps:?}");
            assert_eq!(steps.len(), 1, "{steps:?}");
        }
    }
}

#[test]
fn a_crashed_server_recovers_first() {
    let role = ClusterRole::Stopped { needs_recovery: true };
    let text = steps(&cluster(role), Severity::Data, &table(), &[refused(1)]);
    let copy = text.find("cp -a").unwrap();
    let recover = text.find("its recovery may").unwrap();
    assert!(copy < recover && recover < text.find("CREATE TABLE").unwrap(), "{text}");
}

#[test]
fn what_is_not_settled_is_verified_again() {
    let item = [finding(1, Defect::Changed)];
    let text = steps(&cluster(ClusterRole::Running), Severity::Data, &table(), &item);
    assert!(text.contains("verify again") && !text.contains("CREATE TABLE"), "{text}");
}

#[test]
fn files_are_named_as_they_lie_below_the_data_directory() {
    let file = |tablespace, database, fork, segment| {
        let relation = RelFileLocator { tablespace, database, rel_number: 7 };
        cluster(STOPPED).file(RelationFork { relation, number: ForkNumber(fork) }, segment)
    };
    assert_eq!(file(1663, 5, 0, 0), "base/5/7");
    assert_eq!(file(1663, 5, 2, 1), "base/5/7_vm.1");
    assert_eq!(file(1664, 0, 1, 0), "global/7_fsm");
    assert_eq!(file(16400, 5, 0, 3), "pg_tblspc/16400/PG_15_202209061/5/7.3");
}

#[test]
fn blocks_are_said_in_words() {
    let check = |ranges: &[Range], words: &str| assert_eq!(blocks(ranges), words);
    check(&[(7, 7)], "block 7");
    check(&[(7, 9)], "blocks 7 to 9");
    check(&joined(vec![(9, 12), (7, 7), (8, 8), (20, 20)]), "blocks 7 to 12 and 20");
    check(&[(1, 1), (3, 3), (5, 5), (7, 7), (9, 9)], "blocks 1, 3, 5, 7 and 1 more");
}

fn map_damage(cluster: &AdvisedCluster, name: &RelationName) -> String {
    let fork = RelationFork { number: ForkNumber::VM, ..FORK };
    let found = BlockFinding { fork, ..refused(0) };
    let severity = Severity::Map;
    let findings = [&found];
    let has_more = false;
    let is_table_damaged = false;
    let name = Some(name);
    let damage =
        DamagedFork { fork, name, severity, findings: &findings, has_more, is_table_damaged };
    steps_of(cluster, &damage)
}

#[test]
fn a_damaged_visibility_map_is_emptied_before_it_is_filled() {
    let text = map_damage(&cluster(STOPPED), &table());
    let empty = text.find("SELECT pg_truncate_visibility_map('public.orders');").unwrap();
    assert!(empty < text.find("VACUUM public.orders;").unwrap(), "{text}");
    let odd = RelationName { relation: "Or\"d'e\u{1b}r\\s".into(), ..table() };
    let text = map_damage(&cluster(ClusterRole::Running), &odd);
    let literal = r#"U&'public."Or""d''e\001Br\\s"'"#;
    assert!(text.contains(literal), "{text}");
}

#[test]
fn a_standbys_map_depends_on_what_its_release_does() {
    let pick =
        |major| map_damage(&AdvisedCluster { major, ..cluster(ClusterRole::Standby) }, &table());
    let old = pick(15);
    let between = pick(17);
    let new = pick(19);
    assert!(!old.contains("FATAL") && old.contains("pg_truncate_visibility_map"), "{old}");
    assert!(between.contains("from 17.11 on, replay stops"), "{between}");
    assert!(between.contains("before 17.11: replay takes"), "{between}");
    assert!(pick(18).contains("from 18.5 on"));
    assert!(new.contains("row is lost. replay stops") && !new.contains("empty one"), "{new}");
}

#[test]
fn a_stale_map_is_emptied_before_any_vacuum() {
    let claim = crate::StaleClaim::Visible;
    let entry = [finding(3, Defect::MapStale { blocks: 4, claim, since: None })];
    for role in [STOPPED, ClusterRole::Running, ClusterRole::Standby, ClusterRole::Backup] {
        let text = steps(&cluster(role), Severity::Data, &table(), &entry);
        let empty = text.find("SELECT pg_truncate_visibility_map('public.orders');").unwrap();
        let vacuum = text.find("VACUUM (FREEZE) public.orders;").unwrap();
        assert!(empty < vacuum && text.contains("Do not VACUUM before"), "{text}");
        assert!(!text.contains("restore it from a backup"), "{text}");
    }
    // Beside pages that the server refuses, those come first.
    let item = [refused(1), entry.into_iter().next().unwrap()];
    let text = steps(&cluster(STOPPED), Severity::Data, &table(), &item);
    assert!(text.contains("save the rows beside block 1"), "{text}");
}
