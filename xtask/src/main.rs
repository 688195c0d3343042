//! What developers run: `cargo xtask ci` checks everything, `cargo xtask test` sets up the machine
//! before.

mod checks;
mod layers;
mod setup;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test      set up this machine (servers to test with), then everything that ci does
  ci        format, lints, layers, documentation, tests with the servers that are there
  layers    compare the crates' edges with the table of the architecture
  generate  write the files that are made from code (schemas, README's figures)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => setup::prepare().and_then(|majors| checks::all(&majors)),
        ["ci"] => checks::all(&[]),
        ["layers"] => layers::check(),
        ["generate"] => checks::generate(),
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
    command
}

/// Runs a command and fails when it fails.
fn run(command: &mut Command) -> anyhow::Result<()> {
    say(&format!("xtask: {command:?}"));
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// What a command prints.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
