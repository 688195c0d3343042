//! Predicted costs of other settings, for a server that was only watched.

use std::collections::BTreeMap;

use pgtoll_format::Lsn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AdvisedAction, Interval, PayerRanking, PredictionChecks, StatementWatch, WatchedWal};

/// The version of the form of a prediction.
pub const PREDICTION_SCHEMA: &str = "pgtoll.prediction/1";

/// The predicted cost of other settings for a watched server: the observation, and what
/// follows. What follows can be worked out again from what was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionRecord {
    /// [`PREDICTION_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that watches again.
    pub command: Vec<String>,
    /// When the prediction was made (RFC 3339).
    pub made: String,
    /// The server and its settings.
    pub server: WatchedServer,
    /// The observation of the server.
    pub watch: ServerWatch,
    /// CPU that the server's own kernel takes for a page.
    pub page_costs: PageCosts,
    /// The means over all windows of what the server does today.
    pub today: WatchedRates,
    /// An answer for each setting that was asked about.
    pub answers: Vec<PredictionAnswer>,
    /// The statements that would pay; `None` without a question about checksums or hints, or without data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payers: Option<PayerRanking>,
    /// The one-time cost of turning checksums on; `None` if they are on or not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_time: Option<OneTimeBill>,
    /// Predictions of what was seen of this server, compared with it.
    #[serde(default)]
    pub checks: PredictionChecks,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A server that was watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchedServer {
    /// Its version, as `server_version` has it.
    pub version: String,
    /// `version()`: with the platform.
    pub version_text: String,
    /// The provider of a managed server, where its settings show one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The identifier of its cluster; a text, since it is larger than other programs' integers. Empty where
    /// the role may not read it.
    pub system_identifier: String,
    /// The settings on which the answers depend, as `SHOW` has them.
    pub settings: BTreeMap<String, String>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of a WAL segment.
    pub segment_bytes: u64,
    /// Bytes of all databases; `None` where the role may not see them.
    pub data_bytes: Option<u64>,
    /// Standbys that stream from it.
    pub standbys: u32,
    /// WAL is archived.
    pub archives: bool,
    /// It runs on the machine that watched it, and its processes could be seen there.
    pub local: bool,
    /// Logical CPUs of its machine; `None` where it is remote.
    pub cores: Option<u32>,
    /// The CPU's model; `None` where it is remote.
    pub cpu: Option<String>,
    /// When it was started (as the server writes it).
    pub started: String,
}

/// The observation of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerWatch {
    /// When it began (RFC 3339).
    pub began: String,
    /// How long it lasted.
    pub seconds: f64,
    /// All that was wanted was seen.
    pub complete: bool,
    /// Why it ended before; `None` where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Windows in their order.
    pub windows: Vec<WatchWindow>,
    /// Windows that were thrown away, and why: a restart, a reset of the statistics.
    pub discarded: Vec<String>,
    /// The sources, and the gain of another privilege or extension.
    pub sources: Vec<WatchSource>,
    /// Pages of tables that are not all-visible, of all databases that could be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<VisibilityCount>,
    /// WAL that was read meanwhile; `None`: none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<WatchedWal>,
    /// The work of statements; `None` without `pg_stat_statements`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statements: Option<StatementWatch>,
    /// How long turning checksums on takes here; `None` where the files cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<EnablePass>,
    /// The cost of the watch for the server.
    pub cost: WatchCost,
}

