//! The backups among objects, by their keys alone: the tool that made them, the keys that are read,
//! and those that are not, each with its name.
//! not, each with its name.

use std::collections::BTreeMap;

use pgtoll_record::{FleetLayout, FleetPart};
use pgtoll_store::{StoreUrl, StoredObject};
use pgtoll_verify::{PGBACKREST_MANIFEST, describes_backup, is_pgbackrest_label};
use pgtoll_wal::Packing;

/// A backup that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBackup {
    /// Its prefix, or its one tar.
    pub url: StoreUrl,
    /// The cluster, or server, as the layout names it.
    pub cluster: String,
    /// The backup's name or number in its cluster.
    pub id: String,
    /// How it is stored.
    pub layout: FleetLayout,
    /// The tars, or the files of a data directory; of pgBackRest none, until its manifest was read.
    pub objects: Vec<StoredObject>,
    /// The part of the backup in `objects`; `None`: all of it.
    pub part: Option<FleetPart>,
    /// Objects that say of all parts how pages are judged, where the backup began and what relations are
    /// called, in the order in which they are looked into.
    pub beside: Vec<StoredObject>,
    /// `backup_manifest` beside tars, or pgBackRest's own.
    pub manifest: Option<StoredObject>,
    /// `backup.info` of barman, the sentinel of WAL-G.
    pub info: Option<StoredObject>,
    /// How its files are packed, where their names do not say it.
    pub packing: Option<Packing>,
}

/// A backup that is not read, or what looks like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadBackup {
    /// Its prefix, or its object.
    pub url: StoreUrl,
    /// Why it is not read.
    pub reason: String,
}

/// The layout of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Backups, by URL.
    pub backups: Vec<StoredBackup>,
    /// Backups that are not read, by URL.
    pub unread: Vec<UnreadBackup>,
    /// Objects that were looked at.
    pub objects: u64,
}

/// The prefix of an object, and the objects that are directly in it.
type Directories<'a> = BTreeMap<StoreUrl, Vec<&'a StoredObject>>;

impl Layout {
    /// Makes the layout of the objects below this prefix.
    pub fn new(prefix: &StoreUrl, objects: &[StoredObject]) -> Self {
        let mut directories = Directories::new();
        for object in objects {
            if let Some(parent) = object.url.parent() {
                directories.entry(parent).or_default().push(object);
            }
        }
        let mut found = Self { objects: objects.len() as u64, ..Self::default() };
        // Everything below these is theirs.
        let mut taken: Vec<StoreUrl> = Vec::new();
        for (directory, files) in &directories {
            if taken.iter().any(|taken| taken == directory || taken.below(directory).is_some()) {
                continue;
            }
            let has = |name: &str| files.iter().any(|file| file.url.name() == name);
            if let Some(root) = foreign_root(directory, files) {
                taken.push(root);
                found.repository(directory, files, objects);
            } else if has("PG_VERSION") && directories.contains_key(&directory.join("global")) {
                taken.push(directory.clone());
                found.backups.push(plain_files(prefix, directory, objects));
            } else if has("backup.info") && is_barman(directory) {
                found.barman(directory, files, &directories);
            } else {
                found.tars(prefix, directory, files);
            }
        }
        found.backups.sort_by(|one, other| one.url.cmp(&other.url));
        found.unread.sort_by(|one, other| one.url.cmp(&other.url));
        found
    }

    /// Makes the layout of a tar that was named itself.
    pub(crate) fn of_tar(object: &StoredObject) -> Self {
        let url = object.url.clone();
        let name = object.url.name();
        let mut found = Self { objects: 1, ..Self::default() };
        if unread_packing(name).is_some() {
            found.unread.push(unread_tar(url, name));
            return found;
        }
        found.backups.push(StoredBackup {
            cluster: url.parent().map_or_else(String::new, |parent| parent.name().to_owned()),
            id: name.to_owned(),
            url,
            layout: FleetLayout::Tars,
            objects: vec![object.clone()],
            part: None,
            beside: Vec::new(),
            manifest: None,
            info: None,
            packing: None,
        });
        found
    }

