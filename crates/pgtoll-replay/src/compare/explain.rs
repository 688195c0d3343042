//! How servers execute the statements that became slower or faster.

use pgtoll_record::{ReplayComparison, ShapePlans, ShapeVerdict};
use pgtoll_wire::{Connection, Dsn};

use super::arms::{ArmSite, PreparedArms};
use super::judge::ShapeTimes;
use super::server_error;
use super::{ComparisonError, baseline_place};
use crate::sql;
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
            let of_arm = shape.arms.iter().position(|of| of.arm == arm.arm.name);
            let differs = |of: &usize| {
                matches!(shape.arms[*of].verdict, ShapeVerdict::Slower | ShapeVerdict::Faster)
            };
            let example = times.example(&shape.statement);
            found.extend(of_arm.filter(differs).zip(example).map(|(of, step)| (index, of, step)));
        }
        found.truncate(EXPLAINED_MAX);
        if found.is_empty() {
            continue;
        }
        let steps: Vec<u32> = found.iter().map(|(_, _, step)| *step).collect();
        let before = explained(site, prepared, baseline, &steps)?;
        let after = explained(site, prepared, place, &steps)?;
        for ((index, of, _), (baseline, arm)) in
            found.into_iter().zip(before.into_iter().zip(after))
        {
            if let (Some(baseline), Some(arm)) = (baseline, arm) {
                record.shapes[index].arms[of].plans = Some(ShapePlans { baseline, arm });
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
        plans.push(explain(&target, &step.request, copy.name())?);
    }
    copy.stop(&mut site.guard, pgtoll_cluster::StopMode::Immediate)?;
    copy.remove(&mut site.guard)?;
    Ok(plans)
}

/// What the server plans; `None` of statements that have no plan, and of those that it refuses.
fn explain(
    dsn: &Dsn,
    request: &StatementRequest,
    arm: &str,
) -> Result<Option<Vec<String>>, ComparisonError> {
    let Some(script) = explain_script(request) else { return Ok(None) };
    let failed = || server_error("explain a statement", arm);
    let mut connection = dsn.connect().map_err(failed())?;
    let plan = run(&mut connection, &script);
    connection.close();
    match plan {
        Ok(lines) => Ok(Some(lines)),
        Err(error) if error.sqlstate().is_some() => Ok(None),
        Err(error) => Err(failed()(error)),
    }
}

fn run(connection: &mut Connection, script: &[String]) -> Result<Vec<String>, pgtoll_wire::Error> {
    let (last, before) = script.split_last().map_or(("", &[][..]), |(last, all)| (last, all));
    for statement in before {
        connection.execute(statement)?;
    }
    let rows = connection.query(last)?;
    rows.iter().map(|row| row.text("QUERY PLAN").map(without_values)).collect()
}

/// The statements whose last one explains a request.
fn explain_script(request: &StatementRequest) -> Option<Vec<String>> {
    match request {
        StatementRequest::Simple(sql) if sql::is_query(sql) => {
            Some(vec![format!("EXPLAIN (COSTS OFF) {sql}")])
        }
        StatementRequest::Extended(executions) => {
            let [ExecutedStatement { sql, parameters, .. }] = executions.as_slice() else {
                return None;
            };
            if !sql::is_query(sql) {
                return None;
            }
            if parameters.is_empty() {
                return Some(vec![format!("EXPLAIN (COSTS OFF) {sql}")]);
            }
            let values: Vec<String> = parameters.iter().map(|of| literal(of.as_deref())).collect();
            Some(vec![
                // As for the first executions of a prepared statement.
                "SET plan_cache_mode = force_custom_plan".to_owned(),
                format!("PREPARE pgtoll_explained AS {sql}"),
                format!("EXPLAIN (COSTS OFF) EXECUTE pgtoll_explained({})", values.join(", ")),
            ])
        }
        _ => None,
    }
}

/// A value as SQL that stands for it whatever `standard_conforming_strings` is.
fn literal(value: Option<&str>) -> String {
    match value {
        None => "NULL".to_owned(),
        Some(text) if text.contains('\\') => {
            format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
        }
        Some(text) => format!("'{}'", text.replace('\'', "''")),
    }
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

/// Where a quoted string ends, its doubled quotes passed over.
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
    fn statements_are_explained_with_their_values() {
        let extended = |sql: &str, parameters: &[Option<&str>]| {
            StatementRequest::Extended(vec![ExecutedStatement {
                name: String::new(),
                sql: sql.to_owned(),
                parameters: parameters.iter().map(|of| of.map(str::to_owned)).collect(),
            }])
        };
        let check = |request: StatementRequest, expected: Option<&str>| {
            let script = explain_script(&request);
            assert_eq!(script.as_ref().and_then(|of| of.last()).map(String::as_str), expected);
        };
        check(StatementRequest::Simple("BEGIN".to_owned()), None);
        check(
            StatementRequest::Simple("select 1".to_owned()),
            Some("EXPLAIN (COSTS OFF) select 1"),
        );
        check(
            extended("select $1, $2", &[Some("a'\\b"), None]),
            Some("EXPLAIN (COSTS OFF) EXECUTE pgtoll_explained(E'a''\\\\b', NULL)"),
        );
    }
}
