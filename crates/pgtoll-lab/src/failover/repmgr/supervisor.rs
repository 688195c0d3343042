//! Starts a repmgrd again that ends by itself, as a service manager would.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pgtoll_cluster::{Guard, RepmgrNode};

use crate::failover::site::Abandoned;

/// Looks at daemons on a thread of its own until it is ended.
pub(super) struct Supervisor {
    abandoned: Abandoned,
    stop: Sender<()>,
    thread: JoinHandle<u32>,
}

/// Between two looks; a daemon that ends at once is started no faster.
const PAUSE: Duration = Duration::from_millis(500);

impl Supervisor {
    /// Begins to supervise daemons that were started.
    pub(super) fn begin(guard: &Arc<Mutex<Guard>>, nodes: &[RepmgrNode]) -> Self {
        let guard = guard.clone();
        let nodes = nodes.to_vec();
        let abandoned = Abandoned::default();
        let (stop, stopped) = channel();
        let seen = abandoned.clone();
        let thread = thread::spawn(move || {
            let mut restarts = 0;
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                for node in &nodes {
                    restarts += u32::from(restart(&mut pgtoll_system::lock(&guard), node, &seen));
                }
            }
            restarts
        });
        Self { abandoned, stop, thread }
    }

    /// The daemons that it leaves alone.
    pub(super) fn abandoned(&self) -> Abandoned {
        self.abandoned.clone()
    }

    /// Ends it. Returns how often it started a daemon.
    pub(super) fn end(self) -> u32 {
        drop(self.stop);
        // A panic there was reported there.
        self.thread.join().unwrap_or_default()
    }
}

/// Whether the node's daemon had ended and was started again.
fn restart(guard: &mut Guard, node: &RepmgrNode, abandoned: &Abandoned) -> bool {
    // Under the guard's lock: what ends a daemon on purpose says so before it takes that.
    let has_ended = !abandoned.has(node.daemon())
        && guard.has_ended(node.daemon()).is_ok_and(|output| output.is_some());
    has_ended
        && guard.reap(node.daemon(), Duration::ZERO).is_ok()
        && node.start_daemon(guard).is_ok()
}
