//! The old primary's return: a standby of the new one by `pg_rewind`, known to repmgr, its pages
//! verified.

use std::time::Instant;

use pgtoll_cluster::StopMode;
use pgtoll_record::{FailoverFault, FailoverRejoin, JudgedEvent};

use super::context::{RunContext, lock};
use super::error::FailoverError;
use super::topology::{Topology, named, wait_for_streaming};
use crate::error_words;

/// Makes a standby of the old primary, which is stopped and verified then.
pub(super) fn rejoin(
    context: &RunContext<'_>,
    topology: &Topology,
    fault: FailoverFault,
) -> FailoverRejoin {
    let mut steps = RejoinSteps::begin();
    let returned = come_back(context, topology, fault, &mut steps);
    let seconds = steps.at(STREAMING);
    let outcome = returned.map_err(|error| error_words(&error)).and_then(|()| {
        verified(context, topology).map_err(|error| format!("its pages were not verified: {error}"))
    });
    let (pages, error) = match outcome {
        Ok(pages) => (Some(pages), None),
        Err(error) => (None, Some(error)),
    };
    FailoverRejoin {
        seconds,
        error,
        pages: pages.map(|(pages, _)| pages),
        unsound: pages.map(|(_, unsound)| unsound),
        steps: steps.events,
    }
}

/// What a WAL volume has after an administrator gave it more: it takes the new primary's, too.
const ENLARGED_WAL_BYTES: u64 = 1 << 30;

/// The step that ends the return.
pub(super) const STREAMING: &str = "streaming";

/// Steps that are done, by the time since the begin.
pub(super) struct RejoinSteps {
    began: Instant,
    pub(super) events: Vec<JudgedEvent>,
}

impl RejoinSteps {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), events: Vec::new() }
    }

    /// When this step was done.
    pub(super) fn at(&self, what: &str) -> Option<f64> {
        self.events.iter().find(|step| step.what == what).map(|step| step.at_s)
    }

    pub(super) fn done(&mut self, what: &str) {
        let at_s = self.began.elapsed().as_secs_f64();
        self.events.push(JudgedEvent { at_s, what: what.to_owned() });
    }
}

fn come_back(
    context: &RunContext<'_>,
    topology: &Topology,
    fault: FailoverFault,
    steps: &mut RejoinSteps,
) -> Result<(), FailoverError> {
    let (old, new) = (&topology.primary, &topology.standby);
    {
        let mut guard = lock(&topology.guard);
        // One that was frozen still runs; others have ended.
        let _ = old.stop(&mut guard, StopMode::Fast);
        steps.done("stopped");
        if let (Some(volume), FailoverFault::WalFull) = (topology.volume(), fault) {
            volume.enlarge(ENLARGED_WAL_BYTES)?;
            steps.done("volume enlarged");
        }
        new.checkpoint()?;
        steps.done("checkpoint");
        old.rewind(&mut guard, new)?;
        steps.done("pg_rewind");
        old.configure(&mut guard, &named(context, old.name()))?;
        old.start(&mut guard)?;
        steps.done("start");
    }
    wait_for_streaming(new, old, context.interrupt)?;
    steps.done(STREAMING);
    if topology.is_watched() {
        topology.register_old_primary()?;
        steps.done("registered");
    }
    Ok(())
}

/// Pages of the old primary and unsound ones of them, when it has been stopped.
fn verified(context: &RunContext<'_>, topology: &Topology) -> Result<(u64, u64), String> {
    let stopped = topology.primary.stop(&mut lock(&topology.guard), StopMode::Fast);
    stopped.map_err(|error| error.to_string())?;
    (context.verify)(&topology.primary.data())
}
