//! A step of all arms at once, in turns: each server works for a moment, while the others are
//! suspended. What disturbs the machine for longer than a turn disturbs all arms alike.
//!
//! The step itself is what it is without turns: the same statement or program, from its beginning to
//! its end. Meanwhile all servers work on the same CPU, since CPUs differ: a neighbour of one, or what
//! shares its core, would be taken for a difference between arms.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use pgtoll_cluster::{ClusterError, Guard, ProgramSignal, ServerProcesses, pin, wait_for_exit};
use pgtoll_observe::{ClusterCpu, CpuSample, CpuUsed};
use pgtoll_stats::BalancedOrders;
use pgtoll_wire::Connection;

use crate::arm_trial::{ArmTrial, SESSIONS_GONE};
use crate::experiment::{StepKind, substituted};
use crate::plan::TURN;
use crate::programs::{Programs, StartedProgram};
use crate::run::Run;
use crate::sessions::Sessions;
use crate::{BenchError, StepSpec};

/// The costs of a step in an arm, without the turns of others.
pub(crate) struct TurnsOutcome {
    /// When its first turn began, in the run.
    pub(crate) start: Duration,
    /// The time of its turns together.
    pub(crate) elapsed: Duration,
    pub(crate) turns: u32,
    pub(crate) server_cpu: CpuUsed,
    /// The CPU of the program that did the step; `None` for statements and pgbench's steps.
    pub(crate) client_cpu_ns: Option<u64>,
}

/// Whose step has ended, and how.
type StepEnd = (usize, Result<(), BenchError>);

/// The turns of arms on CPUs.
pub(crate) struct Turns {
    /// The orders of the arms.
    pub(crate) orders: BalancedOrders,
    /// The CPU for all of them; they change it together from start to start.
    pub(crate) cpu: usize,
    /// All CPUs that may be used.
    pub(crate) cpus: Vec<usize>,
    /// The turns of each arm in the starts so far, by the steps' names.
    pub(crate) taken: BTreeMap<String, Vec<u32>>,
}

/// How often arms get a turn: an arm with less to do gets fewer, so that all begin and end together. Else the
/// dear arms would do the end of their work alone, while the machine may be slower or faster than before.
struct TurnPaces {
    /// Turns in a round, at most 1.
    paces: Vec<f64>,
    credits: Vec<f64>,
}

impl TurnPaces {
    /// From the turns that the arms took before; nothing is known of them at first.
    fn new(arms: usize, taken: Option<&Vec<u32>>) -> Self {
        let most = taken.and_then(|taken| taken.iter().copied().max()).unwrap_or_default().max(1);
        let pace = |turns: &u32| f64::from((*turns).max(1)) / f64::from(most);
        let paces = taken.map_or_else(|| vec![1.0; arms], |taken| taken.iter().map(pace).collect());
        Self { paces, credits: vec![0.5; arms] }
    }

    /// Whether the arm takes part in this round, which is asked once a round.
    fn is_due(&mut self, arm: usize) -> bool {
        self.credits[arm] += self.paces[arm];
        let is_due = self.credits[arm] >= 1.0;
        if is_due {
            self.credits[arm] -= 1.0;
        }
        is_due
    }
}

