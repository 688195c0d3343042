//! The settings that the WAL is replayed with.

use std::sync::Arc;

use pgtoll_format::WalFacts;
use pgtoll_model::{
    Candidate, Geometry, Grid, GuessedSettings, ImageCompression, KnownSettings, Settings,
    SourceSettings,
};
use pgtoll_record::WatchedServer;
use pgtoll_wal::{Compressing, Question};

use crate::question::{AskedValue, SettingQuestion};

/// The question about a server's WAL.
#[derive(Clone, Debug)]
pub(crate) struct WalQuestion {
    pub(crate) settings: SourceSettings,
    pub(crate) grid: Grid,
    pub(crate) question: Arc<Question>,
}

impl WalQuestion {
    /// The server's own settings at its own redo points and by their rule; hints logged or not the
    /// other way round, both ways; and each question about something else.
    pub(crate) fn new(
        server: &WatchedServer,
        facts: &'static WalFacts,
        page_bytes: u64,
        questions: &[SettingQuestion],
    ) -> Self {
        let settings = source_settings(server, facts);
        let today = Candidate {
            rule: None,
            hints: settings.hints,
            full_page_writes: true,
            compression: ImageCompression::AsStored,
        };
        let own = Candidate { rule: Some(settings.rule()), ..today };
        let other = !settings.hints;
        let toggled = [Candidate { hints: other, ..today }, Candidate { hints: other, ..own }];
        let mut rows = vec![own];
        rows.extend(toggled);
        for candidate in
            questions.iter().filter_map(|question| requested_candidate(own, question.value))
        {
            if !rows.contains(&candidate) {
                rows.push(candidate);
            }
        }
        let grid = Grid { today, rows, curve: Vec::new(), compressed: Vec::new() };
        let all: Vec<Settings> = grid.settings();
        let question = Question {
            geometry: Geometry { segment_bytes: server.segment_bytes.max(1 << 20), page_bytes },
            facts,
            compressing: Compressing::for_settings(&all, false),
            settings: all,
            today: Some(settings.rule().schedule()),
        };
        Self { settings, grid, question: Arc::new(question) }
    }

    /// The server says all of them.
    pub(crate) fn guessed() -> GuessedSettings {
        GuessedSettings::default()
    }
}

/// The server's settings with one of them changed; `None`: hints, which are asked in any case.
fn requested_candidate(own: Candidate, value: AskedValue) -> Option<Candidate> {
    let rule = own.rule?;
    match value {
        AskedValue::Checksums(_) | AskedValue::Hints(_) => None,
        AskedValue::Compression(kind) => {
            Some(Candidate { compression: ImageCompression::Set(kind), ..own })
        }
        AskedValue::MaxWalSize(max_wal_size) => {
            let rule = pgtoll_model::CheckpointRule { max_wal_size, ..rule };
            Some(Candidate { rule: Some(rule), ..own })
        }
        AskedValue::Timeout(timeout) => {
            let rule = pgtoll_model::CheckpointRule { timeout: Some(timeout), ..rule };
            Some(Candidate { rule: Some(rule), ..own })
        }
    }
}

fn source_settings(server: &WatchedServer, facts: &WalFacts) -> SourceSettings {
    let text = |name: &str| server.settings.get(name).map_or("", String::as_str);
    let mut known = KnownSettings::default();
    for name in KnownSettings::NAMES {
        known.set(name, text(name));
    }
    let is_on = |name| text(name) == "on";
    known.set_hints(is_on("data_checksums") || is_on("wal_log_hints"));
    let target = facts.checkpoint_completion_target;
    known.or_default().complete(&[], false, server.segment_bytes.max(1 << 20), target)
}

#[cfg(test)]
mod tests {
    use pgtoll_format::MAJORS;

    use super::*;

    #[test]
    fn settings_are_changed_one_at_a_time() {
        let settings = [("wal_log_hints", "on"), ("max_wal_size", "4GB")];
        let server = WatchedServer {
            settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            segment_bytes: 16 << 20,
            ..WatchedServer::default()
        };
        let questions = ["data_checksums=on", "max_wal_size=8GB", "wal_compression=lz4"]
            .map(|text| SettingQuestion::parse(text).unwrap());
        let requested = WalQuestion::new(&server, &MAJORS[0].wal, 8192, &questions);
        assert!(requested.settings.hints && requested.settings.max_wal_size.0 == 4 << 30);
        let shown = requested.grid.rows.iter().map(|row| {
            (row.max_wal_size().map(|size| size.0 >> 30), row.compression.name(), row.hints)
        });
        let expected = [
            (Some(4), "as stored", true),
            (None, "as stored", false),
            (Some(4), "as stored", false),
            (Some(8), "as stored", true),
            (Some(4), "lz4", true),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert_eq!(requested.question.compressing.with.len(), 1);
        assert_eq!(requested.question.settings.len(), 1 + expected.len());
    }
}
