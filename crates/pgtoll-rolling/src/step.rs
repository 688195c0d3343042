//! The next step, from the state of the nodes and the journal alone. Pure.

use crate::RollingError;
use crate::journal::Journal;
use crate::survey::{NodeState, Survey};

/// The next step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RollingStep {
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
    /// Run the hook after a switchover, and forget that one was in progress.
    EndSwitchover,
    /// Nothing is left.
    Done,
}

/// The next step towards the journal's aim.
pub(crate) fn next_step(survey: &Survey, journal: &Journal) -> Result<RollingStep, RollingError> {
    let Some(primary) = survey.primary()? else { return without_primary(survey, journal) };
    if journal.switchover.is_some() {
        return Ok(RollingStep::EndSwitchover);
    }
    let is_wanted = |node: &NodeState| {
        journal.wanted.contains(&node.name) && node.has_checksums() != journal.enable
    };
    // A node that is down is brought back before anything else.
    if let Some(node) = survey.nodes.iter().find(|node| node.server.is_none()) {
        check_signal(node)?;
        let is_ready = node.report.is_shut_down && is_wanted(node);
        return Ok(if is_ready {
            RollingStep::Convert(node.name.clone())
        } else {
            RollingStep::Start(node.name.clone())
        });
    }
    if let Some(node) = survey.nodes.iter().find(|node| node.is_standby() && !node.is_streaming()) {
        return Ok(RollingStep::AwaitStreaming(node.name.clone()));
    }
    let by_name = |name: &String| survey.node(name);
    let ordered = journal.nodes.iter().filter_map(|node| by_name(&node.name));
    if let Some(node) = ordered.into_iter().find(|node| node.is_standby() && is_wanted(node)) {
        return Ok(RollingStep::Convert(node.name.clone()));
    }
    let switch_over =
        |to: &str| RollingStep::SwitchOver { from: primary.name.clone(), to: to.to_owned() };
    if is_wanted(primary) {
        let to = journal.candidate.as_deref().filter(|to| *to != primary.name);
        let to = to.unwrap_or(&journal.original_primary);
        return Ok(switch_over(to));
    }
    if journal.switch_back && primary.name != journal.original_primary {
        return Ok(switch_over(&journal.original_primary));
    }
    Ok(RollingStep::Done)
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
        hint: "was it a primary? Make it a standby (pg_rewind or a new copy), then --resume"
            .to_owned(),
    })
}

