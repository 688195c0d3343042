use std::collections::BTreeMap;

use pgtoll_record::{
    EngineSettings, ExchangeRecord, FAILOVER_SCHEMA, FailoverDesign, FailoverRejoin, Host,
    PartitionOutcome, PartitionSide, PrintedRecord as _,
};

use super::*;

fn run(number: u32, detector: FailoverDetector, outage_s: f64) -> FailoverRun {
    FailoverRun {
        fault: FailoverFault::HostDeath,
        engine: FailoverEngine::Repmgr,
        detector,
        number,
        acknowledged: 1000,
        failed: 3,
        unknown: 2,
        recovered: Some(1),
        lost: Some(0),
        lost_before: Some(0),
        oldest_lost_s: None,
        impossible: Some(0),
        after_successor: 0,
        two_primaries: false,
        outage_s: Some(outage_s),
        outage_open: false,
        ended_by_hand_s: None,
        noticed_s: Some(outage_s - 0.3),
        promoted_s: Some(outage_s - 0.1),
        routed_s: Some(outage_s - 0.05),
        restarted_in_place: false,
        steps: Vec::new(),
        partition: None,
        rejoin: Some(FailoverRejoin {
            seconds: Some(1.5),
            error: None,
            pages: Some(4000),
            unsound: Some(0),
            steps: Vec::new(),
        }),
        third: None,
        standby_names: Some(String::new()),
        daemon_restarts: 0,
        load_average: Some(0.5),
        timeline: None,
        back: None,
        findings: Vec::new(),
    }
}

fn host() -> Host {
    let text = include_str!("../../../../records/2026-11-23-exchange.json");
    serde_json::from_str::<ExchangeRecord>(text).unwrap().host
}

/// Figures of no machine.
fn record(runs: u32) -> FailoverRecord {
    let all = (1..=runs).flat_map(|number| {
        let later = f64::from(number) / 100.0;
        [
            run(number, FailoverDetector::Default, 52.0 + later),
            run(number, FailoverDetector::Fast, 1.2 + later),
            run(number, FailoverDetector::None, 0.2 + later),
        ]
    });
    FailoverRecord {
        schema: FAILOVER_SCHEMA.to_owned(),
        pgtoll: "0.0.0".to_owned(),
        command: ["pgtoll", "lab", "failover"].map(str::to_owned).to_vec(),
        made: "2026-11-23T00:00:00Z".to_owned(),
        server: "PostgreSQL 15.18 (installed)".to_owned(),
        engines: ["repmgr 5.3.3", "PgBouncer 1.18.0"].map(str::to_owned).to_vec(),
        host: host(),
        design: FailoverDesign {
            faults: vec![FailoverFault::HostDeath],
            engines: vec![FailoverEngine::Repmgr],
            detectors: FailoverDetector::ALL.to_vec(),
            synchronous: true,
            runs,
            clients: 8,
            rate_per_second: 200.0,
            fail_back: false,
            bouncers: 1,
            witness: false,
            third_node: false,
        },
        settings: BTreeMap::new(),
        topologies: Vec::new(),
        runs: all.collect(),
        skipped: Vec::new(),
        complete: true,
        ended: None,
        notes: vec!["process faults on one kernel".to_owned()],
    }
}

fn text(record: &FailoverRecord) -> String {
    record.text(&TableOptions::default())
}

