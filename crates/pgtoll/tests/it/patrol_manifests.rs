//! What is shipped for patrols: a unit that the program accepts, and rules and a dashboard whose gauges it
//! has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pgtoll_cluster::Cluster;
use serde_json::Value;

use crate::support::{Scratch, pgtoll, run, server};

fn deployed(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    fs::read_to_string(root.join(path)).unwrap()
}

fn rules() -> Vec<Value> {
    let text = deployed("prometheus/pgtoll-patrol.rules.yml");
    let all: Value = serde_saphyr::from_str(&text).unwrap();
    let groups = all["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&deployed("grafana/pgtoll-patrol.json")).unwrap()
}

/// The setting's values in the unit, in their order.
fn values<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(key, _)| *key == name).map(|(_, value)| value).collect()
}

/// The unit's command line as systemd would make it for this instance.
fn command_line(unit: &str, state: &str, data: &str) -> Vec<String> {
    let mut variables = vec![("PGDATA".to_owned(), data.to_owned())];
    let defaults = values(unit, "Environment").into_iter().flat_map(|item| item.split(' '));
    let defaults = defaults.map(|default| default.split_once('=').unwrap());
    variables.extend(defaults.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let [command] = values(unit, "ExecStart")[..] else { panic!("{unit}") };
    let mut words = command.split(' ');
    assert_eq!(words.next(), Some("/usr/bin/pgtoll"));
    let expanded = |word: &str| {
        let mut word = word.replace("%S", state).replace("%i", "18-main");
        for (name, value) in &variables {
            word = word.replace(&format!("${{{name}}}"), value);
        }
        assert!(!word.contains(['%', '$']), "{word}");
        word
    };
    words.map(expanded).collect()
}

/// The unit's own command line, but for how long it runs.
#[test]
fn the_program_takes_the_units_command_line_and_has_the_gauges_of_rules_and_dashboard() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "unit", true).unwrap();
    let unit = deployed("systemd/pgtoll-patrol@.service");
    let state = scratch.path("var");
    let data = cluster.data();
    // systemd makes these, and nothing else may be written.
    let [directories] = values(&unit, "StateDirectory")[..] else { panic!("{unit}") };
    for directory in directories.split(' ') {
        fs::create_dir_all(state.join(directory)).unwrap();
    }
    let mut words = command_line(&unit, state.to_str().unwrap(), data.to_str().unwrap());
    let time = words.iter().position(|word| word == "--for").unwrap();
    assert_eq!(words[time + 1], "1h");
    "3s".clone_into(&mut words[time + 1]);
    let ran = run(pgtoll().args(&words));
    assert_eq!(ran.status, Some(0), "{words:?}: {ran:?}");
    let gauges =
        fs::read_to_string(state.join("pgtoll/textfile/pgtoll-patrol-18-main.prom")).unwrap();
    check_gauges(&gauges);
    cluster.remove(&mut guard).unwrap();
}

fn check_gauges(gauges: &str) {
    let types = gauges.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let known: BTreeSet<&str> = types.map(|line| line.split(' ').next().unwrap()).collect();
    assert!(known.contains("pgtoll_verify_failures") && gauges.ends_with("# EOF\n"), "{gauges}");
    // Of a cluster that is sound and small, all but those of damaged relations have a value.
    for name in known.iter().filter(|name| **name != "pgtoll_verify_relation_findings") {
        assert!(gauges.contains(&format!("\n{name}{{path=")), "{name}: {gauges}");
    }
    let rules = rules();
    assert!(!rules.is_empty());
    let mut used = BTreeSet::new();
    for rule in &rules {
        used.extend(names_in(rule["expr"].as_str().unwrap()));
        // The labels that the texts show are those of the gauges.
        for text in rule["annotations"].as_object().unwrap().values() {
            for label in text.as_str().unwrap().split("$labels.").skip(1) {
                assert!(label.starts_with("path "), "{text}");
            }
        }
        assert!(
            rule["alert"].as_str().is_some() && !rule["labels"]["severity"].is_null(),
            "{rule}"
        );
    }
    let dashboard = dashboard();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            used.extend(names_in(target["expr"].as_str().unwrap()));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        used.extend(names_in(variable["definition"].as_str().unwrap_or_default()));
    }
    for name in &used {
        assert!(known.contains(name.as_str()), "{name} is no gauge: {known:?}");
    }
    assert!(used.len() > 8, "{used:?}");
}

/// Names of gauges in an expression.
fn names_in(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("pgtoll_")).map(str::to_owned).collect()
}

#[test]
fn the_dashboards_panels_have_ids_and_places_of_their_own_and_one_source() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        let x = place("x");
        let y = place("y");
        let width = place("w");
        let height = place("h");
        assert!(x + width <= 24, "{panel}");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{panel} lies over another one");
        }
        for source in [&panel["datasource"], &panel["targets"][0]["datasource"]] {
            assert_eq!(source["uid"], "${datasource}", "{panel}");
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> =
        variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "path"]);
}

#[test]
fn the_unit_runs_as_postgres_may_write_nothing_else_and_goes_on_by_its_timer() {
    let unit = deployed("systemd/pgtoll-patrol@.service");
    for (name, expected) in [
        ("Type", "oneshot"),
        ("User", "postgres"),
        ("ProtectSystem", "strict"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("IOSchedulingClass", "idle"),
    ] {
        assert_eq!(values(&unit, name), [expected], "{name}");
    }
    assert!(values(&unit, "ReadWritePaths").is_empty() && values(&unit, "Nice") == ["19"]);
    let timer = deployed("systemd/pgtoll-patrol@.timer");
    // Without a name it starts the service of its own name.
    assert!(values(&timer, "Unit").is_empty());
    assert_eq!(values(&timer, "OnUnitInactiveSec"), ["1min"]);
    assert_eq!(values(&timer, "WantedBy"), ["timers.target"]);
    assert!(values(&timer, "OnActiveSec") == ["1min"]);
}
