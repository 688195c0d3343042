//! Answers where WAL was read.

use pgtoll_format::Lsn;
use pgtoll_record::{
    CycleWithoutHints, PredictionBasis, PredictionRecord, Provenance, ServerWatch, WatchWindow,
    WatchedServer, WatchedWal, WatchedWalCycle, WhatIfCheck, WhatIfClass, WhatIfRow,
};

use crate::answer::{Watched, prediction_record};
use crate::question::SettingQuestion;

const MB: u64 = 1_000_000;

fn server(settings: &[(&str, &str)]) -> WatchedServer {
    let all = [
        ("data_checksums", "off"),
        ("full_page_writes", "on"),
        ("max_wal_size", "10GB"),
        ("checkpoint_timeout", "5min"),
    ];
    let pairs = all.iter().chain(settings);
    WatchedServer {
        version: "17.10".to_owned(),
        settings: pairs.map(|(name, value)| (String::from(*name), String::from(*value))).collect(),
        block_bytes: 8192,
        segment_bytes: 16 << 20,
        ..WatchedServer::default()
    }
}

/// Of 1 MB/s, with 20,000 blocks written by checkpoints; redo points are numbers.
fn window(from: u64, evicted: u64) -> WatchWindow {
    WatchWindow {
        seconds: 300.0,
        is_cycle: true,
        redo: Some((Lsn(from), Lsn(from + 1))),
        wal_bytes: 300 * MB,
        wal_records: Some(300_000),
        wal_images: Some(20_000),
        forced_images_most: Some(0),
        blocks_checkpointed: 20_000,
        blocks_evicted: evicted,
        ..WatchWindow::default()
    }
}

/// Of 300 MB with 20,000 images; 5,000 pages only had hints, whose images take 40 MB.
fn cycle(from: u64, logs_hints: bool) -> WatchedWalCycle {
    WatchedWalCycle {
        from: Lsn(from),
        to: Lsn(from + 1),
        bytes: 300 * MB,
        images: 20_000,
        image_bytes: 160 * MB,
        changed_pages: 15_000,
        forced_pages: 0,
        visible_pages: 1_000,
        pruned_bytes: 0,
        pruned_bytes_most: 0,
        without_hints: logs_hints.then_some(CycleWithoutHints {
            bytes: 260 * MB,
            images: 15_000,
            image_bytes: 120 * MB,
            freeze_bytes: 0,
        }),
    }
}

fn row(max_wal_size: Option<u64>, hints: bool, bytes: u64, class: WhatIfClass) -> WhatIfRow {
    WhatIfRow {
        max_wal_size_bytes: max_wal_size,
        checkpoint_timeout_s: max_wal_size.map(|_| 300.0),
        checkpoint_completion_target: max_wal_size.map(|_| 0.9),
        wal_compression: "as stored".to_owned(),
        hints,
        full_page_writes: true,
        bytes,
        low_bytes: bytes / 100 * 96,
        high_bytes: (class != WhatIfClass::Extrapolated).then_some(bytes / 100 * 104),
        class,
        bytes_per_second: None,
        images: 40_000,
        image_bytes: bytes / 2,
        checkpoints_by_volume: 0,
        checkpoints_by_time: 2,
        checkpoints_forced: 0,
        archive_bytes: bytes,
        longest_cycle_bytes: 300 * MB,
        replay_bytes: 300 * MB,
    }
}

fn wal(logs_hints: bool) -> WatchedWal {
    let exact = WhatIfClass::Exact;
    let own = Some(10 << 30);
    WatchedWal {
        from: Lsn(0),
        to: Lsn(600 * MB),
        bytes: 600 * MB,
        seconds: 600.0,
        sender_cpu_seconds: Some(0.6),
        ended: None,
        resumed: 0,
        redo_points: 3,
        cycles: vec![cycle(1, logs_hints), cycle(2, logs_hints)],
        check: WhatIfCheck {
            references: 0,
            images: 0,
            absent: 0,
            unpredicted: 0,
            bytes_error: 0.0,
        },
        today: row(None, logs_hints, 600 * MB, exact),
        rows: vec![
            row(own, logs_hints, 606 * MB, exact),
            row(None, !logs_hints, 520 * MB, exact),
            row(own, !logs_hints, 480 * MB, exact),
            row(Some(20 << 30), logs_hints, 540 * MB, exact),
            row(Some(90 << 30), logs_hints, 300 * MB, WhatIfClass::Extrapolated),
        ],
        notes: vec!["a note of the what-if".to_owned()],
    }
}

