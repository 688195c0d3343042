//! What records say of the command that makes them again: without secrets, a shell's word each.

use std::path::PathBuf;

use pgtoll_format::shell_quoted;
use pgtoll_record::Provenance;
use pgtoll_wire::Dsn;

use crate::arguments::{OnOff, WalRangeArguments, WalStatsArguments, WalWhatIfArguments};

/// A record that is made now by this command.
pub(super) fn provenance(command: Vec<String>) -> Provenance {
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        made: jiff::Timestamp::now().to_string(),
    }
}

/// The WAL's names: paths, or the server.
pub(super) fn source_names(paths: &[PathBuf], dsn: Option<&Dsn>) -> Vec<String> {
    match (paths, dsn) {
        ([], Some(dsn)) => vec![dsn.redacted()],
        (paths, _) => paths.iter().map(|path| path.display().to_string()).collect(),
    }
}

pub(super) fn stats(arguments: &WalStatsArguments) -> Vec<String> {
    let mut command = Command::new("stats", &arguments.paths, arguments.dsn.as_ref());
    if let Some(time) = arguments.r#for {
        command.option("--for", &time.to_string());
    }
    command.range(&arguments.range);
    if let Some(names) = &arguments.names {
        command.option("--names", &names.to_string_lossy());
    }
    command.words
}

pub(super) fn whatif(arguments: &WalWhatIfArguments) -> Vec<String> {
    let mut command = Command::new("whatif", &arguments.paths, arguments.dsn.as_ref());
    if let Some(time) = arguments.r#for {
        command.option("--for", &time.to_string());
    }
    command.range(&arguments.range);
    command.list("--max-wal-size", &arguments.max_wal_size);
    command.list("--checkpoint-timeout", &arguments.checkpoint_timeout);
    command.list("--checkpoint-completion-target", &arguments.checkpoint_completion_target);
    let compressions = arguments.wal_compression.iter();
    let compressions: Vec<&str> =
        compressions.map(|kind| kind.map_or("off", |compression| compression.name())).collect();
    command.list("--wal-compression", &compressions);
    let names = |switches: &[OnOff]| -> Vec<&str> {
        switches.iter().map(|of| if of.is_on() { "on" } else { "off" }).collect()
    };
    command.list("--hints", &names(&arguments.hints));
    command.list("--full-page-writes", &names(&arguments.full_page_writes));
    for (name, value) in &arguments.today {
        command.option("--today", &format!("{name}={value}"));
    }
    if arguments.exact {
        command.words.push("--exact".to_owned());
    }
    command.words
}

/// A subcommand of `pgtoll wal`.
struct Command {
    words: Vec<String>,
}

impl Command {
    fn new(name: &str, paths: &[PathBuf], dsn: Option<&Dsn>) -> Self {
        let words = ["pgtoll", "wal", name].map(str::to_owned).to_vec();
        let mut command = Self { words };
        let paths = paths.iter().map(|path| shell_quoted(&path.to_string_lossy()));
        command.words.extend(paths);
        if let Some(dsn) = dsn {
            command.option("--dsn", &dsn.redacted());
        }
        command
    }

    fn range(&mut self, range: &WalRangeArguments) {
        for (name, bound) in [("--from", range.from), ("--to", range.to)] {
            if let Some(bound) = bound {
                self.option(name, &bound.to_string());
            }
        }
        if let Some(timeline) = range.timeline {
            self.option("--timeline", &timeline.to_string());
        }
    }

    fn option(&mut self, name: &str, value: &str) {
        self.words.extend([name.to_owned(), shell_quoted(value)]);
    }

    fn list(&mut self, name: &str, values: &[impl ToString]) {
        if !values.is_empty() {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            self.option(name, &values.join(","));
        }
    }
}
