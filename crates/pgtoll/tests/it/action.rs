//! The shell steps of `action.yml`, as a runner of GitHub does them. Its form is checked by GitHub's schema
//! (`cargo xtask ci`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use pgtoll_cluster::Cluster;

use crate::support::{Ran, Scratch, flip, program, run, server, write_program};

/// A job on a runner: its files, and its `PATH`.
struct Job {
    scratch: Scratch,
    path: String,
}

impl Job {
    /// With pgtoll in its `PATH`.
    fn new() -> Self {
        let scratch = Scratch::new();
        let programs = scratch.path("programs");
        fs::create_dir(&programs).unwrap();
        symlink(env!("CARGO_BIN_EXE_pgtoll"), programs.join("pgtoll")).unwrap();
        for name in ["output", "summary", "path"] {
            fs::write(scratch.path(name), "").unwrap();
        }
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        Self { scratch, path }
    }

    fn step(&self, name: &str, variables: &[(&str, &str)]) -> Ran {
        let file = self.scratch.path(&format!("{name}.sh"));
        fs::write(&file, script(name)).unwrap();
        let mut bash = program("bash");
        bash.args(["--noprofile", "--norc", "-eo", "pipefail"]).arg(file);
        for (variable, name) in [
            ("GITHUB_OUTPUT", "output"),
            ("GITHUB_STEP_SUMMARY", "summary"),
            ("GITHUB_PATH", "path"),
        ] {
            bash.env(variable, self.scratch.path(name));
        }
        bash.env("RUNNER_TEMP", self.scratch.path("")).env("PATH", &self.path);
        run(bash.envs(variables.iter().copied()))
    }

    /// Values that the steps handed on, the last one of each name.
    fn outputs(&self) -> BTreeMap<String, String> {
        let text = self.kept("output");
        let pairs = text.lines().map(|line| line.split_once('=').unwrap());
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn kept(&self, name: &str) -> String {
        fs::read_to_string(self.scratch.path(name)).unwrap()
    }
}

/// A step's lines of shell.
fn script(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../action.yml");
    let text = fs::read_to_string(path).unwrap();
    let (_, step) = text.split_once(&format!("    - name: {name}\n")).unwrap();
    let step = step.split("    - name: ").next().unwrap();
    let (_, lines) = step.split_once("      run: |\n").unwrap();
    let lines = lines.lines().map(|line| line.strip_prefix("        ").unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_job_of_the_action_ends_as_the_command_does() {
    let job = Job::new();
    let mut guard = job.scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "checked", true).unwrap();
    let data = cluster.data();
    let arguments = format!("--jobs\n1\n{}\n", data.display());
    let check = |job: &Job| {
        let ran = job.step("run", &[("COMMAND", "verify"), ("ARGUMENTS", &arguments)]);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let outputs = job.outputs();
        let summary = job.kept("summary");
        assert!(summary.ends_with(&job.kept("pgtoll-result/summary.md")), "{summary}");
        assert!(job.kept("pgtoll-result/report.html").contains("<html"));
        serde_json::from_str::<serde_json::Value>(&fs::read_to_string(&outputs["record"]).unwrap())
            .unwrap();
        outputs["status"].clone()
    };
    let decide = |status: &str, undecided: &str| {
        job.step("decide", &[("STATUS", status), ("UNDECIDED", undecided)]).status
    };
    assert_eq!(check(&job), "0");
    assert_eq!(decide("0", "fail"), Some(0));

    flip(&data.join("global/1262"), 8000);
    assert_eq!(check(&job), "1");
    assert_eq!(decide("1", "warn"), Some(1));

    let ran = job.step("run", &[("COMMAND", "verify"), ("ARGUMENTS", "/nowhere")]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("/nowhere"), "{ran:?}");
    assert_eq!(job.outputs()["status"], "2");
    assert_eq!((decide("2", "fail"), decide("2", "warn")), (Some(2), Some(0)));
    cluster.remove(&mut guard).unwrap();
}

#[test]
fn a_job_of_the_action_measures_and_comments() {
    let job = Job::new();
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/small.toml");
    let postgres = server().bin;
    let arguments =
        [small, "--rounds", "1", "--round-time", "400ms", "--repetitions", "1"].join("\n");
    let arguments = format!("{arguments}\n--postgres\n{}", postgres.display());
    let ran = job.step("run", &[("COMMAND", "measure"), ("ARGUMENTS", &arguments)]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_eq!(job.outputs()["status"], "0", "{ran:?}");
    assert!(job.kept("summary").contains("server CPU"), "{ran:?}");
    assert!(job.scratch.path("pgtoll-result/record/run.jsonl").is_file());

    let gh = job.scratch.path("programs/gh");
    write_program(&gh, "#!/bin/sh\necho \"$@\" > \"$RUNNER_TEMP/comment\"\n");
    let comment = |number| job.step("comment", &[("NUMBER", number), ("REPOSITORY", "a/b")]);
    // Not of a pull request: nothing to write below.
    assert_eq!(comment("").status, Some(0));
    assert!(!job.scratch.path("comment").exists());
    assert_eq!(comment("7").status, Some(0));
    let words = job.kept("comment");
    assert!(words.starts_with("pr comment 7 --repo a/b --body-file "), "{words}");
}

#[test]
fn the_action_installs_only_what_its_sum_names() {
    let job = Job::new();
    let releases = job.scratch.path("releases/v1.0.0");
    let name = format!("pgtoll-1.0.0-{}-linux", std::env::consts::ARCH);
    fs::create_dir_all(releases.join(&name)).unwrap();
    let program_of_release = releases.join(&name).join("pgtoll");
    write_program(&program_of_release, "#!/bin/sh\necho pgtoll 1.0.0\n");
    let archive = format!("{name}.tar.gz");
    let shell = format!("tar -czf {archive} {name} && sha256sum {archive} > SHA256SUMS");
    let ran = run(program("sh").args(["-c", &shell]).current_dir(&releases));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let from = format!("file://{}", job.scratch.path("releases").display());
    let install = || job.step("install", &[("VERSION", "1.0.0"), ("RELEASES", &from)]);
    let ran = install();
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let place = job.kept("path");
    let version = run(program(Path::new(place.trim()).join("pgtoll")).arg("--version"));
    assert_eq!(version.stdout, "pgtoll 1.0.0\n", "{version:?}");

    let sums = fs::read_to_string(releases.join("SHA256SUMS")).unwrap();
    let other = format!("{}{}", "0".repeat(64), &sums[64..]);
    fs::write(releases.join("SHA256SUMS"), other).unwrap();
    assert_ne!(install().status, Some(0));
}
