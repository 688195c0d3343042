//! Inserts, commits and rollbacks through `postgres_fdw` with one server, and what it refuses.

use super::context::BridgeContext;
use super::error::BridgeError;
use super::log::{RecordedSession, StepLog};

/// A column that its own server fills in.
pub(super) fn defaults(
    log: &mut StepLog,
    context: &mut BridgeContext<'_>,
) -> Result<(), BridgeError> {
    let mut hub = context.servers.session("hub")?;
    let mut shop = context.servers.session("shop")?;
    let refused =
        log.attempt(&mut hub, "INSERT INTO orders (customer, amount) VALUES (1001, 1)")?;
    log.check_refused("insert through a foreign table with the column id", "23502", &refused);
    log.run(&mut hub, "INSERT INTO new_orders (customer, amount) VALUES (1001, 1)")?;
    let rows = log.value(&mut shop, &orders_of(1001))?;
    log.check("rows on shop, inserted through one without it", 1, rows);
    Ok(())
}

/// A transaction over the hub and one server.
pub(super) fn transactions(
    log: &mut StepLog,
    context: &mut BridgeContext<'_>,
) -> Result<(), BridgeError> {
    let mut hub = context.servers.session("hub")?;
    let mut shop = context.servers.session("shop")?;
    for (number, end, expected) in [(1002, "COMMIT", "1, 1"), (1003, "ROLLBACK", "0, 0")] {
        log.run_all(&mut hub, &begun(number))?;
        log.run(&mut hub, end)?;
        let found = rows(log, &mut hub, &mut shop, number)?;
        log.check(&format!("rows on hub and shop after {end}"), expected, found);
    }
    Ok(())
}

/// Two-phase commit, which `postgres_fdw` does not take part in.
pub(super) fn prepare(
    log: &mut StepLog,
    context: &mut BridgeContext<'_>,
) -> Result<(), BridgeError> {
    let mut hub = context.servers.session("hub")?;
    let mut shop = context.servers.session("shop")?;
    log.run_all(&mut hub, &["BEGIN", "INSERT INTO journal VALUES (1)"])?;
    let local = log.attempt(&mut hub, "PREPARE TRANSACTION 'local'")?;
    // Else a refusal below could be one of every PREPARE.
    let found = local.as_ref().map_or_else(|error| &*error.message, |()| "done");
    log.check("PREPARE without foreign tables", "done", found);
    if local.is_ok() {
        log.run(&mut hub, "ROLLBACK PREPARED 'local'")?;
    }
    log.run_all(&mut hub, &begun(1004))?;
    let written = log.attempt(&mut hub, "PREPARE TRANSACTION 'written'")?;
    log.check_refused("PREPARE after a foreign insert", "0A000", &written);
    let found = rows(log, &mut hub, &mut shop, 1004)?;
    log.check("rows on hub and shop after the refusal", "0, 0", found);
    log.run_all(&mut hub, &["BEGIN", "SELECT count(*) FROM orders"])?;
    let read = log.attempt(&mut hub, "PREPARE TRANSACTION 'read'")?;
    log.check_refused("PREPARE after a foreign read", "0A000", &read);
    Ok(())
}

/// A transaction that writes to the hub and to shop.
fn begun(number: u32) -> [String; 3] {
    [
        "BEGIN".to_owned(),
        format!("INSERT INTO journal VALUES ({number})"),
        format!("INSERT INTO new_orders (customer, amount) VALUES ({number}, 1)"),
    ]
}

/// How many rows of a transaction are on the hub and on shop, each asked directly.
fn rows(
    log: &mut StepLog,
    hub: &mut RecordedSession,
    shop: &mut RecordedSession,
    number: u32,
) -> Result<String, BridgeError> {
    let on_hub =
        log.value(hub, &format!("SELECT count(*) FROM journal WHERE number = {number}"))?;
    let on_shop = log.value(shop, &orders_of(number))?;
    Ok(format!("{on_hub}, {on_shop}"))
}

fn orders_of(customer: u32) -> String {
    format!("SELECT count(*) FROM orders WHERE customer = {customer}")
}
