//! From an experiment file to samples: the [`Experiment`] says what is compared, the [`Plan`] what
//! exactly will run, and [`measure()`] runs it and writes the record.
//!
//! ```
//! use pgtoll_measure::Experiment;
//!
//! let experiment = Experiment::built_in("checksums").expect("it is built in")?;
//! let arms: Vec<&str> = experiment.arms.iter().map(|arm| arm.name.as_str()).collect();
//! assert_eq!(arms, ["off", "hints", "checksums", "twin"]);
//! # Ok::<(), pgtoll_measure::ExperimentError>(())
//! ```

mod arm_trial;
mod builds;
mod coarse;
mod counting;
mod course;
mod error;
mod experiment;
pub mod fitness;
mod header;
mod host;
mod interim;
mod like;
mod measure;
mod names;
pub mod null;
mod operations;
mod pace;
mod pinned;
mod plan;
mod plan_record;
mod plans;
mod predicting;
mod prepare;
mod profile;
mod programs;
mod progress;
mod readings;
mod recorder;
mod round;
mod run;
mod server;
mod servers;
mod sessions;
mod shown;
mod site;
mod skipping;
mod timed;
mod turns;
mod units;

pub use coarse::too_coarse_for;
pub use error::BenchError;
pub use experiment::{
    ArmSpec, BUILT_IN, Bound, ExpectSpec, Experiment, ExperimentError, Mistake, OneOrMany, OwnWork,
    ServerChoice, StepSpec, WorkloadSpec, experiment_schema, is_name, mix,
};
pub use header::recorded_workloads;
pub use host::host;
pub use interim::InterimEstimate;
pub use like::{LikeSettings, SettingsOfServer};
pub use measure::measure;
pub use plan::{BUDGET, Choices, Plan};
pub use plan_record::{over_budget, planned_run};
pub use progress::Progress;
pub use recorder::RECORD_FILE;
pub use site::Site;
pub use skipping::reason_to_skip;
