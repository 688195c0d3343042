//! Begin, output and end of a trial.

use std::io::Write as _;
use std::process::ExitCode;

use crate::program::{MEASURE, measure};

/// Runs a trial, or what this process was started as: the guard of its servers, or the process between it
/// and a program that is measured. Status 0:
/// every goal is reached; 1: one is missed; 2: an error, reported behind the trial's name.
pub fn run(name: &str, trial: impl FnOnce() -> anyhow::Result<bool>) -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("__guard") => pgtoll_cluster::guard_main().map_err(Into::into).map(|()| true),
        Some(MEASURE) => measure(std::env::args_os().skip(2)).map(|message| {
            say(&message);
            true
        }),
        _ => trial(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("{name}: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Prints a result to standard output. A closed pipe is no error: the record has the rest.
pub fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Prints a line of progress or an error to standard error.
#[expect(clippy::print_stderr, reason = "trials are developers' tools")]
pub fn say(text: &str) {
    eprintln!("{text}");
}