    /// Backups in repositories of pgBackRest and of WAL-G.
    fn repository(&mut self, directory: &StoreUrl, files: &[&StoredObject], all: &[StoredObject]) {
        let sentinels = files.iter().filter(|file| file.url.name().ends_with(SENTINEL));
        let before = (self.unread.len(), self.backups.len());
        for sentinel in sentinels {
            let name = sentinel.url.name().trim_end_matches(SENTINEL);
            let url = directory.join(name);
            match wal_g(&url, sentinel, all) {
                Ok(backup) => self.backups.push(backup),
                Err(unread) => self.unread.push(unread),
            }
        }
        // Of pgBackRest each label has a manifest; `latest` is a link to one of them.
        let below = all.iter().filter(|object| directory.below(&object.url).is_some());
        for manifest in below.filter(|object| object.url.name() == PGBACKREST_MANIFEST) {
            let label = manifest.url.parent().filter(|label| is_pgbackrest_label(label.name()));
            self.backups.extend(label.map(|label| pgbackrest(label, manifest)));
        }
        if (self.unread.len(), self.backups.len()) == before {
            let reason = "a repository of pgBackRest or WAL-G without a complete backup".to_owned();
            self.unread.push(UnreadBackup { url: directory.clone(), reason });
        }
    }

    /// `SERVER/base/ID/backup.info` with `data.tar` and a tar a tablespace beside, each in parts if it
    /// is long; or, of barman itself, the files in `data`.
    fn barman(
        &mut self,
        directory: &StoreUrl,
        files: &[&StoredObject],
        directories: &Directories<'_>,
    ) {
        let is_part = |file: &&&StoredObject| {
            let name = file.url.name();
            name.contains(".tar") && (name.starts_with("data") || tablespace_of(name).is_some())
        };
        let tars: Vec<StoredObject> =
            files.iter().filter(is_part).map(|file| (*file).clone()).collect();
        if tars.is_empty() {
            if !directories.contains_key(&directory.join("data")) {
                let reason = "backup.info without a tar: the backup is not complete".to_owned();
                self.unread.push(UnreadBackup { url: directory.clone(), reason });
            }
            return;
        }
        if let Some(tar) = tars.iter().find(|tar| unread_packing(tar.url.name()).is_some()) {
            self.unread.push(unread_tar(directory.clone(), tar.url.name()));
            return;
        }
        if !tars.iter().any(|tar| tar.url.name().starts_with("data")) {
            let reason = "no data.tar: the backup is not complete".to_owned();
            self.unread.push(UnreadBackup { url: directory.clone(), reason });
            return;
        }
        let server = directory.parent().and_then(|base| base.parent());
        // The control file and the label come last.
        let data = tars.iter().rev().filter(|tar| tar.url.name().starts_with("data"));
        let beside = data.take(2).cloned().collect();
        self.backups.push(StoredBackup {
            url: directory.clone(),
            cluster: server.map_or_else(String::new, |server| server.name().to_owned()),
            id: directory.name().to_owned(),
            layout: FleetLayout::BarmanCloud,
            objects: tars,
            part: None,
            beside,
            manifest: None,
            info: files
                .iter()
                .find(|file| file.url.name() == "backup.info")
                .map(|file| (*file).clone()),
            packing: None,
        });
    }

    /// `base.tar` and a tar a tablespace.
    fn tars(&mut self, prefix: &StoreUrl, directory: &StoreUrl, files: &[&StoredObject]) {
        let tars = files.iter().filter(|file| is_tar(file.url.name()));
        let (own, others): (Vec<&StoredObject>, Vec<&StoredObject>) = tars
            .copied()
            .partition(|file| is_base(file.url.name()) || tablespace_of(file.url.name()).is_some());
        if own.iter().any(|file| is_base(file.url.name())) {
            if let Some(tar) = own.iter().find(|tar| unread_packing(tar.url.name()).is_some()) {
                self.unread.push(unread_tar(directory.clone(), tar.url.name()));
                return;
            }
            let manifest = files.iter().find(|file| file.url.name() == "backup_manifest");
            let (cluster, id) = names(prefix, directory);
            self.backups.push(StoredBackup {
                url: directory.clone(),
                cluster,
                id,
                layout: FleetLayout::Tars,
                objects: own.into_iter().cloned().collect(),
                part: None,
                beside: Vec::new(),
                manifest: manifest.map(|manifest| (*manifest).clone()),
                info: None,
                packing: None,
            });
            return;
        }
        for tar in own.iter().chain(&others) {
            // The WAL beside tars, and archives of WAL, are no backups.
            if tar.url.name().starts_with("pg_wal.tar") {
                continue;
            }
            let reason = "a tar that is not called base.tar: name it itself, if it is a backup";
            self.unread.push(UnreadBackup { url: tar.url.clone(), reason: reason.to_owned() });
        }
    }
}

