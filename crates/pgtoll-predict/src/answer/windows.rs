//! The cost of a setting in each window, for the picture over time.

use pgtoll_record::{PredictedWindow, PredictionAnswer, ServerWatch, WatchWindow};

use crate::answer::asking::Asking;
use crate::answer::digest::{WatchDigest, float};

/// Each window by itself, as if it were all that was seen: its range is that of one cycle. Where a
/// window has less to go by than all together (no census) its WAL is left out.
pub(super) fn windows(
    asking: &Asking<'_>,
    watch: &ServerWatch,
    all: &PredictionAnswer,
) -> Vec<PredictedWindow> {
    let pick = |window: &WatchWindow| {
        let seen = ServerWatch { windows: vec![window.clone()], ..ServerWatch::default() };
        let mut answer = asking.unanswered();
        if let Some(digest) = WatchDigest::new(asking.server, &seen) {
            asking.fill(&mut answer, &digest);
        }
        let basis = all.wal.as_ref().map(|wal| wal.basis);
        let wal = answer.wal.filter(|wal| Some(wal.basis) == basis);
        PredictedWindow {
            began: window.began.clone(),
            seconds: window.seconds,
            wal_bytes_per_second: float(window.wal_bytes) / window.seconds.max(0.001),
            extra_wal_bytes_per_second: wal.as_ref().map(|wal| wal.extra_bytes_per_second),
            cpu_cores: answer
                .cpu
                .filter(|_| all.wal.is_none() || wal.is_some())
                .map(|cpu| cpu.cores),
        }
    };
    watch.windows.iter().map(pick).collect()
}
