//! Repositories of pgBackRest: where the files that a manifest lists are among objects.

use std::collections::BTreeMap;

use pgtoll_store::{StoreUrl, StoredObject};
use pgtoll_verify::{PGBACKREST_MANIFEST, PgBackRestManifest, PgBackRestPlace};

/// The objects that a manifest's files of these paths need, in the order in which they are read: those of
/// the backup's listing. An error names one that is not there.
pub(crate) fn objects_of(
    manifest: &PgBackRestManifest,
    stanza: &StoreUrl,
    listed: &BTreeMap<&StoreUrl, &StoredObject>,
    is_meant: &dyn Fn(&str) -> bool,
) -> Result<Vec<StoredObject>, String> {
    let mut needed = BTreeMap::new();
    let files = manifest.files.iter().filter(|file| is_meant(&file.path));
    for (path, place) in files.filter_map(|file| Some((&file.path, file.place.as_ref()?))) {
        let url = url_of(place, stanza);
        let Some(object) = listed.get(&url) else {
            return Err(format!(
                "{PGBACKREST_MANIFEST} lists {path}, but {} is not there",
                place.key
            ));
        };
        if place.bytes.is_some_and(|bytes| place.offset.saturating_add(bytes) > object.bytes) {
            return Err(format!("{} is shorter than {path} in it needs", place.key));
        }
        needed.insert(url, (*object).clone());
    }
    Ok(needed.into_values().collect())
}

/// The object that a file's bytes are in.
pub(crate) fn url_of(place: &PgBackRestPlace, stanza: &StoreUrl) -> StoreUrl {
    place.key.split('/').fold(stanza.clone(), |url, part| url.join(part))
}

/// The prefix of a backup's stanza.
pub(crate) fn stanza_of(backup: &StoreUrl) -> StoreUrl {
    backup.parent().unwrap_or_else(|| backup.clone())
}

/// Some two million files.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 512 << 20;