#[test]
fn outages_are_a_distribution_in_80_columns() {
    let text = text(&record(20));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

/// The same figures as of several engines, and of nobody.
fn record_of_engines(runs: u32) -> FailoverRecord {
    let mut record = record(runs);
    record.design.engines = FailoverEngine::ALL.to_vec();
    record.engines = ["Patroni 3.0.2", "etcd 3.4.23", "repmgr 5.3.3"].map(str::to_owned).to_vec();
    for run in &mut record.runs {
        (run.engine, run.detector) = match run.detector {
            FailoverDetector::Default => (FailoverEngine::PgAutoFailover, run.detector),
            FailoverDetector::Fast => (FailoverEngine::Patroni, run.detector),
            FailoverDetector::None => (FailoverEngine::None, run.detector),
        };
        if run.engine == FailoverEngine::None {
            run.outage_s = Some(10.4);
            run.ended_by_hand_s = Some(10.0);
        }
    }
    record.runs[0].lost = Some(3);
    let values = [("ttl", "20"), ("loop_wait", "1")];
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    record.topologies = vec![EngineTopology {
        engine: FailoverEngine::Patroni,
        versions: record.engines[..2].to_vec(),
        entry: "HAProxy".to_owned(),
        settings: vec![EngineSettings { detector: FailoverDetector::Fast, values }],
    }];
    record.skipped = vec![SkippedFault {
        fault: FailoverFault::Switchover,
        engine: Some(FailoverEngine::None),
        by_nature: true,
        reason: "no failover manager to switch over".to_owned(),
    }];
    record
}

#[test]
fn engines_stand_beside_each_other_in_80_columns() {
    let text = text(&record_of_engines(20));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

/// A partition with each engine.
fn record_of_partitions() -> FailoverRecord {
    let mut record = record(1);
    let mut runs = Vec::new();
    for (engine, ended, two, lost) in [
        (FailoverEngine::Patroni, Some(4.5), Some(0.0), 444),
        (FailoverEngine::PgAutoFailover, Some(52.0), Some(47.2), 923),
        (FailoverEngine::Repmgr, Some(14.1), Some(7.0), 712),
        (FailoverEngine::None, None, None, 0),
    ] {
        let detector = match engine {
            FailoverEngine::None => FailoverDetector::None,
            _ => FailoverDetector::Fast,
        };
        let side = |name: &str, lost, outage_s| PartitionSide {
            name: name.to_owned(),
            clients: 4,
            acknowledged: 1500,
            lost: Some(lost),
            outage_s: Some(outage_s),
            outage_open: false,
        };
        runs.push(FailoverRun {
            fault: FailoverFault::Partition,
            engine,
            lost: Some(lost),
            partition: Some(PartitionOutcome {
                healed_s: Some(24.0),
                old_primary_ended_s: ended,
                ended_by_hand: engine == FailoverEngine::Repmgr,
                two_primaries_s: two,
                sides: vec![side("primary's side", lost, 0.05), side("standby's side", 0, 22.15)],
            }),
            ..run(1, detector, 0.03)
        });
    }
    record.design.engines = FailoverEngine::ALL.to_vec();
    record.design.faults = vec![FailoverFault::Partition];
    record.design.synchronous = false;
    record.runs = runs;
    record
}

#[test]
fn both_sides_of_a_partition_are_told_in_80_columns() {
    let text = text(&record_of_partitions());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_quantile_of_few_runs_is_not_claimed() {
    let record = record(19);
    let cells = rows(&record)[1].outage_cells(FailoverColumns::from_failover(&record));
    assert_eq!((cells[0].as_str(), cells[2].as_str()), ("19", "-"));
}

#[test]
fn no_loss_in_a_hundred_runs_allows_three_in_a_hundred() {
    assert!((losing_share_bound(100) - 0.0295).abs() < 0.0001);
    assert!((losing_share_bound(20) - 0.139).abs() < 0.001);
}

#[test]
fn the_same_finding_of_several_runs_is_one_line() {
    let mut record = record(3);
    for run in record.runs.iter_mut().filter(|run| run.detector == FailoverDetector::Fast) {
        run.findings = vec!["split brain".to_owned()];
    }
    record.runs[0].findings = vec!["split brain".to_owned()];
    let expected =
        ["host-death, default, run 1: split brain", "host-death, fast, 3 of 3 runs: split brain"];
    assert_eq!(record.conclusion().sentences(), expected);
}

#[test]
fn an_asynchronous_loss_is_a_figure_and_a_split_brain_a_finding() {
    let mut record = record(1);
    record.design.synchronous = false;
    record.runs[0].lost = Some(2);
    record.runs[0].findings = vec!["2 acknowledged transactions are lost".to_owned()];
    assert!(record.conclusion().sentences().is_empty());
    record.design.synchronous = true;
    assert_eq!(record.conclusion().sentences().len(), 1);
    record.runs[1].findings = vec!["split brain".to_owned()];
    record.runs[2].rejoin.as_mut().unwrap().unsound = Some(1);
    assert_eq!(record.conclusion().sentences().len(), 3);
    assert!(
        record.document(&TableOptions::default()).answer[0]
            .contains("2 of 1,000 acknowledged transactions lost")
    );
}

#[test]
fn a_page_has_every_case_and_engine() {
    let page = record_of_engines(3).html();
    for words in ["Outages side by side", "pg_auto_failover", "ttl = 20", "ends the fault by hand"]
    {
        assert!(page.contains(words), "{words}");
    }
    let page = record_of_partitions().html();
    assert!(page.contains("Both sides of the partition"), "{page}");
    let page = record(3).html();
    for words in ["the floor", "repmgr's defaults", "host-death", "process faults on one kernel"] {
        assert!(page.contains(words), "{words}");
    }
}
