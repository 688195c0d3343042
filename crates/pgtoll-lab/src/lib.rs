//! Does the safety work when it is needed? Clients write to servers while something happens to
//! these, and the verdict is what the clients saw: transactions lost, seconds without service.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use pgtoll_system::Interrupt;
//! use pgtoll_lab::{JudgeFault, JudgeFaultEnd, JudgePlan, judge};
//! use pgtoll_record::Provenance;
//! use pgtoll_wire::Dsn;
//!
//! let mut plan = JudgePlan::new(Dsn::parse("host=db1,db2 target_session_attrs=primary")?);
//! plan.duration = Duration::from_secs(60);
//! let fault = JudgeFault {
//!     what: "nothing at all".to_owned(),
//!     at: Duration::from_secs(20),
//!     action: Box::new(|| JudgeFaultEnd::done("it did nothing")),
//! };
//! let provenance = Provenance { version: "0".into(), command: vec![], made: String::new() };
//! let record = judge(&plan, Some(fault), provenance, &Interrupt::new(), &mut |_| {})?;
//! println!("{} lost", record.verdict.map_or(0, |verdict| verdict.lost.count));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod balance;
mod bridge;
mod corruption;
mod exchange;
mod failover;
mod judge;
mod link;
mod watch;

pub use balance::{BALANCE_PARTS, BalanceError, BalancePlan, BalanceSite, balance};
pub use bridge::{BRIDGE_STEPS, BridgeError, BridgeSite, bridge};
pub use corruption::{CorruptionError, CorruptionPlan, CorruptionProgress, corruption};
pub use exchange::{ExchangeError, ExchangePlan, ExchangeSite, exchange};
pub use failover::{
    EnginePrograms, FailoverError, FailoverPlan, FailoverSite, PatroniPrograms, RepmgrPrograms,
    VerifyPages, failover,
};
pub use judge::{
    Attempt, AttemptEnd, AttemptOutcome, ENTRY_BYTES, FileError, JournalReader, JudgeError,
    JudgeFault, JudgeFaultEnd, JudgePlan, JudgeProgress, JudgeSide, LeftoverSchema, conclude,
    judge,
};
pub use link::{Link, LinkDelay, LinkState};
pub use watch::{DamageWatchPlan, DamageWatchProgress, JudgePage, WatchError, watch};
