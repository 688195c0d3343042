//! The old primary's return: a standby of the new one, its pages verified.

use pgtoll_record::{FailoverFault, FailoverRejoin};

use super::context::RunContext;
use super::rejoin_steps::{RejoinSteps, STREAMING};
use super::topology::Topology;
use pgtoll_system::error_chain;

/// Makes a standby of the old primary, which is stopped and verified then.
pub(super) fn rejoin(
    context: &RunContext<'_>,
    topology: &dyn Topology,
    fault: FailoverFault,
) -> FailoverRejoin {
    let mut steps = RejoinSteps::begin();
    let returned = topology.bring_back(context, fault, &mut steps);
    let seconds = steps.at(STREAMING);
    let outcome = returned.map_err(|error| error_chain(&error)).and_then(|()| {
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

/// Starts a standby that died.
pub(super) fn standby_return(context: &RunContext<'_>, topology: &dyn Topology) -> FailoverRejoin {
    let mut steps = RejoinSteps::begin();
    let returned = topology.pair().return_standby(context.interrupt, &mut steps);
    FailoverRejoin {
        seconds: steps.at(STREAMING),
        error: returned.err().map(|error| error_chain(&error)),
        pages: None,
        unsound: None,
        steps: steps.events,
    }
}

/// Pages of the old primary and unsound ones of them, when it has been stopped.
fn verified(context: &RunContext<'_>, topology: &dyn Topology) -> Result<(u64, u64), String> {
    topology.pair().stop_old_primary().map_err(|error| error_chain(&error))?;
    (context.verify)(&topology.pair().primary().data())
}
