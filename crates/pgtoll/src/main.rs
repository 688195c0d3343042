//! pgtoll: what does PostgreSQL's safety cost, is the data sound, and does the safety work when it
//! is needed?
//!
//! This crate turns arguments into settings, runs the command, prints, and ends with the right
//! status. What the commands do is in the other crates.

mod again;
mod arguments;
mod calibration;
mod commands;
mod hints;
mod mistakes;
mod panics;
mod printer;
mod test_hooks;

use std::ffi::OsString;
use std::io::Write as _;
use std::panic::catch_unwind;
use std::process::ExitCode;

use anyhow::Context as _;
use arguments::{Arguments, Command};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use pgtoll_record::Status;
use pgtoll_report::{PluginLine, PluginStatus, is_unprintable, printable, printable_lines};
use pgtoll_wire::masked;
use printer::Printer;

fn main() -> ExitCode {
    panics::report();
    // What a panic passes on its way out still puts in order what it has to.
    let ended = catch_unwind(run);
    ended.unwrap_or_else(|_| no_result("internal error", &mut Printer::new(true)))
}

fn run() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let of_child =
        |ended: Result<(), _>| exit(ended.map_or(Status::CouldNotTell, |()| Status::Done));
    match words.first().and_then(|word| word.to_str()) {
        // Messages of these two have no reader; a failure is seen by the end of their socket.
        Some("__guard") => of_child(pgtoll_cluster::guard_main()),
        Some("__volumes") => of_child(pgtoll_cluster::keeper_main()),
        Some("__node") => ended(
            commands::rolling::node(&words[1..], &mut Printer::new(true)),
            &mut Printer::new(true),
        ),
        Some("__package") if words.len() == 2 => {
            ended(commands::package::run(words[1].as_ref()), &mut Printer::new(false))
        }
        None => {
            let mut printer = Printer::new(false);
            ended(Ok(commands::front::run(&mut printer)), &mut printer)
        }
        _ => run_command(),
    }
}

fn run_command() -> ExitCode {
    let arguments = match parsed() {
        Ok(arguments) => arguments,
        Err(error) => return misused(error),
    };
    let mut printer = Printer::new(arguments.quiet).with_full(arguments.full);
    let outcome = match arguments.command {
        Command::Measure(arguments) => commands::measure::run(&arguments, &mut printer),
        Command::Report(arguments) => commands::report::run(&arguments, &mut printer),
        Command::Predict(arguments) => commands::predict::run(&arguments, &mut printer),
        Command::Checkup(arguments) => commands::checkup::run(&arguments, &mut printer),
        Command::Replay(arguments) => commands::replay::run(&arguments, &mut printer),
        Command::Wal(arguments) => commands::wal::run(&arguments, &mut printer),
        Command::Verify(arguments) => commands::verify::run(&arguments, &mut printer),
        Command::Enable(arguments) => commands::enable::enable(&arguments, &mut printer),
        Command::Disable(arguments) => commands::enable::disable(&arguments, &mut printer),
        Command::Repair(arguments) => commands::repair::run(&arguments, &mut printer),
        Command::Corrupt(arguments) => commands::corrupt::run(&arguments, &mut printer),
        Command::Lab(arguments) => commands::lab::run(&arguments, &mut printer),
        Command::Fleet(arguments) => commands::fleet::run(&arguments, &mut printer),
        Command::Page(arguments) => commands::page::run(&arguments, &mut printer),
        Command::Doctor(arguments) => commands::doctor::run(&arguments, &mut printer),
        Command::Postgres(arguments) => commands::postgres::run(&arguments, &mut printer),
        Command::Completions(arguments) => commands::completions::run(&arguments, &mut printer),
    };
    ended(outcome, &mut printer)
}

/// The command line, which [`again`] keeps.
fn parsed() -> Result<Arguments, clap::Error> {
    let matches = Arguments::command().try_get_matches()?;
    again::remember(matches.clone());
    let parsed = Arguments::from_arg_matches(&matches);
    parsed.map_err(|error| error.format(&mut Arguments::command()))
}

/// Reports what is wrong with the command line, or shows its help. An argument may be a connection
/// string with a password in it, or a file's name with control characters, which a shell put in for a
/// pattern.
fn misused(error: clap::Error) -> ExitCode {
    let is_printable = |string: &OsString| !string.to_string_lossy().contains(is_unprintable);
    let error = if std::env::args_os().all(|argument| is_printable(&argument)) {
        error
    } else {
        // The same mistake with what is printable of the arguments.
        let printable =
            std::env::args_os().map(|argument| printable(&argument.to_string_lossy()).into_owned());
        Arguments::try_parse_from(printable).err().unwrap_or(error)
    };
    let text = error.to_string();
    let shown = masked(&text);
    let shown = printable_lines(&shown);
    if shown == text {
        // In colours where there are any.
        drop(error.print());
    } else {
        drop(std::io::stderr().write_all(shown.as_bytes()));
    }
    if !error.use_stderr() {
        return exit(Status::Done);
    }
    no_result(shown.lines().next().unwrap_or_default(), &mut Printer::new(true))
}

fn ended(outcome: anyhow::Result<Status>, printer: &mut Printer) -> ExitCode {
    let written = printer.finish().context("write to standard output");
    match outcome.and_then(|status| written.map(|()| status)) {
        Ok(status) => match printer.check.take() {
            Some(mut line) => {
                line.settle(status);
                checked(&line, printer)
            }
            None => exit(status),
        },
        Err(error) => {
            printer.error(&error);
            no_result(&printer::message(&error), printer)
        }
    }
}

/// The end without a result. Nagios reads only what is on stdout, and has a status of its own for it.
fn no_result(message: &str, printer: &mut Printer) -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let is_check = words.iter().any(|word| word == "--format=nagios")
        || words.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "nagios");
    if !is_check {
        return exit(Status::CouldNotTell);
    }
    let mut line = printer.check.take().unwrap_or_default();
    line.raise(PluginStatus::Unknown, masked(message));
    checked(&line, printer)
}

fn checked(line: &PluginLine, printer: &mut Printer) -> ExitCode {
    printer.data(&line.text());
    line.status().code().into()
}

fn exit(status: Status) -> ExitCode {
    status.code().into()
}
