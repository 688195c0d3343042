//! The model's advice in words, and what it rests on.

use std::fmt::Write as _;

use pgtoll_format::ByteSize;
use pgtoll_model::{JudgedOutcome, SettingAdvice, SourceWal, advise, unadvised};
use pgtoll_record::{WhatIfEvidence, WhatIfNeed, WhatIfRecommendation};

use crate::whatif::estimates::{Estimates, ratio, row};

/// Returns the recommendation, or its absence, with the evidence. `is_streamed`: the WAL comes
/// from a server.
pub(crate) fn recommendation(
    wal: &SourceWal,
    estimates: &Estimates,
    is_streamed: bool,
) -> (Option<WhatIfRecommendation>, WhatIfEvidence) {
    let Estimates { today, rows, curve, compressed } = estimates;
    let advice = advise(wal, today, curve, compressed);
    let chosen = advice.and_then(|advice| {
        let plain = curve.get(advice.place)?;
        let lz4 = compressed.get(advice.place).filter(|_| advice.with_lz4);
        Some((advice, plain, lz4))
    });
    let missed = unadvised(wal, today, rows, chosen.map(|(_, plain, lz4)| lz4.unwrap_or(plain)));
    let evidence = WhatIfEvidence {
        enough: wal.is_enough(),
        lz4: !compressed.is_empty(),
        certain: missed.certain,
        extrapolated: missed.extrapolated,
        needs: missed.needs.map(|(row, bytes)| WhatIfNeed { row, bytes }),
        stream_s: is_streamed.then(|| stream_seconds(wal, missed.needs.map(|(_, bytes)| bytes))),
    };
    let recommendation = chosen.map(|(advice, plain, lz4)| WhatIfRecommendation {
        settings: settings(&advice),
        row: row(lz4.unwrap_or(plain), wal),
        reason: reason(&advice, today, plain, lz4),
        price: price(&advice, today, lz4.unwrap_or(plain)),
    });
    (recommendation, evidence)
}

/// Whole minutes in which there are this many bytes, and three checkpoints by time: half an hour at
/// least, a week at most.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a week's seconds")]
fn stream_seconds(wal: &SourceWal, needs: Option<u64>) -> u64 {
    let rate = wal.bytes_per_second(wal.bytes).filter(|rate| *rate > 0.0);
    #[expect(clippy::cast_precision_loss, reason = "bytes of WAL are far below 2^53")]
    let for_bytes = needs.zip(rate).map_or(0.0, |(bytes, rate)| bytes as f64 / rate);
    let seconds = for_bytes.max(wal.timeout.0.as_secs_f64() * 3.0).clamp(1800.0, 604_800.0);
    (seconds / 60.0).ceil() as u64 * 60
}

/// Lines for `postgresql.conf`.
fn settings(advice: &SettingAdvice) -> Vec<String> {
    let size =
        advice.sets_max_wal_size.then(|| format!("max_wal_size = '{}'", advice.max_wal_size));
    let timeout =
        advice.checkpoint_timeout_min.map(|minutes| format!("checkpoint_timeout = '{minutes}min'"));
    let compression = advice.with_lz4.then(|| "wal_compression = 'lz4'".to_owned());
    [size, timeout, compression].into_iter().flatten().collect()
}

fn reason(
    advice: &SettingAdvice,
    today: &JudgedOutcome,
    plain: &JudgedOutcome,
    lz4: Option<&JudgedOutcome>,
) -> String {
    let less =
        |than: &JudgedOutcome| 100.0 * (1.0 - ratio(than.outcome.bytes, today.outcome.bytes));
    let mut reason = if advice.saves_by_distance {
        format!(
            "checkpoints {} apart make {:.0} % less WAL; {}",
            ByteSize(plain.outcome.longest_cycle).rounded(),
            less(plain),
            if advice.is_knee {
                "twice the distance would save less than 5 % more"
            } else {
                "longer distances may save more, and this WAL is too short to say how much"
            }
        )
    } else {
        "no distance of checkpoints that this WAL can judge saves a twentieth".to_owned()
    };
    if let Some(lz4) = lz4 {
        let _ = write!(reason, "; with LZ4 it is {:.0} % less in all", less(lz4));
    }
    reason
}

