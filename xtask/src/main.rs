//! Commands for developers: `cargo xtask ci` checks everything, `cargo xtask test` sets up the
//! machine before.

mod bench;
mod book;
mod checks;
mod deny;
mod dist;
mod fuzz;
mod layers;
mod licences;
mod manifests;
mod neighbours;
mod packagers;
mod release;
mod room;
mod setup;
mod words;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  quick     format, lints, and all tests that need no server: what to run after each change
  test NAME…
            the tests of these names (`verify_maps`, `wal::`) with the servers that are there,
            or a crate's (`pgtoll-model`)
  test [--fuzz]
            set up this machine (servers to test with), then everything that ci does; with --fuzz
            the parsers' fuzz targets for some seconds too (5 min to build)
  ci        format, lints, layers, dependencies, documentation, the book, tests with the servers that are there
  layers    compare the crates' edges with the table of the architecture
  words     refuse names, phrases and doc comments that a reader has to read twice
  generate  write the files that are made from code and records (schemas, README's figures, the
            chapters of costs, detection and predictions)
  book      make the book's site in docs/book, and follow its links
  deny      check the dependencies with cargo-deny: licences, sources, duplicates, advisories
  dist [--check] [--target TRIPLE]
            make tarball, Debian package, rpm, wheel, image and sources in target/dist; with
            --check install and run each in a clean root (as root, with debootstrap)
  release VERSION [--dry-run]
            check what is committed, and make all packages of x86-64 and aarch64 of it; without
            --dry-run commit and tag the version (publishing is left to you)
  release --check
            try what a release made: clean roots, packagers' tools, an emulated aarch64
  neighbours [NAME…]
            tests beside the next Debian's failover managers, poolers and backup tools, in a root
            of their own (as root, with debootstrap; 10 min)
  detection [--help | OPTIONS]
            who notices which damage: pgtoll, servers, PostgreSQL's own tools (10 min)
  drills [--help | OPTIONS]
            damage random blocks of clusters, verify, repair, and compare with the
            undamaged pages (a second a drill)
  fuzz [--seconds N] [TARGET…]
            run the parsers' fuzz targets, each for a minute
  picture   take the README's pictures of a report, with Chromium
  soak [--help | OPTIONS]
            verify a running server under pgbench, damage planted in it, and
            count false alarms and what is missed (10 min)
  bench design [--help | OPTIONS]
            compare pgtoll's design with sequential runs of pgbench on two
            identical clusters, under a load that the bench makes (7 min)
  bench checksum [--help | OPTIONS]
            compare the kernels that compute page checksums with those that
            servers run (half a minute)
  bench verify [--help | OPTIONS]
            compare pgtoll's verification with pg_checksums', on clusters that
            it makes (5 min)
  bench enable [--help | OPTIONS]
            compare pgtoll enable with pg_checksums --enable, on clusters that
            it makes (10 min)
  bench wal [--help | OPTIONS]
            compare pgtoll's reading of WAL with pg_waldump's, on WAL that it
            makes (6 min)
  bench watch [--help | OPTIONS]
            what pgtoll predict costs the server that it watches: slices of
            pgbench's load with it and without (45 min)
  bench capture [--help | OPTIONS]
            what pgtoll replay record costs clients: slices of pgbench's load
            on direct connections, twice, and through it (14 min)
  bench replay [--help | OPTIONS]
            replay pgbench's log with pgtoll and with pgreplay, and compare the
            tables (up to 15 min: pgreplay is killed after a minute)
  bench replay-compare [--help | OPTIONS]
            how often pgtoll replay compare names a statement where nothing
            differs, and whether it names one that was made slower (a minute a
            comparison)
  bench replay-pace [--help | OPTIONS]
            whether pgtoll replay sends statements when they are due, with a
            thousand sessions, too, and how fast it is beside pgbench (8 min)
  bench fleet [--help | OPTIONS]
            what verifying a backup in a store costs beside a file, how much
            memory it takes up to 100 GB, how quickly and evenly fleets are
            planned, what each packing costs (8 min)
  whatif-trial [--help | OPTIONS]
            predict WAL under other settings, and run servers with them (12 min)
  bench twins [--help | OPTIONS]
            how often intervals miss what is known: arms that do not differ,
            and one with a handicap of known size (3 min a run)
  bench recoveries [--help | OPTIONS]
            how right a checkup's forecast of a crash recovery is: 60 crashes (20 min)
  bench servers [--help | OPTIONS]
            how often two servers are told apart: the same build twice, or one
            with a planted cost
  prediction-trial [--help | OPTIONS]
            predict what checksums cost six workloads, then turn them on (an
            hour a server; with --predict --spread a quarter of one)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["quick"] => checks::quick(),
        ["test"] => test(false),
        ["test", "--fuzz"] => test(true),
        ["test", names @ ..] => checks::some(names),
        ["ci"] => room::require_on_disk().and_then(|()| checks::all(None, false)),
        ["layers"] => layers::check(),
        ["words"] => words::check(),
        ["generate"] => checks::generate(),
        ["book"] => book::book(),
        ["deny"] => deny::check(),
        ["dist", options @ ..] => dist::dist(options),
        ["release", options @ ..] => release::release(options),
        ["neighbours", names @ ..] => neighbours::neighbours(names),
        ["fuzz", options @ ..] => fuzz::fuzz(options),
        ["detection", options @ ..] => bench::detection(options),
        ["drills", options @ ..] => bench::drills(options),
        ["picture"] => picture(),
        ["soak", options @ ..] => bench::soak(options),
        ["bench", "design", options @ ..] => bench::design(options),
        ["bench", "checksum", options @ ..] => bench::checksum(options),
        ["bench", "verify", options @ ..] => bench::verify(options),
        ["bench", "enable", options @ ..] => bench::enable(options),
        ["bench", "wal", options @ ..] => bench::wal(options),
        ["bench", "capture", options @ ..] => bench::capture(options),
        ["bench", "watch", options @ ..] => bench::watch(options),
        ["bench", "replay", options @ ..] => bench::replay(options),
        ["bench", "replay-compare", options @ ..] => bench::replay_compare(options),
        ["bench", "replay-pace", options @ ..] => bench::replay_pace(options),
        ["bench", "fleet", options @ ..] => bench::fleet(options),
        ["whatif-trial", options @ ..] => bench::whatif_trial(options),
        ["bench", "twins", options @ ..] => bench::twins(options),
        ["bench", "servers", options @ ..] => bench::servers(options),
        ["bench", "recoveries", options @ ..] => bench::recoveries(options),
        ["prediction-trial", options @ ..] => bench::prediction_trial(options),
        _ => {
            say(USAGE);
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn test(fuzzes: bool) -> anyhow::Result<()> {
    room::require_on_disk()?;
    let found = setup::prepare()?;
    checks::all(Some(&found), fuzzes)
}

/// The record that the README shows the report of, and where its pictures lie.
const PICTURED: [&str; 2] = ["records/2026-11-23-pg15", "docs/src/images"];

/// Pictures hang on the machine's fonts: no test compares them.
fn picture() -> anyhow::Result<()> {
    run(command("cargo")
        .args(["run", "--quiet", "--package", "pgtoll-trials", "--bin", "picture", "--"])
        .args(PICTURED))
}

/// A program, built from its crate below `target` unless it is there.
fn installed(name: &str, version: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
    let place = root().join(format!("target/{name}-{version}"));
    let program = place.join("bin").join(name);
    if !program.is_file() {
        run(command("cargo")
            .args(["install", name, "--version", version, "--locked", "--debug", "--quiet"])
            .args(options)
            .arg("--root")
            .arg(&place))?;
    }
    Ok(program)
}

/// Tells the developer.
#[expect(clippy::print_stderr, reason = "this is a developer's tool")]
fn say(text: &str) {
    eprintln!("{text}");
}

/// The repository's root.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or_else(|| own.to_owned(), Path::to_owned)
}

/// A command in the repository's root.
#[expect(clippy::disallowed_methods, reason = "xtask starts what developers would start by hand")]
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    // What cargo says of xtask is no word about what this starts. Build scripts that read it (`ring`'s) would
    // run, and all that needs them be built, whenever cargo is called by hand and by xtask in turn.
    let is_of_xtask =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_xtask) {
            command.env_remove(name);
        }
    }
    command
}

/// A command as it is shown: its words, and what is set in its environment.
fn shown(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let set =
        set.map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
    let sentence = std::iter::once(command.get_program()).chain(command.get_args());
    let text = sentence.map(|word| word.to_string_lossy().into_owned());
    set.chain(text).collect::<Vec<_>>().join(" ")
}

/// Runs a command and fails when it fails.
fn run(command: &mut Command) -> anyhow::Result<()> {
    say(&format!("xtask: {}", shown(command)));
    let status = command.status();
    let status = status.with_context(|| format!("run {}", shown(command)))?;
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok(())
}

/// What a command prints.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output();
    let output = output.with_context(|| format!("run {}", shown(command)))?;
    if !output.status.success() {
        bail!("{}: {}", shown(command), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
