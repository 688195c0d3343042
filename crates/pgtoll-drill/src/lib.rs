//! A backup is as good as its restore. The drill copies or unpacks it into a directory of its own, lets a server of
//! the right version recover it, reads every page, index and table, and gives three verdicts: pages, WAL
//! chain, start.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use pgtoll_cluster::{GuardOptions, ServerUser};
//! use pgtoll_drill::{DrillOptions, DrillPlan, DrillSource, DrillTarget, SourceSearch};
//! use pgtoll_system::Interrupt;
//! # use pgtoll_record::Provenance;
//! # fn drill(provenance: &Provenance) -> Result<(), Box<dyn std::error::Error>> {
//!
//! let interrupt = Interrupt::new();
//! let work_dir = "/var/tmp".as_ref();
//! let mut search = SourceSearch { work_dir, interrupt: &interrupt, watch: &mut |_| {} };
//! let source = DrillSource::open("/srv/backup".as_ref(), &mut search)?;
//! let options = DrillOptions {
//!     wal: vec!["/srv/archive".into()],
//!     target: DrillTarget::Consistency,
//!     jobs: 2.try_into()?,
//!     patience: Duration::from_secs(600),
//!     installation: source.installation(None, &interrupt)?,
//!     guard: GuardOptions::of_this_program(work_dir.into(), ServerUser::choose()?),
//!     unconfined: false,
//! };
//! let plan = DrillPlan::new(source, options, &interrupt)?;
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
//! are made by one module, as the servers' user (`writer.rs`); what is unpacked of a tar, and where to, is
//! decided by names and kinds alone (`tars/members.rs`).

mod adopt;
mod chain;
mod chain_source;
mod choice;
mod combine;
mod configuration;
mod drill;
mod error;
mod incremental_files;
mod layout;
mod pages;
mod plan;
mod reading;
mod record;
mod repository;
mod repository_source;
mod restore;
mod session;
mod source;
mod stage;
mod startup;
mod step;
mod target;
mod tars;
mod verdicts;
mod writer;

pub use error::DrillError;
pub use plan::{DrillOptions, DrillPlan};
pub use source::{DrillSource, SourceSearch};
pub use step::DrillStep;
pub use target::{DrillTarget, DrillTargetParseError};
