//! Starts the topology of an engine.

use pgtoll_record::FailoverEngine;

use super::auto_failover::AutoFailoverTopology;
use super::case::FailoverCase;
use super::context::RunContext;
use super::error::FailoverError;
use super::patroni::PatroniTopology;
use super::repmgr::RepmgrTopology;
use super::topology::Topology;
use super::unattended::UnattendedTopology;

/// Starts new servers, and the engine that looks after them.
pub(super) fn start(
    context: &RunContext<'_>,
    case: FailoverCase,
) -> Result<Box<dyn Topology>, FailoverError> {
    let FailoverCase { fault, engine, detector } = case;
    let missing = || FailoverError::NoPrograms { engine: engine.name() };
    Ok(match engine {
        FailoverEngine::Repmgr => {
            let programs = context.programs.repmgr.as_ref().ok_or_else(missing)?;
            Box::new(RepmgrTopology::start(context, programs, fault, detector)?)
        }
        FailoverEngine::None => Box::new(UnattendedTopology::start(context, fault)?),
        FailoverEngine::Patroni => {
            let programs = context.programs.patroni.as_ref().ok_or_else(missing)?;
            Box::new(PatroniTopology::start(context, programs, fault, detector)?)
        }
        FailoverEngine::PgAutoFailover => {
            let program = context.programs.auto_failover.as_ref().ok_or_else(missing)?;
            Box::new(AutoFailoverTopology::start(context, program, fault, detector)?)
        }
    })
}