/// A stretch of time between two looks at the counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchWindow {
    /// When it began (as the server writes it).
    pub began: String,
    /// How long it lasted.
    pub seconds: f64,
    /// It is a checkpoint cycle: from the end of one checkpoint to that of the next.
    pub is_cycle: bool,
    /// Redo point of the last completed checkpoint when it began, and when it ended; `None` in older
    /// records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<(String, String)>")]
    pub redo: Option<(Lsn, Lsn)>,
    /// Bytes of WAL.
    pub wal_bytes: u64,
    /// WAL records (14 and later).
    pub wal_records: Option<u64>,
    /// Full-page images (14 and later).
    pub wal_images: Option<u64>,
    /// Blocks read from outside shared buffers: each is verified with checksums.
    pub blocks_read: u64,
    /// Blocks written by the checkpointer.
    pub blocks_checkpointed: u64,
    /// Blocks written by all others: evicted from shared buffers, or written by the background
    /// writer.
    pub blocks_evicted: u64,
    /// New blocks were counted as evicted (until 15), at most; `None` where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_extended: Option<u64>,
    /// Blocks that were dirty when the checkpoint of its cycle began, and were written while that ran:
    /// no census sees what `VACUUM` marked on them meanwhile.
    #[serde(default)]
    pub blocks_carried: u64,
    /// The marks of `VACUUM` on these during that checkpoint; `None` if it was not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried_marks: Option<CarriedMarks>,
    /// Tables that were dropped or got another file: no census sees their pages. `None` where some database
    /// cannot be asked, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relations_gone: Option<u64>,
    /// Bytes of rows that were dead when it began and were freed meanwhile, at most. Where hints are logged,
    /// their pages' images come before that, and are longer by them. `None` where some database cannot be
    /// asked, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pruned_bytes_most: Option<u64>,
    /// Those of them, at most, that `VACUUM` freed. `None` as above, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacuumed_bytes_most: Option<u64>,
    /// `VACUUM`s that ended meanwhile, or were still under way. `None` as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacuums: Option<u64>,
    /// Images among `wal_images`, at most, that stand for no block among the written: of indexes that were built,
    /// tables that were rewritten, relations that were dropped. `None`: not known,
    /// and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_images_most: Option<u64>,
    /// CPU of all the server's processes in seconds; `None` where it is remote.
    pub cpu_seconds: Option<f64>,
    /// Pages that SELECTs dirtied beyond the images that they logged (estimator E1');
    /// `None` without `pg_stat_statements`.
    pub select_dirtied: Option<u64>,
    /// The dirty buffers shortly before the window's last checkpoint began; `None` where they
    /// cannot be seen.
    pub census: Option<DirtyCensus>,
    /// Censuses of the same checkpoint cycle before that one, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_censuses: Vec<DirtyCensus>,
}

impl WatchWindow {
    /// All censuses of its cycle, in their order.
    pub fn censuses(&self) -> impl Iterator<Item = &DirtyCensus> {
        self.earlier_censuses.iter().chain(&self.census)
    }
}

/// A sample of the blocks that were dirty when a checkpoint began, followed until it had completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CarriedMarks {
    /// Blocks in the sample.
    pub sampled: u64,
    /// The part that was marked all-visible or all-frozen meanwhile, and changed by no record after the redo
    /// point: checksums would log an image.
    pub marked: u64,
    /// The part of blocks for which that is unknown.
    pub unknown: u64,
}

/// A census of the dirty buffers, by a sample of their pages' headers (estimator E2). Relations are
/// listed by a window's last census alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirtyCensus {
    /// When, as the server writes it.
    pub at: String,
    /// Redo point of the last checkpoint; of one that still runs, where WAL ended just before it.
    #[schemars(with = "String")]
    pub redo: Lsn,
    /// Seconds since the begin of that checkpoint, to half a second.
    pub age_s: f64,
    /// Seconds from that checkpoint's begin to that of the next; `None` while there is none.
    pub cycle_s: Option<f64>,
    /// Blocks evicted since the window's begin; `None` where the server publishes that too late
    /// (until 15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<u64>,
    /// Number of buffers.
    pub buffers: u64,
    /// Dirty ones of the main fork and the free space map.
    pub dirty: u64,
    /// The part in databases whose pages could be read.
    pub covered: u64,
    /// Pages that were looked at.
    pub sampled: u64,
    /// The part of permanent blocks with an LSN before the redo point: checksums would log an image.
    pub hint_only: u64,
    /// Pages looked at that are soon evicted (a usage count of 0 or 1).
    pub low: u64,
    /// The part of permanent blocks with an LSN before the redo point.
    pub low_hint_only: u64,
    /// The uncertainty of these soon evicted pages: they were dirty when a
    /// checkpoint began that still runs, and may have been written and dirtied again meanwhile.
    #[serde(default)]
    pub low_unsure: u64,
    /// Bytes of an image of the pages that count, without their holes: the mean; `None` without
    /// such pages.
    pub image_bytes: Option<f64>,
    /// Their relations, those with most pages first, with pages in the sample.
    pub relations: Vec<CensusRelation>,
}

/// A relation in the sample of a census.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CensusRelation {
    /// Its database.
    pub database: String,
    /// Schema and name.
    pub relation: String,
    /// Pages in the sample that checksums would log an image of.
    pub pages: u64,
}

