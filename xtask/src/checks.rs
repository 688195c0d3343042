//! Everything that must hold.

use std::io::{BufRead, BufReader};
use std::num::NonZeroUsize;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::setup::{self, Found};
use crate::{book, command, deny, fuzz, layers, manifests, room, root, run, say, shown, words};

/// Names the servers that tests must find, as major versions.
const MAJORS: &str = "PGTOLL_TEST_MAJORS";
/// Says where axe-core is: tests of the report in a browser must run.
const AXE: &str = "PGTOLL_TEST_AXE";
/// Says where moto is: tests of fleets have a server of S3.
const MOTO: &str = "PGTOLL_TEST_MOTO";
/// Says where drivers of Python are: tests of captures use them.
const DRIVERS: &str = "PGTOLL_TEST_DRIVERS";
/// How many tests run at once, as libtest reads it.
const THREADS: &str = "RUST_TEST_THREADS";
/// Where tests work that need no disk.
const DIRECTORY: &str = "PGTOLL_TEST_DIR";
/// Lets tests write the files that they otherwise compare.
const UPDATE: &str = "PGTOLL_UPDATE";

/// Format, lints, layers, dependencies, documentation, the book, with a set-up machine manifests, where asked for a
/// little fuzzing, tests.
/// The tests fail where something is missing that was `found`.
pub(crate) fn all(found: Option<&Found>, fuzzes: bool) -> anyhow::Result<()> {
    lints()?;
    layers::check()?;
    words::check()?;
    deny::check()?;
    run(command("cargo")
        .args(["doc", "--workspace", "--no-deps", "--quiet", "--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))?;
    book::book()?;
    if found.is_some() {
        manifests::check()?;
    }
    if fuzzes {
        fuzz::run_targets(FUZZ_SECONDS, &[])?;
    }
    tests(found)
}

/// Format, lints, layers, and the tests that need no server: those of the crates, and what is in their
/// directories of tests. All crates at once, since with some of them alone others' features, and so their
/// builds, would differ.
pub(crate) fn quick() -> anyhow::Result<()> {
    lints()?;
    layers::check()?;
    words::check()?;
    let mut test = command("cargo");
    test.args(["test", "--quiet", "--workspace", "--lib", "--bins"]);
    for name in test_programs()? {
        test.args(["--test", &name]);
    }
    run(&mut test)
}

fn lints() -> anyhow::Result<()> {
    run(command("cargo").args(["fmt", "--all", "--check"]))?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    run(command("cargo").args(clippy))
}

/// The crate whose tests start servers. So do the trials', which lie elsewhere.
const WITH_SERVERS: &str = "pgtoll";

/// The names of test programs of crates whose tests start no server.
fn test_programs() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).context("list the crates")? {
        let directory = entry?.path();
        if directory.ends_with(WITH_SERVERS) {
            continue;
        }
        let Ok(tests) = std::fs::read_dir(directory.join("tests")) else { continue };
        for test in tests {
            let path = test?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
            }
        }
    }
    Ok(names)
}

/// Tests by name: those of the program that starts servers, or a crate's own.
pub(crate) fn some(names: &[&str]) -> anyhow::Result<()> {
    let (crates, filters): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| name.starts_with("pgtoll-"));
    if !crates.is_empty() {
        let packages = crates.iter().flat_map(|name| ["--package", name]);
        return run(command("cargo").arg("test").args(packages).arg("--").args(&filters));
    }
    let mut test = command("cargo");
    // As the whole suite is built: with one crate alone others' features, and so their builds, would differ.
    test.args(["test", "--workspace", "--test", "it", "--"]).args(&filters);
    set_place(&mut test);
    if let Some(moto) = setup::moto_if_there() {
        test.env(MOTO, moto);
    }
    if let Some(drivers) = setup::drivers_if_there() {
        test.env(DRIVERS, drivers);
    }
    run(&mut test)
}

