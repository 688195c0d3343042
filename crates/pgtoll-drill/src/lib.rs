//! A backup is as good as its restore. The drill copies it into a directory of its own, lets a server of
//! the right version recover it, reads every page, index and table, and gives three verdicts: pages, WAL
//! chain, start.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use pgtoll_cluster::{GuardOptions, ServerUser};
//! use pgtoll_drill::{DrillOptions, DrillPlan, DrillSource, DrillTarget};
//! use pgtoll_interrupt::Interrupt;
//! # use pgtoll_record::Provenance;
//! # fn drill(provenance: &Provenance) -> Result<(), Box<dyn std::error::Error>> {
//!
//! let interrupt = Interrupt::new();
//! let source = DrillSource::open("/srv/backup".as_ref())?;
//! let options = DrillOptions {
//!     wal: vec!["/srv/archive".into()],
//!     target: DrillTarget::Consistency,
//!     jobs: 2.try_into()?,
//!     patience: Duration::from_secs(600),
//!     installation: source.installation(None, &interrupt)?,
//!     guard: GuardOptions::of_this_program("/var/tmp".into(), ServerUser::choose()?),
//! };
//! let plan = DrillPlan::of(source, options, &interrupt)?;
//! for sentence in plan.sentences() {
//!     eprintln!("{sentence}");
//! }
//! let record = plan.run(provenance, &interrupt, &mut |_| {})?;
//! println!("{:?}", record.outcome);
//! # Ok(())
//! # }
//! ```
//!
//! **Nothing outside the copy is written.** The server is given only WAL that was read through before;
//! what in it makes tablespaces, which replay would link and empty, does nothing (`chain.rs`). All files
//! are made by one module, as the servers' user (`writer.rs`).

mod chain;
mod choice;
mod configuration;
mod drill;
mod error;
mod layout;
mod pages;
mod plan;
mod reading;
mod record;
mod restore;
mod session;
mod source;
mod startup;
mod target;
mod verdicts;
mod writer;

pub use error::DrillError;
pub use plan::{DrillOptions, DrillPlan, DrillStep};
pub use source::DrillSource;
pub use target::{DrillTarget, DrillTargetParseError};