/// Whether an object of this name is a tar, packed or encrypted in whatever way.
pub(crate) fn is_tar(name: &str) -> bool {
    let ending = name.rsplit_once(".tar").map(|(_, ending)| ending);
    name.strip_suffix(".tgz").is_some()
        || ending.is_some_and(|ending| ending.is_empty() || ending.starts_with('.'))
}

/// The tablespace of a tar, of which there may be parts: `16385.tar.gz`, `16385_0001.tar`.
pub(crate) fn tablespace_of(name: &str) -> Option<u32> {
    let stem = name.split_once(".t").map_or(name, |(stem, _)| stem);
    let number = stem.split_once('_').map_or(stem, |(number, _)| number);
    let is_decimal = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|&oid| oid > 0 && is_decimal && is_tar(name))
}

fn is_base(name: &str) -> bool {
    name.starts_with("base.tar") || name == "base.tgz"
}

/// Why a tar of this name is not read; `None`: it is.
fn unread_packing(name: &str) -> Option<&'static str> {
    let ending = name.rsplit_once(".tar").map_or("", |(_, ending)| ending);
    match ending {
        "" | ".gz" | ".zst" | ".lz4" => None,
        ".gpg" | ".pgp" | ".age" | ".enc" => Some("encrypted"),
        ".br" => Some("compressed with Brotli"),
        ".lzma" => Some("compressed with LZMA"),
        ".bz2" => Some("compressed with bzip2"),
        ".xz" => Some("compressed with xz"),
        ".snappy" => Some("compressed with Snappy"),
        _ => Some("compressed or encrypted in a way that pgtoll does not read"),
    }
}

fn unread_tar(url: StoreUrl, name: &str) -> UnreadBackup {
    let why = unread_packing(name).unwrap_or_default();
    let reason = format!("{name} is {why}; pipe it unpacked into: pgtoll verify -");
    UnreadBackup { url, reason }
}

fn not_read(url: StoreUrl, label: &str) -> UnreadBackup {
    UnreadBackup { url, reason: format!("{label}, which pgtoll does not read yet") }
}

/// `basebackups_005/NAME_backup_stop_sentinel.json`, which is written last, with the tars of a full
/// backup below `NAME/tar_partitions`. A delta's tars have pages without saying where a reader of
/// tars would look for it.
fn wal_g(
    url: &StoreUrl,
    sentinel: &StoredObject,
    all: &[StoredObject],
) -> Result<StoredBackup, UnreadBackup> {
    if url.name().contains("_D_") {
        return Err(not_read(url.clone(), "a delta of WAL-G"));
    }
    let partitions = url.join("tar_partitions");
    let parts = all.iter().filter(|object| partitions.below(&object.url).is_some());
    let objects: Vec<StoredObject> =
        parts.filter(|part| is_tar(part.url.name())).cloned().collect();
    if let Some(tar) = objects.iter().find(|tar| unread_packing(tar.url.name()).is_some()) {
        return Err(unread_tar(url.clone(), tar.url.name()));
    }
    if !objects.iter().any(|tar| tar.url.name().starts_with("pg_control.tar")) {
        let reason = "no pg_control.tar: the backup is not complete".to_owned();
        return Err(UnreadBackup { url: url.clone(), reason });
    }
    let cluster = url.parent().and_then(|directory| directory.parent());
    let is_about_all = |tar: &&StoredObject| {
        ["pg_control.tar", "backup_label.tar"].iter().any(|item| tar.url.name().starts_with(item))
    };
    Ok(StoredBackup {
        cluster: cluster.map_or_else(String::new, |cluster| cluster.name().to_owned()),
        id: url.name().to_owned(),
        url: url.clone(),
        layout: FleetLayout::WalG,
        part: None,
        beside: objects.iter().filter(is_about_all).cloned().collect(),
        objects,
        manifest: None,
        info: Some(sentinel.clone()),
        packing: None,
    })
}

