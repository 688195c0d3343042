//! The command that makes a record again.

use pgtoll_format::shell_quoted;
use pgtoll_record::Provenance;

use crate::arguments::VerifyArguments;

/// Where the record of these arguments comes from.
pub(super) fn provenance(arguments: &VerifyArguments) -> Provenance {
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(arguments),
        made: jiff::Timestamp::now().to_string(),
    }
}

pub(super) fn command(arguments: &VerifyArguments) -> Vec<String> {
    let mut command = vec!["pgtoll".to_owned(), "verify".to_owned()];
    command.extend(arguments.paths.iter().map(|path| shell_quoted(&path.to_string_lossy())));
    if let Some(dsn) = &arguments.dsn {
        command.extend(["--dsn".to_owned(), shell_quoted(&dsn.redacted())]);
    }
    if let Some(backup) = &arguments.backup {
        command.extend(["--backup".to_owned(), shell_quoted(backup)]);
    }
    for only in &arguments.only {
        command.extend(["--only".to_owned(), shell_quoted(only)]);
    }
    let flags = [
        ("--mmap", arguments.mmap),
        ("--direct", arguments.direct),
        ("--no-rows", arguments.no_rows),
        ("--quick", arguments.quick),
        ("--manifest-checksums", arguments.manifest_checksums),
    ];
    command
        .extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_owned()));
    if let Some(path) = &arguments.resume {
        command.extend(["--resume".to_owned(), shell_quoted(&path.to_string_lossy())]);
    }
    if let Some(path) = &arguments.patrol {
        command.extend(["--patrol".to_owned(), shell_quoted(&path.to_string_lossy())]);
        // A patrol's rate is a part of what it promises.
        let rate = arguments.rate.map(|rate| format!("{rate}/s"));
        let spans = [("--within", arguments.within), ("--for", arguments.run_time)];
        let spans = spans.map(|(option, time)| (option, time.map(|time| time.to_string())));
        for (option, value) in [("--rate", rate)].into_iter().chain(spans) {
            command.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        }
    }
    for wal in &arguments.wal {
        command.extend(["--wal".to_owned(), shell_quoted(&wal.to_string_lossy())]);
    }
    command
}
