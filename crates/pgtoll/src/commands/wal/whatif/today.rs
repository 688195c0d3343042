//! The settings of the server that made the WAL: asked, read from files, or read off the WAL.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pgtoll_datadir::control_file;
use pgtoll_format::{ByteSize, TimeSpan, WalFacts};
use pgtoll_model::{Schedule, checkpoint_segments, max_wal_size_for};
use pgtoll_wal::Glance;
use pgtoll_wire::Dsn;

use crate::commands::Usage;
use crate::commands::wal::reading::above;

/// What is known of them.
#[derive(Clone, Debug)]
pub(super) struct Today {
    pub(super) max_wal_size: ByteSize,
    pub(super) timeout: TimeSpan,
    pub(super) completion_target: f64,
    pub(super) hints: bool,
    /// Where they are from.
    pub(super) by: String,
}

impl Today {
    pub(super) fn schedule(&self) -> Schedule {
        rule(self.max_wal_size, self.timeout, self.completion_target)
    }
}

pub(super) fn rule(max_wal_size: ByteSize, timeout: TimeSpan, completion_target: f64) -> Schedule {
    Schedule::Rule {
        max_wal_size: max_wal_size.0,
        timeout_us: i64::try_from(timeout.0.as_micros()).unwrap_or(i64::MAX),
        completion_target,
    }
}

/// As postgresql.conf has them, where it does.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    max_wal_size: Option<ByteSize>,
    timeout: Option<TimeSpan>,
    completion_target: Option<f64>,
    hints: Option<bool>,
    by: Vec<String>,
}

