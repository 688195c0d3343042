use pgtoll_format::Lsn;
use pgtoll_record::{
    FindingClass, FindingKind, PATROL_SCHEMA, PageFinding, PatrolAmount, PatrolBlock, PatrolBudget,
    PatrolMark, PatrolSource, Severity, WalRelationName,
};

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn finding(block: u32, class: FindingClass, words: &str) -> PatrolFinding {
    PatrolFinding {
        at: PatrolBlock {
            tablespace: 1663,
            database: 5,
            filenode: 16384,
            fork: 0,
            segment: 0,
            block: u64::from(block),
        },
        found: time("2026-11-22T09:00:00Z"),
        seen: time("2026-11-24T09:00:00Z"),
        path: "base/5/16384".into(),
        fork: "main".into(),
        name: Some(WalRelationName {
            database: "shop".into(),
            schema: "public".into(),
            relation: "orders".into(),
            kind: "table".into(),
            of: None,
        }),
        severity: Severity::Data,
        page: PageFinding {
            block,
            blocks: if class == FindingClass::Unverified { 16 } else { 1 },
            class,
            kind: FindingKind::Checksum,
            words: words.into(),
            stored_checksum: Some(1),
            computed_checksum: Some(2),
            lsn: Some(Lsn(1)),
            wal: None,
            index: None,
        },
    }
}

fn round(number: u64, began: &str, ended: Option<&str>) -> PatrolRound {
    PatrolRound {
        number,
        began: time(began),
        ended: ended.map(time),
        read: PatrolAmount { pages: 1_000_000, bytes: 8_192_000_000 },
        left_out: 0,
        next: None,
        marks: vec![PatrolMark { block: PatrolBlock::default(), time: time(began) }],
    }
}

pub(crate) fn record() -> PatrolRecord {
    PatrolRecord {
        schema: PATROL_SCHEMA.into(),
        pgtoll: "0".into(),
        command: vec!["pgtoll".into(), "verify".into()],
        made: time("2026-11-24T09:30:00Z"),
        began: time("2026-11-10T09:00:00Z"),
        source: PatrolSource {
            path: "/var/lib/postgresql/18/main".into(),
            major: 18,
            system_identifier: 7_123_456_789,
            block_bytes: 8192,
            file_blocks: 131_072,
            checksums: true,
            running: true,
            files: 985,
            bytes: 16_384_000_000,
        },
        budget: PatrolBudget { rate_bytes: 20 << 20, within_seconds: 604_800, round_seconds: 781 },
        read: PatrolAmount { pages: 123_456_789, bytes: 123_456_789 * 8192 },
        round: round(3, "2026-11-23T21:00:00Z", None),
        last_round: Some(round(2, "2026-11-20T21:00:00Z", Some("2026-11-23T21:00:00Z"))),
        oldest_read: time("2026-11-22T03:00:00Z"),
        failures: 2,
        suspicions: 0,
        unverified: 16,
        findings: vec![
            finding(7, FindingClass::Failure, "wrong checksum"),
            finding(100, FindingClass::Unverified, "Input/output error (os error 5)"),
            finding(4_294_967_294, FindingClass::Failure, "not shown"),
        ],
        unlisted: Vec::new(),
        notes: vec!["a note".into()],
    }
}

fn text(record: &PatrolRecord, most: usize) -> String {
    record.text(&TableOptions { most, ..TableOptions::default() })
}

#[test]
fn a_patrol_is_shown_in_80_columns() {
    let text = text(&record(), 2);
    insta::assert_snapshot!(text);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn sound_is_said_after_a_whole_round_and_late_after_too_long() {
    let mut record = record();
    (record.findings, record.notes) = (Vec::new(), Vec::new());
    assert!(text(&record, 9).starts_with("/var/lib/postgresql/18/main: sound\n"));
    record.unlisted = vec!["base/6: Permission denied".into()];
    assert!(!text(&record, 9).contains("sound"));
    record.unlisted.clear();
    record.last_round = None;
    assert!(text(&record, 9).contains(": nothing wrong so far; no round has come to its end\n"));
    assert!(!text(&record, 9).contains("late"));
    record.budget.within_seconds = 3600;
    assert!(text(&record, 9).contains("late: some pages were not read yet"));
}
