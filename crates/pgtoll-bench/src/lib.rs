//! From an experiment file to samples: the [`Experiment`] says what is compared, the [`Plan`] what
//! exactly will run, and [`measure()`] runs it and writes the record.
//!
//! ```
//! use pgtoll_bench::Experiment;
//!
//! let experiment = Experiment::built_in("checksums").expect("it is built in")?;
//! let arms: Vec<&str> = experiment.arms.iter().map(|arm| arm.name.as_str()).collect();
//! assert_eq!(arms, ["off", "hints", "checksums", "twin"]);
//! # Ok::<(), pgtoll_bench::ExperimentError>(())
//! ```

mod counting;
mod course;
mod error;
mod experiment;
mod measure;
mod operations;
mod pace;
mod plan;
mod predicting;
mod prepare;
mod profile;
mod recorder;
mod round;
mod server;
mod so_far;
mod turn;

pub use error::BenchError;
pub use experiment::{
    ArmSpec, BUILT_IN, Bound, ExpectSpec, Experiment, ExperimentError, Mistake, OneOrMany,
    StepSpec, WorkloadSpec, experiment_schema, mix,
};
pub use measure::{Progress, Site, host, measure, recorded_workloads};
pub use plan::{BUDGET, Choices, Plan};
pub use recorder::RECORD_FILE;
pub use so_far::SoFar;
