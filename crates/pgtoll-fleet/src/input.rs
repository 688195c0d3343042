//! Stored backups as tars that the verification reads: objects as they are, a data directory's files
//! as tars that are made here, standard input.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Cursor, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pgtoll_format::hex;

use pgtoll_record::FleetLayout;
use pgtoll_store::{ObjectReader, Store, StoreUrl, StoredObject};
use pgtoll_verify::{
    OpenInput, PgBackRestFile, PgBackRestManifest, TarBackup, TarInput, UnreadTar, describes_backup,
};
use pgtoll_wal::Packing;
use sha1::{Digest as _, Sha1};
use tar::{EntryType, Header};

use crate::error::FleetError;
use crate::failure::{StoreFailure, Watched};
use crate::layout::{StoredBackup, tablespace_of};
use crate::pgbackrest::{MANIFEST_BYTES_MAX, stanza_of, url_of};
use crate::stored_wal::archive_of;

/// The backup as tars, each read in ranges.
pub(crate) fn tars_of(
    backup: &StoredBackup,
    store: &Store,
    failure: &StoreFailure,
) -> Result<TarBackup, FleetError> {
    let input = |object: &StoredObject| -> Arc<dyn OpenInput> {
        let store = store.clone();
        let object = object.clone();
        let failure = failure.clone();
        Arc::new(ObjectInput { store, object, failure })
    };
    let is_wal_g = backup.layout == FleetLayout::WalG;
    let tar = |object: &StoredObject| TarInput {
        name: object.url.to_string(),
        file_name: object.url.name().to_owned(),
        // WAL-G's parts have what is in tablespaces below pg_tblspc.
        tablespace: tablespace_of(object.url.name()).filter(|_| !is_wal_g),
        bytes: object.bytes,
        input: input(object),
    };
    let directory = |files| directory_tars(backup, files, store, failure);
    let (inputs, beside) = match backup.layout {
        FleetLayout::BarmanCloud | FleetLayout::WalG | FleetLayout::Tars => {
            (backup.objects.iter().map(tar).collect(), backup.beside.iter().map(tar).collect())
        }
        FleetLayout::Files => {
            (directory(files(backup, &backup.objects)), directory(files(backup, &backup.beside)))
        }
        FleetLayout::PgBackRest => {
            let (own, beside) = pgbackrest_files(backup, store)?;
            (directory(own), directory(beside))
        }
    };
    let beside = if backup.part.is_some() { beside } else { Vec::new() };
    let is_postgres = backup.layout != FleetLayout::PgBackRest;
    let manifest = backup.manifest.as_ref().filter(|_| is_postgres).map(input);
    let tars = TarBackup::of_inputs(&backup.url.to_string(), inputs, manifest);
    let tars = tars.and_then(|tars| tars.with_beside(beside));
    let tars = tars.map(|tars| tars.with_wal(archive_of(backup, store, failure)));
    tars.map_err(|error| FleetError::Unread { url: backup.url.clone(), reason: error.to_string() })
}

/// A tar on standard input, packed or not.
pub fn standard_input() -> Result<TarBackup, UnreadTar> {
    let input = TarInput {
        name: "-".to_owned(),
        file_name: "stdin.tar".to_owned(),
        tablespace: None,
        bytes: 0,
        input: Arc::new(StandardInput::default()),
    };
    TarBackup::of_inputs("-", vec![input], None)
}

/// An object.
#[derive(Debug)]
struct ObjectInput {
    store: Store,
    object: StoredObject,
    failure: StoreFailure,
}

impl OpenInput for ObjectInput {
    fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        let reader = self.store.reader(&self.object);
        let input = reader.map_err(|error| self.failure.keep(io::Error::other(error)))?;
        Ok(Box::new(Watched { input, failure: self.failure.clone() }))
    }
}

/// Standard input, once.
#[derive(Debug, Default)]
struct StandardInput {
    is_taken: AtomicBool,
}