fn price(advice: &SettingAdvice, today: &JudgedOutcome, chosen: &JudgedOutcome) -> String {
    format!(
        "after a crash up to {} of WAL to replay (today {}), about {} for pg_wal{}",
        ByteSize(chosen.outcome.replay_most).rounded(),
        ByteSize(today.outcome.replay_most).rounded(),
        advice.max_wal_size,
        if advice.with_lz4 { ", and the CPU that compresses images" } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pgtoll_format::TimeSpan;
    use pgtoll_format::wal::Compression;
    use pgtoll_model::{Candidate, CheckpointRule, ImageCompression, WhatIfOutcome};

    use super::*;

    const MB: u64 = 1 << 20;

    fn wal(seconds: f64) -> SourceWal {
        SourceWal {
            bytes: 1000 * MB,
            seconds: Some(seconds),
            segment_bytes: MB,
            redo_points: 18,
            cycles: Some((50 * MB, 60 * MB)),
            hints: true,
            max_wal_size: ByteSize(100 * MB),
            timeout: TimeSpan(Duration::from_secs(300)),
        }
    }

    fn estimate(
        wal: &SourceWal,
        size_mb: u64,
        bytes_mb: u64,
        kind: ImageCompression,
    ) -> JudgedOutcome {
        let rule = CheckpointRule {
            max_wal_size: ByteSize(size_mb * MB),
            timeout: None,
            completion_target: 0.9,
        };
        let rule = Some(rule).filter(|_| size_mb > 0);
        let candidate = Candidate { rule, hints: true, full_page_writes: true, compression: kind };
        let outcome = WhatIfOutcome {
            bytes: bytes_mb * MB,
            longest_cycle: size_mb.max(100) / 2 * MB,
            replay_most: size_mb.max(100) * MB,
            by_volume: 1,
            ..WhatIfOutcome::default()
        };
        wal.estimate(&candidate, &outcome)
    }

    /// What is recommended where the curve falls so, with LZ4 that saves a share of it.
    fn recommended(seconds: f64, curve: &[(u64, u64)], lz4: u64) -> Option<WhatIfRecommendation> {
        let wal = wal(seconds);
        let point = |kind, percent| {
            let wal = &wal;
            move |(size, bytes): &(u64, u64)| estimate(wal, *size, bytes * percent / 100, kind)
        };
        let stored = ImageCompression::AsStored;
        let compressed = ImageCompression::Set(Some(Compression::Lz4));
        let estimates = Estimates {
            today: estimate(&wal, 0, 1000, stored),
            rows: Vec::new(),
            curve: curve.iter().map(point(stored, 100)).collect(),
            compressed: curve.iter().map(point(compressed, 100 - lz4)).collect(),
        };
        recommendation(&wal, &estimates, false).0
    }

    const FALLING: [(u64, u64); 4] = [(100, 900), (200, 600), (400, 590), (800, 585)];

    #[test]
    fn the_knee_is_recommended_in_words() {
        let plain = recommended(1000.0, &[FALLING.as_slice(), &[(1600, 584)]].concat(), 5).unwrap();
        assert_eq!(plain.settings, ["max_wal_size = '200MB'"]);
        assert_eq!(
            plain.reason,
            "checkpoints 100 MB apart make 40 % less WAL; twice the distance would save less than \
             5 % more"
        );
        assert_eq!(
            plain.price,
            "after a crash up to 200 MB of WAL to replay (today 100 MB), about 200MB for pg_wal"
        );
        assert_eq!((plain.row.bytes, plain.row.wal_compression.as_str()), (600 * MB, "as stored"));
    }

    #[test]
    fn a_timeout_and_lz4_are_recommended_where_they_help() {
        let slow = recommended(10_000.0, &[(100, 900), (200, 600), (400, 400)], 50).unwrap();
        // 200 MB at 0.02 MB/s take 10,000 s, and a fifth more is 200 minutes.
        let expected =
            ["max_wal_size = '400MB'", "checkpoint_timeout = '200min'", "wal_compression = 'lz4'"];
        assert_eq!(slow.settings, expected);
        let words = "this WAL is too short to say how much; with LZ4 it is 80 % less in all";
        assert!(slow.reason.ends_with(words), "{}", slow.reason);
        assert!(slow.price.ends_with(", and the CPU that compresses images"), "{}", slow.price);
        let flat = recommended(1000.0, &[(100, 990), (200, 985)], 50).unwrap();
        assert_eq!(flat.settings, ["wal_compression = 'lz4'"]);
        let words = "no distance of checkpoints that this WAL can judge saves a twentieth; with LZ4 it is \
                     51 % less in all";
        assert_eq!(flat.reason, words);
        assert_eq!(recommended(1000.0, &[(100, 990), (200, 985)], 5), None);
    }

    #[test]
    fn a_stream_is_as_long_as_what_it_has_to_show() {
        let wal = wal(1000.0);
        assert_eq!(stream_seconds(&wal, None), 1800);
        // A MB a second.
        assert_eq!(stream_seconds(&wal, Some(3601 * MB)), 3660);
        assert_eq!(stream_seconds(&wal, Some(u64::MAX)), 604_800);
        let slow = SourceWal { timeout: TimeSpan(Duration::from_secs(3600)), ..wal };
        assert_eq!(stream_seconds(&slow, None), 3 * 3600);
        let idle = SourceWal { seconds: None, ..wal };
        assert_eq!(stream_seconds(&idle, Some(MB)), 1800);
    }

    #[test]
    fn evidence_says_what_is_not_relied_on() {
        let wal = SourceWal { redo_points: 1, cycles: None, ..wal(1000.0) };
        let lz4 = ImageCompression::Set(Some(Compression::Lz4));
        let estimates = Estimates {
            today: estimate(&wal, 0, 1000, ImageCompression::AsStored),
            rows: vec![estimate(&wal, 100, 400, lz4)],
            curve: vec![estimate(&wal, 100, 900, ImageCompression::AsStored)],
            compressed: vec![estimate(&wal, 100, 400, lz4)],
        };
        let (none, evidence) = recommendation(&wal, &estimates, true);
        assert_eq!(none, None);
        let needs = evidence.needs.unwrap();
        // Two distances of 52 segments, and 2.5 times as much of today's WAL.
        assert_eq!((needs.row, needs.bytes), (0, 260 * MB));
        let expected = WhatIfEvidence {
            enough: false,
            lz4: true,
            certain: Vec::new(),
            extrapolated: vec![0],
            needs: Some(needs),
            stream_s: Some(1800),
        };
        assert_eq!(evidence, expected);
    }
}
