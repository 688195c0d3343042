//! A user's own work in the place of an experiment's.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use pgtoll_format::shell_quoted;

use super::{Experiment, ExperimentError, OneOrMany, WorkloadSpec, mix};

/// A user's own work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnWork {
    /// Its name; `own` without one.
    pub name: Option<String>,
    /// Scripts, by names or files, with weights; or one command.
    pub entries: Vec<String>,
    /// Transactions a second of all clients together (open loop).
    pub rate: Option<f64>,
    /// Clients that work at the same time; 1 without it.
    pub clients: Option<u32>,
}

/// Transactions in the counted pass; their time is not known beforehand.
const COUNTED: u64 = 1000;

impl Experiment {
    /// Has its arms do this work, and nothing else. Expectations, which are about other work, go.
    pub fn take_own_work(&mut self, own: OwnWork) -> Result<(), ExperimentError> {
        let OwnWork { name, entries, rate, clients } = own;
        let workload = WorkloadSpec {
            name: name.unwrap_or_else(|| "own".to_owned()),
            title: title(&entries),
            rate,
            clients,
            ..WorkloadSpec::default()
        };
        let workload = match command(&entries) {
            Some(command) => WorkloadSpec { command: Some(command), ..workload },
            None => WorkloadSpec {
                mix: Some(mix(&entries, Path::new(""))?),
                script: Some(OneOrMany::Many(entries)),
                counted: COUNTED,
                ..workload
            },
        };
        self.workloads = vec![workload];
        self.expect.clear();
        Ok(())
    }
}

/// Scripts by their names without directories and endings; a command as it is.
fn title(entries: &[String]) -> String {
    if command(entries).is_some() {
        return format!("own work: {}", entries.join(", "));
    }
    let names = entries.iter().map(|entry| {
        let (file, weight) = entry.rsplit_once('@').unwrap_or((entry, "1"));
        let stem = Path::new(file).file_stem().map_or(file.into(), |stem| stem.to_string_lossy());
        if weight == "1" { stem.into_owned() } else { format!("{stem} (weight {weight})") }
    });
    format!("own work: {}", names.collect::<Vec<_>>().join(", "))
}

/// A program is a command, and so is what is more than a word and no file.
fn command(entries: &[String]) -> Option<String> {
    let [entry] = entries else { return None };
    let file = entry.rsplit_once('@').map_or(entry.as_str(), |(file, _)| file);
    let metadata = [entry, file].into_iter().find_map(|path| std::fs::metadata(path).ok());
    let Some(metadata) = metadata else {
        return entry.trim().contains(char::is_whitespace).then(|| entry.clone());
    };
    let mut begin = [0; 4];
    let read = std::fs::File::open(entry).and_then(|mut file| file.read_exact(&mut begin));
    let is_program = begin.starts_with(b"#!") || begin == *b"\x7fELF";
    let may_run = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    let path = std::fs::canonicalize(entry).ok()?;
    (read.is_ok() && is_program && may_run).then(|| shell_quoted(&path.to_string_lossy()))
}