fn pgbackrest(label: StoreUrl, manifest: &StoredObject) -> StoredBackup {
    let stanza = label.parent();
    StoredBackup {
        cluster: stanza.map_or_else(String::new, |stanza| stanza.name().to_owned()),
        id: label.name().to_owned(),
        url: label,
        layout: FleetLayout::PgBackRest,
        objects: Vec::new(),
        part: None,
        beside: Vec::new(),
        manifest: Some(manifest.clone()),
        info: None,
        packing: None,
    }
}

/// The root of another tool's repository that this prefix is in.
fn foreign_root(directory: &StoreUrl, files: &[&StoredObject]) -> Option<StoreUrl> {
    let has = |name: &str| files.iter().any(|file| file.url.name() == name);
    if directory.name().starts_with("basebackups_") || has(PGBACKREST_MANIFEST) {
        return Some(directory.clone());
    }
    // `backup/STANZA/backup.info`; of its archive only `archive.info`, which is no backup.
    let parent = directory.parent()?;
    (has("backup.info") && parent.name() == "backup").then(|| directory.clone())
}

/// barman's `backup.info` is two below the server.
fn is_barman(directory: &StoreUrl) -> bool {
    directory.parent().is_some_and(|base| base.name() == "base")
}

fn plain_files(prefix: &StoreUrl, directory: &StoreUrl, all: &[StoredObject]) -> StoredBackup {
    let below = all.iter().filter(|object| directory.below(&object.url).is_some());
    let about_all =
        below.clone().filter(|below| directory.below(&below.url).is_some_and(describes_backup));
    let (cluster, id) = names(prefix, directory);
    StoredBackup {
        url: directory.clone(),
        cluster,
        id,
        layout: FleetLayout::Files,
        part: None,
        beside: about_all.cloned().collect(),
        objects: below.cloned().collect(),
        manifest: None,
        info: None,
        packing: None,
    }
}

/// A cluster's and a backup's name, where nothing but the place says one: the last part of the prefix is
/// the backup, those before it are the cluster.
fn names(prefix: &StoreUrl, directory: &StoreUrl) -> (String, String) {
    let below = prefix.below(directory).unwrap_or_default();
    match below.rsplit_once('/') {
        Some((cluster, id)) => (cluster.to_owned(), id.to_owned()),
        None if below.is_empty() => (String::new(), directory.name().to_owned()),
        None => (prefix.name().to_owned(), below.to_owned()),
    }
}

