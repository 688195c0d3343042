//! Where a bench keeps its record: a line of JSON each.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

/// The file, where one is asked for.
#[derive(Debug)]
pub struct Recorder(Option<(PathBuf, File)>);

impl Recorder {
    /// Makes a file that must not exist yet.
    pub fn create(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = File::create_new(path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(Some((path.to_owned(), file))))
    }

    /// Writes a line to disk.
    pub fn write(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        let Some((path, file)) = &mut self.0 else { return Ok(()) };
        let text = serde_json::to_string(line)? + "\n";
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.with_context(|| format!("write {}", path.display()))
    }
}