impl Settings {
    /// What is told by the command line, else by a server, else by a data directory.
    pub(super) fn find(
        today: &[(String, String)],
        dsn: Option<&Dsn>,
        paths: &[PathBuf],
    ) -> anyhow::Result<Self> {
        let mut found = Self::default();
        for (name, value) in today {
            if !found.set(name, value) {
                let hint = "like --today max_wal_size=4GB, or checkpoint_timeout=15min, \
                            checkpoint_completion_target=0.9";
                return Err(Usage::error(format!("\"{name}={value}\" is of no use here"), hint));
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

    /// What is missing, as others say.
    fn complete(&mut self, other: Self) {
        self.max_wal_size = self.max_wal_size.or(other.max_wal_size);
        self.timeout = self.timeout.or(other.timeout);
        self.completion_target = self.completion_target.or(other.completion_target);
        self.hints = self.hints.or(other.hints);
        self.by.extend(other.by);
    }

    fn of_server(dsn: &Dsn) -> anyhow::Result<Self> {
        let mut found = Self::default();
        let mut connection = dsn.connect()?;
        for name in NAMES {
            let row = connection.query_one(&format!("SHOW {name}"))?;
            let value = row.values().first().cloned().flatten().unwrap_or_default();
            found.set(name, &value);
        }
        let on = |row: pgtoll_wire::Row| {
            row.values().first().cloned().flatten().as_deref() == Some("on")
        };
        let checksums = on(connection.query_one("SHOW data_checksums")?);
        found.hints = Some(checksums || on(connection.query_one("SHOW wal_log_hints")?));
        connection.close();
        found.by.push(format!("the server {dsn}"));
        Ok(found)
    }

    /// What is not set there is as the server has it by itself, if its files are there at all.
    fn of_data_directory(data: &Path) -> Self {
        let mut found = Self::default();
        if let Ok(control) = control_file(data) {
            found.hints = Some(control.checksum_version != 0 || control.wal_log_hints);
        }
        let main = data.join("postgresql.conf");
        if !main.is_file() {
            return found;
        }
        for file in [main, data.join("postgresql.auto.conf")] {
            found.read(&file, 0);
        }
        found.max_wal_size = found.max_wal_size.or(Some(MAX_WAL_SIZE));
        found.timeout = found.timeout.or(Some(CHECKPOINT_TIMEOUT));
        found.by.push(format!("the configuration in {}", data.display()));
        found
    }

    /// A configuration file, with those that it includes.
    fn read(&mut self, file: &Path, depth: usize) {
        let Ok(text) = std::fs::read_to_string(file) else { return };
        let base = file.parent().unwrap_or(Path::new("."));
        for line in text.lines() {
            let line = line.trim();
            let end = line.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let value = rest.trim_start().trim_start_matches('=').trim_start();
            let value = match value.strip_prefix('\'') {
                Some(quoted) => quoted.split('\'').next().unwrap_or_default(),
                None => value.split(['#', ' ', '\t']).next().unwrap_or_default(),
            };
            match name.to_ascii_lowercase().as_str() {
                "include" | "include_if_exists" if depth < DEPTH => {
                    self.read(&base.join(value), depth + 1);
                }
                "include_dir" if depth < DEPTH => {
                    let entries = std::fs::read_dir(base.join(value)).into_iter().flatten();
                    let mut files: Vec<PathBuf> =
                        entries.flatten().map(|entry| entry.path()).collect();
                    files.retain(|path| path.extension().is_some_and(|of| of == "conf"));
                    files.sort();
                    for file in &files {
                        self.read(file, depth + 1);
                    }
                }
                name => {
                    self.set(name, value);
                }
            }
        }
    }

    /// Takes a setting; `false` if it is none that matters, or cannot be read.
    fn set(&mut self, name: &str, value: &str) -> bool {
        let number = |unit: &str| {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            if digits { format!("{value}{unit}") } else { value.to_owned() }
        };
        match name {
            "max_wal_size" => {
                number("MB").parse().map(|size| self.max_wal_size = Some(size)).is_ok()
            }
            "checkpoint_timeout" => {
                number("s").parse().map(|time| self.timeout = Some(time)).is_ok()
            }
            "checkpoint_completion_target" => {
                value.parse().map(|target| self.completion_target = Some(target)).is_ok()
            }
            _ => false,
        }
    }

    /// Nothing is missing that would have to be read off the WAL.
    pub(super) fn are_known(&self) -> bool {
        self.max_wal_size.is_some() && self.timeout.is_some() && self.hints.is_some()
    }

    /// With what a first look at the WAL shows.
    pub(super) fn with(&self, glance: &Glance, facts: &WalFacts, segment_bytes: u64) -> Today {
        let completion_target =
            self.completion_target.unwrap_or(facts.checkpoint_completion_target);
        let (size, timeout) = read_off(glance, segment_bytes, completion_target);
        let is_read_off = self.max_wal_size.is_none() || self.timeout.is_none();
        let mut by = self.by.clone();
        if is_read_off {
            by.push("the distances of checkpoints in the WAL".to_owned());
        }
        Today {
            max_wal_size: self.max_wal_size.unwrap_or(size),
            timeout: self.timeout.unwrap_or(timeout),
            completion_target,
            hints: self.hints.unwrap_or(glance.hints > 0),
            by: by.join(", "),
        }
    }
}

const NAMES: [&str; 3] = ["max_wal_size", "checkpoint_timeout", "checkpoint_completion_target"];
/// The server's own (`guc_tables.c`).
const MAX_WAL_SIZE: ByteSize = ByteSize(1 << 30);
const CHECKPOINT_TIMEOUT: TimeSpan = TimeSpan(Duration::from_secs(300));
/// `CONF_FILE_MAX_DEPTH`.
const DEPTH: usize = 10;

/// The data directory that one of the paths is, or is the `pg_wal` of.
fn data_directory(paths: &[PathBuf]) -> Option<PathBuf> {
    let candidates = paths.iter().flat_map(|path| [Some(path.clone()), above(path)]).flatten();
    candidates.into_iter().find(|path| control_file(path).is_ok())
}

/// `max_wal_size` and `checkpoint_timeout` that explain how checkpoints follow each other: what
/// occurs again and again is a rule.
fn read_off(glance: &Glance, segment_bytes: u64, completion_target: f64) -> (ByteSize, TimeSpan) {
    let cycles = glance.redo_points.windows(2).map(|pair| {
        let segment = |at: usize| pair[at].0.0 / segment_bytes;
        (segment(1).saturating_sub(segment(0)), pair[1].1.saturating_sub(pair[0].1))
    });
    let cycles: Vec<(u64, i64)> = cycles.filter(|(_, seconds)| *seconds >= 0).collect();
    let again =
        |is_same: &dyn Fn(&(u64, i64)) -> bool| cycles.iter().filter(|of| is_same(of)).count() > 1;
    let longest = cycles.iter().map(|of| of.1).max().unwrap_or(0);
    let furthest = cycles.iter().map(|of| of.0).max().unwrap_or(0);
    let by_time = longest >= 30 && again(&|of| (longest - of.1) <= 2);
    // Checkpoints lag behind, so that the shortest distance that comes again is the rule's.
    let mut distances: Vec<u64> = cycles.iter().map(|of| of.0).filter(|of| *of > 0).collect();
    distances.sort_unstable();
    let often = |of: &u64| {
        let count = distances.iter().filter(|other| *other == of).count();
        count > 1 && count * 4 >= distances.len()
    };
    let rule = distances.iter().copied().find(often);
    let seconds = if by_time {
        // Checkpoints begin up to a second late.
        u64::try_from(longest).unwrap_or(0) / 5 * 5
    } else {
        u64::try_from(longest).unwrap_or(0).div_ceil(60) * 60
    };
    let timeout = CHECKPOINT_TIMEOUT.0.max(Duration::from_secs(seconds));
    let timeout = if by_time { Duration::from_secs(seconds) } else { timeout };
    let own = checkpoint_segments(MAX_WAL_SIZE.0, segment_bytes, completion_target);
    let size = if let Some(rule) = rule.filter(|_| !by_time) {
        max_wal_size_for(rule, segment_bytes, completion_target)
    } else if furthest > own {
        max_wal_size_for(furthest, segment_bytes, completion_target)
    } else if cycles.is_empty() || by_time {
        MAX_WAL_SIZE.0
    } else {
        max_wal_size_for(furthest.max(1), segment_bytes, completion_target)
    };
    (ByteSize(size), TimeSpan(timeout))
}