fn answered(settings: &[(&str, &str)], wal: WatchedWal, requested: &str) -> PredictionRecord {
    let windows = vec![window(1, 0), window(2, 0)];
    answered_with(settings, ServerWatch { windows, wal: Some(wal), ..<_>::default() }, requested)
}

fn answered_with(settings: &[(&str, &str)], watch: ServerWatch, wanted: &str) -> PredictionRecord {
    let provenance =
        Provenance { version: String::new(), command: Vec::new(), made: String::new() };
    let requested = [SettingQuestion::parse(wanted).unwrap()];
    prediction_record(provenance, Watched::now(server(settings), watch), &requested)
}

const HINTS: [(&str, &str); 1] = [("wal_log_hints", "on")];

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6 * b.abs().max(1.0)
}

#[test]
fn hints_that_are_no_longer_logged_save_their_images() {
    let record = answered(&HINTS, wal(true), "wal_log_hints=off");
    let answer = &record.answers[0];
    let wal = answer.wal.as_ref().unwrap();
    assert_eq!((wal.basis, &answer.reason), (PredictionBasis::WhatIf, &None));
    let share = wal.extra_share.unwrap();
    assert!(near(share.estimate, -2.0 / 15.0), "{wal:?}");
    // A point, and 30 % of the saving of one cycle, of two.
    let half = (2.0 / 15.0 * 0.3 / 2_f64.sqrt()).hypot(0.01);
    assert!(near(share.lower, -2.0 / 15.0 - half) && near(share.upper, half - 2.0 / 15.0));
    // 10,000 images of 8,000 bytes in 600 s.
    assert!(near(wal.images_per_second.unwrap().estimate, -10_000.0 / 600.0), "{wal:?}");
    assert!(near(wal.image_bytes.unwrap().estimate, 8_000.0), "{wal:?}");
    assert!(near(wal.extra_p95_bytes_per_second.unwrap(), -2.0 / 15.0 * 1e6), "{wal:?}");
    assert!(near(
        answer.io_bytes_per_second.unwrap().estimate,
        wal.extra_bytes_per_second.estimate
    ));
    let cpu = answer.cpu.as_ref().unwrap();
    assert!(near(cpu.image_cores, -10_000.0 / 600.0 * 7_000.0 / 1e9), "{cpu:?}");
    assert!(cpu.cores.lower < cpu.cores.estimate && cpu.cores.upper < 0.0, "{cpu:?}");
    assert!(record.notes.iter().any(|note| note == "a note of the what-if"));
}

#[test]
fn where_volume_begins_checkpoints_the_rule_is_replayed() {
    let mut wal = wal(true);
    wal.rows[0].checkpoints_by_volume = 3;
    let record = answered(&HINTS, wal, "wal_log_hints=off");
    let share = record.answers[0].wal.as_ref().unwrap().extra_share.unwrap();
    assert!(near(share.estimate, 480.0 / 606.0 - 1.0), "{share:?}");
    assert!(share.lower < share.estimate - 0.03 && share.upper > share.estimate + 0.03);
}

#[test]
fn reading_that_was_disturbed_is_noted() {
    let notes = |wal| answered(&HINTS, wal, "wal_log_hints=off").notes;
    let lost =
        |notes: &[String]| notes.iter().any(|note| note.contains("resumed where it stopped"));
    let undisturbed = notes(wal(true));
    assert!(!lost(&undisturbed), "{undisturbed:?}");
    let resumed = notes(WatchedWal { resumed: 2, ..wal(true) });
    assert!(lost(&resumed) && !resumed.iter().any(|note| note.contains("ended")), "{resumed:?}");
    let ended = notes(WatchedWal { ended: Some("the server left".to_owned()), ..wal(true) });
    let expected = "the server left. What rests on WAL rests on 2 checkpoint cycles";
    assert!(ended.iter().any(|note| note.contains(expected)), "{ended:?}");
}

#[test]
fn a_part_of_a_cycle_saves_between_nothing_and_all_images() {
    let part = WatchedWal { redo_points: 1, cycles: Vec::new(), ..wal(true) };
    let record = answered(&HINTS, part, "wal_log_hints=off");
    let answer = &record.answers[0];
    let share = answer.wal.as_ref().unwrap().extra_share.unwrap();
    assert!(near(share.estimate, -80.0 / 600.0) && near(share.lower, -0.5), "{share:?}");
    assert!(share.upper.abs() < 1e-9 && answer.reason.is_some(), "{answer:?}");
    assert!(record.checks.own_settings_error.is_none() && record.checks.blind.is_none());
}

