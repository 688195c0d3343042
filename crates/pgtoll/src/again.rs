//! The command that makes a record again: what was said on the command line, and what was resolved.

use std::ffi::OsStr;
use std::sync::OnceLock;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory as _};
use pgtoll_format::shell_quoted;
use pgtoll_record::Provenance;
use pgtoll_wire::{Dsn, masked};

use crate::arguments::Arguments;

/// The arguments of the command line.
static GIVEN: OnceLock<ArgMatches> = OnceLock::new();

/// Options that decide where a record goes, how it is shown or judged, or that confirm: no part of how it is made.
/// Nor is the place where servers of pgtoll's own are made, which is this machine's.
const OF_OUTPUT: [&str; 10] =
    ["fail_if", "format", "full", "json", "output", "quiet", "record", "top", "work_dir", "yes"];

/// Keeps what was said on the command line.
pub(crate) fn remember(given: ArgMatches) {
    // It is parsed once.
    let _ = GIVEN.set(given);
}

/// Returns the provenance of a record that this command makes now.
pub(crate) fn provenance() -> Provenance {
    provenance_with(Resolved::default())
}

/// The same, with what was resolved.
pub(crate) fn provenance_with(resolved: Resolved<'_>) -> Provenance {
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(resolved),
        made: jiff::Timestamp::now().to_string(),
    }
}

/// Values that a command resolved: they replace the given ones.
#[derive(Clone, Copy, Default)]
pub(crate) struct Resolved<'a> {
    /// Arguments that are left out, by their field's name.
    pub(crate) left_out: &'a [&'a str],
    /// Positional arguments in front of the options.
    pub(crate) positional: &'a [&'a str],
    /// Options with their values, such as `--seed`.
    pub(crate) options: &'a [(&'a str, String)],
}

/// The command that makes a record again, a shell's word each, without secrets.
pub(crate) fn command(resolved: Resolved<'_>) -> Vec<String> {
    command_words(GIVEN.get(), resolved)
}

fn command_words(given: Option<&ArgMatches>, resolved: Resolved<'_>) -> Vec<String> {
    let mut words = vec!["pgtoll".to_owned()];
    let mut root = Arguments::command();
    root.build();
    let mut command = &root;
    let mut given = given;
    while let Some((name, below)) = given.and_then(ArgMatches::subcommand) {
        let Some(found) = command.find_subcommand(name) else { break };
        words.push(name.to_owned());
        (command, given) = (found, Some(below));
    }
    words.extend(resolved.positional.iter().map(|word| shell_quoted(word)));
    let is_resolved = |argument: &Arg| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        let is_replaced = resolved.options.iter().any(|(name, _)| Some(*name) == long.as_deref());
        is_replaced || resolved.left_out.contains(&argument.get_id().as_str())
    };
    if let Some(given) = given {
        let is_told = |argument: &&Arg| {
            let id = argument.get_id().as_str();
            let is_given = given.try_contains_id(id).is_ok()
                && given.value_source(id) == Some(ValueSource::CommandLine);
            is_given && !OF_OUTPUT.contains(&id) && !is_resolved(argument)
        };
        let mut output: Vec<(usize, Vec<String>)> = command
            .get_arguments()
            .filter(is_told)
            .flat_map(|argument| occurrences(argument, given))
            .collect();
        output.sort();
        words.extend(output.into_iter().flat_map(|(_, words)| words));
    }
    for (name, value) in resolved.options {
        words.extend([(*name).to_owned(), shell_quoted(value)]);
    }
    words
}

/// How often an argument was given: its place on the command line, and its words.
fn occurrences(argument: &Arg, given: &ArgMatches) -> Vec<(usize, Vec<String>)> {
    let id = argument.get_id().as_str();
    let long = argument.get_long().map(|long| format!("--{long}"));
    let mut places = given.indices_of(id).into_iter().flatten();
    if !matches!(argument.get_action(), ArgAction::Set | ArgAction::Append) {
        return long.into_iter().map(|long| (places.next().unwrap_or(0), vec![long])).collect();
    }
    let dsns = given.try_get_many::<Dsn>(id).ok().flatten();
    let mut dsns = dsns.into_iter().flatten().map(Dsn::redacted);
    let mut shown =
        |raw: &OsStr| dsns.next().unwrap_or_else(|| masked(&raw.to_string_lossy()).into_owned());
    let mut output = Vec::new();
    for values in given.get_raw_occurrences(id).into_iter().flatten() {
        let values: Vec<String> = values.map(&mut shown).collect();
        let place = places.next().unwrap_or(0);
        for _ in 1..values.len() {
            places.next();
        }
        let values = match argument.get_value_delimiter() {
            Some(delimiter) => vec![values.join(&delimiter.to_string())],
            None => values,
        };
        let values = values.iter().map(|value| shell_quoted(value));
        output.push((place, long.iter().cloned().chain(values).collect()));
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again_command(line: &[&str], resolved: Resolved<'_>) -> String {
        let given = Arguments::command().try_get_matches_from(line).unwrap();
        command_words(Some(&given), resolved).join(" ")
    }

    #[test]
    fn a_command_is_as_it_was_said_without_secrets_and_output() {
        let line = [
            "pgtoll",
            "--quiet",
            "repair",
            "--yes",
            "/srv/my data",
            "--from-standby",
            "host=db2 password=secret",
            "--wal",
            "/a",
            "--wal",
            "/b",
            "--json",
            "--dsn=postgresql://ada:secret@/run",
        ];
        let again = again_command(&line, Resolved::default());
        assert!(!again.contains("secret"), "{again}");
        assert!(again.starts_with("pgtoll repair '/srv/my data' --from-standby "), "{again}");
        assert!(again.contains("db2") && again.contains(" --wal /a --wal /b --dsn "), "{again}");
    }

    #[test]
    fn lists_stay_one_word_and_flags_have_no_value() {
        let line = [
            "pgtoll",
            "wal",
            "whatif",
            "/w",
            "--hints",
            "on,off",
            "--exact",
            "--max-wal-size=1GB,2GB",
        ];
        let expected = "pgtoll wal whatif /w --hints on,off --exact --max-wal-size 1GB,2GB";
        assert_eq!(again_command(&line, Resolved::default()), expected);
    }

    #[test]
    fn what_was_resolved_takes_the_place_of_what_was_said() {
        let line = ["pgtoll", "measure", "wal", "checksums", "--seed", "1", "--name", "ab"];
        let resolved = Resolved {
            left_out: &["experiments"],
            positional: &["wal"],
            options: &[("--seed", "7".to_owned())],
        };
        assert_eq!(again_command(&line, resolved), "pgtoll measure wal --name ab --seed 7");
    }
}
