//! Commits that are done on one server and not on another, and what to do about it.

use super::context::BridgeContext;
use super::error::BridgeError;
use super::log::{Answer, RecordedSession, StepLog};

/// Two servers, of which one refuses at `COMMIT`.
///
/// `postgres_fdw` commits on one server after the other, in an order of its own that is the same for
/// both attempts: in one of them the refusing server is the second one.
pub(super) fn two_servers(
    log: &mut StepLog,
    context: &mut BridgeContext<'_>,
) -> Result<(), BridgeError> {
    let servers = context.servers;
    let mut hub = servers.session("hub")?;
    let mut found = Vec::new();
    for (number, refusing, table, other, other_table) in [
        (2001, "billing", "invoices", "shop", "shipments"),
        (2002, "shop", "shipments", "billing", "invoices"),
    ] {
        let mut refuses = servers.session(refusing)?;
        let mut accepts = servers.session(other)?;
        // A second one is refused when its transaction commits: the constraint is deferred.
        log.run(&mut refuses, &format!("INSERT INTO {table} VALUES ({number})"))?;
        log.run_all(
            &mut hub,
            &[
                "BEGIN".to_owned(),
                format!("INSERT INTO journal VALUES ({number})"),
                format!("INSERT INTO shipments VALUES ({number})"),
                format!("INSERT INTO invoices VALUES ({number})"),
            ],
        )?;
        let answer = log.attempt(&mut hub, "COMMIT")?;
        log.check_refused(&format!("COMMIT, refused by {refusing}"), "23505", &answer);
        let count = |table: &str| format!("SELECT count(*) FROM {table} WHERE number = {number}");
        let on_hub = log.value(&mut hub, &count("journal"))?;
        let on_refusing = log.value(&mut refuses, &count(table))?;
        // The one from before.
        log.check(
            &format!("rows on hub and {refusing}"),
            "0, 1",
            format!("{on_hub}, {on_refusing}"),
        );
        let on_other = log.value(&mut accepts, &count(other_table))?;
        found.push((refusing, other, on_other));
    }
    let words = found
        .iter()
        .map(|(refusing, other, rows)| format!("{rows} on {other} when {refusing} refused"));
    let words = words.collect::<Vec<_>>().join(", ");
    let mut rows: Vec<&str> = found.iter().map(|(_, _, rows)| &**rows).collect();
    rows.sort_unstable();
    let expected = "1 row on the server that commits first, none on the other";
    log.check_that("rows that stayed although COMMIT failed", expected, &words, rows == ["0", "1"]);
    Ok(())
}

/// One server: the hub refuses after shop has committed, and the application retries.
pub(super) fn retry(log: &mut StepLog, context: &mut BridgeContext<'_>) -> Result<(), BridgeError> {
    let work = ["INSERT INTO journal VALUES (3001)", "INSERT INTO charges VALUES (3001, 25)"];
    let counts = |log: &mut StepLog| -> Result<String, BridgeError> {
        let sql = "SELECT count(*) FROM journal WHERE number = 3001";
        let on_hub = log.value(&mut context.servers.session("hub")?, sql)?;
        let sql = "SELECT count(*) FROM charges WHERE customer = 3001";
        let on_shop = log.value(&mut context.servers.session("shop")?, sql)?;
        Ok(format!("{on_hub}, {on_shop}"))
    };
    let refused = commit_too_late(log, context, &work)?;
    log.check_refused("COMMIT on the hub", "40001", &refused);
    let found = counts(log)?;
    log.check("rows on hub and shop after the error", "0, 1", found);
    let mut hub = context.servers.session("hub")?;
    log.run_all(&mut hub, &[&["BEGIN"], &work[..], &["COMMIT"]].concat())?;
    let found = counts(log)?;
    log.check("rows on hub and shop after the retry: charged twice", "1, 2", found);
    Ok(())
}

/// The same failures with a table of what is to be sent, and a key by which it is sent once.
pub(super) fn outbox(
    log: &mut StepLog,
    context: &mut BridgeContext<'_>,
) -> Result<(), BridgeError> {
    let order = ["INSERT INTO outbox VALUES (4001, 25)"];
    let relay = [
        "INSERT INTO payments SELECT id, amount FROM outbox ON CONFLICT DO NOTHING",
        "DELETE FROM outbox",
    ];
    let mut hub = context.servers.session("hub")?;
    let mut shop = context.servers.session("shop")?;
    let refused = commit_too_late(log, context, &order)?;
    log.check_refused("COMMIT of the order", "40001", &refused);
    let found = waiting_and_paid(log, &mut hub, &mut shop)?;
    log.check("in the outbox and on shop after the error", "0, 0", found);
    log.run_all(&mut hub, &order)?;
    let found = waiting_and_paid(log, &mut hub, &mut shop)?;
    log.check("in the outbox and on shop after the retry", "1, 0", found);
    let refused = commit_too_late(log, context, &relay)?;
    log.check_refused("COMMIT of the relay", "40001", &refused);
    let found = waiting_and_paid(log, &mut hub, &mut shop)?;
    log.check("in the outbox and on shop after the relay's error", "1, 1", found);
    log.run_all(&mut hub, &[&["BEGIN"], &relay[..], &["COMMIT"]].concat())?;
    let found = waiting_and_paid(log, &mut hub, &mut shop)?;
    log.check("in the outbox and on shop after the relay's retry: sent once", "0, 1", found);
    Ok(())
}

fn waiting_and_paid(
    log: &mut StepLog,
    hub: &mut RecordedSession,
    shop: &mut RecordedSession,
) -> Result<String, BridgeError> {
    let waiting = log.value(hub, "SELECT count(*) FROM outbox")?;
    let paid = log.value(shop, "SELECT count(*) FROM payments WHERE id = 4001")?;
    Ok(format!("{waiting}, {paid}"))
}

/// A transaction whose `COMMIT` the hub refuses, and only then: it and one that commits first have each
/// read what the other one writes. The hub looks at that after `postgres_fdw` has committed remotely.
fn commit_too_late(
    log: &mut StepLog,
    context: &BridgeContext<'_>,
    work: &[&str],
) -> Result<Answer<()>, BridgeError> {
    let mut first = context.servers.session("hub")?;
    let mut second = context.servers.session("second")?;
    log.run_all(&mut first, &skewed(1))?;
    log.run_all(&mut first, work)?;
    log.run_all(&mut second, &skewed(2))?;
    log.run(&mut second, "COMMIT")?;
    log.attempt(&mut first, "COMMIT")
}

/// Reads both items, and writes one.
fn skewed(item: u32) -> [String; 3] {
    [
        "BEGIN ISOLATION LEVEL SERIALIZABLE".to_owned(),
        "SELECT sum(quantity) FROM stock".to_owned(),
        format!("UPDATE stock SET quantity = quantity - 1 WHERE item = {item}"),
    ]
}
