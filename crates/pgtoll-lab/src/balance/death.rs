//! A standby dies under readers, and comes back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use pgtoll_cluster::Guard;
use pgtoll_record::{BalanceDeath, BalanceRecord};
use pgtoll_system::Interrupt;

use super::BalanceContext;
use super::error::BalanceError;
use super::set::{BalancedSet, NODE, first_value, until};

/// Clients that read and reconnect.
const READERS: u64 = 8;
/// Between two reads of a client.
const PACE: Duration = Duration::from_millis(2);
/// Reads that are waited for while nothing happens: before the kill, and while the standby is called down.
const READS: u64 = 400;

/// When a read was answered, and by whom; `None` if it failed.
type Reading = (Instant, Option<String>);

/// When what happened.
struct Moments {
    killed: Instant,
    down: Instant,
    started: Instant,
    back: Instant,
}

/// Kills the second standby under readers, and starts it again once the balancer calls it down.
pub(super) fn death(
    context: &mut BalanceContext<'_>,
    record: &mut BalanceRecord,
) -> Result<(), BalanceError> {
    let set = context.set;
    let interrupt = context.interrupt;
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let guard = &mut *context.guard;
    let (moments, readings) = thread::scope(|scope| {
        let read = || read_on(set, interrupt, &stop, &reads);
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        let moments = kill_and_start(set, guard, interrupt, &reads);
        stop.store(true, Ordering::SeqCst);
        let readings: Result<Vec<Vec<Reading>>, _> =
            readers.into_iter().map(ScopedJoinHandle::join).collect();
        readings.map_err(|_| BalanceError::Thread).and_then(|readings| Ok((moments?, readings)))
    })?;
    record.death = Some(judged(&moments, &readings));
    Ok(())
}

/// Reads until it is to stop, and connects again after each failure.
fn read_on(
    set: &BalancedSet,
    interrupt: &Interrupt,
    stop: &AtomicBool,
    reads: &AtomicU64,
) -> Vec<Reading> {
    let mut readings = Vec::new();
    let mut session = None;
    while !stop.load(Ordering::SeqCst) && interrupt.wait(PACE).is_ok() {
        let Ok(mut connection) = session.take().map_or_else(|| set.connect(), Ok) else {
            readings.push((Instant::now(), None));
            continue;
        };
        let node = first_value(&mut connection, NODE).ok();
        if node.is_some() {
            session = Some(connection);
            reads.fetch_add(1, Ordering::SeqCst);
        }
        readings.push((Instant::now(), node));
    }
    readings
}

fn kill_and_start(
    set: &BalancedSet,
    guard: &mut Guard,
    interrupt: &Interrupt,
    reads: &AtomicU64,
) -> Result<Moments, BalanceError> {
    let victim = &set.standbys[1];
    let wait_for_reads = || {
        let before = reads.load(Ordering::SeqCst);
        until(interrupt, "reads", || {
            let more = reads.load(Ordering::SeqCst) - before;
            Ok(if more >= READS { Ok(()) } else { Err(format!("{more} of {READS}")) })
        })
    };
    wait_for_reads()?;
    let killed = Instant::now();
    victim.kill(guard)?;
    until(interrupt, "a balancer that calls the dead standby down", || {
        let states = match set.states() {
            Ok(states) => states,
            // The session was led to the dead standby.
            Err(error) => return Ok(Err(pgtoll_system::error_chain(&error))),
        };
        let is_down = states.last().is_some_and(|state| state.starts_with("down"));
        Ok(if is_down { Ok(()) } else { Err(states.join(", ")) })
    })?;
    let down = Instant::now();
    wait_for_reads()?;
    victim.start(guard)?;
    let started = Instant::now();
    until(interrupt, "a read from the standby that came back", || {
        let node = set.node_of_a_session().unwrap_or_default();
        Ok(if node == victim.name() { Ok(()) } else { Err(node) })
    })?;
    Ok(Moments { killed, down, started, back: Instant::now() })
}

fn judged(moments: &Moments, readings: &[Vec<Reading>]) -> BalanceDeath {
    let all = || readings.iter().flatten();
    let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
    let failures = |from: Instant, to: Option<Instant>| {
        let within = |at: Instant| at >= from && to.is_none_or(|to| at < to);
        all().filter(|(at, node)| node.is_none() && within(*at)).count() as u64
    };
    let mut answers_while_down: BTreeMap<String, u64> = BTreeMap::new();
    let while_down = all().filter(|(at, _)| *at > moments.down && *at < moments.started);
    for node in while_down.filter_map(|(_, node)| node.as_ref()) {
        *answers_while_down.entry(node.clone()).or_default() += 1;
    }
    let answered = |readings: &Vec<Reading>| {
        let times = readings.iter().filter(|(_, node)| node.is_some()).map(|(at, _)| *at);
        times.collect::<Vec<_>>()
    };
    let gaps = readings.iter().flat_map(|reading| {
        let times = answered(reading);
        times.windows(2).map(|pair| seconds(pair[0], pair[1])).collect::<Vec<_>>()
    });
    BalanceDeath {
        readers: READERS,
        reads: all().filter(|(_, node)| node.is_some()).count() as u64,
        errors_until_down: failures(moments.killed, Some(moments.down)),
        errors_while_down: failures(moments.down, Some(moments.started)),
        errors_after_start: failures(moments.started, None),
        longest_gap_s: gaps.fold(0.0, f64::max),
        down_s: seconds(moments.killed, moments.down),
        back_s: seconds(moments.started, moments.back),
        answers_while_down,
    }
}
