//! More clients than the balancer takes at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pgtoll_record::{BalanceQueue, BalanceRecord};
use pgtoll_wire::Connection;

use super::BalanceContext;
use super::error::BalanceError;
use super::set::{BalancedSet, NODE, first_value};

/// Clients beyond what it takes.
const MORE: usize = 8;
/// While all others stay: longer than a client takes that is not made to wait.
const STAY: Duration = Duration::from_millis(500);

/// Fills the balancer, lets more clients come, and then as many leave.
pub(super) fn queue(
    context: &mut BalanceContext<'_>,
    record: &mut BalanceRecord,
) -> Result<(), BalanceError> {
    let room = record.design.balancer_clients;
    let held = (0..room).map(|_| context.set.connect());
    let mut held = held.collect::<Result<Vec<Connection>, _>>()?;
    let served = AtomicU64::new(0);
    let (at_once, ends) = thread::scope(|scope| {
        let more: Vec<_> =
            (0..MORE).map(|_| scope.spawn(|| be_served(context.set, &served))).collect();
        let waited = context.interrupt.wait(STAY);
        let at_once = served.load(Ordering::SeqCst);
        // Whatever came of waiting, those that wait are to end.
        held.drain(..MORE.min(held.len())).for_each(Connection::close);
        let ends: Vec<_> = more.into_iter().map(thread::ScopedJoinHandle::join).collect();
        waited.map(|()| (at_once, ends))
    })?;
    held.into_iter().for_each(Connection::close);
    let ends = ends.into_iter().collect::<Result<Vec<_>, _>>().map_err(|_| BalanceError::Thread)?;
    let errors: Vec<String> = ends.into_iter().filter_map(Result::err).collect();
    let refused = errors.len() as u64;
    record.queue = Some(BalanceQueue {
        room: u64::from(room),
        more: MORE as u64,
        served_at_once: at_once,
        served_later: (MORE as u64).saturating_sub(at_once + refused),
        refused,
        first_error: errors.into_iter().next(),
    });
    Ok(())
}

/// Waits to be served; the error is the one that the client gets.
fn be_served(set: &BalancedSet, served: &AtomicU64) -> Result<(), String> {
    let ask = || {
        let mut connection = set.connect()?;
        first_value(&mut connection, NODE)?;
        served.fetch_add(1, Ordering::SeqCst);
        connection.close();
        Ok(())
    };
    ask().map_err(|error: pgtoll_wire::Error| pgtoll_system::error_chain(&error))
}
