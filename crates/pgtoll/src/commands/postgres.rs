//! `pgtoll postgres`: which servers there are, and one more.

use std::fmt::Write as _;

use pgtoll_cluster::{Finder, SERVER_PACKAGES, ServerPackage, Skipped};
use pgtoll_record::Status;
use pgtoll_report::{Format, json};
use pgtoll_system::Interrupt;
use serde_json::json as value;

use crate::arguments::{PostgresArguments, PostgresCommand};
use crate::printer::Printer;

pub(crate) fn run(arguments: &PostgresArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match arguments.command {
        PostgresCommand::List { format } => list(format.chosen() == Some(Format::Json), printer),
        PostgresCommand::Install { major } => install(major, printer),
    }
}

fn list(is_json: bool, printer: &mut Printer) -> anyhow::Result<Status> {
    let found = Finder::of_this_program(&Interrupt::new()).installed()?;
    say_skipped(&found.skipped, printer);
    let found = found.installations;
    if is_json {
        let list: Vec<_> = found
            .iter()
            .map(|installation| {
                value!({
                    "version": installation.version,
                    "origin": installation.origin.to_string(),
                    "bin": installation.bin,
                    "supported": installation.version.facts().is_ok(),
                })
            })
            .collect();
        printer.data(&json(&list));
        return Ok(Status::Done);
    }
    let mut text = String::new();
    for installation in &found {
        let remark = if installation.version.facts().is_ok() { "" } else { "  (not supported)" };
        let version = installation.version.to_string();
        let origin = installation.origin.to_string();
        let _ = writeln!(text, "{version:<8} {origin:<10} {}{remark}", installation.bin.display());
    }
    printer.data(&text);
    if found.is_empty() {
        printer.say("no server found");
    }
    for package in &SERVER_PACKAGES {
        if found.iter().all(|installation| installation.version.major() != package.major) {
            let major = package.major;
            printer.say(&format!("{package} can be fetched: pgtoll postgres install {major}"));
        }
    }
    Ok(Status::Done)
}

fn install(major: Option<u32>, printer: &mut Printer) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals()?;
    let package = major.map_or_else(ServerPackage::newest, ServerPackage::of_major)?;
    printer.stage(&format!("fetch {package} with {}", package.installer));
    let installation = package.install(&Finder::of_this_program(&interrupt))?;
    printer.data(&format!("{} {}\n", installation.version, installation.bin.display()));
    Ok(Status::Done)
}

/// Says which servers are not used, and why.
pub(crate) fn say_skipped(skipped: &[Skipped], printer: &Printer) {
    for server in skipped {
        printer.say(&format!("not used: {server}"));
    }
}
