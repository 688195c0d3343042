//! The settings of the server that made the WAL: as the command line, a server or a data directory
//! has them.

use std::path::{Path, PathBuf};

use pgtoll_datadir::{Configuration, control_file};
use pgtoll_format::WalFacts;
use pgtoll_model::{GuessedSettings, KnownSettings, SourceSettings};
use pgtoll_wal::CheckpointSurvey;
use pgtoll_wire::{Dsn, Row};

use crate::commands::wal::reading::above;
use crate::mistakes::Usage;

/// Settings, and where they are from.
#[derive(Clone, Debug, Default)]
pub(super) struct Today {
    pub(super) known: KnownSettings,
    by: Vec<String>,
    /// Returns the catalogs that could not be read.
    pub(super) notes: Vec<String>,
}

impl Today {
    /// As the command line has them, else a server, else a data directory.
    pub(super) fn find(
        today: &[(String, String)],
        dsn: Option<&Dsn>,
        paths: &[PathBuf],
    ) -> anyhow::Result<Self> {
        let mut found = Self::default();
        for (name, value) in today {
            if !found.known.set(name, value) {
                let hint = "like --today max_wal_size=4GB, or checkpoint_timeout=15min, \
                            checkpoint_completion_target=0.9";
                let message = format!("--today does not accept \"{name}={value}\"");
                return Err(Usage::error(message, hint));
            }
        }
        if !today.is_empty() {
            found.by.push("--today".to_owned());
        }
        if let Some(dsn) = dsn {
            found.complete(Self::of_server(dsn)?);
        } else if let Some(data) = data_directory(paths) {
            found.complete(Self::of_data_directory(&data));
        }
        Ok(found)
    }

    fn complete(&mut self, other: Self) {
        self.known = self.known.or(other.known);
        self.by.extend(other.by);
        self.notes.extend(other.notes);
    }

    fn of_server(dsn: &Dsn) -> anyhow::Result<Self> {
        let mut found = Self::default();
        let mut connection = dsn.connect()?;
        let value = |row: Row| row.values().first().cloned().flatten().unwrap_or_default();
        for name in KnownSettings::NAMES {
            let shown = value(connection.query_one(&format!("SHOW {name}"))?);
            found.known.set(name, &shown);
        }
        let checksums = value(connection.query_one("SHOW data_checksums")?) == "on";
        let hints = value(connection.query_one("SHOW wal_log_hints")?) == "on";
        found.known.set_hints(checksums || hints);
        connection.close();
        found.by.push(format!("the server {dsn}"));
        Ok(found)
    }

    /// Reads the settings of a data directory; missing ones have the server's defaults.
    fn of_data_directory(data: &Path) -> Self {
        let mut found = Self::default();
        if let Ok(control) = control_file(data) {
            found.known.set_hints(control.checksum_version != 0 || control.wal_log_hints);
        }
        let Some(configuration) = Configuration::in_data_directory(data) else { return found };
        for (name, value) in &configuration.settings {
            found.known.set(name, value);
        }
        found.known = found.known.or_default();
        found.by.push(format!("the configuration in {}", data.display()));
        if !configuration.unread.is_empty() {
            found.notes.push(format!(
                "Settings may have been others, since the configuration could not be read whole: {}.",
                configuration.unread.join("; ")
            ));
        }
        found
    }

    /// All of them, with what a first look at the WAL shows, which are such guesses, and where they
    /// are from.
    pub(super) fn complete_by(
        &self,
        survey: &CheckpointSurvey,
        facts: &WalFacts,
        segment_bytes: u64,
    ) -> (SourceSettings, GuessedSettings, String) {
        let settings = self.known.complete(
            &survey.redo_points,
            survey.hints > 0,
            segment_bytes,
            facts.checkpoint_completion_target,
        );
        let is_inferred = !self.known.has_rule();
        let inferred = is_inferred.then_some("the distances of checkpoints in the WAL");
        let by: Vec<&str> = self.by.iter().map(String::as_str).chain(inferred).collect();
        (settings, self.known.guessed(survey.hints > 0), by.join(", "))
    }
}

/// The data directory that one of the paths is, or is the `pg_wal` of.
fn data_directory(paths: &[PathBuf]) -> Option<PathBuf> {
    let candidates = paths.iter().flat_map(|path| [Some(path.clone()), above(path)]).flatten();
    candidates.into_iter().find(|path| control_file(path).is_ok())
}
