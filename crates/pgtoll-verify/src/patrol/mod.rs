//! A patrol: the pages of a cluster, round and round, slowly, for as long as the cluster lives.
//!
//! A round reads all files of relations in one order, a piece at a time. A piece is verified as
//! [`verify_running`](crate::verify_running) and [`verify`](crate::verify) do it; after each the state is
//! written, so that whatever ends a patrol loses the piece at hand at most. Since the order is always the
//! same, a page waits no longer for its next turn than what lies around it takes to be read.
//!
//! `rounds` is the course of it and `state` what it remembers: neither reads files nor a clock, so that
//! tests make a week pass in a moment. `directory` reads, `file` keeps the state.

mod directory;
mod error;
mod file;
mod patrolled;
mod rounds;
mod state;
mod timing;

pub use directory::{AttachServer, PatrolledDirectory};
pub use error::PatrolError;
pub use file::PatrolFile;
pub use timing::{PatrolClock, PatrolSettings, rate_in_time};

use std::ops::ControlFlow;

use pgtoll_record::PatrolRecord;

/// Goes on with a patrol until the clock says that it is over, or its time is. `on_piece` sees the state
/// each time after it was written, and can end the patrol.
pub fn patrol(
    file: &mut PatrolFile,
    directory: &mut PatrolledDirectory<'_>,
    clock: &dyn PatrolClock,
    settings: &PatrolSettings,
    on_piece: &mut dyn FnMut(&PatrolRecord) -> ControlFlow<()>,
) -> Result<PatrolRecord, PatrolError> {
    let mut state = file.state(directory, settings, clock.now())?;
    let mut keep = |record: &PatrolRecord| {
        file.write(record)?;
        Ok(on_piece(record))
    };
    rounds::run(directory, &mut state, clock, settings, &mut keep)?;
    Ok(state.into_record())
}

#[cfg(test)]
mod tests;
