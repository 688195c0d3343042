//! The cost that censuses may have for the server. A census asks for every buffer, which PostgreSQL
//! answers from a copy of all buffer headers: of 200 GB that takes seconds and a gigabyte, so the
//! next one is estimated from the last one, and the first one from the number of buffers.
//! a copy of all buffer headers: of 200 GB that takes seconds and a gigabyte, so the next one is told
//! from what the last one took, and the first one from the number of buffers.

use std::time::Duration;

/// CPU of the server for a buffer of a census, in seconds: 0.3 to 0.4 µs were measured.
const BUFFER_S: f64 = 0.35e-6;
/// The share of the watch's time that censuses may use in advance.
const ADVANCE: f64 = 0.001;
const LEAST_S: f64 = 0.1;
/// A watch is taken to last this long where its time is not known.
const WATCH: Duration = Duration::from_secs(1800);

/// The allowance of censuses, in CPU time of a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CensusAllowance {
    /// In advance, in seconds, however long the watch is.
    most_at_once_s: f64,
    /// The share of the time that passes.
    share: f64,
    /// How long the watch lasts at most, in seconds.
    time_s: f64,
}

impl CensusAllowance {
    /// Makes the allowance of a watch of at most this time.
    pub(crate) fn new(gentle: bool, time: Duration) -> Self {
        let (most_at_once_s, share) = if gentle { (0.3, 0.001) } else { (1.0, 0.005) };
        Self { most_at_once_s, share, time_s: time.min(WATCH).as_secs_f64() }
    }

    /// In seconds, in a watch of this length. A short one has less in advance: a second would be more
    /// than the share of all its time.
    fn at_once_s(&self, time_s: f64) -> f64 {
        (time_s * ADVANCE).clamp(LEAST_S, self.most_at_once_s)
    }

    /// Seconds of CPU that the first census takes, about.
    #[expect(clippy::cast_precision_loss, reason = "buffers, far below 2^53")]
    pub(crate) fn first_s(buffers: u64) -> f64 {
        buffers as f64 * BUFFER_S
    }

    /// How long a watch has to be for a first census that takes this many seconds.
    pub(crate) fn watch_for(&self, first_s: f64) -> Duration {
        let at_once_s = self.at_once_s(first_s / (self.share + ADVANCE));
        Duration::from_secs_f64(((first_s - at_once_s) / self.share).max(0.0))
    }

    /// Whether another census, which takes about `next_s`, is within the allowance after `elapsed`, with
    /// `spent_s` for those before it. The first may be paid in advance: by the end of the watch it is
    /// within the share.
    pub(crate) fn permits(&self, spent_s: f64, next_s: f64, elapsed: Duration) -> bool {
        let elapsed_s = elapsed.as_secs_f64();
        let time_s = if spent_s > 0.0 { elapsed_s } else { elapsed_s.max(self.time_s) };
        spent_s + next_s <= self.at_once_s(self.time_s) + self.share * time_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 128 MB, 64 GB, 200 GB and 1 TB of shared buffers.
    const BUFFERS: [u64; 4] = [16_384, 8_388_608, 26_214_400, 134_217_728];

    /// Seconds after which censuses are taken in a watch that asks every half second, each costing
    /// what its buffers take.
    fn times(buffers: u64, gentle: bool, time_s: u64) -> Vec<f64> {
        let allowance = CensusAllowance::new(gentle, Duration::from_secs(time_s));
        let cost_s = CensusAllowance::first_s(buffers);
        let mut spent_s = 0.0;
        let mut times = Vec::new();
        for half in 0..2 * time_s {
            let elapsed = Duration::from_millis(500 * half);
            if allowance.permits(spent_s, cost_s, elapsed) {
                spent_s += cost_s;
                times.push(elapsed.as_secs_f64());
            }
        }
        times
    }

    #[test]
    fn many_buffers_are_asked_for_rarely() {
        // A census of 200 GB takes 9 s: the first within the share of the default half hour, the
        // next when that has been earned.
        let of_200gb = times(BUFFERS[2], false, 7200);
        assert_eq!(of_200gb[0].to_bits(), 0.0_f64.to_bits());
        assert!((3400.0..3600.0).contains(&of_200gb[1]), "{of_200gb:?}");
        let apart = of_200gb.windows(2).skip(1).map(|pair| pair[1] - pair[0]);
        assert!(apart.clone().all(|seconds| seconds > 1800.0), "{of_200gb:?}");
        // Of a terabyte not before hours, and with --gentle not of 200 GB either.
        assert!(times(BUFFERS[3], false, 7200).is_empty());
        assert!(times(BUFFERS[2], true, 7200).is_empty());
        // A watch of a minute is too short for 200 GB, and long enough for 128 MB.
        assert!(times(BUFFERS[2], false, 60).is_empty());
        assert!(times(BUFFERS[0], true, 60).len() > 20);
        let allowance = CensusAllowance::new(false, Duration::from_secs(60));
        let wanted = allowance.watch_for(CensusAllowance::first_s(BUFFERS[2]));
        assert!((1620..1650).contains(&wanted.as_secs()), "{wanted:?}");
    }

    #[test]
    fn in_the_long_run_censuses_take_their_share_at_most() {
        for buffers in BUFFERS {
            for (gentle, share) in [(false, 0.005), (true, 0.001)] {
                let time_s = 8 * 3600;
                #[expect(clippy::cast_precision_loss, reason = "censuses of a watch")]
                let spent_s =
                    times(buffers, gentle, time_s).len() as f64 * CensusAllowance::first_s(buffers);
                let at_once = if gentle { 0.3 } else { 1.0 };
                let most = at_once + share * 8.0 * 3600.0;
                assert!(spent_s <= most + 1e-9, "{buffers}: {spent_s} s");
            }
        }
    }
}