/// How many tests run at once, and where, unless that is said.
fn set_place(command: &mut Command) {
    if std::env::var_os(THREADS).is_none() {
        // Tests wait for servers, and a third of them mostly for time: four at once left a third of two cores idle.
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        command.env(THREADS, (cores + 4).to_string());
    }
    if std::env::var_os(DIRECTORY).is_none() && room::in_memory() {
        // Half of the time of clusters that are made and removed is the file system's, on a disk.
        command.env(DIRECTORY, room::MEMORY);
    }
}

/// How long each fuzz target runs here: long enough to see that it still builds and finds its way
/// in. `cargo xtask fuzz` is for more.
const FUZZ_SECONDS: u32 = 3;

/// Writes the files that are made from code.
pub(crate) fn generate() -> anyhow::Result<()> {
    run(command("cargo").args(["test", "--workspace", "--quiet", "generated"]).env(UPDATE, "1"))
}

/// Runs all tests and says how many there were.
fn tests(found: Option<&Found>) -> anyhow::Result<()> {
    let mut command = command("cargo");
    command.args(["test", "--workspace", "--no-fail-fast"]).stdout(Stdio::piped());
    set_place(&mut command);
    if let Some(Found { majors, axe, moto, drivers }) = found {
        let names: Vec<String> = majors.iter().map(u32::to_string).collect();
        command.env(MAJORS, names.join(",")).env(AXE, axe);
        command.env(MOTO, moto).env(DRIVERS, drivers);
    }
    say(&format!("xtask: {}", shown(&command)));
    let mut child = command.spawn().context("run cargo test")?;
    let stdout = child.stdout.take().context("read cargo test's output")?;
    let mut counts = Counts::default();
    let mut reasons = Reasons::default();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("read cargo test's output")?;
        counts.add(&line);
        reasons.add(&line);
        print(&line);
    }
    let status = child.wait().context("wait for cargo test")?;
    reasons.lines.iter().for_each(|line| print(line));
    print(&format!("{} passed, {} failed", counts.passed, counts.failed));
    if !status.success() || counts.failed > 0 {
        bail!("cargo test: {status}");
    }
    if counts.ignored > 0 || counts.passed == 0 {
        bail!("{} tests ran and {} were left out", counts.passed, counts.ignored);
    }
    Ok(())
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u32,
    failed: u32,
    ignored: u32,
}

impl Counts {
    /// Adds a closing line of libtest: `test result: ok. 5 passed; 0 failed; 0 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let arguments: Vec<&str> =
            result.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        let pick = |name: &str| -> u32 {
            let pair = arguments.windows(2).find(|pair| pair[1] == name);
            pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
        };
        self.passed += pick("passed");
        self.failed += pick("failed");
        self.ignored += pick("ignored");
    }
}

/// The first lines of what each failed test said. A test service may show the end of an output only.
#[derive(Debug, Default)]
struct Reasons {
    lines: Vec<String>,
    /// How many lines of the test at hand are still to come.
    left: usize,
}

impl Reasons {
    const LINES: usize = 5;
    const CHARACTERS: usize = 400;

    /// Adds a line if it is of the part that libtest heads `---- name stdout ----`.
    fn add(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.left = Self::LINES;
        }
        if self.left > 0 && !line.is_empty() {
            self.left -= 1;
            self.lines.push(line.chars().take(Self::CHARACTERS).collect());
        }
    }
}

#[expect(clippy::print_stdout, reason = "this is a developer's tool")]
fn print(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let mut counts = Counts::default();
        counts.add("running 7 tests");
        counts.add("test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        counts.add("test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured");
        assert_eq!(counts, Counts { passed: 15, failed: 2, ignored: 1 });
    }

    #[test]
    fn reasons_are_the_first_lines_of_each_failed_test() {
        let mut reasons = Reasons::default();
        let output = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\n\n\
                      thread 'a' panicked at x.rs:1:2:\nleft is not right\n1\n2\n3\n4\n";
        output.lines().for_each(|line| reasons.add(line));
        assert_eq!(
            reasons.lines,
            [
                "---- a stdout ----",
                "thread 'a' panicked at x.rs:1:2:",
                "left is not right",
                "1",
                "2"
            ]
        );
    }
}
