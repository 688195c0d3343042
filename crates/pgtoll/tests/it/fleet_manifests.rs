//! The manifests for Kubernetes: what schemas do not say of them, and that what their containers run
//! does verify a fleet. Kubernetes itself is not run: its retries are played here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pgtoll_testing::{ObjectFault, ObjectServer};
use serde_json::Value;

use crate::fleet::{Backups, command, tar};
use crate::support::{Ran, Scratch, run};

fn manifests() -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("deploy/kubernetes/pgtoll-fleet.yaml")).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn named<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |value: &&Value| value["kind"] == kind && value["metadata"]["name"] == name;
    all.iter().find(is_it).unwrap()
}

/// The specification of the jobs that this one makes.
fn job<'a>(all: &'a [Value], name: &str) -> &'a Value {
    &named(all, "CronJob", name)["spec"]["jobTemplate"]["spec"]
}

const JOBS: [&str; 3] = ["pgtoll-fleet-plan", "pgtoll-fleet-run", "pgtoll-fleet-merge"];

#[test]
fn jobs_keep_the_rules_that_no_schema_has() {
    let all = manifests();
    let values = &named(&all, "ConfigMap", "pgtoll-fleet")["data"];
    assert_eq!(job(&all, JOBS[1])["completions"].to_string(), values["SHARDS"].as_str().unwrap());
    let indexed = job(&all, JOBS[1]);
    // Retries by index are for indexed jobs, exclude the other kind, and want pods that are not restarted.
    assert_eq!(indexed["completionMode"], "Indexed");
    assert!(indexed["backoffLimitPerIndex"].as_u64().unwrap() > 0);
    assert!(indexed["backoffLimit"].is_null());
    assert!(indexed["parallelism"].as_u64() <= indexed["completions"].as_u64());
    // A judgement is not tried again.
    assert_eq!(job(&all, JOBS[2])["backoffLimit"], 0);
    for name in JOBS {
        let pod = &job(&all, name)["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never", "{name}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        named(&all, "ServiceAccount", pod["serviceAccountName"].as_str().unwrap());
        let volumes = pod["volumes"].as_array().map_or(&[][..], Vec::as_slice);
        for container in pod["containers"].as_array().unwrap() {
            assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");
            let from = &container["envFrom"][0]["configMapRef"]["name"];
            named(&all, "ConfigMap", from.as_str().unwrap());
            for mount in container["volumeMounts"].as_array().into_iter().flatten() {
                assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{name}");
            }
            for word in describe(&all, name, &BTreeMap::new()) {
                assert!(!word.contains("$("), "{name}: {word} is not in the ConfigMap");
            }
        }
    }
    // Planned before it is run, and judged when the shards' time is up, or not before.
    let hour = |name| {
        let schedule = named(&all, "CronJob", name)["spec"]["schedule"].as_str().unwrap();
        schedule.split(' ').nth(1).unwrap().parse::<u32>().unwrap()
    };
    assert!(hour(JOBS[0]) < hour(JOBS[1]) && hour(JOBS[1]) < hour(JOBS[2]));
}

/// What a job's container runs, with the manifest's variables, or these instead.
fn describe(all: &[Value], name: &str, values: &BTreeMap<&str, &str>) -> Vec<String> {
    let container = &job(all, name)["template"]["spec"]["containers"][0];
    assert!(container["command"].is_null(), "the image's entry point is pgtoll");
    let expanded = |word: &Value| {
        let mut word = word.as_str().unwrap().to_owned();
        for (key, value) in named(all, "ConfigMap", "pgtoll-fleet")["data"].as_object().unwrap() {
            let value = values.get(&**key).copied().unwrap_or(value.as_str().unwrap());
            word = word.replace(&format!("$({key})"), value);
        }
        word
    };
    container["args"].as_array().unwrap().iter().map(expanded).collect()
}

#[test]
fn what_the_containers_run_verifies_a_fleet() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let server = ObjectServer::start();
    server.put("b/us/base.tar", &tar(&backups.damaged));
    let all = manifests();
    let values = BTreeMap::from([("BACKUPS", "s3://b/"), ("PLAN", "s3://ops/pgtoll/")]);
    let ran = |name: &str, index: Option<u64>| -> Ran {
        let words = describe(&all, name, &values);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = command(&server, &words);
        command.envs(index.map(|index| ("JOB_COMPLETION_INDEX", index.to_string())));
        run(&mut command)
    };
    let indexed = job(&all, JOBS[1]);
    let tries = indexed["backoffLimitPerIndex"].as_u64().unwrap() + 1;
    let mut failed = 0;
    // A later week's plan replaces the one before.
    for (cluster, expected) in [("eu", "1 of 2"), ("asia", "2 of 3")] {
        server.put(&format!("b/{cluster}/base.tar"), &tar(&backups.sound));
        assert_eq!(ran(JOBS[0], None).status, Some(0));
        for index in 0..indexed["completions"].as_u64().unwrap() {
            // The store refuses the first requests of every pod that is new.
            server.fail(ObjectFault::Deny, 1);
            let done = (0..tries).any(|_| {
                let is_done = ran(JOBS[1], Some(index)).status == Some(0);
                failed += u64::from(!is_done);
                is_done
            });
            assert!(done, "{index}");
        }
        let merged = ran(JOBS[2], None);
        assert_eq!(merged.status, Some(1), "{merged:?}");
        assert!(merged.stdout.starts_with(&format!("{expected} backups sound")), "{merged:?}");
        assert!(merged.stdout.contains("s3://b/us: 1 failure"), "{merged:?}");
    }
    assert!(failed > 0);
}