impl OpenInput for StandardInput {
    fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        if self.is_taken.swap(true, Ordering::Relaxed) {
            return Err(io::Error::other(
                "standard input can be read once only, and the backup is of a cluster without \
                 checksums or with other sizes: write it to a file and verify that",
            ));
        }
        Ok(Box::new(io::stdin()))
    }
}

/// A file of a data directory.
#[derive(Clone, Debug)]
struct StoredFile {
    path: String,
    /// Bytes, unpacked.
    bytes: u64,
    /// `None`: it is empty.
    place: Option<FilePlace>,
    /// SHA-1 of its bytes, unpacked, in hexadecimal; `None`: unknown.
    checksum: Option<String>,
}

/// The place of a file's bytes.
#[derive(Clone, Debug)]
struct FilePlace {
    object: StoredObject,
    packing: Packing,
    /// The part of the object that they are: where it begins, and how long it is.
    part: Option<(u64, u64)>,
}

impl StoredFile {
    /// Bytes, as they are stored.
    fn stored_bytes(&self) -> u64 {
        let pick = |place: &FilePlace| place.part.map_or(place.object.bytes, |(_, bytes)| bytes);
        self.place.as_ref().map_or(0, pick)
    }
}

/// Each object is a file.
fn files(backup: &StoredBackup, objects: &[StoredObject]) -> Vec<StoredFile> {
    let file = |object: &StoredObject| {
        let place = FilePlace { object: object.clone(), packing: Packing::Plain, part: None };
        let path = backup.url.below(&object.url).unwrap_or_else(|| object.url.name());
        StoredFile {
            path: path.to_owned(),
            bytes: object.bytes,
            place: Some(place).filter(|_| object.bytes > 0),
            checksum: None,
        }
    };
    objects.iter().map(file).collect()
}

/// Returns the files of the manifest, in the order of the objects, each of which is read once: the files of the
/// backup, or of this part, and of other parts those that are about all of it.
fn pgbackrest_files(
    backup: &StoredBackup,
    store: &Store,
) -> Result<(Vec<StoredFile>, Vec<StoredFile>), FleetError> {
    let unread = |reason: String| FleetError::Unread { url: backup.url.clone(), reason };
    let Some(manifest) = &backup.manifest else { return Ok((Vec::new(), Vec::new())) };
    let mut text = Vec::new();
    // Under the condition that it is the one of the plan.
    let read = store.reader(manifest)?.take(MANIFEST_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| unread(error.to_string()))?;
    let PgBackRestManifest { packing, files, .. } =
        PgBackRestManifest::parse(&text, &backup.id).map_err(|error| unread(error.to_string()))?;
    let stanza = stanza_of(&backup.url);
    let by_url = |objects: &'_ [StoredObject]| -> BTreeMap<StoreUrl, StoredObject> {
        objects.iter().map(|object| (object.url.clone(), object.clone())).collect()
    };
    let own = by_url(&backup.objects);
    let others = by_url(&backup.beside);
    let is_first = backup.part.is_none_or(|part| part.number == 1);
    let mut found = Vec::with_capacity(files.len());
    let mut beside = Vec::new();
    for PgBackRestFile { path, bytes, place, checksum } in files {
        let Some(place) = place else {
            // Empty ones are nowhere, and so in one part.
            found.extend(is_first.then_some(StoredFile { path, bytes, place: None, checksum }));
            continue;
        };
        let url = url_of(&place, &stanza);
        let part = place.bytes.map(|bytes| (place.offset, bytes));
        let file = |object: &StoredObject| {
            let place = FilePlace { object: object.clone(), packing, part };
            StoredFile { path: path.clone(), bytes, place: Some(place), checksum: checksum.clone() }
        };
        match (own.get(&url), others.get(&url)) {
            (Some(object), _) => found.push(file(object)),
            (None, Some(object)) if describes_backup(&path) => beside.push(file(object)),
            (None, _) if backup.part.is_some() => {}
            (None, _) => return Err(unread(format!("no object of the plan is {path}"))),
        }
    }
    for files in [&mut found, &mut beside] {
        files.sort_by_cached_key(|file| {
            file.place.as_ref().map(|place| (place.object.url.clone(), place.part))
        });
    }
    Ok((found, beside))
}

