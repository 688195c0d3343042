//! The record: what was measured, one JSON line after the other, and what follows from it.
//!
//! The record is the waist of pgtoll: whatever measures writes one, whatever shows reads one. A
//! run's record ([`Run`]) is a file of lines that only grows, so that whatever ends a run leaves
//! all that it measured. [`RunResult`] is the summary that is made from it.
//!
//! ```
//! use pgtoll_record::Run;
//!
//! let error = Run::parse("").unwrap_err();
//! assert_eq!(error.to_string(), "the record is empty");
//! ```

mod answer;
mod balance;
mod bridge;
mod checksums;
mod checkup;
mod checkup_change;
mod conclusion;
mod corrupt;
mod corruption;
mod drill;
mod examination;
mod exchange;
mod expectation;
mod failover;
mod fleet;
mod interval;
mod judge;
mod latencies;
mod metric;
mod overview;
mod page;
mod patrol;
mod payers;
mod plan;
mod prediction;
mod provenance;
mod read;
mod repair;
mod replay;
mod replay_comparison;
mod result;
mod rolling;
mod run;
mod shape_plans;
mod side_by_side;
mod synchronous_commit;
pub mod trials;
mod verification;
mod wal;
mod watch;
mod watched_wal;
mod whatif;

pub use answer::{AdvisedAction, AnswerLine, ArmAdvice, RunAnswer};
pub use balance::{
    BALANCE_PRIMARY, BALANCE_SCHEMA, BalanceDeath, BalanceDesign, BalanceNeed, BalanceQueue,
    BalanceRecord, BalanceRoute, BalanceRung, BalanceSplit, BalanceThroughput, BalanceWait,
};
pub use bridge::{
    BRIDGE_SCHEMA, BridgeCheck, BridgeRecord, BridgeStatement, BridgeStep, ForeignScan,
};
pub use checksums::{
    BlockOfFile, CHECKSUMS_SCHEMA, ChecksumsOutcome, ChecksumsPages, ChecksumsRecord,
    ChecksumsSample, EarlierRun,
};
pub use checkup::{
    CHECKUP_SCHEMA, CheckedArchive, CheckedDatabase, CheckedRecord, CheckedRecordKind,
    CheckedServer, CheckedSlot, CheckupRecord, CheckupWatch, CommitOverride, CommitWaits,
    LossBounds, LossWindow, RecoveryBasis, RecoveryForecast, Safety, SafetyRow, SafetyState,
    SeenRecovery, Spread, StandbyWindow,
};
pub use checkup_change::{CHECKUP_CHANGE_SCHEMA, CheckupChange};
pub use conclusion::{Conclusion, Finding, FindingCode, PrintedRecord, Status, record_schema};
pub use corrupt::{CORRUPT_SCHEMA, CorruptOutcome, CorruptRecord};
pub use corruption::{
    CORRUPTION_SCHEMA, CorruptionDesign, CorruptionFailover, CorruptionRecord, DamageSpread,
    RowState,
};
pub use drill::{
    DRILL_SCHEMA, DrillCheck, DrillDisk, DrillFinding, DrillPages, DrillRecord, DrillStart,
    DrillVerdict, DrillWal, DrilledBackup, DrilledDatabase, DrilledForm, DrilledKind,
    DrilledMember, DrilledTablespace, LoggedTablespace,
};
pub use examination::{EXAMINATION_SCHEMA, Examination, FitnessCheck, Misses, NullRuns, State};
pub use exchange::{AddedLatency, EXCHANGE_SCHEMA, ExchangeCase, ExchangeDesign, ExchangeRecord};
pub use expectation::{Expectation, ExpectedFigure};
pub use failover::{
    EngineSettings, EngineTopology, FAILOVER_SCHEMA, FailoverDesign, FailoverDetector,
    FailoverEngine, FailoverFault, FailoverRecord, FailoverRejoin, FailoverRun, PartitionOutcome,
    PartitionSide, SkippedFault, ThirdNode,
};
pub use fleet::{
    FLEET_PLAN_SCHEMA, FLEET_SCHEMA, FleetBackup, FleetCpuSource, FleetCpuTime, FleetCpuTimes,
    FleetEstimate, FleetLayout, FleetObject, FleetOutcome, FleetPart, FleetPlan, FleetRange,
    FleetRecord, FleetRefusal, FleetUnit,
};
pub use interval::{Interval, Verdict};
pub use judge::{
    AcknowledgementGap, ClientTimeline, IdSet, JUDGE_SCHEMA, JudgeDesign, JudgeRecord,
    JudgeVerdict, JudgedClient, JudgedEvent, JudgedFault, JudgedNode, JudgedServer, JudgedSide,
    LongForkProbe, LostTransactions, NodeIdentity, ReadChecks, SeenError, TransactionCounts,
    TransactionExample,
};
pub use latencies::{Latencies, LatenciesError};
pub use metric::Metric;
pub use overview::{
    EXPERIMENTS_SCHEMA, ExperimentList, ListedExperiment, OVERVIEW_SCHEMA, Overview,
    OverviewExperiment,
};
pub use page::{
    FieldDifference, LinePointerRecord, PAGE_CHECKSUMS_SCHEMA, PAGE_DIFFERENCE_SCHEMA, PAGE_SCHEMA,
    PageChecksumRecord, PageChecksumsRecord, PageDifferenceRecord, PageHeaderRecord, PageRecord,
};
pub use patrol::{
    PATROL_SCHEMA, PatrolAmount, PatrolBlock, PatrolBudget, PatrolFinding, PatrolMark,
    PatrolRecord, PatrolRound, PatrolSource,
};
pub use payers::{
    PayerRanking, RelationShare, StatementCost, StatementWatch, StatementWork, WatchedStatement,
};
pub use plan::{PLAN_SCHEMA, PlanRecord, PlannedRun};
pub use prediction::{
    CarriedMarks, CensusRelation, DirtyCensus, EnablePass, EnableRoute, OneTimeBill,
    PREDICTION_SCHEMA, PageCosts, PredictedCpu, PredictedWal, PredictedWindow, PredictionAdvice,
    PredictionAnswer, PredictionBasis, PredictionRecord, ServerWatch, VisibilityCount,
    WATCHED_PAGES, WATCHED_WAL, WatchCost, WatchSource, WatchWindow, WatchedRates, WatchedServer,
};
pub use provenance::Provenance;
pub use read::{RecordError, Run};
pub use repair::{
    EvidenceClass, REPAIR_SCHEMA, RepairBlock, RepairCandidate, RepairOutcome, RepairRecord,
    RepairSource, RepairSourceKind, RepairWal, RepairWalRecord,
};
pub use replay::{
    AFTER_FAILURE, FAILED_WHEN_LOGGED, LOG_EXAMINATION_SCHEMA, LogCounts, LogEnvelope,
    LogExamination, LogFinding, LogFindingState, LogSource, OrderBreak, REPLAY_SCHEMA,
    ReplayBottleneck, ReplayDivergence, ReplayDone, ReplayLatencyCount, ReplayPlanned,
    ReplayQuantiles, ReplayRecord, ReplayTable, ReplayTarget,
};
pub use replay_comparison::{
    ArmReplay, REPLAY_COMPARISON_SCHEMA, RatioRange, ReplayArm, ReplayArmRole, ReplayComparison,
    ReplayQuantity, ReplayTotal, ShapeComparison, ShapeDifference, ShapeVerdict,
};
pub use result::{
    CSV_COLUMNS, Comparison, Expected, MetricValue, OnePieceCheck, Outcome, Outliers,
    RESULT_SCHEMA, RunResult, Steadiness, TransactionRange,
};
pub use rolling::{
    ROLLING_SCHEMA, RollingNode, RollingObjection, RollingOutcome, RollingRecord, RollingSwitchover,
};
pub use run::{
    Arm, ArmBuild, ArmLatencies, ArmRound, ArmServer, Calibration, Counted, CounterReading,
    Counters, Design, End, EndStatus, Header, Host, IoBytes, Line, MemoryUse, NoiseShare, Note,
    Operation, OperationOf, PlanDifference, Predicted, Prepared, Profile, RECORD_SCHEMA,
    RoundBegin, RoundEnd, ScriptText, Server, ShippedValues, SkippedArm, Slice, Slicing,
    StepReading, Work, Workload,
};
pub use shape_plans::ShapePlans;
pub use side_by_side::{Change, HeaderDifference, RecordColumn, SIDE_BY_SIDE_SCHEMA, SideBySide};
pub use synchronous_commit::SynchronousCommit;
pub use verification::{
    Advice, CommandKind, FileFinding, FileFindingKind, FindingClass, FindingKind,
    ManifestComparison, PageFinding, Severity, VERIFICATION_SCHEMA, VerificationOutcome,
    VerificationRecord, VerifiedAmount, VerifiedRelation, VerifiedRunning, VerifiedSource,
};
pub use wal::{
    CycleBegin, ImageCause, WAL_STATISTICS_SCHEMA, WalAmount, WalCycle, WalEnd, WalEndKind, WalGap,
    WalImages, WalKind, WalOfDatabase, WalOfKind, WalOfRelation, WalPiece, WalRelationName,
    WalSource, WalStatisticsRecord,
};
pub use watch::{PageCondition, WATCH_SCHEMA, WatchAction, WatchRecord, WatchedPage};
pub use watched_wal::{
    BlindCheck, CycleWithoutHints, NextCycleCheck, PredictionChecks, WatchedWal, WatchedWalCycle,
};
pub use whatif::{
    WAL_WHATIF_SCHEMA, WalWhatIfRecord, WhatIfCheck, WhatIfClass, WhatIfEvidence, WhatIfNeed,
    WhatIfRecommendation, WhatIfRedoPoint, WhatIfRow, WhatIfSourceSettings,
};

/// The JSON Schema of a line of a record.
pub fn line_schema() -> serde_json::Value {
    schemars::schema_for!(Line).to_value()
}
