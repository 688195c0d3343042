//! The bottleneck of a replay.

use pgtoll_record::{ReplayBottleneck, ReplayDone};

/// Statements that are sent this late, in milliseconds, are in time: the 99th percentile.
const IN_TIME_MS: f64 = 10.0;
/// A process that uses this part of its CPUs has no time left: its threads wait for each other.
const BUSY_SHARE: f64 = 0.8;

/// Returns the longest wait of the replay, by where its sessions' time went. Where the replaying process has
/// no CPU time left, what looks like the server's time is its own. `None` where nothing was sent.
pub(super) fn bottleneck(done: &ReplayDone) -> Option<ReplayBottleneck> {
    if done.statements == 0 {
        return None;
    }
    if done.lateness_ms.is_some_and(|lateness_ms| lateness_ms.p99 <= IN_TIME_MS) {
        return Some(ReplayBottleneck::Pace);
    }
    #[expect(clippy::cast_precision_loss, reason = "CPUs are few")]
    let cpus = done.client_cpus.map_or(f64::INFINITY, |cpus| cpus as f64);
    if done.client_cpu_s >= BUSY_SHARE * cpus * done.run_s {
        return Some(ReplayBottleneck::Replayer);
    }
    let server = done.concurrency_mean * done.run_s;
    let own = done.sessions_s - server - done.order_wait_s - done.due_wait_s;
    let most = [
        (server, ReplayBottleneck::Server),
        (done.order_wait_s, ReplayBottleneck::Order),
        (own, ReplayBottleneck::Replayer),
    ];
    let most = most.into_iter().max_by(|(one, _), (other, _)| one.total_cmp(other));
    most.map(|(_, label)| label)
}

#[cfg(test)]
mod tests {
    use pgtoll_record::ReplayQuantiles;

    use super::*;

    #[test]
    fn sessions_time_says_what_was_waited_for() {
        // Ten sessions for ten seconds.
        let done = ReplayDone {
            run_s: 10.0,
            sessions_s: 100.0,
            statements: 1000,
            concurrency_mean: 7.0,
            order_wait_s: 10.0,
            due_wait_s: 5.0,
            client_cpu_s: 2.0,
            client_cpus: Some(2),
            ..ReplayDone::default()
        };
        let check = |done: ReplayDone, expected| assert_eq!(bottleneck(&done), Some(expected));
        check(done.clone(), ReplayBottleneck::Server);
        let waits = ReplayDone { concurrency_mean: 2.0, order_wait_s: 60.0, ..done.clone() };
        check(waits, ReplayBottleneck::Order);
        check(ReplayDone { concurrency_mean: 2.0, ..done.clone() }, ReplayBottleneck::Replayer);
        check(ReplayDone { client_cpu_s: 17.0, ..done.clone() }, ReplayBottleneck::Replayer);
        let late = |p99| Some(ReplayQuantiles { p99, ..ReplayQuantiles::default() });
        check(ReplayDone { lateness_ms: late(9.0), ..done.clone() }, ReplayBottleneck::Pace);
        check(ReplayDone { lateness_ms: late(90.0), ..done }, ReplayBottleneck::Server);
        assert_eq!(bottleneck(&ReplayDone::default()), None);
    }
}
