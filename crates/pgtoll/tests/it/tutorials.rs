//! The book's tutorials: their commands run as they are printed, and print what is said.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Scratch, pgtoll_for_all, server};

/// The commands of a tutorial, and the lines that it says they print.
struct Tutorial {
    script: String,
    printed: Vec<String>,
}

fn tutorials() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/tutorials")
}

impl Tutorial {
    fn read(name: &str) -> Self {
        let text = fs::read_to_string(tutorials().join(name)).unwrap();
        let mut tutorial = Self { script: String::new(), printed: Vec::new() };
        for block in text.split("\n```").skip(1).step_by(2) {
            let (language, body) = block.split_once('\n').unwrap();
            match language {
                "sh" => {
                    tutorial.script.push_str(body);
                    tutorial.script.push('\n');
                }
                // Commands that another machine is needed for, or an hour, are not run.
                "text" if body.starts_with("pgtoll ") => {}
                "text" => tutorial.printed.extend(body.lines().map(str::to_owned)),
                other => panic!("{name}: a block of {other:?}"),
            }
        }
        assert!(!tutorial.script.is_empty(), "{name} has no commands");
        tutorial
    }

    /// Runs the commands in one shell, as a reader does.
    fn run(&self, name: &str) {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        let bin = server().bin;
        let program = pgtoll_for_all(&scratch);
        let directory = guard.directory().join("tutorial");
        let log = guard.directory().join("tutorial.log");
        // Instead of a minute's measurement one of seconds.
        let small = concat!(
            "measure ",
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/small.toml --rounds 2 --round-time 400ms --repetitions 1"
        );
        let commands = self.script.replace("measure --quick", small);
        let script = format!(
            "set -euo pipefail\nexec >'{3}' 2>&1\nmkdir '{0}'\ncd '{0}'\nexport PATH='{1}:{2}':$PATH HOME='{0}'\n{commands}",
            directory.display(),
            program.parent().unwrap().display(),
            bin.display(),
            log.display(),
        );
        let ended = guard.run(Path::new("/bin/bash"), &["-c", &script]);
        let printed = fs::read_to_string(&log).unwrap();
        assert!(ended.is_ok(), "{name}: {ended:?}\n{printed}");
        for line in &self.printed {
            let is_printed = printed.lines().any(|found| matches(found, line));
            assert!(is_printed, "{name}: {line:?} is not printed:\n{printed}");
        }
    }
}

/// Whether a printed line is as the tutorial has it, whose `…` stands for anything.
fn matches(printed: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap()) else { return false };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.is_empty() || expected.ends_with('…')
}

#[test]
fn the_first_answer() {
    Tutorial::read("first-answer.md").run("first-answer.md");
}

#[test]
fn a_damaged_page() {
    Tutorial::read("damaged-page.md").run("damaged-page.md");
}

#[test]
fn checksums_with_a_replica() {
    Tutorial::read("checksums-with-a-replica.md").run("checksums-with-a-replica.md");
}

#[test]
fn every_tutorial_is_run() {
    let names = fs::read_dir(tutorials()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["checksums-with-a-replica.md", "damaged-page.md", "first-answer.md"]);
    assert!(matches("primary: 1 failure, 2 notes", "primary: 1 failure…"));
    assert!(!matches("exit status 2", "exit status 1"));
}