#[test]
fn other_distances_are_replayed_where_enough_wal_was_read() {
    let answer = |requested: &str| answered(&[], wal(false), requested).answers[0].clone();
    let found = answer("max_wal_size=20GB");
    let wal = found.wal.as_ref().unwrap();
    assert_eq!((wal.basis, &found.reason), (PredictionBasis::WhatIf, &None));
    let share = wal.extra_share.unwrap();
    assert!(near(share.estimate, -0.1) && near(share.lower, -0.136) && near(share.upper, -0.064));
    // Too far apart for this WAL, and not replayed at all.
    for requested in ["max_wal_size=90GB", "checkpoint_timeout=30min"] {
        let found = answer(requested);
        assert_eq!(found.wal.as_ref().unwrap().basis, PredictionBasis::ClosedForm, "{requested}");
    }
}

#[test]
fn wal_without_hints_narrows_what_they_would_add() {
    let record = answered(&[], wal(false), "wal_log_hints=on");
    let wal = record.answers[0].wal.as_ref().unwrap();
    assert_eq!(wal.basis, PredictionBasis::PagesWritten);
    // 20,000 blocks written less 15,000 pages changed, in 300 s.
    assert!(near(wal.images_per_second.unwrap().estimate, 5_000.0 / 300.0), "{wal:?}");
    assert!(near(wal.estimators["E3"], 5_000.0 / 300.0), "{wal:?}");
    assert!(near(wal.estimators["E4"], 1_000.0 / 300.0), "{wal:?}");
    assert!(record.checks.blind.is_none());
    // A window whose WAL was not read whole has nothing that could be narrowed.
    let windows = vec![window(1, 0), window(9, 0)];
    let watch = ServerWatch { windows, wal: Some(self::wal(false)), ..<_>::default() };
    let record = answered_with(&[], watch, "wal_log_hints=on");
    assert_eq!(record.answers[0].wal.as_ref().unwrap().basis, PredictionBasis::Counters);
}

#[test]
fn the_blind_check_knows_nothing_of_hints() {
    let blind = answered(&HINTS, wal(true), "wal_log_hints=off").checks.blind.unwrap();
    assert_eq!((blind.cycles, blind.found_images, blind.holds), (2, 10_000, true));
    assert!(near(blind.predicted_images.estimate, 10_000.0), "{blind:?}");
    assert!(near(blind.found_share, 80.0 / 520.0), "{blind:?}");
    // Images of unknown pages, which are nine tenths of a page, with their headers. Those that are not
    // for hints are larger here.
    let image_bytes = 0.9 * 8192.0 + 50.0;
    assert!(near(blind.predicted_share.estimate, 10_000.0 * image_bytes / 520e6), "{blind:?}");
    assert!(blind.predicted_share.upper > blind.found_share, "{blind:?}");
    // Other images for hints change what is found, and not what is predicted.
    let mut more = wal(true);
    for cycle in &mut more.cycles {
        (cycle.bytes, cycle.images) = (500 * MB, 45_000);
    }
    let other = answered(&HINTS, more, "wal_log_hints=off").checks.blind.unwrap();
    assert_eq!(other.predicted_images, blind.predicted_images);
    assert!(!other.holds && other.found_images == 60_000, "{other:?}");
    // Evicted pages may have been written several times.
    let windows = vec![window(1, 4_000), window(2, 4_000)];
    let watch = ServerWatch { windows, wal: Some(wal(true)), ..<_>::default() };
    let evicting = answered_with(&HINTS, watch, "wal_log_hints=off").checks.blind.unwrap();
    assert!(evicting.predicted_images.upper > 18_000.0 && evicting.holds, "{evicting:?}");
}

#[test]
fn the_next_cycle_is_predicted_by_those_before() {
    let cycle = |from: u64, mb: u64| WatchWindow { wal_bytes: mb * MB, ..window(from, 0) };
    let windows = vec![cycle(1, 300), cycle(2, 400), cycle(3, 350)];
    let checks = |windows| {
        let watch = ServerWatch { windows, ..<_>::default() };
        answered_with(&[], watch, "wal_log_hints=on").checks
    };
    let next = checks(windows).next_cycle.unwrap();
    // 300 for 400, and 350 for 350.
    assert_eq!(next.cycles, 2);
    assert!(near(next.wal_error, 0.125) && near(next.wal_error_most, 0.25), "{next:?}");
    assert!(next.images_error.unwrap().abs() < 1e-9, "{next:?}");
    assert_eq!(checks(vec![cycle(1, 300)]).next_cycle, None);
}
