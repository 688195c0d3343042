//! The meaning of the paths.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_datadir::{Attached, DataDirectory};
use pgtoll_fleet::{BackupChoice, stored_tars};
use pgtoll_store::StoreUrl;
use pgtoll_system::Interrupt;
use pgtoll_verify::TarBackup;

use super::{backup, online};
use crate::arguments::VerifyArguments;
use crate::commands::location;
use crate::commands::server_waits::ServerWaits;
use crate::mistakes::Usage;

/// A target that is verified by itself.
pub(super) enum Target {
    Directory(Box<Directory>),
    Tars(TarBackup),
}

/// A data directory, and what of it is meant: nothing named means all.
pub(super) struct Directory {
    pub(super) data: DataDirectory,
    pub(super) below: Vec<PathBuf>,
    /// The server that runs on it.
    pub(super) running: Option<Attached>,
}

/// Paths in the same data directory are verified together.
pub(super) fn targets(
    arguments: &VerifyArguments,
    waits: &ServerWaits,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Target>> {
    let mut targets: Vec<Directory> = Vec::new();
    let mut tars = Vec::new();
    let dsn = arguments.dsn.as_ref().map(|dsn| waits.limit_waits(dsn));
    let of_server;
    let paths = match &dsn {
        Some(dsn) if arguments.paths.is_empty() => {
            of_server = [online::data_directory(dsn)?];
            &of_server[..]
        }
        _ => &arguments.paths,
    };
    for path in paths {
        if let Some(backup) = stored(path, arguments, interrupt)? {
            tars.push(Target::Tars(backup));
            continue;
        }
        let local = file_of_url(path)?;
        let path = local.as_ref().unwrap_or(path);
        if let Some(backup) = backup::tars(path)? {
            tars.push(Target::Tars(backup));
            continue;
        }
        let absolute = std::path::absolute(path).context("find the current directory")?;
        let within = within(&absolute)?;
        let is_all = same(&within, &absolute);
        let below = (!is_all).then(|| inside(&within, &absolute));
        match targets.iter_mut().find(|target| target.data.path == within) {
            Some(target) if is_all || target.below.is_empty() => target.below.clear(),
            Some(target) => target.below.extend(below),
            None => {
                let data = DataDirectory::open(&within)?;
                let running = online::attach(&data, dsn.as_ref(), waits)?;
                targets.push(Directory { data, below: below.into_iter().collect(), running });
            }
        }
    }
    Ok(targets.into_iter().map(|target| Target::Directory(Box::new(target))).chain(tars).collect())
}

/// The backup that a path means which is no directory or file of its own: a URL, standard input, or
/// one of several backups. `None`: it means something else.
fn stored(
    path: &Path,
    arguments: &VerifyArguments,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<TarBackup>> {
    if path == Path::new("-") {
        return Ok(Some(pgtoll_fleet::standard_input()?));
    }
    let text = path.to_string_lossy();
    let is_local = !StoreUrl::is_url(&text) || text.starts_with("file:");
    if is_local {
        let local = file_of_url(path)?.unwrap_or_else(|| path.to_owned());
        let is_named = arguments.backup.is_some() || arguments.stanza.is_some();
        if !is_named && !local.join("backup.info").is_file() {
            return Ok(None);
        }
    }
    let choice = BackupChoice::from_text(arguments.backup.as_deref());
    let cluster = arguments.stanza.as_deref();
    Ok(Some(stored_tars(&location(&text)?, &choice, cluster, interrupt)?))
}

/// The path of a URL of a file; `None`: it is none.
fn file_of_url(path: &Path) -> anyhow::Result<Option<PathBuf>> {
    let text = path.to_string_lossy();
    if !text.starts_with("file://") {
        return Ok(None);
    }
    Ok(text.parse::<StoreUrl>()?.path())
}

/// The data directory that a path is in.
fn within(path: &Path) -> anyhow::Result<PathBuf> {
    if path.join("PG_VERSION").exists() && path.join("global").is_dir() {
        // A whole one, or what should be one: what is wrong with its control file is told.
        return Ok(path.to_owned());
    }
    if let Err(error) = std::fs::metadata(path) {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "run pgtoll as the files' owner",
            _ => "name a data directory, files or directories in one, or a backup's tars",
        };
        return Err(Usage::error(format!("read {}: {error}", path.display()), hint));
    }
    if let Some(found) = DataDirectory::around(path) {
        return Ok(found);
    }
    if let Err(error) = std::fs::read_dir(path)
        && error.kind() == std::io::ErrorKind::PermissionDenied
    {
        let message = format!("read {}: {error}", path.display());
        return Err(Usage::error(message, "run pgtoll as the files' owner"));
    }
    Err(Usage::error(
        format!("{} is not in a data directory: no global/pg_control", path.display()),
        "name a data directory, or files or directories in one; of a tablespace \
         its link in pg_tblspc; of a backup in tars the directory with base.tar; of several backups \
         below it one, with --backup latest",
    ))
}

fn same(one: &Path, other: &Path) -> bool {
    one == other || std::fs::canonicalize(one).ok() == std::fs::canonicalize(other).ok()
}

/// The path as the data directory's own begins.
fn inside(data: &Path, path: &Path) -> PathBuf {
    if path.starts_with(data) {
        return path.to_owned();
    }
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let real_data = real(data);
    let real_path = real(path);
    real_path.strip_prefix(real_data).map_or(real_path.clone(), |rest| data.join(rest))
}

/// A server writes pages while they are read.
pub(super) fn refuse_running(data: &DataDirectory) -> anyhow::Result<()> {
    match data.server()? {
        None => Ok(()),
        Some(pid) => Err(Usage::error(
            format!("a server runs on {} (process {pid})", data.path.display()),
            "it was started meanwhile: verify again",
        )),
    }
}
