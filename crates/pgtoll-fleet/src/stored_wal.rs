//! WAL in stores.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use pgtoll_record::FleetLayout;
use pgtoll_store::{Store, StoreError, StoreUrl, StoredObject};
use pgtoll_system::Interrupt;
use pgtoll_verify::{FindSegments, WalPlace, WalStretch};
use pgtoll_wal::{OpenSegment, SegmentFile, SegmentName};

use crate::error::FleetError;
use crate::failure::{StoreFailure, Watched};
use crate::layout::StoredBackup;
use crate::pgbackrest::stanza_of;

/// The WAL segments below a URL, or the one that it is, in no order: by their names, as servers, barman,
/// pgBackRest and WAL-G give them, with whatever else is there left out.
pub fn stored_segments(
    url: &StoreUrl,
    interrupt: &Interrupt,
) -> Result<Vec<SegmentFile>, FleetError> {
    let place = StoredWal::at(url, Store::open(url, interrupt)?, StoreFailure::default());
    Ok(place.all()?)
}

/// The same, to be looked for when it is needed.
pub fn stored_wal(url: &StoreUrl, interrupt: &Interrupt) -> Result<WalPlace, FleetError> {
    let place = StoredWal::at(url, Store::open(url, interrupt)?, StoreFailure::default());
    Ok(WalPlace::Elsewhere(Arc::new(place)))
}

/// Returns the archive of a backup's layout; `None`: the layout has none.
pub(crate) fn archive_of(
    backup: &StoredBackup,
    store: &Store,
    failure: &StoreFailure,
) -> Option<WalPlace> {
    let above = backup.url.parent()?.parent();
    let url = match backup.layout {
        // SERVER/base/ID
        FleetLayout::BarmanCloud => above?.join("wals"),
        // REPOSITORY/backup/STANZA/LABEL
        FleetLayout::PgBackRest => {
            above?.parent()?.join("archive").join(stanza_of(&backup.url).name())
        }
        // PREFIX/basebackups_005/NAME
        FleetLayout::WalG => above?.join("wal_005"),
        FleetLayout::Tars | FleetLayout::Files => return None,
    };
    let place = StoredWal::at(&url, store.clone(), failure.clone());
    Some(WalPlace::Elsewhere(Arc::new(place)))
}

/// An archive of WAL, or a segment.
#[derive(Debug)]
struct StoredWal {
    url: StoreUrl,
    store: Store,
    failure: StoreFailure,
}

impl StoredWal {
    fn at(url: &StoreUrl, store: Store, failure: StoreFailure) -> Self {
        Self { url: url.clone(), store, failure }
    }

    fn all(&self) -> Result<Vec<SegmentFile>, StoreError> {
        let objects = match SegmentName::parse(self.url.name()) {
            Some(_) => vec![self.store.head(&self.url)?],
            None => self.store.list(&self.url)?,
        };
        let segment = |object: StoredObject| {
            let place = object.url.to_string();
            let store = self.store.clone();
            let failure = self.failure.clone();
            let source = Arc::new(StoredSegment { store, object, failure });
            SegmentFile::elsewhere(Path::new(&place), source)
        };
        Ok(objects.into_iter().filter_map(segment).collect())
    }
}

impl FindSegments for StoredWal {
    fn segments(&self, stretch: &WalStretch) -> io::Result<Vec<SegmentFile>> {
        let all = self.all().map_err(|error| self.failure.keep(io::Error::other(error)))?;
        Ok(all.into_iter().filter(|segment| stretch.has(segment)).collect())
    }
}

/// A segment that is an object.
#[derive(Debug)]
struct StoredSegment {
    store: Store,
    object: StoredObject,
    failure: StoreFailure,
}

impl OpenSegment for StoredSegment {
    fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        let reader = self.store.reader(&self.object);
        let input = reader.map_err(|error| self.failure.keep(io::Error::other(error)))?;
        Ok(Box::new(Watched { input, failure: self.failure.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_say_where_the_wal_is() {
        for (layout, backup, expected) in [
            (FleetLayout::BarmanCloud, "s3://b/main/base/20261123T020000", "s3://b/main/wals"),
            (
                FleetLayout::PgBackRest,
                "s3://b/repo/backup/main/20261123-020000F",
                "s3://b/repo/archive/main",
            ),
            (
                FleetLayout::WalG,
                "s3://b/main/basebackups_005/base_000000010000000000000002",
                "s3://b/main/wal_005",
            ),
        ] {
            let backup = StoredBackup {
                url: backup.parse().unwrap(),
                cluster: "main".to_owned(),
                id: String::new(),
                layout,
                objects: Vec::new(),
                part: None,
                beside: Vec::new(),
                manifest: None,
                info: None,
                packing: None,
            };
            let store = Store::open(&"file:///tmp".parse().unwrap(), &Interrupt::new()).unwrap();
            let found = archive_of(&backup, &store, &StoreFailure::default());
            let Some(WalPlace::Elsewhere(place)) = found else { panic!("{layout:?}: {found:?}") };
            let url = format!("{:?}", expected.parse::<StoreUrl>().unwrap());
            assert!(format!("{place:?}").contains(&url), "{place:?} {url}");
        }
    }
}
