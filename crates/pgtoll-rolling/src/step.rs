//! What comes next, from the state of the nodes and the journal alone. Pure.

use crate::RollingError;
use crate::journal::Journal;
use crate::survey::{NodeState, Survey};

/// The next step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Start a node as it is: it was stopped in the middle of something, or has crashed.
    Start(String),
    /// Convert a standby, which runs or was stopped in good order.
    Convert(String),
    /// Wait until a standby streams.
    AwaitStreaming(String),
    /// Stop the primary, make a standby of it, and promote the other one.
    SwitchOver { from: String, to: String },
    /// The same, where the primary has been stopped already.
    GoOnSwitchingOver { from: String, to: String },
    /// Run the hook after a switchover, and forget that one was going on.
    EndSwitchover,
    /// Nothing is left.
    Done,
}

/// The next step towards the journal's aim.
pub(crate) fn next_step(survey: &Survey, journal: &Journal) -> Result<Step, RollingError> {
    let Some(primary) = survey.primary()? else { return without_primary(survey, journal) };
    if journal.switchover.is_some() {
        return Ok(Step::EndSwitchover);
    }
    let is_wanted = |node: &NodeState| {
        journal.wanted.contains(&node.name) && node.has_checksums() != journal.enable
    };
    // A node that is down is brought back before anything else.
    for node in survey.nodes.iter().filter(|node| node.server.is_none()) {
        check_signal(node)?;
        return Ok(match node.report.is_shut_down && is_wanted(node) {
            true => Step::Convert(node.name.clone()),
            false => Step::Start(node.name.clone()),
        });
    }
    if let Some(node) = survey.nodes.iter().find(|node| node.is_standby() && !node.is_streaming()) {
        return Ok(Step::AwaitStreaming(node.name.clone()));
    }
    let by_name = |name: &String| survey.node(name);
    let ordered = journal.nodes.iter().filter_map(|node| by_name(&node.name));
    if let Some(node) = ordered.into_iter().find(|node| node.is_standby() && is_wanted(node)) {
        return Ok(Step::Convert(node.name.clone()));
    }
    let switch_over = |to: &str| Step::SwitchOver { from: primary.name.clone(), to: to.to_owned() };
    if is_wanted(primary) {
        let to = journal.candidate.as_deref().filter(|to| *to != primary.name);
        let to = to.unwrap_or(&journal.original_primary);
        return Ok(switch_over(to));
    }
    if journal.switch_back && primary.name != journal.original_primary {
        return Ok(switch_over(&journal.original_primary));
    }
    Ok(Step::Done)
}

/// A standby that is down would take writes without the file `standby.signal`.
fn check_signal(node: &NodeState) -> Result<(), RollingError> {
    if node.report.standby_signal {
        return Ok(());
    }
    Err(RollingError::State {
        message: format!(
            "{} is down and has no standby.signal, while another node takes writes: started, it \
             would take writes too",
            node.name
        ),
        hint: "was it a primary? Make a standby of it (pg_rewind, or anew), then --resume"
            .to_owned(),
    })
}

/// No node takes writes: a switchover is under way, or the primary crashed.
fn without_primary(survey: &Survey, journal: &Journal) -> Result<Step, RollingError> {
    let Some(open) = &journal.switchover else {
        let primary = &journal.primary;
        return match survey.node(primary) {
            Some(node) if node.server.is_none() && !node.report.standby_signal => {
                Ok(Step::Start(primary.clone()))
            }
            _ => Err(RollingError::State {
                message: "no node takes writes, and no switchover of this run was under way"
                    .to_owned(),
                hint: "promote or start the primary first, then --resume".to_owned(),
            }),
        };
    };
    let (from, to) = (open.from.clone(), open.to.clone());
    let missing = |name: &str| RollingError::NoNode { name: name.to_owned() };
    let old = survey.node(&from).ok_or_else(|| missing(&from))?;
    let new = survey.node(&to).ok_or_else(|| missing(&to))?;
    if new.server.is_none() {
        check_signal(new)?;
        return Ok(Step::Start(to));
    }
    match &old.server {
        // Its stop was cut short: recovery first, then all over again.
        None if !old.report.is_shut_down => Ok(Step::Start(from)),
        _ => Ok(Step::GoOnSwitchingOver { from, to }),
    }
}

/// The next step towards a set that can be left alone: a node takes writes, the others stream. Only a
/// switchover that has not promoted anybody is taken back.
pub(crate) fn next_step_of_abort(
    survey: &Survey,
    journal: &Journal,
) -> Result<AbortStep, RollingError> {
    let Some(primary) = survey.primary()? else {
        return Ok(match &journal.switchover {
            Some(open) => AbortStep::TakeBack(open.from.clone()),
            None => match without_primary(survey, journal)? {
                Step::Start(node) => AbortStep::Start(node),
                _ => AbortStep::Done,
            },
        });
    };
    let others = survey.nodes.iter().filter(|node| node.name != primary.name);
    for node in others {
        if node.server.is_none() {
            check_signal(node)?;
            return Ok(AbortStep::Start(node.name.clone()));
        }
    }
    Ok(AbortStep::Done)
}

/// The next step of ending an unfinished run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AbortStep {
    /// Start a node as it is.
    Start(String),
    /// Let the old primary take writes again.
    TakeBack(String),
    /// Nothing is left but to restore settings and to run the hook.
    Done,
}
