//! The course of a patrol: a piece, the state, a pause; and the files listed again now and then.

use std::ops::ControlFlow;
use std::time::Duration;

use jiff::Timestamp;
use pgtoll_record::{PatrolBlock, PatrolRecord};

use super::error::PatrolError;
use super::patrolled::Patrolled;
use super::state::PatrolState;
use super::timing::{LIST_EVERY, PatrolClock, PatrolSettings, earlier, elapsed, time_of};

/// Reads piece after piece of files that were just listed until the clock says that it is over, or the
/// run's time is. `keep` gets the state after each, and can end it.
pub(super) fn run(
    patrolled: &mut dyn Patrolled,
    state: &mut PatrolState,
    clock: &dyn PatrolClock,
    settings: &PatrolSettings,
    keep: &mut dyn FnMut(&PatrolRecord) -> Result<ControlFlow<()>, PatrolError>,
) -> Result<(), PatrolError> {
    let started = clock.now();
    let is_over = |now: Timestamp| {
        clock.is_over() || settings.run_time.is_some_and(|time| elapsed(started, now) >= time)
    };
    state.begin_run(started);
    look_again(patrolled, state, started, Duration::ZERO)?;
    if keep(state.record(started))?.is_break() {
        return Ok(());
    }
    let mut listed = Some(started);
    while !is_over(clock.now()) {
        let now = clock.now();
        if listed.is_none_or(|listed| now < listed || elapsed(listed, now) >= LIST_EVERY) {
            state.set_listing(patrolled.list()?);
            look_again(patrolled, state, now, LOOK_AGAIN_EVERY)?;
            listed = Some(now);
        }
        let mut bytes = 0;
        if let Some(piece) = patrolled.piece(state.next(), settings.piece_bytes()) {
            let result = patrolled.read(&piece, now)?;
            bytes = result.read.bytes;
            let is_listed = |block: &PatrolBlock| patrolled.is_listed(block);
            state.add_piece(&piece, result, clock.now(), &is_listed);
        } else {
            state.end_round(now);
        }
        if state.is_at_begin() {
            // New files, and those before the last piece that have grown.
            listed = None;
        }
        if keep(state.record(clock.now()))?.is_break() {
            return Ok(());
        }
        let due = time_of(bytes, settings.rate).max(PAUSE_MIN);
        clock.wait(due.saturating_sub(elapsed(now, clock.now())));
    }
    Ok(())
}

/// Reads blocks again that something is wrong with, where they were seen last so long ago: so that a
/// repair is noticed before the next round.
fn look_again(
    patrolled: &mut dyn Patrolled,
    state: &mut PatrolState,
    now: Timestamp,
    ago: Duration,
) -> Result<(), PatrolError> {
    for piece in state.seen_before(earlier(now, ago), LOOK_AGAIN_MAX) {
        let result = patrolled.read(&piece, now)?;
        state.add_second_look(&piece, result, now, &|block| patrolled.is_listed(block));
    }
    Ok(())
}

const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(3600);
/// Findings that are looked at again at once.
const LOOK_AGAIN_MAX: usize = 500;
/// Between two pieces: files may all be empty.
const PAUSE_MIN: Duration = Duration::from_millis(20);
