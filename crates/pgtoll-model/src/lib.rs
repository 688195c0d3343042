//! Facts and settings in, what they would cost out. No I/O, nothing is measured: the caller feeds
//! what it read.
//!
//! ```
//! use pgtoll_format::Lsn;
//! use pgtoll_model::{
//!     BlockKey, Geometry, ImageCompression, Reference, Rule, Schedule, Settings, WhatIf,
//! };
//!
//! let rule = |max_wal_size| Settings {
//!     schedule: Schedule::Rule { max_wal_size, timeout_us: i64::MAX, completion_target: 0.9 },
//!     hints: true,
//!     full_page_writes: true,
//!     compression: ImageCompression::OFF,
//! };
//! let geometry = Geometry { segment_bytes: 16 << 20, page_bytes: 8192 };
//! let mut whatif = WhatIf::new(geometry, 0, &[rule(64 << 20), rule(1 << 30)]);
//! whatif.begin(Lsn(0x0100_0028), Some(0));
//! for number in 0..100_000 {
//!     let block = BlockKey { fork: 0, block: number % 10_000 };
//!     let image = Some([8000; ImageCompression::COUNT]);
//!     let (data_bytes, grows_by, freeze_bytes, pruned_bytes) = (0, 0, 0, 0);
//!     let rule = Rule::Regular;
//!     let reference =
//!         Reference { block, rule, image, data_bytes, grows_by, freeze_bytes, pruned_bytes };
//!     whatif.record(100, &[reference]);
//! }
//! let outcomes = whatif.finish();
//! // Every 10,000 records a page comes again; whether it needs an image depends on checkpoints.
//! assert_eq!(outcomes[1].images, 10_000);
//! assert!(outcomes[0].images > 10_000 && outcomes[0].by_volume > 0);
//! ```

mod advice;
mod decision;
mod grid;
mod judge;
pub mod prediction;
mod source;
mod whatif;

pub use advice::{SettingAdvice, Unadvised, advise, knee, shown, unadvised};
pub use decision::{CHECKSUMS_RULE, CostDecision, CostLimits, DecisionRule};
pub use grid::{
    AskedSettings, AskedValues, Candidate, Grid, MOST_COMBINATIONS, TooManyCombinations,
};
pub use judge::{EstimateClass, JudgedOutcome, SourceWal};
pub use source::{CheckpointRule, GuessedSettings, KnownSettings, SourceSettings};
pub use whatif::{
    BlockKey, Check, CyclePages, FREEZE_WITHIN, ForkPlace, Geometry, ImageCompression,
    ImageLengths, Reference, Rule, Schedule, Settings, WhatIf, WhatIfOutcome, checkpoint_segments,
    max_wal_size_for,
};
