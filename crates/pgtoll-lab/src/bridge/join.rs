//! One query over PostgreSQL, a CSV file and Redis, and its plan.

use pgtoll_record::ForeignScan;
use serde_json::Value;

use super::context::BridgeContext;
use super::data;
use super::error::BridgeError;
use super::log::{StepLog, row_words};

/// Runs the join, then looks at its plan.
pub(super) fn join(log: &mut StepLog, context: &mut BridgeContext<'_>) -> Result<(), BridgeError> {
    let mut hub = context.servers.session("hub")?;
    let sql = data::join();
    let rows: Vec<String> = log.query(&mut hub, &sql)?.iter().map(row_words).collect();
    log.check("rows", data::joined_rows().join("; "), rows.join("; "));

    // For readers; the one that is checked is the other one.
    log.query(&mut hub, &format!("EXPLAIN (ANALYZE, VERBOSE, COSTS OFF)\n{sql}"))?;
    let explain = format!("EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON)\n{sql}");
    let plan = hub.query(&explain)?.iter().map(row_words).collect::<String>();
    log.push("hub", &explain, "a plan, whose scans are in the record", &[]);
    let mut scans = foreign_scans(&plan)?;
    for scan in &mut scans {
        scan.source = log.placed(&scan.source);
    }
    check_scans(log, &scans);
    context.scans = scans;
    Ok(())
}

/// Three scans, of the rows that each source has for the join.
fn check_scans(log: &mut StepLog, scans: &[ForeignScan]) {
    let mut tables: Vec<&str> = scans.iter().map(|scan| &*scan.table).collect();
    tables.sort_unstable();
    let mut expected = data::scanned_rows().map(|(table, _)| table);
    expected.sort_unstable();
    log.check("foreign scans of the plan", expected.join(", "), tables.join(", "));
    for (table, rows) in data::scanned_rows() {
        let found = scans.iter().find(|scan| scan.table == table);
        let found = found.map_or_else(|| "no scan".to_owned(), |scan| scan.rows.to_string());
        log.check(&format!("rows of the scan of {table}"), rows, found);
    }
    let kinds =
        [("orders", "Remote SQL"), ("regions", "Foreign File"), ("carts", "Foreign Program")];
    for (table, kind) in kinds {
        let found = scans.iter().find(|scan| scan.table == table);
        let found = found.map_or("no scan", |scan| &*scan.kind);
        log.check(&format!("what the scan of {table} reads"), kind, found);
    }
    // The condition goes to the orders' own server: its query has it.
    let condition = data::condition();
    let condition = condition.trim_start_matches("o.");
    let remote = scans.iter().find(|scan| scan.table == "orders");
    let remote = remote.map_or("", |scan| &*scan.source);
    let holds = remote.contains(condition);
    log.check_that("the condition in the remote SQL", condition, remote, holds);
}

/// The foreign scans of a plan in JSON, outermost first.
fn foreign_scans(plan: &str) -> Result<Vec<ForeignScan>, BridgeError> {
    let plans: Value = serde_json::from_str(plan).map_err(|error| unread(&error.to_string()))?;
    let root = plans.pointer("/0/Plan").ok_or_else(|| unread("no Plan"))?;
    let mut scans = Vec::new();
    let mut nodes = vec![root];
    while let Some(node) = nodes.pop() {
        if text_of(node, "Node Type") == Some("Foreign Scan") {
            scans.push(scan_of(node)?);
        }
        nodes.extend(node.get("Plans").and_then(Value::as_array).into_iter().flatten());
    }
    Ok(scans)
}

const KINDS: [&str; 3] = ["Remote SQL", "Foreign File", "Foreign Program"];

fn scan_of(node: &Value) -> Result<ForeignScan, BridgeError> {
    let number = |name: &str| node.get(name).and_then(Value::as_f64).ok_or_else(|| unread(name));
    let source = KINDS.into_iter().find_map(|kind| Some((kind, text_of(node, kind)?)));
    let (kind, source) = source.unwrap_or(("unknown", ""));
    Ok(ForeignScan {
        table: text_of(node, "Relation Name").unwrap_or("several").to_owned(),
        kind: kind.to_owned(),
        source: source.to_owned(),
        rows: number("Actual Rows")?,
        loops: number("Actual Loops")?,
        milliseconds: number("Actual Total Time")?,
    })
}

fn text_of<'a>(node: &'a Value, name: &str) -> Option<&'a str> {
    node.get(name)?.as_str()
}

fn unread(label: &str) -> BridgeError {
    BridgeError::Plan(label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 18 prints it, with fractions of rows; cut.
    const PLAN: &str = r#"[{"Plan": {"Node Type": "Hash Join", "Plans": [
        {"Node Type": "Foreign Scan", "Operation": "Select", "Relation Name": "orders",
         "Alias": "o", "Actual Total Time": 1.5, "Actual Rows": 1000.00, "Actual Loops": 1,
         "Remote SQL": "SELECT customer FROM public.orders WHERE ((amount > 1000))"},
        {"Node Type": "Hash", "Plans": [
          {"Node Type": "Foreign Scan", "Relation Name": "carts", "Actual Total Time": 12,
           "Actual Rows": 100, "Actual Loops": 1, "Foreign Program": "redis-cli -e"}]}]}}]"#;

    #[test]
    fn foreign_scans_are_found_wherever_they_are() {
        let scans = foreign_scans(PLAN).unwrap();
        let found: Vec<_> = scans.iter().map(|scan| (&*scan.table, &*scan.kind)).collect();
        assert_eq!(found, [("carts", "Foreign Program"), ("orders", "Remote SQL")]);
        assert!((scans[1].rows - 1000.0).abs() < 1e-9 && scans[1].source.contains("amount > 1000"));
    }

    #[test]
    fn a_plan_without_what_every_plan_has_is_an_error() {
        for plan in ["", "[]", r#"[{"Plan": {"Node Type": "Foreign Scan"}}]"#] {
            assert!(foreign_scans(plan).is_err(), "{plan}");
        }
    }
}
