//! A second standby, which may have WAL that the promoted one has not: it is past the fork then, and
//! cannot follow.

use std::path::Path;
use std::time::Duration;

use pgtoll_cluster::{Cluster, ClusterError, Guard, Repmgr, RepmgrNode, RepmgrSettings, StopMode};
use pgtoll_record::{FailoverRejoin, ThirdNode};

use super::node_id;
use crate::failover::context::{RunContext, THIRD};
use crate::failover::error::FailoverError;
use crate::failover::rejoin_steps::{RejoinSteps, STREAMING};
use crate::failover::servers::{named, wait_for_streaming};
use crate::failover::topology::ServerPair;
use pgtoll_system::error_chain;

/// How much later the first standby has WAL.
pub(super) const AHEAD: Duration = Duration::from_millis(50);

/// A standby that is never promoted.
pub(super) struct Third {
    cluster: Cluster,
    node: RepmgrNode,
}

impl Third {
    /// A standby of the primary, registered with repmgr.
    pub(super) fn start(
        context: &RunContext<'_>,
        repmgr: &Repmgr,
        guard: &mut Guard,
        primary: &Cluster,
        settings: &RepmgrSettings,
    ) -> Result<Self, FailoverError> {
        let cluster = primary.standby(guard, THIRD, primary.directory())?;
        cluster.configure(guard, &named(context, THIRD))?;
        cluster.start(guard)?;
        let node = repmgr.node(guard, &cluster, settings)?;
        wait_for_streaming(primary, &cluster, context.interrupt)?;
        node.run(guard, &["standby", "register", "--upstream-node-id=1"])?;
        Ok(Self { cluster, node })
    }

    /// Lets it follow the promoted standby, and if repmgr refuses that, returns it by `pg_rewind`.
    pub(super) fn follow(&self, context: &RunContext<'_>, pair: &ServerPair) -> ThirdNode {
        let new = &pair.standby;
        let mut third =
            ThirdNode { past_fork_bytes: self.past_fork(new).ok(), ..ThirdNode::default() };
        third.refused = self.refusal(pair);
        if third.refused.is_some() || third.past_fork_bytes.is_none_or(|bytes| bytes > 0) {
            third.rejoin = Some(self.rewind(context, pair));
        } else if let Err(error) = wait_for_streaming(new, &self.cluster, context.interrupt) {
            third.refused = Some(error_chain(&error));
        }
        third
    }

    /// Bytes of WAL that it has received behind the fork of the new primary.
    fn past_fork(&self, new: &Cluster) -> Result<u64, FailoverError> {
        new.checkpoint()?;
        let mut connection = new.connect("postgres")?;
        // A line for each earlier timeline: its number, and where the next one begins.
        let row = connection.query_one(
            "SELECT (regexp_match(pg_read_file('pg_wal/' || lpad(to_hex(timeline_id), 8, '0') || \
             '.history'), '([0-9A-F]+/[0-9A-F]+)[^\\n]*\\n*$'))[1] AS fork \
             FROM pg_control_checkpoint()",
        )?;
        let fork = row.text("fork")?.to_owned();
        connection.close();
        let mut connection = self.cluster.connect("postgres")?;
        let sql = format!(
            "SELECT greatest(0, pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), \
             pg_last_wal_replay_lsn()), '{fork}'))::bigint AS bytes"
        );
        let bytes = connection.query_one(&sql)?.parse("bytes")?;
        connection.close();
        Ok(bytes)
    }

    /// Returns repmgr's refusal; `None` if it lets the standby follow.
    fn refusal(&self, pair: &ServerPair) -> Option<String> {
        let upstream = format!("--upstream-node-id={}", node_id(pair.standby.name()));
        let arguments = ["standby", "follow", &upstream];
        match self.node.run(&mut pgtoll_system::lock(&pair.guard), &arguments) {
            Ok(_) => None,
            Err(ClusterError::Program { output, .. }) => Some(reasons(&output)),
            Err(error) => Some(error_chain(&error)),
        }
    }

    fn rewind(&self, context: &RunContext<'_>, pair: &ServerPair) -> FailoverRejoin {
        let mut steps = RejoinSteps::begin();
        let returned = self.come_back(context, pair, &mut steps);
        let seconds = steps.at(STREAMING);
        FailoverRejoin {
            seconds,
            error: returned.err().map(|error| error_chain(&error)),
            steps: steps.events,
            ..FailoverRejoin::default()
        }
    }

    fn come_back(
        &self,
        context: &RunContext<'_>,
        pair: &ServerPair,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError> {
        let new = &pair.standby;
        {
            let mut guard = pgtoll_system::lock(&pair.guard);
            self.cluster.stop(&mut guard, StopMode::Fast)?;
            steps.done("stopped");
            self.cluster.rewind(&mut guard, new)?;
            steps.done("pg_rewind");
            self.cluster.configure(&mut guard, &named(context, THIRD))?;
            self.cluster.start(&mut guard)?;
            steps.done("start");
        }
        wait_for_streaming(new, &self.cluster, context.interrupt)?;
        steps.done(STREAMING);
        let upstream = format!("--upstream-node-id={}", node_id(new.name()));
        let arguments = ["standby", "register", "--force", &upstream];
        self.node.run(&mut pgtoll_system::lock(&pair.guard), &arguments)?;
        Ok(())
    }

    /// Ends it, and removes it.
    pub(super) fn remove(self, guard: &mut Guard) -> Result<(), FailoverError> {
        let _ = self.cluster.stop(guard, StopMode::Immediate);
        self.cluster.remove(guard)?;
        let configuration = self.node.configuration().to_string_lossy().into_owned();
        guard.run(Path::new("rm"), &["-f", &configuration])?;
        Ok(())
    }
}

/// repmgr's errors and details, without its hints.
fn reasons(output: &str) -> String {
    let message: Vec<&str> = output
        .lines()
        .filter_map(|line| {
            let words = ["ERROR: ", "DETAIL: "].into_iter().find_map(|item| line.split_once(item));
            words.map(|(_, words)| words.trim())
        })
        .collect();
    if message.is_empty() { output.trim().to_owned() } else { message.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_its_errors_and_details() {
        let output = "NOTICE: attempting to find and follow node 2\n\
                      ERROR: this node cannot attach to follow target node 2\n\
                      DETAIL: follow target server's timeline 2 forked off at 0/3000A0\n\
                      HINT: use pg_rewind\n";
        let expected = "this node cannot attach to follow target node 2; \
                        follow target server's timeline 2 forked off at 0/3000A0";
        assert_eq!(reasons(output), expected);
        assert_eq!(reasons(" it is gone\n"), "it is gone");
    }
}
