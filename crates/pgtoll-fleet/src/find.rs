//! Finds backups in stores.

use std::collections::{BTreeMap, BTreeSet};

use pgtoll_record::FleetLayout;
use pgtoll_store::{Store, StoreError, StoreUrl, StoredObject};
use pgtoll_system::Interrupt;
use pgtoll_verify::{
    PgBackRestManifest, TarBackup, WalGSentinel, barman_tablespaces, describes_backup,
    pgbackrest_label_time, wal_g_sentinel,
};

use crate::error::FleetError;
use crate::failure::StoreFailure;
use crate::input::tars_of;
use crate::layout::{Layout, StoredBackup, UnreadBackup, is_tar, tablespace_of};
use crate::pgbackrest::{MANIFEST_BYTES_MAX, objects_of, stanza_of};

/// The choice among a prefix's backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupChoice {
    /// The only one.
    Only,
    /// The newest one.
    Latest,
    /// The one of this name, or number.
    Id(String),
}

impl BackupChoice {
    /// As it is written on the command line.
    pub fn from_text(text: Option<&str>) -> Self {
        match text {
            None => Self::Only,
            Some("latest") => Self::Latest,
            Some(id) => Self::Id(id.to_owned()),
        }
    }
}

/// The backup that a URL and a choice mean, as tars that can be verified. `cluster` is the stanza, or the
/// server, where there are several.
pub fn stored_tars(
    url: &StoreUrl,
    choice: &BackupChoice,
    cluster: Option<&str>,
    interrupt: &Interrupt,
) -> Result<TarBackup, FleetError> {
    let store = Store::open(url, interrupt)?;
    let found = of_cluster(backups_below(&store, url)?, url, cluster)?;
    let backup = chosen_of(&found, url, choice)?;
    tars_of(&backup, &store, &StoreFailure::default())
}

/// The same by the names of objects alone: none is read, and whether all of them are there is not looked
/// at.
pub fn stored_backup(
    url: &StoreUrl,
    choice: &BackupChoice,
    cluster: Option<&str>,
    interrupt: &Interrupt,
) -> Result<StoredBackup, FleetError> {
    let listed = Store::open(url, interrupt)?.list(url)?;
    let found = of_cluster(Layout::new(url, &listed), url, cluster)?;
    chosen_of(&found, url, choice)
}

/// Returns the layout of one cluster.
fn of_cluster(
    mut found: Layout,
    url: &StoreUrl,
    cluster: Option<&str>,
) -> Result<Layout, FleetError> {
    let Some(name) = cluster else { return Ok(found) };
    let clusters: BTreeSet<String> =
        found.backups.iter().map(|backup| backup.cluster.clone()).collect();
    found.backups.retain(|backup| backup.cluster == name);
    if found.backups.is_empty() && !clusters.is_empty() {
        let clusters = clusters.into_iter().collect();
        return Err(FleetError::UnknownCluster {
            url: url.clone(),
            name: name.to_owned(),
            clusters,
        });
    }
    Ok(found)
}

/// All backups below a URL, or the tar that it is, and those that are not read.
pub(crate) fn backups_below(store: &Store, url: &StoreUrl) -> Result<Layout, FleetError> {
    if is_tar(url.name()) {
        return Ok(Layout::of_tar(&store.head(url)?));
    }
    let listed = store.list(url)?;
    let mut found = Layout::new(url, &listed);
    let listed = listed.iter().map(|object| (&object.url, object)).collect();
    let mut complete = Vec::with_capacity(found.backups.len());
    let backups = std::mem::take(&mut found.backups);
    let infos: Vec<&StoredObject> =
        backups.iter().filter_map(|backup| backup.info.as_ref()).collect();
    let mut infos = store.read_each(&infos, INFO_BYTES_MAX)?.into_iter();
    for mut backup in backups {
        let info = backup.info.as_ref().and_then(|_| infos.next());
        let reason = match (backup.layout, info) {
            (FleetLayout::PgBackRest, _) => incomplete(store, &mut backup, &listed)?,
            (FleetLayout::WalG, Some(sentinel)) => delta(&backup, &sentinel),
            (FleetLayout::BarmanCloud, Some(info)) => unfinished(&backup, &info),
            _ => None,
        };
        match reason {
            None => complete.push(backup),
            Some(reason) => found.unread.push(UnreadBackup { url: backup.url, reason }),
        }
    }
    found.backups = complete;
    found.unread.sort_by(|one, other| one.url.cmp(&other.url));
    Ok(found)
}

