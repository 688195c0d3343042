//! The question: a setting, and the value that it would have.

use std::collections::BTreeMap;

use pgtoll_format::wal::Compression;
use pgtoll_format::{ByteSize, TimeSpan, conf};

use crate::PredictError;

/// A setting with another value than today's.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingQuestion {
    /// Its name.
    pub name: &'static str,
    /// The value.
    pub value: AskedValue,
}

/// The value of a setting that can be predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AskedValue {
    /// Data checksums.
    Checksums(bool),
    /// Hints are logged without them.
    Hints(bool),
    /// Images are compressed.
    Compression(Option<Compression>),
    /// Checkpoints begin after this much WAL.
    MaxWalSize(ByteSize),
    /// Checkpoints begin after this time.
    Timeout(TimeSpan),
}

impl SettingQuestion {
    /// Reads `NAME=VALUE`, as in `postgresql.conf`.
    pub fn parse(text: &str) -> Result<Self, PredictError> {
        let mistake = || PredictError::Question { setting: text.to_owned() };
        let (name, value) = text.split_once('=').ok_or_else(mistake)?;
        let name = name.trim().to_ascii_lowercase();
        let value = value.trim().trim_matches('\'');
        let question = |name, value| Self { name, value };
        let requested = match name.as_str() {
            "data_checksums" => conf::boolean(value)
                .map(|is_on| question("data_checksums", AskedValue::Checksums(is_on))),
            "wal_log_hints" => conf::boolean(value)
                .map(|is_on| question("wal_log_hints", AskedValue::Hints(is_on))),
            "wal_compression" => conf::wal_compression(value)
                .map(|kind| question("wal_compression", AskedValue::Compression(kind))),
            "max_wal_size" => conf::size("max_wal_size", value)
                .ok()
                .filter(|size| (2 << 20..=1 << 51).contains(&size.0))
                .map(|size| question("max_wal_size", AskedValue::MaxWalSize(size))),
            "checkpoint_timeout" => conf::time("checkpoint_timeout", value)
                .ok()
                .filter(|time| (30..=86_400).contains(&time.0.as_secs()))
                .map(|time| question("checkpoint_timeout", AskedValue::Timeout(time))),
            _ => None,
        };
        requested.ok_or_else(mistake)
    }

    /// Returns the default question: the opposite of the server's checksums.
    pub fn default_for(settings: &BTreeMap<String, String>) -> Self {
        let has_checksums = settings.get("data_checksums").is_some_and(|value| value == "on");
        Self { name: "data_checksums", value: AskedValue::Checksums(!has_checksums) }
    }
}

impl AskedValue {
    /// As `SHOW` has it.
    pub fn describe(&self) -> String {
        match self {
            Self::Checksums(is_on) | Self::Hints(is_on) => {
                if *is_on { "on" } else { "off" }.to_owned()
            }
            Self::Compression(kind) => kind.map_or("off", Compression::name).to_owned(),
            Self::MaxWalSize(size) => size.to_string(),
            Self::Timeout(time) => time.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_settings_with_values() {
        let check = |text: &str, expected: Option<&str>| {
            let read = SettingQuestion::parse(text).ok();
            let words = read.map(|item| format!("{} = {}", item.name, item.value.describe()));
            assert_eq!(words.as_deref(), expected, "{text}");
        };
        check("data_checksums=on", Some("data_checksums = on"));
        check(" wal_log_hints = 'off'", Some("wal_log_hints = off"));
        check("max_wal_size=20GB", Some("max_wal_size = 20GB"));
        check("max_wal_size=4096", Some("max_wal_size = 4GB"));
        check("wal_compression=on", Some("wal_compression = pglz"));
        check("checkpoint_timeout=30min", Some("checkpoint_timeout = 30min"));
        for mistake in ["data_checksums", "data_checksums=maybe", "fsync=off", "max_wal_size=1kB"] {
            check(mistake, None);
        }
    }
}