/// Something that can be read of a server, or could be with more privileges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchSource {
    /// For example `pg_buffercache`.
    pub name: String,
    /// It was read.
    pub available: bool,
    /// The claim.
    pub gives: String,
    /// The SQL that makes it available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Pages of tables by `pg_class`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VisibilityCount {
    /// Databases that were asked.
    pub databases: u64,
    /// Databases that were not.
    pub databases_left_out: u64,
    /// Pages of permanent tables, materialised views and TOAST tables (`relpages`).
    pub pages: u64,
    /// The part that is not all-visible (`relallvisible`).
    pub not_all_visible: u64,
}

/// The cost of the watch for the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchCost {
    /// Number of statements.
    pub statements: u64,
    /// Seconds of its sessions: CPU where `is_cpu`, else the time until the answers came.
    pub seconds: f64,
    /// It is CPU of the sessions' processes.
    pub is_cpu: bool,
    /// The share of a core.
    pub share_of_core: f64,
}

/// CPU for a page, in ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageCosts {
    /// The kernel that servers of this version run.
    pub kernel: String,
    /// It was timed on the server's machine; else it is from pgtoll's table.
    pub timed: bool,
    /// To verify a page that is read.
    pub read_ns: Interval,
    /// To sum a page that is written.
    pub write_ns: Interval,
    /// To log an image, with its compression. Where it was timed, what a server does beside what can be
    /// timed is in it by a factor.
    pub image_ns: Interval,
}

/// Rates of the server as it is, in each case of all windows together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchedRates {
    /// Bytes of WAL a second.
    pub wal_bytes_per_second: f64,
    /// Full-page images a second.
    pub images_per_second: Option<f64>,
    /// Blocks read a second.
    pub reads_per_second: f64,
    /// Blocks written a second.
    pub writes_per_second: f64,
    /// Cores that the server is busy with.
    pub busy_cores: Option<f64>,
    /// Whether WAL volume begins checkpoints, and not time; `None` where that is not known.
    pub wal_driven: Option<bool>,
}

/// The cost of a setting would.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionAnswer {
    /// For example `data_checksums`.
    pub setting: String,
    /// Its value today.
    pub today: String,
    /// The value that was asked about.
    pub value: String,
    /// In a sentence.
    pub headline: String,
    /// Why a figure is zero or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// WAL; `None`: not known.
    pub wal: Option<PredictedWal>,
    /// WAL that is written, sent to standbys and archived, more than today: bytes a second, all
    /// together; `None`: not known.
    pub io_bytes_per_second: Option<Interval>,
    /// CPU; `None`: not known.
    pub cpu: Option<PredictedCpu>,
    /// The advice; only about checksums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<PredictionAdvice>,
    /// The same for each window, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<PredictedWindow>,
}

/// A range of WAL that is wider than this part of today's decides nothing.
const WIDE_SHARE: f64 = 0.3;

impl PredictionRecord {
    /// Sources that would narrow this answer's range of WAL, where it is too wide to decide by or WAL is not
    /// known; first the one that needs the least rights.
    pub fn remedies(&self, answer: &PredictionAnswer) -> Vec<&WatchSource> {
        let share = answer.wal.as_ref().and_then(|wal| wal.extra_share);
        let is_narrow = share.is_some_and(|share| share.upper - share.lower <= WIDE_SHARE);
        if is_narrow || self.watch.windows.is_empty() {
            return Vec::new();
        }
        let is_on = |name: &str| self.server.settings.get(name).is_some_and(|value| value == "on");
        let logged = is_on("data_checksums") || is_on("wal_log_hints");
        let is_useful = |source: &&WatchSource| {
            !source.available
                && source.remedy.is_some()
                && (source.name == WATCHED_WAL || (source.name == WATCHED_PAGES && !logged))
        };
        let mut sources: Vec<&WatchSource> = self.watch.sources.iter().filter(is_useful).collect();
        sources.sort_by_key(|source| source.name != WATCHED_WAL);
        sources
    }
}

/// The [source](WatchSource) that is the server's own WAL.
pub const WATCHED_WAL: &str = "WAL by replication";
/// The [source](WatchSource) that says which pages hints alone have changed.
pub const WATCHED_PAGES: &str = "pageinspect";

