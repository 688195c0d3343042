//! The bench's record: a line of JSON each.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_record::Host;
use serde::Serialize;

use crate::sequential::Sequential;
use crate::sliced::Sliced;

pub(crate) const SCHEMA: &str = "pgtoll.bench-design/1";

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    Header(Box<Header>),
    Trial(&'a Trial),
    Summary(Summary),
}

/// What was run, where, with what.
#[derive(Debug, Serialize)]
pub(crate) struct Header {
    pub(crate) schema: &'static str,
    pub(crate) pgtoll: &'static str,
    pub(crate) command: String,
    /// RFC 3339.
    pub(crate) started: String,
    pub(crate) seed: u64,
    pub(crate) trials: u32,
    /// What each design has in each trial.
    pub(crate) wall_seconds: u64,
    /// Of the sequential design: of each cluster so many runs, so long.
    pub(crate) runs_per_cluster: u32,
    pub(crate) run_seconds: u64,
    /// Of the sliced design.
    pub(crate) rounds: u32,
    pub(crate) slice_ms: u128,
    pub(crate) neighbours: u32,
    /// The mean length of a busy span, and of an idle one.
    pub(crate) mean_span_seconds: f64,
    pub(crate) scale: u32,
    pub(crate) server: String,
    pub(crate) host: Host,
}

/// One trial of both designs.
#[derive(Debug, Serialize)]
pub(crate) struct Trial {
    /// Counted from 1.
    pub(crate) number: u32,
    pub(crate) seed: u64,
    pub(crate) sequential_first: bool,
    pub(crate) sequential: Sequential,
    pub(crate) sliced: Sliced,
    /// Sequential over sliced, of transactions per second.
    pub(crate) half_widths_ratio: f64,
}

/// All trials together: medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) trials: usize,
    pub(crate) sequential_tps_half_width: f64,
    pub(crate) sequential_covers_one: usize,
    pub(crate) sliced_tps_half_width: f64,
    pub(crate) sliced_tps_covers_one: usize,
    pub(crate) sliced_cpu_half_width: f64,
    pub(crate) sliced_cpu_covers_one: usize,
    /// The median of the trials' ratios, sequential over sliced.
    pub(crate) half_widths_ratio: f64,
    pub(crate) goal: f64,
}

/// The file, and its copies.
#[derive(Debug)]
pub(crate) struct Recorder(Vec<(PathBuf, File)>);

impl Recorder {
    /// Makes files that must not exist yet.
    pub(crate) fn create(paths: impl IntoIterator<Item = PathBuf>) -> anyhow::Result<Self> {
        let made = paths.into_iter().map(|path| {
            make_parent(&path)?;
            let file = File::create_new(&path);
            let file = file.with_context(|| format!("make {}", path.display()))?;
            Ok((path, file))
        });
        Ok(Self(made.collect::<anyhow::Result<_>>()?))
    }

    /// Writes a line to disk.
    pub(crate) fn write(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        let text = serde_json::to_string(line)? + "\n";
        for (path, file) in &mut self.0 {
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            written.with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

fn make_parent(path: &Path) -> anyhow::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    std::fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))
}