/// Files as tars of some size: they are read in parallel, and a tar with a file that
/// cannot be unpacked ends no other tar.
fn directory_tars(
    backup: &StoredBackup,
    files: Vec<StoredFile>,
    store: &Store,
    failure: &StoreFailure,
) -> Vec<TarInput> {
    let mut chunks: Vec<(u64, Vec<StoredFile>)> = vec![(0, Vec::new())];
    for file in files {
        let bytes = file.stored_bytes();
        match chunks.last_mut() {
            // A plan may have any lengths in it.
            Some((all, chunk)) if chunk.is_empty() || all.saturating_add(bytes) <= CHUNK_BYTES => {
                *all = all.saturating_add(bytes);
                chunk.push(file);
            }
            _ => chunks.push((bytes, vec![file])),
        }
    }
    let tar = |(bytes, files): (u64, Vec<StoredFile>)| TarInput {
        name: backup.url.to_string(),
        file_name: "files.tar".to_owned(),
        tablespace: None,
        bytes,
        input: Arc::new(DirectoryInput {
            store: store.clone(),
            files: Arc::new(files),
            failure: failure.clone(),
            damaged: DamagedFiles::default(),
        }),
    };
    chunks.into_iter().map(tar).collect()
}

/// As long as a relation's file gets.
const CHUNK_BYTES: u64 = 1 << 30;

/// Files as a tar: a header, which is made here, before each one's bytes.
#[derive(Debug)]
struct DirectoryInput {
    store: Store,
    files: Arc<Vec<StoredFile>>,
    failure: StoreFailure,
    damaged: DamagedFiles,
}

/// Files whose bytes are not those that their manifest lists.
#[derive(Clone, Debug, Default)]
struct DamagedFiles(Arc<Mutex<Vec<String>>>);

impl DamagedFiles {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        pgtoll_system::lock(&self.0)
    }
}

impl OpenInput for DirectoryInput {
    fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        self.damaged.lock().clear();
        Ok(Box::new(DirectoryTar {
            store: self.store.clone(),
            failure: self.failure.clone(),
            damaged: self.damaged.clone(),
            files: Arc::clone(&self.files),
            next: 0,
            parts: VecDeque::new(),
            bundle: None,
        }))
    }

    fn wrong_checksums(&self) -> Option<Vec<String>> {
        let has_checksums = self.files.iter().any(|file| file.checksum.is_some());
        has_checksums.then(|| self.damaged.lock().clone())
    }
}

struct DirectoryTar {
    store: Store,
    failure: StoreFailure,
    damaged: DamagedFiles,
    files: Arc<Vec<StoredFile>>,
    next: usize,
    /// The readers that come next.
    parts: VecDeque<Box<dyn Read + Send>>,
    /// The object that parts were read of, and how far.
    bundle: Option<(StoreUrl, u64, Watched<ObjectReader>)>,
}

impl Read for DirectoryTar {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(part) = self.parts.front_mut() {
                let read = part.read(buffer)?;
                if read > 0 {
                    return Ok(read);
                }
                self.parts.pop_front();
                continue;
            }
            // One more than the files: the end of the tar.
            if self.next > self.files.len() {
                return Ok(0);
            }
            self.next_member()?;
        }
    }
}

impl DirectoryTar {
    fn next_member(&mut self) -> io::Result<()> {
        let file = self.files.get(self.next).cloned();
        self.next += 1;
        let Some(StoredFile { path, bytes, place, checksum }) = file else {
            self.push(vec![0; 1024]);
            return Ok(());
        };
        self.push(header(&path, bytes)?.as_bytes().to_vec());
        if let Some(place) = place {
            let packed = self.packed(&place)?;
            let unpacked = place.packing.unpack(packed);
            let exactly = |unpacked| Exactly { unpacked, left: bytes, path: path.clone() };
            self.parts.push_back(match checksum {
                None => Box::new(exactly(unpacked?)),
                Some(checksum) => Box::new(Compared {
                    file: unpacked.ok().map(exactly),
                    left: bytes,
                    path: path.clone(),
                    hash: Sha1::new(),
                    checksum,
                    damaged: self.damaged.clone(),
                    failure: self.failure.clone(),
                }),
            });
        }
        let padding = bytes.next_multiple_of(512) - bytes;
        self.push(vec![0; usize::try_from(padding).unwrap_or_default()]);
        Ok(())
    }

