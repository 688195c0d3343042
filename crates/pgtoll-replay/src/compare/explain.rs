//! Plans of the statements that became slower or faster.

use pgtoll_record::{ReplayComparison, ShapePlans, ShapeVerdict};
use pgtoll_wire::{Connection, Dsn};

use super::arms::{ArmSite, PreparedArms};
use super::judge::ShapeTimes;
use super::server_error;
use super::{ComparisonError, baseline_place};
use crate::sql;
use crate::values::ParameterValue;
use crate::workload::{ExecutedStatement, StatementRequest};

/// Statements of each arm that are explained.
const EXPLAINED_MAX: usize = 20;

/// Explains an execution of each statement that differs, on the baseline and on its arm, as they are before
/// a replay.
pub(super) fn add_plans(
    site: &mut ArmSite<'_>,
    prepared: &PreparedArms,
    times: &ShapeTimes,
    record: &mut ReplayComparison,
) -> Result<(), ComparisonError> {
    let Some(baseline) = baseline_place(&record.arms) else { return Ok(()) };
    for (place, arm) in prepared.arms.iter().enumerate() {
        let mut found = Vec::new();
        for (index, shape) in record.shapes.iter().enumerate() {
            let of_arm = shape.arms.iter().position(|item| item.arm == arm.arm.name);
            let differs = |count: &usize| {
                matches!(shape.arms[*count].verdict, ShapeVerdict::Slower | ShapeVerdict::Faster)
            };
            let example = times.example(&shape.statement);
            found.extend(
                of_arm.filter(differs).zip(example).map(|(item, step)| (index, item, step)),
            );
        }
        found.truncate(EXPLAINED_MAX);
        if found.is_empty() {
            continue;
        }
        let steps: Vec<u32> = found.iter().map(|(_, _, step)| *step).collect();
        let before = explained(site, prepared, baseline, &steps)?;
        let after = explained(site, prepared, place, &steps)?;
        for ((index, item, _), (baseline, arm)) in
            found.into_iter().zip(before.into_iter().zip(after))
        {
            if let (Some(baseline), Some(arm)) = (baseline, arm) {
                record.shapes[index].arms[item].plans = Some(ShapePlans { baseline, arm });
            }
        }
    }
    Ok(())
}

/// The plans of these steps on a fresh copy of an arm; `None` where there is none.
fn explained(
    site: &mut ArmSite<'_>,
    prepared: &PreparedArms,
    place: usize,
    steps: &[u32],
) -> Result<Vec<Option<Vec<String>>>, ComparisonError> {
    let (copy, _) = prepared.arms[place].start(site, "explained")?;
    let dsn = site.dsn(&copy)?;
    let mut plans = Vec::new();
    for step in steps {
        let step = &site.workload.steps[*step as usize];
        let session = &site.workload.sessions[step.session as usize];
        let target = site.settings.target(&dsn, &session.user, &session.database);
        let target = target.with_settings(session.settings.clone());
        plans.push(explain(&target, &step.request, copy.name())?);
    }
    copy.stop(&mut site.guard, pgtoll_cluster::StopMode::Immediate)?;
    copy.remove(&mut site.guard)?;
    Ok(plans)
}

/// Returns the server's plan; `None` for statements without a plan, and for refused ones.
fn explain(
    dsn: &Dsn,
    request: &StatementRequest,
    arm: &str,
) -> Result<Option<Vec<String>>, ComparisonError> {
    let Some((sql, execution)) = explainable(request) else { return Ok(None) };
    let failed = || server_error("explain a statement", arm);
    let mut connection = dsn.connect().map_err(failed())?;
    let plan = run(&mut connection, sql, execution);
    connection.close();
    match plan {
        Ok(lines) => Ok(Some(lines)),
        Err(error) if error.sqlstate().is_some() => Ok(None),
        Err(error) => Err(failed()(error)),
    }
}

fn run(
    connection: &mut Connection,
    sql: &str,
    execution: Option<&ExecutedStatement>,
) -> Result<Vec<String>, pgtoll_wire::Error> {
    let explained = format!("EXPLAIN (COSTS OFF) {sql}");
    let rows = match execution {
        None => connection.query(&explained)?,
        Some(execution) => {
            let statement = connection.prepare_typed(&explained, &execution.types)?;
            let values = execution.parameters.iter().map(Option::as_ref);
            let values: Vec<_> = values.map(ParameterValue::parameter).collect();
            connection.query_prepared(&statement, &values)?
        }
    };
    rows.iter().map(|row| row.text("QUERY PLAN").map(without_values)).collect()
}

/// The statement of a request that has a plan, and the execution whose values it has.
fn explainable(request: &StatementRequest) -> Option<(&str, Option<&ExecutedStatement>)> {
    let (sql, execution) = match request {
        StatementRequest::Simple(sql) => (sql, None),
        StatementRequest::Extended(executions) => match executions.as_slice() {
            [one] => (&one.sql, Some(one)),
            _ => return None,
        },
        StatementRequest::Copy { .. } | StatementRequest::Incomplete { .. } => return None,
    };
    sql::is_query(sql).then_some((sql, execution))
}

/// A line of a plan with `?` in place of strings and numbers. Numbers in names stay.
fn without_values(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    let mut in_word = false;
    while let Some(c) = rest.chars().next() {
        if c == '\'' || c == '"' {
            let end = quoted_end(rest, c);
            text.push_str(if c == '"' { &rest[..end] } else { "?" });
            rest = &rest[end..];
            in_word = false;
        } else if c.is_ascii_digit() && !in_word {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            text.push('?');
            rest = &rest[end..];
        } else {
            in_word = c.is_alphanumeric() || c == '_' || c == '$';
            text.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    text
}

/// The end of a quoted string, its doubled quotes passed over.
fn quoted_end(text: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find(quote)) {
        at += found + 1;
        if !text[at..].starts_with(quote) {
            return at;
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_keep_names_and_lose_values() {
        let check = |line: &str, expected: &str| assert_eq!(without_values(line), expected);
        check("  Index Cond: (aid = 17)", "  Index Cond: (aid = ?)");
        check("Filter: (name = 'O''Neil 5'::text)", "Filter: (name = ?::text)");
        check("->  Index Scan using i2_pkey on t2 x1", "->  Index Scan using i2_pkey on t2 x1");
        check("Filter: (a > '-1.5'::numeric OR b < 2.5)", "Filter: (a > ?::numeric OR b < ?)");
        check("Filter: (\"a 1\" = $1)", "Filter: (\"a 1\" = $1)");
        check("Filter: (a = 'cut", "Filter: (a = ?");
    }

    #[test]
    fn queries_have_a_plan() {
        let execution = |sql: &str| ExecutedStatement {
            name: String::new(),
            sql: sql.to_owned(),
            types: Vec::new(),
            parameters: vec![None],
        };
        let check = |request: StatementRequest, expected: Option<(&str, bool)>| {
            let found = explainable(&request).map(|(sql, execution)| (sql, execution.is_some()));
            assert_eq!(found, expected);
        };
        check(StatementRequest::Simple("BEGIN".to_owned()), None);
        check(StatementRequest::Simple("select 1".to_owned()), Some(("select 1", false)));
        let one = execution("select $1");
        check(StatementRequest::Extended(vec![one.clone()]), Some(("select $1", true)));
        check(StatementRequest::Extended(vec![one.clone(), one]), None);
    }
}
