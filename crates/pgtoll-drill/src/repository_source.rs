//! A backup in a repository of pgBackRest or barman on this machine, with the WAL of its archive.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pgtoll_verify::{PGBACKREST_MANIFEST, PgBackRestManifest, barman_stop, barman_tablespaces};

use crate::DrillError;
use crate::repository::{RepositoryFacts, RepositorySurvey};
use crate::source::{BackupLabel, DrillSource, SourceForm, SourceSearch, kind};
use crate::tars::TarFiles;

impl DrillSource {
    /// pgBackRest's backup in this directory, `REPOSITORY/backup/STANZA/LABEL`. Its WAL is looked for in
    /// `REPOSITORY/archive/STANZA`.
    pub fn open_pgbackrest(path: &Path) -> Result<Self, DrillError> {
        let path = std::path::absolute(path).map_err(DrillError::read(path))?;
        let unread = |reason: String| DrillError::Unread { path: path.clone(), reason };
        let file = path.join(PGBACKREST_MANIFEST);
        let text =
            pgtoll_system::read(&file, MANIFEST_BYTES_MAX).map_err(DrillError::read(&file))?;
        let label = path.file_name().unwrap_or_default().to_string_lossy();
        let manifest =
            PgBackRestManifest::parse(&text, &label).map_err(|error| unread(error.to_string()))?;
        let major = manifest.major.ok_or_else(|| DrillError::NoVersion { path: path.clone() })?;
        let stop = manifest.stop;
        let is_online = manifest.is_online;
        let stanza = path.parent().unwrap_or(&path);
        let archive = archive_of(stanza, manifest.archive.as_deref());
        let (mut survey, facts) = RepositorySurvey::from_manifest(stanza, manifest);
        let RepositoryFacts { control, label } = facts;
        let label = label.map(|text| BackupLabel::parse(&String::from_utf8_lossy(&text)));
        Ok(Self {
            major,
            kind: kind(&path, label.is_some(), is_online, &control)?,
            stop: stop.filter(|_| label.is_some()),
            control,
            label,
            wal: archive.into_iter().collect(),
            segments: std::mem::take(&mut survey.segments),
            histories: BTreeMap::new(),
            form: SourceForm::Repository(Box::new(survey)),
            path,
        })
    }

    /// barman's backup in this directory, `SERVER/base/ID`, with `data.tar` in it. Its WAL is looked for in
    /// `SERVER/wals`.
    pub fn open_barman(path: &Path, search: &mut SourceSearch<'_>) -> Result<Self, DrillError> {
        let path = std::path::absolute(path).map_err(DrillError::read(path))?;
        let file = path.join("backup.info");
        let info = pgtoll_system::read(&file, INFO_BYTES_MAX).map_err(DrillError::read(&file))?;
        let tablespaces = barman_tablespaces(&info);
        let tablespaces = tablespaces
            .map_err(|error| DrillError::Unread { path: path.clone(), reason: error.to_string() })?
            .into_iter()
            .collect();
        let Some(files) = TarFiles::of_barman(&path, tablespaces)? else {
            return Err(DrillError::NotABackup { path });
        };
        let wals = path.ancestors().nth(2).map(|server| server.join("wals"));
        let mut source = Self::of_tars(path, files, search)?;
        source.wal.extend(wals.filter(|wals| wals.is_dir()));
        source.stop = source.label.and_then(|_| barman_stop(&info));
        Ok(source)
    }
}

/// The place of the WAL of a stanza's cluster.
fn archive_of(stanza: &Path, cluster: Option<&str>) -> Option<PathBuf> {
    let repository = stanza.ancestors().nth(2)?;
    let archive = repository.join("archive").join(stanza.file_name()?);
    let own = cluster.map(|name| archive.join(name)).filter(|own| own.is_dir());
    own.or_else(|| Some(archive).filter(|archive| archive.is_dir()))
}

/// Some two million files.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;
const INFO_BYTES_MAX: u64 = 4 << 20;