    fn packed(&mut self, place: &FilePlace) -> io::Result<Box<dyn Read + Send>> {
        let Some((offset, bytes)) = place.part else {
            return Ok(Box::new(self.reader(&place.object)?));
        };
        let (mut at, mut reader) = match self.bundle.take() {
            Some((url, at, reader)) if url == place.object.url && at <= offset => (at, reader),
            _ => (0, self.reader(&place.object)?),
        };
        at += io::copy(&mut reader.by_ref().take(offset - at), &mut io::sink())?;
        if bytes > PART_BYTES_MAX {
            return Ok(Box::new(reader.take(bytes)));
        }
        let mut part = Vec::new();
        at += reader.by_ref().take(bytes).read_to_end(&mut part)? as u64;
        self.bundle = Some((place.object.url.clone(), at, reader));
        Ok(Box::new(Cursor::new(part)))
    }

    fn reader(&self, object: &StoredObject) -> io::Result<Watched<ObjectReader>> {
        let reader = self.store.reader(object);
        let input = reader.map_err(|error| self.failure.keep(io::Error::other(error)))?;
        Ok(Watched { input, failure: self.failure.clone() })
    }

    fn push(&mut self, bytes: Vec<u8>) {
        self.parts.push_back(Box::new(Cursor::new(bytes)));
    }
}

/// Larger parts of bundles are not held in memory.
const PART_BYTES_MAX: u64 = 16 << 20;

/// The bytes of a file, which have to be exactly as many as are listed.
struct Exactly {
    unpacked: Box<dyn Read + Send>,
    left: u64,
    path: String,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let named = |words: &dyn std::fmt::Display| format!("{}: {words}", self.path);
        let read = self.unpacked.read(buffer);
        let read = read.map_err(|error| io::Error::new(error.kind(), named(&error)))?;
        match self.left.checked_sub(read as u64) {
            Some(left) if left == 0 || read > 0 => {
                self.left = left;
                Ok(read)
            }
            Some(_) => Err(io::Error::other(named(&"shorter than it should be"))),
            None => Err(io::Error::other(named(&"longer than it should be"))),
        }
    }
}

/// The bytes of a file whose checksum is known. Where they cannot be unpacked, zeros stand for the rest:
/// the file is named as damaged, and the next one is read.
struct Compared {
    /// `None`: it could not be unpacked up to its end.
    file: Option<Exactly>,
    left: u64,
    path: String,
    hash: Sha1,
    checksum: String,
    damaged: DamagedFiles,
    failure: StoreFailure,
}

impl Compared {
    fn read_file(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(file) = &mut self.file else { return Ok(None) };
        match file.read(buffer) {
            Ok(0) => Ok(None),
            Ok(read) => Ok(Some(read)),
            // What the store failed with says nothing of the file.
            Err(error) if self.failure.reason().is_some() => Err(error),
            Err(_) => Ok(None),
        }
    }
}

impl Read for Compared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.left == 0 {
            return Ok(0);
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..room];
        let read = if let Some(read) = self.read_file(buffer)? {
            read
        } else {
            self.file = None;
            buffer.fill(0);
            room
        };
        self.hash.update(&buffer[..read]);
        self.left -= read as u64;
        if self.left == 0 {
            let hash = self.hash.finalize_reset();
            let is_longer = match &mut self.file {
                Some(file) => file.read(&mut [0]).is_err(),
                None => true,
            };
            if is_longer || hex(&hash) != self.checksum {
                self.damaged.lock().push(self.path.clone());
            }
        }
        Ok(read)
    }
}

fn header(path: &str, bytes: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_path(path).map_err(|error| io::Error::other(format!("{path}: {error}")))?;
    header.set_size(bytes);
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_cksum();
    Ok(header)
}
