//! Plans that compared servers have for the statements of scripts.

use std::collections::BTreeMap;

use pgtoll_cluster::{Cluster, StopMode};
use pgtoll_record::{PlanDifference, ShapePlans};
use pgtoll_wire::Connection;
use pgtoll_workload::Mix;

use crate::names::DATABASE;
use crate::prepare::{Arms, settings};
use crate::run::Run;
use crate::{ArmSpec, BenchError, WorkloadSpec};

/// The statements whose generic plan differs from the baseline's, where arms have servers of their own;
/// their number is noted. Generic plans, as scripts run prepared statements.
pub(crate) fn plan_differences(
    arms: &Arms,
    run: &mut Run<'_>,
) -> Result<Vec<PlanDifference>, BenchError> {
    let experiment = &run.plan.experiment;
    if !experiment.has_servers() {
        return Ok(Vec::new());
    }
    run.stage("ask the servers for their plans");
    let place = experiment.arms.iter().position(|arm| arm.name == experiment.baseline);
    let mut differences = Vec::new();
    let mut count = 0;
    for (workload, mix) in experiment.scripts() {
        let mut plans = BTreeMap::new();
        for (index, (arm, cluster)) in experiment.arms.iter().zip(&arms.loaded).enumerate() {
            if arm.twin_of.is_none() {
                plans.insert(index, plans_of(arm, workload, mix, cluster, run)?);
            }
        }
        let Some(baseline) = place.and_then(|place| plans.remove(&place)) else { continue };
        for (index, found) in plans {
            let arm = &experiment.arms[index].name;
            count += found.len();
            let pairs = found.into_iter().filter_map(|(statement, arm)| {
                let baseline = baseline.get(&statement)?.clone();
                Some((statement, ShapePlans { baseline, arm }))
            });
            let pairs = pairs.filter(|(_, plans)| nodes(&plans.baseline) != nodes(&plans.arm));
            differences.extend(pairs.map(|(statement, plans)| PlanDifference {
                arm: arm.clone(),
                workload: workload.name.clone(),
                statement,
                plans,
            }));
        }
    }
    if count > 0 {
        run.note(words(&differences, count))?;
    }
    Ok(differences)
}

/// The plans of a workload's statements on an arm's server, by statement. One without a plan, or that
/// depends on what a script does before it, is left out.
fn plans_of(
    arm: &ArmSpec,
    workload: &WorkloadSpec,
    mix: &Mix,
    cluster: &Cluster,
    run: &mut Run<'_>,
) -> Result<BTreeMap<String, Vec<String>>, BenchError> {
    cluster.configure(run.guard, &settings(&run.plan.experiment, workload, arm))?;
    cluster.start(run.guard)?;
    let mut connection = cluster.connect(DATABASE)?;
    let mut plans = BTreeMap::new();
    let query = |source| BenchError::query(cluster, source);
    connection.execute("SET plan_cache_mode = force_generic_plan").map_err(query)?;
    for (script, _) in mix.scripts() {
        for statement in script.sql() {
            match generic_plan(&mut connection, statement) {
                Ok(plan) => drop(plans.insert(statement.to_owned(), plan)),
                Err(error) if error.sqlstate().is_some() => {}
                Err(source) => return Err(query(source)),
            }
        }
    }
    connection.close();
    cluster.stop(run.guard, StopMode::Fast)?;
    Ok(plans)
}

fn generic_plan(
    connection: &mut Connection,
    statement: &str,
) -> Result<Vec<String>, pgtoll_wire::Error> {
    const NAME: &str = "pgtoll_explained";
    connection.execute(&format!("PREPARE {NAME} AS {statement}"))?;
    let count = format!(
        "SELECT cardinality(parameter_types) AS count FROM pg_prepared_statements WHERE name = '{NAME}'"
    );
    let count: usize = connection.query_one(&count)?.parse("count")?;
    let nulls =
        if count == 0 { String::new() } else { format!("({})", vec!["NULL"; count].join(", ")) };
    let rows = connection.query(&format!("EXPLAIN (COSTS OFF) EXECUTE {NAME}{nulls}"));
    connection.execute(&format!("DEALLOCATE {NAME}"))?;
    rows?.iter().map(|row| row.text("QUERY PLAN").map(str::to_owned)).collect()
}

/// The lines of a plan that name its nodes, indented as they are: how versions word conditions differs.
fn nodes(plan: &[String]) -> Vec<&str> {
    let is_node =
        |(index, line): &(usize, &String)| *index == 0 || line.trim_start().starts_with("->");
    plan.iter().enumerate().filter(is_node).map(|(_, line)| line.as_str()).collect()
}

fn words(differences: &[PlanDifference], count: usize) -> String {
    let Some(first) = differences.first() else {
        return format!("plans: those of the scripts' statements are alike ({count} compared)");
    };
    format!(
        "plans: {} of {count} differ (the page has both of each): {}, {}: {}",
        differences.len(),
        first.arm,
        first.workload,
        first.statement
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_alike_whose_nodes_are() {
        let plan =
            |lines: &[&str]| -> Vec<String> { lines.iter().map(|&line| line.into()).collect() };
        let old = plan(&["Aggregate", "  ->  Seq Scan on t", "        Filter: (a = $1)"]);
        let reworded = plan(&["Aggregate", "  ->  Seq Scan on t", "        Filter: ($1 = a)"]);
        let index = plan(&["Aggregate", "  ->  Index Scan using i on t"]);
        assert_eq!(nodes(&old), nodes(&reworded));
        assert_ne!(nodes(&old), nodes(&index));
    }
}