fn chosen_of(
    found: &Layout,
    url: &StoreUrl,
    choice: &BackupChoice,
) -> Result<StoredBackup, FleetError> {
    let clusters: BTreeSet<&String> = found.backups.iter().map(|backup| &backup.cluster).collect();
    if *choice == BackupChoice::Latest && clusters.len() > 1 {
        let clusters = clusters.into_iter().cloned().collect();
        return Err(FleetError::SeveralClusters { url: url.clone(), clusters });
    }
    let no_backup = || FleetError::NoBackup { url: url.clone() };
    let ids = || found.backups.iter().map(|backup| backup.id.clone()).collect();
    let latest = found.backups.iter().max_by_key(|backup| age_key(backup));
    let chosen = match choice {
        BackupChoice::Only if found.backups.len() > 1 => {
            return Err(FleetError::Several { url: url.clone(), ids: ids() });
        }
        BackupChoice::Only | BackupChoice::Latest => latest,
        BackupChoice::Id(id) => {
            let mut named = found.backups.iter().filter(|backup| backup.id == *id);
            let first = named.next();
            if named.next().is_some() {
                let ids = found.backups.iter().filter(|backup| backup.id == *id);
                let ids = ids.map(|ids| ids.url.to_string()).collect();
                return Err(FleetError::Several { url: url.clone(), ids });
            }
            first
        }
    };
    // The latest backup is one that cannot be read: another one in its place would say nothing of it.
    let unread = found.unread.iter().rev().find(|unread| match choice {
        BackupChoice::Id(id) => unread.url.name() == id,
        BackupChoice::Only => chosen.is_none(),
        BackupChoice::Latest => chosen.is_none_or(|chosen| {
            let is_later = match chosen.layout {
                FleetLayout::BarmanCloud => unread.url > chosen.url,
                FleetLayout::PgBackRest => {
                    pgbackrest_label_time(unread.url.name()) > pgbackrest_label_time(&chosen.id)
                }
                FleetLayout::WalG | FleetLayout::Tars | FleetLayout::Files => false,
            };
            unread.url.parent() == chosen.url.parent() && is_later
        }),
    });
    match (chosen, unread, choice) {
        (_, Some(unread), BackupChoice::Latest | BackupChoice::Only) | (None, Some(unread), _) => {
            let UnreadBackup { url, reason } = unread.clone();
            Err(FleetError::Unread { url, reason })
        }
        (Some(chosen), _, _) => Ok(chosen.clone()),
        (None, None, BackupChoice::Id(id)) if !found.backups.is_empty() => {
            Err(FleetError::Unknown { url: url.clone(), id: id.clone() })
        }
        (None, None, _) => Err(no_backup()),
    }
}

/// barman's and pgBackRest's ids are times; else when the newest object was written.
fn age_key(backup: &StoredBackup) -> (Option<&str>, u64, &StoreUrl) {
    let id = match backup.layout {
        FleetLayout::BarmanCloud => Some(&*backup.id),
        FleetLayout::PgBackRest => Some(pgbackrest_label_time(&backup.id)),
        FleetLayout::WalG | FleetLayout::Tars | FleetLayout::Files => None,
    };
    let written = backup.objects.iter().map(|object: &StoredObject| object.modified).max();
    (id, written.unwrap_or_default(), &backup.url)
}

/// Reads pgBackRest's manifest for the objects of a backup; why they cannot be read, if so.
fn incomplete(
    store: &Store,
    backup: &mut StoredBackup,
    listed: &BTreeMap<&StoreUrl, &StoredObject>,
) -> Result<Option<String>, StoreError> {
    let Some(manifest) = &backup.manifest else { return Ok(None) };
    let text = store.read(&manifest.url, MANIFEST_BYTES_MAX)?;
    let found = PgBackRestManifest::parse(&text, &backup.id)
        .map_err(|error| error.to_string())
        .and_then(|manifest| {
            let stanza = stanza_of(&backup.url);
            let objects = objects_of(&manifest, &stanza, listed, &|_| true)?;
            let beside = objects_of(&manifest, &stanza, listed, &describes_backup)?;
            Ok((manifest.packing, objects, beside))
        });
    Ok(match found {
        Ok((packing, objects, beside)) => {
            (backup.packing, backup.objects, backup.beside) = (Some(packing), objects, beside);
            None
        }
        Err(reason) => Some(reason),
    })
}

/// Says so where WAL-G's sentinel is a delta's, whatever the backup is called, or is not one at all.
fn delta(backup: &StoredBackup, sentinel: &[u8]) -> Option<String> {
    match wal_g_sentinel(sentinel) {
        Some(WalGSentinel::Full) => None,
        Some(WalGSentinel::Delta) => {
            Some("a delta of WAL-G, which pgtoll does not read yet".to_owned())
        }
        None => {
            let name = backup.info.as_ref().map_or("the sentinel", |info| info.url.name());
            Some(format!("{name} is not JSON: is it encrypted?"))
        }
    }
}

/// Why barman has not finished a backup, or not all of it is there; `None`: it has, and all is.
fn unfinished(backup: &StoredBackup, info: &[u8]) -> Option<String> {
    let tablespaces = match barman_tablespaces(info) {
        Ok(tablespaces) => tablespaces,
        Err(error) => return Some(error.to_string()),
    };
    let is_there =
        |oid: u32| backup.objects.iter().any(|tar| tablespace_of(tar.url.name()) == Some(oid));
    let missing = tablespaces.into_iter().find(|&oid| !is_there(oid))?;
    Some(format!("backup.info lists tablespace {missing}, but its tar is missing"))
}

const INFO_BYTES_MAX: u64 = 4 << 20;