const SENTINEL: &str = "_backup_stop_sentinel.json";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn objects(keys: &[&str]) -> Vec<StoredObject> {
        let pick = |key: &&str| StoredObject {
            url: format!("s3://b/{key}").parse().unwrap(),
            bytes: 10,
            etag: Some("1".to_owned()),
            modified: 0,
        };
        keys.iter().map(pick).collect()
    }

    fn check(keys: &[&str], read: &[(&str, &str, &str, usize)], unread: &[(&str, &str)]) {
        let found = Layout::new(&"s3://b".parse().unwrap(), &objects(keys));
        let backups: Vec<(&str, &str, &str, usize)> = found
            .backups
            .iter()
            .map(|backup| (backup.url.key(), &*backup.cluster, &*backup.id, backup.objects.len()))
            .collect();
        assert_eq!(backups, read);
        let refused: Vec<(&str, &str)> =
            found.unread.iter().map(|unread| (unread.url.key(), &*unread.reason)).collect();
        assert_eq!(refused, unread);
    }

    #[test]
    fn barmans_backups_are_found_by_server_and_id() {
        let keys = [
            "p/main/base/20261123T020000/backup.info",
            "p/main/base/20261123T020000/data.tar.gz",
            "p/main/base/20261123T020000/data_0001.tar.gz",
            "p/main/base/20261123T020000/16385.tar.gz",
            "p/main/wals/0000000100000000/000000010000000000000001.gz",
            "p/other/base/20261123T030000/backup.info",
            "p/other/base/20261123T040000/backup.info",
            "p/other/base/20261123T040000/data.tar.snappy",
        ];
        let read = [("p/main/base/20261123T020000", "main", "20261123T020000", 3)];
        let snappy = "data.tar.snappy is compressed with Snappy; pipe it unpacked into: pgtoll \
                      verify -";
        let unread = [
            (
                "p/other/base/20261123T030000",
                "backup.info without a tar: the backup is not complete",
            ),
            ("p/other/base/20261123T040000", snappy),
        ];
        check(&keys, &read, &unread);
    }

    #[test]
    fn tars_and_files_are_found_where_they_lie() {
        let keys = [
            "a/monday/base.tar.zst",
            "a/monday/16385.tar.zst",
            "a/monday/pg_wal.tar",
            "a/monday/backup_manifest",
            "c/PG_VERSION",
            "c/global/pg_control",
            "c/base/5/1259",
            "d/base.tar.gpg",
            "e/site.tar.gz",
        ];
        let read = [("a/monday", "a", "monday", 2), ("c", "b", "c", 3)];
        let unread = [
            ("d", "base.tar.gpg is encrypted; pipe it unpacked into: pgtoll verify -"),
            (
                "e/site.tar.gz",
                "a tar that is not called base.tar: name it itself, if it is a backup",
            ),
        ];
        check(&keys, &read, &unread);
    }

    #[test]
    fn other_tools_repositories_are_known() {
        let keys = [
            "r/backup/main/backup.info",
            "r/backup/main/20261123-020000F/backup.manifest",
            "r/backup/main/20261123-020000F/pg_data/PG_VERSION.zst",
            "r/backup/main/20261123-020000F/bundle/1",
            "w/basebackups_005/base_0001_backup_stop_sentinel.json",
            "w/basebackups_005/base_0001/tar_partitions/part_001.tar.lz4",
            "w/basebackups_005/base_0001/tar_partitions/pg_control.tar.lz4",
            "w/basebackups_005/base_0003/tar_partitions/part_001.tar.lz4",
            "w/basebackups_005/base_0004_backup_stop_sentinel.json",
            "w/basebackups_005/base_0004/tar_partitions/part_001.tar.br",
            "w/basebackups_005/base_0005_backup_stop_sentinel.json",
            "w/basebackups_005/base_0005/tar_partitions/part_001.tar",
            "w/basebackups_005/base_0002_D_0001_backup_stop_sentinel.json",
        ];
        let read = [
            ("r/backup/main/20261123-020000F", "main", "20261123-020000F", 0),
            ("w/basebackups_005/base_0001", "w", "base_0001", 2),
        ];
        let brotli = "part_001.tar.br is compressed with Brotli; pipe it unpacked into: pgtoll \
                      verify -";
        let unread = [
            (
                "w/basebackups_005/base_0002_D_0001",
                "a delta of WAL-G, which pgtoll does not read yet",
            ),
            ("w/basebackups_005/base_0004", brotli),
            ("w/basebackups_005/base_0005", "no pg_control.tar: the backup is not complete"),
        ];
        check(&keys, &read, &unread);
        let keys = ["r/backup/main/backup.info", "r/backup/main/20261123-020000F/bundle/1"];
        let reason = "a repository of pgBackRest or WAL-G without a complete backup";
        check(&keys, &[], &[("r/backup/main", reason)]);
    }

    proptest! {
        #[test]
        fn no_keys_panic_and_no_object_is_read_twice(
            keys in prop::collection::vec(
                "(a|base|backup|basebackups_5)(/(base|1|data|global|main)){0,3}/(PG_VERSION|backup[.]info|data[.]tar|base[.]tar[.]gz|7_1[.]tar|x)", 0..12)
        ) {
            let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            keys.sort_unstable();
            keys.dedup();
            let found = Layout::new(&"s3://b".parse().unwrap(), &objects(&keys));
            let mut read: Vec<&StoreUrl> =
                found.backups.iter().flat_map(|backup| backup.objects.iter().map(|object| &object.url)).collect();
            let all = read.len();
            read.sort_unstable();
            read.dedup();
            prop_assert_eq!(read.len(), all);
            let has_some = |backup: &StoredBackup| !backup.objects.is_empty() || backup.manifest.is_some();
            prop_assert!(found.backups.iter().all(has_some));
        }
    }
}