/// No node takes writes: a switchover is under way, or the primary crashed.
fn without_primary(survey: &Survey, journal: &Journal) -> Result<RollingStep, RollingError> {
    let Some(open) = &journal.switchover else {
        let primary = &journal.primary;
        return match survey.node(primary) {
            Some(node) if node.server.is_none() && !node.report.standby_signal => {
                Ok(RollingStep::Start(primary.clone()))
            }
            _ => Err(RollingError::State {
                message: "no node takes writes, and no switchover of this run was under way"
                    .to_owned(),
                hint: "promote or start the primary first, then --resume".to_owned(),
            }),
        };
    };
    let from = open.from.clone();
    let to = open.to.clone();
    let missing = |name: &str| RollingError::NoNode { name: name.to_owned() };
    let old = survey.node(&from).ok_or_else(|| missing(&from))?;
    let new = survey.node(&to).ok_or_else(|| missing(&to))?;
    if new.server.is_none() {
        check_signal(new)?;
        return Ok(RollingStep::Start(to));
    }
    match &old.server {
        // Its stop was cut short: recovery first, then all over again.
        None if !old.report.is_shut_down => Ok(RollingStep::Start(from)),
        _ => Ok(RollingStep::GoOnSwitchingOver { from, to }),
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
                RollingStep::Start(node) => AbortStep::Start(node),
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

#[cfg(test)]
mod tests {
    use pgtoll_format::Lsn;
    use pgtoll_record::RollingNode;

    use super::*;
    use crate::NodeReport;
    use crate::survey::{ReceiverState, ServerState};

    /// What a node does.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Runs {
        Primary,
        Standby,
        /// A standby that does not stream.
        Lost,
        /// Stopped in good order.
        Stopped,
        Crashed,
    }
    use Runs::{Crashed, Lost, Primary, Standby, Stopped};

    fn node(name: &str, runs: Runs, checksums: bool, signal: bool) -> NodeState {
        let is_down = matches!(runs, Stopped | Crashed);
        let report = NodeReport {
            version: "0".to_owned(),
            system_identifier: 7,
            state: String::new(),
            is_shut_down: runs == Stopped,
            is_shut_down_primary: runs == Stopped,
            checksum_version: checksums.into(),
            checkpoint: Lsn(1),
            timeline: 1,
            standby_signal: signal,
            recovery_signal: false,
            server: (!is_down).then_some(1),
            wal_free_bytes: None,
            managers: Vec::new(),
        };
        let receiver = ReceiverState { is_streaming: true, host: String::new(), port: 1 };
        let server = ServerState {
            is_standby: runs != Primary,
            has_checksums: checksums,
            major: 18,
            is_superuser: true,
            wal_log_hints: true,
            slot: String::new(),
            restore_command: false,
            apply_delay_ms: 0,
            follows_timelines: true,
            synchronous_standby_names: String::new(),
            wal_keep_bytes: 0,
            wal_segment_bytes: 16 << 20,
            slot_keep_bytes: None,
            receiver: (runs == Standby).then_some(receiver),
            logical_slots: Vec::new(),
            base_backups: 0,
            data_directory: String::new(),
        };
        let server = (!is_down).then_some(server);
        NodeState { name: name.to_owned(), report, server }
    }

    /// Of a run that turns checksums on, with n1 as the first primary and n2 as the next one.
    fn journal(switchover: bool) -> Journal {
        let record = |name: &str| RollingNode {
            name: name.to_owned(),
            primary: name == "n1",
            upstream: None,
            checksums_before: Some(false),
            checksums: None,
            predicted_seconds: None,
            bytes: None,
            convert_seconds: None,
            down_seconds: None,
            catch_up_seconds: None,
            verified: None,
            refused_pages: 0,
        };
        let open = crate::journal::OpenSwitchover {
            from: "n1".to_owned(),
            to: "n2".to_owned(),
            has_hook_run: false,
        };
        Journal {
            schema: Journal::schema(),
            enable: true,
            system_identifier: 7,
            nodes: ["n3", "n2", "n1"].map(record).to_vec(),
            original_primary: "n1".to_owned(),
            primary: "n1".to_owned(),
            candidate: Some("n2".to_owned()),
            wanted: ["n3", "n2", "n1"].map(str::to_owned).to_vec(),
            switch_back: false,
            verify: true,
            is_switchover_confirmed: true,
            before_switch: None,
            after_switch: None,
            switchover: switchover.then_some(open),
            switchovers: Vec::new(),
            restore: Vec::new(),
            slots: Vec::new(),
        }
    }

    type Three = [(Runs, bool, bool); 3];

    fn survey(three: Three) -> Survey {
        let names = ["n1", "n2", "n3"].into_iter().zip(three);
        let nodes =
            names.map(|(name, (runs, checksums, signal))| node(name, runs, checksums, signal));
        Survey { nodes: nodes.collect() }
    }

    fn next(three: Three, switchover: bool) -> Result<RollingStep, String> {
        next_step(&survey(three), &journal(switchover)).map_err(|error| error.to_string())
    }

    #[test]
    fn leaves_first_then_the_switchover_then_the_old_primary() {
        let convert = |name: &str| Ok(RollingStep::Convert(name.to_owned()));
        let n1 = "n1".to_owned();
        let n2 = "n2".to_owned();
        let off = (Standby, false, true);
        let on = (Standby, true, true);
        assert_eq!(next([(Primary, false, false), off, off], false), convert("n3"));
        assert_eq!(next([(Primary, false, false), off, on], false), convert("n2"));
        let step = RollingStep::SwitchOver { from: n1, to: n2 };
        assert_eq!(next([(Primary, false, false), on, on], false), Ok(step));
        assert_eq!(next([off, (Primary, true, false), on], false), convert("n1"));
        assert_eq!(next([on, (Primary, true, false), on], false), Ok(RollingStep::Done));
    }

    #[test]
    fn what_is_down_comes_back_before_anything_else() {
        let start = |name: &str| Ok(RollingStep::Start(name.to_owned()));
        let primary = (Primary, false, false);
        let off = (Standby, false, true);
        assert_eq!(next([primary, (Stopped, true, true), off], false), start("n2"));
        let convert = Ok(RollingStep::Convert("n2".to_owned()));
        assert_eq!(next([primary, (Stopped, false, true), off], false), convert);
        // Never converted as it is: its pages are not all on disk.
        assert_eq!(next([primary, (Crashed, false, true), off], false), start("n2"));
        let lost = Ok(RollingStep::AwaitStreaming("n2".to_owned()));
        assert_eq!(next([primary, (Lost, false, true), off], false), lost);
        // Started, it would be a second primary.
        let refused = next([primary, (Stopped, false, false), off], false).unwrap_err();
        assert!(refused.contains("it would take writes too"), "{refused}");
    }

    #[test]
    fn a_switchover_that_stopped_goes_on_from_where_it_is() {
        let on = (Standby, true, true);
        let go_on =
            || Ok(RollingStep::GoOnSwitchingOver { from: "n1".to_owned(), to: "n2".to_owned() });
        assert_eq!(next([(Stopped, false, false), on, on], true), go_on());
        assert_eq!(next([(Stopped, false, true), on, on], true), go_on());
        assert_eq!(next([(Standby, false, true), on, on], true), go_on());
        assert_eq!(next([(Lost, false, true), on, on], true), go_on());
        // Its stop was cut short.
        let start = Ok(RollingStep::Start("n1".to_owned()));
        assert_eq!(next([(Crashed, false, false), on, on], true), start);
        // Not begun, or done.
        assert_eq!(next([(Primary, false, false), on, on], true), Ok(RollingStep::EndSwitchover));
        let promoted = [(Stopped, false, true), (Primary, true, false), on];
        assert_eq!(next(promoted, true), Ok(RollingStep::EndSwitchover));
        assert_eq!(next(promoted, false), Ok(RollingStep::Convert("n1".to_owned())));
        // A primary that is down outside of a switchover.
        assert_eq!(next([(Crashed, false, false), on, on], false), start_of("n1"));
        assert!(next([(Crashed, false, true), on, on], false).is_err());
    }

    #[expect(clippy::unnecessary_wraps, reason = "as steps are compared")]
    fn start_of(name: &str) -> Result<RollingStep, String> {
        Ok(RollingStep::Start(name.to_owned()))
    }

    #[test]
    fn two_primaries_are_left_alone() {
        let both = [(Primary, false, false), (Primary, true, false), (Standby, true, true)];
        for switchover in [false, true] {
            let refused = next(both, switchover).unwrap_err();
            assert!(refused.contains("several nodes take writes: n1, n2"), "{refused}");
            let journal = journal(switchover);
            assert!(next_step_of_abort(&survey(both), &journal).is_err());
        }
    }

    #[test]
    fn an_abort_takes_back_what_promoted_nobody() {
        let abort = |three: Three, switchover| {
            next_step_of_abort(&survey(three), &journal(switchover)).unwrap()
        };
        let on = (Standby, true, true);
        let take_back = AbortStep::TakeBack("n1".to_owned());
        for old in [(Stopped, false, false), (Stopped, false, true), (Standby, false, true)] {
            assert_eq!(abort([old, on, on], true), take_back);
        }
        let promoted = [(Stopped, false, true), (Primary, true, false), on];
        assert_eq!(abort(promoted, true), AbortStep::Start("n1".to_owned()));
        let down = [(Primary, false, false), on, (Stopped, false, true)];
        assert_eq!(abort(down, false), AbortStep::Start("n3".to_owned()));
        assert_eq!(abort([(Primary, false, false), on, on], false), AbortStep::Done);
    }
}
