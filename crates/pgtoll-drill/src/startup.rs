//! The server's start: waited for as long as it gets on.

use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard, LaunchState, StartupActivity};
use pgtoll_format::Lsn;
use pgtoll_system::Interrupt;

use crate::DrillError;

/// How a start ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartEnd {
    /// It takes connections.
    Serves,
    /// It ended by itself.
    Ended { status: String, last_words: String },
    /// It did nothing for as long as it was given.
    Stalled { last_words: String },
}

/// Starts the server and waits until it has recovered and serves. `progress` is given the segment that
/// it replays.
pub(crate) fn start(
    cluster: &Cluster,
    guard: &mut Guard,
    patience: Duration,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(&str),
) -> Result<StartEnd, DrillError> {
    let postmaster = cluster.launch(guard)?;
    let mut stall = Stall::new(patience, Instant::now());
    loop {
        match cluster.launch_state(guard)? {
            LaunchState::Ready => return Ok(StartEnd::Serves),
            LaunchState::Ended { status, last_words } => {
                let last_words = without_place(&last_words, cluster);
                return Ok(StartEnd::Ended { status, last_words });
            }
            LaunchState::Starting => {}
        }
        let activity = StartupActivity::from_postmaster(postmaster);
        if let Some(segment) = activity.segment() {
            progress(segment);
        }
        if stall.is_over((activity, cluster.log_bytes()), Instant::now()) {
            let last_words = without_place(&cluster.last_words(), cluster);
            return Ok(StartEnd::Stalled { last_words });
        }
        interrupt.wait(LOOK_EVERY)?;
    }
}

/// The copy's directory is gone when it is read.
pub(crate) fn without_place(words: &str, cluster: &Cluster) -> String {
    words.replace(&format!("{}/", cluster.directory().display()), "")
}

/// For how long nothing has changed.
struct Stall<T> {
    patience: Duration,
    since: Instant,
    last: Option<T>,
}

impl<T: PartialEq> Stall<T> {
    fn new(patience: Duration, now: Instant) -> Self {
        Self { patience, since: now, last: None }
    }

    /// Whether this is what was seen for as long as there is patience.
    fn is_over(&mut self, seen: T, now: Instant) -> bool {
        if self.last.as_ref() != Some(&seen) {
            (self.last, self.since) = (Some(seen), now);
        }
        now.duration_since(self.since) >= self.patience
    }
}

/// Returns the end of redo from the server's log.
pub(crate) fn redo_end(log: &str) -> Option<Lsn> {
    let rest = log.rsplit_once("redo done at ")?.1;
    rest.split_whitespace().next()?.parse().ok()
}

/// The server itself writes when it is ready: it is only looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_not_change_is_a_stall() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut stall = Stall::new(Duration::from_secs(10), begin);
        assert!(!stall.is_over("a", at(0)) && !stall.is_over("a", at(9)));
        assert!(!stall.is_over("b", at(11)) && !stall.is_over("b", at(20)));
        assert!(stall.is_over("b", at(21)));
    }

    #[test]
    fn the_log_says_where_redo_ended() {
        let log =
            "LOG:  redo starts at 0/2000028\nLOG:  redo done at 0/2000100 system usage: CPU\n";
        assert_eq!(redo_end(log), Some(Lsn(0x0200_0100)));
        assert_eq!(redo_end("LOG:  redo is not required"), None);
    }
}
