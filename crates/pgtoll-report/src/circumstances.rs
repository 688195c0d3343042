//! Circumstances that the figures of a run hold for, in a line each.

use std::fmt::Write as _;

use pgtoll_record::{Header, RunResult, Work};

/// The run's name, where it has one, the experiment and the server.
pub(crate) fn subject(result: &RunResult) -> String {
    let header = &result.header;
    let name = header.name.as_ref().map_or_else(String::new, |name| format!("{name}, "));
    format!("{name}{}: PostgreSQL {}", header.experiment, header.versions())
}

/// How the servers were set and loaded.
pub(crate) fn servers(result: &RunResult) -> String {
    let header = &result.header;
    let mut facts = vec![format!("shared_buffers {}", shared_buffers(header))];
    // What an arm sets is what is measured.
    let is_shared = |name: &str| header.arms.iter().all(|arm| !arm.settings.contains_key(name));
    facts.extend(SETTINGS.iter().filter(|name| is_shared(name)).map(|name| {
        let value = header.server.settings.get(*name).map_or("default", String::as_str);
        format!("{name} {value}")
    }));
    let method = result.settings.get("io_method").filter(|_| is_shared("io_method"));
    facts.extend(method.map(|method| format!("io_method {method}")));
    facts.extend(clients(header));
    facts.extend(header.design.rows_frozen.then(|| "rows frozen before".to_owned()));
    facts.push(format!("pgbench scale {}, seed {}", header.design.scale, header.seed));
    format!("every server: {}", facts.join(", "))
}

/// Settings that shape what is measured.
const SETTINGS: [&str; 3] = ["autovacuum", "checkpoint_timeout", "max_wal_size"];

/// Its values, in the workloads' order.
fn shared_buffers(header: &Header) -> String {
    const NAME: &str = "shared_buffers";
    let common = header.server.settings.get(NAME);
    let values = header.workloads.iter().map(|workload| {
        workload.settings.get(NAME).or(common).map_or("default", String::as_str).to_owned()
    });
    by_workload(values).unwrap_or_else(|| "default".to_owned())
}

/// Those that run scripts; `None` where no workload has scripts.
fn clients(header: &Header) -> Option<String> {
    let of_scripts = header.workloads.iter().filter_map(|workload| match workload.work {
        Work::Script { clients, .. } => Some(clients),
        Work::Command { .. } | Work::Operation { .. } => None,
    });
    by_workload(of_scripts.map(|clients| match clients {
        1 => "one client".to_owned(),
        several => format!("{several} clients"),
    }))
}

/// The different ones of the workloads' values, in their order.
fn by_workload(values: impl Iterator<Item = String>) -> Option<String> {
    let mut different: Vec<String> = Vec::new();
    for value in values {
        different.extend(Some(value).filter(|value| !different.contains(value)));
    }
    match different.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        [several @ .., last] => Some(format!("{} or {last} by workload", several.join(", "))),
    }
}

/// Other activity on the machine.
pub(crate) fn noise(result: &RunResult) -> Option<String> {
    let noise = result.noise?;
    let mut text = format!(
        "noise: steal {:.1} %, other programs {:.1} % of CPU",
        noise.steal * 100.0,
        noise.others * 100.0
    );
    if let Some(pressure) = noise.cpu_pressure {
        let _ = write!(text, ", {:.0} % of time under CPU pressure", pressure * 100.0);
    }
    Some(text)
}
