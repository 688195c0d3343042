//! Files as they are stored.

use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use pgtoll_verify::PgBackRestPlace;
use pgtoll_wal::{OpenSegment, Packing, SegmentFile};

/// The files of a stanza, and the packing of one backup.
#[derive(Clone, Debug)]
pub(super) struct StoredFiles {
    pub(super) stanza: PathBuf,
    pub(super) packing: Packing,
}

impl StoredFiles {
    /// A file's bytes from its first on, unpacked.
    pub(super) fn open(&self, place: &PgBackRestPlace) -> io::Result<Box<dyn Read + Send>> {
        let mut file = pgtoll_system::open_unlinked(&self.stanza.join(&place.key))?;
        file.seek(SeekFrom::Start(place.offset))?;
        let packed: Box<dyn Read + Send> = match place.bytes {
            Some(bytes) => Box::new(file.take(bytes)),
            None => Box::new(file),
        };
        self.packing.unpack(packed)
    }

    /// The first bytes, `most` of them or all.
    pub(super) fn begin(&self, place: &PgBackRestPlace, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(place)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A segment of WAL that is stored as a file of the backup.
    pub(super) fn segment(&self, name: &str, place: PgBackRestPlace) -> Option<SegmentFile> {
        let shown = self.stanza.join(&place.key).join(name);
        SegmentFile::elsewhere(&shown, Arc::new(ListedSegment { stored: self.clone(), place }))
    }
}

/// A segment among the files of a backup.
#[derive(Debug)]
struct ListedSegment {
    stored: StoredFiles,
    place: PgBackRestPlace,
}

impl OpenSegment for ListedSegment {
    fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        self.stored.open(&self.place)
    }
}