/// Does a step in all trials. Outcomes are in the trials' order.
pub(crate) fn in_turns(
    trials: &mut [ArmTrial<'_>],
    step: &StepSpec,
    turns: &mut Turns,
    run: &mut Run<'_>,
) -> Result<Vec<TurnsOutcome>, BenchError> {
    let mut pinned = Vec::new();
    for trial in trials.iter_mut() {
        let Sessions { cpu, monitor, .. } = &mut trial.sessions;
        cpu.find_io_workers(monitor)?;
        pinned.extend(pinned_processes(trial, step));
    }
    for pid in &pinned {
        pin(*pid, &[turns.cpu])?;
    }
    let name = step.measure.clone().unwrap_or_default();
    let mut paces = TurnPaces::new(trials.len(), turns.taken.get(&name));
    let outcomes = act_in_turns(trials, step, &mut turns.orders, &mut paces, run)?;
    let taken = turns.taken.entry(name).or_insert_with(|| vec![0; outcomes.len()]);
    for (sum, outcome) in taken.iter_mut().zip(&outcomes) {
        *sum = sum.saturating_add(outcome.turns);
    }
    for pid in &pinned {
        pin(*pid, &turns.cpus)?;
    }
    Ok(outcomes)
}

/// The processes that have to stay on one CPU: a statement's backend, and where a program brings
/// sessions the postmaster, which starts them there; with either the I/O workers. A statement's parallel
/// workers are free.
fn pinned_processes(trial: &ArmTrial<'_>, step: &StepSpec) -> Vec<i32> {
    let Sessions { worker, postmaster, cpu, .. } = &trial.sessions;
    let caller = match step.kind() {
        StepKind::Sql(_) => worker.backend_pid(),
        _ if step.parallel => return Vec::new(),
        _ => *postmaster,
    };
    [&[caller], cpu.io_workers()].concat()
}

fn act_in_turns(
    trials: &mut [ArmTrial<'_>],
    step: &StepSpec,
    orders: &mut BalancedOrders,
    paces: &mut TurnPaces,
    run: &mut Run<'_>,
) -> Result<Vec<TurnsOutcome>, BenchError> {
    thread::scope(|scope| {
        let (sender, ends) = mpsc::channel();
        let mut arms = Vec::new();
        let begun = trials.iter_mut().enumerate().try_for_each(|(index, trial)| {
            let end = EndSignal { index, sender: sender.clone() };
            arms.push(ArmTurns::begin(trial, step, scope, end, run)?);
            Ok(())
        });
        let done = begun.and_then(|()| take_turns(&mut arms, &ends, orders, paces, run));
        if done.is_err() {
            // The threads wait for the ends of their steps.
            for arm in &mut arms {
                arm.abandon(run.guard);
            }
        }
        done?;
        Ok(arms.into_iter().filter_map(|arm| arm.outcome).collect())
    })
}

/// Turns of all arms in balanced random orders, until each has done its step.
fn take_turns(
    arms: &mut [ArmTurns<'_>],
    ends: &Receiver<StepEnd>,
    orders: &mut BalancedOrders,
    paces: &mut TurnPaces,
    run: &mut Run<'_>,
) -> Result<(), BenchError> {
    while arms.iter().any(|arm| arm.outcome.is_none()) {
        for index in orders.next().into_iter().flatten() {
            if arms[index].outcome.is_none() && paces.is_due(index) {
                run.interrupt.check()?;
                take_turn(arms, index, ends, run)?;
            }
        }
    }
    Ok(())
}

/// One turn of one arm.
fn take_turn(
    arms: &mut [ArmTurns<'_>],
    index: usize,
    ends: &Receiver<StepEnd>,
    run: &mut Run<'_>,
) -> Result<(), BenchError> {
    let start = run.elapsed();
    let began = Instant::now();
    let arm = &mut arms[index];
    arm.start.get_or_insert(start);
    arm.turns += 1;
    arm.resume(run.guard)?;
    loop {
        let left = TURN.saturating_sub(began.elapsed());
        let Ok((ended, result)) = ends.recv_timeout(left) else {
            // The time is up: no sender is gone before its step has ended.
            let arm = &mut arms[index];
            arm.suspend(run.guard)?;
            arm.elapsed += began.elapsed();
            return Ok(());
        };
        result?;
        let arm = &mut arms[ended];
        if ended == index {
            arm.elapsed += began.elapsed();
            return arm.finish(run.guard);
        }
        // It ended with its turn, and its thread has said so only now.
        arm.processes.resume()?;
        arm.finish(run.guard)?;
    }
}

/// How an arm's thread reports that its step has ended.
struct EndSignal {
    index: usize,
    sender: Sender<StepEnd>,
}

/// An arm that takes turns.
struct ArmTurns<'t> {
    programs: &'t Programs<'t>,
    monitor: &'t mut Connection,
    cpu: &'t mut ClusterCpu,
    processes: ServerProcesses,
    /// The backend that does the step, if it is a statement.
    backend: i32,
    program: Option<StartedProgram>,
    /// The program's CPU time counts.
    is_measured: bool,
    cpu_before: CpuSample,
    start: Option<Duration>,
    elapsed: Duration,
    turns: u32,
    outcome: Option<TurnsOutcome>,
}

impl<'t> ArmTurns<'t> {
    /// Suspends the server, and has the step ready to begin.
    fn begin<'scope>(
        trial: &'t mut ArmTrial<'_>,
        step: &'t StepSpec,
        scope: &'scope Scope<'scope, 't>,
        end: EndSignal,
        run: &mut Run<'_>,
    ) -> Result<Self, BenchError> {
        let ArmTrial { programs, sessions, .. } = trial;
        let programs = &*programs;
        let processes = ServerProcesses::from_postmaster(sessions.postmaster)?;
        let cpu_before = sessions.cpu.sample()?;
        processes.suspend()?;
        let program = programs.start(step, run.guard)?;
        let backend = sessions.worker.backend_pid();
        let worker = &mut sessions.worker;
        let arm = Self {
            programs,
            monitor: &mut sessions.monitor,
            cpu: &mut sessions.cpu,
            processes,
            backend,
            is_measured: matches!(step.kind(), StepKind::Program(_)),
            cpu_before,
            start: None,
            elapsed: Duration::ZERO,
            turns: 0,
            outcome: None,
            program,
        };
        arm.signal_program(ProgramSignal::Stop, run.guard)?;
        match (&arm.program, step.kind()) {
            (Some(program), _) => {
                let pid = program.pid;
                scope.spawn(move || end.report(wait_for_exit(pid).map_err(BenchError::from)));
            }
            (None, StepKind::Sql(text)) => {
                let text = substituted(text, &programs.arm.values);
                scope.spawn(move || {
                    let done = worker.execute(&text);
                    end.report(done.map_err(|error| BenchError::query(&programs.cluster, error)));
                });
            }
            (None, _) => end.report(Ok(())),
        }
        Ok(arm)
    }

    fn resume(&self, guard: &mut Guard) -> Result<(), BenchError> {
        self.processes.resume()?;
        self.signal_program(ProgramSignal::Continue, guard)
    }

    fn suspend(&self, guard: &mut Guard) -> Result<(), BenchError> {
        self.signal_program(ProgramSignal::Stop, guard)?;
        Ok(self.processes.suspend()?)
    }

    fn signal_program(&self, signal: ProgramSignal, guard: &mut Guard) -> Result<(), BenchError> {
        let Some(program) = &self.program else { return Ok(()) };
        match guard.signal(&program.name, signal) {
            // It has ended, which its thread reports.
            Err(ClusterError::Guard { .. }) => Ok(()),
            signalled => Ok(signalled?),
        }
    }

    /// Counts what the step took, and suspends the server until all arms are done.
    fn finish(&mut self, guard: &mut Guard) -> Result<(), BenchError> {
        let mut client_cpu_ns = None;
        if let Some(program) = self.program.take() {
            let cpu_ns = self.programs.reap(program, guard)?;
            client_cpu_ns = self.is_measured.then_some(cpu_ns);
            // Sessions of programs are in the postmaster's account when they are gone.
            self.cpu.wait_until_back(&self.cpu_before, SESSIONS_GONE)?;
        }
        let server_cpu = self.cpu.sample()?.since(&self.cpu_before);
        self.processes.suspend()?;
        self.outcome = Some(TurnsOutcome {
            start: self.start.unwrap_or_default(),
            elapsed: self.elapsed,
            turns: self.turns,
            server_cpu,
            client_cpu_ns,
        });
        Ok(())
    }

    /// Ends a step that is not wanted any more. Errors are of no interest: another one is reported.
    fn abandon(&mut self, guard: &mut Guard) {
        let _ = self.processes.resume();
        if let Some(program) = self.program.take() {
            let _ = guard.reap(&program.name, Duration::ZERO);
        } else if self.outcome.is_none() {
            let _ = self.monitor.execute(&format!("SELECT pg_cancel_backend({})", self.backend));
        }
    }
}

impl EndSignal {
    fn report(self, end: Result<(), BenchError>) {
        // Without a receiver another arm's step has failed.
        let _ = self.sender.send((self.index, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rounds in which an arm takes part until it has had this many turns.
    fn rounds(paces: &mut TurnPaces, arm: usize, turns: usize) -> Vec<u32> {
        (0..).filter(|_| paces.is_due(arm)).take(turns).collect()
    }

    #[test]
    fn arms_end_together() {
        let mut paces = TurnPaces::new(3, Some(&vec![200, 480, 520]));
        let cheap = rounds(&mut paces, 0, 20);
        let dear = rounds(&mut paces, 2, 52);
        assert_eq!(dear, (0..52).collect::<Vec<_>>());
        let [first, last] = [cheap[0], cheap[19]];
        assert!(first <= 2 && (49..=51).contains(&last), "{cheap:?}");
        assert!(cheap.windows(2).all(|pair| (2..=3).contains(&(pair[1] - pair[0]))), "{cheap:?}");
    }

    #[test]
    fn every_arm_gets_turns() {
        let mut unknown = TurnPaces::new(2, None);
        assert_eq!(
            [rounds(&mut unknown, 0, 3), rounds(&mut unknown, 1, 3)],
            [[0, 1, 2], [0, 1, 2]]
        );
        let mut none = TurnPaces::new(2, Some(&vec![0, 0]));
        assert_eq!(rounds(&mut none, 0, 2), [0, 1]);
        let mut few = TurnPaces::new(2, Some(&vec![0, 1024]));
        assert_eq!(rounds(&mut few, 0, 1), [511]);
    }
}
