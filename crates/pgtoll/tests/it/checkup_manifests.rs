//! The manifests that check up a primary of an operator: their containers' command lines, run against a real
//! server with the variables that the manifests give them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pgtoll_cluster::{Cluster, StopMode};
use serde_json::Value;

use crate::support::{Scratch, pgtoll, run, server};

/// The specification of the pod of each job, by the job's name.
fn pods(all: &[Value]) -> BTreeMap<String, &Value> {
    let name = |value: &Value| value["metadata"]["name"].as_str().unwrap().to_owned();
    all.iter()
        .filter_map(|value| {
            let spec = match value["kind"].as_str().unwrap() {
                "CronJob" => &value["spec"]["jobTemplate"]["spec"],
                "Job" => &value["spec"],
                _ => return None,
            };
            assert_eq!(spec["backoffLimit"], 0, "a judgement is not tried again");
            Some((name(value), &spec["template"]["spec"]))
        })
        .collect()
}

#[test]
fn the_containers_watch_a_server_of_an_operator() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("deploy/kubernetes/pgtoll-checkup.yaml")).unwrap();
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let values = &all.iter().find(|value| value["kind"] == "ConfigMap").unwrap()["data"];
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "primary", true).unwrap();
    cluster.start(&mut guard).unwrap();
    let role = "CREATE DATABASE shop; CREATE ROLE pgtoll LOGIN; GRANT pg_monitor TO pgtoll";
    for statement in role.split("; ") {
        cluster.run_psql(&mut guard, "postgres", statement).unwrap();
    }
    let environment = cluster.environment();
    // As the operator's service and secret have them; the server of the test has no TLS.
    let own = BTreeMap::from([
        ("PGHOST", environment["PGHOST"].as_str()),
        ("PGPORT", environment["PGPORT"].as_str()),
        ("PGSSLMODE", "disable"),
        ("PGUSER", "pgtoll"),
        ("PGPASSWORD", "unused"),
        ("WATCH", "1s"),
    ]);
    let pods = pods(&all);
    assert_eq!(pods.keys().collect::<Vec<_>>(), ["pgtoll-checkup", "pgtoll-predict"]);
    for (name, pod) in pods {
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");
        let mut command = pgtoll();
        for (key, value) in values.as_object().unwrap() {
            command.env(key, value.as_str().unwrap());
        }
        for variable in container["env"].as_array().unwrap() {
            let variable = variable["name"].as_str().unwrap();
            assert!(own.contains_key(variable), "{name}: {variable}");
        }
        command.envs(&own);
        for word in container["args"].as_array().unwrap() {
            command.arg(expanded(word.as_str().unwrap(), values, &own));
        }
        let ran = run(&mut command);
        // Nothing archives here, so that the checkup has a finding; it is no mistake.
        assert!(matches!(ran.status, Some(0 | 1)) && !ran.stdout.is_empty(), "{name}: {ran:?}");
    }
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    cluster.remove(&mut guard).unwrap();
}

/// A word with the variables in it, as Kubernetes expands them.
fn expanded(word: &str, values: &Value, own: &BTreeMap<&str, &str>) -> String {
    let mut word = word.to_owned();
    for (key, value) in values.as_object().unwrap() {
        let value = own.get(&**key).copied().unwrap_or(value.as_str().unwrap());
        word = word.replace(&format!("$({key})"), value);
    }
    assert!(!word.contains("$("), "{word}");
    word
}
