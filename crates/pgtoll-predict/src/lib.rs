//! Watches a server, read-only, over checkpoint cycles, and predicts what other settings would cost
//! it.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use pgtoll_system::Interrupt;
//! use pgtoll_predict::{WatchPlan, watch};
//! use pgtoll_wire::Dsn;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dsn = Dsn::parse("host=/run/postgresql user=monitor dbname=shop")?;
//! let plan = WatchPlan { time: Duration::from_secs(3600), cycles: Some(3), ..WatchPlan::default() };
//! let (server, watched) = watch(&dsn, &plan, &Interrupt::new(), &mut |_| {})?;
//! eprintln!("PostgreSQL {}: {} windows", server.version, watched.windows.len());
//! # Ok(())
//! # }
//! ```

mod allowance;
mod answer;
mod carried;
mod census;
mod databases;
mod error;
mod looks;
mod marks;
mod one_time;
mod question;
mod running;
mod server;
mod session;
mod statements;
mod timing;
mod wal;
mod watch;

use pgtoll_model::prediction::Bounded;
use pgtoll_record::Interval;

pub use answer::{Watched, costs_of, prediction_record};
pub use error::PredictError;
pub use question::{AskedValue, SettingQuestion};
pub use server::{provider, system_identifier};
pub use session::{SessionCost, WatchSession};
pub use timing::page_costs;
pub use wal::watch_with_wal;
pub use watch::{WatchPlan, WatchProgress, watch};

/// As records have it.
pub(crate) fn interval(bounded: Bounded) -> Interval {
    let Bounded { estimate, lower, upper } = bounded;
    Interval { estimate, lower, upper }
}

pub(crate) fn bounded(interval: Interval) -> Bounded {
    let Interval { estimate, lower, upper } = interval;
    Bounded { estimate, lower, upper }
}