/// The cost of a setting in a window, from that window alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedWindow {
    /// When the window began (as the server writes it).
    pub began: String,
    /// How long it lasted.
    pub seconds: f64,
    /// WAL as it was, in bytes a second.
    pub wal_bytes_per_second: f64,
    /// More than that, in bytes a second; `None`: not known of this window.
    pub extra_wal_bytes_per_second: Option<Interval>,
    /// Cores; `None`: not known of this window.
    pub cpu_cores: Option<Interval>,
}

/// WAL more than today; negative: less.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedWal {
    /// Today's, in bytes a second.
    pub baseline_bytes_per_second: f64,
    /// More than that, in bytes a second.
    pub extra_bytes_per_second: Interval,
    /// The same as a share of today's; `None` where today's is zero.
    pub extra_share: Option<Interval>,
    /// The same in the windows, bytes a second: 95 % of them have at most this; `None` with fewer
    /// than two windows.
    pub extra_p95_bytes_per_second: Option<f64>,
    /// Net full-page images more, a second; `None` where they do not decide.
    pub images_per_second: Option<Interval>,
    /// Bytes of WAL for an image; `None` where they do not decide.
    pub image_bytes: Option<Interval>,
    /// The basis of the estimate.
    pub basis: PredictionBasis,
    /// The value of each estimator, in images a second.
    pub estimators: BTreeMap<String, f64>,
}

/// The basis of a prediction of WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PredictionBasis {
    /// The setting has that value already.
    AlreadySo,
    /// Hints are logged before and after, or neither.
    AlreadyLogged,
    /// Censuses of dirty buffers over the cycle, and what was evicted (E2+).
    #[serde(rename = "census+evictions")]
    CensusAndEvictions,
    /// Pages that SELECTs dirtied (E1'), between the bounds of the counters.
    Statements,
    /// Bounds by counters alone: the estimate is their middle and says nothing.
    Counters,
    /// Counters, and what follows for checkpoints.
    ClosedForm,
    /// The WAL itself, replayed under the other setting.
    #[serde(rename = "what-if")]
    WhatIf,
    /// Pages written that no WAL record changed (E3), beside pages that records only mark all-visible
    /// (E4).
    PagesWritten,
}

/// CPU more than today; negative: less.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedCpu {
    /// Cores in use, with the range.
    pub cores: Interval,
    /// The same as a share of the cores that the server is busy with; `None` where it is remote.
    pub share_of_busy: Option<Interval>,
    /// The part of these cores for pages that are read.
    pub read_cores: f64,
    /// For pages that are written.
    pub write_cores: f64,
    /// For images.
    pub image_cores: f64,
    /// The process that pays for verifying pages when they are read.
    pub payer: String,
}

/// Advice about checksums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionAdvice {
    /// The advised action.
    pub action: AdvisedAction,
    /// The figure that decides, and its bound, in words.
    pub decides: String,
    /// The rule, in words.
    pub rule: String,
    /// The decision as one sentence for those who do not read tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentence: Option<String>,
}

/// The one-time cost of turning checksums on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OneTimeBill {
    /// Bytes that have to be read, and pages of which have to be written, with the server stopped.
    pub pass_bytes: Option<u64>,
    /// How long that takes at least and at most, in seconds.
    pub pass_seconds: Option<(f64, f64)>,
    /// Bytes of the sample of the files by which that time is; `None`: it is by built-in rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass_sample_bytes: Option<u64>,
    /// Bytes of WAL if every page that is not all-visible is logged once, at most.
    pub first_touch_bytes: Option<u64>,
    /// Ways to turn them on, each with the time that the server is away.
    pub routes: Vec<EnableRoute>,
    /// The steps afterwards: the base backup, standbys.
    #[serde(default)]
    pub afterwards: Vec<String>,
    /// Damage that stays unnoticed without checksums, and with them.
    #[serde(default)]
    pub undetected: Vec<String>,
}

/// A way to turn checksums on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnableRoute {
    /// In short.
    pub name: String,
    /// How long the server is away, in words.
    pub away: String,
    /// The steps, in order.
    #[serde(default)]
    pub steps: Vec<String>,
    /// Why this way is the one to take here; `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommended: Option<String>,
}

/// How long it takes to turn checksums on, by a sample of the files: they were read, nothing was
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnablePass {
    /// Bytes of all relations.
    pub bytes: u64,
    /// Seconds for all of them with one thread, at least and at most.
    pub seconds: (f64, f64),
    /// Bytes of the sample.
    pub sample_bytes: u64,
}
