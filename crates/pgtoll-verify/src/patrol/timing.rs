//! Time: how fast a patrol reads, what a round takes, and whose clock it is.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pgtoll_record::PatrolRecord;

/// How a patrol reads.
#[derive(Clone, Debug)]
pub struct PatrolSettings {
    /// Bytes a second at most.
    pub rate: u64,
    /// Each page should be read again within this time.
    pub within: Duration,
    /// When a run ends by itself; `None`: it does not.
    pub run_time: Option<Duration>,
    /// pgtoll's version.
    pub version: String,
    /// The command that continues.
    pub command: Vec<String>,
}

impl PatrolSettings {
    /// Bytes of a piece: some seconds of reading, so that not much is lost by an interruption.
    pub(super) fn piece_bytes(&self) -> u64 {
        self.rate.saturating_mul(PIECE_SECONDS).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }
}

/// The time, and what ends a patrol. Tests have one that they turn.
pub trait PatrolClock {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Lets time go by; less where the patrol is over.
    fn wait(&self, time: Duration);

    /// Whether the patrol is to end.
    fn is_over(&self) -> bool;
}

/// The rate at which each page is read again in time, in whole MB; `None`: the patrol's own does.
pub fn rate_in_time(record: &PatrolRecord) -> Option<u64> {
    let within = Duration::from_secs(record.budget.within_seconds);
    // A page may be new for as long as the list of files is old.
    let reading = within.saturating_sub(LIST_EVERY.min(within / 2)).as_secs().max(1);
    let bytes = u128::from(record.source.bytes);
    let reading = u128::from(reading);
    // Writing the state and listing files take time, too.
    let needed = (bytes + bytes / 50).div_ceil(reading);
    let rate = u64::try_from(needed).unwrap_or(u64::MAX);
    (rate > record.budget.rate_bytes).then(|| rate.div_ceil(1 << 20).saturating_mul(1 << 20))
}

/// How long it is from one time to another; a clock that was put back is no time.
pub(super) fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

pub(super) fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or_default();
    time.checked_sub(by).unwrap_or(Timestamp::MIN)
}

/// How long this many bytes take at this rate.
pub(super) fn time_of(bytes: u64, rate: u64) -> Duration {
    let microseconds = u128::from(bytes) * 1_000_000 / u128::from(rate.max(1));
    Duration::from_micros(u64::try_from(microseconds).unwrap_or(u64::MAX))
}

const PIECE_SECONDS: u64 = 4;
const PIECE_BYTES_MIN: u64 = 1 << 20;
const PIECE_BYTES_MAX: u64 = 64 << 20;
/// The delay until a patrol knows a new page: short beside the time of a round.
pub(super) const LIST_EVERY: Duration = Duration::from_secs(300);
