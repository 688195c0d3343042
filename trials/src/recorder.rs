//! The file that keeps a trial's record.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Serialize;

/// A record's file and its copies; none where no record was asked for.
#[derive(Debug)]
pub struct Recorder(Vec<(PathBuf, File)>);

impl Recorder {
    /// Makes files that must not exist yet, and their directories.
    pub fn create<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> anyhow::Result<Self> {
        Self::open(paths, File::options().write(true).create_new(true))
    }

    /// Opens files to add to them; those that do not exist are made.
    pub fn append<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> anyhow::Result<Self> {
        Self::open(paths, File::options().append(true).create(true))
    }

    fn open<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &std::fs::OpenOptions,
    ) -> anyhow::Result<Self> {
        let open = |path: P| {
            let path = path.as_ref();
            make_parent(path)?;
            match options.open(path) {
                Ok(file) => Ok((path.to_owned(), file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
                    "{} exists, and would be overwritten\nhint: name another file, or move it away",
                    path.display()
                ),
                Err(error) => Err(error).with_context(|| format!("make {}", path.display())),
            }
        };
        Ok(Self(paths.into_iter().map(open).collect::<anyhow::Result<_>>()?))
    }

    /// Writes a line to disk.
    pub fn write(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        self.write_text(&(serde_json::to_string(line)? + "\n"))
    }

    /// Writes a record that is one value, indented, to disk.
    pub fn write_indented(&mut self, record: &impl Serialize) -> anyhow::Result<()> {
        self.write_text(&(serde_json::to_string_pretty(record)? + "\n"))
    }

    fn write_text(&mut self, text: &str) -> anyhow::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_made_once_or_added_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/record.jsonl");
        Recorder::create([&path]).unwrap().write(&1).unwrap();
        let error = Recorder::create([&path]).unwrap_err().to_string();
        assert!(error.ends_with("hint: name another file, or move it away"), "{error}");
        Recorder::append([&path]).unwrap().write(&2).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n");
        Recorder::create(None::<&Path>).unwrap().write(&3).unwrap();
    }
}
