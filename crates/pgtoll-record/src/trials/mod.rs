//! Records of the benches and trials of pgtoll itself: how fast it is, and how right. The figures
//! in the documentation come from them.

mod bench;
mod design;
mod detection;
mod fleet;
mod prediction;
mod recoveries;
mod replay;
mod replay_compare;
mod replay_pace;
mod rolling;
mod soak;
mod twins;
mod whatif;

pub use bench::{
    BENCH_CAPTURE_SCHEMA, BENCH_CHECKSUM_SCHEMA, BENCH_ENABLE_SCHEMA, BENCH_VERIFY_SCHEMA,
    BENCH_WAL_SCHEMA, BENCH_WATCH_SCHEMA, BenchCluster, BenchEstimate, BenchGoal, BenchHeader,
    BenchLine, BenchLoad, BenchMemory, BenchOutcome, BenchPeak, BenchPlace, BenchRun, BenchSubject,
    BenchUsage, BenchWal, BenchWalKind, BenchWalTotal,
};
pub use design::{
    BENCH_DESIGN_SCHEMA, DesignEstimate, DesignHeader, DesignLine, DesignNeighbours,
    DesignSequential, DesignSliced, DesignSummary, DesignTrial,
};
pub use detection::{DETECTION_SCHEMA, DetectionOutcome, DetectionRecord, DetectionRow, Detector};
pub use fleet::{
    BENCH_FLEET_SCHEMA, FleetBenchCase, FleetBenchHeader, FleetBenchLine, FleetBenchPacking,
    FleetBenchPlace, FleetBenchPlan, FleetBenchRead,
};
pub use prediction::{
    PREDICTION_TRIAL_SCHEMA, PredictionTrialAnswer, PredictionTrialArm, PredictionTrialBlind,
    PredictionTrialCensus, PredictionTrialCycle, PredictionTrialHeader, PredictionTrialLine,
    PredictionTrialRange, PredictionTrialRegime, PredictionTrialRights, PredictionTrialRun,
    PredictionTrialWorkload,
};
pub use recoveries::{
    BENCH_RECOVERIES_SCHEMA, RecoveriesHeader, RecoveriesLine, RecoveriesSummary, RecoveryRun,
};
pub use replay::{
    BENCH_REPLAY_SCHEMA, ReplayBenchCapture, ReplayBenchHeader, ReplayBenchLine, ReplayBenchRun,
};
pub use replay_compare::{
    BENCH_REPLAY_COMPARE_SCHEMA, ReplayCompareHeader, ReplayCompareLine, ReplayCompareNamed,
    ReplayComparePlant, ReplayCompareSummary, ReplayCompareTrial,
};
pub use replay_pace::{
    BENCH_REPLAY_PACE_SCHEMA, ReplayPaceCase, ReplayPaceHeader, ReplayPaceLine, ReplayPaceRun,
};
pub use rolling::{
    ROLLING_SERIES_SCHEMA, RollingSeriesHeader, RollingSeriesLine, RollingSeriesRun,
};
pub use soak::{SOAK_SCHEMA, SoakOutcome, SoakRecord};
pub use twins::{
    BENCH_TWINS_SCHEMA, TwinsComparison, TwinsHeader, TwinsLine, TwinsRun, TwinsSummary,
};
pub use whatif::{
    WHATIF_TRIAL_SCHEMA, WhatIfTrialCompression, WhatIfTrialHeader, WhatIfTrialKind,
    WhatIfTrialLine, WhatIfTrialPrediction, WhatIfTrialSetting, WhatIfTrialWorkload,
};

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use super::*;
    use crate::{
        BALANCE_SCHEMA, BRIDGE_SCHEMA, BalanceRecord, BridgeRecord, CHECKUP_SCHEMA,
        CORRUPTION_SCHEMA, CheckupRecord, CorruptionRecord, EXCHANGE_SCHEMA, ExchangeRecord,
        FAILOVER_SCHEMA, FailoverRecord, VERIFICATION_SCHEMA, VerificationRecord,
    };

    fn records() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records")
    }

    /// Each text is read as a `T` with one of these schemas, and written back as it was.
    fn check<T: Serialize + DeserializeOwned>(texts: &[&str], schemas: &[&str], name: &str) {
        assert!(!texts.is_empty(), "{name}");
        for (number, text) in (1..).zip(texts) {
            let found: Value = serde_json::from_str(text).unwrap();
            let read: T = serde_json::from_str(text)
                .unwrap_or_else(|error| panic!("{name}, line {number}: {error}"));
            assert_eq!(serde_json::to_value(&read).unwrap(), found, "{name}, line {number}");
            if number == 1 {
                let schema = found["schema"].as_str().unwrap_or_default();
                assert!(schemas.contains(&schema), "{name}: {schema}");
            }
        }
    }

    fn check_lines<T: Serialize + DeserializeOwned>(names: &[&str], schemas: &[&str]) {
        for name in names {
            let text = fs::read_to_string(records().join(name)).unwrap();
            check::<T>(&text.lines().collect::<Vec<_>>(), schemas, name);
        }
    }

    const BENCHES: [&str; 11] = [
        "2026-11-22-checksum.jsonl",
        "2026-11-22-enable-bench.jsonl",
        "2026-11-26-enable-bench.jsonl",
        "2026-11-22-verify-bench.jsonl",
        "2026-11-26-verify-bench.jsonl",
        "2026-11-22-wal-bench.jsonl",
        "2026-11-23-before-after-enable.jsonl",
        "2026-11-23-before-after-verify.jsonl",
        "2026-11-23-before-after-wal.jsonl",
        "2026-11-25-capture.jsonl",
        "2026-11-25-watch.jsonl",
    ];
    const BENCH_SCHEMAS: [&str; 6] = [
        BENCH_CAPTURE_SCHEMA,
        BENCH_CHECKSUM_SCHEMA,
        BENCH_ENABLE_SCHEMA,
        BENCH_VERIFY_SCHEMA,
        BENCH_WAL_SCHEMA,
        BENCH_WATCH_SCHEMA,
    ];
    const DESIGN: &str = "2026-11-22-design.jsonl";
    const SOAKS: [&str; 3] =
        ["2026-11-26-soak.jsonl", "2026-11-27-soak.jsonl", "2026-11-28-soak.jsonl"];
    /// Its lines have their type beside the trial, and are read there.
    const DRILLS: &str = "2026-11-28-drills.jsonl";
    const WHATIF: &str = "2026-11-22-whatif-trial.jsonl";
    const PREDICTIONS: [&str; 4] = [
        "2026-11-23-prediction-trial.jsonl",
        "2026-11-26-prediction-spread.jsonl",
        "2026-11-26-prediction-turns.jsonl",
        "2026-11-28-prediction-kinds.jsonl",
    ];
    const REPLAY: &str = "2026-11-24-bench-replay.jsonl";
    const REPLAY_COMPARE: &str = "2026-11-26-bench-replay-compare.jsonl";
    const REPLAY_PACE: &str = "2026-11-26-bench-replay-pace.jsonl";
    const FLEETS: [&str; 3] = [
        "2026-11-26-bench-fleet.jsonl",
        "2026-11-26-bench-fleet-objects.jsonl",
        "2026-11-29-bench-fleet-cost.jsonl",
    ];
    const ROLLING_SERIES: &str = "2026-11-26-rolling-series.jsonl";
    const DETECTION: &str = "2026-11-28-detection.json";
    /// Of `pgtoll lab`, which is no trial.
    const CHECKUP: &str = "2026-11-29-checkup.json";
    const EXCHANGES: [&str; 4] = [
        "2026-11-23-exchange.json",
        "2026-11-29-exchange-forecasts.json",
        "2026-11-29-exchange-bursts.json",
        "2026-11-29-exchange-levels.json",
    ];
    const RECOVERIES: &str = "2026-11-29-recoveries.jsonl";
    const FAILOVERS: [&str; 7] = [
        "2026-11-26-failover.json",
        "2026-11-25-failover-faults.json",
        "2026-11-26-failover-engines.json",
        "2026-11-26-failover-partition.json",
        "2026-11-26-failover-standby-death.json",
        "2026-11-26-failover-walsender-hang.json",
        "2026-11-30-failover-newer.json",
    ];
    const CORRUPTION: &str = "2026-11-25-corruption.json";
    const BALANCES: [&str; 2] = ["2026-11-26-balance.json", "2026-11-26-balance-19.json"];
    const BRIDGE: &str = "2026-11-26-bridge.json";
    const TWINS: [&str; 9] = [
        "2026-11-23-twins.jsonl",
        "2026-11-29-twins-all-a.jsonl",
        "2026-11-29-twins-all-b.jsonl",
        "2026-11-29-twins-cached-a.jsonl",
        "2026-11-29-twins-cached-b.jsonl",
        "2026-11-29-twins-read-write-a.jsonl",
        "2026-11-29-twins-read-write-b.jsonl",
        "2026-11-29-servers-planted.jsonl",
        "2026-11-29-servers-same.jsonl",
    ];
    /// A record of `pgtoll verify`.
    const VERIFICATION: &str = "2026-11-28-verification.json";

    #[test]
    fn committed_records_are_read_and_written_back_equal() {
        check_lines::<BenchLine>(&BENCHES, &BENCH_SCHEMAS);
        check_lines::<DesignLine>(&[DESIGN], &[BENCH_DESIGN_SCHEMA]);
        check_lines::<SoakRecord>(&SOAKS, &[SOAK_SCHEMA]);
        check_lines::<WhatIfTrialLine>(&[WHATIF], &[WHATIF_TRIAL_SCHEMA]);
        check_lines::<TwinsLine>(&TWINS, &[BENCH_TWINS_SCHEMA]);
        check_lines::<PredictionTrialLine>(&PREDICTIONS, &[PREDICTION_TRIAL_SCHEMA]);
        check_lines::<ReplayBenchLine>(&[REPLAY], &[BENCH_REPLAY_SCHEMA]);
        check_lines::<ReplayCompareLine>(&[REPLAY_COMPARE], &[BENCH_REPLAY_COMPARE_SCHEMA]);
        check_lines::<FleetBenchLine>(&FLEETS, &[BENCH_FLEET_SCHEMA]);
        check_lines::<RecoveriesLine>(&[RECOVERIES], &[BENCH_RECOVERIES_SCHEMA]);
        check_lines::<RollingSeriesLine>(&[ROLLING_SERIES], &[ROLLING_SERIES_SCHEMA]);
        check_lines::<ReplayPaceLine>(&[REPLAY_PACE], &[BENCH_REPLAY_PACE_SCHEMA]);
        let text = fs::read_to_string(records().join(DETECTION)).unwrap();
        check::<DetectionRecord>(&[&text], &[DETECTION_SCHEMA], DETECTION);
        let text = fs::read_to_string(records().join(CHECKUP)).unwrap();
        check::<CheckupRecord>(&[&text], &[CHECKUP_SCHEMA], CHECKUP);
        for name in EXCHANGES {
            let text = fs::read_to_string(records().join(name)).unwrap();
            check::<ExchangeRecord>(&[&text], &[EXCHANGE_SCHEMA], name);
        }
        for name in FAILOVERS {
            let text = fs::read_to_string(records().join(name)).unwrap();
            check::<FailoverRecord>(&[&text], &[FAILOVER_SCHEMA], name);
        }
        let text = fs::read_to_string(records().join(CORRUPTION)).unwrap();
        check::<CorruptionRecord>(&[&text], &[CORRUPTION_SCHEMA], CORRUPTION);
        for name in BALANCES {
            let text = fs::read_to_string(records().join(name)).unwrap();
            check::<BalanceRecord>(&[&text], &[BALANCE_SCHEMA], name);
        }
        let text = fs::read_to_string(records().join(BRIDGE)).unwrap();
        check::<BridgeRecord>(&[&text], &[BRIDGE_SCHEMA], BRIDGE);
        let text = fs::read_to_string(records().join(VERIFICATION)).unwrap();
        check::<VerificationRecord>(&[&text], &[VERIFICATION_SCHEMA], VERIFICATION);
    }

    /// Records of runs are directories; every file beside them belongs to a trial.
    #[test]
    fn every_committed_record_of_a_trial_is_checked() {
        let mut checked = [
            &BENCHES[..],
            &PREDICTIONS,
            &FAILOVERS,
            &EXCHANGES,
            &TWINS,
            &BALANCES,
            &FLEETS,
            &SOAKS,
            &[
                DESIGN,
                DRILLS,
                WHATIF,
                DETECTION,
                CHECKUP,
                CORRUPTION,
                BRIDGE,
                REPLAY,
                REPLAY_COMPARE,
                REPLAY_PACE,
                RECOVERIES,
                ROLLING_SERIES,
                VERIFICATION,
            ],
        ]
        .concat();
        checked.sort_unstable();
        let entries = fs::read_dir(records()).unwrap().map(Result::unwrap);
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let mut committed: Vec<String> = names.filter(|name| name.contains(".json")).collect();
        committed.sort_unstable();
        assert_eq!(committed, checked);
    }

    #[test]
    fn lines_that_no_trial_writes_are_refused() {
        let refused = |line: &str| serde_json::from_str::<BenchLine>(line).is_err();
        let outcome = r#"{"t":"outcome","what":"x","ratio":1.0,"lower":0.9,"upper":1.1"#;
        assert!(!refused(&format!(r#"{outcome},"at_most":null}}"#)));
        assert!(refused(&format!("{outcome}}}")), "a goal is missing");
        assert!(refused(r#"{"t":"run","repetition":1}"#), "an arm is missing");
        assert!(refused(r#"{"t":"prediction"}"#), "it belongs to another trial");
    }
}
