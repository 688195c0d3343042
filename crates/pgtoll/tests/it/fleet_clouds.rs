//! The URLs of all clouds lead to their own clients, with the variables that the book names. The server is the
//! tests' own, and no proof of how the real ones behave.

use std::process::Command;

use pgtoll_testing::ObjectServer;

use crate::fleet::{Backups, comparable, gzipped, json, put_files, tar};
use crate::support::{Ran, Scratch, pgtoll, run};

const VARIABLES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// pgtoll with this cloud's variables only.
fn command(variables: &[(&str, String)], words: &[&str]) -> Command {
    let mut command = pgtoll();
    for (name, _) in std::env::vars_os() {
        if VARIABLES.iter().any(|variable| name.to_string_lossy().starts_with(variable)) {
            command.env_remove(name);
        }
    }
    command.args(words).envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

#[test]
fn a_fleet_in_each_cloud_has_the_same_answer() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let server = ObjectServer::start();
    server.put("b/eu/base.tar.gz", &gzipped(&tar(&backups.sound)));
    server.put("b/us/base.tar", &tar(&backups.damaged));
    put_files(&server, "b/asia", &backups.sound);
    let clouds = [
        ("s3", server.environment().to_vec()),
        ("gs", server.environment_of_gcs().to_vec()),
        ("az", server.environment_of_azure().to_vec()),
    ];
    let mut answers = Vec::new();
    for (scheme, variables) in &clouds {
        let output = |words: &[&str], status: i32| -> Ran {
            let ran = run(&mut command(variables, words));
            assert_eq!(ran.status, Some(status), "{scheme} {words:?}: {ran:?}");
            ran
        };
        let at = format!("{scheme}://b");
        let plan = format!("{scheme}://ops/{scheme}/");
        let one = json(&output(&["verify", &format!("{at}/us"), "--json"], 1));
        assert_eq!(one["failures"], 1, "{one:#}");
        let planned = output(&["fleet", "plan", &at, "-o", &plan, "--shards", "2"], 0).stdout;
        assert!(planned.starts_with("3 backups, "), "{planned}");
        for shard in ["0/2", "1/2"] {
            output(&["fleet", "run", &plan, "--shard", shard], 0);
        }
        // The store says that there is one: the plan, and each result.
        let again = output(&["fleet", "plan", &format!("{at}/eu"), "-o", &plan], 2);
        assert!(again.stderr.contains("exists, and is another plan"), "{again:?}");
        let merged = comparable(&output(&["fleet", "merge", &plan, "--json"], 1)).to_string();
        answers.push(merged.replace(&format!("{scheme}://"), "s3://"));
    }
    assert_eq!((&answers[1], &answers[2]), (&answers[0], &answers[0]));
}
